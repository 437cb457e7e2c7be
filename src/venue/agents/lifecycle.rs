//! The life of an agent: update, suspend, resume, fork; how it ends see `ending`.

use super::copies::Claim;
use super::{ending, fresh, get, names, writes};
use crate::domain::agent::{AgentConfig, AgentRecord, AgentStatus, merge, own};
use crate::domain::authority::Authority;
use crate::domain::authority::trail::{MAX_TRAIL, Maker, Trail};
use crate::domain::bounds::cut_reason;
use crate::domain::ids::{AgentId, Owner, SessionKey};
use crate::store::{Edit, StoreError};
use crate::venue::Venue;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

/// Why an agent isn't changed.
#[derive(Debug, thiserror::Error)]
pub enum LifeError {
    /// No such agent.
    #[error("no agent `{0}`")]
    Unknown(AgentId),
    /// It has ended.
    #[error("agent `{0}` is terminated: `agent/create` with `overwrite` makes it active again")]
    Terminated(AgentId),
    /// Somebody else changed its configuration.
    #[error("configuration of agent `{agent}` has version {actual}, expected {expected}: read it again")]
    Version {
        /// Which agent.
        agent: AgentId,
        /// As it is.
        actual: u64,
        /// As asked.
        expected: u64,
    },
    /// What it would be is no configuration.
    #[error("{0}")]
    Config(String),
    /// The name is taken.
    #[error("agent `{0}` exists: choose another name, or `overwrite` it")]
    Exists(AgentId),
    /// An agent acts on one that asks people.
    #[error("agent `{0}` asks people before it calls some of its tools: only people {1}")]
    AsksPeople(AgentId, &'static str),
    /// The configuration thinks with a key that the caller may not use.
    #[error("{0}")]
    Denied(String),
    /// A turn of it is still running.
    #[error("session `{0}` is still held by a worker: try again in a moment")]
    Busy(SessionKey),
    /// The session is in the middle of something that needs its turns as they are.
    #[error("session `{0}` {1}: its turns can't be compacted now, try again when it rests")]
    AtWork(SessionKey, &'static str),
    /// The agent has no such session.
    #[error("no session `{0}`: nothing was ever sent to it")]
    NoSession(SessionKey),
    /// The session has no such turn.
    #[error("session `{session}` has no turn {asked}: its newest is {newest}")]
    NoTurn {
        /// Which session.
        session: SessionKey,
        /// As asked.
        asked: u64,
        /// As it is; 0 without any.
        newest: u64,
    },
    /// More have changed it than are remembered.
    #[error(
        "agent `{0}` was changed under {MAX_TRAIL} grants already, all of which it depends on; apply its configuration as a whole"
    )]
    TooMany(AgentId),
    /// There is a session of that name.
    #[error("session `{0}` exists: choose another name")]
    Taken(SessionKey),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Who changes an agent.
#[derive(Debug, Clone, Copy)]
pub struct By<'a> {
    /// What it may do: who configures an agent bounds it.
    pub authority: &'a Authority,
    /// What it stands under: so does what it makes.
    pub trail: &'a Trail,
    /// It is a turn of an agent: it may not take away the question that people want to be asked.
    pub turn: bool,
}

impl By<'_> {
    pub(super) fn may(self, record: &AgentRecord, what: &'static str) -> Result<(), LifeError> {
        if self.turn && record.config.asks_people() {
            return Err(LifeError::AsksPeople(record.id.clone(), what));
        }
        Ok(())
    }

    fn may_use_key(self, config: &AgentConfig) -> Result<(), LifeError> {
        super::keys_needed(&json!(config)).iter().try_for_each(|need| {
            let permitted = self.authority.permits(need.ability, &need.resource);
            permitted.map_err(|denied| LifeError::Denied(denied.text("an agent with `model.key`")))
        })
    }
}

