//! A visitor of the live page: requests as a browser sends them, and answers as they come.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use crate::http::{Answer, request};
use crate::process::{PATIENCE, Process};
use crate::programs::programs;

/// A page that is served, and who visits it.
pub struct Visitor {
    /// The process, which ends with this value.
    pub process: Process,
    /// Where it is.
    pub address: String,
}

impl Visitor {
    /// Starts `aggregator page` on a free port.
    ///
    /// # Panics
    /// If it does not come so far.
    #[must_use]
    pub fn of_page(arguments: &[&str]) -> Self {
        let mut command = Command::new(&programs().aggregator);
        command.args(["page", "--json", "--listen", "127.0.0.1:0"]).args(arguments);
        let mut process = Process::start("the page", &mut command);
        let line = process.line("its address", |line| line.starts_with('{'));
        let told: Value = serde_json::from_str(&line).expect("a line of JSON");
        let place = told["page"].as_str().expect("an address");
        let address = place.trim_start_matches("http://").trim_end_matches('/').to_owned();
        Self { process, address }
    }

    /// A request with these headers beside `Host`, unless they have one.
    ///
    /// # Panics
    /// If there is no connection.
    #[must_use]
    pub fn asks(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        request(&self.address, (method, path), headers, body).expect("the page is served")
    }

    /// A page.
    ///
    /// # Panics
    /// As [`asks`](Self::asks).
    #[must_use]
    pub fn sees(&self, path: &str) -> Answer {
        self.asks("GET", path, &[], "")
    }

    /// A form of this page, which says from where it is sent.
    ///
    /// # Panics
    /// As [`asks`](Self::asks).
    #[must_use]
    pub fn sends(&self, path: &str, form: &str) -> Answer {
        let origin = format!("http://{}", self.address);
        let kind = "application/x-www-form-urlencoded";
        self.asks("POST", path, &[("Origin", &origin), ("Content-Type", kind)], form)
    }

    /// Opens the stream of changes; each call of the result waits for the next one, and is its kind. The first one says that all later
    /// ones are told.
    ///
    /// # Panics
    /// If there is none.
    pub fn watches(&self) -> impl FnMut() -> String + use<> {
        let mut changes = self.changes();
        move || changes.next().expect("another change")
    }

    /// The kinds of changes as they are told, until the page ends.
    ///
    /// # Panics
    /// If there is no page, or nothing is told for long.
    pub fn changes(&self) -> impl Iterator<Item = String> + use<> {
        let mut stream = TcpStream::connect(&self.address).expect("the page is served");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        let head = format!("GET /changes HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
        stream.write_all(head.as_bytes()).expect("it is sent");
        let (mut lines, mut begun) = (BufReader::new(stream).lines(), Instant::now());
        let first = lines.next().and_then(Result::ok).unwrap_or_default();
        assert!(first.starts_with("HTTP/1.1 200"), "{first}");
        std::iter::from_fn(move || {
            loop {
                let line = lines.next()?.ok()?;
                if let Some(kind) = line.strip_prefix("event:") {
                    begun = Instant::now();
                    return Some(kind.trim().to_owned());
                }
                // It says that it is there all the time.
                assert!(begun.elapsed() < PATIENCE, "no other change was told");
            }
        })
    }
}
