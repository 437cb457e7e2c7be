//! One request over HTTP and the message that answers it, in JSON or in a stream.

use super::call::Exchanged;
use super::endpoint::McpEndpoint;
use super::error::McpFailure;
use crate::domain::call::SentMarks;
use crate::domain::limits::MCP_MESSAGE_BYTES;
use crate::domain::mcp::header::encode_value;
use crate::domain::mcp::message::{McpRequest, RpcError, ServerMessage, reply_to_server};
use crate::domain::mcp::revision::{HANDSHAKE, ProtocolEra, STATELESS};
use crate::domain::mcp::stream::{MessageStream, is_id};
use crate::venue::failure::OpError;
use crate::venue::outbound::departure::Departure;
use crate::venue::outbound::endpoint::add_marks;
use crate::venue::outbound::send::{AnswerBodyError, HttpSender, OutgoingRequest, read_body};
use bytes::BytesMut;
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Response};
use serde_json::Value;
use std::time::Duration;

/// Header with the id of a session.
pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Longest body of a refusal that is read.
const REFUSAL_BYTES: usize = 64 * 1024;

/// Times that a broken stream of a session is asked for again.
const RESUMPTIONS: usize = 3;

/// Longest time for a message that no answer is awaited for.
const NOTICE_TIME: Duration = Duration::from_secs(5);

/// What a session adds to each request of the revisions with a handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SessionHeaders {
    /// Id of the session; servers without state have none.
    pub(super) id: Option<String>,
    /// Revision that the server has chosen; `None` before it has.
    pub(super) revision: Option<&'static str>,
    /// Whether the server works on calls as tasks.
    pub(super) has_tasks: bool,
}

/// How a request is sent and how long its answer is awaited.
pub(super) struct WireExchange<'a> {
    pub(super) endpoint: &'a McpEndpoint,
    pub(super) hosts: &'a HttpSender,
    /// Headers of the configuration, with the owner's secrets.
    pub(super) headers: &'a HeaderMap,
    /// Time without progress.
    pub(super) patience: Duration,
    /// Most bytes of the answer.
    pub(super) max_bytes: usize,
    pub(super) departure: &'a Departure,
    /// Whether the request may be sent again.
    pub(super) repeatable: bool,
    /// Marks of a call with an effect.
    pub(super) marks: Option<&'a SentMarks>,
}

