//! Retries of connections to servers: the only file that uses the `backoff` crate.
//!
//! `backoff` is unmaintained (RUSTSEC-2025-0012; its `instant` dependency is flagged as well). The project's owner
//! chose it. Only its arithmetic is used, so that its replacement changes only this file.

use backoff::Clock;
use backoff::backoff::Backoff;
use backoff::exponential::{ExponentialBackoff, ExponentialBackoffBuilder};
use std::{
    fmt::Display,
    future::Future,
    time::{Duration, Instant},
};

/// Time between two log lines while a server is unreachable.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// The waits between tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The first wait.
    pub first: Duration,
    /// The longest wait, before jitter. Each wait is twice the one before.
    pub max: Duration,
    /// Longest time of all tries together; `None` = no limit.
    pub total: Option<Duration>,
    /// Jitter in percent, by which a wait is longer or shorter.
    pub jitter: u32,
}

impl RetryPolicy {
    /// For a server that restarts: soon at first, and spread so that a fleet doesn't return at once.
    pub const CONNECT: Self =
        Self { first: Duration::from_millis(100), max: Duration::from_secs(5), total: None, jitter: Self::JITTER };
    /// 50 to 150 % of a wait, so that processes that fail together don't retry together.
    pub const JITTER: u32 = 50;

    /// Returns the policy of tries with the same wait each time, for `total`.
    pub const fn with_steady_waits(wait: Duration, total: Duration) -> Self {
        Self { first: wait, max: wait, total: Some(total), jitter: 0 }
    }

    /// Returns the waits of one operation, in order.
    pub fn wait_times(self) -> RetryWaits {
        RetryWaits(
            ExponentialBackoffBuilder::new()
                .with_initial_interval(self.first)
                .with_multiplier(2.0)
                .with_randomization_factor(f64::from(self.jitter.min(100)) / 100.0)
                .with_max_interval(self.max)
                .with_max_elapsed_time(self.total)
                .build(),
        )
    }
}

/// The waits of one operation, with jitter.
#[derive(Debug)]
pub struct RetryWaits(ExponentialBackoff<Timers>);

/// The time by which the waits are counted, that of tokio's timers.
#[derive(Debug, Default)]
struct Timers;

impl Clock for Timers {
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}

impl RetryWaits {
    /// Returns the next wait; `None` when the total time is used up.
    pub fn next_wait(&mut self) -> Option<Duration> {
        self.0.next_backoff()
    }
}

/// Decides when a repeated failure is logged: the first time, and then every ten seconds.
#[derive(Debug, Default)]
pub struct LogPace(Option<Instant>);

impl LogPace {
    /// Whether the failure is logged now; if so, not within the next ten seconds.
    pub fn claim_due(&mut self) -> bool {
        let due = self.0.is_none_or(|at| at.elapsed() >= LOG_EVERY);
        if due {
            self.0 = Some(Instant::now());
        }
        due
    }
}

/// Why an attempt failed, and whether another can help.
#[derive(Debug)]
pub enum AttemptFailure<E> {
    /// Another attempt can help.
    Transient(E),
    /// Another attempt can't help.
    Permanent(E),
}

impl<E> AttemptFailure<E> {
    /// Returns the same kind of failure with another error.
    pub fn map<F>(self, change: impl FnOnce(E) -> F) -> AttemptFailure<F> {
        match self {
            Self::Transient(error) => AttemptFailure::Transient(change(error)),
            Self::Permanent(error) => AttemptFailure::Permanent(change(error)),
        }
    }
}

/// Calls `op` until it succeeds, fails permanently, or the policy's time is used up; then returns its last error. Logs
/// the first failure and one line every ten seconds: ``waiting for `what`: …``.
pub async fn retry<T, E, F>(policy: RetryPolicy, what: &str, mut op: impl FnMut() -> F) -> Result<T, E>
where
    E: Display,
    F: Future<Output = Result<T, AttemptFailure<E>>>,
{
    let mut waits = policy.wait_times();
    let start = Instant::now();
    let (mut pace, mut logged) = (LogPace::default(), false);
    loop {
        let error = match op().await {
            Ok(value) => {
                if logged {
                    tracing::info!("reached {what} after {:.1} s", start.elapsed().as_secs_f32());
                }
                return Ok(value);
            }
            Err(AttemptFailure::Permanent(error)) => return Err(error),
            Err(AttemptFailure::Transient(error)) => error,
        };
        if pace.claim_due() {
            tracing::warn!("waiting for {what}: {error}");
            logged = true;
        }
        match waits.next_wait() {
            Some(wait) => tokio::time::sleep(wait).await,
            None => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: RetryPolicy = RetryPolicy {
        first: Duration::from_millis(1),
        max: Duration::from_millis(4),
        total: Some(Duration::from_millis(200)),
        jitter: RetryPolicy::JITTER,
    };

    #[tokio::test]
    async fn only_transient_failures_are_retried() {
        for (fail, last, expected, calls_expected) in
            [(0, "ok", Ok(7), 1), (3, "ok", Ok(7), 4), (2, "permanent", Err("no"), 3)]
        {
            let mut calls = 0;
            let result = retry(FAST, "a test", || {
                calls += 1;
                let answer = match (calls <= fail, last) {
                    (true, _) => Err(AttemptFailure::Transient("later")),
                    (false, "ok") => Ok(7),
                    (false, _) => Err(AttemptFailure::Permanent("no")),
                };
                async move { answer }
            })
            .await;
            assert_eq!((result, calls), (expected, calls_expected));
        }
    }

    #[tokio::test]
    async fn the_last_error_comes_back_when_the_time_is_used_up() {
        let result = retry(FAST, "a test", || async { Err::<(), _>(AttemptFailure::Transient("still down")) }).await;
        assert_eq!(result, Err("still down"));
    }

    #[test]
    fn a_failure_that_comes_again_at_once_is_logged_once() {
        let mut pace = LogPace::default();
        assert_eq!([pace.claim_due(), pace.claim_due(), pace.claim_due()], [true, false, false]);
        let mut later = LogPace(Instant::now().checked_sub(LOG_EVERY));
        assert!(later.claim_due() && !later.claim_due());
    }

    #[test]
    fn waits_grow_to_the_maximum_and_differ_by_chance() {
        let policy = RetryPolicy { max: Duration::from_secs(1), ..RetryPolicy::CONNECT };
        let waits = || {
            let mut waits = policy.wait_times();
            (0..12).filter_map(|_| waits.next_wait()).collect::<Vec<_>>()
        };
        let (one, other) = (waits(), waits());
        assert_eq!(one.len(), 12);
        assert_ne!(one, other);
        assert!(one[0] >= Duration::from_millis(50) && one[0] <= Duration::from_millis(151));
        assert!(one.iter().all(|wait| *wait <= Duration::from_millis(1501)));
    }
}
