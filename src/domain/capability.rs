//! Capabilities: one question, [`Authority::permits`], asked before every read, call and write.

use crate::domain::lattice::Path;
use serde::{Deserialize, Serialize};
use std::fmt;

/// `{with: path, can: ability}`: permission for an ability on everything under a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capability {
    /// A path prefix by whole segments; `""` covers everything.
    pub with: String,
    /// An ability; `*` covers all, `crud` covers `crud/read`, …
    pub can: String,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let with = if self.with.is_empty() { "everything" } else { &self.with };
        write!(f, "{} on {with}", self.can)
    }
}

/// What a turn or a caller may do: absent = no limit, empty = nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Authority {
    caps: Option<Vec<Capability>>,
}

/// A refused request: what it needed and what is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// The ability it needed.
    pub ability: String,
    /// On what.
    pub resource: String,
    /// What is held.
    pub held: Vec<Capability>,
}

impl Denied {
    /// The text that a model gets instead of a result.
    pub fn text(&self, operation: &str) -> String {
        let held: Vec<_> = self.held.iter().map(ToString::to_string).collect();
        let held = if held.is_empty() { "(none)".to_owned() } else { held.join(", ") };
        format!(
            "Capability denied: {operation} requires {} on {}. Your capabilities are: {held}. \
             Retrying the same call will not help.",
            self.ability, self.resource
        )
    }
}

/// `general` covers `special` when it is the same or an ancestor by whole segments.
fn covers(general: &str, special: &str) -> bool {
    let general = general.trim_end_matches('/');
    let special = special.trim_end_matches('/');
    general.is_empty() || special.strip_prefix(general).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether holding ability `held` is enough for `needed`.
fn ability_covers(held: &str, needed: &str) -> bool {
    held == "*" || (!held.is_empty() && covers(held, needed)) || (held == "crud/write" && needed == "crud/append")
}

impl Authority {
    /// No limit.
    pub const fn unlimited() -> Self {
        Self { caps: None }
    }

    /// Limited to `caps`; `None` = no limit.
    pub const fn new(caps: Option<Vec<Capability>>) -> Self {
        Self { caps }
    }

    /// The list, when there is one.
    pub fn caps(&self) -> Option<&[Capability]> {
        self.caps.as_deref()
    }

    /// The one question: may the holder use `ability` on `resource`, a lattice path or another
    /// name by segments?
    ///
    /// Always held: the session's own `c/`, the job's own `t/`, and reading `v/`.
    pub fn permits(&self, ability: &str, resource: &str) -> Result<(), Denied> {
        let Some(caps) = &self.caps else { return Ok(()) };
        let own = covers("c", resource) || covers("t", resource);
        let venue = covers("v", resource) && ability == "crud/read";
        let held = caps.iter().any(|cap| covers(&cap.with, resource) && ability_covers(&cap.can, ability));
        if own || venue || held {
            return Ok(());
        }
        Err(Denied { ability: ability.to_owned(), resource: resource.to_owned(), held: caps.clone() })
    }

    /// Whether anything at all under `resource` may be reached.
    pub fn reaches(&self, resource: &str) -> bool {
        let Some(caps) = &self.caps else { return true };
        let own = ["c", "t", "v"].iter().any(|always| covers(always, resource));
        own || caps.iter().any(|cap| covers(&cap.with, resource) || covers(resource, &cap.with))
    }

    /// The capability by which [`Authority::permits`] says yes; `None` when nothing limits.
    pub fn grounds(&self, ability: &str, resource: &str) -> Option<String> {
        let caps = self.caps.as_ref()?;
        let held = caps.iter().find(|cap| covers(&cap.with, resource) && ability_covers(&cap.can, ability));
        Some(held.map_or_else(|| format!("{ability} on {resource} (always held)"), ToString::to_string))
    }

    /// [`Authority::permits`] for a path.
    pub fn permits_path(&self, ability: &str, path: &Path) -> Result<(), Denied> {
        self.permits(ability, &path.to_string())
    }

    /// What both permit: the deeper of two paths where one covers the other, abilities likewise.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let (a, b) = match (&self.caps, &other.caps) {
            (None, _) => return other.clone(),
            (_, None) => return self.clone(),
            (Some(a), Some(b)) => (a, b),
        };
        let mut both: Vec<Capability> = Vec::new();
        for x in a {
            for y in b {
                let Some(with) = deeper(&x.with, &y.with) else { continue };
                let Some(can) = narrower(&x.can, &y.can) else { continue };
                let cap = Capability { with, can };
                if !both.contains(&cap) {
                    both.push(cap);
                }
            }
        }
        Self { caps: Some(both) }
    }
}

fn deeper(a: &str, b: &str) -> Option<String> {
    if covers(a, b) {
        Some(b.to_owned())
    } else if covers(b, a) {
        Some(a.to_owned())
    } else {
        None
    }
}

fn narrower(a: &str, b: &str) -> Option<String> {
    if ability_covers(a, b) {
        Some(b.to_owned())
    } else if ability_covers(b, a) {
        Some(a.to_owned())
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority(caps: &[(&str, &str)]) -> Authority {
        let caps = caps.iter().map(|(with, can)| Capability { with: (*with).into(), can: (*can).into() });
        Authority::new(Some(caps.collect()))
    }

    #[test]
    fn a_capability_covers_whole_segments_and_narrower_abilities() {
        let held = authority(&[("w/vendor/", "crud/read"), ("w/out", "crud"), ("g/helper", "agent/request")]);
        for (ability, resource, permitted) in [
            ("crud/read", "w/vendor", true),
            ("crud/read", "w/vendor/acme/name", true),
            ("crud/read", "w/vendor-secrets", false),
            ("crud/write", "w/vendor/acme", false),
            ("crud/delete", "w/out/1", true),
            ("agent/request", "g/helper", true),
            ("agent/create", "g/helper", false),
            ("crud/write", "c/x", true),
            ("crud/write", "t/x", true),
            ("crud/read", "v/ops", true),
            ("crud/write", "v/ops", false),
            ("crud/read", "w", false),
        ] {
            assert_eq!(held.permits(ability, resource).is_ok(), permitted, "{ability} {resource}");
        }
        assert!(authority(&[("w", "crud/write")]).permits("crud/append", "w/l").is_ok());
        assert!(authority(&[("", "*")]).permits("crud/read", "w/l").is_ok());
    }

    #[test]
    fn absent_is_no_limit_and_empty_is_nothing() {
        assert!(Authority::unlimited().permits("crud/read", "w/x").is_ok());
        assert!(authority(&[]).permits("crud/read", "w/x").is_err());
    }

    #[test]
    fn an_intersection_never_permits_more_than_either() {
        let a = authority(&[("w", "crud"), ("g", "agent")]);
        let b = authority(&[("w/vendor", "crud/read"), ("", "agent/request")]);
        let both = a.intersect(&b);
        assert_eq!(both, authority(&[("w/vendor", "crud/read"), ("g", "agent/request")]));
        assert_eq!(Authority::unlimited().intersect(&b), b);
        assert_eq!(a.intersect(&Authority::unlimited()), a);
    }

    #[test]
    fn a_denial_names_what_was_needed_and_what_is_held() {
        let denied = authority(&[("w/a", "crud/read")]).permits("crud/write", "w/b").unwrap_err();
        assert_eq!(
            denied.text("v/ops/lattice/write"),
            "Capability denied: v/ops/lattice/write requires crud/write on w/b. Your capabilities are: \
             crud/read on w/a. Retrying the same call will not help."
        );
    }
}
