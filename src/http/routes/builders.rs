//! How the routes of the list are made.

use crate::domain::lattice::Namespace;
use crate::http::Api;
use crate::http::route::{AccessTarget, ArgumentNames, Route, RouteAccess, RouteDescription, RouteSchema};
use crate::http::runs::{self, RouteOperation};
use axum::handler::Handler;
use axum::http::StatusCode;
use axum::routing::{MethodFilter, on};

pub(in crate::http) const ALL_AGENTS: AccessTarget = AccessTarget::All(Namespace::Agents);
pub(in crate::http) const AGENT_ID: AccessTarget = AccessTarget::Id(Namespace::Agents);
pub(in crate::http) const ALL_JOBS: AccessTarget = AccessTarget::All(Namespace::Jobs);
pub(in crate::http) const JOB_ID: AccessTarget = AccessTarget::Id(Namespace::Jobs);
pub(in crate::http) const ALL_ASSETS: AccessTarget = AccessTarget::All(Namespace::Assets);

pub(in crate::http) const READS_AGENT: RouteAccess = RouteAccess::Holder("crud/read", AGENT_ID);

/// Makes a route with its handler.
pub(in crate::http) fn route<H, T>(method: &'static str, path: &'static str, access: RouteAccess, handler: H) -> Route
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
pub(in crate::http) fn operation_route(
    method: &'static str,
    path: &'static str,
    access: RouteAccess,
    operation: &'static str,
    given: ArgumentNames,
) -> Route {
    route_to_operation(method, path, access, RouteOperation { operation, given, status: StatusCode::OK })
}

/// Makes a `POST` route that runs an operation and answers 201.
pub(in crate::http) fn creation_route(
    path: &'static str,
    access: RouteAccess,
    operation: &'static str,
    given: ArgumentNames,
) -> Route {
    route_to_operation("post", path, access, RouteOperation { operation, given, status: StatusCode::CREATED })
}

fn route_to_operation(method: &'static str, path: &'static str, access: RouteAccess, what: RouteOperation) -> Route {
    let handler = move |api, who, path, asked, body| runs::run(api, who, path, asked, body, what);
    let made = route(method, path, access, handler);
    match method {
        "get" | "delete" => made.with_query(RouteSchema::Arguments(what.operation, what.given, &[])),
        _ => made,
    }
}
