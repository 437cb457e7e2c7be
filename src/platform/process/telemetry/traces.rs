//! Spans on their way to a collector.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

/// Counters of the spans of traces; all are zero while traces are off.
#[derive(Debug, Default)]
pub struct TraceMetrics {
    /// Spans that were put into the queue.
    pub spans: Counter,
    /// Spans that the collector has not got: the queue was full, or it didn't take them.
    pub dropped: Counter,
}

impl TraceMetrics {
    pub(super) fn register(&self, r: &mut Registry) {
        r.register("trace_spans", "spans of traces that wait for the collector or were sent", self.spans.clone());
        r.register("trace_spans_dropped", "spans of traces that the collector has not got", self.dropped.clone());
    }
}
