//! When a round opens, whom it asks and when it closes.

use std::num::NonZeroU32;
use std::time::Duration;

use shared::eligibility::Eligibility;
use shared::id::ClientId;
use shared::message::TaskKind;
use shared::secret::Secret;
use shared::share;

use super::WeightBounds;

/// When a round opens, whom it asks, and when it closes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoundPolicy {
    /// Fraction C of the clients in a cohort, in `[0, 1]`; 0 means one client.
    pub fraction: f64,
    /// How a private run draws its cohorts, instead of by the fraction.
    pub poisson: Option<Poisson>,
    /// Accepted updates without which a round does not close; at least 1. Of a private run the clients without which none opens.
    pub min: usize,
    /// Accepted updates after which a round closes at once; `None` waits for the cohort.
    pub max: Option<usize>,
    /// A round whose connected members have all answered waits this long for those that are not connected.
    pub min_wait: Duration,
    /// A round closes after this with what it has, if that is at least [`Self::min`].
    pub timeout: Duration,
    /// Whether it closes even while connected members are at work. Otherwise, `timeout` limits the wait for absent members only.
    pub cuts_short: bool,
    /// Clients that must be connected before the first round; at least 1.
    pub start: usize,
    /// How long to wait for the known clients after a restart, and before the round that is for all of them.
    pub reconnect_grace: Duration,
    /// A client that is silent for this long is lost.
    pub connection_timeout: Duration,
    /// The pause after a void round; it doubles with each further one in a row, so that devices that fail at once do not open one
    /// round after the other. None in a simulation, where nothing changes meanwhile.
    pub void_pause: Duration,
    /// Void rounds in a row after which the run ends; `None`: [by default](Self::failure_limit).
    pub max_failed: Option<u32>,
    /// How late updates count; `None`: they are discarded.
    pub late: Option<Lateness>,
    /// The conditions under which a device trains.
    pub eligibility: Eligibility,
    /// Greatest absolute value of an acceptable update; finite and positive.
    pub max_abs: f32,
    /// The most training samples that a device may declare; one with more is refused. `None` is no bound.
    pub max_samples: Option<u64>,
    /// What one device may count for.
    pub weight_bounds: WeightBounds,
    /// Whether a device hears only when the round has closed whether its update counts, and keeps it until then: where several servers
    /// serve the run. Accepted updates may be lost with the machine that has them, and another server may come to lead, which has other
    /// updates. A connection of a device at one of them may then be heard of
    /// later than its newer one at another, so that no device is thrown out for a connection that looks newer.
    pub receipts_at_close: bool,
}

/// The default of [`RoundPolicy::void_pause`].
pub const VOID_PAUSE: Duration = Duration::from_secs(1);
/// The default of [`RoundPolicy::max_failed`] for devices: with the pauses, at least an hour and a half.
const MAX_FAILED: u32 = 100;
/// The same in a simulation, whose clients fail again for the same reason.
const MAX_FAILED_SIMULATED: u32 = 10;

impl RoundPolicy {
    /// The size of a cohort out of `clients`: `m = max(floor(C K), 1)` (`McMahan` et al. 2017, Algorithm 1), and never
    /// more than there are.
    #[must_use]
    pub fn cohort(&self, clients: usize) -> usize {
        share::of(self.fraction, clients).max(1).min(clients)
    }

    /// Void rounds in a row after which a run of `rounds` rounds ends.
    #[must_use]
    pub fn failure_limit(&self, rounds: u32) -> u32 {
        let simulated = self.void_pause.is_zero();
        self.max_failed.unwrap_or(if simulated { MAX_FAILED_SIMULATED.min(rounds) } else { MAX_FAILED })
    }

    /// The same in a simulation.
    #[must_use]
    pub fn simulated_failure_limit(self, rounds: u32) -> u32 {
        Self { void_pause: Duration::ZERO, ..self }.failure_limit(rounds)
    }

    /// The policy of a round with this work. A round without training is for all clients: it waits for each of them, and closes
    /// with the answers that have arrived when its time is over.
    #[must_use]
    pub fn of(self, work: TaskKind) -> Self {
        if work.train { self } else { Self { fraction: 1.0, poisson: None, min: 1, max: None, ..self } }
    }
}

/// Cohorts of a private run: every device is drawn on its own with the same probability, so that the account of sampled noise holds.
/// Whom a round asks is as secret as its noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Poisson {
    /// q.
    pub rate: f64,
    /// Rounds that ask a device at most; [`NonZeroU32::MAX`] is no bound.
    pub most: NonZeroU32,
    /// The number of devices for which the run is.
    pub devices: u32,
    /// What cohorts are drawn from.
    pub secret: Secret,
}

