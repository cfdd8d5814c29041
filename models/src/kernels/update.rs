//! Steps of an optimiser, in one pass over the parameters.
//!
//! Each value is computed by itself, so that dividing long slices among threads changes no bit.

use rayon::prelude::*;

use super::vectorised::vectorised;
use crate::optimizer::Optimizer;

/// Values per task: about ten microseconds if they come from memory.
pub(super) const TASK_VALUES: usize = 1 << 16;

/// What an optimiser keeps for the parameters from step to step: velocity, or first and second moment. Empty where it keeps nothing.
pub(crate) type Moments<'a> = [&'a mut [f32]; 2];

/// One step, in single precision.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// `w <- w - rate (g + decay w)`.
    Plain { rate: f32, decay: f32 },
    /// `v <- momentum v + (g + decay w)`, then `w <- w - rate v`.
    Momentum { rate: f32, momentum: f32, decay: f32 },
    /// As `Momentum`, but `w <- w - rate (g + decay w + momentum v)`.
    Nesterov { rate: f32, momentum: f32, decay: f32 },
    /// Of Adam.
    Adam(AdamStep),
}

/// One step of Adam, with the corrections of its moments for the number of steps.
///
/// ```text
/// w <- keep w        g <- g + decay w        m <- beta1 m + (1 - beta1) g        v <- beta2 v + (1 - beta2) g^2
/// w <- w - rate m / (sqrt(v) / root + epsilon)
/// ```
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdamStep {
    /// What decoupled weight decay leaves of the parameters.
    keep: f32,
    /// Weight decay in the gradient.
    decay: f32,
    beta: [f32; 2],
    /// `1 - beta`, rounded once.
    rest: [f32; 2],
    /// The learning rate over `1 - beta1^t`.
    rate: f32,
    /// `sqrt(1 - beta2^t)`.
    root: f32,
    epsilon: f32,
}

impl Step {
    /// The `number`th step of an optimiser, counted from 1.
    pub(crate) fn of(optimizer: &Optimizer, number: u32) -> Self {
        match *optimizer {
            Optimizer::Sgd(sgd) | Optimizer::Nesterov(sgd) if sgd.momentum == 0.0 => {
                Self::Plain { rate: sgd.rate as f32, decay: sgd.decay as f32 }
            }
            Optimizer::Sgd(sgd) => Self::Momentum {
                rate: sgd.rate as f32,
                momentum: sgd.momentum as f32,
                decay: sgd.decay as f32,
            },
            Optimizer::Nesterov(sgd) => Self::Nesterov {
                rate: sgd.rate as f32,
                momentum: sgd.momentum as f32,
                decay: sgd.decay as f32,
            },
            Optimizer::Adam(adam) | Optimizer::AdamW(adam) => {
                let decoupled = matches!(optimizer, Optimizer::AdamW(_));
                let power = i32::try_from(number).unwrap_or(i32::MAX);
                let corrections = [adam.beta1, adam.beta2].map(|beta| 1.0 - beta.powi(power));
                Self::Adam(AdamStep {
                    keep: if decoupled { (1.0 - adam.rate * adam.decay) as f32 } else { 1.0 },
                    decay: if decoupled { 0.0 } else { adam.decay as f32 },
                    beta: [adam.beta1 as f32, adam.beta2 as f32],
                    rest: [(1.0 - adam.beta1) as f32, (1.0 - adam.beta2) as f32],
                    rate: (adam.rate / corrections[0]) as f32,
                    root: corrections[1].sqrt() as f32,
                    epsilon: adam.epsilon as f32,
                })
            }
        }
    }

    /// The same step without weight decay.
    pub(crate) fn without_decay(self) -> Self {
        match self {
            Self::Plain { rate, .. } => Self::Plain { rate, decay: 0.0 },
            Self::Momentum { rate, momentum, .. } => Self::Momentum { rate, momentum, decay: 0.0 },
            Self::Nesterov { rate, momentum, .. } => Self::Nesterov { rate, momentum, decay: 0.0 },
            Self::Adam(adam) => Self::Adam(AdamStep { keep: 1.0, decay: 0.0, ..adam }),
        }
    }

