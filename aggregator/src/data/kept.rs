//! What the server keeps of the training samples, and no client has: those whose labels it learns from, and those by which models are
//! chosen.

use std::sync::Arc;

use shared::data::partition::balanced;
use shared::data::{Dataset, Split, View};
use shared::seed::{Seed, shuffle};

use super::{PlanError, TestSet, load};
use crate::config::Config;

/// Their positions, ascending.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Kept {
    /// Labelled samples, which the server trains on.
    labelled: Vec<u32>,
    /// Validation samples.
    validation: Vec<u32>,
}

impl Kept {
    /// Those of this configuration among the training samples.
    pub(super) fn of(config: &Config, dataset: &Dataset) -> Result<Self, PlanError> {
        let labelled = match config.server.labelled {
            Some(count) => labelled_among(config, dataset, count)?,
            None => Vec::new(),
        };
        let mut kept = Self { labelled, validation: Vec::new() };
        if let Some(count) = config.data.validation {
            let mut rest = kept.others(dataset.len());
            if count >= rest.len() {
                return Err(PlanError::Validation { count, samples: rest.len() });
            }
            shuffle(&mut rest, &mut Seed::root(config.data.seed).derive("validation").rng());
            rest.truncate(count);
            rest.sort_unstable();
            kept.validation = rest;
        }
        Ok(kept)
    }

    /// Whether clients have all samples.
    pub(super) fn is_nothing(&self) -> bool {
        self.labelled.is_empty() && self.validation.is_empty()
    }

    /// The positions of the others, of this number of samples.
    pub(super) fn others(&self, samples: usize) -> Vec<u32> {
        let is_kept = |sample: &u32| {
            [&self.labelled, &self.validation].iter().any(|kept| kept.binary_search(sample).is_ok())
        };
        (0..samples as u32).filter(|sample| !is_kept(sample)).collect()
    }
}

/// What the server keeps, read once.
#[derive(Clone, Debug, Default)]
pub struct KeptSamples {
    /// Its labelled samples, if it has any.
    pub labelled: Option<View>,
    /// The samples by which it chooses models, if it keeps any.
    pub validation: Option<TestSet>,
}

/// The samples that the server keeps. They are copies, so that the others can be freed.
///
/// # Errors
/// [`PlanError`] if the training samples cannot be read, or are too few or others than it takes.
pub fn kept(config: &Config) -> Result<KeptSamples, PlanError> {
    if config.server.labelled.is_none() && config.data.validation.is_none() {
        return Ok(KeptSamples::default());
    }
    let dataset = Arc::new(load(config, Split::Train)?);
    let Kept { labelled, validation } = Kept::of(config, &dataset)?;
    let apart = |kept: Vec<u32>| -> Result<Option<View>, PlanError> {
        if kept.is_empty() {
            return Ok(None);
        }
        let samples = View::select(dataset.clone(), kept)?.to_dataset()?;
        Ok(Some(View::whole(Arc::new(samples))))
    };
    let (labelled, validation) = (apart(labelled)?, apart(validation)?);
    let (preparation, batch) = (&config.spec.data.preparation, config.spec.evaluate.batch as usize);
    if let Some(labelled) = &labelled {
        preparation.check(labelled)?;
    }
    let validation = validation.map(|samples| TestSet::new(samples, preparation.clone(), batch));
    Ok(KeptSamples { labelled, validation })
}

fn labelled_among(config: &Config, dataset: &Dataset, count: usize) -> Result<Vec<u32>, PlanError> {
    if dataset.labels_each() > 1 {
        return Err(PlanError::LabelledText { count });
    }
    let seed = Seed::root(config.data.seed).derive("labelled");
    balanced(dataset.labels(), dataset.classes(), count, &seed)
        .map_err(|problem| PlanError::Labelled { count, problem })
}

#[cfg(test)]
mod tests {
    use shared::data::Samples;

    use super::super::divide;
    use super::super::tests::{config, refused};
    use super::*;

    #[test]
    fn what_the_server_keeps_no_client_has() {
        let common = ["data.max-samples=200", "data.clients=3", "data.partition.dirichlet.alpha=1"];
        let whole = config(&[&common[..], &["data.labelled=50", "data.validation=30"]].concat());
        let train = Arc::new(load(&whole, Split::Train).expect("glyphs are drawn"));
        let shares = divide(&whole, train.clone()).expect("divided");
        let samples = super::kept(&whole).expect("enough of each class");
        let (server, tests) = (samples.labelled.expect("some"), samples.validation.expect("some"));
        assert_eq!(server.histogram(), [5; 10]);
        let kept = Kept::of(&whole, &train).expect("the same");
        let mut all: Vec<u32> = shares.iter().flat_map(|share| share.indices().to_vec()).collect();
        assert_eq!((all.len(), kept.validation.len()), (120, 30));
        all.extend(&kept.labelled);
        all.extend(&kept.validation);
        all.sort_unstable();
        assert_eq!(all, (0..200).collect::<Vec<u32>>());
        let of = |kept: &[u32]| View::select(train.clone(), kept).expect("there").to_dataset().expect("some");
        assert_eq!(server.to_dataset().expect("some"), of(&kept.labelled));
        assert_eq!(tests.view().to_dataset().expect("some"), of(&kept.validation));
        // Who has labels does not depend on what models are chosen by.
        let without = config(&[&common[..], &["data.labelled=50"]].concat());
        assert_eq!(Kept::of(&without, &train).expect("the same").labelled, kept.labelled);
        let nothing = super::kept(&config(&common)).expect("nothing asked for");
        assert!(nothing.labelled.is_none() && nothing.validation.is_none());
    }

    #[test]
    fn a_labelled_set_that_lacks_a_class_is_refused_with_its_number() {
        let config = config(&["data.max-samples=200", "data.clients=3", "data.labelled=20"]);
        let labels = (0..200_u32).map(|sample| sample % 9);
        let train = Dataset::new(vec![1, 1, 1], vec![0; 200], labels, 10).expect("one pixel each");
        for said in [labelled_among(&config, &train, 20).err(), divide(&config, train).err()].map(refused) {
            assert!(said.contains("data.labelled = 20") && said.contains("class 9 has 0"), "{said}");
        }
    }

    #[test]
    fn text_is_not_kept_by_the_server() {
        let text = Dataset::labelled(vec![2], Samples::Tokens(vec![0, 1, 1, 2]), vec![1, 2, 2, 0], 3);
        let kept = config(&["data.max-samples=200", "data.clients=3", "data.labelled=20"]);
        let said = refused(labelled_among(&kept, &text.expect("two samples"), 20).err());
        assert!(said.contains("data.labelled = 20: these samples are text"), "{said}");
    }

    #[test]
    fn clients_are_left_some_samples() {
        // Of a set whose files alone say how many there are.
        let config = config(&["data.max-samples=200", "data.clients=3", "data.validation=100"]);
        let few = Dataset::new(vec![1, 1, 1], vec![0; 100], vec![0_u32; 100], 10).expect("one pixel each");
        let said = refused(divide(&config, few).err());
        assert!(said.contains("data.validation = 100") && said.contains("100 training samples"), "{said}");
    }
}
