//! Unknown outcomes: calls that must not be repeated, that began, and of which nobody knows whether they happened;
//! and what a person has found out about them.

use crate::ids::{EventId, IdOf, JobId, Owner, SessionKey};
use crate::kept::KeptKeys;
use crate::time::Millis;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A call whose outcome is unknown, as operators list it. It holds no argument and no text of an answer: those stand in
/// the turn, and are erased with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnknownOutcome {
    /// Its name: that of the job of an operation that was invoked, else a function of the call's place.
    pub id: JobId,
    /// The task in whose service the call was made, or the job of the operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Catalog path of the operation, or the tool of a resource.
    pub operation: String,
    /// Where the call stands, when a turn made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<UnknownCall>,
    /// When it was recorded as unknown.
    pub at: Millis,
    /// What a person has found out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<Settlement>,
    /// Of a newer build.
    #[serde(flatten)]
    pub kept: KeptKeys,
}

/// The place of a call of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnknownCall {
    /// The agent and its session.
    #[serde(flatten)]
    pub session: SessionKey,
    /// The turn whose reply has the call.
    pub turn: u64,
    /// The place of the call in that reply, from 0.
    pub index: u32,
    /// The name that the model used.
    pub tool: String,
}

/// What a person has found out about a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settlement {
    /// Whether the call has happened.
    pub done: bool,
    /// Result of the call, if the person knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Reason that the person gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Name of the caller who settled it.
    pub by: String,
    /// Time of the settlement.
    pub at: Millis,
}

impl Settlement {
    /// Whether two say the same, whoever says it and when.
    pub fn agrees_with(&self, other: &Self) -> bool {
        (self.done, &self.result, &self.note) == (other.done, &other.result, &other.note)
    }
}

/// The name of an unknown outcome at a place; the same each time the place is recorded.
pub fn outcome_id(venue_key: &[u8], owner: &Owner, session: &SessionKey, (turn, call): (u64, u32)) -> JobId {
    let place = IdOf::Call { owner, session, turn, call, instance: None };
    JobId::derive(venue_key, owner, &EventId::of_venue(venue_key, place))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn settlement(done: bool, result: Option<Value>, note: Option<&str>, by: &str) -> Settlement {
        Settlement { done, result, note: note.map(str::to_owned), by: by.to_owned(), at: Millis(by.len() as u64) }
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
        let outcome = UnknownOutcome {
            id: outcome_id(b"k", &owner, &session, (2, 1)),
            job: None,
            operation: "v/ops/http/post".into(),
            call: Some(call),
            at: Millis(5),
            settled: Some(settlement(false, None, None, "me")),
            kept: KeptKeys::default(),
        };
        let mut stored = json!(outcome);
        assert_eq!(stored["call"], json!({"agent": "a", "session": "s", "turn": 2, "index": 1, "tool": "pay"}));
        assert_eq!(serde_json::from_value::<UnknownOutcome>(stored.clone()).unwrap(), outcome);
        stored["newer"] = json!(1);
        let read: UnknownOutcome = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(json!(read), stored);
    }

    #[test]
    fn each_place_has_its_own_name() {
        let (one, other): (Owner, Owner) = ("t/u".parse().unwrap(), "t/v".parse().unwrap());
        let session = SessionKey { agent: "a".parse().unwrap(), session: "s".parse().unwrap() };
        let names = [(&one, (1, 0)), (&one, (1, 1)), (&one, (2, 0)), (&other, (1, 0))]
            .map(|(owner, place)| outcome_id(b"k", owner, &session, place).to_string());
        let distinct: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len(), "{names:?}");
        assert_eq!(outcome_id(b"k", &one, &session, (1, 0)).to_string(), names[0]);
    }
}
