//! The guard around every request: authentication, limits of time and memory, and one form of errors.

use super::Api;
use super::body::{self, BodyError};
use super::connection::ConnectionHandle;
use super::connection_limits::{Requester, ShareExceeded};
use super::health;
use super::holding_body::HoldingBody;
use super::load::{MemoryCost, Payer};
use super::origin::check_origin;
use super::problem::Problem;
use super::route::{AccessTarget, BodyRule, RouteAccess};
use super::routes::{self, methods};
use crate::domain::authority::ResourcePath;
use crate::domain::ids::Owner;
use crate::domain::limits::HTTP_ROOM_TIME;
use crate::domain::share::Sharers;
use crate::venue::auth::caller::AuthenticatedCaller;
use crate::venue::policy;
use axum::body::{Body, HttpBody};
use axum::extract::{FromRequestParts, MatchedPath, RawPathParams, Request, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::FutureExt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// The middleware of all routes.
pub(super) async fn guard(State(api): State<Api>, request: Request, next: Next) -> Response {
    let handle = request.extensions().get::<Arc<ConnectionHandle>>().cloned();
    let (mut request, cost) = match receive_request(&api, request).await {
        Ok(arrived) => arrived,
        Err(response) => return response,
    };
    let owner = owner(&api, &request);
    let sharers = owner.as_ref().map_or_else(Sharers::default, |owner| {
        api.census.meet(owner);
        api.census.sharers(owner.tenant())
    });
    if let Some(handle) = handle
        && let Some(requester) = requester(&request, owner.as_ref())
        && let Err(no_share) = handle.start_work(requester, sharers)
    {
        return share_exceeded_problem(owner.as_ref(), no_share).into_response();
    }
    let payer = Payer::new(owner, sharers);
    let Some(load) = api.scales.load(&payer, cost, HTTP_ROOM_TIME).await else {
        return Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "requests of others, or of this owner and its tenant, take the memory that the venue has for them (`http.memory`); try again in a moment",
        )
        .retry_after(1)
        .into_response();
    };
    request.extensions_mut().insert(Arc::clone(&load));
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let route = request.extensions().get::<MatchedPath>().map(|matched| matched.as_str().to_owned());
    let body = usize::try_from(request.body().size_hint().lower()).unwrap_or(usize::MAX);
    let work = AssertUnwindSafe(next.run(request)).catch_unwind();
    let work = api.lanes.run(&payer, body, work);
    let closed = async {
        api.closing.cancelled().await;
        tokio::time::sleep(api.options.drain).await;
    };
    let response = tokio::select! {
        done = work => done.unwrap_or_else(|_| {
            api.venue.metrics.task_panics.inc();
            tracing::error!(%method, path, "request handler panicked");
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the request met a bug of the venue; it is in its log")
                .into_response()
        }),
        () = tokio::time::sleep(api.options.request_time) => {
            let seconds = api.options.request_time.as_secs();
            Problem::new(StatusCode::GATEWAY_TIMEOUT, format!("the request took longer than {seconds} s; it may have happened"))
                .into_response()
        }
        () = closed => {
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the venue shuts down; the request may have happened")
                .retry_after(1)
                .into_response()
        }
    };
    tracing::debug!(%method, path, status = response.status().as_u16(), "request");
    if response.status() == StatusCode::FORBIDDEN {
        api.venue.metrics.progress.count_denial("http");
    }
    let response = as_problem(response, method.as_str(), &path, route.as_deref());
    // An answer is charged for its bytes until they are sent; a stream has one piece at a time.
    load.set_cost(response.body().size_hint().exact().unwrap_or(0));
    response.map(|body| HoldingBody::body(body, load))
}

/// Returns the owner that a request is charged to; `None` where the caller is unidentified.
fn owner(api: &Api, request: &Request) -> Option<Owner> {
    let known = request.extensions().get::<AuthenticatedCaller>().map(|known| known.caller.owner.clone());
    known.or_else(|| Some(api.identify(request.headers()).ok()?.caller.owner))
}

/// Returns the account that a request's connection counts for. Health and metrics count for none, and their connections
/// may be closed for new ones, so that a client that doesn't read the answer keeps nobody out.
fn requester(request: &Request, owner: Option<&Owner>) -> Option<Requester> {
    if health::has_route(request.uri().path()) {
        return None;
    }
    Some(owner.cloned().map_or(Requester::Unknown, Requester::Owner))
}

fn share_exceeded_problem(owner: Option<&Owner>, no_share: ShareExceeded) -> Problem {
    let (whose, whom) = owner.map_or_else(
        || ("requests without a token".to_owned(), ""),
        |owner| (format!("requests of owner `{owner}`"), " for it, or for its tenant"),
    );
    let (place, setting) = if no_share.is_address_limit {
        (" from this address", "http.connections_per_address")
    } else {
        ("", "http.connections")
    };
    let text = format!(
        "as many {whose} run{place} as connections are free{place}{whom} (`{setting}`), waits and event streams included; end \
         some of them, or try again in a moment"
    );
    Problem::new(StatusCode::TOO_MANY_REQUESTS, text).retry_after(1)
}

