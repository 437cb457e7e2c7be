//! Purge: everything of a namespace goes, and nothing else.

use super::{Backend, Site, writable};
use crate::support::operate;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use trellis::domain::authority::Capability;
use trellis::domain::authority::envelope::Envelope;
use trellis::domain::dead::DeadLetter;
use trellis::domain::event::{Event, Payload, Submission};
use trellis::domain::ids::{JobId, Owner, SessionKey};
use trellis::domain::resource;
use trellis::domain::time::Millis;
use trellis::domain::timer::{CatchUpPolicy, OverlapPolicy, Schedule, TimerId, TimerKind, TimerRequest};
use trellis::domain::unknown_fields::UnknownFields;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::{Doc, DocKey, DocPage, DocWrite, DocumentStore, Layer, Store, StoreError, Window};
use trellis::venue::dead_letters;
use trellis::venue::jobs;
use trellis::venue::operation::{Caller, OpError};
use trellis::venue::resources::purge::count_stored;
use trellis::venue::timers;
use trellis::venue::upkeep::retention::{self, DeletionOutcome};

async fn operate(site: &Site, operator: bool, verb: &str, arguments: Value) -> Result<Value, OpError> {
    let venue = &site.venue.venue;
    let owner = &site.venue.owner;
    let caller = Caller { operator, ..operate::boss(owner) };
    operate::operate(venue, &caller, &format!("v/ops/resource/{verb}"), arguments).await
}

async fn a_user_is_erased_by_one_command(backend: Backend) {
    let Some(site) = Site::over(backend).await else { return };
    let site = site.clerk(writable()).await;
    let (a, below, beside) = ("app/user/a", "app/user/a/work", "app/user/a2");
    for (id, scope) in [("1", a), ("2", below), ("3", beside), ("4", "app")] {
        site.ok(&format!("m{id}"), json!([scope]), "memory_write", json!({"content": format!("of {id}")})).await;
        site.ok(&format!("f{id}"), json!([scope]), "files_write", json!({"path": "x.md", "content": "text"})).await;
    }
    let listed = operate(&site, true, "list", json!({"namespace": "app/user/a"})).await.unwrap();
    assert_eq!(listed["resources"].as_array().unwrap().len(), 4, "{listed}");
    let denied = operate(&site, false, "purge", json!({"namespace": a})).await.unwrap_err();
    assert_eq!(denied.to_string(), "`v/ops/resource/purge` is for operators alone");
    let purge = |arguments: Value| operate(&site, true, "purge", arguments);
    let own = purge(json!({"namespace": a})).await.unwrap();
    assert_eq!(own["purged"], json!({"files": 0, "memory": 1, "scratchpad": 0}), "not what lies below");
    let all = purge(json!({"namespace": a, "recursive": true})).await.unwrap();
    assert_eq!(all["purged"], json!({"files": 2, "memory": 1, "scratchpad": 0}));
    let again = purge(json!({"namespace": a, "recursive": true})).await.unwrap();
    assert_eq!(again["purged"], json!({"files": 0, "memory": 0, "scratchpad": 0}));
    let left = site.venue.venue.store.scan(&site.venue.owner, "r/", None, false, 100).await.unwrap();
    assert!(!left.iter().any(|(key, _)| key.contains("app%2Fuser%2Fa/") || key.contains("app%2Fuser%2Fa%2F")));
    let kept = operate(&site, true, "list", json!({})).await.unwrap();
    assert_eq!(kept["resources"].as_array().unwrap().len(), 4, "what lies above and beside: {kept}");
    for namespace in ["", "/a", "a/../b", "a b"] {
        assert!(matches!(purge(json!({"namespace": namespace})).await, Err(OpError::Arguments { .. })), "{namespace}");
    }
}

#[tokio::test]
async fn a_user_is_erased_by_one_command_embedded() {
    a_user_is_erased_by_one_command(Backend::Embedded).await;
}

#[tokio::test]
async fn a_user_is_erased_by_one_command_redis() {
    a_user_is_erased_by_one_command(Backend::Redis).await;
}

/// Keys of the documents of the owner that hold a text.
async fn holding(site: &Site, text: &str) -> Vec<String> {
    let docs = site.venue.venue.store.scan(&site.venue.owner, "", None, false, 10_000).await.unwrap();
    let holds = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(text);
    docs.into_iter().filter(|(_, doc)| doc.value.as_deref().is_some_and(holds)).map(|(key, _)| key).collect()
}

