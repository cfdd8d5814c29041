//! Bounded participations: a client that was asked as often as it may is not asked again, also after a restart.

use std::num::NonZeroU32;

use shared::aggregation::DeviceNoise;
use shared::secret::Secret;

use super::*;
use crate::round::Poisson;

/// Every client is drawn for every round, and asked in at most this number of them; the run is for this number of devices.
fn bounded(rounds: u32, devices: u32) -> RoundPolicy {
    let most = NonZeroU32::new(rounds).expect("at least one");
    let secret = Secret::new(&[7; 32]);
    RoundPolicy { poisson: Some(Poisson { rate: 1.0, most, devices, secret }), ..policy(1) }
}

/// The opening among these actions.
fn opened(actions: &[Action]) -> Option<Opening> {
    actions.iter().find_map(|action| match action {
        Action::Open(opening) => Some(opening.clone()),
        _ => None,
    })
}

fn asked(opening: &Opening) -> Vec<ClientId> {
    opening.cohort.keys().copied().collect()
}

#[test]
fn a_client_is_asked_as_often_as_it_may_and_a_later_one_after_it() {
    let mut bench = Bench::new(bounded(1, 2));
    let first = opened(&bench.joins(1)).expect("one client is enough");
    assert_eq!((asked(&first), first.participations.len()), (vec![client(1)], 0));
    bench.joins(2);
    bench.opened(1);
    bench.fails(1, 1);
    let second = opened(&bench.closed(1)).expect("one client is left");
    assert_eq!(asked(&second), [client(2)], "a round counts for a member that gave nothing to it");
    assert_eq!(second.participations, [(client(1), 1)].into());
    assert_eq!(participations_after(&second), [(client(1), 1), (client(2), 1)].into());
}

#[test]
fn a_restart_asks_no_client_again() {
    let last = Opening { participations: [(client(1), 1)].into(), ..opening(2, &[1], &[1, 2]) };
    let participations = participations_after(&last);
    assert_eq!(participations, [(client(1), 2)].into());
    let resume = Resume { closed: 2, roster: shares(&[1, 2]), participations, ..Resume::default() };
    let mut bench = Bench::resume(bounded(2, 2), resume);
    bench.joins(1);
    let third = opened(&bench.joins(2)).expect("both are back");
    assert_eq!(asked(&third), [client(2)]);
}

#[test]
fn training_is_over_when_no_client_is_left_and_waits_for_those_that_are_to_come() {
    let both_are_done = |devices: u32| {
        let participations = [(client(1), 1), (client(2), 1)].into();
        let resume = Resume { closed: 1, roster: shares(&[1, 2]), participations, ..Resume::default() };
        let mut bench = Bench::resume(bounded(1, devices), resume);
        let mut actions = bench.joins(1);
        actions.extend(bench.joins(2));
        (bench, actions)
    };
    let (_, actions) = both_are_done(2);
    assert!(actions.contains(&Action::Finish(Outcome::Completed)), "{actions:?}");
    // A third device may come, and no round is of noise alone until then.
    let (mut bench, actions) = both_are_done(3);
    assert!(
        opened(&actions).is_none() && !actions.contains(&Action::Finish(Outcome::Completed)),
        "{actions:?}"
    );
    assert!(opened(&bench.at(RECONNECT_GRACE * 100)).is_none());
    let round = opened(&bench.joins(3)).expect("it may take part");
    assert_eq!(asked(&round), [client(3)]);
}

#[test]
fn more_clients_than_the_run_is_for_are_warned_of_once() {
    let warned = |actions: &[Action]| {
        actions.iter().filter(|action| matches!(action, Action::Outgrown { known: 3, devices: 2 })).count()
    };
    let mut bench = Bench::new(bounded(5, 2));
    assert_eq!([1, 2, 3, 4, 3].map(|n| warned(&bench.joins(n))), [0, 0, 1, 0, 0]);
    let resume = Resume { closed: 1, roster: shares(&[1, 2, 3]), ..Resume::default() };
    let mut again = Bench::resume(bounded(5, 2), resume);
    assert_eq!([1, 2, 3].map(|n| warned(&again.joins(n))), [0, 0, 0]);
    // Where devices add the noise a sum is one of a cohort.
    let noise = DeviceNoise { clip: 1.0, noise: 1.0, devices: 2, over: 2, values: 10 };
    let noisy = RunSpec { device_noise: Some(noise), ..spec() };
    for (fraction, expected) in [(1.0, [0, 0, 1]), (0.5, [0, 0, 0])] {
        let mut bench = Bench::with(noisy.clone(), RoundPolicy { fraction, ..policy(1) }, Resume::default());
        assert_eq!([1, 2, 3].map(|n| warned(&bench.joins(n))), expected, "{fraction}");
    }
}
