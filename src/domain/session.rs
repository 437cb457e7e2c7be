//! Session state between turns, and the record that every turn leaves.

use crate::approval::{Awaiting, DecidedCall};
use crate::authority::{Authority, Capability};
use crate::budget::Deadline;
use crate::call::{ReplyStart, ReplyTurn};
use crate::chat::{ChatMessage, Usage};
use crate::event::Mandate;
use crate::goal::Goals;
use crate::ids::{AgentId, AssetId, EventId, JobId};
use crate::job::JobStatus;
use crate::kept::KeptKeys;
use crate::lines;
use crate::load::Load;
use crate::origin::Seen;
use crate::prefix::StablePrefix;
use crate::scope::HandedOn;
use crate::spend::{Tally, Today};
use crate::time::Millis;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What a session remembers from turn to turn, apart from its turn records.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionState {
    /// What people call it; no prompt has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Child jobs whose results are awaited.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pending: BTreeMap<JobId, PendingJob>,
    /// The task being served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskProgress>,
    /// Paths that it asked to see, the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<Load>,
    /// Catalog paths of operations that it found with `more_tools`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// The turn before left nothing to do until a result or a message arrives.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parked: bool,
    /// Mailbox keys of messages and results that a turn without a task has shown and not yet
    /// finished with: its model must still see the results of its tools. They stay in the mailbox
    /// until then, for what is in no mailbox is forgotten when a worker dies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shown: Vec<String>,
    /// The request whose loose run goes on while `shown` is not empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under: Option<Mandate>,
    /// Calls that wait for a person. No model is asked as long as there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaiting: Option<Awaiting>,
    /// Its goals, and what of its turns was compacted.
    #[serde(default, skip_serializing_if = "Goals::is_empty")]
    pub goals: Goals,
    /// Turns since the last message or the last text, without a task: bounds what no task bounds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub loose_turns: u32,
    /// Turns up to this one are of a conversation whose time was over: no prompt has them.
    #[serde(default, skip_serializing_if = "is_none")]
    pub since: u64,
    /// When it was made as a copy, with its turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied: Option<Millis>,
    /// Child jobs, messages and timers begun for the task, or since the last text without one: bounds
    /// what parking and waking again doesn't end.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub children: u32,
    /// What it has used on the day of its last model call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub today: Option<Today>,
    /// What the last prompt of each open goal frame had in its stable part, by the frame's number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub prefixes: BTreeMap<u32, StablePrefix>,
    /// Of a newer build.
    #[serde(flatten)]
    pub kept: KeptKeys,
}

impl SessionState {
    /// What it does that needs its turns as they are: their results are still to be seen, or filled in.
    pub const fn is_at_work(&self) -> Option<&'static str> {
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

    /// The task has ended: its children are not awaited any more.
    pub fn end_task(&mut self) {
        self.task = None;
        self.parked = false;
        self.children = 0;
        self.goals.end();
        self.pending.retain(|_, pending| pending.under.is_some());
    }

    /// What a copy of the session up to and with turn `at`, made at `now`, begins with: nothing that another
    /// session waits for or serves, and no summary of later turns.
    #[must_use]
    pub fn forked(mut self, at: u64, now: Millis) -> Self {
        self.end_task();
        self.goals.segments.retain(|segment| segment.to <= at);
        self.pending.clear();
        self.shown.clear();
        // Whoever names a turn of a conversation that is over wants just that one.
        let since = if at > self.since { self.since } else { 0 };
        Self { under: None, awaiting: None, loose_turns: 0, since, copied: Some(now), today: None, ..self }
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
    /// Who serves it.
    pub agent: AgentId,
    /// Since when.
    pub started: Millis,
    /// The request in whose service it was started, when no task is: its result runs under that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under: Option<Mandate>,
    /// The goal that waits for it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub frame: u32,
}

/// How far the task being served is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskProgress {
    /// Its job.
    pub job: JobId,
    /// Turns that served it.
    pub turns: u32,
    /// It was told that text alone, or nothing at all, doesn't complete the task.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reminded: bool,
    /// Answers that were given back because they were not what its outputs must be.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub refused: u32,
    /// It has reached its limit of turns, and has one more to end in.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub winding: bool,
    /// When its time is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Deadline>,
    /// What it has used; of one that an older version has begun it isn't known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tally: Option<Tally>,
}

impl TaskProgress {
    /// Of a task that no turn has served.
    pub fn new(job: JobId) -> Self {
        let tally = Some(Tally::default());
        Self { job, turns: 0, reminded: false, refused: 0, winding: false, deadline: None, tally }
    }
}

