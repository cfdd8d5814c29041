//! What devices say that they leave out, which is told when it is news.

use std::collections::BTreeMap;

use shared::id::ClientId;

use crate::coordinator::ROSTER;

/// What each device has said last. Of more devices than are ever known at a time all are forgotten, and some are told again.
#[derive(Debug, Default)]
pub(super) struct LeftOut(BTreeMap<ClientId, u64>);

impl LeftOut {
    /// A device says that it leaves out so many samples; whether that is news.
    pub(super) fn says(&mut self, client: ClientId, samples: u64) -> bool {
        if self.0.len() >= ROSTER && !self.0.contains_key(&client) {
            self.0.clear();
        }
        self.0.insert(client, samples) != Some(samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_told_once_and_strangers_fill_no_memory() {
        let client = |n: usize| ClientId::from_bytes((n as u128).to_be_bytes());
        let mut left_out = LeftOut::default();
        let said = [0, 0, 12, 12, 0].map(|samples| left_out.says(client(0), samples));
        assert_eq!(said, [true, false, true, false, true], "also that there are none, and none any more");
        assert!((1..=3 * ROSTER).all(|n| left_out.says(client(n), 1)));
        assert!(left_out.0.len() <= ROSTER);
    }
}
