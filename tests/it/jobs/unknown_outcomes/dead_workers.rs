//! A call that left and whose worker died is listed once, whatever ends what it was made for.

use super::Site;
use crate::support::both_stores::{On, on_both};
use crate::support::http::Server;
use crate::support::operate::{boss, operate};
use crate::support::venue::TestVenue;
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use trellis::bus::embedded::EmbeddedBus;
use trellis::domain::approval::ApprovalVerdict;
use trellis::domain::resource::remote::RemoteOperation;
use trellis::process::clock::Clock;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::faulty::{FaultAt, FaultPlan, FaultyStore};
use trellis::venue::approvals;
use trellis::venue::outbound::endpoint::{Endpoint, EndpointSettings};
use trellis::venue::outbound::proxy::ProxyRoute;
use trellis::venue::resources::remote::{RemoteProvider, RemoteSettings};
use trellis::venue::resources::{ResourceProvider, ResourceProviders};

const LEASE: Duration = Duration::from_secs(4);
const PATIENCE: Duration = Duration::from_mins(1);
const TICK: Duration = Duration::from_millis(50);

/// Two processes on one store, of which the first can be killed.
struct Pair {
    site: Site,
    faulty: Arc<FaultyStore>,
    first: TestVenue,
    second: TestVenue,
    server: Server,
    _dir: TempDir,
}

impl Pair {
    async fn start(on: On) -> Option<Self> {
        let site = Site::start().await;
        let rules = rules(&site);
        let (mut second, dir) = super::venue(on, &site, &rules).await?;
        let faulty = FaultyStore::new(Arc::clone(&second.venue.store), FaultPlan::Never);
        let queue = EmbeddedStore::open(&dir.path().join("first")).unwrap();
        let bus = EmbeddedBus::new(queue, Duration::from_secs(2), Clock::system()).unwrap();
        let mut first = TestVenue::at(faulty.clone(), Arc::new(bus), dir.path(), &rules, Clock::system()).await;
        for venue in [&mut first, &mut second] {
            let catalog = trellis::ops::catalog_with(true, site.policy()).with_resources(kinds(&site));
            Arc::get_mut(&mut venue.venue).expect("nobody has it yet").catalog = catalog;
        }
        (first.lease, second.lease) = (LEASE, LEASE);
        let server = Server::of(Arc::clone(&second.venue)).await;
        Some(Self { site, faulty, first, second, server, _dir: dir })
    }

    async fn agents(&self) {
        self.first.agent("payer", json!({"tools": ["v/ops/http/post"]})).await;
        let asking = json!([{"operation": "v/ops/http/post", "name": "http_post", "approval": "ask"}]);
        self.first.agent("buyer", json!({"tools": asking})).await;
        let docs = json!({"docs": {"kind": "rag", "mode": "read-write"}});
        self.first.agent("clerk", json!({"defaultTools": false, "resources": docs})).await;
    }

    /// A person approves the call that waits.
    async fn approve(&self) {
        let (venue, owner) = (&self.first.venue, &self.first.owner);
        let waiting = async || approvals::list(venue, owner, false, 0, 10).await.unwrap().items;
        until("a person is asked", async || !waiting().await.is_empty()).await;
        let asked = waiting().await.remove(0);
        let verdict = ApprovalVerdict::Approved { arguments: None, scopes: None };
        approvals::decide(venue, &boss(owner), &asked.id, verdict, None).await.unwrap();
    }

    /// The first process dies while its request is on its way.
    async fn kill_in_flight(&self) {
        until("the request has left", async || self.site.posts() > 0).await;
        self.faulty.set_plan(FaultPlan::From { n: 1, at: FaultAt::Before });
    }

    /// The lease of the session is over.
    async fn lapsed(&self) {
        let venue = &self.second.venue;
        until("the lease has lapsed", async || {
            let sessions = venue.store.sessions(&self.second.owner, None, None, 10).await.unwrap();
            sessions.iter().all(|facts| facts.lease_until.is_none_or(|until| until < venue.now()))
        })
        .await;
    }

