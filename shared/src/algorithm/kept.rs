//! What a client keeps from round to round beside what its algorithm keeps: statistics of normalisation layers, the
//! optimiser's state, and what it has left out of its updates, as far as the run says so.

use models::{Array, OptimizerState, ParamSet};

use crate::record::Record;

/// Prefix of the names under which a client's own buffers rest.
const BUFFERS: &str = "client.buffers.";
/// Prefix of the names under which what it has left out rests.
const LEFT_OUT: &str = "client.left-out.";
/// Prefixes of what the optimiser keeps: velocity or first moment, and second moment.
const MOMENTS: [&str; 2] = ["client.optimizer.first.", "client.optimizer.second."];
/// The number of steps, as two values of 16 bits each.
const STEPS: &str = "client.optimizer.steps";

/// What is kept; empty where nothing is.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Kept {
    /// Statistics of the device's samples.
    pub(super) buffers: ParamSet,
    /// What the optimiser keeps; `None` if it begins each round without.
    pub(super) optimizer: Option<OptimizerState>,
    /// What was left out of updates, of the tensors that are not always sent whole.
    pub(super) left_out: ParamSet,
}

impl Kept {
    /// Takes it out of the record that rests on the device.
    pub(super) fn take(rests: &mut Record) -> Self {
        let buffers = rests.tensors.take_under(BUFFERS);
        let left_out = rests.tensors.take_under(LEFT_OUT);
        let moments = MOMENTS.map(|prefix| rests.tensors.take_under(prefix));
        let steps = rests.tensors.remove(STEPS);
        let optimizer = steps.map(|halves| OptimizerState {
            steps: halves.values().iter().fold(0, |steps, &half| steps << 16 | half as u32),
            moments,
        });
        Self { buffers, optimizer, left_out }
    }

    /// Puts it into the record that rests on the device.
    pub(super) fn put(self, rests: &mut Record) {
        rests.tensors.insert_under(BUFFERS, self.buffers);
        rests.tensors.insert_under(LEFT_OUT, self.left_out);
        let Some(OptimizerState { steps, moments }) = self.optimizer else { return };
        for (prefix, moment) in MOMENTS.into_iter().zip(moments) {
            rests.tensors.insert_under(prefix, moment);
        }
        let halves = [steps >> 16, steps & 0xffff].map(|half| half as f32);
        rests.tensors.insert(STEPS, Array::new([2], halves.to_vec()).expect("two values"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_taken_and_nothing_else() {
        let one = |name: &str| ParamSet::from_iter([(name.to_owned(), Array::zeros([3]))]);
        for steps in [0, 1, 65_535, 65_536, u32::MAX] {
            let optimizer = Some(OptimizerState { steps, moments: [one("a.weight"), one("a.bias")] });
            for kept in [
                Kept { buffers: one("n.running-mean"), optimizer: optimizer.clone(), left_out: one("a") },
                Kept { optimizer, ..Kept::default() },
                Kept { buffers: one("n.running-mean"), ..Kept::default() },
                Kept { left_out: one("a"), ..Kept::default() },
                Kept::default(),
            ] {
                let own = Record { tensors: one("c_k"), ..Record::default() };
                let mut rests = own.clone();
                kept.clone().put(&mut rests);
                assert_eq!(Kept::take(&mut rests), kept);
                assert_eq!(rests, own);
            }
        }
    }
}
