//! Groups of images that are processed in parallel.
//!
//! The groups depend on the shapes alone, never on the number of threads, and sums over images are taken within groups
//! first, so that the results are the same for any number of threads.

use std::ops::Range;

/// Multiplications from which a group of its own pays: about ten microseconds.
const MIN_GROUP_WORK: usize = 1 << 20;
/// Limit of the groups: devices that train on their CPU have no more cores than this.
const MAX_GROUPS: usize = 16;

/// The number of groups for `n` images with `work` multiplications each: a power of two, so that two or four threads get
/// equal numbers of them.
pub(crate) fn groups(n: usize, work: usize) -> usize {
    groups_of(1, n, work)
}

/// As [`groups`], with at least `size` images in each group if there are that many.
pub(crate) fn groups_of(size: usize, n: usize, work: usize) -> usize {
    let worth = (n.saturating_mul(work) / MIN_GROUP_WORK).min(n / size).clamp(1, MAX_GROUPS);
    1 << worth.ilog2()
}

/// Divides `n` images among groups and calls `run(group, images, values)` for each, in parallel if there are several.
/// `values` are those of the group's images, `per_image` each.
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
