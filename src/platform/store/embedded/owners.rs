//! The list of owners: the users of a tenant, and another one if the tenant may have it.

use super::layout::{self, Space, prefix_end};
use super::tx::Tx;
use super::view::{StoreFault, View};
use crate::domain::ids::{Owner, OwnerPart};
use crate::store::{OwnerRegistration, keys};
use std::ops::ControlFlow;

/// Implements [`crate::store::Accounts::tenant_users`] on a state.
pub(super) fn count_users(view: &impl View, tenant: &OwnerPart) -> Result<u64, StoreFault> {
    let prefix = layout::owner(&format!("{}/", tenant.token()));
    let own = layout::owner(&keys::tenant_owner(tenant).token());
    let mut users = 0;
    view.walk(Space::Core, &prefix, &prefix_end(&prefix), &mut |key, _| {
        users += u64::from(key != own.as_slice());
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(users)
}

/// Implements [`crate::store::Accounts::register_owner`] for the writer.
pub(super) fn register_within(tx: &mut Tx<'_>, owner: &Owner, most: u64) -> Result<OwnerRegistration, StoreFault> {
    let token = owner.token();
    if tx.get(Space::Core, &layout::owner(&token))?.is_none() {
        let users = count_users(tx, owner.tenant())?;
        if users >= most {
            return Ok(OwnerRegistration::Full { users });
        }
    }
    tx.register(&token)?;
    Ok(OwnerRegistration::Listed)
}
