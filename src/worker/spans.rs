//! Spans of a turn and its stages, in the trace that the turn's calls outside the venue carry. No content is in them.

use super::state::Worker;
use crate::domain::call::{Outcome, PlannedCall, ReplyStart};
use crate::domain::chat::{ModelRequest, Reply};
use crate::domain::trace::TraceParent;
use crate::domain::turn::Turn;
use crate::process::tracer::names::{self, operation};
use crate::process::tracer::{
    SpanAttribute, SpanStart, SpanValue, TraceSpan, TraceSpanKind, Tracer, session_attributes,
};
use crate::store::Lease;
use crate::venue::operation::turn_root;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Most links of a turn to what it serves.
const LINKS: usize = 32;

/// The trace of a running turn. Its root span ends when the last clone is dropped.
pub(crate) struct TurnSpans {
    tracer: Tracer,
    root: TraceParent,
    start: SpanStart,
    /// Submissions that the turn serves, and the turn before.
    links: Vec<TraceParent>,
    /// Name of the root span.
    name: String,
    /// Attributes of every span of the turn.
    common: Vec<SpanAttribute>,
    /// Attributes of the root span alone.
    own: Vec<SpanAttribute>,
    /// Number of spans below the root.
    made: AtomicU64,
    prompt_hash: Mutex<Option<String>>,
    error: Mutex<Option<&'static str>>,
}

impl TurnSpans {
    /// Begins the trace of a turn under a lease; `None` if it isn't recorded. `asked` is when the lease was asked for, on
    /// the steady clock, if this is its first turn; `before` is the turn before.
    pub(crate) fn begin(
        worker: &Worker,
        lease: &Lease,
        turn: &Turn,
        asked: Option<Duration>,
        before: Option<TraceParent>,
    ) -> Option<Arc<Self>> {
        let (tracer, input) = (&worker.venue.tracer, turn.input());
        let now = tracer.start()?;
        let reply = turn.reply_turn();
        let start = if reply.number == input.turn { reply.start } else { ReplyStart::Dated(input.start) };
        let root = turn_root(&worker.venue, lease, input.turn, start).filter(|root| root.is_sampled())?;
        let asked = asked.and_then(|asked| tracer.start_at(asked));
        let plan = &input.plan;
        let served =
            plan.task.iter().chain(&plan.messages).chain(&plan.results).filter_map(|pending| pending.event.trace);
        let mut links: Vec<TraceParent> = before.into_iter().collect();
        for place in served.filter(|place| place.trace_id() != root.trace_id()) {
            if links.len() < LINKS && !links.contains(&place) {
                links.push(place);
            }
        }
        let (owner, session) = (&lease.owner, &lease.session);
        let mut own = vec![
            SpanAttribute::new(names::TURN, format!("{owner}/{session}/{}", input.turn)),
            SpanAttribute::new(names::EPOCH, lease.epoch),
        ];
        own.extend(plan.job().map(|job| SpanAttribute::new(names::JOB, job.as_str())));
        let spans = Arc::new(Self {
            tracer: tracer.clone(),
            root,
            start: asked.unwrap_or(now),
            links,
            name: format!("invoke_agent {}", session.agent),
            common: session_attributes(owner, session),
            own,
            made: AtomicU64::new(0),
            prompt_hash: Mutex::default(),
            error: Mutex::new(Some("aborted")),
        });
        if let Some(asked) = asked {
            let mut lease = spans.stage("lease");
            lease.start = asked;
        }
        Some(spans)
    }

    /// Returns the place of the turn's root span.
    pub(crate) const fn root_place(&self) -> TraceParent {
        self.root
    }

    /// Sets the kind of error that the turn ends with, `None` without one. A turn that is dropped was aborted.
    pub(crate) fn set_error(&self, error: Option<&'static str>) {
        *self.error.lock() = error;
    }

    /// Notes the hash of the prompt that the model gets.
    pub(crate) fn note_prompt(&self, hash: Option<&str>) {
        *self.prompt_hash.lock() = hash.map(str::to_owned);
    }

    /// Begins the span of a stage, which ends with the guard.
    pub(crate) fn stage(self: &Arc<Self>, name: &'static str) -> SpanGuard {
        self.begin_span(None, name.to_owned(), TraceSpanKind::Internal, operation::INVOKE_AGENT)
    }

    /// Begins the span of a model call; unless it is finished, the call was cancelled.
    pub(crate) fn model(self: &Arc<Self>, request: &ModelRequest) -> SpanGuard {
        let model = &request.model;
        let mut span = self.begin_span(None, format!("chat {}", model.name), TraceSpanKind::Client, operation::CHAT);
        span.add(names::PROVIDER, model.provider.as_str());
        span.add(names::REQUEST_MODEL, model.name.as_str());
        span.set_error(Some("cancelled"));
        span
    }

    /// Begins the span of a tool's call, whose place its request outside the venue names.
    pub(crate) fn tool(self: &Arc<Self>, index: u32, call: &PlannedCall, place: Option<TraceParent>) -> SpanGuard {
        let name = format!("execute_tool {}", call.tool);
        let mut span = self.begin_span(place, name, TraceSpanKind::Internal, operation::EXECUTE_TOOL);
        span.add(names::TOOL, call.tool.as_str());
        span.add(names::TOOL_CALL, index.to_string());
        span.add(names::TOOL_OPERATION, call.operation());
        span.set_error(Some("aborted"));
        span
    }

