//! Every route, in one list.

use super::problem::Problem;
use super::{
    Api, agents, approvals, assets, catalog, guard, health, jobs, life, operate, quota, secrets, spend, sse, timers,
    turns,
};
use crate::domain::lattice::Namespace;
use crate::domain::nearest::nearest;
use axum::Router;
use axum::handler::Handler;
use axum::http::{Method, Uri};
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodFilter, MethodRouter, on};
use std::sync::LazyLock;

/// One route; the method and the path are kept to be compared with the API's description.
pub(super) struct Route {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// Who may use it.
    access: Access,
    /// It reads what its caller names, large or small.
    reads: bool,
    handler: MethodRouter<Api>,
}

/// Who may use a route, where callers are recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Everybody: what one must know before one has a token, and what supervisors ask.
    Open,
    /// Whoever has a token; the operation that it runs asks for more.
    Caller,
    /// Whoever holds an ability on a resource.
    Holder(&'static str, On),
    /// Operators.
    Operator,
}

/// What an ability is asked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum On {
    /// All of a namespace.
    All(Namespace),
    /// What the `{id}` of the route names in it.
    Id(Namespace),
}

const AGENTS: On = On::All(Namespace::Agents);
const AGENT: On = On::Id(Namespace::Agents);
const JOBS: On = On::All(Namespace::Jobs);
const JOB: On = On::Id(Namespace::Jobs);
const ASSETS: On = On::All(Namespace::Assets);

const READS_AGENT: Access = Access::Holder("crud/read", AGENT);

fn route<H, T>(method: &'static str, path: &'static str, access: Access, handler: H) -> Route
where
    H: Handler<T, Api>,
    T: 'static,
{
    let filter = match method {
        "get" => MethodFilter::GET,
        "post" => MethodFilter::POST,
        "put" => MethodFilter::PUT,
        "patch" => MethodFilter::PATCH,
        _ => MethodFilter::DELETE,
    };
    Route { method, path, access, reads: false, handler: on(filter, handler) }
}

fn reads<H, T>(method: &'static str, path: &'static str, access: Access, handler: H) -> Route
where
    H: Handler<T, Api>,
    T: 'static,
{
    Route { reads: true, ..route(method, path, access, handler) }
}

