//! Roles as clients.

use super::{PartitionError, Shares, part};
use crate::seed::{Seed, shuffle};

/// `roles` holds the role of every sample, numbered from 0 without gaps; empty without roles.
pub(super) fn split(roles: &[u32], clients: usize, seed: &Seed) -> Result<Shares, PartitionError> {
    let Some(&last) = roles.iter().max() else { return Err(PartitionError::NoRoles) };
    let count = last as usize + 1;
    if clients > count {
        return Err(PartitionError::TooFewRoles { clients, roles: count });
    }
    let mut order: Vec<usize> = (0..count).collect();
    // Role k is client k if there are as many clients as roles; otherwise roles share clients at random.
    if clients < count {
        shuffle(&mut order, &mut seed.derive("deal").rng());
    }
    let mut client_of = vec![0; count];
    for client in 0..clients {
        for &role in &order[part(count, clients, client)] {
            client_of[role] = client;
        }
    }
    let mut shares = vec![Vec::new(); clients];
    for (sample, &role) in (0..).zip(roles) {
        shares[client_of[role as usize]].push(sample);
    }
    Ok(shares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_is_a_client() {
        assert_eq!(split(&[0, 0, 1, 2, 2], 3, &Seed::root(1)), Ok(vec![vec![0, 1], vec![2], vec![3, 4]]));
    }

    #[test]
    fn several_roles_stay_together() {
        let roles: Vec<u32> = (0..100).map(|sample| sample / 10).collect();
        let of = |number| split(&roles, 4, &Seed::root(number)).unwrap();
        let shares = of(1);
        let held = |share: &Vec<u32>| {
            let mut held: Vec<u32> = share.iter().map(|&sample| roles[sample as usize]).collect();
            held.dedup();
            held
        };
        // Ten roles over four clients, all ten samples of each.
        assert!(
            shares
                .iter()
                .all(|share| [2, 3].contains(&held(share).len()) && share.len() == 10 * held(share).len())
        );
        assert_eq!(shares.iter().map(Vec::len).sum::<usize>(), 100);
        assert_ne!(shares, of(2));
    }

    #[test]
    fn more_clients_than_roles_are_refused() {
        let error = split(&[0, 1], 3, &Seed::root(1));
        assert_eq!(error, Err(PartitionError::TooFewRoles { clients: 3, roles: 2 }));
        assert_eq!(split(&[], 3, &Seed::root(1)), Err(PartitionError::NoRoles));
    }
}
