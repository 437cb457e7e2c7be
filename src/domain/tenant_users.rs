//! Number of users that a tenant may have: without a limit, invented users each have a quota and a cap of their own.

use crate::ids::{Owner, OwnerPart};
use crate::named_list::parse_named_list;

/// Largest limit that can be set.
pub const USERS_MOST: u64 = 1_000_000_000;

/// Settings `quota.tenant_users` and `quota.tenants`: numbers of users; 0 = any number.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TenantUserLimits {
    /// Limit of every tenant that has none by its name.
    pub general: u64,
    /// Limits of named tenants, in place of `general`.
    pub named: Vec<(OwnerPart, u64)>,
}

/// A tenant that has as many users as it may.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "QUOTA_EXCEEDED: tenant `{}` may have {allowed} users, {used} are registered and `{owner}` would be one more; \
     nothing was written. Act for one of the registered users, or ask an operator for more (`quota.tenant_users`, or \
     `quota.tenants` for this tenant alone)",
    .owner.tenant()
)]
pub struct TenantFull {
    /// Owner that would be registered.
    pub owner: Owner,
    /// Number of registered users of its tenant.
    pub used: u64,
    /// Number of users that the tenant may have.
    pub allowed: u64,
}

impl TenantUserLimits {
    /// Whether no tenant has a limit.
    pub fn is_none(&self) -> bool {
        self.general == 0 && self.named.iter().all(|(_, limit)| *limit == 0)
    }

    /// Returns the limit of a tenant; `None` = any number.
    pub fn get(&self, tenant: &OwnerPart) -> Option<u64> {
        let named = self.named.iter().find(|(known, _)| known == tenant).map(|(_, limit)| *limit);
        Some(named.unwrap_or(self.general)).filter(|limit| *limit > 0)
    }

    /// Reads `acme:500, did:0`: numbers of users of named tenants, each named once.
    pub fn parse_named(text: &str) -> Option<Vec<(OwnerPart, u64)>> {
        let read_limit = |text: &str| {
            let is_number = text.bytes().all(|digit| digit.is_ascii_digit());
            text.parse::<u64>().ok().filter(|limit| is_number && *limit <= USERS_MOST)
        };
        parse_named_list(text, |name| OwnerPart::new(name).ok(), read_limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> OwnerPart {
        OwnerPart::new(name).unwrap()
    }

    #[test]
    fn limits_of_tenants_are_names_with_numbers() {
        for (text, expected) in [
            ("", Some(&[][..])),
            (" ", Some(&[])),
            ("acme:500", Some(&[("acme", 500)])),
            (" acme : 500 , did:0", Some(&[("acme", 500), ("did", 0)])),
            ("did:key:7", Some(&[("did:key", 7)])),
            ("acme", None),
            ("acme:", None),
            (":5", None),
            ("acme:-1", None),
            ("acme:+1", None),
            ("acme:none", None),
            ("acme:1.5", None),
            ("acme/ann:1", None),
            ("ac me:1", None),
            ("acme:1,", None),
            ("acme:1, acme:2", None),
            ("acme:1000000001", None),
            ("acme:99999999999999999999", None),
        ] {
            let expected = expected.map(|all| all.iter().map(|(name, limit)| (tenant(name), *limit)).collect());
            assert_eq!(TenantUserLimits::parse_named(text), expected, "{text}");
        }
    }

    #[test]
    fn a_tenants_own_limit_counts_before_the_general_one() {
        let named = TenantUserLimits::parse_named("acme:2, did:0").unwrap();
        let limits = TenantUserLimits { general: 5, named };
        for (name, expected) in [("acme", Some(2)), ("did", None), ("globex", Some(5)), ("acme2", Some(5))] {
            assert_eq!(limits.get(&tenant(name)), expected, "{name}");
        }
        assert!(!limits.is_none());
        for (general, named, is_none) in [(0, "", true), (0, "acme:0", true), (0, "acme:1", false), (1, "", false)] {
            let named = TenantUserLimits::parse_named(named).unwrap();
            assert_eq!(TenantUserLimits { general, named }.is_none(), is_none);
        }
        assert_eq!(TenantUserLimits::default().get(&tenant("acme")), None, "unset, any number");
    }

    #[test]
    fn a_refused_user_is_told_the_limit_and_what_to_do() {
        let full = TenantFull { owner: "acme/eve".parse().unwrap(), used: 2, allowed: 2 }.to_string();
        for part in [
            "QUOTA_EXCEEDED",
            "tenant `acme` may have 2 users",
            "2 are registered",
            "`acme/eve`",
            "registered users",
            "`quota.tenant_users`",
            "`quota.tenants`",
        ] {
            assert!(full.contains(part), "{part}: {full}");
        }
    }
}