async fn nothing_that_an_erased_user_said_or_read_is_left(backend: Backend) {
    let Some(site) = Site::over(backend).await else { return };
    let site = site.clerk(json!({"memory": {"mode": "read-write", "preload": "all"}})).await;
    let long = format!("secret-of-a {}", "and its long tail ".repeat(300));
    let (a, b) = (json!(["app/user/a"]), json!(["app/user/b"]));
    site.ok("a1", a.clone(), "memory_write", json!({"content": long})).await;
    site.ok("a2", json!(["app/user/a/work"]), "memory_write", json!({"content": "secret-of-a at work"})).await;
    site.ok("a3", a, "memory_read", json!({})).await;
    site.ok("b1", b.clone(), "memory_write", json!({"content": "kept-of-b"})).await;
    site.ok("b2", b, "memory_read", json!({})).await;
    assert!(holding(&site, "secret-of-a").await.len() > 5);
    let arguments = json!({"namespace": "app/user/a", "recursive": true});
    let done = operate(&site, true, "purge", arguments.clone()).await.unwrap();
    assert_eq!(done["purged"]["memory"], 2);
    assert_eq!(done["erased"], json!({"turns": 6, "jobs": 3, "deadLetters": 0, "timers": 0}));
    assert_eq!(holding(&site, "secret-of-a").await, [""; 0]);
    let again = operate(&site, true, "purge", arguments).await.unwrap();
    assert_eq!(
        again["erased"],
        json!({"turns": 0, "jobs": 0, "deadLetters": 0, "timers": 0}),
        "nothing is left to erase"
    );
    let (store, owner) = (&*site.venue.venue.store, &site.venue.owner);
    let past = |session: &str| {
        let key = super::key("clerk", session);
        async move { trellis::venue::ledger::load(store, owner, &key, 2).await.unwrap().unwrap() }
    };
    let erased = past("a3").await;
    let gone = erased.seen.unwrap().inputs.unwrap_err();
    assert!(gone.contains(&"resource/memory".to_owned()) && gone.contains(&"transcript".to_owned()), "{gone:?}");
    assert!(past("b2").await.seen.unwrap().inputs.is_ok(), "another user's turns are built again as they were");
    site.saw("clerk", "b1", "resource/memory").await;
    site.saw("clerk", "b2", "resource/memory").await;
    assert!(!holding(&site, "kept-of-b").await.is_empty());
}

#[tokio::test]
async fn nothing_that_an_erased_user_said_or_read_is_left_embedded() {
    Box::pin(nothing_that_an_erased_user_said_or_read_is_left(Backend::Embedded)).await;
}

#[tokio::test]
async fn nothing_that_an_erased_user_said_or_read_is_left_redis() {
    Box::pin(nothing_that_an_erased_user_said_or_read_is_left(Backend::Redis)).await;
}

#[tokio::test]
async fn no_agent_may_erase() {
    let site = Site::new().await.clerk(writable()).await;
    let args = json!({"operation": "v/ops/resource/purge", "input": {"namespace": "app/user/a"}});
    let (outcome, text) = site.call("j", json!(["app/user/a"]), "job_run", args).await;
    assert_eq!(outcome, "denied", "{text}");
}

