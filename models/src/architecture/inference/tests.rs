use super::super::specs::MAX_NAME;
use super::*;

fn grouped(out: usize, groups: usize) -> Layer {
    Layer::GroupedConv { name: "g".into(), out, kernel: 3, stride: 1, padding: 1, groups, bias: false }
}

fn conv(out: usize, kernel: usize, stride: usize, padding: usize) -> Layer {
    Layer::Conv { name: "c".into(), out, kernel, stride, padding, bias: true }
}

fn linear(out: usize) -> Layer {
    Layer::Linear { name: "f".into(), out, bias: true }
}

fn max_pool(size: usize, stride: usize) -> Layer {
    Layer::MaxPool { size, stride, partial: false }
}

fn response(size: usize, alpha: f64, beta: f64, k: f64) -> Layer {
    Layer::LocalResponseNorm { size, alpha, beta, k }
}

fn network(input: &[usize], extractor: Vec<Layer>, head: Vec<Layer>) -> Architecture {
    let (name, input) = ("test".into(), input.to_vec());
    Architecture {
        name,
        input,
        classes: 3,
        initialisation: Initialisation::Uniform,
        extractor,
        projection: vec![],
        head,
        ..Architecture::default()
    }
}

#[test]
fn shapes_fans_and_counts_follow_the_formulas() {
    // (11 + 2 - 4) / 2 + 1 = 5 and (9 + 2 - 4) / 2 + 1 = 4, pooled to 1 x 1.
    let pool = max_pool(3, 3);
    let network = network(&[2, 11, 9], vec![conv(5, 4, 2, 1), pool, Layer::Flatten], vec![linear(3)]);
    let specs = network.parameter_specs().unwrap();
    let row =
        |spec: &ParameterSpec| (spec.name.clone(), spec.shape.clone(), spec.fan_in, spec.fan_out, spec.kind);
    assert_eq!(
        specs.iter().map(row).collect::<Vec<_>>(),
        [
            ("extractor.c.weight".into(), vec![5, 2, 4, 4], 32, 80, ParameterKind::Weight),
            ("extractor.c.bias".into(), vec![5], 32, 80, ParameterKind::Bias),
            ("head.f.weight".into(), vec![3, 5], 5, 3, ParameterKind::Weight),
            ("head.f.bias".into(), vec![3], 5, 3, ParameterKind::Bias),
        ]
    );
    assert_eq!(network.parameters(), Ok(160 + 5 + 15 + 3));
    assert_eq!(network.multiply_adds(), Ok(160 * 20 + 15));
}

