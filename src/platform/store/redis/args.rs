//! Arguments of the functions. Everything is binary safe: Lua handles user bytes as one opaque string, never as a
//! format of its own.
//!
//! A list is its count and then its items; an option is `0`, or `1` and the value.

use super::connection::Repeatability;
use super::keyspace::LIBRARY;
use super::options::ServerOrInjected;
use crate::domain::ids::{EventId, JobId};
use crate::domain::job::JobStatus;
use crate::domain::quota::{Quota, QuotaKind};
use crate::domain::time::Millis;
use crate::store::{
    DocEffect, DocWrite, Expect, JobFinish, LeaseUse, METHODS, NewEvent, NewJob, OutboxEntry, Repeat, RestingSession,
};
use bytes::Bytes;
use redis::Cmd;

/// Largest whole number that a Lua number holds exactly.
const LARGEST: u64 = 1 << 53;

/// Functions whose changes a failover may lose without harm: a lease that isn't renewed, and a read of due owners that
/// comes again.
const LOSABLE: [&str; 9] = ["scan", "page", "sessions", "mail", "outbox", "usage", "due", "libraries", "renew"];

/// The arguments of one call of a function.
pub struct Args {
    cmd: Cmd,
    again: Repeatability,
    changes: bool,
}

/// Returns whether a function may be called again, by the [`Repeat`] of its method. (`write_at_limit` is a write,
/// `grant` an admission without an event.)
fn repeatability(function: &str) -> Repeatability {
    let method = if function == "write_at_limit" { "write" } else { function };
    let is_once = METHODS.iter().any(|known| known.name == method && known.repeat == Repeat::Once);
    if is_once { Repeatability::No } else { Repeatability::Yes }
}

impl Args {
    /// Returns a call of the function of `method` on the keys that start with `base`.
    ///
    /// `base` is no key itself, so that a node of a cluster that hands the keys of its slot over refuses calls on them:
    /// it names the other node, which has only some of the keys yet. The caller waits this out and doesn't follow
    /// ([`super::failure::is_temporary`]). A replica that becomes the primary at that moment doesn't know of it: see
    /// `config/redis-cluster.conf`.
    pub fn new(method: &str, base: &str) -> Self {
        let mut cmd = redis::cmd("FCALL");
        cmd.arg(LIBRARY.function(method)).arg(1).arg(base);
        Self { cmd, again: repeatability(method), changes: !LOSABLE.contains(&method) }
    }

    /// Returns whether the call may be made again.
    pub const fn repeatability(&self) -> Repeatability {
        self.again
    }

    /// Whether the call may change records that must not be lost.
    pub const fn changes_records(&self) -> bool {
        self.changes
    }

    /// Returns the command of the call.
    pub const fn cmd(&self) -> &Cmd {
        &self.cmd
    }

    /// Adds bytes as they are.
    pub fn bytes(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.cmd.arg(bytes.as_ref());
        self
    }

    /// Adds the time, which the function reads from the server if the text is empty.
    pub fn clock(&mut self, clock: ServerOrInjected, now: Millis) -> &mut Self {
        match clock {
            ServerOrInjected::Server => self.bytes(""),
            ServerOrInjected::Injected => self.number(now.0),
        }
    }

    /// Adds a whole number, capped at what Lua holds exactly.
    pub fn number(&mut self, number: u64) -> &mut Self {
        self.cmd.arg(number.min(LARGEST));
        self
    }

    /// Adds a flag as `0` or `1`.
    pub fn flag(&mut self, flag: bool) -> &mut Self {
        self.number(u64::from(flag))
    }

    /// Adds an optional value: `0`, or `1` and the value.
    pub fn option(&mut self, value: Option<impl AsRef<[u8]>>) -> &mut Self {
        match value {
            Some(value) => self.flag(true).bytes(value),
            None => self.flag(false),
        }
    }

    fn list<T>(&mut self, items: &[T], item: impl Fn(&mut Self, &T)) -> &mut Self {
        self.number(items.len() as u64);
        for one in items {
            item(self, one);
        }
        self
    }

    /// Adds a list of texts.
    pub fn texts(&mut self, texts: &[String]) -> &mut Self {
        self.list(texts, |args, text| {
            args.bytes(text);
        })
    }

    /// Adds a list of event ids.
    pub fn events(&mut self, events: &[EventId]) -> &mut Self {
        self.list(events, |args, event| {
            args.bytes(event.as_str());
        })
    }

