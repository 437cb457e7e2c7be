//! Cards of agents: one for each published agent, at its own address.
//!
//! A card is of one agent and not of the venue: the protocol has no field by which a client says which of several
//! skills it means, and clients look for the card below the address that they are given.

use super::caller::{A2aCaller, AgentPlace, PlaceNames};
use super::error::{A2aError, JSON};
use super::media::answer;
use crate::domain::agent::AgentRecord;
use crate::domain::agent::a2a::{A2aSettings, A2aSkill};
use crate::domain::ids::sha256_hex;
use crate::http::Api;
use crate::venue::a2a::input::{INPUT_TYPES, OUTPUT_TYPES};
use crate::venue::a2a::{VERSION, push};
use crate::view::a2a::{
    A2aCapabilities, A2aCard, A2aExtension, A2aHttpAuth, A2aInterface, A2aScopes, A2aSecurityRequirement,
    A2aSecurityScheme, A2aSkillView,
};
use crate::view::to_json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Map;
use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

/// Time for which a card may be used without asking again: a changed configuration is known after it.
const CACHE: &str = "public, max-age=60";

/// Name of the security scheme.
const SCHEME: &str = "bearer";

/// Bindings of every agent, at one address.
const BINDINGS: [&str; 2] = ["JSONRPC", "HTTP+JSON"];

/// Extension with facts about the agent, for callers with a token.
const FACTS: &str = "urn:trellis:a2a:agent:1";

/// Description of an agent that has none.
const UNDESCRIBED: &str = "An agent of this venue.";

/// `GET …/.well-known/agent-card.json`: returns the card of a published agent, to everybody.
pub(in crate::http) async fn public(
    State(api): State<Api>,
    Path(names): Path<PlaceNames>,
    headers: HeaderMap,
) -> Response {
    match public_card(&api, &names, &headers).await {
        Ok(response) => response,
        Err(error) => error.rest_response(JSON),
    }
}

async fn public_card(api: &Api, names: &PlaceNames, headers: &HeaderMap) -> Result<Response, A2aError> {
    let place = AgentPlace::parse(names)?;
    let agent = place.find_agent(api).await?;
    let card = make_card(api, &place, &agent);
    let tag = format!("\"{}\"", &sha256_hex(to_json(&card).to_string().as_bytes())[..32]);
    let is_known = headers.get_all(header::IF_NONE_MATCH).iter().any(|given| {
        let given = given.to_str().unwrap_or_default();
        given.split(',').any(|known| ["*", tag.as_str()].contains(&known.trim().trim_start_matches("W/")))
    });
    let mut response = if is_known { StatusCode::NOT_MODIFIED.into_response() } else { answer(JSON, &card) };
    let changed = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(agent.updated.0));
    let values = [(header::ETAG, tag), (header::LAST_MODIFIED, changed), (header::CACHE_CONTROL, CACHE.to_owned())];
    for (name, value) in values {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
    Ok(response)
}

/// Returns the card for a caller: with the schema of the agent's output and the version of its configuration.
pub(super) fn make_extended_card(api: &Api, place: &AgentPlace, caller: &A2aCaller) -> A2aCard {
    let mut card = make_card(api, place, &caller.agent);
    let config = &caller.agent.config;
    let mut params = Map::from_iter([("configVersion".to_owned(), caller.agent.config_version.into())]);
    if let Some(output) = &config.outputs.complete {
        params.insert("outputSchema".to_owned(), output.schema.clone());
    }
    card.capabilities.extensions.push(A2aExtension {
        uri: FACTS.to_owned(),
        description: "Facts about the agent, for callers with a token.".to_owned(),
        required: false,
        params: Some(params),
    });
    card
}

fn make_card(api: &Api, place: &AgentPlace, agent: &AgentRecord) -> A2aCard {
    let settings = agent.config.a2a.clone().unwrap_or_default();
    let description = agent.config.description.clone().filter(|text| !text.is_empty());
    let description = description.unwrap_or_else(|| UNDESCRIBED.to_owned());
    let name = settings.name.clone().unwrap_or_else(|| agent.id.to_string());
    let url = place.url(api);
    let interface = |binding: &str| A2aInterface {
        url: url.clone(),
        protocol_binding: binding.to_owned(),
        protocol_version: VERSION.to_owned(),
    };
    let needs_token = api.options.auth.is_required();
    A2aCard {
        skills: skills(&settings, &name, &description),
        name,
        description,
        supported_interfaces: BINDINGS.map(interface).to_vec(),
        version: agent.config_version.to_string(),
        capabilities: A2aCapabilities {
            streaming: true,
            push_notifications: push::is_supported(&api.venue),
            extended_agent_card: true,
            extensions: Vec::new(),
        },
        security_schemes: needs_token.then(|| BTreeMap::from([(SCHEME.to_owned(), bearer())])),
        security_requirements: needs_token.then(|| {
            let schemes = BTreeMap::from([(SCHEME.to_owned(), A2aScopes::default())]);
            vec![A2aSecurityRequirement { schemes }]
        }),
        default_input_modes: INPUT_TYPES.map(str::to_owned).to_vec(),
        default_output_modes: OUTPUT_TYPES.map(str::to_owned).to_vec(),
    }
}

fn bearer() -> A2aSecurityScheme {
    let scheme = A2aHttpAuth { scheme: "Bearer".to_owned(), bearer_format: "JWT".to_owned() };
    A2aSecurityScheme { http_auth_security_scheme: scheme }
}

/// Returns the skills of a card: those of the settings, or one that is the agent itself. A skill has at least one tag.
fn skills(settings: &A2aSettings, name: &str, description: &str) -> Vec<A2aSkillView> {
    let own = A2aSkill {
        id: name.to_owned(),
        name: None,
        description: description.to_owned(),
        tags: Vec::new(),
        examples: Vec::new(),
    };
    let all = if settings.skills.is_empty() { vec![own] } else { settings.skills.clone() };
    let view = |skill: A2aSkill| A2aSkillView {
        name: skill.name.unwrap_or_else(|| skill.id.clone()),
        tags: if skill.tags.is_empty() { vec![skill.id.clone()] } else { skill.tags },
        id: skill.id,
        description: skill.description,
        examples: skill.examples,
    };
    all.into_iter().map(view).collect()
}
