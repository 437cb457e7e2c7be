//! An owner's policy as it is stored: roots and revocations. Its version is a part of every commit,
//! so that what is revoked stops a turn that is already running.

use crate::domain::authority::capability::Capability;
use crate::domain::authority::policy::{MAX_REVOCATIONS, Policy, Revocation};
use crate::domain::ids::Owner;
use crate::domain::token::TokenRefused;
use crate::store::{DocWrite, Edit, Store, StoreError, keys};
use crate::venue::auth::caller::Recognised;
use crate::venue::{Venue, venue_owner};

/// The policy of an owner, and the version that a commit compares; 0 without one.
pub async fn load(store: &dyn Store, owner: &Owner) -> Result<(Policy, u64), StoreError> {
    let (policy, version) = store.versioned::<Policy>(owner, keys::POLICY).await?;
    Ok((policy.unwrap_or_default(), version))
}

/// [`load`] with what operators have taken back in every owner.
pub async fn load_in_force(store: &dyn Store, owner: &Owner) -> Result<(Policy, u64), StoreError> {
    let (mut policy, version) = load(store, owner).await?;
    policy.revocations.extend(operator_revocations(store).await?);
    Ok((policy, version))
}

/// Revocations by operators of tokens of their own, which act in every owner.
pub async fn operator_revocations(store: &dyn Store) -> Result<Vec<Revocation>, StoreError> {
    Ok(load(store, &venue_owner()).await?.0.revocations)
}

/// A caller with what is left of its token: without what its own owner, and the one that it acts
/// for, have taken back from it by its name or by the id of a grant. [`TokenRefused::Revoked`] when
/// that is all. Without a token nothing was granted that could be taken back.
pub async fn held(store: &dyn Store, mut known: Recognised) -> Result<Result<Recognised, TokenRefused>, StoreError> {
    let Some(own) = known.token_owner.clone() else { return Ok(Ok(known)) };
    let other = (known.caller.owner != own).then(|| known.caller.owner.clone());
    for owner in std::iter::once(own).chain(other) {
        let (policy, _) = load(store, &owner).await?;
        let caller = &mut known.caller;
        for revocation in policy.taken_from(&caller.name, &caller.envelope) {
            let Some(path) = &revocation.path else { return Ok(Err(TokenRefused::Revoked)) };
            caller.authority = caller.authority.clone().without(path);
        }
    }
    Ok(Ok(known))
}

/// The part of a commit that holds only under this version.
pub fn unchanged(version: u64) -> DocWrite {
    DocWrite::check(keys::POLICY, version)
}

/// Takes something back: from the next check on, that of a running commit included. The oldest
/// revocations don't fall out: at the limit the new one is refused.
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

/// [`revoke`] for every owner: what an operator's token has begun lies with others.
pub async fn revoke_everywhere(venue: &Venue, revocation: Revocation) -> Result<Option<Policy>, StoreError> {
    revoke(venue, &venue_owner(), revocation).await
}

/// Takes a revocation back, and with `everywhere` what it took back in every owner. `None` when there is none of that name.
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

/// Sets what anything of an owner may do at most; `None` = no limit.
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

/// Sets what people want to be asked about.
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
    let attempt = || async {
        let (mut policy, version) = load(&*venue.store, owner).await?;
        if !change(&mut policy) {
            return Ok(Edit::nothing(None));
        }
        Ok(Edit::write([DocWrite::json(keys::POLICY, &policy).at(version)], Some(policy)))
    };
    venue.store.edit(venue.now(), owner, ("the policy of", owner), attempt).await
}
