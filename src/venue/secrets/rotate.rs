//! Rotation of keys: every secret is sealed again with the first key. It can be interrupted and begun again at any
//! time.

use super::{SecretError, Vault, list};
use crate::domain::ids::Owner;
use crate::domain::ids::secret::SecretName;
use crate::domain::secret::SecretRecord;
use crate::domain::time::Millis;
use crate::store::{DocWrite, Edit, Store, keys};
use serde::Serialize;

/// Result of a rotation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct RotationCounts {
    /// Owners that have secrets.
    pub owners: usize,
    /// Secrets that were sealed again.
    pub rotated: usize,
    /// Secrets that the first key had sealed already.
    pub current: usize,
    /// Secrets that can't be opened, each with its owner, its name and the reason.
    pub failed: Vec<String>,
}

/// Seals every secret of every owner with the first key. Each is one write: after a crash some are still under the old
/// key, which must stay configured until a later run has finished.
pub async fn rotate(vault: &Vault, store: &dyn Store, now: Millis) -> Result<RotationCounts, SecretError> {
    let mut done = RotationCounts::default();
    let mut owners = store.all_owners();
    while let Some(page) = owners.next().await? {
        for owner in &page {
            let secrets = list(store, owner).await?;
            done.owners += usize::from(!secrets.is_empty());
            for (name, _) in secrets {
                match reseal(vault, store, now, owner, &name).await {
                    Ok(true) => done.rotated += 1,
                    Ok(false) => done.current += 1,
                    Err(SecretError::Missing(_)) => {}
                    Err(error @ SecretError::Sealed { .. }) => done.failed.push(format!("{owner}: {error}")),
                    Err(error) => return Err(error),
                }
            }
        }
    }
    Ok(done)
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