#[test]
fn errors_name_the_layer_what_it_got_and_what_it_needed() {
    let error = |network: Architecture| network.parameter_specs().unwrap_err().to_string();
    assert_eq!(
        error(network(&[1, 4, 4], vec![Layer::Relu], vec![linear(3)])),
        "layer `head.f` needs [features], so a flatten layer before it and gets the shape [1, 4, 4]"
    );
    assert_eq!(
        error(network(&[1, 4, 4], vec![conv(2, 5, 1, 0)], vec![])),
        "layer `extractor.c` needs at least 5 x 5 pixels with the padding and gets the shape [1, 4, 4]"
    );
    assert_eq!(
        error(network(&[1, 4, 4], vec![Layer::Relu, max_pool(5, 5)], vec![])),
        "layer `extractor.max-pool-2` needs at least 5 x 5 pixels and gets the shape [1, 4, 4]"
    );
    assert_eq!(
        error(network(&[4], vec![], vec![linear(2)])),
        "the head gives the shape [2] and 3 classes need [3] or [positions, 3]"
    );
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let problem =
        |network: Architecture| matches!(network.parameter_specs(), Err(ArchitectureError::Layer { .. }));
    for layer in [
        conv(0, 1, 1, 0),
        conv(1, 0, 1, 0),
        conv(1, 1, 0, 0),
        conv(1, 2, 1, 2),
        grouped(4, 0),
        Layer::BatchNormWith { name: "n".into(), epsilon: 0.0, momentum: 0.1 },
        Layer::BatchNormWith { name: "n".into(), epsilon: 1e-5, momentum: 1.0 },
        Layer::ZeroPad { pixels: 5 },
        Layer::Attention { heads: 0, causal: false },
        Layer::LayerNorm { name: "n".into(), epsilon: 0.0 },
        Layer::LayerNorm { name: "n".into(), epsilon: f64::NAN },
        grouped(4, 3),
        linear(0),
        max_pool(0, 1),
        Layer::Dropout { rate: 1.0 },
        Layer::Dropout { rate: -0.1 },
        Layer::Dropout { rate: f64::NAN },
        response(0, 1.0, 1.0, 1.0),
        response(1, -1.0, 1.0, 1.0),
        response(1, 1.0, f64::NAN, 1.0),
        response(1, f64::INFINITY, 1.0, 1.0),
        response(1, 1.0, 1.0, 0.0),
        response(1, 1.0, 1.0, 1e-60),
        max_pool(256, 1),
        Layer::AvgPool { size: 1, stride: 0 },
        Layer::Lstm { name: "l".into(), hidden: 0 },
        Layer::Embedding { name: "e".into(), vocabulary: 0, dim: 1 },
        Layer::Embedding { name: "e".into(), vocabulary: (1 << 24) + 1, dim: 1 },
        Layer::Linear { name: "a.b".into(), out: 1, bias: true },
        Layer::Linear { name: String::new(), out: 1, bias: true },
    ] {
        assert!(problem(network(&[1, 4, 4], vec![layer.clone()], vec![])), "{layer:?}");
    }
    assert!(problem(network(&[4], vec![linear(3), linear(3)], vec![])));
    assert!(problem(network(&[0, 4, 4], vec![Layer::Flatten], vec![linear(3)])));
    // The same name in two parts is two names.
    assert!(network(&[4], vec![linear(3)], vec![linear(3)]).parameter_specs().is_ok());
}

#[test]
fn groups_divide_the_weights_and_the_work() {
    let whole = |layer| {
        let network = network(&[6, 5, 5], vec![layer, Layer::GlobalAvgPool], vec![linear(3)]);
        let specs = network.parameter_specs();
        specs.map(|specs| (specs[0].shape.clone(), specs[0].fan_in, network.multiply_adds().unwrap()))
    };
    assert_eq!(whole(grouped(6, 6)), Ok((vec![6, 1, 3, 3], 9, 25 * 54 + 18)));
    assert_eq!(whole(grouped(12, 3)), Ok((vec![12, 2, 3, 3], 18, 25 * 216 + 36)));
    assert_eq!(
        whole(grouped(8, 4)).unwrap_err().to_string(),
        "layer `extractor.g` needs channels that 4 groups divide and gets the shape [6, 5, 5]"
    );
}

#[test]
fn a_squeeze_gives_a_factor_for_each_channel() {
    let block =
        |body| network(&[2, 5, 4], vec![Layer::SqueezeExcite { body }, Layer::Flatten], vec![linear(3)]);
    assert_eq!(block(vec![conv(2, 1, 1, 0), Layer::Sigmoid]).parameters(), Ok(6 + 123));
    assert_eq!(block(vec![Layer::Flatten, linear(2)]).parameters(), Ok(6 + 123));
    let error = |network: Architecture| network.parameter_specs().unwrap_err().to_string();
    assert_eq!(
        error(block(vec![conv(3, 1, 1, 0)])),
        "layer `extractor.squeeze-excite-1` scales 2 channels by what its body gives, which has the shape [3, 1, 1]"
    );
    assert_eq!(
        error(network(&[4], vec![Layer::SqueezeExcite { body: vec![] }], vec![linear(3)])),
        "layer `extractor.squeeze-excite-1` needs [channels, height, width] and gets the shape [4]"
    );
    let simplex = Layer::SimplexEtf { name: "s".into() };
    assert_eq!(network(&[4], vec![], vec![linear(3), simplex.clone()]).parameters(), Ok(15 + 1));
    let one = network(&[4], vec![linear(1), simplex], vec![]);
    assert!(error(one).contains("needs at least two classes"));
    let norm = Layer::LayerNorm { name: "n".into(), epsilon: 1e-5 };
    assert_eq!(network(&[4], vec![norm.clone()], vec![linear(3)]).parameters(), Ok(8 + 15));
    assert!(
        error(network(&[2, 5, 4], vec![norm], vec![])).contains("needs [features] or [positions, features]")
    );
}

