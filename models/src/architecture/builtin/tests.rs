use rand_chacha::rand_core::SeedableRng;

use super::*;
use crate::architecture::{ArchitectureError, ParameterKind, ParameterSpec};

#[test]
fn parameter_counts_are_those_of_the_papers() {
    for (name, input, count) in [
        ("cnn-cifar", [3, 24, 24], 1_068_298),
        ("vgg-16", [3, 32, 32], 15_245_130),
        ("resnet-50", [3, 32, 32], 23_520_842),
        ("moon-cnn", [3, 32, 32], 92_626),
        ("resnet-9", [3, 32, 32], 6_568_640),
        ("resnet-18", [3, 32, 32], 11_173_962),
        ("mlp-2nn", [1, 28, 28], 199_210),
        ("mlp-25m", [1, 28, 28], 25_021_930),
        ("cnn-mnist", [1, 28, 28], 1_663_370),
        ("lenet-5", [1, 28, 28], 61_706),
        ("lenet-5", [3, 32, 32], 62_006),
        ("linear", [1, 28, 28], 7_850),
        ("cnn-small", [1, 28, 28], 9_226),
    ] {
        let architecture = Architecture::by_name(name, &input, 10).unwrap();
        assert_eq!(architecture.parameters(), Ok(count), "{name} on {input:?}");
        let params = architecture.initialise(|_| rand_chacha::ChaCha8Rng::from_seed([0; 32])).unwrap();
        assert_eq!(params.parameters(), count, "{name}");
    }
    // At any size of images, without their buffers.
    for (name, count) in [("mobilenet-v2", 2_236_682), ("mobilenet-v3-small", 1_528_106)] {
        for side in [32, 33, 96, 224] {
            assert_eq!(Architecture::by_name(name, &[3, side, side], 10).unwrap().parameters(), Ok(count));
        }
    }
    // As torchvision counts them.
    for (name, count) in [
        ("mobilenet-v2", 3_504_872),
        ("mobilenet-v3-small", 2_542_856),
        ("resnet-18-imagenet", 11_689_512),
        ("resnet-50-imagenet", 25_557_032),
        ("vgg-16-imagenet", 138_357_544),
    ] {
        let of_imagenet = Architecture::by_name(name, &[3, 224, 224], 1000).unwrap();
        assert_eq!(of_imagenet.parameters(), Ok(count), "{name}");
    }
    let vision =
        |side, classes| Architecture::by_name("vit-tiny", &[3, side, side], classes).unwrap().parameters();
    // As timm counts it.
    assert_eq!(vision(224, 1000), Ok(5_717_416));
    assert_eq!(vision(32, 10), Ok(5_489_482));
    for (length, vocabulary) in [(80, 65), (128, 256)] {
        let text = Architecture::by_name("text-transformer", &[length], vocabulary).unwrap();
        assert_eq!((text.parameters(), text.predictions()), (Ok(3_159_552 + 513 * vocabulary), Ok(length)));
    }
    for vocabulary in [2, 65, 90] {
        let text = Architecture::by_name("char-lstm", &[80], vocabulary).unwrap();
        assert_eq!(text.parameters(), Ok(796_672 + 265 * vocabulary));
        assert_eq!(text.predictions(), Ok(80));
    }
    let words = Architecture::by_name("word-lstm", &[10], 10_000).unwrap();
    assert_eq!((words.parameters(), words.predictions()), (Ok(4_949_776), Ok(10)));
}

/// As the authors' program of PFL-MoE has it: half of the values are dropped before each linear layer but the first.
#[test]
fn the_head_of_vgg_16_has_two_dropouts() {
    let vgg = Architecture::by_name("vgg-16", &[3, 32, 32], 10).unwrap();
    let kinds = vgg.head.iter().map(|layer| match layer {
        Layer::Linear { .. } => "linear",
        Layer::Relu => "relu",
        Layer::Dropout { rate: 0.5 } => "half is dropped",
        other => panic!("{other:?}"),
    });
    let expected = ["linear", "relu", "half is dropped", "linear", "relu", "half is dropped", "linear"];
    assert!(kinds.eq(expected), "{:?}", vgg.head);
}

#[test]
fn texts_are_told_apart_by_models_that_read_tokens() {
    let variant = Variant { vocabulary: Some(257), ..Variant::default() };
    for (name, parameters) in [
        ("char-lstm", 796_672 + 8 * 257 + 257 * 4),
        ("word-lstm", 459_776 + 192 * 257 + 257 * 4),
        ("text-transformer", 3_159_552 + 256 * 257 + 257 * 4),
    ] {
        let text = Architecture::variant(name, &[100], 4, variant).unwrap();
        assert_eq!((text.vocabulary(), text.predictions()), (Some(257), Ok(1)), "{name}");
        assert_eq!(text.parameters(), Ok(parameters), "{name}");
    }
    let refused = Architecture::variant("lenet-5", &[3, 32, 32], 4, variant).unwrap_err();
    assert!(refused.to_string().contains("char-lstm and text-transformer and word-lstm do"), "{refused}");
}

