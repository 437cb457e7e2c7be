//! What a measurement costs: calls of the store and of the bus, fsyncs, and CPU and written bytes of each process.

use super::calls::{CallCounts, Calls};
use super::servers::{BenchServer, Process};
use super::usage::Usage;
use crate::venue::Venue;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts fsyncs; `None`: nobody here knows them.
pub type Fsyncs = Option<Arc<AtomicU64>>;

/// Looks at what is used.
pub struct Probe {
    counts: Arc<CallCounts>,
    processes: Vec<Process>,
    fsyncs: Fsyncs,
}

/// Everything that was used until one moment.
pub(super) struct Look {
    store: Calls,
    bus: Calls,
    fsyncs: Option<u64>,
    processes: Vec<(String, Option<Usage>)>,
}

/// What was used between two looks, for each of so many tasks, or seconds.
pub(super) struct Spent<'l> {
    before: &'l Look,
    after: &'l Look,
    among: f64,
}

impl Probe {
    /// Counts what is asked of the store and the bus of a venue from now on, which nobody else may have as yet. `fsyncs`
    /// are those of a store in this process.
    pub fn on(venue: &mut Venue, servers: &[BenchServer], fsyncs: Fsyncs) -> Self {
        Self { counts: CallCounts::around(venue), processes: Process::all(servers), fsyncs }
    }

    pub(super) fn look(&self) -> Look {
        let processes = self.processes.iter().map(|process| (process.name.clone(), process.usage()));
        Look {
            store: self.counts.store(),
            bus: self.counts.bus(),
            fsyncs: self.fsyncs.as_ref().map(|count| count.load(Ordering::Relaxed)),
            processes: processes.collect(),
        }
    }
}

impl Look {
    /// What was used since `before`, for each of so many tasks.
    #[expect(clippy::cast_precision_loss, reason = "a count of tasks")]
    pub(super) const fn since<'l>(&'l self, before: &'l Self, tasks: usize) -> Spent<'l> {
        self.during(before, tasks as f64)
    }

    /// What was used since `before`, for each of so many seconds.
    pub(super) const fn during<'l>(&'l self, before: &'l Self, seconds: f64) -> Spent<'l> {
        Spent { before, after: self, among: seconds }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of calls and of bytes")]
impl Spent<'_> {
    fn each(&self, before: u64, after: u64) -> f64 {
        after.saturating_sub(before) as f64 / self.among
    }

    fn calls(&self, before: &Calls, after: &Calls) -> BTreeMap<&'static str, f64> {
        let each = after.iter().map(|(name, after)| (*name, self.each(*before.get(name).unwrap_or(&0), *after)));
        each.filter(|(_, calls)| *calls > 0.0).collect()
    }

    /// Calls of the store by method.
    pub(super) fn store(&self) -> BTreeMap<&'static str, f64> {
        self.calls(&self.before.store, &self.after.store)
    }

    /// Calls of the bus by method.
    pub(super) fn bus(&self) -> BTreeMap<&'static str, f64> {
        self.calls(&self.before.bus, &self.after.bus)
    }

    /// `None`: nobody here knows.
    pub(super) fn fsyncs(&self) -> Option<f64> {
        Some(self.each(self.before.fsyncs?, self.after.fsyncs?))
    }

    /// CPU seconds and written bytes of each process; `None`: it doesn't run on this machine.
    pub(super) fn processes(&self) -> impl Iterator<Item = (String, Option<(f64, f64)>)> {
        self.before.processes.iter().zip(&self.after.processes).map(|((name, before), (_, after))| {
            let used = before.zip(*after).map(|(before, after)| {
                let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64() / self.among;
                (cpu, self.each(before.written, after.written))
            });
            (name.clone(), used)
        })
    }
}

/// What a task costs.
#[derive(Debug, Clone, Serialize)]
pub struct TaskCost {
    /// Calls of the store, each a round trip or a few; what an embedded queue does in it isn't among them.
    pub store_calls_per_task: f64,
    /// The same by method.
    pub store_calls_per_task_by_method: BTreeMap<&'static str, f64>,
    /// Calls of the bus, the publish of the task among them.
    pub bus_calls_per_task: f64,
    /// Fsyncs of an embedded store, one per group of commits; `None`: those of servers aren't known.
    pub fsyncs_per_task: Option<f64>,
    /// This process (worker, driver, and store when embedded) and the servers.
    pub processes: Vec<ProcessCost>,
}

/// What a task costs a process.
#[derive(Debug, Clone, Serialize)]
pub struct ProcessCost {
    /// Which.
    pub process: String,
    /// CPU seconds per 1,000 tasks; `None`: it doesn't run on this machine, or can't be looked at.
    pub cpu_seconds_per_1000_tasks: Option<f64>,
    /// Bytes that it had written to a disk per task.
    pub written_bytes_per_task: Option<f64>,
}

impl TaskCost {
    pub(super) fn of(spent: &Spent<'_>) -> Self {
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
