//! The outbox: one finished update with its client state, until the receipt arrives.

use std::path::PathBuf;

use bytes::Bytes;
use shared::id::RunId;
use shared::message::{CountedUpdate, TaskId, TrainReport};

use super::client_state::{self, ClientStates};
use super::durable;
use super::error::StoreError;
use super::file_format::{self, Kind, OpenError, StateHead, UpdateHead};
use super::{Standing, SyncHandle, Update};

/// The `outbox/` directory.
#[derive(Debug)]
pub(super) struct Outbox {
    directory: PathBuf,
    /// Where the client state of an update that counts goes.
    locals: ClientStates,
    /// The pending update. Known without reading, since no other process uses the directory.
    held: Option<(TaskId, TrainReport)>,
    /// Whether the server counted it, while the disk has no room to commit its client state.
    counts: bool,
    /// Its payload, if this process saved it: shared with the upload, which does not wait for the disk.
    payload: Option<Bytes>,
}

/// The readable content of the directory.
struct Found {
    update: Option<(TaskId, TrainReport)>,
    /// The run of the client state.
    local: Option<RunId>,
}

impl Outbox {
    /// Opens the outbox of an earlier process. An unusable update is removed with a warning: the server gives its task again.
    pub(super) fn open(directory: PathBuf, locals: ClientStates) -> Result<Self, StoreError> {
        let mut outbox = Self { directory, locals, held: None, counts: false, payload: None };
        durable::remove_dir(&outbox.partial())?;
        match outbox.look() {
            Ok(Found { update: Some(held), local }) => {
                outbox.held = Some(held);
                // The process before may not have come to it, and the update is sent as soon as it is asked for.
                if local.is_some() {
                    outbox.sync_handle()()?;
                }
            }
            Ok(Found { update: None, local }) => {
                // Client state alone is left by a crash in the middle of committing an update that counted.
                if let Some(run) = local {
                    outbox.locals.adopt(run, &outbox.local_path())?;
                }
                outbox.remove()?;
            }
            Err(OpenError::Damaged(problem)) => {
                let path = outbox.directory.display();
                tracing::warn!("removing the unsent update in {path}, which is damaged: it {problem}");
                outbox.discard()?;
            }
            Err(OpenError::Store(error)) => return Err(error),
        }
        Ok(outbox)
    }

    pub(super) fn pending(&self) -> Option<(TaskId, TrainReport)> {
        self.held
    }

    /// The payload of the pending update; that of an earlier process is read and checked again.
    pub(super) fn payload(&mut self) -> Result<Bytes, StoreError> {
        let (expected, _) = self.held.ok_or(StoreError::NothingHeld)?;
        if let Some(payload) = &self.payload {
            return Ok(payload.clone());
        }
        let problem = match file_format::read::<UpdateHead>(&self.update_path(), Kind::Update) {
            Ok(Some((head, payload))) if head.id == expected => return Ok(payload),
            Ok(Some(_)) => "holds another update than before".to_owned(),
            Ok(None) => "was deleted".to_owned(),
            Err(OpenError::Damaged(problem)) => problem,
            Err(OpenError::Store(error)) => return Err(error),
        };
        let path = self.update_path();
        self.discard()?;
        Err(StoreError::Lost { path, problem })
    }

    /// Saves an update and drops the pending one, which does not count unless the server has counted it.
    pub(super) fn save(&mut self, update: &Update) -> Result<(), StoreError> {
        match self.held {
            Some(_) if self.counts => self.adopt()?,
            Some(_) => self.discard()?,
            None => self.remove()?,
        }
        let payload = update.payload.to_bytes();
        let written = self.write(update, &payload);
        if written.is_err() {
            // The first error is reported. The remains should not fill the disk; if removing them fails too, the next attempt
            // or start removes them.
            let _ = durable::remove_dir(&self.partial());
        } else {
            self.held = Some((update.id, update.report));
            self.payload = Some(payload);
        }
        written
    }

