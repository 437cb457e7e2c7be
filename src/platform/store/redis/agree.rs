//! Checks that the keys of a server were made for the shards that this process is configured with.

use super::codec::AnswerParts;
use super::connection::{Pool, Repeatability};
use super::keyspace::Keyspace;
use crate::store::StoreError;
use redis::Value;

/// Checks that the keys were made for as many shards as `keys` has, or records the number if there are no keys yet.
///
/// With `reads_only` nothing is recorded. Fails with [`StoreError::Corrupt`] if the numbers differ.
pub async fn check_shards(pool: &Pool, keys: &Keyspace, reads_only: bool) -> Result<(), StoreError> {
    let refuse = |reason: String| StoreError::Corrupt { store: pool.store().to_owned(), record: None, reason };
    let wanted = keys.shards().to_string();
    let mut get = redis::cmd("GET");
    get.arg(keys.layout());
    if pool.run(&get, Repeatability::Yes).await? == Value::Nil {
        if reads_only {
            return Ok(());
        }
        let mut old = redis::cmd("EXISTS");
        old.arg(keys.owners());
        // Read again, because another process may have begun in between.
        if pool.run(&old, Repeatability::Yes).await? != Value::Int(0)
            && pool.run(&get, Repeatability::Yes).await? == Value::Nil
        {
            return Err(refuse(
                "what lies under this prefix was made by a build from before there were shards, and this one can't read \
                 it: set another `store.prefix`, or go on with that build"
                    .to_owned(),
            ));
        }
        pool.change(&keys.record_shards_cmd(), Repeatability::Yes).await?;
    }
    let found =
        AnswerParts::new(pool.store(), Value::Array(vec![pool.run(&get, Repeatability::Yes).await?]))?.text()?;
    if found == wanted {
        return Ok(());
    }
    Err(refuse(format!(
        "it was made with `store.shards = {found}`, which can't be changed any more, and {wanted} is set: set {found}"
    )))
}
