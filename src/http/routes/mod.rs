//! The list of all routes; the router, the guard, the description and the tests are made from it. Those of other
//! protocols and of the console are served, and not described.

mod a2a;
mod agents;
mod builders;
mod console;
mod jobs;
mod mcp;
mod things;
mod venue;

use super::describe::{document, query_names};
use super::route::{BodyRule, Route, RouteAccess, RouteDescription, RouteRules};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use std::sync::LazyLock;

/// Lists all routes of the API.
pub(super) fn routes() -> Vec<Route> {
    [venue::routes(), jobs::routes(), agents::routes(), things::routes()].into_iter().flatten().collect()
}

/// Lists the routes for programs: those of the API and of other protocols.
pub(super) fn program_routes() -> Vec<Route> {
    [routes(), mcp::routes(), a2a::routes()].into_iter().flatten().collect()
}

/// Lists the routes of the console.
pub(super) fn console_routes() -> Vec<Route> {
    console::routes()
}

/// Lists all routes.
pub(super) fn served_routes() -> Vec<Route> {
    [program_routes(), console_routes()].into_iter().flatten().collect()
}

/// Returns the methods of a path.
pub(super) fn methods(path: &str) -> Vec<String> {
    served_routes().iter().filter(|route| route.path == path).map(|route| route.method.to_uppercase()).collect()
}

/// A route without its handler.
struct RouteEntry {
    method: &'static str,
    path: &'static str,
    admits: RouteRules,
}

fn body_rule(method: &str, about: &RouteDescription) -> BodyRule {
    match about.body {
        None if method == "get" => BodyRule::Ignored,
        None => BodyRule::Refused,
        Some((("application/octet-stream", _), _)) => BodyRule::Content,
        Some((_, false)) => BodyRule::Optional,
        Some((_, true)) => BodyRule::Required,
    }
}

fn find_route(method: &str, path: Option<&str>) -> Option<&'static RouteEntry> {
    // Looked up for every request, so it is made once.
    static ROUTE_TABLE: LazyLock<Vec<RouteEntry>> = LazyLock::new(|| {
        let of = |route: Route| {
            let Route { method, path, access, reads, about, .. } = route;
            // The table lives as long as the process.
            let query = query_names(&about).leak();
            RouteEntry { method, path, admits: RouteRules { access, reads, body: body_rule(method, &about), query } }
        };
        served_routes().into_iter().map(of).collect()
    });
    let method = if method == "HEAD" { "GET" } else { method };
    ROUTE_TABLE.iter().find(|route| Some(route.path) == path && route.method.eq_ignore_ascii_case(method))
}

/// Returns the rules of a route; an unknown route needs a token, so that nothing is said about it without one.
pub(super) fn route_rules(method: &str, path: Option<&str>) -> RouteRules {
    let nothing = RouteRules { access: RouteAccess::AnyCaller, reads: false, body: BodyRule::Ignored, query: &[] };
    find_route(method, path).map_or(nothing, |route| route.admits)
}

/// `GET openapi.json`: returns the description of the API.
async fn openapi() -> Response {
    static OPENAPI_TEXT: LazyLock<String> = LazyLock::new(|| document(&routes()).to_string());
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI_TEXT.as_str()).into_response()
}

#[cfg(test)]
mod tests {
    use super::builders::ALL_AGENTS;
    use super::*;

    #[test]
    fn of_other_protocols_only_cards_and_metadata_are_open() {
        let (all, described) = (served_routes(), document(&routes()));
        let is_other = |route: &&Route| described["paths"].get(route.path.replace("{*", "{")).is_none();
        let others: Vec<_> = all.iter().filter(is_other).collect();
        let open: Vec<_> = others.iter().filter(|r| r.access == RouteAccess::Public).map(|r| r.path).collect();
        let metadata = "/.well-known/oauth-protected-resource";
        let metadata_of_mcp = "/.well-known/oauth-protected-resource/mcp";
        let (mcp, card) = ("/.well-known/mcp", "/.well-known/agent-card.json");
        let of_agent = "/a2a/{tenant}/{user}/{agent}/.well-known/agent-card.json";
        let of_console = ["/console.css", "/console.js", "/sign-in", "/sign-in", "/sign-out", "/owner"];
        assert_eq!(open[..6], [metadata, metadata_of_mcp, "/client-metadata.json", mcp, card, of_agent]);
        assert_eq!(open[6..], of_console);
        assert_eq!(others.len(), mcp::routes().len() + a2a::routes().len() + console::routes().len());
        let rules = route_rules("POST", Some("/mcp"));
        assert_eq!((rules.access, rules.body, rules.reads), (RouteAccess::AnyCaller, BodyRule::Required, true));
        assert_eq!(methods("/mcp"), ["POST"]);
        let rules = route_rules("POST", Some("/a2a/{tenant}/{user}/{agent}"));
        assert_eq!((rules.access, rules.body, rules.reads), (RouteAccess::AnyCaller, BodyRule::Optional, true));
        assert!(route_rules("GET", Some("/a2a/{tenant}/{user}/{agent}/tasks/{task}")).reads, "a task may be large");
    }

    #[test]
    fn only_routes_needed_before_a_token_are_open() {
        let open: Vec<_> = routes().iter().filter(|r| r.access == RouteAccess::Public).map(|r| r.path).collect();
        let known = ["/livez", "/readyz", "/.well-known/did.json", "/api/v1/openapi.json", "/api/v1/status"];
        assert_eq!(open, known);
        let list = RouteRules {
            access: RouteAccess::Holder("crud/read", ALL_AGENTS),
            reads: true,
            body: BodyRule::Ignored,
            query: route_rules("GET", Some("/api/v1/agents")).query,
        };
        assert_eq!(route_rules("HEAD", Some("/api/v1/agents")), list);
        let nothing = RouteRules { access: RouteAccess::AnyCaller, reads: false, body: BodyRule::Ignored, query: &[] };
        assert_eq!((route_rules("PATCH", Some("/livez")), route_rules("GET", None)), (nothing, nothing));
        assert_eq!(route_rules("PUT", Some("/api/v1/jobs/{id}/cancel")).body, BodyRule::Optional);
        assert_eq!(route_rules("POST", Some("/api/v1/jobs/{id}")).body, BodyRule::Required);
        let content = route_rules("PUT", Some("/api/v1/assets/{*id}")).body;
        assert_eq!((content, content.limit(7), BodyRule::Required.limit(7)), (BodyRule::Content, 8 << 20, 7));
    }
}
