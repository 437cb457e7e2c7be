//! Keys of stored records that this build doesn't know: a newer one wrote them, and they are written back as they were.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// What a record has besides what this build knows; the last field of every record that is read, changed and written
/// again, with `#[serde(flatten)]`. It keeps the keys at the top of the record: a record inside it that only counts or
/// remembers (how far a task is, the open goals) drops those that it doesn't know, so what is new stands at the top.
///
/// Records that say what may be done (policies, authority, configurations of agents, secrets, submissions) have none:
/// they refuse keys that they don't know, for a limit that is passed over is one that is lost. So does what says it
/// inside another (the request that a session serves, what a summary may show, calls and jobs that are waited for).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct KeptKeys(Option<Box<Map<String, Value>>>);

impl KeptKeys {
    /// For records with a flattened enum that is told apart by a key: serde hands its keys to both.
    pub fn besides<'de, D: Deserializer<'de>>(known: &[&str], from: D) -> Result<Self, D::Error> {
        let mut keys = Map::deserialize(from)?;
        keys.retain(|key, _| !known.contains(&key.as_str()));
        Ok(Self((!keys.is_empty()).then(|| Box::new(keys))))
    }
}

impl<'de> Deserialize<'de> for KeptKeys {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::besides(&[], from)
    }
}
