//! What `JetStream` remembers of the store's changes: completions, and the epoch.

use super::super::{BusError, CompletedJob, MessageAddress, Witness, subject};
use super::{NatsBus, streams};
use crate::domain::decode;
use crate::domain::event::Completion;
use crate::domain::generation::GenerationMark;
use crate::domain::time::Millis;
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};
use async_trait::async_trait;
use futures::TryStreamExt;
use serde::Deserialize;
use std::time::Duration;

/// The time in an answer of `JetStream`.
#[derive(Deserialize)]
struct AnswerTime {
    ts: Option<String>,
}

impl NatsBus {
    pub(super) async fn stream(&self, name: String) -> Result<Stream, BusError> {
        self.working_line().await?.context.get_stream(name).await.map_err(|error| self.unavailable(&error))
    }

    /// Returns the body of the last message on a subject.
    pub(super) async fn last_body(&self, stream: &Stream, subject: &str) -> Result<Option<bytes::Bytes>, BusError> {
        match stream.get_last_raw_message_by_subject(subject).await {
            Ok(message) => Ok(Some(message.payload)),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(self.unavailable(&error)),
        }
    }

    fn completion_subject(&self, of: &CompletedJob) -> String {
        let CompletedJob { owner, agent, job } = of;
        let to = MessageAddress::Out { owner: owner.clone(), agent: agent.clone(), job: job.to_string() };
        subject::for_address(self.prefix(), &to)
    }
}

#[async_trait]
impl Witness for NatsBus {
    async fn mark(&self) -> Result<Option<GenerationMark>, BusError> {
        let name = streams::epoch_name(self.prefix());
        let stream = match self.working_line().await?.context.get_stream(name).await {
            Ok(stream) => stream,
            // The next mark creates it again.
            Err(error) if streams::is_missing(&error) => return Ok(None),
            Err(error) => return Err(self.unavailable(&error)),
        };
        let body = self.last_body(&stream, &subject::epoch(self.prefix())).await?;
        // A mark that can't be decoded counts as none: the next one replaces it.
        Ok(body.and_then(|body| decode::read_stored(&body).ok()))
    }

    async fn write_mark(&self, mark: &GenerationMark) -> Result<(), BusError> {
        let body = serde_json::to_vec(mark).map_err(|error| self.refused_error(error.to_string()))?;
        let headers = async_nats::HeaderMap::new();
        self.publish_stored(subject::epoch(self.prefix()), headers, body.into(), false).await
    }

    async fn completed_jobs(&self) -> Result<Vec<CompletedJob>, BusError> {
        let line = self.working_line().await?;
        let stream = match line.context.get_stream(streams::outbound_name(self.prefix())).await {
            // A process that only reads creates no stream where no worker ever was.
            Err(error) if self.options.reads_only && streams::is_missing(&error) => return Ok(Vec::new()),
            stream => stream.map_err(|error| self.unavailable(&error))?,
        };
        let subjects = stream.info_with_subjects(subject::all_outbound(self.prefix())).await;
        let subjects = subjects.map_err(|error| self.unavailable(&error))?;
        let subjects: Vec<_> = subjects.try_collect().await.map_err(|error| self.unavailable(&error))?;
        let parse = |(subject, _): (String, usize)| subject::parse_outbound(self.prefix(), &subject);
        Ok(subjects.into_iter().filter_map(parse).collect())
    }

    async fn completion(&self, of: &CompletedJob) -> Result<Option<Completion>, BusError> {
        let stream = self.stream(streams::outbound_name(self.prefix())).await?;
        let body = self.last_body(&stream, &self.completion_subject(of)).await?;
        Ok(body.and_then(|body| decode::read_stored(&body).ok()))
    }

    async fn time(&self) -> Result<Option<Millis>, BusError> {
        let subject = format!("STREAM.INFO.{}", streams::epoch_name(self.prefix()));
        let told: Result<AnswerTime, _> = self.working_line().await?.context.request(subject, &()).await;
        Ok(told.map_err(|error| self.unavailable(&error))?.ts.as_deref().and_then(Millis::parse))
    }

    async fn forget(&self, of: &CompletedJob, age: Duration) -> Result<(), BusError> {
        // The completion was published a little later than the job ended.
        if age > self.options.out_max_age * 2 {
            return Ok(());
        }
        let stream = self.stream(streams::outbound_name(self.prefix())).await?;
        let purged = stream.purge().filter(self.completion_subject(of)).await;
        purged.map(drop).map_err(|error| self.unavailable(&error))
    }
}
