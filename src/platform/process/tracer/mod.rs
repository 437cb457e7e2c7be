//! Spans of traces on their way to a collector. What makes a span never waits: the queue is bounded, and what finds no
//! room in it is counted and dropped.
//!
//! Spans are made of explicit ids instead of those of `tracing-opentelemetry`: a call's `traceparent` is derived from its
//! turn, so that a repeated call carries the same one, and the exported spans must have the same ids. The queue is a
//! channel of the runtime instead of the SDK's batch processor, whose thread has no runtime to send with. The messages
//! are those of OpenTelemetry.

pub mod names;
pub mod otlp;

use crate::domain::ids::{Owner, SessionKey};
use crate::domain::time::Millis;
use crate::domain::trace::TraceParent;
use crate::process::clock::Clock;
use crate::process::telemetry::Metrics;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

/// Most spans that wait for the collector; one has about 1 KB.
pub const QUEUE_SPANS: usize = 8_192;
/// Most characters of a name or a text of a span.
const TEXT_CHARS: usize = 1_024;
/// Nanoseconds of a millisecond.
const NANOS: u64 = 1_000_000;

/// What a span is of, as OpenTelemetry has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceSpanKind {
    /// Work inside the process.
    Internal,
    /// A call to another server.
    Client,
    /// A message that was sent.
    Producer,
    /// A message that was received.
    Consumer,
}

/// Value of a span's attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum SpanValue {
    /// A text; at most 1,024 characters of it are sent.
    Text(String),
    /// A whole number.
    Number(i64),
    /// Several texts, in their order.
    Texts(Vec<String>),
}

impl From<&str> for SpanValue {
    fn from(text: &str) -> Self {
        Self::Text(shorten(text))
    }
}

impl From<String> for SpanValue {
    fn from(text: String) -> Self {
        Self::Text(shorten(&text))
    }
}

impl From<u64> for SpanValue {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

/// An attribute of a span.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanAttribute {
    /// Name of the attribute, one of [`names`].
    pub name: &'static str,
    /// Value under that name.
    pub value: SpanValue,
}

impl SpanAttribute {
    /// Makes an attribute.
    pub fn new(name: &'static str, value: impl Into<SpanValue>) -> Self {
        Self { name, value: value.into() }
    }
}

/// Returns the attributes by which trace backends find a session, its agent and its user.
pub fn session_attributes(owner: &Owner, session: &SessionKey) -> Vec<SpanAttribute> {
    vec![
        SpanAttribute::new(names::SESSION, session.session.as_str()),
        SpanAttribute::new(names::CONVERSATION, session.session.as_str()),
        SpanAttribute::new(names::USER, owner.to_string()),
        SpanAttribute::new(names::AGENT, session.agent.as_str()),
    ]
}

/// A span that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceSpan {
    /// Ids of the span and its trace.
    pub place: TraceParent,
    /// Id of the span that it is a part of; `None` for the root of its trace.
    pub parent: Option<u64>,
    /// Spans of other traces that it continues or answers.
    pub links: Vec<TraceParent>,
    /// Name as a trace backend lists it.
    pub name: String,
    /// What the span is of.
    pub kind: TraceSpanKind,
    /// Start, in nanoseconds since 1970.
    pub start: u64,
    /// End, in nanoseconds since 1970.
    pub end: u64,
    /// Attributes of the span.
    pub attributes: Vec<SpanAttribute>,
    /// Kind of the error that it ended with, a word of few; `None` without one.
    pub error: Option<String>,
}

/// Start of a span that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanStart {
    time: Millis,
    steady: Duration,
}

impl SpanStart {
    /// Returns the start of a span that begins now.
    pub fn now(clock: &Clock) -> Self {
        Self { time: clock.now(), steady: clock.steady() }
    }

    /// Returns the start of a span that began at `steady`, by the steady clock.
    pub fn at_steady(clock: &Clock, steady: Duration) -> Self {
        let ago = clock.steady().saturating_sub(steady);
        let ago = u64::try_from(ago.as_millis()).unwrap_or(u64::MAX);
        Self { time: Millis(clock.now().0.saturating_sub(ago)), steady }
    }

