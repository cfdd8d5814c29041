//! Running an architecture.

use std::collections::{BTreeMap, BTreeSet};

use candle_core::{Tensor, Var};

use crate::architecture::{Architecture, ArchitectureError, ParameterKind};
use crate::batch::Batch;
use crate::device::Backend;
use crate::error::ModelError;
use crate::forward::{Mode, Step, plan, run};
use crate::params::{Array, Mismatch, ParamSet};

/// An architecture with parameters on a device.
///
/// The parameters live in candle variables, which are written in place: a tensor obtained from a network, even by `clone`
/// or `detach`, may change under the next step. Snapshot with [`Network::read`], which copies to host memory.
#[derive(Debug)]
pub struct Network {
    architecture: Architecture,
    backend: Backend,
    variables: BTreeMap<String, Var>,
    /// The names of those variables that no gradient reaches.
    buffers: BTreeSet<String>,
    /// Predictions per sample.
    predictions: usize,
    extractor: Vec<Step>,
    projection: Vec<Step>,
    head: Vec<Step>,
}

impl Network {
    /// A network of this architecture with a copy of these parameters.
    ///
    /// # Errors
    /// [`ModelError::Architecture`], [`ModelError::Mismatch`] if the parameters do not fit it, [`ModelError::Candle`] if
    /// the device fails.
    pub fn new(
        architecture: &Architecture,
        params: &ParamSet,
        backend: &Backend,
    ) -> Result<Self, ModelError> {
        check_fit(architecture, params)??;
        let mut variables = BTreeMap::new();
        for (name, array) in params {
            let variable = Var::from_slice(array.values(), array.shape(), backend.device())
                .map_err(ModelError::candle("moving parameters to the device"))?;
            variables.insert(name.to_owned(), variable);
        }
        let [extractor, projection, head] =
            architecture.parts().map(|(part, layers)| plan(part, part, layers, &variables));
        let specs = architecture.parameter_specs()?.into_iter();
        let buffers = specs.filter(|spec| spec.kind == ParameterKind::Buffer).map(|spec| spec.name);
        Ok(Self {
            architecture: architecture.clone(),
            backend: backend.clone(),
            variables,
            buffers: buffers.collect(),
            predictions: architecture.predictions()?,
            extractor,
            projection,
            head,
        })
    }

    /// Replaces all parameters by copies of these.
    ///
    /// # Errors
    /// [`ModelError::Mismatch`] if they do not fit, and then none is replaced; [`ModelError::Candle`] if the device fails.
    pub fn load(&mut self, params: &ParamSet) -> Result<(), ModelError> {
        self.check_fit(params)?;
        for ((_, variable), (_, array)) in self.variables.iter().zip(params) {
            Tensor::from_slice(array.values(), array.shape(), self.backend.device())
                .and_then(|tensor| variable.set(&tensor))
                .map_err(ModelError::candle("moving parameters to the device"))?;
        }
        Ok(())
    }

    /// A copy of all parameters in host memory.
    ///
    /// # Errors
    /// [`ModelError::Candle`] if the device fails.
    pub fn read(&self) -> Result<ParamSet, ModelError> {
        let copy = |(name, variable): (&String, &Var)| Ok((name.clone(), to_host(variable)?));
        self.variables.iter().map(copy).collect()
    }

    /// The extractor's output for a batch of samples, `[n, ...]`.
    ///
    /// In [`Mode::Training`], here and in what follows, the buffers of batch normalisation move.
    ///
    /// # Errors
    /// [`ModelError::Input`] for samples of another shape, [`ModelError::Token`] for tokens that are not in the
    /// vocabulary, [`ModelError::OneValue`] for too small a batch in training, [`ModelError::Candle`] if the device fails.
    pub fn features(&self, x: &Tensor, mode: Mode) -> Result<Tensor, ModelError> {
        match x.dims() {
            [_, sample @ ..] if sample == self.architecture.input => run(&self.extractor, x.clone(), mode),
            dims => Err(ModelError::Input {
                expected: self.architecture.input.clone(),
                found: dims.get(1..).unwrap_or_default().to_vec(),
            }),
        }
    }

