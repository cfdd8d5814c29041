//! Published numbers: where they are from, of which set-up they are, and that each is of a variant that there is.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use super::document::ExperimentDocument;
use super::{Axis, ExperimentError, Variant};

/// The numbers of one source, by the names of the variants in their cells: `iid/fedavg`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Paper {
    /// Its name in the file, which heads its column: `paper` if it is the only one.
    #[serde(skip)]
    pub name: String,
    /// Whether the chosen form has their set-up.
    #[serde(skip)]
    pub same_setup: bool,
    /// Where they were published.
    pub source: String,
    /// Who has them from where.
    pub from: Provenance,
    /// What the accuracies are of each run.
    pub statistic: Statistic,
    /// The forms that have their set-up: one, or a list.
    #[serde(deserialize_with = "one_or_more")]
    pub form: Vec<String>,
    /// What of their set-up that form has otherwise.
    pub differs: String,
    /// Rounds to the target.
    pub rounds: BTreeMap<String, f64>,
    /// Accuracies, in percent.
    pub accuracy: BTreeMap<String, f64>,
    /// Tests of personal models by their names, as in `mfe-local-test`, in percent.
    pub metrics: BTreeMap<String, BTreeMap<String, f64>>,
}

/// Who says what a number is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Provenance {
    /// The paper that the method is of.
    #[default]
    Paper,
    /// A later text about it.
    Text,
    /// The authors' program: its documentation, or what it prints.
    Program,
    /// Another group has run it.
    ThirdParty,
    /// It follows from what was published, and stands nowhere.
    Inferred,
}

/// Which of a run's accuracies a number is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Statistic {
    /// That of the last model.
    #[default]
    Last,
    /// The best of all that were tested.
    Best,
}

/// What a source says of one variant in its cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Published {
    /// Rounds to the target.
    pub rounds: Option<f64>,
    /// The accuracy, in percent.
    pub accuracy: Option<f64>,
    /// Tests of personal models by their names, in percent.
    pub metrics: BTreeMap<String, f64>,
}

/// A text, or a list of texts.
fn one_or_more<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "the name of a form, or a list of names")]
    enum Given {
        One(String),
        More(Vec<String>),
    }
    Ok(match Given::deserialize(from)? {
        Given::One(one) => vec![one],
        Given::More(more) => more,
    })
}

impl Default for Paper {
    fn default() -> Self {
        Self {
            name: ONE.to_owned(),
            same_setup: false,
            source: String::new(),
            from: Provenance::default(),
            statistic: Statistic::default(),
            form: vec![FULL.to_owned()],
            differs: String::new(),
            rounds: BTreeMap::new(),
            accuracy: BTreeMap::new(),
            metrics: BTreeMap::new(),
        }
    }
}

/// The form that has the published set-up.
const FULL: &str = "full";
const ONE: &str = "paper";
const SEVERAL: &str = "papers";

impl Paper {
    /// The head of its column.
    #[must_use]
    pub fn head(&self) -> String {
        let name = self.name.replace('-', " ");
        match (self.same_setup, self.differs.is_empty()) {
            (false, _) => format!("{name} (full setup)"),
            (true, false) => format!("{name} (other setup)"),
            (true, true) => name,
        }
    }

    /// Where its numbers are from, of which set-up they are, and what they are of each run; empty if nothing is said of it.
    #[must_use]
    pub fn note(&self) -> String {
        let (source, from) = (self.source.trim_end_matches('.'), self.from.words());
        if source.is_empty() {
            return String::new();
        }
        let mut name = self.name.replace('-', " ");
        if let Some(first) = name.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        let best = if self.statistic == Statistic::Best { " They are the best of each run." } else { "" };
        let setup = match (self.same_setup, self.differs.trim_end_matches('.')) {
            (false, _) => " Its numbers are of the full setup, and not of this form.".to_owned(),
            (true, "") => String::new(),
            (true, differs) => format!(" It has another set-up than this form: {differs}."),
        };
        format!("{name}: {source}{from}.{setup}{best}")
    }

    /// What it says of a variant in its cell.
    #[must_use]
    pub fn of(&self, name: &str) -> Published {
        Published {
            rounds: self.rounds.get(name).copied(),
            accuracy: self.accuracy.get(name).copied(),
            metrics: self.metrics.get(name).cloned().unwrap_or_default(),
        }
    }
}

impl Published {
    /// Whether the source says anything of it.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl Provenance {
    /// After the name of the source.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Paper => "",
            Self::Text => ", as a later text has it",
            Self::Program => ", from the authors' program",
            Self::ThirdParty => ", measured by others",
            Self::Inferred => ": inferred, and published nowhere",
        }
    }
}

