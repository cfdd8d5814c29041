//! `edge-client doctor`.

use std::io::{self, Write};
use std::path::Path;

use shared::cli::{counted, wrapped};
use shared::identity::{PublicKey, SecretKey};
use shared::ticket::Ticket;

use super::arguments::DoctorArguments;
use super::error::{CliError, Exit};
use super::event::printable;
use super::parse::Target;
use super::stream::Stream;
use super::ticket;
use crate::address_book::AddressBook;
use crate::doctor::{self, Finding, Level, samples, server};
use crate::quic::{QuicConnector, Reached};
use crate::store::ServerFile;
use crate::system::System;
use crate::transport::ConnectError;
use crate::trust::Trust;

pub(super) fn run(arguments: &DoctorArguments) -> Result<(), CliError> {
    let ticket = ticket::given(arguments.server.as_ref(), arguments.ticket_file.as_deref())?;
    ticket.iter().for_each(ticket::hand_over);
    let mut findings = doctor::look_at(&System::this());
    let state = arguments.state.directory();
    match &state {
        Ok(state) => findings.extend([doctor::disk::look_at(state), doctor::state::look_at(state)].concat()),
        Err(error) => findings.push(doctor::state::nowhere(error.to_string())),
    }
    if let Some(folder) = &arguments.data {
        let reading = &arguments.reading;
        findings.extend(if reading.classes.is_some() || reading.unlabelled {
            let options = reading.options(arguments.label.as_deref(), arguments.on_error);
            samples::look_at(folder, &options)
        } else {
            let shape = reading.shape.as_ref().map(|shape| shape.0.clone());
            samples::survey(folder, shape, arguments.label.as_deref(), arguments.on_error)
        });
    }
    let mut not_looked_at = Vec::new();
    match whom(ticket, arguments.server.as_ref(), state.as_deref().ok()) {
        Some(whom) => findings.extend(server::look_at(&reach(whom))),
        None => not_looked_at.push("the server (TICKET or HOST:PORT)"),
    }
    if arguments.data.is_none() {
        not_looked_at.push("the samples (--data DIR)");
    }
    let columns = Stream::Out.columns();
    show(&findings, &not_looked_at, arguments.json, columns, &mut io::stdout().lock())
        .map_err(CliError::output)?;
    match findings.iter().filter(|finding| finding.level == Level::Problem).count() {
        0 => Ok(()),
        problems => Err(CliError::new(
            Exit::Local,
            format!(
                "something keeps this device from taking part ({}): each finding says what to do",
                counted(problems, "problem")
            ),
        )),
    }
}

/// A server's addresses and, if it is known, its key.
type Whom = (AddressBook, Option<PublicKey>);

/// The server to reach: from the arguments, or from the state directory.
fn whom(ticket: Option<Ticket>, given: Option<&Target>, state: Option<&Path>) -> Option<Whom> {
    match (ticket, given) {
        (Some(ticket), _) => Some((AddressBook::new(ticket.addresses), Some(ticket.server))),
        (None, Some(Target::Addresses(addresses))) => Some((AddressBook::new(addresses.clone()), None)),
        // An unreadable state directory is a finding of its own.
        (None, _) => {
            let server = ServerFile::of(state?).load().ok().flatten()?;
            Some((server.address_book(), Some(server.key)))
        }
    }
}

/// Tries to reach the server with a throw-away identity: whether it admits this device is not checked.
fn reach((addresses, key): Whom) -> Result<Reached, ConnectError> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| ConnectError::Local(error.to_string()))?;
    let connector = QuicConnector::new(addresses, Trust::new(key), &SecretKey::from_bytes(seed));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| ConnectError::Local(error.to_string()))?;
    let reached = runtime.block_on(connector.reach());
    // A name lookup by the system may still run, and cannot be cancelled.
    runtime.shutdown_background();
    reached
}

/// Prints findings: for people, or one JSON object each.
fn show(
    findings: &[Finding],
    not_looked_at: &[&str],
    json: bool,
    columns: Option<usize>,
    out: &mut impl Write,
) -> io::Result<()> {
    for finding in findings {
        if json {
            writeln!(out, "{}", serde_json::to_string(finding).map_err(io::Error::other)?)?;
            continue;
        }
        let level = match finding.level {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Problem => "PROBLEM",
        };
        let found = format!("{level:8} {:12} {}", finding.subject, printable(&finding.found));
        writeln!(out, "{}", wrapped(&found, columns, 22))?;
        if let Some(advice) = &finding.advice {
            let advice = format!("{:22}-> {}", "", printable(advice));
            writeln!(out, "{}", wrapped(&advice, columns, 25))?;
        }
    }
    if !json && !not_looked_at.is_empty() {
        let line = format!("not looked at: {}", not_looked_at.join(", "));
        writeln!(out, "{}", wrapped(&line, columns, 2))?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_shown_with_what_to_do() {
        let findings = [
            Finding { subject: "clock", level: Level::Ok, found: "right".to_owned(), advice: None },
            Finding {
                subject: "disk",
                level: Level::Problem,
                found: "full\u{1b}[2J".to_owned(),
                advice: Some("empty it".to_owned()),
            },
        ];
        let shown = |json| {
            let mut out = Vec::new();
            show(&findings, &["the samples (--data DIR)"], json, None, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let lines: Vec<String> = shown(false).lines().map(str::to_owned).collect();
        assert_eq!(lines[0], "ok       clock        right");
        assert_eq!(lines[1], "PROBLEM  disk         full\u{fffd}[2J");
        assert_eq!(lines[2], "                      -> empty it");
        assert_eq!(lines[3], "not looked at: the samples (--data DIR)");
        assert_eq!(
            shown(true),
            "{\"subject\":\"clock\",\"level\":\"ok\",\"found\":\"right\"}\n{\"subject\":\"disk\",\"level\":\"problem\",\
             \"found\":\"full\\u001b[2J\",\"advice\":\"empty it\"}\n"
        );
    }
}
