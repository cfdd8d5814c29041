//! Client state: what a client must have is durable with every opening, told on every connection, and compared.

use super::*;

fn counted(peer: PeerId, update: Option<CountedUpdate>) -> Action {
    Action::Send { peer, message: ToClient::Counted { update } }
}

fn of(round: u32) -> CountedUpdate {
    CountedUpdate { round, fingerprint: Some(FINGERPRINT) }
}

fn keeping(resume: Resume) -> Bench {
    Bench::with(RunSpec { algorithm: RunSpec::example("scaffold").algorithm, ..spec() }, policy(2), resume)
}

/// What an opening holds.
fn ledger(actions: &[Action]) -> Option<BTreeMap<ClientId, CountedUpdate>> {
    let opening =
        |action: &Action| if let Action::Open(opening) = action { Some(opening.clone()) } else { None };
    actions.iter().find_map(opening).expect("a round opens").ledger
}

#[test]
fn where_clients_keep_nothing_nothing_is_said() {
    let mut bench = Bench::new(policy(2));
    assert_eq!(bench.joins(1), [welcome(bench.peer(1), None)]);
    assert_eq!(ledger(&bench.joins(2)), None);
    assert_eq!(bench.says(1, ToServer::ClientState { after: Some(of(7)) }), []);
}

#[test]
fn the_last_update_that_counts_is_told_and_goes_into_every_opening() {
    let mut bench = keeping(Resume::default());
    assert_eq!(bench.joins(1)[0], counted(bench.peer(1), None));
    assert_eq!(ledger(&bench.joins(2)), Some(BTreeMap::new()));
    bench.opened(1);
    bench.delivers(1, 1);
    assert_eq!(
        bench.joins(1)[2],
        counted(bench.peer(1), Some(of(1))),
        "behind the end of the connection before"
    );
    bench.delivers(2, 1);
    let next = bench.closed(1);
    assert_eq!(ledger(&next), Some([(client(1), of(1)), (client(2), of(1))].into()));
    // A client that is admitted again has its state still.
    bench.give(Event::Revoked { client: client(1) });
    assert!(bench.joins(1).contains(&counted(bench.peer(1), Some(of(1)))));
}

#[test]
fn another_state_than_was_told_is_the_operators_to_know_once_a_connection() {
    let resumed =
        || keeping(Resume { closed: 1, ledger: Some([(client(1), of(5))].into()), ..Resume::default() });
    let differs = |server, device| [Action::StateDiffers { client: client(1), server, device }];
    let says = |bench: &mut Bench, n, after| bench.says(n, ToServer::ClientState { after });
    let another = CountedUpdate { round: 5, fingerprint: Some(FINGERPRINT + 1) };
    for (device, expected) in [
        (Some(of(5)), &[][..]),
        (Some(of(9)), &differs(Some(of(5)), Some(of(9)))),
        (Some(of(4)), &differs(Some(of(5)), Some(of(4)))),
        (Some(another), &differs(Some(of(5)), Some(another))),
        (None, &differs(Some(of(5)), None)),
    ] {
        let mut bench = resumed();
        assert_eq!(bench.joins(1)[0], counted(bench.peer(1), Some(of(5))));
        assert_eq!(says(&mut bench, 1, device), expected, "{device:?}");
        assert_eq!(says(&mut bench, 1, Some(of(17))), [], "it has said it");
    }
    // A run of an earlier program knows nothing of it.
    let mut old = keeping(Resume { closed: 1, ..Resume::default() });
    let said = old.joins(1);
    assert!(matches!(said[0], Action::Send { message: ToClient::Welcome { .. }, .. }), "{said:?}");
    assert_eq!(says(&mut old, 1, Some(of(9))), []);
}
