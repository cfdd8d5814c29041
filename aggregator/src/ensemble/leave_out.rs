//! Removal of members from an ensemble.

use std::collections::BTreeSet;
use std::path::Path;

use shared::id::ClientId;

use super::EnsembleError;
use super::bundle::Bundle;
use super::writing::write;
use crate::storage::FileLayer;

/// Writes `bundle` without the members of these clients to `path`; returns how many members remain. Nothing is retrained:
/// the fused prototypes, if they have any, become the mean over the remaining members.
pub fn leave_out(
    files: &dyn FileLayer,
    bundle: &Bundle,
    clients: &BTreeSet<ClientId>,
    path: &Path,
) -> Result<usize, EnsembleError> {
    let all = &bundle.manifest.members;
    let absent = clients.iter().find(|client| all.iter().all(|member| member.client != **client));
    if let Some(client) = absent {
        let path = bundle.path().to_owned();
        return Err(EnsembleError::NoMember { path, client: client.to_string() });
    }
    let members: Vec<_> = bundle.sources().filter(|(member, _)| !clients.contains(&member.client)).collect();
    if members.is_empty() {
        return Err(EnsembleError::NoMembersLeft { path: bundle.path().to_owned() });
    }
    write(files, path, &bundle.manifest, &members)?;
    Ok(members.len())
}
