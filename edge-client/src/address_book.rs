//! The addresses of one server, and the order in which a device tries them.
//!
//! A pass begins with the address where the server admitted the device last, so that a device stays where it was. Then come the
//! addresses that the server has told, which are newer than what the owner gave, perhaps on a ticket of last year, and then the
//! owner's, so that a wrong list cuts no device off. Each of the two groups has an order that follows from the device's id: a fleet
//! with one ticket spreads over all addresses, and so do the devices of an address that is silent.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shared::id::ClientId;
use shared::seed::Seed;

/// Addresses that are named in a sentence; of more, the number is.
const NAMED: usize = 3;

/// The addresses that an attempt to connect goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// All of them: a new pass.
    All,
    /// Those that this pass has not tried yet.
    Rest,
}

/// The addresses of a server, `HOST:PORT` or `IP:PORT`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressBook {
    /// From the owner of the device.
    given: Vec<String>,
    /// From the server.
    told: Vec<String>,
    /// Where the server admitted the device last.
    last: Option<String>,
    /// Where it answered last.
    answered: Option<String>,
    /// What this pass has tried.
    tried: Vec<String>,
}

impl AddressBook {
    /// The addresses that the owner gave.
    #[must_use]
    pub fn new(given: Vec<String>) -> Self {
        Self { given, ..Self::default() }
    }

    /// With what an earlier process has kept: what the server has told, and where it admitted the device last.
    #[must_use]
    pub fn with_kept(self, told: Vec<String>, last: Option<String>) -> Self {
        Self { told, last, ..self }
    }

    /// All addresses, in the order in which this device tries them. A last one that nothing names any more is not among them.
    #[must_use]
    pub fn order(&self, client: ClientId) -> Vec<String> {
        let seed = Seed::root(0).derive_bytes("address", client.as_bytes());
        let groups = self.told.iter().map(|told| (0, told)).chain(self.given.iter().map(|given| (1, given)));
        // By insertion: there are at most a hundred or so, and a sort is much code for a small device.
        let mut order: Vec<((bool, u8, Seed), &String)> = Vec::new();
        for (group, address) in groups {
            if order.iter().any(|(_, earlier)| *earlier == address) {
                continue;
            }
            let drawn = seed.derive_bytes("place", address.as_bytes());
            let place = (self.last.as_ref() != Some(address), group, drawn);
            let key = |(other, group, drawn): &(bool, u8, Seed)| (*other, *group, *drawn.as_bytes());
            let at = order.iter().take_while(|(before, _)| key(before) < key(&place)).count();
            order.insert(at, (place, address));
        }
        order.into_iter().map(|(_, address)| address.clone()).collect()
    }

    /// The addresses of an attempt, in their order.
    pub fn begin(&mut self, pass: Pass, client: ClientId) -> Vec<String> {
        if pass == Pass::All {
            self.tried.clear();
        }
        let mut order = self.order(client);
        order.retain(|address| !self.tried.contains(address));
        order
    }

    /// The server has answered at the last of these addresses, and not at those before it.
    pub fn answered(&mut self, tried: &[String]) {
        self.tried.extend(tried.iter().cloned());
        self.answered = tried.last().cloned();
    }

    /// Whether this pass has addresses left.
    #[must_use]
    pub fn has_rest(&self) -> bool {
        self.told.iter().chain(&self.given).any(|address| !self.tried.contains(address))
    }

    /// The server admits the device where it has answered.
    pub fn admitted(&mut self) {
        self.last.clone_from(&self.answered);
    }

    /// The server says where it is reached; the newest list counts.
    pub fn told(&mut self, addresses: Vec<String>) {
        self.told = addresses;
    }

    /// Where the server admitted the device last, if there is a choice.
    #[must_use]
    pub fn last(&self) -> Option<&String> {
        let last = self.last.as_ref()?;
        self.told.iter().chain(&self.given).any(|address| address != last).then_some(last)
    }
}

/// For people: a few of them, the owner's first.
impl fmt::Display for AddressBook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all: Vec<&str> = Vec::new();
        for address in self.given.iter().chain(&self.told) {
            if !all.contains(&address.as_str()) {
                all.push(address);
            }
        }
        let (named, others) = all.split_at(all.len().min(NAMED));
        f.write_str(&named.join(" or "))?;
        if others.is_empty() { Ok(()) } else { write!(f, " or {} more", others.len()) }
    }
}