impl Poisson {
    /// Whether the rounds that ask a device are counted and bounded.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.most < NonZeroU32::MAX
    }

    /// Tells whether this round asks a client.
    pub fn of_round(&self, round: u32) -> impl Fn(ClientId) -> bool + use<> {
        let (seed, rate) =
            (self.secret.seed("cohorts").derive_numbered("round", u64::from(round)), self.rate);
        move |client| {
            let drawn = seed.derive_bytes("client", client.as_bytes());
            let bits = u64::from_le_bytes(drawn.as_bytes()[..8].try_into().expect("eight bytes"));
            // A probability of 1 draws all: no number of 64 bits comes to 2^64.
            (bits as f64) < rate * 2f64.powi(64) || rate >= 1.0
        }
    }
}

/// How late updates count.
///
/// An update `D_k` that was learned from the model of `tau` rounds before the open one counts in the open round as
/// `s(tau) D_k` with `s(tau) = (1 + tau)^-a`. Together with [`RoundPolicy::max`] that is buffered asynchronous aggregation (`FedBuff`,
/// Nguyen et al. 2022, Algorithm 1, with `K = max` and `a = 1/2`): a round fills the buffer once, clients at work are not
/// cancelled when it is full, and idle clients are asked again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lateness {
    /// An update that is later by more rounds is discarded; at least 1.
    pub rounds: u32,
    /// The power `a`, at least 0.
    pub power: f64,
}

impl Lateness {
    /// `s(tau)`, in `(0, 1]`.
    #[must_use]
    pub fn discount(&self, staleness: u32) -> f32 {
        (1.0 + f64::from(staleness)).powf(-self.power) as f32
    }

    /// How late an update of `round` is in the open round; `None` if that is too late.
    #[must_use]
    pub fn staleness(&self, round: u32, open: u32) -> Option<u32> {
        open.checked_sub(round).filter(|staleness| *staleness <= self.rounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(fraction: f64) -> RoundPolicy {
        RoundPolicy {
            fraction,
            poisson: None,
            min: 1,
            max: None,
            min_wait: Duration::ZERO,
            timeout: Duration::from_mins(10),
            cuts_short: true,
            start: 1,
            reconnect_grace: Duration::from_secs(30),
            connection_timeout: Duration::from_secs(15),
            void_pause: VOID_PAUSE,
            max_failed: None,
            late: None,
            eligibility: Eligibility::default(),
            max_abs: 1000.0,
            max_samples: None,
            weight_bounds: WeightBounds::NONE,
            receipts_at_close: false,
        }
    }

    #[test]
    fn a_simulation_gives_up_sooner_than_a_server() {
        let served = policy(1.0);
        assert_eq!((served.failure_limit(3), served.simulated_failure_limit(3)), (100, 3));
        assert_eq!(served.simulated_failure_limit(200), 10);
        let said = RoundPolicy { max_failed: Some(7), ..served };
        assert_eq!((said.failure_limit(3), said.simulated_failure_limit(3)), (7, 7));
    }

    #[test]
    fn every_client_is_drawn_on_its_own() {
        let poisson =
            Poisson { rate: 0.3, most: NonZeroU32::MAX, devices: 100, secret: Secret::new(&[5; 32]) };
        let client = |index: u32| ClientId::virtual_client(index, &shared::seed::Seed::root(1));
        let drawn = |round, index| poisson.of_round(round)(client(index));
        let pairs = || (0..100).flat_map(|round| (0..100).map(move |index| (round, index)));
        let found = pairs().filter(|&(round, index)| drawn(round, index)).count();
        assert!((2800..3200).contains(&found), "{found} of 10,000 with probability 0.3");
        let both = pairs().filter(|&(round, index)| drawn(round, index) && drawn(round, index + 1)).count();
        assert!((760..1040).contains(&both), "{both} of 10,000 with probability 0.09");
        let all = Poisson { rate: 1.0, ..poisson };
        assert!((0..100).all(|index| all.of_round(1)(client(index))));
        let other = Poisson { secret: Secret::new(&[6; 32]), ..poisson };
        assert!(pairs().any(|(round, index)| other.of_round(round)(client(index)) != drawn(round, index)));
    }

    #[test]
    fn cohorts_are_the_papers_and_survive_rounding() {
        let cases = [(0.0, 100, 1), (0.1, 100, 10), (0.29, 100, 29), (0.35, 10, 3), (1.0, 7, 7), (0.5, 0, 0)];
        for (fraction, clients, cohort) in cases {
            assert_eq!(policy(fraction).cohort(clients), cohort, "{fraction} of {clients}");
        }
        // Every percentage of every federation up to 300 clients, against integers.
        for percent in 0..=100_usize {
            for clients in 1..=300 {
                let exact = (percent * clients / 100).max(1);
                assert_eq!(policy(percent as f64 / 100.0).cohort(clients), exact, "{percent} % of {clients}");
            }
        }
    }
}
