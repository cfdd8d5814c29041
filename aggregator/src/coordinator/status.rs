//! What the run waits for, and since when.

use std::fmt;
use std::time::Duration;

use shared::eligibility::Ineligible;
use shared::id::ClientId;

use super::open_round::{OpenRound, Stage};
use super::roster::Link;
use super::{Coordinator, State};

/// A snapshot for the operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Rounds closed.
    pub closed: u32,
    /// Rounds in all.
    pub rounds: u32,
    /// Connected clients.
    pub connected: usize,
    /// Known clients.
    pub known: usize,
    /// What has to happen next.
    pub waiting_for: WaitingFor,
    /// For how long it has been waited for.
    pub waited: Duration,
    /// Whether nothing goes on for want of room on this machine's disk.
    pub paused: bool,
    /// The server's own training, if it is at work: steps done and to do. The coordinator does not know.
    pub own: Option<(u64, u64)>,
}

/// What has to happen next.
#[derive(Clone, Debug, PartialEq)]
pub enum WaitingFor {
    /// More clients.
    Clients {
        /// Connected.
        connected: usize,
        /// Needed.
        needed: usize,
    },
    /// The end of the pause after a void round.
    Pause {
        /// Void rounds in a row.
        void: u32,
        /// How long the pause is still.
        left: Duration,
    },
    /// Updates of an open round.
    Updates {
        /// The round.
        round: u32,
        /// Updates that are in.
        accepted: usize,
        /// Size of the cohort; where late updates count, how many updates make the round close at once.
        cohort: usize,
        /// Connected members whose updates are not in.
        working: Vec<Working>,
        /// Connected clients that are still at work for an earlier round, where late updates count.
        behind: Vec<Working>,
        /// Members that are not connected, and for how long nothing was heard of them.
        away: Vec<(ClientId, Duration)>,
    },
    /// A durable step of this machine.
    Disk {
        /// The round.
        round: u32,
    },
    /// Nothing: the run is over.
    Nothing,
}

/// A connected member of the cohort whose update is not in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Working {
    /// Who.
    pub client: ClientId,
    /// What it is at.
    pub doing: Doing,
    /// How long ago it was last heard.
    pub silent: Duration,
}

/// What a connected member is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// It was sent the task and has not said more.
    Receiving,
    /// It trains.
    Training {
        /// Steps done, never more than `total`.
        done: u64,
        /// Steps to do.
        total: u64,
    },
    /// It has trained, and its update is under way.
    Uploading,
    /// Its update is being checked and written down.
    Checked,
    /// It is not in a state to train, for this reason: it is asked again if the round needs it.
    NotNow(Ineligible),
}

impl Coordinator {
    /// What the run waits for at `now`.
    #[must_use]
    pub fn status(&self, now: Duration) -> Status {
        let connected = self.peers.len();
        let (waiting_for, since) = match &self.state {
            State::Gathering { since, pause_until, .. } if now < *pause_until => {
                (WaitingFor::Pause { void: self.void, left: pause_until.saturating_sub(now) }, *since)
            }
            State::Gathering { since, need, known_until, .. } => {
                let needed = if now < *known_until { self.members.len().max(*need) } else { *need };
                (WaitingFor::Clients { connected, needed: needed.max(1) }, *since)
            }
            State::Opening { round, since } => (WaitingFor::Disk { round: round.number() }, *since),
            State::Open { round } => {
                let mut working = Vec::new();
                let mut away = Vec::new();
                for (client, stage) in round.stages() {
                    let unready = matches!(stage, Stage::NotNow(..));
                    if unready || matches!(stage, Stage::Asked | Stage::Folding) {
                        let member = self.members.get(&client);
                        if let Some(link) = member.and_then(|member| member.link) {
                            let doing = link.doing(round.number(), stage);
                            working.push(Working { client, doing, silent: now.saturating_sub(link.heard) });
                        } else if !unready {
                            let seen = member.map_or(round.opened(), |member| member.seen);
                            away.push((client, now.saturating_sub(seen)));
                        }
                    }
                }
                let behind: Vec<_> = self.behind_at_work(round, now);
                let waiting = WaitingFor::Updates {
                    round: round.number(),
                    accepted: round.accepted(),
                    cohort: if self.policy.late.is_some() { round.wanted() } else { round.cohort_len() },
                    working,
                    behind,
                    away,
                };
                (waiting, round.opened())
            }
            State::Closing { since, .. } => (WaitingFor::Disk { round: self.closed + 1 }, *since),
            State::Finished => (WaitingFor::Nothing, now),
        };
        Status {
            closed: self.closed,
            rounds: self.spec.rounds,
            connected,
            known: self.members.len(),
            waiting_for,
            waited: now.saturating_sub(since),
            paused: self.paused.is_some(),
            own: None,
        }
    }
}