#[test]
fn sequences_have_positions_and_attention_takes_three_of_each_feature() {
    let attention = |heads| Layer::Attention { heads, causal: false };
    let token = Layer::ClassToken { name: "t".into() };
    let positions = Layer::Positions { name: "p".into() };
    let layers =
        vec![conv(6, 2, 2, 0), Layer::ToSequence, token, positions, attention(2), Layer::FirstPosition];
    let whole = network(&[1, 4, 6], layers, vec![linear(3)]);
    let shapes: Vec<Vec<usize>> =
        whole.parameter_specs().unwrap().into_iter().map(|spec| spec.shape).collect();
    assert_eq!(shapes[2..4], [vec![1, 1, 6], vec![1, 7, 6]]);
    assert_eq!(whole.multiply_adds(), Ok(6 * 24 + 7 * 7 * 4 + 6));
    let error = |layers| network(&[1, 4, 6], layers, vec![]).parameter_specs().unwrap_err().to_string();
    assert_eq!(
        error(vec![Layer::ToSequence, attention(1)]),
        "layer `extractor.attention-2` needs [positions, features], of which a third are queries, keys and values \
         that 1 heads divide and gets the shape [24, 1]"
    );
    assert!(error(vec![conv(6, 1, 1, 0), Layer::ToSequence, attention(4)]).contains("4 heads divide"));
    for layer in [Layer::MeanPositions, Layer::SinusoidalPositions, attention(1)] {
        assert!(error(vec![layer]).contains("needs [positions, features] and gets"));
    }
}

#[test]
fn windows_may_overlap_and_leave_gaps() {
    for (size, stride, expected) in [(3, 2, [2, 5, 4]), (2, 3, [2, 4, 3]), (3, 1, [2, 9, 7])] {
        for pool in [max_pool(size, stride), Layer::AvgPool { size, stride }] {
            let [channels, rows, columns] = expected;
            let mut network = network(&[2, 11, 9], vec![pool, Layer::Flatten], vec![]);
            network.classes = channels * rows * columns;
            assert_eq!(network.parameters(), Ok(0));
        }
    }
    // By 2 three apart, the fourth column of windows would begin beyond the ninth pixel.
    for (size, stride, expected) in [(3, 2, 2 * 5 * 4), (2, 3, 2 * 4 * 3), (2, 2, 2 * 6 * 5)] {
        let pool = Layer::MaxPool { size, stride, partial: true };
        let mut network =
            network(&[2, 11, 9], vec![pool, response(5, 1e-4, 0.75, 1.0), Layer::Flatten], vec![]);
        network.classes = expected;
        assert_eq!(network.parameters(), Ok(0));
    }
    let global = network(&[3, 5, 4], vec![Layer::GlobalAvgPool], vec![]);
    assert_eq!(global.predictions(), Ok(1));
}

#[test]
fn normalisation_has_a_scale_and_buffers_that_are_no_parameters() {
    let norm = |name: &str| Layer::BatchNorm { name: name.into() };
    let group = |groups| Layer::GroupNorm { name: "g".into(), groups };
    let both = network(&[4, 2, 1], vec![norm("n"), group(4), Layer::Flatten, norm("m")], vec![linear(3)]);
    let specs = both.parameter_specs().unwrap();
    let row = |spec: &ParameterSpec| (spec.name.clone(), spec.kind, spec.initial);
    assert_eq!(
        specs[..4].iter().map(row).collect::<Vec<_>>(),
        [
            ("extractor.n.weight".into(), ParameterKind::Weight, Initial::One),
            ("extractor.n.bias".into(), ParameterKind::Bias, Initial::Zero),
            ("extractor.n.running-mean".into(), ParameterKind::Buffer, Initial::Zero),
            ("extractor.n.running-var".into(), ParameterKind::Buffer, Initial::One),
        ]
    );
    assert_eq!(specs.iter().filter(|spec| spec.kind == ParameterKind::Buffer).count(), 4);
    assert_eq!(both.parameters(), Ok(8 + 8 + 16 + 27));
    // Four channels of one pixel in four groups: a group of one value has no variance.
    for refused in [group(0), group(3), group(8)] {
        let error = network(&[4, 2, 1], vec![refused], vec![]).parameter_specs();
        assert!(matches!(error, Err(ArchitectureError::Input { .. })), "{error:?}");
    }
    assert!(network(&[4], vec![group(2)], vec![linear(3)]).parameter_specs().is_ok());
    assert!(network(&[4], vec![group(4)], vec![linear(3)]).parameter_specs().is_err());
    assert!(network(&[4, 2], vec![norm("n")], vec![]).parameter_specs().is_err());
}

