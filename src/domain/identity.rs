//! Identity of a store: which queue belongs to it, and the names that it was made with.

use crate::ids::sha256_hex;
use serde::{Deserialize, Serialize};

/// Hexadecimal digits of an id: so many that no two stores share one.
const DIGITS: usize = 16;

/// Id of a store: a digest of its key, so that a copy that was restored is the same store.
pub fn store_id(key: &[u8]) -> String {
    let mut text = b"trellis store ".to_vec();
    text.extend_from_slice(key);
    sha256_hex(&text)[..DIGITS].to_owned()
}

/// Names that all processes on a store share. The first process writes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VenueNames {
    /// Name of the venue, `venue.name`.
    pub venue: String,
    /// Setting `bus.prefix`; `None` where the queue is in the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_prefix: Option<String>,
}

/// A process has another name than its store was made with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the store was made with `{setting} = \"{made}\"`, and this process has \"{found}\": set \"{made}\", or the store that \
     is meant (`store.url`, `store.prefix`); to change the name for good, stop all processes and start one with \
     `venue.adopt = true`"
)]
pub struct NameMismatch {
    /// Name of the setting that differs.
    pub setting: &'static str,
    /// Value that the store was made with.
    pub made: String,
    /// Value in the configuration of the process.
    pub found: String,
}

impl VenueNames {
    /// Compares the names of a process with those of its store.
    pub fn compare(&self, process: &Self) -> Result<(), NameMismatch> {
        let mismatch = |setting, made: &str, found: &str| {
            let [made, found] = [made, found].map(|name| name.escape_debug().to_string());
            Err(NameMismatch { setting, made, found })
        };
        if self.venue != process.venue {
            return mismatch("venue.name", &self.venue, &process.venue);
        }
        match (&self.bus_prefix, &process.bus_prefix) {
            (Some(made), Some(found)) if made != found => mismatch("bus.prefix", made, found),
            (Some(_) | None, Some(_) | None) => Ok(()),
        }
    }
}

/// The store that a queue belongs to, as it is written on the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusOwner {
    /// Id of the store, see [`store_id`].
    pub store: String,
    /// Name of the venue, `venue.name`.
    pub venue: String,
    /// Prefix of its keys, `store.prefix`.
    pub prefix: String,
}

impl std::fmt::Display for BusOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [store, venue, prefix] = [&self.store, &self.venue, &self.prefix].map(|text| text.escape_debug());
        write!(f, "store {store} (venue `{venue}`, `store.prefix = \"{prefix}\"`)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(venue: &str, prefix: Option<&str>) -> VenueNames {
        VenueNames { venue: venue.to_owned(), bus_prefix: prefix.map(str::to_owned) }
    }

    #[test]
    fn names_that_differ_are_refused_with_what_to_set() {
        for (made, process, setting) in [
            (names("a", Some("p")), names("a", Some("p")), None),
            (names("a", None), names("a", Some("p")), None),
            (names("a", Some("p")), names("b", Some("p")), Some("`venue.name = \"a\"`, and this process has \"b\"")),
            (names("a", Some("p")), names("a", Some("q")), Some("`bus.prefix = \"p\"`, and this process has \"q\"")),
        ] {
            let compared = made.compare(&process).map_err(|error| error.to_string());
            match setting {
                None => assert_eq!(compared, Ok(())),
                Some(said) => assert!(compared.as_ref().is_err_and(|error| error.contains(said)), "{compared:?}"),
            }
        }
    }

    #[test]
    fn a_store_is_known_by_its_key() {
        assert_eq!(store_id(b"k").len(), DIGITS);
        assert_ne!(store_id(b"k"), store_id(b"l"));
    }
}
