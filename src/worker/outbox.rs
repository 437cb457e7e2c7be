//! Stage 8, beside the turns: publishes the messages of commits and removes them from the outboxes in batches, so that
//! no slot waits for it. The sweep publishes what is lost here.

use super::spans;
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
    let (mut lanes, mut announcing) = (FuturesUnordered::new(), FuturesUnordered::new());
    let mut announcements = Announcements::default();
    loop {
        let taken = tokio::select! {
            biased;
            Some(owners) = lanes.next() => {
                announcing.extend(announcements.begin(owners).into_iter().map(|owner| announce(&worker.venue, owner)));
                continue;
            }
            Some(owner) = announcing.next() => {
                announcing.extend(announcements.finish(owner).map(|owner| announce(&worker.venue, owner)));
                continue;
            }
            taken = pending.receive_batch(&mut batch, BATCH_COMMITS), if lanes.len() < BATCHES_AT_ONCE => taken,
            () = end.cancelled(), if lanes.len() < BATCHES_AT_ONCE => 0,
        };
        if taken == 0 {
            break;
        }
        lanes.push(publish(&worker.venue, std::mem::take(&mut batch)));
    }
    while let Some(owners) = lanes.next().await {
        announcing.extend(announcements.begin(owners).into_iter().map(|owner| announce(&worker.venue, owner)));
    }
    while let Some(owner) = announcing.next().await {
        announcing.extend(announcements.finish(owner).map(|owner| announce(&worker.venue, owner)));
    }
}

/// Owners whose notifications are being sent, and whether more were decided meanwhile. They are sent beside the batches,
/// and of one owner once at a time: one with many notifications and webhooks delays no completion of others.
#[derive(Debug, Default)]
struct Announcements(BTreeMap<Owner, bool>);

impl Announcements {
    /// Returns those of these owners whose notifications nobody sends yet.
    fn begin(&mut self, owners: Vec<Owner>) -> Vec<Owner> {
        let claim = |owner: &Owner| match self.0.get_mut(owner) {
            Some(has_more) => {
                *has_more = true;
                false
            }
            None => self.0.insert(owner.clone(), false).is_none(),
        };
        owners.into_iter().filter(claim).collect()
    }

    /// Notes that an owner's notifications were sent; returns the owner if more were decided meanwhile.
    fn finish(&mut self, owner: Owner) -> Option<Owner> {
        let has_more = self.0.remove(&owner)?;
        if has_more { self.begin(vec![owner]).pop() } else { None }
    }
}

/// Sends due notifications of an owner.
async fn announce(venue: &Venue, owner: Owner) -> Owner {
    notifications::send_soon(venue, &owner).await;
    owner
}

/// Publishes the messages of commits; returns the owners that have notifications to send.
async fn publish(venue: &Venue, batch: Vec<CommitOutbound>) -> Vec<Owner> {
    let enter = |stage: Stage, session: &SessionKey| {
        tracing::debug!(target: stage::TARGET, session = %format_args!("{session}#outbox"), stage = stage.as_str());
    };
    let (mut sessions, span) = (Vec::with_capacity(batch.len()), venue.tracer.start());
    let mut traced = Vec::new();
    let mut by_owner: BTreeMap<Owner, CommitMessages> = BTreeMap::new();
    for CommitOutbound { owner, session, told } in batch {
        enter(Stage::Outbox, &session);
        sessions.push(session);
        let sent_by = told.messages.first().and_then(|out| out.message.trace);
        traced.extend(sent_by.map(|sent_by| (sent_by, told.messages.len())));
        let all = by_owner.entry(owner).or_default();
        all.messages.extend(told.messages);
        all.entries.extend(told.entries);
        all.has_notifications |= told.has_notifications;
    }
    let publishing = by_owner.into_iter().map(async |(owner, told)| {
        venue.send(&owner, told.messages).await;
        venue.relay(&owner, &told.entries).await;
        told.has_notifications.then_some(owner)
    });
    let announced = join_all(publishing).await.into_iter().flatten().collect();
    for (sent_by, messages) in traced {
        spans::end_relay(&venue.tracer, span, sent_by, messages);
    }
    for session in &sessions {
        enter(Stage::Idle, session);
    }
    announced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifications_of_one_owner_are_sent_once_at_a_time() {
        let owner = |text: &str| -> Owner { text.parse().unwrap() };
        let mut announcements = Announcements::default();
        let (one, other) = (owner("t/u"), owner("t/v"));
        assert_eq!(announcements.begin(vec![one.clone(), other.clone()]), [one.clone(), other.clone()]);
        assert!(announcements.begin(vec![one.clone()]).is_empty(), "they are being sent");
        assert_eq!(announcements.finish(one.clone()), Some(one.clone()), "more were decided meanwhile");
        assert_eq!(announcements.finish(one.clone()), None);
        assert_eq!(announcements.finish(other), None);
        assert_eq!(announcements.begin(vec![one.clone()]), [one], "nothing is left behind");
    }
}
