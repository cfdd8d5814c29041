//! Personal models in one graph: the global and the local expert, and the gate that weighs them (Guo et al. 2021).

use shared::personalisation::{Method, Mix, PersonalModel};

use super::graph::Attribute::Int;
use super::graph::{Graph, reshaped};
use super::layers::Layers;
use crate::export::ExportError;

/// The logits of the mixture for the value `x`, and the shape of those of a sample. Of a mixture of probabilities they are the
/// logarithms of these, which a softmax leaves as they are.
pub(super) fn mixed(
    graph: &mut Graph,
    model: &PersonalModel,
    x: &str,
) -> Result<(String, Vec<usize>), ExportError> {
    let architecture = &model.architecture;
    if model.method == Method::Ft {
        let mut local = Layers { graph, params: &model.local, prefix: "personal.".to_owned() };
        let given = local.network(architecture, x)?;
        return Ok((given.logits, given.output));
    }
    let mut global = Layers { graph, params: &model.global, prefix: "global.".to_owned() };
    let global = global.network(architecture, x)?;
    let classifier = architecture.classifier()?;
    let mut local = Layers { graph, params: &model.local, prefix: "personal.".to_owned() };
    let local = local.network(&classifier, &global.features)?.logits;
    let weight = match model.method {
        Method::Ft | Method::Fb => return Ok((local, global.output)),
        Method::Fixed => graph.float("gate", 0.5),
        Method::Mf => gate(graph, model, x, &global.output),
        Method::Mfe => gate(graph, model, &global.features, &global.output),
    };
    let [of_global, of_local] = match model.mix {
        Mix::Logits => [global.logits, local],
        Mix::Probabilities => [global.logits, local]
            .map(|logits| graph.node("mixture", "Softmax", &[&logits], &[("axis", Int(-1))])),
    };
    // local + g (global - local)
    let apart = graph.node("mixture", "Sub", &[&of_global, &of_local], &[]);
    let share = graph.node("mixture", "Mul", &[&apart, &weight], &[]);
    let sum = graph.node("mixture", "Add", &[&of_local, &share], &[]);
    let logits = match model.mix {
        Mix::Logits => sum,
        Mix::Probabilities => {
            // A probability that is 0 in single precision has no logarithm.
            let least = graph.float("mixture", f64::from(f32::MIN_POSITIVE));
            let positive = graph.node("mixture", "Max", &[&sum, &least], &[]);
            graph.node("mixture", "Log", &[&positive], &[])
        }
    };
    Ok((logits, global.output))
}

/// The weight of the global expert: of each sample, or of each position of a text, as the `output` of the network is.
fn gate(graph: &mut Graph, model: &PersonalModel, inputs: &str, output: &[usize]) -> String {
    let gate = model.gate.as_ref().expect("the parts of a personal model were checked when it was read");
    let (weights, bias) = gate.parts();
    let rows = [&output[..output.len() - 1], &[weights.len()]].concat();
    let inputs = reshaped(graph, "gate", inputs, &rows);
    let weights = graph.floats("gate.weight", &[weights.len(), 1], weights);
    let product = graph.node("gate", "MatMul", &[&inputs, &weights], &[]);
    let bias = graph.float("gate", f64::from(bias));
    let sum = graph.node("gate", "Add", &[&product, &bias], &[]);
    graph.node("gate", "Sigmoid", &[&sum], &[])
}
