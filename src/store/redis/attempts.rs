//! How long one call may take, with all its attempts and the pauses between.

use redis::RedisError;
use std::slice::Iter;
use std::time::Duration;
use tokio::time::Instant;

/// Pauses while the server reads its append-only file, a cluster moves a slot, or a replica becomes the primary; the
/// last again and again.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(20),
    Duration::from_millis(80),
    Duration::from_millis(400),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

/// What a caller has time for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// One attempt.
    Once,
    /// A server that restarts: a caller of the API is told within some seconds.
    Restart,
    /// Another server that takes over (which takes `cluster-node-timeout` or `down-after-milliseconds` and some seconds).
    Failover,
}

impl Patience {
    /// Of everything that one call does.
    const fn limit(self) -> Duration {
        match self {
            // Longer than the driver waits for an answer: it says what it was that was silent.
            Self::Once | Self::Restart => Duration::from_millis(5_500),
            Self::Failover => Duration::from_secs(15),
        }
    }

    /// The attempts of a call that begins now.
    pub fn start(self) -> Attempts {
        let pauses = if self == Self::Once { &[][..] } else { &PAUSES };
        let until = Instant::now() + self.limit();
        Attempts { patience: self, until, pauses: pauses.iter(), last: Duration::ZERO, failed: None }
    }
}

/// The attempts of one call.
pub struct Attempts {
    patience: Patience,
    until: Instant,
    pauses: Iter<'static, Duration>,
    last: Duration,
    /// Why another attempt is made.
    failed: Option<RedisError>,
}

impl Attempts {
    /// Runs an attempt, or a part of one, for as long as there is time.
    pub async fn run<T>(&self, attempt: impl Future<Output = Result<T, RedisError>>) -> Result<T, RedisError> {
        let cut = |_| {
            // What is known of it is worth more than that it took long.
            if let Some(failed) = &self.failed {
                return Err(failed.clone());
            }
            let reason = format!("no answer within {} s", self.patience.limit().as_secs());
            Err(std::io::Error::new(std::io::ErrorKind::TimedOut, reason).into())
        };
        tokio::time::timeout_at(self.until, attempt).await.unwrap_or_else(cut)
    }

    /// What comes next is sent once: whatever came before, it has the whole time of an answer.
    pub fn has_whole_time(&mut self) {
        self.until = self.until.max(Instant::now() + Patience::Once.limit());
    }

    /// Waits for the next attempt, for this reason; `false` where there is no time for one.
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
