//! Owners among whom a process shares its slots: whether the venue has several tenants, and which of them have several
//! users.

use crate::domain::ids::{Owner, OwnerPart};
use crate::domain::share::Sharers;
use crate::store::StoreError;
use crate::venue::{Venue, is_reserved};
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use std::collections::HashSet;
use std::convert::Infallible;
use std::time::Duration;

/// Tenants whose number of users is cached.
const TENANTS: usize = 16_384;

/// Most tenants that one look at the store checks.
const LOOKUPS_MAX: usize = 64;

/// Pause between two looks where no sweep makes them.
const PAUSE: Duration = Duration::from_secs(2);

/// Owners that are read at a time.
const PAGE: usize = 16;

/// The owners of a venue, as far as slots are shared among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum OwnerSpread {
    /// At most one owner.
    #[default]
    Alone,
    /// Several users of one tenant.
    Users,
    /// More than one tenant.
    Tenants,
}

/// What a process knows of the owners of its venue. Before its first look slots are shared: otherwise the first owner
/// that it meets would get all of them.
#[derive(Debug)]
pub struct OwnerCensus {
    known: Mutex<KnownOwners>,
    has_several: Cache<OwnerPart, bool>,
    /// The user of each tenant that was met last.
    met_users: Cache<OwnerPart, OwnerPart>,
}

#[derive(Debug)]
struct KnownOwners {
    spread: OwnerSpread,
    /// Tenants that may have one user; the next look checks them.
    in_doubt: HashSet<OwnerPart>,
    /// Whether a share was computed since the last look at the store; if not, no look is needed.
    is_asked: bool,
    met: MetOwners,
}

/// Owners that were met since the last look: the store may not list them yet.
#[derive(Debug, Default)]
struct MetOwners {
    first: Option<Owner>,
    spread: OwnerSpread,
}

impl MetOwners {
    fn meet(&mut self, owner: &Owner) {
        let spread = match &self.first {
            None => {
                self.first = Some(owner.clone());
                OwnerSpread::Alone
            }
            Some(first) if first.tenant() != owner.tenant() => OwnerSpread::Tenants,
            Some(first) if first != owner => OwnerSpread::Users,
            Some(_) => OwnerSpread::Alone,
        };
        self.spread = self.spread.max(spread);
    }
}

impl Default for OwnerCensus {
    fn default() -> Self {
        let known = KnownOwners {
            spread: OwnerSpread::Tenants,
            in_doubt: HashSet::new(),
            is_asked: true,
            met: MetOwners::default(),
        };
        Self { known: Mutex::new(known), has_several: Cache::new(TENANTS), met_users: Cache::new(TENANTS) }
    }
}

impl OwnerCensus {
    /// Notes an owner that wants a slot. After two owners, slots are shared at once and not with the next look. Returns
    /// whether more owners share them than before.
    pub fn meet(&self, owner: &Owner) -> bool {
        if is_reserved(owner) {
            return false;
        }
        let (tenant, user) = (owner.tenant(), owner.user());
        if self.has_several.get(tenant) != Some(true) {
            match self.met_users.get(tenant) {
                Some(met) if met != *user => self.note_users(tenant.clone(), true),
                Some(_) => {}
                None => self.met_users.insert(tenant.clone(), user.clone()),
            }
        }
        let mut known = self.known.lock();
        let before = known.spread;
        if before < OwnerSpread::Tenants {
            known.met.meet(owner);
            known.spread = before.max(known.met.spread);
        }
        known.spread > before
    }

    /// Whether one owner is alone and may have all slots.
    pub fn is_alone(&self) -> bool {
        self.known.lock().spread == OwnerSpread::Alone
    }

    /// Returns among whom slots are shared when a user of this tenant wants one.
    pub fn sharers(&self, tenant: &OwnerPart) -> Sharers {
        let mut known = self.known.lock();
        known.is_asked = true;
        match known.spread {
            OwnerSpread::Alone => Sharers { tenants: false, users: false },
            OwnerSpread::Users => Sharers { tenants: false, users: true },
            OwnerSpread::Tenants => {
                let several = self.has_several.get(tenant);
                if several != Some(true) && known.in_doubt.len() < LOOKUPS_MAX {
                    known.in_doubt.insert(tenant.clone());
                }
                Sharers { tenants: true, users: several.unwrap_or(true) }
            }
        }
    }

