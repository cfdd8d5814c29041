//! Networks as people write them, and as they are read.

mod refusals;

use models::{Architecture, Initialisation, Layer};
use proptest::prelude::*;
use shared::id::RunId;
use toml::Table;

use crate::config::{Config, ConfigErrors, Raw};

fn load(text: &str, overrides: &[&str]) -> Result<Config, ConfigErrors> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("lab.toml");
    std::fs::write(&path, text).expect("a file in it");
    let overrides: Vec<String> = overrides.iter().map(|&given| given.to_owned()).collect();
    Config::read(Some(&path), &overrides, RunId::from_bytes([1; 8]))
}

fn network(text: &str) -> Architecture {
    load(text, &[]).unwrap_or_else(|errors| panic!("{errors}\n{text}")).spec.architecture
}

/// The messages of a configuration with this text, without the folder of the file.
fn mistakes(text: &str, overrides: &[&str]) -> Vec<String> {
    let errors = load(text, overrides).expect_err(text);
    let shown = errors.all().iter().map(ToString::to_string);
    shown
        .map(|text| text.rsplit_once("lab.toml:").map_or(text.clone(), |(_, rest)| rest.to_owned()))
        .collect()
}

/// The CNN of `McMahan` et al. 2017, as a researcher would write it.
const CNN_MNIST: &str = r#"
[model]
layers = [
    { conv = { out = 32, kernel = 5, padding = "same" } }, "relu", { max-pool = 2 },
    { conv = { out = 64, kernel = 5, padding = "same" } }, "relu", { max-pool = 2 },
    "flatten",
    { linear = 512 }, "relu",
    { linear = "classes" },
]
"#;

#[test]
fn a_list_is_the_network_that_it_says() {
    let written = network(CNN_MNIST);
    assert_eq!(written.name, "layers");
    assert_eq!(written.parameters(), Ok(1_663_370));
    let built_in = Architecture::by_name("cnn-mnist", &[1, 28, 28], 10).expect("a built-in");
    assert_eq!(written.extractor[..7], built_in.extractor[..]);
    let names: Vec<String> =
        written.parameter_specs().expect("valid").into_iter().map(|spec| spec.name).collect();
    // The head is the last linear layer.
    let weights: Vec<&String> = names.iter().filter(|name| name.ends_with(".weight")).collect();
    assert_eq!(
        weights,
        [
            "extractor.conv1.weight",
            "extractor.conv2.weight",
            "extractor.linear1.weight",
            "head.linear1.weight"
        ]
    );
}

#[test]
fn parts_can_be_named_and_layers_too() {
    let text = r#"
        [model.layers]
        extractor = ["flatten", { linear = { name = "first", out = 20, bias = false } }, "relu", { linear = 20 }]
        projection = [{ linear = 8 }]
        head = [{ linear = "classes" }]
    "#;
    let specs = network(text).parameter_specs().expect("valid");
    let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "extractor.first.weight",
            "extractor.linear1.weight",
            "extractor.linear1.bias",
            "projection.linear1.weight",
            "projection.linear1.bias",
            "head.linear1.weight",
            "head.linear1.bias"
        ]
    );
}

#[test]
fn automatic_names_keep_out_of_the_way_of_given_ones_also_in_blocks() {
    let text = r#"
        [model]
        layers = [
            { conv = { out = 4, kernel = 3, padding = 1 } },
            { residual = [{ conv = { name = "conv2", out = 4, kernel = 3, padding = 1 } }, "batch-norm"] },
            { residual = { body = [{ group-norm = 2 }], shortcut = [{ conv = { out = 4, kernel = 1 } }] } },
            "global-avg-pool",
            { linear = "classes" },
        ]
    "#;
    let specs = network(text).parameter_specs().expect("valid");
    let names: Vec<&str> = specs.iter().filter_map(|spec| spec.name.strip_suffix(".weight")).collect();
    let expected = ["conv1", "conv2", "norm1", "norm2", "conv3"].map(|name| format!("extractor.{name}"));
    assert_eq!(names[..5], expected);
    assert_eq!(names[5..], ["head.linear1"]);
}

