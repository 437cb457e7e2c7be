//! An owner's policy as it is stored: roots and revocations. Its version is a part of every commit, so that a
//! revocation stops a turn that is already running.
//!
//! It is stored twice. A policy that is missing or can't be read doesn't count as none, which would restore what was
//! revoked: its copy is in force until it is written again.

use crate::domain::authority::capability::Capability;
use crate::domain::authority::policy::{MAX_REVOCATIONS, Policy, Revocation};
use crate::domain::ids::Owner;
use crate::domain::token::TokenError;
use crate::store::policies::{self, StoredPolicy};
use crate::store::{DocWrite, Edit, Store, StoreError, WriteOutcome, keys};
use crate::venue::auth::caller::AuthenticatedCaller;
use crate::venue::{Venue, venue_owner};
use futures::{StreamExt, TryStreamExt, stream};

/// Returns the policy of an owner, and the version that a commit compares; 0 if there is none.
pub async fn load(store: &dyn Store, owner: &Owner) -> Result<(Policy, u64), StoreError> {
    let [policy, copy] = policies::read_policy(store, owner).await?;
    policies::select_effective(policy, copy)
}

/// Returns what is wrong with a policy or its copy, as a text.
pub async fn find_damage(store: &dyn Store, owner: &Owner) -> Result<Option<String>, StoreError> {
    let [policy, copy] = policies::read_policy(store, owner).await?;
    Ok(describe_damage(owner, &policy, &copy))
}

fn describe_damage(owner: &Owner, policy: &StoredPolicy, copy: &StoredPolicy) -> Option<String> {
    match (&policy.value, &copy.value) {
        // Older builds have made no copy.
        (Ok(Some(_)), Ok(_)) | (Ok(None), Ok(None)) => None,
        (Ok(Some(_)), Err(error)) => Some(format!("the copy of the policy of `{owner}` can't be read: {error}")),
        (Ok(None), Ok(Some(_))) => Some(format!("the policy of `{owner}` is gone; its copy is in force")),
        (Err(error), Ok(Some(_))) => {
            Some(format!("the policy of `{owner}` can't be read; its copy is in force: {error}"))
        }
        (Err(error), Ok(None) | Err(_)) | (Ok(None), Err(error)) => {
            Some(format!("the policy of `{owner}` can't be read, so nothing of it runs: restore a backup: {error}"))
        }
    }
}

/// Writes a policy or a copy again that is missing or can't be read. Returns what was wrong, if it did.
pub async fn repair(venue: &Venue, owner: &Owner) -> Result<Option<String>, StoreError> {
    let store = &*venue.store;
    let [policy, copy] = policies::read_policy(store, owner).await?;
    let found = describe_damage(owner, &policy, &copy);
    let (key, of, version, value) = match (policy.value, copy.value, copy.version, policy.version) {
        (Ok(None) | Err(_), Ok(Some(value)), Some(of), version) => {
            (keys::POLICY, (keys::POLICY_COPY, of), version, value)
        }
        (Ok(Some(value)), Ok(None) | Err(_), version, Some(of)) => {
            (keys::POLICY_COPY, (keys::POLICY, of), version, value)
        }
        _ => return Ok(None),
    };
    let write = async |version: Option<u64>| {
        let write = DocWrite::json(key, &value);
        let write = match version {
            Some(version) => write.at_version(version),
            None => write,
        };
        let writes = [DocWrite::check(of.0, of.1), write];
        Ok::<_, StoreError>(store.write(venue.now(), owner, &writes).await? == WriteOutcome::Done)
    };
    if !write(version).await? {
        return Ok(None);
    }
    // The version must not be lower than one at which a reader knows the policy.
    let next = version.unwrap_or(0) + 1;
    stream::iter(next..of.1).then(|version| write(Some(version))).try_collect::<Vec<_>>().await?;
    Ok(found)
}

/// Loads the policy like [`load`], with the revocations by operators for every owner.
pub async fn load_in_force(store: &dyn Store, owner: &Owner) -> Result<(Policy, u64), StoreError> {
    let (mut policy, version) = load(store, owner).await?;
    policy.revocations.extend(operator_revocations(store).await?);
    Ok((policy, version))
}

/// Returns the revocations by operators of their own tokens, which act in every owner.
pub async fn operator_revocations(store: &dyn Store) -> Result<Vec<Revocation>, StoreError> {
    Ok(load(store, &venue_owner()).await?.0.revocations)
}

