//! Rows of `agents.md`, States: suspend, resume, update, delete, remove, fork.

use crate::support::operate::{on, operate};
use crate::support::redis::RedisServer;
use crate::support::venue::{TestVenue, job_record};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use trellis::domain::authority::trail::Trail;
use trellis::domain::authority::{Authority, Capability};
use trellis::domain::ids::AgentId;
use trellis::domain::job::JobStatus;
use trellis::process::clock::Clock;
use trellis::store::keys;
use trellis::venue::agents;
use trellis::venue::jobs;
use trellis::venue::operation::{Caller, OpError};

const ECHO: &str = "";

fn echo() -> Value {
    json!({"model": {"provider": "scripted", "name": "echo"}})
}

fn never() -> Value {
    json!({"model": {"provider": "scripted", "name": "never"}})
}

async fn call_as(venue: &TestVenue, authority: Authority, operation: &str, input: Value) -> Result<Value, OpError> {
    let caller = Caller::new(venue.owner.clone(), "local/me".into(), authority);
    operate(&venue.venue, &caller, &format!("v/ops/agent/{operation}"), input).await
}

async fn call(venue: &TestVenue, operation: &str, input: Value) -> Result<Value, OpError> {
    call_as(venue, Authority::without_limits(), operation, input).await
}

async fn refused(venue: &TestVenue, operation: &str, input: Value) -> String {
    call(venue, operation, input).await.unwrap_err().to_string()
}

