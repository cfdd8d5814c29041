//! Batches divided into groups of images that are worked on in parallel.
//!
//! The groups depend on the shapes alone, never on the number of threads, and sums over images are made within groups
//! first: so the results are the same for any number of threads.

use std::ops::Range;

/// Work worth a group of its own, in multiplications: some ten microseconds.
const WORTH: usize = 1 << 20;
/// More groups than this do not help the devices that train on their CPU.
const MOST: usize = 16;

/// The number of groups for `n` images with `work` multiplications each: a power of two, so that a pool of two or four
/// threads has equal shares.
pub(crate) fn groups(n: usize, work: usize) -> usize {
    groups_of(1, n, work)
}

/// The same, but each group has at least `size` images, if there are so many.
pub(crate) fn groups_of(size: usize, n: usize, work: usize) -> usize {
    let worth = (n.saturating_mul(work) / WORTH).min(n / size).clamp(1, MOST);
    1 << worth.ilog2()
}

/// Runs `run(group, images, values)` for every group with its share of `n` images, in parallel if there are several, with
/// the share's values of `per_image` each.
pub(crate) fn for_groups<G: Send>(
    groups: &mut [G],
    n: usize,
    values: &mut [f32],
    per_image: usize,
    run: &(impl Fn(&mut G, Range<usize>, &mut [f32]) + Sync),
) {
    let count = groups.len();
    divide(groups, (0, count), n, values, per_image, run);
}

fn divide<G: Send>(
    groups: &mut [G],
    (first, count): (usize, usize),
    n: usize,
    values: &mut [f32],
    per_image: usize,
    run: &(impl Fn(&mut G, Range<usize>, &mut [f32]) + Sync),
) {
    let start = |group: usize| group * n / count;
    match groups {
        [] => {}
        [group] => run(group, start(first)..start(first + 1), values),
        groups => {
            let half = groups.len() / 2;
            let (left, right) = groups.split_at_mut(half);
            let middle = (start(first + half) - start(first)) * per_image;
            let (low, high) = values.split_at_mut(middle);
            rayon::join(
                || divide(left, (first, count), n, low, per_image, run),
                || divide(right, (first + half, count), n, high, per_image, run),
            );
        }
    }
}
