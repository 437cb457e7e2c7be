//! The registry of owners: who is in it is found by sweeps, audits and operators.

use super::RedisStore;
use super::args::Args;
use super::codec::AnswerParts;
use super::connection::Again;
use super::keyspace::lex_range;
use crate::domain::ids::{AgentId, Owner, SessionKey};
use crate::store::{KnownHistory, SessionFacts, StoreError};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Owners remembered as registered, per process; above it they are registered again.
const REMEMBERED_OWNERS: usize = 100_000;

/// Remembered owners that one look at what is due looks for in the list.
const CHECKED_OWNERS: usize = 100;

/// Owners that this process has registered.
#[derive(Default)]
pub struct Registered {
    tokens: Mutex<HashSet<String>>,
    /// How many of them were looked for in the list.
    checked: AtomicUsize,
    history: KnownHistory,
}

impl Registered {
    /// The server may have been emptied since: the functions that are told so look.
    fn has(&self, owner: &Owner) -> bool {
        self.tokens.lock().contains(&owner.token())
    }

    fn add(&self, token: String) {
        let mut tokens = self.tokens.lock();
        if tokens.len() >= REMEMBERED_OWNERS {
            tokens.clear();
        }
        tokens.insert(token);
    }

    /// The next so many of those that are remembered, one share after the other.
    fn share(&self, count: usize) -> Vec<String> {
        let tokens = self.tokens.lock();
        let begin = self.checked.fetch_add(count, Ordering::Relaxed) % tokens.len().max(1);
        tokens.iter().skip(begin).take(count).cloned().collect()
    }

    /// This is the servers' history. One that lost its end may have lost who was registered in it.
    pub fn know(&self, history: &[String]) {
        if self.history.is_another(history) {
            self.tokens.lock().clear();
        }
        self.history.know(history.to_vec());
    }
}

impl RedisStore {
    /// [`crate::store::Inspect::owners`].
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
            let mut answer = AnswerParts::new(self.pool.store(), self.pool.run(&cmd, Again::Yes).await?)?;
            let mut found = 0;
            while !answer.is_empty() {
                let token = answer.text()?;
                // What is no owner keeps no other from being listed.
                owners.extend(Owner::from_token(&token));
                (found, after) = (found + 1, Some(token));
            }
            if found < wanted || owners.len() == limit || found == 0 {
                return Ok(owners);
            }
        }
    }

    /// Calls a method that may, with `is_first`, write an owner's first keys. It is told whether the owner is known
    /// to be registered; one that isn't is put into the registry before, in a write of its own.
    pub(super) async fn call_registered(
        &self,
        owner: &Owner,
        is_first: bool,
        args: impl Fn(bool) -> Args,
    ) -> Result<(String, AnswerParts), StoreError> {
        if is_first && self.registered.has(owner) {
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

    /// Puts owners back into the list that are missing there: those that are due, and some that are remembered. Without
    /// it an audit would pass over them.
    pub(super) async fn list_again(&self, due: &[(Owner, Duration)]) -> Result<(), StoreError> {
        let mut tokens: Vec<String> = due.iter().map(|(owner, _)| owner.token()).collect();
        tokens.extend(self.registered.share(CHECKED_OWNERS));
        if tokens.is_empty() {
            return Ok(());
        }
        let mut cmd = redis::cmd("ZMSCORE");
        cmd.arg(self.keys.owners()).arg(&tokens);
        let mut answer = AnswerParts::new(self.pool.store(), self.pool.run(&cmd, Again::Yes).await?)?;
        for token in tokens {
            if answer.take_presence()? {
                continue;
            }
            let Ok(owner) = Owner::from_token(&token) else { continue };
            tracing::warn!(%owner, "it was missing from the list of owners, and is listed again");
            self.register(&owner).await?;
        }
        Ok(())
    }

    async fn register(&self, owner: &Owner) -> Result<(), StoreError> {
        let token = owner.token();
        let mut cmd = redis::cmd("ZADD");
        cmd.arg(self.keys.owners()).arg(0).arg(&token);
        // A server that was emptied is made anew. In this order: owners without it are taken for those of an old build.
        self.pool.change(&self.keys.make(), Again::Yes).await?;
        self.pool.change(&cmd, Again::Yes).await?;
        self.registered.add(token);
        Ok(())
    }

    /// [`crate::store::Inspect::sessions`].
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
            let page = self.call(&args).await?.each(AnswerParts::listed_session)?;
            let is_last = page.len() < wanted;
            after = page.last().map(|(token, _)| token.clone());
            found.extend(page.into_iter().filter_map(|(_, session)| session));
            if is_last || found.len() == limit || after.is_none() {
                return Ok(found);
            }
        }
    }
}
