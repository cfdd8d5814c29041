use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::*;
use crate::architecture::{Architecture, Initialisation, Layer};
use crate::batch::Batch;
use crate::device::Backend;
use crate::dropout_masks::Masks;
use crate::kernels::noise;
use crate::mode::Mode;
use crate::network::Network;
use crate::params::ParamSet;
use crate::sgd::Sgd;
use crate::train::Learner;

const HEAD: &str = "head.prototypes.weight";

#[test]
fn supervised_contrast_of_four_hand_made_vectors() {
    // Two classes; with tau = 1/2 the similarities are twice the cosines.
    let z = [1.0, 0.0, 0.6, 0.8, 0.0, 1.0, -1.0, 0.0];
    let labels = [0, 0, 1, 1];
    let mut gradient = Vec::new();
    let found = supervised_contrast(&z, &labels, 0.5, &mut gradient);
    // s12 = 1.2, s13 = 0, s14 = -2, s23 = 1.6, s24 = -1.2, s34 = 0.
    let term = |own: f64, others: [f64; 2]| (own.exp() + others[0].exp() + others[1].exp()).ln() - own;
    let expected =
        (term(1.2, [0.0, -2.0]) + term(1.2, [1.6, -1.2]) + term(0.0, [0.0, 1.6]) + term(0.0, [-2.0, -1.2]))
            / 4.0;
    assert!((f64::from(found) - expected).abs() < 1e-6, "{found} {expected}");
    // The partner is in the denominator too: without it the loss of one class would be unbounded below.
    let one = supervised_contrast(&z, &[5; 4], 0.5, &mut gradient);
    assert!(f64::from(one) > 3f64.ln(), "the mean of -log of shares of which three sum to 1");
    let equal = supervised_contrast(&[1.0; 4], &[0; 4], 0.07, &mut gradient);
    assert!((equal - 3f32.ln()).abs() < 1e-5);
    assert!(gradient.iter().all(|slope| slope.abs() < 1e-5), "{gradient:?}");
}

#[test]
fn those_without_a_partner_are_no_anchors() {
    let z = [1.0, 0.0, 0.6, 0.8, 0.0, 1.0];
    let mut gradient = vec![3.0; 2];
    assert_eq!(supervised_contrast(&z, &[0, 1, 2], 0.1, &mut gradient), 0.0);
    assert_eq!(gradient, [0.0; 6]);
    let found = supervised_contrast(&z, &[0, 0, 1], 0.5, &mut gradient);
    let term = |own: f64, other: f64| (own.exp() + other.exp()).ln() - own;
    let expected = f64::midpoint(term(1.2, 0.0), term(1.2, 1.6));
    assert!((f64::from(found) - expected).abs() < 1e-6);
}

#[test]
fn prototypes_at_right_angles_are_apart() {
    // P P^T is 4 times the identity: log(1 + 2 exp(-4)).
    let mut prototypes = vec![0.0; 9];
    (0..3).for_each(|class| prototypes[4 * class] = 2.0);
    let found = separation(&prototypes, 3, &mut Vec::new());
    assert!((found - (1.0 + 2.0 * (-4f32).exp()).ln()).abs() < 1e-6);
    assert!((separation(&[0.0; 6], 3, &mut Vec::new()) - 3f32.ln()).abs() < 1e-6);
}

fn architecture() -> Architecture {
    let linear = |name: &str, out, bias| Layer::Linear { name: name.into(), out, bias };
    Architecture {
        name: "test".into(),
        input: vec![4],
        classes: 3,
        initialisation: Initialisation::Uniform,
        extractor: vec![linear("a", 6, true)],
        projection: vec![linear("b", 5, true)],
        head: vec![linear("prototypes", 3, false)],
        ..Architecture::default()
    }
}

fn start() -> (ParamSet, Batch) {
    let seed = |name: &str| name.bytes().map(u64::from).sum();
    let params = architecture().initialise(|name| ChaCha8Rng::seed_from_u64(seed(name))).unwrap();
    (params, Batch::new(noise(6 * 4, 3), [6, 4], vec![0, 1, 2, 0, 1, 1]).unwrap())
}

