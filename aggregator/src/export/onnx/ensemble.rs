//! Ensembles in one graph: the members side by side, and the fusion of what they say.
//!
//! Informative fusion compares each sample with noise: that of the first sample that is asked about, as in the other exports. What a
//! member says of the noise does not depend on samples, and is a constant.

use models::{Backend, Mode, Network};
use shared::algorithm::{Fusion, Head};
use shared::ensemble::fusion::LEAST_PROBABILITY;

use super::graph::Attribute::{Int, Ints};
use super::graph::Graph;
use super::layers::Layers;
use crate::ensemble::Bundle;
use crate::export::ExportError;

/// The logits of the ensemble for the value `x`.
pub(super) fn fused(
    graph: &mut Graph,
    bundle: &Bundle,
    fusion: Fusion,
    x: &str,
) -> Result<String, ExportError> {
    let at = "ensemble";
    let manifest = &bundle.manifest;
    let architecture = &manifest.architecture;
    // The weighted sum, and the sum of the weights.
    let mut sums: Option<[String; 2]> = None;
    for member in 0..manifest.members.len() {
        let params = bundle.member(member)?;
        let prefix = format!("members.{member}.");
        let given = Layers { graph, params: &params, prefix: prefix.clone() }.network(architecture, x)?;
        let features = given.representation;
        let own = prefix.trim_end_matches('.');
        let weight = match fusion {
            Fusion::Informative => {
                let shape = [&[1], &architecture.input[..]].concat();
                let mut network = Network::new(architecture, &params, &Backend::cpu())?;
                network.forward(&manifest.noise(0), &shape, Mode::Evaluation)?;
                let noise = directions(network.representation(), bundle.dimensions());
                let noise = graph.floats(&format!("{prefix}noise"), &[bundle.dimensions(), 1], &noise);
                let directed = directed(graph, own, &features, 1e-30);
                let cosine = graph.node(own, "MatMul", &[&directed, &noise], &[]);
                let (one, least) = (graph.float(own, 1.0), graph.float(own, 1e-6));
                let apart = graph.node(own, "Sub", &[&one, &cosine], &[]);
                graph.node(own, "Max", &[&apart, &least], &[])
            }
            Fusion::Size | Fusion::Logits | Fusion::Probabilities => graph.float(own, manifest.share(member)),
            Fusion::Uniform => graph.float(own, 1.0),
        };
        let said = if fusion == Fusion::Probabilities {
            graph.node(own, "Softmax", &[&given.logits], &[])
        } else if manifest.answering.head == Head::Classifier {
            given.logits
        } else if fusion == Fusion::Logits {
            let lengths = lengths(graph, own, &features, 1e-8);
            graph.node(own, "Div", &[&given.logits, &lengths], &[])
        } else {
            features
        };
        let weighted = graph.node(own, "Mul", &[&said, &weight], &[]);
        sums = Some(match sums {
            None => [weighted, weight],
            Some([sum, total]) => [(sum, weighted), (total, weight)]
                .map(|(sum, more)| graph.node(at, "Add", &[&sum, &more], &[])),
        });
    }
    let [sum, total] = sums.expect("an ensemble has members: its file was checked");
    let mean = graph.node(at, "Div", &[&sum, &total], &[]);
    match fusion {
        Fusion::Logits => return Ok(mean),
        Fusion::Probabilities => {
            let least = graph.float(at, LEAST_PROBABILITY);
            let mean = graph.node(at, "Max", &[&mean, &least], &[]);
            return Ok(graph.node(at, "Log", &[&mean], &[]));
        }
        Fusion::Informative | Fusion::Size | Fusion::Uniform => {}
    }
    // `[d, classes]`, so that the product needs no transposition.
    let (classes, dimensions) = (architecture.classes, bundle.dimensions());
    let rows = directions(&bundle.prototypes, dimensions);
    let columns: Vec<f32> = (0..dimensions)
        .flat_map(|d| (0..classes).map(move |class| class * dimensions + d))
        .map(|place| rows[place])
        .collect();
    let prototypes = graph.floats("prototypes", &[dimensions, classes], &columns);
    let directed = directed(graph, at, &mean, 1e-30);
    let cosines = graph.node(at, "MatMul", &[&directed, &prototypes], &[]);
    let temperature = graph.float(at, manifest.answering.temperature);
    Ok(graph.node(at, "Div", &[&cosines, &temperature], &[]))
}

/// Rows of length 1; a row of zeros stays one.
fn directions(rows: &[f32], dimensions: usize) -> Vec<f32> {
    let directed = |row: &[f32]| {
        let length = row.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt().max(1e-30);
        row.iter().map(|&value| (f64::from(value) / length) as f32).collect::<Vec<_>>()
    };
    rows.chunks(dimensions).flat_map(directed).collect()
}

fn directed(graph: &mut Graph, at: &str, x: &str, least: f64) -> String {
    let lengths = lengths(graph, at, x, least);
    graph.node(at, "Div", &[x, &lengths], &[])
}

/// The length of each row, which is at least this.
fn lengths(graph: &mut Graph, at: &str, x: &str, least: f64) -> String {
    let lengths = graph.node(at, "ReduceL2", &[x], &[("axes", Ints(vec![1])), ("keepdims", Int(1))]);
    let least = graph.float(at, least);
    graph.node(at, "Max", &[&lengths, &least], &[])
}
