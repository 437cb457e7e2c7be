//! Decides notifications: each is a document of the write that changes what it tells of, so that neither is without the
//! other. [`crate::venue::notifications`] sends them.

use crate::domain::agent::AgentRecord;
use crate::domain::approval::Approval;
use crate::domain::cap::SESSION_CAP;
use crate::domain::dead::DeadLetter;
use crate::domain::ids::{AgentId, JobId, Owner, SessionKey};
use crate::domain::invocation::NO_AGENT;
use crate::domain::job::{ErrorCode, JobHead, JobResult};
use crate::domain::notification::{Notification, NotificationCause, NotificationKind};
use crate::domain::outcome::UnknownOutcome;
use crate::domain::time::Millis;
use crate::domain::visible::cut_error;
use crate::domain::webhook::{DELIVERY, NotificationsState};
use crate::store::{DocWrite, Edit, StoreError, keys};
use crate::venue::Venue;
use std::time::Duration;

/// Time after which a cap that never resets may be announced again.
const CAP_PAUSE: Duration = Duration::from_hours(24);

/// Returns the write that keeps a notification until it is sent.
pub fn pending_write(notification: &Notification) -> DocWrite {
    DocWrite::json(keys::notification_due(notification.at, &notification.id), notification)
}

/// Whether a write keeps a notification.
pub fn is_pending(write: &DocWrite) -> bool {
    write.key.starts_with(keys::NOTIFICATIONS_DUE)
}

fn make(venue: &Venue, owner: &Owner, kind: NotificationKind, name: &str, agent: AgentId, at: Millis) -> Notification {
    Notification::new(NotificationCause { venue_key: &venue.key, owner, kind, name }, agent, at)
}

/// Returns the agent that stands for operations without one.
fn no_agent() -> AgentId {
    AgentId::new(NO_AGENT).expect("a legal id")
}

/// Returns the write that tells of an approval.
pub fn approval_write(
    venue: &Venue,
    owner: &Owner,
    kind: NotificationKind,
    approval: &Approval,
    at: Millis,
) -> DocWrite {
    let made = make(venue, owner, kind, approval.id.as_str(), approval.session.agent.clone(), at);
    pending_write(&Notification {
        session: Some(approval.session.session.clone()),
        job: approval.job.clone(),
        approval: Some(approval.id.clone()),
        ..made
    })
}

/// Returns the write that tells of an unknown outcome.
pub fn outcome_write(venue: &Venue, owner: &Owner, outcome: &UnknownOutcome) -> DocWrite {
    let session = outcome.call.as_ref().map(|call| &call.session);
    let agent = session.map_or_else(no_agent, |session| session.agent.clone());
    // An entry of an older build has its id again after the session began anew.
    let name = format!("{} {}", outcome.id, outcome.at);
    let made = make(venue, owner, NotificationKind::OutcomeUnknown, &name, agent, outcome.at);
    pending_write(&Notification {
        session: session.map(|session| session.session.clone()),
        job: outcome.job.clone(),
        outcome: Some(outcome.id.clone()),
        operation: Some(outcome.operation.clone()),
        ..made
    })
}

/// Returns the write that tells of a dead task.
pub fn dead_task_write(venue: &Venue, owner: &Owner, letter: &DeadLetter) -> DocWrite {
    let made =
        make(venue, owner, NotificationKind::JobDead, letter.job.as_str(), letter.session.agent.clone(), letter.died);
    pending_write(&Notification {
        session: Some(letter.session.session.clone()),
        job: Some(letter.job.clone()),
        reason: Some(letter.error.clone()),
        ..made
    })
}

/// Returns the write that tells of a dead operation; `None` if this is no such end.
pub fn dead_operation_write(
    venue: &Venue,
    owner: &Owner,
    head: &JobHead,
    result: &JobResult,
    at: Millis,
) -> Option<DocWrite> {
    // A delivery that died is no cause for others.
    if result.error_code != Some(ErrorCode::Dead) || head.op.as_deref() == Some(DELIVERY) {
        return None;
    }
    let made = make(venue, owner, NotificationKind::JobDead, head.id.as_str(), no_agent(), at);
    Some(pending_write(&Notification {
        job: Some(head.id.clone()),
        operation: head.op.clone(),
        reason: result.error.clone(),
        ..made
    }))
}

/// Returns the write that tells of an agent which a write at this version of its record suspends.
pub fn suspension_write(venue: &Venue, owner: &Owner, suspended: &AgentRecord, version: u64) -> DocWrite {
    let name = format!("{} {} {version}", suspended.id, suspended.created);
    let (kind, agent) = (NotificationKind::AgentSuspended, suspended.id.clone());
    let made = make(venue, owner, kind, &name, agent, suspended.updated);
    pending_write(&Notification { reason: suspended.error.clone(), ..made })
}

/// A cap that leaves no room for the next call of a model.
#[derive(Debug, Clone, Copy)]
pub struct ReachedCap<'a> {
    /// Session whose turn needs the room.
    pub session: &'a SessionKey,
    /// Task that the turn serves.
    pub job: Option<&'a JobId>,
    /// Name of the cap with its limit, and when it resets.
    pub reason: &'a str,
    /// Time at which it resets; `None` if it never does.
    pub resets: Option<Millis>,
}

/// Decides the notification of a cap, unless it was decided since the cap was reset last. Returns whether it was
/// decided now. It comes before the turn waits or its task fails: after a crash in between, the turn meets the cap again.
pub async fn announce_cap(venue: &Venue, owner: &Owner, cap: ReachedCap<'_>) -> Result<bool, StoreError> {
    let now = venue.now();
    let ReachedCap { session, job, reason, resets } = cap;
    let title = cap_name(reason);
    let name = match resets {
        Some(resets) => format!("{resets} {title}"),
        None if title == SESSION_CAP => format!("{session} {title}"),
        // No day has room for the call.
        None => format!("{} {title}", venue.day().1),
    };
    let made = make(venue, owner, NotificationKind::CapReached, &name, session.agent.clone(), now);
    let notification = Notification {
        session: Some(session.session.clone()),
        job: job.cloned(),
        reason: Some(cut_error(reason.to_owned())),
        resets,
        ..made
    };
    let until = resets.unwrap_or_else(|| now.plus(CAP_PAUSE));
    let attempt = || async {
        let key = keys::NOTIFICATIONS_STATE;
        let (state, version) = venue.store.get_versioned::<NotificationsState>(owner, key).await?;
        let announced = state.unwrap_or_default().announce_cap(&notification.id, now, until);
        let Some(state) = announced else { return Ok(Edit::without_writes(false)) };
        let write = DocWrite::json(key, &state).at_version(version);
        Ok::<_, StoreError>(Edit::write([write, pending_write(&notification)], true))
    };
    venue.store.edit(now, owner, "state of the notifications", &session, attempt).await
}

/// Returns the part of the reason that tells one cap from others: what follows names amounts, which differ by call.
fn cap_name(reason: &str) -> &str {
    reason.split_once(" is reached").map_or(reason, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cap_is_known_by_its_name() {
        for (reason, expected) in [
            ("the cap of `acme/ann` is reached: 5 of 4 tokens; it resets at …", "the cap of `acme/ann`"),
            ("something else", "something else"),
        ] {
            assert_eq!(cap_name(reason), expected);
        }
    }
}