fn terms(loss: &PrototypeLoss, network: &Network, batch: &Batch, into: &mut LossGradients) -> PrototypeTerms {
    let prototypes = network.parameter(HEAD).unwrap();
    let outputs = Prototyped {
        representation: network.representation(),
        logits: network.logits(),
        prototypes: prototypes.values(),
        labels: batch.y(),
    };
    loss.of(outputs, HEAD, into)
}

/// The gradient of each term alone and of all together, by every parameter of a network, against differences.
#[test]
fn the_gradients_are_those_of_differences() {
    let (params, batch) = start();
    let only = |classify, contrast, separate| PrototypeLoss {
        classify,
        contrast,
        separate,
        temperature: 0.3,
        prototype_temperature: 1.0,
    };
    let sharper = |loss| PrototypeLoss { prototype_temperature: 0.5, ..loss };
    let terms_alone =
        [only(1.0, 0.0, 0.0), only(0.0, 1.0, 0.0), only(0.0, 0.0, 1.0), sharper(only(1.0, 0.0, 0.0))];
    for loss in terms_alone.into_iter().chain([only(2.0, 0.7, 1.5), sharper(only(2.0, 0.7, 1.5))]) {
        for backend in [Backend::cpu(), Backend::candle_on_cpu()] {
            // A step of rate 1 without momentum is the gradient.
            let mut learner = Learner::new(&architecture(), &params, Sgd::plain(1.0), &backend).unwrap();
            let mut whole = 0.0;
            let returned = learner.step_with_loss(&batch, &mut |network, gradients| {
                whole = loss.value(&terms(&loss, network, &batch, gradients));
                Ok(whole)
            });
            assert_eq!(returned.unwrap(), whole);
            let gradient = params.clone().difference(&learner.params().unwrap()).unwrap();
            assert!(gradient.l2_norm() > 1e-2, "a gradient of nothing proves nothing");

            let mut network = Network::new(&architecture(), &params, &Backend::cpu()).unwrap();
            for (name, array) in &gradient {
                for (index, &found) in array.values().iter().enumerate() {
                    let mut at = |offset: f32| {
                        let mut moved = params.clone();
                        moved.get_mut(name).unwrap().values_mut()[index] += offset;
                        network.load(&moved).unwrap();
                        let mode = Mode::Training(Masks::new([0; 32], 0));
                        network.forward(batch.x(), batch.shape(), mode).unwrap();
                        f64::from(loss.value(&terms(&loss, &network, &batch, &mut LossGradients::default())))
                    };
                    let expected = (at(4e-3) - at(-4e-3)) / 8e-3;
                    assert!(
                        (f64::from(found) - expected).abs() < 3e-3,
                        "{loss:?} {name}[{index}]: {found} {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn the_gradient_of_all_parameters_together_is_clipped() {
    let (params, batch) = start();
    let loss = PrototypeLoss {
        classify: 20.0,
        contrast: 10.0,
        separate: 10.0,
        temperature: 0.07,
        prototype_temperature: 1.0,
    };
    for backend in [Backend::cpu(), Backend::candle_on_cpu()] {
        let mut learner = Learner::new(&architecture(), &params, Sgd::plain(1.0), &backend).unwrap();
        learner.set_clip(Some(0.25));
        let step = learner.step_with_loss(&batch, &mut |network, gradients| {
            Ok(loss.value(&terms(&loss, network, &batch, gradients)))
        });
        step.unwrap();
        let length = params.clone().difference(&learner.params().unwrap()).unwrap().l2_norm();
        assert!((length - 0.25).abs() < 1e-5, "{length}");
    }
}

#[test]
fn a_representation_of_zeros_has_no_gradient() {
    let outputs = Prototyped {
        representation: &[0.0, 0.0, 1.0, 0.0],
        logits: &[0.0, 0.0, 1.0, 0.0],
        prototypes: &[1.0, 0.0, 0.0, 1.0],
        labels: &[0, 0],
    };
    let loss = PrototypeLoss {
        classify: 2.0,
        contrast: 1.0,
        separate: 1.0,
        temperature: 0.07,
        prototype_temperature: 1.0,
    };
    let mut gradients = LossGradients::default();
    let terms = loss.of(outputs, HEAD, &mut gradients);
    assert!(loss.value(&terms).is_finite());
    assert_eq!(gradients.representation[..2], [0.0; 2]);
    assert!(gradients.logits[..2] == [0.0; 2] && gradients.logits[2..] != [0.0; 2]);
}
