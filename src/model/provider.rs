//! Real providers through one client library: OpenAI-compatible, Anthropic, Gemini, Ollama and others.

use crate::domain::chat::{self, Arguments, ModelRequest, Reply};
use crate::domain::secret::Mask;
use crate::model::bounded::{self, Framing, TooMuch};
use crate::model::endpoint::{CallTarget, ProviderOptions, resolve};
use crate::model::provider_error::{cut, here, map, no_stream, refused, too_much};
use crate::model::provider_reply::{calls_of, end_of, finish};
use crate::model::relay::{Relay, Way};
use crate::model::{LiveText, Model, ModelError};
use crate::venue::secrets::Secret;
use async_trait::async_trait;
use futures::StreamExt;
use genai::adapter::AdapterKind;
use genai::chat::{
    ChatMessage, ChatOptions, ChatRequest, ChatStreamEvent, ContentPart, MessageContent, Tool, ToolCall, ToolResponse,
};
use genai::resolver::{AuthData, Endpoint};
use genai::{Client, ModelIden, ServiceTarget};
use reqwest::Url;
use reqwest::dns::{Name, Resolve, Resolving};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;

/// Longest wait for a connection: a host that is up answers within a round trip.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Idle connections kept per host; a worker runs few calls at once.
const IDLE_CONNECTIONS: usize = 8;

/// Every provider that is called over HTTP.
#[derive(Debug)]
pub struct ModelProvider {
    /// Speaks all protocols, and calls nothing but the relay.
    library: Client,
    relay: OnceCell<Relay>,
    client: reqwest::Client,
    /// For URLs that the configuration doesn't name: it reaches no address that `http/*` may not.
    guarded: reqwest::Client,
    options: ProviderOptions,
    default_urls: BTreeMap<&'static str, String>,
}

/// Gives no name an address: an adapter that calls its provider past the relay finds nobody.
struct Nobody;

impl Resolve for Nobody {
    fn resolve(&self, name: Name) -> Resolving {
        let error = format!("the provider library called `{}` by itself", name.as_str());
        Box::pin(std::future::ready(Err(error.into())))
    }
}

impl ModelProvider {
    /// Clients with one pool of connections. Fails when TLS can't be set up.
    pub async fn new(options: ProviderOptions) -> Result<ModelProvider, genai::Error> {
        // A redirect would carry `x-api-key` to another host, and a proxy of the environment would see the prompt.
        let builder = || {
            reqwest::Client::builder()
                .redirect(reqwest::redirect::Policy::none())
                .no_proxy()
                .connect_timeout(CONNECT_TIMEOUT)
                .tcp_nodelay(true)
                .pool_max_idle_per_host(IDLE_CONNECTIONS)
        };
        let built = |builder: reqwest::ClientBuilder| {
            builder.build().map_err(|error| genai::Error::ClientBuildFail { cause: error.to_string() })
        };
        let client = built(builder())?;
        // No host may be called in most venues: one client then is enough.
        let guarded = if options.others.hosts.is_empty() {
            client.clone()
        } else {
            built(builder().dns_resolver(options.others.resolver()))?
        };
        let inside = built(builder().dns_resolver(Arc::new(Nobody)))?;
        let library = Client::builder().with_reqwest(inside).build()?;
        let mut default_urls = BTreeMap::new();
        for kind in AdapterKind::all() {
            let target = library.resolve_service_target(ModelIden::new(*kind, "")).await?;
            default_urls.insert(kind.as_lower_str(), target.endpoint.base_url().to_owned());
        }
        Ok(ModelProvider { library, relay: OnceCell::new(), client, guarded, options, default_urls })
    }

    fn default_url(&self, kind: AdapterKind) -> String {
        self.default_urls.get(kind.as_lower_str()).cloned().unwrap_or_default()
    }

