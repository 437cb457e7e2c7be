//! The metrics of `/metrics`.

mod backends;
mod models;
mod traces;
mod work;

pub use backends::BackendMetrics;
pub use models::ModelMetrics;
pub use traces::TraceMetrics;
pub use work::{AgentMetrics, WorkMetrics};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::{prometheus_text, text},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};
use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// One label with its value.
pub type Label = (&'static str, &'static str);

/// One label with a value that is known at run time. Whoever makes one bounds how many there are.
pub type OwnedLabel = (&'static str, String);

/// All metrics of a process. Counters are shared: clone an `Arc` of it.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Events by `kind` and `outcome`; see [`Metrics::count_admitted`].
    pub events_admitted: Family<[Label; 2], Counter>,
    /// Number of committed turns.
    pub turns_committed: Counter,
    /// Number of slots in which a session runs now.
    pub slots_busy: Gauge,
    /// Number of model calls by `outcome`.
    pub model_calls: Family<[Label; 1], Counter>,
    /// Number of tool calls by `outcome`.
    pub tool_calls: Family<[Label; 1], Counter>,
    /// Calls that ended with an unknown outcome, by `of`: `call` of a turn, or invoked `operation`.
    pub outcomes_unknown: Family<[Label; 1], Counter>,
    /// Number of leases that another worker took.
    pub leases_lost: Counter,
    /// Commits that met a document changed by others.
    pub commit_conflicts: Counter,
    /// Number of published outbox messages.
    pub outbox_published: Counter,
    /// Number of sweeps of an owner's due work.
    pub sweeps: Counter,
    /// Messages whose subject names no owner, agent and kind.
    pub messages_unreadable: Counter,
    /// Number of HTTP connections beyond the limits.
    pub http_refused: Counter,
    /// HTTP requests that handled much data.
    pub http_large: Counter,
    /// Tasks of agents that this worker's last audit found lost, and submitted again.
    pub unaccounted: Gauge,
    /// Work of the whole venue that waits or runs: messages in the queue and sessions that are due or run.
    pub work: Gauge,
    /// Number of messages that wait in the queue.
    pub queue_messages: Gauge,
    /// Seconds since the oldest of them was published.
    pub queue_oldest: Gauge,
    /// Number of server settings that break a guarantee now.
    pub settings_wrong: Gauge,
    /// Times at which a setting was found to break a guarantee.
    pub settings_found: Counter,
    /// Steady time of the last measurement of `work`.
    pub work_measured: Mutex<Option<Duration>>,
    /// Part of its memory or disk limit that the store uses, 0 to 1; 0 without a limit.
    pub store_fill: Gauge<f64, AtomicU64>,
    /// Seconds that this machine's clock is ahead, by `of`: `store` or `queue`.
    pub clock_ahead_seconds: Family<[Label; 1], Gauge<f64, AtomicU64>>,
    /// 1 while this machine's clock is too far from the store's for a worker here to begin work.
    pub clock_wrong: Gauge,
    /// Number of tasks that panicked.
    pub task_panics: Counter,
    /// Seconds from grant to commit.
    pub turn_seconds: Histogram,
    /// Seconds of the commit call.
    pub commit_seconds: Histogram,
    /// Use of models.
    pub models: ModelMetrics,
    /// Jobs, waits, retries, sweeps and prompts.
    pub progress: WorkMetrics,
    /// Latencies of store and bus.
    pub backends: BackendMetrics,
    /// Spans of traces.
    pub traces: TraceMetrics,
    /// Metrics of the agents in `metrics.agents`.
    pub agents: AgentMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Returns metrics that are all at zero, without any by agent.
    pub fn new() -> Self {
        Self::for_agents(BTreeSet::new())
    }

    /// Returns metrics that are all at zero; the listed agents have some of their own.
    pub fn for_agents(listed: BTreeSet<String>) -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("trellis"),
            events_admitted: Family::default(),
            turns_committed: Counter::default(),
            slots_busy: Gauge::default(),
            model_calls: Family::default(),
            tool_calls: Family::default(),
            outcomes_unknown: Family::default(),
            leases_lost: Counter::default(),
            commit_conflicts: Counter::default(),
            outbox_published: Counter::default(),
            sweeps: Counter::default(),
            messages_unreadable: Counter::default(),
            http_large: Counter::default(),
            http_refused: Counter::default(),
            unaccounted: Gauge::default(),
            work: Gauge::default(),
            queue_messages: Gauge::default(),
            queue_oldest: Gauge::default(),
            settings_wrong: Gauge::default(),
            settings_found: Counter::default(),
            work_measured: Mutex::default(),
            store_fill: Gauge::default(),
            clock_ahead_seconds: Family::default(),
            clock_wrong: Gauge::default(),
            task_panics: Counter::default(),
            // 10 ms (a scripted model) to 11 min (many tool calls); 1 ms to 4 s (a slow disk).
            turn_seconds: Histogram::new(exponential_buckets(0.01, 2.0, 17)),
            commit_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 13)),
            models: ModelMetrics::default(),
            progress: WorkMetrics::default(),
            backends: BackendMetrics::default(),
            traces: TraceMetrics::default(),
            agents: AgentMetrics::new(listed),
        };
        metrics.register();
        metrics.begin_series();
        metrics
    }

    /// Begins the series of known labels at zero: one that begins with its first event shows no increase, so that an alert
    /// misses that event, and metrics without a series are left out of the text.
    fn begin_series(&self) {
        for kind in ["task", "message"] {
            for outcome in ["new", "duplicate", "conflict", "refused"] {
                drop(self.events_admitted.get_or_create(&[("kind", kind), ("outcome", outcome)]));
            }
        }
        for of in ["call", "operation"] {
            drop(self.outcomes_unknown.get_or_create(&[("of", of)]));
        }
        for outcome in ["ok", "refused", "unavailable"] {
            drop(self.model_calls.get_or_create(&[("outcome", outcome)]));
        }
        for outcome in ["ok", "error", "denied"] {
            drop(self.tool_calls.get_or_create(&[("outcome", outcome)]));
        }
        self.progress.begin_series();
    }

    fn register(&mut self) {
        let r = &mut self.registry;
        r.register("events_admitted", "events by kind and outcome", self.events_admitted.clone());
        r.register("turns_committed", "turns committed", self.turns_committed.clone());
        r.register("slots_busy", "slots of this worker in which a session runs", self.slots_busy.clone());
        r.register("model_calls", "model calls by outcome", self.model_calls.clone());
        r.register("tool_calls", "tool calls by outcome", self.tool_calls.clone());
        r.register(
            "outcomes_unknown",
            "calls that must not be repeated and may or may not have happened",
            self.outcomes_unknown.clone(),
        );
        r.register("leases_lost", "leases that another worker took", self.leases_lost.clone());
        r.register("commit_conflicts", "commits that met a changed document", self.commit_conflicts.clone());
        r.register("outbox_published", "outbox messages published", self.outbox_published.clone());
        r.register("sweeps", "sweeps: looks for owners of whom something is due, and at them", self.sweeps.clone());
        r.register(
            "messages_unreadable",
            "messages whose subject names no owner, agent and kind",
            self.messages_unreadable.clone(),
        );
        r.register("http_large", "HTTP requests that handled much data and were run apart", self.http_large.clone());
        r.register("http_refused", "HTTP connections beyond the limits", self.http_refused.clone());
        r.register(
            "unaccounted",
            "tasks that this worker found lost at its last look, and put back",
            self.unaccounted.clone(),
        );
        self.register_work();
        let r = &mut self.registry;
        r.register(
            "store_fill_ratio",
            "how full the store is, of its limit, 0 to 1; 0 without one",
            self.store_fill.clone(),
        );
        let ahead = self.clock_ahead_seconds.clone();
        r.register("clock_ahead_seconds", "seconds that this machine's clock is ahead, negative behind", ahead);
        r.register(
            "clock_wrong",
            "1 while a worker here begins nothing because of its clock",
            self.clock_wrong.clone(),
        );
        r.register("task_panics", "tasks that panicked", self.task_panics.clone());
        r.register("turn_seconds", "seconds from grant to commit", self.turn_seconds.clone());
        r.register("commit_seconds", "seconds of the commit call", self.commit_seconds.clone());
        self.models.register(r);
        self.progress.register(r);
        self.backends.register(r);
        self.traces.register(r);
        self.agents.register(r);
    }

    fn register_work(&mut self) {
        let r = &mut self.registry;
        r.register(
            "work",
            "messages in the queue, and sessions that wait for a turn or run one, of the whole venue",
            self.work.clone(),
        );
        r.register("queue_messages", "messages that wait in the queue, without wakes", self.queue_messages.clone());
        r.register("queue_oldest_seconds", "age of the oldest message in the queue", self.queue_oldest.clone());
        r.register("settings_wrong", "settings of the servers that break a guarantee", self.settings_wrong.clone());
        r.register(
            "settings_found_wrong",
            "times at which a setting of the servers was found to break a guarantee",
            self.settings_found.clone(),
        );
    }

    /// Counts an event: `kind` task, message, result, cancel or wake; `outcome` new, duplicate, conflict, refused or
    /// error.
    pub fn count_admitted(&self, kind: &'static str, outcome: &'static str) {
        self.events_admitted.get_or_create(&[("kind", kind), ("outcome", outcome)]).inc();
    }

    /// Sets the seconds that this machine's clock is ahead of the one of the `store` or the `queue`.
    pub fn set_clock_ahead(&self, of: &'static str, seconds: f64) {
        self.clock_ahead_seconds.get_or_create(&[("of", of)]).set(seconds);
    }

    /// Counts a slot as busy until the returned guard is dropped.
    pub fn mark_slot_busy(&self) -> BusySlot {
        self.slots_busy.inc();
        BusySlot(self.slots_busy.clone())
    }

    /// Counts a model call: `outcome` ok, refused or unavailable.
    pub fn count_model_call(&self, outcome: &'static str) {
        self.model_calls.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// Counts a tool call: `outcome` is the word of the timeline for it.
    pub fn count_tool_call(&self, outcome: &'static str) {
        self.tool_calls.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// Counts a call with an unknown outcome: `of` a turn (`call`) or of an invocation (`operation`).
    pub fn count_unknown_outcome(&self, of: &'static str) {
        self.outcomes_unknown.get_or_create(&[("of", of)]).inc();
    }

    /// Returns the body of `/metrics`, in the classic text format 0.0.4.
    pub fn encode(&self) -> String {
        let mut body = String::new();
        prometheus_text::encode(&mut body, &self.registry).expect("writing to a string can't fail");
        body
    }

    /// Returns the body of `/metrics`, in the `OpenMetrics` text format.
    pub fn encode_openmetrics(&self) -> String {
        let mut body = String::new();
        text::encode(&mut body, &self.registry).expect("writing to a string can't fail");
        body
    }
}

/// A slot that is counted as busy until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct BusySlot(Gauge);

impl Drop for BusySlot {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_values_are_in_the_exported_text() {
        let metrics = Metrics::new();
        metrics.count_admitted("task", "new");
        metrics.count_admitted("task", "new");
        metrics.count_tool_call("error");
        metrics.sweeps.inc();
        let (_one, other) = (metrics.mark_slot_busy(), metrics.mark_slot_busy());
        drop(other);
        metrics.commit_seconds.observe(0.003);
        let text = metrics.encode();
        for line in [
            "trellis_events_admitted_total{kind=\"task\",outcome=\"new\"} 2",
            "trellis_tool_calls_total{outcome=\"error\"} 1",
            "trellis_sweeps_total 1",
            "trellis_slots_busy 1",
            "trellis_turns_committed_total 0",
            "trellis_outcomes_unknown_total{of=\"call\"} 0",
            "trellis_denials_total{by=\"http\"} 0",
            "trellis_retries_total{reason=\"lease\"} 0",
            "trellis_tool_calls_total{outcome=\"denied\"} 0",
            "trellis_outcomes_unknown_total{of=\"operation\"} 0",
            "trellis_commit_seconds_bucket{le=\"0.004\"} 1",
        ] {
            for text in [&text, &metrics.encode_openmetrics()] {
                assert!(text.lines().any(|got| got == line), "no `{line}` in\n{text}");
            }
        }
        assert!(!text.contains("# EOF") && metrics.encode_openmetrics().ends_with("# EOF\n"));
    }
}
