//! What an event says of a round, and of the settings of its run.

use std::collections::BTreeMap;

use toml::Value;

use crate::protobuf::Message;
use crate::round::RoundRecord;

/// The plugin that shows hyper-parameters.
const HPARAMS: &str = "hparams";
/// Buckets of a histogram of shares, which are from 0 to 1.
const BUCKETS: usize = 20;

/// The summary of a round: the scalars of its line in `rounds.jsonl`, and a histogram of each share that clients measured.
pub(super) fn of_round(record: &RoundRecord) -> Message {
    let mut summary = Message::new();
    for (tag, value) in scalars(record) {
        summary.add(1, &Message::new().text(1, &tag).float(2, value as f32));
    }
    let mut measured: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for found in record.clients.values() {
        for (name, value) in found.iter().filter(|(_, value)| value.is_finite()) {
            measured.entry(name).or_default().push(*value);
        }
    }
    for (name, values) in measured {
        let tag = format!("clients/{name}");
        summary.add(1, &Message::new().text(1, &tag).message(5, &histogram(&values)));
    }
    summary
}

/// The numbers of a round by their tags.
fn scalars(record: &RoundRecord) -> Vec<(String, f64)> {
    let counts = [
        ("updates/asked", record.sampled),
        ("updates/accepted", record.accepted),
        ("updates/rejected", record.rejected),
        ("updates/discarded", record.discarded),
        ("updates/failed", record.failed),
        ("updates/late", record.late),
        ("updates/lost", record.lost),
    ];
    let known = [
        ("test/accuracy", record.accuracy),
        ("test/loss", record.loss),
        ("training/loss", record.train_loss),
        ("traffic/bytes-down", Some(record.bytes_down as f64)),
        ("traffic/bytes-up", Some(record.bytes_up as f64)),
        ("seconds/round", Some(record.seconds)),
        ("seconds/waiting", record.waited_seconds),
        ("seconds/test", record.test_seconds),
        ("seconds/disk", record.disk_seconds),
    ];
    let known = known.into_iter().filter_map(|(tag, value)| Some((tag.to_owned(), value?)));
    let counts = counts.into_iter().map(|(tag, count)| (tag.to_owned(), count as f64));
    let measured = record.metrics.iter().map(|(name, value)| (format!("measured/{name}"), *value));
    known.chain(counts).chain(measured).filter(|(_, value)| value.is_finite()).collect()
}

/// `HistogramProto`, in equal buckets over the values, or over 0 to 1 where all lie in that.
fn histogram(values: &[f64]) -> Message {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let (from, to) = if least >= 0.0 && most <= 1.0 { (0.0, 1.0) } else { (least, most) };
    let width = ((to - from) / BUCKETS as f64).max(f64::MIN_POSITIVE);
    let limits: Vec<f64> = (1..=BUCKETS).map(|bucket| from + width * bucket as f64).collect();
    let mut counts = vec![0.0; BUCKETS];
    for value in values {
        let bucket = ((value - from) / width) as usize;
        counts[bucket.min(BUCKETS - 1)] += 1.0;
    }
    Message::new()
        .double(1, least)
        .double(2, most)
        .double(3, values.len() as f64)
        .double(4, values.iter().sum())
        .double(5, values.iter().map(|value| value * value).sum())
        .doubles(6, &limits)
        .doubles(7, &counts)
}

/// The summary that names a run's settings for the plugin of hyper-parameters.
pub(super) fn of_settings(settings: &[(String, Value)], group: &str, began: f64) -> Message {
    let mut start = Message::new();
    for (key, value) in settings {
        start.add(1, &Message::new().text(1, key).message(2, &setting(value)));
    }
    let start = start.text(4, group).double(5, began);
    let data = Message::new().integer(1, 0).message(3, &start);
    let plugin = Message::new().text(1, HPARAMS).bytes(2, data.as_bytes());
    let metadata = Message::new().message(1, &plugin);
    // A tensor of no value: DT_FLOAT of an empty shape, as the plugin's own writer has it.
    let tensor = Message::new().integer(1, 1).message(2, &Message::new());
    let value =
        Message::new().text(1, "_hparams_/session_start_info").message(8, &tensor).message(9, &metadata);
    Message::new().message(1, &value)
}

/// `google.protobuf.Value`. Lists and tables are shown as they are written.
fn setting(value: &Value) -> Message {
    match value {
        Value::Integer(number) => Message::new().double(2, *number as f64),
        Value::Float(number) => Message::new().double(2, *number),
        Value::String(text) => Message::new().text(3, text),
        Value::Boolean(flag) => Message::new().integer(4, (*flag).into()),
        other => Message::new().text(3, &other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_has_no_scalar() {
        let record =
            RoundRecord { accuracy: Some(0.5), train_loss: Some(f64::NAN), ..RoundRecord::default() };
        let tags: Vec<String> = scalars(&record).into_iter().map(|(tag, _)| tag).collect();
        assert!(tags.contains(&"test/accuracy".to_owned()) && tags.contains(&"updates/accepted".to_owned()));
        assert!(!tags.iter().any(|tag| tag.contains("loss")), "{tags:?}");
    }
}
