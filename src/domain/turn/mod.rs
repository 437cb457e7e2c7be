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
//! After a crash at any arrow the store has: before `Record` nothing, after it the reply.

pub mod decide;
pub mod ends;
pub mod fallback;
pub mod options;
mod outcome;
mod plan;
mod record;
mod recorded;
mod reply_room;
pub mod run;
pub mod scoped;
mod setting;
mod settle;
mod spend;
#[cfg(test)]
mod tests;
mod typed;
mod verdict;

use crate::approval::{Answer, AwaitingCall, DecidedCall, Ruling};
use crate::authority::Capability;
use crate::call::{Outcome, PlannedCall, ReplyStart, ReplyTurn};
use crate::chat::{ModelRequest, Reply};
use crate::context::assemble::{Assembled, ContextError, assemble};
use crate::context::inputs::{Inputs, ShownEvent};
use crate::context::ledger::Ledger;
use crate::context::record::{LedgerWrite, Scribe};
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
pub use outcome::{Asked, CallOutcome};
pub use recorded::Recorded;
use serde_json::Value;
pub use setting::{Last, Setting, code_of};
use std::sync::Arc;

/// The next action of the worker.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Fetch the inputs of the prompt.
    Gather,
    /// Ask the model with this request.
    Ask(Box<ModelRequest>),
    /// Record the reply in the store.
    Record(Box<Recorded>),
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
pub enum Observed {
    /// Inputs of the prompt, and the writer of their record.
    Gathered(Box<Inputs>, Box<Scribe>),
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
enum Phase {
    Gathering,
    Asking(Box<Asking>),
    Recording(Box<Recorded>),
    Calling(Box<Recorded>),
    /// Making calls of an earlier reply.
    Settling(Box<Settling>),
    Decided,
}

/// Calls of an earlier reply on which a person has decided.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Settling {
    /// The turn with the reply that has the calls.
    exchange: TurnRecord,
    /// The ruling on each call, and who decided.
    ruled: Vec<(DecidedCall, AwaitingCall, Ruling)>,
}

/// Data of a prompt that is needed when its reply arrives.
#[derive(Debug, Clone, PartialEq)]
struct Asking {
    ledger: Ledger,
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
    setting: Box<Setting>,
    phase: Phase,
    /// Calls of the turn, each with its index in the reply.
    calls: Vec<(u32, PlannedCall)>,
    /// The models that were asked, and what they have used.
    asked: ModelCalls,
    /// Bytes of the budget that the prompt has left; 0 without a prompt.
    bytes_left: usize,
}

impl Turn {
    fn at(setting: Box<Setting>, phase: Phase) -> Self {
        Self { setting, phase, calls: Vec::new(), asked: ModelCalls::default(), bytes_left: 0 }
    }

    /// Begins a turn; a task whose time is over winds down or fails.
    pub fn begin(setting: impl Into<Box<Setting>>, now: Millis) -> (Self, Action) {
        let mut setting = setting.into();
        match setting.overdue(now) {
            Some(last) if setting.may_wind_down() => setting.last = Some(last),
            Some(Last { code, reason }) if setting.last.is_none() => {
                // Events of others stay for the next turn.
                let decision = decide::failed(&setting, &setting.plan.reason(), code, &reason, now);
                return (Self::at(setting, Phase::Decided), Action::Commit(Box::new(decision)));
            }
            Some(_) | None => {}
        }
        (Self::at(setting, Phase::Gathering), Action::Gather)
    }

    /// Continues a turn whose reply a predecessor has recorded; no model is asked. If its task has ended meanwhile, the
    /// reply has no effect except the outcomes in `noted`, which the predecessor knows of its calls, by their index in
    /// the reply.
    pub fn resume(
        setting: impl Into<Box<Setting>>,
        recorded: Recorded,
        noted: &[(u32, CallOutcome)],
        now: Millis,
    ) -> (Self, Action) {
        let setting = setting.into();
        if recorded.job.as_ref() != setting.plan.job() {
            let calls = recorded.calls(&setting);
            let decision = decide::cancelled(&setting, Some(&recorded), noted, now).paid(&setting, &calls);
            return (Self::at(setting, Phase::Decided), Action::Commit(Box::new(decision)));
        }
        let asked = recorded.calls(&setting);
        let mut turn = Self { asked, ..Self::at(setting, Phase::Gathering) };
        let action = turn.call(recorded);
        (turn, action)
    }

