//! Submissions over core NATS, whose senders wait for the answer.

use super::super::{AUTHORIZATION_HEADER, BusError, DirectSubmission, ID_HEADER, subject};
use super::NatsBus;
use super::live::QUEUE_GROUP;
use super::options::TIMEOUT;
use super::receive::trace_parent;
use async_nats::Subscriber;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use tokio_util::sync::CancellationToken;

/// A subscription, and whether it still gets new messages.
struct DirectSubscription {
    messages: Subscriber,
    until: CancellationToken,
    is_drained: bool,
}

impl DirectSubscription {
    /// Returns the next message. From `until` on no new one comes; those that the server has sent already still do.
    async fn take_next(mut self) -> Option<(async_nats::Message, Self)> {
        while !self.is_drained {
            let until = self.until.clone();
            tokio::select! {
                biased;
                () = until.cancelled() => {
                    self.is_drained = true;
                    // Without a connection nothing comes either way.
                    let _ = self.messages.drain().await;
                }
                message = self.messages.next() => return message.map(|message| (message, self)),
            }
        }
        // Without a connection the driver doesn't end the subscription.
        let message = tokio::time::timeout(TIMEOUT, self.messages.next()).await.ok().flatten()?;
        Some((message, self))
    }
}

fn decode_submission(prefix: &str, message: async_nats::Message) -> Option<DirectSubmission> {
    let header = |name: &str| {
        let value = message.headers.as_ref().and_then(|headers| headers.get(name));
        value.map(|value| value.as_str().to_owned())
    };
    let (id, authorization) = (header(ID_HEADER), header(AUTHORIZATION_HEADER));
    let trace = message.headers.as_ref().and_then(trace_parent);
    let to = subject::parse_direct(prefix, &message.subject);
    // Of one without a reply subject nobody would know that it was taken.
    let reply = message.reply?.to_string();
    Some(DirectSubmission { to, id, authorization, trace, body: message.payload, reply, bytes: message.length })
}

impl NatsBus {
    /// Listens to direct submissions as [`super::LiveFeed::direct_submissions`] says.
    pub(super) async fn listen_direct(
        &self,
        until: CancellationToken,
    ) -> Result<BoxStream<'static, DirectSubmission>, BusError> {
        let prefix = self.prefix().to_owned();
        let client = self.working_line().await?.client.clone();
        let subscribed = client.queue_subscribe(subject::all_direct(&prefix), QUEUE_GROUP.to_owned()).await;
        let messages = subscribed.map_err(|error| self.unavailable(&error))?;
        let subscription = DirectSubscription { messages, until, is_drained: false };
        let messages = stream::unfold(subscription, |subscription| subscription.take_next().boxed());
        let submission = move |message| std::future::ready(decode_submission(&prefix, message));
        Ok(messages.filter_map(submission).boxed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn the_size_of_a_submission_counts_its_headers() {
        let message = async_nats::Message {
            subject: "trellis.do.t.u.a.task".into(),
            reply: Some("_INBOX.x".into()),
            payload: Bytes::from_static(b"{}"),
            headers: None,
            status: None,
            description: None,
            length: 900_000,
        };
        let submission = decode_submission("trellis", message).unwrap();
        assert_eq!((submission.bytes, submission.body.len()), (900_000, 2));
    }
}
