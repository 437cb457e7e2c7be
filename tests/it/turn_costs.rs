//! What a turn asks of its store: the calls of the common turns, as a table that a change must argue with.

use crate::support::both::{On, on_both};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;
use trellis::domain::event::Submission;
use trellis::domain::ids::{JobId, Owner};
use trellis::process::clock::Clock;
use trellis::store::{Layer, Store, StoreError, StoreMethod, keys};

on_both! { a_turn_costs_what_the_table_says }

/// One line for each task: the calls of its submission over the API (one admission), of its turns and of its
/// messages. Over a queue the submission is no call of its own.
const TABLE: &str = "\
the first of a session: admit 2, commit 1, published 1, read 1
the second: admit 2, commit 1, published 1
the third: admit 2, commit 1, published 1
a turn with a read and one without: admit 2, checkpoint 1, commit 2, published 1, read 2
a turn with two writes and one without: admit 2, checkpoint 1, commit 2, published 1, read 3, usage 1
";

const RULES: &str = r#"
[[rule]]
when = { agent = "reader", turn = 1 }
then = { calls = [{ tool = "read", arguments = { path = "w/a" } }] }

[[rule]]
when = { agent = "writer", turn = 1 }
then = { calls = [
  { tool = "write", arguments = { path = "w/a", value = 1 } },
  { tool = "write", arguments = { path = "w/b", value = 2 } },
] }

[[rule]]
then = { text = "done" }
"#;

/// Counts the calls.
struct Counting {
    inner: Arc<dyn Store>,
    calls: Mutex<BTreeMap<&'static str, u32>>,
}

impl Layer for Counting {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn around<T: Send, F: Future<Output = Result<T, StoreError>> + Send>(
        &self,
        method: StoreMethod,
        call: impl Fn() -> F + Send + Sync,
    ) -> Result<T, StoreError> {
        // How full the store is, is known without asking it.
        if method.name != "fill" {
            *self.calls.lock().entry(method.name).or_default() += 1;
        }
        call().await
    }
}

/// Waits until everything is done that tasks have left; what it looks at isn't counted.
async fn is_done(store: &dyn Store, owner: &Owner, job: &JobId) {
    for _ in 0..6_000 {
        let ended = store.doc(owner, &keys::job_status(job)).await.unwrap().status();
        let ended = ended.is_some_and(|(status, _)| status.is_terminal());
        let sessions = store.sessions(owner, None, None, 100).await.unwrap();
        let at_rest = sessions.iter().all(|session| session.lease_until.is_none() && session.mailbox.is_empty());
        if ended && at_rest && store.outbox(owner).await.unwrap().is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("job {job} isn't done within a minute");
}

async fn a_turn_costs_what_the_table_says(on: On) {
    let Some((mut venue, _dir)) = on.venue(RULES, Clock::system()).await else { return };
    let inner = Arc::clone(&venue.venue.store);
    let counting = Arc::new(Counting { inner: Arc::clone(&inner), calls: Mutex::default() });
    let counted: Arc<dyn Store> = Arc::<Counting>::clone(&counting);
    let Some(own) = Arc::get_mut(&mut venue.venue) else { panic!("nobody has it yet") };
    own.store = counted;
    venue.sweep = Duration::from_hours(1);
    venue.worker().await;
    // What a worker looks at when it starts is over.
    tokio::time::sleep(Duration::from_millis(300)).await;
    while !std::mem::take(&mut *counting.calls.lock()).is_empty() {
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    venue.agent("echo", json!({})).await;
    let tool = |operation: &str, name: &str| json!({"tools": [{"operation": operation, "name": name}]});
    venue.agent("reader", tool("v/ops/lattice/read", "read")).await;
    venue.agent("writer", tool("v/ops/lattice/write", "write")).await;
    let mut table = String::new();
    for (at, (what, agent)) in [
        ("the first of a session", "echo"),
        ("the second", "echo"),
        ("the third", "echo"),
        ("a turn with a read and one without", "reader"),
        ("a turn with two writes and one without", "writer"),
    ]
    .into_iter()
    .enumerate()
    {
        let said =
            Submission { input: json!("hi"), session_id: Some("main".parse().unwrap()), ..Submission::default() };
        counting.calls.lock().clear();
        let submitted = venue.arrive(agent, &format!("t{at}"), true, said).await;
        is_done(&*inner, &venue.owner, &submitted.job.unwrap()).await;
        let calls = std::mem::take(&mut *counting.calls.lock());
        let calls: Vec<_> = calls.iter().map(|(name, times)| format!("{name} {times}")).collect();
        writeln!(table, "{what}: {}", calls.join(", ")).unwrap();
    }
    assert_eq!(table, TABLE);
}
