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
    let routes: Vec<_> = served_routes().iter().map(|route| (route.method, route.path)).collect();
    let hint = nearest_route(method.as_str(), uri.path(), &routes)
        .map(|(method, path)| format!(", did you mean `{} {path}`", method.to_uppercase()))
        .unwrap_or_default();
    let path = quote_foreign(uri.path());
    Problem::not_found(format!("no route `{method} {path}`{hint}; `GET /api/v1/openapi.json` describes all"))
}

/// Returns the route, as method and path, whose path is most like a given one; of its methods the given one, if the
/// path has it.
fn nearest_route<'r>(method: &str, given: &str, routes: &[(&'r str, &'r str)]) -> Option<(&'r str, &'r str)> {
    let like = routes.iter().rev().filter_map(|(known, path)| {
        Some(((equal_segments(path, given)?, known.eq_ignore_ascii_case(method)), (*known, *path)))
    });
    // Of equal ones the last is taken, which is the first route.
    like.max_by_key(|(likeness, _)| *likeness).map(|(_, route)| route)
}

/// Returns how many segments a given path has in common with a route's, whose parameters stand for any segment; `None`
/// if a slip of typing can't explain the difference.
fn equal_segments(path: &str, given: &str) -> Option<usize> {
    let (path, given) = (path.split('/'), given.trim_end_matches('/').split('/'));
    if path.clone().count() != given.clone().count() {
        return None;
    }
    let mut equal = 0;
    for (segment, given) in path.zip(given).filter(|(segment, _)| !segment.starts_with('{')) {
        if segment == given {
            equal += 1;
        } else {
            nearest(given, &[segment])?;
        }
    }
    Some(equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_route_is_compared_with_those_of_its_form() {
        let routes = [
            ("get", "/api/v1/agents"),
            ("get", "/api/v1/agents/{id}"),
            ("get", "/api/v1/agents/{id}/timers"),
            ("post", "/api/v1/agents/{id}/timers"),
            ("post", "/api/v1/agents/{id}/tasks"),
            ("get", "/api/v1/jobs"),
        ];
        for (method, given, expected) in [
            ("POST", "/api/v1/agents/x/task", Some(("post", "/api/v1/agents/{id}/tasks"))),
            ("POST", "/api/v1/agents/x/tasks/", Some(("post", "/api/v1/agents/{id}/tasks"))),
            ("POST", "/api/v1/agents/x/timer", Some(("post", "/api/v1/agents/{id}/timers"))),
            ("PUT", "/api/v1/agents/x/timer", Some(("get", "/api/v1/agents/{id}/timers"))),
            ("GET", "/api/v1/agent/x", Some(("get", "/api/v1/agents/{id}"))),
            ("GET", "/api/v1/job", Some(("get", "/api/v1/jobs"))),
            ("GET", "/api/v1/agents/x/qqq", None),
            ("GET", "/api/v1/agents/x/tasks/y", None),
            ("GET", "/api/v1/qqq/a-long-name-that-every-route-would-have", None),
        ] {
            assert_eq!(nearest_route(method, given, &routes), expected, "{method} {given}");
        }
    }
}
