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
const QUEUE: usize = 1024;
/// Commits published in one batch.
const BATCH: usize = 128;
/// Batches published at the same time: a slow one delays no other, and messages of different commits may overtake each
/// other.
const LANES: usize = 16;

/// Messages of one commit, and whose they are.
struct Outbound {
    owner: Owner,
    session: SessionKey,
    told: Told,
}

/// Messages and outbox entries of a commit.
#[derive(Default)]
pub(super) struct Told {
    /// Messages that the turn decided.
    pub(super) messages: Vec<Outgoing>,
    /// Other entries that the commit wrote to the outbox.
    pub(super) entries: Vec<OutboxEntry>,
}

/// Sending end of the queue of published commits.
#[derive(Debug)]
pub(super) struct Relay(Sender<Outbound>);

impl Told {
    /// Returns the entries of these messages that the store keeps in the outbox.
    pub(super) fn stored(&self, venue: &Venue) -> Vec<OutboxEntry> {
        venue.lasting(&self.messages, &self.entries)
    }
}

/// Receiving end of the queue; [`run`] empties it.
pub(super) struct Pending(Receiver<Outbound>);

impl Relay {
    pub(super) fn new() -> (Self, Pending) {
        let (sender, receiver) = channel(QUEUE);
        (Self(sender), Pending(receiver))
    }

    /// Queues the messages of a commit for publication.
    pub(super) async fn leave(&self, owner: &Owner, session: &SessionKey, told: Told) {
        if told.messages.is_empty() && told.entries.is_empty() {
            return;
        }
        let outbound = Outbound { owner: owner.clone(), session: session.clone(), told };
        if self.0.send(outbound).await.is_err() {
            tracing::debug!("the relay has ended; the sweep publishes what is left");
        }
    }
}

/// Publishes until the process ends and the queue is empty.
pub(super) async fn run(worker: Arc<Worker>, mut pending: Pending) {
    let end = worker.shutdown.ending().clone();
    let mut batch = Vec::with_capacity(BATCH);
    let mut lanes = FuturesUnordered::new();
    loop {
        let taken = tokio::select! {
            biased;
            Some(()) = lanes.next() => continue,
            taken = pending.0.recv_many(&mut batch, BATCH), if lanes.len() < LANES => taken,
            () = end.cancelled(), if lanes.len() < LANES => 0,
        };
        if taken == 0 {
            break;
        }
        lanes.push(publish(&worker.venue, std::mem::take(&mut batch)));
    }
    while lanes.next().await.is_some() {}
}

async fn publish(venue: &Venue, batch: Vec<Outbound>) {
    let enter = |stage: Stage, session: &SessionKey| {
        tracing::debug!(target: stage::TARGET, session = %format_args!("{session}#outbox"), stage = stage.as_str());
    };
    let mut sessions = Vec::with_capacity(batch.len());
    let mut by_owner: BTreeMap<Owner, Told> = BTreeMap::new();
    for Outbound { owner, session, told } in batch {
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
