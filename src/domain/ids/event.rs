//! Ids of events: those of producers, and those of the venue, which have a form that no producer can write.

use super::{AgentId, IdError, JobId, Owner, SessionKey, check, encode_token, hmac_hex};
use crate::time::Millis;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{fmt, str::FromStr};

/// Beginning of every id of the venue, and of no producer's id.
const RESERVED: &str = "venue:";

/// Hex digits of the venue's code in its ids: 128 bits.
const CODE: usize = 32;

const WHAT: &str = "event id";

/// Id of an event; deduplication is by (owner, event id).
///
/// [`EventId::new`] (and `FromStr`) parses ids from outside and refuses the form of the venue's ids. Only
/// [`EventId::of_venue`] makes those.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EventId(String);

/// Subject of an id of the venue; the id is a function of this and of the venue's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum VenueIdSubject<'a> {
    /// The message of the call at a position of a turn.
    Call {
        /// Owner of the session.
        owner: &'a Owner,
        /// Session whose turn made the call.
        session: &'a SessionKey,
        /// Turn of the reply.
        turn: u64,
        /// Position of the call in the reply.
        call: u32,
        /// Instance that the call is about.
        instance: Option<&'a str>,
        /// Start of the turn of the reply: a session that begins anew under its name has other ids. `None` where the
        /// reply was recorded by a build that left it out.
        #[serde(skip_serializing_if = "Option::is_none")]
        start: Option<Millis>,
    },
    /// The entry of a call of unknown outcome.
    Outcome {
        /// Owner of the session.
        owner: &'a Owner,
        /// Session whose turn made the call.
        session: &'a SessionKey,
        /// Turn of the reply.
        turn: u64,
        /// Position of the call in the reply.
        call: u32,
        /// Start of that turn: a session that begins anew under its name has other entries.
        start: Millis,
    },
    /// The event of a timer for a planned time.
    Timer {
        /// Owner of the timer.
        owner: &'a Owner,
        /// Name of the timer.
        timer: &'a str,
        /// Generation of the timer: the number of times that it was set.
        generation: u64,
        /// Planned time of the event.
        at: Millis,
    },
    /// The approval with this digest.
    Approval(&'a str),
    /// The event that wakes the session of an answered approval.
    Answer(&'a JobId),
    /// The result of a job, for the session that waits for it.
    Result(&'a JobId),
    /// The task that redrives this dead job.
    Redrive(&'a JobId),
    /// A submission without an id, by its position in the queue.
    Place {
        /// Time of publication.
        published: Millis,
        /// Sequence number within the stream.
        sequence: u64,
    },
    /// A run of an operation under a producer's id.
    Operation {
        /// Owner of the job.
        owner: &'a Owner,
        /// Id that the producer gave.
        key: &'a EventId,
    },
    /// The cancellation of a job.
    Cancel(&'a JobId),
    /// The completion of a job.
    Done(&'a JobId),
    /// The completion of a job, to the subject that its submission named.
    Reply(&'a JobId),
    /// A notification, by its cause.
    Notification {
        /// Owner of what it is about.
        owner: &'a Owner,
        /// Kind of the notification.
        kind: &'a str,
        /// Name that tells the cause from others of its kind.
        cause: &'a str,
    },
    /// The refusal of a submission, by its position in the queue.
    Refused {
        /// Owner that the submission named.
        owner: &'a Owner,
        /// Agent that it was sent to.
        agent: &'a AgentId,
        /// Id of its position.
        place: &'a EventId,
    },
}

impl VenueIdSubject<'_> {
    /// Returns the readable part of the id; a code behind it makes the id unique.
    fn readable(&self) -> String {
        match self {
            Self::Call { .. } => "call".to_owned(),
            Self::Outcome { .. } => "outcome".to_owned(),
            Self::Timer { timer, generation, at, .. } => format!("timer-{timer}-{generation}-{at}"),
            Self::Approval(_) => "approval".to_owned(),
            Self::Answer(approval) => format!("answer-{approval}"),
            Self::Result(job) => format!("result-{job}"),
            Self::Redrive(job) => format!("redrive-{job}"),
            Self::Place { published, sequence } => format!("seq-{published}-{sequence}"),
            Self::Operation { .. } => "operation".to_owned(),
            Self::Cancel(job) => format!("cancel-{job}"),
            Self::Done(job) => format!("done-{job}"),
            Self::Reply(job) => format!("reply-{job}"),
            Self::Notification { .. } => "notification".to_owned(),
            Self::Refused { .. } => "refused".to_owned(),
        }
    }
}

impl EventId {
    /// Makes a producer's id.
    ///
    /// # Errors
    /// `text` is no legal name, or has the form of the venue's own ids.
    pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
        let id = Self::from_stored(text)?;
        if id.is_of_venue() {
            let rule = "ids that begin with `venue:` are made by the venue alone, choose another";
            return Err(IdError { what: WHAT, given: id.0.chars().take(80).collect(), rule });
        }
        Ok(id)
    }

    /// Reads an id of either kind, as it is in the store or in a message under the venue's seal.
    ///
    /// # Errors
    /// `text` is no legal name.
    pub fn from_stored(text: impl Into<String>) -> Result<Self, IdError> {
        let text = text.into();
        check(WHAT, &text)?;
        Ok(Self(text))
    }

    /// Makes the venue's own id of a subject: always the same under one key, and unknown without the key.
    pub fn of_venue(venue_key: &[u8], of: VenueIdSubject<'_>) -> Self {
        let said = json!(["id", of]).to_string();
        let code = &hmac_hex(venue_key, said.as_bytes())[..CODE];
        Self(format!("{RESERVED}{}-{code}", of.readable()))
    }

    /// Whether the venue made the id.
    pub fn is_of_venue(&self) -> bool {
        self.0.starts_with(RESERVED)
    }

    /// Returns the id as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the id encoded as one token of a NATS subject or one part of a Redis key.
    pub fn token(&self) -> String {
        encode_token(&self.0)
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for EventId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        Self::new(text)
    }
}

impl TryFrom<String> for EventId {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        Self::from_stored(text)
    }
}

impl From<EventId> for String {
    fn from(id: EventId) -> Self {
        id.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_producer_can_write_an_id_of_the_venue() {
        let job = JobId::new(&"0f".repeat(16)).unwrap();
        let own = EventId::of_venue(b"k", VenueIdSubject::Result(&job));
        assert!(own.is_of_venue());
        assert_eq!(EventId::from_stored(own.as_str()).unwrap(), own);
        let stored = serde_json::to_string(&own).unwrap();
        assert_eq!(serde_json::from_str::<EventId>(&stored).unwrap(), own, "what is stored reads back");
        for text in [own.as_str(), "venue:", "venue:call-0"] {
            let refused = EventId::new(text).unwrap_err();
            assert!(refused.to_string().contains("made by the venue alone"), "{refused}");
            assert!(text.parse::<EventId>().is_err(), "{text}");
        }
        for text in ["venue", "Venue:x", "a-venue:x", "call-0", "timer-1", "0190-uuid"] {
            assert!(!EventId::new(text).unwrap().is_of_venue(), "{text}");
        }
        assert_eq!(EventId::new("a b").unwrap_err().rule, "whitespace is not allowed");
    }

    #[test]
    fn an_id_of_the_venue_follows_from_its_purpose_and_the_key() {
        let (owner, other): (Owner, Owner) = ("t/u".parse().unwrap(), "t/v".parse().unwrap());
        let session = SessionKey { agent: "a".parse().unwrap(), session: "s".parse().unwrap() };
        let job = JobId::new(&"0f".repeat(16)).unwrap();
        let dated = |owner, turn, call, instance, start| VenueIdSubject::Call {
            owner,
            session: &session,
            turn,
            call,
            instance,
            start,
        };
        let call = |owner, turn, call, instance| dated(owner, turn, call, instance, Some(Millis(1)));
        let timer = |owner, generation| VenueIdSubject::Timer { owner, timer: "0f", generation, at: Millis(1) };
        let place = EventId::of_venue(b"k", VenueIdSubject::Place { published: Millis(1), sequence: 2 });
        let all = [
            call(&owner, 1, 2, None),
            call(&other, 1, 2, None),
            call(&owner, 2, 2, None),
            call(&owner, 1, 3, None),
            call(&owner, 1, 2, Some("x")),
            dated(&owner, 1, 2, None, Some(Millis(2))),
            dated(&owner, 1, 2, None, None),
            VenueIdSubject::Outcome { owner: &owner, session: &session, turn: 1, call: 2, start: Millis(1) },
            VenueIdSubject::Outcome { owner: &owner, session: &session, turn: 1, call: 2, start: Millis(2) },
            timer(&owner, 1),
            timer(&other, 1),
            timer(&owner, 2),
            VenueIdSubject::Approval(job.as_str()),
            VenueIdSubject::Answer(&job),
            VenueIdSubject::Result(&job),
            VenueIdSubject::Redrive(&job),
            VenueIdSubject::Cancel(&job),
            VenueIdSubject::Done(&job),
            VenueIdSubject::Reply(&job),
            VenueIdSubject::Place { published: Millis(1), sequence: 2 },
            VenueIdSubject::Operation { owner: &owner, key: &place },
            VenueIdSubject::Operation { owner: &other, key: &place },
            VenueIdSubject::Refused { owner: &owner, agent: &session.agent, place: &place },
        ];
        let mut seen = std::collections::BTreeSet::new();
        for of in all {
            let id = EventId::of_venue(b"k", of);
            assert_eq!(id, EventId::of_venue(b"k", of));
            assert!(EventId::from_stored(id.as_str()).is_ok(), "{id}");
            let code = |key: &[u8]| EventId::of_venue(key, of).as_str().rsplit_once('-').unwrap().1.to_owned();
            assert_ne!(code(b"k"), code(b"K"), "{id}");
            assert!(seen.insert(code(b"k")), "{id}");
        }
    }

    #[test]
    fn a_call_without_a_start_has_the_id_of_older_builds() {
        let owner: Owner = "t/u".parse().unwrap();
        let session = SessionKey { agent: "a".parse().unwrap(), session: "s".parse().unwrap() };
        let of =
            VenueIdSubject::Call { owner: &owner, session: &session, turn: 1, call: 2, instance: None, start: None };
        let old = json!({"call": {"owner": owner, "session": session, "turn": 1, "call": 2, "instance": null}});
        assert_eq!(json!(of).to_string(), old.to_string());
    }
}
