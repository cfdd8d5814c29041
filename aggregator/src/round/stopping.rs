//! Early stopping and other early ends, and the choice of the best model.
//!
//! Both follow from the records alone, so that a resumed run makes the same decisions.

use serde::{Deserialize, Serialize};
use shared::settings::Kind;
use shared::{named, section};

use super::RoundRecord;

/// The criterion that models are compared by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Criterion {
    /// Accuracy on the aggregator's test set: more is better.
    #[default]
    Accuracy,
    /// Loss on it: less is better.
    Loss,
    /// Mean accuracy on the clients' own test samples: more is better.
    OwnAccuracy,
    /// Mean loss on them: less is better.
    OwnLoss,
    /// Accuracy on the training samples that the server keeps for this: more is better.
    ValidationAccuracy,
    /// Loss on them: less is better.
    ValidationLoss,
}

impl Criterion {
    /// Its name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        shared::settings::variants::<Self>()[self as usize]
    }

    /// Whether clients measure it: of the model that they start from, a round later.
    #[must_use]
    pub fn is_of_clients(self) -> bool {
        matches!(self, Self::OwnAccuracy | Self::OwnLoss)
    }

    /// Whether it is measured on what the server keeps of the training samples.
    #[must_use]
    pub fn is_of_validation(self) -> bool {
        matches!(self, Self::ValidationAccuracy | Self::ValidationLoss)
    }

    /// Whether a model with `value` is better than one with `other`.
    #[must_use]
    pub fn is_better(self, value: f64, other: f64) -> bool {
        match self {
            Self::Accuracy | Self::OwnAccuracy | Self::ValidationAccuracy => value > other,
            Self::Loss | Self::OwnLoss | Self::ValidationLoss => value < other,
        }
    }

    /// The round of the model that this record has a value of, and the value.
    pub(super) fn of(self, record: &RoundRecord) -> Option<Best> {
        let value = match self {
            Self::Accuracy => record.accuracy,
            Self::Loss => record.loss,
            Self::OwnAccuracy | Self::OwnLoss | Self::ValidationAccuracy | Self::ValidationLoss => {
                record.metrics.get(self.name()).copied()
            }
        };
        let round = if self.is_of_clients() { record.round - 1 } else { record.round };
        Some(Best { round, value: value.filter(|value| value.is_finite())? })
    }
}

named!(Criterion);

section! {
    /// `[early-stopping]`: when training ends before all rounds are over.
    #[derive(Copy)]
    pub struct EarlyStopping {
        /// By accuracy, loss, own-accuracy, own-loss, validation-accuracy or validation-loss
        ///
        /// On the server's test samples; with own- on the clients' own samples; with validation- on those of data.validation.
        pub metric: Criterion = Criterion::default();
        /// Training ends when a model is as good as this
        pub target: Option<f64> = None, in Kind::NOT_NEGATIVE, unset "no target";
        /// Tests in a row without a better model after which training ends
        pub patience: Option<u32> = None, in Kind::POSITIVE, unset "no end";
    }
}

/// The model of a round and its value of the criterion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    /// The round that it comes from.
    pub round: u32,
    /// Its value of the criterion.
    pub value: f64,
}

/// Why a run has ended before all of its rounds were over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EarlyEnd {
    /// A model has reached the target, or the patience is used up.
    EarlyStopping,
    /// Another round would cost more privacy than there is.
    Budget,
    /// No device may take part again.
    Participations,
}

impl EarlyEnd {
    /// In words, with the setting that it follows from.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::EarlyStopping => "[early-stopping] was met",
            Self::Budget => "another one would exceed the budget, privacy.epsilon",
            Self::Participations => {
                "every device has taken part in as many as it may, privacy.max-participations"
            }
        }
    }
}

/// The best model of those that were tested; the first of equals.
#[must_use]
pub fn best(records: &[RoundRecord], criterion: Criterion) -> Option<Best> {
    let tested = records.iter().filter_map(|record| criterion.of(record));
    tested.reduce(|best, next| if criterion.is_better(next.value, best.value) { next } else { best })
}

/// The round after which training ends early: a model has reached the target, or the patience is used up. A void round leaves
/// the model as it is and does not count towards the patience.
#[must_use]
pub fn ended(records: &[RoundRecord], stop: &EarlyStopping) -> Option<u32> {
    let mut best: Option<Best> = None;
    let mut without = 0;
    for record in records.iter().filter(|record| !record.closing) {
        let Some(found) = stop.metric.of(record) else { continue };
        let better = best.is_none_or(|best| stop.metric.is_better(found.value, best.value));
        let tried = u32::from(!record.void);
        (best, without) = if better { (Some(found), 0) } else { (best, without + tried) };
        let reached = stop.target.is_some_and(|target| !stop.metric.is_better(target, found.value));
        if reached || stop.patience.is_some_and(|patience| without >= patience) {
            return Some(record.round);
        }
    }
    None
}

/// How many rounds of training were void: they do not count towards the rounds of the run.
#[must_use]
pub fn failed(records: &[RoundRecord]) -> u32 {
    records.iter().filter(|record| record.void && !record.closing).map(|_| 1).sum()
}

/// How many rounds of training a run has that wants `rounds` of them with a result: each void round so far adds one.
#[must_use]
pub fn planned(records: &[RoundRecord], rounds: u32) -> u32 {
    rounds.saturating_add(failed(records))
}