    /// The projection's output for features; the features themselves if there is no projection.
    ///
    /// # Errors
    /// [`ModelError::OneValue`] for too small a batch in training, [`ModelError::Candle`] if the features are not the
    /// extractor's or the device fails.
    pub fn project(&self, features: &Tensor, mode: Mode) -> Result<Tensor, ModelError> {
        run(&self.projection, features.clone(), mode)
    }

    /// The head's output for what [`Network::project`] gives: logits, `[n, classes]`. Of predictions at each of `t`
    /// positions, `[n * t, classes]`, those of a sample next to each other.
    ///
    /// # Errors
    /// As [`Network::project`].
    pub fn classify(&self, representation: &Tensor, mode: Mode) -> Result<Tensor, ModelError> {
        let logits = run(&self.head, representation.clone(), mode)?;
        let rows = (logits.elem_count() / self.architecture.classes, self.architecture.classes);
        logits.reshape(rows).map_err(ModelError::candle("running the network"))
    }

    /// The logits for a batch of samples, `[n, classes]`: all three parts.
    ///
    /// # Errors
    /// As [`Network::features`].
    pub fn logits(&self, x: &Tensor, mode: Mode) -> Result<Tensor, ModelError> {
        self.classify(&self.project(&self.features(x, mode)?, mode)?, mode)
    }

    /// Checks that a batch has a label for each prediction, and that each is one of the classes.
    ///
    /// # Errors
    /// [`ModelError::Labels`] or [`ModelError::Label`].
    pub fn check_labels(&self, batch: &Batch) -> Result<(), ModelError> {
        let (predictions, labels) = (batch.len() * self.predictions, batch.y().len());
        if predictions != labels {
            return Err(ModelError::Labels { predictions, labels });
        }
        batch.check_labels(self.architecture.classes)
    }

    /// What the network is made of.
    #[must_use]
    pub fn architecture(&self) -> &Architecture {
        &self.architecture
    }

    /// Where it runs.
    #[must_use]
    pub fn backend(&self) -> &Backend {
        &self.backend
    }

    /// Whether a parameter is a buffer: a statistic of the data, to which nothing is added along a gradient.
    #[must_use]
    pub fn is_buffer(&self, name: &str) -> bool {
        self.buffers.contains(name)
    }

    /// The variables by name, buffers among them, for optimisers and for objectives that are built on the network's own graph.
    #[must_use]
    pub fn variables(&self) -> &BTreeMap<String, Var> {
        &self.variables
    }

    /// Checks that a set has exactly the names and shapes of the network's parameters.
    pub(crate) fn check_fit(&self, found: &ParamSet) -> Result<(), Mismatch> {
        check_shapes(self.variables.iter().map(|(name, variable)| (name.as_str(), variable.dims())), found)
    }
}

/// Checks that parameters are those that an architecture needs. The outer error is the architecture's, the inner one the
/// parameters'.
pub(crate) fn check_fit(
    architecture: &Architecture,
    found: &ParamSet,
) -> Result<Result<(), Mismatch>, ArchitectureError> {
    let mut specs = architecture.parameter_specs()?;
    specs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(check_shapes(specs.iter().map(|spec| (spec.name.as_str(), spec.shape.as_slice())), found))
}

/// Compares names and shapes; first those that are expected, then those that are too many.
fn check_shapes<'a>(
    expected: impl Iterator<Item = (&'a str, &'a [usize])> + Clone,
    found: &ParamSet,
) -> Result<(), Mismatch> {
    for (name, shape) in expected.clone() {
        let array = found.get(name).ok_or_else(|| Mismatch::missing(name))?;
        if array.shape() != shape {
            return Err(Mismatch::shape(name, shape, array.shape()));
        }
    }
    let mut expected = expected.map(|(name, _)| name);
    // Everything expected was found, so any difference between the two ordered lists is an extra name.
    match found.names().find(|&name| expected.next() != Some(name)) {
        Some(name) => Err(Mismatch::extra(name)),
        None => Ok(()),
    }
}