    fn begin_span(
        self: &Arc<Self>,
        place: Option<TraceParent>,
        name: String,
        kind: TraceSpanKind,
        operation: &'static str,
    ) -> SpanGuard {
        let place = place.or_else(|| self.next_place()).unwrap_or(self.root);
        let is_here = place.trace_id() == self.root.trace_id();
        let mut span = TraceSpan::new(place, is_here.then(|| self.root.span_id()), name, kind);
        if !is_here {
            // A call that a person has approved belongs to the turn that asked for it.
            span.links.push(self.root);
        }
        span.attributes.clone_from(&self.common);
        span.attributes.push(SpanAttribute::new(names::OPERATION, operation));
        let start = self.tracer.start().unwrap_or(self.start);
        SpanGuard { spans: Arc::clone(self), start, span: Some(span) }
    }

    fn next_place(&self) -> Option<TraceParent> {
        let made = self.made.fetch_add(1, Ordering::Relaxed);
        TraceParent::new(self.root.trace_id(), derive_span_id(self.root.span_id(), made), true)
    }
}

impl Drop for TurnSpans {
    fn drop(&mut self) {
        let mut span = TraceSpan::new(self.root, None, std::mem::take(&mut self.name), TraceSpanKind::Internal);
        span.links = std::mem::take(&mut self.links);
        span.attributes = std::mem::take(&mut self.common);
        span.attributes.append(&mut self.own);
        span.attributes.push(SpanAttribute::new(names::OPERATION, operation::INVOKE_AGENT));
        let hash = self.prompt_hash.lock().take();
        span.attributes.extend(hash.map(|hash| SpanAttribute::new(names::PROMPT_HASH, hash)));
        let error = *self.error.lock();
        set_error(&mut span, error);
        self.tracer.end(self.start, span);
    }
}

/// A span that has begun; it ends when it is dropped.
pub(crate) struct SpanGuard {
    spans: Arc<TurnSpans>,
    start: SpanStart,
    span: Option<TraceSpan>,
}

impl SpanGuard {
    fn add(&mut self, name: &'static str, value: impl Into<SpanValue>) {
        if let Some(span) = &mut self.span {
            span.attributes.push(SpanAttribute::new(name, value));
        }
    }

    /// Sets the kind of error that it ends with, a word of few; `None` without one.
    pub(crate) fn set_error(&mut self, error: Option<&'static str>) {
        if let Some(span) = &mut self.span {
            set_error(span, error);
        }
    }

    /// Notes the reply of a model call.
    pub(crate) fn finish_reply(&mut self, reply: &Reply) {
        let usage = &reply.usage;
        for (name, tokens) in [
            (names::INPUT_TOKENS, usage.input),
            (names::OUTPUT_TOKENS, usage.output),
            (names::CACHE_READ_TOKENS, usage.cache_read),
            (names::CACHE_WRITE_TOKENS, usage.cache_write),
            (names::REASONING_TOKENS, usage.reasoning),
        ] {
            self.add(name, tokens);
        }
        let reason = match (reply.truncated, reply.calls.is_empty()) {
            (true, _) => "length",
            (false, false) => "tool_calls",
            (false, true) => "stop",
        };
        self.add(names::FINISH_REASONS, SpanValue::Texts(vec![reason.to_owned()]));
        self.set_error(None);
    }

    /// Notes the outcome of a tool's call.
    pub(crate) fn finish_call(&mut self, outcome: Outcome) {
        let word = outcome.as_str();
        self.add(names::OUTCOME, word);
        self.set_error((!matches!(outcome, Outcome::Ok | Outcome::Awaiting)).then_some(word));
    }
}

impl Drop for SpanGuard {
    fn drop(&mut self) {
        if let Some(span) = self.span.take() {
            self.spans.tracer.end(self.start, span);
        }
    }
}

fn set_error(span: &mut TraceSpan, error: Option<&'static str>) {
    span.attributes.retain(|attribute| attribute.name != names::ERROR);
    span.attributes.extend(error.map(|kind| SpanAttribute::new(names::ERROR, kind)));
    span.error = error.map(str::to_owned);
}

/// Returns the id of the `number`th span below another: a permutation of all ids, so that none is there twice.
fn derive_span_id(parent: u64, number: u64) -> u64 {
    let mut mixed = parent.wrapping_add((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)).max(1)
}

/// Ends the span of a relay: messages of one commit were published.
pub(crate) fn end_relay(tracer: &Tracer, start: Option<SpanStart>, sent_by: TraceParent, messages: usize) {
    let id = derive_span_id(sent_by.span_id(), u64::MAX >> 1);
    let (Some(start), Some(place)) = (start, TraceParent::new(sent_by.trace_id(), id, true)) else { return };
    let mut span = TraceSpan::new(place, Some(sent_by.span_id()), "relay", TraceSpanKind::Producer);
    span.attributes = vec![
        SpanAttribute::new(names::OPERATION, operation::INVOKE_AGENT),
        SpanAttribute::new(names::MESSAGES, messages as u64),
    ];
    tracer.end(start, span);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn spans_below_one_have_ids_of_their_own() {
        let ids: BTreeSet<u64> = (0..10_000).map(|number| derive_span_id(7, number)).collect();
        assert_eq!(ids.len(), 10_000);
        assert!(!ids.contains(&0) && !ids.contains(&7));
    }
}
