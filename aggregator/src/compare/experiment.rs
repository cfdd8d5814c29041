//! The experiment file: variants, grid, seeds, target and published numbers.

mod document;
mod paper;
mod tune;

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize, Serializer};

use crate::config::ConfigErrors;
use crate::config::excerpt::{Document, Excerpt};
use crate::config::keys;
use crate::report::units::percent;
use document::ExperimentDocument;
pub use paper::{Paper, Provenance, Published, Statistic};
pub use tune::Candidate;

/// An experiment. Reading checks its own keys; [planning](super::plan) checks its configurations.
#[derive(Debug)]
pub struct Experiment {
    /// Its title.
    pub title: String,
    /// A description; may be empty.
    pub about: String,
    /// The chosen form.
    pub form: String,
    /// The seeds. Every variant runs with each of them.
    pub seeds: Vec<u64>,
    /// The target to which rounds and bytes are counted.
    pub target: Option<Target>,
    /// The target of published numbers: that of the file without the chosen form.
    pub published: Option<Target>,
    /// The variant that the others are compared with.
    pub baseline: Option<String>,
    /// Configuration shared by all runs; that of the chosen form comes last.
    pub base: Vec<Excerpt>,
    /// The axes of the grid. Every combination of their points is a cell, in which all variants are compared.
    pub axes: Vec<Axis>,
    /// The variants to compare.
    pub variants: Vec<Variant>,
    /// Published numbers, by their sources.
    pub papers: Vec<Paper>,
    /// How the final models of two seeds are mixed, if they are.
    pub interpolation: Option<Interpolation>,
    /// The text of the file.
    pub text: String,
}

/// A target to which rounds and bytes are counted.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// An accuracy, in `(0, 1]`.
    Accuracy(f64),
    /// The final accuracy of this variant with the same seed.
    Of(String),
    /// The best accuracy of each run itself.
    Peak,
}

/// How the peak is written in a file; no variant is meant by it.
const PEAK: &str = "peak";

/// As it is written in a file.
impl Serialize for Target {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Accuracy(accuracy) => serializer.serialize_f64(*accuracy),
            Self::Of(variant) => serializer.serialize_str(variant),
            Self::Peak => serializer.serialize_str(PEAK),
        }
    }
}

impl Target {
    /// The variant whose accuracy it is.
    #[must_use]
    pub fn variant(&self) -> Option<&String> {
        match self {
            Self::Accuracy(_) | Self::Peak => None,
            Self::Of(variant) => Some(variant),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accuracy(accuracy) => f.write_str(&percent(*accuracy)),
            Self::Of(variant) => write!(f, "{variant}'s accuracy"),
            Self::Peak => f.write_str("the peak"),
        }
    }
}

/// A variant of the configuration.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Its name.
    pub name: String,
    /// Its configuration; that of the chosen form comes last.
    pub layers: Vec<Excerpt>,
    /// What is tried of it, and of which the best is chosen in each cell. Empty if nothing is tuned.
    pub candidates: Vec<Candidate>,
}

/// One axis of the grid.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Its name.
    pub name: String,
    /// Its points.
    pub points: Vec<Point>,
}

/// One point on an axis.
#[derive(Clone, Debug)]
pub struct Point {
    /// Its name.
    pub name: String,
    /// Its configuration; that of the chosen form comes last.
    pub layers: Vec<Excerpt>,
    /// Its own target.
    pub target: Option<Target>,
    /// Its own target without the chosen form.
    pub published: Option<Target>,
}

/// Mixtures `theta a + (1 - theta) b` of the final models of a variant's runs with one seed and the next.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Interpolation {
    /// Values of theta, evenly spaced.
    pub steps: u32,
    /// The first.
    pub from: f64,
    /// The last.
    pub to: f64,
    /// Whether the loss is measured on all training samples, as published, or else on the test samples.
    pub train: bool,
}

impl Default for Interpolation {
    fn default() -> Self {
        Self { steps: 15, from: -0.2, to: 1.2, train: true }
    }
}

/// Why an experiment cannot be read. Its author can fix it.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The file cannot be read, is not TOML, or has a mistake in a configuration.
    #[error(transparent)]
    Configuration(#[from] ConfigErrors),
    /// A mistake in the experiment's own keys.
    #[error("{place}: {reason}")]
    Content {
        /// Where it is.
        place: String,
        /// The mistake, and what to do.
        reason: String,
    },
}

/// The keys at the top of the file.
const KEYS: [&str; 12] = [
    "title", "about", "seeds", "target", "baseline", "base", "grid", "variants", "tune", "forms", "paper",
    "papers",
];
const INTERPOLATE: &str = "interpolate";
/// Keys of a form that do not belong to the configuration.
const OF_FORMS: [&str; 5] = ["seeds", "target", "variants", "grid", "tune"];

impl Experiment {
    /// Reads an experiment in one of its forms. A file without forms has the one form `reduced`, and `full` is the same.
    pub fn read(path: &Path, form: &str) -> Result<Self, ExperimentError> {
        Self::of(&Document::read(path)?, form)
    }

