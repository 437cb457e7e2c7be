//! A request that a method answers, with its caller and a way to send messages before the answer.

use super::client::McpClient;
use super::message::RpcRequest;
use super::refusal::{INVALID_PARAMS, RpcRefusal};
use crate::domain::decode;
use crate::domain::ids::Owner;
use crate::http::Api;
use crate::http::extract::RequestCaller;
use crate::view::mcp::{McpNotification, McpProgress};
use crate::view::to_json;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

/// A request on its way to its method.
pub(super) struct McpCall {
    pub(super) api: Api,
    pub(super) who: RequestCaller,
    pub(super) client: McpClient,
    pub(super) request: RpcRequest,
    /// Messages to the client before the answer; they are dropped where the client takes no stream.
    pub(super) messages: mpsc::Sender<Value>,
}

impl McpCall {
    /// Returns the owner whose data the request is about.
    pub(super) const fn owner(&self) -> &Owner {
        self.who.owner()
    }

    /// Takes all parameters out of the request.
    pub(super) fn take_parameters(&mut self) -> Map<String, Value> {
        std::mem::take(&mut self.request.params)
    }

    /// Returns a parameter that is a text.
    pub(super) fn text(&self, key: &str) -> Result<Option<&str>, RpcRefusal> {
        match self.request.params.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(RpcRefusal::new(INVALID_PARAMS, format!("`params.{key}`: expected a text"))),
        }
    }

    /// Returns a text that must be there.
    pub(super) fn required_text(&self, key: &str) -> Result<&str, RpcRefusal> {
        self.text(key)?.ok_or_else(|| RpcRefusal::new(INVALID_PARAMS, format!("expected `params.{key}`")))
    }

    /// Returns a parameter as its type; the default where it is absent.
    pub(super) fn parameter<T: DeserializeOwned + Default>(&self, key: &str) -> Result<T, RpcRefusal> {
        match self.request.params.get(key) {
            None | Some(Value::Null) => Ok(T::default()),
            Some(value) => decode::typed_with_hint(value)
                .map_err(|error| RpcRefusal::new(INVALID_PARAMS, format!("`params.{key}`: {error}"))),
        }
    }

    /// Tells the client, if it has asked for that, how long the request has run and what it waits for.
    pub(super) async fn send_progress(&self, seconds: u64, message: String) {
        let Some(progress_token) = self.client.progress_token.clone() else { return };
        let progress = McpProgress { progress_token, progress: seconds, message };
        let note = McpNotification::new("notifications/progress", &progress);
        // Without a stream nobody takes it.
        let _ = self.messages.send(to_json(&note)).await;
    }
}

/// Returns an answer of [`crate::view`] as the result of a method.
pub(super) fn to_result(view: &impl Serialize) -> Map<String, Value> {
    match to_json(view) {
        Value::Object(map) => map,
        other => Map::from_iter([("value".to_owned(), other)]),
    }
}
