//! Of each run the copy that counts, among those of all folders.

use std::collections::BTreeMap;

use super::error::CollectError;
use super::folder::Folder;
use super::same;
use crate::compare::choice::decided;
use crate::compare::content;
use crate::compare::plan::{Plan, Planned, Standing};
use crate::compare::seed::Rounds;
use crate::page::about::About;
use crate::round::RoundRecord;
use crate::run::reader;
use crate::storage::Disk;

/// A copy of a run.
#[derive(Clone, Debug)]
pub struct Copy {
    /// The position of its folder.
    pub folder: usize,
    /// Where it stands.
    pub standing: Standing,
    /// What it recorded.
    pub rounds: Vec<RoundRecord>,
}

/// The copies that count, by the names of their runs.
#[derive(Clone, Debug, Default)]
pub struct Copies(BTreeMap<String, Copy>);

impl Copies {
    /// Looks into all folders.
    ///
    /// # Errors
    /// A run is of another state of the experiment or of another version, or is there twice with other results.
    pub fn find(plan: &Plan, folders: &[Folder]) -> Result<Self, CollectError> {
        let mut found = all(plan, folders);
        let place = |(run, folder, _): &(&Planned, usize, Standing)| {
            folders[*folder].directory(&run.config.spec.name).root().display().to_string()
        };
        let changed = found.iter().filter_map(|copy| Some(format!("{}: {}", place(copy), other(&copy.2)?)));
        let changed: Vec<String> = changed.collect();
        if !changed.is_empty() {
            return Err(CollectError::Changed(changed));
        }
        let of_version = |copy: &(&Planned, usize, Standing)| {
            let version = other_version(&folders[copy.1], copy.0)?;
            Some(format!("{}: {version}", place(copy)))
        };
        let versions: Vec<String> = found.iter().filter_map(of_version).collect();
        if !versions.is_empty() {
            return Err(CollectError::Version(versions));
        }
        let mut copies = Self::default();
        for (run, folder, standing) in found.drain(..) {
            copies.add(run, Copy { folder, standing, rounds: rounds(&folders[folder], run)? }, folders)?;
        }
        Ok(copies)
    }

    /// Takes note of a copy: a complete one counts before others, then the one with the most rounds, then the first.
    fn add(&mut self, run: &Planned, copy: Copy, folders: &[Folder]) -> Result<(), CollectError> {
        let name = &run.config.spec.name;
        let Some(other) = self.0.get(name) else {
            self.0.insert(name.clone(), copy);
            return Ok(());
        };
        let directory = |copy: &Copy| folders[copy.folder].directory(name);
        let (one, two) = (directory(other), directory(&copy));
        let complete = [other, &copy].map(|copy| copy.standing == Standing::Done);
        let why = match same::difference(&other.rounds, &copy.rounds, complete == [true; 2]) {
            None if complete == [true; 2] => same::other_model(&one, &two)?,
            found => found,
        };
        if let Some(why) = why {
            return Err(CollectError::Different {
                one: one.root().to_owned(),
                other: two.root().to_owned(),
                why,
            });
        }
        if (complete[1], copy.rounds.len()) > (complete[0], other.rounds.len()) {
            self.0.insert(name.clone(), copy);
        }
        Ok(())
    }

    /// The copy of a run.
    #[must_use]
    pub fn of(&self, run: &Planned) -> Option<&Copy> {
        self.0.get(&run.config.spec.name)
    }

    /// Chooses among candidates by what they recorded. Gives where all runs stand, and their rounds.
    #[must_use]
    pub fn choose(&self, plan: &mut Plan) -> (Vec<Standing>, Rounds) {
        loop {
            let copies = plan.runs.iter().map(|run| self.of(run));
            let standing: Vec<Standing> = copies
                .clone()
                .map(|copy| copy.map_or(Standing::Absent, |copy| copy.standing.clone()))
                .collect();
            let rounds: Rounds = copies.map(|copy| copy.map(|copy| copy.rounds.clone())).collect();
            plan.take_in(&standing);
            if !plan.choose(&decided(plan, &rounds)) {
                return (standing, rounds);
            }
        }
    }
}

/// All copies of all runs, with where they stand.
fn all<'a>(plan: &'a Plan, folders: &[Folder]) -> Vec<(&'a Planned, usize, Standing)> {
    let mut found = Vec::new();
    for (position, folder) in folders.iter().enumerate() {
        for run in plan.possible().filter(|run| folder.names.contains(&run.config.spec.name)) {
            found.push((run, position, run.standing(&Disk, &folder.runs)));
        }
    }
    let places: Vec<_> = found.iter().map(|&(run, folder, _)| (run, &*folders[folder].runs)).collect();
    content::compare(places, &Disk, found.iter_mut().map(|(.., standing)| standing));
    found
}

fn rounds(folder: &Folder, run: &Planned) -> Result<Vec<RoundRecord>, CollectError> {
    let directory = folder.directory(&run.config.spec.name);
    let rounds = reader::rounds(&Disk, &directory)
        .map_err(|source| CollectError::Rounds { path: directory.root().to_owned(), source })?;
    Ok(rounds.map(|rounds| rounds.records).unwrap_or_default())
}

/// The other versions that have worked on a run, as text. Nothing is known of runs of very early ones.
fn other_version(folder: &Folder, run: &Planned) -> Option<String> {
    let about = About::read(&Disk, &folder.directory(&run.config.spec.name))?;
    let versions = about.origin.processes.into_iter().map(|process| process.version);
    let others: Vec<String> = versions.filter(|version| version != env!("CARGO_PKG_VERSION")).collect();
    (!others.is_empty()).then(|| others.join(", "))
}

/// Why a copy is not of the planned run; `None` if it is.
fn other(standing: &Standing) -> Option<String> {
    match standing {
        Standing::Changed(differences) => {
            let said =
                differences.iter().map(|(key, there, now)| format!("{key} is {there} there and {now} here"));
            Some(said.collect::<Vec<_>>().join(", "))
        }
        Standing::Foreign(why) => Some(why.clone()),
        Standing::Absent | Standing::Unfinished(_) | Standing::Done => None,
    }
}
