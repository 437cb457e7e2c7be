//! Jobs that nobody has begun with: their message waits in the queue.

use crate::bus::WaitingMessage;
use crate::domain::ids::{EventId, JobId, Owner};
use crate::venue::Venue;

/// Messages of the owner that are looked at.
const LOOKED_AT: usize = 1_000;

/// Says why there is no such job: its message may wait in the queue.
pub async fn missing(venue: &Venue, owner: &Owner, id: &JobId) -> String {
    match find(venue, owner, id).await {
        Some(WaitingMessage { agent, published, .. }) => format!(
            "no job `{id}` yet: its message to agent `{agent}` waits in the queue since {}, and a worker that takes it makes \
             the job",
            published.rfc3339()
        ),
        None => format!("no job `{id}`"),
    }
}

/// The message that becomes this job; `None` also where the queue can't be asked.
async fn find(venue: &Venue, owner: &Owner, id: &JobId) -> Option<WaitingMessage> {
    let waiting = venue.bus.waiting(owner, LOOKED_AT).await.ok()?;
    waiting.into_iter().find(|message| {
        let event = message.id.as_ref().and_then(|id| EventId::new(id).ok());
        event.is_some_and(|event| JobId::derive(&venue.key, owner, &event) == *id)
    })
}