async fn info(venue: &TestVenue, id: &str) -> Value {
    call(venue, "info", json!({"agentId": id})).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_agent_takes_work_and_loses_none_of_it() {
    let (venue, _dir) = TestVenue::embedded(ECHO).await;
    venue.agent("a", echo()).await;
    venue.worker();
    venue.run("a", "first", json!("1")).await;
    let suspended = call(&venue, "suspend", json!({"agentId": "a", "reason": "repairs"})).await.unwrap();
    assert_eq!((&suspended["status"], &suspended["error"]), (&json!("SUSPENDED"), &json!("repairs")));
    assert_eq!(call(&venue, "suspend", json!({"agentId": "a"})).await.unwrap()["changed"], false);
    let mut tasks = Vec::new();
    for id in ["t1", "t2", "t3"] {
        tasks.push(venue.submit("a", id, json!(id)).await.job.unwrap());
    }
    assert_eq!(info(&venue, "a").await["tasks"], 3);
    let waiting = jobs::read_for_people(&venue.venue, &venue.owner, &tasks[0]).await.unwrap().unwrap();
    let waiting = &job_record(&waiting)["waiting"];
    assert_eq!(
        (&waiting["kind"], &waiting["reason"]),
        (&json!("suspended"), &json!("agent `a` is suspended: repairs"))
    );
    let resumed = call(&venue, "resume", json!({"agentId": "a"})).await.unwrap();
    assert_eq!((&resumed["status"], resumed["error"].is_null()), (&json!("SLEEPING"), true));
    for (task, id) in tasks.iter().zip(["t1", "t2", "t3"]) {
        let job = venue.ended(task).await;
        assert_eq!((job.status, job.result.unwrap().output), (JobStatus::Complete, Some(json!(id))));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminated_agent_cancels_open_work_and_refuses_new() {
    let (venue, _dir) = TestVenue::embedded(ECHO).await;
    venue.agent("a", never()).await;
    venue.worker();
    let jobs = [venue.submit("a", "t1", json!(1)).await, venue.submit("a", "t2", json!(2)).await];
    let ended = call(&venue, "delete", json!({"agentId": "a"})).await.unwrap();
    assert_eq!((&ended["status"], &ended["cancelled"]), (&json!("TERMINATED"), &json!(2)));
    for submitted in jobs {
        let job = venue.ended(&submitted.job.unwrap()).await;
        assert_eq!(job.status, JobStatus::Cancelled);
        assert!(job.result.unwrap().error.unwrap().contains("agent `a` was deleted"));
    }
    let refusal = refused(&venue, "request", json!({"agentId": "a", "input": 1})).await;
    assert!(refusal.contains("the agent is terminated"), "{refusal}");
    for operation in ["suspend", "resume"] {
        let refusal = refused(&venue, operation, json!({"agentId": "a"})).await;
        assert!(refusal.contains("`a` is terminated"), "{refusal}");
    }
    let noop = call(&venue, "create", json!({"agentId": "a", "config": echo()})).await.unwrap();
    assert_eq!((&noop["created"], &noop["status"]), (&json!(false), &json!("TERMINATED")));
    let again = json!({"agentId": "a", "config": echo(), "overwrite": true});
    // Or running, as long as its worker hasn't let go of what was cancelled.
    assert_ne!(call(&venue, "create", again).await.unwrap()["status"], "TERMINATED");
    assert_eq!(venue.run("a", "t3", json!(3)).await.status, JobStatus::Complete);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_name_is_free_and_its_next_agent_is_fresh() {
    let (venue, _dir) = TestVenue::embedded(ECHO).await;
    venue.agent("a", echo()).await;
    venue.agent("a-b", echo()).await;
    venue.worker();
    let hello = call(&venue, "chat", json!({"agentId": "a", "message": "hello"})).await.unwrap();
    venue.run("a", "t1", json!(1)).await;
    venue.run("a-b", "u1", json!(1)).await;
    let removed = call(&venue, "delete", json!({"agentId": "a", "remove": true})).await.unwrap();
    assert_eq!(removed["removed"], true);
    assert!(refused(&venue, "info", json!({"agentId": "a"})).await.contains("no agent `a`"));
    let id: AgentId = "a".parse().unwrap();
    let left = venue.venue.store.scan(&venue.owner, &keys::agent_documents(&id), None, false, 10).await.unwrap();
    assert_eq!(left.len(), 0, "{left:?}");
    assert!(refused(&venue, "delete", json!({"agentId": "a", "remove": true})).await.contains("no agent `a`"));
    call(&venue, "create", json!({"agentId": "a", "config": echo()})).await.unwrap();
    let fresh = info(&venue, "a").await;
    assert_eq!(
        (&fresh["sessions"], &fresh["timelineLength"], &fresh["configVersion"]),
        (&json!(0), &json!(0), &json!(1))
    );
    let old = json!({"agentId": "a", "message": "again", "sessionId": hello["sessionId"]});
    assert!(refused(&venue, "chat", old).await.contains("has no session `chat-"), "its sessions went with it");
    let again = call(&venue, "chat", json!({"agentId": "a", "message": "again"})).await.unwrap();
    assert_eq!(again["response"], "again");
    let turns = venue.turns("a", again["sessionId"].as_str().unwrap()).await;
    assert_eq!((turns.len(), turns[0].turn, turns[0].heard.len()), (1, 1, 1));
    assert_eq!(info(&venue, "a-b").await["timelineLength"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_merges_and_is_checked_as_a_whole() {
    let (venue, _dir) = TestVenue::embedded(ECHO).await;
    let config = json!({"model": {"provider": "scripted", "name": "echo", "maxTokens": 9}, "systemPrompt": "x"});
    venue.agent("a", config).await;
    let update = |keys: Value| {
        let mut input = json!({"agentId": "a"});
        input.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        input
    };
    let same = call(&venue, "update", update(json!({"config": {"systemPrompt": "x"}}))).await.unwrap();
    assert_eq!((&same["updated"], &same["configVersion"]), (&json!(false), &json!(1)));
    let change = json!({"config": {"systemPrompt": null, "concurrency": 3}, "state": {"config": {"model": {"temperature": 1.0}}}});
    let changed = call(&venue, "update", update(change)).await.unwrap();
    assert_eq!((&changed["updated"], &changed["configVersion"]), (&json!(true), &json!(2)));
    let config = info(&venue, "a").await["config"].clone();
    assert_eq!(config["model"], json!({"provider": "scripted", "name": "echo", "temperature": 1.0, "maxTokens": 9}));
    assert_eq!((&config["concurrency"], config["systemPrompt"].is_null()), (&json!(3), true));
    for (keys, part) in [
        (json!({"config": {"systemPromt": "y"}}), "did you mean `systemPrompt`"),
        (json!({"config": {"model": null}}), "`model`"),
        (json!({"config": {"concurrency": 0}}), "`concurrency`"),
        (json!({"config": {"concurrency": 4}, "expect": 1}), "has version 2, expected 1"),
        (json!({"state": {"cursor": 1}}), "`state.cursor`"),
        (json!({}), "expected `config`, `state.config` or `state.context`"),
    ] {
        let refusal = refused(&venue, "update", update(keys.clone())).await;
        assert!(refusal.contains(part), "{keys}: {refusal}");
    }
    call(&venue, "update", update(json!({"config": {"concurrency": 4}, "expect": 2}))).await.unwrap();
    assert_eq!(info(&venue, "a").await["configVersion"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_seeds_spellings_are_mapped() {
    let (venue, _dir) = TestVenue::embedded(ECHO).await;
    let model = json!({"provider": "scripted", "name": "echo"});
    let input = json!({
        "agentId": "a", "config": {"operation": "llmagent:chat", "systemPrompt": "old"},
        "state": {"config": {"model": model, "systemPrompt": "new"}}
    });
    call(&venue, "create", input).await.unwrap();
    assert_eq!(info(&venue, "a").await["config"]["systemPrompt"], "new");
    let only = json!({"agentId": "b", "state": {"config": {"model": model}}});
    assert_eq!(call(&venue, "create", only).await.unwrap()["created"], true);
    let bad = json!({"agentId": "c", "config": {"operation": "x:y", "model": model}});
    assert!(refused(&venue, "create", bad).await.contains("`llmagent:chat` or `goaltree:chat`"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_has_configuration_and_state_and_empty_mailboxes() {
    let (venue, _dir) = TestVenue::embedded(ECHO).await;
    venue.agent("a", echo()).await;
    venue.worker();
    let one = call(&venue, "chat", json!({"agentId": "a", "message": "one"})).await.unwrap();
    let session = one["sessionId"].as_str().unwrap();
    call(&venue, "suspend", json!({"agentId": "a"})).await.unwrap();
    let waiting = venue.submit("a", "t1", json!(1)).await.job.unwrap();
    call(&venue, "fork", json!({"agentId": "a", "to": "bare"})).await.unwrap();
    call(&venue, "fork", json!({"agentId": "a", "to": "whole", "timeline": true})).await.unwrap();
    let (bare, whole) = (info(&venue, "bare").await, info(&venue, "whole").await);
    assert_eq!((&bare["tasks"], &bare["timelineLength"], &bare["status"]), (&json!(0), &json!(0), &json!("SLEEPING")));
    assert_eq!((&whole["tasks"], &whole["timelineLength"]), (&json!(0), &json!(1)));
    call(&venue, "chat", json!({"agentId": "whole", "message": "two", "sessionId": session})).await.unwrap();
    let turns: Vec<u64> = venue.turns("whole", session).await.iter().map(|turn| turn.turn).collect();
    assert_eq!((turns, venue.turns("a", session).await.len()), (vec![1, 2], 1));
    for (input, part) in [
        (json!({"agentId": "a", "to": "bare"}), "agent `bare` exists"),
        (json!({"agentId": "a", "to": "a", "overwrite": true}), "agent `a` exists"),
        (json!({"agentId": "gone", "to": "x"}), "no agent `gone`"),
        (json!({"agentId": "a", "to": "x", "timeline": true, "overwrite": true}), "`timeline`"),
        (json!({"agentId": "a", "to": "x y"}), "`/to`"),
    ] {
        let refusal = refused(&venue, "fork", input.clone()).await;
        assert!(refusal.contains(part), "{input}: {refusal}");
    }
    call(&venue, "fork", json!({"agentId": "a", "to": "bare", "overwrite": true})).await.unwrap();
    call(&venue, "resume", json!({"agentId": "a"})).await.unwrap();
    venue.ended(&waiting).await;
}

/// Of those who make an agent of one name at once one has made it; and of forks with their sessions nothing is left
/// of the others.
async fn one_of_concurrent_agent_creations_succeeds(venue: TestVenue) {
    let config =
        |who: usize| json!({"model": {"provider": "scripted", "name": "echo"}, "description": format!("{who}")});
    for round in 0..5 {
        let name = format!("n{round}");
        let makes = (0..6).map(|who| call(&venue, "create", json!({"agentId": name, "config": config(who)})));
        let answers = futures::future::join_all(makes).await;
        let made: Vec<usize> = (0..6).filter(|who| answers[*who].as_ref().unwrap()["created"] == true).collect();
        assert_eq!(made.len(), 1, "{answers:?}");
        assert_eq!(info(&venue, &name).await["config"]["description"], made[0].to_string());
        // A name that was free again.
        call(&venue, "delete", json!({"agentId": name, "remove": true})).await.unwrap();
        let again = call(&venue, "create", json!({"agentId": name, "config": config(9)})).await.unwrap();
        assert_eq!(again["created"], true);
    }
    venue.worker();
    let mut sessions = HashMap::new();
    for agent in ["left", "right"] {
        venue.agent(agent, echo()).await;
        let chat = call(&venue, "chat", json!({"agentId": agent, "message": agent})).await.unwrap();
        sessions.insert(agent, chat["sessionId"].as_str().unwrap().to_owned());
    }
    for round in 0..4 {
        let to = format!("copy{round}");
        let forks = (0..6).map(|n| {
            let from = ["left", "right"][n % 2];
            call(&venue, "fork", json!({"agentId": from, "to": to, "timeline": true}))
        });
        let answers = futures::future::join_all(forks).await;
        let made: Vec<&Value> = answers.iter().filter_map(|answer| answer.as_ref().ok()).collect();
        assert_eq!(made.len(), 1, "{answers:?}");
        let session = &sessions[made[0]["forkedFrom"].as_str().unwrap()];
        let copied = call(&venue, "sessions", json!({"agentId": to})).await.unwrap();
        assert_eq!((&copied["count"], &copied["sessions"][0]["sessionId"]), (&json!(1), &json!(session)));
    }
    // Somebody else makes the agent while its sessions are copied: it has none of them.
    let (fork, made) = futures::future::join(
        call(&venue, "fork", json!({"agentId": "left", "to": "late", "timeline": true})),
        call(&venue, "create", json!({"agentId": "late", "config": echo()})),
    )
    .await;
    let expected = u64::from(fork.is_ok());
    assert_eq!(made.unwrap()["created"], fork.is_err());
    let copied = call(&venue, "sessions", json!({"agentId": "late"})).await.unwrap();
    assert_eq!(copied["count"], expected);
    assert_eq!(venue.turns("late", &sessions["left"]).await.len() as u64, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_concurrent_agent_creations_succeeds_on_embedded() {
    let (venue, _dir) = TestVenue::embedded(ECHO).await;
    one_of_concurrent_agent_creations_succeeds(venue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_concurrent_agent_creations_succeeds_on_redis() {
    let Some(server) = RedisServer::shared() else { return };
    let (venue, _dir, _) = TestVenue::redis_at(server, ECHO, Clock::system()).await;
    one_of_concurrent_agent_creations_succeeds(venue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_widens_nothing_that_its_creator_could_not_do() {
    let (venue, _dir) = TestVenue::embedded(ECHO).await;
    let some = || {
        let caps = json!([{"with": "g", "can": "agent"}, {"with": "w/own", "can": "crud"}]);
        Authority::new(serde_json::from_value(caps).unwrap())
    };
    let record = async || agents::get(&venue.venue, &venue.owner, &"weak".parse().unwrap()).await.unwrap().unwrap().0;
    call_as(&venue, some(), "create", json!({"agentId": "weak", "config": echo()})).await.unwrap();
    let patch = json!({"agentId": "weak", "config": {"description": "tidied up"}});
    call(&venue, "update", patch).await.unwrap();
    assert!(record().await.creator.permits("crud/write", on("w/own/x")).is_ok());
    assert!(record().await.creator.permits("crud/write", on("w/else")).is_err(), "an operator corrected a word of it");
    // Who says all of it answers for all of it.
    let whole = json!({"agentId": "weak", "config": echo(), "overwrite": true});
    call(&venue, "create", whole).await.unwrap();
    assert!(record().await.creator.permits("crud/write", on("w/else")).is_ok());
    let patch = json!({"agentId": "weak", "config": {"description": "by one who may do less"}});
    call_as(&venue, some(), "update", patch).await.unwrap();
    assert!(record().await.creator.permits("crud/write", on("w/else")).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_is_bounded_by_its_creator() {
    let (venue, _dir) = TestVenue::embedded(ECHO).await;
    venue.agent("a", echo()).await;
    let caps: Vec<Capability> =
        serde_json::from_value(json!([{"with": "g", "can": "agent"}, {"with": "w/own", "can": "crud"}])).unwrap();
    let some = Authority::new(Some(caps));
    call_as(&venue, some, "fork", json!({"agentId": "a", "to": "b"})).await.unwrap();
    let (record, _) = agents::get(&venue.venue, &venue.owner, &"b".parse().unwrap()).await.unwrap().unwrap();
    assert!(record.creator.permits("crud/write", on("w/own/x")).is_ok());
    assert!(record.creator.permits("crud/write", on("w/else")).is_err());
    let none = Authority::new(serde_json::from_value(json!([{"with": "w", "can": "crud"}])).unwrap());
    for (operation, input) in [
        ("fork", json!({"agentId": "a", "to": "c"})),
        ("update", json!({"agentId": "a", "config": {"concurrency": 2}})),
        ("suspend", json!({"agentId": "a"})),
        ("resume", json!({"agentId": "a"})),
        ("delete", json!({"agentId": "a"})),
        ("sessions", json!({"agentId": "a"})),
        ("session-fork", json!({"agentId": "a", "sessionId": "main", "at": 1})),
        ("cancel-task", json!({"agentId": "a", "taskId": "0123456789abcdef0123456789abcdef"})),
    ] {
        let denied = call_as(&venue, none.clone(), operation, input).await;
        assert!(matches!(denied, Err(OpError::Denied(_))), "{operation}: {denied:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_cancelled_by_its_agent() {
    let (venue, _dir) = TestVenue::embedded(ECHO).await;
    venue.agent("a", never()).await;
    venue.agent("b", never()).await;
    let job = venue.submit("a", "t1", json!(1)).await.job.unwrap();
    let input = |agent: &str| json!({"agentId": agent, "taskId": job.as_str(), "reason": "enough"});
    assert!(refused(&venue, "cancel-task", input("b")).await.contains("agent `b` has no task"));
    let answer = call(&venue, "cancel-task", input("a")).await.unwrap();
    assert_eq!((&answer["status"], &answer["cancelled"]), (&json!("CANCELLED"), &json!(true)));
    assert_eq!(call(&venue, "cancel-task", input("a")).await.unwrap()["cancelled"], false);
    let ended = jobs::get(&venue.venue, &venue.owner, &job).await.unwrap().unwrap();
    assert!(ended.result.unwrap().error.unwrap().contains("enough"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_changes_no_agent_that_asks_people() {
    use trellis::venue::agents::deletion::remove;
    use trellis::venue::agents::lifecycle::{AgentEditor, Fork, Patch, fork, resume, suspend, update};
    let (venue, _dir) = TestVenue::embedded(ECHO).await;
    let asks = json!({"tools": [{"operation": "v/ops/lattice/write", "approval": "ask"}]});
    venue.agent("asks", asks).await;
    venue.agent("free", echo()).await;
    let (all, none) = (Authority::without_limits(), Trail::default());
    let (agent, person) = (
        AgentEditor { authority: &all, trail: &none, turn: true },
        AgentEditor { authority: &all, trail: &none, turn: false },
    );
    let (v, owner) = (&venue.venue, &venue.owner);
    let (asks, free): (AgentId, AgentId) = ("asks".parse().unwrap(), "free".parse().unwrap());
    let patch = Patch { config: json!({"tools": []}).as_object().unwrap().clone(), ..Patch::default() };
    suspend(v, owner, &asks, "a person looks at it").await.unwrap();
    let unchanged = Map::new();
    let over = Fork { config: &unchanged, timeline: false, overwrite: true };
    for refused in [
        update(v, owner, &asks, &patch, agent).await.map(drop),
        resume(v, owner, &asks, agent).await.map(drop),
        remove(v, owner, &asks, agent).await.map(drop),
        fork(v, owner, &free, &asks, over, agent).await.map(drop),
    ] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("agent `asks` asks people"), "{refused}");
    }
    resume(v, owner, &asks, person).await.unwrap();
    update(v, owner, &asks, &patch, person).await.unwrap();
    update(
        v,
        owner,
        &free,
        &Patch { config: json!({"concurrency": 2}).as_object().unwrap().clone(), ..Patch::default() },
        agent,
    )
    .await
    .unwrap();
}
