//! Messages that wait in the queue: how many, of which owners, and since when.

use super::BusError;
use crate::domain::ids::{AgentId, Owner};
use crate::domain::message::{InboundKind, MessageAddress};
use crate::domain::time::Millis;
use crate::store::BackendSetting;
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::time::Duration;

/// Messages that are stored and not acknowledged. Wakes don't count: they bring no work of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Number of messages by owner.
    pub owners: BTreeMap<Owner, u64>,
    /// Number of messages whose subject names no owner.
    pub unreadable: u64,
    /// Publication time of the oldest message, wakes included.
    pub oldest: Option<Millis>,
}

/// A message in the queue that no worker has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingMessage {
    /// Id that the producer gave, if any.
    pub id: Option<String>,
    /// Agent that the message is for.
    pub agent: AgentId,
    /// Kind of the message.
    pub kind: InboundKind,
    /// Time of its publication.
    pub published: Millis,
}

/// A queue that operators watch; the defaults are those of a queue without storage.
#[async_trait]
pub trait QueueWatch: Send + Sync {
    /// Returns the messages that are stored and not acknowledged.
    async fn backlog(&self) -> Result<Backlog, BusError> {
        Ok(Backlog::default())
    }

    /// Returns at most `limit` waiting messages of one owner, oldest first.
    async fn waiting_messages(&self, _owner: &Owner, _limit: usize) -> Result<Vec<WaitingMessage>, BusError> {
        Ok(Vec::new())
    }

    /// Returns the subject of an address, for those who publish there; `None` for a queue inside this process.
    fn address_subject(&self, _to: &MessageAddress) -> Option<String> {
        None
    }

    /// Returns the settings of streams that differ from what they must be; empty if all are right.
    async fn wrong_settings(&self) -> Result<Vec<BackendSetting>, BusError> {
        Ok(Vec::new())
    }

    /// Sets changed settings back and creates missing streams, each with a log line. What can't be set back is among
    /// [`QueueWatch::wrong_settings`].
    async fn repair_settings(&self) {}
}

impl Backlog {
    /// Returns the number of messages of all owners.
    pub fn messages(&self) -> u64 {
        self.owners.values().sum::<u64>() + self.unreadable
    }

    /// Returns at most `limit` owners with their number of messages, most first.
    pub fn largest_owners(&self, limit: usize) -> Vec<(&Owner, u64)> {
        let mut owners: Vec<_> = self.owners.iter().map(|(owner, messages)| (owner, *messages)).collect();
        owners.sort_by_key(|(_, messages)| std::cmp::Reverse(*messages));
        owners.truncate(limit);
        owners
    }

    /// Describes the backlog in words, with at most `named` owners.
    pub fn describe(&self, now: Millis, named: usize) -> String {
        let all = self.messages();
        if all == 0 {
            return "no message waits".to_owned();
        }
        let age = self
            .oldest
            .map(|oldest| humantime::format_duration(Duration::from_secs(now.elapsed_since(oldest).as_secs())));
        let age = age.map_or_else(String::new, |age| format!(", the oldest for {age}"));
        let mut owners: Vec<_> =
            self.largest_owners(named).into_iter().map(|(owner, messages)| format!("{owner} {messages}")).collect();
        if self.owners.len() > owners.len() {
            owners.push(format!("{} other owners", self.owners.len() - owners.len()));
        }
        if self.unreadable > 0 {
            owners.push(format!("{} unreadable", self.unreadable));
        }
        format!("{all} messages wait{age}: {}", owners.join(", "))
    }

    /// Counts messages of a kind for an owner; `None` counts them as unreadable.
    pub(super) fn count(&mut self, owner: Option<Owner>, kind: Option<InboundKind>, messages: u64) {
        match (owner, kind) {
            (_, Some(InboundKind::Wake)) => {}
            (Some(owner), _) => *self.owners.entry(owner).or_default() += messages,
            (None, _) => self.unreadable += messages,
        }
    }
}
