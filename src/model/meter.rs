//! What is known of a running model call, also for whoever breaks it off.

use crate::domain::charge::{CallProgress, CallStage};
use crate::domain::chat::Usage;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The progress of one call: written by the model, read when the call has ended in whatever way.
#[derive(Debug, Default)]
pub struct CallMeter(Mutex<CallProgress>);

impl CallMeter {
    /// What is known now.
    pub fn progress(&self) -> CallProgress {
        *self.0.lock()
    }

    /// Whether the call was begun.
    pub fn is_asked(&self) -> bool {
        self.progress().stage > CallStage::NotAsked
    }

    /// Notes that the call has come so far; it never goes back.
    pub fn mark(&self, stage: CallStage) {
        let mut progress = self.0.lock();
        progress.stage = progress.stage.max(stage);
    }

    /// The call was refused, for nothing, and is made again.
    pub fn restart(&self) {
        *self.0.lock() = CallProgress { stage: CallStage::Asked, ..CallProgress::default() };
    }

    /// Notes what has come of the reply, all together: what the provider has said of tokens, bytes of text, calls and
    /// reasoning, and whether that is its end.
    pub fn record(&self, usage: Usage, said_bytes: usize, is_whole: bool) {
        let mut progress = self.0.lock();
        *progress = CallProgress { stage: progress.stage, usage, said_bytes, is_whole };
    }
}

/// A request's body that notes when it leaves: it is asked for its bytes when there is a connection.
pub(super) struct MeteredBody {
    bytes: Option<Bytes>,
    meter: Arc<CallMeter>,
}

impl MeteredBody {
    pub(super) fn new(bytes: Vec<u8>, meter: &Arc<CallMeter>) -> Self {
        Self { bytes: Some(bytes.into()), meter: Arc::clone(meter) }
    }
}

impl Body for MeteredBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.meter.mark(CallStage::Sent);
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
