//! The experiment file: what is compared, on which seeds, and what it was published with.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use toml::Value;

use crate::config::ConfigErrors;
use crate::config::excerpt::{Document, Excerpt};

/// An experiment, read and checked for itself. Its configurations are checked when it is [planned](super::plan).
#[derive(Debug)]
pub struct Experiment {
    /// What it is about, in a line.
    pub title: String,
    /// The same at length; may be empty.
    pub about: String,
    /// The seeds, each of which every variant is run with.
    pub seeds: Vec<u32>,
    /// Accuracy to count rounds and bytes to, in `[0, 1]`.
    pub target: Option<f64>,
    /// The variant that the others are compared with.
    pub baseline: Option<String>,
    /// What all runs share; the chosen form last.
    pub base: Vec<Excerpt>,
    /// The settings in which all variants are compared, by axis. Every combination is one cell.
    pub axes: Vec<Axis>,
    /// What is compared.
    pub variants: Vec<Variant>,
    /// What was published.
    pub paper: Paper,
    /// Whether the final models of two seeds are to be mixed.
    pub interpolation: Option<Interpolation>,
    /// The file as it stands.
    pub text: String,
}

/// One thing that is compared with others.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Its name.
    pub name: String,
    /// What it changes; the chosen form's own changes to it last.
    pub layers: Vec<Excerpt>,
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
    /// What it changes.
    pub layer: Excerpt,
    /// Its own target.
    pub target: Option<f64>,
}

/// What was published, by the names of the variants in their cells: `iid/fedavg`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Paper {
    /// Where.
    pub source: String,
    /// Rounds to the target.
    pub rounds: BTreeMap<String, f64>,
    /// Final accuracies, in percent.
    pub accuracy: BTreeMap<String, f64>,
    /// Tests of personal models by their names, as in `mfe-local-test`, in percent.
    pub metrics: BTreeMap<String, BTreeMap<String, f64>>,
}

/// Mixing the final models of two runs of one variant, seed by seed with the next one: `theta a + (1 - theta) b`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Interpolation {
    /// Values of theta, evenly spaced.
    pub steps: u32,
    /// The first.
    pub from: f64,
    /// The last.
    pub to: f64,
    /// Whether the loss is that on all training samples, as published, and not that on the test samples.
    pub train: bool,
}

impl Default for Interpolation {
    fn default() -> Self {
        Self { steps: 15, from: -0.2, to: 1.2, train: true }
    }
}

/// Why an experiment cannot be read. The author's to mend.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The file cannot be read, is no TOML, or one of its configurations is wrong.
    #[error(transparent)]
    Configuration(#[from] ConfigErrors),
    /// Something of the experiment's own is wrong.
    #[error("{place}: {reason}")]
    Content {
        /// Where.
        place: String,
        /// What, and what to do.
        reason: String,
    },
}

/// The keys at the top of the file.
const KEYS: [&str; 10] =
    ["title", "about", "seeds", "target", "baseline", "base", "grid", "variants", "forms", "paper"];
const INTERPOLATE: &str = "interpolate";
/// Keys of a form that are the experiment's and not the configuration's.
const OF_FORMS: [&str; 4] = ["seeds", "target", "variants", "grid"];

impl Experiment {
    /// Reads an experiment in one of its forms. A file without forms has the one form `reduced`, and `full` is the same.
    pub fn read(path: &Path, form: &str) -> Result<Self, ExperimentError> {
        Self::of(&Document::read(path)?, form)
    }

