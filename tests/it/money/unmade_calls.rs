//! Model calls that were not made, because the store failed between what is held for them and the call: they cost
//! nothing.

use crate::support::venue::TestVenue;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::embedded::EmbeddedBus;
use trellis::domain::agent::AgentStatus;
use trellis::domain::cap::{CapUse, Ceiling, SpendSettings};
use trellis::domain::event::Submission;
use trellis::domain::ids::{Owner, SessionKey};
use trellis::domain::job::JobStatus;
use trellis::domain::rate::RateLimit;
use trellis::domain::time::Millis;
use trellis::process::clock::Clock;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::{Doc, DocKey, DocWrite, Layer, Store, StoreError, WriteOutcome, keys};
use trellis::venue::rates::RateSettings;
use trellis::venue::{jobs, venue_owner};

const RULES: &str = "[[rule]]\nthen = { text = \"done\" }\n";

/// 2026-01-01T00:00:00Z.
const START: Millis = Millis(1_767_225_600_000);

/// Prefix of the meters of rate limits.
const RATES: &str = "rate/";

fn model() -> Value {
    json!({"provider": "scripted", "name": "rules", "maxTokens": 100})
}

/// What fails next of what is done to some documents.
#[derive(Clone, Copy)]
enum Fails {
    Read(&'static str),
    Write(&'static str),
    /// It is written, and nobody learns it.
    Answer(&'static str),
}

/// A store that fails once.
struct Failing {
    inner: Arc<dyn Store>,
    next: Mutex<Option<Fails>>,
}

impl Failing {
    fn fails(&self, is_it: impl Fn(&Fails) -> bool) -> bool {
        self.next.lock().take_if(|next| is_it(next)).is_some()
    }

    fn error<T>() -> Result<T, StoreError> {
        Err(StoreError::Unavailable { store: "documents".into(), reason: "on purpose".into() })
    }
}

impl Layer for Failing {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn read(&self, owner: &Owner, keys: &[DocKey]) -> Result<Vec<Doc>, StoreError> {
        let named = |prefix: &str| keys.iter().any(|key| key.starts_with(prefix));
        if self.fails(|next| matches!(next, Fails::Read(prefix) if named(prefix))) {
            return Self::error();
        }
        self.inner.read(owner, keys).await
    }

    async fn write(&self, now: Millis, owner: &Owner, writes: &[DocWrite]) -> Result<WriteOutcome, StoreError> {
        let named = |prefix: &str| writes.iter().any(|write| write.key.starts_with(prefix));
        if self.fails(|next| matches!(next, Fails::Write(prefix) if named(prefix))) {
            return Self::error();
        }
        let written = self.inner.write(now, owner, writes).await?;
        if self.fails(|next| matches!(next, Fails::Answer(prefix) if named(prefix))) {
            return Self::error();
        }
        Ok(written)
    }
}

/// One task, while the store fails once: how it ended, how many calls its session has paid or holds, and what is
/// ahead in the minute of its provider.
async fn while_it_fails(fails: Option<Fails>, model: Value) -> (JobStatus, u64, u64) {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Clock::manual(START));
    let inner = EmbeddedStore::open(&dir.path().join("store")).unwrap();
    let bus = EmbeddedBus::new(Arc::clone(&inner), Duration::from_millis(150), Clock::system()).unwrap();
    let failing = Arc::new(Failing { inner, next: Mutex::new(fails) });
    let store = Arc::clone(&failing) as Arc<dyn Store>;
    let mut venue = TestVenue::at(store, Arc::new(bus), dir.path(), RULES, clock).await;
    let spend = SpendSettings { session: Ceiling::parse("tokens=900000").unwrap(), ..SpendSettings::default() };
    Arc::get_mut(&mut venue.venue).unwrap().spend = spend;
    let limits = RateLimit::list("scripted:concurrency=5:tokens=20000").unwrap();
    (venue.rates, venue.sweep) = (RateSettings { limits, hold: Duration::from_mins(1) }, Duration::from_millis(50));
    venue.agent("a", json!({"model": model})).await;
    venue.worker();
    let submission = Submission { input: json!("go"), session_id: Some("s".parse().unwrap()), ..Submission::default() };
    let job = venue.arrive("a", "t", true, submission).await.job.unwrap();
    let mut waited = 0;
    while waited < 600 && failing.next.lock().is_some() {
        tokio::time::sleep(Duration::from_millis(10)).await;
        waited += 1;
    }
    let status = loop {
        let now = jobs::get(&venue.venue, &venue.owner, &job).await.unwrap().unwrap().status;
        if now.is_terminal() || venue.record("a").await.status == AgentStatus::Suspended {
            break now;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        venue.venue.clock.advance(Duration::from_millis(20));
    };
    assert!(failing.next.lock().is_none(), "it has failed");
    let session = SessionKey { agent: "a".parse().unwrap(), session: "s".parse().unwrap() };
    let book =
        venue.venue.store.get::<CapUse>(&venue.owner, &keys::session_cap(&session)).await.unwrap().unwrap_or_default();
    let meter: Option<Value> = venue.venue.store.get(&venue_owner(), &keys::rate("scripted")).await.unwrap();
    let meter = meter.unwrap_or_default();
    assert_eq!(meter["running"], Value::Null, "nothing runs");
    let ahead = meter["tokens"].as_u64().unwrap_or_default().saturating_sub(venue.venue.now().0 * 1_000);
    (status, u64::from(book.spent.turns) + book.held.len() as u64, ahead)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_was_not_made_is_not_paid() {
    let (status, paid, ahead) = while_it_fails(None, model()).await;
    assert_eq!((status, paid), (JobStatus::Complete, 1));
    for fails in [Fails::Write(RATES), Fails::Answer(RATES)] {
        let failed = while_it_fails(Some(fails), model()).await;
        assert_eq!((failed.0, failed.1), (JobStatus::Complete, 1));
        assert!(failed.2 <= ahead + 1_000_000, "its tokens count once: {} and {ahead}", failed.2);
    }
    // Its key can't be read, and then there is none.
    let keyed = json!({"provider": "scripted", "name": "rules", "maxTokens": 100, "key": "s/none"});
    let (_, paid, ahead) = while_it_fails(Some(Fails::Read(keys::SECRETS)), keyed).await;
    assert_eq!((paid, ahead), (0, 0));
}