    /// Adds a list of resting sessions with their arrivals.
    pub fn resting_sessions(&mut self, sessions: &[RestingSession]) -> &mut Self {
        self.list(sessions, |args, resting| {
            args.bytes(resting.session.token()).number(resting.arrivals);
        })
    }

    /// Adds a list of recorded calls by index.
    pub fn calls(&mut self, calls: &[(u32, Bytes)]) -> &mut Self {
        self.list(calls, |args, (index, bytes)| {
            args.number(u64::from(*index)).bytes(bytes);
        })
    }

    /// Adds a list of document writes.
    pub fn writes(&mut self, writes: &[DocWrite]) -> &mut Self {
        self.list(writes, |args, write| {
            args.bytes(&write.key);
            match write.expect {
                Expect::Any => args.bytes(""),
                Expect::Version(version) => args.number(version),
            };
            match &write.change {
                DocEffect::Put(bytes) => args.bytes("p").bytes(bytes),
                DocEffect::Delete => args.bytes("d"),
                DocEffect::Check => args.bytes("c"),
            };
        })
    }

    /// Adds a list of jobs to open.
    pub fn jobs(&mut self, jobs: &[NewJob]) -> &mut Self {
        self.list(jobs, |args, job| {
            args.bytes(job.job.as_str()).bytes(&job.head).bytes(job.parent.as_ref().map_or("", JobId::as_str));
        })
    }

    /// Adds the end of one job.
    pub fn finish(&mut self, finish: &JobFinish) -> &mut Self {
        self.bytes(finish.job.as_str()).bytes(finish.status.as_str()).bytes(&finish.result)
    }

    /// Adds the optional status of the served job.
    pub fn status(&mut self, status: Option<&(JobId, JobStatus)>) -> &mut Self {
        match status {
            Some((job, status)) => self.flag(true).bytes(job.as_str()).bytes(status.as_str()),
            None => self.flag(false),
        }
    }

    /// Adds a list of ends of jobs.
    pub fn finishes(&mut self, finishes: &[JobFinish]) -> &mut Self {
        self.list(finishes, |args, finish| {
            args.finish(finish);
        })
    }

    /// Adds a list of outbox entries.
    pub fn outbox(&mut self, entries: &[OutboxEntry]) -> &mut Self {
        self.list(entries, |args, entry| {
            args.bytes(&entry.id).bytes(&entry.message);
        })
    }

    /// Adds an event with its jobs, messages and quota.
    pub fn event(&mut self, event: &NewEvent) -> &mut Self {
        self.bytes(event.id.as_str())
            .bytes(&event.body_hash)
            .bytes(event.kind.letter().to_string())
            .option(event.job.as_ref().map(JobId::as_str))
            .bytes(&event.order)
            .bytes(&event.body)
            .jobs(event.open.as_slice())
            .finishes(event.finish.as_slice())
            .outbox(&event.outbox)
            .quota(event.quota.as_ref())
            .flag(event.may_replace)
    }

    /// Adds an optional quota, in the order of [`QuotaKind::ALL`].
    pub fn quota(&mut self, quota: Option<&Quota>) -> &mut Self {
        let Some(quota) = quota else { return self.flag(false) };
        self.flag(true);
        for kind in QuotaKind::ALL {
            self.number(quota.get(kind));
        }
        self
    }

    /// Adds what happens to the lease.
    pub fn lease_after(&mut self, after: LeaseUse) -> &mut Self {
        match after {
            LeaseUse::Keep => self.bytes("keep"),
            LeaseUse::Release { arrivals, due, backoff } => {
                let due = due.map(|due| due.0.min(LARGEST).to_string());
                self.bytes("release").number(arrivals).option(due).flag(backoff)
            }
        }
    }
}

/// Returns a command that reads documents of the hash `key`: cheaper than a call of a function.
pub fn read(key: &str, fields: &[String]) -> Cmd {
    let mut cmd = redis::cmd("HMGET");
    cmd.arg(key).arg(fields);
    cmd
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(args: &Args) -> String {
        String::from_utf8(args.cmd().get_packed_command()).unwrap()
    }

    #[test]
    fn numbers_beyond_lua_are_cut() {
        let mut args = Args::new("admit", "x");
        args.number(u64::MAX);
        assert!(packed(&args).ends_with("\r\n9007199254740992\r\n"));
    }

    #[test]
    fn only_changes_of_records_wait_for_replicas() {
        for (method, changes) in [("commit", true), ("admit", true), ("renew", false), ("scan", false)] {
            assert_eq!(Args::new(method, "x").changes_records(), changes, "{method}");
        }
    }
}
