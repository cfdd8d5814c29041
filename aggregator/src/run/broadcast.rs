//! What a round's cohort is sent.

use std::path::PathBuf;

use bytes::Bytes;
use shared::frame;
use shared::message::{TaskHeader, TaskKind, ToClient};
use shared::protocol::Protocol;
use shared::record::Record;

use super::error::disk;
use super::{Run, RunError, SMALL, Traffic};
use crate::storage::retry_full::retry_while_full;

/// What a round's cohort is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broadcast {
    /// The round.
    pub round: u32,
    /// What its cohort is asked for.
    pub work: TaskKind,
    /// Rounds of training before it that have failed.
    pub failed: u32,
    /// The file that holds it.
    pub path: PathBuf,
    /// Its length in bytes.
    pub length: u64,
    /// Its bytes, shared by all who send it, if they are few.
    pub content: Option<Bytes>,
}

impl Broadcast {
    /// What it goes with, to a peer that has its first `offset` bytes.
    #[must_use]
    pub fn header(&self, offset: u64) -> TaskHeader {
        TaskHeader { round: self.round, work: self.work, failed: self.failed, offset }
    }

    /// The message that it goes with as a whole, in the newest version of the protocol.
    #[must_use]
    pub fn task(&self) -> ToClient {
        Protocol::V6.task(self.header(0))
    }

    /// Bytes of the task on the wire.
    #[must_use]
    pub fn wire_bytes(&self) -> u64 {
        frame::encode(&self.task(), self.length).len() as u64 + self.length
    }
}

impl Run {
    /// What is known of the traffic that the open round had caused before this process took it over: every durable
    /// update was received, and its client was sent the task. Other messages are forgotten.
    #[must_use]
    pub fn earlier_traffic(&self, broadcast: &Broadcast) -> Traffic {
        self.open.as_ref().map_or(Traffic::default(), |sums| Traffic {
            down: sums.reports.len() as u64 * broadcast.wire_bytes(),
            up: sums.received,
        })
    }

    /// The broadcast of `round`, made from the checkpoint if its file does not exist.
    pub fn broadcast(&self, round: u32, work: TaskKind) -> Result<Broadcast, RunError> {
        let path = self.directory.broadcast(round);
        let present = self.files.length(&path).map_err(disk("look at", &path))?;
        let length = match present {
            Some(length) => length,
            None => self.write_broadcast(round, &self.algorithm.broadcast(&self.load(round - 1)?))?,
        };
        let mut content = None;
        if length <= SMALL {
            let mut bytes = Vec::with_capacity(length as usize);
            let mut file = self.files.open(&path).map_err(disk("open", &path))?;
            file.read_to_end(&mut bytes).map_err(disk("read", &path))?;
            content = Some(bytes.into());
        }
        Ok(Broadcast { round, work, failed: self.failed, path, length, content })
    }

    /// Not durable: it can be made again from the checkpoint.
    pub(super) fn write_broadcast(&self, round: u32, record: &Record) -> Result<u64, RunError> {
        let path = self.directory.broadcast(round);
        let partial = crate::storage::partial(&path);
        let precision = self.config.spec.update.broadcast();
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
