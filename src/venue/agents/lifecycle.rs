//! The life cycle of an agent: update, suspend, resume, fork. Module `deletion` has its end.

use super::copies::CopyClaim;
pub use super::error::LifecycleError;
use super::{config_warnings, deletion, get, new_record, writes};
use crate::domain::agent::{AgentConfig, AgentRecord, AgentStatus, addresses, merge};
use crate::domain::authority::Authority;
use crate::domain::authority::trail::{MakerAuthority, Trail};
use crate::domain::bounds::cut_reason;
use crate::domain::ids::{AgentId, Owner};
use crate::store::{Edit, StoreError};
use crate::venue::Venue;
use crate::venue::notices;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

/// The acting party of a change.
#[derive(Debug, Clone, Copy)]
pub struct AgentEditor<'a> {
    /// Authority of the party; it bounds an agent that the party configures.
    pub authority: &'a Authority,
    /// Provenance, inherited by what the party creates.
    pub trail: &'a Trail,
    /// Whether a turn of an agent acts: it may not remove an approval that people require.
    pub turn: bool,
}

impl AgentEditor<'_> {
    pub(super) fn check_may_change(self, record: &AgentRecord, what: &'static str) -> Result<(), LifecycleError> {
        if self.turn && record.config.asks_people() {
            return Err(LifecycleError::AsksPeople(record.id.clone(), what));
        }
        Ok(())
    }

    fn check_keys(self, config: &AgentConfig) -> Result<(), LifecycleError> {
        super::keys_needed(&json!(config)).iter().try_for_each(|need| {
            let permitted = self.authority.permits(need.ability, &need.resource);
            permitted.map_err(|denied| LifecycleError::Denied(denied.model_text("an agent with this configuration")))
        })
    }
}

/// Changes a record and its gate in one write, unless `change` returns `None`. Returns the record after it, and whether
/// it changed.
async fn change(
    venue: &Venue,
    owner: &Owner,
    id: &AgentId,
    change: impl Fn(&AgentRecord) -> Result<Option<AgentRecord>, LifecycleError>,
) -> Result<(AgentRecord, bool), LifecycleError> {
    let attempt = || async {
        let Some((record, version)) = get(venue, owner, id).await? else {
            return Err(LifecycleError::Unknown(id.clone()));
        };
        let Some(after) = change(&record)? else { return Ok(Edit::without_writes((record, false))) };
        let after = AgentRecord { updated: venue.now(), ..after };
        let is_larger = after.config != record.config;
        if is_larger {
            after.check_size().map_err(StoreError::Oversized)?;
        }
        let mut wanted = writes(&after, version).to_vec();
        if after.status == AgentStatus::Suspended && record.status != AgentStatus::Suspended {
            wanted.push(notices::suspension_write(venue, owner, &after, version));
        }
        let edit = Edit::write(wanted, (after, true));
        // An owner at the quota can stop and resume an agent, but not enlarge it.
        Ok(if is_larger { edit.with_quota(venue.quota().await) } else { edit })
    };
    venue.store.edit(venue.now(), owner, "agent", id, attempt).await
}

/// Changes of an update.
#[derive(Debug, Clone, Default)]
pub struct Patch {
    /// Keys of the configuration: each replaces the stored one, `null` removes it.
    pub config: Map<String, Value>,
    /// The seeds' `state.config`: merged deeply, and after `config`.
    pub state_config: Map<String, Value>,
    /// Entries of the seeds' `state.context`: they come after those of `context`, unless they are there already.
    pub state_context: Vec<Value>,
    /// Nothing is changed unless the configuration has this version.
    pub expect: Option<u64>,
    /// Whether names in the result that the venue doesn't know are an error.
    pub strict: bool,
}

