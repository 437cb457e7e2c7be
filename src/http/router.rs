//! The router of all routes.

use super::problem::Problem;
use super::route::Route;
use super::routes::{console_routes, program_routes, served_routes};
use super::{Api, a2a, console, guard, mcp};
use crate::domain::nearest::nearest;
use crate::domain::visible::quote_foreign;
use axum::Router;
use axum::http::{HeaderValue, Method, Uri, header};
use axum::middleware::{from_fn, from_fn_with_state, map_response};
use axum::response::Response;

/// Makes the router of all routes, behind the guard.
pub(super) fn router(api: Api) -> Router {
    let programs = with_routes(program_routes())
        .fallback(unknown_route)
        .layer(from_fn_with_state(api.clone(), guard::guard))
        .layer(from_fn_with_state(api.clone(), mcp::add_challenge))
        .layer(from_fn(a2a::adapt_errors));
    let people = with_routes(console_routes())
        .layer(from_fn_with_state(api.clone(), guard::guard))
        .layer(from_fn_with_state(api.clone(), console::adapt));
    programs.merge(people).layer(map_response(forbid_sniffing)).with_state(api)
}

fn with_routes(routes: Vec<Route>) -> Router<Api> {
    routes.into_iter().fold(Router::new(), |router, route| router.route(route.path, route.handler))
}

/// Forbids browsers to guess another type than the answer's.
async fn forbid_sniffing(mut response: Response) -> Response {
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

async fn unknown_route(method: Method, uri: Uri) -> Problem {
    let routes = served_routes();
    let known: Vec<_> = routes.iter().map(|route| route.path).collect();
    let meant = nearest(uri.path(), &known).and_then(|path| routes.iter().find(|route| route.path == path));
    let hint = meant.map(|r| format!(", did you mean `{} {}`", r.method.to_uppercase(), r.path)).unwrap_or_default();
    let path = quote_foreign(uri.path());
    Problem::not_found(format!("no route `{method} {path}`{hint}; `GET /api/v1/openapi.json` describes all"))
}
