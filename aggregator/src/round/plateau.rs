//! A lower learning rate of the server's own training once it learns no more.

use std::fmt;
use std::ops::Bound::Excluded;
use std::str::FromStr;

use shared::section;
use shared::settings::Kind;

use super::{Criterion, RoundRecord};

section! {
    /// `server.plateau`: the rule of `FedMatch`'s authors, who take a third of the rate after twenty tests (Jeong et al. 2021).
    #[derive(Copy)]
    pub struct Plateau {
        /// Rounds without a lower validation-loss after which the server's rate falls
        ///
        /// In a row, without one below all before. They are counted anew after that. Failed rounds are not counted. Needs data.validation
        /// and evaluate.every = 1.
        pub patience: Option<u32> = None, in Kind::POSITIVE, unset "none";
        /// What the server's learning rate is multiplied by then
        pub factor: f64 = 0.1, in Kind::Number(Excluded(0.0), Excluded(1.0));
    }
}

/// Where the rule stands after the rounds so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlateauState {
    /// The lowest loss that was found; infinite before the first.
    lowest: f64,
    /// Rounds in a row since then, or since the rate fell last.
    without: u32,
    /// The share of the rate at which the server trains next.
    share: f64,
}

impl Default for PlateauState {
    fn default() -> Self {
        Self { lowest: f64::INFINITY, without: 0, share: 1.0 }
    }
}

impl PlateauState {
    /// The share of the rate at which the server trains next: 1, or less once it has fallen.
    #[must_use]
    pub fn share(self) -> f64 {
        self.share
    }

    /// Where the rule stands after one round more. A test whose loss is not finite is one without a lower loss.
    #[must_use]
    pub fn after(self, record: &RoundRecord, Plateau { patience, factor }: Plateau) -> Self {
        let Some(patience) = patience.filter(|_| !record.void && !record.closing) else { return self };
        let loss = Criterion::ValidationLoss.of(record).map_or(f64::INFINITY, |tested| tested.value);
        if Criterion::ValidationLoss.is_better(loss, self.lowest) {
            Self { lowest: loss, without: 0, ..self }
        } else if self.without + 1 < patience {
            Self { without: self.without + 1, ..self }
        } else {
            Self { without: 0, share: self.share * factor, ..self }
        }
    }
}

/// Three numbers, exact to the bit.
impl fmt::Display for PlateauState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.lowest, self.without, self.share)
    }
}

/// A text that no state is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it does not say at which rate the server trains on")]
pub struct NoPlateauState;

impl FromStr for PlateauState {
    type Err = NoPlateauState;

    fn from_str(text: &str) -> Result<Self, NoPlateauState> {
        let [lowest, without, share] = *text.split(' ').collect::<Vec<_>>() else {
            return Err(NoPlateauState);
        };
        let number = |text: &str| text.parse::<f64>().map_err(|_| NoPlateauState);
        let state = Self {
            lowest: number(lowest)?,
            without: without.parse().map_err(|_| NoPlateauState)?,
            share: number(share)?,
        };
        let possible = !state.lowest.is_nan() && (0.0..=1.0).contains(&state.share);
        possible.then_some(state).ok_or(NoPlateauState)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALVE: Plateau = Plateau { patience: Some(2), factor: 0.5 };

    /// A round with this loss on the validation samples.
    fn tested(loss: f64) -> RoundRecord {
        RoundRecord { metrics: [("validation-loss".to_owned(), loss)].into(), ..RoundRecord::default() }
    }

    /// The shares before the first of these rounds and after each.
    fn shares(rounds: &[RoundRecord], plateau: Plateau) -> Vec<f64> {
        let mut state = PlateauState::default();
        let after = rounds.iter().map(|record| {
            state = state.after(record, plateau);
            state.share()
        });
        std::iter::once(1.0).chain(after.collect::<Vec<_>>()).collect()
    }

    #[test]
    fn the_rate_falls_after_each_row_of_rounds_without_a_lower_loss() {
        let course = [3.0, 2.0, 2.0, 2.5, 2.1, 1.0, 1.5, 1.5, 1.0, 1.2].map(tested);
        // An equal loss is no lower one; the rounds are counted anew after a fall, and after a lower loss.
        assert_eq!(shares(&course, HALVE), [1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.125]);
        for patience in [None, Some(9)] {
            assert_eq!(shares(&course, Plateau { patience, ..HALVE }), [1.0; 11], "{patience:?}");
        }
    }

    #[test]
    fn rounds_that_change_nothing_do_not_count_and_a_loss_that_is_not_finite_is_not_lower() {
        for (change, expected) in [
            ((|_| {}) as fn(&mut RoundRecord), 0.5),
            (|record| record.void = true, 1.0),
            (|record| record.closing = true, 1.0),
            (|record| record.metrics.clear(), 0.5),
            (|record| *record = tested(f64::NAN), 0.5),
        ] {
            let mut course = [1.0, 2.0, 3.0].map(tested);
            change(&mut course[1]);
            assert_eq!(shares(&course, HALVE)[3].to_bits(), f64::to_bits(expected));
        }
    }

    #[test]
    fn what_is_written_down_is_read_again_to_the_bit() {
        let mut state = PlateauState::default();
        for loss in [f64::INFINITY, 0.1 + 0.2, 1e-300, 7.0, 7.0, 7.0] {
            assert_eq!(state.to_string().parse(), Ok(state));
            state = state.after(&tested(loss), Plateau { patience: Some(2), factor: 1.0 / 3.0 });
        }
        assert!(state.share() < 1.0);
        assert_eq!(state.to_string().parse(), Ok(state));
        for damaged in ["", "1 2", "1 2 3 4", "NaN 0 1", "1 -1 1", "1 0 2", "1 0 NaN", "x 0 1"] {
            assert_eq!(damaged.parse::<PlateauState>(), Err(NoPlateauState), "{damaged}");
        }
    }
}
