//! What a call waits for after its connection broke: the server may be another, or lack its last seconds, so protective
//! changes are re-applied there first.

use super::failure::{is_cut, is_temporary};
use crate::store::{HistoryCheck, KnownHistory, StoreError};
use parking_lot::Mutex;
use redis::RedisError;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

tokio::task_local! {
    /// Set within the check, whose own calls don't wait.
    static CHECKING: ();
}

/// Counts broken connections, and has the store checked before the next call.
#[derive(Default)]
pub struct Barrier {
    broken: Arc<AtomicU64>,
    /// Broken connections up to the last check that succeeded.
    checked: Arc<AtomicU64>,
    check: Mutex<Option<Weak<dyn HistoryCheck>>>,
    /// Histories of the servers: the driver of a cluster finds a new primary without an error.
    history: KnownHistory,
    /// Held by the call that runs the check.
    turn: tokio::sync::Mutex<()>,
}

impl Barrier {
    /// Sets the check that calls after a broken connection wait for.
    pub fn set_check(&self, check: Weak<dyn HistoryCheck>) {
        *self.check.lock() = Some(check);
    }

    /// Notes an error after which another server may answer.
    pub fn note(&self, error: &RedisError) {
        if is_cut(error) || error.is_io_error() || error.is_timeout() || is_temporary(error) {
            self.broken.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Notes the histories of the servers: after a new one calls wait as after a broken connection.
    pub fn note_history(&self, names: &[String]) {
        if self.history.is_another(names) && CHECKING.try_with(|()| ()).is_err() {
            self.broken.fetch_add(1, Ordering::SeqCst);
        }
        self.history.note_names(names.to_vec());
    }

    fn is_open(&self) -> bool {
        self.broken.load(Ordering::SeqCst) == self.checked.load(Ordering::SeqCst) || CHECKING.try_with(|()| ()).is_ok()
    }

    /// Waits until the store is checked, if a connection broke since the last check.
    pub async fn pass(&self) -> Result<(), RedisError> {
        if self.is_open() {
            return Ok(());
        }
        let _turn = self.turn.lock().await;
        let check = self.check.lock().as_ref().and_then(Weak::upgrade);
        let Some(check) = check.filter(|_| !self.is_open()) else { return Ok(()) };
        let (broken, checked) = (Arc::clone(&self.broken), Arc::clone(&self.checked));
        // In a task of its own, since the waiting call may be dropped.
        let done = tokio::spawn(CHECKING.scope((), async move {
            let until = broken.load(Ordering::SeqCst);
            check.check_history().await.map(|()| checked.store(until, Ordering::SeqCst))
        }));
        match done.await {
            Ok(Ok(())) => Ok(()),
            // The call's own error names the store.
            Ok(Err(StoreError::Unavailable { reason, .. })) => Err(unchecked_error(&reason)),
            Ok(Err(error)) => Err(unchecked_error(&error.to_string())),
            Err(error) => Err(unchecked_error(&error.to_string())),
        }
    }
}

fn unchecked_error(reason: &str) -> RedisError {
    let text =
        format!("what protects owners isn't checked yet after a broken connection, which is tried again: {reason}");
    io::Error::new(io::ErrorKind::ConnectionReset, text).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_trait::async_trait;

    /// A check whose servers are away.
    struct AwayServers;

    #[async_trait]
    impl HistoryCheck for AwayServers {
        async fn check_history(&self) -> Result<(), StoreError> {
            Err(StoreError::Unavailable { store: "journal".to_owned(), reason: "no server answers".to_owned() })
        }
    }

    #[tokio::test]
    async fn a_failed_check_names_no_other_store_than_the_call() {
        let barrier = Barrier::default();
        let check: Arc<dyn HistoryCheck> = Arc::new(AwayServers);
        barrier.set_check(Arc::downgrade(&check));
        barrier.note(&RedisError::from(io::Error::from(io::ErrorKind::ConnectionReset)));
        let error = barrier.pass().await.unwrap_err().to_string();
        assert!(error.contains("which is tried again: no server answers") && !error.contains("journal"), "{error}");
    }
}
