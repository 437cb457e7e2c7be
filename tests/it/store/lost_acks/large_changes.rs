//! What is too large for a message of the queue: refused before it is written, or in force again without its content.

use super::store_changes::{job, open, owner, prepare, session};
use crate::support::nats::{self, options};
use crate::support::redis::RedisServer;
use async_trait::async_trait;
use bytes::Bytes;
use serde_json::json;
use std::sync::Arc;
use trellis::domain::job::{JobResult, JobStatus};
use trellis::domain::journal::JournalBatch;
use trellis::domain::protection::ProtectionRecord;
use trellis::domain::quota::Quota;
use trellis::domain::time::Millis;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::journaled::{Journal, JournalError, JournalPart, JournaledStore};
use trellis::store::redis::{RedisStore, ServerOrInjected};
use trellis::store::{DocWrite, DocumentStore, FinishOutcome, JobFinish, OutboxEntry, Store, WriteOutcome, keys};

fn large(key: &str) -> DocWrite {
    DocWrite::put(key.to_owned(), format!("\"{}\"", "x".repeat(1_100_000)))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_oversized_protective_change_is_refused() {
    let (Some(mut server), Some(url)) = (RedisServer::start(), nats::shared()) else { return };
    let (options_of_store, bus) = (server.options(ServerOrInjected::Server), options(&url));
    // Written by a build that knew no bounds.
    let before = RedisStore::open(options_of_store.clone()).await.unwrap();
    before.write(Millis(0), &owner(), &[large("g/old"), large(keys::POLICY)]).await.unwrap();
    drop(before);
    let first = open(&options_of_store, &bus, "").await;
    let store = &*first.journaled as &dyn Store;
    prepare(store).await;
    first.journaled.flush().await.unwrap();
    let log = server.log_file();

    let beside = DocWrite::put("w/beside", "1");
    for key in ["g/new", "s/KEY", keys::POLICY_COPY] {
        let writes = [beside.clone(), large(key)];
        for refused in [
            store.write(Millis(0), &owner(), &writes).await,
            store.write_within(Millis(0), &owner(), &writes, &Quota::default()).await,
        ] {
            let error = refused.unwrap_err();
            assert!(!error.is_transient() && error.to_string().contains(key), "{error}");
        }
        for key in [key, "w/beside"] {
            assert_eq!(store.doc(&owner(), key).await.unwrap().value, None, "{key}");
        }
    }
    // What is as large already is made another, with what stops it.
    let gate = DocWrite::put(keys::agent_gate(&"old".parse().unwrap()), "SUSPENDED 8 1000000 queue");
    assert_eq!(store.write(Millis(0), &owner(), &[large("g/old"), gate.clone()]).await.unwrap(), WriteOutcome::Done);

    let result = JobResult {
        status: JobStatus::Complete,
        output: Some("x".repeat(800_000).into()),
        error: None,
        error_code: None,
        truncated: false,
    };
    let finish = JobFinish { job: job(1), status: JobStatus::Complete, result: json!(result).to_string().into() };
    let told = OutboxEntry { id: "0f".repeat(16), message: Bytes::from(json!({"output": result.output}).to_string()) };
    let finished = store.finish(Millis(0), &owner(), &session("cancelled"), &finish, None, &[told]).await.unwrap();
    assert_eq!(finished, FinishOutcome::Done);
    first.journaled.flush().await.unwrap();
    drop(first);
    server.lose_tail(log);

    let second = open(&options_of_store, &bus, "").await;
    let read = async |key: String| second.venue.venue.store.doc(&owner(), &key).await.unwrap();
    assert_eq!(read(gate.key).await.value.unwrap(), Bytes::from_static(b"SUSPENDED 8 1000000 queue"));
    assert_eq!(read(keys::job_status(&job(1))).await.status().unwrap().0, JobStatus::Complete, "it isn't run again");
    let result: JobResult = read(keys::job_result(&job(1))).await.decode("result").unwrap().unwrap();
    let error = result.error.unwrap();
    assert!(result.output.is_none() && error.contains("lost") && error.contains("isn't run again"), "{error}");
}

/// A queue that is away.
struct Away;

fn away<T>() -> Result<T, JournalError> {
    Err(JournalError("no server answers".to_owned()))
}

#[async_trait]
impl Journal for Away {
    async fn protect(&self, _: &ProtectionRecord) -> Result<(), JournalError> {
        away()
    }

    async fn protections(&self) -> Result<Vec<ProtectionRecord>, JournalError> {
        away()
    }

    async fn document_records(&self, _: &str) -> Result<Vec<ProtectionRecord>, JournalError> {
        away()
    }

    async fn newest_record(&self, _: &ProtectionRecord) -> Result<Option<ProtectionRecord>, JournalError> {
        away()
    }

    async fn append(&self, _: &JournalBatch) -> Result<(), JournalError> {
        away()
    }

    async fn batches_since(&self, _: Millis) -> Result<JournalPart, JournalError> {
        away()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_not_yet_in_the_queue_is_reported_as_uncertain() {
    let dir = tempfile::tempdir().unwrap();
    let embedded = EmbeddedStore::open(dir.path()).unwrap();
    let journaled = JournaledStore::new(embedded, Arc::new(Away), "test", b"key");
    let store = &journaled as &dyn Store;
    let gate = DocWrite::put(keys::agent_gate(&"a".parse().unwrap()), "SUSPENDED 8 1000000 queue");
    let error = store.write(Millis(0), &owner(), std::slice::from_ref(&gate)).await.unwrap_err();
    for part in ["is stored and may be in force already", "no server answers", "make it again"] {
        assert!(error.is_transient() && error.to_string().contains(part), "{part}: {error}");
    }
    assert!(store.doc(&owner(), &gate.key).await.unwrap().value.is_some());
}
