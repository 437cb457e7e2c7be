//! Publishes the agents elsewhere that a turn may use, before it begins. The approved cards come from the store: only the
//! first use of an agent waits for the agent itself, and later cards are asked for in the background.

use super::pins;
use crate::domain::a2a::card::RemoteCard;
use crate::domain::a2a::message::input_schema;
use crate::domain::a2a::name::{GROUP, SEND, agent_of_path};
use crate::domain::a2a::pin::CardPin;
use crate::domain::a2a::remote::RemoteAgent;
use crate::domain::a2a::task::RemoteCallPlan;
use crate::domain::agent::AgentRecord;
use crate::domain::agent::entry::ContextEntry;
use crate::domain::agent::tool::ToolEntry;
use crate::domain::ids::Owner;
use crate::domain::lattice::catalog::SourceName;
use crate::domain::limits::{A2A_FRESH, MCP_LIST_RETRY, MCP_PIN_AGE, MCP_PUBLISHED};
use crate::store::StoreError;
use crate::venue::Venue;
use crate::venue::a2a_client::{A2aEndpoint, A2aEndpointError, KnownRemoteAgent, RemoteAgentKey, VenueRemoteAgent};
use crate::venue::failure::OpError;
use crate::venue::operation::{Effect, Publication, PublicationError, PublicationKey, RuntimeOperation};
use crate::venue::venue_owner;
use futures::future::join_all;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Pause between two looks at the agents that all owners share.
const WATCH_PAUSE: Duration = Duration::from_secs(30);

/// An agent elsewhere that a turn may use, with its settings and, if the venue names it, its endpoint.
#[derive(Clone)]
pub(super) struct WantedAgent {
    pub(super) key: RemoteAgentKey,
    pub(super) settings: RemoteAgent,
    endpoint: Option<Arc<A2aEndpoint>>,
}

impl WantedAgent {
    /// Returns an agent elsewhere that an agent has declared.
    pub(super) fn of_agent(owner: &Owner, agent: &AgentRecord, settings: &RemoteAgent) -> Self {
        let (owner, agent, name) = (Some(owner.clone()), Some(agent.id.clone()), settings.name.clone());
        Self { key: RemoteAgentKey { owner, agent, name }, settings: settings.clone(), endpoint: None }
    }

    /// Returns an agent elsewhere that the venue names, as an owner uses it.
    pub(super) fn of_venue(owner: &Owner, agent: &VenueRemoteAgent) -> Self {
        let settings = agent.endpoint.settings().clone();
        let owner = (!agent.is_shared).then(|| owner.clone());
        let key = RemoteAgentKey { owner, agent: None, name: settings.name.clone() };
        Self { key, settings, endpoint: Some(Arc::clone(&agent.endpoint)) }
    }

    /// Returns what this process knows of the agent.
    pub(super) fn find_known(&self, venue: &Venue) -> Result<Arc<KnownRemoteAgent>, A2aEndpointError> {
        venue.catalog.a2a.open_known(&self.key, &self.settings, || match &self.endpoint {
            Some(endpoint) => Ok(Arc::clone(endpoint)),
            None => A2aEndpoint::of_agent(self.settings.clone()).map(Arc::new),
        })
    }
}

/// When an agent itself is asked for its card.
#[derive(Clone, Copy)]
enum CardAsking<'v> {
    /// Never: what is stored counts.
    Never,
    /// When nothing is stored.
    FirstUse,
    /// When nothing is stored, and in the background when the stored card is old.
    WhenOld(&'v Arc<Venue>),
}

/// Publishes the agents elsewhere that a turn of an agent may use: those that it declares, and those of the venue that its
/// configuration, or its session by `found`, names. One that fails costs the turn its own tool alone.
///
/// # Errors
/// The store can't be read.
pub async fn prepare_turn(
    venue: &Arc<Venue>,
    owner: &Owner,
    agent: &AgentRecord,
    found: &[String],
) -> Result<(), StoreError> {
    prepare_agents(venue, &wanted_agents(venue, owner, agent, found), CardAsking::WhenOld(venue)).await
}

/// Publishes the same for somebody who only looks: no agent is asked.
///
/// # Errors
/// The store can't be read.
pub async fn prepare_preview(
    venue: &Venue,
    owner: &Owner,
    agent: &AgentRecord,
    found: &[String],
) -> Result<(), StoreError> {
    prepare_agents(venue, &wanted_agents(venue, owner, agent, found), CardAsking::Never).await
}

