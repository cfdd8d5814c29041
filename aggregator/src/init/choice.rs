//! The choice of a model and of settings for the user's own samples.

use models::Architecture;
use shared::data::Labels;
use shared::data::survey::Survey;

/// The least number of samples of a simulated client.
const MIN_SAMPLES: usize = 10;
/// Simulated clients, where there are samples for them.
const CLIENTS: usize = 10;
/// Samples of a client that are few.
const FEW: usize = 100;
/// Samples in a batch, where there are enough.
const BATCH: usize = 20;

/// What suits the samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The built-in model.
    pub model: &'static str,
    /// Why this one, for the comment.
    pub reason: &'static str,
    /// Simulated clients.
    pub clients: usize,
    /// Share of the clients in a round.
    pub fraction: f64,
    /// Rounds.
    pub rounds: u32,
    /// Epochs of a client in a round: more where it has few samples.
    pub epochs: u32,
    /// Samples in a batch.
    pub batch: usize,
    /// The optimiser and its learning rate.
    pub optimizer: (&'static str, f64),
}

impl Choice {
    /// For what was found.
    #[must_use]
    pub fn of(survey: &Survey) -> Self {
        let (model, reason) = match (&survey.text, survey.vocabulary) {
            (Some(_), _) => ("text-transformer", "reads the bytes of a text"),
            (None, Some(_)) => ("text-transformer", "reads the tokens of a text"),
            (None, None) => model(&survey.shape, &survey.labels, survey.set.is_text()),
        };
        let samples = survey.train.unwrap_or(50_000);
        let clients = (samples / MIN_SAMPLES).clamp(1, CLIENTS);
        Self {
            model,
            reason,
            clients,
            fraction: if clients >= 5 { 0.5 } else { 1.0 },
            rounds: 20,
            epochs: if samples / clients < FEW { 5 } else { 1 },
            batch: (samples / clients / 2).clamp(1, BATCH),
            optimizer: match &survey.labels {
                _ if survey.text.is_some() || survey.vocabulary.is_some() => ("adam", 0.0005),
                // Its steps do not grow with the unit of the numbers.
                Labels::Values { .. } => ("adam", 0.003),
                _ if survey.set.is_text() => ("sgd", 1.0),
                _ => ("sgd", 0.05),
            },
        }
    }
}

/// The built-in model for samples of this shape.
fn model(shape: &[usize], labels: &Labels, is_text: bool) -> (&'static str, &'static str) {
    if is_text {
        return ("char-lstm", "predicts the next character");
    }
    let fits = |name: &str| {
        let built = Architecture::by_name(name, shape, labels.classes());
        built.is_ok_and(|architecture| architecture.parameters().is_ok())
    };
    let candidates: &[(&str, &str)] = match shape {
        [1, height, width] if height.max(width) <= &32 => {
            &[("lenet-5", "a small network for grey images"), ("mlp-2nn", "two hidden layers")]
        }
        [_, _, _] => &[("lenet-5", "a small network for images"), ("mlp-2nn", "two hidden layers")],
        _ => &[("mlp-2nn", "two hidden layers, for rows of a table")],
    };
    let chosen = candidates.iter().find(|(name, _)| fits(name));
    chosen.copied().unwrap_or(("linear", "fits every shape"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_has_a_model_that_takes_it() {
        for (shape, expected) in [
            (&[1, 28, 28][..], "lenet-5"),
            (&[3, 32, 32], "lenet-5"),
            (&[3, 64, 64], "lenet-5"),
            (&[1, 2, 2], "mlp-2nn"),
            (&[13], "mlp-2nn"),
            (&[4, 7], "mlp-2nn"),
        ] {
            let (name, _) = model(shape, &Labels::Numbers(3), false);
            assert_eq!(name, expected, "{shape:?}");
            assert!(Architecture::by_name(name, shape, 3).is_ok());
        }
    }
}