impl WireExchange<'_> {
    /// Sends a request of the stateless revision. `params` are headers of its arguments.
    pub(super) async fn ask_stateless(
        &self,
        request: &McpRequest,
        params: &[(String, String)],
    ) -> Result<Exchanged, McpFailure> {
        let mut headers = self.base_headers(STATELESS);
        headers.insert(METHOD, HeaderValue::from_static(request.method));
        if let Some(name) = &request.name {
            headers.insert(NAME, plain_value(&encode_value(name))?);
        }
        for (name, value) in params {
            let name = HeaderName::from_bytes(name.as_bytes());
            let name = name.map_err(|_| OpError::Invalid("an argument's header has no legal name".to_owned()))?;
            headers.insert(name, plain_value(value)?);
        }
        self.ask(request, headers, ProtocolEra::Stateless).await
    }

    /// Sends a request of a session.
    pub(super) async fn ask_in_session(
        &self,
        request: &McpRequest,
        session: &SessionHeaders,
    ) -> Result<Exchanged, McpFailure> {
        let headers = self.session_headers(session)?;
        match self.ask(request, headers, ProtocolEra::Handshake).await {
            Err(McpFailure::Status { status: 404, .. } | McpFailure::Rpc { status: 404, .. })
                if session.id.is_some() =>
            {
                Err(McpFailure::SessionOver)
            }
            asked => asked,
        }
    }

    /// Sends a notification of a session, and doesn't wait for more than its receipt.
    pub(super) async fn notify(&self, body: &Value, session: &SessionHeaders) -> Result<(), McpFailure> {
        let sent = self.open(Method::POST, Some(body), self.session_headers(session)?);
        let response = tokio::time::timeout(NOTICE_TIME, sent).await;
        let response = response.unwrap_or_else(|_| Err(McpFailure::Silent { seconds: NOTICE_TIME.as_secs() }))?;
        match response.status().as_u16() {
            status @ 400.. => Err(McpFailure::Status { status, challenge: None }),
            _ => Ok(()),
        }
    }

    /// Prepares a notification of a session that is perhaps sent later.
    pub(super) fn prepare_notice(
        &self,
        body: &Value,
        session: &SessionHeaders,
    ) -> Result<reqwest::RequestBuilder, OpError> {
        let headers = self.session_headers(session)?;
        self.endpoint.sender(self.hosts).prepare(self.endpoint.url(), headers, body)
    }

    /// Ends a session at the server, as far as it lets it. That this has left says nothing of the request.
    pub(super) async fn end_session(&self, session: &SessionHeaders) {
        if session.id.is_none() {
            return;
        }
        if let Ok(headers) = self.session_headers(session) {
            let departure = Departure::default();
            let sent = self.open_noting(Method::DELETE, None, headers, &departure);
            let _ = tokio::time::timeout(NOTICE_TIME, sent).await;
        }
    }

    fn base_headers(&self, revision: &'static str) -> HeaderMap {
        let mut headers = self.headers.clone();
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(revision));
        headers
    }

    fn session_headers(&self, session: &SessionHeaders) -> Result<HeaderMap, OpError> {
        let mut headers = self.base_headers(session.revision.unwrap_or(HANDSHAKE));
        if session.revision.is_none() {
            headers.remove(PROTOCOL_VERSION);
        }
        if let Some(id) = &session.id {
            headers.insert(SESSION_ID, plain_value(id)?);
        }
        Ok(headers)
    }

    async fn open(&self, method: Method, body: Option<&Value>, headers: HeaderMap) -> Result<Response, McpFailure> {
        self.open_noting(method, body, headers, self.departure).await
    }

    async fn open_noting(
        &self,
        method: Method,
        body: Option<&Value>,
        headers: HeaderMap,
        departure: &Departure,
    ) -> Result<Response, McpFailure> {
        let body =
            body.map(|body| (body.to_string().into_bytes().into(), HeaderValue::from_static("application/json")));
        let ask = OutgoingRequest {
            method,
            url: self.endpoint.url().clone(),
            headers,
            body,
            timeout: None,
            repeatable: self.repeatable,
            shown: Some(self.endpoint.display_name()),
        };
        Ok(self.endpoint.sender(self.hosts).open(&ask, departure).await?)
    }

    async fn ask(&self, request: &McpRequest, headers: HeaderMap, era: ProtocolEra) -> Result<Exchanged, McpFailure> {
        let body = request.body(era, request.method == "tools/call");
        let silent = || McpFailure::Silent { seconds: self.patience.as_secs() };
        // The marks are of the call alone: who sees the key twice takes the second request for the same call.
        let mut marked = headers.clone();
        if let Some(marks) = self.marks {
            add_marks(&mut marked, marks)?;
        }
        let sent = self.open(Method::POST, Some(&body), marked);
        let response = tokio::time::timeout(self.patience, sent).await.unwrap_or_else(|_| Err(silent()))?;
        let status = response.status().as_u16();
        let session = response.headers().get(SESSION_ID).and_then(|id| id.to_str().ok()).filter(|id| is_id(id));
        let session = session.map(str::to_owned);
        let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if !response.status().is_success() {
            let read = tokio::time::timeout(self.patience, refusal(response, request.id)).await;
            return Err(read.unwrap_or_else(|_| silent()));
        }
        let (outcome, bytes) = if kind == "text/event-stream" {
            self.read_stream(response, request, &headers, era).await?
        } else {
            let read = tokio::time::timeout(self.patience, read_limited(response, self.max_bytes)).await;
            let body = read.unwrap_or_else(|_| Err(silent()))?;
            (read_answer(&body, request.id)?, body.len())
        };
        match outcome {
            Ok(result) => Ok(Exchanged { result, session, bytes }),
            Err(error) => Err(McpFailure::Rpc { status, error }),
        }
    }

    /// Reads a stream until the answer. A stream of a session that breaks off is asked for again from its last event on.
    async fn read_stream(
        &self,
        response: Response,
        request: &McpRequest,
        headers: &HeaderMap,
        era: ProtocolEra,
    ) -> Result<(RpcOutcome, usize), McpFailure> {
        let mut parser = MessageStream::default();
        let mut response = response;
        for _ in 0..=RESUMPTIONS {
            let ended = match self.read_messages(response, &mut parser, request, headers, era).await? {
                StreamEnd::Answer(outcome, bytes) => return Ok((outcome, bytes)),
                StreamEnd::Closed => McpFailure::Ended,
                StreamEnd::Broken(error) => error,
            };
            let Some(last) = parser.last_id().filter(|_| era == ProtocolEra::Handshake) else { return Err(ended) };
            let mut headers = headers.clone();
            headers.insert(LAST_EVENT_ID, plain_value(last)?);
            headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
            parser.break_off();
            tokio::time::sleep(parser.retry()).await;
            let sent = self.open(Method::GET, None, headers);
            // The request has left, whatever hinders this one.
            response = match tokio::time::timeout(self.patience, sent).await {
                Ok(Ok(response)) if response.status().is_success() => response,
                Ok(_) | Err(_) => return Err(ended),
            };
        }
        Err(McpFailure::Ended)
    }

    async fn read_messages(
        &self,
        response: Response,
        parser: &mut MessageStream,
        request: &McpRequest,
        headers: &HeaderMap,
        era: ProtocolEra,
    ) -> Result<StreamEnd, McpFailure> {
        let mut response = response;
        let patience = tokio::time::sleep(self.patience);
        let mut patience = std::pin::pin!(patience);
        let silent = || McpFailure::Silent { seconds: self.patience.as_secs() };
        loop {
            let chunk = tokio::select! {
                biased;
                chunk = response.chunk() => chunk,
                () = &mut patience => return Err(silent()),
            };
            let chunk = match chunk {
                Ok(Some(chunk)) => chunk,
                Ok(None) => return Ok(StreamEnd::Closed),
                Err(error) => {
                    let text = format!("the stream broke off: {}", error.without_url());
                    return Ok(StreamEnd::Broken(McpFailure::Transport(OpError::Upstream(text))));
                }
            };
            for message in parser.feed(&chunk)? {
                if message.len() > self.max_bytes {
                    return Err(McpFailure::Answer(format!(
                        "a message of its stream has more than {} bytes",
                        self.max_bytes
                    )));
                }
                match read_message(&message, request.id)? {
                    ServerMessage::Answer { id, outcome }
                        if id == Some(request.id) || (id.is_none() && outcome.is_err()) =>
                    {
                        return Ok(StreamEnd::Answer(outcome, message.len()));
                    }
                    ServerMessage::Progress => patience.set(tokio::time::sleep(self.patience)),
                    ServerMessage::ListChanged => self.endpoint.note_list_change(),
                    ServerMessage::Request { id, method } if era == ProtocolEra::Handshake => {
                        let reply = reply_to_server(&id, &method);
                        let sent = self.open(Method::POST, Some(&reply), headers.clone());
                        tokio::select! {
                            biased;
                            _ = tokio::time::timeout(NOTICE_TIME, sent) => {}
                            () = &mut patience => return Err(silent()),
                        }
                    }
                    ServerMessage::Request { .. } | ServerMessage::Notice | ServerMessage::Answer { .. } => {}
                }
            }
        }
    }
}