    fn of(document: &Document, form: &str) -> Result<Self, ExperimentError> {
        let read = Reading { document };
        for name in document.table().keys() {
            if !KEYS.contains(&name.as_str()) && name != INTERPOLATE {
                let accepted = KEYS.join(", ");
                let reason = format!("unknown key `{name}`; accepted here: {accepted}, {INTERPOLATE}");
                return Err(read.wrong(&[name], reason));
            }
        }
        let forms = document.names(&["forms"]);
        let formed = forms.iter().any(|name| name == form);
        if !formed && !forms.is_empty() {
            let reason = format!("there is no form `{form}`; there are {}", forms.join(", "));
            return Err(read.wrong(&["forms"], reason));
        }
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
        read.restrict(&mut variants, |variant| &variant.name, own("variants"))?;
        if let Some(path) = own("variants") {
            for variant in &mut variants {
                variant.layers.extend(document.excerpt(&[&path[..], &[variant.name.as_str()]].concat(), &[]));
            }
        }
        if let Some(grid) = own("grid") {
            for name in document.names(&grid) {
                let path = [&grid[..], &[&name]].concat();
                let Some(axis) = axes.iter_mut().find(|axis| axis.name == name) else {
                    return Err(read.wrong(&path, format!("the grid has no axis `{name}`")));
                };
                read.restrict(&mut axis.points, |point| &point.name, Some(path))?;
            }
        }
        if own("target").is_some() {
            axes.iter_mut().flat_map(|axis| &mut axis.points).for_each(|point| point.target = None);
        }
        let baseline = read.text(&["baseline"])?;
        if let Some(baseline) = &baseline
            && !variants.iter().any(|variant| variant.name == *baseline)
        {
            let names: Vec<&str> = variants.iter().map(|variant| variant.name.as_str()).collect();
            let reason = format!("the baseline `{baseline}` is none of the variants {}", names.join(", "));
            return Err(read.wrong(&["baseline"], reason));
        }
        Ok(Self {
            title: read.text(&["title"])?.unwrap_or_else(|| {
                document
                    .path()
                    .file_stem()
                    .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
            }),
            about: read.text(&["about"])?.unwrap_or_default().trim().to_owned(),
            seeds: read.seeds(&key("seeds"))?,
            target: read.target(&key("target"))?,
            baseline,
            base,
            axes,
            variants,
            paper: read.typed("paper")?.unwrap_or_default(),
            interpolation: read.typed(INTERPOLATE)?,
            text: document.text().to_owned(),
        })
    }
}

struct Reading<'a> {
    document: &'a Document,
}

