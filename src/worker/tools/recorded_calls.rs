//! Calls that take effect at once: what is recorded before and after each, so that none is made twice and none is
//! forgotten, whatever happens to the session.

use super::round::CallRound;
use crate::domain::authority::Capability;
use crate::domain::call::{Outcome, PlannedCall, ResolvedCall, SentMarks, ToolTarget};
use crate::domain::decode;
use crate::domain::ids::JobId;
use crate::domain::outcome::{CallMaker, CallPosition, OpenCall, UnknownCall, UnknownOutcome, outcome_id};
use crate::domain::time::Millis;
use crate::domain::turn::{CallOutcome, RecordedReply};
use crate::domain::unknown_fields::UnknownFields;
use crate::store::{Checkpoint, DocKey, DocWrite, LOST_CALLS, LeaseCheck};
use crate::venue::open_calls;
use crate::worker::lease::{LeasedSession, RunStop};
use bytes::Bytes;
use parking_lot::MutexGuard;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Largest difference between the clocks of a worker and of the process that sweeps.
const CLOCK_SKEW_MAX: Duration = Duration::from_secs(10);

/// Record of a call that takes effect at once.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum CallNote {
    /// The call is about to run; written by an older build.
    Intent,
    /// The call is about to run.
    Begun {
        /// Time of the first try.
        at: Millis,
        /// Marks with which the call leaves the venue.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sent: Option<SentMarks>,
    },
    /// The call has ended.
    Outcome(Box<CallOutcome>),
}

/// A call of this turn that has begun.
pub(super) struct BegunCall {
    index: u32,
    /// Id of its unknown outcome, which is listed if its end stays unknown.
    outcome_id: JobId,
    /// Key of its record, which the sweep checks at `due`.
    record_key: DocKey,
    due: Millis,
    /// Time of the first try.
    begun_at: Millis,
    /// An earlier holder has begun it too.
    is_repeated: bool,
}

/// Returns the recorded outcomes of a reply's calls; one that only began is unknown.
pub(crate) fn recorded_outcomes(leased: &LeasedSession, recorded: &RecordedReply) -> Vec<(u32, CallOutcome)> {
    recorded_call_outcomes(leased, (0..).zip(&recorded.calls))
}

/// Returns the recorded outcomes of the calls that wait for approval.
pub(crate) fn recorded_awaiting_outcomes(leased: &LeasedSession) -> Vec<(u32, CallOutcome)> {
    let awaiting = leased.run.state.awaiting.iter().flat_map(|awaiting| &awaiting.calls);
    recorded_call_outcomes(leased, awaiting.map(|call| (call.call, &call.planned)))
}

pub(super) fn recorded_call_outcomes<'c>(
    leased: &LeasedSession,
    planned: impl Iterator<Item = (u32, &'c PlannedCall)>,
) -> Vec<(u32, CallOutcome)> {
    let known = |(index, call): (u32, &PlannedCall)| {
        let name = match &call.what {
            Ok(ResolvedCall { target: ToolTarget::Operation(path), .. }) => path,
            Ok(ResolvedCall { target: ToolTarget::Resource { .. }, .. }) => &call.tool,
            Ok(_) | Err(_) => return None,
        };
        let outcome = match note(leased, index)? {
            CallNote::Outcome(outcome) => *outcome,
            CallNote::Intent => unknown_outcome(name),
            CallNote::Begun { at, sent } => CallOutcome { began: Some(at), sent, ..unknown_outcome(name) },
        };
        Some((index, outcome))
    };
    planned.filter_map(known).collect()
}

/// Returns the record of a call by an earlier holder.
fn note(leased: &LeasedSession, index: u32) -> Option<CallNote> {
    let of = |wanted: u32| leased.recorded_calls.iter().find(|(at, _)| *at == wanted);
    let (_, bytes) = of(index).or_else(|| of(LOST_CALLS))?;
    // An unreadable note counts as begun.
    Some(decode::read_stored(bytes).unwrap_or(CallNote::Intent))
}

/// Makes the outcome of a call that has begun and has no recorded end.
fn unknown_outcome(name: &str) -> CallOutcome {
    let text = format!(
        "outcome unknown: `{name}` was begun and did not end here; it may or may not have happened; \
         check before doing it again"
    );
    CallOutcome::from_text(Outcome::OutcomeUnknown, &text).with_outward_effect()
}

