//! What devices that were let in say: what of it the operator is told, and what is written down.
//!
//! A device may say anything of any round, and come and go, as often as it likes. Of rounds that matter each kind of thing is
//! told once a device and written down; of all others one of a kind is told, until the next round closes. Whatever more there
//! is is counted, and told as a number when the round closes. So neither the log nor the database grows with what is made up.

use std::collections::{BTreeMap, BTreeSet};

use shared::id::ClientId;

/// So often a device's coming and going is told of until a round closes: a link that is bad, not one that is abused.
const COMINGS: u32 = 50;

/// What one more thing is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worth {
    /// It is told, and written down with its round.
    Written,
    /// It is told: its round does not matter.
    Told,
    /// It is counted.
    Counted,
}

/// What was said since a round closed.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// By device: rounds that matter, or 0 for all others, and what was said of them.
    told: BTreeMap<ClientId, BTreeSet<(u32, &'static str)>>,
    comings: BTreeMap<ClientId, u32>,
    /// What was said and not told.
    counted: u64,
    /// By whom.
    counted_of: BTreeSet<ClientId>,
}

impl Said {
    /// A device says something of this `kind` of a round, which `matters` or does not.
    pub(super) fn says(&mut self, client: ClientId, kind: &'static str, round: u32, matters: bool) -> Worth {
        let place = if matters { round } else { 0 };
        if !self.told.entry(client).or_default().insert((place, kind)) {
            self.count(client);
            return Worth::Counted;
        }
        if matters { Worth::Written } else { Worth::Told }
    }

    /// A device has come. False if its coming and going is not told any more.
    pub(super) fn comes(&mut self, client: ClientId) -> bool {
        let comings = self.comings.entry(client).or_default();
        *comings += 1;
        let told = *comings <= COMINGS;
        if !told {
            self.count(client);
        }
        told
    }

    fn count(&mut self, client: ClientId) {
        self.counted += 1;
        self.counted_of.insert(client);
    }

    /// A round has closed: what there was more than was told. What was said of that round or a later one is not told again.
    pub(super) fn close(&mut self, round: u32) -> Option<String> {
        self.told.retain(|_, said| {
            said.retain(|(said, _)| *said >= round);
            !said.is_empty()
        });
        self.comings.clear();
        let (counted, devices) = (std::mem::take(&mut self.counted), std::mem::take(&mut self.counted_of));
        let first = devices.first()?.short();
        let by = match devices.len() {
            1 => format!("client {first}"),
            more => format!("{more} clients, client {first} among them,"),
        };
        Some(format!(
            "{by} said {counted} more things up to the end of round {round} that were not told one by one: the same again, or of \
             rounds that do not matter"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(n: u8) -> ClientId {
        ClientId::from_bytes([n; 16])
    }

    #[test]
    fn each_thing_is_told_once_and_what_is_made_up_as_a_number() {
        let mut said = Said::default();
        assert_eq!(said.says(client(1), "failed", 3, true), Worth::Written);
        assert_eq!(said.says(client(1), "failed", 3, true), Worth::Counted);
        assert_eq!(said.says(client(1), "not-now", 3, true), Worth::Written);
        assert_eq!(said.says(client(2), "failed", 3, true), Worth::Written);
        assert_eq!(said.says(client(2), "failed", 9, false), Worth::Told);
        let more = (10..1000).map(|round| said.says(client(2), "failed", round, false));
        assert_eq!(more.filter(|worth| *worth != Worth::Counted).count(), 0);
        let told = said.close(3).expect("there was more");
        assert!(told.starts_with("2 clients") && told.contains(" 991 more things"), "{told}");
        assert_eq!(said.close(3), None, "told once");
        assert_eq!(said.says(client(1), "failed", 3, true), Worth::Counted, "of a round that is over, too");
        assert_eq!(said.says(client(2), "failed", 9, false), Worth::Told, "once a round");
        said.close(4);
        assert!(said.told.is_empty(), "{said:?}");
    }

    #[test]
    fn a_link_that_breaks_again_and_again_is_told_of_so_often() {
        let mut said = Said::default();
        assert_eq!((0..1000).filter(|_| said.comes(client(1))).count(), COMINGS as usize);
        assert!(said.comes(client(2)));
        let told = said.close(1).expect("there was more");
        assert!(told.starts_with("client 0101") && told.contains(" 950 more things"), "{told}");
        assert!(said.comes(client(1)));
    }
}