impl Coordinator {
    /// What those are at that may still send a late update into this round.
    fn behind_at_work(&self, round: &OpenRound, now: Duration) -> Vec<Working> {
        let expected = self.present().map(|(client, _)| client).filter(|client| !round.has_late(*client));
        let working = |client: ClientId| {
            let link = self.members.get(&client)?.link?;
            let doing = link.doing(self.behind(client)?.round, &Stage::Asked);
            Some(Working { client, doing, silent: now.saturating_sub(link.heard) })
        };
        expected.filter_map(working).collect()
    }
}

impl Link {
    /// What a member is at whose update of `round` is not in.
    fn doing(&self, round: u32, stage: &Stage) -> Doing {
        if let Stage::NotNow(reason, _) = *stage {
            Doing::NotNow(reason)
        } else if *stage == Stage::Folding {
            Doing::Checked
        } else if self.progress.round == Some(round) {
            // The client's numbers are not to be trusted.
            let total = self.progress.total;
            Doing::Training { done: self.progress.done.min(total), total }
        } else if self.trained == Some(round) {
            Doing::Uploading
        } else {
            Doing::Receiving
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.waiting_for {
            WaitingFor::Clients { connected, needed } => {
                write!(out, "waiting for clients: {connected} of {needed} connected")?;
            }
            WaitingFor::Pause { void, left } => {
                let rounds = if *void == 1 { "a round" } else { "rounds in a row" };
                let many = if *void == 1 { String::new() } else { format!("{void} ") };
                let left = left.as_secs_f64().ceil();
                write!(out, "pausing after {many}{rounds} without enough acceptable updates: {left} s left")?;
                return Ok(());
            }
            WaitingFor::Updates { round, accepted, cohort, working, behind, away } => {
                write!(out, "round {round}: {accepted} of {cohort} updates in")?;
                let unready = |member: &&Working| matches!(member.doing, Doing::NotNow(_));
                let at_work = working.iter().filter(|member| !unready(member));
                if let Some(first) = at_work.clone().next() {
                    write!(out, ", {} at work ({}", at_work.clone().count(), first.client.short())?;
                    if let Doing::Training { done, total: total @ 1.. } = first.doing {
                        write!(out, " {} %", 100 * u128::from(done) / u128::from(total))?;
                    }
                    if at_work.count() > 1 {
                        write!(out, ", ...")?;
                    }
                    write!(out, ")")?;
                }
                let mut unready = working.iter().filter(unready);
                if let Some(Working { client, doing: Doing::NotNow(reason), .. }) = unready.next() {
                    let more = unready.count();
                    write!(out, ", {} not in a state to train ({}: {reason}", 1 + more, client.short())?;
                    write!(out, "{}", if more > 0 { "; ...)" } else { ")" })?;
                }
                if let Some(first) = behind.first() {
                    let more = if behind.len() > 1 { ", ..." } else { "" };
                    write!(out, ", {} at an earlier round ({}{more})", behind.len(), first.client.short())?;
                }
                if let Some((client, _)) = away.first() {
                    let more = if away.len() > 1 { ", ..." } else { "" };
                    write!(out, ", {} not connected ({}{more})", away.len(), client.short())?;
                }
            }
            WaitingFor::Disk { round } if self.own.is_some() => {
                write!(out, "round {round}: waiting for the server's own training")?;
            }
            WaitingFor::Disk { round } => write!(out, "round {round}: writing to disk")?,
            WaitingFor::Nothing => write!(out, "the run is over")?,
        }
        if let Some((done, total)) = self.own {
            write!(out, ", the server itself at {} %", 100 * u128::from(done) / u128::from(total.max(1)))?;
        }
        if self.paused {
            write!(out, ", PAUSED: there is no room on the disk")?;
        }
        if self.waited >= Duration::from_secs(2) {
            write!(out, ", for {} s", self.waited.as_secs())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_own_training_is_shown_and_waited_for() {
        let status = |waiting_for, own| Status {
            closed: 2,
            rounds: 5,
            connected: 4,
            known: 4,
            waiting_for,
            waited: Duration::ZERO,
            paused: false,
            own,
        };
        let updates = || WaitingFor::Updates {
            round: 3,
            accepted: 1,
            cohort: 4,
            working: Vec::new(),
            behind: Vec::new(),
            away: Vec::new(),
        };
        let said = |waiting_for, own| status(waiting_for, own).to_string();
        assert_eq!(said(updates(), None), "round 3: 1 of 4 updates in");
        assert_eq!(said(updates(), Some((30, 40))), "round 3: 1 of 4 updates in, the server itself at 75 %");
        let disk = || WaitingFor::Disk { round: 3 };
        assert_eq!(said(disk(), None), "round 3: writing to disk");
        assert_eq!(
            said(disk(), Some((u64::MAX - 1, u64::MAX))),
            "round 3: waiting for the server's own training, the server itself at 99 %"
        );
    }
}
