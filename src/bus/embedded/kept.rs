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
        // The index entry of one that is damaged stays: the others must be kept all the same.
        if let Some(id) = decode(&bytes).ok().and_then(|old| old.id) {
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
        match decode(value) {
            Ok(message) => found.push((place, message)),
            Err(error) => tracing::error!(place, %error, "a kept completion can't be read; it is left out"),
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{OUT_KEPT, keep, key, read};
    use crate::bus::{Address, Message};
    use crate::store::embedded::EmbeddedStore;
    use crate::store::embedded::layout::Space;
    use crate::store::embedded::tx::View;
    use serde_json::json;

    #[tokio::test]
    async fn one_that_is_damaged_holds_up_no_other_and_goes_in_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(dir.path()).unwrap();
        let to = Address::Out { owner: "acme/ann".parse().unwrap(), agent: "a".parse().unwrap(), job: "t:1".into() };
        let message = serde_json::to_vec(&Message { to, id: Some("m".into()), body: json!({}) }).unwrap();
        store
            .call(move |tx| {
                tx.put(Space::Queue, key(b'o', 1), b"damaged".to_vec());
                assert!(keep(tx, 2, Some("m"), message.clone())?);
                assert!(!keep(tx, 3, Some("m"), message.clone())?, "it is kept already");
                Ok(())
            })
            .await
            .unwrap();
        let places = async || {
            let found = store.query(|state| read(state, 0, 9)).await.unwrap();
            found.into_iter().map(|(place, _)| place).collect::<Vec<_>>()
        };
        assert_eq!(places().await, [2]);
        let third = serde_json::to_vec(&json!({})).unwrap();
        assert!(store.call(move |tx| keep(tx, 1 + OUT_KEPT, None, third)).await.unwrap());
        assert_eq!(places().await, [2], "the third is no message");
        let raw = store.query(|state| state.get(Space::Queue, &key(b'o', 1)));
        assert!(raw.await.unwrap().is_none());
    }
}
