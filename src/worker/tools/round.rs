//! What all calls of one reply share.

use super::errors::error_outcome;
use super::results::CallResults;
use crate::domain::agent::AgentRecord;
use crate::domain::authority::Capability;
use crate::domain::call::{CallEffect, Outcome, PlannedCall, ReplyTurn};
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
    pub(super) ground: &'a TurnBase,
    pub(super) setting: &'a TurnInput,
    pub(crate) agent: &'a AgentRecord,
    /// Results of this round, and the bytes left for them.
    pub(super) results: CallResults,
    pub(crate) caller: Caller,
    pub(super) parent: Parent,
    pub(super) turn: u64,
    /// The turn whose reply has the calls.
    pub(super) reply_turn: ReplyTurn,
    pub(super) children: usize,
    /// Indices of calls that start something elsewhere, and what.
    pub(super) causes: Vec<(u32, CallEffect)>,
    /// Loads by level, as changed by the calls before.
    pub(super) loads: Mutex<LoadsByLevel>,
    /// Outcomes of calls that can't be undone, should the turn be cancelled.
    pub(super) known: Mutex<BTreeMap<u32, CallOutcome>>,
    /// Capabilities that need approval; `None` when these calls are approved.
    pub(super) consents: Option<&'a [Capability]>,
}

impl CallRound<'_> {
    pub(crate) const fn workspace(&self) -> &Workspace {
        &self.ground.workspace
    }

    /// Returns the operations that the turn offers.
    pub(crate) const fn catalog(&self) -> &CatalogView {
        &self.ground.catalog
    }

    pub(crate) const fn setting(&self) -> &TurnInput {
        self.setting
    }

    /// Returns the entities of the request, if the agent uses them.
    pub(crate) fn entities(&self) -> Option<Vec<String>> {
        self.setting.config.entities(&self.setting.mandate.session_context)
    }

    /// Returns the number of the turn.
    pub(crate) const fn turn(&self) -> u64 {
        self.turn
    }

    /// Returns the capabilities that need approval; `None` when these calls are approved.
    pub(crate) const fn consents(&self) -> Option<&[Capability]> {
        self.consents
    }

    /// Applies a change of the loads, which later calls of the reply see.
    pub(crate) fn change(&self, change: &LoadChange) {
        self.loads.lock().apply(change);
    }

    /// Returns the capabilities that meet these needs.
    pub(crate) fn used_capabilities(&self, needs: &[Need]) -> Vec<Capability> {
        needs.iter().filter_map(|need| self.caller.authority.recorded_use(need.ability, &need.resource)).collect()
    }

    /// Returns the invocation that operations receive.
    pub(crate) fn invocation<'a>(
        &'a self,
        index: u32,
        call: &'a PlannedCall,
        scoped: &'a Map<String, Value>,
        reads: &'a Reads,
    ) -> Invocation<'a> {
        // Children that earlier calls start count, in whatever order the calls are made.
        let before = || self.causes.iter().filter(|(at, _)| *at < index);
        let children = before().filter(|(_, causes)| *causes == CallEffect::Child).count();
        let started = usize::try_from(self.setting.state.children).unwrap_or(usize::MAX);
        Invocation {
            named: &call.tool,
            venue: &self.worker.venue,
            catalog: &self.ground.catalog,
            caller: &self.caller,
            workspace: &self.ground.workspace,
            scoped,
            site: Site::Turn(TurnSite {
                lease: &self.leased.lease,
                turn: self.turn,
                call: index,
                instance: call.instance.as_deref(),
                start: self.reply_turn.start,
                handed: &call.scoped,
                mandate: &self.setting.mandate,
                parent: &self.parent,
                children: self.children + children,
                run_children: started.saturating_add(before().count()),
                delegable: self.setting.config.delegable.as_deref(),
                time: self.setting.config.limits.tool_timeout.map(Duration::from_secs),
                hides_values: self.setting.config.hides_values(),
            }),
            reads,
        }
    }

    /// Makes the outcome of an operation's result. `agent`: the agent that serves a child job; `rest`: where the rest
    /// of a large result is.
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
                started: output.started.map(|job| (job, agent())),
                reads: reads.found_reads(),
                ..CallOutcome::from_text(Outcome::Ok, self.results.show(index, output.value, rest))
            }),
            // An error may reveal what was read.
            Err(error) => Ok(CallOutcome { reads: reads.found_reads(), ..error_outcome(error)? }),
        }
    }
}
