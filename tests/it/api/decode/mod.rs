//! Values from outside: how deep they may be, that no list passes as a struct, and that errors name their place.

mod external_answers;
mod refused_inputs;
mod stored_values;
mod deepest_values;

use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use tempfile::TempDir;
use trellis::process::clock::Clock;

/// So many levels of maps and lists.
fn nested(depth: usize) -> Value {
    (0..depth).fold(json!("core"), |inner, n| if n % 2 == 0 { json!([inner]) } else { json!({"a": inner}) })
}

/// A venue over the embedded store, and one over Redis where that is installed; without workers.
async fn venues(rules: &str) -> Vec<(TestVenue, TempDir)> {
    let mut venues = vec![TestVenue::embedded(rules).await];
    if let Some(server) = RedisServer::shared() {
        let (venue, dir, _) = TestVenue::redis_at(server, rules, Clock::system()).await;
        venues.push((venue, dir));
    }
    venues
}

/// What a commit decided to send goes out right after it.
async fn nothing_is_left_in_the_outbox(venue: &TestVenue) {
    for _ in 0..200 {
        if venue.venue.store.outbox(&venue.owner).await.unwrap().is_empty() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("something stays in the outbox");
}
