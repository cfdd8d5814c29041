//! Training: a network and an optimiser.

use crate::architecture::Architecture;
use crate::batch::Batch;
use crate::correction::Correction;
use crate::cpu::Descent;
use crate::device::Backend;
use crate::error::ModelError;
use crate::loss::cross_entropy;
use crate::masks::Masks;
use crate::mode::Mode;
use crate::network::{Network, OutputGradients};
use crate::params::ParamSet;
use crate::sgd::Sgd;
use crate::threads::attended;

/// A network that learns: cross-entropy, stochastic gradient descent.
///
/// Deterministic on the CPU: the same parameters and batches give the same bytes, whatever the number of threads.
#[derive(Debug)]
pub struct Learner {
    network: Network,
    sgd: Sgd,
    /// The greatest length of a gradient that is followed.
    clip: Option<f64>,
    /// Steps since the parameters were loaded.
    steps: u64,
    /// What dropout's masks come from; absent if nobody has said.
    seed: Option<[u8; 32]>,
    drops_out: bool,
    /// Batches learned from since the learner was made.
    passes: u64,
    /// The multiply-adds of a forward pass of one sample.
    multiply_adds: u64,
    /// The gradients by the logits and by the representation, kept for their memory.
    by: LossGradients,
}

/// A further term of the loss, a function of the representation: given it, the term writes its gradient by it, as long, and
/// gives its value.
pub type Term<'a> = dyn FnMut(&[f32], &mut Vec<f32>) -> f32 + Send + 'a;

/// A loss in place of the cross-entropy, a function of what the network gave for a batch and of its parameters: it writes its
/// gradients and gives its value.
pub type Loss<'a> = dyn FnMut(&Network, &mut LossGradients) -> Result<f32, ModelError> + Send + 'a;

/// The gradients of a loss, to be written by it. What an earlier batch has left there does not count, and has to be replaced.
#[derive(Clone, Debug, Default)]
pub struct LossGradients {
    /// By [`Network::representation`], as long; empty if the loss does not depend on it.
    pub representation: Vec<f32>,
    /// By [`Network::logits`], as long.
    pub logits: Vec<f32>,
    /// By parameters, as far as the loss depends on them directly: their names, and values as many as theirs.
    pub parameters: Vec<(String, Vec<f32>)>,
}

impl Learner {
    /// A learner that starts from these parameters, with no velocity.
    ///
    /// # Errors
    /// As [`Network::new`].
    pub fn new(
        architecture: &Architecture,
        params: &ParamSet,
        sgd: Sgd,
        backend: &Backend,
    ) -> Result<Self, ModelError> {
        let network = Network::new(architecture, params, backend)?;
        let multiply_adds = architecture.multiply_adds()?;
        let drops_out = architecture.drops_out();
        Ok(Self {
            network,
            sgd,
            clip: None,
            steps: 0,
            seed: None,
            drops_out,
            passes: 0,
            multiply_adds,
            by: LossGradients::default(),
        })
    }

    /// [`Learner::new`] in the memory of a learner that is done, if that had the same architecture on the CPU: clients that take
    /// turns on one thread need not allocate a network each.
    ///
    /// # Errors
    /// As [`Learner::new`].
    pub fn after(
        done: Option<Self>,
        architecture: &Architecture,
        params: &ParamSet,
        sgd: Sgd,
        backend: &Backend,
    ) -> Result<Self, ModelError> {
        let on_cpu = |backend: &Backend| backend.tensor_device().is_none();
        let suits = |done: &Self| {
            done.network.architecture() == architecture && on_cpu(backend) && on_cpu(done.network.backend())
        };
        let Some(mut done) = done.filter(suits) else { return Self::new(architecture, params, sgd, backend) };
        done.load(params)?;
        // Every field is named: one that is added has to be thought of here.
        let Self { network, sgd: _, clip: _, steps: _, seed: _, drops_out, passes: _, multiply_adds, mut by } =
            done;
        by.representation.clear();
        by.logits.clear();
        by.parameters.clear();
        Ok(Self { network, sgd, clip: None, steps: 0, seed: None, drops_out, passes: 0, multiply_adds, by })
    }

    /// Sets what the masks of dropout come from: something of its own for each client in each round, and each learner.
    /// Without it a network with dropout cannot be trained. Each batch that is learned from has masks of its own.
    #[must_use]
    pub fn with_seed(self, seed: [u8; 32]) -> Self {
        Self { seed: Some(seed), ..self }
    }

    /// One step of gradient descent on the mean loss over a batch; gives that loss, from before the step.
    ///
    /// # Errors
    /// [`ModelError::Diverged`] if the loss is not finite, and then the step is not made (but batch normalisation has
    /// seen the batch); [`ModelError::Input`], [`ModelError::Token`], [`ModelError::Label`], [`ModelError::Labels`] or
    /// [`ModelError::OneValue`] if the batch does not fit; [`ModelError::Candle`] if the device fails.
    pub fn step(&mut self, batch: &Batch) -> Result<f32, ModelError> {
        self.step_on(batch, None)
    }

