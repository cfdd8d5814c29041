//! Lines of very many points, drawn with as many as can be seen.
//!
//! Of each of a few hundred groups of neighbours the first and the last point stay, and the least and the greatest: at the width of a
//! chart the line covers the same pixels (M4: Jugel et al., VLDB 2014).

/// Lines of fewer points are drawn as they are.
const MOST: usize = 2000;
/// Groups of neighbours: more than a chart has pixels in four columns of its width.
const GROUPS: usize = 400;

/// The points that are drawn, in their order.
pub(super) fn thinned(points: &[(u32, f64)]) -> Vec<(u32, f64)> {
    if points.len() <= MOST {
        return points.to_vec();
    }
    let mut kept = Vec::with_capacity(4 * GROUPS + 4);
    for group in points.chunks(points.len().div_ceil(GROUPS)) {
        let by_value = |a: &(usize, &(u32, f64)), b: &(usize, &(u32, f64))| a.1.1.total_cmp(&b.1.1);
        let least = group.iter().enumerate().min_by(by_value).map_or(0, |(at, _)| at);
        let greatest = group.iter().enumerate().max_by(by_value).map_or(0, |(at, _)| at);
        let mut stay = [0, least, greatest, group.len() - 1];
        stay.sort_unstable();
        kept.extend(stay.iter().map(|&at| group[at]));
        kept.dedup();
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_points_stay_as_they_are_and_of_many_every_extreme() {
        let few: Vec<(u32, f64)> = (0..2000).map(|at| (at, f64::from(at % 7))).collect();
        assert_eq!(thinned(&few), few);
        let mut many: Vec<(u32, f64)> = (0..100_000).map(|at| (at, f64::from(at % 7))).collect();
        (many[54_321].1, many[77_777].1) = (-3.0, 9.0);
        let kept = thinned(&many);
        assert!(kept.len() <= 4 * GROUPS, "{}", kept.len());
        assert!(kept.is_sorted_by(|a, b| a.0 < b.0));
        assert_eq!((kept.first(), kept.last()), (many.first(), many.last()));
        assert!(kept.contains(&(54_321, -3.0)) && kept.contains(&(77_777, 9.0)));
    }
}
