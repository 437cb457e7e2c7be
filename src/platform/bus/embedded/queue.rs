//! The state of the queue: which messages are ready, delivered or put off, and how many bytes they take.

use super::queued_message::QueuedMessage;
use crate::bus::RECEIVE_BYTES;
use crate::domain::ids::{AgentId, Owner};
use bytes::Bytes;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

/// Messages of the queue, by sequence.
pub(super) struct MessageQueue {
    entries: HashMap<u64, QueueEntry>,
    ready: BTreeSet<u64>,
    /// Delivered and put-off messages, by the steady time at which they are ready again.
    pub(super) delayed: BTreeSet<(Duration, u64)>,
    /// Owner, agent and body of ready wakes: one of each is enough.
    wakes: HashSet<(Owner, AgentId, Bytes)>,
    last: u64,
    /// Bytes of stored messages and of those that are being stored.
    bytes: u64,
    max_bytes: u64,
}

#[derive(Default)]
struct QueueEntry {
    /// Bytes in the store; a wake takes none.
    bytes: u64,
    delivered: u64,
    again: Option<Duration>,
    /// A wake's own content; other messages are read from the store.
    wake: Option<QueuedMessage>,
}

/// The queue has no room for a message.
#[derive(Debug, thiserror::Error)]
#[error(
    "it has {bytes} bytes, of the queue's `bus.max_bytes` = {max_bytes} are {used} taken; it waits in the outbox until workers have taken others, or raise the limit"
)]
pub(super) struct QueueFull {
    bytes: u64,
    used: u64,
    max_bytes: u64,
}

impl MessageQueue {
    /// Returns an empty queue with room for `max_bytes` of messages.
    pub(super) fn with_limit(max_bytes: u64) -> Self {
        Self {
            entries: HashMap::new(),
            ready: BTreeSet::new(),
            delayed: BTreeSet::new(),
            wakes: HashSet::new(),
            last: 0,
            bytes: 0,
            max_bytes,
        }
    }

    /// Adds a message that was stored before this start.
    pub(super) fn load(&mut self, sequence: u64, bytes: u64) {
        self.last = self.last.max(sequence);
        self.bytes += bytes;
        self.add(sequence, bytes);
    }

    /// Reserves room for a message that will be stored, and returns its sequence. It is [added](Self::add) then, or its
    /// room [given back](Self::give_back).
    pub(super) fn reserve(&mut self, bytes: u64) -> Result<u64, QueueFull> {
        let used = self.bytes;
        if used.saturating_add(bytes) > self.max_bytes {
            return Err(QueueFull { bytes, used, max_bytes: self.max_bytes });
        }
        self.bytes += bytes;
        Ok(self.next())
    }

