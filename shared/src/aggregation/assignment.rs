//! The assignment problem: a perfect matching of least total cost.
//!
//! Kuhn 1955, solved by shortest augmenting paths with potentials (Jonker and Volgenant 1987) in `O(n^3)` time. Rows whose least
//! cost is in a column of their own take it first: where that is so for all but `m` rows, as for units that have moved less than
//! they differ from each other, it takes `O((m + 1) n^2)`. Existing libraries need integer costs, to which distances would have to
//! be rounded.

/// The column matched with each row: a permutation of least total cost. `cost` is square, row-major and finite.
///
/// # Panics
/// If `cost` does not have `n * n` entries.
#[allow(clippy::needless_range_loop, reason = "a column is one index into five lists")]
pub(super) fn assign(n: usize, cost: &[f64]) -> Vec<usize> {
    assert_eq!(cost.len(), n * n, "a square matrix");
    // Rows and columns count from 1; column 0 is a placeholder for the row that is being matched.
    let (mut row_potential, mut column_potential) = (vec![0.0; n + 1], vec![0.0; n + 1]);
    let mut row_of = vec![0; n + 1];
    let mut came_from = vec![0; n + 1];
    // With these potentials no reduced cost is below 0, and those of the least costs are 0.
    let mut left = Vec::new();
    for row in 1..=n {
        let costs = &cost[(row - 1) * n..row * n];
        let mut least = 0;
        for candidate in 1..n {
            if costs[candidate] < costs[least] {
                least = candidate;
            }
        }
        row_potential[row] = costs[least];
        if row_of[least + 1] == 0 {
            row_of[least + 1] = row;
        } else {
            left.push(row);
        }
    }
    for row in left {
        row_of[0] = row;
        let mut column = 0;
        let mut least = vec![f64::INFINITY; n + 1];
        let mut visited = vec![false; n + 1];
        // The shortest augmenting path from this row to a free column.
        while row_of[column] != 0 {
            visited[column] = true;
            let from = row_of[column];
            let (mut step, mut next) = (f64::INFINITY, 0);
            for candidate in 1..=n {
                if visited[candidate] {
                    continue;
                }
                let reduced =
                    cost[(from - 1) * n + candidate - 1] - row_potential[from] - column_potential[candidate];
                if reduced < least[candidate] {
                    least[candidate] = reduced;
                    came_from[candidate] = column;
                }
                if least[candidate] < step {
                    (step, next) = (least[candidate], candidate);
                }
            }
            for candidate in 0..=n {
                if visited[candidate] {
                    row_potential[row_of[candidate]] += step;
                    column_potential[candidate] -= step;
                } else {
                    least[candidate] -= step;
                }
            }
            column = next;
        }
        // Shifts the matching along that path.
        while column != 0 {
            let before = came_from[column];
            row_of[column] = row_of[before];
            column = before;
        }
    }
    let mut columns = vec![0; n];
    for (column, &row) in row_of.iter().enumerate().skip(1) {
        columns[row - 1] = column - 1;
    }
    columns
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The least cost of all permutations, tried one by one.
    fn least(n: usize, cost: &[f64], row: usize, taken: &mut Vec<bool>) -> f64 {
        if row == n {
            return 0.0;
        }
        let mut best = f64::INFINITY;
        for column in 0..n {
            if !taken[column] {
                taken[column] = true;
                best = best.min(cost[row * n + column] + least(n, cost, row + 1, taken));
                taken[column] = false;
            }
        }
        best
    }

    #[test]
    fn small_problems() {
        assert_eq!(assign(0, &[]), Vec::<usize>::new());
        assert_eq!(assign(1, &[7.0]), [0]);
        // Greedily row 0 would take column 0 and leave 100 to row 1.
        assert_eq!(assign(2, &[1.0, 2.0, 3.0, 100.0]), [1, 0]);
        assert_eq!(assign(3, &[9.0, 0.0, 9.0, 9.0, 9.0, 0.0, 0.0, 9.0, 9.0]), [1, 2, 0]);
    }

    proptest! {
        #[test]
        fn no_permutation_costs_less(n in 1..7_usize, all in prop::collection::vec(-5f64..5.0, 36)) {
            let cost = &all[..n * n];
            let found = assign(n, cost);
            let mut columns = found.clone();
            columns.sort_unstable();
            prop_assert_eq!(columns, (0..n).collect::<Vec<_>>());
            let total: f64 = found.iter().enumerate().map(|(row, column)| cost[row * n + column]).sum();
            prop_assert!((total - least(n, cost, 0, &mut vec![false; n])).abs() < 1e-9);
        }
    }
}
