//! Links from what an answer names to what can be done with it.

use crate::http::route::{Content, Route, Shape};
use serde_json::{Map, Value, json};

/// What answers name: the parameters of paths that they fill, by the kind of path, and where they say it.
type Named = &'static [(&'static str, &'static str)];

const JOB: Named = &[("jobs/{id}", "/id"), ("agents/{id}", "/agent"), ("{session}", "/session")];
const RECEIPT: Named = &[("jobs/{id}", "/job"), ("agents/{id}", "/agent"), ("{session}", "/session")];
const AGENT: Named = &[("agents/{id}", "/agentId")];
const AGENTS: Named = &[("agents/{id}", "/agents/0/agentId")];
const SESSION: Named = &[("{session}", "/sessionId")];
const SESSIONS: Named = &[("{session}", "/sessions/0/session")];
const TIMER: Named = &[("timers/{id}", "/timer"), ("agents/{id}", "/agentId")];
const TIMERS: Named = &[("timers/{id}", "/items/0/timer"), ("agents/{id}", "/items/0/agentId")];
const APPROVALS: Named = &[("approvals/{id}", "/items/0/id")];
const OUTCOMES: Named = &[("outcomes/{id}", "/items/0/id")];
const TURNS: Named = &[("{session}", "/turns/0/session"), ("{turn}", "/turns/0/turn")];
const SECRET: Named = &[("secrets/{name}", "/name")];
const SECRETS: Named = &[("secrets/{name}", "/items/0")];
const HASH: Named = &[("assets/{id}", "")];
const OPERATIONS: Named = &[("operations/{name}", "/0/name")];

/// What the answers of a route name. Lists whose items are names or maps, as the query says, have no links.
fn named(id: &str) -> Named {
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

/// The parameters of a path with what they are of: `agents/{id}`, `{session}`.
fn wanted(path: &str) -> Vec<(&str, &str)> {
    let mut before = "";
    let mut found = Vec::new();
    for segment in path.split('/') {
        if segment.starts_with('{') {
            found.push((before, segment));
        } else {
            before = segment;
        }
    }
    found
}

/// Where the parameters of `to` are found in an exchange with `from`; `None`: not all are, or none in the answer.
fn parameters(from: &Route, to: &Route) -> Option<Map<String, Value>> {
    // Its path goes on behind a hash, and its body is what the hash is of.
    if to.about.id == "putAsset" {
        return None;
    }
    let named = named(from.about.id);
    let known = wanted(from.path);
    let mut is_new = false;
    let mut found = Map::new();
    for (before, segment) in wanted(to.path) {
        let name = segment.trim_matches(['{', '}', '*']);
        let full = format!("{before}/{{{name}}}");
        let said = named.iter().find(|(kind, _)| *kind == full || *kind == segment);
        let value = match said {
            Some((_, "")) => "$response.body".to_owned(),
            Some((_, pointer)) => format!("$response.body#{pointer}"),
            None if known.contains(&(before, segment)) => format!("$request.path.{name}"),
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

/// The links of an answer, each by reference.
pub(super) fn from(route: &Route, content: &[Content], all: &[Route]) -> Map<String, Value> {
    if !content.iter().any(|(_, shape)| !matches!(shape, Shape::Any)) {
        return Map::new();
    }
    let led = all.iter().filter(|to| parameters(route, to).is_some());
    led.map(|to| (to.about.id.to_owned(), json!({"$ref": format!("#/components/links/{}", name(route, to))}))).collect()
}

/// Every link by its name.
pub(super) fn all(routes: &[Route]) -> Map<String, Value> {
    let pairs = routes.iter().flat_map(|from| routes.iter().map(move |to| (from, to)));
    pairs
        .filter_map(|(from, to)| {
            let link = json!({"operationId": to.about.id, "parameters": parameters(from, to)?});
            Some((name(from, to), link))
        })
        .collect()
}
