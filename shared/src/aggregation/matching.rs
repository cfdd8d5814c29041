//! Matched averaging: `FedMA`.
//!
//! Wang, Yurochkin, Sun, Papailiopoulos, Khazaeni: *Federated Learning with Matched Averaging*, ICLR 2020
//! (arXiv 2002.06440), section 2 and Algorithm 1. Hidden units have no names: a client's may be the global model's in
//! another order. Layer by layer from the input they are matched first and averaged then:
//!
//! ```text
//! for each layer l, for each client k:
//!     W_k = W_k P_k(l-1)                                     its inputs in the order of the global model's units
//!     P_k(l) = argmin over permutations P of sum_i ||w(i) - w_k(P(i))||^2        w(i): weights and bias of unit i
//!     W_k = P_k(l)^T W_k                                     its units likewise; those of the last layer are the classes
//! W = sum of p_k W_k
//! ```
//!
//! Different from the paper: units are matched with those of the global model, whose size stays as it is, where the paper
//! lets the global model grow by units that match none (its nonparametric prior); and all layers are matched in one round,
//! where the paper trains the layers above anew after each.
//!
//! It needs the models of all clients once for each layer, and the memory of a few of its layers and of a square of its
//! units.

use models::params::ParamSet;
use models::vectorised;
use rayon::prelude::*;

use super::assignment::assign;
use super::chain::{Chain, Link};
use super::distances::square;
use super::stored::{StoredError, StoredUpdates};

/// Units of the global model that a unit of a client is compared with while it is in the cache.
const TOGETHER: usize = 16;

/// What has been matched so far: the layers below.
pub(crate) struct Matching<'a> {
    chain: &'a Chain,
    /// For each client and each unit of the last matched layer of the global model, the client's unit.
    units: Vec<Vec<usize>>,
}

/// A tensor's name and how its mean differs from the global model's.
pub(crate) type Step = (String, Vec<f32>);

impl<'a> Matching<'a> {
    /// Of this number of clients, before the first layer.
    pub(crate) fn new(chain: &'a Chain, clients: usize) -> Self {
        Self { chain, units: vec![vec![0]; clients] }
    }

    /// Number of layers.
    pub(crate) fn layers(&self) -> usize {
        self.chain.links().len()
    }

    /// Matches the units of the next layer and gives the weighted mean of what clients have made of it, less the global
    /// model `w`. Layers must be gone through in their order.
    ///
    /// # Panics
    /// If the chain is not that of `w`: it is made from the run's architecture.
    pub(crate) fn layer(
        &mut self,
        layer: usize,
        w: &ParamSet,
        updates: &mut dyn StoredUpdates,
    ) -> Result<Vec<Step>, StoredError> {
        let link = &self.chain.links()[layer];
        let last = layer + 1 == self.chain.links().len();
        let values = |tensor: &String| w.get(tensor).expect("the chain is the model's").values();
        let (weight, bias) = (values(&link.weight), link.bias.as_ref().map(values));
        let mut weight_sum = vec![0.0; weight.len()];
        let mut bias_sum = vec![0.0; bias.map_or(0, <[f32]>::len)];
        let mut total = 0.0;
        let weights: Vec<u64> = updates.contributors().iter().map(|contributor| contributor.weight).collect();
        for (client, share) in weights.into_iter().enumerate() {
            let own =
                link.with_inputs(&sum(weight, updates.tensor(client, &link.weight)?), &self.units[client]);
            let own_bias = match (&link.bias, bias) {
                (Some(tensor), Some(bias)) => sum(bias, updates.tensor(client, tensor)?),
                _ => Vec::new(),
            };
            let units = if last {
                (0..link.units).collect()
            } else {
                link.matched(weight, bias.unwrap_or_default(), &own, &own_bias)
            };
            let share = share as f64;
            let row = link.inputs * link.block;
            for (unit, &matched) in units.iter().enumerate() {
                let place = unit * row..(unit + 1) * row;
                let terms =
                    weight_sum[place.clone()].iter_mut().zip(&own[matched * row..]).zip(&weight[place]);
                for ((sum, &own), &global) in terms {
                    *sum += share * (f64::from(own) - f64::from(global));
                }
                if let Some(bias) = bias {
                    bias_sum[unit] += share * (f64::from(own_bias[matched]) - f64::from(bias[unit]));
                }
            }
            total += share;
            self.units[client] = units;
        }
        let mean = |sum: Vec<f64>| sum.into_iter().map(|sum| (sum / total) as f32).collect();
        let mut steps = vec![(link.weight.clone(), mean(weight_sum))];
        steps.extend(link.bias.clone().map(|bias| (bias, mean(bias_sum))));
        Ok(steps)
    }
}

