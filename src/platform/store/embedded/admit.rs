//! Stage 2, admit: deduplication, the agent's gate, the append, and the lease.

use super::layout::{self, Space};
use super::lease;
use super::mailbox::LoadedSession;
use super::outbox;
use super::tx::Tx;
use super::view::{StoreFault, View};
use super::{counts, docs};
use crate::domain::ids::JobId;
use crate::domain::job::JobStatus;
use crate::domain::time::Millis;
use crate::store::keys::{BusyPolicy, Gate, GateStatus};
use crate::store::{AdmissionOutcome, Admit, EventKind, Intake, LeaseOutcome, NewEvent, Refusal};

/// Implements [`crate::store::Store::admit`] for the writer.
pub(super) fn admit(tx: &mut Tx<'_>, now: Millis, request: &Admit) -> Result<AdmissionOutcome, StoreFault> {
    let mut loaded = LoadedSession::load(tx, &request.owner, &request.session)?;
    let gate = lease::gate(tx, &loaded.owner, &request.session.agent)?;
    let intake = match &request.event {
        Some(event) => admit_event(tx, now, &mut loaded, usable_gate(gate), event)?,
        None => Intake::Nothing,
    };
    let taken = match &intake {
        Intake::Nothing | Intake::New | Intake::Duplicate => true,
        Intake::Conflict | Intake::ReplaceRunning | Intake::Refused(_) => false,
    };
    let outcome = match &request.lease {
        Some(ask) if taken => lease::request(tx, now, &mut loaded, gate, ask)?,
        _ => LeaseOutcome::NotAsked,
    };
    loaded.save(tx)?;
    Ok(AdmissionOutcome { intake, lease: outcome })
}

fn usable_gate(gate: Option<Gate>) -> Result<Gate, Refusal> {
    match gate {
        None => Err(Refusal::UnknownAgent),
        Some(gate) if gate.status == GateStatus::Terminated => Err(Refusal::Terminated),
        Some(gate) => Ok(gate),
    }
}

fn admit_event(
    tx: &mut Tx<'_>,
    now: Millis,
    loaded: &mut LoadedSession,
    gate: Result<Gate, Refusal>,
    event: &NewEvent,
) -> Result<Intake, StoreFault> {
    let seen_key = layout::dedupe(&loaded.owner, event.id.as_str());
    if let Some(seen) = tx.get(Space::Core, &seen_key)? {
        let same = seen.split(|b| *b == b' ').next() == Some(event.body_hash.as_bytes());
        return Ok(if same { Intake::Duplicate } else { Intake::Conflict });
    }
    if let Some(finish) = &event.finish
        && docs::job_status(tx, &loaded.owner, &finish.job)?.is_some_and(JobStatus::is_terminal)
    {
        return Ok(Intake::Duplicate);
    }
    let gate = match gate {
        Ok(gate) => gate,
        Err(refusal) => return Ok(Intake::Refused(refusal)),
    };
    if event.may_replace && event.kind == EventKind::Task && gate.busy == BusyPolicy::Replace {
        return Ok(Intake::ReplaceRunning);
    }
    if let Some(refusal) = find_refusal(tx, loaded, gate, event.kind)? {
        return Ok(Intake::Refused(refusal));
    }
    if let Some(quota) = &event.quota
        && let Some(over) = counts::exceeded_quota(tx, &loaded.owner, quota, &event.added_usage(!loaded.is_known()))?
    {
        return Ok(Intake::Refused(Refusal::Quota(over)));
    }
    tx.register(&loaded.owner)?;
    let seen = format!("{} {}", event.body_hash, event.job.as_ref().map_or("-", JobId::as_str));
    tx.put(Space::Core, seen_key, seen.into_bytes());
    loaded.append(tx, now, event)?;
    if let Some(open) = &event.open {
        docs::open_job(tx, now, &loaded.owner, open)?;
    }
    if let Some(finish) = &event.finish {
        docs::end_job(tx, now, &loaded.owner, finish)?;
    }
    for entry in &event.outbox {
        outbox::put(tx, now, &loaded.owner, entry)?;
    }
    Ok(Intake::New)
}

/// Returns why the mailbox has no room; results are always admitted, since the call that they end began here.
fn find_refusal(
    tx: &Tx<'_>,
    loaded: &LoadedSession,
    gate: Gate,
    kind: EventKind,
) -> Result<Option<Refusal>, StoreFault> {
    match kind {
        EventKind::Result => return Ok(None),
        EventKind::Task if gate.busy == BusyPolicy::Reject && loaded.has_open_task(tx)? => {
            return Ok(Some(Refusal::Busy));
        }
        EventKind::Task | EventKind::Message => {}
    }
    let full = loaded.record.pending_events() >= u64::from(gate.mailbox);
    Ok(full.then_some(Refusal::MailboxFull { limit: gate.mailbox }))
}
