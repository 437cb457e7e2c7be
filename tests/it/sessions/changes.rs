//! Sessions named, compacted and deleted from outside their turns, and what is fired before its time.

use crate::support::both_stores::{On, on_both};
use crate::support::operate::{boss, operate};
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use trellis::domain::authority::{Authority, Capability};
use trellis::domain::ids::{JobId, SessionKey};
use trellis::domain::job::JobStatus;
use trellis::process::clock::Clock;
use trellis::venue::agents::sessions;
use trellis::venue::jobs;
use trellis::venue::operation::Caller;

const RULES: &str = r#"
[[rule]]
when = { agent = "slow" }
then = { text = "slowly", delay_ms = 700 }

[[rule]]
when = { agent = "writer", turn = 1 }
then = { calls = [{ tool = "put", arguments = { path = "c/note", value = 1 } }] }

[[rule]]
then = { text = "heard: {{input}}" }
"#;

on_both! {
    a_title_outlives_turns_and_one_that_runs
    a_summary_stands_for_the_turns_so_far
    a_session_at_work_is_not_compacted
    a_deleted_session_is_gone_with_its_tasks_and_begins_anew
    a_timer_can_be_fired_before_its_time
}

struct Site(TestVenue, #[expect(dead_code, reason = "deleted with it")] tempfile::TempDir);

impl Site {
    async fn open(on: On) -> Option<Self> {
        let (venue, dir) = on.venue(RULES, Clock::system()).await?;
        for agent in ["a", "slow"] {
            venue.agent(agent, json!({})).await;
        }
        venue.agent("writer", json!({"tools": [{"operation": "lattice/write", "name": "put"}]})).await;
        venue.agent("deaf", json!({"model": {"provider": "scripted", "name": "never"}})).await;
        venue.worker();
        Some(Self(venue, dir))
    }

    async fn run(&self, operation: &str, input: Value) -> Value {
        operate(&self.0.venue, &boss(&self.0.owner), &format!("v/ops/agent/{operation}"), input).await.unwrap()
    }

    async fn refused(&self, caller: &Caller, operation: &str, input: Value) -> String {
        operate(&self.0.venue, caller, &format!("v/ops/agent/{operation}"), input).await.unwrap_err().to_string()
    }

    /// A message in a session, and its answer.
    async fn chat(&self, agent: &str, session: Option<&str>, text: &str) -> String {
        let mut input = json!({"agentId": agent, "message": text});
        if let Some(session) = session {
            input["sessionId"] = session.into();
        }
        let chat = self.run("chat", input).await;
        assert!(chat["response"].is_string(), "{chat}");
        chat["sessionId"].as_str().unwrap().to_owned()
    }

    async fn ask(&self, agent: &str, session: &str) -> JobId {
        let input = json!({"agentId": agent, "input": "go", "sessionId": session, "timeout": 0});
        JobId::new(self.run("request", input).await["job"].as_str().unwrap()).unwrap()
    }

    async fn prompt(&self, session: &str) -> String {
        let context = self.run("context", json!({"agentId": "a", "sessionId": session, "task": "next"})).await;
        context.as_str().unwrap().to_owned()
    }

    async fn messages(&self, session: &str, depth: u64) -> Vec<String> {
        let read = json!({"agentId": "a", "sessionId": session, "archiveDepth": depth});
        let read = self.run("session-read", read).await;
        assert_eq!(read["found"], true);
        let text = |message: &Value| {
            format!("{}: {}", message["role"].as_str().unwrap(), message["content"].as_str().unwrap())
        };
        read["messages"].as_array().unwrap().iter().map(text).collect()
    }
}

fn named(session: &str) -> Value {
    json!({"agentId": "a", "sessionId": session})
}

async fn a_title_outlives_turns_and_one_that_runs(on: On) {
    let Some(site) = Site::open(on).await else { return };
    let session = site.chat("a", None, "one").await;
    let titled = json!({"agentId": "a", "sessionId": session, "title": "About one"});
    assert_eq!(site.run("rename-session", titled.clone()).await["title"], "About one");
    site.chat("a", Some(&session), "two").await;
    let listed = site.run("sessions", json!({"agentId": "a"})).await;
    assert_eq!(listed["sessions"][0]["title"], "About one", "{listed}");
    assert_eq!(listed["sessions"][0]["turnCount"], 2);
    // The turn that runs would write over it.
    let job = site.ask("slow", "s").await;
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    site.run("rename-session", json!({"agentId": "slow", "sessionId": "s", "title": "Slow"})).await;
    assert_eq!(site.0.ended(&job).await.status, JobStatus::Complete);
    let read = site.run("session-read", json!({"agentId": "slow"})).await;
    assert_eq!((&read["title"], &read["turnCount"]), (&json!("Slow"), &json!(1)), "{read}");
    assert_eq!(site.run("rename-session", named(&session)).await["title"], Value::Null);
    assert_eq!(site.run("sessions", json!({"agentId": "a"})).await["sessions"][0]["title"], Value::Null);
    for title in [json!(""), json!("a\nb"), json!("x".repeat(201))] {
        let input = json!({"agentId": "a", "sessionId": session, "title": title});
        assert!(site.refused(&boss(&site.0.owner), "rename-session", input).await.starts_with("`title`"));
    }
    let reader = Capability { with: "g/a".into(), can: "crud".into() };
    let caller = Caller::new(site.0.owner.clone(), "local/ann".into(), Authority::new(Some(vec![reader])));
    for operation in ["rename-session", "delete-session"] {
        let error = site.refused(&caller, operation, named(&session)).await;
        assert!(error.contains("requires agent/session on g/a"), "{error}");
    }
}

async fn a_summary_stands_for_the_turns_so_far(on: On) {
    let Some(site) = Site::open(on).await else { return };
    let session = site.chat("a", None, "first things").await;
    site.chat("a", Some(&session), "second things").await;
    let compact = json!({"agentId": "a", "sessionId": session, "summary": "they spoke of things"});
    let done = site.run("compact-session", compact.clone()).await;
    assert_eq!((&done["compacted"], &done["archivedTurns"]), (&json!(true), &json!(2)), "{done}");
    assert_eq!(site.run("compact-session", compact).await["compacted"], false, "there is nothing more");
    let prompt = site.prompt(&session).await;
    assert!(prompt.contains("they spoke of things") && !prompt.contains("first things"), "{prompt}");
    site.chat("a", Some(&session), "third things").await;
    let prompt = site.prompt(&session).await;
    assert!(prompt.contains("they spoke of things") && prompt.contains("third things"), "{prompt}");
    let said = site.messages(&session, 0).await;
    assert_eq!(said[0], "summary: they spoke of things", "{said:?}");
    assert!(said.len() == 3 && said[1].contains("third things"), "{said:?}");
    let all = site.messages(&session, 1).await;
    assert!(all.len() == 6 && all[0].contains("first things"), "{all:?}");
    assert_eq!(site.0.turns("a", &session).await.len(), 3, "nothing is deleted");
    let newest = json!({"agentId": "a", "sessionId": session, "maxTurns": 1, "archiveDepth": 1});
    let newest = site.run("session-read", newest).await;
    assert_eq!((newest["messages"].as_array().unwrap().len(), &newest["truncated"]), (2, &json!(true)));
    let none = site.run("session-read", json!({"agentId": "a", "sessionId": "nowhere"})).await;
    assert_eq!((&none["found"], &none["messages"]), (&json!(false), &json!([])));
}

async fn a_session_at_work_is_not_compacted(on: On) {
    let Some(site) = Site::open(on).await else { return };
    let parks = json!({"tools": [{"operation": "v/ops/human/ask", "name": "ask"}]});
    site.0.agent("a", parks).await;
    let session = site.chat("a", None, "one").await;
    let key = SessionKey { agent: "a".parse().unwrap(), session: session.parse().unwrap() };
    let (v, owner) = (&site.0.venue, &site.0.owner);
    let facts = sessions::find(v, owner, &key).await.unwrap().unwrap();
    // As a turn leaves it that serves a task.
    let mut state: Value = serde_json::from_slice(facts.state.as_ref().unwrap()).unwrap();
    state["task"] = json!({"job": "0".repeat(32), "turns": 1});
    let then = trellis::store::Amendment::State(state.to_string().into());
    let amend = trellis::store::Amend {
        version: facts.version,
        expected_state: facts.state,
        amendment: then,
        writes: Vec::new(),
    };
    assert_eq!(v.store.amend(v.now(), owner, &key, &amend).await.unwrap(), trellis::store::AmendOutcome::Done);
    let compact = json!({"agentId": "a", "sessionId": session, "summary": "short"});
    let error = site.refused(&boss(owner), "compact-session", compact).await;
    assert!(error.contains("serves a task"), "{error}");
}

async fn a_deleted_session_is_gone_with_its_tasks_and_begins_anew(on: On) {
    let Some(site) = Site::open(on).await else { return };
    let (v, owner) = (&site.0.venue, &site.0.owner);
    let wrote = site.ask("writer", "s").await;
    site.0.ended(&wrote).await;
    let running = site.ask("deaf", "s").await;
    let waiting = site.ask("deaf", "s").await;
    for agent in ["writer", "deaf"] {
        let session = json!({"agentId": agent, "sessionId": "s"});
        assert_eq!(site.run("delete-session", session.clone()).await["deleted"], true);
        assert_eq!(site.run("delete-session", session).await["deleted"], false);
        assert_eq!(site.run("sessions", json!({"agentId": agent})).await["sessions"], json!([]));
    }
    for job in [&running, &waiting] {
        let job = jobs::get(v, owner, job).await.unwrap().unwrap();
        assert_eq!(job.status, JobStatus::Cancelled);
    }
    assert!(jobs::get(v, owner, &wrote).await.unwrap().is_some(), "its jobs stay");
    for prefix in ["turn", "time", "ledger", "c"] {
        let left = v.store.scan(owner, &format!("g/writer/{prefix}"), None, false, 9).await.unwrap();
        assert!(left.is_empty(), "{left:?}");
    }
    let again = site.ask("writer", "s").await;
    site.0.ended(&again).await;
    assert_eq!(site.0.turns("writer", "s").await.first().unwrap().turn, 1);
}

async fn a_timer_can_be_fired_before_its_time(on: On) {
    let Some(site) = Site::open(on).await else { return };
    let (v, owner) = (&site.0.venue, &site.0.owner);
    site.run("trigger", json!({"agentId": "a", "input": "later", "after": "2h"})).await;
    site.run("trigger", json!({"agentId": "a", "input": "often", "every": "1h"})).await;
    let fired = site.run("trigger", json!({"agentId": "a"})).await;
    assert_eq!(fired["fired"].as_array().unwrap().len(), 1, "{fired}");
    let all = jobs::list(v, owner, 0, 9).await.unwrap().items;
    assert_eq!(all.iter().map(|job| &job.head.input).collect::<Vec<_>>(), [&json!("later")]);
    site.0.ended(&all[0].head.id).await;
    assert_eq!(site.run("trigger", json!({"agentId": "a"})).await["fired"], json!([]), "once is once");
    let active = operate(v, &boss(owner), "v/ops/timer/list", json!({"agentId": "a"})).await.unwrap();
    assert_eq!(active["total"], 1, "what comes again and again keeps its times");
    let error = site.refused(&boss(owner), "trigger", json!({"agentId": "a", "after": "2h"})).await;
    assert!(error.contains("expected `input`"), "{error}");
}
