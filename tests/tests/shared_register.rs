//! The register of a lab with several servers: what is changed at one is so at all, through a store.
#![cfg(unix)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Barrier;
use std::time::{Duration, SystemTime};

use aggregator::cluster::address::StoreAddress;
use aggregator::cluster::connection::Connection;
use aggregator::cluster::register::Synchroniser;
use aggregator::cluster::schema::{self, Version};
use aggregator::database::Database;
use aggregator::enrolment::{Admission, Changes, Denied, Device, IssuedTicket, Policy, Register, Standing};
use federation_tests::postgres::Postgres;
use federation_tests::process::until;
use shared::id::ClientId;
use shared::identity::{PublicKey, SecretKey};
use shared::message::{Hello, Refusal};
use shared::ticket::TicketSecret;

const HOUR: Duration = Duration::from_hours(1);

fn key(number: u16) -> PublicKey {
    let mut bytes = [7; 32];
    bytes[..2].copy_from_slice(&number.to_le_bytes());
    SecretKey::from_bytes(bytes).public()
}

fn client(number: u16) -> ClientId {
    key(number).client()
}

fn secret(number: u8) -> TicketSecret {
    TicketSecret::from_bytes([number; 16])
}

/// The key of the lab of most servers here.
const LAB: u16 = 1000;

/// A server of a lab: its register, and what its operator's commands open of it.
struct Server {
    folder: tempfile::TempDir,
    operator: Database,
    admission: Admission,
    synchroniser: Option<Synchroniser>,
}

impl Server {
    fn of_lab(lab: u16, policy: Policy, store: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self::begin(folder, lab, policy, store)
    }

    fn begin(folder: tempfile::TempDir, lab: u16, policy: Policy, store: &str) -> Self {
        let database = Database::open(folder.path()).expect("made");
        let operator = Database::open(folder.path()).expect("opened");
        let address = StoreAddress::from_environment(store).expect("an address");
        let synchroniser = Synchroniser::start(&database, address, key(lab)).expect("started");
        let register = Register::Lab { database, policy };
        let admission = Admission::new(register).sharing(synchroniser.tickets());
        Self { folder, operator, admission, synchroniser: Some(synchroniser) }
    }

    /// Ends it. Its operator's commands go on.
    fn end(&mut self) {
        self.synchroniser = None;
    }

    fn again(self, store: &str) -> Self {
        Self::begin(self.folder, LAB, Policy::Ticket, store)
    }

    fn is_away(&self) -> bool {
        self.synchroniser.as_ref().is_some_and(Synchroniser::is_away)
    }

    /// The device of this number connects.
    fn comes(&self, number: u16, ticket: Option<TicketSecret>) -> Result<(), Denied> {
        let hello = Hello {
            client: client(number),
            software: "test 1".to_owned(),
            samples: 10,
            shape: vec![1, 2, 2],
            classes: 2,
            holds: None,
        };
        let address = SocketAddr::from(([192, 0, 2, 7], 1));
        self.admission.admit(key(number), &hello, ticket, address, SystemTime::now())
    }

    #[track_caller]
    fn refuses(&self, number: u16, ticket: Option<TicketSecret>) -> Refusal {
        match self.comes(number, ticket) {
            Err(Denied::Refused(refusal)) => refusal,
            other => panic!("{number}: {other:?}"),
        }
    }

    fn stand(&self, number: u16, standing: Standing) {
        assert!(Device::stand(&self.operator, client(number), standing).expect("written"));
    }

    fn rename(&self, number: u16, name: Option<&str>) {
        assert!(Device::rename(&self.operator, client(number), name).expect("written"));
    }

    fn remove(&self, number: u16) {
        assert!(Device::remove(&self.operator, client(number)).expect("written"));
    }

    fn issue(&self, number: u8, uses: u32) -> IssuedTicket {
        IssuedTicket::make(&self.operator, secret(number), uses, HOUR, SystemTime::now()).expect("made")
    }

