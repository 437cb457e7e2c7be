//! Requests with a login: the token goes with them, and a refusal is followed by one more try at most.

use super::call::{Exchanged, PeerCall};
use super::endpoint::McpEndpoint;
use super::error::McpFailure;
use super::peer::McpPeer;
use crate::domain::ids::AgentId;
use crate::domain::ids::Owner;
use crate::domain::secret::Mask;
use crate::venue::failure::OpError;
use crate::venue::mcp_login::{LoginPlace, LoginTools, PeerLogin};
use crate::venue::outbound::departure::Departure;
use crate::venue::outbound::send::HttpSender;
use crate::venue::places::PlaceKey;
use reqwest::header::AUTHORIZATION;

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
    ///
    /// A server that refuses a token has run nothing: the request is sent once more if there is another token.
    pub(crate) async fn ask(&self, call: &PeerCall<'_>, departure: &Departure) -> Result<Exchanged, McpFailure> {
        let Some(login) = &self.login else { return Box::pin(self.ask_with_headers(call, departure)).await };
        let mut mask = Mask::default();
        login.add_to_mask(&mut mask);
        let failure = match Box::pin(self.ask_with_headers(call, departure)).await {
            Ok(answer) => return Ok(answer.mask_with(&mask)),
            Err(failure) => failure.mask_with(&mask),
        };
        let Some((status, challenge)) = failure.refusal() else { return Err(failure) };
        let token = Box::pin(login.token_after(status, challenge)).await?;
        token.add_to_mask(&mut mask);
        let mut headers = self.headers.clone();
        token.add_to(&mut headers)?;
        let (endpoint, hosts, sessions, turn) = (self.endpoint, self.hosts, self.sessions, self.turn.clone());
        let again = McpPeer { endpoint, hosts, headers, turn, login: None, sessions };
        let asked = Box::pin(again.ask_with_headers(call, departure)).await;
        let failure = match asked {
            Ok(answer) => return Ok(answer.mask_with(&mask)),
            Err(failure) => failure.mask_with(&mask),
        };
        match failure.refusal() {
            Some((status, _)) => Err(login.refusal_of_new(status).into()),
            None => Err(failure),
        }
    }
}

impl Exchanged {
    pub(super) fn mask_with(self, mask: &Mask) -> Self {
        Self { result: mask.value(self.result), ..self }
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
    fn mask_with(self, mask: &Mask) -> Self {
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
