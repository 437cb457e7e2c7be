//! Rotation of keys: everything that is sealed is sealed again with the first key. It can be interrupted and begun again at
//! any time.

use crate::domain::ids::Owner;
use crate::domain::ids::secret::SecretName;
use crate::domain::mcp::oauth::record::{BegunLogin, ServerLogin};
use crate::domain::secret::SecretRecord;
use crate::domain::time::Millis;
use crate::store::{DocKey, DocWrite, Edit, Store, StoreError, keys};
use crate::venue::a2a::push::{PushNotification, credentials_name};
use crate::venue::agents;
use crate::venue::mcp_login::sealed_login_name;
use crate::venue::secrets::{RotationCounts, SecretError, Vault, rotate_secrets};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A document of which a part is sealed.
trait SealedDocument: Serialize + DeserializeOwned {
    /// Returns the sealed part, if there is one.
    fn sealed_part(&mut self) -> Option<&mut SecretRecord>;

    /// Returns the name under which it is sealed; `None` for a key of no such document.
    fn sealed_name(&self, key: &str) -> Option<SecretName>;
}

impl SealedDocument for ServerLogin {
    fn sealed_part(&mut self) -> Option<&mut SecretRecord> {
        self.sealed.as_mut()
    }

    fn sealed_name(&self, key: &str) -> Option<SecretName> {
        Some(sealed_login_name(key))
    }
}

impl SealedDocument for BegunLogin {
    fn sealed_part(&mut self) -> Option<&mut SecretRecord> {
        Some(&mut self.sealed)
    }

    fn sealed_name(&self, key: &str) -> Option<SecretName> {
        Some(sealed_login_name(key))
    }
}

impl SealedDocument for PushNotification {
    fn sealed_part(&mut self) -> Option<&mut SecretRecord> {
        self.authorization.as_mut()
    }

    fn sealed_name(&self, key: &str) -> Option<SecretName> {
        keys::notified_job(key).map(|job| credentials_name(&job, &self.id))
    }
}

/// Seals every secret, login and credential of a notification of every owner with the first key. Each is one write: after a
/// crash some are still under the old key, which must stay configured until a later run has finished.
pub async fn rotate_keys(vault: &Vault, store: &dyn Store, now: Millis) -> Result<RotationCounts, SecretError> {
    let mut counts = RotationCounts::default();
    let mut owners = store.all_owners();
    while let Some(page) = owners.next().await? {
        for owner in &page {
            let before = counts.total();
            rotate_secrets(vault, store, now, owner, &mut counts).await?;
            let mut rotation = OwnerRotation { vault, store, now, owner, counts: &mut counts };
            rotation.reseal_below::<BegunLogin>(keys::MCP_BEGUN_LOGINS).await?;
            rotation.reseal_below::<ServerLogin>(keys::MCP_LOGINS).await?;
            for agent in agents::document_prefixes(store, owner).await? {
                rotation.reseal_below::<ServerLogin>(&format!("{agent}{}", keys::MCP_LOGINS)).await?;
            }
            rotation.reseal_notifications().await?;
            counts.owners += usize::from(counts.total() > before);
        }
    }
    Ok(counts)
}

/// Rotation of what an owner has.
struct OwnerRotation<'a> {
    vault: &'a Vault,
    store: &'a dyn Store,
    now: Millis,
    owner: &'a Owner,
    counts: &'a mut RotationCounts,
}

impl OwnerRotation<'_> {
    async fn reseal_below<T: SealedDocument>(&mut self, prefix: &str) -> Result<(), SecretError> {
        let mut pages = self.store.docs(self.owner, prefix);
        while let Some(keys) = pages.keys().await? {
            for key in keys {
                self.reseal::<T>(&key).await?;
            }
        }
        Ok(())
    }

    /// Seals the credentials of push notifications again, which lie below their jobs.
    async fn reseal_notifications(&mut self) -> Result<(), SecretError> {
        let mut pages = self.store.docs(self.owner, keys::JOB_DOCUMENTS);
        while let Some(keys) = pages.keys().await? {
            for key in keys.into_iter().filter(|key| keys::notified_job(key).is_some()) {
                self.reseal::<PushNotification>(&key).await?;
            }
        }
        Ok(())
    }

    /// Seals the part of a document again and counts it.
    async fn reseal<T: SealedDocument>(&mut self, key: &DocKey) -> Result<(), SecretError> {
        match self.try_reseal::<T>(key).await {
            Ok(Some(true)) => self.counts.rotated += 1,
            Ok(Some(false)) => self.counts.current += 1,
            Ok(None) => {}
            Err(error @ (SecretError::Sealed { .. } | SecretError::Store(StoreError::Corrupt { .. }))) => {
                self.counts.failed.push(format!("{}: document `{key}`: {error}", self.owner));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Returns whether the part was sealed again, `false` if it was under the first key already; `None` without one.
    async fn try_reseal<T: SealedDocument>(&self, key: &DocKey) -> Result<Option<bool>, SecretError> {
        let first = self.vault.keys().first().ok_or(SecretError::NoKey)?;
        let attempt = || async {
            let (doc, version) = self.store.get_versioned::<T>(self.owner, key).await?;
            let Some(mut doc) = doc else { return Ok(Edit::without_writes(None)) };
            let Some(name) = doc.sealed_name(key) else { return Ok(Edit::without_writes(None)) };
            let Some(part) = doc.sealed_part() else { return Ok(Edit::without_writes(None)) };
            // What is under the first key is opened, too: a rotation shows that all can be opened.
            let value = self.vault.unseal(self.owner, &name, part)?.value;
            if part.key == *first {
                return Ok(Edit::without_writes(Some(false)));
            }
            *part = self.vault.seal_unlisted(self.owner, &name, &value, self.now)?;
            Ok(Edit::write([DocWrite::json(key.as_str(), &doc).at_version(version)], Some(true)))
        };
        self.store.edit(self.now, self.owner, "document", key, attempt).await
    }
}