    /// What it knows: names and standings.
    fn known(&self) -> BTreeMap<ClientId, (Standing, Option<String>)> {
        let all = Device::all(&self.operator).expect("read").into_iter();
        all.map(|device| (device.client, (device.standing, device.name))).collect()
    }

    fn stands(&self, number: u16) -> Option<Standing> {
        self.known().get(&client(number)).map(|(standing, _)| *standing)
    }

    fn name(&self, number: u16) -> Option<String> {
        self.known().remove(&client(number)).and_then(|(_, name)| name)
    }

    /// How many more devices its tickets let in.
    fn left(&self) -> Vec<i64> {
        let good = IssuedTicket::good(&self.operator, SystemTime::now()).expect("read");
        let mut left: Vec<i64> = good.iter().map(|ticket| ticket.left).collect();
        left.sort_unstable();
        left
    }
}

/// Until all servers say this of a device.
fn all_say(servers: &[&Server], number: u16, standing: Option<Standing>) {
    let so = || servers.iter().all(|server| server.stands(number) == standing);
    until(&format!("all say {standing:?} of {number}"), so);
}

#[test]
fn what_is_changed_at_one_server_is_so_at_all_of_its_lab() {
    let Some(postgres) = Postgres::start() else { return };
    let server = |lab, policy| Server::of_lab(lab, policy, &postgres.address());
    let [a, b] = [Policy::Anyone, Policy::Approve].map(|policy| server(LAB, policy));
    let other = server(LAB + 1, Policy::Approve);
    let mut changes = Changes::default();

    a.comes(1, None).expect("it is let in");
    all_say(&[&a, &b], 1, Some(Standing::In));
    b.comes(1, None).expect("it is known");
    b.rename(1, Some("window sill"));
    until("the name is known", || a.name(1).as_deref() == Some("window sill"));
    b.admission.watch(&mut changes);
    a.stand(1, Standing::Revoked);
    until("it is cut off at the other server", || b.stands(1) == Some(Standing::Revoked));
    assert_eq!(b.admission.watch(&mut changes), [client(1)].into());
    assert_eq!(b.refuses(1, None), Refusal::Revoked);
    assert_eq!(b.name(1).as_deref(), Some("window sill"));

    assert_eq!(b.refuses(2, None), Refusal::Pending { client: client(2) });
    all_say(&[&a, &b], 2, Some(Standing::Waiting));
    a.stand(2, Standing::In);
    all_say(&[&a, &b], 2, Some(Standing::In));
    // Names that are exchanged in one moment, and one that is free again.
    b.rename(1, None);
    b.rename(2, Some("window sill"));
    until("the name is another's", || a.name(1).is_none() && a.name(2).as_deref() == Some("window sill"));
    a.remove(2);
    a.remove(1);
    for number in [1, 2] {
        all_say(&[&a, &b], number, None);
    }
    assert_eq!(b.refuses(2, None), Refusal::Pending { client: client(2) }, "it is unknown");
    all_say(&[&a, &b], 2, Some(Standing::Waiting));
    b.rename(2, Some("door"));
    until("it has that name", || a.name(2).as_deref() == Some("door"));
    // Of another lab of the same store, nothing is heard.
    other.comes(3, None).expect_err("it waits");
    a.comes(4, None).expect("it is let in");
    all_say(&[&a, &b], 4, Some(Standing::In));
    assert_eq!((other.known().len(), other.stands(3)), (1, Some(Standing::Waiting)));
    // Nor by one that reads all there is.
    let late = server(LAB + 1, Policy::Approve);
    assert_eq!(late.known(), other.known());
    assert_eq!(server(LAB, Policy::Approve).known(), a.known());
    assert_eq!(a.stands(3), None);
}

