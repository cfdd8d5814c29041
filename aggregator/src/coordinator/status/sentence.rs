//! A status as a sentence for the operator.

use std::fmt;
use std::time::Duration;

use super::{Activity, Awaited, Status, WaitingFor};
use crate::commands::command;
use crate::names::called;

impl fmt::Display for Status {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // First, since a narrow terminal cuts the end.
        if self.paused {
            write!(out, "PAUSED, no room on the disk; ")?;
        }
        if self.unconfirmed {
            write!(out, "PAUSED until the database says that this server leads; ")?;
        }
        if self.held {
            write!(out, "PAUSED on request (`{}`); ", command("resume"))?;
        }
        match &self.waiting_for {
            WaitingFor::Clients { connected, needed } => {
                write!(out, "waiting for clients: {connected} of {needed} connected")?;
            }
            WaitingFor::Pause { void, until } => {
                let rounds = if *void == 1 { "a round" } else { "rounds in a row" };
                let many = if *void == 1 { String::new() } else { format!("{void} ") };
                let left = until.as_secs_f64().ceil();
                write!(out, "pausing after {many}{rounds} without enough acceptable updates: {left} s left")?;
                return Ok(());
            }
            WaitingFor::Updates { round, accepted, cohort, members, .. } => {
                write!(out, "round {round}: {accepted} of {cohort} updates in")?;
                let of = |is: fn(&Awaited) -> bool| -> Vec<&Awaited> {
                    members.iter().filter(|member| is(member)).collect()
                };
                let at_work = of(|member| {
                    !member.late && !matches!(member.activity, Activity::Away | Activity::NotNow)
                });
                if let Some(first) = at_work.first() {
                    write!(out, ", {} at work ({}", at_work.len(), called(first.client))?;
                    if let Activity::Training(done, total @ 1..) = first.activity {
                        write!(out, " {} %", 100 * u128::from(done) / u128::from(total))?;
                    }
                    write!(out, "{}", if at_work.len() > 1 { ", ...)" } else { ")" })?;
                }
                let ineligible = of(|member| member.activity == Activity::NotNow);
                if let Some(first) = ineligible.first() {
                    let (count, reason) = (ineligible.len(), first.reason.as_deref().unwrap_or_default());
                    write!(out, ", {count} not in a state to train ({}: {reason}", called(first.client))?;
                    write!(out, "{}", if count > 1 { "; ...)" } else { ")" })?;
                }
                let stragglers = of(|member| member.late);
                let away = of(|member| member.activity == Activity::Away);
                for (members, what) in [(stragglers, "at an earlier round"), (away, "not connected")] {
                    if let Some(first) = members.first() {
                        let more = if members.len() > 1 { ", ..." } else { "" };
                        write!(out, ", {} {what} ({}{more})", members.len(), called(first.client))?;
                    }
                }
            }
            WaitingFor::Masks { round, answered, asked, members, .. } => {
                write!(out, "round {round}: taking masks away, {answered} of {asked} devices have answered")?;
                let away: Vec<_> =
                    members.iter().filter(|member| member.activity == Activity::Away).collect();
                if let Some(first) = away.first() {
                    let more = if away.len() > 1 { ", ..." } else { "" };
                    write!(out, ", {} not connected ({}{more})", away.len(), called(first.client))?;
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
        if self.since >= Duration::from_secs(2) {
            write!(out, ", for {} s", self.since.as_secs())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_the_first_thing_that_is_said() {
        let status = Status {
            closed: 35,
            rounds: 400,
            connected: 0,
            known: 1,
            waiting_for: WaitingFor::Disk { round: 36 },
            since: Duration::from_secs(4),
            paused: true,
            unconfirmed: false,
            held: false,
            failed: 0,
            own: None,
            load: None,
        };
        assert_eq!(status.to_string(), "PAUSED, no room on the disk; round 36: writing to disk, for 4 s");
    }

    #[test]
    fn the_servers_own_training_is_shown_and_waited_for() {
        let status = |waiting_for, own| Status {
            closed: 2,
            rounds: 5,
            failed: 0,
            connected: 4,
            known: 4,
            waiting_for,
            since: Duration::ZERO,
            paused: false,
            unconfirmed: false,
            held: false,
            own,
            load: None,
        };
        let updates =
            || WaitingFor::Updates { round: 3, accepted: 1, cohort: 4, members: Vec::new(), more: 0 };
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
