//! `aggregator models`: the networks that come with the program, and what others can be made of.

use std::fmt::Write as _;

use clap::Args;
use models::shape::spelled;
use models::{Architecture, ArchitectureError, BUILT_INS, BuiltIn, Initialisation, Norm};
use serde::Serialize;

use super::exit::Failure;
use super::terminal;
use crate::config::{layer_kinds, layers_of, nearest_name};
use crate::report::units;

#[derive(Debug, Args)]
pub(super) struct ModelsArgs {
    /// Print the layers of this model as a [model] table, to be changed and run
    #[arg(value_name = "MODEL", conflicts_with = "json")]
    model: Option<String>,
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

/// One model, as `--json` prints it. Counts are for the input and the classes that it is meant for.
#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    /// What it is, without the marks of its documentation.
    summary: String,
    /// The shape of a sample it is meant for: `[channels, height, width]`, or `[tokens]`.
    input: &'static [usize],
    /// Whether samples are text, with as many different tokens as there are classes.
    text: bool,
    classes: usize,
    /// Learned parameters.
    parameters: usize,
    /// Those of each part.
    parts: Parts,
    /// Of a forward pass of one sample.
    multiply_adds: u64,
    /// Values that a training pass of one sample keeps.
    activations: usize,
    /// What `model.norm` is unless it is set; absent if it cannot be.
    norm: Option<Norm>,
    initialisation: Initialisation,
}

#[derive(Debug, Serialize)]
struct Parts {
    extractor: usize,
    projection: usize,
    head: usize,
}

pub(super) fn models(arguments: &ModelsArgs) -> Result<(), Failure> {
    if let Some(name) = &arguments.model {
        return terminal::print(&layers(name)?);
    }
    let rows = BUILT_INS.iter().map(row).collect::<Result<Vec<_>, _>>();
    let rows = rows.map_err(Failure::internal)?;
    terminal::show(arguments.json, &rows, || table(&rows))
}

fn row(built_in: &BuiltIn) -> Result<Row, ArchitectureError> {
    let architecture = Architecture::by_name(built_in.name, built_in.input, built_in.classes)?;
    let specs = architecture.parameter_specs()?;
    let learned = specs.iter().filter(|spec| spec.kind != models::ParameterKind::Buffer);
    let part = |part: &str| {
        let values = learned.clone().filter(|spec| spec.name.starts_with(part));
        values.map(|spec| spec.shape.iter().product::<usize>()).sum()
    };
    Ok(Row {
        name: built_in.name,
        summary: built_in.summary.replace('`', ""),
        input: built_in.input,
        text: architecture.vocabulary().is_some(),
        classes: built_in.classes,
        parameters: architecture.parameters()?,
        parts: Parts { extractor: part("extractor."), projection: part("projection."), head: part("head.") },
        multiply_adds: architecture.multiply_adds()?,
        activations: architecture.activations()?,
        norm: built_in.norm,
        initialisation: architecture.initialisation,
    })
}

