//! What a round's cohort is sent.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::PathBuf;

use bytes::Bytes;
use shared::differences::Digest;
use shared::frame;
use shared::message::{TaskHeader, TaskKind, ToClient};
use shared::protocol::Protocol;
use shared::record::Record;

use super::error::disk;
use super::{Run, RunError, SMALL, Traffic};
use crate::storage::retry_full::retry_while_full;

/// A file that is sent, as a whole or behind others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The file that holds it. A checksum may follow in it.
    pub path: PathBuf,
    /// Its length in bytes.
    pub length: u64,
    /// Its bytes, shared by all who send it, if they are few.
    pub content: Option<Bytes>,
}

impl Part {
    /// The file of these bytes.
    pub(super) fn of(path: PathBuf, bytes: Bytes) -> Self {
        let length = bytes.len() as u64;
        Self { path, length, content: Some(bytes).filter(|_| length <= SMALL) }
    }

    /// Its bytes.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn read(&self) -> io::Result<Bytes> {
        if let Some(content) = &self.content {
            return Ok(content.clone());
        }
        let mut bytes = Vec::with_capacity(self.length as usize);
        File::open(&self.path)?.take(self.length).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != self.length {
            // It is written again at this moment, or was cut.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(bytes.into())
    }
}

/// What leads from an earlier model to a later one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The earlier model.
    pub from: Digest,
    /// Where it is.
    pub part: Part,
}

/// What a round's cohort is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broadcast {
    /// The round.
    pub round: u32,
    /// What its cohort is asked for.
    pub work: TaskKind,
    /// Rounds of training before it that have failed.
    pub failed: u32,
    /// The model.
    pub model: Part,
    /// The digest of the model, where it may travel as differences.
    pub digest: Option<Digest>,
    /// What leads to it from the models of rounds before, the oldest first.
    pub differences: Vec<Difference>,
}

impl Broadcast {
    /// What a device is sent that has the model of this digest, or none.
    #[must_use]
    pub fn to(&self, base: Option<&Digest>) -> Delivery {
        let Self { round, work, failed, digest, .. } = *self;
        let model = self.model.clone();
        // The last of them: where a model has not changed, several lead from it. One that leads up to what a device has is passed over.
        let leads = |from: Option<&Digest>| self.differences.iter().rposition(|it| Some(&it.from) == from);
        let has_it = base.is_some() && base == digest.as_ref();
        let first = leads(base).or_else(|| self.differences.len().checked_sub(1).filter(|_| has_it));
        let differences = first
            .map_or(Vec::new(), |first| self.differences[first..].iter().map(|it| it.part.clone()).collect());
        Delivery { round, work, failed, model, digest, differences }
    }

    /// What a device is sent that is to get this many of the newest differences, or the whole for 0.
    #[must_use]
    pub fn of_last(&self, differences: usize) -> Delivery {
        let first = self.differences.len().saturating_sub(differences);
        let differences = self.differences[first..].iter().map(|it| it.part.clone()).collect();
        Delivery { differences, ..self.to(None) }
    }

    /// All that is sent: the model, and the differences in their order.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        std::iter::once(&self.model).chain(self.differences.iter().map(|difference| &difference.part))
    }
}

/// What one device is sent of a broadcast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The round.
    pub round: u32,
    work: TaskKind,
    failed: u32,
    /// The model that the device has then.
    pub model: Part,
    digest: Option<Digest>,
    /// What is sent in place of the model, if there is anything.
    differences: Vec<Part>,
}

impl Delivery {
    /// The message that it goes with, to a peer that speaks this version and has the first `offset` bytes.
    #[must_use]
    pub fn message(&self, protocol: Protocol, offset: u64) -> ToClient {
        let Self { round, work, failed, digest, .. } = *self;
        let differences = self.differences.iter().map(|difference| difference.length).collect();
        match digest {
            Some(digest) if protocol >= Protocol::V6 => {
                ToClient::BaseTask { round, work, failed, offset, digest, differences }
            }
            _ => protocol.task(TaskHeader { round, work, failed, offset }),
        }
    }

    /// The message that it goes with as a whole, in the newest version of the protocol.
    #[must_use]
    pub fn task(&self) -> ToClient {
        self.message(Protocol::V6, 0)
    }

    /// The files that are sent, one behind the other.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        if self.differences.is_empty() { std::slice::from_ref(&self.model) } else { &self.differences }
    }

    /// How many differences are sent in place of the model.
    #[must_use]
    pub fn differences(&self) -> usize {
        self.differences.len()
    }

    /// Bytes of the payload.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.parts().iter().map(|part| part.length).sum()
    }

    /// The digest of the model that the device has from then on, where models travel as differences.
    #[must_use]
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// Bytes of the task on the wire.
    #[must_use]
    pub fn wire_bytes(&self) -> u64 {
        frame::encode(&self.task(), self.length()).len() as u64 + self.length()
    }
}

impl Run {
    /// What is known of the traffic that the open round had caused before this process took it over: every durable
    /// update was received, and its client was sent the task, as if it had had the model of the round before. Other messages are
    /// forgotten.
    #[must_use]
    pub fn earlier_traffic(&self, broadcast: &Broadcast) -> Traffic {
        let before = broadcast.differences.last().map(|difference| &difference.from);
        self.open.as_ref().map_or(Traffic::default(), |sums| Traffic {
            down: sums.reports.len() as u64 * broadcast.to(before).wire_bytes(),
            up: sums.received,
        })
    }

    /// The broadcast of `round`, made from the checkpoint if its file does not exist.
    pub fn broadcast(&self, round: u32, work: TaskKind) -> Result<Broadcast, RunError> {
        let failed = self.failed;
        if self.config.spec.update.broadcast().is_difference() {
            let differences =
                self.bases.differences.iter().map(|(_, difference)| difference.clone()).collect();
            let (model, digest) = (self.base_part(round)?, self.bases.digest);
            return Ok(Broadcast { round, work, failed, model, digest, differences });
        }
        let path = self.directory.broadcast(round);
        let present = self.files.length(&path).map_err(disk("look at", &path))?;
        let length = match present {
            Some(length) => length,
            None => self.write_whole(round, &self.algorithm.broadcast(&self.load(round - 1)?))?,
        };
        let mut content = None;
        if length <= SMALL {
            let mut bytes = Vec::with_capacity(length as usize);
            let mut file = self.files.open(&path).map_err(disk("open", &path))?;
            file.read_to_end(&mut bytes).map_err(disk("read", &path))?;
            content = Some(bytes.into());
        }
        let model = Part { path, length, content };
        Ok(Broadcast { round, work, failed, model, digest: None, differences: Vec::new() })
    }

    /// Writes what is sent in `round`. Not durable: it can be made again from the checkpoint, or by closing the round before again.
    pub(super) fn write_broadcast(&mut self, round: u32, record: Record) -> Result<(), RunError> {
        if self.config.spec.update.broadcast().is_difference() {
            self.write_base(round, record)
        } else {
            self.write_whole(round, &record).map(drop)
        }
    }

    fn write_whole(&self, round: u32, record: &Record) -> Result<u64, RunError> {
        let path = self.directory.broadcast(round);
        let partial = crate::storage::partial(&path);
        let precision = self.config.spec.update.broadcast().whole();
        let write = || {
            let mut file = self.files.create(&partial)?;
            record.write_to(precision, &mut *file)?;
            file.flush()?;
            drop(file);
            self.files.rename(&partial, &path)
        };
        retry_while_full(&*self.files, &path, write).map_err(disk("write", &path))?;
        Ok(record.encoded_len(precision))
    }
}