/// The list.
pub(super) fn routes() -> Vec<Route> {
    vec![
        route("get", "/livez", Access::Open, health::livez),
        route("get", "/readyz", Access::Open, health::readyz),
        route("get", "/metrics", Access::Operator, health::metrics),
        route("get", "/.well-known/did.json", Access::Open, catalog::did_document),
        route("get", "/api/v1/openapi.json", Access::Open, catalog::openapi),
        route("get", "/api/v1/status", Access::Open, catalog::status),
        reads("post", "/api/v1/run", Access::Caller, operate::run),
        reads("post", "/api/v1/invoke", Access::Caller, operate::invoke),
        reads("get", "/api/v1/values/{op}", Access::Caller, operate::values),
        reads("get", "/api/v1/jobs", Access::Caller, jobs::all),
        reads("post", "/api/v1/jobs", Access::Holder("crud/read", JOBS), jobs::bulk),
        route("get", "/api/v1/jobs/{id}", Access::Caller, jobs::get),
        route("post", "/api/v1/jobs/{id}", Access::Holder("job/message", JOB), jobs::message),
        route("put", "/api/v1/jobs/{id}/cancel", Access::Holder("job/cancel", JOB), jobs::cancel),
        route("put", "/api/v1/jobs/{id}/pause", Access::Holder("job/pause", JOB), jobs::pause),
        route("put", "/api/v1/jobs/{id}/resume", Access::Holder("job/resume", JOB), jobs::resume),
        route("put", "/api/v1/jobs/{id}/redrive", Access::Holder("job/redrive", JOB), jobs::redrive),
        route("put", "/api/v1/jobs/{id}/delete", Access::Holder("job/delete", JOB), jobs::delete),
        route("get", "/api/v1/jobs/{id}/sse", Access::Caller, sse::stream),
        route("get", "/api/v1/agent-schema", Access::Caller, agents::described),
        reads("get", "/api/v1/agents", Access::Holder("crud/read", AGENTS), agents::list),
        reads("get", "/api/v1/agents/{id}", READS_AGENT, agents::get),
        route("put", "/api/v1/agents/{id}", Access::Holder("agent/create", AGENT), agents::apply),
        route("patch", "/api/v1/agents/{id}", Access::Caller, life::update),
        route("delete", "/api/v1/agents/{id}", Access::Caller, life::delete),
        route("put", "/api/v1/agents/{id}/suspend", Access::Caller, life::suspend),
        route("put", "/api/v1/agents/{id}/resume", Access::Caller, life::resume),
        route("post", "/api/v1/agents/{id}/fork", Access::Caller, life::fork),
        reads("get", "/api/v1/agents/{id}/sessions", READS_AGENT, life::sessions),
        reads("get", "/api/v1/agents/{id}/sessions/{session}", READS_AGENT, life::session),
        route("post", "/api/v1/agents/{id}/sessions/{session}/fork", Access::Caller, life::fork_session),
        route("post", "/api/v1/agents/{id}/tasks", Access::Holder("agent/request", AGENT), agents::task),
        route("post", "/api/v1/agents/{id}/messages", Access::Holder("agent/message", AGENT), agents::message),
        route("post", "/api/v1/agents/{id}/timers", Access::Holder("agent/trigger", AGENT), timers::set),
        reads("post", "/api/v1/agents/{id}/context", READS_AGENT, turns::context),
        reads("get", "/api/v1/agents/{id}/turns", READS_AGENT, turns::list),
        reads("get", "/api/v1/agents/{id}/turns/{session}/{turn}", READS_AGENT, turns::get),
        reads("post", "/api/v1/agents/{id}/turns/{session}/{turn}/replay", READS_AGENT, turns::replay),
        reads("get", "/api/v1/spend", Access::Caller, spend::today),
        route("get", "/api/v1/quota", Access::Caller, quota::show),
        route("put", "/api/v1/quota", Access::Caller, quota::set),
        reads("get", "/api/v1/why", Access::Holder("crud/read", AGENTS), turns::why),
        reads("get", "/api/v1/approvals", Access::Caller, approvals::list),
        route("post", "/api/v1/approvals/{id}", Access::Caller, approvals::answer),
        route("get", "/api/v1/timers", Access::Caller, timers::list),
        route("delete", "/api/v1/timers/{id}", Access::Caller, timers::cancel),
        route("get", "/api/v1/operations", Access::Caller, catalog::operations),
        route("get", "/api/v1/operations/{*name}", Access::Caller, catalog::operation),
        route("get", "/api/v1/adapters/{name}/operations", Access::Caller, catalog::adapter),
        route("get", "/api/v1/assets", Access::Holder("crud/read", ASSETS), assets::list),
        route("post", "/api/v1/assets", Access::Holder("asset/store", ASSETS), assets::store),
        reads("get", "/api/v1/assets/{*id}", Access::Holder("crud/read", ASSETS), assets::get),
        route("put", "/api/v1/assets/{*id}", Access::Holder("asset/store", ASSETS), assets::put),
        route("get", "/api/v1/secrets", Access::Caller, secrets::list),
        route("put", "/api/v1/secrets/{name}", Access::Caller, secrets::store),
        route("delete", "/api/v1/secrets/{name}", Access::Caller, secrets::delete),
    ]
}

/// What can be done on a route.
pub(super) fn methods(path: &str) -> Vec<String> {
    routes().iter().filter(|route| route.path == path).map(|route| route.method.to_uppercase()).collect()
}