#[test]
fn the_norm_can_be_chosen_where_there_is_one() {
    // Counts of the same networks in PyTorch, for ten classes.
    for (name, norm, parameters, buffers) in [
        ("resnet-18", Norm::None, 11_169_162, 0),
        ("resnet-18", Norm::Batch, 11_173_962, 9_600),
        ("resnet-18", Norm::Group, 11_173_962, 0),
        ("resnet-50", Norm::None, 23_494_282, 0),
        ("resnet-50", Norm::Batch, 23_520_842, 53_120),
        ("resnet-50", Norm::Group, 23_520_842, 0),
    ] {
        let variant = Variant { norm: Some(norm), ..Variant::default() };
        let architecture = Architecture::variant(name, &[3, 32, 32], 10, variant).unwrap();
        assert_eq!(architecture.parameters(), Ok(parameters), "{name} {norm:?}");
        let specs = architecture.parameter_specs().unwrap();
        let kept = specs.iter().filter(|spec| spec.kind == ParameterKind::Buffer);
        assert_eq!(kept.map(|spec| spec.shape[0]).sum::<usize>(), buffers, "{name} {norm:?}");
        let own = Architecture::by_name(name, &[3, 32, 32], 10).unwrap();
        assert_eq!(own == architecture, norm == Norm::Group, "{name} {norm:?}");
    }
    let variant = Variant { norm: Some(Norm::Batch), ..Variant::default() };
    let error = Architecture::variant("lenet-5", &[3, 32, 32], 10, variant).unwrap_err();
    assert_eq!(error.to_string(), "`lenet-5` has no normalisation to choose; resnet-18 and resnet-50 have");
}

#[test]
fn names_in_blocks_read_like_those_of_the_libraries() {
    let names = |name: &str| -> Vec<String> {
        let architecture = Architecture::by_name(name, &[3, 32, 32], 10).unwrap();
        architecture.parameter_specs().unwrap().into_iter().map(|spec| spec.name).collect()
    };
    assert!(names("resnet-18").contains(&"extractor.layer2-0-shortcut-conv.weight".to_owned()));
    let expected =
        ["features-0-0.weight", "features-0-1.weight", "features-0-1.bias", "features-0-1.running-mean"];
    assert_eq!(names("mobilenet-v2")[..4], expected.map(|name| format!("extractor.{name}")));
    for name in
        ["extractor.features-1-conv-0-0.weight", "extractor.features-2-conv-3.bias", "head.classifier-1.bias"]
    {
        assert!(names("mobilenet-v2").contains(&name.to_owned()), "{name}");
    }
    for name in
        ["features-1-block-1-fc1.weight", "features-4-block-2-fc2.bias", "features-11-block-3-1.running-var"]
    {
        assert!(names("mobilenet-v3-small").contains(&format!("extractor.{name}")), "{name}");
    }
    for name in ["bn1.running-mean", "layer2-0-downsample-1.weight", "layer4-1-conv2.weight"] {
        assert!(names("resnet-18-imagenet").contains(&format!("extractor.{name}")), "{name}");
    }
    for name in ["extractor.features-28.weight", "head.classifier-6.bias"] {
        assert!(names("vgg-16-imagenet").contains(&name.to_owned()), "{name}");
    }
    for name in ["cls_token.weight", "blocks-11-attn-qkv.weight", "blocks-0-mlp-fc2.bias", "norm.weight"] {
        assert!(names("vit-tiny").contains(&format!("extractor.{name}")), "{name}");
    }
    let expected = ["conv1", "conv2", "block1-conv1", "block1-conv2", "conv3", "conv4", "block2-conv1"];
    for (found, expected) in names("resnet-9").iter().zip(expected) {
        assert_eq!(*found, format!("extractor.{expected}.weight"));
    }
}

