//! Agents as callers see them: create, read, list; `lifecycle` and `sessions` have the rest.

pub mod amend;
mod copies;
pub mod deletion;
mod error;
pub mod lifecycle;
pub mod config_warnings;
mod missing_names;
pub mod published;
pub mod sessions;
pub mod templates;
pub mod transcript;

use crate::config::url::parse_callable;
use crate::domain::agent::{AgentConfig, AgentRecord, AgentState, AgentStatus};
use crate::domain::authority::Authority;
use crate::domain::authority::ResourcePath;
use crate::domain::authority::trail::MakerAuthority;
use crate::domain::ids::secret::SecretName;
use crate::domain::ids::{AgentId, Owner, decode_token};
use crate::domain::limits::{LIST_BYTES, LIST_PAGE, LISTED_TEXT_BYTES};
use crate::domain::load::{LoadChange as StateChange, LoadLevel};
use crate::domain::session::TurnRecord;
use crate::domain::time::Millis;
use crate::domain::unknown_fields::UnknownFields;
use crate::domain::visible::cut_at;
use crate::store::{Doc, DocKey, DocWrite, Edit, SessionFacts, Store, StoreError, Window, decode_listed, keys, steps};
use crate::venue::Venue;
use crate::venue::operation::Need;
use crate::venue::outbound::url_resource;
use crate::view::agent::{AgentActivity, AgentRecordView};
use crate::view::ledger::TurnRecordView;
use crate::view::to_json;
use crate::view::tree::TimelineTurnView;
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Sessions that are read for the status of an agent.
const SESSIONS: usize = 1_000;

/// Agents of a list whose status is read at once.
const CONCURRENT_READS: usize = 16;

/// Result of a create or an apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplyOutcome {
    /// The agent is new.
    Created,
    /// The configuration has changed.
    Updated,
    /// The agent is as before.
    Unchanged,
}

/// Returns an agent with the version of its document.
pub async fn get(venue: &Venue, owner: &Owner, id: &AgentId) -> Result<Option<(AgentRecord, u64)>, StoreError> {
    let (record, version) = venue.store.get_versioned(owner, &keys::agent(id)).await?;
    Ok(record.map(|record| (record, version)))
}

/// An agent as lists show it.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedAgent {
    /// Name of the agent.
    pub id: AgentId,
    /// Whether the agent may run.
    pub status: AgentStatus,
    /// The beginning of the description, at most `LISTED_TEXT_BYTES`.
    pub description: Option<String>,
}

/// Returns the names of all agents of an owner.
pub async fn all_ids(venue: &Venue, owner: &Owner) -> Result<Vec<AgentId>, StoreError> {
    let mut ids: Vec<AgentId> = Vec::new();
    loop {
        let page = list(venue, owner, ids.last(), LIST_PAGE).await?;
        let full = page.len() == LIST_PAGE;
        ids.extend(page.into_iter().map(|agent| agent.id));
        if !full {
            return Ok(ids);
        }
    }
}

/// A document below `g/`, the first one of those that lie together.
struct AgentDocument {
    key: DocKey,
    doc: Doc,
    /// `g/<agent>/`, with which the keys of the agent's documents begin.
    prefix: String,
}

impl AgentDocument {
    /// Returns the first document behind a key.
    async fn find(store: &dyn Store, owner: &Owner, after: Option<&str>) -> Result<Option<Self>, StoreError> {
        let page = store.scan(owner, keys::AGENTS, after, false, 1).await?;
        Ok(page.into_iter().next().map(|(key, doc)| {
            let name = key.strip_prefix(keys::AGENTS).and_then(|rest| rest.split('/').next()).unwrap_or_default();
            let prefix = format!("{}{name}/", keys::AGENTS);
            Self { key, doc, prefix }
        }))
    }

    /// Whether it is the agent's record.
    fn is_record(&self) -> bool {
        !self.key.starts_with(&self.prefix)
    }

    /// Returns the key behind which the next one is looked for. After the record of `a` comes that of `a-b`, then the
    /// documents of `a`, which are skipped.
    fn last_key(self) -> DocKey {
        if self.is_record() { self.key } else { format!("{}~", self.prefix) }
    }
}

