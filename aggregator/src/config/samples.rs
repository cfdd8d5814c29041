//! What a sample is, from the file to the network: the checks of `[data]` and `[augment]` that need more than one key.

use models::Task;
use models::params::element_count;
use models::shape::spelled;
use shared::data::csv;
use shared::data::registry::data_set;
use shared::data::{Labels, Normalisation, Preparation, PreparationError, ReadOptions, SetSamples};
use shared::spec::DataSpec;

use super::combinations::{Combinations, Shown};
use super::{DataTable, Raw};

/// The keys that say what samples are.
const SET: [&str; 8] = [
    "data.set",
    "data.shape",
    "data.classes",
    "data.class-names",
    "data.targets",
    "data.text",
    "data.features",
    "model.task",
];
/// The keys that say how samples are normalised.
const NORMALISE: [&str; 3] = ["data.normalise", "data.mean", "data.std"];
/// What is known of the samples before they are read.
pub(super) struct Samples {
    /// What clients learn about them.
    pub(super) spec: DataSpec,
    /// The shape of a prepared one, which a network takes.
    pub(super) prepared: Vec<usize>,
    /// The classes of their labels.
    pub(super) classes: usize,
    /// How they are read.
    pub(super) reading: ReadOptions,
}

impl Combinations<'_> {
    /// `None` if it cannot be said, which is noted.
    pub(super) fn samples(&mut self, raw: &Raw) -> Option<Samples> {
        let mut keys = SET.into_iter().chain(NORMALISE).chain(["augment"]);
        if keys.any(|key| self.findings.is_doubtful(key)) {
            return None;
        }
        // Both, so that all that is missing is told at once.
        let (normalisation, form) = (self.normalisation(raw), self.form(raw));
        let (normalisation, (shape, labels)) = (normalisation?, form?);
        let preparation = Preparation { augmentation: raw.augment, normalisation };
        let set = ("data.set", format!("data.set = \"{}\"", raw.data.set));
        let text = raw.data.text.as_ref().map(|column| ("data.text", format!("data.text = {column:?}")));
        if let Some(text) = text.clone().filter(|_| raw.data.set.name != csv::SET.name) {
            self.refuse(
                &[set, text],
                "texts with a class each are in a column of a table, data.set = \"csv\"",
            );
            return None;
        }
        if (raw.data.set.is_text() || text.is_some()) && !preparation.is_nothing() {
            let given = ("data.normalise", "[augment] or data.normalise".to_owned());
            self.refuse(
                &[text.unwrap_or(set), given],
                "text is neither augmented nor normalised; leave them out",
            );
            return None;
        }
        if !self.features(raw, &shape) {
            return None;
        }
        match preparation.shape(&shape) {
            Ok(prepared) => {
                let (column, on_error) = (raw.data.label.clone(), raw.data.on_error);
                let (classes, class_names) = (labels.classes(), labels.names().to_vec());
                let shape_of_files = Some(shape.clone());
                let reading = ReadOptions {
                    shape: shape_of_files,
                    labels: Some(labels),
                    column,
                    text: raw.data.text.clone(),
                    features: raw.data.features.clone().unwrap_or_default(),
                    on_error,
                    ..ReadOptions::default()
                };
                let spec = DataSpec {
                    shape,
                    class_names,
                    preparation,
                    labels: raw.data.labels,
                    column: raw.data.label.clone(),
                    text: raw.data.text.clone(),
                    features: raw.data.features.clone().unwrap_or_default(),
                };
                Some(Samples { spec, prepared, classes, reading })
            }
            Err(error) => {
                self.refuse(&[at_fault(&error, raw), set], &format!("{error}"));
                None
            }
        }
    }

    /// Whether the names of features, if there are any, are those of the columns of samples of this shape.
    fn features(&mut self, raw: &Raw, shape: &[usize]) -> bool {
        let Some(names) = &raw.data.features else { return true };
        let features = ("data.features", format!("data.features, {} names", names.len()));
        let learned = raw.data.targets.clone().unwrap_or_else(|| vec![raw.data.label.clone()]);
        if raw.data.set.name != csv::SET.name {
            let set = ("data.set", format!("data.set = \"{}\"", raw.data.set));
            self.refuse(
                &[set, features],
                "columns with names are those of a table, data.set = \"csv\"; leave it out",
            );
        } else if raw.data.text.is_some() {
            let text = ("data.text", "data.text".to_owned());
            self.refuse(
                &[text, features],
                "the samples are the texts of one column; leave data.features out",
            );
        } else if Some(names.len()) != element_count(shape) {
            let of = ("data.shape", format!("data.shape = \"{}\"", spelled(shape)));
            self.refuse(
                &[features, of],
                "name as many columns as a sample has numbers, in the order of the model",
            );
        } else if let Some(both) = learned.iter().find(|name| names.contains(name)) {
            let reason =
                format!("the column {both:?} is learned, and would be known; leave it out of data.features");
            self.refuse(&[features], &reason);
        } else {
            return true;
        }
        false
    }

    /// The shape of a sample and how its label is written.
    fn form(&mut self, raw: &Raw) -> Option<(Vec<usize>, Labels)> {
        let data = &raw.data;
        let set = ("data.set", format!("data.set = \"{}\"", data.set));
        let given = [
            ("data.shape", data.shape.is_some()),
            ("data.classes", data.classes.is_some()),
            ("data.class-names", data.class_names.is_some()),
        ];
        let (by_names, by_number) = match data.set.samples {
            SetSamples::Own { by_names, by_number } => (by_names, by_number),
            SetSamples::Published { .. } if !raw.model.learned().is_classification() => {
                let task = ("model.task", format!("model.task = {:?}", raw.model.learned().name()));
                self.refuse(&[task, set], NUMBERS);
                return None;
            }
            SetSamples::Published { shape, classes } => {
                if let Some((key, _)) = given.into_iter().find(|&(_, given)| given) {
                    let reason = "the set has its own shape and classes; leave it out";
                    self.refuse(&[set, (key, key.to_owned())], reason);
                    return None;
                }
                return Some((shape.to_vec(), Labels::Numbers(classes)));
            }
        };
        let task = raw.model.learned();
        let labels = match (&data.class_names, data.classes) {
            _ if !task.is_classification() => {
                outputs(data, task, by_number).map(|(outputs, names)| Labels::of(task, outputs, names))
            }
            (Some(names), None) if by_names => Ok(Labels::Names(names.clone())),
            (None, Some(classes)) if by_number => Ok(Labels::Numbers(classes as usize)),
            _ if by_names && by_number => {
                Err("either data.classes = 10 or data.class-names = [\"cat\", \"dog\"]")
            }
            _ if by_number => Err("the number of classes alone, data.classes = 10"),
            _ => Err("the names of the classes alone, data.class-names = [\"cat\", \"dog\"]"),
        };
        let of_texts = data.text.as_ref().map(|_| vec![csv::TEXT_LENGTH]);
        let given = data.shape.as_ref().map(|shape| shape.iter().map(|&side| side as usize).collect());
        if let Some(shape) = data.shape.as_ref().filter(|shape| of_texts.is_some() && shape.len() != 1) {
            let text = ("data.text", "data.text".to_owned());
            let shape = ("data.shape", format!("data.shape of {} axes", shape.len()));
            let reason = "the shape of a text is how many of its bytes count, as in data.shape = \"256\"";
            self.refuse(&[text, shape], reason);
            return None;
        }
        match (labels, given.or(of_texts)) {
            (Ok(labels), Some(shape)) => Some((shape, labels)),
            (labels, shape) => {
                // All that is missing at once.
                let (mut keys, mut needed) = (vec![set], Vec::new());
                if let Err(classes) = labels {
                    keys.push(("data.classes", "its classes".to_owned()));
                    needed.push(classes);
                }
                if shape.is_none() {
                    keys.push(("data.shape", "no data.shape".to_owned()));
                    needed
                        .push("the shape of a sample, as in data.shape = \"3x32x32\" or data.shape = \"13\"");
                }
                let reason = format!(
                    "say {}; `aggregator init FOLDER` writes a file with what it finds in a folder of samples",
                    needed.join(", and ")
                );
                self.refuse(&keys, &reason);
                None
            }
        }
    }

    fn normalisation(&mut self, raw: &Raw) -> Option<Normalisation> {
        let data = &raw.data;
        let normalise = ("data.normalise", format!("data.normalise = \"{}\"", data.normalise));
        let given = [("data.mean", &data.mean), ("data.std", &data.std)];
        let narrow = |values: &[f64]| values.iter().map(|&value| value as f32).collect::<Vec<f32>>();
        match (&data.normalise[..], &data.mean, &data.std) {
            ("channels", Some(mean), Some(deviation)) => {
                Some(Normalisation::Channels { mean: narrow(mean), deviation: narrow(deviation) })
            }
            ("channels", ..) => {
                let missing = given.iter().filter(|(_, values)| values.is_none()).map(|(key, _)| *key);
                let missing = missing.collect::<Vec<_>>().join(" and ");
                let keys = [normalise, ("data.mean", format!("no {missing}"))];
                self.refuse(&keys, "give one mean and one deviation for each channel");
                None
            }
            ("none", None, None) => Some(Normalisation::None),
            ("whiten", None, None) => Some(Normalisation::Whiten),
            (set, None, None) => data_set(set)?.normalisation(),
            _ => {
                let key = if data.mean.is_some() { "data.mean" } else { "data.std" };
                let reason = "means and deviations count with data.normalise = \"channels\" alone; leave them out, or say so";
                self.refuse(&[normalise, (key, key.to_owned())], reason);
                None
            }
        }
    }
}

