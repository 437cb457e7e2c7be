//! Requests with a login: the token goes with them, and a refusal is followed by one more try at most.

use super::call::{Exchanged, PeerCall};
use super::endpoint::McpEndpoint;
use super::error::McpFailure;
use super::peer::{McpPeer, RequestRoute};
use crate::domain::ids::AgentId;
use crate::domain::ids::Owner;
use crate::domain::secret::Mask;
use crate::venue::failure::OpError;
use crate::venue::mcp_login::{LoginPlace, LoginTools, PeerLogin};
use crate::venue::outbound::departure::Departure;
use crate::venue::outbound::send::HttpSender;
use crate::venue::places::PlaceKey;
use reqwest::header::AUTHORIZATION;

/// Type of a result with questions, and the key of its state.
const INPUT: &str = "input_required";
const STATE: &str = "requestState";

impl McpEndpoint {
    /// Whether all owners share the server and what is known of it.
    fn is_shared(&self, agent: Option<&AgentId>) -> bool {
        agent.is_none() && self.settings().secrets().next().is_none()
    }

    /// Returns the key of the server as an owner uses it. `agent` has declared it; `None` for one of the venue.
    pub(crate) fn place_key(&self, owner: &Owner, agent: Option<&AgentId>) -> PlaceKey {
        let owner = (!self.is_shared(agent)).then(|| owner.clone());
        PlaceKey { owner, agent: agent.cloned(), name: self.settings().name.clone() }
    }

    /// Returns the server as a place of logins. `hosts` is the client of all hosts.
    pub(crate) fn login_place<'a>(&'a self, hosts: &'a HttpSender, key: PlaceKey) -> LoginPlace<'a> {
        LoginPlace {
            key,
            settings: self.settings(),
            shown: self.display_name(),
            own: self.sender(hosts),
            hosts,
            client_key: self.client_key(),
        }
    }
}

impl<'a> McpPeer<'a> {
    /// Adds the token of the login at the server, if somebody has logged in there and no header is the credential.
    ///
    /// # Errors
    /// Somebody must log in again.
    pub(crate) async fn with_login(mut self, tools: LoginTools<'a>, key: PlaceKey) -> Result<Self, OpError> {
        if self.has_credential() {
            return Ok(self);
        }
        let login = PeerLogin::open(tools, self.endpoint.login_place(self.hosts, key)).await?;
        login.add_to(&mut self.headers)?;
        self.login = Some(login);
        Ok(self)
    }

    /// Whether the configuration has the credential of the server, or the server is a program, which needs none.
    pub(crate) fn has_credential(&self) -> bool {
        self.endpoint.program().is_some() || self.headers.contains_key(AUTHORIZATION)
    }

    /// Sends a request. `departure` says afterwards whether it may have left.
    pub(crate) async fn ask(&self, call: &PeerCall<'_>, departure: &Departure) -> Result<Exchanged, McpFailure> {
        self.ask_with_login(RequestRoute::AnyRevision, call, departure).await
    }

    /// Sends a request. A server that refuses a token has run nothing: the request is sent once more if there is another
    /// token.
    pub(super) async fn ask_with_login(
        &self,
        route: RequestRoute<'_>,
        call: &PeerCall<'_>,
        departure: &Departure,
    ) -> Result<Exchanged, McpFailure> {
        let failure = match Box::pin(self.ask_once(route, call, departure)).await {
            Ok(answer) => return Ok(answer),
            Err(failure) => failure,
        };
        let again = self.peer_after(failure).await?;
        let asked = Box::pin(again.ask_once(route, call, departure)).await;
        asked.map_err(|failure| self.failure_with_new_token(failure))
    }

    /// Returns the peer with another token after a failure.
    ///
    /// # Errors
    /// The failure, if it has to do with no login. If no other token can be got, the request counts as not sent.
    pub(super) async fn peer_after(&self, failure: McpFailure) -> Result<McpPeer<'_>, McpFailure> {
        let (Some(login), Some((status, challenge))) = (&self.login, failure.refusal()) else { return Err(failure) };
        let not_sent = |error: OpError| McpFailure::Handshake(Box::new(error.into()));
        let token = Box::pin(login.token_after(status, challenge)).await.map_err(not_sent)?;
        let (mut headers, mut mask) = (self.headers.clone(), self.mask());
        token.add_to(&mut headers)?;
        token.add_to_mask(&mut mask);
        let (endpoint, hosts, sessions, turn) = (self.endpoint, self.hosts, self.sessions, self.turn.clone());
        Ok(McpPeer { endpoint, hosts, headers, turn, login: None, renewed_mask: Some(mask), sessions })
    }

    /// Returns the failure of a request that went with a new token.
    pub(super) fn failure_with_new_token(&self, failure: McpFailure) -> McpFailure {
        match (&self.login, failure.refusal()) {
            (Some(login), Some((status, _))) => login.refusal_of_new(status).into(),
            _ => failure,
        }
    }
}

impl Exchanged {
    /// Masks what the server says. The state that goes with its questions goes back to it as it came: nobody else reads it.
    pub(super) fn mask_with(self, mask: &Mask) -> Self {
        let mut result = self.result;
        let asks = result.as_object_mut().filter(|result| result.get("resultType").is_some_and(|kind| kind == INPUT));
        let state = asks.and_then(|result| result.remove(STATE));
        let mut result = mask.value(result);
        if let (Some(state), Some(result)) = (state, result.as_object_mut()) {
            result.insert(STATE.to_owned(), state);
        }
        Self { result, ..self }
    }
}

impl McpFailure {
    /// Returns status and challenge of a refusal for want of another login.
    pub(crate) fn refusal(&self) -> Option<(u16, Option<&str>)> {
        match self {
            Self::Status { status: status @ (401 | 403), challenge } => Some((*status, challenge.as_deref())),
            Self::Handshake(why) => why.refusal(),
            _ => None,
        }
    }

    /// Masks what the server says.
    pub(super) fn mask_with(self, mask: &Mask) -> Self {
        let text = |text: String| mask.text(&text).into_owned();
        match self {
            Self::Transport(error) => Self::Transport(error.map_text(text)),
            Self::Rpc { status, mut error } => {
                error.message = text(error.message);
                error.data = mask.value(error.data);
                Self::Rpc { status, error }
            }
            Self::Status { status, challenge } => Self::Status { status, challenge: challenge.map(text) },
            Self::Handshake(why) => Self::Handshake(Box::new(why.mask_with(mask))),
            Self::Answer(said) => Self::Answer(text(said)),
            other @ (Self::SessionOver | Self::Stream(_) | Self::Ended | Self::Silent { .. }) => other,
        }
    }
}
