//! One connection with the streams that are used over it.

use super::connect::{AwaySince, connect};
use super::inbound::InboundStream;
use super::options::{NatsOptions, TIMEOUT};
use super::{BusOpenError, streams};
use crate::bus::rights::Rights;
use crate::process::retry::{AttemptFailure, retry};
use async_nats::Client;
use async_nats::connection::State;
use async_nats::jetstream::Context;
use async_nats::jetstream::context::ContextBuilder;
use parking_lot::RwLock;
use std::sync::Arc;
use tokio::sync::watch;

/// One connection, whose streams were created or checked.
pub(super) struct NatsLine {
    pub(super) client: Client,
    pub(super) context: Context,
    inbound: RwLock<Arc<[InboundStream]>>,
    /// What the server refuses this user.
    pub(super) rights: Arc<Rights>,
    /// Grows with every loss of the connection, which ends pending requests for messages.
    pub(super) link: watch::Receiver<u64>,
    /// Time of the loss of the connection.
    pub(super) away_since: AwaySince,
}

impl NatsLine {
    /// Connects, with retries as the policy says, and creates the streams and the consumer.
    pub(super) async fn open(options: &NatsOptions, name: &str) -> Result<Self, BusOpenError> {
        let (link_sender, link) = watch::channel(0);
        let rights = Arc::new(Rights::new(&options.prefix));
        let away_since = AwaySince::default();
        let client = connect(options, name, link_sender, &rights, &away_since).await?;
        if !client.is_server_compatible(2, 12, 0) {
            return Err(BusOpenError::Version { bus: name.to_owned(), version: client.server_info().version });
        }
        let context = ContextBuilder::new().timeout(TIMEOUT).ack_timeout(TIMEOUT).build(client.clone());
        let inbound = {
            let (client, context, link, rights) = (&client, &context, &link, &rights);
            // A server that dies after the connection was made is waited for like one that isn't there yet: it never
            // answers what was sent to it.
            let ask = || async move {
                let mut lost = unchanged_receiver(link);
                let made = tokio::select! {
                    made = async {
                        if options.reads_only {
                            streams::find_inbound(context, name, options).await
                        } else {
                            streams::ensure(context, name, options).await
                        }
                    } => made,
                    _ = lost.changed() => {
                        let reason = "the connection was lost while the streams were made".to_owned();
                        return Err(AttemptFailure::Transient(BusOpenError::Connect { bus: name.to_owned(), reason }));
                    }
                };
                made.map_err(|error| match (client.connection_state(), &error) {
                    (State::Connected, BusOpenError::NotYet { stream, is_silent: true, .. })
                        if let Some(reason) = rights.refusal_for(stream) =>
                    {
                        let (bus, stream) = (name.to_owned(), stream.clone());
                        AttemptFailure::Permanent(BusOpenError::Setup { bus, stream, reason })
                    }
                    // A cluster that starts, or lacks servers, is waited for as well.
                    (State::Connected, BusOpenError::NotYet { .. }) | (State::Pending | State::Disconnected, _) => {
                        AttemptFailure::Transient(error)
                    }
                    (State::Connected, _) => AttemptFailure::Permanent(error),
                })
            };
            retry(options.connect, &format!("NATS at `{name}`"), ask).await?
        };
        Ok(Self { client, context, inbound: RwLock::new(inbound.into()), rights, link, away_since })
    }

    /// Whether the driver's task has ended, so that the line is of no more use.
    pub(crate) fn is_gone(&self) -> bool {
        self.link.has_changed().is_err()
    }

    /// Returns the streams of messages to agents; the one that isn't spread comes first.
    pub(super) fn inbound(&self) -> Arc<[InboundStream]> {
        Arc::clone(&self.inbound.read())
    }

    /// Replaces the streams after they were checked again.
    pub(super) fn set_inbound(&self, inbound: Vec<InboundStream>) {
        *self.inbound.write() = inbound.into();
    }

    /// Returns a receiver of connection losses from now on.
    pub(super) fn fresh_link(&self) -> watch::Receiver<u64> {
        unchanged_receiver(&self.link)
    }
}

fn unchanged_receiver(link: &watch::Receiver<u64>) -> watch::Receiver<u64> {
    let mut link = link.clone();
    link.mark_unchanged();
    link
}
