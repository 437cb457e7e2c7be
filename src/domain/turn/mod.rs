//! The turn as a state machine: it takes observations and returns the next action, which `worker` does.
//!
//! ```text
//! Gather ─▶ Ask ─▶ (reply asks for tools: Record ─▶ Call) ─▶ Commit
//!   │        │                                    ▲
//!   │        ├─ provider unavailable ─▶ Wait      │
//!   │        └─ provider unusable ─▶ Suspend      ├─ resumed from a recorded reply
//!   │                                             └─ calls that a person has decided on
//!   └─ required context missing or too large ─▶ Commit (the task fails)
//! ```
//!
//! In a pipeline `Decide` takes the place of `Gather` and `Ask`: the manifest decides the calls, no model is asked.
//!
//! After a crash at any arrow the store has: before `Record` nothing, after it the reply.

pub mod decide;
pub mod endings;
pub mod fallback;
pub mod options;
mod outcome;
mod pipeline;
mod plan;
mod record;
mod recorded_reply;
mod reply_room;
pub mod run;
pub mod scoped;
mod turn_input;
mod final_turn;
mod settle;
mod spend;
#[cfg(test)]
mod tests;
mod typed_output;
mod verdict;

use crate::approval::{ApprovalAnswer, AwaitingCall, DecidedCall, Ruling};
use crate::authority::Capability;
use crate::call::{Outcome, PlannedCall, ReplyTurn};
use crate::chat::{ModelRequest, Reply};
use crate::context::assemble::{AssembledPrompt, ContextError, assemble};
use crate::context::inputs::{Inputs, ShownEvent};
use crate::context::ledger::{PromptLedger, Row};
use crate::context::record::{LedgerWrite, RecordWriter};
use crate::context::sight;
use crate::job::ErrorCode;
use crate::prefix::StablePrefix;
use crate::session::TurnRecord;
use crate::time::Millis;
use crate::tools::ToolTable;
use crate::turn::scoped::Sections;
use decide::Decision;
use fallback::ModelCalls;
pub use fallback::ModelFailure;
pub use final_turn::{FinalTurn, limit_code};
pub use outcome::{ApprovalRequest, CallOutcome};
pub use recorded_reply::RecordedReply;
use serde_json::Value;
use settle::SettlingCalls;
use std::sync::Arc;
pub use turn_input::{NextTurn, TaskRefusal, TurnInput};

/// The next action of the worker.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Fetch the inputs of the prompt.
    Gather,
    /// Find the tools that the pipeline may call.
    Decide,
    /// Ask the model with this request.
    Ask(Box<ModelRequest>),
    /// Record the reply in the store.
    Record(Box<RecordedReply>),
    /// Make these calls, each with its index in the reply.
    Call(Vec<(u32, PlannedCall)>),
    /// Release the lease and try later; nothing is committed.
    Wait {
        /// Reason for the log.
        reason: String,
    },
    /// Suspend the agent and release the lease; nothing is committed.
    Suspend {
        /// Reason for the person who repairs it.
        reason: String,
    },
    /// Commit this decision.
    Commit(Box<Decision>),
}

/// The result of an action.
#[derive(Debug, Clone)]
pub enum Observation {
    /// Inputs of the prompt, and the writer of their record.
    Gathered(Box<Inputs>, Box<RecordWriter>),
    /// Tools that the pipeline may call.
    Offered(Arc<ToolTable>),
    /// A reply of the model, or why there is none.
    Answered(Result<Reply, ModelFailure>),
    /// The reply is recorded in the store.
    Recorded,
    /// Outcomes of the calls, in the order of [`Action::Call`].
    Called(Vec<CallOutcome>),
    /// The served task was cancelled, and the turn must end consistently. Holds the known outcomes of calls that can't
    /// be undone, with their index in the reply.
    Cancelled(Vec<(u32, CallOutcome)>),
}

#[derive(Debug, Clone, PartialEq)]
enum TurnPhase {
    Gathering,
    Asking(Box<AwaitedReply>),
    Recording(Box<RecordedReply>),
    Calling(Box<RecordedReply>),
    /// Making calls of an earlier reply.
    Settling(Box<SettlingCalls>),
    Decided,
}

