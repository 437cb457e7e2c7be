//! Rotation of an owner's secrets.

use super::{SecretError, Vault, list};
use crate::domain::ids::Owner;
use crate::domain::ids::secret::SecretName;
use crate::domain::secret::SecretRecord;
use crate::domain::time::Millis;
use crate::store::{DocWrite, Edit, Store, keys};
use serde::Serialize;

/// Result of a rotation: of secrets, of logins at MCP servers, and of credentials of push notifications.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct RotationCounts {
    /// Owners that have something sealed.
    pub owners: usize,
    /// What was sealed again.
    pub rotated: usize,
    /// What the first key had sealed already.
    pub current: usize,
    /// What can't be opened, each with its owner, its name and the reason.
    pub failed: Vec<String>,
}

impl RotationCounts {
    /// Returns the number of what was looked at.
    pub const fn total(&self) -> usize {
        self.rotated + self.current + self.failed.len()
    }
}

/// Seals every secret of an owner with the first key, one write each.
pub async fn rotate_secrets(
    vault: &Vault,
    store: &dyn Store,
    now: Millis,
    owner: &Owner,
    counts: &mut RotationCounts,
) -> Result<(), SecretError> {
    for (name, _) in list(store, owner).await? {
        match reseal(vault, store, now, owner, &name).await {
            Ok(true) => counts.rotated += 1,
            Ok(false) => counts.current += 1,
            Err(SecretError::Missing(_)) => {}
            Err(error @ SecretError::Sealed { .. }) => counts.failed.push(format!("{owner}: {error}")),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Seals one secret again; `false` if it was under the first key already.
async fn reseal(
    vault: &Vault,
    store: &dyn Store,
    now: Millis,
    owner: &Owner,
    name: &SecretName,
) -> Result<bool, SecretError> {
    let first = vault.keys().first().ok_or(SecretError::NoKey)?;
    let key = keys::secret(name);
    let attempt = || async {
        let (record, version) = store.get_versioned::<SecretRecord>(owner, &key).await?;
        let record = record.ok_or_else(|| SecretError::Missing(name.clone()))?;
        // A secret under the first key is opened, too: a rotation shows that all can be opened.
        let value = vault.unseal(owner, name, &record)?.value;
        if record.key == *first {
            return Ok(Edit::without_writes(false));
        }
        let sealed = vault.seal(owner, name, &value, record.stamp)?;
        Ok(Edit::write([DocWrite::json(key.as_str(), &sealed).at_version(version)], true))
    };
    store.edit(now, owner, "secret", name, attempt).await
}
