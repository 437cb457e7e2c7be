//! Departure of a request from this process: before it, the request has certainly had no effect.

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

/// Mark that a request, or the first of a chain of redirects, is being written to a connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Departure(Arc<AtomicBool>);

impl Departure {
    /// Whether a part of the request may have reached another machine.
    pub(crate) fn has_left(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn mark_left(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A body in one piece that notes the departure of its request.
///
/// The HTTP client asks a body for its end and its bytes only when it has a connection and writes the request's head:
/// name, connection, TLS and a proxy's tunnel are ready by then. A mark that comes too early is harmless: the outcome
/// counts as unknown.
pub(crate) struct WatchedBody<F> {
    bytes: Option<Bytes>,
    note_departure: F,
}

impl<F: Fn()> WatchedBody<F> {
    /// Makes a body that calls `note_departure` before any byte is written, possibly several times.
    pub(crate) fn new(bytes: Bytes, note_departure: F) -> Self {
        Self { bytes: Some(bytes).filter(|bytes| !bytes.is_empty()), note_departure }
    }
}

impl<F: Fn() + Unpin> Body for WatchedBody<F> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        (self.note_departure)();
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        (self.note_departure)();
        self.bytes.is_none()
    }

    /// Returns the exact size, so that the request has a `Content-Length`.
    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
