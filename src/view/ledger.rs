//! Answers about turns, their ledger and their experiments.

mod prompt;
mod record;

pub use prompt::{LedgerRowView, LedgerView, ModelRequestView, SentRequestView, UsedValueView};
pub use record::{TurnCallView, TurnMessageView, TurnRecordView};

use super::job::IgnoredView;
use crate::domain::ids::{AgentId, SessionId};
use crate::domain::time::Millis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A page of an agent's turns, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnListPage {
    /// Turns of the page; may be empty while there are more.
    #[serde(default)]
    pub turns: Vec<TurnRowView>,
    /// `cursor` of the next page; null after the last.
    pub next: Option<String>,
    /// Time back to which the turns were searched, in milliseconds since 1970; null after the last page, and in a list
    /// of one session.
    #[schemars(with = "Option<u64>")]
    pub looked_back_to: Option<Millis>,
}

/// A turn in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnRowView {
    /// Record of the turn.
    #[serde(flatten)]
    pub record: TurnRecordView,
    /// Name of the turn, `agent/session/turn`.
    pub name: String,
    /// Session of the turn.
    pub session: SessionId,
}

/// A turn with the ledger of its prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnView {
    /// Name of the turn, `agent/session/turn`.
    pub name: String,
    /// Agent of the turn.
    pub agent: AgentId,
    /// Session of the turn.
    pub session: SessionId,
    /// Number of the turn, from 1.
    pub turn: u64,
    /// What the turn did; null if its record is gone.
    pub record: Option<TurnRecordView>,
    /// What its model saw; null if the turn ended before there was a prompt, or a fork copied it.
    pub ledger: Option<LedgerView>,
    /// Components of the prompt whose content is gone; absent if the prompt can be assembled again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub erased: Option<Vec<String>>,
    /// The exact request to the model, if it was asked for and its reader may see it; null if it can't be assembled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<ModelRequestView>")]
    pub request: Option<AssembledRequestView>,
    /// Reason why the request is not shown, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withheld: Option<String>,
    /// True if the turn ran under authority that the reader doesn't hold; absent else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
}

/// A request that was to be assembled; `None` if that failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct AssembledRequestView(pub Option<ModelRequestView>);

/// A past prompt that was assembled again, as it was or with changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplayView {
    /// Name of the turn, `agent/session/turn`.
    pub name: String,
    /// Whether something was changed.
    pub experiment: bool,
    /// SHA-256 of the recorded prompt.
    pub recorded: String,
    /// SHA-256 of the prompt that was assembled.
    pub replayed: String,
    /// Whether both hashes are equal.
    pub same: bool,
    /// Error with which the turn would fail; null if there is a prompt.
    pub error: Option<String>,
    /// Ledger of the recorded prompt.
    pub before: LedgerView,
    /// Ledger of the prompt that was assembled.
    pub ledger: LedgerView,
    /// The exact request to the model; null with an error.
    pub request: Option<ModelRequestView>,
    /// Copies that were not followed, a sentence each: there the prompt is as it was. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub incomplete: Vec<String>,
    /// Reasons why the venue could not call the model of an experiment, a sentence each. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// What the next turn of a session would see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContextPreviewView {
    /// Ledger of the prompt.
    pub ledger: LedgerView,
    /// The exact request to the model; absent with an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<ModelRequestView>,
    /// Error with which the turn would fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Parts of the request that have no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignored: Option<IgnoredView>,
}

/// The turns in which bytes of a path reached a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WhyView {
    /// Path that was asked for.
    pub path: String,
    /// Uses of its bytes: first those of deleted agents and sessions, then by agent and session, oldest first.
    #[serde(default)]
    pub turns: Vec<PathUseView>,
    /// Number of uses that the caller may not see.
    pub hidden: usize,
    /// Parts of the ledger that were not searched, a sentence each; absent if all were.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub incomplete: Vec<String>,
}

/// One way in which bytes of a path reached a model, or went on from there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PathUseView {
    /// Name of the agent; empty for a copy that a caller outside turns made.
    pub agent: String,
    /// Session of the agent.
    pub session: String,
    /// Number of the turn. For the result of a tool it is the turn of the call: the model sees the result from the
    /// next turn on.
    pub turn: u64,
    /// Key of the prompt's part, `tool <name>`, `answer` for a job that the turn ended, or `copy`.
    pub via: String,
    /// Path that was read.
    pub source: String,
    /// Version of the document at the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// SHA-256 of a value of the tree that is kept in parts with versions of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Operation that read the path.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub through: String,
    /// Path to which the bytes were copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub into: Option<String>,
    /// Bytes in the prompt.
    pub bytes: usize,
    /// Time at which the session or agent was deleted, or the copy was made, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub removed: Option<Millis>,
}

impl TurnView {
    /// Returns the exact request to the model, if it is there.
    pub fn request(&self) -> Option<&ModelRequestView> {
        self.request.as_ref()?.0.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::context::ledger::PromptLedger;
    use crate::domain::decode;
    use crate::view::to_json;
    use serde_json::json;

    #[test]
    fn a_request_that_failed_is_null_and_one_that_was_not_asked_for_is_absent() {
        let turn = |request: Option<AssembledRequestView>| TurnView {
            name: "a/s/1".into(),
            agent: "a".parse().unwrap(),
            session: "s".parse().unwrap(),
            turn: 1,
            record: None,
            ledger: Some(LedgerView::from(&PromptLedger::default())),
            erased: None,
            request,
            withheld: None,
            hidden: false,
        };
        for (request, expected) in [(None, None), (Some(AssembledRequestView(None)), Some(&json!(null)))] {
            let shown = to_json(&turn(request));
            assert_eq!((shown.get("request"), &shown["record"]), (expected, &json!(null)));
            let read: TurnView = decode::into_type(shown).unwrap();
            assert_eq!(read.request(), None);
        }
    }
}
