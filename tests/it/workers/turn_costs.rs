//! What a turn asks of its store and of its bus: calls and bytes of the common turns, as tables that a change must
//! argue with.

pub mod counting_layers;

use crate::support::both_stores::{On, on_both};
use crate::support::nats;
use crate::support::operate::{boss, operate};
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use counting_layers::{CountedBus, CountedStore};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use trellis::bus::Bus;
use trellis::bus::embedded::EmbeddedBus;
use trellis::bus::nats::NatsBus;
use trellis::domain::event::Submission;
use trellis::domain::ids::JobId;
use trellis::domain::timer::{Timer, TimerId};
use trellis::process::clock::Clock;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::redis::{RedisStore, ServerOrInjected};
use trellis::store::{Store, keys};
use trellis::venue::ingress::timers::fire_due;

on_both! { a_turn_costs_what_the_table_says }

/// Three lines for each task: the calls of its submission over the API of a process with a worker, whose admission
/// grants the lease; of its turns; and of its messages. Over a queue it is the same, and an acknowledgement.
///
/// The bytes of a store are those of the keys and values that it is given to keep: events, documents, replies, states,
/// messages. Those of a bus are the bodies that are sent. What depends on time and not on what is done isn't counted:
/// see [`CountedBus`]. The child is waited for between two turns; a turn that waits for one itself looks at its job
/// again and again, how often depends on time.
const EMBEDDED_TASKS: &str = "\
the first of a session
  store  admit 1, commit 1, read 1, 17408 bytes
  bus    publish 1, signal 1, 256 bytes
the second
  store  admit 1, commit 1, 2048 bytes
  bus    publish 1, signal 1, 256 bytes
the third
  store  admit 1, commit 1, 2048 bytes
  bus    publish 1, signal 1, 256 bytes
a turn with a read and one without
  store  admit 1, checkpoint 1, commit 2, read 2, 29952 bytes
  bus    publish 1, signal 2, 256 bytes
a turn with two writes and one without
  store  admit 1, checkpoint 1, commit 2, read 3, usage 1, 29696 bytes
  bus    publish 1, signal 2, 256 bytes
a turn that asks a child, the child, and a turn with its result
  store  admit 3, checkpoint 2, commit 3, read 8, remove_published 2, usage 1, write 1, 33280 bytes
  bus    ack 2, publish 4, signal 3, 1024 bytes
";

/// Where others than the process itself hear of the end of a job: what is told of it lies in the outbox.
const FLEET_TASKS: &str = "\
the first of a session
  store  admit 1, commit 1, read 1, remove_published 1, 17920 bytes
  bus    publish 1, signal 1, 256 bytes
the second
  store  admit 1, commit 1, remove_published 1, 2304 bytes
  bus    publish 1, signal 1, 256 bytes
the third
  store  admit 1, commit 1, remove_published 1, 2304 bytes
  bus    publish 1, signal 1, 256 bytes
a turn with a read and one without
  store  admit 1, checkpoint 1, commit 2, read 2, remove_published 1, 30464 bytes
  bus    publish 1, signal 2, 256 bytes
a turn with two writes and one without
  store  admit 1, checkpoint 1, commit 2, read 3, remove_published 1, usage 1, 30208 bytes
  bus    publish 1, signal 2, 256 bytes
a turn that asks a child, the child, and a turn with its result
  store  admit 3, checkpoint 2, commit 3, read 8, remove_published 3, usage 1, write 1, 34048 bytes
  bus    ack 2, publish 4, signal 3, 1024 bytes
";

/// Where a worker of its own watches the time: the scans are of the sweep, here called by hand.
const EMBEDDED_TIMERS: &str = "\
a timer is set
  store  page 1, read 2, write_within 1, 768 bytes
  bus    0 bytes
a timer is set, and gives a session a task
  store  admit 1, commit 1, page 1, read 6, scan 2, write 1, write_within 1, 3840 bytes
  bus    publish 1, signal 1, 256 bytes
";

/// Where the queue rings.
const FLEET_TIMERS: &str = "\
a timer is set
  store  page 1, read 2, write_within 1, 768 bytes
  bus    alarm set 1, 0 bytes
a timer is set, and gives a session a task
  store  admit 1, commit 1, page 1, read 6, remove_published 1, write 1, write_within 1, 4352 bytes
  bus    alarm ack 1, alarm set 1, publish 1, signal 1, 256 bytes
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
when = { agent = "parent", turn = 1 }
then = { calls = [{ tool = "ask", arguments = { agentId = "child", input = "go", wait = 0 } }] }

[[rule]]
then = { text = "done" }
"#;

/// A venue whose store and bus are counted.
struct Counted {
    venue: TestVenue,
    /// What is looked at here isn't counted.
    inner: Arc<dyn Store>,
    store: Arc<CountedStore>,
    bus: Arc<CountedBus>,
    _dir: TempDir,
}

