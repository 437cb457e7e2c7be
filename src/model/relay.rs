//! Between the provider library and the providers: what they answer is bounded before the library reads it.
//!
//! The library reads an error whole, joins the pieces of an event without an end, makes room for as many calls as a
//! provider counts to, and has no hook to stop it. So it is given an address of this process for each call, which
//! nobody else knows and which ends with the call; from there the request goes on unchanged, and the answer comes back
//! frame by frame, as far as it is bounded.

use crate::domain::limits::{ERROR_BODY_BYTES, MODEL_REQUEST_BYTES};
use crate::model::ModelError;
use crate::model::bounded::{Bounded, Framing};
use crate::model::provider_error::{network, too_much};
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use reqwest::Url;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Headers of an answer that say something to the library or about when to ask again.
static TOLD: [HeaderName; 4] =
    [header::CONTENT_TYPE, header::RETRY_AFTER, HeaderName::from_static("retry-after-ms"), header::DATE];
/// Headers of a request that belong to the connection.
static OWN: [HeaderName; 5] =
    [header::HOST, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CONNECTION, header::ACCEPT_ENCODING];

/// Of a header of an answer so many characters are told.
const HEADER_CHARS: usize = 100;

/// The address that the library calls.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    routes: Routes,
    server: JoinHandle<()>,
}

/// Where a call really goes.
#[derive(Debug)]
pub struct Way {
    /// Who makes it.
    pub client: reqwest::Client,
    /// What the library adds its part to; ends with `/`.
    pub base: Url,
    /// `provider/name`.
    pub model: String,
    /// What ends a frame of a reply.
    pub framing: Framing,
    /// Most bytes of a reply.
    pub limit: usize,
}

/// The way of one call, as long as it is held.
#[derive(Debug)]
pub struct RelayPassage {
    url: String,
    token: String,
    route: Arc<Route>,
    routes: Routes,
}

#[derive(Debug)]
struct Route {
    way: Way,
    over: CancellationToken,
    /// Why what the library got isn't the whole reply.
    failure: Mutex<Option<ModelError>>,
    noted: Mutex<Noted>,
}

/// What the library doesn't tell of an answer.
#[derive(Debug, Clone, Default)]
pub struct Noted {
    /// What it is, where it isn't what was asked for.
    pub other: Option<String>,
    /// The words in which it refuses; empty when it doesn't.
    pub refusal: String,
}

#[derive(Debug, Clone, Default)]
struct Routes(Arc<Mutex<HashMap<String, Arc<Route>>>>);

impl Relay {
    /// Listens, on this machine alone.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let routes = Routes::default();
        let pages = Router::new().fallback(pass).with_state(routes.clone());
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, pages).await {
                tracing::error!(%error, "calls of models can't be passed on any more");
            }
        });
        Ok(Self { address, routes, server })
    }

    /// Opens a way for one call.
    pub fn open(&self, way: Way) -> RelayPassage {
        let token = uuid::Uuid::new_v4().simple().to_string();
        let mut url = format!("http://{}/{token}/", self.address);
        if let Some(query) = way.base.query() {
            url = format!("{url}?{query}");
        }
        let route =
            Arc::new(Route { way, over: CancellationToken::new(), failure: Mutex::default(), noted: Mutex::default() });
        self.routes.0.lock().insert(token.clone(), Arc::clone(&route));
        RelayPassage { url, token, route, routes: self.routes.clone() }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl RelayPassage {
    /// What the library is given as the provider's address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Why what the library got isn't the whole reply, whatever it made of it.
    pub fn failure(&self) -> Option<ModelError> {
        self.route.failure.lock().take()
    }
}

impl RelayPassage {
    /// What was noted of the answer on its way.
    pub fn noted(&self) -> Noted {
        self.route.noted.lock().clone()
    }
}

impl Drop for RelayPassage {
    fn drop(&mut self) {
        self.routes.0.lock().remove(&self.token);
        self.route.over.cancel();
    }
}

async fn pass(State(routes): State<Routes>, request: Request) -> Response {
    let mut parts = request.uri().path().splitn(3, '/').skip(1);
    let (token, rest) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default().to_owned());
    let route = routes.0.lock().get(token).cloned();
    let Some(route) = route else { return StatusCode::NOT_FOUND.into_response() };
    tokio::select! {
        () = route.over.cancelled() => StatusCode::GONE.into_response(),
        response = Arc::clone(&route).forward(&rest, request) => response,
    }
}

