//! A model that is only evaluated, and what it has made of each sample.

use models::{Batch, ModelError, Network};

/// A frozen model. As long as a sample stays what it is, so does its representation: it is computed once and kept, and
/// every further epoch costs a copy instead of a forward pass. What is kept is what the first batch with the sample gave: in one
/// of another size, an epoch's last one say, sums may be rounded otherwise.
pub(super) struct Frozen {
    network: Network,
    samples: usize,
    room: usize,
    /// The representations of all samples, by position; without any until the first is known, as all are equally long.
    rows: Vec<f32>,
    /// Of which samples.
    known: Vec<bool>,
    /// Those of the last batch.
    gathered: Vec<f32>,
}

impl Frozen {
    /// A model for this number of samples, which caches its representations of them if they take at most `room` bytes; 0 if samples
    /// change from epoch to epoch, or are seen only once.
    pub(super) fn new(network: Network, samples: usize, room: usize) -> Self {
        Self { network, samples, room, rows: Vec::new(), known: Vec::new(), gathered: Vec::new() }
    }

    /// The representations of a batch, which are the samples at these positions.
    ///
    /// # Errors
    /// As [`Network::represent`].
    ///
    /// # Panics
    /// If there is no such position.
    pub(super) fn represent(&mut self, batch: &Batch, positions: &[usize]) -> Result<&[f32], ModelError> {
        let Self { network, samples, room, rows, known, gathered } = self;
        if !known.is_empty() && positions.iter().all(|&position| known[position]) {
            let width = rows.len() / known.len();
            gathered.clear();
            for position in positions {
                gathered.extend_from_slice(&rows[position * width..][..width]);
            }
            return Ok(gathered);
        }
        let computed = network.represent(batch)?;
        let width = computed.len() / positions.len();
        if *samples * width * size_of::<f32>() <= *room {
            rows.resize(*samples * width, 0.0);
            known.resize(*samples, false);
            for (&position, row) in positions.iter().zip(computed.chunks_exact(width)) {
                rows[position * width..][..width].copy_from_slice(row);
                known[position] = true;
            }
        }
        Ok(computed)
    }
}

#[cfg(test)]
mod tests {
    use models::{Architecture, Backend};

    use super::*;
    use crate::seed::{Seed, shuffle};

    const SAMPLES: usize = 23;

    fn network() -> Network {
        let architecture = Architecture::by_name("moon-cnn", &[1, 28, 28], 10).unwrap();
        let seed = Seed::root(5);
        let params = architecture.initialise(|tensor| seed.derive(tensor).rng()).unwrap();
        Network::new(&architecture, &params, &Backend::cpu()).unwrap()
    }

    /// The samples at these positions, `changed` in some way.
    fn batch(positions: &[usize], changed: usize) -> Batch {
        let pixel = |position: usize, i: usize| ((i * (position + 3) + 7 * changed) % 251) as f32 / 251.0;
        let x = positions.iter().flat_map(|&position| (0..784).map(move |i| pixel(position, i))).collect();
        Batch::unlabelled(x, [positions.len(), 1, 28, 28]).unwrap()
    }

    /// Runs `visit` on the batches of some epochs, whose last one is smaller or left out.
    fn epochs(drop_last: bool, mut visit: impl FnMut(usize, &[usize])) {
        let mut order: Vec<usize> = (0..SAMPLES).collect();
        for epoch in 0..4 {
            shuffle(&mut order, &mut Seed::root(epoch as u64).rng());
            order
                .chunks(5)
                .filter(|chunk| chunk.len() == 5 || !drop_last)
                .for_each(|chunk| visit(epoch, chunk));
        }
    }

    #[test]
    fn what_is_kept_is_what_would_be_computed() {
        for drop_last in [false, true] {
            let (mut kept, mut computed) = (Frozen::new(network(), SAMPLES, usize::MAX), network());
            epochs(drop_last, |_, positions| {
                let batch = batch(positions, 0);
                let found = kept.represent(&batch, positions).unwrap();
                assert_eq!(found, computed.represent(&batch).unwrap());
            });
        }
    }

    #[test]
    fn a_sample_is_looked_at_once() {
        let mut kept = Frozen::new(network(), SAMPLES, usize::MAX);
        let first = kept.represent(&batch(&[4, 7], 0), &[4, 7]).unwrap().to_vec();
        // Cached by position: other pixels change nothing.
        assert_eq!(kept.represent(&batch(&[4, 7], 1), &[4, 7]).unwrap(), first);
        assert_ne!(kept.represent(&batch(&[4, 8], 1), &[4, 8]).unwrap()[..256], first[..256]);
    }

    #[test]
    fn without_room_for_all_of_them_none_is_kept() {
        let width = network().represent(&batch(&[0], 0)).unwrap().len();
        let (mut kept, mut computed) = (Frozen::new(network(), SAMPLES, 4 * width * SAMPLES - 1), network());
        epochs(false, |epoch, positions| {
            let batch = batch(positions, epoch);
            let found = kept.represent(&batch, positions).unwrap();
            assert_eq!(found, computed.represent(&batch).unwrap());
        });
        assert!(kept.rows.is_empty());
    }
}
