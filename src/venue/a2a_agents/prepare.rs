//! Agents elsewhere as places that a person approves: their cards, and the operation that sends messages to one.

use super::pins;
use crate::domain::a2a::card::RemoteCard;
use crate::domain::a2a::message::input_schema;
use crate::domain::a2a::name::{GROUP, SEND, agent_of_path};
use crate::domain::a2a::pin::CardPin;
use crate::domain::a2a::remote::RemoteAgent;
use crate::domain::a2a::task::RemoteCallPlan;
use crate::domain::agent::AgentConfig;
use crate::domain::ids::secret::SecretName;
use crate::domain::lattice::catalog::SourceName;
use crate::domain::limits::A2A_FRESH;
use crate::domain::mcp::name::ServerName;
use crate::store::keys;
use crate::venue::Venue;
use crate::venue::a2a_client::A2aEndpoint;
use crate::venue::failure::OpError;
use crate::venue::operation::{Effect, RuntimeOperation};
use crate::venue::pinned::PinnedPlace;
use crate::venue::places::{KnownPlace, PlaceKey, Places};
use reqwest::Url;

impl PinnedPlace for A2aEndpoint {
    type Pin = CardPin;

    const WHAT: &'static str = "A2A agent";
    const GROUP: &'static str = GROUP;
    const SETTING: &'static str = "a2aAgents";
    const OFFER: &'static str = "tool";

    fn places(venue: &Venue) -> &Places<Self> {
        &venue.catalog.a2a
    }

    fn list_declared(config: &AgentConfig) -> &[RemoteAgent] {
        &config.a2a_agents
    }

    fn name_in(path: &str) -> Option<ServerName> {
        agent_of_path(path)
    }

    fn doc_key(key: &PlaceKey) -> String {
        keys::card_pin(key.agent.as_ref(), &key.name)
    }

    fn secrets_of(settings: &RemoteAgent) -> Vec<&SecretName> {
        settings.secrets().collect()
    }

    fn url_of(settings: &RemoteAgent) -> &str {
        &settings.url
    }

    fn place_url(&self) -> &Url {
        self.card_url()
    }

    async fn ask(venue: &Venue, key: &PlaceKey, known: &KnownPlace<Self>) -> Result<CardPin, OpError> {
        let endpoint = &known.endpoint;
        let resolved = endpoint.resolve_headers(&*venue.store, &venue.secrets, &key.keeper()).await?;
        let card = endpoint.peer(&venue.catalog.hosts, resolved).fetch_card().await?;
        let pin = pins::compare(venue, key, endpoint.settings(), &card).await?;
        for difference in pin.differences() {
            tracing::warn!(
                agent = %key.name, key = difference.key,
                "the card of an A2A agent differs from what was approved, and the agent isn't called until it is approved"
            );
        }
        known.note_answer(venue.clock.steady() + A2A_FRESH);
        Ok(pin)
    }

    fn operations(
        venue: &Venue,
        _source: &SourceName,
        key: &PlaceKey,
        known: &KnownPlace<Self>,
        pin: &CardPin,
    ) -> Option<(Vec<RuntimeOperation>, ())> {
        let calls = venue.catalog.remote_calls()?;
        let settings = known.endpoint.settings();
        // A card that a later build has approved may be none that this one reads.
        let card = RemoteCard::read(&pin.card).ok()?;
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
        Some((vec![operation], ()))
    }
}
