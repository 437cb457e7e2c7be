//! Real providers: the codecs of [`wire`] over one HTTP client, within limits of bytes.

use crate::domain::charge::{CallStage, is_end_unknown};
use crate::domain::chat::{self, Arguments, ChatMessage, ModelRequest, ModelSettings, Reply};
use crate::domain::ids::secret::SecretName;
use crate::domain::media::Attachment;
use crate::domain::secret::{Mask, PlainSecret};
use crate::domain::wire::dialect::KeyHeader;
use crate::domain::wire::{self, DecodeError, Decoder, EncodedRequest};
use crate::model::endpoint::{CallTarget, ProviderOptions, is_own_server, resolve};
use crate::model::provider_error::{AnswerHead, decoding, network, proxy_error, refusal};
use crate::model::target_error::TargetError;
use crate::model::{LiveText, Model, ModelError};
use crate::venue::outbound::departure::WatchedBody;
use crate::venue::secrets::OpenedSecret;
use async_trait::async_trait;
use reqwest::header::CONTENT_TYPE;
use std::sync::Arc;
use std::time::Duration;

/// Longest wait for a connection: a reachable host answers within a round trip.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Idle connections per host; a worker runs few calls at once.
const IDLE_CONNECTIONS: usize = 8;
/// Longest idle time of a connection: small model servers close theirs after 5 s, and a request sent at that moment is
/// lost.
const IDLE_TIME: Duration = Duration::from_secs(4);
/// Longest wait for the end of a connection whose reply is complete, so that it can be reused.
const CONNECTION_END_TIME: Duration = Duration::from_millis(100);
/// Longest wait for data after the end of a reply: its usage, in most formats.
const TRAILER_TIME: Duration = Duration::from_secs(3);
/// Bytes of a refusal that are read at most.
const REFUSAL_BYTES: usize = 64 * 1024;
/// Name that replaces the key of a call in errors.
const VENUE_KEY: &str = "model-key";

/// Client of all providers that are called over HTTP.
#[derive(Debug)]
pub struct ModelProvider {
    client: reqwest::Client,
    /// Client for URLs that the configuration doesn't name: it reaches only addresses that `http/*` may.
    guarded_client: reqwest::Client,
    /// Client for calls through the proxy.
    proxied_client: reqwest::Client,
    options: ProviderOptions,
}

impl ModelProvider {
    /// Makes the clients. Fails if TLS can't be set up.
    pub fn new(options: ProviderOptions) -> Result<ModelProvider, reqwest::Error> {
        // A redirect would send the key to another host; a proxy of the environment would see the prompt.
        let builder = || {
            reqwest::Client::builder()
                .no_proxy()
                .redirect(reqwest::redirect::Policy::none())
                .connect_timeout(CONNECT_TIMEOUT)
                .tcp_nodelay(true)
                .pool_max_idle_per_host(IDLE_CONNECTIONS)
                .pool_idle_timeout(IDLE_TIME)
        };
        let client = builder().build()?;
        // Most venues allow no hosts: one client is enough.
        let guarded = if options.unlisted_hosts.hosts.is_empty() {
            client.clone()
        } else {
            builder().dns_resolver(options.unlisted_hosts.resolver()).build()?
        };
        let proxied =
            if options.proxy.is_direct() { client.clone() } else { options.proxy.configure(builder())?.build()? };
        Ok(ModelProvider { client, guarded_client: guarded, proxied_client: proxied, options })
    }

    async fn call(
        &self,
        target: &CallTarget,
        request: &ModelRequest,
        masks: Masks<'_>,
        live: &LiveText,
    ) -> Result<Reply, ModelError> {
        let model = request.model.id();
        let encoded = wire::encode(request, &target.dialect, &wire::cache_key(request))
            .map_err(|error| ModelError::Permanent { model: model.clone(), reason: error.to_string() })?;
        let proxy = &self.options.proxy;
        if target.is_unlisted && proxy.carries(&target.base_url) {
            let checked = self.options.unlisted_hosts.check_name(&target.base_url).await;
            checked.map_err(|error| ModelError::Unusable { model: model.clone(), reason: error.to_string() })?;
        }
        let answer =
            self.send(target, &encoded, live).await.map_err(|error| match proxy.failure(&target.base_url, &error) {
                Some(failure) => proxy_error(&failure, &model),
                None => network(&error, &model),
            })?;
        if let Some(failure) = proxy.refusal(&target.base_url, answer.status()) {
            live.meter.mark(CallStage::Refused);
            return Err(proxy_error(&failure, &model));
        }
        let head = AnswerHead::from_answer(&answer);
        if !answer.status().is_success() {
            if !is_end_unknown(answer.status().as_u16()) {
                live.meter.mark(CallStage::Refused);
            }
            return Err(refusal(&head, &read_beginning(answer).await, &model, masks.errors));
        }
        live.meter.mark(CallStage::Accepted);
        let decoder =
            Decoder::new(&target.dialect, &encoded, &request.model.reasoning_identity(), request.model.max_tokens);
        self.read(answer, decoder, masks.replies, live).await.map_err(|failure| match failure {
            ReadFailure::Decode(error) => decoding(error, &head, &model, masks.errors),
            ReadFailure::Network(error) => network(&error, &model),
        })
    }

