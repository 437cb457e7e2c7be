//! What owners keep, and how many owners tenants have.

use super::args::Args;
use super::codec::AnswerParts;
use super::connection::Repeatability;
use super::keyspace::lex_range;
use super::{RedisStore, settings, usage};
use crate::domain::ids::{Owner, OwnerPart};
use crate::domain::quota::QuotaUsage;
use crate::store::{Accounts, Fill, OwnerRegistration, OwnerUsage, Recount, StoreError, keys};
use async_trait::async_trait;
use std::time::Duration;

/// Returns the bounds of a tenant's owners on the list, and the tenant's own among them.
fn owner_range(tenant: &OwnerPart) -> (Vec<u8>, Vec<u8>, String) {
    let (from, to) = lex_range(&format!("{}/", tenant.token()), None, false);
    (from, to, keys::tenant_owner(tenant).token())
}

#[async_trait]
impl Accounts for RedisStore {
    async fn usage(&self, owner: &Owner) -> Result<OwnerUsage, StoreError> {
        usage::read_usage(self.call(&self.args("usage", owner)).await?)
    }

    async fn usages(&self, owners: &[Owner]) -> Result<Vec<QuotaUsage>, StoreError> {
        usage::usages(&self.pool, &self.keys, owners).await
    }

    async fn recount(&self, owner: &Owner, mend: bool) -> Result<Recount, StoreError> {
        let mut args = self.args("recount", owner);
        args.flag(mend);
        usage::read_recount(self.call(&args).await?)
    }

    async fn register_owner(&self, owner: &Owner, most: u64) -> Result<OwnerRegistration, StoreError> {
        // An emptied server gets its number of shards first, as in `register`.
        self.pool.change(&self.keys.record_shards_cmd(), Repeatability::Yes).await?;
        let registration = self.with_owner_list(|| self.call_register(owner, most)).await?;
        if registration == OwnerRegistration::Listed {
            return Ok(registration);
        }
        // Its documents are there, and only the list lacks it.
        let mut cmd = redis::cmd("EXISTS");
        cmd.arg(format!("{}:keys", self.keys.owner(owner)));
        if self.number(&cmd).await? == 0 {
            return Ok(registration);
        }
        self.register(owner).await?;
        Ok(OwnerRegistration::Listed)
    }

    async fn tenant_users(&self, tenant: &OwnerPart) -> Result<u64, StoreError> {
        let (from, to, own) = owner_range(tenant);
        let count = |from: Vec<u8>, to: Vec<u8>| {
            let mut cmd = redis::cmd("ZLEXCOUNT");
            cmd.arg(self.keys.owners()).arg(from).arg(to);
            cmd
        };
        let own = format!("[{own}").into_bytes();
        let (all, own) = (count(from, to), count(own.clone(), own));
        Ok(self.number(&all).await?.saturating_sub(self.number(&own).await?))
    }

    async fn fill(&self, now: Duration) -> Result<Fill, StoreError> {
        Ok(self.level.measure(now, self.pool.store(), settings::measure_fill(&self.pool)).await)
    }
}

impl RedisStore {
    /// Counts the users of the owner's tenant and adds the owner, in one step on the list of owners.
    async fn call_register(&self, owner: &Owner, most: u64) -> Result<OwnerRegistration, StoreError> {
        let (from, to, own) = owner_range(owner.tenant());
        let mut args = Args::new("register_owner", &self.keys.owners());
        args.bytes(owner.token()).bytes(own).bytes(from).bytes(to).number(most);
        let mut answer = self.call(&args).await?;
        match answer.text()?.as_str() {
            "listed" => Ok(OwnerRegistration::Listed),
            "full" => Ok(OwnerRegistration::Full { users: answer.number()? }),
            other => Err(answer.unexpected_error("`listed` or `full`", other)),
        }
    }

    /// Runs a command that returns a number.
    async fn number(&self, cmd: &redis::Cmd) -> Result<u64, StoreError> {
        let answer = self.pool.run(cmd, Repeatability::Yes).await?;
        AnswerParts::new(self.pool.store(), redis::Value::Array(vec![answer]))?.number()
    }
}
