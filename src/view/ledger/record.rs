//! Records of turns: what was heard and said, which calls were made, and what they ended.

use crate::domain::authority::{Authority, Capability};
use crate::domain::chat::{ChatMessage, Reasoning, TokenUsage, ToolCall};
use crate::domain::ids::{EventId, JobId};
use crate::domain::job::{ErrorCode, JobStatus};
use crate::domain::media::Attachment;
use crate::domain::session::{CallRecord, CallerMessage, FailedModel, TurnRecord};
use crate::domain::time::Millis;
use crate::view::to_json;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Record of a turn: one context, one model call, its tool calls, one commit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnRecordView {
    /// Number of the turn in its session, from 1.
    pub turn: u64,
    /// Time of its start, in milliseconds since 1970.
    #[schemars(with = "u64")]
    pub start: Millis,
    /// Time of its decision, in milliseconds since 1970.
    #[schemars(with = "u64")]
    pub end: Millis,
    /// Version of the agent's configuration.
    pub config_version: u64,
    /// Name of the worker that committed it; absent in older records.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub worker: String,
    /// Model that answered, `provider/name`; the agent's own for a turn without a reply.
    pub model: String,
    /// Models of the agent that were called before and gave no reply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_models: Vec<FailedModel>,
    /// Tokens of the model call.
    pub usage: TokenUsage,
    /// Job of the task that it served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Ids of the events that it consumed or began to serve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub events: Vec<EventId>,
    /// Messages of callers, as the transcript shows them; a task only in its first turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heard: Vec<CallerMessage>,
    /// Code of the failure of a turn without a reply: `said` then contains its error in brackets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<ErrorCode>,
    /// Messages of the model and results of its calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<TurnMessageView>,
    /// Calls with their operations and outcomes, in the order of the reply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallRecord>,
    /// Jobs that it ended: pairs of the job and its status.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Vec<String>>")]
    pub ended: Vec<(JobId, JobStatus)>,
    /// Authority of the turn, where it is limited; absent in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub authority: Option<Value>,
    /// Authority at the time of the model call, if a revocation came before the commit; absent in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub wider: Option<Value>,
    /// Upper bound of what its request may do, where there is one; absent in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub bound: Option<Value>,
    /// Capabilities by which its prompt was read, the conversation excepted; absent in older records and in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<Vec<Capability>>,
    /// Number of the earlier turn whose calls it made after a person had decided on them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settles: Option<u64>,
    /// Whether calls of it wait for a person, and their ids contain its start; absent in lists.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dated: bool,
    /// Time at which the event that it serves came in, in milliseconds since 1970, if calls of it wait for a person: their
    /// ids contain it. Absent in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub served: Option<Millis>,
    /// Number of the goal frame that it worked on; absent for the session's conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame: Option<u32>,
    /// SHA-256 of the prompt.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prompt: String,
    /// Whether its texts were erased.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub erased: bool,
    /// Whether its texts are hidden from the reader.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
}

/// A message of a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum TurnMessageView {
    /// Text from the caller, or context.
    User {
        /// Text of the message.
        text: String,
        /// Pictures and files behind the text.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<Attachment>,
    },
    /// Text and calls from the model.
    Assistant {
        /// Text of the message; may be empty beside calls.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        text: String,
        /// Calls that the model asked for.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<TurnCallView>,
        /// Reasoning before the text; absent in lists.
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning: Option<Reasoning>,
    },
    /// The result of one call.
    Tool {
        /// Id of the call.
        call: String,
        /// Name of the tool.
        name: String,
        /// Result as the model sees it.
        text: String,
    },
}

/// A call that a model asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TurnCallView {
    /// Id of the call.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Arguments as the model wrote them; a text where that is no JSON.
    pub arguments: Value,
}

impl From<&ToolCall> for TurnCallView {
    fn from(call: &ToolCall) -> Self {
        Self { id: call.id.clone(), name: call.name.clone(), arguments: call.arguments.to_value() }
    }
}

impl From<&ChatMessage> for TurnMessageView {
    fn from(message: &ChatMessage) -> Self {
        match message {
            ChatMessage::User { text, attachments } => {
                Self::User { text: text.clone(), attachments: attachments.clone() }
            }
            ChatMessage::Assistant { text, calls, reasoning } => Self::Assistant {
                text: text.clone(),
                calls: calls.iter().map(TurnCallView::from).collect(),
                reasoning: reasoning.clone(),
            },
            ChatMessage::Tool { call, name, text } => {
                Self::Tool { call: call.clone(), name: name.clone(), text: text.clone() }
            }
        }
    }
}

