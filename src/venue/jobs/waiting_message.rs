//! Jobs that no worker has begun: their messages wait in the queue.

use crate::bus::WaitingMessage;
use crate::domain::ids::{EventId, JobId, Owner};
use crate::venue::Venue;

/// Messages of the owner that are searched.
const LOOKED_AT: usize = 1_000;

/// Returns why there is no such job: its message may wait in the queue.
pub async fn missing_reason(venue: &Venue, owner: &Owner, id: &JobId) -> String {
    match find(venue, owner, id).await {
        Some(WaitingMessage { agent, published, .. }) => format!(
            "no job `{id}` yet: its message to agent `{agent}` waits in the queue since {}, and a worker that takes it makes \
             the job",
            published.rfc3339()
        ),
        None => format!("no job `{id}`"),
    }
}

/// Finds the message that becomes this job; `None` also if the queue doesn't answer.
async fn find(venue: &Venue, owner: &Owner, id: &JobId) -> Option<WaitingMessage> {
    let waiting = venue.bus.waiting_messages(owner, LOOKED_AT).await.ok()?;
    waiting.into_iter().find(|message| {
        let event = message.id.as_ref().and_then(|id| EventId::new(id).ok());
        event.is_some_and(|event| JobId::derive(&venue.key, owner, &event) == *id)
    })
}
