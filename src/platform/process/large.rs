//! Requests that handle much data: the runner of a request learns in time that it must run apart from others.
//!
//! A megabyte of JSON is parsed, checked and written for tens of milliseconds without a pause. Meanwhile the thread of
//! the runtime serves no other task. So code that has read much reports it with [`note_large`], which lets the runner
//! move the task before it continues.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::runtime::{Handle, RuntimeFlavor};

/// Bytes from which a request is large: handling them takes a millisecond.
pub const LARGE_BYTES: usize = 64 * 1024;

tokio::task_local! {
    static HANDLED: Arc<AtomicUsize>;
}

/// The number of bytes that one request has handled.
#[derive(Debug, Clone, Default)]
pub struct HandledBytes(Arc<AtomicUsize>);

impl HandledBytes {
    /// Returns the counter of a request whose body has `bytes` bytes.
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// Whether the request is large.
    pub fn is_large(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= LARGE_BYTES
    }

    /// Runs a part of the request, and adds the bytes noted meanwhile.
    pub fn count<T>(&self, part: impl FnOnce() -> T) -> T {
        HANDLED.sync_scope(Arc::clone(&self.0), part)
    }
}

/// Adds bytes that the running request is about to handle. A request that becomes large yields once, so that its runner
/// can move it. Outside of a request nothing happens.
pub async fn note_large(bytes: usize) {
    let becomes_large = HANDLED.try_with(|handled| {
        let before = handled.fetch_add(bytes, Ordering::Relaxed);
        before < LARGE_BYTES && before.saturating_add(bytes) >= LARGE_BYTES
    });
    if becomes_large.unwrap_or(false) {
        tokio::task::yield_now().await;
    }
}

/// Runs work that takes long without a pause. The other tasks of this thread move to another one, if the runtime has
/// several.
pub fn run_apart<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn a_request_pauses_once_when_it_becomes_large() {
        let handled = HandledBytes::new(0);
        let note = |bytes| handled.count(|| note_large(bytes).now_or_never());
        assert_eq!((note(LARGE_BYTES - 1), handled.is_large()), (Some(()), false));
        let mut pausing = Box::pin(note_large(1));
        assert_eq!(handled.count(|| (&mut pausing).now_or_never()), None, "it may be put aside now");
        assert!(handled.is_large());
        assert_eq!(handled.count(|| (&mut pausing).now_or_never()), Some(()));
        assert_eq!(note(LARGE_BYTES), Some(()), "it was put aside already");
        assert_eq!(note_large(LARGE_BYTES).now_or_never(), Some(()), "nobody runs it apart");
        assert!(HandledBytes::new(LARGE_BYTES).is_large());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn others_are_served_while_large_work_runs() {
        let (done, told) = std::sync::mpsc::channel();
        let large = tokio::spawn(async move {
            tokio::task::yield_now().await;
            run_apart(|| told.recv_timeout(std::time::Duration::from_mins(1)).is_ok())
        });
        // On the only thread of the runtime this would never come to run.
        let other = tokio::spawn(async move { done.send(()) });
        assert!(large.await.unwrap(), "the other task has run meanwhile");
        other.await.unwrap().unwrap();
    }
}
