//! `--nats`: publishes into the queue, like any NATS client.

use super::client::ServerArgs;
use super::exit::{Exit, Failure};
use super::wait::{WAIT_READ_PAUSES, WaitNotes};
use crate::bus::credentials::NatsFiles;
use crate::bus::rights::Rights;
use crate::bus::{self, AUTHORIZATION_HEADER, ID_HEADER, subject};
use crate::config::{BusConfig, mask_url};
use crate::domain::decode;
use crate::domain::event::Submission;
use crate::domain::ids::{AgentId, EventId, JobId, Owner, sha256_hex};
use crate::domain::message::BusMessage;
use crate::domain::message::{InboundKind, MessageAddress};
use crate::domain::wait::WaitReason;
use crate::view::job::WaitView;
use crate::view::queue::{DirectReceiptView, SubmissionStatusView};
use async_nats::jetstream::{self, context::PublishErrorKind};
use async_nats::{
    Client, ConnectError, ConnectErrorKind, Event, HeaderMap, Request, RequestErrorKind, ServerAddr, Subscriber,
};
use futures::StreamExt;
use serde_json::Value;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Owner of a submission without one.
const DEFAULT_OWNER: &str = "local/me";
/// Longest wait for the server's acknowledgement.
const ACKNOWLEDGEMENT_TIME: Duration = Duration::from_secs(5);
/// Longest wait for the answer of a process that admits a submission.
const DIRECT_TIME: Duration = Duration::from_secs(2);
/// Longest wait for a worker's answer to a question.
const QUESTION_TIME: Duration = Duration::from_secs(2);

/// Where to publish.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct QueueArgs {
    /// Publish straight into the queue at this NATS server instead of over HTTP
    #[arg(long, value_name = "URL", env = "TRELLIS_NATS")]
    pub nats: Option<String>,
}

/// Returns the owner of a submission, which is part of its subject.
pub(crate) fn owner(server: &ServerArgs) -> Owner {
    server.owner.clone().unwrap_or_else(|| DEFAULT_OWNER.parse().expect("a legal owner"))
}

/// Returns the subject for the completion of a submission. It depends only on the id, because the body of a repeated
/// submission must be the same.
pub(crate) fn inbox(owner: &Owner, id: &EventId) -> String {
    format!("{}.{}", inboxes(owner), &sha256_hex(format!("{}/{}", owner.token(), id.token()).as_bytes())[..32])
}

/// Returns the prefix of an owner's inboxes; servers with users don't allow `_INBOX.>`, which all clients share.
fn inboxes(owner: &Owner) -> String {
    format!("trellis.reply.{}.{}", owner.tenant().token(), owner.user().token())
}

/// A connection to NATS that publishes submissions.
pub(crate) struct Publisher {
    client: Client,
    context: jetstream::Context,
    server: String,
    prefix: String,
    authorization: Option<String>,
    rights: Arc<Rights>,
}

/// Makes the failure of a connection: a server that refuses a login runs.
fn connect_failure(server: &str, error: &ConnectError) -> Failure {
    let why = bus::error_chain(error);
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => Failure::new(
            Exit::Denied,
            format!(
                "NATS at `{server}` refused the login: {why}; name and password stand in `--nats \
                 nats://NAME:PASSWORD@HOST:PORT`, or set `bus.creds_file`"
            ),
        ),
        ConnectErrorKind::Dns
        | ConnectErrorKind::ServerParse
        | ConnectErrorKind::TimedOut
        | ConnectErrorKind::Tls
        | ConnectErrorKind::Io
        | ConnectErrorKind::MaxReconnects => {
            Failure::new(Exit::Unreachable, format!("no NATS at `{server}`: {why}; is `nats-server -js` running?"))
        }
    }
}

