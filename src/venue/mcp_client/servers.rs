//! The servers of a process: those of the venue's configuration, what is known of each server in use, and sessions.

use super::endpoint::McpEndpoint;
use super::peer::McpPeer;
use super::session::{SessionOwner, SessionTable};
use crate::domain::mcp::oauth::location::client_metadata_url;
use crate::venue::outbound::send::HttpSender;
use crate::venue::places::{Places, VenuePlace};
use reqwest::header::HeaderMap;

/// A server of the venue's configuration.
pub type VenueServer = VenuePlace<McpEndpoint>;

/// The servers of a process.
#[derive(Default)]
pub struct McpServers {
    pub(crate) places: Places<McpEndpoint>,
    sessions: SessionTable,
    client_url: Option<String>,
}

impl McpServers {
    /// Makes the servers of a venue.
    pub fn new(own: impl IntoIterator<Item = VenueServer>) -> Self {
        Self { places: Places::new(own), sessions: SessionTable::default(), client_url: None }
    }

    /// Sets the public URL of the venue, below which its description as a client of login servers is.
    #[must_use]
    pub fn with_public_url(self, public: Option<&str>) -> Self {
        Self { client_url: public.and_then(client_metadata_url), ..self }
    }

    /// Returns the URL of the venue's description as a client of login servers; `None` without a public URL.
    pub fn client_url(&self) -> Option<&str> {
        self.client_url.as_deref()
    }

    /// Returns a server as it is asked for one caller.
    pub(crate) fn peer<'a>(
        &'a self,
        endpoint: &'a McpEndpoint,
        hosts: &'a HttpSender,
        headers: HeaderMap,
        turn: Option<SessionOwner>,
    ) -> McpPeer<'a> {
        McpPeer { endpoint, hosts, headers, turn, login: None, renewed_mask: None, sessions: &self.sessions }
    }
}