/// What a turn leaves: a line of the timeline and its part of the transcript.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnRecord {
    /// Its number in the session, from 1.
    pub turn: u64,
    /// When it began.
    pub start: Millis,
    /// When it was decided.
    pub end: Millis,
    /// The configuration that it ran with.
    pub config_version: u64,
    /// Name of the worker that committed it; older records don't say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub worker: String,
    /// The model that answered, `provider/name`; of a turn without a reply the agent's own.
    pub model: String,
    /// Models of the agent that were to be asked before and gave no reply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_models: Vec<FailedModel>,
    /// What the model call cost.
    pub usage: Usage,
    /// The task that it served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Events that it consumed or began to serve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventId>,
    /// What the caller said, as the transcript shows it; of a task only in its first turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heard: Vec<Heard>,
    /// What the model said and what its calls returned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<ChatMessage>,
    /// The calls, with what they really were.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallRecord>,
    /// Jobs that it ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<(JobId, JobStatus)>,
    /// What it was allowed to do: a turn that may not do as much doesn't see it.
    #[serde(default, skip_serializing_if = "Authority::is_unlimited")]
    pub authority: Authority,
    /// What it was allowed to do when its model was asked, where something was taken back before its
    /// commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wider: Option<Authority>,
    /// What the request that it served may do at most.
    #[serde(default, skip_serializing_if = "Authority::is_unlimited")]
    pub bound: Authority,
    /// What its prompt was read by, the conversation excepted; absent in records that don't say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Vec<Capability>>,
    /// The earlier turn whose calls it made, once a person had decided on them: it has no part of the
    /// transcript of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settles: Option<u64>,
    /// Calls of it wait for a person, and their ids have its start in them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dated: bool,
    /// The goal that it worked on; 0 = the session's conversation.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub frame: u32,
    /// SHA-256 of the prompt.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prompt: String,
    /// What was said in it was erased.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub erased: bool,
    /// What was said in it is not shown to who asks. Never stored so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
}

/// A model that gave no reply in a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedModel {
    /// `provider/name`.
    pub model: String,
    /// What its provider said, or which limit didn't let it be asked.
    pub reason: String,
}

/// Stands in a record for what its reader may not read.
pub const WITHHELD: &str = lines::TURN_NOT_SHOWN.text();

/// Stands in a transcript where something was erased.
const ERASED: &str = lines::ERASED.text();

impl TurnRecord {
    /// Items of a conversation that it added: what it heard and what it said.
    pub fn items(&self) -> usize {
        self.heard.len() + self.said.len()
    }

    /// The turn as its calls are known by that a person decides on.
    pub const fn reply_turn(&self) -> ReplyTurn {
        let start = if self.dated { ReplyStart::Dated(self.start) } else { ReplyStart::Undated(self.start) };
        ReplyTurn { number: self.turn, start }
    }

    /// What it was allowed to do when its model was asked.
    pub fn under(&self) -> &Authority {
        self.wider.as_ref().unwrap_or(&self.authority)
    }

    /// The turn as a reader may see it: one of more authority only says that it was, and what it cost.
    #[must_use]
    pub fn seen_by(self, reader: &Authority) -> Self {
        if reader.covers_reading(self.under()) {
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

    /// As a record without the books of authority: they name what the runtime has filled in, which is in
    /// no transcript.
    fn bare(&self) -> Value {
        let mut turn = json!(self);
        if let Some(map) = turn.as_object_mut() {
            map.retain(|key, _| !["authority", "wider", "bound", "used", "dated"].contains(&key.as_str()));
        }
        // What a model reasoned is for that model alone.
        let said = turn.get_mut("said").and_then(Value::as_array_mut);
        for message in said.into_iter().flatten().filter_map(Value::as_object_mut) {
            message.shift_remove("reasoning");
        }
        // Never by index: that would put a `null` where nothing is.
        let calls = turn.get_mut("calls").and_then(Value::as_array_mut);
        for call in calls.into_iter().flatten().filter_map(Value::as_object_mut) {
            call.retain(|key, _| !["needs", "reads"].contains(&key.as_str()));
        }
        turn
    }

    /// The same with arguments as the model wrote them.
    pub fn shown(&self) -> Value {
        self.as_written(self.bare())
    }

    /// The record with arguments as the model wrote them.
    pub fn whole(&self) -> Value {
        self.as_written(json!(self))
    }

    fn as_written(&self, mut turn: Value) -> Value {
        let said = turn.get_mut("said").and_then(Value::as_array_mut);
        for (said, message) in said.into_iter().flatten().zip(&self.said) {
            let ChatMessage::Assistant { calls, .. } = message else { continue };
            let shown = said.get_mut("calls").and_then(Value::as_array_mut);
            for (shown, call) in shown.into_iter().flatten().zip(calls) {
                shown["arguments"] = call.arguments.shown();
            }
        }
        turn
    }

    /// The same without anything that was said: when it was, what it cost and what it did stays.
    #[must_use]
    pub fn erase(self) -> Self {
        let heard =
            self.heard.into_iter().map(|heard| Heard { text: ERASED.to_owned(), attachments: Vec::new(), ..heard });
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
            // A provider may have repeated what it refused.
            failed_models: Vec::new(),
            erased: true,
            ..self
        }
    }
}

/// Something that a caller said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    /// The task that it is, when it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// As it was shown.
    pub text: String,
    /// Assets that were shown with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<AssetId>,
}

/// A tool call of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallRecord {
    /// The name that the model used.
    pub tool: String,
    /// What it was: a catalog path or a harness tool.
    pub operation: String,
    /// `ok`, `error`, `denied`, `unknown tool`, `refused scope`, `bad arguments`, `limit reached`, `cancelled`,
    /// `outcome unknown`, `awaiting approval` or `rejected`.
    pub outcome: String,
    /// When it was first made, by whichever worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<Millis>,
    /// How it was decided on, where a person was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<DecidedCall>,
    /// The instance that it was about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// What of the context went with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scoped: Vec<HandedOn>,
    /// The capabilities that it was made by, on physical names; none that are always held.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<Capability>,
    /// It took effect when it was made, and not with the commit of its turn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub went_out: bool,
    /// What the venue says above its result: who has changed it before it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What was read for it; of calls that older versions have made that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<Vec<Seen>>,
}
