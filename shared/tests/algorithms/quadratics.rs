//! Clients whose objectives are parabolas of different curvature: where several local steps lead is known in
//! closed form.
//!
//! A client has copies of one sample, of which a single pixel `x` is not black, and a share `q` of them is of
//! class 1. Then only `v = w_1 - w_0` of that pixel is learned, and its gradient step is that of a parabola, as long
//! as `v x` is small:
//!
//! ```text
//! v <- v - 2 eta x (1 / (1 + exp(-v x)) - q) = v - eta a (v - v_k) + O((v x)^3)
//! a = x^2 / 2,   v_k = 4 (q - 1/2) / x
//! ```

use models::Layer;

use super::*;

/// Local steps of a round, and their rate.
const STEPS: u32 = 8;
const RATE: f64 = 1.0;

/// A client: its curvature `a` and its optimum `v_k`.
struct Parabola {
    curvature: f64,
    optimum: f64,
}

/// Of 100 samples with this pixel, those of class 1.
fn client(pixel: u8, positive: u8) -> (View, Parabola) {
    let pixels = [pixel, 0, 0, 0].repeat(100);
    let labels = (0..100).map(|index| u8::from(index < positive)).collect::<Vec<u8>>();
    let (x, q) = (f64::from(pixel) / 255.0, f64::from(positive) / 100.0);
    let data = View::whole(Arc::new(Dataset::new(vec![1, 2, 2], pixels, labels, 2).unwrap()));
    (data, Parabola { curvature: x * x / 2.0, optimum: 4.0 * (q - 0.5) / x })
}

/// Where the model is after `rounds` rounds of full local batches.
fn fixed_point(algorithm: &str, shares: &[View], rounds: u32) -> f64 {
    let settings = Training { optimizer: Sgd::plain(RATE).into(), ..training(STEPS, 0) };
    let mut spec = with(&spec(algorithm), settings);
    spec.architecture.head = vec![Layer::Linear { name: "fc".into(), out: 2, bias: false }];
    let model = federate(&spec, shares, rounds).pop().unwrap();
    let weight = model.get("head.fc.weight").unwrap().values();
    f64::from(weight[4]) - f64::from(weight[0])
}

/// The mean of the optima with these weights.
fn weighted(parabolas: &[Parabola], weight: impl Fn(&Parabola) -> f64) -> f64 {
    let total: f64 = parabolas.iter().map(&weight).sum();
    parabolas.iter().map(|parabola| weight(parabola) / total * parabola.optimum).sum()
}

#[test]
fn scaffold_comes_to_the_optimum_and_fedavg_stops_where_its_drift_says() {
    let (shares, parabolas): (Vec<View>, Vec<Parabola>) =
        [client(255, 51), client(102, 49), client(153, 50)].into_iter().unzip();
    // The minimum of the sum of a_k (v - v_k)^2 / 2.
    let optimum = weighted(&parabolas, |parabola| parabola.curvature);
    // A round brings v to v_k + (1 - eta a_k)^tau (v - v_k), so that its mean rests where
    // sum (1 - (1 - eta a_k)^tau) (v - v_k) is zero.
    let drift = |parabola: &Parabola| 1.0 - (1.0 - RATE * parabola.curvature).powf(f64::from(STEPS));
    let drifted = weighted(&parabolas, drift);
    assert!((drifted - optimum).abs() > 0.015, "{drifted} {optimum}");
    // What the parabolas leave out is of the order of (v x)^2 / 12 of v.
    let near = |found: f64, expected: f64| (found - expected).abs() < 1e-4;
    let fedavg = fixed_point("fedavg", &shares, 40);
    assert!(near(fedavg, drifted), "fedavg: {fedavg}, {drifted} expected, the optimum is {optimum}");
    let scaffold = fixed_point("scaffold", &shares, 120);
    assert!(near(scaffold, optimum), "scaffold: {scaffold}, {optimum} expected, fedavg's is {drifted}");
}