    /// [`Learner::step`] on the cross-entropy and a further term together; gives the cross-entropy alone.
    ///
    /// # Errors
    /// As [`Learner::step`]; [`ModelError::Diverged`] also if the term is not finite.
    pub fn step_with(&mut self, batch: &Batch, term: &mut Term<'_>) -> Result<f32, ModelError> {
        self.step_on(batch, Some(term))
    }

    /// The logits of a batch, labelled or not, under the parameters as they are: a prediction, which changes nothing.
    ///
    /// # Errors
    /// As [`Network::forward`].
    pub fn predict(&mut self, batch: &Batch) -> Result<&[f32], ModelError> {
        let work = self.work(batch);
        attended(work, || self.network.forward(batch.x(), batch.shape(), Mode::Evaluation))?;
        Ok(self.network.logits())
    }

    /// One step of gradient descent on another loss; gives that loss, from before the step. Labels are the loss's affair: the
    /// batch needs none.
    ///
    /// # Errors
    /// As [`Learner::step`], but for those about labels, and those of the loss; [`ModelError::Mismatch`] if a gradient is by
    /// a parameter that there is not.
    ///
    /// # Panics
    /// If a gradient is not as long as what it is by.
    pub fn step_by(&mut self, batch: &Batch, loss: &mut Loss<'_>) -> Result<f32, ModelError> {
        attended(self.work(batch), || {
            self.forward(batch)?;
            let value = loss(&self.network, &mut self.by)?;
            if !value.is_finite() {
                return Err(ModelError::Diverged { step: self.steps, loss: value });
            }
            let gradients = OutputGradients {
                representation: Some(&self.by.representation[..]).filter(|gradient| !gradient.is_empty()),
                logits: Some(&self.by.logits),
                ..OutputGradients::default()
            };
            // What is added to a gradient has to be added before it is followed.
            let descent = if self.by.parameters.is_empty() { self.descent() } else { Descent::Keep };
            self.network.propagate(gradients, descent)?;
            for (parameter, gradient) in &self.by.parameters {
                self.network.add_gradient(parameter, gradient)?;
            }
            self.network.descend(&self.sgd, self.clip)?;
            self.steps += 1;
            Ok(value)
        })
    }

    /// Where a gradient is followed as it is, it is so while it is computed.
    fn descent(&self) -> Descent {
        let plain = self.sgd.momentum == 0.0 && self.sgd.decay == 0.0 && self.clip.is_none();
        if plain { Descent::Now(self.sgd.rate as f32) } else { Descent::Keep }
    }

    fn step_on(&mut self, batch: &Batch, term: Option<&mut Term<'_>>) -> Result<f32, ModelError> {
        let descent = self.descent();
        attended(self.work(batch), || {
            let loss = self.pass(batch, descent, term)?;
            self.network.descend(&self.sgd, self.clip)?;
            self.steps += 1;
            Ok(loss)
        })
    }

    /// The mean loss over a batch and its gradient, without weight decay; that of buffers is 0. Changes nothing but the
    /// buffers of batch normalisation, which follow every batch that is learned from.
    ///
    /// # Errors
    /// As [`Learner::step`].
    pub fn gradient(&mut self, batch: &Batch) -> Result<(f32, ParamSet), ModelError> {
        let loss = attended(self.work(batch), || self.pass(batch, Descent::Keep, None))?;
        Ok((loss, self.network.gradients()?))
    }

    /// One step of the optimiser along a given gradient, which may have been corrected since [`Learner::gradient`]: it is
    /// neither clipped nor corrected any more. Buffers stay, whatever it holds for them.
    ///
    /// # Errors
    /// [`ModelError::Mismatch`] if the gradient does not fit the parameters, [`ModelError::Candle`] if the device fails.
    pub fn apply(&mut self, gradient: &ParamSet) -> Result<(), ModelError> {
        self.network.descend_along(&self.sgd, gradient)?;
        self.steps += 1;
        Ok(())
    }

    /// The parameters. They do not follow later steps.
    ///
    /// # Errors
    /// [`ModelError::Candle`] if the device fails.
    pub fn params(&self) -> Result<ParamSet, ModelError> {
        self.network.read()
    }

    /// Shortens the gradient of the loss to this length, all parameters together, whenever it is longer; `None` for never.
    /// Corrections and weight decay come after that and are not shortened.
    pub fn set_clip(&mut self, clip: Option<f64>) {
        self.clip = clip;
    }

    /// Corrects the gradient in every step from here on, until parameters are loaded; in place of an earlier correction.
    ///
    /// # Errors
    /// [`ModelError::Mismatch`] if a parameter is missing from it or has another shape, [`ModelError::Candle`] if the
    /// device fails.
    pub fn correct(&mut self, correction: &Correction) -> Result<(), ModelError> {
        self.network.correct(correction)
    }

