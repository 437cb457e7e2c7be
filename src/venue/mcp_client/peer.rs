//! A server as it is asked for one caller: finds out which revision it speaks, and repeats what surely hasn't run.

use super::call::{Exchanged, PeerCall};
use super::endpoint::McpEndpoint;
use super::error::McpFailure;
use super::exchange::{SessionHeaders, WireExchange};
use super::session::{self, SessionOwner, SessionTable};
use crate::domain::chat::HeaderText;
use crate::domain::mcp::message::{McpRequest, cancelled_notice};
use crate::domain::mcp::revision::{EraHint, ProtocolEra, RevisionChoice};
use crate::domain::secret::{Mask, PlainSecret};
use crate::venue::failure::OpError;
use crate::venue::mcp_login::PeerLogin;
use crate::venue::outbound::departure::Departure;
use crate::venue::outbound::send::HttpSender;
use reqwest::header::HeaderMap;
use std::time::Duration;

/// Longest time for the message that a request is given up.
const CANCEL_TIME: Duration = Duration::from_secs(5);

/// A server as it is asked for one caller.
pub(crate) struct McpPeer<'a> {
    pub(crate) endpoint: &'a McpEndpoint,
    /// Client of all hosts.
    pub(crate) hosts: &'a HttpSender,
    /// Headers of the configuration, with the owner's secrets.
    pub(crate) headers: HeaderMap,
    /// The turn that asks; `None` for a request outside turns, which has a session of its own.
    pub(crate) turn: Option<SessionOwner>,
    /// Login whose token goes with the headers; `None` where the configuration has a credential.
    pub(super) login: Option<PeerLogin<'a>>,
    /// Mask of what is sent with a renewed token; `None`: made of the headers and the login.
    pub(super) renewed_mask: Option<Mask>,
    pub(super) sessions: &'a SessionTable,
}

