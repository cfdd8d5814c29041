//! What a client measures beside its training.

use std::num::NonZeroU32;

use models::Measure;
use serde::{Deserialize, Serialize};

use crate::spec::personalisation::Method;

/// What a report has room for.
pub type Metrics = [Option<Metric>; MAX_METRICS];

/// Two of training (with MOON three), two of a test (of other tasks than classification up to five), and of personalisation the tests of the global model and of five others, and two gates.
pub const MAX_METRICS: usize = 12;

/// What a client measures of its local training if the run asks for it. New ones go last.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Metric {
    /// Mean cosine of the representations by the trained and by the global model, on data of the device.
    Alignment(f64),
    /// Euclidean length of what was learned, `||w_k - w_t||`.
    Drift(f64),
    /// Share of the device's own test samples that the model it was sent classifies correctly.
    OwnAccuracy(f64),
    /// Mean cross-entropy of that model on them, in nats.
    OwnLoss(f64),
    /// Share of the samples whose pseudo-label was sure enough to be learned.
    Coverage(f64),
    /// Share of the classes that were predicted for any sample.
    ClassCoverage(f64),
    /// Mean entropy of the predictions, as a share of the greatest possible.
    Entropy(f64),
    /// The tests of personalisation: of the model that it was sent, or of the one that it has made of it by this method. On the
    /// device's test samples, once with classes as frequent as among its training samples (local test), and once as they are
    /// (global test).
    Tests(Option<Method>, Option<Fraction>, Option<Fraction>),
    /// Mean weight of the global expert in the mixture of this method.
    Gate(Method, f64),
    /// Share of the training samples that the trained model classifies correctly, as a trainer of the device's owner says.
    TrainAccuracy(f64),
    /// What the model it was sent comes to on the device's own test samples, if its task is not classification.
    Own(Measure, f64),
    /// Mean of the contrastive term of MOON over the steps, without its weight.
    Contrast(f64),
}

/// A number from 0 to 1 in 32 bits, so that both tests of a model take no more room than any other metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fraction(NonZeroU32);

impl Fraction {
    /// The closest to a number.
    #[must_use]
    pub fn of(value: f64) -> Self {
        Self(NonZeroU32::MIN.saturating_add((value.clamp(0.0, 1.0) * Self::PARTS).round() as u32))
    }

    /// The number, from 0 to 1.
    #[must_use]
    pub fn value(self) -> f64 {
        f64::from(self.0.get() - 1) / Self::PARTS
    }

    const PARTS: f64 = (u32::MAX - 1) as f64;
}

impl Metric {
    /// Its numbers with their names in `rounds.jsonl`. A peer may have sent any.
    pub fn values(self) -> impl Iterator<Item = (String, f64)> {
        let one = |name: &str, value| [Some((name.to_owned(), value)), None];
        let values = match self {
            Self::Alignment(value) => one("alignment", value),
            Self::Drift(value) => one("drift", value),
            Self::OwnAccuracy(value) => one("own-accuracy", value),
            Self::OwnLoss(value) => one("own-loss", value),
            Self::Coverage(value) => one("coverage", value),
            Self::ClassCoverage(value) => one("class-coverage", value),
            Self::Entropy(value) => one("entropy", value),
            Self::Tests(of, local, global) => {
                let of = of.map(|method| format!("{}-", method.name())).unwrap_or_default();
                let test = |name, share: Option<Fraction>| Some((format!("{of}{name}"), share?.value()));
                [test("local-test", local), test("global-test", global)]
            }
            Self::TrainAccuracy(value) => one("train-accuracy", value),
            Self::Own(measure, value) => one(&format!("own-{}", measure.name()), value),
            Self::Contrast(value) => one("contrast", value),
            Self::Gate(of, value) => one(&format!("{}-gate", of.name()), value),
        };
        values.into_iter().flatten()
    }

    /// Whether it is of the model that the client was sent, or of what it has made of that: of the round before, and not of the
    /// training.
    #[must_use]
    pub fn is_of_model(self) -> bool {
        match self {
            Self::Alignment(_)
            | Self::Drift(_)
            | Self::Coverage(_)
            | Self::ClassCoverage(_)
            | Self::Entropy(_)
            | Self::TrainAccuracy(_)
            | Self::Contrast(_) => false,
            Self::OwnAccuracy(_) | Self::OwnLoss(_) | Self::Tests(..) | Self::Gate(..) | Self::Own(..) => {
                true
            }
        }
    }

    /// Whether a metric of this name is a share, in `[0, 1]`, of samples or flags that are right.
    #[must_use]
    pub fn is_share(name: &str) -> bool {
        let measure = name.strip_prefix("own-").unwrap_or(name);
        name.ends_with("accuracy")
            || name.ends_with("-test")
            || Measure::ALL.iter().any(|known| known.is_share() && known.name() == measure)
    }
}