    /// Replaces the parameters, and forgets the velocity, the correction and the number of steps.
    ///
    /// # Errors
    /// As [`Network::load`].
    pub fn load(&mut self, params: &ParamSet) -> Result<(), ModelError> {
        self.network.load(params)?;
        self.steps = 0;
        Ok(())
    }

    /// The optimiser's settings.
    #[must_use]
    pub fn sgd(&self) -> Sgd {
        self.sgd
    }

    /// Changes the optimiser's settings from the next step on; the velocity stays.
    pub fn set_sgd(&mut self, sgd: Sgd) {
        self.sgd = sgd;
    }

    /// The network being trained.
    #[must_use]
    pub fn network(&mut self) -> &mut Network {
        &mut self.network
    }

    /// The multiply-adds that a forward pass of a batch has for the threads of the CPU.
    fn work(&self, batch: &Batch) -> u64 {
        if self.network.backend().tensor_device().is_some() {
            return 0;
        }
        self.multiply_adds.saturating_mul(batch.len() as u64)
    }

    /// The mean loss over a batch, checked to be finite, and a backward pass from it and from the term.
    fn pass(
        &mut self,
        batch: &Batch,
        descent: Descent,
        term: Option<&mut Term<'_>>,
    ) -> Result<f32, ModelError> {
        self.network.check_labels(batch)?;
        self.forward(batch)?;
        let Self { network, by, .. } = self;
        let loss = cross_entropy(network.logits(), batch.y(), &mut by.logits);
        let mut gradients = OutputGradients { logits: Some(&by.logits), ..OutputGradients::default() };
        let mut whole = loss;
        if let Some(term) = term {
            whole += term(network.representation(), &mut by.representation);
            gradients.representation = Some(&by.representation);
        }
        if !whole.is_finite() {
            return Err(ModelError::Diverged { step: self.steps, loss: whole });
        }
        network.propagate(gradients, descent)?;
        Ok(loss)
    }