#[test]
fn branches_must_agree_and_share_their_names_with_the_part() {
    let block = |body, shortcut| Layer::Residual { body, shortcut };
    let wide = |name: &str| Layer::Linear { name: name.into(), out: 4, bias: false };
    let layers = vec![block(vec![wide("a"), Layer::Relu, wide("b")], vec![]), block(vec![], vec![wide("c")])];
    let specs = network(&[4], layers, vec![linear(3)]).parameter_specs().unwrap();
    let names: Vec<_> = specs.iter().map(|spec| spec.name.as_str()).collect();
    let expected = ["extractor.a.weight", "extractor.b.weight", "extractor.c.weight"];
    assert_eq!(names, [&expected[..], &["head.f.weight", "head.f.bias"]].concat());

    let error = |layers| network(&[4], layers, vec![linear(3)]).parameter_specs().unwrap_err();
    let narrow = vec![block(vec![linear(3)], vec![])];
    assert_eq!(
        error(vec![block(vec![Layer::Relu, block(narrow, vec![])], vec![])]).to_string(),
        "layer `extractor.residual-1.body.residual-2.body.residual-1` adds its body, which gives the shape [3], to \
         its shortcut, which gives [4]"
    );
    for twice in [
        vec![block(vec![wide("a")], vec![wide("a")])],
        vec![wide("a"), block(vec![wide("a")], vec![])],
        vec![block(vec![block(vec![wide("a")], vec![])], vec![]), wide("a")],
    ] {
        assert!(matches!(error(twice), ArchitectureError::Layer { layer, .. } if layer == "extractor.a"));
    }
}

#[test]
fn sequences_are_predicted_at_every_position() {
    let embedding = Layer::Embedding { name: "e".into(), vocabulary: 7, dim: 2 };
    let lstm = Layer::Lstm { name: "l".into(), hidden: 5 };
    let text = network(&[6], vec![embedding.clone(), lstm.clone()], vec![linear(3)]);
    let specs = text.parameter_specs().unwrap();
    let row = |spec: &ParameterSpec| (spec.name.clone(), spec.shape.clone(), spec.initial);
    let initial = Initial::Uniform { fan: 5 };
    assert_eq!(
        specs[..4].iter().map(row).collect::<Vec<_>>(),
        [
            ("extractor.e.weight".into(), vec![7, 2], Initial::Normal),
            ("extractor.l.weight-ih".into(), vec![20, 2], initial),
            ("extractor.l.weight-hh".into(), vec![20, 5], initial),
            ("extractor.l.bias".into(), vec![20], initial),
        ]
    );
    assert_eq!(text.parameters(), Ok(14 + 40 + 100 + 20 + 18));
    assert_eq!(text.multiply_adds(), Ok(6 * (40 + 100 + 15)));
    assert_eq!(text.predictions(), Ok(6));
    assert!(network(&[6, 2], vec![embedding], vec![]).parameter_specs().is_err());
    assert!(network(&[6], vec![lstm], vec![]).parameter_specs().is_err());
}

