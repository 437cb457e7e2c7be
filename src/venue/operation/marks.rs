//! Marks of calls that leave the venue, by which both sides find them in their records.

use super::{Invocation, OpError, Site, TurnSite};
use crate::domain::call::{ReplyStart, SentMarks, trace_context};
use crate::domain::ids::{Owner, SessionKey, hmac_hex};
use crate::domain::trace::TraceParent;
use crate::store::Lease;
use crate::venue::Venue;
use crate::venue::outbound::endpoint::{IDEMPOTENCY_KEY, add_marks};
use reqwest::header::HeaderMap;
use uuid::Uuid;

/// Returns the text that the trace of a turn is derived from.
fn name_turn(owner: &Owner, session: &SessionKey, turn: u64, start: ReplyStart) -> String {
    format!("{owner} {session} {turn} {:?}", start.time_in_ids())
}

/// Returns the place of the root span of a turn under one lease. Its trace is the one of all calls of the turn.
pub fn turn_root(venue: &Venue, lease: &Lease, turn: u64, start: ReplyStart) -> Option<TraceParent> {
    let whole = name_turn(&lease.owner, &lease.session, turn, start);
    let trace = hmac_hex(&venue.key, format!("trace {whole}").as_bytes());
    let span = hmac_hex(&venue.key, format!("root {whole} {}", lease.epoch).as_bytes());
    venue.tracer.derive_place(&trace, &span)
}

impl Invocation<'_> {
    /// Returns the place of the span of this call, which its request outside the venue names as its parent; `None` while
    /// traces are off.
    pub fn span_place(&self) -> Option<TraceParent> {
        if !self.venue.tracer.is_on() {
            return None;
        }
        let sent = TraceParent::parse(&self.sent_marks().traceparent)?;
        TraceParent::new(sent.trace_id(), sent.span_id(), self.venue.tracer.records(sent.trace_id()))
    }

    /// Returns the marks that a call with an effect carries outside the venue. Those of the same call of a turn, or of
    /// the same run of an invoked operation, are the same; all calls of a turn are parts of one trace.
    pub fn sent_marks(&self) -> SentMarks {
        let owner = &self.caller.owner;
        let (whole, job) = match &self.site {
            Site::Turn(TurnSite { lease, turn, start, parent, .. }) => {
                (Some(name_turn(owner, &lease.session, *turn, *start)), parent.job.clone())
            }
            Site::Api { key, job } => (key.as_ref().map(|key| format!("{owner} {key}")), job.clone()),
        };
        let digits = |text: Option<String>| match text {
            Some(text) => hmac_hex(&self.venue.key, text.as_bytes()),
            None => Uuid::new_v4().simple().to_string(),
        };
        let key = self.idempotency_key();
        let trace = digits(whole.map(|whole| format!("trace {whole}")));
        let span = digits(key.as_ref().map(|key| format!("span {key}")));
        SentMarks { traceparent: trace_context(&trace, &span), key, job }
    }

    /// Adds the marks of this call to the headers of its request, and notes them for the ledger. An `Idempotency-Key`
    /// of the call's author stays.
    pub(crate) fn mark_request(&self, headers: &mut HeaderMap) -> Result<(), OpError> {
        let mut marks = self.sent_marks();
        if headers.contains_key(&IDEMPOTENCY_KEY) {
            marks.key = None;
        }
        add_marks(headers, &marks)?;
        self.reads.note_sent(marks);
        Ok(())
    }
}