#[test]
fn every_kind_of_layer_can_be_written() {
    let images = r#"
        [model]
        layers = [
            { conv = { out = 6, kernel = 4, stride = 2, padding = 1, bias = false } }, "batch-norm", "relu",
            { zero-pad = 1 }, { batch-norm-with = { epsilon = 1e-3 } },
            { grouped-conv = { out = 6, kernel = 3, padding = "same", groups = 3 } },
            { max-pool = { size = 3, stride = 1, partial = true } }, { avg-pool = 2 },
            { local-response-norm = { size = 5, alpha = 1, beta = 0.5 } }, { group-norm = { groups = 3 } },
            { residual = { body = ["relu"] } }, "relu6", "hard-sigmoid", "hard-swish", "sigmoid", "silu", "gelu",
            { squeeze-excite = [{ conv = { out = 2, kernel = 1 } }, { conv = { out = 6, kernel = 1 } }] }, { dropout = 0.5 }, "global-avg-pool", "layer-norm", { linear = { out = "classes", bias = false } }, "simplex-etf",
        ]
    "#;
    assert_eq!(network(images).predictions(), Ok(1));
    let transformer = r#"
        [model]
        layers = [
            { conv = { out = 12, kernel = 7, stride = 7 } }, "to-sequence", "class-token", "positions", "sinusoidal-positions",
            { residual = ["layer-norm", { linear = 36 }, { attention = 3 }, { linear = 12 }] },
            { linear = 36 }, { attention = { heads = 2, causal = true } }, "LAST",
            { linear = "classes" },
        ]
    "#;
    for last in ["first-position", "mean-positions"] {
        assert_eq!(network(&transformer.replace("LAST", last)).predictions(), Ok(1));
    }
    let text = r#"
        data = { set = "shakespeare", path = "x" }
        [model]
        layers = [{ embedding = { vocabulary = "classes", dim = 4 } }, { lstm = 3 }, { linear = "classes" }]
    "#;
    let text = network(text);
    assert_eq!(text.vocabulary(), Some(text.classes));
    assert_eq!(text.predictions(), Ok(text.input[0]));
}

#[test]
fn the_written_configuration_states_the_network_and_reads_back() {
    for text in [
        CNN_MNIST,
        "[model.layers]\nextractor = [\"flatten\", { residual = { body = [{ residual = [\"relu\"] }], shortcut = \
         [{ linear = 784 }] } }]\nhead = [{ linear = \"classes\" }]",
        "[model]\nlayers = [{ squeeze-excite = [{ conv = { out = 1, kernel = 1 } }, \"sigmoid\"] }, \"flatten\", \
         \"layer-norm\", { linear = \"classes\" }, \"simplex-etf\"]",
    ] {
        let config = load(text, &[]).unwrap_or_else(|errors| panic!("{errors}"));
        let written = config.effective.to_toml();
        assert!(!written.contains("classes\"") && !written.contains("\nname = \"cnn-small\""), "{written}");
        let again = load(&written, &[]).unwrap_or_else(|errors| panic!("{errors}\n{written}"));
        assert_eq!(again, config, "{written}");
        assert_eq!(again.effective.to_toml(), written);
        let made = Config::validate(&config.effective, RunId::from_bytes([1; 8])).expect("valid");
        assert_eq!(made, config);
    }
    let written = load(CNN_MNIST, &[]).expect("valid").effective.to_toml();
    let line =
        "    { conv = { bias = true, kernel = 5, name = \"conv1\", out = 32, padding = 2, stride = 1 } },";
    assert!(written.lines().any(|found| found == line), "{written}");
}

#[test]
fn a_name_and_layers_replace_each_other_from_layer_to_layer() {
    let config = load(CNN_MNIST, &["model.name=linear"]).expect("valid");
    assert_eq!((config.spec.architecture.name.as_str(), config.effective.model.layers), ("linear", None));
    let one = "model.layers=[\"flatten\", { linear = \"classes\" }]";
    for text in [CNN_MNIST, "[model]\nname = \"lenet-5\"", ""] {
        let config = load(text, &[one]).expect("valid");
        assert_eq!(config.spec.architecture.parameters(), Ok(7850), "nothing of the file's network is left");
        assert_eq!(config.effective.model.name, None);
    }
    let both = format!("{CNN_MNIST}\nname = \"linear\"");
    let [message] = &mistakes(&both, &[])[..] else { panic!("one mistake") };
    assert!(message.contains("leave one of them out"), "{message}");
    let [message] = &mistakes(CNN_MNIST, &["model.layers="])[..] else { panic!("one mistake") };
    assert!(message.contains("--set model.name=cnn-small"), "{message}");
}

