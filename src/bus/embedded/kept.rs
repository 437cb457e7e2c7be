//! Completions that can be read back: the newest ones, each once by its id.
//!
//! | key in keyspace `queue` | value | lifetime |
//! |---|---|---|
//! | `o<place>` | JSON of the [`Message`] | the newest [`OUT_KEPT`] |
//! | `i<id>` | place of the message with this id | as the message |

use super::{OUT_KEPT, key};
use crate::domain::message::Message;
use crate::store::embedded::layout::{Space, end_of, number};
use crate::store::embedded::tx::{Durable, Fault, Tx, View};
use std::ops::ControlFlow;

fn index(id: &str) -> Vec<u8> {
    let mut key = vec![b'i'];
    key.extend_from_slice(id.as_bytes());
    key
}

fn decode(bytes: &[u8]) -> Result<Message, Fault> {
    serde_json::from_slice(bytes).map_err(|e| Fault::Record(e.to_string()))
}

/// Keeps a message at `place`, and lets go of the one that is too old for it. False: one with this
/// id is kept already. A relay that was killed before it could cross a message off sends it again.
pub(super) fn keep(tx: &mut Tx<'_>, place: u64, id: Option<&str>, message: Vec<u8>) -> Result<bool, Fault> {
    if let Some(id) = id {
        if tx.get(Space::Queue, &index(id))?.is_some() {
            return Ok(false);
        }
        tx.put(Space::Queue, index(id), place.to_be_bytes().to_vec());
    }
    tx.put(Space::Queue, key(b'o', place), message);
    let old = place.checked_sub(OUT_KEPT).map(|old| key(b'o', old));
    if let Some(old) = old
        && let Some(bytes) = tx.get(Space::Queue, &old)?
    {
        if let Some(id) = decode(&bytes)?.id {
            tx.remove(Space::Queue, index(&id));
        }
        tx.remove(Space::Queue, old);
    }
    Ok(true)
}

/// Kept messages after `after`, oldest first, with their places.
pub(super) fn read(state: &Durable, after: u64, limit: usize) -> Result<Vec<(u64, Message)>, Fault> {
    let mut found = Vec::new();
    state.walk(Space::Queue, &key(b'o', after.saturating_add(1)), &end_of(b"o"), &mut |key, value| {
        if found.len() >= limit {
            return Ok(ControlFlow::Break(()));
        }
        let (place, _) = number(&key[1..]).ok_or_else(|| Fault::Record("key of a completion".into()))?;
        found.push((place, decode(value)?));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}