#[test]
fn the_registry_is_ordered_and_every_entry_works() {
    assert!(BUILT_INS.is_sorted_by(|a, b| a.name < b.name));
    for built_in in BUILT_INS {
        for classes in [2, 10, 62] {
            let architecture = Architecture::by_name(built_in.name, built_in.input, classes).unwrap();
            assert_eq!(architecture.name, built_in.name);
            assert!(architecture.multiply_adds().unwrap() > 0);
            for part in ["extractor", "head"] {
                assert!(
                    architecture.parts().iter().any(|(name, layers)| *name == part && !layers.is_empty())
                );
            }
            let json = serde_json::to_string(&architecture).unwrap();
            assert_eq!(serde_json::from_str::<Architecture>(&json).unwrap(), architecture);
        }
        assert!(built_in.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
        assert!(!built_in.summary.is_empty());
    }
}

#[test]
fn the_stored_form_is_readable() {
    let json = r#"{"name":"mine","input":[1,4,4],"classes":2,
        "extractor":[{"conv":{"name":"c","out":2,"kernel":3,"stride":1,"padding":1,"bias":false}},"relu",
                     {"max-pool":{"size":2,"stride":2}},"flatten"],
        "projection":[],"head":[{"linear":{"name":"out","out":2,"bias":true}}]}"#;
    let architecture: Architecture = serde_json::from_str(json).unwrap();
    assert_eq!(architecture.parameters(), Ok(18 + 18));
    let unknown = json.replace("\"bias\":false", "\"bias\":false,\"groups\":2");
    assert!(serde_json::from_str::<Architecture>(&unknown).unwrap_err().to_string().contains("groups"));
}

#[test]
fn an_unknown_name_lists_the_known_ones_and_a_bad_input_is_refused() {
    let error = Architecture::by_name("lenet", &[1, 28, 28], 10).unwrap_err();
    assert!(error.to_string().contains("lenet-5, linear"), "{error}");
    assert!(matches!(
        Architecture::by_name("lenet-5", &[784], 10),
        Err(ArchitectureError::Input { layer, .. }) if layer == "extractor.conv1"
    ));
    assert!(Architecture::by_name("mlp-2nn", &[1, 28, 28], 0).is_err());
}

/// The names and shapes of torchvision's and timm's tensors, by `models/tests/golden/names.py`.
#[test]
fn tensors_are_those_of_torchvision_and_timm_in_their_order() {
    let golden = include_str!("../../../tests/golden/names.txt");
    let mut models: Vec<&str> = golden.lines().filter_map(|line| line.split(' ').next()).collect();
    models.dedup();
    assert_eq!(models.len(), 6);
    for model in models {
        let lines = golden.lines().filter_map(|line| line.strip_prefix(model)?.strip_prefix(' '));
        let mut expected: Vec<String> = lines.map(str::to_owned).collect();
        let architecture = Architecture::by_name(model, &[3, 224, 224], 1000).unwrap();
        let mut found: Vec<String> = architecture.parameter_specs().unwrap().iter().map(theirs).collect();
        if model == "vit-tiny" {
            // The class token and the positions come before the patches there.
            expected[..4].sort();
            found[..4].sort();
        }
        assert_eq!(found, expected, "{model}");
    }
}

#[test]
fn a_network_looks_ahead_by_attention_that_is_not_causal() {
    for (model, input, ahead) in [
        ("text-transformer", &[16][..], false),
        ("char-lstm", &[16], false),
        ("vit-tiny", &[3, 64, 64], true),
    ] {
        assert_eq!(Architecture::by_name(model, input, 10).unwrap().looks_ahead(), ahead, "{model}");
    }
}

/// What a tensor is called there, and its shape: `extractor.features-0-1.running-mean` is `features.0.1.running_mean`.
fn theirs(spec: &ParameterSpec) -> String {
    let (label, kind) = spec.name.rsplit_once('.').unwrap();
    let (_, layer) = label.split_once('.').unwrap();
    let name = match layer {
        // There, they are tensors and not layers.
        "cls_token" | "pos_embed" => layer.to_owned(),
        layer => format!("{}.{}", layer.replace('-', "."), kind.replace('-', "_")),
    };
    let shape: Vec<String> = spec.shape.iter().map(usize::to_string).collect();
    format!("{name} {}", shape.join("x"))
}

#[test]
fn a_projection_stands_between_features_and_head() {
    let variant = Variant { projection: Some(256), ..Variant::default() };
    let resnet = Architecture::variant("resnet-50", &[3, 32, 32], 100, variant).unwrap();
    let plain = Architecture::by_name("resnet-50", &[3, 32, 32], 100).unwrap();
    // 2048 to 2048 to 256, and a head of 256 to 100 in place of 2048 to 100.
    let added = (2048 * 2048 + 2048) + (2048 * 256 + 256) + 256 * 100 - 2048 * 100;
    assert_eq!(resnet.parameters().unwrap(), plain.parameters().unwrap() + added);
    // The model's own is of that length already.
    let moon = Architecture::variant("moon-cnn", &[3, 32, 32], 10, variant).unwrap();
    assert_eq!(moon, Architecture::by_name("moon-cnn", &[3, 32, 32], 10).unwrap());
    let text = Architecture::variant("char-lstm", &[80], 65, variant).unwrap_err();
    assert!(matches!(text, ArchitectureError::NoProjection { .. }), "{text}");
}