fn wanted_agents(venue: &Venue, owner: &Owner, agent: &AgentRecord, found: &[String]) -> Vec<WantedAgent> {
    let config = &agent.config;
    let mut wanted: Vec<_> = config.a2a_agents.iter().map(|own| WantedAgent::of_agent(owner, agent, own)).collect();
    let entries = config.context.iter().filter_map(|entry| match entry {
        ContextEntry::Full(full) => full.op.as_deref(),
        ContextEntry::Short(_) => None,
    });
    let tools = config.tools.iter().filter_map(ToolEntry::operation);
    let named = tools.chain(entries).chain(found.iter().map(String::as_str));
    let named: BTreeSet<_> = named.filter_map(agent_of_path).collect();
    let of_venue = named.iter().filter(|name| config.a2a_agents.iter().all(|own| own.name != **name));
    let of_venue = of_venue.filter_map(|name| venue.catalog.a2a.find(name));
    wanted.extend(of_venue.map(|agent| WantedAgent::of_venue(owner, agent)));
    wanted
}

async fn prepare_agents(venue: &Venue, wanted: &[WantedAgent], asking: CardAsking<'_>) -> Result<(), StoreError> {
    join_all(wanted.iter().map(|agent| prepare_agent(venue, agent, asking))).await.into_iter().collect()
}

/// Publishes the venue's agent elsewhere that a path names, for a caller outside turns.
///
/// # Errors
/// The store can't be read.
pub async fn prepare_path(venue: &Venue, owner: &Owner, path: &str) -> Result<(), StoreError> {
    match agent_of_path(path).and_then(|name| venue.catalog.a2a.find(&name)) {
        Some(agent) => prepare_agent(venue, &WantedAgent::of_venue(owner, agent), CardAsking::FirstUse).await,
        None => Ok(()),
    }
}

/// Publishes the stored card of the venue's agent elsewhere that a path names, for a caller outside turns: an agent is
/// asked by those who may call it. Returns whether there is such an agent.
///
/// # Errors
/// The store can't be read.
pub async fn prepare_stored(venue: &Venue, owner: &Owner, path: &str) -> Result<bool, StoreError> {
    let agent = agent_of_path(path).and_then(|name| venue.catalog.a2a.find(&name));
    let Some(agent) = agent else { return Ok(false) };
    prepare_agent(venue, &WantedAgent::of_venue(owner, agent), CardAsking::Never).await?;
    Ok(true)
}

/// Keeps the agents elsewhere that all owners share published, until the process ends.
pub async fn watch(venue: Arc<Venue>, ending: CancellationToken) {
    let shared: Vec<_> = venue.catalog.a2a.of_venue().filter(|agent| agent.is_shared).collect();
    let wanted: Vec<_> = shared.into_iter().map(|agent| WantedAgent::of_venue(&venue_owner(), agent)).collect();
    if wanted.is_empty() {
        return;
    }
    loop {
        if let Err(error) = prepare_agents(&venue, &wanted, CardAsking::WhenOld(&venue)).await {
            tracing::debug!(%error, "cards of A2A agents aren't read yet");
        }
        let pause = venue.clock.wait_until(venue.clock.steady() + WATCH_PAUSE);
        if ending.run_until_cancelled(pause).await.is_none() {
            return;
        }
    }
}

/// Publishes an agent by its approved card.
async fn prepare_agent(venue: &Venue, wanted: &WantedAgent, asking: CardAsking<'_>) -> Result<(), StoreError> {
    let WantedAgent { key, settings, .. } = wanted;
    let known = match wanted.find_known(venue) {
        Ok(known) => known,
        Err(error) => {
            tracing::warn!(agent = %key.name, %error, "A2A agent can't be used");
            return Ok(());
        }
    };
    let (now, state) = (venue.clock.steady(), known.state());
    let is_newer_than = |at: Option<Duration>, age: Duration| at.is_some_and(|at| now.saturating_sub(at) < age);
    if is_newer_than(state.read, MCP_PIN_AGE) {
        return Ok(());
    }
    let has_failed = is_newer_than(state.failure.as_ref().map(|(at, _)| *at), MCP_LIST_RETRY);
    match pins::load(venue, key, settings).await? {
        Some(pin) => {
            publish(venue, key, &known, &pin);
            if let CardAsking::WhenOld(venue) = asking
                && state.card_due.is_none_or(|due| now >= due)
                && !has_failed
                && known.claim_card()
            {
                refresh_in_background(venue, key, &known);
            }
        }
        None if matches!(asking, CardAsking::Never) => return Ok(()),
        None if has_failed => {}
        None => match refresh(venue, key, &known).await {
            Ok(_) => {}
            Err(OpError::Store(error)) if error.is_transient() => return Err(error),
            Err(error) => note_failure(venue, key, &known, &error),
        },
    }
    known.change(|state| state.read = Some(venue.clock.steady()));
    Ok(())
}

