//! Live text of jobs, from the stream that keeps it for some minutes; and questions about jobs.

use super::super::{
    AUTHORIZATION_HEADER, BusError, DirectSubmission, JobQuestion, LiveFeed, LivePiece, LiveSubject, subject,
};
use super::{NatsBus, streams};
use crate::domain::ids::JobId;
use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_nats::jetstream::stream::LastRawMessageErrorKind;
use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use std::collections::HashSet;
use tokio_util::sync::CancellationToken;

/// Queue group whose members share the questions and the direct submissions.
pub(super) const QUEUE_GROUP: &str = "trellis";

#[async_trait]
impl LiveFeed for NatsBus {
    async fn follow(&self, job: &JobId, after: Option<u64>) -> Result<BoxStream<'static, LivePiece>, BusError> {
        let stream = self.stream(streams::live_name(self.prefix())).await?;
        // The stream is in memory: after a restart of the server its sequence numbers begin again.
        let last = stream.cached_info().state.last_sequence;
        let deliver_policy = match after {
            Some(after) if after <= last => DeliverPolicy::ByStartSequence { start_sequence: after + 1 },
            Some(_) | None => DeliverPolicy::All,
        };
        let filter_subject = subject::live_subject(self.prefix(), &LiveSubject::Job(job.clone()));
        let config = pull::OrderedConfig { filter_subject, deliver_policy, ..pull::OrderedConfig::default() };
        let consumer = stream.create_consumer(config).await.map_err(|error| self.unavailable(&error))?;
        let messages = consumer.messages().await.map_err(|error| self.unavailable(&error))?;
        let piece = |message: Result<async_nats::jetstream::Message, _>| async move {
            let message = message.ok()?;
            let sequence = message.info().ok()?.stream_sequence;
            Some(LivePiece { sequence, body: message.payload.clone() })
        };
        Ok(messages.filter_map(piece).boxed())
    }

    async fn last_piece(&self, job: &JobId) -> Result<Option<u64>, BusError> {
        let stream = self.stream(streams::live_name(self.prefix())).await?;
        let subject = subject::live_subject(self.prefix(), &LiveSubject::Job(job.clone()));
        match stream.get_last_raw_message_by_subject(&subject).await {
            Ok(message) => Ok(Some(message.sequence)),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(self.unavailable(&error)),
        }
    }

    async fn forget(&self, jobs: &[JobId]) -> Result<(), BusError> {
        let stream = self.stream(streams::live_name(self.prefix())).await?;
        let of_job = |job: &JobId| subject::live_subject(self.prefix(), &LiveSubject::Job(job.clone()));
        let pattern = if let [one] = jobs { of_job(one) } else { subject::all_live(self.prefix()) };
        let kept = stream.info_with_subjects(pattern).await.map_err(|error| self.unavailable(&error))?;
        // Most jobs ended long before the few minutes that are kept.
        let kept: HashSet<String> =
            kept.map_ok(|(subject, _)| subject).try_collect().await.map_err(|error| self.unavailable(&error))?;
        for subject in jobs.iter().map(of_job).filter(|subject| kept.contains(subject)) {
            stream.purge().filter(subject).await.map_err(|error| self.unavailable(&error))?;
        }
        Ok(())
    }

    async fn direct_submissions(
        &self,
        until: CancellationToken,
    ) -> Result<BoxStream<'static, DirectSubmission>, BusError> {
        self.listen_direct(until).await
    }

    async fn questions(&self) -> Result<BoxStream<'static, JobQuestion>, BusError> {
        let prefix = self.prefix().to_owned();
        let client = self.working_line().await?.client.clone();
        let subscribed = client.queue_subscribe(subject::all_questions(&prefix), QUEUE_GROUP.to_owned()).await;
        let question = move |message: async_nats::Message| {
            let owner = subject::parse_question(&prefix, &message.subject);
            let authorization = message.headers.as_ref().and_then(|headers| headers.get(AUTHORIZATION_HEADER));
            let authorization = authorization.map(|value| value.as_str().to_owned());
            let asked = owner.zip(message.reply).map(|(owner, reply)| JobQuestion {
                owner,
                authorization,
                body: message.payload,
                reply: reply.to_string(),
            });
            std::future::ready(asked)
        };
        Ok(subscribed.map_err(|error| self.unavailable(&error))?.filter_map(question).boxed())
    }
}
