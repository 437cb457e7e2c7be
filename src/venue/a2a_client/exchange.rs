//! One request to an agent elsewhere over HTTP, and its answer; and the card of an agent.

use super::endpoint::A2aEndpoint;
use super::signature::check_signatures;
use crate::config::url::parse_callable;
use crate::domain::a2a::card::{RemoteBinding, RemoteCard, RemoteInterface, VERSION};
use crate::domain::a2a::fault::{RemoteReplyError, read_answer};
use crate::domain::a2a::message::RemoteCall;
use crate::domain::decode;
use crate::domain::limits::{A2A_ANSWER_BYTES, A2A_CARD_BYTES, A2A_CARD_TIME, A2A_REQUEST_SECONDS};
use crate::venue::failure::OpError;
use crate::venue::outbound::departure::Departure;
use crate::venue::outbound::owner_headers::ResolvedHeaders;
use crate::venue::outbound::send::{AnswerBodyError, HttpSender, OutgoingRequest, read_body};
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde_json::Value;
use std::time::Duration;

/// Header with the version of the protocol.
const VERSION_HEADER: HeaderName = HeaderName::from_static("a2a-version");

/// Header by which servers know a request that comes again.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Media types of answers.
const ACCEPTED: &str = "application/a2a+json, application/json";

/// Media types of requests, by binding.
const JSON: &str = "application/json";
const A2A_JSON: &str = "application/a2a+json";

/// An agent elsewhere as it is asked for one owner.
pub(crate) struct AgentPeer<'a> {
    /// Place of the agent.
    pub(crate) endpoint: &'a A2aEndpoint,
    /// Client of all hosts.
    pub(crate) hosts: &'a HttpSender,
    /// Headers of the configuration, with the owner's secrets.
    pub(crate) resolved: ResolvedHeaders,
}

/// Why a request has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PeerFailure {
    /// The request could not be sent, or its answer broke off.
    #[error("{0}")]
    Transport(OpError),
    /// The agent answered with an error, or with what is no answer.
    #[error("{0}")]
    Answer(#[from] RemoteReplyError),
}

impl From<OpError> for PeerFailure {
    fn from(error: OpError) -> Self {
        Self::Transport(error)
    }
}

