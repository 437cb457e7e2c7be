//! Secrets that no key of this process opens, as after a restore of a store without its key file.

use super::list_stamps;
use crate::domain::secret::{KeyId, KeyRing};
use crate::store::{Store, StoreError};
use std::collections::BTreeSet;
use std::fmt;

/// Numbers of lost secrets, and the keys that they are sealed with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LostSecrets {
    /// Number of secrets of all owners.
    pub secrets: usize,
    /// Number of owners that have one.
    pub owners: usize,
    /// Ids of the missing keys.
    pub keys: BTreeSet<KeyId>,
}

/// Checks the secrets of all owners.
pub async fn find_lost(store: &dyn Store, ring: &KeyRing) -> Result<LostSecrets, StoreError> {
    let known: BTreeSet<KeyId> = ring.ids().into_iter().collect();
    let mut lost = LostSecrets::default();
    let mut owners = store.all_owners();
    while let Some(page) = owners.next().await? {
        for owner in page {
            let all = list_stamps(store, &owner).await?;
            let before = lost.secrets;
            for (_, _, key) in all.into_iter().filter(|(_, _, key)| !known.contains(key)) {
                lost.secrets += 1;
                lost.keys.insert(key);
            }
            lost.owners += usize::from(lost.secrets > before);
        }
    }
    Ok(lost)
}

impl fmt::Display for LostSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.keys.iter().map(ToString::to_string).collect();
        write!(
            f,
            "{} secrets of {} owners can't be opened: they are sealed with {}, and no such key is here; put back the key file \
             of this store (`secrets.key_file`, TRELLIS_SECRETS_KEY, or `secrets.key` in the data folder) and start again, or \
             set them anew; `trellis secret list` shows which",
            self.secrets,
            self.owners,
            keys.join(", ")
        )
    }
}
