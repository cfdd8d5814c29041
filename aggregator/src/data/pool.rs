//! Training and test samples together, divided anew.

use shared::data::{DataError, Dataset, Skipped, Split};

/// A split of both sets together, with this number of test samples, evenly spaced, regardless of the seed.
///
/// # Errors
/// [`DataError`] if the sets do not fit each other, or nothing would be left to train on.
pub(super) fn divided(
    [train, test]: [&Dataset; 2],
    tests: usize,
    split: Split,
) -> Result<Dataset, DataError> {
    let whole = train.joined(test)?;
    let samples = whole.len();
    if tests >= samples {
        return Err(DataError::NoneToTrainOn { tests, samples });
    }
    if split == Split::Test {
        // What both files left out is shown once, with the training samples.
        return Ok(whole.thin(tests)?.leaving_out(Skipped::default()));
    }
    let mut tests = whole.spread(tests).into_iter().peekable();
    let training: Vec<usize> = (0..samples).filter(|sample| tests.next_if_eq(sample).is_none()).collect();
    Ok(whole.subset(&training)?.leaving_out(whole.skipped().clone()))
}

#[cfg(test)]
mod tests {
    use shared::data::Samples;

    use super::*;

    fn set(pixels: std::ops::Range<u8>) -> Dataset {
        let labels = pixels.clone().map(|sample| sample % 2);
        Dataset::new(vec![1, 1, 1], pixels.collect(), labels, 2).expect("one pixel each")
    }

    #[test]
    fn every_sample_is_in_one_of_both_parts() {
        let (train, test) = (set(0..50), set(50..60));
        let part = |split| divided([&train, &test], 20, split).expect("it fits");
        let pixels = |set: &Dataset| -> Vec<u8> {
            let Samples::Bytes(pixels) = set.samples() else { panic!("bytes") };
            pixels.clone()
        };
        let (training, tests) = (part(Split::Train), part(Split::Test));
        assert_eq!((training.len(), pixels(&tests)), (40, (0..60).step_by(3).collect()));
        let mut all = [pixels(&training), pixels(&tests)].concat();
        all.sort_unstable();
        assert_eq!(all, (0..60).collect::<Vec<u8>>());
        assert!(
            pixels(&tests).iter().zip(tests.labels()).all(|(pixel, label)| u32::from(pixel % 2) == *label)
        );
    }

    #[test]
    fn sets_that_do_not_fit_and_pools_of_tests_alone_are_refused() {
        let named = |names: [&str; 2]| set(0..4).named(names.map(str::to_owned).to_vec());
        let said =
            |sets: [&Dataset; 2], tests| divided(sets, tests, Split::Train).expect_err("refused").to_string();
        let other = said([&named(["ash", "elm"]), &named(["elm", "ash"])], 2);
        assert!(other.contains("ash, elm") && other.contains("elm, ash"), "{other}");
        let few = said([&set(0..4), &set(4..6)], 6);
        assert!(few.contains("6 test samples") && few.contains("6 in all"), "{few}");
    }
}