/// Returns `g/<agent>/` of each agent, whether its record can be read or not.
pub async fn document_prefixes(store: &dyn Store, owner: &Owner) -> Result<BTreeSet<String>, StoreError> {
    let (mut prefixes, mut after) = (BTreeSet::new(), None::<DocKey>);
    while let Some(found) = AgentDocument::find(store, owner, after.as_deref()).await? {
        prefixes.insert(found.prefix.clone());
        after = Some(found.last_key());
    }
    Ok(prefixes)
}

/// Lists the agents of an owner by name after `after`, at most `limit`.
pub async fn list(
    venue: &Venue,
    owner: &Owner,
    after: Option<&AgentId>,
    limit: usize,
) -> Result<Vec<ListedAgent>, StoreError> {
    let mut agents = Vec::new();
    let mut after = after.map(keys::agent);
    while agents.len() < limit {
        let Some(found) = AgentDocument::find(&*venue.store, owner, after.as_deref()).await? else { break };
        if found.is_record()
            && let Some(bytes) = &found.doc.value
        {
            let record = decode_listed(owner, &found.key, bytes);
            agents.extend(record.map(|AgentRecord { id, status, config, .. }| {
                let description = config.description.map(|text| cut_at(&text, LISTED_TEXT_BYTES));
                ListedAgent { id, status, description }
            }));
        }
        after = Some(found.last_key());
    }
    Ok(agents)
}

/// Returns the version at which a write creates an absent agent: of several writes at once one succeeds.
async fn version_if_absent(venue: &Venue, owner: &Owner, id: &AgentId) -> Result<u64, StoreError> {
    let doc = venue.store.doc(owner, &keys::agent(id)).await?;
    // Another process has created the agent meanwhile: at this version the write fails.
    Ok(if doc.value.is_some() { doc.version.saturating_sub(1) } else { doc.version })
}

/// Creates an agent, or with `overwrite` gives an existing one another configuration. Sessions, tasks and timeline
/// stay; a running turn keeps the configuration that it began with. The agent can do no more than its maker, and
/// nothing once the maker's grant is revoked.
pub async fn apply(
    venue: &Venue,
    owner: &Owner,
    id: &AgentId,
    config: &AgentConfig,
    overwrite: bool,
    maker: impl Into<MakerAuthority> + Send,
) -> Result<(AgentRecord, ApplyOutcome), StoreError> {
    let MakerAuthority { authority, trail } = maker.into();
    let maker = &MakerAuthority { authority: authority.without_home(), trail };
    let now = venue.now();
    let attempt = || async {
        let (known, unmarked) = deletion::finish_deletion(venue, owner, id).await?;
        let (record, version, applied) = match known {
            Some((record, _)) if !overwrite => return Ok(Edit::without_writes((record, ApplyOutcome::Unchanged))),
            Some((record, _)) if matches_config(&record, config, maker) && record.made_under == maker.trail => {
                return Ok(Edit::without_writes((record, ApplyOutcome::Unchanged)));
            }
            // Only the grants behind the configuration differ.
            Some((record, version)) if matches_config(&record, config, maker) => {
                (with_config(record, config, maker, now), version, ApplyOutcome::Unchanged)
            }
            Some((record, version)) => (with_config(record, config, maker, now), version, ApplyOutcome::Updated),
            None => {
                (new_record(id, config, maker, now), version_if_absent(venue, owner, id).await?, ApplyOutcome::Created)
            }
        };
        record.check_size().map_err(StoreError::Oversized)?;
        let mut wanted = writes(&record, version).to_vec();
        wanted.extend(unmarked);
        Ok(Edit::write(wanted, (record, applied)).with_quota(venue.quota().await))
    };
    venue.store.edit(now, owner, "agent", id, attempt).await
}

fn matches_config(record: &AgentRecord, config: &AgentConfig, maker: &MakerAuthority) -> bool {
    record.status != AgentStatus::Terminated && record.config == *config && record.creator == maker.authority
}

/// Returns the agent with another configuration; a terminated agent becomes active.
fn with_config(record: AgentRecord, config: &AgentConfig, maker: &MakerAuthority, now: Millis) -> AgentRecord {
    let status = match record.status {
        AgentStatus::Terminated => AgentStatus::Active,
        kept @ (AgentStatus::Active | AgentStatus::Suspended) => kept,
    };
    let config_version =
        record.config_version + u64::from(record.config != *config || record.creator != maker.authority);
    let MakerAuthority { authority: creator, trail: made_under } = maker.clone();
    AgentRecord { config: config.clone(), creator, made_under, status, config_version, updated: now, ..record }
}

