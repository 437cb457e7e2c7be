//! The span of an admission: turns that serve the event are linked to it.

use crate::domain::ids::{EventId, Owner, SessionKey, hmac_hex};
use crate::domain::trace::TraceParent;
use crate::process::tracer::{SpanAttribute, SpanStart, TraceSpan, TraceSpanKind, names, session_attributes};
use crate::store::Intake;
use crate::venue::Venue;

/// Returns the place of the span of an admission: in the trace of the span that sent the event, else in one of its own.
/// While traces are off, it is the place of the sender.
pub(super) fn find_place(venue: &Venue, owner: &Owner, id: &EventId, sent: Option<TraceParent>) -> Option<TraceParent> {
    if !venue.tracer.is_on() {
        return sent;
    }
    let digits = hmac_hex(&venue.key, format!("admit {owner} {id}").as_bytes());
    match sent {
        None => venue.tracer.derive_place(&digits, &digits[32..]),
        Some(sent) => venue.tracer.derive_place(&format!("{:032x}", sent.trace_id()), &digits[32..]),
    }
}

/// What was admitted, for its span.
#[derive(Debug, Clone, Copy)]
pub struct AdmittedEvent<'a> {
    /// Owner of the agent.
    pub owner: &'a Owner,
    /// Session that serves it.
    pub session: &'a SessionKey,
    /// Id that its producer gave.
    pub id: &'a EventId,
    /// Span that sent it.
    pub sent: Option<TraceParent>,
    /// How the admission ended.
    pub outcome: &'a Intake,
}

/// Ends the span of an admission.
pub fn end_admit_span(venue: &Venue, start: Option<SpanStart>, admitted: AdmittedEvent<'_>) {
    let AdmittedEvent { owner, session, id, sent, outcome } = admitted;
    let (Some(start), Some(at)) = (start, find_place(venue, owner, id, sent)) else { return };
    let mut span = TraceSpan::new(at, sent.map(TraceParent::span_id), "admit", TraceSpanKind::Consumer);
    span.attributes = session_attributes(owner, session);
    span.attributes.push(SpanAttribute::new(names::OPERATION, names::operation::INVOKE_AGENT));
    span.attributes.push(SpanAttribute::new(names::OUTCOME, outcome_word(outcome)));
    venue.tracer.end(start, span);
}

const fn outcome_word(outcome: &Intake) -> &'static str {
    match outcome {
        Intake::Nothing => "nothing",
        Intake::New => "new",
        Intake::Duplicate => "duplicate",
        Intake::Conflict => "conflict",
        Intake::ReplaceRunning => "replace",
        Intake::Refused(_) => "refused",
    }
}