    fn of(document: &Document, form: &str) -> Result<Self, ExperimentError> {
        let read = ExperimentDocument { document };
        for name in document.table().keys() {
            if !KEYS.contains(&name.as_str()) && name != INTERPOLATE {
                let accepted = KEYS.join(", ");
                let reason = if keys::KEYS.children("").contains(&name.as_str()) {
                    format!(
                        "`{name}` is a key of the configuration of a run, which `aggregator simulate FILE` runs; in an \
                         experiment it stands in [base], in a point of [grid] or in [variants.NAME]"
                    )
                } else {
                    format!("unknown key `{name}`; accepted here: {accepted}, {INTERPOLATE}")
                };
                return Err(read.wrong(&[name], reason));
            }
        }
        let forms = document.names(&["forms"]);
        let formed = read.has_form(&forms, form)?;
        let of_form: &[&str] = if formed { &["forms", form] } else { &[] };
        let own = |key: &'static str| match of_form {
            [] => None,
            path => Some([path, &[key]].concat()).filter(|path| read.value(path).is_some()),
        };
        let key = |name: &'static str| own(name).unwrap_or_else(|| vec![name]);

        for name in ["base", "grid", "variants", "forms"] {
            if read.value(&[name]).is_some_and(|value| !value.is_table()) {
                return Err(read.wrong(&[name], format!("`{name}` should be a table")));
            }
        }
        let mut base: Vec<Excerpt> = document.excerpt(&["base"], &[]).into_iter().collect();
        base.extend(document.excerpt(of_form, &OF_FORMS).filter(|_| formed));
        let mut axes = read.axes()?;
        let mut variants = read.variants()?;
        let papers = paper::read(form, &axes, &variants, &forms, &read)?;
        tune::read(&key("tune"), &mut variants, &read)?;
        read.restrict(&mut variants, |variant| &variant.name, own("variants"))?;
        if let Some(path) = own("variants") {
            for variant in &mut variants {
                variant.layers.extend(document.excerpt(&[&path[..], &[variant.name.as_str()]].concat(), &[]));
            }
        }
        if own("target").is_some() {
            axes.iter_mut().flat_map(|axis| &mut axis.points).for_each(|point| point.target = None);
        }
        if let Some(grid) = own("grid") {
            for name in document.names(&grid) {
                let path = [&grid[..], &[&name]].concat();
                let Some(axis) = axes.iter_mut().find(|axis| axis.name == name) else {
                    return Err(read.wrong(&path, format!("the grid has no axis `{name}`")));
                };
                read.restrict(&mut axis.points, |point| &point.name, Some(path.clone()))?;
                for point in &mut axis.points {
                    let path = [&path[..], &[point.name.as_str()]].concat();
                    point.layers.extend(document.excerpt(&path, &["target"]));
                    point.target = read.target(&[&path[..], &["target"]].concat())?.or(point.target.take());
                }
            }
        }
        let known = |what: &str, named: Option<&String>, path: &[&str]| match named {
            Some(named) if !variants.iter().any(|variant| variant.name == *named) => {
                let names: Vec<&str> = variants.iter().map(|variant| variant.name.as_str()).collect();
                let reason = format!("the {what} `{named}` is none of the variants {}", names.join(", "));
                Err(read.wrong(path, reason))
            }
            _ => Ok(()),
        };
        let baseline = read.text(&["baseline"])?;
        known("baseline", baseline.as_ref(), &["baseline"])?;
        not_called_peak(&variants, &read)?;
        let target = read.target(&key("target"))?;
        known("target", target.as_ref().and_then(Target::variant), &key("target"))?;
        for axis in &axes {
            for Point { name, target, .. } in &axis.points {
                let path = ["grid", &axis.name, name, "target"];
                known("target", target.as_ref().and_then(Target::variant), &path)?;
            }
        }
        let seeds = read.seeds(&key("seeds"))?;
        let interpolation = read.interpolation(&seeds, &key("seeds"))?;
        Ok(Self {
            title: read.text(&["title"])?.unwrap_or_else(|| {
                document
                    .path()
                    .file_stem()
                    .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
            }),
            about: read.text(&["about"])?.unwrap_or_default().trim().to_owned(),
            form: form.to_owned(),
            seeds,
            target,
            published: read.target(&["target"])?,
            baseline,
            base,
            axes,
            variants,
            papers,
            interpolation,
            text: document.text().to_owned(),
        })
    }
}

/// Refuses a variant whose name means something else as a target.
fn not_called_peak(variants: &[Variant], read: &ExperimentDocument<'_>) -> Result<(), ExperimentError> {
    let Some(variant) = variants.iter().find(|variant| variant.name == PEAK) else { return Ok(()) };
    let reason = "as a target, peak is the best accuracy of each run: call the variant otherwise";
    Err(read.wrong(&["variants", &variant.name], reason.to_owned()))
}
