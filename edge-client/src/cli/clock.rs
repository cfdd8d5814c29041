//! The time of day in lines of a log.

use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};

/// Now, in UTC and to the second: `2026-03-01T12:30:59Z`.
pub(super) fn stamp() -> String {
    let mut time = String::new();
    // Writing to a string fails never, and a line without its time is better than none.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    let seconds = time.find(['.', 'Z']).unwrap_or(time.len());
    format!("{}Z", &time[..seconds])
}
