//! Gradients against central differences of the loss.

use super::*;

/// The mean loss as in training, in double precision from the logits on.
pub(super) fn training_loss(network: &mut Network, batch: &Batch) -> f64 {
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
fn gradient_of_linear() {
    check_gradient(&[5], vec![linear("a", 4, true)], vec![linear("b", 3, true)]);
    check_gradient(&[5], vec![], vec![linear("b", 3, false)]);
}

#[test]
fn gradient_of_relu() {
    check_gradient(&[5], vec![linear("a", 6, true), Layer::Relu], vec![linear("b", 3, true)]);
}

#[test]
fn gradient_of_activations() {
    for layer in activations() {
        check_gradient(&[5], vec![linear("a", 6, true), layer], vec![linear("b", 3, true)]);
    }
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
fn gradient_of_convolution_in_groups() {
    for input in [[1, 7, 6], [2, 6, 6]] {
        check_gradient(&input, in_groups(), vec![linear("c", 3, true)]);
    }
}

#[test]
fn gradient_of_squeeze_and_excitation() {
    check_gradient(&[2, 4, 5], excited(), vec![linear("c", 3, true)]);
    // Without parameters in it, of channels that a body without layers weighs by themselves.
    let block = Layer::SqueezeExcite { body: vec![] };
    let extractor = vec![conv("a", 3, 3, 1, 1, true), block, Layer::Flatten];
    check_gradient(&[1, 4, 3], extractor, vec![linear("c", 3, true)]);
    // As the first layer, whose input needs no gradient.
    let body = vec![Layer::Flatten, linear("s", 2, true), Layer::HardSigmoid];
    check_gradient(
        &[2, 3, 3],
        vec![Layer::SqueezeExcite { body }, Layer::Flatten],
        vec![linear("c", 3, true)],
    );
}

#[test]
fn gradient_of_pooling() {
    for (size, stride, input) in [(2, 2, 6), (2, 2, 7), (3, 3, 7), (3, 2, 7), (2, 1, 4), (1, 2, 4)] {
        for pool in [max_pool(size, stride), Layer::AvgPool { size, stride }] {
            let mut extractor = vec![conv("a", 2, 3, 1, 1, true), pool.clone(), Layer::Flatten];
            // A mean has the kinks of all rectifiers before it, at which differences are meaningless.
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
    let norms = || [Layer::BatchNorm { name: "n".into() }, Layer::GroupNorm { name: "n".into(), groups: 2 }];
    for norm in norms() {
        let extractor = vec![conv("a", 4, 3, 1, 1, true), norm, Layer::Flatten];
        check_gradient(&[1, 4, 3], extractor, vec![linear("c", 3, true)]);
    }
    check_gradient(&[5], vec![linear("a", 6, true), layer_norm("n")], vec![linear("c", 3, true)]);
    check_gradient(&[5], vec![linear("a", 6, true)], vec![linear("c", 3, true), simplex_etf("s")]);
    for norm in [layer_norm("n"), simplex_etf("s")] {
        let embedding = Layer::Embedding { name: "e".into(), vocabulary: 5, dim: 6 };
        check_gradient(&[4], vec![embedding, norm, linear("a", 4, true)], vec![linear("c", 3, true)]);
    }
    let own = Layer::BatchNormWith { name: "n".into(), epsilon: 1e-2, momentum: 0.3 };
    let extractor = vec![conv("a", 4, 3, 1, 1, true), own, Layer::ZeroPad { pixels: 2 }, Layer::Flatten];
    check_gradient(&[1, 4, 3], extractor, vec![linear("c", 3, true)]);
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
    let block = Layer::Residual { body: vec![linear("b", 8, true), dropout()], shortcut: vec![dropout()] };
    check_gradient(&[5], vec![linear("a", 8, true), block], vec![linear("c", 3, true)]);
}

#[test]
fn gradient_of_attention() {
    for last in [Layer::FirstPosition, Layer::MeanPositions] {
        check_gradient(&[2, 4, 6], transformer(last), vec![linear("c", 3, true)]);
    }
    check_gradient(&[4], language_model(), vec![linear("c", 3, true)]);
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
