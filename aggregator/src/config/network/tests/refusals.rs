//! Every mistake in a list of layers, with its place.

use super::{CNN_MNIST, load, mistakes};

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
        "4: `model.layers, layer 2`: there is no \"rellu\"; accepted: conv, grouped-conv, linear, relu, relu6, hard-sigmoid, hard-swish, sigmoid, \
         silu, gelu, max-pool, avg-pool, global-avg-pool, zero-pad, flatten, batch-norm, \
         batch-norm-with, group-norm, local-response-norm, layer-norm, simplex-etf, dropout, residual, \
         squeeze-excite, embedding, lstm, to-sequence, class-token, positions, \
         sinusoidal-positions, attention, first-position, mean-positions; did you mean `relu`?",
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
        &["\"flatten\"", &named("\"fc-lora-a\""), end],
        "4: `model.layers, layer 2, linear.name` cannot be \"fc-lora-a\"; accepted: a name with another ending: that one is of \
         adapters, which model.adapters adds",
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
    let samples = "with samples of glyphs (shape 1x28x28)";
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
    let samples = "with samples of glyphs (shape 1x28x28)";
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
