//! Live text for watchers of a job: the reply as the model writes it, and the tools that are called.
//!
//! Each piece is one JSON object: `{"text": …}`, or `{"progress": {"turn": 3, "calls": ["lattice_read"]}}`
//! when the tools of a turn are called. A lost piece is not sent again: the job's record has the result.

use super::state::Worker;
use crate::bus::LiveSubject;
use crate::domain::ids::JobId;
use crate::view::job::{LiveTextView, TurnProgressView};
use crate::view::to_json;
use bytes::Bytes;
use serde_json::{Value, json};

/// Sends a piece of the model's text.
pub(super) async fn text(worker: &Worker, job: &JobId, text: &str) {
    send(worker, job, &to_json(&LiveTextView { text: text.to_owned() })).await;
}

/// Sends the names of the tools that a turn calls.
pub(super) async fn calls(worker: &Worker, job: Option<&JobId>, turn: u64, tools: &[&str]) {
    if let Some(job) = job {
        let progress = TurnProgressView { turn, calls: tools.iter().map(|tool| (*tool).to_owned()).collect() };
        send(worker, job, &json!({"progress": progress})).await;
    }
}

async fn send(worker: &Worker, job: &JobId, piece: &Value) {
    let sent = worker.venue.bus.signal(&LiveSubject::Job(job.clone()), Bytes::from(piece.to_string())).await;
    if let Err(error) = sent {
        tracing::debug!(%error, "live text not sent");
    }
}
