use proptest::prelude::*;

use super::*;

/// A store with one device, as far as merging goes.
#[derive(Clone, Debug, Default)]
struct Store {
    said: Said,
    stood: u32,
    revision: u32,
}

/// A server with the device.
#[derive(Clone, Debug, Default)]
struct Server {
    here: Said,
    agreed: Option<(Said, u32)>,
}

impl Server {
    /// Reads the store, merges, and writes what is new. Whether it wrote.
    fn meets(&mut self, store: &mut Store) -> bool {
        let known = self.agreed.as_ref().map_or(0, |(_, revision)| *revision);
        if store.revision > known {
            let agreed = self.agreed.as_ref().map(|(said, _)| said);
            self.here = device(agreed, &self.here, &store.said, store.stood > known);
            self.agreed = Some((store.said.clone(), store.revision));
        }
        let changed = self.agreed.as_ref().map_or(&Said::default(), |(said, _)| said) != &self.here;
        if changed {
            store.revision += 1;
            if store.said.standing != self.here.standing {
                store.stood = store.revision;
            }
            store.said = self.here.clone();
            self.agreed = Some((self.here.clone(), store.revision));
        }
        changed
    }
}

/// What all say after the servers have met the store in turn, from this one on.
fn settle(mut servers: [Server; 2], mut store: Store, first: usize) -> Said {
    for turn in first..first + 4 {
        let wrote = servers[turn % 2].meets(&mut store);
        assert!(!wrote || turn < first + 3, "they do not come to an end: {servers:?} {store:?}");
    }
    for server in &servers {
        assert_eq!(server.here, store.said, "all say the same");
    }
    store.said
}

fn standing() -> impl Strategy<Value = Stands> {
    prop::sample::select(vec![Stands::REMOVED, Stands::WAITING, Stands::IN, Stands::REVOKED])
}

fn said() -> impl Strategy<Value = Said> {
    (standing(), prop::option::of(prop::sample::select(vec!["a", "b", "c"]))).prop_map(|(standing, name)| {
        let name = name.filter(|_| standing != Stands::REMOVED).map(str::to_owned);
        Said { standing, name }
    })
}

/// Two servers that agreed on `agreed`, each changed since.
fn agreed(agreed: &Said, here: [&Said; 2]) -> ([Server; 2], Store) {
    let store = Store { said: agreed.clone(), stood: 1, revision: 1 };
    (here.map(|here| Server { here: here.clone(), agreed: Some((agreed.clone(), 1)) }), store)
}

proptest! {
    #[test]
    fn all_servers_say_the_same_in_the_end(before in said(), a in said(), b in said(), known in any::<[bool; 2]>()) {
        let (mut servers, store) = agreed(&before, [&a, &b]);
        for (server, known) in servers.iter_mut().zip(known) {
            server.agreed.take_if(|_| !known);
        }
        let both = [0, 1].map(|first| settle(servers.clone(), store.clone(), first).standing);
        // A revocation that is news holds, in either order.
        if before.standing != Stands::REVOKED && [&a, &b].iter().any(|here| here.standing == Stands::REVOKED) {
            prop_assert_eq!(both, [Stands::REVOKED; 2]);
        }
    }

    #[test]
    fn the_order_matters_for_nothing_but_two_changes_of_one_thing(before in said(), a in said(), b in said()) {
        let (servers, store) = agreed(&before, [&a, &b]);
        let [first, second] = [0, 1].map(|first| settle(servers.clone(), store.clone(), first));
        let changed = |here: &Said| here.standing != before.standing;
        let weighed = |here: Stands| matches!(here, Stands::IN | Stands::WAITING);
        let (one, other) = (a.standing, b.standing);
        let evicted = |one, other| (one, other) == (Stands::IN, Stands::REMOVED);
        let by_rule = [&a, &b].iter().any(|here| here.standing == Stands::REVOKED)
            || weighed(one) && weighed(other)
            || before.standing == Stands::WAITING && (evicted(one, other) || evicted(other, one))
            || !changed(&a) || !changed(&b);
        if by_rule {
            prop_assert_eq!(first.standing, second.standing);
        } else {
            // The second one writes later.
            prop_assert_eq!(first.standing, b.standing);
            prop_assert_eq!(second.standing, a.standing);
        }
        let renamed = |here: &Said| here.name != before.name;
        if by_rule && !(renamed(&a) && renamed(&b)) {
            prop_assert_eq!(first, second);
        }
    }

    #[test]
    fn uses_of_a_ticket_are_added_up_in_any_order(made in 1..20_i64, used in [0..20_i64, 0..20_i64], withdrawn in any::<[bool; 2]>()) {
        let before = Left { remaining: made, withdrawn: false };
        let here = |at: usize| Left { remaining: (made - used[at]).max(0), withdrawn: withdrawn[at] };
        let after = |order: [usize; 2]| order.iter().fold(before, |there, at| ticket(Some(&before), &here(*at), &there));
        let left = Left { remaining: (made - used[0].min(made) - used[1].min(made)).max(0), withdrawn: withdrawn[0] || withdrawn[1] };
        prop_assert_eq!(after([0, 1]), left);
        prop_assert_eq!(after([1, 0]), left);
    }
}

#[test]
fn a_server_that_read_a_removal_enrols_the_device_anew() {
    let (mut store, mut servers) = (Store::default(), [Server::default(), Server::default()]);
    let admitted = Said { standing: Stands::IN, name: Some("a".to_owned()) };
    let admits = |server: &mut Server| server.here = admitted.clone();
    admits(&mut servers[0]);
    servers[0].meets(&mut store);
    servers[1].meets(&mut store);
    servers[1].here = Said::default();
    servers[1].meets(&mut store);
    servers[0].meets(&mut store);
    assert_eq!(servers[0].here, Said::default());
    admits(&mut servers[0]);
    assert_eq!(settle(servers, store, 0), admitted);
}

#[test]
fn a_full_queue_at_one_server_takes_no_approval_of_another_one_back() {
    let said = |standing| Said { standing, name: None };
    for (approves, evicts) in [(0, 1), (1, 0)] {
        let mut here = [said(Stands::IN), said(Stands::IN)];
        here[evicts] = said(Stands::REMOVED);
        let (servers, store) = agreed(&said(Stands::WAITING), [&here[0], &here[1]]);
        assert_eq!(settle(servers, store, approves).standing, Stands::IN);
    }
    // One that does not wait is removed by an operator alone.
    let (servers, store) = agreed(&said(Stands::REVOKED), [&said(Stands::IN), &Said::default()]);
    assert_eq!(settle(servers, store, 0).standing, Stands::REMOVED);
}

#[test]
fn a_second_revocation_is_one_too() {
    let said = |standing| Said { standing, name: None };
    let ([mut a, mut b], mut store) = agreed(&said(Stands::REVOKED), [&said(Stands::IN), &said(Stands::IN)]);
    // It was approved and revoked again at one server, and meanwhile approved at the other.
    assert!(a.meets(&mut store));
    a.here = said(Stands::REVOKED);
    assert!(a.meets(&mut store));
    b.meets(&mut store);
    assert_eq!(settle([a, b], store, 0).standing, Stands::REVOKED);
}
