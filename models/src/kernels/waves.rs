//! Sinusoidal positions (Vaswani et al. 2017, section 3.5).

/// Sine and cosine of `position / 10000^(2 i / features)` for the features `2 i` and `2 i + 1` of each position.
pub(crate) fn waves(positions: usize, features: usize) -> Vec<f32> {
    let value = |position: usize, feature: usize| {
        let even = (feature / 2 * 2) as f64;
        let phase = position as f64 / 10_000f64.powf(even / features as f64);
        (if feature.is_multiple_of(2) { phase.sin() } else { phase.cos() }) as f32
    };
    (0..positions).flat_map(|position| (0..features).map(move |feature| value(position, feature))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_turns_slower_than_the_one_before() {
        let table = waves(3, 5);
        assert_eq!(table[..5], [0.0, 1.0, 0.0, 1.0, 0.0]);
        let second = 2.0 / 10_000f64.powf(0.4);
        let expected =
            [2f64.sin(), 2f64.cos(), second.sin(), second.cos(), (2.0 / 10_000f64.powf(0.8)).sin()];
        for (found, expected) in table[10..].iter().zip(expected) {
            assert!((f64::from(*found) - expected).abs() < 1e-7, "{found} {expected}");
        }
    }
}
