//! Agents that programs outside see: those whose configuration publishes them.

use crate::domain::agent::AgentRecord;
use crate::domain::agent::published::PublishedSettings;
use crate::domain::decode;
use crate::domain::ids::{AgentId, Owner};
use crate::store::{StoreError, keys, steps};
use crate::venue::Venue;

/// A published agent.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedAgent {
    /// Name of the agent.
    pub id: AgentId,
    /// Its purpose in one line.
    pub description: Option<String>,
    /// How it is published.
    pub settings: PublishedSettings,
    /// JSON Schema of the output of its tasks, if that is typed.
    pub output: Option<serde_json::Value>,
}

/// A page of an owner's published agents.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PublishedPage {
    /// Published agents among those that were looked at, by name.
    pub agents: Vec<PublishedAgent>,
    /// Last agent that was looked at, if there are more.
    pub next: Option<AgentId>,
}

impl PublishedAgent {
    /// Makes one of a record; `None` if the agent isn't published or has ended.
    fn of_record(record: AgentRecord) -> Option<Self> {
        let AgentRecord { id, status, config, .. } = record;
        let settings = config.published.filter(|_| status.takes_work())?;
        let output = config.outputs.complete.map(|output| output.schema);
        Some(Self { id, description: config.description, settings: *settings, output })
    }
}

/// Returns an agent; `None` if there is none of that name, or it isn't published.
pub async fn find(venue: &Venue, owner: &Owner, id: &AgentId) -> Result<Option<PublishedAgent>, StoreError> {
    Ok(super::get(venue, owner, id).await?.and_then(|(record, _)| PublishedAgent::of_record(record)))
}

/// Looks at `limit` agents after `after`, by name, and returns the published ones.
pub async fn page(
    venue: &Venue,
    owner: &Owner,
    after: Option<&AgentId>,
    limit: usize,
) -> Result<PublishedPage, StoreError> {
    let listed = super::list(venue, owner, after, limit).await?;
    let next = listed.last().filter(|_| listed.len() == limit).map(|agent| agent.id.clone());
    if listed.is_empty() {
        return Ok(PublishedPage::default());
    }
    let wanted: Vec<_> = listed.iter().map(|agent| keys::agent(&agent.id)).collect();
    let docs = steps::read_listed(&*venue.store, owner, &wanted).await?;
    // A damaged record is reported where the agent is shown.
    let records = docs.into_iter().filter_map(|doc| decode::read_stored::<AgentRecord>(&doc.value?).ok());
    Ok(PublishedPage { agents: records.filter_map(PublishedAgent::of_record).collect(), next })
}
