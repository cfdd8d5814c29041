//! The model that a run begins with, where `model.from` names one: that of another run, or one in a file.
//!
//! Every tensor of the run's network is taken from it, statistics of normalisation layers as well, but for those that `model.fresh`
//! names; and it may have no other one, unless another library wrote it. What an algorithm or the server's optimiser keeps beside the
//! model begins anew.

use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use models::architecture::{is_adapter, matches};
use models::model_file::ARCHITECTURE_KEY;
use models::params::codec::TensorStream;
use models::params::foreign::is_pickle;
use models::{Architecture, Limits, ParamSet, Task};
use sha2::{Digest as _, Sha256};
use shared::algorithm::registry;
use shared::cli::causes;
use shared::spec::{DataSpec, SAMPLES_KEY};

use super::directory::RunDirectory;
use super::initial_model_error::InitialModelError;
use super::misfit::{NEAREST, misfits};
use super::{FoundModel, RunError, Which, foreign, reader};
use crate::config::{Config, ModelOrigin, nearest_of};
use crate::ensemble::MANIFEST_KEY;
use crate::round::jsonl;
use crate::storage::{FileLayer, Reading, read_if_there};

/// A model that a run begins with.
pub struct InitialModel {
    /// Its parameters, without those that are drawn anew.
    pub params: ParamSet,
    /// Where it is from, with its round and its digest.
    pub origin: ModelOrigin,
    /// Its accuracy on the test set of its run, if it was tested there.
    pub accuracy: Option<f64>,
    /// In what its samples differ from those of the run that begins, for the operator.
    pub remarks: Vec<String>,
}

/// What was read of a place.
struct Read {
    params: ParamSet,
    round: Option<u32>,
    accuracy: Option<f64>,
    samples: Option<DataSpec>,
    /// What it learned, if that is known.
    task: Option<Task>,
}

impl InitialModel {
    /// The model that the configuration asks for, compared with its network; `None` if parameters are to be drawn.
    ///
    /// # Errors
    /// [`InitialModelError`], before anything is written.
    pub fn read(files: &dyn FileLayer, config: &Config) -> Result<Option<Self>, InitialModelError> {
        let Some(origin) = &config.effective.model.from else { return Ok(None) };
        let place = PathBuf::from(origin.place());
        let fresh = config.effective.model.fresh.as_deref().unwrap_or_default();
        check_fresh(fresh, &config.spec.architecture)?;
        let is_fresh = |name: &str| is_adapter(name) || foreign::pattern::any(fresh, name);
        let mut remarks = Vec::new();
        let mut read = match (&origin.run, &origin.names) {
            (Some(_), _) => of_run(files, &place, origin.in_round)?,
            (None, _) if config.spec.architecture.is_opaque() => Read {
                params: foreign::read_as_named(files, &place)?,
                round: None,
                accuracy: None,
                samples: None,
                task: None,
            },
            (None, None) => of_file(files, &place)?,
            (None, Some(names)) => {
                let taken = foreign::read(files, &place, names, &config.spec.architecture, &is_fresh)?;
                remarks = taken.remarks;
                Read { params: taken.params, round: None, accuracy: None, samples: None, task: None }
            }
        };
        let drawn: Vec<String> =
            read.params.names().filter(|name| is_fresh(name)).map(str::to_owned).collect();
        for name in &drawn {
            drop(read.params.remove(name));
        }
        if let (Some(asked), Some(found)) = (origin.in_round, read.round)
            && asked != found
        {
            let there = format!("that of round {found}");
            return Err(InitialModelError::OtherRound { place, asked, there });
        }
        if let Some(tensor) = read.params.first_non_finite() {
            return Err(InitialModelError::NotFinite { place, tensor: tensor.to_owned() });
        }
        let mut misfits = misfits(&config.spec.architecture, &read.params);
        misfits.retain(|misfit| !is_fresh(&misfit.tensor));
        if !misfits.is_empty() {
            let network = config.spec.architecture.name.clone();
            return Err(InitialModelError::Misfit { place, network, misfits });
        }
        let found = digest(&read.params);
        if let Some(asked) = origin.digest.clone().filter(|asked| *asked != found) {
            return Err(InitialModelError::OtherParameters { place, asked, found });
        }
        if fresh.is_empty() {
            remarks.extend(read.samples.iter().flat_map(|samples| differences(samples, &config.spec.data)));
            let ours = config.spec.architecture.task;
            if let Some(its) = read.task.filter(|its| its.name() != ours.name()) {
                remarks.push(format!(
                    "the model that the run begins with is for {}, and this one for {}: model.fresh = [\"head.*\"] draws its head anew",
                    its.name(),
                    ours.name()
                ));
            }
        }
        // What its run has found it to have is not what it has with tensors that are drawn.
        let accuracy = read.accuracy.filter(|_| fresh.is_empty());
        let origin = ModelOrigin { in_round: read.round, digest: Some(found), ..origin.clone() };
        Ok(Some(Self { params: read.params, origin, accuracy, remarks }))
    }
}