/// A client's model: the global one and the client's update.
fn sum(global: &[f32], mut update: Vec<f32>) -> Vec<f32> {
    update.iter_mut().zip(global).for_each(|(update, global)| *update += global);
    update
}

impl Link {
    /// The rows with the blocks of their inputs in the order of `units`.
    fn with_inputs(&self, rows: &[f32], units: &[usize]) -> Vec<f32> {
        let mut ordered = Vec::with_capacity(rows.len());
        for row in rows.chunks_exact(self.inputs * self.block) {
            for &unit in units {
                ordered.extend_from_slice(&row[unit * self.block..][..self.block]);
            }
        }
        ordered
    }

    /// For each unit of the global model the client's unit that it is matched with.
    fn matched(&self, weight: &[f32], bias: &[f32], own: &[f32], own_bias: &[f32]) -> Vec<usize> {
        assign(self.units, &self.distances(weight, bias, own, own_bias))
    }

    /// The squared distance of every unit of the global model, a row each, to every unit of the client: `units^2` of them, of as
    /// many values as a unit has inputs. That is most of the work of a round, and threads share it.
    fn distances(&self, weight: &[f32], bias: &[f32], own: &[f32], own_bias: &[f32]) -> Vec<f64> {
        let row = self.inputs * self.block;
        let mut distances = vec![0.0; self.units * self.units];
        distances.par_chunks_mut((TOGETHER * self.units).max(1)).enumerate().for_each(
            |(block, distances)| {
                let first = block * TOGETHER;
                vectorised(
                    #[inline(always)]
                    || {
                        for other in 0..self.units {
                            let theirs = &own[other * row..][..row];
                            for (unit, distances) in (first..).zip(distances.chunks_exact_mut(self.units)) {
                                let biases = bias.get(unit).zip(own_bias.get(other)).map_or(0.0, |(a, b)| {
                                    let apart = f64::from(*a) - f64::from(*b);
                                    apart * apart
                                });
                                distances[other] = square(&weight[unit * row..][..row], theirs) + biases;
                            }
                        }
                    },
                );
            },
        );
        distances
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::{Seed, standard_normal};

    #[test]
    fn units_in_another_order_are_found_by_the_distances_of_any_number_of_threads() {
        // More units than are compared together, and not a multiple of them.
        let (units, inputs, block) = (3 * TOGETHER + 5, 4, 3);
        let link = Link { weight: "w".to_owned(), bias: Some("b".to_owned()), units, inputs, block };
        let mut rng = Seed::root(7).rng();
        let mut noise = |count: usize, scale: f64| -> Vec<f32> {
            (0..count).map(|_| (scale * standard_normal(&mut rng)) as f32).collect()
        };
        let row = inputs * block;
        let (weight, bias, moved) = (noise(units * row, 1.0), noise(units, 1.0), noise(units * row, 0.01));
        // The client's unit `place` is the global model's `5 place + 2`.
        let order: Vec<usize> = (0..units).map(|place| (5 * place + 2) % units).collect();
        let own: Vec<f32> = order
            .iter()
            .flat_map(|&unit| &weight[unit * row..][..row])
            .zip(&moved)
            .map(|(w, m)| w + m)
            .collect();
        let own_bias: Vec<f32> = order.iter().map(|&unit| bias[unit]).collect();
        for (unit, place) in link.matched(&weight, &bias, &own, &own_bias).into_iter().enumerate() {
            assert_eq!(order[place], unit);
        }
        let distances = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            pool.install(|| link.distances(&weight, &bias, &own, &own_bias))
        };
        let one = distances(1);
        assert_eq!(distances(3), one);
        for (at, found) in one.iter().enumerate() {
            let (unit, other) = (at / units, at % units);
            let apart = |a: f32, b: f32| (f64::from(a) - f64::from(b)).powi(2);
            let weights = weight[unit * row..][..row].iter().zip(&own[other * row..][..row]);
            let expected =
                weights.map(|(&a, &b)| apart(a, b)).sum::<f64>() + apart(bias[unit], own_bias[other]);
            assert!(
                (found - expected).abs() < 1e-12 * expected.max(1.0),
                "{unit} {other}: {found} {expected}"
            );
        }
    }
}
