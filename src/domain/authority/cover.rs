//! Comparing authorities by what they cover: what ran under one may be seen under another that covers it.

use super::capability::{Capability, covers, is_of_resources, overlaps};
use super::{Authority, Holder};

/// What reading a resource namespace needs.
const READ: &str = "read";

type List = Option<Vec<Capability>>;

impl Authority {
    /// Whether everything that `other` permits, `self` permits too, own scratch space aside.
    pub fn covers(&self, other: &Self) -> bool {
        self.grants(other, Capability::covers) && self.except.iter().all(|gone| other.is_without(gone.as_str()))
    }

    /// Whether it may read everything that `other` permits anything on: what was said and done under
    /// `other` is no news to its holder.
    pub fn covers_reading(&self, other: &Self) -> bool {
        let reads = |held: &Capability, needed: &Capability| {
            held.covers(needed) || held.permits(reading(&needed.with), needed.with.trim_end_matches('/'))
        };
        // Who acts for no request names the resources of his requests himself.
        let names = self.resources.is_none() && self.home.session.is_none();
        let other = if names { &Self { resources: None, ..other.clone() } } else { other };
        self.grants(other, reads) && self.except.iter().all(|gone| other.is_without(gone.as_str()))
    }

    /// Whether what was learned by this use of a capability may still be known: by the same use, or by
    /// reading what it was of.
    pub fn may_know(&self, used: &Capability) -> bool {
        Holder::of(self).may_know(used)
    }

    fn grants(&self, other: &Self, enough: impl Fn(&Capability, &Capability) -> bool) -> bool {
        let everything = Capability { with: String::new(), can: "*".into() };
        let list = |held: &List, needed: &[Capability]| {
            held.as_ref().is_none_or(|held| needed.iter().all(|needed| held.iter().any(|held| enough(held, needed))))
        };
        // Of resources, no list is no resource.
        let resources = match (&self.resources, &other.resources) {
            (_, None) => true,
            (held, Some(needed)) => held.is_some() && list(held, needed),
        };
        resources && list(&self.paths, other.paths.as_deref().unwrap_or(std::slice::from_ref(&everything)))
    }

    /// Nothing at or under this name is permitted.
    fn is_without(&self, name: &str) -> bool {
        let nothing = |list: &List| list.as_ref().is_some_and(|caps| !caps.iter().any(|cap| overlaps(&cap.with, name)));
        self.except.iter().any(|gone| covers(gone.as_str(), name))
            || nothing(if is_of_resources(name) { &self.resources } else { &self.paths })
    }
}

/// The ability to read what a capability names.
pub(super) fn reading(with: &str) -> &'static str {
    if is_of_resources(with) { READ } else { "crud/read" }
}