impl Reading<'_> {
    fn wrong(&self, path: &[&str], reason: impl Into<String>) -> ExperimentError {
        ExperimentError::Content { place: self.document.place(path), reason: reason.into() }
    }

    fn value(&self, path: &[&str]) -> Option<&Value> {
        let (last, tables) = path.split_last()?;
        let table = tables.iter().try_fold(self.document.table(), |table, name| table.get(*name)?.as_table());
        table?.get(*last)
    }

    fn text(&self, path: &[&str]) -> Result<Option<String>, ExperimentError> {
        match self.value(path) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => {
                Err(self.wrong(path, format!("`{}` is {other}, and should be a text", path.join("."))))
            }
        }
    }

    /// A count, which means the seeds 1, 2, 3 and so on, or a list of seeds.
    fn seeds(&self, path: &[&str]) -> Result<Vec<u32>, ExperimentError> {
        let wrong = || {
            self.wrong(path, "`seeds` is a number of seeds from 1 to 1000, or a list of different seeds that are not negative")
        };
        let Some(value) = self.value(path) else { return Ok(vec![1, 2, 3]) };
        let seeds: Vec<u32> = match value {
            Value::Integer(count @ 1..=1000) => (1..=*count as u32).collect(),
            Value::Array(list) => {
                let seed = |value: &Value| value.as_integer().and_then(|seed| u32::try_from(seed).ok());
                list.iter().map(|value| seed(value).ok_or_else(wrong)).collect::<Result<_, _>>()?
            }
            _ => return Err(wrong()),
        };
        let mut distinct = seeds.clone();
        distinct.sort_unstable();
        distinct.dedup();
        if seeds.is_empty() || distinct.len() < seeds.len() { Err(wrong()) } else { Ok(seeds) }
    }

    fn target(&self, path: &[&str]) -> Result<Option<f64>, ExperimentError> {
        match self.value(path) {
            None => Ok(None),
            Some(Value::Float(target)) if *target > 0.0 && *target <= 1.0 => Ok(Some(*target)),
            Some(_) => {
                Err(self.wrong(path, "`target` is an accuracy greater than 0 and at most 1, such as 0.97"))
            }
        }
    }

    fn typed<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<Option<T>, ExperimentError> {
        let Some(value) = self.document.table().get(name) else { return Ok(None) };
        let typed = value.clone().try_into();
        typed.map(Some).map_err(|error: toml::de::Error| {
            self.wrong(&[name], format!("[{name}]: {}", error.message().replace('\n', " ")))
        })
    }

    fn variants(&self) -> Result<Vec<Variant>, ExperimentError> {
        let names = self.document.names(&["variants"]);
        if names.is_empty() {
            let reason =
                "there is nothing to compare: add [variants.NAME] tables with what tells the variants apart";
            return Err(self.wrong(&["variants"], reason));
        }
        let variant = |name: String| {
            let path = ["variants", &name];
            self.name(&name, &path)?;
            let layer = self.document.excerpt(&path, &[]);
            let layer =
                layer.ok_or_else(|| self.wrong(&path, format!("`variants.{name}` should be a table")))?;
            Ok(Variant { name, layers: vec![layer] })
        };
        names.into_iter().map(variant).collect()
    }

    fn axes(&self) -> Result<Vec<Axis>, ExperimentError> {
        let axis = |name: String| {
            let path = ["grid", &name];
            let points = match self.value(&path) {
                Some(Value::Array(values)) => self.values(&name, values)?,
                Some(Value::Table(_)) => self.points(&name)?,
                _ => {
                    let reason = format!(
                        "`grid.{name}` is a table of named points, or, where {name} is a quoted key of the configuration, a \
                         list of its values"
                    );
                    return Err(self.wrong(&path, reason));
                }
            };
            if points.is_empty() {
                return Err(self.wrong(&path, format!("`grid.{name}` has no points")));
            }
            Ok(Axis { name, points })
        };
        self.document.names(&["grid"]).into_iter().map(axis).collect()
    }

    fn points(&self, axis: &str) -> Result<Vec<Point>, ExperimentError> {
        let point = |name: String| {
            let path = ["grid", axis, &name];
            self.name(&name, &path)?;
            let layer = self.document.excerpt(&path, &["target"]);
            let layer =
                layer.ok_or_else(|| self.wrong(&path, format!("`grid.{axis}.{name}` should be a table")))?;
            let target = self.target(&["grid", axis, &name, "target"])?;
            Ok(Point { name, layer, target })
        };
        self.document.names(&["grid", axis]).into_iter().map(point).collect()
    }

    /// The points of an axis that is a key of the configuration with a list of values.
    fn values(&self, key: &str, values: &[Value]) -> Result<Vec<Point>, ExperimentError> {
        let path = ["grid", key];
        let point = |value: &Value| {
            let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let name = format!("{}={shown}", key.rsplit('.').next().unwrap_or(key));
            self.name(&name, &path)?;
            Ok(Point { layer: self.document.setting(&path, key, value.clone()), name, target: None })
        };
        values.iter().map(point).collect()
    }

    /// Names become parts of names of folders.
    fn name(&self, name: &str, path: &[&str]) -> Result<(), ExperimentError> {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.=+".contains(c);
        let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric());
        if begins && name.len() <= 30 && name.chars().all(fits) && !name.contains("--") {
            return Ok(());
        }
        let reason = format!(
            "{name:?} is no name for a folder: use 1 to 30 letters, digits and any of - _ . = +, beginning with a letter or \
             digit and without --; a table [grid.AXIS] names its points"
        );
        Err(self.wrong(path, reason))
    }

    /// Leaves only those that the list or the table at `path` names, if there is one.
    fn restrict<T>(
        &self,
        items: &mut Vec<T>,
        name: impl Fn(&T) -> &String,
        path: Option<Vec<&str>>,
    ) -> Result<(), ExperimentError> {
        let Some(path) = path else { return Ok(()) };
        let wrong = |what: String| {
            let names: Vec<&str> = items.iter().map(|item| name(item).as_str()).collect();
            self.wrong(&path, format!("{what}; there are {}", names.join(", ")))
        };
        let named: Vec<String> = match self.value(&path) {
            Some(Value::Array(list)) => list
                .iter()
                .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
                .collect(),
            Some(Value::Table(table)) if table.values().all(Value::is_table) => {
                table.keys().cloned().collect()
            }
            _ => return Err(wrong("a list of names, or a table by names, is needed here".to_owned())),
        };
        if let Some(other) = named.iter().find(|named| !items.iter().any(|item| name(item) == *named)) {
            return Err(wrong(format!("`{other}` is none of them")));
        }
        let chosen: Vec<&str> = named.iter().map(String::as_str).collect();
        if chosen.is_empty() {
            return Err(wrong("none is left".to_owned()));
        }
        items.retain(|item| chosen.contains(&name(item).as_str()));
        Ok(())
    }
}
