//! Calls that take effect when they are made: what is recorded before and after them, so that none is made twice and none
//! is forgotten, whatever becomes of their session.

use super::calls::Round;
use crate::domain::authority::Capability;
use crate::domain::call::{Outcome, PlannedCall, Resolved, ToolTarget};
use crate::domain::decode;
use crate::domain::ids::JobId;
use crate::domain::kept::KeptKeys;
use crate::domain::outcome::{CallMaker, CallPosition, OpenCall, UnknownCall, UnknownOutcome, outcome_id};
use crate::domain::time::Millis;
use crate::domain::turn::{CallOutcome, Recorded};
use crate::store::{Checkpoint, DocKey, DocWrite, LOST_CALLS, LeaseCheck};
use crate::venue::open_calls;
use crate::worker::lease::{Leased, Stop};
use bytes::Bytes;
use parking_lot::MutexGuard;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Most by which the clocks of a worker and of the process that sweeps are apart.
const CLOCKS_APART: Duration = Duration::from_secs(10);

/// What is recorded of a call that takes effect when it is made.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum CallNote {
    /// It is about to run; an older build has written it.
    Intent,
    /// It is about to run.
    Begun {
        /// When it was first so.
        at: Millis,
    },
    /// It ran.
    Outcome(Box<CallOutcome>),
}

/// A call of this turn that has begun.
pub(super) struct BegunCall {
    index: u32,
    /// The entry for operators, should nobody learn its end.
    listed: JobId,
    /// Its record, which is looked at at `due`.
    record: DocKey,
    due: Millis,
    /// When it was first made.
    at: Millis,
    /// A predecessor has begun it, too.
    is_repeated: bool,
}

/// What is recorded of the calls of a reply: outcomes, and that one is unknown.
pub(crate) fn recorded_outcomes(leased: &Leased, recorded: &Recorded) -> Vec<(u32, CallOutcome)> {
    outcomes_of(leased, (0..).zip(&recorded.calls))
}

/// The same of calls that wait for a person.
pub(crate) fn recorded_awaiting_outcomes(leased: &Leased) -> Vec<(u32, CallOutcome)> {
    let awaiting = leased.run.state.awaiting.iter().flat_map(|awaiting| &awaiting.calls);
    outcomes_of(leased, awaiting.map(|call| (call.call, &call.planned)))
}

pub(super) fn outcomes_of<'c>(
    leased: &Leased,
    planned: impl Iterator<Item = (u32, &'c PlannedCall)>,
) -> Vec<(u32, CallOutcome)> {
    let known = |(index, call): (u32, &PlannedCall)| {
        let name = match &call.what {
            Ok(Resolved { target: ToolTarget::Operation(path), .. }) => path,
            Ok(Resolved { target: ToolTarget::Resource { .. }, .. }) => &call.tool,
            Ok(_) | Err(_) => return None,
        };
        let outcome = match note(leased, index)? {
            CallNote::Outcome(outcome) => *outcome,
            CallNote::Intent => unknown(name),
            CallNote::Begun { at } => CallOutcome { began: Some(at), ..unknown(name) },
        };
        Some((index, outcome))
    };
    planned.filter_map(known).collect()
}

/// What a predecessor has recorded of a call.
fn note(leased: &Leased, index: u32) -> Option<CallNote> {
    let of = |wanted: u32| leased.calls.iter().find(|(at, _)| *at == wanted);
    let (_, bytes) = of(index).or_else(|| of(LOST_CALLS))?;
    // One that can't be read was begun as well.
    Some(decode::stored(bytes).unwrap_or(CallNote::Intent))
}

/// Of a call that was begun.
fn unknown(name: &str) -> CallOutcome {
    let text = format!(
        "outcome unknown: `{name}` was begun and did not end here; it may or may not have happened; \
         check before doing it again"
    );
    CallOutcome::plain(Outcome::OutcomeUnknown, &text).outward()
}

