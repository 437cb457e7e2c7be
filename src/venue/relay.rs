//! Publication of messages and outbox entries.

use crate::domain::ids::Owner;
use crate::store::OutboxEntry;
use crate::venue::outbox::{self, Outgoing, PublishTarget, RelayReport, Unsendable};
use crate::venue::{Venue, external, strays};
use std::sync::Arc;

impl Venue {
    /// Returns the entries that the outbox holds until they are published: those of `messages` that are kept, and
    /// `more`.
    pub fn lasting_entries(&self, messages: &[Outgoing], more: &[OutboxEntry]) -> Vec<OutboxEntry> {
        let mut entries = outbox::durable_entries(&*self.bus, messages);
        entries.extend_from_slice(more);
        entries
    }

    fn outlet(&self) -> PublishTarget<'_> {
        PublishTarget { store: &*self.store, bus: &*self.bus, metrics: &self.metrics, key: self.key.as_slice() }
    }

    /// Publishes outbox entries and deletes them; what fails is left to the sweep, with a log line.
    pub async fn relay(&self, owner: &Owner, entries: &[OutboxEntry]) {
        if !entries.is_empty() {
            let relayed = outbox::relay(self.outlet(), owner, entries).await;
            self.finish_relay(owner, relayed).await;
        }
    }

    /// Publishes messages, of which the [lasting](Self::lasting_entries) ones are in the outbox, and deletes their entries.
    pub async fn send(&self, owner: &Owner, messages: Vec<Outgoing>) {
        if !messages.is_empty() {
            let relayed = outbox::send(self.outlet(), owner, messages).await;
            self.finish_relay(owner, relayed).await;
        }
    }

    async fn finish_relay(&self, owner: &Owner, relayed: RelayReport) {
        let done = self.update_external_jobs(owner, relayed).await;
        outbox::remove_published(&*self.store, owner, &done).await;
    }

    /// Publishes like [`Venue::relay`], but deletes the entries in a task of its own, for callers that can't wait for
    /// it.
    pub async fn relay_at_once(&self, owner: &Owner, entries: &[OutboxEntry]) {
        let relayed = outbox::relay(self.outlet(), owner, entries).await;
        let (done, store, owner) =
            (self.update_external_jobs(owner, relayed).await, Arc::clone(&self.store), owner.clone());
        tokio::spawn(async move { outbox::remove_published(&*store, &owner, &done).await });
    }

    /// Handles the results of publishing, and returns the ids of the entries to delete.
    async fn update_external_jobs(&self, owner: &Owner, relayed: RelayReport) -> Vec<String> {
        if let Err(error) = relayed.outcome {
            tracing::warn!(%owner, %error, "outbox not published yet; the sweep will do it");
        }
        for job in &relayed.jobs {
            // Boxed, because the end of a job sends messages of its own.
            if let Err(error) = Box::pin(external::note_publication(self, owner, job)).await {
                tracing::warn!(%owner, job = %job.job, %error, "job of an external worker not brought up to date; the sweep will do it");
            }
        }
        let mut done = relayed.done;
        for Unsendable { entry, message, error } in relayed.unsendable {
            match strays::keep_unsendable(self, owner, &message, &error.to_string()).await {
                Ok(()) => done.push(entry),
                Err(error) => tracing::warn!(%owner, %error, "a message that fits the queue never isn't kept yet"),
            }
        }
        done
    }
}
