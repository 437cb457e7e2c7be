//! One capability: an ability on everything under a path.

use crate::lattice::PathRule;
use crate::visible::first_hidden;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use unicode_normalization::is_nfc;

/// First segment of resource namespaces, the second dimension beside the lattice.
pub const RESOURCES: &str = "r";

/// Stands for a `/` inside a key, which no path and no capability can spell. What lies under such a key is covered by a
/// capability on the collection, and by no other.
pub(super) const INNER_SLASH: &str = "\u{1f}";

/// Bytes of `with` at most.
const MAX_WITH: usize = 2048;

/// Bytes of `can` at most: far more than any ability of this venue or of a foreign operation has.
const MAX_CAN: usize = 256;

/// `{with: path, can: ability}`: permission for an ability on everything under a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Capability {
    /// A path prefix by whole segments; `""` covers everything.
    pub with: String,
    /// An ability; `*` covers all, `crud` covers `crud/read`, …
    pub can: String,
}

/// Reason why a capability is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CapabilityError {
    /// The ability is too long.
    #[error("`can`: expected at most {MAX_CAN} bytes, got {} in `{}`", .can.len(), readable(.can))]
    LongAbility {
        /// Ability as it was given.
        can: String,
    },
    /// The ability breaks the rules of abilities.
    #[error("`can`: expected an ability such as `crud/read`, or `*`, got `{}`", readable(.can))]
    Ability {
        /// Ability as it was given.
        can: String,
    },
    /// The path breaks the rules of paths.
    #[error("`with` `{}`: {fault}", readable(.with))]
    Target {
        /// Path as it was given.
        with: String,
        /// Rule that the path breaks.
        fault: CapabilityTargetError,
    },
}

/// Rule that the path of a capability breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CapabilityTargetError {
    /// The path is too long.
    #[error("expected at most {MAX_WITH} bytes, got {found}")]
    TooLong {
        /// Bytes of the path.
        found: usize,
    },
    /// The path breaks a rule of all paths.
    #[error(transparent)]
    Path(#[from] PathRule),
    /// The address has no scheme or no host.
    #[error("expected a host after the scheme")]
    NoHost,
    /// The path has a segment `.`, `..` or `*`.
    #[error("segment `{segment}` is not allowed: a path covers all that lies below it")]
    Segment {
        /// Segment of the path.
        segment: String,
    },
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let with = if self.with.is_empty() { "everything" } else { &self.with };
        write!(f, "{} on {with}", self.can)
    }
}

impl Capability {
    /// Checks the rules of paths and abilities.
    pub fn check(&self) -> Result<(), CapabilityError> {
        let ability = |segment: &str| {
            !segment.is_empty()
                && segment.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':'))
                && segment != "."
                && segment != ".."
        };
        if self.can.len() > MAX_CAN {
            return Err(CapabilityError::LongAbility { can: self.can.clone() });
        }
        if self.can != "*" && !self.can.split('/').all(ability) {
            return Err(CapabilityError::Ability { can: self.can.clone() });
        }
        check_with(&self.with).map_err(|fault| CapabilityError::Target { with: self.with.clone(), fault })
    }

    /// Whether it permits everything that `other` permits.
    pub fn covers(&self, other: &Self) -> bool {
        self.permits(&other.can, &other.with)
    }

    /// Whether the other means nothing beside it. A resource namespace below a covered one has a meaning of its own: a
    /// memory shows what is at and above each namespace, and a write without a name means the only one.
    pub fn replaces(&self, other: &Self) -> bool {
        self.covers(other) && (!other.is_of_resources() || covers(&other.with, &self.with))
    }

    /// Whether it is enough for an ability on a name.
    pub fn permits(&self, ability: &str, name: &str) -> bool {
        covers(&self.with, name) && ability_covers(&self.can, ability)
    }

    /// Returns what both permit: the deeper of two paths where one covers the other, abilities likewise.
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        let deeper = |a: &str, b: &str, covers: fn(&str, &str) -> bool| {
            if covers(a, b) { Some(b.to_owned()) } else { covers(b, a).then(|| a.to_owned()) }
        };
        let with = deeper(&self.with, &other.with, covers)?;
        Some(Self { with, can: deeper(&self.can, &other.can, ability_covers)? })
    }

    /// Whether it names a resource namespace, `r/…`, rather than a lattice path.
    pub fn is_of_resources(&self) -> bool {
        is_of_resources(&self.with)
    }
}

/// Whether a name belongs to the dimension of resources.
pub fn is_of_resources(name: &str) -> bool {
    covers(RESOURCES, name)
}