impl Publisher {
    /// Connects to `url` with the settings of `bus`; the token of `server` is sent with each message.
    pub async fn connect(url: &str, bus: BusConfig, server: &ServerArgs) -> Result<Self, Failure> {
        let authorization = server.authorization()?;
        let files = NatsFiles { tls: bus.tls, creds: bus.creds_file };
        files.check().map_err(|error| Failure::usage(error.to_string()))?;
        let masked = mask_url(url);
        let addresses: Vec<ServerAddr> =
            url.split(',').map(|one| one.trim().parse()).collect::<Result<_, std::io::Error>>().map_err(|e| {
                Failure::usage(format!("illegal NATS address `{masked}`: {e}, expected `nats://host:port`"))
            })?;
        let settings = files.settings(&addresses).custom_inbox_prefix(inboxes(&owner(server))).name("trellis cli");
        let rights = Arc::new(Rights::new(&bus.prefix));
        let heard = Arc::clone(&rights);
        let settings = settings.event_callback(move |event| {
            if let Event::ServerError(error) = event {
                heard.record_error(&error.to_string());
            }
            ready(())
        });
        let client = settings.connect(addresses).await.map_err(|error| connect_failure(&masked, &error))?;
        let mut context = jetstream::new(client.clone());
        context.set_timeout(ACKNOWLEDGEMENT_TIME);
        Ok(Self { client, context, server: masked, prefix: bus.prefix, authorization, rights })
    }

    /// Subscribes to a completion; nothing published after this call is missed.
    pub async fn listen(&self, subject: &str) -> Result<Subscriber, Failure> {
        let lost = |why: String| Failure::new(Exit::Unreachable, format!("NATS at `{}`: {why}", self.server));
        let subscriber = self.client.subscribe(subject.to_owned()).await.map_err(|e| lost(e.to_string()))?;
        self.client.flush().await.map_err(|e| lost(e.to_string()))?;
        Ok(subscriber)
    }

    /// Gives a submission to a process that admits it at once, or else to the stream, and returns when one of them has
    /// it. What a process refuses goes to the stream, too: its answer to a refusal is kept. Returns the job of a task that was
    /// admitted; of one that waits in the stream it isn't known yet.
    pub async fn submit(
        &self,
        owner: &Owner,
        agent: &AgentId,
        kind: InboundKind,
        id: &EventId,
        submission: &Submission,
    ) -> Result<Option<JobId>, Failure> {
        let body = serde_json::to_vec(submission).expect("submissions serialise").into();
        let request = Request::new().headers(self.headers(Some(id))).payload(body).timeout(Some(DIRECT_TIME));
        let subject = subject::direct(&self.prefix, owner, agent, kind);
        // Without an answer it may be admitted: the same id again is the same submission.
        if let Ok(answer) = self.client.send_request(subject, request).await
            && let Ok(receipt) = decode::lenient_json(&answer.payload).and_then(decode::into_type::<DirectReceiptView>)
        {
            return Ok(receipt.job);
        }
        self.publish(owner, agent, kind, id, submission).await.map(|()| None)
    }

    fn headers(&self, id: Option<&EventId>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(id) = id {
            headers.insert(ID_HEADER, id.as_str());
        }
        if let Some(value) = &self.authorization {
            headers.insert(AUTHORIZATION_HEADER, value.as_str());
        }
        headers
    }

    /// Publishes a submission and waits until the stream has stored it.
    async fn publish(
        &self,
        owner: &Owner,
        agent: &AgentId,
        kind: InboundKind,
        id: &EventId,
        submission: &Submission,
    ) -> Result<(), Failure> {
        let message = BusMessage {
            to: MessageAddress::In { owner: owner.clone(), agent: agent.clone(), kind },
            id: Some(id.to_string()),
            body: serde_json::to_value(submission).expect("submissions serialise"),
            trace: None,
        };
        let subject = subject::for_address(&self.prefix, &message.to);
        let headers = self.headers(Some(id));
        let body = message.body.to_string().into();
        let sent = self.context.publish_with_headers(subject.clone(), headers, body).await;
        let acked = match sent {
            Ok(ack) => ack.await.map(|_| ()),
            Err(error) => Err(error),
        };
        acked.map_err(|error| self.publish_failure(&subject, &error))
    }

