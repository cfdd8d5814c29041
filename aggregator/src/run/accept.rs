//! Step *accept*: an update becomes durable and part of the sums.

use std::path::Path;

use shared::algorithm::Checked;
use shared::id::ClientId;
use shared::message::{Rejection, UpdateHeader};
use shared::parcel::Parcel;

use super::error::disk;
use super::{Run, RunError, update_file};

impl Run {
    /// Step *accept*, if the update in the spool file `upload` is believable; then it is part of the sums. The bytes of
    /// `upload` have been synced by whoever received them.
    pub fn fold(
        &mut self,
        round: u32,
        client: ClientId,
        upload: &Path,
    ) -> Result<Result<(), Rejection>, RunError> {
        let checked = self.read_update(round, upload).and_then(|(header, update)| {
            let sums = self.open.as_ref().expect("updates are folded between open and close");
            Ok((header, self.algorithm.check(&self.round(sums.opening.round, sums.scale), update)?))
        });
        let (header, update) = match checked {
            Ok(checked) => checked,
            Err(rejection) => {
                self.files.remove(upload).map_err(disk("remove", upload))?;
                return Ok(Err(rejection));
            }
        };
        let path = self.directory.accepted_update(round, client);
        self.files.rename(upload, &path).map_err(disk("move an update to", &path))?;
        let accepted = self.directory.accepted(round);
        self.files.sync_dir(&accepted).map_err(disk("sync", &accepted))?;
        self.add(client, header, update);
        Ok(Ok(()))
    }

    pub(super) fn add(&mut self, client: ClientId, header: UpdateHeader, update: Checked) {
        let mut sums = self.open.take().expect("updates are folded between open and close");
        let round = self.round(sums.opening.round, sums.scale);
        let mut partial = sums.partial.take().unwrap_or_else(|| self.algorithm.begin(&round));
        let weight = self.config.spec.weights.of(header.report.samples);
        self.algorithm.fold(&mut partial, client, weight, header.report, update);
        sums.partial = Some(partial);
        sums.losses.insert(client, header.report.loss);
        self.open = Some(sums);
    }

    pub(super) fn read_update(&self, round: u32, path: &Path) -> Result<(UpdateHeader, Parcel), Rejection> {
        let unreadable = |error: std::io::Error| Rejection::Malformed { reason: error.to_string() };
        let mut input = self.files.open(path).map_err(unreadable)?;
        let (header, parcel) = update_file::read(&mut input, self.max_payload())?;
        if header.round == round {
            Ok((header, parcel))
        } else {
            Err(Rejection::UnknownRound { round: header.round, current: round })
        }
    }
}