impl McpPeer<'_> {
    /// Returns the error of an operation, as [`McpFailure::into_op_error`].
    pub(crate) fn op_error(&self, failure: McpFailure, may_have_run: bool) -> OpError {
        failure.into_op_error(&self.endpoint.display_name(), may_have_run)
    }

    /// Returns the mask of all secrets that the server is sent.
    pub(super) fn mask(&self) -> Mask {
        if let Some(mask) = &self.renewed_mask {
            return mask.clone();
        }
        let mut mask = self.endpoint.mask().clone();
        for (header, text) in &self.endpoint.settings().headers {
            let HeaderText::Secret { name, prefix } = text else { continue };
            let sent = self.headers.get(header).and_then(|value| value.to_str().ok());
            let value = sent.and_then(|sent| sent.strip_prefix(prefix.as_str()));
            if let Some(Ok(value)) = value.map(|value| PlainSecret::new(value.to_owned())) {
                mask.add(name, &value);
            }
        }
        if let Some(login) = &self.login {
            login.add_to_mask(&mut mask);
        }
        mask
    }

    /// Sends a request with the headers as they are. `departure` says afterwards whether it may have left. Secrets that the
    /// answer or the failure repeats are masked here, and nowhere else.
    pub(super) async fn ask_once(
        &self,
        route: RequestRoute<'_>,
        call: &PeerCall<'_>,
        departure: &Departure,
    ) -> Result<Exchanged, McpFailure> {
        let asked = match route {
            RequestRoute::AnyRevision => self.ask_in_any_revision(call, departure).await,
            RequestRoute::Stateless => self.exchange(call, departure).ask_stateless(&call.request, call.params).await,
            RequestRoute::TaskSession(session) => {
                self.ask_cancellable(&self.exchange(call, departure), &call.request, session).await
            }
        };
        let mask = self.mask();
        asked.map(|answer| answer.mask_with(&mask)).map_err(|failure| failure.mask_with(&mask))
    }

    async fn ask_in_any_revision(&self, call: &PeerCall<'_>, departure: &Departure) -> Result<Exchanged, McpFailure> {
        if let Some(program) = self.endpoint.program() {
            return program.ask(call, self.endpoint.settings().revision, departure).await;
        }
        let exchange = self.exchange(call, departure);
        let is_auto = self.endpoint.settings().revision == RevisionChoice::Auto;
        let known = self.endpoint.era();
        let era = known.unwrap_or_else(|| ProtocolEra::first_try(self.endpoint.settings().revision));
        // Boxed for callers whose futures would be too large for a stack.
        let failure = match Box::pin(self.ask_in(era, &exchange, call)).await {
            Ok(answer) => return Ok(answer),
            Err(failure) => failure,
        };
        // A server that refuses the revision has run nothing.
        let other = match (era, failure.era_hint()) {
            (ProtocolEra::Stateless, EraHint::Again) => ProtocolEra::Stateless,
            (ProtocolEra::Stateless, EraHint::Handshake) if is_auto => ProtocolEra::Handshake,
            (ProtocolEra::Stateless, EraHint::PerhapsHandshake) if is_auto && known.is_none() => ProtocolEra::Handshake,
            (ProtocolEra::Handshake, _) if is_auto && failure.is_refused_handshake() => ProtocolEra::Stateless,
            (ProtocolEra::Stateless, EraHint::PerhapsHandshake) if is_auto => {
                self.endpoint.forget_era();
                return Err(failure);
            }
            _ => return Err(failure),
        };
        match Box::pin(self.ask_in(other, &exchange, call)).await {
            // It speaks no other revision either.
            Err(again) if again.is_refused_handshake() => Err(failure),
            Err(McpFailure::Status { status: 400..500, .. }) if era == ProtocolEra::Handshake => Err(failure),
            asked => asked,
        }
    }

    async fn ask_in(
        &self,
        era: ProtocolEra,
        exchange: &WireExchange<'_>,
        call: &PeerCall<'_>,
    ) -> Result<Exchanged, McpFailure> {
        match era {
            ProtocolEra::Stateless => {
                let answer = exchange.ask_stateless(&call.request, call.params).await?;
                self.endpoint.set_era(era);
                Ok(answer)
            }
            ProtocolEra::Handshake => self.ask_with_session(exchange, &call.request).await,
        }
    }

    pub(super) fn exchange<'e>(&'e self, call: &PeerCall<'e>, departure: &'e Departure) -> WireExchange<'e> {
        WireExchange {
            endpoint: self.endpoint,
            hosts: self.hosts,
            headers: &self.headers,
            patience: call.patience,
            max_bytes: call.max_bytes,
            departure,
            repeatable: call.repeatable,
            marks: call.marks,
        }
    }

    /// Sends a request in a session. A session that is over has run nothing: the request is sent once more in a new one.
    async fn ask_with_session(
        &self,
        exchange: &WireExchange<'_>,
        request: &McpRequest,
    ) -> Result<Exchanged, McpFailure> {
        let Some(turn) = &self.turn else {
            let session = session::begin(exchange).await?;
            self.endpoint.set_era(ProtocolEra::Handshake);
            let asked = self.ask_cancellable(exchange, request, &session).await;
            exchange.end_session(&session).await;
            return asked;
        };
        for _ in 0..2 {
            let session = self.sessions.get_or_begin(exchange, turn).await?;
            self.endpoint.set_era(ProtocolEra::Handshake);
            match self.ask_cancellable(exchange, request, &session).await {
                Err(McpFailure::SessionOver) => self.sessions.forget(exchange, turn, &session),
                asked => return asked,
            }
        }
        Err(McpFailure::SessionOver)
    }

    /// Sends a request in a session, and tells the server when nobody waits for its answer any more.
    pub(super) async fn ask_cancellable(
        &self,
        exchange: &WireExchange<'_>,
        request: &McpRequest,
        session: &SessionHeaders,
    ) -> Result<Exchanged, McpFailure> {
        let notice =
            exchange.prepare_notice(&cancelled_notice(request.id, "nobody waits for the answer"), session).ok();
        let mut guard = CancelGuard { notice };
        let asked = exchange.ask_in_session(request, session).await;
        if !matches!(asked, Err(McpFailure::Silent { .. })) {
            guard.notice = None;
        }
        asked
    }
}

/// How a request goes to a server.
#[derive(Clone, Copy)]
pub(super) enum RequestRoute<'r> {
    /// In the revision that the server speaks, which is found out.
    AnyRevision,
    /// In the revision without a handshake, and in no other one.
    Stateless,
    /// In the session of a task.
    TaskSession(&'r SessionHeaders),
}

/// Sends a notification when it is dropped, unless it was taken out before: a future that is given up can't await.
struct CancelGuard {
    notice: Option<reqwest::RequestBuilder>,
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        let Some(notice) = self.notice.take() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ = tokio::time::timeout(CANCEL_TIME, notice.send()).await;
            });
        }
    }
}
