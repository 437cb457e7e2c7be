//! Description of the venue: status and operations.

use super::Api;
use super::extract::RequestCaller;
use super::problem::Problem;
use crate::venue::operation::dispatch::find_operation;
use crate::venue::operation::{CatalogView, Effect, RegisteredOperation};
use crate::venue::tree::virtuals::describe;
use crate::view::a2a::{A2aCapabilities, A2aCard};
use crate::view::catalog::{OperationNodeView, OperationView};
use crate::view::identity::{AccessView, DidView, VenueStatsView, VenueStatusView};
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use std::collections::BTreeMap;

/// `GET status`: name, version, address and access mode of the venue.
pub(super) async fn status(State(api): State<Api>, headers: HeaderMap) -> Result<Response, Problem> {
    let venue = &api.venue;
    // A client without a token finds here the name to make one for.
    let access = if api.options.auth.is_required() {
        AccessView { mode: "jwt".to_owned(), owner: None }
    } else {
        AccessView { mode: "none".to_owned(), owner: Some(api.identify(&headers)?.caller.owner.clone()) }
    };
    let shown = VenueStatusView {
        status: "OK".to_owned(),
        name: venue.name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        url: api.options.url.clone(),
        did: api.did(),
        access,
        stats: VenueStatsView { operations: venue.catalog.compiled_view().operations().count() },
    };
    Ok(axum::Json(shown).into_response())
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
    let document = DidView { context: "https://www.w3.org/ns/did/v1".to_owned(), id: api.did() };
    axum::Json(document).into_response()
}

/// `GET /.well-known/agent-card.json`: returns the name of the venue in the form that Covia's clients read. It has no
/// agents and no address for messages: agents have cards of their own.
pub(super) async fn venue_card(State(api): State<Api>) -> Response {
    let media = ["text/plain", "application/json"].map(str::to_owned).to_vec();
    let card = A2aCard {
        name: api.venue.name.clone(),
        description: "A venue that runs persistent AI agents.".to_owned(),
        supported_interfaces: Vec::new(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        capabilities: A2aCapabilities::default(),
        security_schemes: None,
        security_requirements: None,
        default_input_modes: media.clone(),
        default_output_modes: media,
        skills: Vec::new(),
    };
    axum::Json(card).into_response()
}

fn info(path: &str, found: &RegisteredOperation) -> OperationView {
    OperationView {
        name: path.to_owned(),
        asset: found.spec.path.to_string(),
        description: found.spec.description.clone(),
        input: found.spec.input.clone(),
        read_only: found.spec.effect == Effect::Read,
    }
}

/// Iterates over every operation under its path, then over every alias.
fn operations_and_aliases(catalog: &CatalogView) -> impl Iterator<Item = (&str, &RegisteredOperation)> {
    let aliases = catalog.aliases().filter_map(|(alias, _)| Some((alias, &**catalog.resolve(alias)?)));
    catalog.operations().map(|found| (&*found.spec.path, &**found)).chain(aliases)
}

/// `GET operations`: lists operations and aliases.
pub(super) async fn operations(who: RequestCaller) -> Response {
    let all: Vec<_> = operations_and_aliases(&who.catalog).map(|(path, found)| info(path, found)).collect();
    axum::Json(all).into_response()
}

/// `GET operations/{name}`: describes one operation.
pub(super) async fn operation(who: RequestCaller, Path(name): Path<String>) -> Result<Response, Problem> {
    let found = find_operation(&who.catalog, &name)?;
    Ok(axum::Json(info(&name, found)).into_response())
}

/// `GET adapters/{name}/operations`: returns the metadata of a group's operations, by path.
pub(super) async fn adapter(who: RequestCaller, Path(name): Path<String>) -> Result<Response, Problem> {
    let prefix = format!("v/ops/{name}/");
    let group: BTreeMap<String, OperationNodeView> = operations_and_aliases(&who.catalog)
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