#[test]
fn a_ticket_lets_in_as_many_as_it_says_at_all_servers_together() {
    let Some(postgres) = Postgres::start() else { return };
    let [a, b] = [(); 2].map(|()| Server::of_lab(LAB, Policy::Ticket, &postgres.address()));
    // It is good at once where it was made, and soon elsewhere.
    a.issue(1, 3);
    a.comes(1, Some(secret(1))).expect("it has a ticket");
    until("the ticket is known", || b.left() == [2]);
    b.comes(2, Some(secret(1))).expect("it has a ticket");
    b.comes(2, Some(secret(1))).expect("it did not hear of it");
    a.comes(2, Some(secret(1))).expect("it was let in at the other server");
    until("two have used it", || a.left() == [1] && b.left() == [1]);
    all_say(&[&a, &b], 2, Some(Standing::In));
    b.issue(2, 5);
    until("both are known", || a.left() == [1, 5]);
    let number = |server: &Server, uses| {
        let good = IssuedTicket::good(&server.operator, SystemTime::now()).expect("read");
        good.iter().find(|ticket| ticket.uses == uses).expect("it is good").number
    };
    assert!(IssuedTicket::withdraw(&a.operator, number(&a, 5)).expect("written"));
    until("it is withdrawn", || b.left() == [1]);
    assert_eq!(b.refuses(3, Some(secret(2))), Refusal::TicketUnknown);
    assert_eq!(b.refuses(3, Some(secret(9))), Refusal::TicketUnknown);
    a.comes(3, Some(secret(1))).expect("the last use");
    assert_eq!(b.refuses(4, Some(secret(1))), Refusal::TicketUsedUp);
    // A device that is removed needs a ticket again, and one that is revoked has use of none.
    a.issue(3, 2);
    b.remove(1);
    all_say(&[&a, &b], 1, None);
    assert_eq!(a.refuses(1, Some(secret(1))), Refusal::TicketUsedUp);
    b.stand(2, Standing::Revoked);
    all_say(&[&a, &b], 2, Some(Standing::Revoked));
    assert_eq!(a.refuses(2, Some(secret(3))), Refusal::Revoked);
    a.comes(1, Some(secret(3))).expect("a new ticket");
    until("one use is left", || a.left() == [1] && b.left() == [1]);
    let old = SystemTime::now() - 2 * HOUR;
    IssuedTicket::make(&a.operator, secret(4), 1, HOUR, old).expect("made");
    assert_eq!(a.refuses(5, Some(secret(4))), Refusal::TicketExpired);

    // A hundred devices at once, and one use.
    a.issue(5, 1);
    until("the ticket is known", || b.left() == [1, 1]);
    let (start, servers) = (Barrier::new(100), [&a, &b]);
    let answers: Vec<Result<(), Denied>> = std::thread::scope(|scope| {
        let device = |number: u16| {
            let (start, server) = (&start, servers[usize::from(number % 2)]);
            scope.spawn(move || {
                start.wait();
                server.comes(100 + number, Some(secret(5)))
            })
        };
        let devices: Vec<_> = (0..100).map(device).collect();
        devices.into_iter().map(|device| device.join().expect("no panic")).collect()
    });
    let refused =
        |answer: &&Result<(), Denied>| matches!(answer, Err(Denied::Refused(Refusal::TicketUsedUp)));
    let admitted = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!((admitted, answers.iter().filter(refused).count()), (1, 99), "{answers:?}");
    until("both know the one", || {
        let known = |server: &Server| (100..200).filter(|number| server.stands(*number).is_some()).count();
        known(&a) == 1 && known(&b) == 1
    });
}

