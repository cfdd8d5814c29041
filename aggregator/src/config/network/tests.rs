//! What people may write, what becomes of it, and every mistake with its place.

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
            { max-pool = { size = 3, stride = 1, partial = true } }, { avg-pool = 2 },
            { local-response-norm = { size = 5, alpha = 1, beta = 0.5 } }, { group-norm = { groups = 3 } },
            { residual = { body = ["relu"] } }, { dropout = 0.5 }, "global-avg-pool", { linear = { out = "classes", bias = false } },
        ]
    "#;
    assert_eq!(network(images).predictions(), Ok(1));
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

/// Layers as they would stand in a list, a line each from line 3 on, and what is said of them.
#[track_caller]
fn refused(layers: &[&str], expected: &str) {
    let text = format!("[model]\nlayers = [\n{},\n]", layers.join(",\n"));
    assert_eq!(mistakes(&text, &[]), [expected], "{text}");
}

#[test]
fn mistakes_within_a_layer_are_named_with_their_place() {
    let end = "{ linear = \"classes\" }";
    refused(
        &["\"flatten\"", "\"rellu\"", end],
        "4: `model.layers, layer 2`: there is no \"rellu\"; accepted: conv, linear, relu, max-pool, avg-pool, \
         global-avg-pool, flatten, batch-norm, group-norm, local-response-norm, dropout, residual, embedding, lstm; did you mean `relu`?",
    );
    refused(
        &["{ conv = { out = 3, kernal = 5, kernel = 5 } }", "\"flatten\"", end],
        "3: unknown key `model.layers, layer 1, conv.kernal`, given 5 (a whole number); accepted here: name, out, \
         kernel, stride, padding, bias; did you mean `kernel`?",
    );
    refused(
        &["{ conv = { out = 3 } }", "\"flatten\"", end],
        "3: `model.layers, layer 1, conv`, given { out = 3 }, lacks kernel (a whole number, at \
         least 1 and at most 1073741824)",
    );
    refused(
        &["\"conv\"", "\"flatten\"", end],
        "3: `model.layers, layer 1, conv`, given {}, lacks out (a whole number, at least 1 and at most 1073741824), \
         kernel (a whole number, at least 1 and at most 1073741824)",
    );
    refused(
        &["\"flatten\"", "{ linear = 0 }", end],
        "4: `model.layers, layer 2, linear.out` cannot be 0; accepted: a whole number, at least 1 and at most \
         1073741824, or \"classes\" for their number",
    );
    refused(
        &["\"flatten\"", "{ linear = \"class\" }", end],
        "4: `model.layers, layer 2, linear.out` is \"class\" (a text); accepted: a whole number, at least 1 and at \
         most 1073741824, or \"classes\" for their number",
    );
    refused(
        &["{ max-pool = 2.5 }", "\"flatten\"", end],
        "3: `model.layers, layer 1, max-pool.size` is 2.5 (a fractional number); accepted: a whole number, at least \
         1 and at most 1073741824",
    );
    refused(
        &["\"flatten\"", "{ linear = { out = 4, bias = 0 } }", end],
        "4: `model.layers, layer 2, linear.bias` is 0 (a whole number); accepted: true or false",
    );
    refused(
        &["{ conv = { out = 3, kernel = 4, padding = \"same\" } }", "\"flatten\"", end],
        "3: `model.layers, layer 1, conv.padding` cannot be \"same\"; accepted: a number; \"same\" is for an odd \
         kernel, which has a middle",
    );
    refused(
        &["{ conv = { out = 3, kernel = 4, padding = \"full\" } }", "\"flatten\"", end],
        "3: `model.layers, layer 1, conv.padding` is \"full\" (a text); accepted: a whole number of at least 0, less \
         than kernel, or \"same\"",
    );
    refused(
        &["{ local-response-norm = { size = 5, k = 0 } }", "\"flatten\"", end],
        "3: `model.layers, layer 1, local-response-norm.k` cannot be 0; accepted: a number greater than 0 and at most \
         1000000000",
    );
    refused(
        &["{ local-response-norm = { size = 5, alpha = nan } }", "\"flatten\"", end],
        "3: `model.layers, layer 1, local-response-norm.alpha` cannot be nan; accepted: a number of at least 0 and at \
         most 1000000000",
    );
    refused(
        &["{ dropout = 1 }", "\"flatten\"", end],
        "3: `model.layers, layer 1, dropout.rate` cannot be 1; accepted: a number of at least 0 and less than 1",
    );
    refused(
        &["{ relu = {}, flatten = {} }", end],
        "3: `model.layers, layer 1` is { flatten = {}, relu = {} } (a table); accepted: a layer: a name such as \
         \"relu\", a table such as { max-pool = 2 }",
    );
    refused(
        &["5", end],
        "3: `model.layers, layer 1` is 5 (a whole number); accepted: a layer: a name such as \"relu\", a table such \
         as { max-pool = 2 }",
    );
    refused(
        &["{ flatten = 3 }", end],
        "3: `model.layers, layer 1, flatten` is 3 (a whole number); accepted: nothing: the layer is \"flatten\"",
    );
    refused(
        &["\"flatten\"", "{ batch-norm = 3 }", end],
        "4: `model.layers, layer 2, batch-norm` is 3 (a whole number); accepted: a table with name",
    );
    refused(
        &["{ flatten = { size = 3 } }", end],
        "3: unknown key `model.layers, layer 1, flatten.size`, given 3 (a whole number); accepted here: nothing",
    );
}

