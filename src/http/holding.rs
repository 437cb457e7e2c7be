//! The body of an answer, and what is held until it is sent.

use axum::body::{Body, Bytes, HttpBody};
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

/// A body that lets go of something when it ends.
pub(super) struct Holding<T> {
    _held: T,
    body: Body,
}

impl<T: Unpin + Send + 'static> Holding<T> {
    /// The same body, which holds this while it lasts.
    pub(super) fn body(body: Body, held: T) -> Body {
        Body::new(Self { _held: held, body })
    }
}

impl<T: Unpin> HttpBody for Holding<T> {
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
