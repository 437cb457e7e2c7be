//! Owners that are the venue's or a tenant's own.

use crate::domain::ids::{Owner, OwnerPart};

/// User of the owner of a tenant's shared documents.
pub(crate) const VENUE_USER: &str = "_venue";

/// Returns the owner of what a tenant's operators store for all its users; it has no agents and no jobs.
pub fn tenant_owner(owner: &Owner) -> Owner {
    Owner::new(owner.tenant().clone(), OwnerPart::new(VENUE_USER).expect("a legal name"))
}

/// Whether an owner is the venue's or a tenant's own: nobody can act as it.
pub fn is_reserved(owner: &Owner) -> bool {
    owner.user().as_str() == VENUE_USER
}
