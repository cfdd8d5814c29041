//! What is said to a trainer, and what it answers: one line of JSON each.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::spec::Training;

/// The longest line that a trainer may write, in bytes.
pub const MAX_LINE: usize = 64 << 10;

/// A request.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Request<'a> {
    /// How many training samples are there?
    Describe(Who),
    /// Train this model.
    Train(Train<'a>),
    /// Test this model.
    Test(Test<'a>),
    /// Give up what was asked last.
    Cancel {},
}

/// Which client of a simulation it is about; on a device, where there is one, nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Who {
    /// Its number, counted from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<u32>,
    /// Of how many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<u32>,
}

/// A request to train.
#[derive(Clone, Debug, Serialize)]
pub struct Train<'a> {
    /// The round, counted from 1.
    pub round: u32,
    /// Whose samples.
    #[serde(flatten)]
    pub who: Who,
    /// The file of the model to start from.
    pub model: &'a Path,
    /// The file to write the trained model to.
    pub out: &'a Path,
    /// The learning rate in this round.
    pub learning_rate: f64,
    /// For all that is drawn.
    pub seed: u32,
    /// The run's `[training]`, with its names.
    pub training: &'a Training,
}

/// A request to test.
#[derive(Clone, Debug, Serialize)]
pub struct Test<'a> {
    /// The round that the model was made in, or that is open.
    pub round: u32,
    /// Whose samples.
    #[serde(flatten)]
    pub who: Who,
    /// The file of the model.
    pub model: &'a Path,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// How many training samples there are.
    Described {
        /// Their number.
        samples: u64,
    },
    /// A sign of life.
    Progress {
        /// Steps done.
        done: u64,
        /// Steps to do; 0 if that is not known.
        #[serde(default)]
        total: u64,
    },
    /// The trained model is in its file.
    Finished {
        /// Mean training loss.
        loss: f64,
        /// Optimiser steps.
        #[serde(default = "one")]
        steps: u64,
        /// Training samples: as described.
        #[serde(default)]
        samples: Option<u64>,
        /// What it has measured beside; `accuracy` is passed on to the server.
        #[serde(default)]
        metrics: BTreeMap<String, f64>,
    },
    /// The model is tested.
    Tested {
        /// Test samples.
        samples: u64,
        /// Mean loss on them.
        loss: f64,
        /// Share of them that were classified correctly, if they have classes.
        #[serde(default)]
        accuracy: Option<f64>,
    },
    /// What was asked is given up.
    Cancelled {},
    /// What was asked is not possible.
    Failed {
        /// Why, for people.
        reason: String,
    },
}

fn one() -> u64 {
    1
}

impl Answer {
    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(line: &str) -> Result<Self, String> {
        serde_json::from_str(line).map_err(|error| format!("no answer that is known ({error})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_form_that_trainers_are_written_for() {
        let json = |request: &Request<'_>| serde_json::to_string(request).unwrap();
        assert_eq!(json(&Request::Describe(Who::default())), r#"{"describe":{}}"#);
        let who = Who { client: Some(3), clients: Some(10) };
        assert_eq!(json(&Request::Describe(who)), r#"{"describe":{"client":3,"clients":10}}"#);
        assert_eq!(json(&Request::Cancel {}), r#"{"cancel":{}}"#);
        let test = Test { round: 4, who, model: Path::new("m.safetensors") };
        assert_eq!(
            json(&Request::Test(test)),
            r#"{"test":{"round":4,"client":3,"clients":10,"model":"m.safetensors"}}"#
        );
        let training = Training { epochs: 2, batch: 10, ..Training::default() };
        let train = Train {
            round: 3,
            who: Who::default(),
            model: Path::new("a"),
            out: Path::new("b"),
            learning_rate: 0.5,
            seed: 7,
            training: &training,
        };
        let text = json(&Request::Train(train));
        let begins = r#"{"train":{"round":3,"model":"a","out":"b","learning_rate":0.5,"seed":7,"training":{"epochs":2,"batch":10,"#;
        assert!(text.starts_with(begins), "{text}");
    }

    #[test]
    fn answers_are_read_and_others_refused() {
        let read = |line: &str| Answer::read(line);
        assert_eq!(read(r#"{"described":{"samples":5}}"#), Ok(Answer::Described { samples: 5 }));
        assert_eq!(read(r#"{"progress":{"done":1}}"#), Ok(Answer::Progress { done: 1, total: 0 }));
        let finished = r#"{"finished":{"loss":0.5,"steps":3,"metrics":{"accuracy":0.9}}}"#;
        let metrics = BTreeMap::from([("accuracy".to_owned(), 0.9)]);
        assert_eq!(read(finished), Ok(Answer::Finished { loss: 0.5, steps: 3, samples: None, metrics }));
        for wrong in ["", "Epoch 1", "{}", r#"{"finished":{}}"#, r#"{"described":{"samples":-1}}"#, "[1]"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