    /// Returns the start and an end at this moment, in nanoseconds since 1970.
    fn until_now(self, clock: &Clock) -> (u64, u64) {
        let took = clock.steady().saturating_sub(self.steady);
        let start = self.time.0.saturating_mul(NANOS);
        (start, start.saturating_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Sends spans to the queue of the collector. Off, it does nothing. Clones share the queue.
#[derive(Clone, Default)]
pub struct Tracer(Option<Arc<SpanQueue>>);

struct SpanQueue {
    sender: mpsc::Sender<TraceSpan>,
    /// Traces whose id, by its last 63 bits, is below this are recorded.
    below: u64,
    clock: Clock,
    metrics: Arc<Metrics>,
    has_warned: AtomicBool,
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").field("is_on", &self.is_on()).finish_non_exhaustive()
    }
}

impl Tracer {
    /// Returns a tracer and the queue that its spans wait in. `percent` of the traces are recorded, by their ids: all
    /// processes record the same ones.
    pub fn open(percent: u32, clock: Clock, metrics: Arc<Metrics>) -> (Self, mpsc::Receiver<TraceSpan>) {
        let (sender, receiver) = mpsc::channel(QUEUE_SPANS);
        let below = (1_u64 << 63) / 100 * u64::from(percent.min(100));
        let below = if percent >= 100 { u64::MAX } else { below };
        (
            Self(Some(Arc::new(SpanQueue { sender, below, clock, metrics, has_warned: AtomicBool::new(false) }))),
            receiver,
        )
    }

    /// Whether spans are recorded at all.
    pub const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Whether spans of this trace are recorded.
    pub fn records(&self, trace: u128) -> bool {
        #[expect(clippy::cast_possible_truncation, reason = "the last 63 bits are what decides")]
        let low = trace as u64 & (u64::MAX >> 1);
        self.0.as_ref().is_some_and(|queue| low < queue.below)
    }

    /// Returns the place whose ids are the first digits of two hashes in hexadecimal; `None` if they are too few.
    pub fn derive_place(&self, trace: &str, span: &str) -> Option<TraceParent> {
        let trace = u128::from_str_radix(trace.get(..32)?, 16).ok()?;
        let span = u64::from_str_radix(span.get(..16)?, 16).ok()?;
        TraceParent::new(trace, span, self.records(trace))
    }

    /// Returns the start of a span that begins now; `None` when off.
    pub fn start(&self) -> Option<SpanStart> {
        self.0.as_ref().map(|queue| SpanStart::now(&queue.clock))
    }

    /// Returns the start of a span that began at `steady`, by the steady clock; `None` when off.
    pub fn start_at(&self, steady: Duration) -> Option<SpanStart> {
        self.0.as_ref().map(|queue| SpanStart::at_steady(&queue.clock, steady))
    }

    /// Ends a span now: it has its end and waits for the collector, or is dropped if its trace isn't recorded or the
    /// queue is full.
    pub fn end(&self, start: SpanStart, mut span: TraceSpan) {
        let Some(queue) = self.0.as_ref().filter(|_| self.records(span.place.trace_id())) else { return };
        (span.start, span.end) = start.until_now(&queue.clock);
        span.name = shorten(&span.name);
        match queue.sender.try_send(span) {
            Ok(()) => queue.metrics.traces.spans.inc(),
            Err(_) => queue.drop_span(),
        };
    }
}

impl SpanQueue {
    fn drop_span(&self) -> u64 {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "spans of traces are dropped: the collector of `telemetry.otlp.endpoint` takes them too slowly or not at \
                 all; `trellis_trace_spans_dropped_total` counts them"
            );
        }
        self.metrics.traces.dropped.inc()
    }
}

impl TraceSpan {
    /// Makes a span without links, attributes and error. [`Tracer::end`] sets its times.
    pub fn new(place: TraceParent, parent: Option<u64>, name: impl Into<String>, kind: TraceSpanKind) -> Self {
        let name = name.into();
        let (links, attributes) = (Vec::new(), Vec::new());
        Self { place, parent, links, name, kind, start: 0, end: 0, attributes, error: None }
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(TEXT_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(trace: u128) -> TraceSpan {
        let place = TraceParent::new(trace, 7, true).unwrap();
        TraceSpan::new(place, None, "x".repeat(2_000), TraceSpanKind::Internal)
    }

    #[test]
    fn a_span_has_its_times_and_a_bounded_name() {
        let clock = Clock::manual(Millis(1_000));
        let (tracer, mut queue) = Tracer::open(100, clock.clone(), Arc::new(Metrics::new()));
        let start = tracer.start().unwrap();
        clock.advance(Duration::from_millis(5));
        tracer.end(start, span(1));
        let sent = queue.try_recv().unwrap();
        assert_eq!((sent.start, sent.end), (1_000_000_000, 1_005_000_000));
        assert_eq!(sent.name.chars().count(), 1_025);
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let metrics = Arc::new(Metrics::new());
        let (tracer, queue) = Tracer::open(100, Clock::manual(Millis(1)), Arc::clone(&metrics));
        for _ in 0..QUEUE_SPANS + 3 {
            tracer.end(tracer.start().unwrap(), span(1));
        }
        assert_eq!(metrics.traces.dropped.get(), 3);
        assert_eq!(metrics.traces.spans.get(), QUEUE_SPANS as u64);
        drop(queue);
    }

    #[test]
    fn a_share_of_the_traces_is_recorded_by_their_ids() {
        let open = |percent| Tracer::open(percent, Clock::manual(Millis(1)), Arc::new(Metrics::new())).0;
        let (half, none, all) = (open(50), open(0), open(100));
        for (trace, is_in_half) in [(1, true), (u128::from(u64::MAX >> 1), false), (1 << 63, true), (1 << 62, false)] {
            assert_eq!(half.records(trace), is_in_half, "{trace:x}");
            assert!(all.records(trace) && !none.records(trace), "{trace:x}");
        }
    }

    #[test]
    fn a_tracer_that_is_off_records_nothing() {
        let tracer = Tracer::default();
        assert!(!tracer.is_on() && !tracer.records(1) && tracer.start().is_none());
    }
}