    async fn task(&self, agent: &str, id: &str) -> String {
        let body = json!({"input": "pay", "sessionId": "s1", "context": ["app/user/a"]});
        let server = Server::of(Arc::clone(&self.first.venue)).await;
        let server = if id == "t1" { &server } else { &self.server };
        let answer = server.post_once(id, &format!("/api/v1/agents/{agent}/tasks"), body).await;
        answer.body(202)["job"].as_str().unwrap().to_owned()
    }

    async fn listed(&self) -> Vec<Value> {
        self.server.get("/api/v1/outcomes").await.body(200)["items"].as_array().unwrap().clone()
    }

    /// What was listed, once and no more.
    async fn listed_once(&self, case: &str) -> Value {
        until(&format!("{case}: it is listed"), async || !self.listed().await.is_empty()).await;
        let sweeps = || metric(&self.second, "trellis_sweeps_total");
        let before = sweeps();
        until("more sweeps", async || sweeps() >= before + 5).await;
        let listed = self.listed().await;
        assert_eq!(listed.len(), 1, "{case}: {listed:?}");
        assert_eq!(metric(&self.second, "trellis_outcomes_unknown_total"), 1, "{case}");
        listed[0].clone()
    }
}

/// The sum of a metric over its labels.
fn metric(venue: &TestVenue, name: &str) -> u64 {
    let text = venue.venue.metrics.encode();
    let lines = text.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        tokio::time::sleep(TICK).await;
    }
}

fn rules(site: &Site) -> String {
    let call = |agent: &str, tool: &str, arguments: &str| {
        format!(
            "[[rule]]\nwhen = {{ agent = \"{agent}\", turn = 1 }}\nthen = {{ calls = [{{ tool = \"{tool}\", arguments = \
             {{ {arguments} }} }}] }}\n\n"
        )
    };
    let post = call("payer", "http_post", &format!("url = \"{}\", body = \"10 EUR\"", site.url("/hang")));
    let approved = call("buyer", "http_post", &format!("url = \"{}\", body = \"10 EUR\"", site.url("/hang")));
    let put = call("clerk", "docs_put", "id = \"x\", content = \"10 EUR\"");
    format!("{post}{approved}{put}[[rule]]\nthen = {{ text = \"done\" }}\n")
}

/// A kind of resources that the site provides: it hangs at the first write.
fn kinds(site: &Site) -> ResourceProviders {
    let place = EndpointSettings {
        url: site.url("/hang-first"),
        allow_private: true,
        proxy: ProxyRoute::default(),
        timeout: Duration::from_mins(1),
        max_bytes: 100_000,
        credential: None,
        setting: "resources.kinds.rag".into(),
    };
    let settings =
        RemoteSettings { kind: "rag".into(), about: String::new(), verbs: vec![RemoteOperation::Put], mode: None };
    ResourceProviders::new([
        Box::new(RemoteProvider::new(settings, Endpoint::new(place).unwrap())) as Box<dyn ResourceProvider>
    ])
}

/// The call whose worker dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// `http/post`.
    Post,
    /// `http/post` that a person has approved.
    Approved,
    /// A write of a resource that a server elsewhere keeps.
    Write,
}

impl Way {
    const fn agent(self) -> &'static str {
        match self {
            Self::Post => "payer",
            Self::Approved => "buyer",
            Self::Write => "clerk",
        }
    }

    /// The tool, and its operation as it is listed.
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Post | Self::Approved => ("http_post", "v/ops/http/post"),
            Self::Write => ("docs_put", "docs_put"),
        }
    }
}

/// How what the call was made for ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Cancel,
    /// When the lease has lapsed already.
    LateCancel,
    PauseAndCancel,
    SuspendAndCancel,
    Suspend,
    Terminate,
    Remove,
    DeleteSession,
}

