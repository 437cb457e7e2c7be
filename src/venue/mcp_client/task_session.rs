//! Sessions of tasks, in the revisions with a handshake: a task lives in the session in which it was begun, so that every
//! process which asks for it goes on with that session.

use super::call::{Exchanged, PeerCall};
use super::error::McpFailure;
use super::exchange::SessionHeaders;
use super::peer::{McpPeer, RequestRoute};
use super::session;
use crate::domain::mcp::pending::McpTaskSession;
use crate::domain::mcp::revision::check_chosen;
use crate::venue::outbound::departure::Departure;

impl McpPeer<'_> {
    /// Begins a session for the task of a call; `None` if the server has no tasks, and then no session is left.
    pub(crate) async fn begin_task_session(&self, call: &PeerCall<'_>) -> Result<Option<McpTaskSession>, McpFailure> {
        let failure = match self.try_begin(call).await {
            Ok(begun) => return Ok(begun),
            Err(failure) => failure,
        };
        let again = self.peer_after(failure).await?;
        again.try_begin(call).await.map_err(|failure| self.failure_with_new_token(failure))
    }

    async fn try_begin(&self, call: &PeerCall<'_>) -> Result<Option<McpTaskSession>, McpFailure> {
        let departure = Departure::default();
        let exchange = self.exchange(call, &departure);
        let begun = session::begin(&exchange).await.map_err(|failure| failure.mask_with(&self.mask()))?;
        if !begun.has_tasks {
            exchange.end_session(&begun).await;
            return Ok(None);
        }
        let revision = begun.revision.unwrap_or_default().to_owned();
        Ok(Some(McpTaskSession { id: begun.id, revision }))
    }

    /// Sends a request in the session of a task. A session that is over is not begun again: its task is lost.
    pub(crate) async fn ask_in_task_session(
        &self,
        session: &McpTaskSession,
        call: &PeerCall<'_>,
        departure: &Departure,
    ) -> Result<Exchanged, McpFailure> {
        self.ask_with_login(RequestRoute::TaskSession(&headers_of(session)?), call, departure).await
    }

    /// Sends a request of the stateless revision, and tries no other one.
    pub(crate) async fn ask_stateless(
        &self,
        call: &PeerCall<'_>,
        departure: &Departure,
    ) -> Result<Exchanged, McpFailure> {
        self.ask_with_login(RequestRoute::Stateless, call, departure).await
    }

    /// Ends the session of a task at the server, as far as it lets it.
    pub(crate) async fn end_task_session(&self, session: &McpTaskSession, call: &PeerCall<'_>) {
        let departure = Departure::default();
        if let Ok(headers) = headers_of(session) {
            self.exchange(call, &departure).end_session(&headers).await;
        }
    }
}

fn headers_of(session: &McpTaskSession) -> Result<SessionHeaders, McpFailure> {
    let revision = check_chosen(&session.revision).map_err(|error| McpFailure::Answer(error.to_string()))?;
    Ok(SessionHeaders { id: session.id.clone(), revision: Some(revision), has_tasks: true })
}