impl From<&TurnRecord> for TurnRecordView {
    /// Makes the view of the whole record.
    fn from(record: &TurnRecord) -> Self {
        let limited = |authority: &Authority| (!authority.is_unlimited()).then(|| to_json(authority));
        Self {
            turn: record.turn,
            start: record.start,
            end: record.end,
            config_version: record.config_version,
            worker: record.worker.clone(),
            model: record.model.clone(),
            failed_models: record.failed_models.clone(),
            usage: record.usage,
            job: record.job.clone(),
            events: record.events.clone(),
            heard: record.heard.clone(),
            failed: record.failed,
            said: record.said.iter().map(TurnMessageView::from).collect(),
            calls: record.calls.clone(),
            ended: record.ended.clone(),
            authority: limited(&record.authority),
            wider: record.wider.as_ref().map(to_json),
            bound: limited(&record.bound),
            used: record.used.clone(),
            settles: record.settles,
            dated: record.dated,
            served: record.served,
            frame: Some(record.frame).filter(|frame| *frame > 0),
            prompt: record.prompt.clone(),
            erased: record.erased,
            hidden: record.hidden,
        }
    }
}

impl TurnRecordView {
    /// Makes the view for lists and transcripts. It has no authority, because that names values which the runtime
    /// filled in and no transcript shows; and no reasoning, which only the model that wrote it may see.
    pub fn for_transcript(record: &TurnRecord) -> Self {
        let mut view = Self::from(record);
        for message in &mut view.said {
            if let TurnMessageView::Assistant { reasoning, .. } = message {
                *reasoning = None;
            }
        }
        for call in &mut view.calls {
            call.needs.clear();
            call.reads = None;
            call.sent = None;
        }
        Self { authority: None, wider: None, bound: None, used: None, dated: false, served: None, ..view }
    }

    /// Returns the text and the calls of the model's reply; `None` if the turn has none.
    pub fn reply(&self) -> Option<(&str, &[TurnCallView])> {
        self.said.iter().find_map(|message| match message {
            TurnMessageView::Assistant { text, calls, .. } => Some((text.as_str(), calls.as_slice())),
            TurnMessageView::User { .. } | TurnMessageView::Tool { .. } => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::chat::Arguments;
    use crate::domain::decode;
    use crate::domain::origin::SourceRead;
    use serde_json::json;

    /// Returns a record in which no field is empty.
    fn full_record() -> TurnRecord {
        let job: JobId = "0123456789abcdef0123456789abcdef".parse().unwrap();
        let can_read = Capability { with: "w/".into(), can: "crud/read".into() };
        let call =
            ToolCall { id: "c1".into(), name: "read".into(), arguments: Arguments::Json(json!({"path": "w/x"})) };
        let made = CallRecord {
            tool: "read".into(),
            operation: "v/ops/lattice/read".into(),
            outcome: "ok".into(),
            began: Some(Millis(6)),
            needs: vec![can_read.clone()],
            reads: Some(vec![SourceRead::new("w/x")]),
            ..CallRecord::default()
        };
        let authority = Authority::new(Some(vec![can_read.clone()]));
        TurnRecord {
            turn: 3,
            start: Millis(5),
            end: Millis(9),
            config_version: 2,
            worker: "w-1".into(),
            model: "scripted/x".into(),
            failed_models: vec![FailedModel { model: "scripted/y".into(), reason: "503".into() }],
            usage: TokenUsage { input: 3, output: 2, cache_read: 1, cache_write: 1, reasoning: 1 },
            job: Some(job.clone()),
            events: vec!["e-1".parse().unwrap()],
            heard: vec![CallerMessage { job: Some(job.clone()), text: "go".into(), attachments: Vec::new() }],
            failed: Some(ErrorCode::ModelError),
            said: vec![
                ChatMessage::Assistant {
                    text: "reading".into(),
                    calls: vec![call],
                    reasoning: Some(Reasoning { by: "scripted/x".into(), items: vec![json!("hm")] }),
                },
                ChatMessage::Tool { call: "c1".into(), name: "read".into(), text: "1".into() },
                ChatMessage::user("go on"),
            ],
            calls: vec![made],
            ended: vec![(job, JobStatus::Complete)],
            authority: authority.clone(),
            wider: Some(Authority::default()),
            bound: authority,
            used: Some(vec![can_read]),
            settles: Some(2),
            dated: true,
            served: Some(Millis(3)),
            frame: 1,
            prompt: "aa".into(),
            erased: true,
            hidden: true,
        }
    }

    #[test]
    fn a_view_has_the_stored_record_with_written_arguments() {
        for record in [full_record(), TurnRecord::default()] {
            let mut expected = json!(record);
            if !record.said.is_empty() {
                expected["said"][0]["calls"][0]["arguments"] = json!({"path": "w/x"});
            }
            let shown = to_json(&TurnRecordView::from(&record));
            assert_eq!(shown.to_string(), expected.to_string());
            let read: TurnRecordView = decode::into_type(shown).unwrap();
            assert_eq!(read, TurnRecordView::from(&record));
        }
    }

    #[test]
    fn a_transcript_shows_neither_authority_nor_reasoning() {
        let shown = to_json(&TurnRecordView::for_transcript(&full_record()));
        for key in ["authority", "wider", "bound", "used", "dated"] {
            assert_eq!(shown.get(key), None, "{key}");
        }
        assert_eq!(shown["said"][0].get("reasoning"), None);
        assert_eq!(
            shown["calls"],
            json!([{"tool": "read", "operation": "v/ops/lattice/read", "outcome": "ok", "began": 6}])
        );
    }
}
