//! Values that all calls of one reply share.

use super::errors::error_outcome;
use super::results::CallResults;
use crate::domain::agent::AgentRecord;
use crate::domain::authority::Capability;
use crate::domain::call::{CallEffect, Outcome, PlannedCall, ReplyTurn, SentMarks};
use crate::domain::context::result::ResultRest;
use crate::domain::ids::AgentId;
use crate::domain::job::Parent;
use crate::domain::load::{LoadChange, LoadsByLevel};
use crate::domain::turn::{CallOutcome, TurnInput};
use crate::venue::operation::{Caller, CatalogView, Invocation, Need, OpError, OpOutput, Reads, Site, TurnSite};
use crate::venue::workspace::Workspace;
use crate::worker::lease::{LeasedSession, RunStop};
use crate::worker::state::Worker;
use crate::worker::turn_base::TurnBase;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// Values that all calls of one reply share.
pub(crate) struct CallRound<'a> {
    pub(crate) worker: &'a Worker,
    pub(super) leased: &'a LeasedSession,
    /// Tree and catalogue of the turn, and the version of its policy.
    pub(super) turn_base: &'a TurnBase,
    /// Configuration, state and mandate that the turn began with.
    pub(super) turn_input: &'a TurnInput,
    pub(crate) agent: &'a AgentRecord,
    /// Results of this round, and the bytes left for them.
    pub(super) results: CallResults,
    pub(crate) caller: Caller,
    pub(super) parent: Parent,
    /// The turn whose reply has the calls.
    pub(super) reply_turn: ReplyTurn,
    /// Indices of calls that start something elsewhere, and what.
    pub(super) effects: Vec<(u32, CallEffect)>,
    /// Loads by level, as changed by the calls before.
    pub(super) loads: Mutex<LoadsByLevel>,
    /// Outcomes by index of calls that can't be undone: they are recorded even if the turn is cancelled.
    pub(super) known_outcomes: Mutex<BTreeMap<u32, CallOutcome>>,
    /// Marks of the calls that leave the venue, by index.
    pub(super) marks: Mutex<BTreeMap<u32, SentMarks>>,
    /// Capabilities whose use needs an approval; `None` when these calls are approved.
    pub(super) needs_approval: Option<&'a [Capability]>,
}

impl CallRound<'_> {
    pub(crate) const fn workspace(&self) -> &Workspace {
        &self.turn_base.workspace
    }

    /// Returns the operations that the turn offers.
    pub(crate) const fn catalog(&self) -> &CatalogView {
        &self.turn_base.catalog
    }

    pub(crate) const fn turn_input(&self) -> &TurnInput {
        self.turn_input
    }

    /// Returns the entities of the request, if the agent uses them.
    pub(crate) fn entities(&self) -> Option<Vec<String>> {
        self.turn_input.config.entities(&self.turn_input.mandate.session_context)
    }

    /// Returns the number of the turn.
    pub(crate) const fn turn(&self) -> u64 {
        self.turn_input.turn
    }

    /// Returns the capabilities whose use needs an approval; `None` when these calls are approved.
    pub(crate) const fn needs_approval(&self) -> Option<&[Capability]> {
        self.needs_approval
    }

    /// Applies a change of the loads, which later calls of the reply see.
    pub(crate) fn change_loads(&self, change: &LoadChange) {
        self.loads.lock().apply(change);
    }

    /// Returns the capabilities that meet these needs.
    pub(crate) fn used_capabilities(&self, needs: &[Need]) -> Vec<Capability> {
        needs.iter().filter_map(|need| self.caller.authority.recorded_use(need.ability, &need.resource)).collect()
    }

    /// Returns the invocation that the operation of the call at `index` receives. `scoped` has the sections that are
    /// handed on with the call, by key; `reads` records what the operation reads.
    pub(crate) fn invocation<'a>(
        &'a self,
        index: u32,
        call: &'a PlannedCall,
        scoped: &'a Map<String, Value>,
        reads: &'a Reads,
    ) -> Invocation<'a> {
        // Children that the session waits for count, and those that earlier calls start, in whatever order the calls
        // are made.
        let before = || self.effects.iter().filter(|(at, _)| *at < index);
        let children = before().filter(|(_, effect)| *effect == CallEffect::Child).count();
        let started = usize::try_from(self.turn_input.state.children).unwrap_or(usize::MAX);
        Invocation {
            named: &call.tool,
            venue: &self.worker.venue,
            catalog: &self.turn_base.catalog,
            caller: &self.caller,
            workspace: &self.turn_base.workspace,
            scoped,
            site: Site::Turn(TurnSite {
                lease: &self.leased.lease,
                turn: self.turn(),
                call: index,
                instance: call.instance.as_deref(),
                start: self.reply_turn.start,
                handed: &call.scoped,
                mandate: &self.turn_input.mandate,
                parent: &self.parent,
                children: self.turn_input.state.pending.len() + children,
                run_children: started.saturating_add(before().count()),
                delegable: self.turn_input.config.delegable.as_deref(),
                time: self.turn_input.config.limits.tool_timeout.map(Duration::from_secs),
                hides_values: self.turn_input.config.hides_values(),
                is_pipeline: self.turn_input.config.pipeline.is_some(),
            }),
            reads,
            fills_prompt: false,
        }
    }

    /// Makes the outcome of an operation's result. `agent` returns the agent that serves a child job, `rest` where the
    /// rest of a large result is. Fails if the lease is lost or the store can't be reached.
    pub(crate) fn result_outcome(
        &self,
        index: u32,
        called: Result<OpOutput, OpError>,
        reads: &Reads,
        agent: impl FnOnce() -> AgentId,
        rest: impl FnOnce(&Value) -> ResultRest,
    ) -> Result<CallOutcome, RunStop> {
        match called {
            Ok(output) => Ok(CallOutcome {
                value: self.turn_input.config.pipeline.is_some().then(|| output.value.clone()),
                started: output.started.map(|job| (job, agent())),
                reads: reads.found_reads(),
                sent: reads.sent_marks(),
                ..CallOutcome::from_text(Outcome::Ok, self.results.show(index, output.value, rest))
            }),
            // An error may reveal what was read.
            Err(error) => {
                let (reads, sent) = (reads.found_reads(), reads.sent_marks());
                Ok(CallOutcome { reads, sent, ..error_outcome(error)? })
            }
        }
    }
}