    fn write(&self, Update { id, report, local, .. }: &Update, payload: &Bytes) -> Result<(), StoreError> {
        let partial = self.partial();
        durable::remove_dir(&partial)?;
        durable::create_dir(&partial)?;
        let head = UpdateHead { id: *id, report: *report, keeps: Some(local.is_some()) };
        file_format::write(&partial.join("update"), Kind::Update, &head, payload)?;
        if let Some(local) = local {
            client_state::write_state(&partial.join("local"), *id, report, local)?;
        }
        durable::rename(&partial, &self.directory)
    }

    /// Commits the client state to the run's directory, and removes the update, which counts.
    pub(super) fn adopt(&mut self) -> Result<(), StoreError> {
        if let Some((held, _)) = self.held {
            self.counts = true;
            if durable::exists(&self.local_path())? {
                self.locals.adopt(held.run, &self.local_path())?;
            }
        }
        self.remove()
    }

    /// Empties the outbox. The client state goes first: alone, it would count.
    fn remove(&mut self) -> Result<(), StoreError> {
        durable::remove_file(&self.local_path())?;
        durable::remove_file(&self.update_path())?;
        self.emptied();
        durable::remove_dir(&self.directory)
    }

    fn emptied(&mut self) {
        (self.held, self.counts, self.payload) = (None, false, None);
    }

    /// The client state of `run`: as of the pending update, if that is of this run and has any, or else the committed one.
    pub(super) fn client_state(&self, run: RunId) -> Result<Option<Vec<u8>>, StoreError> {
        if self.held.is_some_and(|(held, _)| held.run == run)
            && let Some(newest) = client_state::read_state(&self.local_path(), run)?
        {
            return Ok(Some(newest.state));
        }
        self.locals.read(run)
    }

    /// Which client state of `run` counts: that of the pending update only if the server has counted it.
    pub(super) fn standing(&self, run: RunId) -> Result<Standing, StoreError> {
        match self.held {
            Some((held, report))
                if self.counts && held.run == run && durable::exists(&self.local_path())? =>
            {
                Ok(Standing::After(CountedUpdate::of(held.round, &report)))
            }
            _ => self.locals.standing(run),
        }
    }

    pub(super) fn sync_handle(&self) -> SyncHandle {
        let directory = self.directory.clone();
        Box::new(move || {
            durable::sync_file(&directory.join("update"))?;
            durable::sync_file(&directory.join("local"))?;
            durable::sync_dir(&directory)?;
            durable::sync_dir(durable::parent(&directory))
        })
    }

    fn look(&self) -> Result<Found, OpenError> {
        let update = file_format::read::<UpdateHead>(&self.update_path(), Kind::Update)?;
        let local = file_format::read::<StateHead>(&self.local_path(), Kind::Local)?;
        let (update, local) = (update.map(|(head, _)| head), local.map(|(head, _)| head.run));
        match (&update, local) {
            (Some(head), Some(run)) if run != head.id.run => {
                Err(OpenError::Damaged(format!("has client state of run {run} beside it")))
            }
            // A power failure may keep the one and lose the other: the server would learn from an update whose state is nowhere.
            (Some(UpdateHead { id, report, keeps: Some(true) }), None)
                // Unless it is committed already: a crash in the middle of removing an update that counted.
                if self.locals.standing(id.run)?
                    != Standing::After(CountedUpdate::of(id.round, report)) =>
            {
                Err(OpenError::Damaged("has lost the client state that goes with it".to_owned()))
            }
            _ => Ok(Found { update: update.map(|head| (head.id, head.report)), local }),
        }
    }

    /// Removes the update and its client state in one step: training continues from the state before.
    pub(super) fn discard(&mut self) -> Result<(), StoreError> {
        self.emptied();
        let partial = self.partial();
        durable::remove_dir(&partial)?;
        if durable::exists(&self.directory)? {
            durable::rename(&self.directory, &partial)?;
            // A power failure must not bring the client state back without its update: it would count.
            durable::sync_dir(durable::parent(&self.directory))?;
        }
        durable::remove_dir(&partial)
    }

    fn update_path(&self) -> PathBuf {
        self.directory.join("update")
    }

    fn local_path(&self) -> PathBuf {
        self.directory.join("local")
    }

    fn partial(&self) -> PathBuf {
        durable::partial(&self.directory)
    }
}
