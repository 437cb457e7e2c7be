//! Cost of a measurement: calls of the store and the bus, fsyncs, and CPU and written bytes of each process.

use super::calls::{CallCounts, CallsByMethod};
use super::servers::{BenchServer, Process};
use super::usage::ProcessUsage;
use crate::venue::Venue;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counter of fsyncs; `None` if they are unknown.
pub type Fsyncs = Option<Arc<AtomicU64>>;

/// Takes samples of all that is used.
pub struct CostProbe {
    counts: Arc<CallCounts>,
    processes: Vec<Process>,
    fsyncs: Fsyncs,
}

/// A sample: everything that was used until one moment.
pub(super) struct UsageSample {
    store: CallsByMethod,
    bus: CallsByMethod,
    fsyncs: Option<u64>,
    processes: Vec<(String, Option<ProcessUsage>)>,
}

/// Difference of two samples, per task or per second.
pub(super) struct UsageDelta<'l> {
    before: &'l UsageSample,
    after: &'l UsageSample,
    among: f64,
}

impl CostProbe {
    /// Counts calls of the store and the bus of a venue that nothing else uses yet. `fsyncs` are those of a store in
    /// this process.
    pub fn for_venue(venue: &mut Venue, servers: &[BenchServer], fsyncs: Fsyncs) -> Self {
        Self { counts: CallCounts::count_calls_of(venue), processes: Process::list_processes(servers), fsyncs }
    }

    pub(super) fn sample(&self) -> UsageSample {
        let processes = self.processes.iter().map(|process| (process.name.clone(), process.usage()));
        UsageSample {
            store: self.counts.store(),
            bus: self.counts.bus(),
            fsyncs: self.fsyncs.as_ref().map(|count| count.load(Ordering::Relaxed)),
            processes: processes.collect(),
        }
    }
}

impl UsageSample {
    /// Returns what was used since `before`, per task.
    #[expect(clippy::cast_precision_loss, reason = "a count of tasks")]
    pub(super) const fn usage_per_task<'l>(&'l self, before: &'l Self, tasks: usize) -> UsageDelta<'l> {
        self.usage_per_second(before, tasks as f64)
    }

    /// Returns what was used since `before`, per second.
    pub(super) const fn usage_per_second<'l>(&'l self, before: &'l Self, seconds: f64) -> UsageDelta<'l> {
        UsageDelta { before, after: self, among: seconds }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of calls and of bytes")]
impl UsageDelta<'_> {
    fn per_unit(&self, before: u64, after: u64) -> f64 {
        after.saturating_sub(before) as f64 / self.among
    }

    fn calls(&self, before: &CallsByMethod, after: &CallsByMethod) -> BTreeMap<&'static str, f64> {
        let each = after.iter().map(|(name, after)| (*name, self.per_unit(*before.get(name).unwrap_or(&0), *after)));
        each.filter(|(_, calls)| *calls > 0.0).collect()
    }

    /// Returns the calls of the store by method.
    pub(super) fn store(&self) -> BTreeMap<&'static str, f64> {
        self.calls(&self.before.store, &self.after.store)
    }

    /// Returns the calls of the bus by method.
    pub(super) fn bus(&self) -> BTreeMap<&'static str, f64> {
        self.calls(&self.before.bus, &self.after.bus)
    }

    /// Returns the fsyncs; `None` if they are unknown.
    pub(super) fn fsyncs(&self) -> Option<f64> {
        Some(self.per_unit(self.before.fsyncs?, self.after.fsyncs?))
    }

    /// Returns CPU seconds and written bytes of each process; `None` if it doesn't run on this machine.
    pub(super) fn processes(&self) -> impl Iterator<Item = (String, Option<(f64, f64)>)> {
        self.before.processes.iter().zip(&self.after.processes).map(|((name, before), (_, after))| {
            let used = before.zip(*after).map(|(before, after)| {
                let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64() / self.among;
                (cpu, self.per_unit(before.written, after.written))
            });
            (name.clone(), used)
        })
    }
}

/// Cost of one task.
#[derive(Debug, Clone, Serialize)]
pub struct TaskCost {
    /// Calls of the store, each a round trip or a few; an embedded queue's calls aren't included.
    pub store_calls_per_task: f64,
    /// Calls of the store by method.
    pub store_calls_per_task_by_method: BTreeMap<&'static str, f64>,
    /// Calls of the bus, the publish of the task included.
    pub bus_calls_per_task: f64,
    /// Fsyncs of an embedded store, one per group of commits; `None`: those of servers are unknown.
    pub fsyncs_per_task: Option<f64>,
    /// Costs of this process (worker, driver, and embedded store) and of the servers.
    pub processes: Vec<ProcessCost>,
}

/// Cost of one task in one process.
#[derive(Debug, Clone, Serialize)]
pub struct ProcessCost {
    /// Name of the process.
    pub process: String,
    /// CPU seconds per 1,000 tasks; `None` if the process is on another machine or not readable.
    pub cpu_seconds_per_1000_tasks: Option<f64>,
    /// Bytes written to a disk per task.
    pub written_bytes_per_task: Option<f64>,
}

impl TaskCost {
    pub(super) fn from_usage(spent: &UsageDelta<'_>) -> Self {
        let by_method = spent.store();
        let processes = spent.processes().map(|(process, used)| ProcessCost {
            process,
            cpu_seconds_per_1000_tasks: used.map(|(cpu, _)| cpu * 1000.0),
            written_bytes_per_task: used.map(|(_, written)| written),
        });
        Self {
            store_calls_per_task: by_method.values().sum(),
            store_calls_per_task_by_method: by_method,
            bus_calls_per_task: spent.bus().values().sum(),
            fsyncs_per_task: spent.fsyncs(),
            processes: processes.collect(),
        }
    }
}
