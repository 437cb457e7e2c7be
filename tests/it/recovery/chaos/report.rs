//! The report of a run, for people.

use super::attack::{Log, Plan};
use super::check::Findings;
use super::worker_logs::STAGES;
use std::fmt;
use std::time::Duration;

/// One run.
pub struct Report<'a> {
    pub name: &'a str,
    pub plan: &'a Plan,
    pub log: &'a Log,
    pub found: &'a Findings,
    pub warnings: &'a [(String, u64)],
    pub start_times: &'a [Duration],
    pub time: Duration,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, plan, log, found, .. } = self;
        let books = &found.books;
        writeln!(f, "chaos: {name}, {:.1} s, seed {}", self.time.as_secs_f64(), plan.seed)?;
        writeln!(
            f,
            "tasks            {} over {} agents, {} processes, {} child jobs",
            found.jobs.0, plan.agents, plan.workers, found.jobs.1
        )?;
        writeln!(f, "sent again       {} submissions under an id already used", log.resubmitted)?;
        writeln!(
            f,
            "kills (SIGKILL)  {} trellis, {} nats-server, {} redis-server",
            log.worker_kills, log.nats_kills, log.redis_kills
        )?;
        if log.disturbed > 0 {
            writeln!(f, "network          {} times late, silent, cut in the middle or cut off", log.disturbed)?;
        }
        if log.cut_short {
            writeln!(f, "cut short        the attack did not get to its end within {:?}", plan.limit)?;
        }
        writeln!(
            f,
            "stage      kills of a process that hit it   sessions hit   sessions there when a server was killed"
        )?;
        for (at, stage) in STAGES.iter().enumerate() {
            writeln!(f, "  {stage:<8} {:>32} {:>14} {:>41}", log.kills_at[at], log.hits[at], log.server_hits[at])?;
        }
        writeln!(f, "turns committed  {}", found.turns)?;
        writeln!(
            f,
            "model calls      {} begun, {} answered, {} repeated before their reply was recorded",
            found.calls.0, found.calls.1, found.repeated
        )?;
        writeln!(f, "asked again      {} after their reply was recorded", found.asked_again)?;
        writeln!(f, "outbound         {} messages, {} seen more than once", found.outbound.0, found.outbound.1)?;
        writeln!(
            f,
            "books            accepted {}, completed {}, failed {}, cancelled {}, rejected {}, pending {}",
            books.accepted, books.completed, books.failed, books.cancelled, books.rejected, books.pending
        )?;
        writeln!(f, "unaccounted = {}", books.unaccounted)?;
        if let (Some(first), Some(slowest), Some(last)) =
            (self.start_times.first(), self.start_times.iter().max(), self.start_times.last())
        {
            writeln!(f, "time to listen   first start {first:.2?}, slowest {slowest:.2?}, last {last:.2?}")?;
        }
        for (text, n) in self.warnings {
            writeln!(f, "warning {n:>6} x {text}")?;
        }
        for fault in log.faults.iter().chain(&found.faults) {
            writeln!(f, "FAULT: {fault}")?;
        }
        Ok(())
    }
}
