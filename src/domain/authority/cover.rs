//! Comparison of authorities: what ran under one may be seen under another that covers it.

use super::capability::{Capability, covers, is_of_resources, overlaps};
use super::{Authority, Holder};

/// Ability to read a resource namespace.
const READ: &str = "read";

type CapabilityList = Option<Vec<Capability>>;

impl Authority {
    /// Whether `self` permits everything that `other` permits, apart from scratch space.
    pub fn covers(&self, other: &Self) -> bool {
        self.grants(other, Capability::covers)
            && self.except.iter().all(|gone| other.permits_nothing_under(gone.as_str()))
    }

    /// Whether `self` may read everything that `other` permits anything on, so that its holder may see what was said
    /// and done under `other`.
    pub fn covers_reading(&self, other: &Self) -> bool {
        let reads = |held: &Capability, needed: &Capability| {
            held.covers(needed) || held.permits(reading_ability(&needed.with), needed.with.trim_end_matches('/'))
        };
        // A caller outside sessions names the resources of a request, so they don't limit what the caller sees.
        let names = self.resources.is_none() && self.home.session.is_none();
        let other = if names { &Self { resources: None, ..other.clone() } } else { other };
        self.grants(other, reads) && self.except.iter().all(|gone| other.permits_nothing_under(gone.as_str()))
    }

    /// Whether what was learned by this use of a capability may be known: by the same use, or by reading its resource.
    pub fn may_know(&self, used: &Capability) -> bool {
        Holder::new(self).may_know(used)
    }

    fn grants(&self, other: &Self, enough: impl Fn(&Capability, &Capability) -> bool) -> bool {
        let everything = Capability { with: String::new(), can: "*".into() };
        let list = |held: &CapabilityList, needed: &[Capability]| {
            held.as_ref().is_none_or(|held| needed.iter().all(|needed| held.iter().any(|held| enough(held, needed))))
        };
        // An absent list of resources grants none.
        let resources = match (&self.resources, &other.resources) {
            (_, None) => true,
            (held, Some(needed)) => held.is_some() && list(held, needed),
        };
        resources && list(&self.paths, other.paths.as_deref().unwrap_or(std::slice::from_ref(&everything)))
    }

    /// Whether nothing at or under this name is permitted.
    fn permits_nothing_under(&self, name: &str) -> bool {
        let nothing =
            |list: &CapabilityList| list.as_ref().is_some_and(|caps| !caps.iter().any(|cap| overlaps(&cap.with, name)));
        self.except.iter().any(|gone| covers(gone.as_str(), name))
            || nothing(if is_of_resources(name) { &self.resources } else { &self.paths })
    }
}

/// Returns the ability to read what a capability names.
pub(super) fn reading_ability(with: &str) -> &'static str {
    if is_of_resources(with) { READ } else { "crud/read" }
}
