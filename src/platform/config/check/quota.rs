//! `quota.*`: the default quota of owners, and the number of users of tenants.

use super::values::{number, parse};
use crate::config::layers::ConfigLayers;
use crate::domain::quota::{ByteLimit, MOST, QuotaSettings};
use crate::domain::tenant_users::{TenantUserLimits, USERS_MOST};

pub(super) fn read(l: &mut ConfigLayers) -> QuotaSettings {
    QuotaSettings {
        documents: number(l, "quota.documents", 0..=MOST.cast_signed()),
        bytes: parse(
            l,
            "quota.bytes",
            "bytes such as `1073741824`, or `1%` to `100%` of the store's limit",
            ByteLimit::parse,
        ),
        sessions: number(l, "quota.sessions", 0..=MOST.cast_signed()),
        jobs: number(l, "quota.jobs", 0..=MOST.cast_signed()),
        tenant_users: TenantUserLimits {
            general: number(l, "quota.tenant_users", 0..=USERS_MOST.cast_signed()),
            named: parse(
                l,
                "quota.tenants",
                "tenants with numbers of users and commas between such as `acme:500, did:0`",
                TenantUserLimits::parse_named,
            ),
        },
    }
}