impl Counted {
    /// Over the embedded store and queue, or over Redis and NATS; `None` without a server.
    async fn open(on: On) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let (inner, bus): (Arc<dyn Store>, Arc<dyn Bus>) = match on {
            On::Embedded => {
                let store = EmbeddedStore::open(dir.path()).unwrap();
                let bus = EmbeddedBus::new(Arc::clone(&store), Duration::from_secs(30), Clock::system()).unwrap();
                (store, Arc::new(bus))
            }
            On::Redis => {
                let (redis, url) = (RedisServer::shared()?, nats::shared()?);
                let store = RedisStore::open(redis.options(ServerOrInjected::Server)).await.unwrap();
                (store, Arc::new(NatsBus::open(&nats::options(&url)).await.unwrap()))
            }
        };
        let (store, bus) = (CountedStore::new(Arc::clone(&inner)), CountedBus::new(bus));
        let mut venue =
            TestVenue::new(Arc::<CountedStore>::clone(&store), Arc::<CountedBus>::clone(&bus), dir.path(), RULES).await;
        venue.sweep = Duration::from_hours(1);
        Some(Self { venue, inner, store, bus, _dir: dir })
    }

    /// Starts a worker; what it looks at when it starts is over then.
    async fn start(&self) {
        self.venue.worker();
        tokio::time::sleep(Duration::from_millis(300)).await;
        while !self.store.take().is_empty() {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let tool = |operation: &str, name: &str| json!({"tools": [{"operation": operation, "name": name}]});
        for (agent, config) in [
            ("echo", json!({})),
            ("reader", tool("v/ops/lattice/read", "read")),
            ("writer", tool("v/ops/lattice/write", "write")),
            ("parent", tool("v/ops/agent/request", "ask")),
            ("child", json!({})),
        ] {
            self.venue.agent(agent, config).await;
        }
        self.begin();
    }

    fn begin(&self) {
        drop((self.store.take(), self.bus.take()));
    }

    /// What was asked for since the row began.
    fn row(&self, what: &str) -> String {
        let (store, bus) = (self.store.take(), self.bus.take());
        eprintln!("{what}: {} and {} bytes", store.bytes, bus.bytes);
        format!("{what}\n  store  {store}\n  bus    {bus}\n")
    }

    /// Waits until everything is done that a task has left.
    async fn is_done(&self, job: &JobId) {
        let owner = &self.venue.owner;
        for _ in 0..6_000 {
            let ended = self.inner.doc(owner, &keys::job_status(job)).await.unwrap().status();
            let ended = ended.is_some_and(|(status, _)| status.is_terminal());
            let sessions = self.inner.sessions(owner, None, None, 100).await.unwrap();
            let at_rest = sessions.iter().all(|session| session.lease_until.is_none() && session.mailbox.is_empty());
            let is_sent = self.inner.outbox(owner).await.unwrap().is_empty() && self.bus.is_settled();
            if ended && at_rest && is_sent {
                return self.is_told().await;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("job {job} isn't done within a minute");
    }

    /// What is told to listeners of this process alone lies in no outbox: waits until nothing more is.
    async fn is_told(&self) {
        let mut before = None;
        while before != Some(self.bus.calls()) {
            before = Some(self.bus.calls());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// A task in the session `main` of an agent.
    async fn task(&self, id: &str, agent: &str) {
        let said =
            Submission { input: json!("hi"), session_id: Some("main".parse().unwrap()), ..Submission::default() };
        let submitted = self.venue.arrive(agent, id, true, said).await;
        self.is_done(&submitted.job.unwrap()).await;
    }

    /// Sets a timer that gives a task to the session `main` of `echo`.
    async fn set(&self, after: &str) -> TimerId {
        let input = json!({"agentId": "echo", "sessionId": "main", "input": "tick", "after": after});
        let caller = boss(&self.venue.owner);
        let set = operate(&self.venue.venue, &caller, "v/ops/agent/trigger", input).await.unwrap();
        TimerId::new(set["timer"].as_str().unwrap()).unwrap()
    }

    /// A timer, and what is done by the task that it gives.
    async fn fires(&self, on: On) {
        let (venue, owner) = (&self.venue.venue, &self.venue.owner);
        let id = self.set("2s").await;
        let timer = async || {
            let (timer, _): (Option<Timer>, _) = self.inner.get_versioned(owner, &keys::timer(&id)).await.unwrap();
            timer.unwrap()
        };
        let due = timer().await.due;
        while venue.now() < due {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        if on == On::Embedded {
            fire_due(venue, owner).await.unwrap();
        }
        self.is_done(&JobId::derive(&venue.key, owner, &timer().await.event_id(&venue.key, owner, due))).await;
    }
}

async fn a_turn_costs_what_the_table_says(on: On) {
    let Some(counted) = Counted::open(on).await else { return };
    counted.start().await;
    let mut table = String::new();
    for (at, (what, agent)) in [
        ("the first of a session", "echo"),
        ("the second", "echo"),
        ("the third", "echo"),
        ("a turn with a read and one without", "reader"),
        ("a turn with two writes and one without", "writer"),
        ("a turn that asks a child, the child, and a turn with its result", "parent"),
    ]
    .into_iter()
    .enumerate()
    {
        counted.task(&format!("t{at}"), agent).await;
        table += &counted.row(what);
    }
    counted.set("1h").await;
    table += &counted.row("a timer is set");
    counted.fires(on).await;
    table += &counted.row("a timer is set, and gives a session a task");
    let expected = match on {
        On::Embedded => [EMBEDDED_TASKS, EMBEDDED_TIMERS],
        On::Redis => [FLEET_TASKS, FLEET_TIMERS],
    };
    assert_eq!(table, expected.concat(), "\n{table}");
}