    /// A forward pass to learn from.
    fn forward(&mut self, batch: &Batch) -> Result<(), ModelError> {
        let seed = match self.seed {
            Some(seed) => seed,
            None if self.drops_out => return Err(ModelError::NoSeed),
            // Nobody asks for masks.
            None => [0; 32],
        };
        self.network.forward(batch.x(), batch.shape(), Mode::Training(Masks::new(seed, self.passes)))?;
        self.passes += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{Rng, SeedableRng};

    use super::*;
    use crate::architecture::{Initialisation, Layer};
    use crate::metrics::evaluate;
    use crate::params::Array;

    /// What the first batch of a learner is run with.
    const TRAINING: Mode = Mode::Training(Masks::new(SEED, 0));
    const SEED: [u8; 32] = [5; 32];

    fn conv(name: &str, out: usize, kernel: usize, stride: usize, padding: usize, bias: bool) -> Layer {
        Layer::Conv { name: name.into(), out, kernel, stride, padding, bias }
    }

    fn linear(name: &str, out: usize, bias: bool) -> Layer {
        Layer::Linear { name: name.into(), out, bias }
    }

    fn max_pool(size: usize, stride: usize) -> Layer {
        Layer::MaxPool { size, stride, partial: false }
    }

    /// Images of which the convolutions of [`uneven`] leave over more on one axis than on the other, or nothing.
    const UNEVEN: [[usize; 3]; 4] = [[1, 6, 5], [1, 7, 6], [1, 8, 8], [1, 1, 4]];

    fn uneven() -> Vec<Layer> {
        let layers = [("a", 3, 1, 1), ("b", 3, 2, 1), ("d", 2, 3, 1)];
        let conv = |(name, kernel, stride, padding)| conv(name, 2, kernel, stride, padding, true);
        layers.map(conv).into_iter().chain([Layer::Flatten]).collect()
    }

    fn start(input: &[usize], extractor: Vec<Layer>, head: Vec<Layer>) -> (Architecture, ParamSet, Batch) {
        let (name, input) = ("test".into(), input.to_vec());
        let architecture = Architecture {
            name,
            input,
            classes: 3,
            initialisation: Initialisation::Uniform,
            extractor,
            projection: vec![],
            head,
        };
        let seed = |name: &str| name.bytes().map(u64::from).sum();
        let params = architecture.initialise(|name| ChaCha8Rng::seed_from_u64(seed(name))).unwrap();
        let batch = noise(&architecture, 4);
        (architecture, params, batch)
    }

    /// Samples without meaning, tokens or pixels, whose labels follow each other as their tokens do.
    fn noise(architecture: &Architecture, samples: usize) -> Batch {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let count = samples * architecture.input.iter().product::<usize>();
        let (classes, shape) = (architecture.classes as u32, [&[samples], &architecture.input[..]].concat());
        if let [Layer::Embedding { vocabulary, .. }, ..] = architecture.extractor[..] {
            let x: Vec<u32> = (0..count).map(|_| rng.next_u32() % vocabulary as u32).collect();
            let y: Vec<u32> = x.iter().map(|token| (token + 1) % classes).collect();
            let labels = samples * architecture.predictions().unwrap();
            return Batch::new(x.iter().map(|&token| token as f32).collect(), shape, y[..labels].to_vec())
                .unwrap();
        }
        let x = (0..count).map(|_| rng.next_u32() as f32 / u32::MAX as f32 * 2.0 - 1.0).collect();
        Batch::new(x, shape, (0..samples as u32).map(|i| i % classes).collect()).unwrap()
    }

    /// The mean loss as in training, in double precision from the logits on.
    fn training_loss(network: &mut Network, batch: &Batch) -> f64 {
        network.forward(batch.x(), batch.shape(), TRAINING).unwrap();
        let rows = network.logits().chunks(network.architecture().classes);
        let loss = |(row, &label): (&[f32], &u32)| {
            row.iter().map(|&logit| f64::from(logit).exp()).sum::<f64>().ln() - f64::from(row[label as usize])
        };
        rows.zip(batch.y()).map(loss).sum::<f64>() / batch.y().len() as f64
    }

    /// Compares every component of the gradient with central differences of the loss.
    fn check_gradient(input: &[usize], extractor: Vec<Layer>, head: Vec<Layer>) {
        let (architecture, params, batch) = start(input, extractor, head);
        let backend = Backend::cpu();
        let mut learner =
            Learner::new(&architecture, &params, Sgd::plain(0.1), &backend).unwrap().with_seed(SEED);
        let (loss, gradient) = learner.gradient(&batch).unwrap();
        assert!((f64::from(loss) - training_loss(learner.network(), &batch)).abs() < 1e-6);
        assert!(gradient.l2_norm() > 1e-2, "a gradient of nothing proves nothing");
        params.check_same_layout(&gradient).unwrap();

        let mut network = Network::new(&architecture, &params, &backend).unwrap();
        let step = 1e-3f32;
        for (name, array) in &gradient {
            for (index, &found) in array.values().iter().enumerate() {
                let mut loss_at = |offset: f32| {
                    let mut moved = params.clone();
                    moved.get_mut(name).unwrap().values_mut()[index] += offset;
                    network.load(&moved).unwrap();
                    training_loss(&mut network, &batch)
                };
                let expected = (loss_at(step) - loss_at(-step)) / f64::from(2.0 * step);
                assert!((f64::from(found) - expected).abs() < 5e-4, "{name}[{index}]: {found}, {expected}");
            }
        }
    }

    #[test]
    fn a_step_follows_its_own_batch_alone() {
        let head = vec![linear("a", 4, true), Layer::Relu, linear("b", 3, true)];
        let (architecture, params, batch) = start(&[5], vec![], head);
        for sgd in [Sgd::plain(0.1), Sgd { rate: 0.1, momentum: 0.9, decay: 0.0 }] {
            let learner = || Learner::new(&architecture, &params, sgd, &Backend::cpu()).unwrap();
            let mut plain = learner();
            plain.step(&batch).unwrap();
            // The gradient of some other loss was computed before, and nobody read it.
            let mut used = learner();
            let network = used.network();
            network.forward(batch.x(), batch.shape(), TRAINING).unwrap();
            let other = vec![1.0; network.logits().len()];
            network.backward(OutputGradients { logits: Some(&other), ..OutputGradients::default() }).unwrap();
            used.step(&batch).unwrap();
            assert_eq!(used.params().unwrap(), plain.params().unwrap());
        }
    }

    #[test]
    fn a_loss_of_ones_own_is_descended_on_as_the_cross_entropy_is() {
        let head = vec![linear("a", 4, true), Layer::Relu, linear("b", 3, true)];
        let (architecture, params, batch) = start(&[5], vec![], head);
        let learner = || Learner::new(&architecture, &params, Sgd::plain(0.1), &Backend::cpu()).unwrap();
        let unlabelled = Batch::unlabelled(batch.x().to_vec(), batch.shape()).unwrap();
        let (mut by_labels, mut own) = (learner(), learner());
        assert!(matches!(own.step(&unlabelled), Err(ModelError::Labels { labels: 0, .. })));
        for _ in 0..3 {
            let expected = by_labels.step(&batch).unwrap();
            let logits = own.predict(&unlabelled).unwrap().to_vec();
            let found = own.step_by(&unlabelled, &mut |network, by| {
                assert_eq!(network.logits(), logits, "a prediction is what a step of this network sees");
                Ok(cross_entropy(network.logits(), batch.y(), &mut by.logits))
            });
            assert_eq!(found.unwrap(), expected);
        }
        assert_eq!(own.params().unwrap(), by_labels.params().unwrap());
        let diverged = own.step_by(&unlabelled, &mut |_, _| Ok(f32::NAN));
        assert!(matches!(diverged, Err(ModelError::Diverged { .. })));
    }

    #[test]
    fn gradient_of_linear() {
        check_gradient(&[5], vec![linear("a", 4, true)], vec![linear("b", 3, true)]);
        check_gradient(&[5], vec![], vec![linear("b", 3, false)]);
    }

    #[test]
    fn gradient_of_relu() {
        check_gradient(&[5], vec![linear("a", 6, true), Layer::Relu], vec![linear("b", 3, true)]);
    }

    #[test]
    fn gradient_of_convolution() {
        // Two in a row, so that the gradient of the input is tested too; the strides leave rows over.
        for (size, stride, padding) in [(6, 1, 0), (6, 1, 1), (6, 2, 1), (7, 2, 1), (8, 3, 2)] {
            let extractor =
                vec![conv("a", 2, 3, 1, 1, true), conv("b", 2, 3, stride, padding, false), Layer::Flatten];
            check_gradient(&[2, size, size], extractor, vec![linear("c", 3, true)]);
        }
        for input in UNEVEN {
            check_gradient(&input, uneven(), vec![linear("c", 3, true)]);
        }
    }

    #[test]
    fn gradient_of_pooling() {
        for (size, stride, input) in [(2, 2, 6), (2, 2, 7), (3, 3, 7), (3, 2, 7), (2, 1, 4), (1, 2, 4)] {
            for pool in [max_pool(size, stride), Layer::AvgPool { size, stride }] {
                let mut extractor = vec![conv("a", 2, 3, 1, 1, true), pool.clone(), Layer::Flatten];
                // A mean has the kinks of all rectifiers before it, on which differences mean nothing.
                if matches!(pool, Layer::MaxPool { .. }) {
                    extractor.insert(1, Layer::Relu);
                }
                check_gradient(&[1, input, input], extractor, vec![linear("c", 3, true)]);
            }
        }
        let extractor = vec![conv("a", 4, 3, 1, 1, true), Layer::GlobalAvgPool];
        check_gradient(&[1, 4, 3], extractor, vec![linear("c", 3, true)]);
    }

    #[test]
    fn gradient_of_normalisation() {
        let norms =
            || [Layer::BatchNorm { name: "n".into() }, Layer::GroupNorm { name: "n".into(), groups: 2 }];
        for norm in norms() {
            let extractor = vec![conv("a", 4, 3, 1, 1, true), norm, Layer::Flatten];
            check_gradient(&[1, 4, 3], extractor, vec![linear("c", 3, true)]);
        }
        for norm in norms() {
            check_gradient(&[5], vec![linear("a", 6, true), norm], vec![linear("c", 3, true)]);
        }
    }

    #[test]
    fn gradient_of_blocks() {
        let block = |body, shortcut| Layer::Residual { body, shortcut };
        let inner = block(vec![linear("b", 4, true), Layer::Relu], vec![]);
        let outer = block(vec![linear("a", 4, true), inner], vec![linear("s", 4, false)]);
        check_gradient(&[5], vec![outer, block(vec![], vec![])], vec![linear("c", 3, true)]);
    }

    #[test]
    fn gradient_of_dropout() {
        let dropout = || Layer::Dropout { rate: 0.4 };
        let extractor = vec![dropout(), linear("a", 8, true), dropout(), Layer::Relu];
        check_gradient(&[5], extractor, vec![linear("b", 3, true)]);
        let block =
            Layer::Residual { body: vec![linear("b", 8, true), dropout()], shortcut: vec![dropout()] };
        check_gradient(&[5], vec![linear("a", 8, true), block], vec![linear("c", 3, true)]);
    }

    #[test]
    fn dropout_is_of_the_seed_in_training_and_of_nothing_in_evaluation() {
        let layers = vec![linear("a", 64, true), Layer::Dropout { rate: 0.5 }];
        let (architecture, params, batch) = start(&[5], layers, vec![linear("b", 3, true)]);
        let learner =
            |backend: &Backend| Learner::new(&architecture, &params, Sgd::plain(0.1), backend).unwrap();
        let losses = |seed: [u8; 32], backend: &Backend| -> Vec<f32> {
            let mut learner = learner(backend).with_seed(seed);
            // The parameters stay, so that the masks alone make a difference.
            (0..3).map(|_| learner.gradient(&batch).unwrap().0).collect()
        };
        let first = losses([1; 32], &Backend::cpu());
        assert_eq!(first, losses([1; 32], &Backend::cpu()));
        assert_ne!(first, losses([2; 32], &Backend::cpu()));
        assert!(first[0] != first[1] && first[1] != first[2], "{first:?}");
        for (found, expected) in losses([1; 32], &Backend::tensors()).iter().zip(&first) {
            assert!((found - expected).abs() < 1e-5, "{found} {expected}");
        }
        assert!(matches!(learner(&Backend::cpu()).step(&batch), Err(ModelError::NoSeed)));

        // Evaluation is that of the network without the layer.
        let plain = Architecture { extractor: architecture.extractor[..1].to_vec(), ..architecture.clone() };
        for backend in [Backend::cpu(), Backend::tensors()] {
            let outputs = |architecture: &Architecture, mode: Mode| {
                let mut network = Network::new(architecture, &params, &backend).unwrap();
                network.forward(batch.x(), batch.shape(), mode).unwrap();
                (network.features().to_vec(), network.logits().to_vec())
            };
            assert_eq!(outputs(&architecture, Mode::Evaluation), outputs(&plain, Mode::Evaluation));
            let (kept, all) = (outputs(&architecture, TRAINING).0, outputs(&plain, TRAINING).0);
            assert!(kept.iter().zip(&all).all(|(kept, all)| *kept == 0.0 || *kept == 2.0 * all));
            let dropped = kept.iter().filter(|value| **value == 0.0).count();
            assert!((80..176).contains(&dropped), "{dropped} of 256");
        }
    }

    #[test]
    fn gradient_of_sequences() {
        let embedding = Layer::Embedding { name: "e".into(), vocabulary: 5, dim: 3 };
        let lstm = |name: &str, hidden| Layer::Lstm { name: name.into(), hidden };
        let head = || vec![linear("c", 3, true)];
        // A prediction per position, and one of all positions together.
        check_gradient(&[4], vec![embedding.clone(), lstm("a", 4), lstm("b", 2)], head());
        check_gradient(&[3], vec![embedding, lstm("a", 3), Layer::Flatten], head());
    }

    #[test]
    fn buffers_follow_the_batches_and_nothing_else() {
        let layers = vec![Layer::BatchNorm { name: "n".into() }];
        let (architecture, params, batch) = start(&[5], layers, vec![linear("b", 3, true)]);
        let sgd = Sgd { rate: 0.1, momentum: 0.9, decay: 0.5 };
        let mut learner = Learner::new(&architecture, &params, sgd, &Backend::cpu()).unwrap();
        let (_, gradient) = learner.gradient(&batch).unwrap();
        let buffers = |params: &ParamSet| {
            ["running-mean", "running-var"]
                .map(|name| params.get(&format!("extractor.n.{name}")).unwrap().clone())
        };
        assert!(buffers(&gradient).iter().all(|array| array.values().iter().all(|&g| g == 0.0)));
        let seen = buffers(&learner.params().unwrap());
        assert_ne!(seen, buffers(&params));
        // Weight decay would halve them.
        learner.apply(&gradient).unwrap();
        evaluate(learner.network(), [&batch]).unwrap();
        assert_eq!(buffers(&learner.params().unwrap()), seen);
        learner.step(&batch).unwrap();
        assert_ne!(buffers(&learner.params().unwrap()), seen);
    }

    #[test]
    fn a_learner_after_another_is_as_if_new() {
        let layers = vec![
            conv("a", 4, 3, 1, 1, true),
            Layer::BatchNorm { name: "n".into() },
            Layer::Relu,
            Layer::Dropout { rate: 0.5 },
            Layer::Flatten,
        ];
        let mut networks = vec![start(&[1, 6, 6], layers, vec![linear("b", 3, true)])];
        for name in ["mlp-2nn", "lenet-5", "cnn-mnist"] {
            let architecture = Architecture::by_name(name, &[1, 28, 28], 3).unwrap();
            let rng = |name: &str| ChaCha8Rng::seed_from_u64(name.len() as u64);
            let params = architecture.initialise(rng).unwrap();
            let batch = noise(&architecture, 4);
            networks.push((architecture, params, batch));
        }
        for (architecture, params, first) in networks {
            let (name, then) = (&architecture.name, noise(&architecture, 3));
            let plain = Sgd::plain(0.1);
            let mut used =
                Learner::new(&architecture, &params, Sgd { momentum: 0.9, ..plain }, &Backend::cpu())
                    .unwrap()
                    .with_seed([9; 32]);
            used.set_clip(Some(0.01));
            let anchor = Some((0.3, used.params().unwrap()));
            used.correct(&Correction { anchor, ..Correction::default() }).unwrap();
            used.step(&first).unwrap();
            used.gradient(&first).unwrap();
            let left = used.params().unwrap();
            let before: Vec<u32> = bits(&left);
            let mut after =
                Learner::after(Some(used), &architecture, &params, plain, &Backend::cpu()).unwrap();
            let mut fresh = Learner::new(&architecture, &params, plain, &Backend::cpu()).unwrap();
            after = after.with_seed(SEED);
            fresh = fresh.with_seed(SEED);
            assert_eq!(after.gradient(&then).unwrap(), fresh.gradient(&then).unwrap(), "{name}");
            for batch in [&first, &then] {
                assert_eq!(after.step(batch).unwrap(), fresh.step(batch).unwrap(), "{name}");
            }
            assert_eq!(bits(&after.params().unwrap()), bits(&fresh.params().unwrap()), "{name}");
            assert_eq!(bits(&left), before, "what was read from the learner before stays");
            // Another architecture: nothing of the first is used.
            let other = Architecture::by_name("linear", &architecture.input, 3).unwrap();
            let params = other.initialise(|_| ChaCha8Rng::seed_from_u64(1)).unwrap();
            let other = Learner::after(Some(after), &other, &params, plain, &Backend::cpu()).unwrap();
            assert_eq!(other.params().unwrap(), params);
        }
    }

    fn bits(params: &ParamSet) -> Vec<u32> {
        params.iter().flat_map(|(_, array)| array.values()).map(|value| value.to_bits()).collect()
    }

    #[test]
    fn a_step_is_the_gradient_applied() {
        let layers = vec![linear("a", 6, true), Layer::Relu];
        let (architecture, params, batch) = start(&[5], layers, vec![linear("b", 3, true)]);
        let sgd = Sgd { rate: 0.1, momentum: 0.9, decay: 0.01 };
        let mut stepped = Learner::new(&architecture, &params, sgd, &Backend::cpu()).unwrap();
        let mut applied = Learner::new(&architecture, &params, sgd, &Backend::cpu()).unwrap();
        for _ in 0..3 {
            let loss = stepped.step(&batch).unwrap();
            let (same, gradient) = applied.gradient(&batch).unwrap();
            assert_eq!(loss, same);
            applied.apply(&gradient).unwrap();
        }
        assert_eq!(stepped.params().unwrap(), applied.params().unwrap());
        // Loading forgets the velocity: from here on it is as if new.
        stepped.load(&params).unwrap();
        let mut fresh = Learner::new(&architecture, &params, sgd, &Backend::cpu()).unwrap();
        for _ in 0..2 {
            assert_eq!(stepped.step(&batch).unwrap(), fresh.step(&batch).unwrap());
        }
        assert_eq!(stepped.params().unwrap(), fresh.params().unwrap());
        let mut bad = params.clone();
        bad.insert("z", Array::zeros([1]));
        assert!(matches!(fresh.apply(&bad), Err(ModelError::Mismatch(_))));
    }

    /// Candle's operations on the CPU, and on the CUDA device where there is one: says so where there is none.
    fn other_backends() -> Vec<Backend> {
        let mut backends = vec![Backend::tensors()];
        if cfg!(feature = "cuda") {
            match Backend::cuda() {
                Ok(cuda) => backends.push(cuda),
                Err(error) => eprintln!("skipped on CUDA: {error}: {:?}", error.source()),
            }
        }
        backends
    }

    /// Compares the loss of a batch and its gradient with those of our own engine.
    fn check_agreement(architecture: &Architecture, params: &ParamSet, batch: &Batch) {
        let gradient = |backend: &Backend| {
            let mut learner = Learner::new(architecture, params, Sgd::plain(0.1), backend).unwrap();
            learner.gradient(batch).unwrap()
        };
        let (loss, ours) = gradient(&Backend::cpu());
        for backend in other_backends() {
            let subject = format!("{} on {}", architecture.name, backend.name());
            let (expected, theirs) = gradient(&backend);
            assert!((loss - expected).abs() < 1e-5, "{subject}: {loss} {expected}");
            for (name, array) in &theirs {
                let scale = array.values().iter().fold(0.0f32, |max, value| max.max(value.abs()));
                for (found, expected) in ours.get(name).unwrap().values().iter().zip(array.values()) {
                    let error = (found - expected).abs();
                    assert!(error <= 1e-4 * scale, "{subject}, {name}: {found} {expected}");
                }
            }
        }
    }

    #[test]
    fn both_engines_agree() {
        for built_in in crate::architecture::BUILT_INS {
            let architecture = Architecture::by_name(built_in.name, built_in.input, 10).unwrap();
            if architecture.parameters().unwrap() > 2_000_000 {
                continue;
            }
            let params =
                architecture.initialise(|name| ChaCha8Rng::seed_from_u64(name.len() as u64)).unwrap();
            check_agreement(&architecture, &params, &noise(&architecture, 3));
        }
    }

    #[test]
    fn both_engines_agree_on_what_convolutions_leave_over() {
        for input in UNEVEN {
            let (architecture, params, batch) = start(&input, uneven(), vec![linear("c", 3, true)]);
            check_agreement(&architecture, &params, &batch);
        }
    }

    #[test]
    fn both_engines_learn_alike() {
        let block = vec![conv("b", 4, 3, 1, 1, false), Layer::BatchNorm { name: "n".into() }, Layer::Relu];
        let layers = vec![
            conv("a", 4, 3, 2, 1, true),
            Layer::Relu,
            Layer::Residual { body: block, shortcut: vec![] },
            max_pool(2, 2),
            Layer::Flatten,
        ];
        let (architecture, params, batch) = start(&[2, 9, 8], layers, vec![linear("c", 3, true)]);
        let sgd = Sgd { rate: 0.05, momentum: 0.9, decay: 0.01 };
        let train = |backend: &Backend| {
            let mut learner = Learner::new(&architecture, &params, sgd, backend).unwrap();
            let losses: Vec<f32> = (0..10).map(|_| learner.step(&batch).unwrap()).collect();
            (losses, learner.params().unwrap())
        };
        let (losses, ours) = train(&Backend::cpu());
        assert!(losses[9] < losses[0] / 2.0, "{losses:?}");
        for backend in other_backends() {
            let (expected, theirs) = train(&backend);
            for (found, expected) in losses.iter().zip(&expected) {
                assert!((found - expected).abs() < 1e-4, "{}: {losses:?} {expected:?}", backend.name());
            }
            let distance = ours.clone().difference(&theirs).unwrap().l2_norm();
            assert!(distance < 1e-4 * ours.l2_norm(), "{}: {distance}", backend.name());
        }
    }

    #[test]
    fn every_built_in_learns_a_batch_by_heart() {
        for built_in in crate::architecture::BUILT_INS {
            // Of the large ones a small case: the test is whether they learn.
            let (input, samples, rate) = match built_in.name {
                "char-lstm" => (&[12][..], 4, 0.5),
                "word-lstm" => (&[10][..], 4, 0.5),
                // Deep for its start, which it leaves slowly.
                "moon-cnn" => (built_in.input, 4, 0.05),
                "resnet-18" | "resnet-50" => (&[3, 8, 8][..], 4, 0.005),
                "vgg-16" => (built_in.input, 2, 0.002),
                "resnet-9" => (built_in.input, 2, 0.02),
                _ => (built_in.input, 10, 0.02),
            };
            let architecture = Architecture::by_name(built_in.name, input, 10).unwrap();
            let params =
                architecture.initialise(|name| ChaCha8Rng::seed_from_u64(name.len() as u64)).unwrap();
            let batch = noise(&architecture, samples);
            let sgd = Sgd { rate, momentum: 0.9, decay: 0.0 };
            let mut learner = Learner::new(&architecture, &params, sgd, &Backend::cpu()).unwrap();
            let first = learner.step(&batch).unwrap();
            let learned = (1..400).any(|_| {
                // Momentum may carry it past, so that what it knows after the step counts too.
                let loss = learner.step(&batch).unwrap_or_else(|error| panic!("{}: {error}", built_in.name));
                loss < first / 5.0 && evaluate(learner.network(), [&batch]).unwrap().accuracy > 0.9
            });
            assert!(learned, "{}: {first}, {:?}", built_in.name, evaluate(learner.network(), [&batch]));
        }
    }

    #[test]
    fn divergence_names_the_step_and_leaves_the_parameters() {
        let (architecture, params, batch) = start(&[5], vec![], vec![linear("b", 3, true)]);
        let mut learner = Learner::new(&architecture, &params, Sgd::plain(0.1), &Backend::cpu()).unwrap();
        learner.step(&batch).unwrap();
        let infinite = Batch::new(vec![f32::MAX; 10], [2, 5], vec![0, 1]).unwrap();
        let before = learner.params().unwrap();
        let mut large = before.clone();
        large.scale(1e3);
        learner.apply(&before.difference(&large).unwrap()).unwrap();
        let grown = learner.params().unwrap();
        let error = learner.step(&infinite).unwrap_err();
        assert!(matches!(error, ModelError::Diverged { step: 2, loss } if !loss.is_finite()), "{error}");
        assert_eq!(learner.params().unwrap(), grown);
    }

    #[test]
    fn a_batch_that_does_not_fit_is_refused() {
        let (architecture, params, _) = start(&[5], vec![], vec![linear("b", 3, true)]);
        let mut learner = Learner::new(&architecture, &params, Sgd::plain(0.1), &Backend::cpu()).unwrap();
        let narrow = Batch::new(vec![0.0; 4], [1, 4], vec![0]).unwrap();
        assert!(matches!(learner.step(&narrow), Err(ModelError::Input { .. })));
        let label = Batch::new(vec![0.0; 5], [1, 5], vec![3]).unwrap();
        assert!(matches!(learner.step(&label), Err(ModelError::Label { label: 3, classes: 3 })));
        let twice = Batch::new(vec![0.0; 5], [1, 5], vec![0, 1]).unwrap();
        let error = learner.step(&twice).unwrap_err();
        assert!(matches!(error, ModelError::Labels { predictions: 1, labels: 2 }), "{error}");
    }

    #[test]
    fn sequences_take_a_label_per_position_and_tokens_of_the_vocabulary() {
        let embedding = Layer::Embedding { name: "e".into(), vocabulary: 5, dim: 2 };
        let (architecture, params, batch) = start(&[4], vec![embedding], vec![linear("c", 3, true)]);
        let mut learner = Learner::new(&architecture, &params, Sgd::plain(0.1), &Backend::cpu()).unwrap();
        assert_eq!((batch.len(), batch.y().len()), (4, 16));
        learner.step(&batch).unwrap();
        assert_eq!(evaluate(learner.network(), [&batch]).unwrap().samples, 16);
        assert_eq!(crate::metrics::predict(learner.network(), &batch).unwrap().len(), 16);
        let error = learner.step(&Batch::new(vec![0.0; 4], [1, 4], vec![0]).unwrap()).unwrap_err();
        assert!(matches!(error, ModelError::Labels { predictions: 4, labels: 1 }), "{error}");
        let error =
            learner.step(&Batch::new(vec![0.0, 1.0, 5.0, 2.0], [1, 4], vec![0; 4]).unwrap()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the token 5 is not one of the 5 in the vocabulary, which are whole numbers from 0"
        );
    }
}
