//! The privacy losses of one round of the sampled Gaussian mechanism, on a grid.
//!
//! Dwork, Rothblum: *Concentrated Differential Privacy*, 2016 (arXiv 1603.01887), for the privacy loss; Doroshenko, Ghazi, Kamath,
//! Kumar, Manurangsi: *Connect the Dots: Tighter Discrete Approximations of Privacy Loss Distributions*, PETS 2022 (arXiv 2207.04380),
//! for the grid; Zhu, Dong, Wang: *Optimal Accounting of Differential Privacy via Characteristic Function*, AISTATS 2022 (arXiv
//! 2106.08567), for the pairs of distributions that dominate all others.
//!
//! With a device the noisy sum is distributed like `with`, without it like `without`, and the loss is L(x):
//!
//! ```text
//! with    = (1 - q) N(0, z^2) + q N(1, z^2)      without = N(0, z^2)
//! L(x)    = ln(with(x) / without(x)) = ln(1 - q + q exp((2 x - 1) / (2 z^2)))
//! removed:  L(x) with x from with                added:  -L(x) with x from without
//! ```
//!
//! What lies between two points of the grid is divided among them so that both distributions keep their mass. The result gives away
//! no less than the mechanism, for each epsilon and after any number of rounds.

use shared::privacy::Noise;

/// The losses of one round in one direction.
#[derive(Clone, Debug)]
pub(super) struct Losses {
    /// The distance of the grid's points.
    pub(super) interval: f64,
    /// The number of the first point: its loss is this multiple of the interval.
    pub(super) first: i64,
    /// The probability of each point.
    pub(super) masses: Vec<f64>,
    /// The probability of a loss beyond the last point, which counts as infinite.
    pub(super) beyond: f64,
}

/// The interval as a multiple of the deviation of one round's losses: what the grid adds to epsilon grows with its square.
const FINENESS: f64 = 0.035;
/// Points that a grid has at most.
const MOST_POINTS: f64 = (1 << 19) as f64;
/// Deviations of the noise, the normal distribution has `10^-23` beyond.
const FURTHEST: f64 = 10.0;

/// A probability that does not count, also of all points together.
const SPECK: f64 = 1e-36;

/// Numbers below may have lost digits.
const DIGITLESS: f64 = 1e-290;

/// The losses of one round: of a device that is removed and of one that is added. On a grid that is coarser by this factor epsilon is
/// larger, and takes less work.
pub(super) fn losses(noise: Noise, coarser: f64) -> [Losses; 2] {
    let Noise { multiplier: z, rate: q } = noise;
    // Their deviation is below both: that of the likelihood ratio, and that without sampling.
    let deviation = (q * (1.0 / (z * z)).exp_m1().sqrt()).min(1.0 / z);
    let range = greatest(noise) - (-q).ln_1p();
    on_grid(noise, coarser * (FINENESS * deviation).max(range / MOST_POINTS))
}

/// L at the greatest x that is looked at.
fn greatest(noise: Noise) -> f64 {
    let Noise { multiplier: z, rate: q } = noise;
    let x = 1.0 + FURTHEST * z;
    let exponent = (2.0 * x - 1.0) / (2.0 * z * z);
    // ln(1 - q + q e^exponent), where e^exponent may be too large for a number.
    exponent + q.ln() + ((1.0 - q) / q * (-exponent).exp()).ln_1p()
}

/// The same on a grid of this interval.
pub(super) fn on_grid(noise: Noise, interval: f64) -> [Losses; 2] {
    let Noise { multiplier: z, rate: q } = noise;
    let first = ((-q).ln_1p() / interval).floor() as i64;
    let last = (greatest(noise) / interval).ceil() as i64;
    let points = (last - first + 1) as usize;
    let [mut removed, mut added] =
        [first, -last].map(|first| Losses { interval, first, masses: vec![0.0; points], beyond: 0.0 });
    let share = -(-interval).exp_m1();
    // with(x) / without(x) - (1 - q) at the lower point, whose loss no x has: all of them are above.
    let mut excess = (first as f64 * interval).exp_m1() + q;
    let mut lower = [Tail::ALL; 2];
    for point in 0..points - 1 {
        let loss = (first + point.cast_signed() as i64 + 1) as f64 * interval;
        let next = loss.exp_m1() + q;
        let x = if next > 0.0 { z * z * ratio_ln(loss, next, q) + 0.5 } else { f64::NEG_INFINITY };
        let upper = [x, x - 1.0].map(|x| Tail::from(x / z));
        let without = lower[0].less(upper[0]);
        let shifted = lower[1].less(upper[1]);
        let with = (1.0 - q) * without + q * shifted;
        // (with - without exp(lower loss)) / (1 - exp(-interval)), and the same the other way round.
        // Of a mass without digits everything is moved up, and where exp(loss) is too large for a number there is no other.
        let below = if without > DIGITLESS { without * excess } else { 0.0 };
        let up = ((q * shifted - below) / share).clamp(0.0, with);
        removed.masses[point] += with - up;
        removed.masses[point + 1] += up;
        let up = ((without - with * (-loss).exp()) / share).clamp(0.0, without);
        added.masses[points - 1 - point] += up;
        added.masses[points - 2 - point] += without - up;
        (excess, lower) = (next, upper);
    }
    removed.beyond = (1.0 - q) * lower[0].above() + q * lower[1].above();
    // Losses below the first point are counted as that.
    added.masses[0] += lower[0].above();
    [removed, added].map(Losses::without_specks)
}

impl Losses {
    /// Counts the last points as infinite losses as long as they are next to nothing.
    fn without_specks(mut self) -> Self {
        while let Some(mass) = self.masses.pop_if(|mass| *mass < SPECK) {
            self.beyond += mass;
        }
        self
    }
}

/// `ln((e^loss - 1 + q) / q)`, where `excess = e^loss - 1 + q` may be too large for a number.
fn ratio_ln(loss: f64, excess: f64, q: f64) -> f64 {
    if excess.is_finite() { (excess / q).ln() } else { loss - q.ln() }
}

/// What of the standard normal distribution lies on one side of a place: on the side that has less of it, so that digits are kept.
#[derive(Clone, Copy)]
struct Tail {
    mass: f64,
    is_above: bool,
}

impl Tail {
    /// What lies below minus infinity.
    const ALL: Self = Self { mass: 0.0, is_above: false };

    fn from(x: f64) -> Self {
        let mass = 0.5 * libm::erfc(x.abs() * std::f64::consts::FRAC_1_SQRT_2);
        Self { mass, is_above: x > 0.0 }
    }

    /// What lies between this place and a greater one.
    fn less(self, greater: Self) -> f64 {
        let between = match (self.is_above, greater.is_above) {
            (true, true) => self.mass - greater.mass,
            (false, false) => greater.mass - self.mass,
            _ => 1.0 - self.mass - greater.mass,
        };
        between.max(0.0)
    }

    fn above(self) -> f64 {
        if self.is_above { self.mass } else { 1.0 - self.mass }
    }
}
