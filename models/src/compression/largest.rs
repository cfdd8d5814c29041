//! The largest values of a tensor, by their magnitudes.
//!
//! Of equal magnitudes the first count, so that the same values give the same choice on every machine.

/// How many of `count` values a share is: at least one.
#[must_use]
pub(super) fn of_share(count: usize, share: f64) -> usize {
    ((count as f64 * share).ceil() as usize).clamp(1.min(count), count)
}

/// Makes all values zero but the `kept` largest. What is not a number is larger than all.
pub(super) fn keep(values: &mut [f32], kept: usize) {
    let Some(others) = values.len().checked_sub(kept).filter(|&others| others > 0) else { return };
    // Magnitudes are ordered as their bits are.
    let mut magnitudes: Vec<u32> = values.iter().map(|&value| magnitude(value)).collect();
    // The largest of those that are not kept: everything behind it is kept, all that is larger among it.
    let (_, &mut bound, larger) = magnitudes.select_nth_unstable(others - 1);
    let mut equal = larger.iter().filter(|&&magnitude| magnitude == bound).count();
    for value in values {
        let of_value = magnitude(*value);
        let is_kept = of_value > bound || of_value == bound && equal > 0;
        if of_value == bound {
            equal = equal.saturating_sub(1);
        }
        if !is_kept {
            *value = 0.0;
        }
    }
}

fn magnitude(value: f32) -> u32 {
    value.to_bits() & 0x7fff_ffff
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kept(values: &[f32], kept: usize) -> Vec<f32> {
        let mut values = values.to_vec();
        keep(&mut values, kept);
        values
    }

    #[test]
    fn the_largest_stay_and_of_equal_ones_the_first() {
        let values = [1.0, -2.0, 0.5, 2.0, -2.0, 1.0];
        for (count, expected) in [
            (0, [0.0; 6]),
            (1, [0.0, -2.0, 0.0, 0.0, 0.0, 0.0]),
            (2, [0.0, -2.0, 0.0, 2.0, 0.0, 0.0]),
            (4, [1.0, -2.0, 0.0, 2.0, -2.0, 0.0]),
            (5, [1.0, -2.0, 0.0, 2.0, -2.0, 1.0]),
            (6, values),
            (7, values),
        ] {
            assert_eq!(kept(&values, count), expected, "{count}");
        }
        assert_eq!(kept(&[f32::INFINITY, 1.0, f32::NAN], 2)[1], 0.0, "what is broken is seen");
        assert!(kept(&[], 1).is_empty());
    }

    #[test]
    fn a_share_is_at_least_one_value() {
        assert_eq!([0.01, 0.1, 1.0].map(|share| of_share(256, share)), [3, 26, 256]);
        assert_eq!((of_share(0, 0.5), of_share(1000, 1e-300)), (0, 1));
    }

    proptest! {
        #[test]
        fn as_sorting_says(values in prop::collection::vec(-8_i8..8, 0..80), count in 0_usize..90) {
            let values: Vec<f32> = values.into_iter().map(f32::from).collect();
            let mut order: Vec<usize> = (0..values.len()).collect();
            order.sort_by(|&a, &b| values[b].abs().total_cmp(&values[a].abs()).then(a.cmp(&b)));
            let mut expected = vec![0.0; values.len()];
            order.iter().take(count).for_each(|&at| expected[at] = values[at]);
            prop_assert_eq!(kept(&values, count), expected);
        }
    }
}