/// Data of a prompt that is needed when its reply arrives.
#[derive(Debug, Clone, PartialEq)]
struct AwaitedReply {
    ledger: PromptLedger,
    write: LedgerWrite,
    shown: Vec<ShownEvent>,
    unpinned: Vec<String>,
    tools: Arc<ToolTable>,
    sections: Sections,
    used: Vec<Capability>,
    prefix: Option<StablePrefix>,
}

/// A running turn.
#[derive(Debug, Clone)]
pub struct Turn {
    /// Boxed because it is large and moves often.
    input: Box<TurnInput>,
    phase: TurnPhase,
    /// Calls of the turn, each with its index in the reply.
    calls: Vec<(u32, PlannedCall)>,
    /// The models that were asked, and what they have used.
    asked: ModelCalls,
    /// Bytes of the budget that the prompt has left; 0 without a prompt.
    bytes_left: usize,
}

impl Turn {
    fn in_phase(turn_input: Box<TurnInput>, phase: TurnPhase) -> Self {
        Self { input: turn_input, phase, calls: Vec::new(), asked: ModelCalls::default(), bytes_left: 0 }
    }

    /// Begins a turn; a task whose time is over winds down or fails.
    pub fn begin(turn_input: impl Into<Box<TurnInput>>, now: Millis) -> (Self, Action) {
        let mut turn_input = turn_input.into();
        match turn_input.overdue_limit(now) {
            Some(last) if turn_input.may_wind_down() && turn_input.config.pipeline.is_none() => {
                turn_input.last = Some(last);
            }
            Some(FinalTurn { code, reason }) if turn_input.last.is_none() => {
                // Events of others stay for the next turn.
                let decision = decide::on_failure(&turn_input, &turn_input.plan.first_event_key(), code, &reason, now);
                return (Self::in_phase(turn_input, TurnPhase::Decided), Action::Commit(Box::new(decision)));
            }
            Some(_) | None => {}
        }
        let first = if turn_input.config.pipeline.is_some() { Action::Decide } else { Action::Gather };
        (Self::in_phase(turn_input, TurnPhase::Gathering), first)
    }

    /// Continues a turn whose reply a predecessor has recorded; no model is asked. If its task has ended meanwhile, the
    /// reply has no effect except the outcomes in `noted`, which the predecessor knows of its calls, by their index in
    /// the reply.
    pub fn resume(
        turn_input: impl Into<Box<TurnInput>>,
        recorded: RecordedReply,
        noted: &[(u32, CallOutcome)],
        now: Millis,
    ) -> (Self, Action) {
        let turn_input = turn_input.into();
        if recorded.job.as_ref() != turn_input.plan.job() {
            let calls = recorded.model_calls(&turn_input);
            let decision =
                decide::on_cancellation(&turn_input, Some(&recorded), noted, now).with_usage(&turn_input, &calls);
            return (Self::in_phase(turn_input, TurnPhase::Decided), Action::Commit(Box::new(decision)));
        }
        let asked = recorded.model_calls(&turn_input);
        let mut turn = Self { asked, ..Self::in_phase(turn_input, TurnPhase::Gathering) };
        let action = turn.begin_calls(recorded);
        (turn, action)
    }

