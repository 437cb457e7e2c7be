//! Unknown outcomes: calls that began, must not be repeated, and may or may not have taken effect; and what a person
//! has found out about them.
//!
//! ```text
//! begins: OpenCall ──▶ its end is recorded ──▶ gone
//!            │
//!            └─ nobody can record it any more ──▶ UnknownOutcome ──▶ settled by a person
//! ```
//!
//! The record of an open call is stored beside the session whose turn makes it, so that the end of the session doesn't
//! remove it.

use crate::ids::{EventId, JobId, Owner, SessionKey, VenueIdSubject};
use crate::time::Millis;
use crate::unknown_fields::UnknownFields;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::cmp::Ordering;
use std::time::Duration;

/// Pause between two looks at a call that a successor will make again.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// A call with an unknown outcome, as operators list it. It holds no argument and no text of an answer: those are in
/// the turn, and are erased with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnknownOutcome {
    /// Id: that of the job of an invoked operation, else a function of the call's position.
    pub id: JobId,
    /// Task that the call's turn served, or the job of the operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Catalogue path of the operation, or the tool of a resource.
    pub operation: String,
    /// Position of the call, if a turn made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<UnknownCall>,
    /// Name of the caller, if a request of the API without a job made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// Time at which it was recorded as unknown.
    pub at: Millis,
    /// Finding of a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<OutcomeSettlement>,
    /// Fields that a newer build wrote.
    #[serde(flatten)]
    pub kept: UnknownFields,
}

impl UnknownOutcome {
    /// Makes the unsettled entry of an operation, without job, call and caller.
    pub fn new(id: JobId, operation: impl Into<String>, at: Millis) -> Self {
        let (operation, kept) = (operation.into(), UnknownFields::default());
        Self { id, job: None, operation, call: None, caller: None, at, settled: None, kept }
    }
}

/// A call that has begun and must not be repeated, as it is stored until its end is recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenCall {
    /// Entry for operators, in case nobody records the end.
    pub listed: UnknownOutcome,
    /// The turn or request that makes the call.
    pub maker: CallMaker,
    /// Whether a successor of the maker makes the call again, under a key by which the server recognises it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeatable: bool,
    /// Fields that a newer build wrote.
    #[serde(flatten)]
    pub kept: UnknownFields,
}

/// Maker of a call that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CallMaker {
    /// A turn of the session that the call's position names.
    #[serde(rename_all = "camelCase")]
    Turn {
        /// Number of the turn. The call may belong to the reply of an earlier turn, which a person has decided on.
        number: u64,
        /// Epoch of the lease.
        epoch: u64,
    },
    /// A request of the API, which has ended when the call is looked at.
    Request,
}

/// Facts of the session whose turn has begun a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallerSession {
    /// Number of committed turns.
    pub version: u64,
    /// Epoch of its last lease.
    pub epoch: u64,
    /// End of a lease that was not released.
    pub lease_until: Option<Millis>,
    /// Whether the record of the call's reply holds the end of the call.
    pub is_recorded: bool,
    /// Whether neither the task nor the agent has ended.
    pub may_resume: bool,
}

/// Fate of a call that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenCallFate {
    /// The end is unknown so far: the sweep reads the record again at this time.
    Pending(Millis),
    /// The end is recorded: the call needs no record of its own.
    Recorded,
    /// Nobody can record the end.
    Unknown,
}

impl OpenCall {
    /// Returns the fate of the call; `session` is `None` if the session is gone.
    pub fn fate(&self, now: Millis, session: Option<CallerSession>) -> OpenCallFate {
        let (CallMaker::Turn { number, epoch }, Some(session)) = (self.maker, session) else {
            return OpenCallFate::Unknown;
        };
        match (session.version + 1).cmp(&number) {
            Ordering::Greater if session.is_recorded => OpenCallFate::Recorded,
            // The session has begun anew under its name.
            Ordering::Greater | Ordering::Less => OpenCallFate::Unknown,
            Ordering::Equal => match session.lease_until.filter(|until| *until > now) {
                Some(until) if session.epoch == epoch => OpenCallFate::Pending(until),
                Some(_) | None if self.repeatable && session.may_resume => OpenCallFate::Pending(now.plus(LOOK_AGAIN)),
                Some(_) | None => OpenCallFate::Unknown,
            },
        }
    }
}

/// Position of a call of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnknownCall {
    /// Agent and session of the turn.
    #[serde(flatten)]
    pub session: SessionKey,
    /// Turn whose reply has the call.
    pub turn: u64,
    /// Position of the call in that reply, from 0.
    pub index: u32,
    /// Name by which the model called the tool.
    pub tool: String,
}

/// Finding of a person about a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutcomeSettlement {
    /// Whether the call took effect.
    pub done: bool,
    /// Result of the call, if the person knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Reason that the person gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Name of the caller who settled it.
    pub by: String,
    /// Time of the settlement, in milliseconds since 1970.
    #[schemars(with = "u64")]
    pub at: Millis,
}

impl OutcomeSettlement {
    /// Whether two findings are equal, apart from their author and time.
    pub fn agrees_with(&self, other: &Self) -> bool {
        (self.done, &self.result, &self.note) == (other.done, &other.result, &other.note)
    }
}

/// Position of a call with the start of its turn, which tells apart successive sessions of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallPosition {
    /// Turn whose reply has the call.
    pub turn: u64,
    /// Start of the turn: a session that begins anew under its name has others.
    pub start: Millis,
    /// Position of the call in that reply, from 0.
    pub index: u32,
}

