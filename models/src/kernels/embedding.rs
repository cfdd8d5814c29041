//! Embedding lookup.

use super::update;

/// Writes the row of each token, `[tokens, dim]`, from a table `[vocabulary, dim]`.
///
/// # Panics
/// If a token is not in the table. The caller has checked them.
pub(crate) fn look_up(table: &[f32], dim: usize, tokens: &[u32], y: &mut [f32]) {
    assert_eq!(y.len(), tokens.len() * dim);
    for (y, &token) in y.chunks_exact_mut(dim).zip(tokens) {
        y.copy_from_slice(&table[token as usize * dim..][..dim]);
    }
}

/// The gradient with respect to the table, overwritten in full: each row is the sum of `dy` over its token's occurrences, in
/// their order.
///
/// # Panics
/// As [`look_up`].
pub(crate) fn gradient(tokens: &[u32], dim: usize, dy: &[f32], table: &mut [f32]) {
    assert_eq!(dy.len(), tokens.len() * dim);
    table.fill(0.0);
    for (dy, &token) in dy.chunks_exact(dim).zip(tokens) {
        let row = &mut table[token as usize * dim..][..dim];
        row.iter_mut().zip(dy).for_each(|(sum, value)| *sum += value);
    }
}

/// `table <- table - rate g` with `g` of [`gradient`], which is not stored: only the rows of tokens that occur are touched.
///
/// # Panics
/// As [`look_up`].
pub(crate) fn descend(tokens: &[u32], dim: usize, dy: &[f32], rate: f32, table: &mut [f32]) {
    assert_eq!(dy.len(), tokens.len() * dim);
    // Occurrences of a token stay in their order, in which the gradient adds them up.
    let mut order: Vec<usize> = (0..tokens.len()).collect();
    order.sort_unstable_by_key(|&place| (tokens[place], place));
    let mut sum = vec![0.0; dim];
    for occurrences in order.chunk_by(|&a, &b| tokens[a] == tokens[b]) {
        sum.fill(0.0);
        for &place in occurrences {
            sum.iter_mut().zip(&dy[place * dim..][..dim]).for_each(|(sum, value)| *sum += value);
        }
        let row = tokens[occurrences[0]] as usize * dim;
        update::subtract(&mut table[row..row + dim], rate, &sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::noise;

    #[test]
    fn rows_are_looked_up_and_their_gradients_added_up() {
        let table = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let mut y = [f32::NAN; 8];
        look_up(&table, 2, &[2, 0, 2, 2], &mut y);
        assert_eq!(y, [5.0, 6.0, 1.0, 2.0, 5.0, 6.0, 5.0, 6.0]);
        let mut sums = [f32::NAN; 6];
        gradient(&[2, 0, 2, 2], 2, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], &mut sums);
        assert_eq!(sums, [3.0, 4.0, 0.0, 0.0, 13.0, 16.0]);
    }

    #[test]
    fn a_step_along_the_gradient_has_the_same_bits_without_it() {
        let (rows, dim, tokens) = (6, 19, [2, 0, 2, 5, 2, 0, 4]);
        let (table, dy) = (noise(rows * dim, 1), noise(tokens.len() * dim, 2));
        let (mut expected, mut sums) = (table.clone(), vec![0.0; table.len()]);
        gradient(&tokens, dim, &dy, &mut sums);
        update::subtract(&mut expected, 0.3, &sums);
        let mut found = table.clone();
        descend(&tokens, dim, &dy, 0.3, &mut found);
        assert_eq!(found, expected);
        assert!(found[dim..2 * dim] == table[dim..2 * dim] && found[..dim] != table[..dim]);
        descend(&[], dim, &[], 0.3, &mut found);
        assert_eq!(found, expected);
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn a_token_outside_of_the_table_is_our_mistake() {
        look_up(&[1.0, 2.0], 2, &[1], &mut [0.0; 2]);
    }
}
