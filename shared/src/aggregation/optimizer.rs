//! The server's optimiser: how the global model steps along a round's outcome.
//!
//! Reddi et al.: *Adaptive Federated Optimization*, ICLR 2021 (arXiv 2003.00295), Algorithm 2. What the clients'
//! updates became, `D_t = sum p_k (w_k - w_t)`, is taken for a gradient that points downhill:
//!
//! ```text
//! sgd       m_t = momentum m_{t-1} + D_t                          w_{t+1} = w_t + rate m_t
//! adagrad   v_t = v_{t-1} + D_t^2
//! adam      v_t = beta2 v_{t-1} + (1 - beta2) D_t^2
//! yogi      v_t = v_{t-1} - (1 - beta2) D_t^2 sign(v_{t-1} - D_t^2)
//!           m_t = beta1 m_{t-1} + (1 - beta1) D_t                 w_{t+1} = w_t + rate m_t / (sqrt(v_t) + tau)
//! ```
//!
//! with `m_0 = 0`, `v_0 = tau^2` and no correction of the bias, as printed. `sgd` with rate 1 and no momentum is plain
//! federated averaging, to the bit; with momentum it is `FedAvgM` (Hsu et al. 2019, arXiv 1909.06335).

use crate::settings::Kind;

crate::choice! {
    /// The server's optimiser with its settings. Rates, moments and tau of the adaptive ones are the paper's.
    pub enum ServerOptimizer {
        /// Federated averaging; with momentum FedAvgM
        Sgd {
            /// 1 is plain averaging
            learning_rate: f64 = 1.0, in Kind::RATE, was "rate";
            /// Share of the server's last step that is kept (FedAvgM); 0 is none
            momentum: f64 = 0.0, in Kind::SHARE;
        }
        /// FedAdagrad
        Adagrad {
            /// The server's learning rate (FedAdagrad)
            learning_rate: f64 = 0.01, in Kind::RATE, was "rate";
            /// Share of the first moment that is kept
            beta1: f64 = 0.0, in Kind::SHARE;
            /// Added to the root of the second moment: the smaller, the more adaptive
            tau: f64 = 1e-3, in Kind::RATE;
        }
        /// FedAdam
        Adam {
            /// The server's learning rate (FedAdam)
            learning_rate: f64 = 0.01, in Kind::RATE, was "rate";
            /// Share of the first moment that is kept
            beta1: f64 = 0.9, in Kind::SHARE;
            /// Share of the second moment that is kept
            beta2: f64 = 0.99, in Kind::SHARE;
            /// Added to the root of the second moment: the smaller, the more adaptive
            tau: f64 = 1e-3, in Kind::RATE;
        }
        /// FedYogi
        Yogi {
            /// The server's learning rate (FedYogi)
            learning_rate: f64 = 0.01, in Kind::RATE, was "rate";
            /// Share of the first moment that is kept
            beta1: f64 = 0.9, in Kind::SHARE;
            /// How slowly the second moment moves towards the square of the step
            beta2: f64 = 0.99, in Kind::SHARE;
            /// Added to the root of the second moment: the smaller, the more adaptive
            tau: f64 = 1e-3, in Kind::RATE;
        }
    }
}

/// How a second moment follows the square of the step.
type Follow = fn(f32, f32, f32) -> f32;

impl ServerOptimizer {
    /// What the first and the second moment begin with; `None` where there is none to keep.
    #[must_use]
    pub fn moments(&self) -> (Option<f32>, Option<f32>) {
        match *self {
            Self::Sgd { momentum, .. } => ((momentum != 0.0).then_some(0.0), None),
            Self::Adagrad { tau, .. } | Self::Adam { tau, .. } | Self::Yogi { tau, .. } => {
                (Some(0.0), Some((tau * tau) as f32))
            }
        }
    }

    /// Steps the parameters `w` along `delta`. `first` and `second` are their moments, empty where there are none.
    pub fn step(&self, w: &mut [f32], delta: &[f32], first: &mut [f32], second: &mut [f32]) {
        match *self {
            Self::Sgd { learning_rate: rate, .. } if first.is_empty() => {
                let rate = rate as f32;
                w.iter_mut().zip(delta).for_each(|(w, &delta)| *w += rate * delta);
            }
            Self::Sgd { learning_rate: rate, momentum } => {
                let (rate, momentum) = (rate as f32, momentum as f32);
                for ((w, &delta), m) in w.iter_mut().zip(delta).zip(first) {
                    *m = momentum * *m + delta;
                    *w += rate * *m;
                }
            }
            Self::Adagrad { learning_rate, beta1, tau } => {
                adapt(w, delta, first, second, [learning_rate, beta1, 0.0, tau], |v, square, _| v + square);
            }
            Self::Adam { learning_rate, beta1, beta2, tau } => {
                let follow: Follow = |v, square, beta2| beta2 * v + (1.0 - beta2) * square;
                adapt(w, delta, first, second, [learning_rate, beta1, beta2, tau], follow);
            }
            Self::Yogi { learning_rate, beta1, beta2, tau } => {
                // The sign of nothing is nothing.
                let sign = |x: f32| if x == 0.0 { 0.0 } else { x.signum() };
                let follow = |v: f32, square: f32, beta2: f32| v - (1.0 - beta2) * square * sign(v - square);
                adapt(w, delta, first, second, [learning_rate, beta1, beta2, tau], follow);
            }
        }
    }

