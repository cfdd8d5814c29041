//! Who shares masks with whom.
//!
//! Bell, Bonawitz, Gascón, Lepoint, Raykova: *Secure Single-Server Aggregation with (Poly)Logarithmic Overhead*, CCS 2020
//! (eprint 2020/704), section 3: instead of with all others a member shares masks with k neighbours in a random regular graph, so that
//! its cost grows with the logarithm of the cohort. Below [`COMPLETE`] members all are neighbours of all, which is Bonawitz et al. 2017.
//!
//! The secrets of a member are held by its neighbours and itself. A [`threshold`] of these holders can put a secret together; it is more
//! than half of them, so that no server gets both secrets of a member from honest holders, who each give one of them away.

use super::shamir::MAX_SHARES;
use crate::seed::{Seed, shuffle};

/// With fewer members than this, all are neighbours of all.
pub const COMPLETE: usize = 64;

/// The share of the members that may be lost after masks are agreed, for which graphs are sized.
const LOST: f64 = 0.3;

/// The probability that a graph of this size loses a round for one that it is sized for.
const FAILURE: f64 = 1e-3;

/// Holders that put a secret together, of this number: at least this share of them, and more than half.
///
/// # Panics
/// Never: the result is at most the number of holders.
#[must_use]
pub fn threshold(share: f64, holders: usize) -> usize {
    let asked = (share * holders as f64 - 1e-9).ceil().max(0.0) as usize;
    asked.max(holders / 2 + 1).min(holders)
}

/// The number of neighbours of each of this number of members: even, unless all are neighbours. `share` is that of [`threshold`].
#[must_use]
pub fn degree(members: usize, share: f64) -> usize {
    let all = members.saturating_sub(1);
    if members < COMPLETE {
        return all;
    }
    let most = (MAX_SHARES - 1).min(all - all % 2);
    let enough = |k: &usize| members as f64 * too_few(members, *k, threshold(share, k + 1)) <= FAILURE;
    (COMPLETE / 2..most).step_by(2).find(enough).unwrap_or(most)
}

/// The probability that of a member and its k neighbours fewer than `threshold` are left, where [`LOST`] of all members are lost at
/// random: the hypergeometric distribution.
fn too_few(members: usize, k: usize, threshold: usize) -> f64 {
    let lost = (LOST * members as f64).ceil() as usize;
    let left = members - lost;
    let holders = k + 1;
    let term =
        |alive: usize| (choose(left, alive) + choose(lost, holders - alive) - choose(members, holders)).exp();
    (holders.saturating_sub(lost)..threshold.min(left + 1)).map(term).sum()
}

/// The logarithm of n over k.
fn choose(n: usize, k: usize) -> f64 {
    (1..=k.min(n - k)).map(|i| ((n - i + 1) as f64 / i as f64).ln()).sum()
}

/// The neighbours of every member, by position, in increasing order.
#[must_use]
pub fn neighbours(members: usize, degree: usize, seed: &Seed) -> Vec<Vec<usize>> {
    if degree + 1 >= members {
        return (0..members).map(|one| (0..members).filter(|other| *other != one).collect()).collect();
    }
    let mut circle: Vec<usize> = (0..members).collect();
    shuffle(&mut circle, &mut seed.rng());
    let mut graph = vec![Vec::with_capacity(degree); members];
    for (place, &member) in circle.iter().enumerate() {
        for step in 1..=degree / 2 {
            let next = circle[(place + step) % members];
            graph[member].push(next);
            graph[next].push(member);
        }
    }
    for neighbours in &mut graph {
        neighbours.sort_unstable();
    }
    graph
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_half_of_the_holders_are_needed() {
        let found = [(0.0, 3), (0.5, 10), (0.55, 10), (0.67, 3), (0.67, 10), (1.0, 7), (0.7, 10)];
        let found = found.map(|(share, holders)| threshold(share, holders));
        assert_eq!(found, [2, 6, 6, 3, 7, 7, 7]);
        assert!((1..200).all(|holders| 2 * threshold(0.0, holders) > holders));
    }

    #[test]
    fn degrees_grow_slowly_and_are_enough() {
        assert_eq!([1, 2, 3, 10, 63].map(|members| degree(members, 0.55)), [0, 1, 2, 9, 62]);
        let found = [64, 100, 300, 1000, 10_000].map(|members| degree(members, 0.55));
        assert!(found.is_sorted() && found.iter().all(|degree| degree % 2 == 0), "{found:?}");
        assert!((40..=80).contains(&found[1]) && (120..=220).contains(&found[3]), "{found:?}");
        for (members, degree) in [100, 300, 1000].into_iter().zip([found[1], found[2], found[3]]) {
            assert!(members as f64 * too_few(members, degree, threshold(0.55, degree + 1)) <= FAILURE);
        }
    }

    #[test]
    fn the_tail_is_that_of_the_hypergeometric_distribution() {
        // 10 members, 3 lost, 4 holders: fewer than 2 are left with C(7,1) C(3,3) of C(10,4) draws.
        assert!((too_few(10, 3, 2) - 7.0 / 210.0).abs() < 1e-12);
        // Fewer than 3: C(7,2) C(3,2) more.
        assert!((too_few(10, 3, 3) - 70.0 / 210.0).abs() < 1e-12);
    }

    #[test]
    fn graphs_are_regular_mutual_and_random() {
        for (members, degree) in [(2, 1), (5, 4), (64, 32), (101, 40)] {
            let graph = neighbours(members, degree, &Seed::root(1));
            for (one, others) in graph.iter().enumerate() {
                assert_eq!(others.len(), degree);
                assert!(others.is_sorted_by(|a, b| a < b) && !others.contains(&one));
                assert!(others.iter().all(|other| graph[*other].contains(&one)));
            }
        }
        let other = neighbours(101, 40, &Seed::root(2));
        assert!(neighbours(101, 40, &Seed::root(1)) == neighbours(101, 40, &Seed::root(1)));
        assert!(neighbours(101, 40, &Seed::root(1)) != other);
    }
}
