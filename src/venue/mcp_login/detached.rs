//! A login apart from the call that needs it: a renewal goes on when its call is cancelled or too late, because the login
//! server has perhaps replaced the tokens already.

use super::place::{ClientKey, LoginPlace, LoginTools};
use crate::domain::mcp::server::McpServer;
use crate::process::clock::Clock;
use crate::store::Store;
use crate::venue::outbound::send::HttpSender;
use crate::venue::places::PlaceKey;
use crate::venue::secrets::Vault;
use std::sync::Arc;

/// What a login needs, without the call.
pub(super) struct DetachedLogin {
    store: Arc<dyn Store>,
    vault: Vault,
    clock: Clock,
    key: PlaceKey,
    settings: McpServer,
    shown: String,
    own: HttpSender,
    hosts: HttpSender,
    client_key: Option<ClientKey>,
}

impl DetachedLogin {
    /// Copies what a login needs.
    pub(super) fn new(tools: LoginTools<'_>, place: &LoginPlace<'_>) -> Self {
        Self {
            store: Arc::clone(tools.store),
            vault: tools.vault.clone(),
            clock: tools.clock.clone(),
            key: place.key.clone(),
            settings: place.settings.clone(),
            shown: place.shown.clone(),
            own: place.own.clone(),
            hosts: place.hosts.clone(),
            client_key: place.client_key.cloned(),
        }
    }

    /// Returns the parts of the venue.
    pub(super) const fn tools(&self) -> LoginTools<'_> {
        LoginTools { store: &self.store, vault: &self.vault, clock: &self.clock }
    }

    /// Returns the server.
    pub(super) fn login_place(&self) -> LoginPlace<'_> {
        LoginPlace {
            key: self.key.clone(),
            settings: &self.settings,
            shown: self.shown.clone(),
            own: &self.own,
            hosts: &self.hosts,
            client_key: self.client_key.as_ref(),
        }
    }
}
