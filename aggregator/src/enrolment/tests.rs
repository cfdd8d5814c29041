use std::collections::BTreeSet;
use std::time::SystemTime;

use shared::id::ClientId;
use shared::identity::SecretKey;
use shared::message::{Hello, Refusal, ToClient};
use tokio::sync::mpsc;

use super::*;
use crate::coordinator::PeerId;
use crate::database::Database;
use crate::peer::ToPeer;

/// The device of this number is let in and connects; commands for it go to `commands`.
fn comes(admission: &Admission, number: u8, commands: &mpsc::UnboundedSender<ToPeer>) -> ClientId {
    comes_at(admission, number, commands, SystemTime::now())
}

fn comes_at(
    admission: &Admission,
    number: u8,
    commands: &mpsc::UnboundedSender<ToPeer>,
    now: SystemTime,
) -> ClientId {
    let key = SecretKey::from_bytes([number; 32]).public();
    let hello = Hello {
        client: key.client(),
        software: "test 1".to_owned(),
        samples: 10,
        shape: vec![1, 2, 2],
        classes: 2,
        holds: None,
    };
    let address = "192.0.2.7:1".parse().unwrap();
    admission.admit(key, &hello, None, address, now).unwrap();
    admission.enter(key.client(), PeerId(u64::from(number)), commands.downgrade());
    key.client()
}

#[test]
fn whoever_may_not_take_part_any_more_is_named_once_connected_or_not() {
    let folder = tempfile::tempdir().unwrap();
    // The other one is as a process of the operator has it open.
    let (ours, theirs) = (Database::open(folder.path()).unwrap(), Database::open(folder.path()).unwrap());
    let register = Register::Lab { database: ours, policy: Policy::Anyone };
    let admission = Admission::new(register);
    let mut changes = Changes::default();
    let (gone, _) = mpsc::unbounded_channel();
    let (commands, mut told) = mpsc::unbounded_channel();
    let [away, removed] = [1, 2].map(|number| comes(&admission, number, &gone));
    let here = comes(&admission, 3, &commands);
    drop(gone);
    assert_eq!(admission.watch(&mut changes), BTreeSet::new());
    let newcomer = comes(&admission, 4, &mpsc::unbounded_channel().0);
    assert_eq!(admission.watch(&mut changes), BTreeSet::new());

    for client in [away, here] {
        assert!(Device::stand(&theirs, client, Standing::Revoked).unwrap());
    }
    for client in [removed, newcomer] {
        assert!(Device::remove(&theirs, client).unwrap());
    }
    assert_eq!(admission.watch(&mut changes), [away, here, removed, newcomer].into());
    let said = told.try_recv();
    assert!(matches!(said, Ok(ToPeer::Message(ToClient::Refused(Refusal::Revoked)))), "{said:?}");
    assert_eq!(admission.watch(&mut changes), BTreeSet::new(), "once");

    Device::stand(&theirs, away, Standing::In).unwrap();
    drop(commands);
    assert_eq!(admission.watch(&mut changes), BTreeSet::new());
    Device::stand(&theirs, away, Standing::Revoked).unwrap();
    assert_eq!(admission.watch(&mut changes), [away].into());
    // A new process does not know what another one has reported.
    assert_eq!(admission.watch(&mut Changes::default()), [away, here].into());
}

#[test]
fn a_device_that_stays_is_here_now_and_not_when_it_came() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path()).unwrap();
    let admission = Admission::new(Register::Lab { database: database.clone(), policy: Policy::Anyone });
    let (commands, _queue) = mpsc::unbounded_channel();
    let an_hour_ago = SystemTime::now() - std::time::Duration::from_hours(1);
    let stays = comes_at(&admission, 1, &commands, an_hour_ago);
    admission.watch(&mut Changes::default());
    let device = Device::all(&database).unwrap().remove(0);
    assert_eq!(device.client, stays);
    let later = device.seen - device.since;
    assert!(later >= 3_599_000, "last here {later} ms after it came, and it is here");
}