/// Refuses a pattern of what is drawn that stands for nothing.
fn check_fresh(fresh: &[String], architecture: &Architecture) -> Result<(), InitialModelError> {
    let specs = architecture.all_parameter_specs();
    let specs = specs.expect("a configuration's architecture was checked when it was read");
    let stands = |pattern: &String| specs.iter().any(|spec| matches(pattern, &spec.name));
    let Some(pattern) = fresh.iter().find(|pattern| !stands(pattern)) else { return Ok(()) };
    let near = nearest_of(pattern, specs.iter().map(|spec| spec.name.as_str()), NEAREST);
    Err(InitialModelError::NothingFresh {
        pattern: pattern.clone(),
        network: architecture.name.clone(),
        nearest: near.into_iter().map(|name| format!("`{name}`")).collect(),
    })
}

/// The model of a run: its newest one, or that of the round that is asked for.
fn of_run(files: &dyn FileLayer, place: &Path, round: Option<u32>) -> Result<Read, InitialModelError> {
    let unreadable = |error: RunError| InitialModelError::Unreadable {
        place: place.to_owned(),
        reason: error.damage().unwrap_or_else(|| error.to_string()),
    };
    let directory = RunDirectory::new(place);
    if let Some(config) = reader::configuration(files, &directory).map_err(unreadable)? {
        let algorithm = registry::build(&config.spec.algorithm).map_err(|error| unreadable(error.into()))?;
        let name = algorithm.name();
        let not_one = |reason| Err(InitialModelError::NotOne { place: place.to_owned(), reason });
        if algorithm.ensemble().is_some() {
            return not_one(format!("its algorithm is {name}, which keeps the clients' models side by side"));
        }
        if algorithm.personal().is_some() {
            return not_one(format!(
                "its algorithm is {name}, under which each client's model stays with it"
            ));
        }
    }
    let Some(newest) = FoundModel::read(files, &directory, Which::Newest).map_err(unreadable)? else {
        // Its state was removed once it was over: what it has left is its last model, and the best if that is another.
        let left = [directory.model(), directory.best()];
        let left = left.into_iter().filter(|path| matches!(files.length(path), Ok(Some(_))));
        let mut read = left.map(|path| of_file(files, &path)).collect::<Result<Vec<_>, _>>()?;
        if read.is_empty() {
            let reason = "it is no directory of a run that has begun".to_owned();
            return Err(InitialModelError::Absent { place: place.to_owned(), reason });
        }
        let asked = read.iter().position(|read| round.is_some() && read.round == round);
        return Ok(read.swap_remove(asked.unwrap_or(0)));
    };
    let found = match round {
        Some(asked) if asked != newest.round => {
            let best = FoundModel::read(files, &directory, Which::Best).map_err(unreadable)?;
            let best = best.filter(|best| best.round != newest.round);
            let newest = format!("that of round {}", newest.round);
            match best {
                Some(best) if best.round == asked => best,
                best => {
                    let best = best.map(|best| format!(" and the best, of round {}", best.round));
                    let there = format!("{newest}{}", best.unwrap_or_default());
                    return Err(InitialModelError::OtherRound { place: place.to_owned(), asked, there });
                }
            }
        }
        _ => newest,
    };
    Ok(Read {
        accuracy: accuracy(files, &directory, found.round),
        params: found.params,
        round: Some(found.round),
        samples: Some(found.config.spec.data.clone()),
        task: Some(found.config.spec.architecture.task),
    })
}

/// What the model of this round was found to have; it is told and decides nothing, so that damage is passed over.
fn accuracy(files: &dyn FileLayer, directory: &RunDirectory, round: u32) -> Option<f64> {
    let text = read_if_there(files, &directory.rounds()).ok()??;
    let records = jsonl::read(&text).ok()?.records;
    records.iter().find(|record| record.round == round)?.accuracy
}