/// Result or error of a request.
type RpcOutcome = Result<Value, RpcError>;

/// Why the reading of a stream has ended.
enum StreamEnd {
    Answer(RpcOutcome, usize),
    Closed,
    Broken(McpFailure),
}

fn plain_value(text: &str) -> Result<HeaderValue, OpError> {
    HeaderValue::from_str(text)
        .map_err(|_| OpError::Invalid("a value that goes into a header isn't printable".to_owned()))
}

fn read_message(text: &[u8], id: u64) -> Result<ServerMessage, McpFailure> {
    ServerMessage::read(text, id).map_err(|error| McpFailure::Answer(format!("its answer can't be read: {error}")))
}

/// Reads a body that is the answer to a request.
fn read_answer(body: &[u8], id: u64) -> Result<RpcOutcome, McpFailure> {
    match read_message(body, id)? {
        ServerMessage::Answer { id: answered, outcome }
            if answered == Some(id) || (answered.is_none() && outcome.is_err()) =>
        {
            Ok(outcome)
        }
        _ => Err(McpFailure::Answer("its answer is of another request".to_owned())),
    }
}

/// Reads a refusal: an error of the protocol where there is one.
async fn refusal(response: Response, id: u64) -> McpFailure {
    let status = response.status().as_u16();
    let challenges: Vec<_> =
        response.headers().get_all(header::WWW_AUTHENTICATE).iter().filter_map(|text| text.to_str().ok()).collect();
    let challenge = (!challenges.is_empty()).then(|| challenges.join(", "));
    let body = read_limited(response, REFUSAL_BYTES).await.unwrap_or_default();
    match ServerMessage::read(&body, id) {
        Ok(ServerMessage::Answer { outcome: Err(error), .. }) if !matches!(status, 401 | 403) => {
            McpFailure::Rpc { status, error }
        }
        _ => McpFailure::Status { status, challenge },
    }
}

/// Reads a body of at most so many bytes.
async fn read_limited(response: Response, limit: usize) -> Result<BytesMut, McpFailure> {
    read_body(response, limit.min(MCP_MESSAGE_BYTES)).await.map_err(|error| match error {
        AnswerBodyError::TooLarge { .. } => McpFailure::Answer(format!("its {error}")),
        AnswerBodyError::Broken { .. } => McpFailure::Transport(OpError::Upstream(format!("the {error}"))),
    })
}
