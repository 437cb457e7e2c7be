//! Description of the venue: status and operations.

use super::Api;
use super::problem::Problem;
use crate::venue::operation::dispatch::find_operation;
use crate::venue::operation::{Effect, RegisteredOperation};
use crate::venue::tree::virtuals::describe;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

/// `GET status`: name, version, address and access mode of the venue.
pub(super) async fn status(State(api): State<Api>, headers: HeaderMap) -> Result<Response, Problem> {
    let venue = &api.venue;
    // A client without a token finds here the name to make one for.
    let access = if api.options.auth.is_required() {
        json!({"mode": "jwt"})
    } else {
        json!({"mode": "none", "owner": api.identify(&headers)?.caller.owner})
    };
    Ok(axum::Json(json!({
        "status": "OK",
        "name": venue.name,
        "version": env!("CARGO_PKG_VERSION"),
        "url": api.options.url,
        "did": api.did(),
        "access": access,
        "stats": {"operations": venue.catalog.operations().count()},
    }))
    .into_response())
}

impl Api {
    /// Returns the venue's DID, the audience of tokens.
    fn did(&self) -> String {
        self.options.auth.audience_did(did(&self.options.url))
    }
}

/// Returns the `did:web` of a URL: its host, a port after an escaped colon, path steps after colons.
pub(crate) fn did(url: &str) -> String {
    let place = url.split_once("://").map_or(url, |(_, place)| place).trim_end_matches('/');
    format!("did:web:{}", place.replace(':', "%3A").replace('/', ":"))
}

/// `GET /.well-known/did.json`: returns the identity only, without keys: this version signs nothing.
pub(super) async fn did_document(State(api): State<Api>) -> Response {
    axum::Json(json!({"@context": "https://www.w3.org/ns/did/v1", "id": api.did()})).into_response()
}

fn info(path: &str, found: &RegisteredOperation) -> Value {
    json!({
        "name": path,
        "asset": found.spec.path,
        "description": found.spec.description,
        "input": found.spec.input,
        "readOnly": found.spec.effect == Effect::Read,
    })
}

/// Iterates over every operation under its path, then over every alias.
fn operations_and_aliases(api: &Api) -> impl Iterator<Item = (&'static str, &RegisteredOperation)> {
    let catalog = &api.venue.catalog;
    let aliases = catalog.aliases().filter_map(|(alias, _)| Some((alias, catalog.resolve(alias)?)));
    catalog.operations().map(|found| (found.spec.path, found)).chain(aliases)
}

/// `GET operations`: lists operations and aliases.
pub(super) async fn operations(State(api): State<Api>) -> Response {
    axum::Json(operations_and_aliases(&api).map(|(path, found)| info(path, found)).collect::<Vec<_>>()).into_response()
}

/// `GET operations/{name}`: describes one operation.
pub(super) async fn operation(State(api): State<Api>, Path(name): Path<String>) -> Result<Response, Problem> {
    let found = find_operation(&api.venue.catalog, &name)?;
    Ok(axum::Json(info(&name, found)).into_response())
}

/// `GET adapters/{name}/operations`: returns the metadata of a group's operations, by path.
pub(super) async fn adapter(State(api): State<Api>, Path(name): Path<String>) -> Result<Response, Problem> {
    let prefix = format!("v/ops/{name}/");
    let group: Map<String, Value> = operations_and_aliases(&api)
        .filter(|(path, _)| path.starts_with(&prefix))
        .map(|(path, found)| (path.to_owned(), describe(path, found)))
        .collect();
    if group.is_empty() {
        return Err(Problem::not_found(format!("no operations `{prefix}…`; `GET /api/v1/operations` lists all")));
    }
    Ok(axum::Json(group).into_response())
}

#[cfg(test)]
mod tests {
    use super::did;

    #[test]
    fn a_did_names_the_host_with_an_escaped_port() {
        assert_eq!(did("http://127.0.0.1:8420"), "did:web:127.0.0.1%3A8420");
        assert_eq!(did("https://venue.example/a/"), "did:web:venue.example:a");
    }
}
