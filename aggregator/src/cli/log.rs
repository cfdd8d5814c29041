//! The log on standard error, in the form in which an operator is told everything else.

use std::fmt;
use std::io::{self, IsTerminal as _};

use serde_json::{Map, Value};
use shared::cli::{LOG_VARIABLE, log_filter_of};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber, warn};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::events::sinks::json_log;
use crate::events::sinks::terminal::{error_columns, lines};

/// The form of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum LogFormat {
    /// Sentences
    #[default]
    Text,
    /// JSON objects in lines, for collectors of logs
    Json,
}

/// Starts it; `RUST_LOG` overrides the level of `verbose`.
pub(super) fn start(verbose: u8, format: LogFormat) {
    if format == LogFormat::Json {
        json_log::turn_on();
    }
    let level = match verbose {
        0 => "warn",
        1 => "warn,aggregator=info,edge_client=info",
        _ => "warn,aggregator=debug,edge_client=debug",
    };
    let (filter, wrong) = log_filter_of(std::env::var(LOG_VARIABLE).ok().as_deref(), level);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(false)
        .event_format(Lines { terminal: io::stderr().is_terminal() });
    let _ = tracing_subscriber::registry().with(lines).with(filter).try_init();
    if let Some(wrong) = wrong {
        warn!("{wrong}");
    }
}

/// Events as lines like those of notices: an alarm is marked, details are not.
struct Lines {
    terminal: bool,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if json_log::is_on() {
            let mut fields = Fields::default();
            event.record(&mut fields);
            let warning = *event.metadata().level() <= Level::WARN;
            let text = if warning { format!("WARNING: {}", fields.text) } else { fields.text };
            return writer.write_str(&json_log::of_text(&text, fields.others));
        }
        let mut text = String::new();
        context.format_fields(Writer::new(&mut text), event)?;
        let mark = if *event.metadata().level() <= Level::WARN { "WARNING: " } else { "" };
        if self.terminal {
            // A progress bar may stand in the line; it is drawn again below.
            writer.write_str("\r\x1b[2K")?;
        }
        writer.write_str(&lines(&format!("{mark}{text}"), self.terminal.then(error_columns)))
    }
}

/// The message of an event, and its other fields.
#[derive(Default)]
struct Fields {
    text: String,
    others: Map<String, Value>,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let value = format!("{value:?}");
        if field.name() == "message" {
            self.text = value;
        } else {
            self.others.insert(field.name().to_owned(), value.into());
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.others.insert(field.name().to_owned(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.others.insert(field.name().to_owned(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.others.insert(field.name().to_owned(), value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.others.insert(field.name().to_owned(), value.into());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no writer panics").extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn its_lines_are_like_those_of_notices() {
        let written = |terminal| {
            let kept = Kept::default();
            let writer = kept.clone();
            let log = tracing_subscriber::fmt()
                .with_max_level(Level::INFO)
                .with_writer(move || writer.clone())
                .with_ansi(false)
                .event_format(Lines { terminal });
            tracing::subscriber::with_default(log.finish(), || {
                tracing::warn!("the disk is {}", "slow");
                tracing::info!(client = 7, "came");
            });
            String::from_utf8(kept.0.lock().expect("no writer panics").clone()).expect("text")
        };
        let log = written(false);
        let behind_the_time: Vec<&str> =
            log.lines().filter_map(|line| line.split_once("Z ")).map(|(_, text)| text).collect();
        assert_eq!(behind_the_time, ["WARNING: the disk is slow", "came client=7"], "{log}");
        assert_eq!(written(true), "\r\x1b[2KWARNING: the disk is slow\n\r\x1b[2Kcame client=7\n");
    }
}
