//! Whatever question finds a connection to Redis dropped, the store is checked before the next call passes.

use crate::support::redis::RedisServer;
use async_trait::async_trait;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use trellis::store::redis::{RedisOptions, RedisStore, ServerOrInjected};
use trellis::store::{HistoryCheck, Store, StoreError, StoreInspection, keys};
use trellis::venue::venue_owner;

#[derive(Default)]
struct CountedChecks(AtomicUsize);

#[async_trait]
impl HistoryCheck for CountedChecks {
    async fn check_history(&self) -> Result<(), StoreError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_of_all_servers_does_not_hide_a_dropped_connection() {
    let Some(mut server) = RedisServer::start() else { return };
    let options = RedisOptions { connections: 1, ..server.options(ServerOrInjected::Server) };
    let store = RedisStore::open(options).await.unwrap();
    let checks = Arc::new(CountedChecks::default());
    let check: Arc<dyn HistoryCheck> = Arc::clone(&checks) as Arc<dyn HistoryCheck>;
    store.set_check(Arc::downgrade(&check));
    let read = async || (&*store as &dyn Store).doc(&venue_owner(), keys::SAFE_POINT).await.unwrap();
    let _ = store.history().await.unwrap();
    read().await;
    for (count, question) in ["history", "time", "settings"].into_iter().enumerate() {
        assert_eq!(checks.0.load(Ordering::SeqCst), count, "before `{question}`");
        server.kill();
        assert!(server.start_again());
        match question {
            "history" => drop(store.history().await),
            "time" => drop(store.time().await),
            _ => drop(store.settings().await),
        }
        read().await;
        // Several calls may find it out; one check is enough for all of them.
        let found = checks.0.swap(count + 1, Ordering::SeqCst);
        assert!(found > count, "a call passed unchecked behind `{question}`");
    }
}
