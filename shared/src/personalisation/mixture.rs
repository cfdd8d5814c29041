//! Personal models: a mixture of a global and a local expert, stored on the device.

use models::params::Mismatch;
use models::{Architecture, ArchitectureError, Backend, Batch, Mode, ModelError, Network, ParamSet};

use super::gate::Gate;
use crate::spec::personalisation::{Method, Mix, Unfit};

/// A stored personal model. It never leaves the device.
#[derive(Clone, Debug, PartialEq)]
pub struct PersonalModel {
    /// The personalisation method.
    pub method: Method,
    /// What the mixture is of.
    pub mix: Mix,
    /// The network of both experts.
    pub architecture: Architecture,
    /// All parameters of the global model that the local expert is based on.
    pub global: ParamSet,
    /// The local expert, with the parameter names of the network: all parameters for FT, else those above the extractor.
    pub local: ParamSet,
    /// The gate that weighs the global expert, for MF and MFE.
    pub gate: Option<Gate>,
}

/// A global model that a personal model cannot be based on.
#[derive(Debug, thiserror::Error)]
#[error(
    "the personal model was made on the network {made_on}, and the new global model does not fit it: {difference}. The \
     personal model is kept as it was; name a global model of the network {made_on}, or take part in a run that \
     personalises the new one"
)]
pub struct Misfit {
    /// The network's name.
    pub made_on: String,
    /// The difference.
    pub difference: String,
}

impl PersonalModel {
    /// Replaces the global model. The local expert and the gate do not change and use the new extractor.
    ///
    /// # Errors
    /// [`Misfit`] if it has another network; the personal model is then unchanged.
    pub fn refresh(&mut self, architecture: &Architecture, global: ParamSet) -> Result<(), Misfit> {
        let misfit = |difference| Misfit { made_on: self.architecture.name.clone(), difference };
        let mismatch = |mismatch: Mismatch| misfit(mismatch.to_string());
        self.global.check_same_layout(&global).map_err(mismatch)?;
        let layers = |network: &Architecture| {
            (network.input.clone(), network.classes, network.parts().map(|(_, layers)| layers.to_vec()))
        };
        if layers(&self.architecture) != layers(architecture) {
            return Err(misfit("its parameters are named alike, and its layers are not the same".to_owned()));
        }
        self.global = global;
        Ok(())
    }
}

/// A personal model whose parts do not fit together.
#[derive(Debug, thiserror::Error)]
pub enum Incoherent {
    /// The network tells no classes apart.
    #[error(transparent)]
    Task(#[from] Unfit),
    /// The experts are not those of the network.
    #[error(transparent)]
    Expert(#[from] ModelError),
    /// The gate is not one of the method on this network.
    #[error("{} has a gate of {expected:?} inputs on this network, and there is one of {found:?}", .method.name())]
    Gate {
        /// The method.
        method: Method,
        /// Inputs that its gate has on the network; `None` if there is no gate.
        expected: Option<usize>,
        /// Inputs of the stored gate.
        found: Option<usize>,
    },
}

/// A personal model, ready for predictions.
#[derive(Debug)]
pub struct Mixture {
    method: Method,
    mix: Mix,
    gate: Option<Gate>,
    global: Network,
    local: Network,
}

/// The outputs of a mixture and its experts for the rows of a batch: for each sample, or for each position of a text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The global expert's logits, `[rows, classes]`.
    pub global: Vec<f32>,
    /// The local expert's logits, `[rows, classes]`.
    pub local: Vec<f32>,
    /// The weight of the global expert, `[rows]`: 0 for FT and FB.
    pub weights: Vec<f32>,
    /// The mixture, `[rows, classes]`: logits, or probabilities if these are mixed.
    pub mixed: Vec<f32>,
}

impl Mixture {
    /// Loads a personal model.
    ///
    /// # Errors
    /// [`Incoherent`] if parameters or gate are not those of the network and the method.
    pub fn new(model: &PersonalModel, backend: &Backend) -> Result<Self, Incoherent> {
        Method::tells_classes_apart(&model.architecture)?;
        let found = model.gate.as_ref().map(Gate::inputs);
        let expected = gate_inputs(model.method, &model.architecture).map_err(ModelError::from)?;
        if found != expected {
            return Err(Incoherent::Gate { method: model.method, expected, found });
        }
        let global = Network::new(&model.architecture, &model.global, backend)?;
        let local = if model.method.is_whole() {
            Network::new(&model.architecture, &model.local, backend)?
        } else {
            let classifier = model.architecture.classifier().map_err(ModelError::from)?;
            Network::new(&classifier, &model.local, backend)?
        };
        Ok(Self { method: model.method, mix: model.mix, gate: model.gate.clone(), global, local })
    }

    /// The network of both experts.
    #[must_use]
    pub fn architecture(&self) -> &Architecture {
        self.global.architecture()
    }

    /// What is mixed.
    #[must_use]
    pub fn mix(&self) -> Mix {
        self.mix
    }

    /// The outputs for a batch. Labels are ignored.
    ///
    /// # Errors
    /// As [`Network::forward`].
    pub fn answer(&mut self, batch: &Batch) -> Result<Answer, ModelError> {
        self.global.forward(batch.x(), batch.shape(), Mode::Evaluation)?;
        let activations = self.global.features();
        if self.method.is_whole() {
            self.local.forward(batch.x(), batch.shape(), Mode::Evaluation)?;
        } else {
            let shape = [&[batch.len()], &self.local.architecture().input[..]].concat();
            self.local.forward(activations, &shape, Mode::Evaluation)?;
        }
        let (global, local) = (self.global.logits(), self.local.logits());
        let classes = self.architecture().classes;
        let gate = self.gate.as_ref();
        let weights = weights(self.method, gate, batch.x(), activations, global.len() / classes);
        let mixed = mixed(self.mix, &weights, global, local);
        Ok(Answer { global: global.to_vec(), local: local.to_vec(), weights, mixed })
    }
}

/// The inputs of the gate that a method has on a network: MF's reads the samples, MFE's the activations, in each row.
pub(super) fn gate_inputs(
    method: Method,
    architecture: &Architecture,
) -> Result<Option<usize>, ArchitectureError> {
    let inputs: usize = match method {
        Method::Ft | Method::Fb | Method::Fixed => return Ok(None),
        Method::Mf => architecture.input.iter().product(),
        Method::Mfe => architecture.feature_shape()?.iter().product(),
    };
    Ok(Some(inputs / architecture.predictions()?))
}

/// The weight of the global expert in each row, of the input or of the activations.
pub(super) fn weights(
    method: Method,
    gate: Option<&Gate>,
    x: &[f32],
    activations: &[f32],
    rows: usize,
) -> Vec<f32> {
    let inputs = match method {
        Method::Ft | Method::Fb => return vec![0.0; rows],
        Method::Fixed => return vec![0.5; rows],
        Method::Mf => x,
        Method::Mfe => activations,
    };
    let each = inputs.len() / rows.max(1);
    // Without a gate nothing was learned about it.
    let weigh = |input: &[f32]| gate.map_or(0.5, |gate| gate.weigh(input));
    inputs.chunks_exact(each.max(1)).map(weigh).collect()
}

/// The mixture of each row.
pub(super) fn mixed(mix: Mix, weights: &[f32], global: &[f32], local: &[f32]) -> Vec<f32> {
    let classes = global.len() / weights.len().max(1);
    let pairs = global.chunks_exact(classes.max(1)).zip(local.chunks_exact(classes.max(1)));
    pairs.zip(weights).flat_map(|((global, local), &g)| mix.combine(g, global, local)).collect()
}
