//! The list of all routes; the router, the guard, the description and the tests are made from it.

mod agents;
mod jobs;
mod things;
mod venue;

use super::describe::{document, query_names};
use super::problem::Problem;
use super::route::{
    AccessTarget, ArgumentNames, BodyRule, Route, RouteAccess, RouteDescription, RouteRules, RouteSchema,
};
use super::runs::{self, RouteOperation};
use super::{Api, guard};
use crate::domain::lattice::Namespace;
use crate::domain::nearest::nearest;
use crate::domain::visible::quote_foreign;
use axum::Router;
use axum::handler::Handler;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use std::sync::LazyLock;

const ALL_AGENTS: AccessTarget = AccessTarget::All(Namespace::Agents);
const AGENT_ID: AccessTarget = AccessTarget::Id(Namespace::Agents);
const ALL_JOBS: AccessTarget = AccessTarget::All(Namespace::Jobs);
const JOB_ID: AccessTarget = AccessTarget::Id(Namespace::Jobs);
const ALL_ASSETS: AccessTarget = AccessTarget::All(Namespace::Assets);

const READS_AGENT: RouteAccess = RouteAccess::Holder("crud/read", AGENT_ID);

fn route<H, T>(method: &'static str, path: &'static str, access: RouteAccess, handler: H) -> Route
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
    Route { method, path, access, reads: false, handler: on(filter, handler), about: RouteDescription::default() }
}

/// Makes a route that runs an operation; body or query give the arguments that the path doesn't.
fn operation_route(
    method: &'static str,
    path: &'static str,
    access: RouteAccess,
    operation: &'static str,
    given: ArgumentNames,
) -> Route {
    route_to_operation(method, path, access, RouteOperation { operation, given, status: StatusCode::OK })
}

/// Makes a route that runs an operation and answers 201.
fn creation_route(
    method: &'static str,
    path: &'static str,
    access: RouteAccess,
    operation: &'static str,
    given: ArgumentNames,
) -> Route {
    route_to_operation(method, path, access, RouteOperation { operation, given, status: StatusCode::CREATED })
}

fn route_to_operation(method: &'static str, path: &'static str, access: RouteAccess, what: RouteOperation) -> Route {
    let handler = move |api, who, path, asked, body| runs::run(api, who, path, asked, body, what);
    let made = route(method, path, access, handler);
    match method {
        "get" | "delete" => made.with_query(RouteSchema::Arguments(what.operation, what.given, &[])),
        _ => made,
    }
}

/// Lists all routes of the API.
pub(super) fn routes() -> Vec<Route> {
    [venue::routes(), jobs::routes(), agents::routes(), things::routes()].into_iter().flatten().collect()
}

/// Returns the methods of a path.
pub(super) fn methods(path: &str) -> Vec<String> {
    routes().iter().filter(|route| route.path == path).map(|route| route.method.to_uppercase()).collect()
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
        routes().into_iter().map(of).collect()
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

/// Makes the router of all routes, behind the guard.
pub(super) fn router(api: Api) -> Router {
    let all = routes().into_iter().fold(Router::new(), |router, route| router.route(route.path, route.handler));
    all.fallback(unknown_route)
        .layer(from_fn_with_state(api.clone(), guard::guard))
        .layer(map_response(forbid_sniffing))
        .with_state(api)
}

/// Forbids browsers to guess another type than the answer's.
async fn forbid_sniffing(mut response: Response) -> Response {
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

async fn unknown_route(method: Method, uri: Uri) -> Problem {
    let routes = routes();
    let known: Vec<_> = routes.iter().map(|route| route.path).collect();
    let meant = nearest(uri.path(), &known).and_then(|path| routes.iter().find(|route| route.path == path));
    let hint = meant.map(|r| format!(", did you mean `{} {}`", r.method.to_uppercase(), r.path)).unwrap_or_default();
    let path = quote_foreign(uri.path());
    Problem::not_found(format!("no route `{method} {path}`{hint}; `GET /api/v1/openapi.json` describes all"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
