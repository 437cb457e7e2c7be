//! A response body that keeps a value until it is sent.

use axum::body::{Body, Bytes, HttpBody};
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

/// A body that drops a value when it ends.
pub(super) struct HoldingBody<T> {
    _held: T,
    body: Body,
}

impl<T: Unpin + Send + 'static> HoldingBody<T> {
    /// Wraps a body so that it keeps `held` while it lasts.
    pub(super) fn body(body: Body, held: T) -> Body {
        Body::new(Self { _held: held, body })
    }
}

impl<T: Unpin> HttpBody for HoldingBody<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
