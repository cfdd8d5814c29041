//! What must hold of a run that several servers have served.

use std::collections::{BTreeMap, BTreeSet};

use aggregator::round::{RoundRecord, jsonl};
use serde_json::Value;
use shared::id::ClientId;

use super::Several;

/// What is wrong, in the order in which it is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wrong {
    /// The run does not end.
    End,
    /// A process ended by itself.
    Process,
    /// A round that the store had closed is another one later.
    History,
    /// Not every round was closed once.
    Rounds,
    /// A device was told that its update counts, and it does not, or the other way round.
    Receipts,
    /// An update counts in two rounds.
    Twice,
    /// A device was told so before the store had the round.
    TooEarly,
    /// The model is not that of one machine.
    Model,
    /// The store took a write of an epoch that was over.
    OldEpoch,
}

impl Several {
    /// All that is wrong. Rounds without a result may be right. `model` is the file of one machine's model, where that is known.
    #[must_use]
    pub fn wrong(&self, rounds: u32, may_be_void: bool, model: Option<&[u8]>) -> Vec<(Wrong, String)> {
        let state = self.store.state();
        let mut wrong: Vec<(Wrong, String)> =
            self.failures.iter().map(|why| (Wrong::Process, why.clone())).collect();
        if !state.ended && wrong.is_empty() {
            wrong.push((Wrong::End, format!("after {:?}, {} rounds have closed", self.now, state.rounds)));
        }
        let mut contributors: BTreeMap<u32, BTreeSet<(u32, String)>> = BTreeMap::new();
        let mut known: &[String] = &[];
        for write in &state.writes {
            if write.claimed != write.epoch {
                wrong.push((Wrong::OldEpoch, format!("{} in {}", write.claimed, write.epoch)));
            }
            if !write.lines.starts_with(known) {
                let (had, has) = (known.len(), write.lines.len());
                wrong.push((Wrong::History, format!("of {had} closed rounds, {has} are there or others")));
            }
            known = &write.lines;
            if let Some(opening) = &write.opening {
                let counted = counted(write.rounds, opening);
                if contributors.insert(write.rounds, counted.clone()).is_some_and(|before| before != counted)
                {
                    wrong.push((
                        Wrong::History,
                        format!("others count in round {} than before", write.rounds),
                    ));
                }
            }
        }
        if !state.ended {
            return wrong;
        }
        let text = state.file("rounds.jsonl").unwrap_or_default();
        let records: Vec<RoundRecord> = String::from_utf8(text)
            .ok()
            .and_then(|text| jsonl::read(&text).ok())
            .map_or_else(Vec::new, |read| read.records);
        let numbers: Vec<u32> = records.iter().filter(|it| !it.closing).map(|it| it.round).collect();
        let void: Vec<u32> = records.iter().filter(|it| it.void && !it.closing).map(|it| it.round).collect();
        // A round without a result is one more.
        let last = rounds + void.len() as u32;
        let is_void = records.iter().any(|it| it.void);
        if numbers != (1..=last).collect::<Vec<_>>() || (is_void && !may_be_void) {
            wrong.push((Wrong::Rounds, format!("{numbers:?}, without a result: {void:?}")));
        }
        contributors.retain(|round, _| !void.contains(round));
        let mut seen = BTreeSet::new();
        for update in contributors.values().flatten().filter(|update| !seen.insert(*update)) {
            wrong.push((Wrong::Twice, format!("{update:?}")));
        }
        let counts = |round: u32, client: ClientId| {
            let update = (round, client.to_string());
            contributors.values().any(|all| all.contains(&update))
        };
        for (round, client) in self.promised.iter().filter(|(round, client)| !counts(*round, *client)) {
            let what = format!("round {round}, {}: it was accepted, and does not count", client.short());
            wrong.push((Wrong::Receipts, what));
        }
        let declined = self.receipts.iter().filter(|(_, told)| !**told).map(|(update, _)| update);
        for (round, client) in declined.filter(|(round, client)| counts(*round, *client)) {
            let what = format!("round {round}, {}: it was declined, and counts", client.short());
            wrong.push((Wrong::Receipts, what));
        }
        let early =
            self.too_early.iter().map(|(at, round)| (Wrong::TooEarly, format!("{at:?}: round {round}")));
        wrong.extend(early);
        if let Some(model) = model
            && state.file("model.safetensors").as_deref() != Some(model)
        {
            wrong.push((Wrong::Model, "the model is not that of one machine without faults".to_owned()));
        }
        wrong
    }
}

/// Whose updates this round was closed with, by its opening as it is written down, and the rounds that these were trained in.
fn counted(round: u32, opening: &str) -> BTreeSet<(u32, String)> {
    // Behind the text comes its checksum.
    let mut values = serde_json::Deserializer::from_str(opening).into_iter::<Value>();
    let Some(Ok(value)) = values.next() else { return BTreeSet::new() };
    let late = |client: &str| value.pointer("/decision/closing/late")?.get(client)?.as_u64();
    let trained = |client: &str| late(client).and_then(|round| round.try_into().ok()).unwrap_or(round);
    let named = |client: &str| (trained(client), client.to_owned());
    let decided = value.pointer("/decision/closing/contributors").and_then(Value::as_array);
    match (decided, value.get("cohort").and_then(Value::as_object)) {
        (Some(all), _) => all.iter().filter_map(Value::as_str).map(named).collect(),
        (None, Some(cohort)) => cohort.keys().map(|client| named(client)).collect(),
        (None, None) => BTreeSet::new(),
    }
}