/// A model's file.
fn of_file(files: &dyn FileLayer, path: &Path) -> Result<Read, InitialModelError> {
    let unreadable = |reason: String| InitialModelError::Unreadable { place: path.to_owned(), reason };
    let open = || {
        Reading::open(files, path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                let last = path.with_file_name("model.safetensors");
                let is_best = path.file_name().is_some_and(|name| name == "best.safetensors");
                let reason = if is_best && matches!(files.length(&last), Ok(Some(_))) {
                    "the file is not there; where the last model of a run is its best, it is model.safetensors"
                } else {
                    "the file is not there"
                };
                InitialModelError::Absent { place: path.to_owned(), reason: reason.to_owned() }
            }
            _ => unreadable(error.to_string()),
        })
    };
    // Header alone; errors in it are reported when the rest is read.
    let limits = Limits { max_bytes: u64::MAX, any_order: true, ..Limits::default() };
    let described = TensorStream::open_described(open()?, limits);
    let has = |key: &str| described.as_ref().is_ok_and(|(_, metadata)| metadata.contains_key(key));
    let foreign = !has(ARCHITECTURE_KEY);
    if has(MANIFEST_KEY) {
        let reason = "it is an ensemble, whose models stand side by side".to_owned();
        return Err(InitialModelError::NotOne { place: path.to_owned(), reason });
    }
    let mut beginning = [0; 4];
    if open()?.read_exact(&mut beginning).is_ok() && is_pickle(&beginning) {
        return Err(InitialModelError::Pickle { place: path.to_owned() });
    }
    let mut input = open()?;
    let read = models::read_model(&mut input);
    let read = input.judge(read).map_err(|error| unreadable(error.to_string()))?;
    let (architecture, params, metadata) = read.map_err(|error| {
        let mut what = causes(&error);
        if foreign {
            what.push_str(
                "; if another library wrote it, say whose names its tensors have: model.from.names",
            );
        }
        unreadable(what)
    })?;
    let samples = metadata.get(SAMPLES_KEY).map(|json| serde_json::from_str(json)).transpose();
    let samples = samples.map_err(|error| unreadable(error.to_string()))?;
    let round = metadata.get("rounds").and_then(|rounds| rounds.parse().ok());
    Ok(Read { params, round, accuracy: None, samples, task: Some(architecture.task) })
}

/// What of the samples that the model was trained on is otherwise here: it is allowed, and seldom meant.
fn differences(its: &DataSpec, ours: &DataSpec) -> Vec<String> {
    let mut remarks = Vec::new();
    if !its.class_names.is_empty() && !ours.class_names.is_empty() && its.class_names != ours.class_names {
        remarks.push(format!(
            "the model that the run begins with tells other classes apart, or in another order: {}, and here {}",
            its.class_names.join(", "),
            ours.class_names.join(", ")
        ));
    }
    if !its.features.is_empty() && !ours.features.is_empty() && its.features != ours.features {
        remarks.push(format!(
            "the model that the run begins with knows other columns of a table, or the same in another order: {}, and here {}",
            its.features.join(", "),
            ours.features.join(", ")
        ));
    }
    if let (Some(its), Some(ours)) = (&its.text, &ours.text)
        && its != ours
    {
        remarks.push(format!(
            "the model that the run begins with was trained on the texts of the column {its:?}, and here they are those of {ours:?}"
        ));
    }
    if its.preparation.normalisation != ours.preparation.normalisation {
        remarks.push(
            "the model that the run begins with was trained on samples that were normalised otherwise (data.normalise)".to_owned(),
        );
    }
    remarks
}

/// SHA-256 of names, shapes and values, each with its length, in the order of names: the first half of its digits.
fn digest(params: &ParamSet) -> String {
    let mut hash = Sha256::new();
    let count = |hash: &mut Sha256, count: usize| hash.update((count as u64).to_le_bytes());
    for (name, array) in params {
        count(&mut hash, name.len());
        hash.update(name);
        count(&mut hash, array.shape().len());
        array.shape().iter().for_each(|&side| count(&mut hash, side));
        for values in array.values().chunks(4096) {
            hash.update(values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>());
        }
    }
    let digits = HEXLOWER.encode(&hash.finalize());
    digits[..ModelOrigin::DIGITS].to_owned()
}

#[cfg(test)]
mod tests {
    use shared::spec::RunSpec;

    use super::*;

    #[test]
    fn it_is_said_where_columns_are_others_and_not_where_none_are_named() {
        let unnamed = RunSpec::example("fedavg").data;
        let of =
            |names: [&str; 2]| DataSpec { features: names.map(str::to_owned).to_vec(), ..unnamed.clone() };
        let (ours, swapped) = (of(["height", "width"]), of(["width", "height"]));
        for its in [&ours, &unnamed] {
            assert_eq!(differences(its, &ours), Vec::<String>::new());
        }
        let remarks = differences(&swapped, &ours);
        assert!(
            remarks.len() == 1 && remarks[0].contains("width, height, and here height, width"),
            "{remarks:?}"
        );
        let texts = |column: &str| DataSpec { text: Some(column.to_owned()), ..unnamed.clone() };
        let remarks = differences(&texts("title"), &texts("body"));
        assert!(remarks.len() == 1 && remarks[0].contains("\"title\""), "{remarks:?}");
    }
}
