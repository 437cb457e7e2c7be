//! The servers of a process: those of the venue's configuration, what is known of each server in use, and sessions.

use super::endpoint::McpEndpoint;
use super::peer::McpPeer;
use super::session::{SessionOwner, SessionTable};
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
}

impl McpServers {
    /// Makes the servers of a venue.
    pub fn new(own: impl IntoIterator<Item = VenueServer>) -> Self {
        Self { places: Places::new(own), sessions: SessionTable::default() }
    }

    /// Returns a server as it is asked for one caller.
    pub(crate) fn peer<'a>(
        &'a self,
        endpoint: &'a McpEndpoint,
        hosts: &'a HttpSender,
        headers: HeaderMap,
        turn: Option<SessionOwner>,
    ) -> McpPeer<'a> {
        McpPeer { endpoint, hosts, headers, turn, sessions: &self.sessions }
    }
}
