//! Tests of a device's personal model and of the two experts that it mixes.

use std::ops::ControlFlow;

use models::{Backend, PerClass, Prediction, argmax};
use shared::data::View;
use shared::personalisation::{Mix, Mixture, Personal, Scores, Tally};
use tracing::warn;

use crate::predict::{BATCH, PredictError, for_each_batch};

/// The tests of a personal model and of its experts.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Of the global model.
    pub global: Scores,
    /// Of the local expert.
    pub local: Scores,
    /// Of the mixture, which for FT and FB is the local expert.
    pub mixture: Scores,
    /// The mean weight of the global expert over the test samples, 0 to 1; 0 without samples.
    pub gate: f64,
    /// Number of predictions: one for each test sample, or for each position of a text.
    pub samples: u64,
    /// The results of the mixture by class.
    pub by_class: PerClass,
}

/// Tests the model as its run did: on `test` or, without it, on the samples held out of `own`, the device's training samples. The
/// local test weighs classes as in the samples that were not held out. If the number of samples has changed since, it weighs
/// them as in all of `own`.
///
/// # Errors
/// [`PredictError`] if the samples do not fit the model, or it cannot be run.
pub fn compare(
    personal: &Personal,
    own: &View,
    test: Option<&View>,
    backend: &Backend,
) -> Result<Comparison, PredictError> {
    let (learned, held_out) = match parts(personal, own) {
        Err(error @ PredictError::OtherNumber { .. }) if test.is_some() => {
            warn!("{error}; the local test uses the classes of all of them");
            (own.clone(), own.part(&[]))
        }
        parts => parts?,
    };
    let test = test.unwrap_or(&held_out);
    let mut mixture = Mixture::new(&personal.model, backend)?;
    let (classes, input) = (mixture.architecture().classes, mixture.architecture().input.clone());
    if test.classes() > classes || own.classes() > classes {
        let found = test.classes().max(own.classes());
        return Err(PredictError::Classes { expected: classes, found });
    }
    let mut tallies = [(); 3].map(|()| Tally::new(classes));
    let (mut by_class, mix) = (PerClass::new(classes), mixture.mix());
    let mut gates = 0.0;
    for_each_batch(&personal.samples.preparation, &input, test, BATCH, &mut |chunk, batch| {
        let answer = mixture.answer(batch).map_err(PredictError::Network)?;
        let values = [&answer.global, &answer.local, &answer.mixed];
        let bad =
            values.into_iter().filter_map(|rows| rows.iter().position(|value| !value.is_finite())).min();
        if let Some(place) = bad {
            // A text has several rows for each sample.
            let sample = chunk[place / (answer.mixed.len() / chunk.len())];
            return Err(PredictError::NotFinite { sample });
        }
        for (tally, rows) in tallies.iter_mut().zip([&answer.global, &answer.local, &answer.mixed]) {
            for (&label, row) in batch.y().iter().zip(rows.chunks_exact(classes)) {
                tally.count(label, argmax(row) as u32);
            }
        }
        for (&label, row) in batch.y().iter().zip(answer.mixed.chunks_exact(classes)) {
            let Prediction { class, probabilities } = match mix {
                Mix::Logits => Prediction::from_logits(row),
                Mix::Probabilities => Prediction::from_probabilities(row.to_vec()),
            };
            by_class.count(label, class, f64::from(probabilities[class as usize]));
        }
        gates += answer.weights.iter().map(|&gate| f64::from(gate)).sum::<f64>();
        Ok(ControlFlow::Continue(()))
    })?;
    let histogram = learned.histogram();
    let [global, local, mixture] = tallies.each_ref().map(|tally| tally.scores(&histogram));
    let samples = tallies[0].samples();
    Ok(Comparison { global, local, mixture, gate: gates / samples.max(1) as f64, samples, by_class })
}