    /// Makes the calls of an earlier reply, `exchange`, on which a person has decided. No model is asked.
    ///
    /// For a call that a predecessor has made, its outcome in `noted` counts, even if the call would be cancelled
    /// otherwise.
    pub fn settle(
        turn_input: impl Into<Box<TurnInput>>,
        exchange: TurnRecord,
        decided: Vec<(AwaitingCall, ApprovalAnswer)>,
        noted: &[(u32, CallOutcome)],
    ) -> (Self, Action) {
        let rule = |(call, answer): (AwaitingCall, ApprovalAnswer)| {
            let known = noted.iter().find(|(at, _)| *at == call.call);
            let ruling = match (answer.ruling(&call.planned), known) {
                (Ruling::Say(Outcome::Cancelled, _), Some((_, known))) => {
                    Ruling::Say(known.outcome, known.text.clone())
                }
                (ruling, _) => ruling,
            };
            (answer.to_record(&call.approval), call, ruling)
        };
        let ruled: Vec<_> = decided.into_iter().map(rule).collect();
        let approved = |(_, call, ruling): &(DecidedCall, AwaitingCall, Ruling)| match ruling {
            Ruling::Make { planned, .. } => Some((call.call, PlannedCall::clone(planned))),
            Ruling::Say(..) => None,
        };
        let calls: Vec<_> = ruled.iter().filter_map(approved).collect();
        let mut turn = Self::in_phase(
            turn_input.into(),
            TurnPhase::Settling(Box::new(SettlingCalls { exchange, rulings: ruled })),
        );
        turn.calls.clone_from(&calls);
        (turn, Action::Call(calls))
    }

    /// Begins to make the calls of a recorded reply.
    fn begin_calls(&mut self, recorded: RecordedReply) -> Action {
        self.calls = (0..).zip(recorded.calls.clone()).collect();
        self.phase = TurnPhase::Calling(Box::new(recorded));
        Action::Call(self.calls.clone())
    }

    /// Ends events during which too many workers died, with a note in the transcript.
    pub fn give_up(turn_input: impl Into<Box<TurnInput>>, now: Millis) -> (Self, Action) {
        Self::refuse(turn_input, ErrorCode::Dead, "given up: workers died while serving it", now)
    }

    /// Ends events that get no prompt, with a note in the transcript.
    pub fn refuse(turn_input: impl Into<Box<TurnInput>>, code: ErrorCode, error: &str, now: Millis) -> (Self, Action) {
        let turn_input = turn_input.into();
        let decision = decide::on_failure(&turn_input, &turn_input.plan.event_keys(), code, error, now);
        (Self::in_phase(turn_input, TurnPhase::Decided), Action::Commit(Box::new(decision)))
    }

    /// Returns the input of the turn.
    pub fn input(&self) -> &TurnInput {
        &self.input
    }

    /// Returns the turn whose reply has the calls.
    pub fn reply_turn(&self) -> ReplyTurn {
        let number = self.input.turn;
        match &self.phase {
            TurnPhase::Settling(settling) => settling.exchange.reply_turn(),
            TurnPhase::Recording(recorded) | TurnPhase::Calling(recorded) => {
                ReplyTurn { number, start: recorded.start }
            }
            TurnPhase::Gathering | TurnPhase::Asking(_) | TurnPhase::Decided => {
                ReplyTurn { number, start: self.input.reply_start() }
            }
        }
    }

    /// Returns the bytes of the prompt that the model is answering; 0 in other phases.
    pub fn prompt_bytes(&self) -> usize {
        self.awaited_reply().map_or(0, |asking| asking.ledger.used)
    }

    /// Returns the hash of the prompt that the model is answering; `None` in other phases.
    pub fn prompt_hash(&self) -> Option<&str> {
        self.awaited_reply().map(|asking| asking.ledger.prompt.as_str())
    }

    /// Returns the parts of the prompt that the model is answering; none in other phases.
    pub fn prompt_rows(&self) -> &[Row] {
        self.awaited_reply().map_or(&[], |asking| &asking.ledger.rows)
    }

    /// Returns whether the prompt that the model is answering continues the last one of its session; `None` for a first
    /// prompt, and where the layout has no stable prefix.
    pub fn keeps_prefix(&self) -> Option<bool> {
        let now = self.awaited_reply()?.prefix.as_ref()?;
        let state = &self.input.state;
        let before = state.prefixes.get(&state.goals.active_id())?;
        Some(now.continues(before))
    }

    fn awaited_reply(&self) -> Option<&AwaitedReply> {
        match &self.phase {
            TurnPhase::Asking(asking) => Some(asking),
            TurnPhase::Gathering
            | TurnPhase::Recording(_)
            | TurnPhase::Calling(_)
            | TurnPhase::Settling(_)
            | TurnPhase::Decided => None,
        }
    }

    /// Returns the bytes of the budget that the prompt has left; 0 without a prompt.
    pub const fn bytes_left(&self) -> usize {
        self.bytes_left
    }

