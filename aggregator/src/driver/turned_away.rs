//! What the operator is told of devices that may not take part: each once, however often it comes.

use std::collections::BTreeSet;

use shared::id::ClientId;
use shared::message::Refusal;

/// So many are told apart; anybody can make up more.
const MOST: usize = 1000;

/// Who was told of already.
#[derive(Debug, Default)]
pub(super) struct TurnedAway(BTreeSet<(ClientId, String)>);

impl TurnedAway {
    /// What is to be said of this one, if anything.
    pub(super) fn remark(&mut self, client: ClientId, refusal: &Refusal) -> Option<String> {
        let said = refusal.to_string();
        if self.0.len() > MOST || !self.0.insert((client, said.clone())) {
            return None;
        }
        Some(match self.0.len() {
            ..=MOST => format!("client {} may not take part: {said}", client.short()),
            _ => {
                "more devices than can be listed were turned away; of further ones nothing is said".to_owned()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_comes_again_and_again_is_told_of_once() {
        let mut turned_away = TurnedAway::default();
        let client = |n: u32| ClientId::from_bytes(std::array::from_fn(|byte| (n >> (8 * (byte % 4))) as u8));
        assert!(turned_away.remark(client(1), &Refusal::Unknown).is_some());
        assert!(turned_away.remark(client(1), &Refusal::Unknown).is_none());
        assert!(turned_away.remark(client(1), &Refusal::TicketExpired).is_some(), "for another reason");
        let said = (2..5000).filter_map(|n| turned_away.remark(client(n), &Refusal::Unknown)).count();
        assert_eq!(said, MOST - 1, "and once that there are more");
    }
}