impl AgentPeer<'_> {
    /// Returns how long one request may take.
    fn request_time(&self) -> Duration {
        Duration::from_secs(self.endpoint.settings().timeout.unwrap_or(A2A_REQUEST_SECONDS))
    }

    /// Reads the card of the agent, and checks its signatures and that it can be used.
    pub(crate) async fn fetch_card(&self) -> Result<Value, OpError> {
        let shown = self.endpoint.display_name();
        let read = tokio::time::timeout(A2A_CARD_TIME, self.read_card(&shown)).await;
        let seconds = A2A_CARD_TIME.as_secs();
        let read = read.unwrap_or_else(|_| Err(OpError::Timeout(format!("{shown}: no whole card within {seconds} s"))));
        // People read the error, and it is logged: an agent may have repeated in it what it was sent.
        read.map_err(|error| error.map_text(|text| self.resolved.mask.text(&text).into_owned()))
    }

    async fn read_card(&self, shown: &str) -> Result<Value, OpError> {
        let url = self.endpoint.card_url();
        let mut headers = self.resolved.headers.clone();
        headers.insert(header::ACCEPT, HeaderValue::from_static(JSON));
        let ask = OutgoingRequest {
            method: Method::GET,
            url: url.clone(),
            headers,
            body: None,
            timeout: None,
            repeatable: true,
            shown: Some(shown.to_owned()),
        };
        let response = self.endpoint.sender(url, self.hosts).open(&ask, &Departure::default()).await?;
        match response.status().as_u16() {
            200..300 => {}
            status @ (401 | 403) => {
                return Err(OpError::Denied(format!(
                    "{shown} gives its card only to others (status {status}); set a header of it in `headers`, or \
                     `key_env` or `secret`"
                )));
            }
            status => {
                return Err(OpError::Upstream(format!(
                    "{shown} answered {status} where its card should be, `{url}`; `url` is the address of the agent, or \
                     of its card"
                )));
            }
        }
        let body = read_body(response, A2A_CARD_BYTES).await.map_err(|error| body_failure(&error))?;
        let card = decode::json(&body);
        let card = card.map_err(|error| OpError::Upstream(format!("{shown}: its card can't be read: {error}")))?;
        check_signatures(&card, self.endpoint.keys()).map_err(|error| OpError::Denied(format!("{shown}: {error}")))?;
        // The card is stored, and models read it.
        let card = self.resolved.mask.value(card);
        RemoteCard::read(&card).map_err(|error| OpError::Upstream(format!("{shown}: {error}")))?;
        Ok(card)
    }

    /// Sends a request to an address of the agent. `key` is the id under which a message is known again, and a request
    /// without one may be repeated. `departure` says afterwards whether it may have left.
    pub(crate) async fn ask(
        &self,
        interface: &RemoteInterface,
        call: &RemoteCall,
        key: Option<&str>,
        departure: &Departure,
    ) -> Result<Value, PeerFailure> {
        let limit = self.request_time();
        let late = |_| {
            let text = format!("{}: no whole answer within {} s", self.endpoint.display_name(), limit.as_secs());
            Err(PeerFailure::Transport(OpError::Timeout(text)))
        };
        tokio::time::timeout(limit, self.send(interface, call, key, departure)).await.unwrap_or_else(late)
    }

    async fn send(
        &self,
        interface: &RemoteInterface,
        call: &RemoteCall,
        key: Option<&str>,
        departure: &Departure,
    ) -> Result<Value, PeerFailure> {
        let url = parse_callable(&call.url)
            .map_err(|error| OpError::Upstream(format!("{}: its card: {error}", self.endpoint.display_name())))?;
        let mut headers = self.headers_for(&url)?;
        if let Some(key) = key {
            let value = HeaderValue::from_str(key);
            headers.insert(IDEMPOTENCY_KEY, value.map_err(|_| OpError::Invalid("the id of the message".to_owned()))?);
        }
        let kind = if interface.binding == RemoteBinding::JsonRpc { JSON } else { A2A_JSON };
        let ask = OutgoingRequest {
            method: if call.body.is_some() { Method::POST } else { Method::GET },
            headers,
            body: call.body.as_ref().map(|body| (body.to_string().into_bytes().into(), HeaderValue::from_static(kind))),
            timeout: None,
            repeatable: key.is_none(),
            shown: Some(self.endpoint.display_name()),
            url,
        };
        let response = self.endpoint.sender(&ask.url, self.hosts).open(&ask, departure).await?;
        let status = response.status().as_u16();
        let body = read_body(response, A2A_ANSWER_BYTES).await.map_err(|error| body_failure(&error))?;
        Ok(read_answer(interface.binding, status, &body)?)
    }

    /// Returns the headers for a URL. Those of the configuration go to the host of the card alone.
    fn headers_for(&self, url: &Url) -> Result<HeaderMap, OpError> {
        let is_own = url.origin() == self.endpoint.card_url().origin();
        if !is_own && self.endpoint.has_headers() {
            let place = |url: &Url| url.origin().ascii_serialization();
            return Err(OpError::Denied(format!(
                "the card of the {} names `{}` as its address, and the headers of the configuration go to `{}` alone: \
                 name that place as `url`, or leave the headers out",
                self.endpoint.display_name(),
                place(url),
                place(self.endpoint.card_url()),
            )));
        }
        let mut headers = if is_own { self.resolved.headers.clone() } else { HeaderMap::new() };
        headers.insert(header::ACCEPT, HeaderValue::from_static(ACCEPTED));
        headers.insert(VERSION_HEADER, HeaderValue::from_static(VERSION));
        Ok(headers)
    }
}

fn body_failure(error: &AnswerBodyError) -> OpError {
    let whose = if matches!(error, AnswerBodyError::TooLarge { .. }) { "its" } else { "the" };
    OpError::Upstream(format!("{whose} {error}"))
}