    /// Returns the calls of the turn, each with its index in the reply.
    pub fn calls(&self) -> &[(u32, PlannedCall)] {
        &self.calls
    }

    /// Hides secrets in the transcript; the calls themselves keep them.
    pub fn hide_secrets(&mut self, hide: impl Fn(&str, &mut Value)) {
        if let TurnPhase::Recording(recorded) = &mut self.phase {
            recorded.hide_secrets(hide);
        }
    }

    /// Takes an observation and returns the next action. Every legal pair of phase and observation is listed; any other
    /// pair is a bug of the worker and ends the turn with an internal error rather than a wrong commit.
    fn observe(&mut self, observed: Observation, now: Millis) -> Action {
        let phase = std::mem::replace(&mut self.phase, TurnPhase::Decided);
        match (phase, observed) {
            (TurnPhase::Gathering, Observation::Gathered(inputs, scribe)) => self.on_gathered(&inputs, &scribe, now),
            (TurnPhase::Gathering, Observation::Offered(tools)) => self.on_offered(&tools, now),
            (TurnPhase::Asking(asking), Observation::Answered(Ok(reply))) => self.on_reply(*asking, reply, now),
            (TurnPhase::Asking(asking), Observation::Answered(Err(failure))) => self.on_failure(*asking, failure, now),
            (TurnPhase::Recording(recorded), Observation::Recorded) => self.begin_calls(*recorded),
            (TurnPhase::Calling(recorded), Observation::Called(outcomes)) => {
                Action::Commit(Box::new(match &recorded.pipeline {
                    Some(_) => pipeline::on_outcomes(&self.input, &recorded, outcomes, now),
                    None => decide::on_reply(&self.input, &recorded, outcomes, now),
                }))
            }
            (TurnPhase::Settling(settling), Observation::Called(outcomes)) => {
                Action::Commit(Box::new(settle::on_outcomes(&self.input, *settling, outcomes, now)))
            }
            (TurnPhase::Settling(settling), Observation::Cancelled(noted)) => {
                Action::Commit(Box::new(settle::on_cancellation(&self.input, *settling, &noted, now)))
            }
            (TurnPhase::Recording(recorded) | TurnPhase::Calling(recorded), Observation::Cancelled(noted)) => {
                Action::Commit(Box::new(decide::on_cancellation(&self.input, Some(&recorded), &noted, now)))
            }
            (TurnPhase::Asking(asking), Observation::Cancelled(_)) => {
                Action::Commit(Box::new(decide::on_cancellation(&self.input, None, &[], now).with_ledger(asking.write)))
            }
            (TurnPhase::Gathering | TurnPhase::Decided, Observation::Cancelled(_)) => {
                Action::Commit(Box::new(decide::on_cancellation(&self.input, None, &[], now)))
            }
            (
                TurnPhase::Gathering
                | TurnPhase::Asking(_)
                | TurnPhase::Recording(_)
                | TurnPhase::Calling(_)
                | TurnPhase::Settling(_)
                | TurnPhase::Decided,
                Observation::Gathered(..)
                | Observation::Offered(_)
                | Observation::Answered(_)
                | Observation::Recorded
                | Observation::Called(_),
            ) => {
                let text = "the turn was driven out of order; this is a bug of the venue";
                Action::Commit(Box::new(decide::on_failure(
                    &self.input,
                    &self.input.plan.event_keys(),
                    ErrorCode::Internal,
                    text,
                    now,
                )))
            }
        }
    }