/// Returns the writes by which a commit changes the state that an agent keeps from turn to turn. They hold only at the
/// current version, so that of two sessions that change it at once one tries again.
pub async fn state_writes(
    venue: &Venue,
    owner: &Owner,
    id: &AgentId,
    changes: &[StateChange],
) -> Result<Vec<DocWrite>, StoreError> {
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let Some((mut record, version)) = get(venue, owner, id).await? else { return Ok(Vec::new()) };
    for change in changes {
        change.apply(LoadLevel::Agent, &mut record.state.loads);
    }
    Ok(writes(&record, version).into())
}

/// Returns the writes of a record and its gate. No record is written without its gate: the version of the gate comes
/// with every lease and tells a worker whether its copy of the record is current.
fn writes(record: &AgentRecord, version: u64) -> [DocWrite; 2] {
    [
        DocWrite::json(keys::agent(&record.id), record).at_version(version),
        DocWrite::put(keys::agent_gate(&record.id), record.gate().encode()),
    ]
}

fn new_record(id: &AgentId, config: &AgentConfig, maker: &MakerAuthority, now: Millis) -> AgentRecord {
    AgentRecord {
        id: id.clone(),
        status: AgentStatus::Active,
        config: config.clone(),
        config_version: 1,
        state: AgentState::default(),
        creator: maker.authority.clone(),
        made_under: maker.trail.clone(),
        error: None,
        created: now,
        updated: now,
        kept: UnknownFields::default(),
    }
}

/// Returns what an agent is and does; `None` if there is no such agent.
pub async fn info(venue: &Venue, owner: &Owner, id: &AgentId) -> Result<Option<AgentRecordView>, StoreError> {
    let Some((record, _)) = get(venue, owner, id).await? else { return Ok(None) };
    let sessions = venue.store.sessions(owner, Some(id), None, SESSIONS).await?;
    Ok(Some(AgentRecordView {
        agent_id: record.id,
        status: status(record.status, &sessions, venue.now()),
        config: to_json(&record.config),
        creator_caps: record.creator.capabilities(),
        config_version: record.config_version,
        timeline_length: sessions.iter().map(|s| s.version).sum(),
        tasks: sessions.iter().map(open_tasks).sum(),
        sessions: sessions.len(),
        created: record.created,
        updated: record.updated,
        error: record.error,
    }))
}

/// Returns the turn records of an agent with their `session`, as `reader` may see them, in the order in which the turns
/// began: at most `limit` after the first `skip`.
pub async fn timeline(
    venue: &Venue,
    owner: &Owner,
    reader: &Authority,
    id: &AgentId,
    skip: usize,
    limit: usize,
) -> Result<Vec<TimelineTurnView>, StoreError> {
    let window = Window { reverse: false, skip, limit, values: false };
    let page = venue.store.page(owner, &keys::timeline(id), window).await?;
    let turns: Vec<_> = page.docs.iter().filter_map(|(key, _)| keys::timeline_turn(id, key)).collect();
    let records: Vec<_> = turns.iter().map(|(_, key)| [key.clone()]).collect();
    let (docs, _) = steps::read(&*venue.store, owner, &records, LIST_BYTES).await?;
    let mut shown = Vec::with_capacity(docs.len());
    for ((session, key), mut doc) in turns.iter().zip(docs) {
        let record = doc.pop().and_then(|doc| decode_listed::<TurnRecord>(owner, key, &doc.value?));
        let Some(record) = record else { continue };
        let record = TurnRecordView::for_transcript(&record.visible_to(reader));
        shown.push(TimelineTurnView { record, session: decode_token(session) });
    }
    Ok(shown)
}

fn open_tasks(session: &SessionFacts) -> usize {
    session.mailbox.iter().filter(|entry| entry.kind == crate::store::EventKind::Task).count()
}

/// Returns the [`status`] of each of these agents of an owner.
pub async fn statuses(venue: &Venue, owner: &Owner, agents: &[ListedAgent]) -> Result<Vec<AgentActivity>, StoreError> {
    let looks: Vec<_> = agents.iter().map(|listed| current_status(venue, owner, &listed.id, listed.status)).collect();
    stream::iter(looks).buffered(CONCURRENT_READS).try_collect().await
}