fn note_failure(venue: &Venue, key: &RemoteAgentKey, known: &KnownRemoteAgent, error: &OpError) {
    tracing::warn!(agent = %key.name, %error, "the card of an A2A agent isn't known");
    known.change(|state| state.failure = Some((venue.clock.steady(), error.to_string())));
}

/// Asks for the card without making anybody wait. The caller has claimed it.
fn refresh_in_background(venue: &Arc<Venue>, key: &RemoteAgentKey, known: &Arc<KnownRemoteAgent>) {
    let (venue, key, known) = (Arc::clone(venue), key.clone(), Arc::clone(known));
    tokio::spawn(async move {
        if let Err(error) = refresh(&venue, &key, &known).await {
            note_failure(&venue, &key, &known, &error);
        }
        known.release_card();
    });
}

/// Asks an agent for its card, compares it with the approved one, and publishes that.
pub(super) async fn refresh(venue: &Venue, key: &RemoteAgentKey, known: &KnownRemoteAgent) -> Result<CardPin, OpError> {
    let owner = key.owner.clone().unwrap_or_else(venue_owner);
    let resolved = known.endpoint.resolve_headers(&*venue.store, &venue.secrets, &owner).await?;
    let card = known.peer(&venue.catalog.hosts, resolved).fetch_card().await?;
    let pin = pins::compare(venue, key, known.endpoint.settings(), &card).await?;
    for difference in pin.differences() {
        tracing::warn!(
            agent = %key.name, key = difference.key,
            "the card of an A2A agent differs from what was approved, and the agent isn't called until it is approved"
        );
    }
    known.change(|state| {
        state.card_due = Some(venue.clock.steady() + A2A_FRESH);
        state.failure = None;
    });
    publish(venue, key, known, &pin);
    Ok(pin)
}

/// Publishes the operation of an agent by its approved card.
pub(super) fn publish(venue: &Venue, key: &RemoteAgentKey, known: &KnownRemoteAgent, pin: &CardPin) {
    if let Err(error) = try_publish(venue, key, known, pin) {
        tracing::warn!(agent = %key.name, %error, "an A2A agent isn't offered");
        known.change(|state| state.failure = Some((venue.clock.steady(), error.to_string())));
    }
}

fn try_publish(
    venue: &Venue,
    key: &RemoteAgentKey,
    known: &KnownRemoteAgent,
    pin: &CardPin,
) -> Result<(), PublicationError> {
    let (settings, now) = (known.endpoint.settings(), venue.now());
    let (Ok(source), Some(calls)) = (SourceName::in_group(GROUP, key.name.as_str()), venue.catalog.remote_calls())
    else {
        return Ok(());
    };
    // A card that a later build has approved may be none that this one reads.
    let Ok(card) = RemoteCard::read(&pin.card) else { return Ok(()) };
    let version = pin.version(settings);
    let (shown, expires) = ((version.clone(), pin.change_hash()), Some(now.plus(MCP_PUBLISHED)));
    let place = PublicationKey { owner: key.owner.as_ref(), agent: key.agent.as_ref(), source: &source };
    if known.state().published.as_ref() == Some(&shown) && venue.catalog.renew(place, &version, expires, now) {
        return Ok(());
    }
    let plan = RemoteCallPlan {
        agent: key.name.clone(),
        declared_by: key.agent.clone(),
        place: settings.place_hash(),
        deadline: settings.deadline,
        has_changed: pin.change.is_some(),
        is_shared: key.owner.is_none(),
    };
    let operation = RuntimeOperation {
        name: SEND.to_owned(),
        description: card.tool_description(|skill| settings.shows(skill)),
        input: input_schema(),
        // A call begins a job under an id that is a function of the turn: what may happen twice decides the job.
        effect: Effect::Idempotent,
        run: calls(plan),
    };
    let (owner, agent, operations) = (key.owner.clone(), key.agent.clone(), vec![operation]);
    venue.catalog.publish(Publication { source, owner, agent, version, expires, operations }, now)?;
    known.change(|state| state.published = Some(shown));
    Ok(())
}