    /// Makes the calls of an earlier reply, `exchange`, on which a person has decided. No model is asked.
    ///
    /// For a call that a predecessor has made, its outcome in `noted` counts, even if the call would be cancelled
    /// otherwise.
    pub fn settle(
        setting: impl Into<Box<Setting>>,
        exchange: TurnRecord,
        decided: Vec<(AwaitingCall, Answer)>,
        noted: &[(u32, CallOutcome)],
    ) -> (Self, Action) {
        let rule = |(call, answer): (AwaitingCall, Answer)| {
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
        let mut turn = Self::at(setting.into(), Phase::Settling(Box::new(Settling { exchange, ruled })));
        turn.calls.clone_from(&calls);
        (turn, Action::Call(calls))
    }

    /// Begins to make the calls of a recorded reply.
    fn call(&mut self, recorded: Recorded) -> Action {
        self.calls = (0..).zip(recorded.calls.clone()).collect();
        self.phase = Phase::Calling(Box::new(recorded));
        Action::Call(self.calls.clone())
    }

    /// Ends events during which too many workers died, with a note in the transcript.
    pub fn give_up(setting: impl Into<Box<Setting>>, now: Millis) -> (Self, Action) {
        Self::refuse(setting, ErrorCode::Dead, "given up: workers died while serving it", now)
    }

    /// Ends events that get no prompt, with a note in the transcript.
    pub fn refuse(setting: impl Into<Box<Setting>>, code: ErrorCode, error: &str, now: Millis) -> (Self, Action) {
        let setting = setting.into();
        let decision = decide::failed(&setting, &setting.plan.consumed(), code, error, now);
        (Self::at(setting, Phase::Decided), Action::Commit(Box::new(decision)))
    }

    /// Returns the setting of the turn.
    pub fn setting(&self) -> &Setting {
        &self.setting
    }

    /// Returns the turn whose reply has the calls.
    pub const fn reply_turn(&self) -> ReplyTurn {
        let number = self.setting.turn;
        match &self.phase {
            Phase::Settling(settling) => settling.exchange.reply_turn(),
            Phase::Recording(recorded) | Phase::Calling(recorded) => ReplyTurn { number, start: recorded.start },
            Phase::Gathering | Phase::Asking(_) | Phase::Decided => {
                ReplyTurn { number, start: ReplyStart::Dated(self.setting.start) }
            }
        }
    }

    /// Returns the bytes of the prompt that the model is answering; 0 in other phases.
    pub fn prompt_bytes(&self) -> usize {
        match &self.phase {
            Phase::Asking(asking) => asking.ledger.used,
            Phase::Gathering | Phase::Recording(_) | Phase::Calling(_) | Phase::Settling(_) | Phase::Decided => 0,
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
    pub fn hide(&mut self, hide: impl Fn(&str, &mut Value)) {
        if let Phase::Recording(recorded) = &mut self.phase {
            recorded.hide_said(hide);
        }
    }

    /// Takes an observation and returns the next action. Every legal pair of phase and observation is listed; any other
    /// pair is a bug of the worker and ends the turn with an internal error rather than a wrong commit.
    fn observe(&mut self, observed: Observed, now: Millis) -> Action {
        let phase = std::mem::replace(&mut self.phase, Phase::Decided);
        match (phase, observed) {
            (Phase::Gathering, Observed::Gathered(inputs, scribe)) => self.gathered(&inputs, &scribe, now),
            (Phase::Asking(asking), Observed::Answered(Ok(reply))) => self.answered(*asking, reply, now),
            (Phase::Asking(asking), Observed::Answered(Err(failure))) => self.unanswered(*asking, failure, now),
            (Phase::Recording(recorded), Observed::Recorded) => self.call(*recorded),
            (Phase::Calling(recorded), Observed::Called(outcomes)) => {
                Action::Commit(Box::new(decide::replied(&self.setting, &recorded, outcomes, now)))
            }
            (Phase::Settling(settling), Observed::Called(outcomes)) => {
                Action::Commit(Box::new(settle::settled(&self.setting, *settling, outcomes, now)))
            }
            (Phase::Settling(settling), Observed::Cancelled(noted)) => {
                Action::Commit(Box::new(settle::cancelled(&self.setting, *settling, &noted, now)))
            }
            (Phase::Recording(recorded) | Phase::Calling(recorded), Observed::Cancelled(noted)) => {
                Action::Commit(Box::new(decide::cancelled(&self.setting, Some(&recorded), &noted, now)))
            }
            (Phase::Asking(asking), Observed::Cancelled(_)) => {
                Action::Commit(Box::new(decide::cancelled(&self.setting, None, &[], now).with(asking.write)))
            }
            (Phase::Gathering | Phase::Decided, Observed::Cancelled(_)) => {
                Action::Commit(Box::new(decide::cancelled(&self.setting, None, &[], now)))
            }
            (
                Phase::Gathering
                | Phase::Asking(_)
                | Phase::Recording(_)
                | Phase::Calling(_)
                | Phase::Settling(_)
                | Phase::Decided,
                Observed::Gathered(..) | Observed::Answered(_) | Observed::Recorded | Observed::Called(_),
            ) => {
                let text = "the turn was driven out of order; this is a bug of the venue";
                Action::Commit(Box::new(decide::failed(
                    &self.setting,
                    &self.setting.plan.consumed(),
                    ErrorCode::Internal,
                    text,
                    now,
                )))
            }
        }
    }

    fn gathered(&mut self, inputs: &Inputs, scribe: &Scribe, now: Millis) -> Action {
        match assemble(inputs) {
            Ok(assembled) => {
                let sections = Sections::of(inputs, &assembled);
                let Assembled { request, ledger, shown, unpinned, conversation: _, prefix, tiles: _ } = assembled;
                self.bytes_left = ledger.budget.bytes.saturating_sub(ledger.used);
                let tools = Arc::clone(&inputs.tools);
                let used = sight::used(&inputs.items, &inputs.attachments, &self.setting.authority);
                let write = scribe.write(self.setting.turn, inputs, &ledger);
                let asking = Asking { ledger, write, shown, unpinned, tools, sections, used, prefix };
                self.phase = Phase::Asking(Box::new(asking));
                Action::Ask(Box::new(request))
            }
            Err(refused) => {
                let code = match refused.error {
                    ContextError::Overflow { .. } => ErrorCode::ContextOverflow,
                    ContextError::Unresolved(_) => ErrorCode::PlaceholderUnresolved,
                    ContextError::RequiredMissing { .. } => ErrorCode::ContextRequiredMissing,
                };
                let failed =
                    decide::failed(&self.setting, &self.setting.plan.reason(), code, &refused.error.to_string(), now);
                let write = scribe.write(self.setting.turn, inputs, &refused.ledger);
                Action::Commit(Box::new(failed.with(write)))
            }
        }
    }

    fn answered(&mut self, asking: Asking, mut reply: Reply, now: Millis) -> Action {
        let room = reply_room::next_prompt_room(&asking.ledger);
        let left_out = reply_room::leave_out_calls(&mut reply, &asking.tools, room);
        let calls = plan::calls(&mut reply.calls, &asking.tools, &asking.sections);
        let calls = if reply.truncated { plan::without_half(calls, &reply.calls) } else { calls };
        let calls = reply_room::with_last_unmade(calls, left_out);
        let (begun, shown) = (decide::begun(&self.setting), asking.shown.iter());
        let heard = begun.map(|event| decide::heard_entry(event, self.setting.config.prompt_style()));
        let recorded = Recorded {
            job: self.setting.plan.job().cloned(),
            calls,
            prompt: asking.ledger.prompt,
            consume: shown.clone().map(|event| event.key.clone()).collect(),
            heard: shown.clone().map(ShownEvent::heard).chain(heard).collect(),
            events: shown.map(|event| event.id.clone()).chain(begun.map(|event| event.id.clone())).collect(),
            unpinned: asking.unpinned,
            start: ReplyStart::Dated(self.setting.start),
            config_version: self.setting.config_version,
            authority: self.setting.authority.clone(),
            used: asking.used,
            frame: self.setting.state.goals.active(),
            last: self.setting.last.clone(),
            ledger: Some(asking.write),
            prefix: asking.prefix,
            spent: self.asked.total(),
            asked: (!self.asked.is_plain()).then(|| self.asked.clone()),
            reply,
        };
        if recorded.calls.is_empty() {
            return Action::Commit(Box::new(decide::replied(&self.setting, &recorded, Vec::new(), now)));
        }
        self.phase = Phase::Recording(Box::new(recorded.clone()));
        Action::Record(Box::new(recorded))
    }

    fn unanswered(&mut self, asking: Asking, failure: ModelFailure, now: Millis) -> Action {
        match failure {
            ModelFailure::Transient { reason, exhausted: false } => Action::Wait { reason },
            ModelFailure::Unusable { reason } => Action::Suspend { reason },
            ModelFailure::Short(last) if self.setting.may_wind_down() => {
                self.setting.last = Some(last);
                self.phase = Phase::Gathering;
                Action::Gather
            }
            ModelFailure::Short(Last { code, reason }) => {
                let shown: Vec<_> = asking.shown.into_iter().map(|event| event.key).collect();
                let failed = decide::failed(&self.setting, &shown, code, &reason, now);
                Action::Commit(Box::new(failed.with(asking.write)))
            }
            ModelFailure::Transient { reason, exhausted: true }
            | ModelFailure::Permanent { reason }
            | ModelFailure::Declined { reason } => {
                let shown: Vec<_> = asking.shown.into_iter().map(|event| event.key).collect();
                let failed = decide::failed(&self.setting, &shown, ErrorCode::ModelError, &reason, now);
                Action::Commit(Box::new(failed.with(asking.write)))
            }
        }
    }
}
