//! Stage 8, beside the turns: publishes the messages of commits and removes them from the outboxes in batches, so that
//! no slot waits for it. The sweep publishes what is lost here.

use super::Worker;
use super::stage::{self, Stage};
use crate::domain::ids::{Owner, SessionKey};
use crate::outbox::Outgoing;
use crate::store::OutboxEntry;
use crate::venue::Venue;
use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Commits whose messages may wait; a full queue makes the next commit wait.
const QUEUED_COMMITS_MAX: usize = 1024;
/// Commits published in one batch.
const BATCH_COMMITS: usize = 128;
/// Batches published at the same time: a slow one delays no other, and messages of different commits may overtake each
/// other.
const BATCHES_AT_ONCE: usize = 16;

/// Messages of one commit, and whose they are.
struct CommitOutbound {
    owner: Owner,
    session: SessionKey,
    told: CommitMessages,
}

/// Messages and outbox entries of a commit.
#[derive(Default)]
pub(super) struct CommitMessages {
    /// Messages that the turn decided.
    pub(super) messages: Vec<Outgoing>,
    /// Other entries that the commit wrote to the outbox.
    pub(super) entries: Vec<OutboxEntry>,
}

/// Sending end of the queue of published commits.
#[derive(Debug)]
pub(super) struct Relay(Sender<CommitOutbound>);

impl CommitMessages {
    /// Returns the entries of these messages that the store keeps in the outbox.
    pub(super) fn outbox_entries(&self, venue: &Venue) -> Vec<OutboxEntry> {
        venue.lasting_entries(&self.messages, &self.entries)
    }
}

/// Receiving end of the queue; [`run`] empties it.
pub(super) struct OutboundQueue(Receiver<CommitOutbound>);

impl Relay {
    pub(super) fn new() -> (Self, OutboundQueue) {
        let (sender, receiver) = channel(QUEUED_COMMITS_MAX);
        (Self(sender), OutboundQueue(receiver))
    }

    /// Queues the messages of a commit for publication.
    pub(super) async fn enqueue(&self, owner: &Owner, session: &SessionKey, told: CommitMessages) {
        if told.messages.is_empty() && told.entries.is_empty() {
            return;
        }
        let outbound = CommitOutbound { owner: owner.clone(), session: session.clone(), told };
        if self.0.send(outbound).await.is_err() {
            tracing::debug!("the relay has ended; the sweep publishes what is left");
        }
    }
}

/// Publishes until the process ends and the queue is empty.
pub(super) async fn run(worker: Arc<Worker>, mut pending: OutboundQueue) {
    let end = worker.shutdown.end_token().clone();
    let mut batch = Vec::with_capacity(BATCH_COMMITS);
    let mut lanes = FuturesUnordered::new();
    loop {
        let taken = tokio::select! {
            biased;
            Some(()) = lanes.next() => continue,
            taken = pending.0.recv_many(&mut batch, BATCH_COMMITS), if lanes.len() < BATCHES_AT_ONCE => taken,
            () = end.cancelled(), if lanes.len() < BATCHES_AT_ONCE => 0,
        };
        if taken == 0 {
            break;
        }
        lanes.push(publish(&worker.venue, std::mem::take(&mut batch)));
    }
    while lanes.next().await.is_some() {}
}

async fn publish(venue: &Venue, batch: Vec<CommitOutbound>) {
    let enter = |stage: Stage, session: &SessionKey| {
        tracing::debug!(target: stage::TARGET, session = %format_args!("{session}#outbox"), stage = stage.as_str());
    };
    let mut sessions = Vec::with_capacity(batch.len());
    let mut by_owner: BTreeMap<Owner, CommitMessages> = BTreeMap::new();
    for CommitOutbound { owner, session, told } in batch {
        enter(Stage::Outbox, &session);
        sessions.push(session);
        let all = by_owner.entry(owner).or_default();
        all.messages.extend(told.messages);
        all.entries.extend(told.entries);
    }
    let publishing = by_owner.into_iter().map(async |(owner, told)| {
        venue.send(&owner, told.messages).await;
        venue.relay(&owner, &told.entries).await;
    });
    join_all(publishing).await;
    for session in &sessions {
        enter(Stage::Idle, session);
    }
}