    fn on_gathered(&mut self, inputs: &Inputs, scribe: &RecordWriter, now: Millis) -> Action {
        match assemble(inputs) {
            Ok(assembled) => {
                let sections = Sections::capture(inputs, &assembled);
                let AssembledPrompt { request, ledger, shown, unpinned, conversation: _, prefix, tiles: _ } = assembled;
                self.bytes_left = ledger.budget.bytes.saturating_sub(ledger.used);
                let tools = Arc::clone(&inputs.tools);
                let used = sight::used_capabilities(&inputs.items, &inputs.attachments, &self.input.authority);
                let write = scribe.write(self.input.turn, inputs, &ledger);
                let asking = AwaitedReply { ledger, write, shown, unpinned, tools, sections, used, prefix };
                self.phase = TurnPhase::Asking(Box::new(asking));
                Action::Ask(Box::new(request))
            }
            Err(refused) => {
                let code = match refused.error {
                    ContextError::Overflow { .. } => ErrorCode::ContextOverflow,
                    ContextError::Unresolved(_) => ErrorCode::PlaceholderUnresolved,
                    ContextError::RequiredMissing { .. } => ErrorCode::ContextRequiredMissing,
                };
                let failed = decide::on_failure(
                    &self.input,
                    &self.input.plan.first_event_key(),
                    code,
                    &refused.error.to_string(),
                    now,
                );
                let write = scribe.write(self.input.turn, inputs, &refused.ledger);
                Action::Commit(Box::new(failed.with_ledger(write)))
            }
        }
    }

    fn on_reply(&mut self, asking: AwaitedReply, mut reply: Reply, now: Millis) -> Action {
        let room = reply_room::next_prompt_room(&asking.ledger);
        let left_out = reply_room::leave_out_calls(&mut reply, &asking.tools, room);
        let calls = plan::calls(&mut reply.calls, &asking.tools, &asking.sections);
        let calls = if reply.truncated { plan::without_incomplete_call(calls, &reply.calls) } else { calls };
        let calls = reply_room::with_last_unmade(calls, left_out);
        let (begun, shown) = (decide::begun_task(&self.input), asking.shown.iter());
        let heard = begun.map(|event| decide::transcript_entry(event, self.input.config.prompt_style()));
        let recorded = RecordedReply {
            job: self.input.plan.job().cloned(),
            calls,
            prompt: asking.ledger.prompt,
            consume: shown.clone().map(|event| event.key.clone()).collect(),
            heard: shown.clone().map(ShownEvent::transcript_entry).chain(heard).collect(),
            events: shown.map(|event| event.id.clone()).chain(begun.map(|event| event.id.clone())).collect(),
            unpinned: asking.unpinned,
            start: self.input.reply_start(),
            config_version: self.input.config_version,
            authority: self.input.authority.clone(),
            used: asking.used,
            frame: self.input.state.goals.active_id(),
            last: self.input.last.clone(),
            ledger: Some(asking.write),
            prefix: asking.prefix,
            spent: self.asked.total(),
            asked: (!self.asked.is_single_model()).then(|| self.asked.clone()),
            pipeline: None,
            reply,
        };
        if recorded.calls.is_empty() {
            return Action::Commit(Box::new(decide::on_reply(&self.input, &recorded, Vec::new(), now)));
        }
        self.phase = TurnPhase::Recording(Box::new(recorded.clone()));
        Action::Record(Box::new(recorded))
    }

    fn on_failure(&mut self, asking: AwaitedReply, failure: ModelFailure, now: Millis) -> Action {
        match failure {
            ModelFailure::Transient { reason, exhausted: false } => Action::Wait { reason },
            ModelFailure::Unusable { reason } => Action::Suspend { reason },
            ModelFailure::LimitReached(last) if self.input.may_wind_down() => {
                self.input.last = Some(last);
                self.phase = TurnPhase::Gathering;
                Action::Gather
            }
            ModelFailure::LimitReached(FinalTurn { code, reason }) => {
                let shown: Vec<_> = asking.shown.into_iter().map(|event| event.key).collect();
                let failed = decide::on_failure(&self.input, &shown, code, &reason, now);
                Action::Commit(Box::new(failed.with_ledger(asking.write)))
            }
            ModelFailure::Transient { reason, exhausted: true }
            | ModelFailure::Permanent { reason }
            | ModelFailure::Declined { reason } => {
                let shown: Vec<_> = asking.shown.into_iter().map(|event| event.key).collect();
                let failed = decide::on_failure(&self.input, &shown, ErrorCode::ModelError, &reason, now);
                Action::Commit(Box::new(failed.with_ledger(asking.write)))
            }
        }
    }
}
