//! Folding on several threads, each into a partial result of its own.
//!
//! Sums are exact, so that it does not matter which thread folds which update: the partial results are merged when the round
//! closes, to the same bytes. A further thread costs its start and, once in a round, a partial result that is begun and merged; it
//! pays where several updates of a large model wait together.

use rayon::prelude::*;

/// Values of updates that a further thread is worth its start for: about a millisecond of reading, checking and folding.
const WORTH_A_THREAD: usize = 1 << 18;

/// Updates for each thread at least. A partial result is begun and merged in the time of two or three updates, and clients on
/// the same machine need their processors: with two updates a thread, a round of four client processes took 5 % longer.
const UPDATES_EACH: usize = 4;

/// Memory that further threads may take together, for their partial results and the updates that they read.
const FURTHER_MEMORY: usize = 64 << 20;

/// Bytes for each parameter of the model: an accumulator, and a value of the update.
const BYTES_EACH: usize = 12;

/// The number of threads that fold this number of updates of a model with this number of parameters.
pub(super) fn threads(parameters: usize, updates: usize) -> usize {
    rayon::current_num_threads().min(most(parameters, updates))
}

/// The number of threads that pay, with any number of processors.
fn most(parameters: usize, updates: usize) -> usize {
    let by_work = parameters.saturating_mul(updates) / WORTH_A_THREAD;
    let by_memory = 1 + FURTHER_MEMORY / parameters.saturating_mul(BYTES_EACH).max(1);
    by_work.min(updates / UPDATES_EACH).min(by_memory).max(1)
}

/// Does `work` for every item, on as many threads as there are states: on this one, if there is one. Gives the results in the
/// order of the items.
pub(super) fn on_threads<S: Send, T: Sync, R: Send>(
    items: &[T],
    states: &mut [S],
    work: impl Fn(&mut S, &T) -> R + Sync,
) -> Vec<R> {
    let each = items.len().div_ceil(states.len().max(1)).max(1);
    let run = |(items, state): (&[T], &mut S)| items.iter().map(|item| work(state, item)).collect::<Vec<R>>();
    if let [state] = states {
        return run((items, state));
    }
    let parts: Vec<Vec<R>> = items.par_chunks(each).zip(states).map(run).collect();
    parts.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_used_where_they_pay() {
        assert_eq!(most(1_000_000, 1), 1, "one update cannot be shared out");
        assert_eq!(most(10_000, 16), 1, "small models take microseconds");
        assert_eq!(most(200_000, 16), 4);
        assert_eq!(most(1_000_000, 4), 1, "four updates are folded before a second thread has begun");
        assert_eq!(most(4_000_000, 16), 2, "of 48 MB each");
        assert_eq!(most(25_000_000, 16), 1, "memory stays that of one partial result");
        assert_eq!(most(0, 0), 1);
    }

    #[test]
    fn results_are_in_the_order_of_the_items() {
        for states in 1..6 {
            for items in 0..9 {
                let (mut sums, items) = (vec![0; states], (0..items).collect::<Vec<usize>>());
                let add = |sum: &mut usize, item: &usize| {
                    *sum += item;
                    *item
                };
                let results = on_threads(&items, &mut sums, add);
                assert_eq!(results, items);
                assert_eq!(sums.iter().sum::<usize>(), items.iter().sum::<usize>());
            }
        }
    }
}