    /// How many values it keeps for each parameter.
    pub(crate) fn moments(&self) -> usize {
        match self {
            Self::Plain { .. } => 0,
            Self::Momentum { .. } | Self::Nesterov { .. } => 1,
            Self::Adam(_) => 2,
        }
    }

    /// Takes the step from `w` along `g`, on this thread.
    pub(super) fn take(&self, w: &mut [f32], [v, squares]: Moments<'_>, g: &[f32]) {
        match *self {
            Self::Plain { rate, decay: 0.0 } => each(w, g, |w, g| *w -= rate * g),
            Self::Plain { rate, decay } => each(w, g, |w, g| *w -= rate * (g + decay * *w)),
            Self::Momentum { rate, momentum, decay } => each_with(w, v, g, |w, v, g| {
                *v = momentum * *v + (g + decay * *w);
                *w -= rate * *v;
            }),
            Self::Nesterov { rate, momentum, decay } => each_with(w, v, g, |w, v, g| {
                let g = g + decay * *w;
                *v = momentum * *v + g;
                *w -= rate * (g + momentum * *v);
            }),
            Self::Adam(step) => step.take(w, v, squares, g),
        }
    }
}

impl AdamStep {
    fn take(&self, w: &mut [f32], means: &mut [f32], squares: &mut [f32], g: &[f32]) {
        let Self { keep, decay, beta, rest, rate, root, epsilon } = *self;
        vectorised(
            #[inline(always)]
            || {
                for (((w, m), v), g) in w.iter_mut().zip(means.iter_mut()).zip(squares.iter_mut()).zip(g) {
                    *w *= keep;
                    let g = g + decay * *w;
                    *m = beta[0] * *m + rest[0] * g;
                    *v = beta[1] * *v + rest[1] * (g * g);
                    *w -= rate * (*m / (v.sqrt() / root + epsilon));
                }
            },
        );
    }
}

/// One step from `w` along `g`, divided among threads if it is long.
pub(crate) fn descend(w: &mut [f32], moments: Moments<'_>, g: &[f32], step: &Step) {
    divide(0, w, moments, g, &|_, w, moments, g| step.take(w, moments, g));
}

/// `w <- w - rate g`.
pub(crate) fn subtract(w: &mut [f32], rate: f32, g: &[f32]) {
    descend(w, [&mut [], &mut []], g, &Step::Plain { rate, decay: 0.0 });
}