/// Copies a tensor to host memory.
pub(crate) fn to_host(tensor: &Tensor) -> Result<Array, ModelError> {
    let values = tensor
        .flatten_all()
        .and_then(|flat| flat.to_vec1::<f32>())
        .map_err(ModelError::candle("copying a tensor from the device"))?;
    Ok(Array::new(tensor.dims(), values).expect("a tensor has as many values as its shape says"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::Layer;
    use crate::params::MismatchKind;

    fn architecture() -> Architecture {
        let linear = |name: &str, out| Layer::Linear { name: name.into(), out, bias: false };
        Architecture {
            name: "test".into(),
            input: vec![2],
            classes: 1,
            extractor: vec![linear("a", 2), Layer::Relu],
            projection: vec![linear("b", 1)],
            head: vec![linear("c", 1)],
        }
    }

    fn params() -> ParamSet {
        let mut params = ParamSet::new();
        params.insert("extractor.a.weight", Array::new([2, 2], vec![1.0, 2.0, -1.0, 0.5]).unwrap());
        params.insert("projection.b.weight", Array::new([1, 2], vec![3.0, 7.0]).unwrap());
        params.insert("head.c.weight", Array::new([1, 1], vec![-2.0]).unwrap());
        params
    }

    #[test]
    fn the_three_parts_are_applied_in_order() {
        let network = Network::new(&architecture(), &params(), &Backend::cpu()).unwrap();
        let x = Tensor::new(&[[1.0f32, 1.0]], network.backend().device()).unwrap();
        let values = |tensor: Tensor| tensor.to_vec2::<f32>().unwrap().concat();
        let features = network.features(&x, Mode::Evaluation).unwrap();
        let representation = network.project(&features, Mode::Evaluation).unwrap();
        assert_eq!(values(network.classify(&representation, Mode::Evaluation).unwrap()), [-18.0]);
        assert_eq!(values(network.logits(&x, Mode::Evaluation).unwrap()), [-18.0]);
        assert_eq!(values(features), [3.0, 0.0]);
        assert_eq!(values(representation), [9.0]);
    }

    #[test]
    fn load_and_read_copy() {
        let mut network = Network::new(&architecture(), &params(), &Backend::cpu()).unwrap();
        let before = network.read().unwrap();
        assert_eq!(before, params());
        let mut other = params();
        other.scale(2.0);
        network.load(&other).unwrap();
        assert_eq!(network.read().unwrap(), other);
        // The earlier snapshot has not followed.
        assert_eq!(before, params());
    }

    #[test]
    fn parameters_that_do_not_fit_are_named() {
        let tensor = |params: &ParamSet| match Network::new(&architecture(), params, &Backend::cpu()) {
            Err(ModelError::Mismatch(mismatch)) => mismatch,
            other => panic!("{other:?}"),
        };
        let mut missing = params().select("extractor.");
        missing.insert("projection.b.weight", Array::zeros([1, 2]));
        assert_eq!(tensor(&missing), Mismatch::missing("head.c.weight"));
        for extra in ["a", "head.c.bias", "z"] {
            let mut set = params();
            set.insert(extra, Array::zeros([1]));
            assert_eq!(tensor(&set), Mismatch::extra(extra));
        }
        let mut wrong = params();
        wrong.insert("head.c.weight", Array::zeros([1]));
        assert!(matches!(tensor(&wrong).kind, MismatchKind::Shape { .. }));

        let mut network = Network::new(&architecture(), &params(), &Backend::cpu()).unwrap();
        assert!(network.load(&wrong).is_err());
        assert_eq!(network.read().unwrap(), params());
    }

    #[test]
    fn samples_of_another_shape_are_refused() {
        let network = Network::new(&architecture(), &params(), &Backend::cpu()).unwrap();
        for shape in [&[1usize, 3][..], &[2], &[1, 1, 2], &[]] {
            let x = Tensor::zeros(shape, candle_core::DType::F32, network.backend().device()).unwrap();
            assert!(
                matches!(network.logits(&x, Mode::Evaluation), Err(ModelError::Input { .. })),
                "{shape:?}"
            );
        }
    }
}
