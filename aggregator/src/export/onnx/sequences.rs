//! Layers of sequences as operators of ONNX.

use models::ParamSet;

use super::graph::Attribute::{Int, Ints};
use super::graph::{Graph, reshaped, transposed};

/// An LSTM. Its gates stand in the order of ONNX, `i, o, f, g`; ours is `i, f, g, o`. Of its two biases the second is 0.
pub(super) fn lstm(graph: &mut Graph, params: &ParamSet, [label, at, x]: [&str; 3]) -> String {
    let [input, recurrent, bias] = ["weight-ih", "weight-hh", "bias"].map(|name| {
        let array = params.get(&format!("{label}.{name}"));
        let array = array.expect("the parameters were read for this architecture");
        let gate = array.values().len() / 4;
        let gates = |number: usize| &array.values()[number * gate..(number + 1) * gate];
        ([gates(0), gates(3), gates(1), gates(2)].concat(), array.shape().to_vec())
    });
    let hidden = recurrent.1[1];
    let constant = |graph: &mut Graph, name: &str, (values, shape): &(Vec<f32>, Vec<usize>)| {
        graph.floats(&format!("{at}.{name}"), &[&[1], &shape[..]].concat(), values)
    };
    let weight = constant(graph, "weight-ih", &input);
    let own = constant(graph, "weight-hh", &recurrent);
    let biases = ([&bias.0[..], &vec![0.0; 4 * hidden]].concat(), vec![8 * hidden]);
    let biases = constant(graph, "bias", &biases);
    // Positions before samples, and back.
    let x = transposed(graph, at, x, &[1, 0, 2]);
    let inputs = [x.as_str(), &weight, &own, &biases];
    let y = graph.node(at, "LSTM", &inputs, &[("hidden_size", Int(hidden as i64))]);
    let direction = graph.integers(at, &[1]);
    let y = graph.node(at, "Squeeze", &[&y, &direction], &[]);
    transposed(graph, at, &y, &[1, 0, 2])
}

/// The same position, `weight`, before those of each sample.
pub(super) fn class_token(graph: &mut Graph, [at, x, weight]: [&str; 3], shape: &[usize]) -> String {
    let samples = graph.node(at, "Shape", &[x], &[("start", Int(0)), ("end", Int(1))]);
    let one = graph.integers(at, &[1, shape[1] as i64]);
    let repeated = graph.node(at, "Concat", &[&samples, &one], &[("axis", Int(0))]);
    let token = graph.node(at, "Expand", &[weight, &repeated], &[]);
    graph.node(at, "Concat", &[&token, x], &[("axis", Int(1))])
}

/// Sines and cosines are added, as constants.
pub(super) fn waves(graph: &mut Graph, [at, x]: [&str; 2], shape: &[usize]) -> String {
    let (positions, features) = (shape[0], shape[1]);
    let mut values = Vec::with_capacity(positions * features);
    for position in 0..positions {
        for feature in 0..features {
            let exponent = (feature / 2 * 2) as f64 / features as f64;
            let phase = position as f64 / 10000f64.powf(exponent);
            values.push(if feature % 2 == 0 { phase.sin() } else { phase.cos() } as f32);
        }
    }
    let waves = graph.floats(&format!("{at}/waves"), &[1, positions, features], &values);
    graph.node(at, "Add", &[x, &waves], &[])
}

/// Scaled dot products of queries and keys weigh the values; a causal one gives later positions no weight.
pub(super) fn attention(
    graph: &mut Graph,
    [at, x]: [&str; 2],
    shape: &[usize],
    heads: usize,
    causal: bool,
) -> String {
    let (positions, features) = (shape[0], shape[1] / 3);
    let own = features / heads;
    let parts = graph.node_of(at, "Split", &[x], &[("axis", Int(2))], 3);
    let mut of = |part: &str, axes: [i64; 4]| {
        let split = reshaped(graph, at, part, &[positions, heads, own]);
        transposed(graph, at, &split, &axes)
    };
    let query = of(&parts[0], [0, 2, 1, 3]);
    let key = of(&parts[1], [0, 2, 3, 1]);
    let value = of(&parts[2], [0, 2, 1, 3]);
    let scores = graph.node(at, "MatMul", &[&query, &key], &[]);
    let scale = graph.float(at, 1.0 / (own as f64).sqrt());
    let mut scores = graph.node(at, "Mul", &[&scores, &scale], &[]);
    if causal {
        let sees = |to: usize, from: usize| if from <= to { 0.0 } else { f32::NEG_INFINITY };
        let mask: Vec<f32> =
            (0..positions).flat_map(|to| (0..positions).map(move |from| sees(to, from))).collect();
        let mask = graph.floats(&format!("{at}/mask"), &[positions, positions], &mask);
        scores = graph.node(at, "Add", &[&scores, &mask], &[]);
    }
    let weights = graph.node(at, "Softmax", &[&scores], &[("axis", Int(-1))]);
    let y = graph.node(at, "MatMul", &[&weights, &value], &[]);
    let y = graph.node(at, "Transpose", &[&y], &[("perm", Ints(vec![0, 2, 1, 3]))]);
    reshaped(graph, at, &y, &[positions, features])
}
