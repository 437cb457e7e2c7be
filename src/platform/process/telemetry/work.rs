//! Metrics of the work of a process: its jobs, waits, retries, sweeps and prompts.

use super::{Label, OwnedLabel};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;

/// A gauge of seconds.
type SecondsGauge = Gauge<f64, AtomicU64>;

/// Counters of jobs, waits and retries, and gauges of what waits.
#[derive(Debug)]
pub struct WorkMetrics {
    jobs_ended: Family<[Label; 1], Counter>,
    retries: Family<[Label; 1], Counter>,
    denials: Family<[Label; 1], Counter>,
    /// Lapsed leases that this process found when it took over their sessions.
    pub crashes: Counter,
    /// Seconds between the publication of a message and its admission.
    pub queue_wait: Histogram,
    /// Number of slots of this worker.
    pub slots: Gauge,
    /// Commits of this worker whose messages are not published yet.
    pub outbox_waiting: Gauge,
    /// Seconds of one sweep.
    pub sweep_seconds: Histogram,
    /// Seconds by which the last sweep began late.
    pub sweep_lag: SecondsGauge,
    /// Owners of whom something was due at the last sweep.
    pub owners_due: Gauge,
    /// Seconds since a sweep first named the due session that waits longest.
    pub due_oldest: SecondsGauge,
    sessions: Family<[Label; 1], Gauge>,
    /// Approvals without an answer, of the owners that this worker audits.
    pub approvals_open: Gauge,
    /// Seconds since the oldest of them was asked for.
    pub approvals_oldest: SecondsGauge,
    /// Bytes of a prompt that a model answered.
    pub prompt_bytes: Histogram,
    prompt_parts: Family<[Label; 1], Counter>,
    prefixes: Family<[Label; 1], Counter>,
}

impl Default for WorkMetrics {
    fn default() -> Self {
        Self {
            jobs_ended: Family::default(),
            retries: Family::default(),
            denials: Family::default(),
            crashes: Counter::default(),
            // 1 ms to 9 h.
            queue_wait: Histogram::new(exponential_buckets(0.001, 4.0, 13)),
            slots: Gauge::default(),
            outbox_waiting: Gauge::default(),
            sweep_seconds: Histogram::new(exponential_buckets(0.001, 4.0, 9)),
            sweep_lag: Gauge::default(),
            owners_due: Gauge::default(),
            due_oldest: Gauge::default(),
            sessions: Family::default(),
            approvals_open: Gauge::default(),
            approvals_oldest: Gauge::default(),
            // 1 KiB to 4 MiB.
            prompt_bytes: Histogram::new(exponential_buckets(1024.0, 2.0, 13)),
            prompt_parts: Family::default(),
            prefixes: Family::default(),
        }
    }
}

impl WorkMetrics {
    pub(super) fn register(&self, r: &mut Registry) {
        r.register("jobs_ended", "jobs by the status that they ended with", self.jobs_ended.clone());
        r.register("retries", "work that is done again, by reason", self.retries.clone());
        r.register("denials", "calls without the authority for them, by where they were refused", self.denials.clone());
        r.register("crashes", "lapsed leases found by the worker that took over the session", self.crashes.clone());
        r.register(
            "queue_wait_seconds",
            "seconds from the publication of a message to its admission",
            self.queue_wait.clone(),
        );
        r.register("slots", "slots of this worker", self.slots.clone());
        r.register(
            "outbox_waiting",
            "commits of this worker whose messages are not published yet",
            self.outbox_waiting.clone(),
        );
        r.register("sweep_seconds", "seconds of one sweep", self.sweep_seconds.clone());
        r.register("sweep_lag_seconds", "seconds by which the last sweep began late", self.sweep_lag.clone());
        r.register("owners_due", "owners of whom something was due at the last sweep", self.owners_due.clone());
        r.register(
            "due_oldest_seconds",
            "seconds since a sweep of this worker first named the due session that waits longest",
            self.due_oldest.clone(),
        );
        r.register("sessions", "sessions of the whole venue that run a turn or wait for one", self.sessions.clone());
        r.register(
            "approvals_open",
            "approvals without an answer, of owners that this worker audits",
            self.approvals_open.clone(),
        );
        r.register(
            "approvals_oldest_seconds",
            "seconds since the oldest of them was asked for",
            self.approvals_oldest.clone(),
        );
        r.register("prompt_bytes", "bytes of a prompt that a model was asked", self.prompt_bytes.clone());
        r.register(
            "prompt_parts_cut",
            "parts of prompts that are not in them as a whole, by status",
            self.prompt_parts.clone(),
        );
        r.register(
            "prompt_prefixes",
            "prompts of a session's later turns by whether the stable prefix was kept",
            self.prefixes.clone(),
        );
    }

    /// Begins the series of known labels at zero.
    pub(super) fn begin_series(&self) {
        for (family, name, values) in [
            (&self.jobs_ended, "status", &["complete", "failed", "cancelled", "rejected"][..]),
            (&self.retries, "reason", &["model", "conflict", "redelivery", "store", "lease"][..]),
            (&self.denials, "by", &["tool", "http"][..]),
            (&self.prompt_parts, "status", &["shrunk", "dropped", "denied", "failed"][..]),
            (&self.prefixes, "kept", &["yes", "no"][..]),
        ] {
            for value in values {
                drop(family.get_or_create(&[(name, *value)]));
            }
        }
    }

