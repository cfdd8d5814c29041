//! What is done to samples before the network: the centre crop, and normalisation.

use shared::data::{Normalisation, Preparation};

use super::graph::Attribute::{Int, Ints};
use super::graph::Graph;

/// The value that the network takes, of samples of the shape `before` which have the shape `after` in the end.
pub(super) fn prepared(
    graph: &mut Graph,
    x: &str,
    preparation: &Preparation,
    before: &[usize],
    after: &[usize],
) -> String {
    let at = "preparation";
    let mut x = x.to_owned();
    let side = preparation.augmentation.random_crop as usize;
    if let (&[_, height, width], true) = (before, side > 0) {
        let first = [height, width].map(|whole| ((whole - side) / 2) as i64);
        let begin = graph.integers(at, &first);
        let end = graph.integers(at, &first.map(|first| first + side as i64));
        let axes = graph.integers(at, &[2, 3]);
        x = graph.node(at, "Slice", &[&x, &begin, &end, &axes], &[]);
    }
    match &preparation.normalisation {
        Normalisation::None => x,
        Normalisation::Channels { mean, deviation } => {
            // Against the axes behind that of the channels.
            let shape: Vec<usize> =
                after.iter().enumerate().map(|(axis, _)| if axis == 0 { mean.len() } else { 1 }).collect();
            let shape = [&[1], &shape[..]].concat();
            let mean = graph.floats("preparation.mean", &shape, mean);
            let deviation = graph.floats("preparation.deviation", &shape, deviation);
            let apart = graph.node(at, "Sub", &[&x, &mean], &[]);
            graph.node(at, "Div", &[&apart, &deviation], &[])
        }
        Normalisation::Whiten => {
            let axes: Vec<i64> = (1..=after.len() as i64).collect();
            let keeping = [("axes", Ints(axes)), ("keepdims", Int(1))];
            let mean = graph.node(at, "ReduceMean", &[&x], &keeping);
            let apart = graph.node(at, "Sub", &[&x, &mean], &[]);
            let squares = graph.node(at, "Mul", &[&apart, &apart], &[]);
            let variance = graph.node(at, "ReduceMean", &[&squares], &keeping);
            let deviation = graph.node(at, "Sqrt", &[&variance], &[]);
            let values = after.iter().product::<usize>() as f64;
            let least = graph.float(at, 1.0 / (255.0 * values.sqrt()));
            let deviation = graph.node(at, "Max", &[&deviation, &least], &[]);
            graph.node(at, "Div", &[&apart, &deviation], &[])
        }
    }
}
