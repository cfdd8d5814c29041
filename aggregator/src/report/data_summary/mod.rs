//! Data summary: a data set and its partition in figures, as a picture and as JSON, before any training.

mod page;
mod text;

use serde::Serialize;
use shared::data::{Dataset, Labels, View};

use super::html::partition;
use super::units::counted;
use crate::config::Config;
use crate::data::left_out;

pub use page::page;
pub use text::text;

/// A data set and how it is divided.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Description {
    /// The data set's name.
    pub set: String,
    /// Shape of one sample.
    pub shape: Vec<usize>,
    /// Number of classes.
    pub classes: usize,
    /// The names of the classes, in the order of their numbers; empty if they have none.
    pub class_names: Vec<String>,
    /// What is learned of a sample that has no single class, in words: histograms count samples then, all as of one class.
    pub learned: Option<String>,
    /// Training samples.
    pub train: usize,
    /// Test samples; 0 if the model is never to be tested.
    pub test: usize,
    /// Labels of one sample: more than one for text. Histograms count labels.
    pub labels_each: usize,
    /// The partition in words.
    pub partition: String,
    /// The seed that it comes from.
    pub seed: u64,
    /// The number of slices of a client's samples, one of which it trains on in a round; 1: all of them.
    pub slices: u32,
    /// Every client's number of samples of each class, in the order of the clients.
    pub clients: Vec<Vec<usize>>,
    /// Samples that were skipped when the data were read, in words; empty if there were none.
    pub left_out: Vec<String>,
    /// The clients in figures.
    pub figures: Figures,
}

/// A partition in figures. Clients without samples do not take part, and only [`Self::absent`] counts them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Clients without a sample.
    pub absent: usize,
    /// Samples (of text, labels) per client.
    pub samples: Range,
    /// Classes that a client has samples of.
    pub classes: Range,
    /// How far the clients' labels are from those of all samples together: the mean over clients of the total variation
    /// distance, `sum_c |p_k(c) - p(c)| / 2`. 0 is IID, 1 - 1/C is one class per client out of C equal ones.
    pub skew: f64,
}

/// The spread of a whole number over the clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Range {
    /// The smallest.
    pub min: usize,
    /// The one in the middle, the lower of two.
    pub median: usize,
    /// The greatest.
    pub max: usize,
}

impl Range {
    fn of(values: impl Iterator<Item = usize>) -> Self {
        let mut values: Vec<usize> = values.collect();
        values.sort_unstable();
        match (values.first(), values.last()) {
            (Some(&min), Some(&max)) => Self { min, median: values[(values.len() - 1) / 2], max },
            _ => Self::default(),
        }
    }
}

impl Figures {
    /// Of these histograms, one per client.
    #[must_use]
    pub fn of(clients: &[Vec<usize>]) -> Self {
        let size = |counts: &Vec<usize>| counts.iter().sum::<usize>();
        let present = || clients.iter().filter(|counts| size(counts) > 0);
        let classes = clients.iter().map(Vec::len).max().unwrap_or(0);
        let whole: Vec<usize> =
            (0..classes).map(|class| clients.iter().map(|counts| counts[class]).sum()).collect();
        let all = size(&whole).max(1) as f64;
        let distance = |counts: &Vec<usize>| {
            let own = size(counts) as f64;
            let differences = counts
                .iter()
                .zip(&whole)
                .map(|(&count, &of_all)| (count as f64 / own - of_all as f64 / all).abs());
            differences.sum::<f64>() / 2.0
        };
        let number = present().count();
        Self {
            absent: clients.len() - number,
            samples: Range::of(present().map(size)),
            classes: Range::of(present().map(|counts| counts.iter().filter(|&&count| count > 0).count())),
            skew: present().map(distance).sum::<f64>() / number.max(1) as f64,
        }
    }
}

impl Description {
    /// Of a configuration, the data that it names and every client's share.
    #[must_use]
    pub fn of(config: &Config, train: &Dataset, tests: Option<&Dataset>, shares: &[View]) -> Self {
        let numbers = train.has_values();
        let clients: Vec<_> = shares.iter().map(View::histogram).collect();
        let labels = config.data.reading.labels.as_ref().filter(|_| numbers);
        Self {
            set: config.data.set.to_string(),
            shape: train.shape().to_vec(),
            classes: if numbers { 1 } else { train.classes() },
            class_names: if numbers { Vec::new() } else { train.class_names().to_vec() },
            learned: labels.map(Labels::in_words),
            train: train.len(),
            test: tests.map_or(0, Dataset::len),
            labels_each: train.predictions_each(),
            partition: partition(&config.data.partition),
            seed: config.spec.seed,
            slices: config.spec.training.chunks,
            left_out: left_out(shares, tests.map(Dataset::skipped)),
            figures: Figures::of(&clients),
            clients,
        }
    }

    /// What is learned of a sample, in words.
    fn learned(&self) -> String {
        self.learned.clone().unwrap_or_else(|| format!("{} classes", self.classes))
    }

    /// How the samples of the client in the middle come, if not all at once.
    fn stream(&self) -> Option<String> {
        let slices = self.slices as usize;
        let most = (self.figures.samples.median / self.labels_each.max(1)).div_ceil(slices.max(1));
        (slices > 1).then(|| {
            format!(
                "one of {slices} slices a round, half of the clients at most {} in each",
                counted(most, "sample")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn description(clients: Vec<Vec<usize>>) -> Description {
        Description {
            set: "glyphs".to_owned(),
            shape: vec![1, 28, 28],
            classes: clients[0].len(),
            class_names: Vec::new(),
            learned: None,
            train: clients.iter().flatten().sum(),
            test: 2000,
            labels_each: 1,
            partition: "sorted by label, 2 shards per client".to_owned(),
            seed: 1,
            slices: 1,
            left_out: Vec::new(),
            figures: Figures::of(&clients),
            clients,
        }
    }

    #[test]
    fn figures_of_hand_made_clients() {
        let figures = Figures::of(&[vec![10, 0], vec![0, 10], vec![5, 5], vec![0, 0]]);
        assert_eq!(figures.absent, 1);
        assert_eq!(figures.samples, Range { min: 10, median: 10, max: 10 });
        assert_eq!(figures.classes, Range { min: 1, median: 1, max: 2 });
        // Half, half and nothing.
        assert!((figures.skew - 1.0 / 3.0).abs() < 1e-12, "{}", figures.skew);
        let iid = Figures::of(&vec![vec![3, 6, 9]; 4]);
        assert!(iid.skew < 1e-12 && iid.samples.median == 18);
        assert_eq!(Figures::of(&[]).samples, Range::default());
    }

    #[test]
    fn the_json_has_every_client() {
        let json = serde_json::to_value(description(vec![vec![3, 0], vec![1, 2]])).expect("JSON");
        assert_eq!(json["clients"], serde_json::json!([[3, 0], [1, 2]]));
        assert_eq!((json["train"].as_u64(), json["classes"].as_u64()), (Some(6), Some(2)));
        assert_eq!(json["figures"]["samples"]["max"], 3);
    }
}
