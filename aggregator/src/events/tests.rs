use std::net::IpAddr;

use shared::message::{CountedUpdate, Refusal};

use super::*;
use crate::round::Dominance;

fn client(n: u32) -> ClientId {
    ClientId::from_bytes(std::array::from_fn(|byte| (n >> (8 * (byte % 4))) as u8))
}

/// The effect of one notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Recorded,
    Told,
    Suppressed,
}

/// Applies `act` to events that have gone through `before`, and gives what it made them say.
fn said(events: &mut Events<'_>, log: &Log, act: impl FnOnce(&mut Events<'_>)) -> Vec<String> {
    act(events);
    log.lock().expect("no test panics in a sink").drain(..).filter_map(|(text, _)| text).collect()
}

type Log = std::sync::Mutex<Vec<(Option<String>, bool)>>;

/// A sink that keeps sentences, and whether their notices belong among the round's results.
fn sink(log: &Log) -> impl FnMut(&Notice<'_>) + '_ {
    |notice| {
        let recorded = matches!(notice, Notice::Result { recorded: true, .. });
        log.lock().expect("no test panics in a sink").push((text(notice), recorded));
    }
}

#[test]
fn each_result_is_told_once_and_what_is_made_up_as_a_number() {
    let log = Log::default();
    let mut sink = sink(&log);
    let mut events = Events::new(&mut sink);
    let report = |events: &mut Events<'_>, n, result, round, current| {
        events.result(round, client(n), result, current);
        match log.lock().expect("no test panics in a sink").drain(..).next() {
            None => Fate::Suppressed,
            Some((_, true)) => Fate::Recorded,
            Some((_, false)) => Fate::Told,
        }
    };
    let (failed, not_now) = (TaskResult::Failed("why"), TaskResult::NotNow("why"));
    assert_eq!(report(&mut events, 1, failed, 3, true), Fate::Recorded);
    assert_eq!(report(&mut events, 1, failed, 3, true), Fate::Suppressed);
    assert_eq!(report(&mut events, 1, not_now, 3, true), Fate::Recorded);
    assert_eq!(report(&mut events, 2, failed, 3, true), Fate::Recorded);
    assert_eq!(report(&mut events, 2, failed, 9, false), Fate::Told);
    let more = (10..1000).map(|round| report(&mut events, 2, failed, round, false));
    assert_eq!(more.filter(|fate| *fate != Fate::Suppressed).count(), 0);
    let told = said(&mut events, &log, |events| events.round_closed(3));
    let [told] = &told[..] else { panic!("there was more: {told:?}") };
    assert!(told.starts_with("2 clients") && told.contains(" 991 more messages"), "{told}");
    assert_eq!(said(&mut events, &log, |events| events.round_closed(3)).len(), 0, "told once");
    assert_eq!(report(&mut events, 1, failed, 3, true), Fate::Suppressed, "of a round that is over, too");
    assert_eq!(report(&mut events, 2, failed, 9, false), Fate::Told, "once a round");
    events.round_closed(4);
    assert_eq!(events.messages.len(), 0);
}

#[test]
fn a_link_that_breaks_again_and_again_is_told_a_limited_number_of_times() {
    let log = Log::default();
    let mut sink = sink(&log);
    let mut events = Events::new(&mut sink);
    let connect = |events: &mut Events<'_>, n| {
        events.tell(&Notice::Connected { client: client(n), samples: 1, software: "test" })
    };
    let told = (0..1000).filter(|_| connect(&mut events, 0x0101_0101)).count();
    assert_eq!(told, MAX_CONNECTIONS_TOLD as usize);
    assert!(connect(&mut events, 2));
    log.lock().expect("no test panics in a sink").clear();
    let told = said(&mut events, &log, |events| events.round_closed(1));
    let [told] = &told[..] else { panic!("there was more: {told:?}") };
    assert!(told.starts_with("client 0101") && told.contains(" 950 more messages"), "{told}");
    assert!(connect(&mut events, 0x0101_0101));
}

#[test]
fn connections_without_a_hello_are_told_together_and_now_and_then() {
    let log = Log::default();
    let mut sink = sink(&log);
    let (mut events, start) = (Events::new(&mut sink), Instant::now());
    assert_eq!(said(&mut events, &log, |events| events.flush(start)).len(), 0);
    let told = said(&mut events, &log, |events| events.unidentified("mute".to_owned(), start));
    assert!(told[0].starts_with("a connection") && told[0].ends_with("mute"), "{told:?}");
    for n in 0..1000 {
        let now = start + UNIDENTIFIED_PERIOD / 2;
        let told = said(&mut events, &log, |events| events.unidentified(format!("reason {n}"), now));
        assert_eq!(told.len(), 0, "{told:?}");
    }
    let told = said(&mut events, &log, |events| events.flush(start + UNIDENTIFIED_PERIOD));
    assert!(told[0].starts_with("1000 connections") && told[0].ends_with("reason 999"), "{told:?}");
    let again = said(&mut events, &log, |events| events.flush(start + 9 * UNIDENTIFIED_PERIOD));
    assert_eq!(again.len(), 0, "nothing is told twice");
}

