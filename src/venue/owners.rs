//! Owners that are the venue's or a tenant's own.

use crate::domain::ids::Owner;
use crate::store::keys;

/// Returns the owner of what a tenant's operators store for all its users; it has no agents and no jobs.
pub fn tenant_owner(owner: &Owner) -> Owner {
    keys::tenant_owner(owner.tenant())
}
