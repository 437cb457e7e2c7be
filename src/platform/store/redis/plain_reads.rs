//! Reads by plain commands, for a server on which no function may be loaded.

use super::args;
use super::codec::AnswerParts;
use super::connection::{Pool, Repeatability};
use super::keyspace::{Keyspace, lex_range};
use crate::domain::ids::Owner;
use crate::store::{Doc, DocPage, StoreError, Window};

/// Implements [`crate::store::DocumentStore::page`]; concurrent changes may be visible or not.
pub(super) async fn page(
    pool: &Pool,
    keys: &Keyspace,
    owner: &Owner,
    prefix: &str,
    window: Window,
) -> Result<DocPage, StoreError> {
    let (from, to) = lex_range(prefix, None, window.reverse);
    let list = format!("{}:keys", keys.owner(owner));
    let mut count = redis::cmd("ZLEXCOUNT");
    count.arg(&list).arg(&from).arg(&to);
    let counted = pool.run(&count, Repeatability::Yes).await?;
    let total = AnswerParts::new(pool.store(), redis::Value::Array(vec![counted]))?.number()?;
    let mut range = if window.reverse { redis::cmd("ZREVRANGEBYLEX") } else { redis::cmd("ZRANGEBYLEX") };
    let (begin, end) = if window.reverse { (&to, &from) } else { (&from, &to) };
    range.arg(&list).arg(begin).arg(end).arg("LIMIT").arg(window.skip).arg(window.limit);
    let (mut found, mut names) =
        (AnswerParts::new(pool.store(), pool.run(&range, Repeatability::Yes).await?)?, Vec::new());
    while !found.is_empty() {
        names.push(found.text()?);
    }
    let docs = if window.values && !names.is_empty() {
        let answer = pool.run(&args::read(&keys.documents(owner), &names), Repeatability::Yes).await?;
        AnswerParts::new(pool.store(), answer)?.stored_docs(names.len())?
    } else {
        vec![Doc::default(); names.len()]
    };
    Ok(DocPage { total: usize::try_from(total).unwrap_or(usize::MAX), docs: names.into_iter().zip(docs).collect() })
}