#[test]
fn why_no_device_can_be_looked_up_is_told_until_it_has_passed() {
    let log = Log::default();
    let mut sink = sink(&log);
    let mut events = Events::new(&mut sink);
    let failed = Notice::LookupFailed { error: "the disk is broken" };
    assert!(events.tell(&failed));
    assert!(!events.tell(&failed), "once");
    events.tell(&Notice::Connected { client: client(1), samples: 1, software: "test" });
    assert!(events.tell(&failed), "again");
    let told = said(&mut events, &log, |_| {});
    assert!(told[0].contains("cannot be looked up") && told[0].contains("the disk is broken"), "{told:?}");
}

#[test]
fn an_address_that_speaks_another_protocol_is_told_once_and_not_any_number_of_them() {
    let log = Log::default();
    let mut sink = sink(&log);
    let mut events = Events::new(&mut sink);
    let foreign = |n: u32| Notice::ForeignProtocol { address: IpAddr::from(n.to_be_bytes()) };
    let told = said(&mut events, &log, |events| _ = events.tell(&foreign(0x0102_0304)));
    assert!(
        told[0].contains("1.2.3.4") && told[0].contains("federation/5") && told[0].contains("update"),
        "{told:?}"
    );
    let again = said(&mut events, &log, |events| _ = events.tell(&foreign(0x0102_0304)));
    assert_eq!(again.len(), 0);
    let told = said(&mut events, &log, |events| (0..5000).for_each(|n| _ = events.tell(&foreign(n))));
    assert_eq!(told.len(), MAX_FOREIGN, "and once that there are more");
}

#[test]
fn a_device_that_is_not_admitted_is_told_once_however_often_it_comes() {
    let log = Log::default();
    let mut sink = sink(&log);
    let mut events = Events::new(&mut sink);
    let refused = |n, refusal| Notice::NotAdmitted { client: client(n), refusal };
    assert!(events.tell(&refused(1, &Refusal::Unknown)));
    assert!(!events.tell(&refused(1, &Refusal::Unknown)));
    assert!(events.tell(&refused(1, &Refusal::TicketExpired)), "for another reason");
    log.lock().expect("no test panics in a sink").clear();
    let told = said(&mut events, &log, |events| {
        (2..5000).for_each(|n| _ = events.tell(&refused(n, &Refusal::Unknown)));
    });
    assert_eq!(told.len(), MAX_NOT_ADMITTED - 1, "and once that there are more");
}

#[test]
fn the_same_number_of_skipped_samples_is_told_once_and_made_up_clients_fill_no_memory() {
    let log = Log::default();
    let mut sink = sink(&log);
    let mut events = Events::new(&mut sink);
    let skips = |events: &mut Events<'_>, n, samples| {
        events.tell(&Notice::SkippedSamples { client: client(n), samples, shown: true })
    };
    let told = [0, 0, 12, 12, 0].map(|samples| skips(&mut events, 0, samples));
    assert_eq!(told, [true, false, true, false, true], "also that there are none, and none any more");
    assert!((1..=3 * MAX_ROSTER as u32).all(|n| skips(&mut events, n, 1)));
    assert!(events.skipped.len() <= MAX_ROSTER);
}

#[test]
fn client_state_that_differs_is_told_once_until_it_differs_otherwise() {
    let of = |round| Some(CountedUpdate { round, fingerprint: None });
    let log = Log::default();
    let mut sink = sink(&log);
    let mut events = Events::new(&mut sink);
    let mut tell = |n, server, device| {
        let notice = Notice::ClientState { client: client(n), server, device };
        said(&mut events, &log, |events| {
            events.tell(&notice);
        })
    };
    let told = tell(1, of(5), of(15));
    let [text] = &told[..] else { panic!("{told:?}") };
    for part in ["after round 15", "of round 5", "restored from a backup", "goes on with it"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(tell(1, of(5), of(15)).len(), 0, "on another connection");
    assert_eq!((tell(2, of(5), of(15)).len(), tell(1, of(5), None).len()), (1, 1));
    for n in 0..2 * crate::coordinator::MAX_ROSTER as u32 {
        tell(n, None, of(1));
    }
    assert!(events.states.len() <= crate::coordinator::MAX_ROSTER);
}

#[test]
fn who_dominates_is_told_again_when_it_declares_another_number() {
    let log = Log::default();
    let mut sink = sink(&log);
    let mut events = Events::new(&mut sink);
    let mut told = |round, client, samples| {
        let dominance =
            Dominance { client, samples, share_of_samples: 0.9999, share_of_weight: 0.5, bounded: 1 };
        let record = RoundRecord { round, dominance: Some(dominance), ..RoundRecord::default() };
        let told = said(&mut events, &log, |events| events.record(&record));
        told.into_iter().next()
    };
    let first = told(1, client(1), 1000).expect("it is new");
    assert!(
        first.starts_with("in round 1 client 01000000 declares 99.99 % of the samples (1000)"),
        "{first}"
    );
    assert!(first.contains("`aggregator devices revoke 01000000`"), "{first}");
    assert_eq!([told(2, client(1), 1000), told(3, client(1), 1000)], [None, None]);
    assert!(told(4, client(1), 2000).is_some(), "another number");
    assert!(told(4, client(2), 1000).is_some(), "another device");
}