    pub(super) fn release(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Adds a stored message whose room is reserved.
    pub(super) fn add(&mut self, sequence: u64, bytes: u64) {
        self.insert(sequence, QueueEntry { bytes, ..QueueEntry::default() });
    }

    /// Adds a wake, unless an equal one is ready.
    pub(super) fn add_wake(&mut self, wake: QueuedMessage) {
        if self.wakes.insert(wake_key(&wake)) {
            let sequence = self.next();
            self.insert(sequence, QueueEntry { wake: Some(wake), ..QueueEntry::default() });
        }
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn insert(&mut self, sequence: u64, entry: QueueEntry) {
        self.entries.insert(sequence, entry);
        self.ready.insert(sequence);
    }

    /// Puts off a message if `delivered` is its latest delivery: earlier ones may not move the time of the next.
    pub(super) fn delay(&mut self, sequence: u64, delivered: u64, until: Duration) {
        if self.entries.get(&sequence).is_some_and(|entry| entry.delivered == delivered) {
            self.set_ready_at(sequence, Some(until));
        }
    }

    /// Puts a message off, or makes it ready if `again` is `None`.
    fn set_ready_at(&mut self, sequence: u64, again: Option<Duration>) {
        let Some(entry) = self.entries.get_mut(&sequence) else { return };
        if let Some(before) = entry.again.take() {
            self.delayed.remove(&(before, sequence));
        }
        entry.again = again;
        match again {
            Some(again) => {
                self.ready.remove(&sequence);
                self.delayed.insert((again, sequence));
            }
            None => {
                self.ready.insert(sequence);
            }
        }
    }

    pub(super) fn remove(&mut self, sequence: u64) {
        if let Some(entry) = self.entries.remove(&sequence) {
            self.release(entry.bytes);
            if let Some(again) = entry.again {
                self.delayed.remove(&(again, sequence));
            }
        }
        self.ready.remove(&sequence);
    }

    /// Takes up to `max` ready messages in order; they are ready again after `ack_wait`. Returns sequence, number of
    /// the delivery, and a wake's content.
    pub(super) fn take(
        &mut self,
        now: Duration,
        max: usize,
        ack_wait: Duration,
    ) -> Vec<(u64, u64, Option<QueuedMessage>)> {
        while let Some((at, sequence)) = self.delayed.first().copied().filter(|(at, _)| *at <= now) {
            self.delayed.remove(&(at, sequence));
            self.set_ready_at(sequence, None);
        }
        let (mut chosen, mut bytes) = (Vec::new(), 0);
        for sequence in self.ready.iter().take(max) {
            bytes += self.entries.get(sequence).map_or(0, |entry| entry.bytes);
            if bytes > RECEIVE_BYTES as u64 && !chosen.is_empty() {
                break;
            }
            chosen.push(*sequence);
        }
        let mut taken = Vec::with_capacity(chosen.len());
        for sequence in chosen {
            self.set_ready_at(sequence, Some(now + ack_wait));
            let Some(entry) = self.entries.get_mut(&sequence) else { continue };
            entry.delivered += 1;
            if let Some(wake) = &entry.wake {
                self.wakes.remove(&wake_key(wake));
            }
            taken.push((sequence, entry.delivered, entry.wake.clone()));
        }
        taken
    }

    /// Returns the size in words, and what to do if the queue is nearly full.
    pub(super) fn size(&self) -> (String, Option<String>) {
        if self.max_bytes == u64::MAX {
            return (format!("{} bytes", self.bytes), None);
        }
        let problem = (self.bytes > self.max_bytes / 10 * 9)
            .then(|| "nearly full, then messages to agents wait in the outbox; raise `bus.max_bytes`".to_owned());
        (format!("{} of {} bytes", self.bytes, self.max_bytes), problem)
    }
}

fn wake_key(wake: &QueuedMessage) -> (Owner, AgentId, Bytes) {
    (wake.head.owner.clone(), wake.head.agent.clone(), wake.body.clone())
}

#[cfg(test)]
mod tests {
    use super::MessageQueue;
    use crate::bus::embedded::EmbeddedBus;
    use crate::bus::{Bus, BusError, BusMessage, InboundKind, MessageAddress, WhenEmpty};
    use crate::process::clock::Clock;
    use crate::store::embedded::EmbeddedStore;
    use serde_json::json;
    use std::time::Duration;

    #[test]
    fn a_refused_message_uses_no_room_and_a_settled_one_frees_it() {
        let mut queue = MessageQueue::with_limit(100);
        queue.load(7, 40);
        assert_eq!(queue.reserve(60).unwrap(), 8);
        assert!(queue.reserve(1).unwrap_err().to_string().contains("`bus.max_bytes` = 100 are 100 taken"));
        queue.release(60);
        assert_eq!(queue.reserve(50).unwrap(), 9);
        queue.add(9, 50);
        assert!(queue.reserve(11).is_err());
        assert!(queue.size().1.is_none(), "{:?}", queue.size());
        queue.remove(7);
        queue.remove(7);
        assert_eq!(queue.size().0, "50 of 100 bytes");
        assert!(queue.reserve(u64::MAX).is_err());
    }

    #[tokio::test]
    async fn a_full_queue_refuses_messages_but_takes_wakes() {
        let dir = tempfile::tempdir().unwrap();
        let open = || {
            let store = EmbeddedStore::open(dir.path()).unwrap();
            EmbeddedBus::with_limit(store, Duration::from_hours(1), Clock::system(), 1000).unwrap()
        };
        let message = |kind, id: &str| BusMessage {
            to: MessageAddress::In { owner: "acme/ann".parse().unwrap(), agent: "a".parse().unwrap(), kind },
            id: Some(id.into()),
            body: json!({ "session": "x".repeat(300) }),
            trace: None,
        };
        let mut bus = open();
        for id in ["e1", "e2"] {
            bus.publish(&message(InboundKind::Task, id)).await.unwrap();
        }
        for restart in [false, true] {
            if restart {
                drop(bus);
                bus = open();
            }
            let refused = bus.publish(&message(InboundKind::Task, "e3")).await.unwrap_err();
            assert!(matches!(refused, BusError::Refused { .. }), "{refused}");
            bus.publish(&message(InboundKind::Wake, "w")).await.unwrap();
        }
        let taken = bus.receive(3, WhenEmpty::Wait).await.unwrap();
        assert_eq!(taken.len(), 3);
        for delivery in taken {
            delivery.settle.ack().await;
        }
        bus.publish(&message(InboundKind::Task, "e3")).await.unwrap();
    }
}
