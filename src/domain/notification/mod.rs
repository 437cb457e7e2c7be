//! Notifications: each tells people of something that they may have to act on.
//!
//! ```text
//! an approval is asked, a job dies … ──▶ Notification, in the same write ──▶ `trellis.events.…` and webhooks
//! ```
//!
//! A notification names what it tells of and holds no content: whoever sends it reads that, and shows what its receiver
//! may see. Its id is a function of its cause, so that a receiver recognises a repetition.

pub mod signature;

use crate::ids::{AgentId, EventId, JobId, Owner, SessionId, VenueIdSubject};
use crate::time::Millis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Kind of a notification, the last token of its subject and the `type` of its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NotificationKind {
    /// A call or questions wait for a person.
    ApprovalAsked,
    /// A person has answered an approval.
    ApprovalDecided,
    /// Nobody has answered an approval in time: its call is not made.
    ApprovalExpired,
    /// A call that must not be repeated may or may not have happened.
    OutcomeUnknown,
    /// A task or an operation has ended too many workers and is not tried again.
    JobDead,
    /// A cap on spending leaves no room for the next call of a model.
    CapReached,
    /// An agent was stopped: its work waits for a person.
    AgentSuspended,
}

impl NotificationKind {
    /// All kinds, in the order of the guide.
    pub const ALL: [Self; 7] = [
        Self::ApprovalAsked,
        Self::ApprovalDecided,
        Self::ApprovalExpired,
        Self::OutcomeUnknown,
        Self::JobDead,
        Self::CapReached,
        Self::AgentSuspended,
    ];

    /// Returns the word that subjects, bodies and settings have for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ApprovalAsked => "approval-asked",
            Self::ApprovalDecided => "approval-decided",
            Self::ApprovalExpired => "approval-expired",
            Self::OutcomeUnknown => "outcome-unknown",
            Self::JobDead => "job-dead",
            Self::CapReached => "cap-reached",
            Self::AgentSuspended => "agent-suspended",
        }
    }

    /// Returns the kind of a word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// Returns the words of all kinds, for errors.
    pub fn words() -> String {
        Self::ALL.map(|kind| format!("`{}`", kind.as_str())).join(", ")
    }
}

/// A notification as it is stored until it is sent. It has no content of what it tells of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Notification {
    /// Id: a function of owner, kind and cause.
    pub id: JobId,
    /// Kind of the notification.
    pub kind: NotificationKind,
    /// Time of its cause.
    pub at: Millis,
    /// Agent that it is about; of an operation that no agent runs, the name under which such jobs are reported.
    pub agent: AgentId,
    /// Session that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Job that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Approval that was asked, decided or has expired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<JobId>,
    /// Entry of the unknown outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<JobId>,
    /// Operation, or tool, whose outcome is unknown or that has died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Why a job died, an agent was suspended, or which cap is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time at which the cap that is reached resets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resets: Option<Millis>,
}

/// Cause of a notification: the same cause has the same id.
#[derive(Debug, Clone, Copy)]
pub struct NotificationCause<'a> {
    /// Key of the venue.
    pub venue_key: &'a [u8],
    /// Owner of what the notification is about.
    pub owner: &'a Owner,
    /// Kind of the notification.
    pub kind: NotificationKind,
    /// Name that tells this cause from others of its kind.
    pub name: &'a str,
}

impl NotificationCause<'_> {
    /// Returns the id of the notification.
    fn id(self) -> JobId {
        let Self { venue_key, owner, kind, name } = self;
        let of = VenueIdSubject::Notification { owner, kind: kind.as_str(), cause: name };
        JobId::derive(venue_key, owner, &EventId::of_venue(venue_key, of))
    }
}

impl Notification {
    /// Makes a notification about an agent, without anything else.
    pub fn new(cause: NotificationCause<'_>, agent: AgentId, at: Millis) -> Self {
        Self {
            id: cause.id(),
            kind: cause.kind,
            at,
            agent,
            session: None,
            job: None,
            approval: None,
            outcome: None,
            operation: None,
            reason: None,
            resets: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_kinds_round_trip() {
        for kind in NotificationKind::ALL {
            assert_eq!(NotificationKind::parse(kind.as_str()), Some(kind));
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
            assert!(
                kind.as_str().bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'),
                "a token of a subject"
            );
        }
        assert_eq!(NotificationKind::parse("approval"), None);
    }

    #[test]
    fn the_id_is_a_function_of_the_cause() {
        let (one, other): (Owner, Owner) = ("t/u".parse().unwrap(), "t/v".parse().unwrap());
        let agent: AgentId = "a".parse().unwrap();
        let id = |venue_key: &[u8], owner: &Owner, kind, name: &str, at| {
            Notification::new(NotificationCause { venue_key, owner, kind, name }, agent.clone(), Millis(at)).id
        };
        let first = id(b"key", &one, NotificationKind::JobDead, "x", 1);
        assert_eq!(first, id(b"key", &one, NotificationKind::JobDead, "x", 2), "the time is no part of it");
        for another in [
            id(b"yek", &one, NotificationKind::JobDead, "x", 1),
            id(b"key", &other, NotificationKind::JobDead, "x", 1),
            id(b"key", &one, NotificationKind::CapReached, "x", 1),
            id(b"key", &one, NotificationKind::JobDead, "y", 1),
        ] {
            assert_ne!(first, another);
        }
    }
}