/// Which sets have numbers to learn.
const NUMBERS: &str = "the set has one class for each sample; numbers and several labels are in sets of your own, csv or safetensors";

/// How many numbers a sample has, and what they are called. Of regression it is one, in the column of labels, if nothing is said.
fn outputs(data: &DataTable, task: Task, by_number: bool) -> Result<(usize, &[String]), &'static str> {
    match (&data.targets, data.classes) {
        _ if !by_number => Err(NUMBERS),
        (Some(names), None) => Ok((names.len(), names)),
        (None, Some(2..)) if data.set.name == csv::SET.name => Err(
            "the columns that are learned, data.targets = [\"price\", \"rent\"], in place of data.classes",
        ),
        (None, Some(outputs)) => Ok((outputs as usize, &[])),
        (Some(_), Some(_)) => Err("what is learned by data.targets alone, and leave data.classes out"),
        (None, None) if task != Task::MultiLabel => Ok((1, &[])),
        (None, None) => Err(
            "the labels, data.targets = [\"cat\", \"dog\"], or how many y of safetensors has, data.classes = 2",
        ),
    }
}

/// The key that an error is about.
fn at_fault(error: &PreparationError, raw: &Raw) -> Shown {
    let (key, value) = match error {
        PreparationError::NotImages { .. } | PreparationError::Range { .. } => {
            return ("augment", "[augment]".to_owned());
        }
        PreparationError::Crop { .. } => ("augment.random-crop", raw.augment.random_crop.to_string()),
        PreparationError::Shift { .. } => ("augment.random-shift", raw.augment.random_shift.to_string()),
        PreparationError::Colourless { name: "hue", .. } => ("augment.hue", raw.augment.hue.to_string()),
        PreparationError::Colourless { name: "grey", .. } => ("augment.grey", raw.augment.grey.to_string()),
        PreparationError::Colourless { .. } => ("augment.saturation", raw.augment.saturation.to_string()),
        PreparationError::Channels { .. } | PreparationError::Moments => {
            ("data.normalise", format!("{:?}", raw.data.normalise))
        }
    };
    (key, format!("{key} = {value}"))
}