/// The round of training before tests of the last model, if there were any: earlier programs counted void rounds, so that it may
/// have come before all rounds had a result.
#[must_use]
pub fn before_closing(records: &[RoundRecord]) -> Option<u32> {
    records.iter().find(|record| record.closing).map(|record| record.round - 1)
}

/// The number of the last round of training of a run that wants `rounds` rounds with a result, as far as it is known.
#[must_use]
pub fn last(records: &[RoundRecord], rounds: u32, stop: &EarlyStopping) -> u32 {
    let ended = ended(records, stop).or_else(|| before_closing(records));
    ended.unwrap_or_else(|| planned(records, rounds))
}

/// How many rounds of training were void, in a row, up to the newest one.
#[must_use]
pub fn void_in_a_row(records: &[RoundRecord]) -> u32 {
    let newest_first = records.iter().rev().filter(|record| !record.closing);
    newest_first.take_while(|record| record.void).map(|_| 1).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(accuracies: &[Option<f64>]) -> Vec<RoundRecord> {
        let record = |(round, &accuracy): (u32, &Option<f64>)| RoundRecord {
            round,
            accuracy,
            loss: accuracy.map(|accuracy| 1.0 - accuracy),
            metrics: accuracy
                .map(|accuracy| {
                    ["own-accuracy", "validation-accuracy"].map(|name| (name.to_owned(), accuracy))
                })
                .into_iter()
                .flatten()
                .collect(),
            ..RoundRecord::default()
        };
        (1..).zip(accuracies).map(record).collect()
    }

    const COURSE: [Option<f64>; 7] = [Some(0.5), None, Some(0.7), Some(0.7), Some(0.6), Some(0.9), Some(0.8)];

    #[test]
    fn the_best_is_the_first_of_equals_and_clients_speak_of_the_round_before() {
        let round =
            |criterion, until: usize| best(&records(&COURSE[..until]), criterion).map(|best| best.round);
        assert_eq!(round(Criterion::Accuracy, 5), Some(3));
        assert_eq!(round(Criterion::Loss, 5), Some(3));
        assert_eq!(round(Criterion::OwnAccuracy, 5), Some(2));
        assert_eq!(round(Criterion::ValidationAccuracy, 5), Some(3), "of the model that the round leaves");
        assert_eq!(round(Criterion::Accuracy, 7), Some(6));
        assert_eq!(round(Criterion::OwnLoss, 7), None);
        assert_eq!(round(Criterion::Accuracy, 0), None);
    }

    #[test]
    fn void_rounds_are_counted_up_to_the_newest_round_of_training() {
        let mut course = records(&COURSE);
        assert_eq!((void_in_a_row(&course), void_in_a_row(&[])), (0, 0));
        for round in [1, 4, 5, 6] {
            course[round].void = true;
        }
        assert_eq!(void_in_a_row(&course), 3);
        // Tests that no client could make are no round of training.
        (course[6].void, course[6].closing) = (true, true);
        assert_eq!(void_in_a_row(&course), 2);
    }

    #[test]
    fn a_run_has_as_many_rounds_more_as_were_void() {
        let stop = EarlyStopping::default();
        let mut course = records(&COURSE);
        assert_eq!((last(&[], 9, &stop), last(&course, 9, &stop)), (9, 9));
        (course[0].void, course[3].void) = (true, true);
        assert_eq!((failed(&course), last(&course, 9, &stop)), (2, 11));
        assert_eq!(last(&course, u32::MAX, &stop), u32::MAX);
        let enough = EarlyStopping { target: Some(0.7), ..stop };
        assert_eq!(last(&course, 9, &enough), 3, "it ended early");
        // An earlier program has tested the last model although not every round had a result.
        (course[6].closing, course[6].void) = (true, true);
        assert_eq!((failed(&course), last(&course, 6, &stop)), (2, 6));
    }

    #[test]
    fn it_is_enough_at_the_target_or_out_of_patience() {
        let end = |target, patience| {
            ended(&records(&COURSE), &EarlyStopping { metric: Criterion::Accuracy, target, patience })
        };
        assert_eq!(end(None, None), None);
        assert_eq!(end(Some(0.7), None), Some(3));
        assert_eq!(end(Some(0.95), None), None);
        // Rounds without a test are not counted, and an equal model is no better one.
        assert_eq!(end(None, Some(2)), Some(5));
        assert_eq!(end(None, Some(3)), None);
        assert_eq!(end(Some(0.9), Some(3)), Some(6));
        let loss = EarlyStopping { metric: Criterion::Loss, target: Some(0.31), patience: None };
        assert_eq!(ended(&records(&COURSE), &loss), Some(3));
        // The model stays as it was through void rounds.
        let mut void = records(&COURSE[..5]);
        (void[3].void, void[4].void) = (true, true);
        let patient =
            |patience| EarlyStopping { metric: Criterion::Accuracy, target: None, patience: Some(patience) };
        assert_eq!(ended(&void, &patient(1)), None);
        void[4].void = false;
        assert_eq!((ended(&void, &patient(1)), ended(&void, &patient(2))), (Some(5), None));
        // A model that was not tested before may be found good enough in one.
        let target = EarlyStopping { metric: Criterion::Accuracy, target: Some(0.7), patience: None };
        void[2].void = true;
        assert_eq!(ended(&void, &target), Some(3));
        // What is found when training is over ends nothing.
        let mut closing = records(&COURSE);
        for record in &mut closing {
            record.closing = true;
        }
        assert_eq!(ended(&closing, &loss), None);
    }
}
