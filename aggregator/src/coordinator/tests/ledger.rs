//! Client state: what a client must have is durable with every opening, told on every connection, and compared.

use super::*;

fn counted(peer: PeerId, round: Option<u32>) -> Action {
    Action::Send { peer, message: ToClient::Counted { round } }
}

fn keeping(resume: Resume) -> Bench {
    Bench::with(RunSpec { algorithm: RunSpec::example("scaffold").algorithm, ..spec() }, policy(2), resume)
}

/// What an opening holds.
fn ledger(actions: &[Action]) -> Option<BTreeMap<ClientId, u32>> {
    let opening =
        |action: &Action| if let Action::Open(opening) = action { Some(opening.clone()) } else { None };
    actions.iter().find_map(opening).expect("a round opens").ledger
}

#[test]
fn where_clients_keep_nothing_nothing_is_said() {
    let mut bench = Bench::new(policy(2));
    assert_eq!(bench.joins(1), [welcome(bench.peer(1), None)]);
    assert_eq!(ledger(&bench.joins(2)), None);
    assert_eq!(bench.says(1, ToServer::ClientState { round: Some(7) }), []);
}

#[test]
fn the_last_update_that_counts_is_told_and_goes_into_every_opening() {
    let mut bench = keeping(Resume::default());
    assert_eq!(bench.joins(1)[0], counted(bench.peer(1), None));
    assert_eq!(ledger(&bench.joins(2)), Some(BTreeMap::new()));
    bench.opened(1);
    bench.delivers(1, 1);
    assert_eq!(bench.joins(1)[2], counted(bench.peer(1), Some(1)), "behind the end of the connection before");
    bench.delivers(2, 1);
    let next = bench.closed(1);
    assert_eq!(ledger(&next), Some([(client(1), 1), (client(2), 1)].into()));
    // A client that is admitted again has its state still.
    bench.give(Event::Revoked { client: client(1) });
    assert!(bench.joins(1).contains(&counted(bench.peer(1), Some(1))));
}

#[test]
fn another_state_than_was_told_is_the_operators_to_know_once_a_connection() {
    let resumed =
        || keeping(Resume { closed: 1, ledger: Some([(client(1), 5)].into()), ..Resume::default() });
    let differs = |server, device| [Action::StateDiffers { client: client(1), server, device }];
    let says = |bench: &mut Bench, n, round| bench.says(n, ToServer::ClientState { round });
    for (device, expected) in [
        (Some(5), &[][..]),
        (Some(9), &differs(Some(5), Some(9))),
        (Some(4), &differs(Some(5), Some(4))),
        (None, &differs(Some(5), None)),
    ] {
        let mut bench = resumed();
        assert_eq!(bench.joins(1)[0], counted(bench.peer(1), Some(5)));
        assert_eq!(says(&mut bench, 1, device), expected, "{device:?}");
        assert_eq!(says(&mut bench, 1, Some(17)), [], "it has said it");
    }
    // A run of an earlier program knows nothing of it.
    let mut old = keeping(Resume { closed: 1, ..Resume::default() });
    let said = old.joins(1);
    assert!(matches!(said[0], Action::Send { message: ToClient::Welcome { .. }, .. }), "{said:?}");
    assert_eq!(says(&mut old, 1, Some(9)), []);
}