#[test]
fn what_is_changed_while_the_store_is_away_is_carried_when_it_is_back() {
    let Some(mut postgres) = Postgres::start() else { return };
    let address = postgres.address();
    let [a, b] = [(); 2].map(|()| Server::of_lab(LAB, Policy::Ticket, &address));
    a.issue(1, 20);
    for number in 1..=7 {
        a.comes(number, Some(secret(1))).expect("it has a ticket");
    }
    until("all are known", || b.known().len() == 7 && a.known() == b.known());
    let made = a.issue(2, 1);
    until("the ticket is known", || b.left() == [1, 13]);

    postgres.kill();
    a.stand(1, Standing::Revoked);
    // At the same moment, as far as they know: a revocation holds.
    b.stand(1, Standing::Waiting);
    b.stand(2, Standing::Revoked);
    a.remove(2);
    a.rename(3, Some("door"));
    b.rename(4, Some("door"));
    b.remove(5);
    assert!(IssuedTicket::withdraw(&a.operator, made.number).expect("written"));
    until("it is noticed", || a.is_away() && b.is_away());
    // Those who are known come and go.
    b.comes(3, None).expect("it is known");
    for ticket in [1, 2] {
        assert!(matches!(b.comes(8, Some(secret(ticket))), Err(Denied::Later)));
    }
    // One server ends and changes something then.
    let mut b = b;
    b.end();
    b.rename(6, Some("cellar"));
    b.remove(7);
    let b = b.again(&address);
    assert!(b.is_away(), "it has begun all the same");
    postgres.restart();

    until("all is the same", || !a.is_away() && !b.is_away() && a.known() == b.known());
    let stands = [1, 2, 3, 4, 5, 6, 7].map(|number| a.stands(number));
    let (admitted, revoked) = (Some(Standing::In), Some(Standing::Revoked));
    assert_eq!(stands, [revoked, revoked, admitted, admitted, None, admitted, None]);
    let doors = [3, 4].map(|number| a.name(number).is_some_and(|name| name == "door"));
    assert_eq!(doors.iter().filter(|has| **has).count(), 1, "one has the name");
    assert_eq!(a.name(6).as_deref(), Some("cellar"));
    until("the ticket is withdrawn", || a.left() == [13] && b.left() == [13]);
    b.comes(8, Some(secret(1))).expect("it has come again");
    assert_eq!(b.refuses(9, Some(secret(2))), Refusal::TicketUnknown);
    all_say(&[&a, &b], 8, Some(Standing::In));
}

#[test]
fn a_server_that_was_away_for_long_hears_of_what_was_forgotten() {
    let Some(postgres) = Postgres::start() else { return };
    let address = postgres.address();
    let [a, mut b] = [(); 2].map(|()| Server::of_lab(LAB, Policy::Ticket, &address));
    let all = 1100_u16;
    let enter = |transaction: &rusqlite::Transaction<'_>| {
        (1..=all).try_for_each(|number| {
            let (client, key) = (*client(number).as_bytes(), *key(number).as_bytes());
            let sql = "INSERT INTO devices (client, key, standing, since, seen) VALUES (?1, ?2, 'in', 1, 1)";
            transaction.execute(sql, rusqlite::params![client, key]).map(drop)
        })
    };
    a.operator.write("enter devices in", enter).expect("written");
    until("all are known", || b.known().len() == usize::from(all));
    b.end();
    let remove = |transaction: &rusqlite::Transaction<'_>| {
        transaction.execute("DELETE FROM devices WHERE client <> ?1", [client(1).as_bytes()])
    };
    a.operator.write("remove devices from", remove).expect("written");
    let mut client_of_store = postgres.client();
    let shared = std::cell::RefCell::new(&mut client_of_store);
    until("what was removed is forgotten", || {
        let rows = shared.borrow_mut().query_one("SELECT count(*) FROM register_devices", &[]);
        rows.expect("tables").get::<_, i64>(0) == 1
    });
    // A change of its own meanwhile is one to a device that is known.
    b.rename(1, Some("stays"));
    let b = b.again(&address);
    assert_eq!(b.known().len(), 1, "it is so before it lets a device in");
    until("both know the one", || a.name(1).as_deref() == Some("stays"));

    // A store that has lost all is filled again.
    shared.borrow_mut().execute("DELETE FROM register_labs", &[]).expect("tables");
    a.stand(1, Standing::Revoked);
    all_say(&[&a, &b], 1, Some(Standing::Revoked));
    assert_eq!(b.name(1).as_deref(), Some("stays"));
}