/// Who may use a route, and whether it reads what its caller names: nobody without a token who asks for what isn't there.
pub(super) fn access(method: &str, path: Option<&str>) -> (Access, bool) {
    // Asked for every request: without the handlers, and made once.
    static TABLE: LazyLock<Vec<(&'static str, &'static str, Access, bool)>> = LazyLock::new(|| {
        routes().into_iter().map(|Route { method, path, access, reads, .. }| (path, method, access, reads)).collect()
    });
    let method = if method == "HEAD" { "GET" } else { method };
    let mut here = TABLE.iter().filter(|(known, ..)| Some(*known) == path);
    let found = here.find(|(_, known, ..)| known.eq_ignore_ascii_case(method));
    found.map_or((Access::Caller, false), |(.., access, reads)| (*access, *reads))
}

/// All of them behind the guard.
pub(super) fn router(api: Api) -> Router {
    let all = routes().into_iter().fold(Router::new(), |router, route| router.route(route.path, route.handler));
    all.fallback(nowhere).layer(from_fn_with_state(api.clone(), guard::guard)).with_state(api)
}

async fn nowhere(method: Method, uri: Uri) -> Problem {
    let routes = routes();
    let known: Vec<_> = routes.iter().map(|route| route.path).collect();
    let meant = nearest(uri.path(), &known).and_then(|path| routes.iter().find(|route| route.path == path));
    let hint = meant.map(|r| format!(", did you mean `{} {}`", r.method.to_uppercase(), r.path)).unwrap_or_default();
    Problem::not_found(format!("no route `{method} {}`{hint}; `GET /api/v1/openapi.json` describes all", uri.path()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    #[test]
    fn the_description_has_every_route_and_no_other() {
        let document: Value = serde_json::from_str(catalog::OPENAPI).unwrap();
        let methods = ["get", "post", "put", "patch", "delete"];
        let described: BTreeSet<String> = document["paths"]
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(path, item)| {
                let here = item.as_object().unwrap().keys().filter(|key| methods.contains(&key.as_str()));
                here.map(move |method| format!("{method} {path}"))
            })
            .collect();
        let served: BTreeSet<String> =
            routes().iter().map(|route| format!("{} {}", route.method, route.path.replace("{*", "{"))).collect();
        assert_eq!(described, served);
    }

    #[test]
    fn only_what_must_be_known_before_there_is_a_token_is_open() {
        let open: Vec<_> = routes().iter().filter(|r| r.access == Access::Open).map(|r| r.path).collect();
        let known = ["/livez", "/readyz", "/.well-known/did.json", "/api/v1/openapi.json", "/api/v1/status"];
        assert_eq!(open, known);
        assert_eq!(access("HEAD", Some("/api/v1/agents")), (Access::Holder("crud/read", AGENTS), true));
        assert_eq!(access("PATCH", Some("/livez")), (Access::Caller, false));
        assert_eq!(access("GET", None), (Access::Caller, false));
    }

    #[test]
    fn the_description_names_its_parameters_answers_and_schemas() {
        let document: Value = serde_json::from_str(catalog::OPENAPI).unwrap();
        let mut text = catalog::OPENAPI;
        while let Some((_, rest)) = text.split_once("\"#/") {
            let (pointer, rest) = rest.split_once('"').unwrap();
            assert!(document.pointer(&format!("/{pointer}")).is_some(), "dangling `#/{pointer}`");
            text = rest;
        }
        for (path, item) in document["paths"].as_object().unwrap() {
            let shared = item["parameters"].as_array().cloned().unwrap_or_default();
            for name in path.split('{').skip(1).map(|part| part.split('}').next().unwrap()) {
                assert!(shared.iter().any(|p| p["name"] == name && p["in"] == "path"), "{path}: `{name}`");
            }
            for (method, operation) in item.as_object().unwrap().iter().filter(|(key, _)| *key != "parameters") {
                assert!(operation["summary"].is_string(), "{method} {path}: summary");
                assert!(
                    operation["responses"].as_object().is_some_and(|r| !r.is_empty()),
                    "{method} {path}: responses"
                );
            }
        }
    }
}
