//! Joining of two ensembles.

use std::collections::BTreeMap;
use std::path::Path;

use shared::algorithm::Head;
use shared::id::ClientId;

use super::bundle::Bundle;
use super::writing::{Source, write};
use super::{EnsembleError, Manifest};
use crate::storage::FileLayer;

/// The result of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extended {
    /// Members after it.
    pub members: usize,
    /// Clients that were added.
    pub added: usize,
    /// Clients whose member was replaced by a newer one.
    pub replaced: usize,
}

/// Writes the members of `bundle` and `with` to `path`. For a client in both, the newer model in `with` is used. Nothing is
/// retrained: the fused prototypes, if they have any, become the mean over all members.
pub fn extend(
    files: &dyn FileLayer,
    bundle: &Bundle,
    with: &Bundle,
    path: &Path,
) -> Result<Extended, EnsembleError> {
    if let Some(reason) = unrelated(&bundle.manifest, &with.manifest) {
        let (into, with) = (bundle.path().to_owned(), with.path().to_owned());
        return Err(EnsembleError::Unrelated { into, with, reason });
    }
    let mut members: BTreeMap<ClientId, Source<'_>> =
        bundle.sources().map(|source| (source.0.client, source)).collect();
    let (mut added, mut replaced) = (0, 0);
    for source in with.sources() {
        let before = members.insert(source.0.client, source);
        *(if before.is_some() { &mut replaced } else { &mut added }) += 1;
    }
    let members: Vec<_> = members.into_values().collect();
    write(files, path, &bundle.manifest, &members)?;
    Ok(Extended { members: members.len(), added, replaced })
}

/// Why two ensembles cannot be joined; `None` if they can.
fn unrelated(a: &Manifest, b: &Manifest) -> Option<String> {
    if a.architecture != b.architecture {
        let names = [&a.architecture.name, &b.architecture.name];
        let what = if names[0] == names[1] {
            format!("their networks {} are of different layers", names[0])
        } else {
            format!("their networks are {} and {}", names[0], names[1])
        };
        return Some(format!("{what}; train the newcomers with the same [model]"));
    }
    if a.answering.head != b.answering.head {
        let reason = "the members of one compare features with prototypes and those of the other are classifiers; train the \
                      newcomers with the same [algorithm]";
        return Some(reason.to_owned());
    }
    // Answers mean the same wherever a classifier began.
    if a.answering.head == Head::Prototypes && a.start != b.start {
        let reason = "they were not trained from the same parameters, so that their prototypes have nothing in common; train \
                      the newcomers with the same model.seed";
        return Some(reason.to_owned());
    }
    if a.data.shape != b.data.shape || a.data.class_names != b.data.class_names {
        return Some("their samples or classes differ; train the newcomers for the same [data]".to_owned());
    }
    // Members know columns by their place alone. Where none are named, it is those of the header.
    let (features, others) = (&a.data.features, &b.data.features);
    let other_features = !features.is_empty() && !others.is_empty() && features != others;
    let other_text = a.data.text.as_ref().zip(b.data.text.as_ref()).is_some_and(|(a, b)| a != b);
    if other_features || other_text {
        let reason = "their samples are of other columns, or of the same in another order; train the newcomers with the same \
                      data.features and data.text";
        return Some(reason.to_owned());
    }
    if a.data.preparation.normalisation != b.data.preparation.normalisation {
        let reason =
            "their samples are normalised differently; train the newcomers with the same data.normalise";
        return Some(reason.to_owned());
    }
    None
}
