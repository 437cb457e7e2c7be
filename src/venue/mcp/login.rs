//! Logins of people at servers, as they ask for them.

use crate::domain::ids::Owner;
use crate::domain::limits::{MCP_LOGIN_BYTES, MCP_LOGIN_TIME};
use crate::domain::mcp::message::McpRequest;
use crate::domain::mcp::oauth::challenge::BearerChallenge;
use crate::domain::mcp::oauth::record::ServerLogin;
use crate::venue::Venue;
use crate::venue::failure::OpError;
use crate::venue::mcp_client::{McpEndpoint, McpFailure, PeerCall, resolve_headers};
use crate::venue::mcp_login::{
    LoginAnswer, LoginPlace, LoginStart, LoginTools, VenueClient, begin_login as begin_at, delete_login,
    finish_login as finish_at, load_login,
};
use crate::venue::outbound::departure::Departure;
use crate::venue::pinned::{self, NamedPlace, WantedPlace};
use crate::venue::places::KnownPlace;
use crate::view::mcp_login::{McpLoginPageView, McpLoginView, McpLogoutView};

/// Returns the parts of a venue that logins need.
pub(super) fn login_tools(venue: &Venue) -> LoginTools<'_> {
    LoginTools { store: &venue.store, vault: &venue.secrets, clock: &venue.clock }
}

fn login_place<'a>(
    venue: &'a Venue,
    named: &NamedPlace<McpEndpoint>,
    known: &'a KnownPlace<McpEndpoint>,
) -> LoginPlace<'a> {
    known.endpoint.login_place(&venue.catalog.hosts, named.0.key.clone())
}

/// Begins the login of a person at a server, which comes back to a page of the person's machine.
pub(crate) async fn begin_login(
    venue: &Venue,
    named: &NamedPlace<McpEndpoint>,
    owner: &Owner,
    redirect: &str,
) -> Result<McpLoginPageView, OpError> {
    let known = named.find_known(venue)?;
    let challenge = ask_for_challenge(venue, named, &known).await?;
    let client = VenueClient { name: &venue.name, url: venue.catalog.mcp.client_url() };
    let start = LoginStart { owner, redirect, challenge, venue: client };
    begin_at(login_tools(venue), &login_place(venue, named, &known), &start).await
}

/// Asks a server for its tools without a token, and returns what it wants.
async fn ask_for_challenge(
    venue: &Venue,
    named: &NamedPlace<McpEndpoint>,
    known: &KnownPlace<McpEndpoint>,
) -> Result<Option<BearerChallenge>, OpError> {
    let endpoint = &known.endpoint;
    let headers = resolve_headers(endpoint, &*venue.store, &venue.secrets, &named.0.key.keeper()).await?;
    let peer = venue.catalog.mcp.peer(endpoint, &venue.catalog.hosts, headers, None);
    if peer.has_credential() {
        return Err(OpError::Invalid(format!(
            "the {} needs no login: it is a program, or its configuration has the header `Authorization`",
            endpoint.display_name()
        )));
    }
    let call = PeerCall {
        request: McpRequest::list_tools(endpoint.next_id(), None),
        params: &[],
        marks: None,
        patience: MCP_LOGIN_TIME,
        max_bytes: MCP_LOGIN_BYTES,
        repeatable: true,
    };
    // A server that fails otherwise may have metadata all the same.
    let refused = peer.ask(&call, &Departure::default()).await.err();
    let challenge = refused.as_ref().and_then(McpFailure::refusal).and_then(|(_, challenge)| challenge);
    Ok(challenge.and_then(BearerChallenge::read))
}

/// Ends the login of a person at a server.
pub(crate) async fn finish_login(
    venue: &Venue,
    named: &NamedPlace<McpEndpoint>,
    owner: &Owner,
    by: &str,
    answer: &LoginAnswer,
) -> Result<McpLoginView, OpError> {
    let known = named.find_known(venue)?;
    let login = finish_at(login_tools(venue), &login_place(venue, named, &known), owner, by, answer).await?;
    // What the server offers is stored before the next turn of any worker. A failure is shown with the server.
    known.change(|state| (state.read, state.due, state.failure) = (None, None, None));
    let asked = pinned::refresh(venue, &named.0.key, &known).await;
    asked.inspect_err(|error| tracing::debug!(%error, "a server fails after a login")).ok();
    Ok(show(venue, login))
}

/// Ends the login at a server.
pub(crate) async fn logout(venue: &Venue, named: &NamedPlace<McpEndpoint>) -> Result<McpLogoutView, OpError> {
    let known = named.find_known(venue)?;
    let ended = delete_login(login_tools(venue), &login_place(venue, named, &known)).await?;
    Ok(McpLogoutView { ended })
}

/// Returns the login at a server as people see it; `None` if there is none.
pub(super) async fn find_login(
    venue: &Venue,
    wanted: &WantedPlace<McpEndpoint>,
) -> Result<Option<McpLoginView>, OpError> {
    let Ok(known) = wanted.find_known(venue) else { return Ok(None) };
    if known.endpoint.destination().is_none() {
        return Ok(None);
    }
    let place = known.endpoint.login_place(&venue.catalog.hosts, wanted.key.clone());
    Ok(load_login(login_tools(venue), &place).await?.map(|login| show(venue, login)))
}

fn show(venue: &Venue, login: ServerLogin) -> McpLoginView {
    let has_ended = login.sealed.is_none() || login.has_ended(venue.now()) && !login.is_renewable;
    McpLoginView {
        issuer: login.issuer,
        by: login.by,
        since: login.since,
        until: login.until,
        renewable: login.is_renewable,
        ended: has_ended,
        scopes: login.scopes,
        lacking: login.lacking,
    }
}
