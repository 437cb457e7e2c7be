//! Session state between turns, and the record of every turn.

use crate::approval::{AwaitingCalls, DecidedCall};
use crate::authority::{Authority, Capability};
use crate::budget::Deadline;
use crate::call::{ReplyStart, ReplyTurn, SentMarks};
use crate::chat::{ChatMessage, TokenUsage};
use crate::event::Mandate;
use crate::goal::GoalStack;
use crate::ids::{AgentId, AssetId, EventId, JobId};
use crate::job::{ErrorCode, JobStatus};
use crate::lines;
use crate::load::Load;
use crate::origin::SourceRead;
use crate::pipeline_run::PipelineState;
use crate::prefix::StablePrefix;
use crate::scope::HandOffRecord;
use crate::spend::{DayUse, Tally};
use crate::time::Millis;
use crate::trace::TraceParent;
use crate::unknown_fields::UnknownFields;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// State that a session keeps from turn to turn, besides its turn records.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionState {
    /// Title for people; no prompt has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Child jobs whose results are awaited.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pending: BTreeMap<JobId, PendingJob>,
    /// Task that is being served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskProgress>,
    /// Paths that its model asked to see, the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<Load>,
    /// Catalogue paths of operations that its model found with `more_tools`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Whether there is nothing to do until a result or a message arrives.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parked: bool,
    /// Mailbox keys of messages and results that a turn without a task has shown and not yet finished: its model must
    /// still see the results of its tools. They stay in the mailbox until then, because a worker that dies loses
    /// everything else.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shown: Vec<String>,
    /// Request whose run without a task continues while `shown` is not empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under: Option<Mandate>,
    /// Calls that wait for a person. No model is called while there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaiting: Option<AwaitingCalls>,
    /// Goals of the session, and its compacted turns.
    #[serde(default, skip_serializing_if = "GoalStack::is_empty")]
    pub goals: GoalStack,
    /// Number of turns after the last message or the last text, without a task: limits what no task limits.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub loose_turns: u32,
    /// Number of the last turn of expired conversations: no prompt has turns up to it.
    #[serde(default, skip_serializing_if = "is_none")]
    pub since: u64,
    /// Time at which it was made as a copy, with its turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied: Option<Millis>,
    /// Number of child jobs, messages and timers that were begun for the task, or after the last text without one: it
    /// limits loops through parking and waking.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub children: u32,
    /// Use on the day of its last model call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub today: Option<DayUse>,
    /// Stable part of the last prompt of each open goal frame, by the frame's number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub prefixes: BTreeMap<u32, StablePrefix>,
    /// State of the run of its pipeline; of the last run when none is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<Box<PipelineState>>,
    /// Span of the last committed turn, to which the next one is linked; absent while traces are off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceParent>,
    /// Fields that a newer build wrote.
    #[serde(flatten)]
    pub kept: UnknownFields,
}

impl SessionState {
    /// Returns the current work of the session in words, if it has any: then its turns must stay as they are.
    pub const fn current_work(&self) -> Option<&'static str> {
        if self.task.is_some() {
            return Some("serves a task");
        }
        if self.awaiting.is_some() {
            return Some("waits for a person");
        }
        if !self.shown.is_empty() {
            return Some("is being served");
        }
        if self.goals.frames.is_empty() { None } else { Some("works on a goal") }
    }

    /// Ends the task: its children are not awaited any more.
    pub fn end_task(&mut self) {
        self.task = None;
        self.parked = false;
        self.children = 0;
        self.goals.end();
        self.pending.retain(|_, pending| pending.under.is_some());
    }

    /// Returns the state of a copy up to and with turn `at`, made at `now`: nothing that another session waits for or
    /// serves, and no summary of later turns.
    #[must_use]
    pub fn fork(mut self, at: u64, now: Millis) -> Self {
        self.end_task();
        self.goals.segments.retain(|segment| segment.to <= at);
        self.pending.clear();
        self.shown.clear();
        // A copy that ends within an expired conversation begins with just that one.
        let since = if at > self.since { self.since } else { 0 };
        let pipeline = None;
        Self { under: None, awaiting: None, loose_turns: 0, since, copied: Some(now), today: None, pipeline, ..self }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(n: &u32) -> bool {
    *n == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_none(turn: &u64) -> bool {
    *turn == 0
}

/// A child job whose result is awaited.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PendingJob {
    /// Agent that serves the job.
    pub agent: AgentId,
    /// Time of its start.
    pub started: Millis,
    /// Request for which it was started, if no task was served: its result is processed under that request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under: Option<Mandate>,
    /// Number of the goal frame that waits for it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub frame: u32,
}

/// Progress of the task that is being served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskProgress {
    /// Job of the task.
    pub job: JobId,
    /// Number of turns that served it.
    pub turns: u32,
    /// Whether the model was reminded that text alone, or nothing at all, doesn't complete the task.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reminded: bool,
    /// Number of answers that were refused because they didn't fit the output's schema.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub refused: u32,
    /// Whether it has reached its limit of turns, and has one more to end in.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub winding: bool,
    /// Time at which the task ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Deadline>,
    /// Use of the task; unknown for a task that an older build began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tally: Option<Tally>,
}

impl TaskProgress {
    /// Makes the progress of a task that no turn has served.
    pub fn new(job: JobId) -> Self {
        let tally = Some(Tally::default());
        Self { job, turns: 0, reminded: false, refused: 0, winding: false, deadline: None, tally }
    }
}

