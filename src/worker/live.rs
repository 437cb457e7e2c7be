//! What watchers of a job are told while it is served: the text as it is written, and what is done.
//!
//! Each piece is one JSON object: `{"text": …}`, or `{"progress": {"turn": 3, "calls": ["lattice_read"]}}`
//! when the tools of a turn are called. What is lost is lost: the job's record has the result.

use super::Worker;
use crate::bus::LiveSubject;
use crate::domain::ids::JobId;
use bytes::Bytes;
use serde_json::{Value, json};

/// The model has written this.
pub(super) async fn text(worker: &Worker, job: &JobId, text: &str) {
    send(worker, job, &json!({"text": text})).await;
}

/// The tools of a turn are called.
pub(super) async fn calls(worker: &Worker, job: Option<&JobId>, turn: u64, tools: &[&str]) {
    if let Some(job) = job {
        send(worker, job, &json!({"progress": {"turn": turn, "calls": tools}})).await;
    }
}

async fn send(worker: &Worker, job: &JobId, piece: &Value) {
    let sent = worker.venue.bus.signal(&LiveSubject::Job(job.clone()), Bytes::from(piece.to_string())).await;
    if let Err(error) = sent {
        tracing::debug!(%error, "live text not sent");
    }
}