    async fn call(
        &self,
        target: CallTarget,
        request: &ModelRequest,
        mask: &Mask,
        live: &LiveText,
    ) -> Result<Reply, ModelError> {
        let model = model_of(request);
        let url = target.base_url.unwrap_or_else(|| self.default_url(target.kind));
        // These adapters of the library call their own provider whatever URL they are given, with a key that may be
        // meant for another; their protocol is OpenAI's.
        let kind = match target.kind {
            AdapterKind::Zai | AdapterKind::Baidu => AdapterKind::OpenAI,
            kind => kind,
        };
        let unusable = |reason: String| ModelError::Unusable { model: model.clone(), reason };
        let way = Way {
            client: if target.strange { &self.guarded } else { &self.client }.clone(),
            base: Url::parse(&url).map_err(|error| unusable(format!("base URL `{url}`: {error}")))?,
            model: model.clone(),
            framing: framing_of(kind),
            limit: bounded::wire_bytes(request.model.max_tokens),
        };
        let relay = self.relay.get_or_try_init(Relay::start).await;
        let passage = relay.map_err(|error| here(&model, &error))?.open(way);
        let service = ServiceTarget {
            endpoint: Endpoint::from_owned(passage.url().to_owned()),
            auth: AuthData::Key(target.key),
            model: ModelIden::new(kind, request.model.name.clone()),
        };
        let outcome = self.ask(service, request, mask, live).await;
        if let Some(failure) = passage.failure() {
            return Err(failure);
        }
        let noted = passage.noted();
        match outcome {
            Err(error) if error == cut(&model) => Err(noted.other.map_or(error, |what| no_stream(&model, &what))),
            Ok(reply) if reply.text.is_empty() && reply.calls.is_empty() && !noted.refusal.is_empty() => {
                Err(refused(&model, &noted.refusal))
            }
            outcome => outcome,
        }
    }

    async fn ask(
        &self,
        service: ServiceTarget,
        request: &ModelRequest,
        mask: &Mask,
        live: &LiveText,
    ) -> Result<Reply, ModelError> {
        let (model, kind) = (model_of(request), service.model.adapter_kind);
        let chat = chat_request(request, kind);
        let options = chat_options(&request.model);
        // The library's Cohere stream drops tool calls; its plain reply has them.
        if kind == AdapterKind::Cohere {
            let reply =
                self.library.exec_chat(service, chat, Some(&options)).await.map_err(|error| map(&error, &model))?;
            let usage = reply.usage.clone();
            let stop = reply.stop_reason.clone();
            let text = reply.content.joined_texts().unwrap_or_default();
            // Nobody watches: the reply is complete without it.
            let _ = live.send(mask.text(&text).into_owned());
            let calls = calls_of(reply.content.into_tool_calls(), kind);
            return finish(text, calls, Some(&usage), stop.as_ref(), &model);
        }
        let mut shown = mask.stream();
        let mut said = Said::of(&request.model);
        let events = self.library.exec_chat_stream(service, chat, Some(&options)).await;
        let mut events = events.map_err(|error| map(&error, &model))?.stream;
        while let Some(event) = events.next().await {
            let event = event.map_err(|error| map(&error, &model))?;
            said.count(&event).map_err(|limit| too_much(&model, &limit))?;
            match event {
                ChatStreamEvent::Chunk(chunk) => {
                    let text = if mask.is_empty() { chunk.content } else { shown.push(&chunk.content) };
                    let _ = live.send(text);
                }
                ChatStreamEvent::End(end) => {
                    if !mask.is_empty() {
                        let _ = live.send(shown.end());
                    }
                    return end_of(end, kind, &model);
                }
                ChatStreamEvent::Start
                | ChatStreamEvent::ReasoningChunk(_)
                | ChatStreamEvent::ThoughtSignatureChunk(_)
                | ChatStreamEvent::ToolCallChunk(_)
                | ChatStreamEvent::Heartbeat => {}
            }
        }
        Err(cut(&model))
    }
}

/// What a stream has said so far.
struct Said {
    limit: usize,
    bytes: usize,
    /// Bytes of the arguments of calls, by their ids.
    calls: BTreeMap<String, usize>,
}

