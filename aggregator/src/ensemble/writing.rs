//! Writing of an ensemble, a few values at a time.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use models::params::codec::{write_header, write_values, write_with_checksum};
use shared::ensemble::Layout;
use shared::ensemble::fusion::{MeanSum, summable};

use super::bundle::{Bundle, Values};
use super::error::disk;
use super::{EnsembleError, Manifest, Member};
use crate::storage::{FileLayer, write_durably};

/// The source of a member's values.
pub trait Origin {
    /// Passes all values on.
    fn pass(&self, visit: &mut Values<'_>) -> Result<(), EnsembleError>;
}

/// A member, and where its values come from.
pub type Source<'a> = (Member, Box<dyn Origin + 'a>);

impl Bundle {
    /// Its members, as members of another ensemble.
    pub fn sources(&self) -> impl Iterator<Item = Source<'_>> {
        let members = self.manifest.members.iter().enumerate();
        members.map(move |(number, member)| -> Source<'_> { (member.clone(), Box::new((self, number))) })
    }
}

/// A member of an existing ensemble.
impl Origin for (&Bundle, usize) {
    fn pass(&self, visit: &mut Values<'_>) -> Result<(), EnsembleError> {
        self.0.pass(self.1, visit)
    }
}

/// Writes an ensemble of these members, ordered by client, which replace `manifest.members`. The write is atomic and
/// durable and holds only a few values of one member in memory.
pub fn write(
    files: &dyn FileLayer,
    path: &Path,
    manifest: &Manifest,
    members: &[Source<'_>],
) -> Result<(), EnsembleError> {
    let manifest =
        Manifest { members: members.iter().map(|(member, _)| member.clone()).collect(), ..manifest.clone() };
    let layout = Layout::of(&manifest)
        .map_err(|reason| EnsembleError::NotAnEnsemble { path: path.to_owned(), reason })?;
    let written = write_durably(files, path, |out| {
        let written = write_with_checksum(&manifest.metadata(), out, |metadata, out| {
            pass_on(metadata, &layout, members, out)
        });
        written.map_err(|error| match error {
            EnsembleError::Disk { source, .. } => source,
            error => io::Error::other(error),
        })
    });
    written.map_err(|error| error.downcast().unwrap_or_else(disk("write", path)))
}

fn pass_on(
    metadata: &BTreeMap<String, String>,
    layout: &Layout,
    members: &[Source<'_>],
    out: &mut dyn io::Write,
) -> Result<(), EnsembleError> {
    let failed = |source| EnsembleError::Disk { action: "write", path: "".into(), source };
    let tensors: Vec<_> = layout.of_ensemble(members.len()).collect();
    let declared = tensors.iter().map(|(name, shape)| (name.as_str(), *shape));
    write_header(declared, metadata, out).map_err(failed)?;
    let (prototypes, shape) =
        layout.prototypes.as_ref().map(|(name, shape)| (name.as_str(), &shape[..])).unzip();
    let mut mean = MeanSum::new(shape.map_or(0, |shape| shape.iter().product()));
    for (member, origin) in members {
        let misfit = |reason: &str| EnsembleError::Update {
            path: member.client.to_string().into(),
            reason: format!("internal error: its model has {reason}; please report this"),
        };
        // The values that arrive, and those that are expected.
        let (mut expected, mut offset) = (layout.tensors.iter(), 0);
        let mut current: Option<&(String, Vec<usize>)> = None;
        origin.pass(&mut |tensor, values| {
            if current.is_none_or(|(name, _)| name != tensor) {
                if current.is_some_and(|(_, shape)| offset != shape.iter().product::<usize>()) {
                    return Err(misfit("too few values"));
                }
                (current, offset) = (expected.next(), 0);
                if current.is_none_or(|(name, _)| name != tensor) {
                    return Err(misfit("other tensors"));
                }
            }
            if Some(tensor) == prototypes && !summable(values) {
                return Err(EnsembleError::Prototypes { client: member.client.to_string() });
            }
            if Some(tensor) == prototypes && !mean.add(offset, values) {
                return Err(misfit("too many values"));
            }
            offset += values.len();
            write_values(values, out).map_err(failed)
        })?;
        let whole = current.is_some_and(|(_, shape)| offset == shape.iter().product::<usize>());
        if !whole || expected.next().is_some() {
            return Err(misfit("too few values"));
        }
    }
    write_values(&mean.mean(members.len()), out).map_err(failed)
}