/// Changes a record and its gate in one write; `change` answers `None` when nothing is to be done.
/// The answer is the record as it is then, and whether it changed.
async fn change(
    venue: &Venue,
    owner: &Owner,
    id: &AgentId,
    change: impl Fn(&AgentRecord) -> Result<Option<AgentRecord>, LifeError>,
) -> Result<(AgentRecord, bool), LifeError> {
    let attempt = || async {
        let Some((record, version)) = get(venue, owner, id).await? else {
            return Err(LifeError::Unknown(id.clone()));
        };
        let Some(after) = change(&record)? else { return Ok(Edit::nothing((record, false))) };
        let after = AgentRecord { updated: venue.now(), ..after };
        let is_larger = after.config != record.config;
        if is_larger {
            after.check_size().map_err(StoreError::Oversized)?;
        }
        let edit = Edit::write(writes(&after, version), (after, true));
        // Of an owner who keeps as much as it may an agent is stopped and let go on, and not made larger.
        Ok(if is_larger { edit.within(venue.quota().await) } else { edit })
    };
    venue.store.edit(venue.now(), owner, ("agent", id), attempt).await
}

/// What an update changes.
#[derive(Debug, Clone, Default)]
pub struct Patch {
    /// Keys of the configuration: each replaces the one that is there, `null` removes it.
    pub config: Map<String, Value>,
    /// The seeds' `state.config`: merged deeply, and after `config`.
    pub state_config: Map<String, Value>,
    /// Nothing is changed unless the configuration has this version.
    pub expect: Option<u64>,
    /// Names in the result that the venue doesn't know are an error.
    pub strict: bool,
}

/// Changes some keys of an agent's configuration. The result is checked as a whole; its version
/// grows when something is different then.
pub async fn update(
    venue: &Venue,
    owner: &Owner,
    id: &AgentId,
    patch: &Patch,
    by: By<'_>,
) -> Result<(AgentRecord, bool), LifeError> {
    change(venue, owner, id, |record| {
        if let Some(expected) = patch.expect.filter(|expected| *expected != record.config_version) {
            let actual = record.config_version;
            return Err(LifeError::Version { agent: id.clone(), actual, expected });
        }
        if record.status == AgentStatus::Terminated {
            return Err(LifeError::Terminated(id.clone()));
        }
        let config = patched(venue, owner, &record.config, patch)?;
        names::checked(venue, owner, &config, patch.strict).map_err(|e| LifeError::Config(format!("`config`: {e}")))?;
        if config == record.config {
            return Ok(None);
        }
        by.may(record, "change its configuration")?;
        by.may_use_key(&config)?;
        // What it says already was written with less, perhaps: only who says all of it anew answers for it.
        let creator = record.creator.intersect(by.authority).nowhere();
        let made_under = record.made_under.clone().and(by.trail);
        if made_under.is_full() {
            return Err(LifeError::TooMany(id.clone()));
        }
        let config_version = record.config_version + 1;
        Ok(Some(AgentRecord { config, config_version, creator, made_under, ..record.clone() }))
    })
    .await
}

fn patched(venue: &Venue, owner: &Owner, config: &AgentConfig, patch: &Patch) -> Result<AgentConfig, LifeError> {
    let mut whole = json!(config);
    merge::shallow(&mut whole, &patch.config);
    merge::deep(&mut whole, &patch.state_config);
    own::localise(Some(owner), &mut whole).map_err(|error| LifeError::Config(error.to_string()))?;
    let config = AgentConfig::parse(&whole).map_err(|error| LifeError::Config(format!("`config`: {error}")))?;
    let resources = venue.catalog.resources.check(&config);
    resources.map_err(|error| LifeError::Config(format!("`config`: {error}")))?;
    Ok(config)
}

/// Stops an agent from running; what arrives is kept, and so is everything that waits.
pub async fn suspend(
    venue: &Venue,
    owner: &Owner,
    id: &AgentId,
    reason: &str,
) -> Result<(AgentRecord, bool), LifeError> {
    change(venue, owner, id, |record| match record.status {
        AgentStatus::Terminated => Err(LifeError::Terminated(id.clone())),
        AgentStatus::Suspended => Ok(None),
        AgentStatus::Active => Ok(Some(suspended(record, reason))),
    })
    .await
}

fn suspended(record: &AgentRecord, reason: &str) -> AgentRecord {
    AgentRecord { status: AgentStatus::Suspended, error: Some(cut_reason(reason.to_owned())), ..record.clone() }
}

