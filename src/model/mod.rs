//! Seam 3, `Model`: one request in, one reply out.

pub mod registry;

pub mod endpoint;
mod headers;
mod keys;
pub mod meter;
mod target_error;
pub mod provider;
pub mod provider_error;

pub mod scripted;

pub mod trial;

pub mod calls_log;
pub mod script_place;

pub mod facts;
pub mod json5;
pub mod rules;
pub mod rules_error;
pub mod template;

pub mod mock_server;

use crate::domain::chat::{ModelRequest, ModelSettings, Reply};
use crate::model::meter::CallMeter;
use crate::venue::secrets::Secret;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// What whoever waits for a reply is told while it is being made.
#[derive(Debug)]
pub struct LiveText {
    texts: UnboundedSender<String>,
    /// How far the call has come.
    pub meter: Arc<CallMeter>,
}

impl LiveText {
    /// Of a call with this meter, and where its pieces arrive.
    pub fn metered(meter: Arc<CallMeter>) -> (Self, UnboundedReceiver<String>) {
        let (texts, pieces) = unbounded_channel();
        (Self { texts, meter }, pieces)
    }

    /// Of a call that nobody charges.
    pub fn channel() -> (Self, UnboundedReceiver<String>) {
        Self::metered(Arc::default())
    }

    /// Passes a piece of the text on. Nobody may watch: the reply is complete without it.
    pub fn send(&self, piece: String) {
        let _ = self.texts.send(piece);
    }
}

/// Why there is no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// 429, 5xx, overloaded, timeout, connection: the same request may succeed later.
    #[error("model `{model}` is unavailable: {reason}")]
    Transient {
        /// `provider/name`.
        model: String,
        /// The provider's words.
        reason: String,
        /// What the provider asked for.
        retry_after: Option<Duration>,
    },
    /// 401, 403, 404, no credit, unknown provider: no request of this configuration will succeed.
    #[error("model `{model}` can't be used: {reason}")]
    Unusable {
        /// `provider/name`.
        model: String,
        /// The provider's words.
        reason: String,
    },
    /// It began a reply that has no end, or none that can be used: asked again, it would be paid again.
    #[error("model `{model}` gave no usable reply: {reason}")]
    Unbounded {
        /// `provider/name`.
        model: String,
        /// Which limit.
        reason: String,
    },
    /// It, or its provider's filter, refuses to answer what is said: asked again it would refuse again.
    #[error("model `{model}` refused the request: it says: {reason}")]
    Declined {
        /// `provider/name`.
        model: String,
        /// The provider's words.
        reason: String,
    },
    /// 400, context too long: this request never will.
    #[error("model `{model}` refused the request: {reason}")]
    Permanent {
        /// `provider/name`.
        model: String,
        /// The provider's words.
        reason: String,
    },
}

/// A language model.
#[async_trait]
pub trait Model: Send + Sync + 'static {
    /// One reply; `secrets` are those that `request.model` names. Dropping the future aborts the call; what is known of
    /// it then is in the meter of `live`. A crash before it returns: the call is made again, for no reply was received.
    async fn complete(&self, request: &ModelRequest, secrets: &[Secret], live: &LiveText) -> Result<Reply, ModelError>;

    /// Why no call of this model can be made for want of a key in the environment; `None`: it isn't known to be missing.
    fn missing_key(&self, _model: &ModelSettings) -> Option<String> {
        None
    }
}
