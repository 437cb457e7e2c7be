//! Models: the trait [`Model`] takes one request and returns one reply; real and scripted providers implement it.

pub mod models;

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
pub mod rules_path;

pub mod facts;
pub mod json5;
pub mod rules;
pub mod rules_error;
pub mod template;

pub mod mock_server;

use crate::domain::chat::{ModelRequest, ModelSettings, Reply};
use crate::model::meter::CallMeter;
use crate::venue::secrets::OpenedSecret;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Sender of a reply's text while the model writes it.
#[derive(Debug)]
pub struct LiveText {
    texts: UnboundedSender<String>,
    /// Progress of the call.
    pub meter: Arc<CallMeter>,
}

impl LiveText {
    /// Makes a sender for a call with this meter, and the receiver of its pieces.
    pub fn with_meter(meter: Arc<CallMeter>) -> (Self, UnboundedReceiver<String>) {
        let (texts, pieces) = unbounded_channel();
        (Self { texts, meter }, pieces)
    }

    /// Makes a sender for a call that is not charged.
    pub fn channel() -> (Self, UnboundedReceiver<String>) {
        Self::with_meter(Arc::default())
    }

    /// Sends a piece of the text. The receiver may be gone: the reply is complete without it.
    pub fn send(&self, piece: String) {
        let _ = self.texts.send(piece);
    }
}

/// Error of a model call, by what a repetition can achieve.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// 429, 5xx, overload, timeout, connection: the same request may succeed later.
    #[error("model `{model}` is unavailable: {reason}")]
    Transient {
        /// Name of the model, `provider/name`.
        model: String,
        /// Message of the provider.
        reason: String,
        /// Pause that the provider asked for.
        retry_after: Option<Duration>,
    },
    /// 401, 403, 404, no credit, unknown provider: no request with this configuration will succeed.
    #[error("model `{model}` can't be used: {reason}")]
    Unusable {
        /// Name of the model, `provider/name`.
        model: String,
        /// Message of the provider.
        reason: String,
    },
    /// The reply has no end, or can't be used: a repetition would be charged again.
    #[error("model `{model}` gave no usable reply: {reason}")]
    Unbounded {
        /// Name of the model, `provider/name`.
        model: String,
        /// Limit that was exceeded.
        reason: String,
    },
    /// The model, or its provider's filter, refuses to answer: a repetition would be refused again.
    #[error("model `{model}` refused the request: it says: {reason}")]
    Declined {
        /// Name of the model, `provider/name`.
        model: String,
        /// Message of the provider.
        reason: String,
    },
    /// 400, context too long: this request will never succeed.
    #[error("model `{model}` refused the request: {reason}")]
    Permanent {
        /// Name of the model, `provider/name`.
        model: String,
        /// Message of the provider.
        reason: String,
    },
}

/// A language model, called with one request at a time.
#[async_trait]
pub trait Model: Send + Sync + 'static {
    /// Returns one reply; `secrets` are those that `request.model` names. Dropping the future aborts the call; the
    /// meter of `live` then has its progress. After a crash before it returns, the call is made again: no reply was
    /// received.
    async fn complete(
        &self,
        request: &ModelRequest,
        secrets: &[OpenedSecret],
        live: &LiveText,
    ) -> Result<Reply, ModelError>;

    /// Returns why no call of this model is possible for want of a key in the environment, or of rules; `None` if neither
    /// is known to be missing.
    fn missing_key(&self, _model: &ModelSettings) -> Option<String> {
        None
    }

    /// Whether calls of this model go to an owner's own server with the owner's key, and so cost the venue nothing.
    fn is_own_server(&self, _model: &ModelSettings) -> bool {
        false
    }
}
