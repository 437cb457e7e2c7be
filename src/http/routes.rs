//! Every route, in one list.

use super::problem::Problem;
use super::{Api, agents, assets, catalog, guard, health, jobs, operate, secrets, sse, turns};
use crate::domain::nearest::nearest;
use axum::Router;
use axum::handler::Handler;
use axum::http::{Method, Uri};
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodFilter, MethodRouter, on};

/// One route; the method and the path are kept to be compared with the API's description.
pub(super) struct Route {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    handler: MethodRouter<Api>,
}

fn route<H, T>(method: &'static str, path: &'static str, handler: H) -> Route
where
    H: Handler<T, Api>,
    T: 'static,
{
    let filter = match method {
        "get" => MethodFilter::GET,
        "post" => MethodFilter::POST,
        "put" => MethodFilter::PUT,
        _ => MethodFilter::DELETE,
    };
    Route { method, path, handler: on(filter, handler) }
}

/// The list.
pub(super) fn routes() -> Vec<Route> {
    vec![
        route("get", "/livez", health::livez),
        route("get", "/readyz", health::readyz),
        route("get", "/metrics", health::metrics),
        route("get", "/.well-known/did.json", catalog::did_document),
        route("get", "/api/v1/openapi.json", catalog::openapi),
        route("get", "/api/v1/status", catalog::status),
        route("post", "/api/v1/run", operate::run),
        route("post", "/api/v1/invoke", operate::invoke),
        route("get", "/api/v1/values/{op}", operate::values),
        route("get", "/api/v1/jobs", jobs::list),
        route("get", "/api/v1/jobs/{id}", jobs::get),
        route("post", "/api/v1/jobs/{id}", jobs::message),
        route("put", "/api/v1/jobs/{id}/cancel", jobs::cancel),
        route("put", "/api/v1/jobs/{id}/pause", jobs::pause),
        route("put", "/api/v1/jobs/{id}/resume", jobs::resume),
        route("put", "/api/v1/jobs/{id}/delete", jobs::delete),
        route("get", "/api/v1/jobs/{id}/sse", sse::stream),
        route("get", "/api/v1/agents", agents::list),
        route("get", "/api/v1/agents/{id}", agents::get),
        route("put", "/api/v1/agents/{id}", agents::apply),
        route("post", "/api/v1/agents/{id}/tasks", agents::task),
        route("post", "/api/v1/agents/{id}/messages", agents::message),
        route("post", "/api/v1/agents/{id}/context", turns::context),
        route("get", "/api/v1/agents/{id}/turns", turns::list),
        route("get", "/api/v1/agents/{id}/turns/{session}/{turn}", turns::get),
        route("post", "/api/v1/agents/{id}/turns/{session}/{turn}/replay", turns::replay),
        route("get", "/api/v1/why", turns::why),
        route("get", "/api/v1/operations", catalog::operations),
        route("get", "/api/v1/operations/{*name}", catalog::operation),
        route("get", "/api/v1/adapters/{name}/operations", catalog::adapter),
        route("get", "/api/v1/assets", assets::list),
        route("post", "/api/v1/assets", assets::store),
        route("get", "/api/v1/assets/{*id}", assets::get),
        route("put", "/api/v1/assets/{*id}", assets::put),
        route("get", "/api/v1/secrets", secrets::list),
        route("put", "/api/v1/secrets/{name}", secrets::store),
        route("delete", "/api/v1/secrets/{name}", secrets::delete),
    ]
}

/// What can be done on a route.
pub(super) fn methods(path: &str) -> Vec<String> {
    routes().iter().filter(|route| route.path == path).map(|route| route.method.to_uppercase()).collect()
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
        let methods = ["get", "post", "put", "delete"];
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
