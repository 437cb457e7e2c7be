//! The registry of owners: sweeps, audits and operators find owners in it.

use super::RedisStore;
use super::args::Args;
use super::codec::AnswerParts;
use super::connection::Repeatability;
use super::keyspace::lex_range;
use super::server_connection::answer_text;
use crate::domain::ids::{AgentId, Owner, SessionKey};
use crate::domain::shard::Shard;
use crate::domain::time::Millis;
use crate::store::{KnownHistory, SessionFacts, StoreError};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Owners remembered as registered, per process; above it they are registered again.
const REMEMBERED_OWNERS: usize = 100_000;

/// Remembered owners that one read of due owners looks up in the list.
const CHECKED_OWNERS: usize = 100;

/// Keys per page of the search for owners, of each primary.
const SEARCHED_KEYS: u32 = 1_000;

/// Time between two pages of the search for owners.
const SEARCH_PAUSE: Duration = Duration::from_secs(1);

/// Time between two searches of all keys.
const SEARCH_REST: Duration = Duration::from_secs(30);

/// The owners that this process has registered.
#[derive(Default)]
pub struct RegisteredOwners {
    tokens: Mutex<HashSet<String>>,
    /// Number of remembered owners that were looked up in the list.
    checked: AtomicUsize,
    history: KnownHistory,
    search: Mutex<OwnerSearch>,
}

/// Progress of the search of the servers' keys for owners that are missing from the list.
#[derive(Default)]
struct OwnerSearch {
    /// Each primary with the cursor of its next page.
    nodes: Vec<(String, u64)>,
    /// Time of the next page.
    next: Millis,
}

impl RegisteredOwners {
    /// Whether this process registered the owner. The server may have been emptied since; functions that get this flag
    /// check.
    fn contains(&self, owner: &Owner) -> bool {
        self.tokens.lock().contains(&owner.token())
    }

    fn add(&self, token: String) {
        let mut tokens = self.tokens.lock();
        if tokens.len() >= REMEMBERED_OWNERS {
            tokens.clear();
        }
        tokens.insert(token);
    }

    /// Returns the next `count` remembered owners, in turn.
    fn next_owners(&self, count: usize) -> Vec<String> {
        let tokens = self.tokens.lock();
        let begin = self.checked.fetch_add(count, Ordering::Relaxed) % tokens.len().max(1);
        tokens.iter().skip(begin).take(count).cloned().collect()
    }

    /// Notes the servers' history. A new one may lack owners that were registered at its end, so all are forgotten.
    pub fn note_history(&self, history: &[String]) {
        if self.history.is_another(history) {
            self.tokens.lock().clear();
        }
        self.history.note_names(history.to_vec());
    }
}

impl RedisStore {
    /// Implements [`crate::store::StoreInspection::owners`] by the sorted list of owners.
    pub(super) async fn registered_owners(
        &self,
        after: Option<&Owner>,
        limit: usize,
    ) -> Result<Vec<Owner>, StoreError> {
        let (mut after, mut owners) = (after.map(Owner::token), Vec::new());
        loop {
            let (from, to) = lex_range("", after.as_deref(), false);
            let wanted = i64::try_from(limit - owners.len()).unwrap_or(i64::MAX);
            let mut cmd = redis::cmd("ZRANGEBYLEX");
            cmd.arg(self.keys.owners()).arg(from).arg(to).arg("LIMIT").arg(0).arg(wanted);
            let mut answer = AnswerParts::new(self.pool.store(), self.pool.run(&cmd, Repeatability::Yes).await?)?;
            let mut found = 0;
            while !answer.is_empty() {
                let token = answer.text()?;
                // An invalid owner keeps no other from being listed.
                owners.extend(Owner::from_token(&token));
                (found, after) = (found + 1, Some(token));
            }
            if found < wanted || owners.len() == limit || found == 0 {
                return Ok(owners);
            }
        }
    }