    /// Whether each parameter has a rate of its own.
    #[must_use]
    pub fn is_adaptive(&self) -> bool {
        !matches!(self, Self::Sgd { .. })
    }
}

fn adapt(
    w: &mut [f32],
    delta: &[f32],
    first: &mut [f32],
    second: &mut [f32],
    settings: [f64; 4],
    follow: impl Fn(f32, f32, f32) -> f32,
) {
    let [rate, beta1, beta2, tau] = settings.map(|setting| setting as f32);
    for (((w, &delta), m), v) in w.iter_mut().zip(delta).zip(first).zip(second) {
        *m = beta1 * *m + (1.0 - beta1) * delta;
        *v = follow(*v, delta * delta, beta2);
        *w += rate * *m / (v.sqrt() + tau);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One parameter from 1 along these steps: `(w, m, v)` after each.
    fn follow(optimizer: ServerOptimizer, deltas: &[f32]) -> Vec<(f32, f32, f32)> {
        let (first, second) = optimizer.moments();
        let (mut w, mut m, mut v) = ([1.0], Vec::from_iter(first), Vec::from_iter(second));
        let step = |&delta| {
            optimizer.step(&mut w, &[delta], &mut m, &mut v);
            (w[0], m.first().copied().unwrap_or(0.0), v.first().copied().unwrap_or(0.0))
        };
        deltas.iter().map(step).collect()
    }

    #[track_caller]
    fn close(found: &[(f32, f32, f32)], expected: &[(f64, f64, f64)]) {
        assert_eq!(found.len(), expected.len());
        for (&(w, m, v), expected) in found.iter().zip(expected) {
            for (found, expected) in [(w, expected.0), (m, expected.1), (v, expected.2)] {
                assert!(
                    (f64::from(found) - expected).abs() < 1e-6 * expected.abs().max(1.0),
                    "{found} {expected}"
                );
            }
        }
    }

    #[test]
    fn the_default_adds_the_mean_to_the_bit() {
        for delta in [0.1f32, -3.7e-9, 1e20] {
            let found = follow(ServerOptimizer::default(), &[delta])[0].0;
            assert_eq!(found.to_bits(), (1.0 + delta).to_bits());
        }
        assert_eq!(ServerOptimizer::default().moments(), (None, None), "nothing is kept for it");
    }

    #[test]
    fn momentum_is_that_of_fedavgm() {
        let sgd = ServerOptimizer::Sgd { learning_rate: 0.5, momentum: 0.9 };
        // m: 1, 1.9, 1.71 + 2.
        close(&follow(sgd, &[1.0, 1.0, 2.0]), &[(1.5, 1.0, 0.0), (2.45, 1.9, 0.0), (4.305, 3.71, 0.0)]);
    }

    /// The recursions of Algorithm 2, written out in f64.
    #[test]
    fn adaptive_steps_are_those_of_the_paper() {
        let (rate, beta1, beta2, tau) = (0.3, 0.6, 0.75, 0.5);
        let deltas = [2.0f32, -0.1, 0.0, 3.0];
        for name in ["adagrad", "adam", "yogi"] {
            let optimizer = match name {
                "adagrad" => ServerOptimizer::Adagrad { learning_rate: rate, beta1, tau },
                "adam" => ServerOptimizer::Adam { learning_rate: rate, beta1, beta2, tau },
                _ => ServerOptimizer::Yogi { learning_rate: rate, beta1, beta2, tau },
            };
            assert_eq!(optimizer.name(), name);
            let (mut w, mut m, mut v) = (1.0, 0.0, tau * tau);
            let expected: Vec<_> = deltas
                .iter()
                .map(|&delta| {
                    let delta = f64::from(delta);
                    let square = delta * delta;
                    m = beta1 * m + (1.0 - beta1) * delta;
                    v = match name {
                        "adagrad" => v + square,
                        "adam" => beta2 * v + (1.0 - beta2) * square,
                        _ if v > square => v - (1.0 - beta2) * square,
                        _ => v + (1.0 - beta2) * square,
                    };
                    w += rate * m / (v.sqrt() + tau);
                    (w, m, v)
                })
                .collect();
            close(&follow(optimizer, &deltas), &expected);
        }
    }
}