impl CallRound<'_> {
    /// Makes a call that must not be repeated: records the intent before it, the outcome after it.
    pub(super) async fn make_once(
        &self,
        index: u32,
        call: &PlannedCall,
        path: &str,
        used: &[Capability],
        make: impl Future<Output = Result<CallOutcome, RunStop>>,
    ) -> Result<CallOutcome, RunStop> {
        if let Some(outcome) = self.lock().get(&index).cloned() {
            if outcome.outcome == Outcome::OutcomeUnknown {
                tracing::warn!(session = %self.leased.lease.session, path, index, "outcome of a call is unknown");
            }
            return Ok(outcome);
        }
        let begun = self.begin(index, call, path, false).await?;
        let outcome =
            CallOutcome { began: Some(begun.begun_at), ..make.await?.with_outward_effect().with_needs(used.to_vec()) };
        self.end(&begun, &outcome).await?;
        Ok(outcome)
    }

    /// Makes a call of a published operation that may be repeated under its key. The call is recorded before it is made
    /// and after it: if the operation changes in between, no holder repeats the call, and its outcome is unknown.
    pub(super) async fn make_repeatable(
        &self,
        index: u32,
        call: &PlannedCall,
        path: &str,
        make: impl Future<Output = Result<CallOutcome, RunStop>>,
    ) -> Result<CallOutcome, RunStop> {
        if let Some(outcome) = self.earlier_outcome(index) {
            return Ok(outcome);
        }
        let begun = self.begin(index, call, path, true).await?;
        let outcome = make.await?.with_outward_effect();
        self.end(&begun, &outcome).await?;
        Ok(outcome)
    }

    /// Returns the outcome of a call that an earlier holder has finished.
    pub(super) fn earlier_outcome(&self, index: u32) -> Option<CallOutcome> {
        match note(self.leased, index)? {
            CallNote::Outcome(outcome) => Some(*outcome),
            CallNote::Intent | CallNote::Begun { .. } => None,
        }
    }

    /// Returns when an earlier holder first made a call, if that is recorded.
    pub(super) fn earlier_start(&self, index: u32) -> Option<Millis> {
        match note(self.leased, index)? {
            CallNote::Outcome(outcome) => outcome.began,
            CallNote::Intent => None,
            CallNote::Begun { at, .. } => Some(at),
        }
    }

    /// Records that a call is about to be made. `repeatable`: after a crash the next holder makes it again, with the
    /// same idempotency key.
    pub(super) async fn begin(
        &self,
        index: u32,
        call: &PlannedCall,
        name: &str,
        repeatable: bool,
    ) -> Result<BegunCall, RunStop> {
        let (venue, lease) = (&self.worker.venue, &self.leased.lease);
        let (turn, start) = (self.reply_turn.number, self.reply_turn.start.time());
        let id = outcome_id(&venue.key, &lease.owner, &lease.session, CallPosition { turn, start, index });
        let listed = UnknownOutcome {
            job: self.turn_input().plan.job().cloned(),
            call: Some(UnknownCall { session: lease.session.clone(), turn, index, tool: call.tool.clone() }),
            ..UnknownOutcome::new(id.clone(), call.operation(), venue.now())
        };
        let maker = CallMaker::Turn { number: self.turn(), epoch: lease.epoch };
        let open = OpenCall { listed, maker, repeatable, kept: UnknownFields::default() };
        let due = venue.now().plus(self.worker.options.lease);
        let (record, write) = open_calls::record_write(&open, due);
        let at = self.earlier_start(index).unwrap_or_else(|| venue.now());
        let sent = self.marks.lock().get(&index).cloned();
        self.write_note(index, &CallNote::Begun { at, sent: sent.clone() }, vec![write]).await?;
        let is_repeated = note(self.leased, index).is_some();
        self.lock().insert(index, CallOutcome { began: Some(at), sent, ..unknown_outcome(name) });
        Ok(BegunCall { index, outcome_id: id, record_key: record, due, begun_at: at, is_repeated })
    }

    /// Records how a call ended. If its outcome is unknown, the record of its begin stays until the commit.
    pub(super) async fn end(&self, begun: &BegunCall, outcome: &CallOutcome) -> Result<(), RunStop> {
        self.lock().insert(begun.index, outcome.clone());
        let note = CallNote::Outcome(Box::new(outcome.clone()));
        if outcome.outcome == Outcome::OutcomeUnknown {
            return self.write_note(begun.index, &note, Vec::new()).await;
        }
        let (venue, owner) = (&self.worker.venue, &self.leased.lease.owner);
        // A sweep may have moved the record, or listed the call.
        let is_late = begun.is_repeated || venue.now().plus(CLOCK_SKEW_MAX) >= begun.due;
        let records = if is_late {
            open_calls::record_keys(venue, owner, &begun.outcome_id).await?
        } else {
            vec![begun.record_key.clone()]
        };
        self.write_note(begun.index, &note, records.into_iter().map(DocWrite::delete).collect()).await?;
        if is_late {
            open_calls::delist(venue, owner, &begun.outcome_id).await?;
        }
        Ok(())
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, CallOutcome>> {
        self.known_outcomes.lock()
    }

    pub(super) fn known_outcomes(&self) -> Vec<(u32, CallOutcome)> {
        self.lock().iter().map(|(index, outcome)| (*index, outcome.clone())).collect()
    }

    async fn write_note(&self, index: u32, note: &CallNote, writes: Vec<DocWrite>) -> Result<(), RunStop> {
        let bytes = Bytes::from(serde_json::to_vec(note).expect("notes serialise"));
        let write = Checkpoint { turn: self.turn(), calls: vec![(index, bytes)], writes, ..Checkpoint::default() };
        let venue = &self.worker.venue;
        match venue.store.checkpoint(venue.now(), &self.leased.lease, &write).await? {
            LeaseCheck::Fenced => Err(RunStop::Lost),
            LeaseCheck::Held { .. } => Ok(()),
        }
    }
}