async fn a_call_of_a_turn_is_listed_once(on: On, way: Way, end: End) {
    let Some(pair) = Pair::start(on).await else { return };
    let agent = way.agent();
    pair.agents().await;
    pair.first.worker();
    let job = pair.task(agent, "t1").await;
    if way == Way::Approved {
        pair.approve().await;
    }
    pair.kill_in_flight().await;
    let server = &pair.server;
    let put = async |path: String| server.put(&path, Value::Null).await.body(200);
    let delete = async |path: &str| server.send(Method::DELETE, path, &[], "").await;
    match end {
        End::Cancel | End::LateCancel | End::DeleteSession => {}
        End::PauseAndCancel => drop(put(format!("/api/v1/jobs/{job}/pause")).await),
        End::Suspend | End::SuspendAndCancel => drop(put(format!("/api/v1/agents/{agent}/suspend")).await),
        End::Terminate => drop(delete(&format!("/api/v1/agents/{agent}")).await.body(200)),
        End::Remove => drop(delete(&format!("/api/v1/agents/{agent}?remove=true")).await.body(200)),
    }
    if matches!(end, End::LateCancel | End::PauseAndCancel) {
        pair.lapsed().await;
    }
    if matches!(end, End::Cancel | End::LateCancel | End::PauseAndCancel | End::SuspendAndCancel) {
        put(format!("/api/v1/jobs/{job}/cancel")).await;
    }
    pair.second.worker();
    if end == End::DeleteSession {
        let (venue, session) = (&pair.second, json!({"agentId": agent, "sessionId": "s1"}));
        let boss = boss(&venue.owner);
        let gone = async || operate(&venue.venue, &boss, "v/ops/agent/delete-session", session.clone()).await.is_ok();
        until("the session is let go", gone).await;
    }
    let item = pair.listed_once(&format!("{end:?}")).await;
    let (tool, operation) = way.names();
    let call = json!({"agent": agent, "session": "s1", "turn": 1, "index": 0, "tool": tool});
    assert_eq!((&item["call"], &item["operation"]), (&call, &json!(operation)), "{end:?}: {item}");
    assert_eq!(item["job"], json!(job), "{end:?}: {item}");
    // Neither is it listed again by what comes to that session.
    if matches!(end, End::Suspend | End::SuspendAndCancel) {
        put(format!("/api/v1/agents/{agent}/resume")).await;
    }
    // A task that goes on ends; a session that was deleted begins anew, and with it the agent.
    if !matches!(end, End::Terminate | End::Remove | End::DeleteSession) {
        let next = if end == End::Suspend { job } else { pair.task(agent, "t2").await };
        until("the next task ends", async || {
            let job = server.get(&format!("/api/v1/jobs/{next}")).await.body(200);
            job["status"] == "COMPLETE"
        })
        .await;
    }
    pair.listed_once(&format!("{end:?}, later")).await;
    assert_eq!(pair.site.posts(), 1, "{end:?}");
}

async fn a_call_is_listed_once_when_its_task_is_cancelled(on: On) {
    a_call_of_a_turn_is_listed_once(on, Way::Post, End::Cancel).await;
}

async fn a_call_is_listed_once_when_its_task_is_cancelled_late(on: On) {
    a_call_of_a_turn_is_listed_once(on, Way::Post, End::LateCancel).await;
}

async fn a_call_is_listed_once_when_its_task_is_paused_and_cancelled(on: On) {
    a_call_of_a_turn_is_listed_once(on, Way::Post, End::PauseAndCancel).await;
}

async fn a_call_is_listed_once_when_its_agent_is_suspended(on: On) {
    a_call_of_a_turn_is_listed_once(on, Way::Post, End::Suspend).await;
}

async fn a_call_is_listed_once_when_its_suspended_task_is_cancelled(on: On) {
    a_call_of_a_turn_is_listed_once(on, Way::Post, End::SuspendAndCancel).await;
}

async fn a_call_is_listed_once_when_its_agent_is_terminated(on: On) {
    a_call_of_a_turn_is_listed_once(on, Way::Post, End::Terminate).await;
}

async fn a_call_is_listed_once_when_its_agent_is_removed(on: On) {
    a_call_of_a_turn_is_listed_once(on, Way::Post, End::Remove).await;
}

async fn a_call_is_listed_once_when_its_session_is_deleted(on: On) {
    a_call_of_a_turn_is_listed_once(on, Way::Post, End::DeleteSession).await;
}

async fn an_approved_call_is_listed_once_whatever_ends_its_task(on: On) {
    for end in [End::Cancel, End::LateCancel, End::Suspend, End::Terminate, End::Remove, End::DeleteSession] {
        Box::pin(a_call_of_a_turn_is_listed_once(on, Way::Approved, end)).await;
    }
}

