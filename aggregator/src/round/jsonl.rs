//! `rounds.jsonl`: one JSON object per line, one line per closed round, in order.
//!
//! A line is appended when a round closes. A crash can leave the last line half-written; reading tells that apart
//! from a file that is damaged. The last key of a line, `crc32`, is the checksum of the line without it; lines of earlier versions
//! have none.

use thiserror::Error;

use super::RoundRecord;

/// What stands before the digits of a line's checksum.
const CHECKSUM: &str = ",\"crc32\":\"";

/// What a file of rounds holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rounds {
    /// The complete rounds.
    pub records: Vec<RoundRecord>,
    /// Whether a half-written line follows them.
    pub torn: bool,
}

/// A complete line is no round: the file was damaged, or written by another version.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line} is not a round ({reason}): {shown:?}")]
pub struct JsonlError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
    /// Its beginning.
    pub shown: String,
}

/// One round as a JSON object.
///
/// # Panics
/// Never: JSON can hold every record.
#[must_use]
pub fn object(record: &RoundRecord) -> String {
    serde_json::to_string(record).expect("a record has only numbers and names, which JSON can hold")
}

/// One round as a line, with its checksum and the line break.
///
/// # Panics
/// Never, as [`object`].
#[must_use]
pub fn line(record: &RoundRecord) -> String {
    let json = object(record);
    let sum = crc32fast::hash(json.as_bytes());
    let fields = json.strip_suffix('}').expect("a record is an object");
    format!("{fields}{CHECKSUM}{sum:08x}\"}}\n")
}

/// The record in a line without its line break.
fn parse(line: &[u8]) -> Result<RoundRecord, String> {
    let text = str::from_utf8(line).map_err(|_| "it is not text".to_owned())?;
    let record = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if let Some((fields, rest)) = text.rsplit_once(CHECKSUM) {
        let sum = crc32fast::hash(format!("{fields}}}").as_bytes());
        if rest != format!("{sum:08x}\"}}") {
            return Err("its content does not match its checksum".to_owned());
        }
    }
    Ok(record)
}

/// Rounds as the text of a file.
#[must_use]
pub fn write(records: &[RoundRecord]) -> String {
    records.iter().map(line).collect()
}

/// Reads the text of a file. What follows the last line break is a half-written line, which may end inside a character. It is
/// reported as such: even if it happens to be complete, the round it belongs to was not yet durable.
pub fn read(text: &(impl AsRef<[u8]> + ?Sized)) -> Result<Rounds, JsonlError> {
    read_on(text.as_ref(), Vec::new(), Bookmark::default()).map(|(rounds, _)| rounds)
}

/// How far a file was read: to the end of its last complete line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bookmark {
    bytes: usize,
    /// The CRC-32 of these.
    sum: u32,
}

