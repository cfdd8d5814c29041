use std::time::Duration;

use shared::identity::SecretKey;

use super::super::IssuedTicket;
use super::*;

const DAY: Duration = Duration::from_hours(24);

struct Lab {
    database: Database,
    now: SystemTime,
    folder: tempfile::TempDir,
}

fn lab() -> Lab {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path()).unwrap();
    Lab { database, now: SystemTime::UNIX_EPOCH + 20_000 * DAY, folder }
}

fn key(byte: u8) -> PublicKey {
    SecretKey::from_bytes([byte; 32]).public()
}

fn secret(byte: u8) -> TicketSecret {
    TicketSecret::from_bytes([byte; 16])
}

/// An address of a network.
fn at(last: u8) -> IpAddr {
    [192, 0, 2, last].into()
}

impl Lab {
    fn weigh(&self, device: u8, ticket: Option<u8>, policy: Policy) -> Admittance {
        Device::admit(&self.database, key(device), ticket.map(secret), policy, at(7), self.now).unwrap()
    }

    fn left(&self) -> i64 {
        IssuedTicket::good(&self.database, self.now).unwrap().iter().map(|ticket| ticket.left).sum()
    }

    fn stand(&self, device: u8, standing: Standing) -> bool {
        Device::stand(&self.database, key(device).client(), standing).unwrap()
    }
}

fn refused(refusal: Refusal) -> Admittance {
    Admittance::Refused(refusal)
}

#[test]
fn a_ticket_lets_as_many_in_as_it_was_made_for_and_each_once() {
    let mut lab = lab();
    IssuedTicket::make(&lab.database, secret(1), 2, DAY, lab.now).unwrap();
    assert_eq!(lab.weigh(1, None, Policy::Ticket), refused(Refusal::Unknown));
    assert_eq!(lab.weigh(1, Some(9), Policy::Ticket), refused(Refusal::TicketUnknown));
    assert_eq!(lab.weigh(1, Some(1), Policy::Ticket), Admittance::In);
    // It did not hear of it, or came again: no use less.
    assert_eq!((lab.weigh(1, Some(1), Policy::Ticket), lab.left()), (Admittance::In, 1));
    assert_eq!(lab.weigh(1, None, Policy::Ticket), Admittance::In);
    assert_eq!(lab.weigh(2, Some(1), Policy::Ticket), Admittance::In);
    assert_eq!(lab.weigh(3, Some(1), Policy::Ticket), refused(Refusal::TicketUsedUp));
    lab.now += DAY;
    assert_eq!(lab.weigh(3, Some(1), Policy::Ticket), refused(Refusal::TicketExpired));
    assert_eq!(lab.weigh(2, Some(1), Policy::Ticket), Admittance::In, "it is in for good");
    assert_eq!(Device::all(&lab.database).unwrap().len(), 2, "nothing is kept of refused devices");
}

#[test]
fn an_expired_ticket_lets_nobody_in_and_is_told_from_a_withdrawn_one() {
    let mut lab = lab();
    let issued = IssuedTicket::make(&lab.database, secret(1), 5, DAY, lab.now).unwrap();
    let end = lab.now + DAY;
    lab.now = end.checked_sub(Duration::from_millis(1)).unwrap();
    assert_eq!(lab.weigh(1, Some(1), Policy::Ticket), Admittance::In);
    lab.now = end;
    assert_eq!(lab.weigh(2, Some(1), Policy::Ticket), refused(Refusal::TicketExpired));
    assert_eq!(IssuedTicket::good(&lab.database, lab.now).unwrap(), []);
    assert!(IssuedTicket::withdraw(&lab.database, issued.number).unwrap());
    assert!(!IssuedTicket::withdraw(&lab.database, issued.number).unwrap());
    assert_eq!(lab.weigh(2, Some(1), Policy::Ticket), refused(Refusal::TicketUnknown));
    // Numbers are never used again, so that a withdrawal never meets another ticket.
    let next = IssuedTicket::make(&lab.database, secret(2), 1, DAY, lab.now).unwrap();
    assert!(next.number > issued.number);
}