/// Returns the [`status`] of an agent, for which it reads the sessions.
pub async fn current_status(
    venue: &Venue,
    owner: &Owner,
    id: &AgentId,
    agent: AgentStatus,
) -> Result<AgentActivity, StoreError> {
    let sessions = match agent {
        AgentStatus::Active => venue.store.sessions(owner, Some(id), None, SESSIONS).await?,
        AgentStatus::Suspended | AgentStatus::Terminated => Vec::new(),
    };
    Ok(status(agent, &sessions, venue.now()))
}

/// Whether the first 1,000 sessions of an agent have no pending events.
pub async fn is_idle(venue: &Venue, owner: &Owner, id: &AgentId) -> Result<bool, StoreError> {
    let sessions = venue.store.sessions(owner, Some(id), None, SESSIONS).await?;
    Ok(sessions.iter().all(|session| session.mailbox.is_empty()))
}

/// Wakes every session of an agent that has pending events, and returns their number.
pub async fn wake(venue: &Venue, owner: &Owner, id: &AgentId) -> Result<usize, StoreError> {
    let mut woken = 0;
    let mut sessions = venue.store.all_sessions(owner, Some(id));
    while let Some(page) = sessions.next().await? {
        for session in page.iter().filter(|session| !session.mailbox.is_empty()) {
            venue.wake(owner, &session.key).await;
            woken += 1;
        }
    }
    Ok(woken)
}

/// Returns what an agent with these sessions does now.
pub fn status(agent: AgentStatus, sessions: &[SessionFacts], now: Millis) -> AgentActivity {
    let is_leased = |session: &SessionFacts| session.lease_until.is_some_and(|until| until > now);
    match agent {
        AgentStatus::Suspended => AgentActivity::Suspended,
        AgentStatus::Terminated => AgentActivity::Terminated,
        AgentStatus::Active if sessions.iter().any(is_leased) => AgentActivity::Running,
        AgentStatus::Active => AgentActivity::Sleeping,
    }
}

/// Returns what a configuration needs for the keys and headers of its model and of the fallbacks: an agent uses a
/// secret only if its caller may use that secret. The agents that are written inside of its pipeline count, too.
pub fn keys_needed(config: &Value) -> Vec<Need> {
    let steps = config["pipeline"]["steps"].as_array().into_iter().flatten();
    let inline = steps.filter_map(|step| step.get("agent")).flat_map(keys_needed);
    own_keys_needed(config).into_iter().chain(inline).collect()
}

fn own_keys_needed(config: &Value) -> Vec<Need> {
    let model = &config["model"];
    let fallbacks = model["fallback"].as_array().into_iter().flatten();
    let secrets = std::iter::once(model).chain(fallbacks).flat_map(|model| {
        let headers = model["headers"].as_object().into_iter().flat_map(Map::values);
        std::iter::once(&model["key"]).chain(headers.map(|header| &header["$secret"]))
    });
    let servers = ["mcp", "a2aAgents"].into_iter().filter_map(|key| config[key].as_array()).flatten();
    let of_servers = servers.filter_map(|server| server["headers"].as_object()).flat_map(Map::values);
    let secrets = secrets.chain(of_servers.map(|header| &header["$secret"]));
    // A text that is no name may be a key itself: it is refused later, and never shown.
    let mut names: Vec<_> = secrets.filter_map(|path| SecretName::from_path(path.as_str()?).ok()).collect();
    names.sort_unstable();
    names.dedup();
    let need = |name: &SecretName| Need { ability: "secret/use", resource: ResourcePath::secret(name) };
    names.iter().map(need).chain(servers_needed(config)).collect()
}

/// Returns what a configuration needs for its servers of the Model Context Protocol and for its agents elsewhere: they are
/// sent requests as `http/post` sends them. Their secrets are among the keys.
fn servers_needed(config: &Value) -> impl Iterator<Item = Need> {
    let servers = ["mcp", "a2aAgents"].into_iter().filter_map(|key| config[key].as_array()).flatten();
    let urls = servers.filter_map(|server| server["url"].as_str());
    let urls: Vec<_> = urls.filter_map(|url| parse_callable(url).ok()).collect();
    urls.into_iter().map(|url| Need { ability: "http/post", resource: url_resource(&url) })
}