    /// Counts a job that ended: `status` complete, failed, cancelled or rejected.
    pub fn count_job_end(&self, status: &'static str) {
        self.jobs_ended.get_or_create(&[("status", status)]).inc();
    }

    /// Counts work that is done again: `reason` model, conflict, redelivery, store or lease.
    pub fn count_retry(&self, reason: &'static str) {
        self.retries.get_or_create(&[("reason", reason)]).inc();
    }

    /// Counts a refusal for want of authority: `by` tool or http.
    pub fn count_denial(&self, by: &'static str) {
        self.denials.get_or_create(&[("by", by)]).inc();
    }

    /// Sets how many sessions of the venue run a turn, and how many wait for one.
    pub fn set_sessions(&self, running: u64, waiting: u64) {
        for (state, number) in [("running", running), ("waiting", waiting)] {
            self.sessions.get_or_create(&[("state", state)]).set(i64::try_from(number).unwrap_or(i64::MAX));
        }
    }

    /// Counts a part that is not in the prompt as a whole: `status` shrunk, dropped, denied or failed.
    pub fn count_prompt_part(&self, status: &'static str) {
        self.prompt_parts.get_or_create(&[("status", status)]).inc();
    }

    /// Counts a prompt by whether it begins with the same system prompt and tools as the one before it in its session.
    pub fn count_prefix(&self, is_kept: bool) {
        self.prefixes.get_or_create(&[("kept", if is_kept { "yes" } else { "no" })]).inc();
    }
}

/// Metrics by agent, of the agents that `metrics.agents` lists.
#[derive(Debug, Default)]
pub struct AgentMetrics {
    listed: BTreeSet<String>,
    turns: Family<[OwnedLabel; 1], Counter>,
    tokens: Family<[OwnedLabel; 1], Counter>,
    dollars: Family<[OwnedLabel; 1], Counter<f64, AtomicU64>>,
    jobs_ended: Family<[OwnedLabel; 2], Counter>,
}

impl AgentMetrics {
    /// Makes the metrics of the listed agents.
    pub fn new(listed: BTreeSet<String>) -> Self {
        Self { listed, ..Self::default() }
    }

    pub(super) fn register(&self, r: &mut Registry) {
        if self.listed.is_empty() {
            return;
        }
        r.register("agent_turns", "turns committed, of the agents in `metrics.agents`", self.turns.clone());
        r.register(
            "agent_tokens",
            "tokens of prompts and replies, of the agents in `metrics.agents`",
            self.tokens.clone(),
        );
        r.register(
            "agent_spent_dollars",
            "cost of model calls, of the agents in `metrics.agents`",
            self.dollars.clone(),
        );
        r.register(
            "agent_jobs_ended",
            "jobs that turns ended, by status, of the agents in `metrics.agents`",
            self.jobs_ended.clone(),
        );
    }

    /// Counts a committed turn of an agent.
    pub fn count_turn(&self, agent: &str) {
        if self.listed.contains(agent) {
            self.turns.get_or_create(&[("agent", agent.to_owned())]).inc();
        }
    }

    /// Adds what a model call of an agent used, with its cost in billionths of a dollar.
    pub fn record_use(&self, agent: &str, tokens: u64, nano: u64) {
        if !self.listed.contains(agent) {
            return;
        }
        let labels = [("agent", agent.to_owned())];
        self.tokens.get_or_create(&labels).inc_by(tokens);
        #[expect(
            clippy::cast_precision_loss,
            reason = "a cost beyond 2^53 billionths of a dollar loses its last digits"
        )]
        let dollars = nano as f64 / 1e9;
        self.dollars.get_or_create(&labels).inc_by(dollars);
    }

    /// Counts a job that a turn of an agent ended.
    pub fn count_job_end(&self, agent: &str, status: &'static str) {
        if self.listed.contains(agent) {
            self.jobs_ended.get_or_create(&[("agent", agent.to_owned()), ("status", status.to_owned())]).inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::process::telemetry::Metrics;

    #[test]
    fn only_listed_agents_have_series_of_their_own() {
        let metrics = Metrics::for_agents(["known".to_owned()].into());
        for agent in ["known", "other"] {
            metrics.agents.count_turn(agent);
            metrics.agents.record_use(agent, 7, 250_000_000);
            metrics.agents.count_job_end(agent, "complete");
        }
        let text = metrics.encode();
        assert!(text.contains("trellis_agent_turns_total{agent=\"known\"} 1\n"), "{text}");
        assert!(text.contains("trellis_agent_tokens_total{agent=\"known\"} 7\n"), "{text}");
        assert!(text.contains("trellis_agent_spent_dollars_total{agent=\"known\"} 0.25\n"), "{text}");
        assert!(text.contains("trellis_agent_jobs_ended_total{agent=\"known\",status=\"complete\"} 1\n"), "{text}");
        assert!(!text.contains("\"other\""), "{text}");
        assert!(!Metrics::new().encode().contains("trellis_agent_"));
    }
}