#[test]
fn the_norm_and_the_initialisation_can_be_chosen_where_there_is_one() {
    let image = ["data.set=cifar-10", "data.path=x"];
    let chosen =
        |given: &[&str]| load("", &[&image[..], given].concat()).map(|config| config.spec.architecture);
    let batch = chosen(&["model.name=resnet-18", "model.norm=batch"]).expect("valid");
    assert!(batch.extractor.contains(&Layer::BatchNorm { name: "norm1".to_owned() }));
    let none =
        chosen(&["model.name=resnet-50", "model.norm=none", "model.initialisation=he"]).expect("valid");
    assert_eq!((none.parameters(), none.initialisation), (Ok(23_494_282), Initialisation::He));
    let vgg = chosen(&["model.name=vgg-16"]).expect("valid");
    assert_eq!(vgg.initialisation, Initialisation::He);
    let error = chosen(&["model.name=lenet-5", "model.norm=group"]).expect_err("no norm").to_string();
    assert_eq!(
        error,
        "model.name = \"lenet-5\" (--set) and model.norm = group (--set) do not go together: it has no normalisation to \
         choose; resnet-18 and resnet-50 have (--set model.norm= takes it back)"
    );
    let he = load(CNN_MNIST, &["model.initialisation=he"]).expect("valid");
    assert_eq!(he.spec.architecture.initialisation, Initialisation::He);
    let written = load(&he.effective.to_toml(), &[]).expect("valid");
    assert_eq!(written, he);
    let [message] = &mistakes(CNN_MNIST, &["model.norm=batch"])[..] else { panic!("one mistake") };
    assert!(message.contains("the layers say themselves"), "{message}");
}

/// What may stand where a layer should.
fn layers() -> impl Strategy<Value = String> {
    let leaf = proptest::sample::select(vec![
        "\"relu\"",
        "\"flatten\"",
        "\"conv\"",
        "\"batch-norm\"",
        "\"global-avg-pool\"",
        "{ linear = 3 }",
        "{ linear = \"classes\" }",
        "{ linear = { name = \"a\", out = 4 } }",
        "{ conv = { out = 2, kernel = 3, padding = \"same\" } }",
        "{ max-pool = 2 }",
        "{ max-pool = { stride = 2 } }",
        "{ group-norm = 2 }",
        "{ lstm = -1 }",
        "{}",
        "[]",
        "0.5",
    ])
    .prop_map(str::to_owned);
    leaf.prop_recursive(4, 24, 4, |inner| {
        let list = proptest::collection::vec(inner, 0..4).prop_map(|list| format!("[{}]", list.join(", ")));
        (list.clone(), list, 0..4).prop_map(|(a, b, form)| match form {
            0 => format!("{{ residual = {a} }}"),
            1 => format!("{{ residual = {{ body = {a}, shortcut = {b} }} }}"),
            2 => format!("{{ residual = {{ shortcut = {b} }} }}"),
            _ => a,
        })
    })
}

proptest! {
    /// Any text is a network or a mistake, and what is written back is that network.
    #[test]
    fn any_list_is_a_network_or_a_mistake(list in proptest::collection::vec(layers(), 0..6)) {
        let text = format!("[model]\nlayers = [{}]", list.join(", "));
        match load(&text, &[]) {
            Ok(config) => {
                prop_assert!(config.spec.architecture.parameter_specs().is_ok());
                let written = config.effective.to_toml();
                let again = load(&written, &[]);
                prop_assert_eq!(again.map_err(|errors| errors.to_string()), Ok(config));
            }
            Err(errors) => {
                for error in errors.all() {
                    let message = error.to_string();
                    prop_assert!(message.contains("lab.toml:2: ") && !message.contains("please report"), "{}", message);
                }
            }
        }
    }
}

#[test]
fn a_handmade_configuration_is_checked_too() {
    let mut raw = Raw::default();
    raw.model.layers = Some("extractor = []\nhead = [{ linear = 0 }]".parse::<Table>().expect("TOML"));
    raw.model.name = None;
    let error = Config::validate(&raw, RunId::from_bytes([1; 8])).expect_err("no outputs").to_string();
    assert!(error.starts_with("the configuration: `model.layers.head, layer 1, linear.out`"), "{error}");
}
