//! Cases that run on both stores.

use super::redis::RedisServer;
use super::venue::TestVenue;
use trellis::process::clock::Clock;

/// Where everything is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    Embedded,
    Redis,
}

impl On {
    /// A venue there; `None` without a server for it.
    pub async fn venue(self, rules: &str, clock: Clock) -> Option<(TestVenue, tempfile::TempDir)> {
        match self {
            Self::Embedded => Some(TestVenue::embedded_at(rules, clock).await),
            Self::Redis => {
                let (venue, dir, _prefix) = TestVenue::redis_at(RedisServer::shared()?, rules, clock).await;
                Some((venue, dir))
            }
        }
    }
}

/// Stamps every case, a function of an [`On`], on both stores.
macro_rules! on_both {
    ($($case:ident)*) => {
        mod embedded {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    super::$case($crate::support::both_stores::On::Embedded).await;
                }
            )*
        }
        mod redis {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    super::$case($crate::support::both_stores::On::Redis).await;
                }
            )*
        }
    };
}

pub(crate) use on_both;