/// Changes some keys of an agent's configuration. The result is checked as a whole; its version grows if it differs.
pub async fn update(
    venue: &Venue,
    owner: &Owner,
    id: &AgentId,
    patch: &Patch,
    by: AgentEditor<'_>,
) -> Result<(AgentRecord, bool), LifecycleError> {
    change(venue, owner, id, |record| {
        if let Some(expected) = patch.expect.filter(|expected| *expected != record.config_version) {
            let actual = record.config_version;
            return Err(LifecycleError::Version { agent: id.clone(), actual, expected });
        }
        if record.status == AgentStatus::Terminated {
            return Err(LifecycleError::Terminated(id.clone()));
        }
        let config = apply_patch(venue, owner, &record.config, patch)?;
        config_warnings::check(venue, owner, &config, patch.strict)
            .map_err(|e| LifecycleError::Config(format!("`config`: {e}")))?;
        if config == record.config {
            return Ok(None);
        }
        by.check_may_change(record, "change its configuration")?;
        by.check_keys(&config)?;
        // Older parts may have been written with less authority, which stays the bound: only a complete new
        // configuration lifts it.
        let creator = record.creator.intersect(by.authority).without_home();
        let made_under = record.made_under.clone().merge(by.trail);
        if made_under.is_full() {
            return Err(LifecycleError::TooMany(id.clone()));
        }
        let config_version = record.config_version + 1;
        Ok(Some(AgentRecord { config, config_version, creator, made_under, ..record.clone() }))
    })
    .await
}

fn apply_patch(
    venue: &Venue,
    owner: &Owner,
    config: &AgentConfig,
    patch: &Patch,
) -> Result<AgentConfig, LifecycleError> {
    let mut whole = json!(config);
    merge::shallow(&mut whole, &patch.config);
    merge::deep(&mut whole, &patch.state_config);
    if !patch.state_context.is_empty() {
        whole["state"] = json!({"context": patch.state_context});
    }
    addresses::localise(Some(owner), &mut whole).map_err(|error| LifecycleError::Config(error.to_string()))?;
    let config = AgentConfig::parse(&whole).map_err(|error| LifecycleError::Config(format!("`config`: {error}")))?;
    let resources = venue.catalog.resources.check(&config);
    resources.map_err(|error| LifecycleError::Config(format!("`config`: {error}")))?;
    Ok(config)
}

/// Stops an agent from running; what arrives and what waits is kept.
pub async fn suspend(
    venue: &Venue,
    owner: &Owner,
    id: &AgentId,
    reason: &str,
) -> Result<(AgentRecord, bool), LifecycleError> {
    change(venue, owner, id, |record| match record.status {
        AgentStatus::Terminated => Err(LifecycleError::Terminated(id.clone())),
        AgentStatus::Suspended => Ok(None),
        AgentStatus::Active => Ok(Some(suspended_record(record, reason))),
    })
    .await
}

fn suspended_record(record: &AgentRecord, reason: &str) -> AgentRecord {
    AgentRecord { status: AgentStatus::Suspended, error: Some(cut_reason(reason.to_owned())), ..record.clone() }
}