#[test]
fn names_are_plain_and_tell_layers_apart() {
    let named = |name: &str| format!("{{ linear = {{ name = {name}, out = 4 }} }}");
    let (a, dotted, number) = (named("\"a\""), named("\"a.b\""), named("3"));
    let end = "{ linear = \"classes\" }";
    refused(
        &["\"flatten\"", &a, &a, end],
        "5: `model.layers, layer 3, linear.name` cannot be \"a\"; accepted: a name that no other layer of the same \
         part has",
    );
    refused(
        &["\"flatten\"", &format!("{{ residual = [{a}, {{ residual = [{a}] }}] }}"), end],
        "4: `model.layers, layer 2, residual, layer 2, residual, layer 1, linear.name` cannot be \"a\"; accepted: a \
         name that no other layer of the same part has",
    );
    let accepted = "a text of 1 to 60 ASCII letters, digits, - and _";
    refused(
        &["\"flatten\"", &dotted, end],
        &format!("4: `model.layers, layer 2, linear.name` cannot be \"a.b\"; accepted: {accepted}"),
    );
    refused(
        &["\"flatten\"", &number, end],
        &format!("4: `model.layers, layer 2, linear.name` is 3 (a whole number); accepted: {accepted}"),
    );
    // The head is a part of its own.
    let text =
        format!("[model]\nlayers = [\"flatten\", {a}, {{ linear = {{ name = \"a\", out = \"classes\" }} }}]");
    assert!(load(&text, &[]).is_ok());
}

#[test]
fn what_is_no_network_is_said_to_be_none() {
    for (text, expected) in [
        (
            "layers = 3",
            "2: `model.layers` is 3 (a whole number); accepted: a list of layers, a table of such lists: extractor, \
             projection and head",
        ),
        (
            "layers = [\"flatten\"]",
            "2: `model.layers`, given [\"flatten\"], lacks a linear layer, with which the head begins; or name \
             extractor = [...] and head = [...]",
        ),
        (
            "layers.head = [{ linear = \"classes\" }]",
            "2: `model.layers`, given { head = [{ linear = \"classes\" }] }, lacks extractor (a list of \
             layers, [...])",
        ),
        (
            "layers = { extractor = [], haed = [], head = 5 }",
            "2: unknown key `model.layers.haed`, given [] (an array); accepted here: extractor, projection, head; did \
             you mean `head`?",
        ),
    ] {
        assert_eq!(mistakes(&format!("[model]\n{text}"), &[])[0], expected);
    }
    // Overrides have no lines, and one of a part alone would quietly drop the others.
    assert_eq!(
        mistakes(CNN_MNIST, &["model.layers.head=[\"flatten\"]"]),
        ["--set model.layers.head=[\"flatten\"]: `model.layers`, given { head = [\"flatten\"] }, lacks \
             extractor (a list of layers, [...])"]
    );
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let text = "[model]\nlayers = [\n\"rellu\",\n{ conv = { out = 0, kernel = 5 } },\n{ max-pool = {} },\n\"flatten\",\n\
                { linear = { out = 3, nmae = \"x\" } },\n]";
    let found = mistakes(text, &["run.rounds=0"]);
    let begins = ["3: `model.layers, layer 1`", "4: `", "5: `", "7: unknown key", "--set run.rounds=0"];
    assert_eq!(found.len(), begins.len(), "{found:?}");
    for (found, begins) in found.iter().zip(begins) {
        assert!(found.starts_with(begins), "{found}");
    }
}