/// The table for people, and below it the layers that custom networks are made of.
fn table(rows: &[Row]) -> String {
    let heading =
        ["model", "sample", "classes", "parameters", "extractor", "projection", "head", "multiply-adds"];
    let cells = |row: &Row| {
        let shape = row.input.iter().map(ToString::to_string).collect::<Vec<_>>().join("x");
        let sample = if row.text { format!("{shape} tokens") } else { shape };
        let Parts { extractor, projection, head } = row.parts;
        let counts =
            [row.classes, row.parameters, extractor, projection, head].map(|count| grouped(count as u64));
        [vec![row.name.to_owned(), sample], counts.to_vec(), vec![grouped(row.multiply_adds)]].concat()
    };
    let lines: Vec<Vec<String>> =
        [heading.map(str::to_owned).to_vec()].into_iter().chain(rows.iter().map(cells)).collect();
    let widths: Vec<usize> = (0..heading.len())
        .map(|column| lines.iter().map(|line| line[column].len()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for line in &lines {
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            // Names to the left, numbers to the right.
            let _ =
                if column < 2 { write!(text, "{cell:<width$}  ") } else { write!(text, "{cell:>width$}  ") };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text.push('\n');
    for row in rows {
        let _ = writeln!(text, "{:<width$}  {}", row.name, row.summary, width = widths[0]);
    }
    text.push_str(
        "\nCounts are for the sample and the classes shown; most models take others too.\n\
         `aggregator models MODEL` prints a model's layers, for a network of your own in [model] layers:\n\n",
    );
    for kind in layer_kinds() {
        let _ = writeln!(text, "{:<20} {}", kind.name, kind.settings);
        let _ = writeln!(text, "{:<20} {}", "", kind.says);
    }
    text
}

/// `1 663 370`: digits by threes.
fn grouped(count: u64) -> String {
    units::grouped(usize::try_from(count).unwrap_or(usize::MAX)).replace(',', " ")
}

/// A model's layers as the beginning of a configuration.
fn layers(name: &str) -> Result<String, Failure> {
    let Some(built_in) = BUILT_INS.iter().find(|built_in| built_in.name == name) else {
        let known = BUILT_INS.iter().map(|built_in| built_in.name).collect::<Vec<_>>().join(", ");
        let meant = nearest_name(name, BUILT_INS.iter().map(|built_in| built_in.name))
            .map_or_else(String::new, |meant| format!("; did you mean `{meant}`?"));
        return Err(Failure::Usage(format!("there is no model `{name}`; known are {known}{meant}")));
    };
    let made = Architecture::by_name(built_in.name, built_in.input, built_in.classes);
    let architecture = made.map_err(Failure::internal)?;
    let layers = layers_of(&architecture).map_err(Failure::Internal)?;
    let initialisation = match architecture.initialisation {
        Initialisation::Uniform => "",
        Initialisation::He => "initialisation = \"he\"\n",
    };
    Ok(format!(
        "# The layers of {name} for samples of shape {} and {} classes.\n[model]\n{initialisation}{layers}",
        spelled(built_in.input),
        built_in.classes
    ))
}

#[cfg(test)]
mod tests {
    use shared::id::RunId;

    use super::*;
    use crate::config::Config;

    fn rows() -> Vec<Row> {
        BUILT_INS.iter().map(|built_in| row(built_in).expect("a valid model")).collect()
    }

    #[test]
    fn every_model_and_every_kind_of_layer_is_listed() {
        let text = table(&rows());
        let (listed, _) = text.split_once("\nCounts").expect("the kinds of layers come after");
        for built_in in BUILT_INS {
            assert_eq!(
                listed.lines().filter(|line| line.split(' ').next() == Some(built_in.name)).count(),
                2
            );
        }
        for kind in layer_kinds() {
            assert!(text.contains(kind.name) && text.contains(kind.says), "{}", kind.name);
        }
        let line = text.lines().find(|line| line.starts_with("cnn-mnist")).expect("a line");
        assert!(line.contains("1x28x28") && line.contains("1 663 370"), "{line}");
        assert_eq!([0, 999, 1000, 1_663_370].map(grouped), ["0", "999", "1 000", "1 663 370"]);
    }

    #[test]
    fn parts_add_up_and_text_says_so() {
        for row in rows() {
            let Parts { extractor, projection, head } = row.parts;
            assert_eq!(extractor + projection + head, row.parameters, "{}", row.name);
            assert_eq!(row.text, row.name.ends_with("lstm") || row.name == "text-transformer");
            assert_eq!(row.norm.is_some(), row.name == "resnet-18" || row.name == "resnet-50");
        }
    }

    /// A built-in's layers give that network.
    #[test]
    fn the_layers_of_a_model_are_that_model() {
        for built_in in BUILT_INS {
            let (set, samples) = match built_in.input {
                [1, ..] => ("mnist", &[1, 28, 28][..]),
                // Crops are of another shape than the set, on which the counts of convolutions do not depend.
                [_, _, _] => ("cifar-10", &[3, 32, 32][..]),
                _ => ("shakespeare", &[80][..]),
            };
            let folder = tempfile::tempdir().expect("a temporary folder");
            let path = folder.path().join("own.toml");
            let text = format!(
                "{}\n[data]\nset = \"{set}\"\npath = \"x\"\n",
                layers(built_in.name).expect("layers")
            );
            std::fs::write(&path, &text).expect("a file in it");
            let config = Config::read(Some(&path), &[], RunId::from_bytes([1; 8]));
            let config = config.unwrap_or_else(|errors| panic!("{}: {errors}\n{text}", built_in.name));
            let written = config.spec.architecture;
            let named =
                Architecture::by_name(built_in.name, samples, written.classes).expect("it takes them");
            assert_eq!(written.parameter_specs(), named.parameter_specs(), "{}", built_in.name);
            assert_eq!((written.extractor, written.head), (named.extractor, named.head), "{}", built_in.name);
        }
    }

    #[test]
    fn an_unknown_model_lists_the_known_ones() {
        let error = layers("lenet5").expect_err("unknown").to_string();
        assert!(error.contains("mlp-2nn") && error.ends_with("did you mean `lenet-5`?"), "{error}");
    }
}
