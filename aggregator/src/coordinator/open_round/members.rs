//! The members of a cohort with their states, and how many there are in each state: a round looks at these after every event.

use std::collections::{BTreeMap, BTreeSet};

use shared::id::ClientId;

use super::MemberState;

/// Members, each in one state.
#[derive(Debug, Default)]
pub(super) struct Members {
    states: BTreeMap<ClientId, MemberState>,
    asked: BTreeSet<ClientId>,
    counts: [usize; Kind::COUNT],
}

/// The kinds of states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Drawn,
    Asked,
    Folding,
    Accepted,
    Rejected,
    Failed,
    NotNow,
    Missed,
    Gone,
}

impl Kind {
    const COUNT: usize = Self::Gone as usize + 1;
}

impl MemberState {
    fn kind(&self) -> Kind {
        match self {
            Self::Drawn => Kind::Drawn,
            Self::Asked => Kind::Asked,
            Self::Folding => Kind::Folding,
            Self::Accepted => Kind::Accepted,
            Self::Rejected(_) => Kind::Rejected,
            Self::Failed(_) => Kind::Failed,
            Self::NotNow(..) => Kind::NotNow,
            Self::Missed => Kind::Missed,
            Self::Gone => Kind::Gone,
        }
    }
}

impl Members {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    /// How many are in a state of this kind.
    pub(super) fn count(&self, kind: Kind) -> usize {
        self.counts[kind as usize]
    }

    /// Those whose state is [`MemberState::Asked`].
    pub(super) fn asked(&self) -> &BTreeSet<ClientId> {
        &self.asked
    }

    pub(super) fn get(&self, client: ClientId) -> Option<&MemberState> {
        self.states.get(&client)
    }

    /// In the order of the clients.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ClientId, &MemberState)> {
        self.states.iter().map(|(client, state)| (*client, state))
    }

    /// Makes this a client's state. It is a member from now on.
    pub(super) fn set(&mut self, client: ClientId, state: MemberState) {
        let kind = state.kind();
        if kind == Kind::Asked {
            self.asked.insert(client);
        }
        self.counts[kind as usize] += 1;
        let Some(former) = self.states.insert(client, state).map(|former| former.kind()) else { return };
        self.counts[former as usize] -= 1;
        if former == Kind::Asked && kind != Kind::Asked {
            self.asked.remove(&client);
        }
    }

    /// A client is a member no more.
    pub(super) fn remove(&mut self, client: ClientId) {
        if let Some(state) = self.states.remove(&client) {
            self.counts[state.kind() as usize] -= 1;
            self.asked.remove(&client);
        }
    }

    /// Makes `to` the state of all whom `which` names. Gives them.
    pub(super) fn set_all(
        &mut self,
        to: &MemberState,
        which: impl Fn(ClientId, &MemberState) -> bool,
    ) -> Vec<ClientId> {
        let named = self.iter().filter(|(client, state)| which(*client, state));
        let named: Vec<_> = named.map(|(client, _)| client).collect();
        for client in &named {
            self.set(*client, to.clone());
        }
        named
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use shared::eligibility::Ineligible;

    use super::*;

    fn any_state() -> impl Strategy<Value = MemberState> {
        prop_oneof![
            Just(MemberState::Drawn),
            Just(MemberState::Asked),
            Just(MemberState::Folding),
            Just(MemberState::Accepted),
            Just(MemberState::Rejected(String::new())),
            Just(MemberState::Failed(String::new())),
            Just(MemberState::NotNow(Ineligible::Battery, Duration::ZERO)),
            Just(MemberState::Missed),
            Just(MemberState::Gone),
        ]
    }

    proptest! {
        #[test]
        fn what_is_counted_is_what_there_is(changes in prop::collection::vec((0_u8..8, prop::option::weighted(0.8, any_state())), 0..60)) {
            let mut members = Members::default();
            for (client, state) in changes {
                let client = ClientId::from_bytes([client; 16]);
                match state {
                    Some(state) => members.set(client, state),
                    None => members.remove(client),
                }
                for (_, state) in members.iter() {
                    let kind = state.kind();
                    let there = members.iter().filter(|(_, state)| state.kind() == kind).count();
                    prop_assert_eq!(members.count(kind), there);
                }
                let asked = members.iter().filter(|(_, state)| **state == MemberState::Asked);
                let asked: BTreeSet<_> = asked.map(|(client, _)| client).collect();
                prop_assert_eq!(members.asked(), &asked);
                prop_assert_eq!(members.counts.iter().sum::<usize>(), members.len());
            }
        }
    }
}