#[test]
fn shapes_that_do_not_fit_name_the_layer_what_it_got_and_what_it_needs() {
    let samples = "with samples of glyphs (shape [1, 28, 28])";
    refused(
        &["{ conv = { out = 4, kernel = 5 } }", "\"relu\"", "{ linear = \"classes\" }"],
        &format!(
            "5: `model.layers, layer 3` does not fit, {samples}: layer `head.linear1` needs [features], so a flatten \
             layer before it and gets the shape [4, 24, 24]"
        ),
    );
    refused(
        &["{ max-pool = 30 }", "\"flatten\"", "{ linear = \"classes\" }"],
        &format!(
            "3: `model.layers, layer 1` does not fit, {samples}: layer `extractor.max-pool-1` needs at least 30 x 30 \
             pixels and gets the shape [1, 28, 28]"
        ),
    );
    refused(
        &["\"flatten\"", "{ linear = 3 }"],
        &format!(
            "4: `model.layers, layer 2` does not fit, {samples}: the head gives the shape [3] and 10 classes need [10] \
             or [positions, 10]"
        ),
    );
    // In blocks, written in either way.
    for (block, place) in [
        ("{ residual = [\n\"relu\",\n{ linear = 5 }] }", "residual.body, layer 2"),
        ("{ residual = { body = [\n\"relu\",\n{ linear = 5 }] } }", "residual.body, layer 2"),
        (
            "{ residual = { body = [], shortcut = [\n\"relu\",\n{ linear = 5 }] } }",
            "residual.shortcut, layer 2",
        ),
    ] {
        refused(
            &[block, "\"flatten\"", "{ linear = \"classes\" }"],
            &format!(
                "5: `model.layers, layer 1, {place}` does not fit, {samples}: layer `extractor.linear1` needs \
                 [features], so a flatten layer before it and gets the shape [1, 28, 28]"
            ),
        );
    }
    refused(
        &["\"flatten\"", "{ residual = [{ linear = 5 }] }", "{ linear = \"classes\" }"],
        &format!(
            "4: `model.layers, layer 2` does not fit, {samples}: layer `extractor.residual-2` adds its body, which \
             gives the shape [5], to its shortcut, which gives [784]"
        ),
    );
    let text = "[model.layers]\nextractor = [\"flatten\"]\nhead = [\n\"relu\",\n\"global-avg-pool\",\n{ linear = 10 }]";
    assert_eq!(
        mistakes(text, &[]),
        [format!(
            "5: `model.layers.head, layer 2` does not fit, {samples}: layer `head.global-avg-pool-2` needs [channels, \
             height, width] and gets the shape [784]"
        )]
    );
    let override_ = "model.layers=[{ linear = \"classes\" }]";
    assert!(
        mistakes("", &[override_])[0].starts_with(&format!("--set {override_}: `model.layers, layer 1`"))
    );
}

#[test]
fn absurd_networks_are_refused_with_numbers() {
    let samples = "with samples of glyphs (shape [1, 28, 28])";
    refused(
        &["\"flatten\"", "{ linear = 1073741824 }", "{ linear = \"classes\" }"],
        &format!(
            "4: `model.layers, layer 2` does not fit, {samples}: layer `extractor.linear1` brings the model to \
             841813590016 parameters; 1073741824 are the limit"
        ),
    );
    let many = [&["\"relu\""; 700][..], &["\"flatten\"", "{ linear = \"classes\" }"]].concat();
    refused(
        &many,
        &format!(
            "603: `model.layers, layer 601` does not fit, {samples}: layer `extractor.relu-601`: it is one more than \
             the 600 layers that a network may have"
        ),
    );
    let deep = (0..9).fold("\"relu\"".to_owned(), |body, _| format!("{{ residual = [{body}] }}"));
    let inner = ", residual, layer 1".repeat(8);
    refused(
        &["\"flatten\"", &deep, "{ linear = \"classes\" }"],
        &format!(
            "4: `model.layers, layer 2{inner}, residual.body` cannot be 9 blocks deep; accepted: at most 8 blocks in \
             each other"
        )
        .replace("residual, layer", "residual.body, layer"),
    );
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
    /// Whatever is written, it is a network or there is a mistake, and what is written back is that network.
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
