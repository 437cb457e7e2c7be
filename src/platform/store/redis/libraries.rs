//! Libraries of builds side by side: each process reports which one it uses, and one that no process has used for a day
//! is deleted.
//!
//! A process whose library was deleted, or that never reported it (a command, another venue on the same server), loads
//! it again: see [`super::connection`].

use super::RedisStore;
use super::args::Args;
use super::codec::AnswerParts;
use super::connection::Repeatability;
use super::keyspace::LIBRARY;
use super::millis::millis;
use crate::store::StoreError;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Time without a report after which a library is deleted, longer than the decision about a rollback takes.
const LAPSE: Duration = Duration::from_hours(24);

/// A process reports its library at one of this many reads of the server history, which come every second.
const EVERY: u32 = 60;

/// Number of reads of the server history.
#[derive(Default)]
pub struct LibraryReports(AtomicU32);

impl LibraryReports {
    fn claim_due(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed).is_multiple_of(EVERY)
    }
}

impl RedisStore {
    /// Reports the use of this build's library now and then, and deletes unused ones.
    pub(super) async fn tidy_libraries(&self) {
        if self.library_reports.claim_due()
            && let Err(error) = self.drop_unused().await
        {
            tracing::debug!(%error, "libraries of older builds are left; they are looked at again");
        }
    }

    async fn drop_unused(&self) -> Result<(), StoreError> {
        let mut args = Args::new("libraries", &self.keys.libraries());
        // Always by the server's clock: an injected one has nothing to do with builds.
        args.bytes("").number(millis(LAPSE));
        let mut unused = AnswerParts::new(self.pool.store(), self.pool.run_now(args.cmd()).await?)?;
        while !unused.is_empty() {
            let name = unused.text()?;
            if name == LIBRARY.name {
                continue;
            }
            // One that isn't there, or that this user may not delete, is removed from the list as well.
            self.pool.run_everywhere_now(redis::cmd("FUNCTION").arg("DELETE").arg(&name)).await;
            let mut gone = redis::cmd("ZREM");
            gone.arg(self.keys.libraries()).arg(&name);
            self.pool.run(&gone, Repeatability::Yes).await?;
            tracing::info!("library `{name}` of another build is gone: nobody has used it for a day");
        }
        Ok(())
    }
}
