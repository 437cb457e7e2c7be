//! Links of the API description: from an answer to the routes that accept its ids.

use super::path_parameters;
use crate::http::route::{MediaSchema, Route, RouteSchema};
use serde_json::{Map, Value, json};

/// Path parameters that an answer can fill, with JSON pointers into the answer.
type LinkTargets = &'static [(&'static str, &'static str)];

const JOB: LinkTargets = &[("jobs/{id}", "/id"), ("agents/{id}", "/agent"), ("{session}", "/session")];
const RECEIPT: LinkTargets = &[("jobs/{id}", "/job"), ("agents/{id}", "/agent"), ("{session}", "/session")];
const AGENT: LinkTargets = &[("agents/{id}", "/agentId")];
const AGENTS: LinkTargets = &[("agents/{id}", "/agents/0/agentId")];
const SESSION: LinkTargets = &[("{session}", "/sessionId")];
const SESSIONS: LinkTargets = &[("{session}", "/sessions/0/sessionId")];
const TIMER: LinkTargets = &[("timers/{id}", "/timer"), ("agents/{id}", "/agentId")];
const TIMERS: LinkTargets = &[("timers/{id}", "/items/0/timer"), ("agents/{id}", "/items/0/agentId")];
const APPROVALS: LinkTargets = &[("approvals/{id}", "/items/0/id")];
const OUTCOMES: LinkTargets = &[("outcomes/{id}", "/items/0/id")];
const TURNS: LinkTargets = &[("{session}", "/turns/0/session"), ("{turn}", "/turns/0/turn")];
const SECRET: LinkTargets = &[("secrets/{name}", "/name")];
const SECRETS: LinkTargets = &[("secrets/{name}", "/items/0")];
const HASH: LinkTargets = &[("assets/{id}", "")];
const OPERATIONS: LinkTargets = &[("operations/{name}", "/0/name")];

/// Returns what the answers of a route can fill. Lists of names or maps, as the query says, have no links.
fn link_targets(id: &str) -> LinkTargets {
    match id {
        "invoke" | "getJob" => JOB,
        "submitTask" | "sendMessage" => RECEIPT,
        "applyAgent" | "updateAgent" | "forkAgent" => AGENT,
        "listAgents" => AGENTS,
        "forkSession" => SESSION,
        "listSessions" => SESSIONS,
        "setTimer" => TIMER,
        "listTimers" => TIMERS,
        "listApprovals" => APPROVALS,
        "listOutcomes" => OUTCOMES,
        "listTurns" => TURNS,
        "storeSecret" => SECRET,
        "listSecrets" => SECRETS,
        "storeAsset" => HASH,
        "listOperations" => OPERATIONS,
        _ => &[],
    }
}

/// Returns expressions that fill the parameters of `to` from an exchange with `from`; `None` if some are missing or
/// none is in the answer.
fn parameters(from: &Route, to: &Route) -> Option<Map<String, Value>> {
    // The rest of this path follows a hash, and the hash is that of its body.
    if to.about.id == "putAsset" {
        return None;
    }
    let named = link_targets(from.about.id);
    let known = path_parameters::list(from.path);
    let mut is_new = false;
    let mut found = Map::new();
    for (before, name) in path_parameters::list(to.path) {
        let (full, short) = (format!("{before}/{{{name}}}"), format!("{{{name}}}"));
        let said = named.iter().find(|(kind, _)| *kind == full || *kind == short);
        let value = match said {
            Some((_, "")) => "$response.body".to_owned(),
            Some((_, pointer)) => format!("$response.body#{pointer}"),
            None if known.contains(&(before, name)) => format!("$request.path.{name}"),
            None => return None,
        };
        is_new |= said.is_some();
        found.insert(name.to_owned(), value.into());
    }
    is_new.then_some(found)
}

fn name(from: &Route, to: &Route) -> String {
    format!("{}-{}", from.about.id, to.about.id)
}

/// Returns references to the links of an answer.
pub(super) fn from(route: &Route, content: &[MediaSchema], all: &[Route]) -> Map<String, Value> {
    if !content.iter().any(|(_, shape)| !matches!(shape, RouteSchema::Any)) {
        return Map::new();
    }
    let led = all.iter().filter(|to| parameters(route, to).is_some());
    led.map(|to| (to.about.id.to_owned(), json!({"$ref": format!("#/components/links/{}", name(route, to))}))).collect()
}

/// Returns all links by name.
pub(super) fn list_links(routes: &[Route]) -> Map<String, Value> {
    let pairs = routes.iter().flat_map(|from| routes.iter().map(move |to| (from, to)));
    pairs
        .filter_map(|(from, to)| {
            let link = json!({"operationId": to.about.id, "parameters": parameters(from, to)?});
            Some((name(from, to), link))
        })
        .collect()
}
