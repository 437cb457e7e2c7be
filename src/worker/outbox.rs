//! Stage 8, beside the turns: publishes the messages of commits and removes them from the outboxes in batches, so that
//! no slot waits for it. The sweep publishes what is lost here.

use super::stage::{self, Stage};
use super::state::Worker;
use super::state::relay::{CommitMessages, CommitOutbound, OutboundQueue};
use crate::domain::ids::{Owner, SessionKey};
use crate::venue::{Venue, notifications};
use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Commits published in one batch.
const BATCH_COMMITS: usize = 128;
/// Batches published at the same time: a slow one delays no other, and messages of different commits may overtake each
/// other.
const BATCHES_AT_ONCE: usize = 16;

/// Publishes until the process ends and the queue is empty.
pub(super) async fn run(worker: Arc<Worker>, mut pending: OutboundQueue) {
    let end = worker.shutdown.end_token().clone();
    let mut batch = Vec::with_capacity(BATCH_COMMITS);
    let mut lanes = FuturesUnordered::new();
    loop {
        let taken = tokio::select! {
            biased;
            Some(()) = lanes.next() => continue,
            taken = pending.receive_batch(&mut batch, BATCH_COMMITS), if lanes.len() < BATCHES_AT_ONCE => taken,
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
        all.has_notifications |= told.has_notifications;
    }
    let publishing = by_owner.into_iter().map(async |(owner, told)| {
        venue.send(&owner, told.messages).await;
        venue.relay(&owner, &told.entries).await;
        if told.has_notifications {
            notifications::send_soon(venue, &owner).await;
        }
    });
    join_all(publishing).await;
    for session in &sessions {
        enter(Stage::Idle, session);
    }
}