/// Suspends an agent that can't be run as it is configured, unless its configuration is another by
/// now.
pub async fn suspend_unusable(
    venue: &Venue,
    owner: &Owner,
    agent: &AgentRecord,
    reason: &str,
) -> Result<(), StoreError> {
    let changed = change(venue, owner, &agent.id, |record| {
        let is_it = record.status == AgentStatus::Active && record.config_version == agent.config_version;
        Ok(is_it.then(|| suspended(record, reason)))
    });
    match changed.await {
        Err(LifeError::Store(error)) => Err(error),
        // Removed meanwhile: there is nothing to suspend.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Lets a suspended agent run again; sessions that have waited are woken.
pub async fn resume(venue: &Venue, owner: &Owner, id: &AgentId, by: By<'_>) -> Result<(AgentRecord, bool), LifeError> {
    change(venue, owner, id, |record| match record.status {
        AgentStatus::Terminated => Err(LifeError::Terminated(id.clone())),
        AgentStatus::Active => Ok(None),
        AgentStatus::Suspended => {
            by.may(record, "resume it")?;
            Ok(Some(AgentRecord { status: AgentStatus::Active, error: None, ..record.clone() }))
        }
    })
    .await
}

/// What a fork copies.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fork {
    /// Also the sessions with their turns; only to a new agent.
    pub timeline: bool,
    /// An agent of the new name gets this configuration and state; its sessions stay.
    pub overwrite: bool,
}

/// Makes `to` with the configuration and state of `from`, these keys of `config` excepted, and without
/// anything that waits for it; says whether it is new.
/// Who forks bounds the new agent, and what bound the old one bounds it, too.
pub async fn fork(
    venue: &Venue,
    owner: &Owner,
    (from, to): (&AgentId, &AgentId),
    config: &Map<String, Value>,
    how: Fork,
    by: By<'_>,
) -> Result<(AgentRecord, bool), LifeError> {
    let Some((source, _)) = get(venue, owner, from).await? else { return Err(LifeError::Unknown(from.clone())) };
    if from == to {
        return Err(LifeError::Exists(to.clone()));
    }
    if how.timeline && how.overwrite {
        return Err(LifeError::Config("`timeline` is copied to a new agent only, leave `overwrite` out".into()));
    }
    let config = if config.is_empty() {
        source.config.clone()
    } else {
        let config = patched(venue, owner, &source.config, &Patch { config: config.clone(), ..Patch::default() })?;
        names::checked(venue, owner, &config, false).map_err(|e| LifeError::Config(format!("`config`: {e}")))?;
        config
    };
    by.may_use_key(&config)?;
    let maker = Maker {
        authority: source.creator.intersect(by.authority).nowhere(),
        trail: source.made_under.clone().and(by.trail),
    };
    if maker.trail.is_full() {
        return Err(LifeError::TooMany(from.clone()));
    }
    let new = AgentRecord { state: source.state, ..fresh(to, &config, &maker, venue.now()) };
    if !how.timeline {
        return put_fork(venue, owner, new, how, by, None).await;
    }
    let Some(mut claim) = Claim::agent(venue, owner, to).await? else { return Err(LifeError::Exists(to.clone())) };
    let forked = put_fork(venue, owner, new, how, by, Some((&mut claim, from))).await;
    claim.end(forked).await
}

/// Writes the record of a fork, when nobody has its name, or (`overwrite`) whoever has it; the sessions that are
/// copied come before it.
async fn put_fork(
    venue: &Venue,
    owner: &Owner,
    new: AgentRecord,
    how: Fork,
    by: By<'_>,
    copied: Option<(&mut Claim<'_>, &AgentId)>,
) -> Result<(AgentRecord, bool), LifeError> {
    let copied = Mutex::new(copied);
    let attempt = || async {
        let (known, unmarked) = ending::finish_deletion(venue, owner, &new.id).await?;
        let created = known.is_none();
        let (record, version) = match known {
            None => {
                let absent = super::absent(venue, owner, &new.id).await?;
                if let Some((claim, from)) = copied.lock().await.take() {
                    // Before the agent: its first turn comes after those.
                    claim.copy_all(from, &new.id).await?;
                }
                (new.clone(), absent)
            }
            Some((known, _)) if !how.overwrite => return Err(LifeError::Exists(known.id)),
            Some((known, version)) => {
                by.may(&known, "change its configuration")?;
                let (created, config_version) = (known.created, known.config_version + 1);
                (AgentRecord { config_version, created, ..new.clone() }, version)
            }
        };
        record.check_size().map_err(StoreError::Oversized)?;
        let mut wanted = writes(&record, version).to_vec();
        wanted.extend(unmarked);
        Ok(Edit::write(wanted, (record, created)).within(venue.quota().await))
    };
    venue.store.edit(venue.now(), owner, ("agent", &new.id), attempt).await
}