/// An address book that the connector and the store of the server share.
#[derive(Clone, Debug, Default)]
pub struct SharedAddressBook(Arc<Mutex<AddressBook>>);

impl SharedAddressBook {
    /// The address book.
    pub fn lock(&self) -> MutexGuard<'_, AddressBook> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<AddressBook> for SharedAddressBook {
    fn from(book: AddressBook) -> Self {
        Self(Arc::new(Mutex::new(book)))
    }
}

impl From<Vec<String>> for SharedAddressBook {
    fn from(given: Vec<String>) -> Self {
        AddressBook::new(given).into()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn client(number: u8) -> ClientId {
        ClientId::from_bytes([number; 16])
    }

    fn named(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn a_fleet_with_one_ticket_spreads_and_each_device_keeps_its_order() {
        let book = AddressBook::new(named(&["a:1", "b:1", "c:1", "d:1"]));
        let (mut first, mut second) = (BTreeMap::new(), BTreeMap::new());
        for number in 0..200 {
            let order = book.order(client(number));
            assert_eq!(order, book.order(client(number)));
            *first.entry(order[0].clone()).or_insert(0) += 1;
            if order[0] == "a:1" {
                *second.entry(order[1].clone()).or_insert(0) += 1;
            }
            // Another address moves none of the others.
            let mut more =
                AddressBook::new(named(&["e:1", "d:1", "c:1", "b:1", "a:1"])).order(client(number));
            more.retain(|address| address != "e:1");
            assert_eq!(more, order);
        }
        assert!(first.len() == 4 && first.values().all(|devices| (30..70).contains(devices)), "{first:?}");
        assert!(second.len() == 3, "devices of a silent address spread too: {second:?}");
    }

    #[test]
    fn a_pass_begins_with_the_last_address_and_ends_with_the_owners() {
        let given = named(&["old:1", "a:1"]);
        let book = |last: Option<&str>| {
            AddressBook::new(given.clone()).with_kept(named(&["a:1", "b:1"]), last.map(str::to_owned))
        };
        let order = book(None).order(client(1));
        assert_eq!(order[2], "old:1", "each once, the server's first: {order:?}");
        for last in ["old:1", "a:1", "b:1"] {
            let mut others = order.clone();
            others.retain(|address| address != last);
            assert_eq!(book(Some(last)).order(client(1)), [named(&[last]), others].concat());
        }
        assert_eq!(book(Some("withdrawn:1")).order(client(1)), order, "no list names it any more");
    }

    #[test]
    fn an_address_that_answers_and_does_not_admit_is_not_tried_again_in_the_same_pass() {
        let mut book = AddressBook::new(named(&["a:1", "b:1", "c:1"]));
        let all = book.begin(Pass::All, client(1));
        assert_eq!(all.len(), 3);
        book.answered(&all[..2]);
        assert!(book.has_rest());
        let rest = book.begin(Pass::Rest, client(1));
        assert_eq!(rest, all[2..]);
        book.answered(&rest);
        assert!(!book.has_rest());
        assert_eq!(book.begin(Pass::All, client(1)), all, "none has admitted it");
        book.answered(&all[..2]);
        book.admitted();
        assert_eq!(book.begin(Pass::All, client(1))[0], all[1]);
        assert_eq!(book.last(), Some(&all[1]));
    }

    #[test]
    fn the_newest_list_counts_and_an_empty_one_leaves_the_owners() {
        let mut book = AddressBook::new(named(&["a:1"]));
        book.answered(&named(&["a:1"]));
        book.admitted();
        assert_eq!(book.last(), None, "there is no choice");
        book.told(named(&["b:1"]));
        book.told(named(&["c:1"]));
        assert_eq!(book.order(client(1)), ["a:1", "c:1"]);
        assert_eq!(book.last().map(String::as_str), Some("a:1"));
        assert!(book.has_rest());
        book.told(Vec::new());
        assert_eq!(book.order(client(1)), ["a:1"]);
    }

    #[test]
    fn people_read_a_few_addresses() {
        let book = AddressBook::new(named(&["a:1", "b:1"]));
        assert_eq!(book.to_string(), "a:1 or b:1");
        let book = book.with_kept(named(&["b:1", "c:1", "d:1", "e:1"]), None);
        assert_eq!(book.to_string(), "a:1 or b:1 or c:1 or 2 more");
    }
}
