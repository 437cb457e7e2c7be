//! Secrets in a store: set, listed, deleted, opened for one call, sealed again under a newer key.

mod files;
mod lost;
mod rotate;

pub use files::{KEY_VARIABLE, KeyFileError, fresh_key, keygen, load, load_or_make};
pub use lost::{LostSecrets, find_lost};
pub use rotate::{RotationCounts, rotate_secrets};

use crate::domain::ids::Owner;
use crate::domain::ids::secret::SecretName;
use crate::domain::limits::SECRETS;
use crate::domain::quota::Quota;
use crate::domain::secret::keys::NONCE_BYTES;
use crate::domain::secret::{Binding, KeyId, KeyRing, PlainSecret, SecretFacts, SecretRecord, UnsealError};
use crate::domain::time::Millis;
use crate::store::{Doc, DocKey, DocWrite, Edit, Store, StoreError, Window, decode_listed, keys};

/// Why a secret can't be opened, set or deleted. No variant shows a value.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// No key is configured.
    #[error(
        "secrets can't be stored: no key is configured; make one with `trellis secret keygen` and name its file in `secrets.key_file`, or put it into TRELLIS_SECRETS_KEY"
    )]
    NoKey,
    /// A secret of that name exists.
    #[error("secret `{0}` exists; `overwrite` replaces it")]
    Exists(SecretName),
    /// There is no such secret.
    #[error("no secret `{0}`")]
    Missing(SecretName),
    /// The owner has the most secrets that it may have.
    #[error("expected at most {SECRETS} secrets of one owner; delete some")]
    TooMany,
    /// The secret can't be unsealed.
    #[error("secret `{name}` can't be opened: {reason}")]
    Sealed {
        /// Name of the secret.
        name: SecretName,
        /// Reason of the failure.
        reason: UnsealError,
    },
    /// The system gives no random bytes.
    #[error("no random bytes from the system: {0}")]
    Random(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Request of [`Vault::set`].
#[derive(Debug, Clone)]
pub struct SetSecret {
    /// Name of the secret.
    pub name: SecretName,
    /// Value of the secret.
    pub value: PlainSecret,
    /// Hosts that it may be sent to; `None` keeps the present ones, and is none for a new secret.
    pub hosts: Option<Binding>,
    /// Whether an existing secret is replaced.
    pub overwrite: bool,
    /// Quota of the owner.
    pub within: Quota,
}

/// An opened secret.
#[derive(Debug, Clone)]
pub struct OpenedSecret {
    /// Name of the secret.
    pub name: SecretName,
    /// Value of the secret.
    pub value: PlainSecret,
    /// Hosts that it may be sent to.
    pub hosts: Binding,
}

/// The keys of a process, which seal and open secrets.
#[derive(Debug, Clone, Default)]
pub struct Vault {
    keys: KeyRing,
}

/// Returns random bytes of the system.
fn random_bytes<const N: usize>() -> Result<[u8; N], SecretError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| SecretError::Random(error.to_string()))?;
    Ok(bytes)
}

/// Returns the line about a secret that a configuration names and that isn't stored; `None` if it is.
///
/// # Errors
/// The store can't be read.
pub async fn describe_missing(
    store: &dyn Store,
    owner: &Owner,
    name: &SecretName,
) -> Result<Option<String>, StoreError> {
    let is_stored = store.doc(owner, &keys::secret(name)).await?.value.is_some();
    Ok((!is_stored).then(|| format!("no secret `{}`: `trellis secret set {name}` stores it", name.path())))
}

impl Vault {
    /// Makes a vault with these keys.
    pub const fn new(keys: KeyRing) -> Self {
        Self { keys }
    }

    /// Returns the keys.
    pub const fn keys(&self) -> &KeyRing {
        &self.keys
    }

    /// Sets a secret and replaces what was there. Returns the stored facts, and whether there was a secret before.
    pub async fn set(
        &self,
        store: &dyn Store,
        now: Millis,
        owner: &Owner,
        asked: &SetSecret,
    ) -> Result<(SecretFacts, bool), SecretError> {
        if self.keys.is_empty() {
            return Err(SecretError::NoKey);
        }
        let key = keys::secret(&asked.name);
        let attempt = || async {
            let (before, version) = store.get_versioned::<SecretRecord>(owner, &key).await?;
            if before.is_some() && !asked.overwrite {
                return Err(SecretError::Exists(asked.name.clone()));
            }
            if before.is_none() && list(store, owner).await?.len() >= SECRETS {
                return Err(SecretError::TooMany);
            }
            let existed = before.is_some();
            let stamp = next_stamp(before.map(|record| record.stamp), asked.hosts.clone(), now);
            let record = self.seal(owner, &asked.name, &asked.value, stamp.clone())?;
            let write = DocWrite::json(key.as_str(), &record).at_version(version);
            Ok(Edit::write([write], (stamp, existed)).with_quota(asked.within))
        };
        store.edit(now, owner, "secret", &asked.name, attempt).await
    }