impl Round<'_> {
    /// A call that must not be repeated: intent before it, outcome after it.
    pub(super) async fn once(
        &self,
        index: u32,
        call: &PlannedCall,
        path: &str,
        used: &[Capability],
        make: impl Future<Output = Result<CallOutcome, Stop>>,
    ) -> Result<CallOutcome, Stop> {
        if let Some(outcome) = self.lock().get(&index).cloned() {
            if outcome.outcome == Outcome::OutcomeUnknown {
                tracing::warn!(session = %self.leased.lease.session, path, index, "outcome of a call is unknown");
            }
            return Ok(outcome);
        }
        let begun = self.begin(index, call, path, false).await?;
        let outcome = CallOutcome { began: Some(begun.at), ..make.await?.outward().by(used.to_vec()) };
        self.end(&begun, &outcome).await?;
        Ok(outcome)
    }

    /// The outcome of a call that a predecessor has made to its end.
    pub(super) fn outcome_before(&self, index: u32) -> Option<CallOutcome> {
        match note(self.leased, index)? {
            CallNote::Outcome(outcome) => Some(*outcome),
            CallNote::Intent | CallNote::Begun { .. } => None,
        }
    }

    /// When a predecessor has made a call first, as far as it is recorded.
    pub(super) fn began_before(&self, index: u32) -> Option<Millis> {
        match note(self.leased, index)? {
            CallNote::Outcome(outcome) => outcome.began,
            CallNote::Intent => None,
            CallNote::Begun { at } => Some(at),
        }
    }

    /// Records that a call is about to be made. `repeatable`: should this worker die, a successor makes it again, under a
    /// key by which the server knows it again.
    pub(super) async fn begin(
        &self,
        index: u32,
        call: &PlannedCall,
        name: &str,
        repeatable: bool,
    ) -> Result<BegunCall, Stop> {
        let (venue, lease) = (&self.worker.venue, &self.leased.lease);
        let (turn, start) = (self.reply_turn.number, self.reply_turn.start.time());
        let id = outcome_id(&venue.key, &lease.owner, &lease.session, CallPosition { turn, start, index });
        let listed = UnknownOutcome {
            job: self.setting().plan.job().cloned(),
            call: Some(UnknownCall { session: lease.session.clone(), turn, index, tool: call.tool.clone() }),
            ..UnknownOutcome::new(id.clone(), call.operation(), venue.now())
        };
        let maker = CallMaker::Turn { number: self.turn(), epoch: lease.epoch };
        let open = OpenCall { listed, maker, repeatable, kept: KeptKeys::default() };
        let due = venue.now().plus(self.worker.options.lease);
        let (record, write) = open_calls::record_write(&open, due);
        let at = self.began_before(index).unwrap_or_else(|| venue.now());
        self.write_note(index, &CallNote::Begun { at }, vec![write]).await?;
        let is_repeated = note(self.leased, index).is_some();
        self.lock().insert(index, CallOutcome { began: Some(at), ..unknown(name) });
        Ok(BegunCall { index, listed: id, record, due, at, is_repeated })
    }

    /// Records how a call ended. While its outcome is unknown the record that it has begun stays, until the commit.
    pub(super) async fn end(&self, begun: &BegunCall, outcome: &CallOutcome) -> Result<(), Stop> {
        self.lock().insert(begun.index, outcome.clone());
        let note = CallNote::Outcome(Box::new(outcome.clone()));
        if outcome.outcome == Outcome::OutcomeUnknown {
            return self.write_note(begun.index, &note, Vec::new()).await;
        }
        let (venue, owner) = (&self.worker.venue, &self.leased.lease.owner);
        // By then a sweep may have moved the record, or listed the call.
        let is_late = begun.is_repeated || venue.now().plus(CLOCKS_APART) >= begun.due;
        let records = if is_late {
            open_calls::record_keys(venue, owner, &begun.listed).await?
        } else {
            vec![begun.record.clone()]
        };
        self.write_note(begun.index, &note, records.into_iter().map(DocWrite::delete).collect()).await?;
        if is_late {
            open_calls::withdraw(venue, owner, &begun.listed).await?;
        }
        Ok(())
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, CallOutcome>> {
        self.known.lock()
    }

    pub(super) fn known_outcomes(&self) -> Vec<(u32, CallOutcome)> {
        self.lock().iter().map(|(index, outcome)| (*index, outcome.clone())).collect()
    }

    async fn write_note(&self, index: u32, note: &CallNote, writes: Vec<DocWrite>) -> Result<(), Stop> {
        let bytes = Bytes::from(serde_json::to_vec(note).expect("notes serialise"));
        let write = Checkpoint { turn: self.turn(), calls: vec![(index, bytes)], writes, ..Checkpoint::default() };
        let venue = &self.worker.venue;
        match venue.store.checkpoint(venue.now(), &self.leased.lease, &write).await? {
            LeaseCheck::Fenced => Err(Stop::Lost),
            LeaseCheck::Yes { .. } => Ok(()),
        }
    }
}