/// [`read`] of a file that was read before as far as `bookmark`, when it held `records`. If what was read is still there, what follows is
/// read alone; else all is.
///
/// # Errors
/// As [`read`].
pub fn read_on(
    text: &[u8],
    mut records: Vec<RoundRecord>,
    bookmark: Bookmark,
) -> Result<(Rounds, Bookmark), JsonlError> {
    let same = text.get(..bookmark.bytes).is_some_and(|read| crc32fast::hash(read) == bookmark.sum);
    let Bookmark { bytes, sum } = if same { bookmark } else { Bookmark::default() };
    if !same {
        records.clear();
    }
    let new = &text[bytes..];
    let complete = new.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
    let (lines, rest) = new.split_at(complete);
    for line in lines.split_inclusive(|&byte| byte == b'\n') {
        let line = &line[..line.len() - 1];
        records.push(parse(line).map_err(|reason| JsonlError {
            line: records.len() + 1,
            reason,
            shown: String::from_utf8_lossy(line).chars().take(60).collect(),
        })?);
    }
    let mut hasher = crc32fast::Hasher::new_with_initial_len(sum, bytes as u64);
    hasher.update(lines);
    let bookmark = Bookmark { bytes: bytes + complete, sum: hasher.finalize() };
    Ok((Rounds { records, torn: !rest.is_empty() }, bookmark))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::round::{Dominance, WaitedFor};

    fn record(round: u32, loss: Option<f64>) -> RoundRecord {
        RoundRecord {
            round,
            accuracy: loss.map(|loss| 1.0 / (1.0 + loss)),
            loss,
            train_loss: Some(0.5),
            metrics: std::collections::BTreeMap::new(),
            closing: false,
            clients: std::collections::BTreeMap::new(),
            sampled: 10,
            accepted: 8,
            rejected: 1,
            discarded: 0,
            failed: 0,
            late: 0,
            not_now: 0,
            lost: 1,
            bytes_down: 1_000_000,
            bytes_up: u64::MAX,
            seconds: 1.25,
            waited_for: WaitedFor::MaxTime,
            collapsed: false,
            diverged: false,
            dominance: None,
            void: false,
            ..RoundRecord::default()
        }
    }

    #[test]
    fn the_format_is_fixed() {
        let expected = "{\"round\":3,\"accuracy\":null,\"loss\":null,\"train_loss\":0.5,\"sampled\":10,\"accepted\":8,\
             \"rejected\":1,\"discarded\":0,\"failed\":0,\"lost\":1,\"bytes_down\":1000000,\
             \"bytes_up\":18446744073709551615,\"seconds\":1.25,\"waited_for\":\"max-time\"";
        // CRC-32 computed with Python's zlib.
        assert_eq!(line(&record(3, None)), format!("{expected},\"crc32\":\"bb890088\"}}\n"));
        // Nothing more is asked of the lines of earlier versions.
        let earlier = format!("{expected}}}\n");
        assert_eq!(read(&earlier).map(|read| read.records), Ok(vec![record(3, None)]));
        let void = RoundRecord { void: true, ..record(3, None) };
        let text = line(&void);
        assert!(text.contains("\"waited_for\":\"max-time\",\"void\":true,\"crc32\":"), "{text}");
        assert_eq!(read(&text).map(|read| read.records), Ok(vec![void]));
    }

    #[test]
    fn a_dominating_device_is_kept_and_older_lines_have_none() {
        let client = shared::id::ClientId::from_bytes([1; 16]);
        let dominance =
            Dominance { client, samples: 9000, share_of_samples: 0.75, share_of_weight: 0.5, bounded: 1 };
        let told = RoundRecord { dominance: Some(dominance), ..record(3, None) };
        let text = object(&told);
        let expected = "\"dominance\":{\"client\":\"01010101010101010101010101010101\",\"samples\":9000,\
             \"share_of_samples\":0.75,\"share_of_weight\":0.5,\"bounded\":1}}";
        assert!(text.ends_with(expected), "{text}");
        assert_eq!(read(&line(&told)).map(|read| read.records), Ok(vec![told]));
        let newer = text.replace("\"bounded\":1", "\"bounded\":1,\"invented\":2") + "\n";
        assert!(read(&newer).is_ok(), "{newer}");
    }

    #[test]
    fn a_line_of_a_newer_version_is_read_without_what_it_has_more() {
        let known = line(&record(3, None));
        let (known, _) = known.split_once(CHECKSUM).expect("it has one");
        let newer = known.replace("{\"round\":3,", "{\"round\":3,\"invented\":{\"a\":[1]},") + "}\n";
        assert!(newer.contains("invented"), "{newer}");
        assert_eq!(read(&newer).map(|read| read.records), Ok(vec![record(3, None)]));
    }

    #[test]
    fn a_torn_last_line_is_reported_and_costs_nothing_else() {
        let records = [record(1, Some(0.25)), record(2, None)];
        let whole = write(&records);
        let first = line(&records[0]).len();
        for end in first..whole.len() {
            let read = read(&whole[..end]).expect("only the last line is torn");
            assert_eq!((read.records.as_slice(), read.torn), (&records[..1], end > first), "cut at {end}");
        }
        assert_eq!(read(""), Ok(Rounds { records: Vec::new(), torn: false }));
    }

    #[test]
    fn a_file_that_has_grown_is_read_on_and_another_one_anew() {
        let records = [record(1, Some(0.25)), record(2, None), record(3, Some(0.5))];
        let whole = write(&records);
        let first = line(&records[0]).len();
        for end in 0..whole.len() {
            let (begun, bookmark) =
                read_on(&whole.as_bytes()[..end], Vec::new(), Bookmark::default()).unwrap();
            let (all, at_end) = read_on(whole.as_bytes(), begun.records, bookmark).unwrap();
            assert_eq!((all.records.as_slice(), all.torn, at_end.bytes), (&records[..], false, whole.len()));
        }
        // What was read before is not parsed again: here it is marked as read, and is no round.
        let text = format!("??\n{}", &whole[first..]);
        let known = Bookmark { bytes: 3, sum: crc32fast::hash(b"??\n") };
        let (all, _) = read_on(text.as_bytes(), vec![records[0].clone()], known).unwrap();
        assert_eq!(all.records, records);
        // A file that was put back, or was cut.
        for other in [whole.replacen("\"sampled\":10", "\"sampled\":11", 1), whole[..first].to_owned()] {
            let (known, bookmark) = read_on(whole.as_bytes(), Vec::new(), Bookmark::default()).unwrap();
            let again = read_on(other.as_bytes(), known.records, bookmark).map(|(rounds, _)| rounds);
            assert_eq!(again, read(&other));
        }
        let damaged = format!("{whole}no round\n");
        let (known, bookmark) = read_on(whole.as_bytes(), Vec::new(), Bookmark::default()).unwrap();
        assert_eq!(read_on(damaged.as_bytes(), known.records, bookmark).unwrap_err().line, 4);
    }

    #[test]
    fn a_damaged_line_is_an_error_that_names_it() {
        let text = format!("{}{{\"round\": \"two\"}}\n{}", line(&record(1, None)), line(&record(3, None)));
        let message = read(&text).expect_err("line 2 is damaged").to_string();
        assert!(message.contains("line 2") && message.contains("two"), "{message}");
        assert!(read("\n").is_err(), "an empty line is no round");
    }

    #[test]
    fn every_flipped_bit_is_noticed_or_changes_nothing() {
        let (whole, meant) = (line(&record(1, Some(0.25))), record(1, Some(0.25)));
        let mut noticed = 0;
        for bit in 0..8 * (whole.len() - 1) {
            let mut bytes = whole.clone().into_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            match read(&bytes) {
                Err(_) => noticed += 1,
                // The name of the checksum is another one, which is passed over.
                Ok(read) => assert_eq!(read.records, std::slice::from_ref(&meant), "bit {bit}"),
            }
        }
        assert!(noticed > 8 * (whole.len() - 20), "{noticed}");
    }

    #[test]
    fn values_that_are_not_finite_become_null() {
        let text = line(&RoundRecord { train_loss: Some(f64::NAN), ..record(1, Some(f64::INFINITY)) });
        let back = &read(&text).expect("valid JSON").records[0];
        assert_eq!((back.loss, back.train_loss), (None, None));
    }

    proptest! {
        #[test]
        fn round_trip(losses in proptest::collection::vec(proptest::option::of(0.0..1e300_f64), 0..20)) {
            let records: Vec<_> = (1..).zip(losses).map(|(round, loss)| record(round, loss)).collect();
            let text = write(&records);
            prop_assert_eq!(read(&text), Ok(Rounds { records, torn: false }));
        }

        #[test]
        fn any_text_is_read_without_panic(text: String) {
            let _ = read(&text);
        }
    }
}