#[test]
fn strides_may_leave_more_over_on_one_axis_than_on_the_other() {
    for (height, width, layer, expected) in [
        // 6 + 0 - 3 = 3 leaves one over, 5 - 3 = 2 none.
        (6, 5, conv(1, 3, 2, 0), 4),
        (7, 5, conv(1, 3, 2, 0), 6),
        // 1 + 4 - 3 = 2 left over of a height of 1.
        (1, 1, conv(1, 3, 3, 2), 1),
    ] {
        let mut network = network(&[1, height, width], vec![layer, Layer::Flatten], vec![]);
        network.classes = expected;
        assert_eq!(network.parameters(), Ok(10));
    }
}

#[test]
fn a_hostile_architecture_is_refused_before_anything_is_allocated() {
    let huge = usize::MAX / 2 + 1;
    for network in [
        network(&[huge, 2, 1], vec![], vec![]),
        network(&[1, 4, 4], vec![conv(huge, 2, 1, 1)], vec![]),
        network(&[1, 4, 4], vec![conv(1, huge, 1, huge - 1)], vec![]),
        network(&[1, 4, 4], vec![conv(1, 1 << 20, 1, (1 << 20) - 1)], vec![]),
        network(&[1 << 20], vec![linear(1 << 11)], vec![]),
        network(&[huge], vec![Layer::Embedding { name: "e".into(), vocabulary: 2, dim: huge }], vec![]),
        network(&[1 << 20, 2], vec![Layer::Lstm { name: "l".into(), hidden: huge }], vec![]),
        network(&[1 << 20, 2], vec![Layer::Lstm { name: "l".into(), hidden: 257 }], vec![]),
        // 4 027 windows of 4 000 x 4 000 in a row.
        network(&[1, 28, 28], vec![conv(1, 4000, 1, 3999)], vec![]),
        // 2^30 weights applied 2^45 times.
        network(&[1, 1 << 30, 1], vec![conv(1, 1 << 15, 1, (1 << 15) - 1)], vec![]),
    ] {
        let error = network.parameter_specs().unwrap_err();
        assert!(
            matches!(error, ArchitectureError::TooLarge { .. } | ArchitectureError::Input { .. }),
            "{error}"
        );
    }
}

#[test]
fn absurd_networks_are_refused_with_numbers() {
    let error = |network: Architecture| network.parameter_specs().unwrap_err().to_string();
    assert_eq!(
        error(network(&[1 << 20], vec![linear(1 << 11)], vec![])),
        "layer `extractor.f` brings the model to 2147483648 parameters; 1073741824 are the limit"
    );
    assert_eq!(
        error(network(&[1, 1 << 15, 1 << 15], vec![conv(2, 1, 1, 0)], vec![])),
        "layer `extractor.c` brings the model to 2147483648 values at once; 1073741824 are the limit"
    );
    // Each of the layers is as large as a layer may be, and their sum is too large.
    let relus = vec![Layer::Relu; 3];
    assert_eq!(
        error(network(&[1 << 28], [relus.clone(), relus.clone()].concat(), vec![])),
        "layer `extractor.relu-4` brings the model to 1342177280 values that a pass of one sample keeps; 1073741824 \
         are the limit"
    );
    assert!(
        error(network(&[usize::MAX, 2, 2], vec![], vec![])).contains(&format!("more than {}", usize::MAX))
    );

    let many = |count| network(&[3], vec![Layer::Relu; count], vec![]);
    assert!(many(MAX_LAYERS).parameter_specs().is_ok());
    assert!(error(many(MAX_LAYERS + 1)).contains("`extractor.relu-601`"));
    // Blocks count as layers, and so do the layers in them.
    let block = Layer::Residual { body: vec![Layer::Relu], shortcut: vec![Layer::Relu] };
    assert!(network(&[3], vec![block.clone(); MAX_LAYERS / 3], vec![]).parameter_specs().is_ok());
    assert!(network(&[3], vec![block; MAX_LAYERS / 3 + 1], vec![]).parameter_specs().is_err());

    let named = |length| {
        let name = "n".repeat(length);
        network(&[3], vec![], vec![Layer::Linear { name, out: 3, bias: true }]).parameter_specs()
    };
    assert!(named(MAX_NAME).is_ok() && named(MAX_NAME + 1).is_err());
    assert_eq!(network(&[4], vec![Layer::Relu], vec![linear(3)]).activations(), Ok(4 + 4 + 3));
}