/// Record of a turn: a line of the timeline and its part of the transcript.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnRecord {
    /// Number of the turn in the session, from 1.
    pub turn: u64,
    /// Time of its start.
    pub start: Millis,
    /// Time of its decision.
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
    /// Task that it served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Events that it consumed or began to serve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventId>,
    /// Messages of callers, as the transcript shows them; a task only in its first turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heard: Vec<CallerMessage>,
    /// Code of the failure of a turn without a reply: `said` then contains its error in brackets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<ErrorCode>,
    /// Messages of the model and results of its calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<ChatMessage>,
    /// Calls with their operations and outcomes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallRecord>,
    /// Jobs that it ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<(JobId, JobStatus)>,
    /// Authority of the turn: a turn that holds less doesn't see it.
    #[serde(default, skip_serializing_if = "Authority::is_unlimited")]
    pub authority: Authority,
    /// Authority at the time of the model call, where a revocation came before the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wider: Option<Authority>,
    /// Upper bound of what its request may do.
    #[serde(default, skip_serializing_if = "Authority::is_unlimited")]
    pub bound: Authority,
    /// Capabilities by which its prompt was read, the conversation excepted; absent in records that don't hold it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Vec<Capability>>,
    /// Number of the earlier turn whose calls it made after a person had decided on them: it has no part of the
    /// transcript of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settles: Option<u64>,
    /// Whether calls of it wait for a person, and their ids contain its start: it was recorded by an older build.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dated: bool,
    /// When the event that it serves came in, if calls of it wait for a person: the ids of its calls contain that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<Millis>,
    /// Number of the goal frame that it worked on; 0 = the session's conversation.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub frame: u32,
    /// SHA-256 of the prompt.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prompt: String,
    /// Whether its texts were erased.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub erased: bool,
    /// Whether its texts are hidden from the reader. Stored records never have it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
}

/// A model that gave no reply in a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FailedModel {
    /// Model as `provider/name`.
    pub model: String,
    /// Error of its provider, or the limit that prevented the call.
    pub reason: String,
}

/// Text of a record in place of what its reader may not read.
pub const WITHHELD: &str = lines::TURN_NOT_SHOWN.text();

/// Text of a transcript in place of what was erased.
const ERASED: &str = lines::ERASED.text();

impl TurnRecord {
    /// Returns the number of messages that it added to a conversation.
    pub fn items(&self) -> usize {
        self.heard.len() + self.said.len()
    }

    /// Returns the turn as the approvals of its calls identify it.
    pub const fn reply_turn(&self) -> ReplyTurn {
        let start = match self.served {
            Some(received) => ReplyStart::Served { start: self.start, received },
            None if self.dated => ReplyStart::Dated(self.start),
            None => ReplyStart::Undated(self.start),
        };
        ReplyTurn { number: self.turn, start }
    }

    /// Returns its authority at the time of the model call.
    pub fn call_authority(&self) -> &Authority {
        self.wider.as_ref().unwrap_or(&self.authority)
    }

    /// Returns the turn as a reader may see it: of a turn with more authority only its times and its use.
    #[must_use]
    pub fn visible_to(self, reader: &Authority) -> Self {
        if reader.covers_reading(self.call_authority()) {
            return self;
        }
        Self {
            turn: self.turn,
            start: self.start,
            end: self.end,
            config_version: self.config_version,
            model: self.model,
            usage: self.usage,
            frame: self.frame,
            settles: self.settles,
            said: vec![ChatMessage::assistant(WITHHELD.to_owned(), Vec::new())],
            hidden: true,
            ..Self::default()
        }
    }

    /// Returns the record without its texts: times, use and calls stay.
    #[must_use]
    pub fn erase(self) -> Self {
        let heard = self.heard.into_iter().map(|heard| CallerMessage {
            text: ERASED.to_owned(),
            attachments: Vec::new(),
            ..heard
        });
        let said = (!self.said.is_empty()).then(|| ChatMessage::assistant(ERASED.to_owned(), Vec::new()));
        let calls = self.calls.into_iter().map(|call| CallRecord {
            instance: None,
            scoped: Vec::new(),
            needs: Vec::new(),
            note: None,
            reads: Some(Vec::new()),
            ..call
        });
        Self {
            heard: heard.collect(),
            said: said.into_iter().collect(),
            calls: calls.collect(),
            used: self.used.map(|_| Vec::new()),
            // A provider may have repeated the text that it refused.
            failed_models: Vec::new(),
            erased: true,
            ..self
        }
    }
}

/// A message of a caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CallerMessage {
    /// Job of the message, if it is a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Text as it was shown.
    pub text: String,
    /// Assets that were shown with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<AssetId>,
}

/// A tool call of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallRecord {
    /// Name by which the model called the tool.
    pub tool: String,
    /// Operation of the call: a path of the catalogue or a tool of the runtime.
    pub operation: String,
    /// Outcome: `ok`, `error`, `denied`, `unknown tool`, `refused scope`, `bad arguments`, `limit reached`,
    /// `cancelled`, `outcome unknown`, `awaiting approval` or `rejected`.
    pub outcome: String,
    /// Start of the first attempt of the call, by any worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub began: Option<Millis>,
    /// Decision of a person, if one was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<DecidedCall>,
    /// Instance that the call was about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Sections of the context that went with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scoped: Vec<HandOffRecord>,
    /// Capabilities that it used, on physical names; without those that are always held.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<Capability>,
    /// Whether it took effect when it was made, rather than with the commit of its turn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub went_out: bool,
    /// Text of the venue above its result: who changed the call before it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Reads for it; unknown for calls that older builds made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<Vec<SourceRead>>,
    /// Marks with which it left the venue: absent for a call that did not, or changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<SentMarks>,
}