impl Route {
    fn fail(&self, error: ModelError) {
        *self.failure.lock() = Some(error);
    }

    async fn forward(self: Arc<Self>, rest: &str, request: Request) -> Response {
        let mut url = self.way.base.clone();
        url.set_path(&format!("{}{rest}", self.way.base.path()));
        url.set_query(request.uri().query());
        let (head, body) = request.into_parts();
        let mut headers = head.headers;
        for name in &OWN {
            headers.remove(name);
        }
        // The library made it from a prompt, which is bounded.
        let Ok(body) = to_bytes(body, MODEL_REQUEST_BYTES).await else {
            return StatusCode::PAYLOAD_TOO_LARGE.into_response();
        };
        match self.way.client.request(head.method, url).headers(headers).body(body).send().await {
            Ok(answer) => self.answer(answer).await,
            Err(error) => {
                self.fail(network(&error, &self.way.model));
                StatusCode::BAD_GATEWAY.into_response()
            }
        }
    }

    async fn answer(self: Arc<Self>, mut answer: reqwest::Response) -> Response {
        let status = answer.status();
        let told = TOLD.iter().filter_map(|name| Some((name.clone(), answer.headers().get(name)?.clone())));
        let headers: HeaderMap = told.collect();
        if status.is_success() {
            self.noted.lock().other = other(self.way.framing, status, answer.headers());
            let bounded = Bounded::new(self.way.framing, self.way.limit);
            let reply = Reply { route: self, answer, bounded: Some(bounded) };
            return (status, headers, Body::from_stream(futures::stream::unfold(reply, Reply::next))).into_response();
        }
        // The beginning says what is wrong; what is cut off there is no JSON any more and is told as it stands.
        let mut begun = Vec::new();
        while begun.len() < ERROR_BODY_BYTES
            && let Ok(Some(piece)) = answer.chunk().await
        {
            begun.extend_from_slice(&piece);
        }
        begun.truncate(ERROR_BODY_BYTES);
        (status, headers, begun).into_response()
    }
}

/// What an answer is that was to be a stream of events and doesn't look like one.
fn other(framing: Framing, status: StatusCode, headers: &HeaderMap) -> Option<String> {
    let text = |name: HeaderName| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let (kind, encoding) = (text(header::CONTENT_TYPE), text(header::CONTENT_ENCODING));
    let streams = kind.as_ref().is_some_and(|kind| kind.to_ascii_lowercase().contains("event-stream"));
    if framing != Framing::Events || streams && encoding.is_none() {
        return None;
    }
    let cut = |text: String| text.chars().take(HEADER_CHARS).collect::<String>();
    let kind = kind.map_or_else(|| "no content-type".to_owned(), |kind| format!("content-type `{}`", cut(kind)));
    let encoding = encoding.map(|encoding| format!(", content-encoding `{}`", cut(encoding))).unwrap_or_default();
    Some(format!("{}, {kind}{encoding}", status.as_u16()))
}

/// A reply on its way back.
struct Reply {
    route: Arc<Route>,
    answer: reqwest::Response,
    /// `None` when it is over.
    bounded: Option<Bounded>,
}

impl Reply {
    /// The next frames. A reply that fails ends here as if it were whole, so that what came before arrives; the
    /// failure is told beside it.
    async fn next(mut self) -> Option<(io::Result<Bytes>, Self)> {
        let mut bounded = self.bounded.take()?;
        loop {
            let piece = tokio::select! {
                () = self.route.over.cancelled() => return None,
                piece = self.answer.chunk() => piece,
            };
            let model = &self.route.way.model;
            let frames = match piece {
                Ok(Some(piece)) => bounded.push(&piece),
                Ok(None) => {
                    return match bounded.end() {
                        Ok(rest) => Some((Ok(rest), self)),
                        Err(error) => {
                            self.route.fail(too_much(model, &error));
                            None
                        }
                    };
                }
                Err(error) => {
                    self.route.fail(network(&error, model));
                    return None;
                }
            };
            match frames {
                Ok(frames) if frames.is_empty() => {}
                Ok(frames) => {
                    bounded.refusal().clone_into(&mut self.route.noted.lock().refusal);
                    self.bounded = Some(bounded);
                    return Some((Ok(frames), self));
                }
                Err(error) => {
                    self.route.fail(too_much(model, &error));
                    return None;
                }
            }
        }
    }
}
