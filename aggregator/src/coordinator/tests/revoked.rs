//! Devices that may not take part any more.

use super::*;

impl Bench {
    fn revokes(&mut self, n: u8) -> Vec<Action> {
        self.give(Event::Revoked { client: client(n) })
    }
}

#[test]
fn whoever_is_revoked_is_sent_away_and_not_waited_for_here_or_not() {
    let away = Tally { lost: 1, ..tally(2, 1, WaitedFor::Cohort) };
    let mut bench = Bench::open(RoundPolicy { min_wait: TIMEOUT / 2, ..policy(2) }, 2);
    bench.delivers(1, 1);
    let peer = bench.peer(2);
    assert_eq!(bench.revokes(2), [Action::Disconnect { peer }]);
    assert_eq!(bench.revokes(2), [], "once");
    assert_eq!(bench.status(), "round 1: 1 of 2 updates in");
    assert_eq!(bench.at(TIMEOUT / 2), [close(1, away)]);

    // After a restart it would be waited for until the end of `reconnect-grace`.
    let reopened = Reopened {
        opening: opening(1, &[1, 2], &[1, 2]),
        accepted: [client(1)].into(),
        late: BTreeMap::new(),
        closing: None,
        agreement: None,
        fingerprints: BTreeMap::new(),
    };
    let resume = Resume { roster: shares(&[1, 2]), open: Some(reopened), ..Resume::default() };
    let mut bench = Bench::resume(policy(2), resume);
    bench.joins(1);
    assert_eq!(bench.revokes(2), [close(1, away)]);
    assert_eq!(bench.closed(1), [Action::Open(opening(2, &[1], &[1]))], "all that are known are here");
}

#[test]
fn what_it_has_sent_before_counts_and_nothing_after() {
    let mut bench = Bench::open(policy(3), 3);
    bench.uploads(1, 1, report(1));
    bench.revokes(1);
    assert_eq!(bench.folded(1, 1, Ok(())), [], "no client is there to be told");
    let peer = bench.peer(2);
    bench.revokes(2);
    let after = bench.uploads(2, 1, report(2));
    assert_eq!(after, [Action::Drop { upload: UploadId(2) }]);
    assert_eq!(bench.says(2, ToServer::Heartbeat(Progress::default())), [Action::Disconnect { peer }]);
    let end = bench.delivers(3, 1);
    assert_eq!(end[1..], [close(1, Tally { lost: 1, ..tally(3, 2, WaitedFor::Cohort) })]);
    let next = bench.closed(1);
    assert_eq!(next, [Action::Open(opening(2, &[3], &[3]))], "it leaves the roster");
}

#[test]
fn one_that_is_let_in_again_is_a_newcomer() {
    let mut bench = Bench::new(policy(2));
    bench.joins(1);
    bench.joins(2);
    bench.revokes(1);
    assert_eq!(bench.joins(1), [welcome(bench.peer(1), None)], "while the round opens");
    assert_eq!(bench.opened(1), [bench.task(2, 1)]);
    let again = bench.joins_holding(1, spec().run, 1);
    assert_eq!(again.last(), Some(&welcome(bench.peer(1), None)));
    let late = receipt(bench.peer(1), 1, Verdict::Discarded(Discard::Late));
    assert_eq!(bench.uploads(1, 1, report(1)), [Action::Drop { upload: UploadId(1) }, late]);
    let end = bench.delivers(2, 1);
    let Some(Action::Close { tally: found, .. }) = end.last() else { panic!("{end:?}") };
    assert_eq!((found.accepted, found.lost), (1, 1));
    assert_eq!(bench.closed(1), [Action::Open(opening(2, &[1, 2], &[1, 2]))]);
}

#[test]
fn a_round_that_was_waiting_for_it_alone_is_void_at_once() {
    let mut bench = Bench::open(RoundPolicy { min: 2, ..policy(2) }, 2);
    bench.delivers(1, 1);
    bench.leaves(2);
    assert_eq!(bench.at(TIMEOUT), []);
    let void = Tally { lost: 1, void: true, ..tally(2, 1, WaitedFor::MinCount) };
    assert_eq!(bench.revokes(2), [close(1, void)]);
}
