//! Impersonation: an admitted device that claims another identity, or stays after its goodbye.

use federation_tests::gate::Gate;
use federation_tests::raw_peer::RawPeer;
use shared::frame;
use shared::message::{Progress, ToServer};

use super::{assert_finished, honest, in_process, stranger, stranger_key};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_admitted_device_speaks_for_another_device() {
    let (_directory, in_process) = in_process(2, &["round.min-updates=2", "run.rounds=1"]);
    let gates = honest(&in_process);
    let held = gates.iter().map(Gate::held).collect();
    let mut victim = RawPeer::connect(in_process.address(), in_process.pin(), &stranger_key(8)).await;
    victim.join(stranger(8)).await;
    let as_victim = frame::encode(&ToServer::Hello(stranger(8)), 0);
    let again = frame::encode(&ToServer::Hello(stranger(7)), 0);
    let goodbye = frame::encode(&ToServer::Goodbye, 0);
    let posing = "it said hello in the name of another device than the one that it has proved to be";
    for (before, reason) in [(&[][..], posing), (&goodbye[..], "the device left"), (&again[..], posing)] {
        let mut thief = RawPeer::connect(in_process.address(), in_process.pin(), &stranger_key(7)).await;
        thief.join(stranger(7)).await;
        thief.say(&[before, &as_victim[..]].concat()).await;
        assert_eq!(thief.reason().await, reason);
    }
    // It was not replaced: its messages are handled as before.
    victim.say(&frame::encode(&ToServer::Heartbeat(Progress::default()), 0)).await;
    assert_finished(in_process, &gates, held, 1);
    assert_eq!(victim.answer().await.ok(), Some(shared::message::ToClient::Finished { rounds: 1 }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_goodbye_frees_the_slot() {
    let (_directory, in_process) = in_process(2, &["round.min-updates=2", "run.rounds=1"]);
    let gates = honest(&in_process);
    let held = gates.iter().map(Gate::held).collect();
    let mut stays = RawPeer::connect(in_process.address(), in_process.pin(), &stranger_key(7)).await;
    stays.join(stranger(7)).await;
    stays.say(&frame::encode(&ToServer::Goodbye, 0)).await;
    assert_eq!(stays.reason().await, "the device left");
    assert_finished(in_process, &gates, held, 1);
}