#[test]
fn a_device_without_a_ticket_waits_for_approval_where_that_is_the_policy() {
    let lab = lab();
    let client = key(1).client();
    assert_eq!(lab.weigh(1, None, Policy::Approve), refused(Refusal::Pending { client }));
    assert_eq!(Device::find(&lab.database, client).unwrap().unwrap().standing, Standing::Waiting);
    assert_eq!(lab.weigh(1, Some(9), Policy::Approve), refused(Refusal::Pending { client }));
    assert!(lab.stand(1, Standing::In));
    assert_eq!(lab.weigh(1, None, Policy::Ticket), Admittance::In);
    // With a ticket no approval is needed.
    lab.weigh(2, None, Policy::Approve);
    IssuedTicket::make(&lab.database, secret(1), 1, DAY, lab.now).unwrap();
    assert_eq!(lab.weigh(2, Some(1), Policy::Approve), Admittance::In);
    assert!(!lab.stand(3, Standing::In), "there is none");
}

#[test]
fn a_revoked_device_stays_out_with_any_ticket_until_it_is_approved() {
    let lab = lab();
    assert_eq!(lab.weigh(1, None, Policy::Anyone), Admittance::In);
    lab.stand(1, Standing::Revoked);
    IssuedTicket::make(&lab.database, secret(1), 1, DAY, lab.now).unwrap();
    for policy in [Policy::Ticket, Policy::Approve, Policy::Anyone] {
        assert_eq!(lab.weigh(1, Some(1), policy), refused(Refusal::Revoked));
    }
    assert_eq!(lab.left(), 1);
    lab.stand(1, Standing::In);
    assert_eq!(lab.weigh(1, None, Policy::Ticket), Admittance::In);
    // Removed, it is unknown.
    assert!(Device::remove(&lab.database, key(1).client()).unwrap());
    assert_eq!(lab.weigh(1, None, Policy::Ticket), refused(Refusal::Unknown));
}

#[test]
fn strangers_do_not_fill_the_disk() {
    let mut lab = lab();
    let stranger =
        |n: u16| SecretKey::from_bytes(std::array::from_fn(|byte| n.to_le_bytes()[byte % 2])).public();
    for n in 0..1005 {
        lab.now += Duration::from_secs(1);
        Device::admit(&lab.database, stranger(n), None, Policy::Approve, at(7), lab.now).unwrap();
    }
    let all = Device::all(&lab.database).unwrap();
    assert_eq!(all.len(), 1000);
    assert!(all.iter().all(|device| device.client != stranger(0).client()), "the first ones are forgotten");
    assert!(all.iter().any(|device| device.client == stranger(1004).client()));
}

#[test]
fn whoever_makes_up_keys_pushes_nobody_else_out() {
    let mut lab = lab();
    lab.weigh(1, None, Policy::Approve);
    let made_up =
        |n: u16| SecretKey::from_bytes(std::array::from_fn(|byte| n.to_le_bytes()[byte % 2])).public();
    for n in 1000..2100 {
        lab.now += Duration::from_secs(1);
        // All of one network.
        let address = std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n).into();
        Device::admit(&lab.database, made_up(n), None, Policy::Approve, address, lab.now).unwrap();
    }
    let all = Device::all(&lab.database).unwrap();
    assert_eq!(all.len(), 1000);
    let honest = all.iter().find(|device| device.client == key(1).client());
    assert_eq!(honest.and_then(|device| device.address.as_deref()), Some("192.0.2.7"));
    assert!(!all.iter().any(|device| device.client == made_up(1000).client()), "the first of them go");
}

#[test]
fn whoever_comes_once_from_everywhere_keeps_no_lab_out() {
    let mut lab = lab();
    let made_up =
        |n: u16| SecretKey::from_bytes(std::array::from_fn(|byte| n.to_le_bytes()[byte % 2])).public();
    for n in 1000..2000 {
        lab.now += Duration::from_secs(1);
        // Each from another network.
        let address = std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, n, 0, 0, 0, 1).into();
        Device::admit(&lab.database, made_up(n), None, Policy::Approve, address, lab.now).unwrap();
    }
    for device in 1..=20 {
        lab.now += Duration::from_secs(1);
        lab.weigh(device, None, Policy::Approve);
    }
    let all = Device::all(&lab.database).unwrap();
    assert_eq!(all.len(), 1000);
    for device in 1..=20 {
        let client = key(device).client();
        assert!(
            all.iter().any(|waiting| waiting.client == client),
            "device {device} of the lab waits to be seen"
        );
    }
}

