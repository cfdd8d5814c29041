//! Removal of members from an ensemble.

use std::collections::BTreeSet;
use std::path::Path;

use shared::id::ClientId;

use super::bundle::Bundle;
use super::writing::{Origin, write};
use super::{EnsembleError, Member};
use crate::storage::FileLayer;

/// Writes `bundle` without the members of these clients to `path`; returns how many members remain. Nothing is retrained:
/// the fused prototypes become the mean over the remaining members.
pub fn leave_out(
    files: &dyn FileLayer,
    bundle: &Bundle,
    clients: &BTreeSet<ClientId>,
    path: &Path,
) -> Result<usize, EnsembleError> {
    let all = &bundle.manifest().members;
    let absent = clients.iter().find(|client| all.iter().all(|member| member.client != **client));
    if let Some(client) = absent {
        let path = bundle.path().to_owned();
        return Err(EnsembleError::NoMember { path, client: client.to_string() });
    }
    let stays = all.iter().enumerate().filter(|(_, member)| !clients.contains(&member.client));
    let members: Vec<(Member, Box<dyn Origin + '_>)> = stays
        .map(|(number, member)| (member.clone(), Box::new((bundle, number)) as Box<dyn Origin + '_>))
        .collect();
    if members.is_empty() {
        return Err(EnsembleError::NoMembersLeft { path: bundle.path().to_owned() });
    }
    write(files, path, bundle.manifest(), &members)?;
    Ok(members.len())
}