/// Checks a request and reads its body. Returns it with the memory that it may take, or the answer that refuses it.
async fn receive_request(api: &Api, request: Request) -> Result<(Request, MemoryCost), Response> {
    let (parts, body) = request.into_parts();
    let admits = routes::route_rules(parts.method.as_str(), parts.extensions.get().map(MatchedPath::as_str));
    // A client that sends `Expect` holds its body back, so a refused request must not wait for it.
    let kept_back = parts.headers.contains_key(header::EXPECT);
    let unread = match authorise_request(api, parts, admits.access).await {
        Ok(mut parts) => match body::read(body, &api.options, admits.body.limit(api.options.body_limit)).await {
            // Some clients send an empty map where there is no body.
            Ok(read) if admits.body == BodyRule::Refused && !matches!(read.trim_ascii(), b"" | b"{}" | b"null") => {
                let problem = Problem::bad_request(
                    "this route takes no body; leave it out: what it takes stands in its path and its query",
                );
                BodyError { problem, is_received: true }
            }
            Ok(read) => {
                let counts = matches!(admits.body, BodyRule::Optional | BodyRule::Required | BodyRule::Content);
                let bytes = if counts { read } else { Bytes::new() };
                let cost = match admits.body {
                    BodyRule::Content => MemoryCost::content_cost(bytes.len()),
                    BodyRule::Ignored | BodyRule::Refused | BodyRule::Optional | BodyRule::Required => {
                        MemoryCost::request_cost(bytes.len(), admits.reads)
                    }
                };
                parts.extensions.insert(admits);
                return Ok((Request::from_parts(parts, Body::from(bytes)), cost));
            }
            Err(unread) => unread,
        },
        Err(problem) => return Err(body::refuse_unread(&api.options, kept_back, body, problem).await),
    };
    Err(unread.into_response())
}

/// Checks that a request may be handled, and adds its verified caller. Without tokens, the origin is checked instead: a
/// web page of another origin has no token to send.
async fn authorise_request(api: &Api, mut parts: Parts, access: RouteAccess) -> Result<Parts, Problem> {
    if !api.options.auth.is_required() {
        check_origin(parts.uri.authority(), &parts.headers)?;
        if access != RouteAccess::Public {
            // Also on routes that don't use the owner: an illegal one is an error everywhere.
            parts.extensions.insert(api.identify(&parts.headers)?);
        }
        return Ok(parts);
    }
    if access == RouteAccess::Public {
        return Ok(parts);
    }
    let caller = policy::apply_revocations(&*api.venue.store, api.identify(&parts.headers)?).await?;
    match access {
        RouteAccess::Public | RouteAccess::AnyCaller => {}
        RouteAccess::Operator if caller.caller.operator => {}
        RouteAccess::Operator => return Err(Problem::forbidden("only operators of the venue may ask this")),
        RouteAccess::Holder(ability, on) => {
            let given = RawPathParams::from_request_parts(&mut parts, &()).await.map_err(Problem::bad_request)?;
            let resource = match on {
                AccessTarget::All(namespace) => ResourcePath::whole_namespace(namespace),
                AccessTarget::Id(namespace) => {
                    let id = given.iter().find(|(name, _)| *name == "id").map(|(_, id)| id);
                    ResourcePath::at_keys(namespace, id)
                }
            };
            let denied = caller.caller.authority.permits(ability, resource).err();
            if let Some(denied) = denied {
                return Err(Problem::forbidden(denied.model_text(&format!("`{} {}`", parts.method, parts.uri.path()))));
            }
        }
    }
    parts.extensions.insert(caller);
    Ok(parts)
}

/// Gives the framework's own errors (wrong method, bad path escape, …) the form of all others. A page of the console
/// that is an error keeps its form.
fn as_problem(response: Response, method: &str, path: &str, route: Option<&str>) -> Response {
    let status = response.status();
    // Errors of other protocols have forms of their own.
    let media = response.headers().get(header::CONTENT_TYPE);
    let has_form =
        media.is_some_and(|media| media.as_bytes().ends_with(b"json") || media.as_bytes().starts_with(b"text/html"));
    if has_form || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let detail = if status == StatusCode::METHOD_NOT_ALLOWED {
        format!("`{method}` is not possible on `{path}`, expected {}", methods(route.unwrap_or(path)).join(" or "))
    } else {
        format!("`{method} {path}`: {}", status.canonical_reason().unwrap_or("refused").to_lowercase())
    };
    Problem::new(status, detail).into_response()
}