    /// Calls a method that may, with `is_first`, write an owner's first keys. `args` gets whether the owner is known to
    /// be registered; an unknown one is registered before, in a write of its own.
    pub(super) async fn call_registered(
        &self,
        owner: &Owner,
        is_first: bool,
        args: impl Fn(bool) -> Args,
    ) -> Result<(String, AnswerParts), StoreError> {
        if is_first && self.registered.contains(owner) {
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

    /// Adds owners that are missing from the list: of those that are due, and of some remembered ones. An audit would
    /// skip them.
    pub(super) async fn relist_owners(&self, due: &[(Owner, Duration)], now: Millis) -> Result<(), StoreError> {
        let mut tokens: Vec<String> = due.iter().map(|(owner, _)| owner.token()).collect();
        tokens.extend(self.registered.next_owners(CHECKED_OWNERS));
        tokens.extend(self.search_owners(now).await?);
        for tokens in tokens.chunks(SEARCHED_KEYS as usize) {
            self.with_owner_list(|| self.list_missing(tokens)).await?;
        }
        Ok(())
    }

    /// Returns the owners of the next page of the servers' keys, which finds also those that no process remembers.
    async fn search_owners(&self, now: Millis) -> Result<Vec<String>, StoreError> {
        let mut nodes = {
            let mut search = self.registered.search.lock();
            // A clock that was set back doesn't stop the search.
            if now < search.next && search.next <= now.plus(SEARCH_REST) {
                return Ok(Vec::new());
            }
            search.next = now.plus(SEARCH_PAUSE);
            std::mem::take(&mut search.nodes)
        };
        if nodes.is_empty() {
            let all = self.pool.run_everywhere(&redis::cmd("PING")).await?;
            nodes = all.into_iter().map(|(node, _)| (node, 0)).collect();
        }
        let (mut found, mut left) = (Vec::new(), Vec::new());
        for (node, cursor) in nodes {
            let mut cmd = redis::cmd("SCAN");
            cmd.arg(cursor).arg("MATCH").arg(self.keys.owners_pattern()).arg("COUNT").arg(SEARCHED_KEYS);
            let mut answer = AnswerParts::new(self.pool.store(), self.pool.run_on(&node, &cmd).await?)?;
            let next: u64 = answer.parse_next()?;
            let mut page = answer.read_nested()?;
            while !page.is_empty() {
                found.extend(self.keys.owner_of(&String::from_utf8_lossy(&page.bytes()?)));
            }
            if next > 0 {
                left.push((node, next));
            }
        }
        let mut search = self.registered.search.lock();
        if left.is_empty() {
            search.next = now.plus(SEARCH_REST);
        }
        search.nodes = left;
        drop(search);
        Ok(found)
    }

    /// Makes a call on the list of owners; makes it again if the list became a key of another type, which is deleted.
    pub(super) async fn with_owner_list<T, F>(&self, call: impl Fn() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let error = match call().await {
            Err(error) if !error.is_transient() => error,
            outcome => return outcome,
        };
        if !self.mend_list(&self.keys.owners()).await? {
            return Err(error);
        }
        call().await
    }

    /// Deletes a list that became a key of another type; returns whether it was one.
    async fn mend_list(&self, key: &str) -> Result<bool, StoreError> {
        let mut cmd = redis::cmd("TYPE");
        cmd.arg(key);
        let is = answer_text(&self.pool.run(&cmd, Repeatability::Yes).await?);
        if is == "none" || is == "zset" {
            return Ok(false);
        }
        tracing::error!("the key `{key}` is a {is}, not a sorted set: it is deleted, and made anew");
        let mut cmd = redis::cmd("DEL");
        cmd.arg(key);
        self.pool.change(&cmd, Repeatability::Yes).await?;
        Ok(true)
    }

    /// Rebuilds the lists by which owners are swept, if one of them became a key of another type.
    pub(super) async fn mend_lists(&self) -> Result<(), StoreError> {
        self.mend_list(&self.keys.workers()).await?;
        let mut mended: Vec<Shard> = Vec::new();
        for shard in self.share.shards() {
            if self.mend_list(&self.keys.due(shard)).await? {
                mended.push(shard);
            }
        }
        let mut after = None;
        while !mended.is_empty() {
            let page = self.registered_owners(after.as_ref(), SEARCHED_KEYS as usize).await?;
            for owner in &page {
                let shard = self.keys.shards().shard_of(&owner.token());
                if mended.contains(&shard) {
                    let mut cmd = redis::cmd("ZADD");
                    cmd.arg(self.keys.due(shard)).arg("LT").arg(0).arg(owner.token());
                    self.pool.change(&cmd, Repeatability::Yes).await?;
                }
            }
            after = page.last().cloned();
            if page.len() < SEARCHED_KEYS as usize {
                break;
            }
        }
        Ok(())
    }

    /// Registers those of these owners that are missing from the list.
    async fn list_missing(&self, tokens: &[String]) -> Result<(), StoreError> {
        if tokens.is_empty() {
            return Ok(());
        }
        let mut cmd = redis::cmd("ZMSCORE");
        cmd.arg(self.keys.owners()).arg(tokens);
        let mut answer = AnswerParts::new(self.pool.store(), self.pool.run(&cmd, Repeatability::Yes).await?)?;
        for token in tokens {
            if answer.take_presence()? {
                continue;
            }
            let Ok(owner) = Owner::from_token(token) else { continue };
            tracing::warn!(%owner, "it was missing from the list of owners, and is listed again");
            self.register(&owner).await?;
        }
        Ok(())
    }

    pub(super) async fn register(&self, owner: &Owner) -> Result<(), StoreError> {
        let token = owner.token();
        let mut cmd = redis::cmd("ZADD");
        cmd.arg(self.keys.owners()).arg(0).arg(&token);
        // An emptied server gets its number of shards first: owners without it would count as those of an old build.
        self.pool.change(&self.keys.record_shards_cmd(), Repeatability::Yes).await?;
        self.with_owner_list(|| self.pool.change(&cmd, Repeatability::Yes)).await?;
        self.registered.add(token);
        Ok(())
    }

    /// Implements [`crate::store::StoreInspection::sessions`] by the sorted list of sessions.
    pub(super) async fn listed_sessions(
        &self,
        owner: &Owner,
        agent: Option<&AgentId>,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<SessionFacts>, StoreError> {
        let prefix = agent.map_or_else(String::new, |agent| format!("{}/", agent.token()));
        let (mut after, mut found) = (after.map(SessionKey::token), Vec::new());
        loop {
            let (from, to) = lex_range(&prefix, after.as_deref(), false);
            let (mut args, wanted) = (self.args("sessions", owner), limit - found.len());
            args.bytes(from).bytes(to).number(wanted as u64);
            let page = self.call(&args).await?.read_each(AnswerParts::listed_session)?;
            let is_last = page.len() < wanted;
            after = page.last().map(|(token, _)| token.clone());
            found.extend(page.into_iter().filter_map(|(_, session)| session));
            if is_last || found.len() == limit || after.is_none() {
                return Ok(found);
            }
        }
    }
}