    /// Asks the workers why the job of a submission waits; `None` if it doesn't, and if the question can't be sent. That
    /// no worker answers is a reason, too.
    pub async fn ask_reason(&self, owner: &Owner, id: &EventId) -> Option<WaitView> {
        let request =
            Request::new().headers(self.headers(None)).payload(id.to_string().into()).timeout(Some(QUESTION_TIME));
        match self.client.send_request(subject::question(&self.prefix, owner), request).await {
            Ok(message) => {
                let status = decode::lenient_json(&message.payload).and_then(decode::into_type::<SubmissionStatusView>);
                status.ok()?.waiting
            }
            Err(error) if error.kind() == RequestErrorKind::NoResponders => {
                let none = WaitReason::NoWorker { last: None };
                let reason = format!("no worker answers at NATS `{}`", self.server);
                Some(WaitView { reason, ..WaitView::from(&none) })
            }
            Err(error) if error.kind() == RequestErrorKind::TimedOut => {
                let seconds = QUESTION_TIME.as_secs();
                let silence = format!("no worker has answered within {seconds} s at NATS `{}`", self.server);
                let advice = "their store may be away, or they stand still: `trellis doctor` and their logs say more";
                let none = WaitView::from(&WaitReason::NoWorker { last: None });
                Some(WaitView { reason: self.rights.explain(silence), advice: Some(advice.to_owned()), ..none })
            }
            Err(_) => None,
        }
    }

    fn publish_failure(&self, subject: &str, error: &jetstream::context::PublishError) -> Failure {
        let server = &self.server;
        match error.kind() {
            PublishErrorKind::StreamNotFound => Failure::new(
                Exit::Unreachable,
                format!(
                    "NATS at `{server}` has no stream for `{subject}`: has a `trellis worker` been started on it, with `bus.prefix = \"{}\"`, and are most servers of its cluster up?",
                    self.prefix
                ),
            ),
            PublishErrorKind::MaxPayloadExceeded => {
                Failure::usage(format!("NATS at `{server}`: the submission exceeds its `max_payload`"))
            }
            _ => Failure::new(
                Exit::Unreachable,
                format!(
                    "NATS at `{server}` did not take it: {}; the same `--id` makes it safe to repeat",
                    self.rights.explain(bus::error_chain(error))
                ),
            ),
        }
    }
}

/// Waits up to `limit` for the completion of a submission, and notes why its job waits.
pub(crate) async fn completion(
    publisher: &Publisher,
    answers: &mut Subscriber,
    owner: &Owner,
    id: &EventId,
    limit: Option<Duration>,
) -> Result<Option<Value>, Failure> {
    let deadline = limit.map(|limit| Instant::now() + limit);
    let (mut reasons, mut look) = (WaitNotes::default(), WAIT_READ_PAUSES.0);
    loop {
        let left = deadline.map_or(look, |at| at.saturating_duration_since(Instant::now()).min(look));
        look = (look * 2).min(WAIT_READ_PAUSES.1);
        if let Some(record) = next_completion(answers, left).await? {
            return Ok(Some(record));
        }
        if deadline.is_some_and(|at| Instant::now() >= at) {
            return Ok(None);
        }
        reasons.show(publisher.ask_reason(owner, id).await.as_ref());
    }
}

/// Waits up to `limit` for a completion.
async fn next_completion(answers: &mut Subscriber, limit: Duration) -> Result<Option<Value>, Failure> {
    let Ok(message) = tokio::time::timeout(limit, answers.next()).await else { return Ok(None) };
    let Some(message) = message else {
        return Err(Failure::new(Exit::Unreachable, "the connection to NATS was closed while waiting"));
    };
    serde_json::from_slice(&message.payload)
        .map(Some)
        .map_err(|e| Failure::internal(format!("the completion is not JSON: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::event::is_reply_allowed;

    #[test]
    fn the_inbox_depends_on_the_submission_alone_and_is_allowed() {
        let (one, other): (Owner, Owner) = ("a/b".parse().unwrap(), "a/c".parse().unwrap());
        let id = EventId::new("x").unwrap();
        assert_eq!(inbox(&one, &id), inbox(&one, &id));
        assert_ne!(inbox(&one, &id), inbox(&other, &id));
        assert!(is_reply_allowed(&inbox(&one, &id), "a", "b"));
    }
}
