//! What the coordinator says that it waits for, and until when.

use super::*;

#[test]
fn status_while_gathering() {
    let mut bench = Bench::new(policy(3));
    bench.joins(1);
    assert_eq!(bench.status(), "waiting for clients: 1 of 3 connected");
    bench.at(Duration::from_millis(1999));
    assert_eq!(bench.status(), "waiting for clients: 1 of 3 connected");
    bench.at(Duration::from_millis(2500));
    assert_eq!(bench.status(), "waiting for clients: 1 of 3 connected, for 2 s");
}

#[test]
fn status_after_a_restart_counts_the_known_clients_until_regather() {
    let resume =
        Resume { closed: 1, ended: None, roster: shares(&[1, 2, 3]), open: None, ..Resume::default() };
    let mut bench = Bench::resume(RoundPolicy { min: 2, ..policy(3) }, resume);
    bench.joins(1);
    assert_eq!(bench.status(), "waiting for clients: 1 of 3 connected");
    bench.at(RECONNECT_GRACE);
    assert_eq!(bench.status(), "waiting for clients: 1 of 2 connected, for 30 s");
}

#[test]
fn status_while_the_disk_is_waited_for() {
    let mut bench = Bench::new(policy(1));
    bench.joins(1);
    assert_eq!(bench.status(), "round 1: writing to disk", "opening");
    bench.at(Duration::from_mins(1));
    assert_eq!(bench.status(), "round 1: writing to disk, for 60 s", "a disk that hangs is seen to");
    bench.opened(1);
    bench.delivers(1, 1);
    assert_eq!(bench.status(), "round 1: writing to disk", "closing");
    bench.at(Duration::from_secs(63));
    assert_eq!(bench.status(), "round 1: writing to disk, for 3 s");
    bench.closed(1);
    assert_eq!(bench.status(), "round 2: writing to disk", "opening");
}

#[test]
fn signs_of_life_cost_no_look_at_the_cohort_until_something_is_due() {
    let mut bench = Bench::open(policy(3), 3);
    bench.delivers(1, 1);
    // A look at the cohort would find none of it connected, and close the round.
    let cohort = std::mem::take(&mut bench.coordinator.members);
    for _ in 0..100 {
        bench.now += Duration::from_millis(999);
        assert_eq!(bench.says(2, ToServer::Heartbeat(Progress::default())), []);
        let peer = bench.peer(3);
        assert_eq!(bench.give(Event::Alive { peer }), []);
    }
    // Nor does an unknown peer that comes and goes.
    assert_eq!(bench.give(Event::Disconnected { peer: PeerId(1 << 40) }), []);
    bench.coordinator.members = cohort;
    assert_eq!(bench.coordinator.deadline(bench.now), Some(TIMEOUT));
    // The first event at that moment is enough.
    bench.now = TIMEOUT;
    let end = bench.says(2, ToServer::Heartbeat(Progress::default()));
    assert_eq!(end, [close(1, tally(3, 1, WaitedFor::MaxTime))]);
    // A client that falls silent then is lost, even while others are heard.
    let mut bench = Bench::open(RoundPolicy { connection_timeout: TIMEOUT / 2, ..policy(2) }, 2);
    bench.delivers(1, 1);
    bench.now = TIMEOUT / 4;
    bench.says(1, ToServer::Heartbeat(Progress::default()));
    bench.now = TIMEOUT / 2;
    let peer = bench.peer(2);
    let end = bench.says(1, ToServer::Heartbeat(Progress::default()));
    let lost = Tally { lost: 1, ..tally(2, 1, WaitedFor::Cohort) };
    assert_eq!(end, [Action::Disconnect { peer }, close(1, lost)]);
}

#[test]
fn status_of_an_open_round() {
    let mut bench = Bench::open(policy(4), 4);
    assert_eq!(bench.status(), "round 1: 0 of 4 updates in, 4 at work (01010101, ...)");
    bench.delivers(1, 1);
    let progress = Progress { round: Some(1), done: 1, total: 3 };
    bench.says(2, ToServer::Heartbeat(progress));
    bench.leaves(3);
    assert_eq!(
        bench.status(),
        "round 1: 1 of 4 updates in, 2 at work (02020202 33 %, ...), 1 not connected (03030303)"
    );
    bench.leaves(4);
    bench.at(Duration::from_secs(61));
    assert_eq!(
        bench.status(),
        "round 1: 1 of 4 updates in, 1 at work (02020202 33 %), 2 not connected (03030303, ...), for 61 s"
    );
    let status = bench.coordinator.status(bench.now);
    assert_eq!((status.closed, status.rounds, status.connected, status.known), (0, 3, 2, 4));
    let WaitingFor::Updates { members, .. } = status.waiting_for else { panic!("{status:?}") };
    let members: Vec<_> = members.into_iter().map(|member| (member.client, member.activity)).collect();
    let away = [3, 4].map(|n| (client(n), Activity::Away));
    assert_eq!(
        members,
        [&away[..], &[(client(2), Activity::Training(progress.done, progress.total))]].concat()
    );
}

#[test]
fn status_shows_no_progress_of_another_round() {
    let mut bench = Bench::open(policy(1), 1);
    for progress in [
        Progress { round: Some(2), done: 1, total: 2 },
        Progress { round: None, done: 1, total: 2 },
        Progress { round: Some(1), done: 0, total: 0 },
    ] {
        bench.says(1, ToServer::Heartbeat(progress));
        assert_eq!(bench.status(), "round 1: 0 of 1 updates in, 1 at work (01010101)");
    }
}

#[test]
fn no_reported_progress_overflows_the_status() {
    let mut bench = Bench::open(policy(1), 1);
    for (done, total, percent) in
        [(u64::MAX, u64::MAX, 100), (u64::MAX, 1, 100), (u64::MAX / 2, u64::MAX, 49)]
    {
        bench.says(1, ToServer::Heartbeat(Progress { round: Some(1), done, total }));
        assert_eq!(bench.status(), format!("round 1: 0 of 1 updates in, 1 at work (01010101 {percent} %)"));
    }
}

#[test]
fn status_of_a_finished_run() {
    let mut bench = Bench::open(policy(1), 1);
    bench.give(Event::Stop);
    assert_eq!(bench.status(), "the run is over");
}

#[test]
fn deadlines_are_the_earliest_moment_at_which_time_alone_matters() {
    let connection_timeout = Duration::from_secs(70);
    let min_wait = Duration::from_secs(20);
    let mut bench = Bench::open(RoundPolicy { connection_timeout, min_wait, min: 2, ..policy(2) }, 2);
    let mut moments = Vec::new();
    while let Some(moment) = bench.coordinator.deadline(bench.now) {
        assert!(moment > bench.now);
        moments.push((moment.as_secs(), bench.at(moment).len()));
        if moments.len() == 4 {
            break;
        }
    }
    // The minimal wait; silence of two; the timeout, twice: no client comes back, and none is given up.
    assert_eq!(moments, [(20, 0), (70, 2), (100, 0), (200, 0)]);
}

#[test]
fn nothing_to_wait_for_has_no_deadline() {
    let mut bench = Bench::new(policy(2));
    assert_eq!(bench.coordinator.deadline(bench.now), None, "clients come by themselves");
    bench.joins(1);
    bench.leaves(1);
    assert_eq!(bench.coordinator.deadline(bench.now), None);
    bench.give(Event::Stop);
    assert_eq!(bench.coordinator.deadline(bench.now), None);
}
