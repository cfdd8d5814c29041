use super::*;
use crate::kernels::noise;

/// Weights and inputs in f64, in the order of [`SLOPES`].
#[derive(Clone)]
struct Case {
    inputs: usize,
    hidden: usize,
    n: usize,
    t: usize,
    /// `weight_ih`, `weight_hh`, `bias` and `x`.
    lists: [Vec<f32>; 4],
    dy: Vec<f32>,
}

impl Case {
    fn new(inputs: usize, hidden: usize, n: usize, t: usize) -> Self {
        let lists = [
            noise(4 * hidden * inputs, 1),
            noise(4 * hidden * hidden, 2),
            noise(4 * hidden, 3),
            noise(n * t * inputs, 4),
        ];
        Self { inputs, hidden, n, t, lists, dy: noise(n * t * hidden, 5) }
    }

    /// The states in f64, by the equations.
    fn naive(&self, [weight_ih, weight_hh, bias, x]: [&[f64]; 4]) -> Vec<f64> {
        let (inputs, hidden) = (self.inputs, self.hidden);
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let mut states = vec![];
        for x in x.chunks(self.t * inputs) {
            let (mut h, mut c) = (vec![0.0; hidden], vec![0.0; hidden]);
            for x in x.chunks(inputs) {
                let gate = |row: usize| {
                    let from_input = dot(&weight_ih[row * inputs..][..inputs], x);
                    from_input + dot(&weight_hh[row * hidden..][..hidden], &h) + bias[row]
                };
                let gates: Vec<f64> = (0..4 * hidden).map(gate).collect();
                for unit in 0..hidden {
                    let [i, f, g, o] = [0, 1, 2, 3].map(|gate| gates[gate * hidden + unit]);
                    c[unit] = sigmoid(f) * c[unit] + sigmoid(i) * g.tanh();
                    h[unit] = sigmoid(o) * c[unit].tanh();
                }
                states.extend_from_slice(&h);
            }
        }
        states
    }

    /// The states and the gradients by weights, bias and inputs.
    fn run(&self, lstm: &mut Lstm) -> (Vec<f32>, [Vec<f32>; 4]) {
        let [weight_ih, weight_hh, bias, x] = &self.lists;
        let weights = LstmWeights { weight_ih, weight_hh, bias };
        let mut y = vec![f32::NAN; self.dy.len()];
        lstm.forward(weights, x, &mut y, self.n, self.t);
        let mut slopes = self.lists.clone().map(|list| vec![f32::NAN; list.len()]);
        let [weight_ih, weight_hh, bias, dx] = &mut slopes;
        let gradients = LstmGradients { weight_ih, weight_hh, bias };
        lstm.backward(weights, (x, &y, &self.dy), (self.n, self.t), gradients, Some(dx));
        (y, slopes)
    }
}

#[test]
fn states_and_gradients_are_those_of_double_precision() {
    for (inputs, hidden, n, t) in [(1, 1, 1, 1), (3, 2, 2, 4), (2, 5, 7, 3), (4, 17, 1, 2), (1, 3, 6, 5)] {
        let case = Case::new(inputs, hidden, n, t);
        let mut lstm = Lstm::new(inputs, hidden);
        // State left by a larger batch must not show.
        Case::new(inputs, hidden, n + 2, t + 1).run(&mut lstm);
        let (y, slopes) = case.run(&mut lstm);
        let lists = case.lists.clone().map(|list| list.into_iter().map(f64::from).collect::<Vec<f64>>());
        let expected = case.naive(lists.each_ref().map(Vec::as_slice));
        assert_eq!(y.len(), expected.len());
        for (found, expected) in y.iter().zip(&expected) {
            assert!((f64::from(*found) - expected).abs() < 2e-6, "{found} {expected}");
        }
        // The gradients of sum(dy y), by central differences.
        for (which, slopes) in slopes.iter().enumerate() {
            for (index, &found) in slopes.iter().enumerate() {
                let at = |offset: f64| {
                    let mut lists = lists.clone();
                    lists[which][index] += offset;
                    let y = case.naive(lists.each_ref().map(Vec::as_slice));
                    y.iter().zip(&case.dy).map(|(y, &dy)| y * f64::from(dy)).sum::<f64>()
                };
                let expected = (at(1e-5) - at(-1e-5)) / 2e-5;
                let close = (f64::from(found) - expected).abs() < 1e-5 * (1.0 + expected.abs());
                assert!(close, "{inputs} {hidden} {n} {t}: list {which}[{index}]: {found} {expected}");
            }
        }
    }
}

#[test]
fn threads_do_not_show() {
    // Enough work for threads, and samples that they cannot share evenly.
    let case = Case::new(5, 96, 7, 20);
    const { assert!(7 * 20 * 4 * 96 * 96 > MIN_PARALLEL_WORK) };
    let bits = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let (y, slopes) = pool.install(|| case.run(&mut Lstm::new(5, 96)));
        let bits = |list: &Vec<f32>| list.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        (bits(&y), slopes.each_ref().map(bits))
    };
    let one = bits(1);
    assert!([2, 3, 5].into_iter().all(|threads| bits(threads) == one));
}

#[test]
fn a_gradient_by_the_inputs_is_made_only_if_wanted() {
    let case = Case::new(2, 3, 2, 2);
    let mut lstm = Lstm::new(2, 3);
    let (y, expected) = case.run(&mut lstm);
    let [weight_ih, weight_hh, bias, x] = &case.lists;
    let weights = LstmWeights { weight_ih, weight_hh, bias };
    let mut y_again = y.clone();
    lstm.forward(weights, x, &mut y_again, 2, 2);
    let mut slopes = expected.clone().map(|list| vec![f32::NAN; list.len()]);
    let [weight_ih, weight_hh, bias, _] = &mut slopes;
    lstm.backward(weights, (x, &y, &case.dy), (2, 2), LstmGradients { weight_ih, weight_hh, bias }, None);
    assert_eq!(slopes[..3], expected[..3]);
}
