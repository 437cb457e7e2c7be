//! An owner's policy, stored twice: a policy that is missing or can't be read must not count as empty, which would
//! restore what was revoked. The copy is in force until the policy is written again.

use super::{Doc, Store, StoreError, keys};
use crate::domain::authority::policy::Policy;
use crate::domain::ids::Owner;

/// A policy or its copy, as stored.
pub struct StoredPolicy {
    /// The decoded policy; `None` where there is no document.
    pub value: Result<Option<Policy>, StoreError>,
    /// Version of the document; `None` if it can't be read at all.
    pub version: Option<u64>,
}

impl StoredPolicy {
    /// Decodes the document at `key`. Only a transient error of the store is returned as `Err`.
    pub fn decode(key: &str, doc: Result<Doc, StoreError>) -> Result<Self, StoreError> {
        match doc {
            Ok(doc) => Ok(Self { value: doc.decode(key), version: Some(doc.version) }),
            Err(error) if error.is_transient() => Err(error),
            Err(error) => Ok(Self { value: Err(error), version: None }),
        }
    }
}

/// Reads the policy of an owner and its copy.
pub async fn read_policy(store: &dyn Store, owner: &Owner) -> Result<[StoredPolicy; 2], StoreError> {
    let keys = [keys::POLICY.to_owned(), keys::POLICY_COPY.to_owned()];
    let [policy, copy] = match store.read(owner, &keys).await {
        Ok(docs) => {
            let mut docs = docs.into_iter().map(Ok);
            [(); 2].map(|()| docs.next().unwrap_or_else(|| Ok(Doc::default())))
        }
        Err(error) if error.is_transient() => return Err(error),
        // A damaged document fails the read of both, so each is read on its own.
        Err(_) => [store.doc(owner, &keys[0]).await, store.doc(owner, &keys[1]).await],
    };
    Ok([StoredPolicy::decode(&keys[0], policy)?, StoredPolicy::decode(&keys[1], copy)?])
}

/// Returns the policy in force and the version that a commit compares; 0 without one.
pub fn select_effective(policy: StoredPolicy, copy: StoredPolicy) -> Result<(Policy, u64), StoreError> {
    let value = match (policy.value, copy.value) {
        (Ok(Some(policy)), _) | (Ok(None) | Err(_), Ok(Some(policy))) => policy,
        (Ok(None), Ok(None)) => Policy::default(),
        (Err(error), Ok(None) | Err(_)) | (Ok(None), Err(error)) => return Err(error),
    };
    Ok((value, policy.version.unwrap_or(0)))
}
