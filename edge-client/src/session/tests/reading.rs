//! Devices that read their samples as the run says.

use shared::message::Refusal;
use shared::spec::Reading;

use super::*;

/// A session that has asked how to read its samples.
fn asking() -> Bench {
    let device = DeviceProfile::asking(device().client);
    let mut bench = Bench { session: Session::new(device, None, Duration::ZERO), now: Duration::ZERO };
    assert_eq!(bench.drain(), [Action::Connect(Pass::All)]);
    asks(&mut bench);
    bench
}

fn asks(bench: &mut Bench) {
    let said = bench.give(Event::Connected);
    assert!(matches!(&said[..], [Action::Send(ToServer::Hello(hello))] if hello.asks()), "{said:?}");
}

fn told(bench: &mut Bench) -> Vec<Action> {
    bench.hears(ToClient::Samples { reading: Reading::of(&spec(1)).to_text() })
}

/// A session that has read its samples, and said so.
fn greeted() -> Bench {
    let mut bench = asking();
    assert_eq!(told(&mut bench), [Action::Read(Reading::of(&spec(1)))]);
    assert_eq!(bench.cut(), [], "the connection is of no use any more");
    assert_eq!(bench.session.deadline(), None);
    assert_eq!(bench.give(Event::Read(Ok(device()))), [Action::Connect(Pass::All)]);
    assert_eq!(bench.give(Event::Connected), [hello(None)]);
    bench
}

#[test]
fn a_device_asks_reads_and_comes_again_with_what_it_has_read() {
    let mut bench = greeted();
    assert_eq!(bench.welcome(1, None), [heartbeat(None, 0, 0)]);
    assert_eq!(bench.comes_back(), [hello(None)], "and needs not ask again");
}

#[test]
fn samples_that_cannot_be_used_end_the_session() {
    let mut bench = asking();
    told(&mut bench);
    let failure = Failure::new(Blame::Owner, "no such column");
    assert_eq!(bench.give(Event::Read(Err(failure.clone()))), [Action::Finish(SessionEnd::Unfit(failure))]);
}

#[test]
fn what_the_device_does_not_know_is_declined_by_name() {
    let mut bench = asking();
    let reading = format!("{}rate = 3\n", Reading::of(&spec(1)).to_text());
    let ended = bench.hears(ToClient::Samples { reading });
    assert!(matches!(&ended[..], [Action::Disconnect, Action::Finish(SessionEnd::Outdated(_))]), "{ended:?}");
}

#[test]
fn another_run_that_takes_other_samples_is_asked_again() {
    let refused = ToClient::Refused(Refusal::Shape { expected: vec![3], found: vec![1, 2, 2] });
    let mut other = (*spec(2)).clone();
    other.data.class_names = vec!["cat".to_owned(), "dog".to_owned()];
    let welcome = ToClient::Welcome { spec: SpecText::of(&other), wants: None };
    for message in [refused, welcome] {
        let mut bench = greeted();
        assert_eq!(bench.hears(message), [Action::HangUp]);
        bench.reconnects();
        asks(&mut bench);
    }
}

#[test]
fn samples_that_are_refused_as_the_server_has_them_read_are_not_read_again() {
    let mut bench = greeted();
    let refusal = Refusal::Classes { expected: 5, found: 2 };
    assert_eq!(bench.hears(ToClient::Refused(refusal.clone())), [Action::HangUp]);
    bench.reconnects();
    asks(&mut bench);
    assert_eq!(told(&mut bench), [Action::Disconnect, Action::Finish(SessionEnd::Refused(refusal))]);
}

#[test]
fn a_server_that_does_not_know_the_question_is_named_with_the_options_to_give() {
    let mut bench = asking();
    let ended = bench.hears(ToClient::Refused(Refusal::Shape { expected: vec![3], found: Vec::new() }));
    let [Action::Disconnect, Action::Finish(SessionEnd::Unfit(failure))] = &ended[..] else {
        panic!("{ended:?}")
    };
    assert!(failure.blame == Blame::Owner && failure.reason.contains("give --classes"), "{failure}");
}

#[test]
fn a_device_that_has_said_nothing_of_its_samples_takes_no_welcome() {
    let mut bench = asking();
    let welcome = ToClient::Welcome { spec: SpecText::of(&spec(1)), wants: None };
    assert_eq!(bench.hears(welcome), [Action::HangUp]);
    bench.reconnects();
    asks(&mut bench);
}

#[test]
fn a_device_that_was_told_by_its_user_is_refused_for_good() {
    let mut bench = Bench::greeting(None);
    let refusal = Refusal::Classes { expected: 3, found: 2 };
    let ended = bench.hears(ToClient::Refused(refusal.clone()));
    assert_eq!(ended, [Action::Disconnect, Action::Finish(SessionEnd::Refused(refusal))]);
    let mut bench = Bench::greeting(None);
    assert_eq!(told(&mut bench), [], "it has not asked");
}
