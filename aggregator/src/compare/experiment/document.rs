//! Parsing of the parts of an experiment's file; every error names its place.

use toml::Value;

use super::{Axis, ExperimentError, INTERPOLATE, Interpolation, PEAK, Point, Target, Variant};
use crate::config::excerpt::Document;

pub(super) struct ExperimentDocument<'a> {
    pub(super) document: &'a Document,
}

/// The longest part of a folder's name.
pub(super) const LONGEST: usize = 30;

/// Whether it can be part of a folder's name, whose parts have `--` between them.
pub(super) fn fits_folder(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.=+".contains(c);
    (1..=LONGEST).contains(&name.len()) && name.chars().all(fits) && !name.contains("--")
}

impl ExperimentDocument<'_> {
    pub(super) fn wrong(&self, path: &[&str], reason: impl Into<String>) -> ExperimentError {
        ExperimentError::Content { place: self.document.place(path), reason: reason.into() }
    }

    pub(super) fn value(&self, path: &[&str]) -> Option<&Value> {
        let (last, tables) = path.split_last()?;
        let table = tables.iter().try_fold(self.document.table(), |table, name| table.get(*name)?.as_table());
        table?.get(*last)
    }

    pub(super) fn text(&self, path: &[&str]) -> Result<Option<String>, ExperimentError> {
        match self.value(path) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => {
                Err(self.wrong(path, format!("`{}` is {other}, and should be a text", path.join("."))))
            }
        }
    }

    /// Whether the file defines `form`. A file without forms has `reduced` and `full`, which are the same.
    pub(super) fn has_form(&self, forms: &[String], form: &str) -> Result<bool, ExperimentError> {
        if forms.iter().any(|name| name == form) {
            return Ok(true);
        }
        let reason = match forms {
            [] if ["reduced", "full"].contains(&form) => return Ok(false),
            [] => format!("there is no form `{form}`: the file has no [forms]; leave --form out"),
            _ => format!("there is no form `{form}`; there are {}", forms.join(", ")),
        };
        Err(self.wrong(&["forms"], reason))
    }

    /// A count, which means the seeds 1, 2, 3 and so on, or a list of seeds.
    pub(super) fn seeds(&self, path: &[&str]) -> Result<Vec<u64>, ExperimentError> {
        let wrong = || {
            self.wrong(path, "`seeds` is a number of seeds from 1 to 1000, or a list of different seeds that are not negative")
        };
        let Some(value) = self.value(path) else { return Ok(vec![1, 2, 3]) };
        let seeds: Vec<u64> = match value {
            Value::Integer(count @ 1..=1000) => (1..=count.unsigned_abs()).collect(),
            Value::Array(list) => {
                let seed = |value: &Value| value.as_integer().and_then(|seed| u64::try_from(seed).ok());
                list.iter().map(|value| seed(value).ok_or_else(wrong)).collect::<Result<_, _>>()?
            }
            _ => return Err(wrong()),
        };
        let mut distinct = seeds.clone();
        distinct.sort_unstable();
        distinct.dedup();
        if seeds.is_empty() || distinct.len() < seeds.len() { Err(wrong()) } else { Ok(seeds) }
    }

    /// The table `interpolate`, which needs an even number of seeds. `path` is the place of the seeds.
    pub(super) fn interpolation(
        &self,
        seeds: &[u64],
        path: &[&str],
    ) -> Result<Option<Interpolation>, ExperimentError> {
        let interpolation = self.typed(INTERPOLATE)?;
        if interpolation.is_some() && !seeds.len().is_multiple_of(2) {
            let reason = format!(
                "`{INTERPOLATE}` mixes the models of two seeds at a time, and there are {}: give an even number, as in seeds = [1, 2]",
                seeds.len()
            );
            // A file without seeds has three of them.
            let path = if self.value(path).is_some() { path } else { &[INTERPOLATE] };
            return Err(self.wrong(path, reason));
        }
        Ok(interpolation)
    }

    pub(super) fn target(&self, path: &[&str]) -> Result<Option<Target>, ExperimentError> {
        match self.value(path) {
            None => Ok(None),
            Some(Value::Float(target)) if *target > 0.0 && *target <= 1.0 => Ok(Some(Target::Accuracy(*target))),
            Some(Value::Integer(1)) => Ok(Some(Target::Accuracy(1.0))),
            Some(Value::String(peak)) if peak == PEAK => Ok(Some(Target::Peak)),
            Some(Value::String(variant)) => Ok(Some(Target::Of(variant.clone()))),
            Some(_) => Err(self.wrong(
                path,
                "`target` is an accuracy greater than 0 and at most 1, such as 0.97, the name of a variant, or \"peak\", which is the best accuracy of each run",
            )),
        }
    }

    pub(super) fn typed<T: serde::de::DeserializeOwned>(
        &self,
        name: &str,
    ) -> Result<Option<T>, ExperimentError> {
        let Some(value) = self.document.table().get(name) else { return Ok(None) };
        let typed = value.clone().try_into();
        typed.map(Some).map_err(|error: toml::de::Error| {
            self.wrong(&[name], format!("[{name}]: {}", error.message().replace('\n', " ")))
        })
    }

    pub(super) fn variants(&self) -> Result<Vec<Variant>, ExperimentError> {
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
            Ok(Variant { name, layers: vec![layer], candidates: Vec::new() })
        };
        names.into_iter().map(variant).collect()
    }

    pub(super) fn axes(&self) -> Result<Vec<Axis>, ExperimentError> {
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
            Ok(Point { name, layers: vec![layer], published: target.clone(), target })
        };
        self.document.names(&["grid", axis]).into_iter().map(point).collect()
    }

    /// The points of an axis that lists the values of a configuration key.
    fn values(&self, key: &str, values: &[Value]) -> Result<Vec<Point>, ExperimentError> {
        let path = ["grid", key];
        let point = |value: &Value| {
            let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let name = format!("{}={shown}", key.rsplit('.').next().unwrap_or(key));
            self.name(&name, &path)?;
            Ok(Point {
                layers: vec![self.document.setting(&path, key, value.clone())],
                name,
                target: None,
                published: None,
            })
        };
        let points = values.iter().map(point).collect::<Result<Vec<Point>, ExperimentError>>()?;
        let again = points
            .iter()
            .enumerate()
            .find(|(at, point)| points[..*at].iter().any(|other| other.name == point.name));
        match again {
            Some((_, Point { name, .. })) => Err(self.wrong(&path, format!("`{name}` stands there twice"))),
            None => Ok(points),
        }
    }

    /// Checks a name, which becomes part of a folder's name.
    fn name(&self, name: &str, path: &[&str]) -> Result<(), ExperimentError> {
        if name.starts_with(|c: char| c.is_ascii_alphanumeric()) && fits_folder(name) {
            return Ok(());
        }
        let reason = format!(
            "{name:?} is no name for a folder: use 1 to {LONGEST} letters, digits and any of - _ . = +, beginning with a letter or \
             digit and without --; a table [grid.AXIS] names its points"
        );
        Err(self.wrong(path, reason))
    }

    /// Keeps only the items named by the list or table at `path`, if there is one.
    pub(super) fn restrict<T>(
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
