//! The time limit of one call, with all its attempts and the pauses between them.

use redis::RedisError;
use std::slice::Iter;
use std::time::Duration;
use tokio::time::Instant;

/// Pauses while the server loads its append-only file, a cluster moves a slot, or a replica becomes the primary; the
/// last one repeats.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(20),
    Duration::from_millis(80),
    Duration::from_millis(400),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

/// How long a caller waits for a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// One attempt only, for at most 5.5 s.
    Once,
    /// Until a server has restarted, at most 5.5 s: a caller of the API gets its error within seconds.
    Restart,
    /// Until another server takes over, at most 15 s (`cluster-node-timeout` or `down-after-milliseconds` and some
    /// seconds).
    Failover,
}

impl Patience {
    /// Returns the time limit of one call with all its attempts.
    const fn limit(self) -> Duration {
        match self {
            // Longer than the driver's timeout, whose error names what didn't answer.
            Self::Once | Self::Restart => Duration::from_millis(5_500),
            Self::Failover => Duration::from_secs(15),
        }
    }

    /// Returns the attempts of a call that begins now.
    pub fn start(self) -> Attempts {
        let pauses = if self == Self::Once { &[][..] } else { &PAUSES };
        let until = Instant::now() + self.limit();
        Attempts { patience: self, until, pauses: pauses.iter(), last: Duration::ZERO, failed: None }
    }
}

/// The attempts of one call, with its time limit.
pub struct Attempts {
    patience: Patience,
    until: Instant,
    pauses: Iter<'static, Duration>,
    last: Duration,
    /// The error for which another attempt is made.
    failed: Option<RedisError>,
}

impl Attempts {
    /// Runs an attempt, or a part of one, within the time limit.
    pub async fn run<T>(&self, attempt: impl Future<Output = Result<T, RedisError>>) -> Result<T, RedisError> {
        let cut = |_| {
            // The earlier error says more than the timeout.
            if let Some(failed) = &self.failed {
                return Err(failed.clone());
            }
            let reason = format!("no answer within {} s", self.patience.limit().as_secs());
            Err(std::io::Error::new(std::io::ErrorKind::TimedOut, reason).into())
        };
        tokio::time::timeout_at(self.until, attempt).await.unwrap_or_else(cut)
    }

    /// Extends the limit for a command that is sent only once, so that it has the whole time of an answer.
    pub fn reset_deadline(&mut self) {
        self.until = self.until.max(Instant::now() + Patience::Once.limit());
    }

    /// Waits before the next attempt, which `failed` causes; `false` if there is no time for one.
    pub async fn pause(&mut self, failed: &RedisError) -> bool {
        self.failed = Some(failed.clone());
        self.last = self.pauses.next().copied().unwrap_or(self.last);
        let next = Instant::now() + self.last;
        let is_another = !self.last.is_zero() && next < self.until;
        if is_another {
            tokio::time::sleep_until(next).await;
        }
        is_another
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_ends_in_time_whatever_its_attempts_do() {
        for (patience, expected) in [(Patience::Once, 1), (Patience::Restart, 6), (Patience::Failover, 11)] {
            let (start, mut attempts, mut tries) = (Instant::now(), patience.start(), 1);
            let refused = RedisError::from(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
            while attempts.pause(&refused).await {
                tries += 1;
            }
            assert_eq!(tries, expected, "{patience:?}");
            assert!(start.elapsed() < patience.limit());
            let silent = attempts.run(std::future::pending::<Result<(), _>>()).await;
            assert!(silent.unwrap_err().is_connection_refusal(), "why there was another attempt is told");
            assert_eq!(start.elapsed().as_secs(), patience.limit().as_secs(), "{patience:?}");
            let silent = patience.start().run(std::future::pending::<Result<(), _>>()).await.unwrap_err();
            assert!(silent.is_timeout() && silent.to_string().contains("no answer within "), "{silent}");
        }
    }
}
