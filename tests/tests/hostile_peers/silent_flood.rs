//! A flood of connections that say nothing, from 160 addresses: new devices get in all the same.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use federation_tests::namespaces::{Namespace, add_addresses, inside_test};
use federation_tests::process::{Process, until};
use federation_tests::raw_peer::RawPeer;
use federation_tests::testbed::Testbed;
use quinn::TransportConfig;
use shared::identity::PublicKey;
use shared::protocol::Protocol;

use super::stranger_key;

/// Addresses from which the flood comes: each a network of its own to the server, which cannot tell it from a new device's.
const ADDRESSES: u8 = 160;
/// New devices, each with an address of its own as well.
const DEVICES: u32 = 9;
/// The flood connects again this soon: 160 attempts a second together, for which 16 a second are served.
const AGAIN: Duration = Duration::from_secs(1);

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 88, 0, last)
}

/// Connects from each address and says nothing, for ever. `served` collects the addresses that have held a slot until the server
/// gave them up.
async fn flood(server: SocketAddr, pin: PublicKey, served: Arc<Mutex<BTreeSet<u8>>>) {
    let key = Arc::new(stranger_key(9));
    let each = (1..=ADDRESSES).map(|last| {
        let (key, served) = (key.clone(), served.clone());
        tokio::spawn(async move {
            loop {
                let names = vec![Protocol::SPOKEN[0].name().to_vec()];
                let (from, transport) = ((address(last), 0).into(), TransportConfig::default());
                let peer = RawPeer::connect_from(from, names, server, pin, &key, transport).await;
                if let Ok(peer) = peer {
                    let _ = peer.connection.closed().await;
                    served.lock().unwrap().insert(last);
                }
                tokio::time::sleep(AGAIN).await;
            }
        })
    });
    let each: Vec<_> = each.collect();
    for task in each {
        let _ = task.await;
    }
}

#[test]
fn new_devices_get_in_while_silent_connections_come_from_160_addresses() {
    if !inside_test(
        "hostile_peers::silent_flood::new_devices_get_in_while_silent_connections_come_from_160_addresses",
    ) {
        return;
    }
    add_addresses((1..=ADDRESSES + 1).map(address));
    let overrides = ["run.rounds=1", "data.max-samples=90", "round.timeout=600", "connection.timeout=10"];
    let testbed = Testbed::new(DEVICES, &overrides).listening_everywhere();
    let namespaces: Vec<_> = (0..DEVICES as u8).map(Namespace::new).collect();
    let server = testbed.serve();

    let served = Arc::new(Mutex::new(BTreeSet::new()));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let target = (address(ADDRESSES + 1), testbed.port()).into();
    runtime.spawn(flood(target, testbed.key(), served.clone()));
    until("every address of the flood has been served", || {
        served.lock().unwrap().len() == usize::from(ADDRESSES)
    });

    let devices = (0..).zip(&namespaces).map(|(index, namespace)| {
        let plain = testbed.join_command(index, &format!("{}:{}", namespace.near(), testbed.port()));
        let mut command = namespace.command(plain.get_program(), plain.get_args());
        Process::start(&format!("device {index}"), &mut command)
    });
    let devices: Vec<_> = devices.collect();
    let server = server.wait();
    assert_eq!(server.code, Some(0), "{}", server.text);
    for device in devices {
        let ended = device.wait();
        assert_eq!(ended.code, Some(0), "{}", ended.text);
        // One try in ten gets in while the flood is not held back.
        let refused = ended.text.matches("\"disconnected\"").count();
        assert!(refused <= 2, "it was refused {refused} times: {}", ended.text);
    }
    assert_eq!(testbed.rounds()[0].accepted, DEVICES as usize);
    runtime.shutdown_background();
}
