//! Marks of calls that leave the venue, by which both sides find them in their records.

use super::{Invocation, OpError, Site, TurnSite};
use crate::domain::call::{SentMarks, trace_context};
use crate::domain::ids::hmac_hex;
use crate::venue::outbound::endpoint::{IDEMPOTENCY_KEY, add_marks};
use reqwest::header::HeaderMap;
use uuid::Uuid;

impl Invocation<'_> {
    /// Returns the marks that a call with an effect carries outside the venue. Those of the same call of a turn, or of
    /// the same run of an invoked operation, are the same; all calls of a turn are parts of one trace.
    pub fn sent_marks(&self) -> SentMarks {
        let owner = &self.caller.owner;
        let (whole, job) = match &self.site {
            Site::Turn(TurnSite { lease, turn, start, parent, .. }) => {
                let whole = format!("{owner} {} {turn} {:?}", lease.session, start.time_in_ids());
                (Some(whole), parent.job.clone())
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
