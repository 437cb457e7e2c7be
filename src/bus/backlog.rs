//! What waits in the queue: how much, whose, and since when.

use super::BusError;
use crate::domain::ids::{AgentId, Owner};
use crate::domain::message::InKind;
use crate::domain::time::Millis;
use crate::store::BackendSetting;
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::time::Duration;

/// Messages that are stored and that no worker is done with. Wakes don't count: they bring no work of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Numbers of messages by owner.
    pub owners: BTreeMap<Owner, u64>,
    /// Number of messages whose subject names no owner.
    pub unreadable: u64,
    /// When the oldest was published, wakes included.
    pub oldest: Option<Millis>,
}

/// A message in the queue that no worker has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingMessage {
    /// The producer's id, when it gave one.
    pub id: Option<String>,
    /// The agent that it is for.
    pub agent: AgentId,
    /// Kind of the message.
    pub kind: InKind,
    /// Time of its publication.
    pub published: Millis,
}

/// A queue that operators watch. One that says nothing keeps nothing.
#[async_trait]
pub trait QueueWatch: Send + Sync {
    /// Messages that are stored and that no worker is done with.
    async fn backlog(&self) -> Result<Backlog, BusError> {
        Ok(Backlog::default())
    }

    /// Waiting messages of one owner, the oldest first: up to `limit`.
    async fn waiting(&self, _owner: &Owner, _limit: usize) -> Result<Vec<WaitingMessage>, BusError> {
        Ok(Vec::new())
    }

    /// Settings of what keeps the messages that aren't as they must be; none when all are.
    async fn wrong_settings(&self) -> Result<Vec<BackendSetting>, BusError> {
        Ok(Vec::new())
    }

    /// Puts settings right that somebody has changed and that can be put right, and makes what is gone; each with a log
    /// line. What can't be is among [`QueueWatch::wrong_settings`].
    async fn mend(&self) {}
}

impl Backlog {
    /// Number of messages of all owners.
    pub fn messages(&self) -> u64 {
        self.owners.values().sum::<u64>() + self.unreadable
    }

    /// Owners with most messages first, each with its number: up to `limit`.
    pub fn longest(&self, limit: usize) -> Vec<(&Owner, u64)> {
        let mut owners: Vec<_> = self.owners.iter().map(|(owner, messages)| (owner, *messages)).collect();
        owners.sort_by_key(|(_, messages)| std::cmp::Reverse(*messages));
        owners.truncate(limit);
        owners
    }

    /// In words, with as many owners named.
    pub fn describe(&self, now: Millis, named: usize) -> String {
        let all = self.messages();
        if all == 0 {
            return "no message waits".to_owned();
        }
        let age =
            self.oldest.map(|oldest| humantime::format_duration(Duration::from_secs(now.since(oldest).as_secs())));
        let age = age.map_or_else(String::new, |age| format!(", the oldest for {age}"));
        let mut owners: Vec<_> =
            self.longest(named).into_iter().map(|(owner, messages)| format!("{owner} {messages}")).collect();
        if self.owners.len() > owners.len() {
            owners.push(format!("{} other owners", self.owners.len() - owners.len()));
        }
        if self.unreadable > 0 {
            owners.push(format!("{} unreadable", self.unreadable));
        }
        format!("{all} messages wait{age}: {}", owners.join(", "))
    }

    /// Counts messages of a kind for an owner, or for nobody who can be read.
    pub(super) fn count(&mut self, owner: Option<Owner>, kind: Option<InKind>, messages: u64) {
        match (owner, kind) {
            (_, Some(InKind::Wake)) => {}
            (Some(owner), _) => *self.owners.entry(owner).or_default() += messages,
            (None, _) => self.unreadable += messages,
        }
    }
}
