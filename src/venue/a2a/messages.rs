//! Messages that clients have sent to a task, as they were: a job keeps only what the agent reads of them.
//!
//! A message is stored after it was accepted. If the process dies in between, the history of the task lacks it until it
//! comes again, and the first message of a task is made of the job's input. An answer is stored before it is given: when
//! it comes again, it is known as the answer to this question and not to the next one.

use crate::domain::ids::{JobId, Owner, sha256_hex};
use crate::domain::job::JobHead;
use crate::domain::limits::LIST_BYTES;
use crate::domain::time::Millis;
use crate::store::{DocKey, DocWrite, StoreError, decode, decode_listed, keys, steps};
use crate::venue::Venue;
use crate::view::a2a::{A2aMessage, A2aPart, A2aRole};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Digits of a message's name: two messages of one millisecond differ.
const NAME_DIGITS: usize = 16;

/// Messages of one task that are read at most, within [`LIST_BYTES`]: each may have the size of a submission.
const MESSAGES: usize = 500;

/// A message of a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskMessage {
    /// Time at which it was sent.
    pub at: Millis,
    /// Last turn of the session before it.
    pub turn: u64,
    /// Whether the task was made of it.
    #[serde(default)]
    pub begins: bool,
    /// Approval that it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<JobId>,
    /// The message; files in it are references to assets.
    pub message: A2aMessage,
}

/// Stores a message of a task. That there is no room for it is no error: it was accepted.
pub async fn store(venue: &Venue, owner: &Owner, job: &JobId, sent: &TaskMessage) -> Result<(), StoreError> {
    match venue.write_within_quota(owner, &[DocWrite::json(key_of(job, sent), sent)]).await {
        Err(StoreError::Over(over)) => {
            tracing::debug!(%owner, %job, %over, "a message is missing in the history of its task");
            Ok(())
        }
        written => written.map(|_| ()),
    }
}

/// Removes a message of a task that was refused after it was stored.
pub async fn remove(venue: &Venue, owner: &Owner, job: &JobId, sent: &TaskMessage) -> Result<(), StoreError> {
    venue.store.write(venue.now(), owner, &[DocWrite::delete(key_of(job, sent))]).await.map(drop)
}

fn key_of(job: &JobId, sent: &TaskMessage) -> DocKey {
    let text = serde_json::to_vec(&sent.message).expect("messages serialise");
    keys::job_message(job, sent.at, &sha256_hex(&text)[..NAME_DIGITS])
}

/// Returns the last messages that clients have sent to a task, at most `most`, in the order in which they were sent.
pub async fn list_last(
    venue: &Venue,
    owner: &Owner,
    head: &JobHead,
    most: usize,
) -> Result<Vec<TaskMessage>, StoreError> {
    let prefix = keys::job_messages(&head.id);
    let range = steps::KeyRange::descending(&prefix);
    let page = steps::scan(&*venue.store, owner, range, most.min(MESSAGES), LIST_BYTES).await?;
    let mut found = Vec::with_capacity(page.docs.len().max(1));
    for (key, doc) in page.docs.into_iter().rev() {
        found.extend(decode_listed::<TaskMessage>(owner, &key, &doc.value.unwrap_or_default()));
    }
    if found.is_empty() {
        let message = first_message(head);
        found.push(TaskMessage { at: head.created, turn: 0, begins: true, answers: None, message });
    }
    Ok(found)
}

/// Returns the stored message that a task began with; `None` if the process died before it was stored.
pub async fn find_first(venue: &Venue, owner: &Owner, job: &JobId) -> Result<Option<TaskMessage>, StoreError> {
    let found = venue.store.scan(owner, &keys::job_messages(job), None, false, 1).await?;
    let found = found.into_iter().next();
    found.map(|(key, doc)| decode::<TaskMessage>(&key, &doc.value.unwrap_or_default())).transpose()
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
