//! The registry of owners: who is in it is found by sweeps, audits and operators.

use super::RedisStore;
use super::args::Args;
use super::codec::AnswerParts;
use super::connection::Again;
use crate::domain::ids::Owner;
use crate::store::StoreError;

/// Owners remembered as registered, per process; above it they are registered again.
const REMEMBERED_OWNERS: usize = 100_000;

impl RedisStore {
    /// Whether this process has registered the owner. Its server may have been emptied since: the
    /// functions that are told so look.
    fn knows(&self, owner: &Owner) -> bool {
        self.registered.lock().contains(&owner.token())
    }

    /// Calls a method that may, with `is_first`, write an owner's first keys. It is told whether the owner is known
    /// to be registered; one that isn't is put into the registry before, in a write of its own.
    pub(super) async fn call_registered(
        &self,
        owner: &Owner,
        is_first: bool,
        args: impl Fn(bool) -> Args,
    ) -> Result<(String, AnswerParts), StoreError> {
        if is_first && self.knows(owner) {
            let mut answer = self.call(&args(true)).await?;
            let outcome = answer.text()?;
            if outcome != "unregistered" {
                return Ok((outcome, answer));
            }
        }
        if is_first {
            self.register(owner).await?;
        }
        let mut answer = self.call(&args(false)).await?;
        Ok((answer.text()?, answer))
    }

    async fn register(&self, owner: &Owner) -> Result<(), StoreError> {
        let token = owner.token();
        let mut cmd = redis::cmd("ZADD");
        cmd.arg(self.keys.owners()).arg(0).arg(&token);
        if self.pool.wait_replicas() == 0 {
            // A server that was emptied is made anew.
            self.pool.run_all(&[self.keys.make(), cmd]).await?;
        } else {
            self.pool.change(&self.keys.make(), Again::Yes).await?;
            self.pool.change(&cmd, Again::Yes).await?;
        }
        let mut registered = self.registered.lock();
        if registered.len() >= REMEMBERED_OWNERS {
            registered.clear();
        }
        registered.insert(token);
        Ok(())
    }
}