async fn a_write_of_a_resource_is_listed_once_whatever_ends_its_task(on: On) {
    for end in [End::Cancel, End::LateCancel, End::SuspendAndCancel, End::Terminate, End::Remove, End::DeleteSession] {
        Box::pin(a_call_of_a_turn_is_listed_once(on, Way::Write, end)).await;
    }
}

async fn a_write_of_a_resource_is_listed_when_its_task_is_cancelled(on: On) {
    let Some(pair) = Pair::start(on).await else { return };
    pair.agents().await;
    pair.second.worker();
    let body = json!({"input": "pay", "sessionId": "s1", "context": ["app/user/a"]});
    let job = pair.server.post("/api/v1/agents/clerk/tasks", body).await.body(202)["job"].clone();
    until("the request has left", async || pair.site.posts() > 0).await;
    pair.server.put(&format!("/api/v1/jobs/{}/cancel", job.as_str().unwrap()), Value::Null).await.body(200);
    let item = pair.listed_once("cancelled").await;
    assert_eq!((&item["operation"], &item["job"]), (&json!("docs_put"), &job), "{item}");
    assert_eq!(pair.site.posts(), 1);
}

async fn a_write_of_a_resource_is_made_again_under_its_key(on: On) {
    let Some(pair) = Pair::start(on).await else { return };
    pair.agents().await;
    pair.first.worker();
    let job = pair.task("clerk", "t1").await;
    pair.kill_in_flight().await;
    pair.second.worker();
    until("the task ends", async || {
        let job = pair.server.get(&format!("/api/v1/jobs/{job}")).await.body(200);
        job["status"] == "COMPLETE"
    })
    .await;
    let keys: Vec<_> = pair.site.requests().iter().filter_map(|request| key_of(request)).collect();
    assert_eq!((keys.len(), &keys[0]), (2, &keys[1]), "the same key: {keys:?}");
    let turns = pair.second.turns("clerk", "s1").await;
    assert_eq!(turns[0].calls[0].outcome, "ok");
    assert_eq!(pair.listed().await, Vec::<Value>::new(), "its end is known");
}

fn key_of(request: &str) -> Option<String> {
    request.lines().find_map(|line| line.strip_prefix("idempotency-key: ").map(str::to_owned))
}

async fn an_operation_is_listed_once_when_its_job_is_deleted(on: On) {
    let Some(pair) = Pair::start(on).await else { return };
    pair.first.worker();
    let order = json!({"operation": "v/ops/http/post", "input": {"url": pair.site.url("/hang")}, "wait": 0});
    let server = Server::of(Arc::clone(&pair.first.venue)).await;
    let job = server.post("/api/v1/invoke", order).await.body(201)["id"].as_str().unwrap().to_owned();
    pair.kill_in_flight().await;
    let path = format!("/api/v1/jobs/{job}");
    assert_eq!(pair.server.put(&format!("{path}/cancel"), Value::Null).await.body(200)["status"], "CANCELLED");
    pair.server.put(&format!("{path}/delete"), Value::Null).await.body(200);
    pair.second.worker();
    let item = pair.listed_once("deleted").await;
    assert_eq!((&item["id"], &item["operation"]), (&json!(job), &json!("v/ops/http/post")), "{item}");
    assert_eq!(pair.site.posts(), 1);
    pair.server.get(&path).await.is_problem(404, "");
}

on_both! {
    a_call_is_listed_once_when_its_task_is_cancelled
    a_call_is_listed_once_when_its_task_is_cancelled_late
    a_call_is_listed_once_when_its_task_is_paused_and_cancelled
    a_call_is_listed_once_when_its_agent_is_suspended
    a_call_is_listed_once_when_its_suspended_task_is_cancelled
    a_call_is_listed_once_when_its_agent_is_terminated
    a_call_is_listed_once_when_its_agent_is_removed
    a_call_is_listed_once_when_its_session_is_deleted
    an_approved_call_is_listed_once_whatever_ends_its_task
    a_write_of_a_resource_is_listed_once_whatever_ends_its_task
    a_write_of_a_resource_is_listed_when_its_task_is_cancelled
    a_write_of_a_resource_is_made_again_under_its_key
    an_operation_is_listed_once_when_its_job_is_deleted
}