    async fn send(
        &self,
        target: &CallTarget,
        encoded: &EncodedRequest,
        live: &LiveText,
    ) -> Result<reqwest::Response, reqwest::Error> {
        let client = match (self.options.proxy.carries(&target.base_url), target.is_unlisted) {
            (true, _) => &self.proxied_client,
            (false, true) => &self.guarded_client,
            (false, false) => &self.client,
        };
        // The base ends with `/`, and no path of a codec leaves it.
        let url = format!("{}{}", target.base_url, encoded.request.path);
        let body = serde_json::to_vec(&encoded.request.body).expect("values serialise");
        let meter = Arc::clone(&live.meter);
        let body = reqwest::Body::wrap(WatchedBody::new(body.into(), move || meter.mark(CallStage::Sent)));
        let mut post =
            client.post(url).header(CONTENT_TYPE, "application/json").headers(target.headers.clone()).body(body);
        for (name, value) in &encoded.request.headers {
            post = post.header(*name, value);
        }
        let post = match target.dialect.key_header {
            KeyHeader::Bearer => post.bearer_auth(&target.key),
            KeyHeader::Named(name) => post.header(name, &target.key),
        };
        post.send().await
    }

    /// Reads a reply to its end and sends its text on.
    async fn read(
        &self,
        mut answer: reqwest::Response,
        mut decoder: Decoder,
        mask: &Mask,
        live: &LiveText,
    ) -> Result<Reply, ReadFailure> {
        let mut shown = mask.stream();
        // The receiver may be gone: the reply is complete without it.
        let mut show = |text: String| {
            let text = if mask.is_empty() { text } else { shown.push(&text) };
            if !text.is_empty() {
                live.send(text);
            }
        };
        let feed = |decoder: &mut Decoder, bytes: &[u8]| {
            let fed = decoder.feed(bytes);
            live.meter.record(decoder.usage(), decoder.content_bytes(), decoder.is_whole());
            fed
        };
        while !decoder.is_whole() {
            match answer.chunk().await {
                Ok(Some(bytes)) => show(feed(&mut decoder, &bytes)?),
                Ok(None) => break,
                Err(error) => return Err(ReadFailure::Network(error)),
            }
        }
        // A complete reply is not requested again, whatever happens to the connection; its usage may still come.
        let rest = async {
            while !decoder.is_done() {
                let Ok(Some(bytes)) = answer.chunk().await else { return };
                let Ok(text) = feed(&mut decoder, &bytes) else { return };
                show(text);
            }
            let _ = tokio::time::timeout(CONNECTION_END_TIME, answer.chunk()).await;
        };
        let _ = tokio::time::timeout(TRAILER_TIME, rest).await;
        let (rest, reply) = decoder.end()?;
        show(rest);
        if !mask.is_empty() {
            live.send(shown.finish());
        }
        Ok(reply)
    }
}

/// Reason why a reply was not read to its end.
enum ReadFailure {
    Decode(DecodeError),
    Network(reqwest::Error),
}

impl From<DecodeError> for ReadFailure {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

/// Reads the beginning of a refusal, as far as it came.
async fn read_beginning(mut answer: reqwest::Response) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < REFUSAL_BYTES {
        let Ok(Some(more)) = answer.chunk().await else { break };
        bytes.extend_from_slice(&more);
    }
    bytes.truncate(REFUSAL_BYTES);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[async_trait]
impl Model for ModelProvider {
    async fn complete(
        &self,
        request: &ModelRequest,
        secrets: &[OpenedSecret],
        live: &LiveText,
    ) -> Result<Reply, ModelError> {
        let mut mask = Mask::default();
        for secret in secrets {
            mask.add(&secret.name, &secret.value);
        }
        let target = resolve(&request.model, secrets, &self.options)
            .map_err(|error| ModelError::Unusable { model: request.model.id(), reason: error.to_string() })?;
        let errors = mask_key(&mask, &target.key);
        let masks = Masks { replies: &mask, errors: &errors };
        let mut outcome = self.call(&target, request, masks, live).await;
        // A model without sight would refuse every later request of the session.
        if let Err(error) = &outcome
            && refuses_attachments(error)
            && live.meter.progress().stage == CallStage::Refused
            && let Some(plain) = without_attachments(request)
        {
            tracing::warn!(model = request.model.id(), "the provider refused attachments; asked again without them");
            live.meter.restart();
            outcome = self.call(&target, &plain, masks, live).await;
        }
        outcome.map(|reply| mask_reply(reply, &mask)).map_err(|error| mask_error(error, &errors))
    }