    /// Like [`OwnerCensus::sharers`], for an operation: its slots are shared even if an owner is alone.
    pub fn sharers_always(&self, tenant: &OwnerPart) -> Sharers {
        let sharers = self.sharers(tenant);
        Sharers { users: sharers.users || !sharers.tenants, ..sharers }
    }

    /// Sets among whom slots are shared.
    pub fn set_spread(&self, spread: OwnerSpread) {
        self.known.lock().spread = spread;
    }

    /// Notes whether a tenant has several users. If two were met, it has.
    pub fn note_users(&self, tenant: OwnerPart, several: bool) {
        if several || self.has_several.get(&tenant) != Some(true) {
            self.has_several.insert(tenant, several);
        }
    }

    /// Takes over what the store lists, plus the owners that were met since the last look.
    fn note_listed(&self, listed: OwnerSpread) {
        let mut known = self.known.lock();
        let met = std::mem::take(&mut known.met);
        known.spread = listed.max(met.spread);
    }

    /// Looks at the store every two seconds if a share was computed since the last look.
    pub async fn follow_store(&self, venue: &Venue) -> Infallible {
        loop {
            if std::mem::take(&mut self.known.lock().is_asked)
                && let Err(error) = self.refresh(venue).await
            {
                tracing::debug!(%error, "among whom places are shared isn't known anew; it is as it was");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Reads the spread of owners from the store, and checks a few tenants.
    pub async fn refresh(&self, venue: &Venue) -> Result<(), StoreError> {
        self.note_listed(venue.owner_spread().await?);
        let (spread, in_doubt) = {
            let mut known = self.known.lock();
            (known.spread, std::mem::take(&mut known.in_doubt))
        };
        if spread != OwnerSpread::Tenants {
            return Ok(());
        }
        for tenant in in_doubt {
            let several = venue.has_several_users(&tenant).await?;
            self.note_users(tenant, several);
        }
        Ok(())
    }
}

impl Venue {
    /// Returns how many owners there are, as far as slots are shared among them.
    pub async fn owner_spread(&self) -> Result<OwnerSpread, StoreError> {
        let Some(first) = self.next_owner(None).await? else { return Ok(OwnerSpread::Alone) };
        if self.next_owner(Some(&last_of(first.tenant()))).await?.is_some() {
            return Ok(OwnerSpread::Tenants);
        }
        let second = self.next_owner(Some(&first)).await?;
        Ok(if second.is_some() { OwnerSpread::Users } else { OwnerSpread::Alone })
    }

    /// Whether a tenant has more than one user.
    pub async fn has_several_users(&self, tenant: &OwnerPart) -> Result<bool, StoreError> {
        let is_of_tenant = |owner: &Owner| owner.tenant() == tenant;
        let first = self.next_owner(Some(&first_of(tenant))).await?.filter(is_of_tenant);
        let Some(first) = first else { return Ok(false) };
        Ok(self.next_owner(Some(&first)).await?.is_some_and(|second| is_of_tenant(&second)))
    }

    /// Returns the first owner after `after`, in the order of the store, without the venue's and the tenants' own.
    pub async fn next_owner(&self, after: Option<&Owner>) -> Result<Option<Owner>, StoreError> {
        let mut owners = self.store.all_owners().start_after(after.cloned()).page_size(PAGE);
        // Owners of the parts of a store stand together and may be many.
        let last_part = self.history.parts().iter().max();
        while let Some(page) = owners.next().await? {
            if let Some(found) = page.iter().find(|owner| !is_reserved(owner)) {
                return Ok(Some(found.clone()));
            }
            let is_within = |last: &Owner| self.history.parts().contains(last) && Some(last) < last_part;
            if page.last().is_some_and(is_within) {
                owners = self.store.all_owners().start_after(last_part.cloned()).page_size(PAGE);
            }
        }
        Ok(None)
    }
}

/// Returns an owner after all users of a tenant, in the order of the store: `z` is the last letter of a key.
fn last_of(tenant: &OwnerPart) -> Owner {
    Owner::new(tenant.clone(), OwnerPart::new("z".repeat(crate::domain::ids::MAX_ID_BYTES)).expect("a legal name"))
}

/// Returns an owner before all users of a tenant except one of this very name: no name begins with a character that
/// sorts before it.
fn first_of(tenant: &OwnerPart) -> Owner {
    Owner::new(tenant.clone(), OwnerPart::new("!").expect("a legal name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str) -> OwnerPart {
        OwnerPart::new(name).unwrap()
    }

    #[test]
    fn slots_are_shared_until_an_owner_is_known_to_be_alone() {
        let (census, acme) = (OwnerCensus::default(), part("acme"));
        let sharers = |tenants, users| Sharers { tenants, users };
        assert!(!census.is_alone());
        assert_eq!(census.sharers(&acme), sharers(true, true));
        assert_eq!(census.known.lock().in_doubt.len(), 1, "it is looked up");
        census.note_users(acme.clone(), false);
        assert_eq!(census.sharers(&acme), sharers(true, false));
        assert_eq!(census.sharers_always(&acme), sharers(true, false));
        census.note_users(acme.clone(), true);
        assert_eq!(census.sharers(&acme), sharers(true, true));
        for (spread, expected, always) in [
            (OwnerSpread::Users, sharers(false, true), sharers(false, true)),
            (OwnerSpread::Alone, sharers(false, false), sharers(false, true)),
        ] {
            census.set_spread(spread);
            assert_eq!((census.sharers(&acme), census.sharers_always(&acme)), (expected, always));
        }
        assert!(census.is_alone());
    }

    #[test]
    fn two_owners_that_are_met_share_before_the_store_lists_them() {
        let owner = |name: &str| name.parse::<Owner>().unwrap();
        for (met, expected) in [
            (&["a/x", "a/x"][..], OwnerSpread::Alone),
            (&["a/x", "a/_venue", "_venue/_venue"], OwnerSpread::Alone),
            (&["a/x", "a/y"], OwnerSpread::Users),
            (&["a/x", "a/y", "b/x"], OwnerSpread::Tenants),
            (&["a/x", "b/x", "a/x"], OwnerSpread::Tenants),
        ] {
            let census = OwnerCensus::default();
            census.set_spread(OwnerSpread::Alone);
            let grows = met.iter().filter(|name| census.meet(&owner(name))).count();
            assert_eq!(census.known.lock().spread, expected, "{met:?}");
            assert_eq!(grows > 0, expected != OwnerSpread::Alone, "{met:?}");
            census.note_listed(OwnerSpread::Alone);
            assert_eq!(census.known.lock().spread, expected, "{met:?}: the store is behind");
            census.note_listed(OwnerSpread::Alone);
            assert_eq!(census.known.lock().spread, OwnerSpread::Alone, "{met:?}: they are gone");
        }
        let census = OwnerCensus::default();
        census.note_users(part("a"), false);
        census.meet(&owner("a/x"));
        assert!(!census.sharers(&part("a")).users);
        census.meet(&owner("a/y"));
        census.note_users(part("a"), false);
        assert!(census.sharers(&part("a")).users, "two were met");
    }

    #[test]
    fn the_number_of_tenants_looked_up_at_once_is_bounded() {
        let census = OwnerCensus::default();
        for n in 0..2 * LOOKUPS_MAX {
            census.sharers(&part(&format!("t{n}")));
        }
        assert_eq!(census.known.lock().in_doubt.len(), LOOKUPS_MAX);
    }

    #[test]
    fn every_user_of_a_tenant_stands_between_its_ends() {
        let tenant = part("acme");
        for user in ["ann", "%", "~", "ÿ", "Z", "zoe", "_x", "\"", "\u{10348}"] {
            let owner = Owner::new(tenant.clone(), part(user)).token();
            assert!(first_of(&tenant).token() < owner && owner < last_of(&tenant).token(), "{user}");
        }
        for other in ["acm", "acme-x", "acme2", "b"] {
            let owner = Owner::new(part(other), part("ann")).token();
            let is_inside = first_of(&tenant).token() < owner && owner < last_of(&tenant).token();
            assert!(!is_inside, "{other}");
        }
    }
}
