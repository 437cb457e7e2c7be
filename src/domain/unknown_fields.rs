//! Unknown keys of stored records: a newer build wrote them, and they are written back unchanged.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// Keys of a record that this build doesn't know. It is the last field of every record that is read, changed and
/// written again, with `#[serde(flatten)]`. It keeps the keys at the top of the record: an inner record that only
/// counts or remembers (progress of a task, open goals) drops unknown keys, so new keys are put at the top.
///
/// Records that limit what may be done (policies, authority, configurations of agents, secrets, submissions) have none:
/// they refuse unknown keys, because a limit that is ignored is lost. So do inner records that limit (the request that
/// a session serves, the readers of a summary, calls and jobs that are waited for).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct UnknownFields(Option<Box<Map<String, Value>>>);

impl UnknownFields {
    /// Reads the unknown keys of a record with a flattened enum, whose tag serde passes to both: `known` keys are left
    /// out.
    pub fn except<'de, D: Deserializer<'de>>(known: &[&str], from: D) -> Result<Self, D::Error> {
        let mut keys = Map::deserialize(from)?;
        keys.retain(|key, _| !known.contains(&key.as_str()));
        Ok(Self((!keys.is_empty()).then(|| Box::new(keys))))
    }
}

impl<'de> Deserialize<'de> for UnknownFields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::except(&[], from)
    }
}