/// Divides parameters, what is kept for them and their gradients into tasks, and calls `run` for each with the place of its first
/// value, in parallel if there are several. Moments are as long as the parameters or empty.
pub(super) fn divide(
    start: usize,
    w: &mut [f32],
    [first, second]: Moments<'_>,
    g: &[f32],
    run: &(impl Fn(usize, &mut [f32], Moments<'_>, &[f32]) + Sync),
) {
    let length = w.len();
    assert!(length == g.len(), "a gradient for each parameter");
    assert!([first.len(), second.len()].iter().all(|&kept| kept == length || kept == 0), "moments for each");
    if length < 2 * TASK_VALUES {
        return run(start, w, [first, second], g);
    }
    let middle = length.div_ceil(TASK_VALUES).div_ceil(2) * TASK_VALUES;
    let (w, right_w) = w.split_at_mut(middle);
    let (first, right_first) = first.split_at_mut(middle.min(first.len()));
    let (second, right_second) = second.split_at_mut(middle.min(second.len()));
    let (g, right_g) = g.split_at(middle);
    rayon::join(
        || divide(start, w, [first, second], g, run),
        || divide(start + middle, right_w, [right_first, right_second], right_g, run),
    );
}

/// `y <- y + factor x`.
pub(crate) fn add_multiple(y: &mut [f32], factor: f32, x: &[f32]) {
    assert_eq!(y.len(), x.len());
    if y.len() < 2 * TASK_VALUES {
        each(y, x, |y, x| *y += factor * x);
    } else {
        let tasks = y.par_chunks_mut(TASK_VALUES).zip(x.par_chunks(TASK_VALUES));
        tasks.for_each(|(y, x)| each(y, x, |y, x| *y += factor * x));
    }
}

/// Applies `f` to all pairs of values.
#[inline(always)]
fn each(y: &mut [f32], x: &[f32], f: impl Fn(&mut f32, f32)) {
    vectorised(
        #[inline(always)]
        || y.iter_mut().zip(x).for_each(|(y, x)| f(y, *x)),
    );
}

/// Applies `f` to all triples of values.
#[inline(always)]
fn each_with(w: &mut [f32], v: &mut [f32], g: &[f32], f: impl Fn(&mut f32, &mut f32, f32)) {
    vectorised(
        #[inline(always)]
        || {
            for ((w, v), g) in w.iter_mut().zip(v.iter_mut()).zip(g) {
                f(w, v, *g);
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::reference::noise;
    use crate::optimizer::AdamSettings;

    /// From nothing to several tasks, of which the last is short.
    const LENGTHS: [usize; 6] = [0, 1, 31, 1000, 2 * TASK_VALUES + 5, 5 * TASK_VALUES + 3];

    #[test]
    fn steps_are_those_of_the_formulas() {
        let (rate, momentum, decay) = (0.1, 0.9, 0.01);
        for length in LENGTHS {
            let (w, v, g) = (noise(length, 1), noise(length, 2), noise(length, 3));
            let stepped = |step: Step| {
                let (mut w, mut v) = (w.clone(), v.clone());
                let kept: &mut [f32] = if step.moments() == 0 { &mut [] } else { &mut v };
                descend(&mut w, [kept, &mut []], &g, &step);
                (w, v)
            };
            let (plain, _) = stepped(Step::Plain { rate, decay: 0.0 });
            let (decayed, _) = stepped(Step::Plain { rate, decay });
            let (moved, velocity) = stepped(Step::Momentum { rate, momentum, decay });
            let (ahead, same_velocity) = stepped(Step::Nesterov { rate, momentum, decay });
            let mut sum = w.clone();
            add_multiple(&mut sum, -2.0, &g);
            for i in 0..length {
                assert_eq!(plain[i], w[i] - rate * g[i]);
                assert_eq!(decayed[i], w[i] - rate * (g[i] + decay * w[i]));
                let expected = momentum * v[i] + (g[i] + decay * w[i]);
                assert_eq!(velocity[i], expected);
                assert_eq!(same_velocity[i], expected);
                assert_eq!(moved[i], w[i] - rate * expected);
                assert_eq!(ahead[i], w[i] - rate * ((g[i] + decay * w[i]) + momentum * expected));
                assert_eq!(sum[i], w[i] - 2.0 * g[i]);
            }
        }
    }

    /// In double precision, by the equations.
    #[test]
    fn steps_of_adam_are_those_of_the_formulas() {
        let settings = AdamSettings { decay: 0.02, ..AdamSettings::with_rate(0.05) };
        for length in LENGTHS {
            for optimizer in [Optimizer::Adam(settings), Optimizer::AdamW(settings)] {
                let start = noise(length, 1);
                let (mut w, mut first, mut second) = (start.clone(), vec![0.0; length], vec![0.0; length]);
                let gradients = [1, 2, 3].map(|step| noise(length, 10 + step));
                for (g, number) in gradients.iter().zip(1..) {
                    descend(&mut w, [&mut first, &mut second], g, &Step::of(&optimizer, number));
                }
                for (i, &found) in w.iter().enumerate() {
                    let (mut value, mut m, mut v) = (f64::from(start[i]), 0.0, 0.0);
                    for (g, number) in gradients.iter().zip(1..) {
                        let mut g = f64::from(g[i]);
                        match optimizer {
                            Optimizer::AdamW(_) => value -= 0.05 * 0.02 * value,
                            _ => g += 0.02 * value,
                        }
                        m = 0.9 * m + 0.1 * g;
                        v = 0.999 * v + 0.001 * g * g;
                        let corrected = v / (1.0 - 0.999f64.powi(number));
                        value -= 0.05 * m / (1.0 - 0.9f64.powi(number)) / (corrected.sqrt() + 1e-8);
                    }
                    assert!((f64::from(found) - value).abs() < 2e-6, "{optimizer:?} {i}: {found} {value}");
                }
            }
        }
    }
}