impl Said {
    fn of(settings: &chat::ModelSettings) -> Self {
        Self { limit: bounded::said_bytes(settings.max_tokens), bytes: 0, calls: BTreeMap::new() }
    }

    fn count(&mut self, event: &ChatStreamEvent) -> Result<(), TooMuch> {
        self.bytes += match event {
            ChatStreamEvent::Chunk(chunk)
            | ChatStreamEvent::ReasoningChunk(chunk)
            | ChatStreamEvent::ThoughtSignatureChunk(chunk) => chunk.content.len(),
            // The library tells the arguments so far, in whole values or as the text of one.
            ChatStreamEvent::ToolCallChunk(chunk) => {
                let ToolCall { call_id, fn_name, fn_arguments, .. } = &chunk.tool_call;
                let now =
                    fn_name.len() + fn_arguments.as_str().map_or_else(|| fn_arguments.to_string().len(), str::len);
                let before = self.calls.insert(call_id.clone(), now).unwrap_or_default();
                now.saturating_sub(before)
            }
            ChatStreamEvent::Start | ChatStreamEvent::Heartbeat | ChatStreamEvent::End(_) => 0,
        };
        if self.bytes > self.limit { Err(TooMuch::Said(self.limit)) } else { Ok(()) }
    }
}

/// What ends a frame of a reply, as the library's adapters read it.
fn framing_of(kind: AdapterKind) -> Framing {
    match kind {
        AdapterKind::Ollama | AdapterKind::OllamaCloud => Framing::Lines,
        AdapterKind::Cohere => Framing::Whole,
        _ => Framing::Events,
    }
}

#[async_trait]
impl Model for ModelProvider {
    async fn complete(
        &self,
        request: &ModelRequest,
        secret: Option<&Secret>,
        live: &LiveText,
    ) -> Result<Reply, ModelError> {
        let model = model_of(request);
        let mut mask = Mask::default();
        if let Some(secret) = secret {
            mask.add(&secret.name, &secret.value);
        }
        let target = resolve(&request.model, secret, &self.options, |kind| self.default_url(kind))
            .map_err(|error| ModelError::Unusable { model: model.clone(), reason: error.to_string() })?;
        let key = target.key.clone();
        let outcome = self.call(target, request, &mask, live).await;
        outcome.map(|reply| masked(reply, &mask)).map_err(|error| without_key(error, &key, &mask))
    }
}

fn model_of(request: &ModelRequest) -> String {
    format!("{}/{}", request.model.provider, request.model.name)
}

/// Some providers repeat the key that they refuse.
fn without_key(error: ModelError, key: &str, mask: &Mask) -> ModelError {
    // A keyless dummy is a word that may stand in any text.
    let hide = |reason: String| {
        let reason = mask.text(&reason).into_owned();
        if key.len() < 8 { reason } else { reason.replace(key, "…") }
    };
    match error {
        ModelError::Transient { model, reason, retry_after } => {
            ModelError::Transient { model, reason: hide(reason), retry_after }
        }
        ModelError::Permanent { model, reason } => ModelError::Permanent { model, reason: hide(reason) },
        ModelError::Unusable { model, reason } => ModelError::Unusable { model, reason: hide(reason) },
        ModelError::Unbounded { model, reason } => ModelError::Unbounded { model, reason: hide(reason) },
    }
}

/// A reply in which an owner's key doesn't stand: it goes into transcripts.
fn masked(reply: Reply, mask: &Mask) -> Reply {
    if mask.is_empty() {
        return reply;
    }
    let arguments = |arguments: Arguments| match arguments {
        Arguments::Json(value) => Arguments::Json(mask.value(value)),
        Arguments::Malformed(text) => Arguments::Malformed(mask.text(&text).into_owned()),
    };
    let calls = reply.calls.into_iter();
    Reply {
        text: mask.text(&reply.text).into_owned(),
        calls: calls.map(|call| chat::ToolCall { arguments: arguments(call.arguments), ..call }).collect(),
        usage: reply.usage,
    }
}