/// The sources that a form shows, of `[paper]` or `[papers.NAME]`. All are checked against the whole file, before a form leaves
/// anything out: a number for an unknown cell or variant is a misprint and would otherwise be lost silently.
pub(super) fn read(
    form: &str,
    axes: &[Axis],
    variants: &[Variant],
    forms: &[String],
    read: &ExperimentDocument<'_>,
) -> Result<Vec<Paper>, ExperimentError> {
    let several: BTreeMap<String, Paper> = read.typed(SEVERAL)?.unwrap_or_default();
    let mut found = Vec::new();
    if let Some(paper) = read.typed::<Paper>(ONE)? {
        if !several.is_empty() {
            let reason = format!("[{ONE}] is the only source; with several, make it [{SEVERAL}.{ONE}]");
            return Err(read.wrong(&[ONE], reason));
        }
        found.push((vec![ONE], paper));
    }
    let named = several
        .iter()
        .map(|(name, paper)| (vec![SEVERAL, name.as_str()], Paper { name: name.clone(), ..paper.clone() }));
    found.extend(named);
    for (place, paper) in &found {
        check(paper, place, axes, variants, read)?;
        if paper.form.is_empty() {
            let reason = "no form has these numbers; name one, or leave `form` out".to_owned();
            return Err(read.wrong(&[&place[..], &["form"]].concat(), reason));
        }
        if let Some(unknown) = paper.form.iter().find(|form| *form != FULL && !forms.contains(*form)) {
            let reason = format!("there is no form `{unknown}`; there are {}", forms.join(", "));
            return Err(read.wrong(&[&place[..], &["form"]].concat(), reason));
        }
    }
    let mut papers: Vec<Paper> = found.into_iter().map(|(_, paper)| paper).collect();
    for paper in &mut papers {
        paper.same_setup = forms.is_empty() || paper.form.iter().any(|of| of == form);
    }
    // Beside a form of other settings those of the full one are of use, unless it has some of its own.
    let any = papers.iter().any(|paper| paper.same_setup);
    papers.retain(|paper| paper.same_setup || (paper.form.iter().any(|form| form == FULL) && !any));
    Ok(papers)
}

fn check(
    paper: &Paper,
    place: &[&str],
    axes: &[Axis],
    variants: &[Variant],
    read: &ExperimentDocument<'_>,
) -> Result<(), ExperimentError> {
    for (name, rounds) in &paper.rounds {
        let path = [place, &["rounds", name]].concat();
        known(name, axes, variants).map_err(|reason| read.wrong(&path, reason))?;
        if !rounds.is_finite() || *rounds < 0.0 {
            return Err(read.wrong(&path, format!("`{name}` is {rounds}, and should be a number of rounds")));
        }
    }
    let accuracies = paper.accuracy.iter().map(|(name, accuracy)| ("accuracy", name, vec![*accuracy]));
    let metrics =
        paper.metrics.iter().map(|(name, metrics)| ("metrics", name, metrics.values().copied().collect()));
    for (key, name, shares) in accuracies.chain(metrics) {
        let path = [place, &[key, name]].concat();
        known(name, axes, variants).map_err(|reason| read.wrong(&path, reason))?;
        if let Some(wrong) = shares.iter().find(|share| !(0.0..=100.0).contains(*share)) {
            return Err(read.wrong(&path, format!("`{name}` is {wrong}, and should be per cent, 0 to 100")));
        }
    }
    Ok(())
}

/// Checks that `name` is a variant in its cell: a point of each axis, then a variant.
fn known(name: &str, axes: &[Axis], variants: &[Variant]) -> Result<(), String> {
    let variants: Vec<&str> = variants.iter().map(|variant| variant.name.as_str()).collect();
    let points = axes.iter().map(|axis| axis.points.iter().map(|point| point.name.as_str()).collect());
    let all: Vec<Vec<&str>> = points.chain([variants]).collect();
    let parts: Vec<&str> = name.split('/').collect();
    if parts.len() != all.len() {
        let example: Vec<&str> = all.iter().filter_map(|names| names.first().copied()).collect();
        return Err(format!("`{name}` names no variant in its cell, such as `{}`", example.join("/")));
    }
    for (at, (part, names)) in parts.iter().zip(&all).enumerate() {
        if !names.contains(part) {
            let what = match axes.get(at) {
                Some(axis) => format!("`{part}` in [grid.{}]", axis.name),
                None => format!("variant `{part}`"),
            };
            let are = if names.len() == 1 { "is" } else { "are" };
            return Err(format!("`{name}`: there is no {what}; there {are} {}", names.join(", ")));
        }
    }
    Ok(())
}
