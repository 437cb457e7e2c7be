//! A message as it is stored in the queue.

use crate::bus::InboundKind;
use crate::domain::ids::{AgentId, Owner};
use crate::domain::time::Millis;
use crate::domain::trace::TraceParent;
use crate::store::embedded::view::StoreFault;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A queued message without its body.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct QueuedHead {
    pub(super) owner: Owner,
    pub(super) agent: AgentId,
    pub(super) kind: InboundKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    pub(super) published: Millis,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) trace: Option<TraceParent>,
}

/// A queued message. In storage: the head as one line of JSON, a line feed, the body.
#[derive(Debug, Clone)]
pub(super) struct QueuedMessage {
    pub(super) head: QueuedHead,
    pub(super) body: Bytes,
}

impl QueuedMessage {
    pub(super) fn encode(&self) -> Result<Vec<u8>, StoreFault> {
        let mut out = serde_json::to_vec(&self.head).map_err(|e| StoreFault::Record(e.to_string()))?;
        out.push(b'\n');
        out.extend_from_slice(&self.body);
        Ok(out)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, StoreFault> {
        let bad = |why: String| StoreFault::Record(format!("queued message: {why}"));
        let end = bytes.iter().position(|b| *b == b'\n').ok_or_else(|| bad("it has no head".into()))?;
        let head = serde_json::from_slice(&bytes[..end]).map_err(|e| bad(e.to_string()))?;
        Ok(Self { head, body: Bytes::copy_from_slice(&bytes[end + 1..]) })
    }
}

#[cfg(test)]
mod tests {
    use crate::bus::embedded::{EmbeddedBus, key};
    use crate::bus::{Bus, BusMessage, InboundKind, MessageAddress, WhenEmpty};
    use crate::process::clock::Clock;
    use crate::store::embedded::EmbeddedStore;
    use crate::store::embedded::layout::Space;
    use serde_json::json;
    use std::time::Duration;

    async fn publish(bus: &EmbeddedBus, id: &str) {
        let to = MessageAddress::In {
            owner: "acme/ann".parse().unwrap(),
            agent: "a".parse().unwrap(),
            kind: InboundKind::Task,
        };
        bus.publish(&BusMessage { to, id: Some(id.into()), body: json!({}), trace: None }).await.unwrap();
    }

    #[tokio::test]
    async fn a_damaged_message_does_not_block_others() {
        let dir = tempfile::tempdir().unwrap();
        let open = || {
            let store = EmbeddedStore::open(dir.path()).unwrap();
            let bus = EmbeddedBus::new(store.clone(), Duration::from_hours(1), Clock::system()).unwrap();
            (store, bus)
        };
        let (store, bus) = open();
        for id in ["e1", "e2", "e3", "e4"] {
            publish(&bus, id).await;
        }
        for (sequence, damaged) in [(1, &b"no head"[..]), (3, b"{\"owner\":7}\n{}")] {
            let change = move |tx: &mut crate::store::embedded::tx::Tx<'_>| {
                tx.put(Space::Queue, key(sequence), damaged.to_vec());
                Ok(())
            };
            store.call(change).await.unwrap();
        }
        let got = async |bus: &EmbeddedBus| {
            let got = bus.receive(8, WhenEmpty::Wait).await.unwrap();
            got.into_iter().map(|delivery| delivery.id.unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(got(&bus).await, ["e2", "e4"]);
        publish(&bus, "e5").await;
        assert_eq!(got(&bus).await, ["e5"]);
        drop((bus, store));
        let (store, bus) = open();
        assert_eq!(got(&bus).await, ["e2", "e4", "e5"], "it is kept, and still in nobody's way");
        drop((bus, store));
    }
}