#[test]
fn a_store_that_was_put_back_hides_nothing_from_a_server_that_comes_late() {
    let Some(postgres) = Postgres::start() else { return };
    let address = postgres.address();
    let [mut a, mut b] = [(); 2].map(|()| Server::of_lab(LAB, Policy::Ticket, &address));
    a.issue(1, 20);
    for number in 1..=3 {
        a.comes(number, Some(secret(1))).expect("it has a ticket");
    }
    let mut client_of_store = postgres.client();
    let store = std::cell::RefCell::new(&mut client_of_store);
    let run = |statements: &str| store.borrow_mut().batch_execute(statements).expect("tables");
    let revision = || -> i64 {
        let row = store.borrow_mut().query_one("SELECT revision FROM register_labs", &[]);
        row.expect("a lab").get(0)
    };
    let renames = |server: &Server, name: &str| {
        let before = revision();
        server.rename(2, Some(name));
        until("the name is in the store", || revision() > before);
    };
    until("all are known", || b.known().len() == 3 && a.known() == b.known());
    run("CREATE TABLE kept AS SELECT revision FROM register_labs");
    (0..5).for_each(|number| renames(&a, &format!("before-{number}")));
    until("all are known", || a.known() == b.known());
    let got = revision();
    a.end();
    b.end();
    // As it was before these names.
    run("UPDATE register_labs SET revision = kept.revision FROM kept;
         UPDATE register_devices SET name = NULL, revision = kept.revision FROM kept WHERE register_devices.revision > kept.revision");
    let a = a.again(&address);
    a.stand(1, Standing::Revoked);
    until("the revocation is in the store", || {
        let revoked = "SELECT count(*) = 1 FROM register_devices WHERE standing = 'revoked'";
        store.borrow_mut().query_one(revoked, &[]).expect("tables").get(0)
    });
    assert!(revision() < got, "the other server has read as far already");
    let mut number = 0;
    while revision() <= got {
        renames(&a, &format!("after-{number}"));
        number += 1;
    }
    let b = b.again(&address);
    assert_eq!(b.stands(1), Some(Standing::Revoked), "it is so before it lets a device in");
    until("all is the same", || a.known() == b.known());
}

#[test]
fn programs_of_the_version_before_share_a_store() {
    let Some(postgres) = Postgres::start() else { return };
    let mut client = postgres.client();
    // As the first version has made it.
    client
        .batch_execute(
            "CREATE TABLE federation_schema (one boolean PRIMARY KEY DEFAULT true CHECK (one), version bigint NOT NULL);
             INSERT INTO federation_schema (version) VALUES (1)",
        )
        .expect("made");
    client.batch_execute(include_str!("../../aggregator/src/cluster/schema/1.sql")).expect("made");
    client
        .batch_execute("INSERT INTO experiments (id, name, form) VALUES ('\\x01', 'x', 'full')")
        .expect("tables");
    assert_eq!(schema::version(&mut client).expect("asked"), Version { tables: 1, needs: 1 });
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| Server::of_lab(LAB, Policy::Ticket, &postgres.address()));
        }
    });
    let found = schema::version(&mut client).expect("asked");
    assert_eq!(found, Version { tables: schema::KNOWN, needs: 1 });
    let kept: i64 = client.query_one("SELECT count(*) FROM experiments", &[]).expect("tables").get(0);
    assert_eq!(kept, 1);
    // What an earlier program looks at says the version that it knows.
    let read: i64 = client.query_one("SELECT version FROM federation_schema", &[]).expect("tables").get(0);
    assert_eq!(read, 1);
    // A later program leaves to this one what it uses, or not.
    let prepared = |client: &mut postgres::Client, tables: i64, needs: i64| {
        client.execute("UPDATE federation_tables SET version = $1", &[&tables]).expect("tables");
        client.execute("UPDATE federation_schema SET version = $1", &[&needs]).expect("tables");
        let address = StoreAddress::from_environment(&postgres.address()).expect("an address");
        Connection::new(address).prepare().map_err(|error| error.to_string())
    };
    let next = schema::KNOWN + 1;
    assert_eq!(prepared(&mut client, next, schema::KNOWN), Ok(()));
    let refused = prepared(&mut client, next, next).expect_err("it is too new");
    assert!(refused.contains(&format!("its format is {next}")), "{refused}");
}