fn chat_options(settings: &chat::ModelSettings) -> ChatOptions {
    let mut options =
        ChatOptions::default().with_capture_usage(true).with_capture_content(true).with_capture_tool_calls(true);
    options.temperature = settings.temperature;
    options.max_tokens = settings.max_tokens;
    options
}

fn chat_request(request: &ModelRequest, kind: AdapterKind) -> ChatRequest {
    let mut messages: Vec<ChatMessage> = Vec::with_capacity(request.messages.len());
    // Results of one reply belong in one message; the Ollama adapter keeps only the last of several.
    let together = !matches!(kind, AdapterKind::Ollama | AdapterKind::OllamaCloud);
    let mut after_result = false;
    for message in &request.messages {
        let is_result = matches!(message, chat::ChatMessage::Tool { .. });
        match (message, messages.last_mut()) {
            (chat::ChatMessage::Tool { .. }, Some(last)) if after_result && together => {
                last.content.extend(message_content(message, kind));
            }
            // Providers refuse an empty message; it says nothing.
            (chat::ChatMessage::Assistant { text, calls }, _) if text.is_empty() && calls.is_empty() => {}
            (message, _) => messages.push(chat_message(message, kind)),
        }
        after_result = is_result;
    }
    let mut chat = ChatRequest::new(messages);
    if !request.system.is_empty() {
        chat = chat.with_system(request.system.clone());
    }
    if !request.tools.is_empty() {
        chat = chat.with_tools(request.tools.iter().map(|tool| {
            Tool::new(tool.name.clone()).with_description(tool.description.clone()).with_schema(tool.schema.clone())
        }));
    }
    chat
}

fn chat_message(message: &chat::ChatMessage, kind: AdapterKind) -> ChatMessage {
    let content = message_content(message, kind);
    match message {
        chat::ChatMessage::User { .. } => ChatMessage::user(content),
        chat::ChatMessage::Assistant { .. } => ChatMessage::assistant(content),
        chat::ChatMessage::Tool { .. } => ChatMessage::tool(content),
    }
}

fn message_content(message: &chat::ChatMessage, kind: AdapterKind) -> MessageContent {
    match message {
        chat::ChatMessage::User { text } => MessageContent::from_text(text.clone()),
        chat::ChatMessage::Assistant { text, calls } => {
            let text = (!text.is_empty()).then(|| ContentPart::Text(text.clone()));
            let calls = calls.iter().map(|call| {
                ContentPart::ToolCall(ToolCall {
                    call_id: sent_id(&call.id, kind),
                    fn_name: call.name.clone(),
                    fn_arguments: sent_arguments(&call.arguments),
                    thought_signatures: None,
                })
            });
            text.into_iter().chain(calls).collect()
        }
        chat::ChatMessage::Tool { call, name, text } => MessageContent::from_tool_responses(vec![
            ToolResponse::new(sent_id(call, kind), text.clone()).with_fn_name(name.clone()),
        ]),
    }
}

/// A conversation may go on with another provider; most take no other characters in an id.
fn sent_id(id: &str, kind: AdapterKind) -> String {
    if kind == AdapterKind::Gemini {
        return id.to_owned();
    }
    id.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect()
}

/// Providers take only an object: anything else the model wrote goes back inside one.
fn sent_arguments(arguments: &Arguments) -> Value {
    match arguments {
        Arguments::Json(Value::Object(map)) => Value::Object(map.clone()),
        Arguments::Json(other) => json!({"arguments": other}),
        Arguments::Malformed(text) => json!({"malformed_arguments": text}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_objects_go_back() {
        assert_eq!(sent_arguments(&Arguments::Json(json!({"a": 1}))), json!({"a": 1}));
        assert_eq!(sent_arguments(&Arguments::Json(json!([1]))), json!({"arguments": [1]}));
        assert_eq!(sent_arguments(&Arguments::Malformed("{".into())), json!({"malformed_arguments": "{"}));
    }
}
