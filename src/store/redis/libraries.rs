//! Libraries of builds side by side: each process says which it uses, and one that nobody has used for a day goes.
//!
//! A process that comes back to one that is gone, or that never said so (a command, another venue on the same server),
//! puts it there again: see [`super::connection`].

use super::RedisStore;
use super::args::Args;
use super::codec::AnswerParts;
use super::connection::Again;
use super::keyspace::LIBRARY;
use super::millis;
use crate::store::StoreError;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Longer than a rollback takes to be decided.
const LAPSE: Duration = Duration::from_hours(24);

/// A process says what it uses with every so-many-eth look at the history of the servers, which comes each second.
const EVERY: u32 = 60;

/// Looks so far.
#[derive(Default)]
pub struct LibraryLooks(AtomicU32);

impl LibraryLooks {
    fn is_due(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed).is_multiple_of(EVERY)
    }
}

impl RedisStore {
    /// Now and then: this build's library is in use, and those are gone that no build uses.
    pub(super) async fn tidy_libraries(&self) {
        if self.library_looks.is_due()
            && let Err(error) = self.drop_unused().await
        {
            tracing::debug!(%error, "libraries of older builds are left; they are looked at again");
        }
    }

    async fn drop_unused(&self) -> Result<(), StoreError> {
        let mut args = Args::new("libraries", &self.keys.libraries());
        // Always by the server's clock: what a test sets has nothing to do with builds.
        args.bytes("").number(millis(LAPSE));
        let mut unused = AnswerParts::new(self.pool.store(), self.pool.run_now(args.cmd()).await?)?;
        while !unused.is_empty() {
            let name = unused.text()?;
            if name == LIBRARY.name {
                continue;
            }
            // One that isn't there, or that this user may not delete, is forgotten as well.
            self.pool.everywhere_now(redis::cmd("FUNCTION").arg("DELETE").arg(&name)).await;
            let mut gone = redis::cmd("ZREM");
            gone.arg(self.keys.libraries()).arg(&name);
            self.pool.run(&gone, Again::Yes).await?;
            tracing::info!("library `{name}` of another build is gone: nobody has used it for a day");
        }
        Ok(())
    }
}
