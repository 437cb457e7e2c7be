//! Messages that clients have sent to a task, as they were: a job keeps only what the agent reads of them.
//!
//! A message is stored after it was accepted. If the process dies in between, the history of the task lacks it, and the
//! first message of a task is made of the job's input.

use crate::domain::ids::{JobId, Owner, sha256_hex};
use crate::domain::job::JobHead;
use crate::domain::time::Millis;
use crate::store::{DocWrite, StoreError, keys};
use crate::venue::Venue;
use crate::view::a2a::{A2aMessage, A2aPart, A2aRole};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Digits of a message's name: two messages of one millisecond differ.
const NAME_DIGITS: usize = 16;

/// Messages of one task that are read.
const MESSAGES: usize = 500;

/// A message of a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskMessage {
    /// Time at which it was sent.
    pub at: Millis,
    /// Last turn of the session before it.
    pub turn: u64,
    /// The message; files in it are references to assets.
    pub message: A2aMessage,
}

/// Stores a message of a task. That there is no room for it is no error: it was accepted.
pub async fn store(venue: &Venue, owner: &Owner, job: &JobId, sent: &TaskMessage) -> Result<(), StoreError> {
    let text = serde_json::to_vec(&sent.message).expect("messages serialise");
    let key = keys::job_message(job, sent.at, &sha256_hex(&text)[..NAME_DIGITS]);
    match venue.write_within_quota(owner, &[DocWrite::json(key, sent)]).await {
        Err(StoreError::Over(over)) => {
            tracing::debug!(%owner, %job, %over, "a message is missing in the history of its task");
            Ok(())
        }
        written => written.map(|_| ()),
    }
}

/// Returns the messages that clients have sent to a task, the first one first.
pub async fn list(venue: &Venue, owner: &Owner, head: &JobHead) -> Result<Vec<TaskMessage>, StoreError> {
    let mut found: Vec<TaskMessage> = Vec::new();
    let mut pages = venue.store.docs(owner, keys::job_messages(&head.id));
    while let Some(page) = pages.records::<TaskMessage>().await? {
        found.extend(page.into_iter().map(|(_, sent)| sent));
        if found.len() >= MESSAGES {
            break;
        }
    }
    if found.is_empty() {
        found.push(TaskMessage { at: head.created, turn: 0, message: first_message(head) });
    }
    Ok(found)
}

/// Returns the message that a job without stored messages began with.
fn first_message(head: &JobHead) -> A2aMessage {
    let part = match &head.input {
        Value::String(text) => A2aPart::of_text(text.as_str()),
        value => A2aPart::of_data(value.clone()),
    };
    A2aMessage {
        message_id: head.event.to_string(),
        context_id: Some(head.session.to_string()),
        task_id: Some(head.id.to_string()),
        role: A2aRole::User,
        parts: vec![part],
        metadata: None,
        extensions: None,
        reference_task_ids: None,
    }
}
