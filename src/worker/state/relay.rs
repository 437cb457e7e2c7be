//! Queue of the messages that commits decided and that are not published yet.

use crate::domain::ids::{Owner, SessionKey};
use crate::store::OutboxEntry;
use crate::venue::Venue;
use crate::venue::outbox::Outgoing;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Commits whose messages may wait; a full queue makes the next commit wait.
const QUEUED_COMMITS_MAX: usize = 1024;

/// Messages of one commit, with the owner and the session of its turn.
pub(crate) struct CommitOutbound {
    pub(crate) owner: Owner,
    pub(crate) session: SessionKey,
    pub(crate) told: CommitMessages,
}

/// Messages and outbox entries of a commit.
#[derive(Default)]
pub(crate) struct CommitMessages {
    /// Messages that the turn decided.
    pub(crate) messages: Vec<Outgoing>,
    /// Other entries that the commit wrote to the outbox.
    pub(crate) entries: Vec<OutboxEntry>,
    /// Whether the commit has decided notifications.
    pub(crate) has_notifications: bool,
}

/// Sending end of the queue of commits whose messages are to be published.
#[derive(Debug)]
pub(crate) struct Relay(Sender<CommitOutbound>);

impl CommitMessages {
    /// Returns the entries of these messages that the store keeps in the outbox.
    pub(crate) fn outbox_entries(&self, venue: &Venue) -> Vec<OutboxEntry> {
        venue.lasting_entries(&self.messages, &self.entries)
    }
}

/// Receiving end of the queue.
pub(crate) struct OutboundQueue(Receiver<CommitOutbound>);

impl OutboundQueue {
    /// Waits for commits and appends at most `limit` of them to `batch`. Returns how many; zero when the queue has
    /// ended. Nothing is lost when the future is dropped.
    pub(crate) async fn receive_batch(&mut self, batch: &mut Vec<CommitOutbound>, limit: usize) -> usize {
        self.0.recv_many(batch, limit).await
    }
}

impl Relay {
    /// Makes the two ends of an empty queue.
    pub(crate) fn new() -> (Self, OutboundQueue) {
        let (sender, receiver) = channel(QUEUED_COMMITS_MAX);
        (Self(sender), OutboundQueue(receiver))
    }

    /// Returns the number of commits whose messages wait here.
    pub(crate) fn count_waiting(&self) -> usize {
        self.0.max_capacity().saturating_sub(self.0.capacity())
    }

    /// Queues the messages of a commit for publication.
    pub(crate) async fn enqueue(&self, owner: &Owner, session: &SessionKey, told: CommitMessages) {
        if told.messages.is_empty() && told.entries.is_empty() && !told.has_notifications {
            return;
        }
        let outbound = CommitOutbound { owner: owner.clone(), session: session.clone(), told };
        if self.0.send(outbound).await.is_err() {
            tracing::debug!("the relay has ended; the sweep publishes what is left");
        }
    }
}
