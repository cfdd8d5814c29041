//! Who is known is durable: with every opening, and by itself when it changes between two of them.

use super::*;

impl Bench {
    /// What comes of this, with what is to be remembered; that is not done yet.
    fn raw(&mut self, event: Event) -> Vec<Action> {
        self.coordinator.handle(self.now, event);
        std::iter::from_fn(|| self.coordinator.poll()).collect()
    }

    fn greets_raw(&mut self, n: u8, declared: u64) -> Vec<Action> {
        self.next_peer += 1;
        let peer = PeerId(self.next_peer);
        self.peers.insert(n, peer);
        let hello = Hello { samples: declared, ..hello(n, None) };
        self.raw(Event::Message { peer, message: ToServer::Hello(hello) })
    }
}

fn remembers(since: u32, roster: &[u8]) -> Action {
    Action::SaveRoster(RosterSnapshot { since, roster: shares(roster) })
}

#[test]
fn whoever_comes_between_two_openings_is_remembered_one_list_at_a_time() {
    let mut bench = Bench::new(policy(4));
    let first = bench.greets_raw(1, samples(1));
    assert_eq!(first, [welcome(bench.peer(1), None), remembers(0, &[1])]);
    for n in 2..=3 {
        let more = bench.greets_raw(n, samples(n));
        assert_eq!(more, [welcome(bench.peer(n), None)], "the first list is being written");
    }
    assert_eq!(bench.raw(Event::RosterSaved), [remembers(0, &[1, 2, 3])]);
    assert_eq!(bench.raw(Event::RosterSaved), [], "it is as it was");
    let opens = bench.greets_raw(4, samples(4));
    let all = Action::Open(opening(1, &[1, 2, 3, 4], &[1, 2, 3, 4]));
    assert_eq!(opens, [welcome(bench.peer(4), None), all], "an opening holds it as well");

    bench.raw(Event::Opened { round: 1 });
    assert_eq!(bench.greets_raw(4, samples(4)).len(), 4, "nothing new: refused, disconnected, welcome, task");
    let other = bench.greets_raw(4, 7);
    let Some(Action::SaveRoster(RosterSnapshot { since: 1, roster })) = other.last() else {
        panic!("{other:?}")
    };
    assert_eq!(roster[&client(4)], 7, "another number of samples");
    bench.raw(Event::RosterSaved);
    assert_eq!(bench.raw(Event::Revoked { client: client(4) })[1..], [remembers(1, &[1, 2, 3])]);
}

#[test]
fn nothing_is_remembered_while_there_is_no_room() {
    let mut bench = Bench::new(policy(4));
    bench.raw(Event::Paused);
    let first = bench.greets_raw(1, samples(1));
    assert_eq!(first, [welcome(bench.peer(1), None)]);
    assert_eq!(bench.raw(Event::Resumed), [remembers(0, &[1])]);
}

/// The larger cohort may be durable when the list that was under way is not.
#[test]
fn a_recruit_is_remembered_before_its_round_opens_with_it() {
    let mut bench = Bench::open(RoundPolicy { min: 2, ..policy(2) }, 2);
    assert_eq!(
        bench.greets_raw(9, 5).last(),
        Some(&Action::SaveRoster(known(1, &[(1, 10), (2, 20), (9, 5)])))
    );
    let fourth = bench.greets_raw(8, 5);
    assert_eq!(fourth, [welcome(bench.peer(8), None)], "the other list is being written");
    let peer = bench.peer(2);
    let reason = "out of memory".to_owned();
    let failed = bench.raw(Event::Message { peer, message: ToServer::Failed { round: 1, reason } });
    let everybody = Action::SaveRoster(known(1, &[(1, 10), (2, 20), (8, 5), (9, 5)]));
    assert!(matches!(&failed[..], [list, Action::Open(_)] if *list == everybody), "{failed:?}");
}

fn known(since: u32, roster: &[(u8, u64)]) -> RosterSnapshot {
    RosterSnapshot { since, roster: roster.iter().map(|&(n, samples)| (client(n), samples)).collect() }
}

#[test]
fn a_member_of_an_open_round_that_is_known_no_more_is_not_waited_for_after_a_restart() {
    let reopened = Reopened {
        opening: opening(1, &[1, 2], &[1, 2]),
        accepted: BTreeSet::new(),
        late: BTreeMap::new(),
        closing: None,
        agreement: None,
        fingerprints: BTreeMap::new(),
    };
    let resume = Resume { roster: shares(&[1]), open: Some(reopened), ..Resume::default() };
    let mut bench = Bench::resume(policy(2), resume);
    bench.joins(1);
    let end = bench.delivers(1, 1);
    assert_eq!(end[1..], [close(1, Tally { lost: 1, ..tally(2, 1, WaitedFor::Cohort) })]);
}

#[test]
fn a_restart_before_the_first_round_needs_as_many_clients_as_before() {
    let resume = Resume { roster: shares(&[1, 2]), ..Resume::default() };
    let mut bench = Bench::resume(policy(3), resume);
    bench.joins(1);
    bench.joins(2);
    assert_eq!(bench.at(RECONNECT_GRACE), [], "a third one is to come");
    assert!(matches!(bench.joins(3)[..], [_, Action::Open(_)]));
}
