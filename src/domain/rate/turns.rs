//! Fair turns among tenants, and among the owners of each, where calls wait for one limit.

use crate::time::Millis;
use std::collections::BTreeMap;

/// Place of a call among those that wait for tokens; the smallest comes first.
///
/// Tenants take turns: with each call that is made, the other calls of its tenant move behind all that wait by then. So
/// do the owners of one tenant among each other. Within an owner the longest wait comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueuePlace<'c> {
    pub(super) tenant_turn: Millis,
    pub(super) turn: Millis,
    pub(super) since: Millis,
    pub(super) id: &'c str,
}

/// Times at which a call of a waiting call's tenant, and of its owner, was last made while it waited.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PassedTurns {
    pub(super) tenant: Millis,
    pub(super) owner: Millis,
}

impl<'c> QueuePlace<'c> {
    pub(super) fn new(id: &'c str, since: Millis, passed: PassedTurns) -> Self {
        Self { tenant_turn: since.max(passed.tenant), turn: since.max(passed.owner), since, id }
    }
}

/// Returns the owner with which a call's id begins: `tenant/user/…`.
pub(super) fn owner_of(id: &str) -> &str {
    id.match_indices('/').nth(1).map_or(id, |(end, _)| &id[..end])
}

/// Returns the tenant of the owner in a call's id.
pub(super) fn tenant_of(id: &str) -> &str {
    id.split('/').next().unwrap_or(id)
}

/// Returns the index of the call that loses its place to a call with this id: the last one of the owner that has the
/// most within the tenant that has the most, until both tenants have equal numbers. Else, where this call's owner has
/// none, the last one of the owner that has the most within its own tenant. No owner loses its only place to another of
/// its tenant.
pub(super) fn last_of_most_frequent<'i>(
    ids: impl DoubleEndedIterator<Item = &'i str> + Clone,
    id: &str,
) -> Option<usize> {
    let owners = |tenant: &str| count(ids.clone().filter(|other| tenant_of(other) == tenant).map(owner_of));
    let tenants = count(ids.clone().map(tenant_of));
    let own = tenants.get(tenant_of(id)).copied().unwrap_or(0);
    let owner = if let Some(tenant) = most_frequent(tenants, own + 1) {
        most_frequent(owners(tenant), 0)?
    } else {
        let owners = owners(tenant_of(id));
        if owners.contains_key(owner_of(id)) {
            return None;
        }
        most_frequent(owners, 1)?
    };
    ids.enumerate().filter(|(_, other)| owner_of(other) == owner).map(|(at, _)| at).last()
}

fn count<'i>(names: impl Iterator<Item = &'i str>) -> BTreeMap<&'i str, usize> {
    let mut counts = BTreeMap::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    counts
}

/// Returns the most frequent name, if it occurs more often than `beyond`.
fn most_frequent(counts: BTreeMap<&str, usize>, beyond: usize) -> Option<&str> {
    let (name, _) = counts.into_iter().filter(|(_, count)| *count > beyond).max_by_key(|(_, count)| *count)?;
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_line_makes_room_by_tenant_and_then_by_owner() {
        for (ids, id, expected) in [
            // Of one tenant: the last of the owner that has the most.
            (&["t/a/1", "t/a/2", "t/b/1"][..], "t/c/1", Some(1)),
            (&["t/a/1", "t/a/2", "t/b/1"], "t/b/2", None),
            (&["t/a/1", "t/b/1"], "t/c/1", None),
            // A tenant of many users has the most, although each of them has one.
            (&["t/a/1", "t/b/1", "t/c/1"], "u/a/1", Some(2)),
            (&["t/a/1", "u/a/1"], "v/a/1", None),
            (&["t/a/1", "t/b/1", "t/b/2", "u/a/1", "u/a/2"], "v/a/1", Some(2)),
            // Until they have as many.
            (&["t/a/1", "t/b/1", "t/c/1", "u/a/1"], "u/b/1", Some(2)),
            (&["t/a/1", "t/b/1", "t/c/1", "u/a/1", "u/a/2"], "u/b/1", Some(4)),
            (&["t/a/1", "t/b/1", "t/c/1", "u/a/1", "u/a/2"], "u/a/3", None),
        ] {
            assert_eq!(last_of_most_frequent(ids.iter().copied(), id), expected, "{id} beside {ids:?}");
        }
    }
}