/// Suspends an agent that can't run as it is configured, unless its configuration has changed meanwhile.
pub async fn suspend_unusable(
    venue: &Venue,
    owner: &Owner,
    agent: &AgentRecord,
    reason: &str,
) -> Result<(), StoreError> {
    let changed = change(venue, owner, &agent.id, |record| {
        let is_it = record.status == AgentStatus::Active && record.config_version == agent.config_version;
        Ok(is_it.then(|| suspended_record(record, reason)))
    });
    match changed.await {
        Err(LifecycleError::Store(error)) => Err(error),
        // The agent was removed meanwhile: there is nothing to suspend.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Lets a suspended agent run again; sessions that have waited are woken.
pub async fn resume(
    venue: &Venue,
    owner: &Owner,
    id: &AgentId,
    by: AgentEditor<'_>,
) -> Result<(AgentRecord, bool), LifecycleError> {
    change(venue, owner, id, |record| match record.status {
        AgentStatus::Terminated => Err(LifecycleError::Terminated(id.clone())),
        AgentStatus::Active => Ok(None),
        AgentStatus::Suspended => {
            by.check_may_change(record, "resume it")?;
            Ok(Some(AgentRecord { status: AgentStatus::Active, error: None, ..record.clone() }))
        }
    })
    .await
}

/// Options of a fork.
#[derive(Debug, Clone, Copy)]
pub struct Fork<'a> {
    /// Keys of the configuration that the new agent has instead of those of the old one.
    pub config: &'a Map<String, Value>,
    /// Whether sessions with their turns are copied; only to a new agent.
    pub timeline: bool,
    /// Whether an existing agent of the new name gets this configuration and state; its sessions stay.
    pub overwrite: bool,
}

/// Creates `to` with the configuration and state of `from`, with the keys of `how.config` replaced, and without pending
/// work. Returns the record, and whether it is new.
/// The new agent is bounded by the caller and by what bounds the old one.
pub async fn fork(
    venue: &Venue,
    owner: &Owner,
    from: &AgentId,
    to: &AgentId,
    how: Fork<'_>,
    by: AgentEditor<'_>,
) -> Result<(AgentRecord, bool), LifecycleError> {
    let Some((source, _)) = get(venue, owner, from).await? else { return Err(LifecycleError::Unknown(from.clone())) };
    if from == to {
        return Err(LifecycleError::Exists(to.clone()));
    }
    if how.timeline && how.overwrite {
        return Err(LifecycleError::Config("`timeline` is copied to a new agent only, leave `overwrite` out".into()));
    }
    let config = if how.config.is_empty() {
        source.config.clone()
    } else {
        let config =
            apply_patch(venue, owner, &source.config, &Patch { config: how.config.clone(), ..Patch::default() })?;
        config_warnings::check(venue, owner, &config, false)
            .map_err(|e| LifecycleError::Config(format!("`config`: {e}")))?;
        config
    };
    by.check_keys(&config)?;
    let maker = MakerAuthority {
        authority: source.creator.intersect(by.authority).without_home(),
        trail: source.made_under.clone().merge(by.trail),
    };
    if maker.trail.is_full() {
        return Err(LifecycleError::TooMany(from.clone()));
    }
    let new = AgentRecord { state: source.state, ..new_record(to, &config, &maker, venue.now()) };
    if !how.timeline {
        return put_fork(venue, owner, new, how, by, None).await;
    }
    let Some(mut claim) = CopyClaim::for_agent(venue, owner, to).await? else {
        return Err(LifecycleError::Exists(to.clone()));
    };
    let forked = put_fork(venue, owner, new, how, by, Some((&mut claim, from))).await;
    claim.release(forked).await
}

/// Writes the record of a fork if the name is free, or with `overwrite` replaces the agent of that name. Copied
/// sessions are written before the record.
async fn put_fork(
    venue: &Venue,
    owner: &Owner,
    new: AgentRecord,
    how: Fork<'_>,
    by: AgentEditor<'_>,
    copied: Option<(&mut CopyClaim<'_>, &AgentId)>,
) -> Result<(AgentRecord, bool), LifecycleError> {
    let copied = Mutex::new(copied);
    let attempt = || async {
        let (known, unmarked) = deletion::finish_deletion(venue, owner, &new.id).await?;
        let created = known.is_none();
        let (record, version) = match known {
            None => {
                let absent = super::version_if_absent(venue, owner, &new.id).await?;
                if let Some((claim, from)) = copied.lock().await.take() {
                    // The sessions come before the agent, so that its first turn comes after theirs.
                    claim.copy_all(from, &new.id).await?;
                }
                (new.clone(), absent)
            }
            Some((known, _)) if !how.overwrite => return Err(LifecycleError::Exists(known.id)),
            Some((known, version)) => {
                by.check_may_change(&known, "change its configuration")?;
                let (created, config_version) = (known.created, known.config_version + 1);
                (AgentRecord { config_version, created, ..new.clone() }, version)
            }
        };
        record.check_size().map_err(StoreError::Oversized)?;
        let mut wanted = writes(&record, version).to_vec();
        wanted.extend(unmarked);
        Ok(Edit::write(wanted, (record, created)).with_quota(venue.quota().await))
    };
    venue.store.edit(venue.now(), owner, "agent", &new.id, attempt).await
}