/// What was sent under `namespace`.
fn granted(namespace: &str) -> Submission {
    let cap = Capability { with: format!("r/{namespace}"), can: "write".into() };
    let envelope = Envelope::default().narrow_to_grants(Some(vec![cap]));
    Submission { input: json!("it says it"), envelope, ..Submission::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_task_keeps_its_input_until_it_is_deleted() {
    let site = Site::new().await.clerk(writable()).await;
    let (venue, owner) = (&site.venue.venue, &site.venue.owner);
    site.venue.agent("idle", json!({"model": {"provider": "scripted", "name": "never"}})).await;
    let mut waiting = Vec::new();
    for id in ["one", "two"] {
        let session_id = Some("s".parse().unwrap());
        let submission = Submission { input: json!("secret-of-a waits"), session_id, ..granted("app/user/a") };
        waiting.push(site.venue.arrive("idle", id, true, submission).await.job.unwrap());
    }
    let purge = async || operate(&site, true, "purge", json!({"namespace": "app/user/a"})).await.unwrap();
    purge().await;
    assert!(!holding(&site, "secret-of-a").await.is_empty(), "it is still to be worked on");
    // As the guide says: cancel, delete, purge.
    for job in &waiting {
        jobs::cancel(venue, owner, job, None).await.unwrap();
    }
    for id in &waiting {
        let job = jobs::get(venue, owner, id).await.unwrap().unwrap();
        let mut deleted = DeletionOutcome::InMailbox;
        for _ in 0..1_200 {
            deleted = retention::delete(venue, owner, &job).await.unwrap();
            if deleted != DeletionOutcome::InMailbox {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(deleted, DeletionOutcome::Done);
    }
    purge().await;
    assert_eq!(holding(&site, "secret-of-a").await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_and_timers_of_an_erased_namespace_are_deleted() {
    let Some(site) = Site::over(Backend::Embedded).await else { return };
    let site = site.clerk(writable()).await;
    let (venue, owner) = (&site.venue.venue, &site.venue.owner);
    for (nth, namespace) in (1_u64..).zip(["app/user/a", "app/user/b"]) {
        let timer = TimerRequest {
            id: TimerId::from_text(namespace),
            name: None,
            origin: "t".parse().unwrap(),
            asked: None,
            place: None,
            agent: "clerk".parse().unwrap(),
            kind: TimerKind::Task,
            submission: granted(namespace),
            schedule: Schedule::At(venue.now().plus(Duration::from_hours(1))),
            catch_up: CatchUpPolicy::default(),
            overlap: OverlapPolicy::default(),
        };
        trellis::venue::ingress::timers::set(venue, owner, &timer).await.unwrap();
        let job = JobId::new(&format!("{nth:032x}")).unwrap();
        let mut event =
            Event::new("e".parse().unwrap(), venue.now(), Payload::Task { job: job.clone(), input: json!("x") });
        event.envelope = granted(namespace).envelope;
        let letter = DeadLetter {
            job,
            session: SessionKey { agent: "clerk".parse().unwrap(), session: "main".parse().unwrap() },
            event,
            crashes: 5,
            attempts: Vec::new(),
            died: venue.now(),
            error: "dead".into(),
            redriven: None,
            kept: UnknownFields::default(),
        };
        venue.store.write(venue.now(), owner, &[dead_letters::letter_write(&letter)]).await.unwrap();
    }
    let erased = operate(&site, true, "purge", json!({"namespace": "app/user/a"})).await.unwrap();
    assert_eq!(erased["erased"], json!({"turns": 0, "jobs": 0, "deadLetters": 1, "timers": 1}));
    let left = timers::list(venue, owner, None, true, 0, 1_000).await.unwrap().items;
    assert_eq!(left.iter().map(|timer| timer.id.clone()).collect::<Vec<_>>(), [TimerId::from_text("app/user/b")]);
    let left = dead_letters::list(venue, owner, 0, 9).await.unwrap().items;
    assert_eq!(left.iter().map(|letter| letter.job.as_str()).collect::<Vec<_>>(), [format!("{:032x}", 2)]);
    assert!(!trellis::venue::ingress::timers::fire_due(venue, owner).await.unwrap().more);
}

/// Counts the documents that are looked at.
struct Looks {
    inner: Arc<dyn Store>,
    looks: AtomicUsize,
}

impl Layer for Looks {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn scan(
        &self,
        owner: &Owner,
        prefix: &str,
        after: Option<&str>,
        reverse: bool,
        limit: usize,
    ) -> Result<Vec<(DocKey, Doc)>, StoreError> {
        let docs = self.inner.scan(owner, prefix, after, reverse, limit).await?;
        self.looks.fetch_add(docs.len(), Ordering::Relaxed);
        Ok(docs)
    }

    /// It walks over all of the prefix, however small its window is.
    async fn page(&self, owner: &Owner, prefix: &str, window: Window) -> Result<DocPage, StoreError> {
        let page = self.inner.page(owner, prefix, window).await?;
        self.looks.fetch_add(page.total, Ordering::Relaxed);
        Ok(page)
    }
}

#[tokio::test]
async fn kept_records_are_counted_with_one_read_each() {
    const MANY: usize = 3_000;
    let dir = tempfile::tempdir().unwrap();
    let (inner, owner) = (EmbeddedStore::open(dir.path()).unwrap(), "acme/u1".parse().unwrap());
    let key = |n: usize| format!("{}{n:06}", resource::namespace_prefix("memory", &format!("app/u{}", n % 2)));
    let writes: Vec<_> = (0..MANY).map(|n| DocWrite::put(key(n), "{}")).collect();
    inner.write(Millis(1), &owner, &writes).await.unwrap();
    let store = Looks { inner, looks: AtomicUsize::new(0) };
    let kept = count_stored(&store, &owner, None).await.unwrap();
    let half = |namespace: &str| ((namespace.to_owned(), "memory".to_owned()), MANY / 2);
    assert_eq!(kept, BTreeMap::from([half("app/u0"), half("app/u1")]));
    assert_eq!(store.looks.into_inner(), MANY);
}
