//! Shares of a whole number of things.

/// `floor(share * whole)`: how many of `whole` a share of them is, never more than all. Nothing of a share that is
/// negative or not a number.
///
/// The product is first rounded to nine decimals, so that 0.29 of 100 are 29 although the nearest doubles multiply to
/// less.
///
/// ```
/// assert_eq!(shared::share::of(0.29, 100), 29);
/// assert!(0.29 * 100.0 < 29.0);
/// ```
#[must_use]
pub fn of(share: f64, whole: usize) -> usize {
    let product = (share * whole as f64 * 1e9).round() / 1e9;
    (product.floor() as usize).min(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_rounded_down_after_the_doubles_error_is_taken_out() {
        // Every percentage of every whole up to 300, against integers.
        for percent in 0..=100_usize {
            for whole in 0..=300 {
                let found = of(percent as f64 / 100.0, whole);
                assert_eq!(found, percent * whole / 100, "{percent} % of {whole}");
            }
        }
        assert_eq!(
            [of(1.0 / 3.0, 3), of(0.666, 3), of(2.0, 3), of(-1.0, 3), of(f64::NAN, 3)],
            [1, 1, 3, 0, 0]
        );
    }
}
