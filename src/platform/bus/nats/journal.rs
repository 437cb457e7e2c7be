//! What `JetStream` keeps against a loss of the store: the newest record of each protected thing, and a journal of
//! acknowledged changes.

use super::super::{BusError, subject};
use super::{NatsBus, error_chain, streams};
use crate::domain::decode;
use crate::domain::journal::JournalBatch;
use crate::domain::protection::{ProtectedState, ProtectionRecord};
use crate::domain::time::Millis;
use crate::store::journaled::{Journal, JournalError, JournalPart};
use async_nats::HeaderMap;
use async_nats::header::NATS_MESSAGE_TTL;
use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use std::time::Duration;

/// Time to live of records that expire: of a job, a turn, an account, and of deletions, whose version the store knows
/// for twice as long. A store that was set back further was restored from a copy on purpose.
const RECORD_TTL: &str = "12h";

/// Longest wait for the next message of a stream that has one.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

impl NatsBus {
    /// Returns the bodies of the messages that a stream has now under a pattern of subjects, oldest first; an empty pattern
    /// is all.
    async fn read_stream(
        &self,
        name: String,
        deliver_policy: DeliverPolicy,
        filter_subject: String,
    ) -> Result<Vec<Bytes>, BusError> {
        let mut stream = self.stream(name).await?;
        let state = stream.info().await.map_err(|error| self.unavailable(&error))?.state.clone();
        if state.messages == 0 {
            return Ok(Vec::new());
        }
        let config = pull::OrderedConfig { deliver_policy, filter_subject, ..pull::OrderedConfig::default() };
        let consumer = stream.create_consumer(config).await.map_err(|error| self.unavailable(&error))?;
        if consumer.cached_info().num_pending == 0 {
            return Ok(Vec::new());
        }
        let mut messages = consumer.messages().await.map_err(|error| self.unavailable(&error))?;
        let mut bodies = Vec::new();
        loop {
            let next = tokio::time::timeout(READ_TIMEOUT, messages.next()).await;
            let next = next.map_err(|error| self.unavailable(&error))?;
            let Some(message) = next else { return Ok(bodies) };
            let message = message.map_err(|error| self.unavailable(&error))?;
            let pending = message.info().map_err(|error| self.unavailable_reason(error.to_string()))?.pending;
            bodies.push(message.payload.clone());
            if pending == 0 {
                return Ok(bodies);
            }
        }
    }

    async fn read_records(&self, filter: String) -> Result<Vec<ProtectionRecord>, JournalError> {
        let bodies = self.read_stream(streams::protection_name(self.prefix()), DeliverPolicy::All, filter).await?;
        // A record that can't be decoded is of a newer build, which applies it.
        Ok(bodies.iter().filter_map(|body| decode::read_stored(body).ok()).collect())
    }

    /// Returns when the oldest batch was stored, if older ones have left the stream.
    async fn begin_of_journal(&self) -> Result<Option<Millis>, BusError> {
        let mut stream = self.stream(streams::journal_name(self.prefix())).await?;
        let state = stream.info().await.map_err(|error| self.unavailable(&error))?.state.clone();
        let millis = state.first_timestamp.unix_timestamp_nanos() / 1_000_000;
        Ok((state.first_sequence > 1).then(|| Millis(u64::try_from(millis).unwrap_or_default())))
    }
}

#[async_trait]
impl Journal for NatsBus {
    async fn protect(&self, record: &ProtectionRecord) -> Result<(), JournalError> {
        let body = serde_json::to_vec(record).map_err(|error| self.refused_error(error.to_string()))?;
        let mut headers = HeaderMap::new();
        if record.what.expires() {
            headers.insert(NATS_MESSAGE_TTL, RECORD_TTL);
        }
        let subject = subject::protection(self.prefix(), &record.owner, &record.what.name());
        Ok(self.publish_stored(subject, headers, body.into(), false).await?)
    }

    async fn protections(&self) -> Result<Vec<ProtectionRecord>, JournalError> {
        self.read_records(String::new()).await
    }

    async fn document_records(&self, key: &str) -> Result<Vec<ProtectionRecord>, JournalError> {
        self.read_records(subject::protections_named(self.prefix(), &ProtectedState::document_name(key))).await
    }

    async fn newest_record(&self, of: &ProtectionRecord) -> Result<Option<ProtectionRecord>, JournalError> {
        let stream = self.stream(streams::protection_name(self.prefix())).await?;
        let subject = subject::protection(self.prefix(), &of.owner, &of.what.name());
        Ok(self.last_body(&stream, &subject).await?.and_then(|body| decode::read_stored(&body).ok()))
    }

    async fn append(&self, batch: &JournalBatch) -> Result<(), JournalError> {
        let body = serde_json::to_vec(batch).map_err(|error| self.refused_error(error.to_string()))?;
        Ok(self.publish_stored(subject::journal(self.prefix()), HeaderMap::new(), body.into(), false).await?)
    }

    async fn batches_since(&self, at: Millis) -> Result<JournalPart, JournalError> {
        let start_time = async_nats::datetime::from_nanos(i128::from(at.0) * 1_000_000);
        let start_time = start_time.map_err(|error| self.refused_error(error_chain(&*error)))?;
        let begins = self.begin_of_journal().await?;
        let policy = DeliverPolicy::ByStartTime { start_time };
        let bodies = self.read_stream(streams::journal_name(self.prefix()), policy, String::new()).await?;
        Ok(JournalPart { batches: bodies.iter().filter_map(|body| decode::read_stored(body).ok()).collect(), begins })
    }
}
