//! Sessions of the revisions with a handshake: one for the calls of a turn, one for any other request. A session is kept
//! in this process alone; another process that goes on with the turn begins its own.

use super::error::McpFailure;
use super::exchange::{SessionHeaders, WireExchange};
use crate::domain::ids::{Owner, SessionKey};
use crate::domain::mcp::message::{McpRequest, initialized_notice};
use crate::domain::mcp::name::ServerName;
use crate::domain::mcp::revision::check_chosen;
use crate::venue::outbound::departure::Departure;
use quick_cache::sync::Cache;
use std::sync::Arc;

/// Sessions that are kept at most.
const SESSIONS: usize = 1_024;

/// Who uses a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionOwner {
    /// Owner of the agent.
    pub(crate) owner: Owner,
    /// Conversation whose turn makes the calls.
    pub(crate) session: SessionKey,
    /// Number of the turn.
    pub(crate) turn: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SessionCacheKey {
    owner: Owner,
    session: SessionKey,
    server: ServerName,
    /// Hash of the server's URL and headers: another server that gets the name later gets no session of this one.
    place: String,
}

/// A session with the turn that it is of.
#[derive(Debug, Clone)]
struct TurnSession {
    turn: u64,
    headers: Arc<SessionHeaders>,
}

/// Sessions that the running turns have at servers.
pub(super) struct SessionTable(Cache<SessionCacheKey, TurnSession>);

impl Default for SessionTable {
    fn default() -> Self {
        Self(Cache::new(SESSIONS))
    }
}

impl SessionTable {
    /// Returns the session of a turn; begins it if there is none.
    pub(super) async fn get_or_begin(
        &self,
        exchange: &WireExchange<'_>,
        of: &SessionOwner,
    ) -> Result<Arc<SessionHeaders>, McpFailure> {
        let key = cache_key(exchange, of);
        // The turn before has left its session.
        if let Some((_, old)) = self.0.remove_if(&key, |known| known.turn != of.turn) {
            exchange.end_session(&old.headers).await;
        }
        let begin = async {
            let headers = Arc::new(begin(exchange).await?);
            Ok::<_, McpFailure>(TurnSession { turn: of.turn, headers })
        };
        Ok(self.0.get_or_insert_async(&key, begin).await?.headers)
    }

    /// Forgets a session that is over. Another call of the turn may have begun the next one already, which stays.
    pub(super) fn forget(&self, exchange: &WireExchange<'_>, of: &SessionOwner, over: &Arc<SessionHeaders>) {
        self.0.remove_if(&cache_key(exchange, of), |known| Arc::ptr_eq(&known.headers, over));
    }
}

fn cache_key(exchange: &WireExchange<'_>, of: &SessionOwner) -> SessionCacheKey {
    let settings = exchange.endpoint.settings();
    let (server, place) = (settings.name.clone(), settings.place_hash());
    SessionCacheKey { owner: of.owner.clone(), session: of.session.clone(), server, place }
}

/// Begins a session. Its messages do nothing that counts: whether they have left says nothing of the request after them.
pub(super) async fn begin(exchange: &WireExchange<'_>) -> Result<SessionHeaders, McpFailure> {
    shake_hands(exchange).await.map_err(|failure| McpFailure::Handshake(Box::new(failure)))
}

async fn shake_hands(exchange: &WireExchange<'_>) -> Result<SessionHeaders, McpFailure> {
    let departure = Departure::default();
    let exchange = WireExchange {
        endpoint: exchange.endpoint,
        hosts: exchange.hosts,
        headers: exchange.headers,
        patience: exchange.patience,
        max_bytes: exchange.max_bytes,
        departure: &departure,
        repeatable: true,
        marks: None,
    };
    let request = McpRequest::initialize(exchange.endpoint.next_id());
    let answer =
        exchange.ask_in_session(&request, &SessionHeaders { id: None, revision: None, has_tasks: false }).await?;
    let chosen = answer.result["protocolVersion"].as_str().unwrap_or_default();
    let revision = check_chosen(chosen).map_err(|error| McpFailure::Answer(error.to_string()))?;
    let has_tasks = answer.result["capabilities"]["tasks"]["requests"]["tools"]["call"].is_object();
    let session = SessionHeaders { id: answer.session, revision: Some(revision), has_tasks };
    exchange.notify(&initialized_notice(), &session).await?;
    Ok(session)
}
