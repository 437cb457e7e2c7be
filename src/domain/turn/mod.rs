//! The turn as a state machine: it observes, and says what to do next; `worker` does it.
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
//! A crash at any arrow leaves what the store holds: before `Record` nothing, after it the reply.

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

/// What the shell must do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Fetch the inputs of the prompt.
    Gather,
    /// Call the model.
    Ask(Box<ModelRequest>),
    /// Record the reply.
    Record(Box<Recorded>),
    /// Make these calls, each at its place in the reply.
    Call(Vec<(u32, PlannedCall)>),
    /// Give the lease back and try later; nothing is committed.
    Wait {
        /// Why, for the log.
        reason: String,
    },
    /// Suspend the agent and give the lease back; nothing is committed.
    Suspend {
        /// Why, for whoever mends it.
        reason: String,
    },
    /// Commit.
    Commit(Box<Decision>),
}

/// What the shell saw.
#[derive(Debug, Clone)]
pub enum Observed {
    /// The inputs, and what writes the record of them.
    Gathered(Box<Inputs>, Box<Scribe>),
    /// A reply, or none.
    Answered(Result<Reply, ModelFailure>),
    /// The reply is recorded.
    Recorded,
    /// Outcomes of the calls, in the order of [`Action::Call`].
    Called(Vec<CallOutcome>),
    /// The served task was cancelled: end the turn consistently. With what is known of calls that
    /// can't be undone, by their place in the reply.
    Cancelled(Vec<(u32, CallOutcome)>),
}

#[derive(Debug, Clone, PartialEq)]
enum Phase {
    Gathering,
    Asking(Box<Asking>),
    Recording(Box<Recorded>),
    Calling(Box<Recorded>),
    /// Calls of an earlier reply.
    Settling(Box<Settling>),
    Decided,
}

/// Calls of an earlier reply that a person has decided on.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Settling {
    /// The turn whose reply they are of.
    exchange: TurnRecord,
    /// What becomes of each, and who decided so.
    ruled: Vec<(DecidedCall, AwaitingCall, Ruling)>,
}

/// What is kept of a prompt until its reply is there.
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
    /// Large: it goes from hand to hand.
    setting: Box<Setting>,
    phase: Phase,
    /// The calls that it makes, each at its place in the reply.
    calls: Vec<(u32, PlannedCall)>,
    /// The models that were asked, and what they have used.
    asked: ModelCalls,
    /// Bytes of the budget that its prompt has left; 0 of a turn that has built none.
    bytes_left: usize,
}

impl Turn {
    fn at(setting: Box<Setting>, phase: Phase) -> Self {
        Self { setting, phase, calls: Vec::new(), asked: ModelCalls::default(), bytes_left: 0 }
    }

    /// A turn from the beginning.
    pub fn begin(setting: impl Into<Box<Setting>>, now: Millis) -> (Self, Action) {
        let mut setting = setting.into();
        match setting.overdue(now) {
            Some(last) if setting.may_wind_down() => setting.last = Some(last),
            Some(Last { code, reason }) if setting.last.is_none() => {
                // What others have said meanwhile is for the next turn.
                let decision = decide::failed(&setting, &setting.plan.reason(), code, &reason, now);
                return (Self::at(setting, Phase::Decided), Action::Commit(Box::new(decision)));
            }
            Some(_) | None => {}
        }
        (Self::at(setting, Phase::Gathering), Action::Gather)
    }

    /// A turn whose reply was recorded by a predecessor: no model is asked. When its task has
    /// ended from outside meanwhile, the reply stays without effect, but for what the predecessor
    /// `noted` of its calls, by their place in the reply.
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

    /// A turn that makes the calls of an earlier reply, `exchange`, on which a person has decided. No
    /// model is asked.
    ///
    /// Of a call that a predecessor has made what it `noted` counts, also when there is nothing left to
    /// make it for.
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

    /// The calls of a recorded reply are made.
    fn call(&mut self, recorded: Recorded) -> Action {
        self.calls = (0..).zip(recorded.calls.clone()).collect();
        self.phase = Phase::Calling(Box::new(recorded));
        Action::Call(self.calls.clone())
    }

    /// Events that killed their workers too often: they end here, with a note in the transcript.
    pub fn give_up(setting: impl Into<Box<Setting>>, now: Millis) -> (Self, Action) {
        Self::refuse(setting, ErrorCode::Dead, "given up: workers died while serving it", now)
    }

    /// Events that get no prompt: they end here, with a note in the transcript.
    pub fn refuse(setting: impl Into<Box<Setting>>, code: ErrorCode, error: &str, now: Millis) -> (Self, Action) {
        let setting = setting.into();
        let decision = decide::failed(&setting, &setting.plan.consumed(), code, error, now);
        (Self::at(setting, Phase::Decided), Action::Commit(Box::new(decision)))
    }

    /// What it serves and runs with.
    pub fn setting(&self) -> &Setting {
        &self.setting
    }

    /// The turn whose reply has the calls that it makes.
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

    /// Bytes of the prompt that is being answered.
    pub fn prompt_bytes(&self) -> usize {
        match &self.phase {
            Phase::Asking(asking) => asking.ledger.used,
            Phase::Gathering | Phase::Recording(_) | Phase::Calling(_) | Phase::Settling(_) | Phase::Decided => 0,
        }
    }

    /// Bytes of the budget that its prompt has left; 0 of a turn that has built none.
    pub const fn bytes_left(&self) -> usize {
        self.bytes_left
    }

    /// The calls that it makes, each at its place in the reply.
    pub fn calls(&self) -> &[(u32, PlannedCall)] {
        &self.calls
    }

    /// Takes out of the transcript what may not stay in it; the calls themselves are made with it.
    pub fn hide(&mut self, hide: impl Fn(&str, &mut Value)) {
        if let Phase::Recording(recorded) = &mut self.phase {
            recorded.hide_said(hide);
        }
    }

    /// The next step. Every legal pair of phase and observation is here; another is a bug of the
    /// shell and ends the turn with an internal error rather than a wrong commit.
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