#[test]
fn what_was_seen_and_named_is_kept() {
    let lab = lab();
    lab.weigh(1, None, Policy::Anyone);
    let client = key(1).client();
    let at = lab.now + DAY;
    let seen = Seen {
        at,
        address: "192.0.2.7".parse().unwrap(),
        software: "edge-client 9".to_owned(),
        samples: 600,
    };
    let gone = key(2).client();
    Device::note(&lab.database, &BTreeMap::from([(client, seen.clone()), (gone, seen)])).unwrap();
    assert!(Device::rename(&lab.database, client, Some("window sill")).unwrap());
    let device = Device::find(&lab.database, client).unwrap().unwrap();
    assert_eq!(device.name.as_deref(), Some("window sill"));
    assert_eq!((device.since, device.seen), (moment(lab.now), moment(at)));
    assert_eq!((device.address.as_deref(), device.samples), (Some("192.0.2.7"), Some(600)));
    assert_eq!(Device::find(&lab.database, gone).unwrap(), None);
    assert_eq!(device.key, key(1));

    // Addresses of admitted devices: the newest last, and no more than the limit.
    for (n, standing) in [(2, Standing::In), (3, Standing::Revoked), (4, Standing::In)] {
        lab.weigh(n, None, Policy::Anyone);
        let (at, address) = (at + u32::from(n) * DAY, [192, 0, 2, n].into());
        let seen = Seen { at, address, software: String::new(), samples: 1 };
        Device::note(&lab.database, &BTreeMap::from([(key(n).client(), seen)])).unwrap();
        lab.stand(n, standing);
    }
    let of = |n: u8| IpAddr::from([192, 0, 2, n]);
    assert_eq!(Device::addresses(&lab.database, 9).unwrap(), [of(7), of(2), of(4)]);
    assert_eq!(Device::addresses(&lab.database, 1).unwrap(), [of(4)]);
}

#[test]
fn what_another_process_changes_is_noticed() {
    let lab = lab();
    let other = Database::open_existing(lab.folder.path()).unwrap().unwrap();
    let before = lab.database.foreign_changes().unwrap();
    lab.weigh(1, None, Policy::Anyone);
    assert_eq!(lab.database.foreign_changes().unwrap(), before, "its own changes it knows of");
    Device::stand(&other, key(1).client(), Standing::Revoked).unwrap();
    assert_ne!(lab.database.foreign_changes().unwrap(), before);
}

#[test]
fn a_clock_that_is_wrong_for_a_while_costs_no_ticket() {
    let mut lab = lab();
    let of = |n: u32| TicketSecret::from_bytes(std::array::from_fn(|byte| n.to_le_bytes()[byte % 4]));
    IssuedTicket::make(&lab.database, of(0), 1, 1000 * DAY, lab.now).unwrap();
    // Ten years ahead, and back.
    let right = lab.now;
    lab.now += 3650 * DAY;
    IssuedTicket::make(&lab.database, of(1), 1, DAY, lab.now).unwrap();
    lab.now = right;
    assert_eq!(lab.left(), 2);
    let weigh = |device, n| {
        Device::admit(&lab.database, key(device), Some(of(n)), Policy::Ticket, at(7), lab.now).unwrap()
    };
    assert_eq!(weigh(1, 0), Admittance::In);
    assert_eq!(IssuedTicket::newest(&lab.database).unwrap(), Some(moment(right + 3650 * DAY)));
    // Tickets that admit no device are kept up to a limit, all others without one.
    for n in 2..1010 {
        IssuedTicket::make(&lab.database, of(n), 1, DAY, lab.now).unwrap();
    }
    assert_eq!(weigh(2, 0), refused(Refusal::TicketUnknown), "it was used up, and is the first of many");
    assert_eq!(weigh(2, 2), Admittance::In, "old ones that are good stay");
    assert_eq!(weigh(3, 1), Admittance::In);
}
