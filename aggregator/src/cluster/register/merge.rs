//! The merge rule: what holds of a row that was changed at several servers.
//!
//! Each server remembers what it and the store agreed on last. A change is what differs from that. Changes reach the store one after the
//! other, and a server reads and merges all that is there before it writes, so that all see the same order.
//!
//! | of a device's standing | holds |
//! |---|---|
//! | one side has changed it | the change |
//! | both have, one to revoked | revoked |
//! | both have, one to admitted and one to waiting | admitted: a device that asks decides nothing |
//! | both have, one from waiting to admitted and one to removed | admitted: a server removes those that wait where too many do |
//! | both have, otherwise | what is written later |
//! | the server and the store never agreed | revoked, then removed from the store, then admitted, then waiting |
//!
//! Of two names that were given at once, the later one holds. Uses of a ticket are added up; one that was withdrawn stays withdrawn.

use super::rows::{Left, Said, Stands};

/// What holds of a device of which this server says `here` and the store says `there`. `stood` is whether it got its standing there
/// since they agreed, also if it is the same one again.
pub(super) fn device(agreed: Option<&Said>, here: &Said, there: &Said, stood: bool) -> Said {
    let standing = match agreed {
        None => met(here.standing, there.standing),
        Some(agreed) => match (here.standing != agreed.standing, stood) {
            (false, _) => there.standing,
            (true, false) => here.standing,
            (true, true) => at_once(agreed.standing, here.standing, there.standing),
        },
    };
    let (ours, theirs) = (&here.name, &there.name);
    let name = match agreed {
        _ if standing == Stands::REMOVED => &None,
        _ if here.standing == Stands::REMOVED => theirs,
        _ if there.standing == Stands::REMOVED => ours,
        Some(agreed) if *ours != agreed.name => ours,
        None if theirs.is_none() => ours,
        _ => theirs,
    };
    Said { standing, name: name.clone() }
}

/// Of a server and a store that never agreed.
fn met(here: Stands, there: Stands) -> Stands {
    match (here, there) {
        (Stands::REVOKED, _) | (_, Stands::REVOKED) => Stands::REVOKED,
        (Stands::REMOVED, _) | (_, Stands::REMOVED) => there,
        (Stands::IN, _) | (_, Stands::IN) => Stands::IN,
        _ => Stands::WAITING,
    }
}

/// Of two changes of what was `agreed` that did not know of each other. `here` is written later.
fn at_once(agreed: Stands, here: Stands, there: Stands) -> Stands {
    match (here, there) {
        (Stands::REVOKED, _) | (_, Stands::REVOKED) => Stands::REVOKED,
        (Stands::IN, Stands::WAITING) | (Stands::WAITING, Stands::IN) => Stands::IN,
        (Stands::REMOVED, Stands::IN) if agreed == Stands::WAITING => Stands::IN,
        _ => here,
    }
}

/// What holds of a ticket of which this server says `here` and the store says `there`.
pub(super) fn ticket(agreed: Option<&Left>, here: &Left, there: &Left) -> Left {
    let remaining = match agreed {
        Some(agreed) => there.remaining - (agreed.remaining - here.remaining).max(0),
        None => here.remaining.min(there.remaining),
    };
    Left { remaining: remaining.max(0), withdrawn: here.withdrawn || there.withdrawn }
}

#[cfg(test)]
mod tests;