    /// Opens a secret for one call.
    pub async fn open(&self, store: &dyn Store, owner: &Owner, name: &SecretName) -> Result<OpenedSecret, SecretError> {
        let record = store.get(owner, &keys::secret(name)).await?;
        self.unseal(owner, name, &record.ok_or_else(|| SecretError::Missing(name.clone()))?)
    }

    /// Unseals a record that was read under this owner and name.
    pub fn unseal(&self, owner: &Owner, name: &SecretName, record: &SecretRecord) -> Result<OpenedSecret, SecretError> {
        let opened = record.open(&self.keys, owner, name);
        let value = opened.map_err(|reason| SecretError::Sealed { name: name.clone(), reason })?;
        Ok(OpenedSecret { name: name.clone(), value, hosts: record.stamp.hosts.clone() })
    }

    /// Seals a value that is in no list of secrets, such as the credentials of a notification. It opens under this owner
    /// and name, and goes to no host by itself.
    pub fn seal_unlisted(
        &self,
        owner: &Owner,
        name: &SecretName,
        value: &PlainSecret,
        now: Millis,
    ) -> Result<SecretRecord, SecretError> {
        self.seal(owner, name, value, next_stamp(None, None, now))
    }

    fn seal(
        &self,
        owner: &Owner,
        name: &SecretName,
        value: &PlainSecret,
        stamp: SecretFacts,
    ) -> Result<SecretRecord, SecretError> {
        let nonce = random_bytes::<NONCE_BYTES>()?;
        SecretRecord::seal(&self.keys, owner, name, value, stamp, nonce).ok_or(SecretError::NoKey)
    }
}

/// Returns the facts of a secret after it is set.
fn next_stamp(before: Option<SecretFacts>, hosts: Option<Binding>, now: Millis) -> SecretFacts {
    match before {
        None => SecretFacts { hosts: hosts.unwrap_or_default(), created: now, updated: now, version: 1 },
        Some(before) => SecretFacts {
            hosts: hosts.unwrap_or(before.hosts),
            created: before.created,
            updated: now,
            version: before.version + 1,
        },
    }
}

/// Returns the names of an owner's secrets.
pub async fn list_names(store: &dyn Store, owner: &Owner) -> Result<Vec<SecretName>, StoreError> {
    let window = Window { reverse: false, skip: 0, limit: SECRETS, values: false };
    let page = store.page(owner, keys::SECRETS, window).await?;
    Ok(page.docs.iter().filter_map(|(key, _)| keys::secret_name(key)).collect())
}

/// Returns the facts of an owner's secrets by name, without their values.
pub async fn list_stamps(
    store: &dyn Store,
    owner: &Owner,
) -> Result<Vec<(SecretName, SecretFacts, KeyId)>, StoreError> {
    let mut all = Vec::new();
    let mut secrets = store.docs(owner, keys::SECRETS);
    while let Some(page) = secrets.records::<SecretRecord>().await? {
        let page = page.into_iter().filter_map(|(key, record)| Some((keys::secret_name(&key)?, record)));
        all.extend(page.map(|(name, SecretRecord { stamp, key, .. })| (name, stamp, key)));
        if all.len() >= SECRETS {
            all.truncate(SECRETS);
            break;
        }
    }
    Ok(all)
}

/// Returns an owner's secrets by name, sealed as they are stored.
pub async fn list(store: &dyn Store, owner: &Owner) -> Result<Vec<(SecretName, SecretRecord)>, StoreError> {
    let found = store.scan(owner, keys::SECRETS, None, false, SECRETS).await?;
    let record = |(key, doc): (DocKey, Doc)| {
        let record = decode_listed(owner, &key, &doc.value.unwrap_or_default())?;
        Some((keys::secret_name(&key)?, record))
    };
    Ok(found.into_iter().filter_map(record).collect())
}

/// Deletes a secret; `false` if there was none.
pub async fn delete(store: &dyn Store, now: Millis, owner: &Owner, name: &SecretName) -> Result<bool, SecretError> {
    let key = keys::secret(name);
    let attempt = || async {
        let doc = store.doc(owner, &key).await?;
        if doc.value.is_none() {
            return Ok(Edit::without_writes(false));
        }
        Ok(Edit::write([DocWrite::delete(key.as_str()).at_version(doc.version)], true))
    };
    store.edit(now, owner, "secret", name, attempt).await
}