fn check_with(with: &str) -> Result<(), CapabilityTargetError> {
    if with.len() > MAX_WITH {
        return Err(CapabilityTargetError::TooLong { found: with.len() });
    }
    if with.chars().any(char::is_control) {
        return Err(PathRule::ControlCharacter.into());
    }
    if first_hidden(with).is_some() {
        return Err(PathRule::HiddenCharacter.into());
    }
    if !is_nfc(with) {
        return Err(PathRule::NotNormalised.into());
    }
    let (scheme, rest) = with.split_once("://").map_or((None, with), |(scheme, rest)| (Some(scheme), rest));
    let is_scheme = |scheme: &str| !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric());
    if scheme.is_some_and(|scheme| rest.is_empty() || !is_scheme(scheme)) {
        return Err(CapabilityTargetError::NoHost);
    }
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.is_empty() {
        return Ok(());
    }
    match rest.split('/').find(|segment| segment.is_empty() || matches!(*segment, "." | ".." | "*")) {
        None => Ok(()),
        Some("") => Err(PathRule::EmptySegment.into()),
        Some(segment) => Err(CapabilityTargetError::Segment { segment: segment.to_owned() }),
    }
}

/// Whether `general` is the same as `special` or an ancestor by whole segments. A slash at the end changes nothing.
pub fn covers(general: &str, special: &str) -> bool {
    let general = general.trim_end_matches('/');
    let special = special.trim_end_matches('/');
    general.is_empty() || special.strip_prefix(general).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether one of two names lies at or under the other.
pub fn overlaps(a: &str, b: &str) -> bool {
    covers(a, b) || covers(b, a)
}

/// Whether holding the ability `held` is enough for `needed`.
pub fn ability_covers(held: &str, needed: &str) -> bool {
    held == "*" || (!held.is_empty() && covers(held, needed)) || (held == "crud/write" && needed == "crud/append")
}

/// Returns a name in readable form, with `\/` for a slash inside a key and U+FFFD for control characters.
pub fn readable(name: &str) -> String {
    name.replace(INNER_SLASH, "\\/").chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cap(with: &str, can: &str) -> Capability {
        Capability { with: with.into(), can: can.into() }
    }

    #[test]
    fn paths_and_urls_are_covered_by_whole_parts() {
        for (general, special, covered) in [
            ("w/vendor", "w/vendor", true),
            ("w/vendor/", "w/vendor", true),
            ("w/vendor", "w/vendor/acme", true),
            ("w/vendor", "w/vendor-secrets", false),
            ("w/vendor", "w/Vendor", false),
            ("w/vendor/acme", "w/vendor", false),
            ("", "w/x", true),
            ("https://host/", "https://host/a", true),
            ("https://host/a", "https://host/ab", false),
            ("https://host", "https://host.evil/", false),
            ("https://host", "https://host:8443/", false),
            ("https://host", "http://host/", false),
        ] {
            assert_eq!(covers(general, special), covered, "{general:?} {special:?}");
        }
    }

    #[test]
    fn abilities_form_a_tree_and_write_includes_append() {
        for (held, needed, covered) in [
            ("*", "agent/request", true),
            ("crud", "crud/read", true),
            ("crud", "crude/read", false),
            ("crud/write", "crud/append", true),
            ("crud/append", "crud/write", false),
            ("crud/read", "crud", false),
            ("agent", "agent/create", true),
            ("", "crud/read", false),
        ] {
            assert_eq!(ability_covers(held, needed), covered, "{held:?} {needed:?}");
        }
    }

    #[test]
    fn the_intersection_of_two_capabilities_is_the_deeper_one() {
        for (a, b, both) in [
            (cap("w", "crud"), cap("w/a", "crud/read"), Some(cap("w/a", "crud/read"))),
            (cap("w/a", "crud"), cap("w", "crud/read"), Some(cap("w/a", "crud/read"))),
            (cap("w/a", "*"), cap("w/b", "*"), None),
            (cap("w", "crud"), cap("w", "agent"), None),
            (cap("", "crud/write"), cap("w", "crud/append"), Some(cap("w", "crud/append"))),
        ] {
            assert_eq!(a.intersect(&b), both, "{a} {b}");
            assert_eq!(b.intersect(&a), both, "{b} {a}");
        }
    }

    #[test]
    fn capabilities_that_could_be_misread_are_refused() {
        for (with, can, rule) in [
            ("w/a", "crud/read", None),
            ("", "*", None),
            ("w/a/", "crud", None),
            ("https://api.example/v1", "http/get", None),
            ("w//a", "crud", Some("empty segment")),
            ("/w/a", "crud", Some("empty segment")),
            ("w/../s", "crud", Some("segment `..`")),
            ("w/*", "crud", Some("segment `*`")),
            ("w/a\u{0}", "crud", Some("control characters")),
            ("w/a\u{1f}b", "crud", Some("control characters")),
            ("w/a\u{200b}b", "crud", Some("can't be seen")),
            ("\u{feff}w", "crud", Some("can't be seen")),
            ("w/e\u{301}", "crud", Some("normalisation form C")),
            ("https://", "http", Some("expected a host")),
            ("://", "http", Some("expected a host")),
            ("://w/a", "crud", Some("expected a host")),
            ("w/a", "", Some("expected an ability")),
            ("w/a", "crud/*", Some("expected an ability")),
            ("w/a", "crud read", Some("expected an ability")),
        ] {
            let found = cap(with, can).check().err().map(|error| error.to_string());
            assert_eq!(found.is_some(), rule.is_some(), "{with:?} {can:?} {found:?}");
            assert!(found.unwrap_or_default().contains(rule.unwrap_or_default()), "{with:?} {can:?}");
        }
    }
}