    fn missing_key(&self, model: &ModelSettings) -> Option<String> {
        match resolve(model, &[], &self.options) {
            Err(error @ TargetError::NoKey(_)) => Some(error.to_string()),
            Ok(_) | Err(_) => None,
        }
    }

    fn is_own_server(&self, model: &ModelSettings) -> bool {
        is_own_server(model, &self.options)
    }
}

/// Whether a refusal may be about attachments. Servers of models without sight answer 500, too (llama.cpp: "image input
/// is not supported").
fn refuses_attachments(error: &ModelError) -> bool {
    let (reason, words): (_, &[&str]) = match error {
        ModelError::Permanent { reason, .. } => {
            (reason, &["image", "file", "document", "pdf", "media", "modal", "vision"])
        }
        ModelError::Transient { reason, retry_after: None, .. } => (reason, &["image input", "image_url", "mmproj"]),
        ModelError::Transient { .. }
        | ModelError::Unusable { .. }
        | ModelError::Declined { .. }
        | ModelError::Unbounded { .. } => return false,
    };
    let reason = reason.to_lowercase();
    words.iter().any(|word| reason.contains(word))
}

/// Replaces the attachments of a request by lines of text; `None` if it has none.
fn without_attachments(request: &ModelRequest) -> Option<ModelRequest> {
    let is_loaded = |attachment: &Attachment| attachment.bytes.get().is_some();
    let mut plain = request.clone();
    let mut is_changed = false;
    for message in &mut plain.messages {
        let ChatMessage::User { attachments, .. } = message else { continue };
        for attachment in attachments.iter_mut().filter(|attachment| is_loaded(attachment)) {
            *attachment = attachment.clone().withhold("the provider refused the request with it");
            is_changed = true;
        }
    }
    is_changed.then_some(plain)
}

/// Secrets to replace in a provider's texts.
#[derive(Clone, Copy)]
struct Masks<'m> {
    /// The owner's secrets.
    replies: &'m Mask,
    /// All of them and the key that was sent, owner's or venue's: providers repeat a key that they refuse.
    errors: &'m Mask,
}

/// Adds the sent key to a mask. The dummy of an endpoint without a key is too short for a secret: it may occur in any
/// text.
fn mask_key(mask: &Mask, key: &str) -> Mask {
    let mut mask = mask.clone();
    if let (Ok(name), Ok(value)) = (SecretName::new(VENUE_KEY), PlainSecret::new(key.to_owned())) {
        mask.add(&name, &value);
    }
    mask
}

/// Masks the parts of an error that aren't the provider's words.
fn mask_error(error: ModelError, mask: &Mask) -> ModelError {
    let hide = |reason: String| mask.text(&reason).into_owned();
    match error {
        ModelError::Transient { model, reason, retry_after } => {
            ModelError::Transient { model, reason: hide(reason), retry_after }
        }
        ModelError::Permanent { model, reason } => ModelError::Permanent { model, reason: hide(reason) },
        ModelError::Declined { model, reason } => ModelError::Declined { model, reason: hide(reason) },
        ModelError::Unusable { model, reason } => ModelError::Unusable { model, reason: hide(reason) },
        ModelError::Unbounded { model, reason } => ModelError::Unbounded { model, reason: hide(reason) },
    }
}

/// Masks the owner's secrets in a reply, which goes into transcripts.
fn mask_reply(reply: Reply, mask: &Mask) -> Reply {
    if mask.is_empty() {
        return reply;
    }
    let arguments = |arguments: Arguments| match arguments {
        Arguments::Json(value) => Arguments::Json(mask.value(value)),
        Arguments::Malformed(text) => Arguments::Malformed(mask.text(&text).into_owned()),
    };
    let calls = reply.calls.into_iter();
    // Signed pieces are of no use once they are changed.
    let is_clean = |reasoning: &chat::Reasoning| reasoning.items.iter().all(|item| mask.value(item.clone()) == *item);
    Reply {
        text: mask.text(&reply.text).into_owned(),
        calls: calls.map(|call| chat::ToolCall { arguments: arguments(call.arguments), ..call }).collect(),
        reasoning: reply.reasoning.filter(is_clean),
        usage: reply.usage,
        truncated: reply.truncated,
    }
}