/// Why the revocations of a caller can't be applied.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RevocationCheckError {
    /// Everything that the caller has is revoked.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Returns a caller without what its own owner, and the owner that it acts for, have revoked from it by its name or by
/// the id of a grant. [`TokenError::Revoked`] if everything is revoked. A caller without a token has no grant that
/// could be revoked.
pub async fn apply_revocations(
    store: &dyn Store,
    mut known: AuthenticatedCaller,
) -> Result<AuthenticatedCaller, RevocationCheckError> {
    let Some(own) = known.token_owner.clone() else { return Ok(known) };
    let other = (known.caller.owner != own).then(|| known.caller.owner.clone());
    for owner in std::iter::once(own).chain(other) {
        let (policy, _) = load(store, &owner).await?;
        let caller = &mut known.caller;
        for revocation in policy.caller_revocations(&caller.name, &caller.envelope) {
            let Some(path) = &revocation.path else { return Err(TokenError::Revoked.into()) };
            caller.authority = caller.authority.clone().except_resource(path);
        }
    }
    Ok(known)
}

/// Returns the part of a commit that holds only at this version of the policy.
pub fn version_check(version: u64) -> DocWrite {
    DocWrite::check(keys::POLICY, version)
}

/// Revokes a grant: from the next check on, including that of a running commit. Old revocations are never dropped: at
/// the limit the new one is refused.
pub async fn revoke(venue: &Venue, owner: &Owner, revocation: Revocation) -> Result<Option<Policy>, StoreError> {
    change(venue, owner, |policy| {
        if policy.revocations.len() >= MAX_REVOCATIONS {
            return false;
        }
        policy.revocations.push(revocation.clone());
        true
    })
    .await
}

/// Revokes like [`revoke`], in every owner: what an operator's token has begun may belong to other owners.
pub async fn revoke_everywhere(venue: &Venue, revocation: Revocation) -> Result<Option<Policy>, StoreError> {
    revoke(venue, &venue_owner(), revocation).await
}

/// Removes a revocation, and with `everywhere` what it revoked in every owner. `None` if there is none of that id.
pub async fn restore(venue: &Venue, owner: &Owner, id: &str, everywhere: bool) -> Result<Option<Policy>, StoreError> {
    if everywhere {
        remove_revocation(venue, &venue_owner(), id).await?;
    }
    remove_revocation(venue, owner, id).await
}

async fn remove_revocation(venue: &Venue, owner: &Owner, id: &str) -> Result<Option<Policy>, StoreError> {
    change(venue, owner, |policy| {
        let before = policy.revocations.len();
        policy.revocations.retain(|revocation| revocation.id != id);
        policy.revocations.len() < before
    })
    .await
}

/// Sets the most that anything of an owner may do; `None` = no limit.
pub async fn set_roots(
    venue: &Venue,
    owner: &Owner,
    roots: Option<Vec<Capability>>,
) -> Result<Option<Policy>, StoreError> {
    change(venue, owner, |policy| {
        policy.roots.clone_from(&roots);
        true
    })
    .await
}

/// Sets the capabilities whose use needs an approval.
pub async fn set_approvals(
    venue: &Venue,
    owner: &Owner,
    approvals: Vec<Capability>,
) -> Result<Option<Policy>, StoreError> {
    change(venue, owner, |policy| {
        policy.approvals.clone_from(&approvals);
        true
    })
    .await
}

async fn change(
    venue: &Venue,
    owner: &Owner,
    change: impl Fn(&mut Policy) -> bool + Send + Sync,
) -> Result<Option<Policy>, StoreError> {
    repair(venue, owner).await?;
    let attempt = || async {
        let (before, version) = load(&*venue.store, owner).await?;
        let mut policy = before.clone().with_cut_reasons();
        if !change(&mut policy) {
            return Ok(Edit::without_writes(None));
        }
        policy.check_size(&before, &owner.to_string()).map_err(StoreError::Oversized)?;
        let copy = DocWrite::json(keys::POLICY_COPY, &policy);
        Ok(Edit::write([DocWrite::json(keys::POLICY, &policy).at_version(version), copy], Some(policy)))
    };
    venue.store.edit(venue.now(), owner, "the policy of", owner, attempt).await
}