/// Returns the id of an unknown outcome; it is the same each time that the outcome is recorded.
pub fn outcome_id(venue_key: &[u8], owner: &Owner, session: &SessionKey, at: CallPosition) -> JobId {
    let CallPosition { turn, start, index: call } = at;
    JobId::derive(
        venue_key,
        owner,
        &EventId::of_venue(venue_key, VenueIdSubject::Outcome { owner, session, turn, call, start }),
    )
}

/// Returns the id that older builds gave it, without the start of the turn.
pub fn legacy_outcome_id(venue_key: &[u8], owner: &Owner, session: &SessionKey, at: CallPosition) -> JobId {
    let place = VenueIdSubject::Call { owner, session, turn: at.turn, call: at.index, instance: None, start: None };
    JobId::derive(venue_key, owner, &EventId::of_venue(venue_key, place))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn settlement(done: bool, result: Option<Value>, note: Option<&str>, by: &str) -> OutcomeSettlement {
        OutcomeSettlement {
            done,
            result,
            note: note.map(str::to_owned),
            by: by.to_owned(),
            at: Millis(by.len() as u64),
        }
    }

    #[test]
    fn settlements_agree_by_what_they_say() {
        let first = || settlement(true, Some(json!(1)), Some("n"), "a");
        for (other, expected) in [
            (settlement(true, Some(json!(1)), Some("n"), "bb"), true),
            (settlement(false, Some(json!(1)), Some("n"), "a"), false),
            (settlement(true, None, Some("n"), "a"), false),
            (settlement(true, Some(json!(1)), None, "a"), false),
        ] {
            assert_eq!(first().agrees_with(&other), expected, "{other:?}");
        }
    }

    #[test]
    fn an_outcome_reads_back_with_keys_of_newer_builds() {
        let session = SessionKey { agent: "a".parse().unwrap(), session: "s".parse().unwrap() };
        let owner: Owner = "t/u".parse().unwrap();
        let call = UnknownCall { session: session.clone(), turn: 2, index: 1, tool: "pay".into() };
        let id = outcome_id(b"k", &owner, &session, CallPosition { turn: 2, start: Millis(1), index: 1 });
        let outcome = UnknownOutcome {
            call: Some(call),
            settled: Some(settlement(false, None, None, "me")),
            ..UnknownOutcome::new(id, "v/ops/http/post", Millis(5))
        };
        let mut stored = json!(outcome);
        assert_eq!(stored["call"], json!({"agent": "a", "session": "s", "turn": 2, "index": 1, "tool": "pay"}));
        assert_eq!(serde_json::from_value::<UnknownOutcome>(stored.clone()).unwrap(), outcome);
        stored["newer"] = json!(1);
        let read: UnknownOutcome = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(json!(read), stored);
    }

    #[test]
    fn a_begun_call_without_recorded_end_is_unknown() {
        use OpenCallFate::{Pending, Recorded, Unknown};
        let owner: Owner = "t/u".parse().unwrap();
        let key = SessionKey { agent: "a".parse().unwrap(), session: "s".parse().unwrap() };
        let id = outcome_id(b"k", &owner, &key, CallPosition { turn: 3, start: Millis(1), index: 0 });
        let listed = UnknownOutcome::new(id, "v/ops/http/post", Millis(5));
        let maker = CallMaker::Turn { number: 3, epoch: 7 };
        let once = OpenCall { listed, maker, repeatable: false, kept: UnknownFields::default() };
        let again = OpenCall { repeatable: true, ..once.clone() };
        let running =
            CallerSession { version: 2, epoch: 7, lease_until: Some(Millis(20)), is_recorded: false, may_resume: true };
        let later = Pending(Millis(10).plus(LOOK_AGAIN));
        for (session, of_once, of_again) in [
            (running, Pending(Millis(20)), Pending(Millis(20))),
            // Its lease has lapsed, was given back, or is another's.
            (CallerSession { lease_until: Some(Millis(10)), ..running }, Unknown, later),
            (CallerSession { lease_until: None, ..running }, Unknown, later),
            (CallerSession { epoch: 8, ..running }, Unknown, later),
            (CallerSession { epoch: 8, may_resume: false, ..running }, Unknown, Unknown),
            // Its turn is committed, with it or without.
            (CallerSession { version: 3, is_recorded: true, ..running }, Recorded, Recorded),
            (CallerSession { version: 3, ..running }, Unknown, Unknown),
            // Another session of that name.
            (CallerSession { version: 1, ..running }, Unknown, Unknown),
        ] {
            assert_eq!(once.fate(Millis(10), Some(session)), of_once, "{session:?}");
            assert_eq!(again.fate(Millis(10), Some(session)), of_again, "{session:?}");
        }
        let request = OpenCall { maker: CallMaker::Request, ..once.clone() };
        for open in [&once, &again, &request] {
            assert_eq!(open.fate(Millis(10), None), Unknown);
            let stored = json!(open);
            assert_eq!(serde_json::from_value::<OpenCall>(stored.clone()).unwrap(), *open, "{stored}");
        }
    }

    #[test]
    fn each_place_has_its_own_name() {
        let (one, other): (Owner, Owner) = ("t/u".parse().unwrap(), "t/v".parse().unwrap());
        let session = SessionKey { agent: "a".parse().unwrap(), session: "s".parse().unwrap() };
        let at = |turn, start, index| CallPosition { turn, start: Millis(start), index };
        let places =
            [(&one, at(1, 5, 0)), (&one, at(1, 5, 1)), (&one, at(2, 5, 0)), (&one, at(1, 6, 0)), (&other, at(1, 5, 0))];
        let names = places.map(|(owner, at)| outcome_id(b"k", owner, &session, at).to_string());
        let distinct: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len(), "{names:?}");
        assert_eq!(outcome_id(b"k", &one, &session, at(1, 5, 0)).to_string(), names[0]);
    }
}
