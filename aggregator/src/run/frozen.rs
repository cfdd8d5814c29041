//! The frozen parameters of a run: written down once, before its first checkpoint, in a file that is named by their digest.

use bytes::Bytes;
use models::ParamSet;
use models::architecture::encode_frozen;
use shared::spec::RunSpec;

use super::directory::{RunDirectory, frozen_in};
use super::error::{damaged, disk};
use super::{Run, RunError};
use crate::storage::{FileLayer, read_if_there, write_durably};

impl Run {
    /// Divides the model that the run begins with: what is frozen is written down and becomes a part of the specification,
    /// what is learned remains.
    pub(super) fn freeze(&mut self, initial: ParamSet) -> Result<ParamSet, RunError> {
        let architecture = &self.config.spec.architecture;
        if architecture.frozen.is_none() {
            return Ok(initial);
        }
        let (learned, frozen) = architecture.divide(initial);
        let encoded = Bytes::from(encode_frozen(&frozen));
        let state = self.directory.state();
        let architecture = architecture.clone().with_frozen(&encoded).map_err(damaged(&state))?;
        let digest = architecture.frozen.as_ref().and_then(|frozen| frozen.digest.as_deref());
        let path = self.directory.frozen(digest.expect("it has just been taken"));
        // A process that was killed before there was a run may have left others.
        let files = &*self.files;
        for name in files.list(&state).map_err(disk("list", &state))? {
            if frozen_in(&name).is_some() {
                files.remove(&state.join(&name)).map_err(disk("remove", &state))?;
            }
        }
        write_durably(files, &path, |out| out.write_all(&encoded)).map_err(disk("write", &path))?;
        self.config.spec.architecture = architecture;
        Ok(learned)
    }
}

/// Reads the frozen parameters of the run in `directory` into its specification, if it has any.
///
/// # Errors
/// They are not there, or are not those that the run began with.
pub(super) fn read_frozen(
    files: &dyn FileLayer,
    directory: &RunDirectory,
    spec: &mut RunSpec,
) -> Result<(), RunError> {
    if spec.architecture.frozen.as_ref().is_none_or(|frozen| frozen.values().is_some()) {
        return Ok(());
    }
    let state = directory.state();
    let names = files.list(&state).map_err(disk("list", &state))?;
    let digest = names.iter().find_map(|name| frozen_in(name)).ok_or_else(|| RunError::Damaged {
        path: state.clone(),
        reason: "the frozen parameters are not in it".to_owned(),
    })?;
    let path = directory.frozen(digest);
    let bytes = read_if_there(files, &path).map_err(disk("read", &path))?;
    let mut architecture = spec.architecture.clone();
    if let Some(frozen) = &mut architecture.frozen {
        frozen.digest = Some(digest.to_owned());
    }
    let read = architecture.with_frozen(&Bytes::from(bytes.unwrap_or_default()));
    spec.architecture = read.map_err(damaged(&path))?;
    Ok(())
}
