//! Whether two copies of a run have the same results. Their times may differ: two machines may have run it.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use serde_json::Value;

use super::error::{CollectError, disk};
use crate::round::RoundRecord;
use crate::run::directory::RunDirectory;

/// In what two lists of rounds of one run differ, as far as both go, or at all if both are `whole`.
pub(super) fn difference(one: &[RoundRecord], other: &[RoundRecord], whole: bool) -> Option<String> {
    let differing = |(one, other): (&RoundRecord, &RoundRecord)| {
        let field = field(one, other)?;
        Some(format!("`{field}` of round {} is not the same", one.round))
    };
    one.iter().zip(other).find_map(differing).or_else(|| {
        let lengths = [one.len(), other.len()];
        (whole && lengths[0] != lengths[1])
            .then(|| format!("one has {} rounds and the other one {}", lengths[0], lengths[1]))
    })
}

/// The first field, but for times, in which two records differ.
fn field(one: &RoundRecord, other: &RoundRecord) -> Option<String> {
    let fields = |round: &RoundRecord| match serde_json::to_value(round.without_times()) {
        Ok(Value::Object(fields)) => fields,
        _ => unreachable!("a record is an object of names and numbers"),
    };
    let (one, other) = (fields(one), fields(other));
    let names = one.keys().chain(other.keys());
    names.into_iter().find(|&name| one.get(name) != other.get(name)).cloned()
}

/// Which file of the models of two complete copies differs.
pub(super) fn other_model(one: &RunDirectory, other: &RunDirectory) -> Result<Option<String>, CollectError> {
    let pairs = [RunDirectory::model, RunDirectory::ensemble].map(|file| [file(one), file(other)]);
    for [one, other] in pairs {
        if !are_equal(&one, &other)? {
            let name = one.file_name().unwrap_or_default().to_string_lossy().into_owned();
            return Ok(Some(format!("{name} is not the same")));
        }
    }
    Ok(None)
}

/// Whether two files have the same bytes, or are both absent.
fn are_equal(one: &Path, other: &Path) -> Result<bool, CollectError> {
    let open = |path: &Path| match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(|file| Some(BufReader::new(file))).map_err(disk("open", path)),
    };
    let (mut first, mut second) = match (open(one)?, open(other)?) {
        (None, None) => return Ok(true),
        (Some(first), Some(second)) => (first, second),
        _ => return Ok(false),
    };
    let mut blocks = [vec![0; 1 << 16], vec![0; 1 << 16]];
    loop {
        let lengths = [
            fill(&mut first, &mut blocks[0]).map_err(disk("read", one))?,
            fill(&mut second, &mut blocks[1]).map_err(disk("read", other))?,
        ];
        if lengths[0] != lengths[1] || blocks[0][..lengths[0]] != blocks[1][..lengths[1]] {
            return Ok(false);
        }
        if lengths[0] == 0 {
            return Ok(true);
        }
    }
}

/// Reads until the block is full or the file ends.
fn fill(file: &mut impl Read, block: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < block.len() {
        match file.read(&mut block[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(round: u32, accuracy: f64) -> RoundRecord {
        RoundRecord { round, accuracy: Some(accuracy), ..RoundRecord::default() }
    }

    #[test]
    fn times_may_differ_and_nothing_else() {
        let one = [round(1, 0.5), round(2, 0.75)];
        let mut later = one.clone();
        (later[0].seconds, later[1].closed) = (3.5, Some("2026-11-27T18:00:00Z".to_owned()));
        assert_eq!(difference(&one, &later, true), None);
        later[1].bytes_up = 1;
        assert_eq!(difference(&one, &later, true), Some("`bytes_up` of round 2 is not the same".to_owned()));
        let why = "`accuracy` of round 1 is not the same";
        assert_eq!(difference(&one, &[round(1, 0.25)], false), Some(why.to_owned()));
    }

    #[test]
    fn a_copy_that_went_on_is_no_other_one_unless_both_are_complete() {
        let one = [round(1, 0.5), round(2, 0.75)];
        assert_eq!(difference(&one, &one[..1], false), None);
        assert!(
            difference(&one, &one[..1], true).is_some_and(|why| why.contains("2 rounds and the other one 1"))
        );
    }

    #[test]
    fn models_are_compared_to_their_last_byte() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let run = |name: &str, model: Option<&[u8]>| {
            let run = RunDirectory::new(folder.path().join(name));
            std::fs::create_dir(run.root()).expect("a folder");
            if let Some(bytes) = model {
                std::fs::write(run.model(), bytes).expect("written");
            }
            run
        };
        let long = vec![7; 200_000];
        let last = [&long[..199_999], &[8]].concat();
        let [one, two, three, none] =
            [("a", Some(&long[..])), ("b", Some(&long[..])), ("c", Some(&last[..])), ("d", None)]
                .map(|(name, model)| run(name, model));
        assert_eq!(other_model(&one, &two).expect("readable"), None);
        let other = Some("model.safetensors is not the same".to_owned());
        assert_eq!(other_model(&one, &three).expect("readable"), other);
        assert_eq!(other_model(&one, &none).expect("readable"), other);
    }
}