#[cfg(test)]
mod tests {
    use shared::data::byte_tokens;
    use shared::id::RunId;

    use crate::config::{Config, ConfigErrors};

    const TEXTS: [&str; 5] =
        ["data.set=csv", "data.path=/tmp", "data.text=said", "data.classes=3", "model.name=text-transformer"];

    fn made(given: &[&[&str]]) -> Result<Config, ConfigErrors> {
        let overrides: Vec<String> = given.concat().iter().map(|&given| given.to_owned()).collect();
        Config::read(None, &overrides, RunId::from_bytes([1; 8]))
    }

    #[test]
    fn texts_of_a_column_are_bytes_that_a_network_tells_apart() {
        let config = made(&[&TEXTS]).unwrap();
        let (data, network) = (&config.spec.data, &config.spec.architecture);
        assert_eq!((&data.shape[..], data.text.as_deref()), (&[256][..], Some("said")));
        assert_eq!((network.vocabulary(), network.predictions()), (Some(byte_tokens::VOCABULARY), Ok(1)));
        let again = Config::validate(&config.effective, config.spec.run).unwrap();
        assert_eq!(again, config);
        let short = made(&[&TEXTS, &["data.shape=80", "model.name=char-lstm"]]).unwrap();
        assert_eq!(short.spec.architecture.input, [80]);
        let tokens = ["data.set=safetensors", "data.path=/tmp", "data.shape=16", "data.classes=4"];
        let tokens = made(&[&tokens, &["model.name=word-lstm", "model.vocabulary=1000"]]).unwrap();
        let network = &tokens.spec.architecture;
        assert_eq!((network.vocabulary(), network.predictions(), network.classes), (Some(1000), Ok(1), 4));
    }

    #[test]
    fn what_does_not_go_with_texts_is_refused() {
        for (given, expected) in [
            (&["data.set=mnist", "data.classes="][..], &["data.set = \"csv\""][..]),
            (&["data.shape=1x28x28"], &["data.shape = \"256\""]),
            (&["model.name=mlp-2nn"], &["reads no text", "text-transformer"]),
            (&["model.layers=[{linear = 'classes'}]"], &["an embedding of 257 tokens"]),
            (
                &["model.layers=[{embedding={vocabulary=97,dim=4}}, 'mean-positions', {linear='classes'}]"],
                &["an embedding of 257 tokens"],
            ),
            (&["model.vocabulary=300"], &["their bytes"]),
            (&["data.normalise=whiten"], &["data.text", "neither augmented nor normalised"]),
            (&["model.layers=[{embedding={vocabulary=257,dim=4}}, {linear='classes'}]"], &["one label"]),
        ] {
            // A network of layers has no name.
            let named = !given.iter().any(|given| given.starts_with("model.layers"));
            let text = made(&[&TEXTS[..if named { 5 } else { 4 }], given]).unwrap_err().to_string();
            assert!(expected.iter().all(|part| text.contains(part)), "{given:?}: {text}");
        }
    }
}