/// The device's samples that the model may have learned from, and those held out.
fn parts(personal: &Personal, own: &View) -> Result<(View, View), PredictError> {
    let Personal { split, held_out, .. } = personal;
    if held_out.is_empty() {
        return Ok((own.clone(), own.part(&[])));
    }
    // Held-out samples are known by their positions, which are meaningless for other samples.
    let (expected, found) = (split.samples() + held_out.len(), own.len());
    if expected != found {
        return Err(PredictError::OtherNumber { expected, found });
    }
    Ok((own.part(&[&split.expert[..], &split.gate].concat()), own.part(held_out)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shared::data::Dataset;
    use shared::personalisation::Method;

    use super::*;

    fn view(pixels: Vec<u8>, labels: Vec<u8>) -> View {
        View::whole(Arc::new(Dataset::new(vec![1, 1, 2], pixels, labels, 2).unwrap()))
    }

    #[test]
    fn experts_and_mixture_are_tested_side_by_side() {
        // Of what it has learned from, the device has three samples of class 1 and one of class 0; what was held out of it
        // is of class 0.
        let own = view(vec![0; 12], vec![1, 1, 0, 1, 0, 0]);
        // The global expert says 0, the local one 1; the gate is open where the first pixel is the brighter one.
        let test = view(vec![255, 0, 0, 255, 0, 255, 0, 255], vec![0, 1, 1, 0]);
        let found = compare(&Personal::example(Method::Mf), &own, Some(&test), &Backend::cpu()).unwrap();
        let scores = |local, global| Scores { local: Some(local), global: Some(global) };
        assert_eq!((found.global, found.local), (scores(0.25, 0.5), scores(0.75, 0.5)));
        // Right about one of two of class 0 and both of class 1: 1/4 * 1/2 + 3/4.
        assert_eq!((found.mixture, found.samples), (scores(0.875, 0.75), 4));
        assert!((found.gate - 0.25).abs() < 1e-3, "{found:?}");
        let confusion = [0, 1].map(|label| found.by_class.confusion_of(label).to_vec());
        assert_eq!(confusion, [[1, 1], [0, 2]], "of the mixture");
        let fb = compare(&Personal::example(Method::Fb), &own, Some(&test), &Backend::cpu()).unwrap();
        assert_eq!((fb.mixture, fb.gate), (found.local, 0.0));
    }

    #[test]
    fn without_a_test_split_what_was_held_out_is_tested_on() {
        let personal = Personal::example(Method::Mf);
        let own = view((0..12).map(|pixel| 20 * pixel).collect(), vec![1, 1, 0, 1, 1, 0]);
        let found = compare(&personal, &own, None, &Backend::cpu()).unwrap();
        assert_eq!(found, compare(&personal, &own, Some(&own.part(&[2, 4])), &Backend::cpu()).unwrap());
        assert_eq!(found.samples, 2);
        // Of other samples the positions say nothing, and a test split needs none.
        for samples in [5, 7] {
            let other = view(vec![0; 2 * samples], vec![0; samples]);
            let error = compare(&personal, &other, None, &Backend::cpu()).unwrap_err();
            assert!(matches!(error, PredictError::OtherNumber { expected: 6, found } if found == samples));
            assert_eq!(compare(&personal, &other, Some(&own), &Backend::cpu()).unwrap().samples, 6);
        }
        // Without held-out samples, positions do not matter.
        let all = Personal { held_out: Vec::new(), ..personal };
        assert_eq!(
            compare(&all, &view(vec![0; 14], vec![0; 7]), Some(&own), &Backend::cpu()).unwrap().samples,
            6
        );
    }

    #[test]
    fn labels_that_the_model_does_not_know_are_refused() {
        let own = view(vec![0; 12], vec![1, 1, 0, 1, 0, 0]);
        let many = View::whole(Arc::new(Dataset::new(vec![1, 1, 2], vec![0; 2], vec![7_u8], 8).unwrap()));
        let result = compare(&Personal::example(Method::Mf), &own, Some(&many), &Backend::cpu());
        assert!(matches!(result, Err(PredictError::Classes { expected: 2, found: 8 })));
    }

    #[test]
    fn outputs_that_are_not_numbers_are_no_test() {
        let own = view(vec![0; 12], vec![1, 1, 0, 1, 0, 0]);
        let test = view(vec![0, 0, 255, 255], vec![0, 1]);
        let mut diverged = Personal::example(Method::Mf);
        diverged.model.local.iter_mut().for_each(|(_, array)| array.values_mut().fill(f32::MAX));
        let result = compare(&diverged, &own, Some(&test), &Backend::cpu());
        assert!(matches!(result, Err(PredictError::NotFinite { .. })), "{result:?}");
    }

    #[test]
    fn samples_of_another_shape_are_refused() {
        let own = view(vec![0; 12], vec![1, 1, 0, 1, 0, 0]);
        let wide = View::whole(Arc::new(Dataset::new(vec![1, 2, 2], vec![0; 4], vec![0_u8], 2).unwrap()));
        let result = compare(&Personal::example(Method::Mf), &own, Some(&wide), &Backend::cpu());
        assert!(matches!(result, Err(PredictError::Shape { .. })));
    }
}
