//! HTTP: submissions, jobs, their streams, agents, shutdown.

use crate::support::http::Server;
use bytes::Bytes;
use reqwest::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use trellis::bus::LiveSubject;

const UNKNOWN: &str = "0123456789abcdef0123456789abcdef";

fn path(job: &Value, rest: &str) -> String {
    format!("/api/v1/jobs/{}{rest}", job.as_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_accepted_once() {
    let server = Server::start().await;
    server.echo_agent("clerk").await;
    let tasks = "/api/v1/agents/clerk/tasks";
    let first = server.post_once("order-1", tasks, json!({"input": {"n": 1}})).await;
    let location = first.header("location").to_owned();
    let first = first.body(202);
    assert_eq!((&first["event"], &first["status"]), (&json!("order-1"), &json!("PENDING")));
    assert_eq!(first["id"], first["job"]);
    assert_eq!(first["duplicate"], false);
    assert_eq!(location, path(&first["job"], ""));
    let again = server.post_once("\"order-1\"", tasks, json!({"input": {"n": 1}})).await.body(200);
    assert_eq!((&again["job"], &again["duplicate"]), (&first["job"], &json!(true)));
    server.post_once("order-1", tasks, json!({"input": {"n": 2}})).await.is_problem(409, "accepted before");
    let record = server.get(&location).await.body(200);
    assert_eq!((&record["status"], &record["agent"]), (&json!("PENDING"), &json!("clerk")));
    assert_eq!(record["caller"], "local/me");
    assert_eq!((&record["op"], &record["input"]), (&json!("v/ops/agent/request"), &json!({"n": 1})));
    let other = server.post(tasks, json!({"input": {"n": 1}, "sessionId": "s7"})).await.body(202);
    assert_eq!(other["session"], "s7");
    assert_ne!(other["job"], first["job"]);
    let info = server.get("/api/v1/agents/clerk").await.body(200);
    assert_eq!((&info["agentId"], &info["tasks"]), (&json!("clerk"), &json!(2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_submissions_say_why() {
    let server = Server::start().await;
    let tasks = "/api/v1/agents/small/tasks";
    server.post(tasks, json!({"input": 1})).await.is_problem(404, "no agent `small`");
    let config = json!({"model": {"provider": "scripted", "name": "echo"}, "mailbox": 1});
    server.put("/api/v1/agents/small", config).await.body(201);
    server.post(tasks, json!({"inptu": 1})).await.is_problem(400, "unknown field `inptu`");
    server.post(tasks, json!({"input": 1, "caller": "agent:boss"})).await.is_problem(400, "set by the venue");
    server.post(tasks, json!({"replyTo": "trellis.in.a.b.c.task"})).await.is_problem(400, "`replyTo`");
    server.post("/api/v1/agents/a%20b/tasks", json!({})).await.is_problem(400, "illegal agent id");
    server.post_once("a/b", tasks, json!({})).await.is_problem(400, "`Idempotency-Key`");
    server.post(tasks, json!({"input": 1, "sessionId": "s"})).await.body(202);
    let full = server.post(tasks, json!({"input": 2, "sessionId": "s"})).await;
    full.is_problem(429, "mailbox is full (1 events)");
    assert_eq!(full.header("retry-after"), "5");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_accepted_once_and_makes_no_job() {
    let server = Server::start().await;
    server.echo_agent("clerk").await;
    let messages = "/api/v1/agents/clerk/messages";
    let first = server.post_once("m1", messages, json!({"input": "hi"})).await.body(202);
    assert_eq!(first, json!({"id": "m1", "event": "m1", "agent": "clerk", "session": "main", "duplicate": false}));
    let again = server.post_once("m1", messages, json!({"input": "hi"})).await.body(200);
    assert_eq!(again["duplicate"], true);
    assert_eq!(server.get("/api/v1/jobs").await.body(200)["total"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_can_be_cancelled_and_then_deleted() {
    let server = Server::start().await;
    server.echo_agent("clerk").await;
    let order = json!({"operation": "v/ops/agent/request", "input": {"agentId": "clerk", "input": "hi"}});
    let opened = server.post("/api/v1/invoke", order).await;
    let location = opened.header("location").to_owned();
    let job = opened.body(201)["id"].clone();
    assert_eq!(location, path(&job, ""));
    server.put(&path(&job, "/delete"), Value::Null).await.is_problem(409, "is PENDING: cancel it");
    server.put(&path(&job, "/resume"), Value::Null).await.is_problem(409, "expected PAUSED");
    for _ in 0..2 {
        assert_eq!(server.put(&path(&job, "/pause"), Value::Null).await.body(200)["status"], "PAUSED");
    }
    assert_eq!(server.get("/api/v1/jobs?status=PAUSED").await.body(200)["items"], json!([job]));
    let told = server.post(&path(&job, ""), json!("more")).await.body(202);
    assert_eq!((&told["status"], &told["queueDepth"], &told["job"]), (&json!("queued"), &json!(1), &job));
    server.post(&path(&job, ""), Value::Null).await.is_problem(400, "expected a JSON body");
    assert_eq!(server.put(&path(&job, "/resume"), Value::Null).await.body(200)["status"], "PENDING");
    assert_eq!(server.put(&path(&job, "/pause"), Value::Null).await.body(200)["status"], "PAUSED");
    server.put(&path(&job, "/cancel"), json!({"reason": 5})).await.is_problem(400, "`reason`");
    server.put(&path(&job, "/cancel"), json!({"reson": ""})).await.is_problem(400, "did you mean `reason`");
    let cancelled = server.put(&path(&job, "/cancel"), json!({"reason": "typo"})).await.body(200);
    assert_eq!((&cancelled["status"], &cancelled["error"]), (&json!("CANCELLED"), &json!("cancelled: typo")));
    assert_eq!(server.put(&path(&job, "/cancel"), Value::Null).await.body(200)["status"], "CANCELLED");
    server.put(&path(&job, "/pause"), Value::Null).await.is_problem(409, "can't be paused any more");
    server.put(&path(&job, "/resume"), Value::Null).await.is_problem(409, "expected PAUSED");
    server.post(&path(&job, ""), json!("more")).await.is_problem(409, "waits for no input");
    assert_eq!(server.get("/api/v1/jobs").await.body(200)["items"], json!([job]));
    assert_eq!(server.put(&path(&job, "/delete"), Value::Null).await.body(200)["id"], job);
    server.get(&location).await.is_problem(404, "no job");
    assert_eq!(server.get("/api/v1/jobs").await.body(200)["total"], 0);
    for verb in ["cancel", "pause", "resume", "delete"] {
        server.put(&format!("/api/v1/jobs/{UNKNOWN}/{verb}"), Value::Null).await.is_problem(404, "no job");
        server.put(&format!("/api/v1/jobs/xyz/{verb}"), Value::Null).await.is_problem(400, "illegal job id");
    }
    server.post(&format!("/api/v1/jobs/{UNKNOWN}"), json!(1)).await.is_problem(404, "no job");
    server.get(&format!("/api/v1/jobs/{UNKNOWN}/sse")).await.is_problem(404, "no job");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_operation_runs_at_once_and_is_recorded_as_a_job() {
    let server = Server::start().await;
    let invoke = async |key: &str, body: Value| server.post_once(key, "/api/v1/invoke", body).await;
    let echo = json!({"operation": "test/echo", "input": {"a": 1}});
    let job = invoke("k1", echo.clone()).await.body(201);
    assert_eq!((&job["status"], &job["op"]), (&json!("COMPLETE"), &json!("v/ops/test/echo")));
    assert_eq!((&job["output"], job.get("agent")), (&json!({"a": 1}), None));
    assert_eq!(server.get(&path(&job["id"], "")).await.body(200), job);
    assert_eq!(invoke("k1", echo).await.body(200), job, "the same request is not run again");
    invoke("k1", json!({"operation": "test/echo", "input": {"a": 2}}))
        .await
        .is_problem(409, "belongs to another request");
    let fails = json!({"operation": "test/error", "input": {"message": "m"}});
    let failed = invoke("k2", fails).await.body(201);
    assert_eq!((&failed["status"], &failed["error"]), (&json!("FAILED"), &json!("m")));
    let waits = json!({"operation": "test/echo", "wait": true});
    assert_eq!(invoke("k4", waits).await.body(200)["status"], "COMPLETE");
    invoke("k3", json!({"operation": "lattice/write"})).await.is_problem(400, "arguments");
    invoke("k3", json!({"operation": "lattice/nope"})).await.is_problem(404, "no operation");
    invoke("k3", json!({"operation": "test/echo", "private": true})).await.is_problem(400, "private");
    invoke("k3", json!({"operation": "test/echo", "wait": "soon"})).await.is_problem(400, "`wait`");
    let page = server.get("/api/v1/jobs?limit=1&offset=2&details=true").await.body(200);
    assert_eq!(page, json!({"items": [job], "total": 3, "offset": 2, "limit": 1, "next": null}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_different_hidden_value_is_a_different_request() {
    let server = Server::start().await;
    let set = async |value: &str| {
        let input = json!({"name": "TOKEN", "value": value});
        server.post_once("k1", "/api/v1/invoke", json!({"operation": "v/ops/secret/set", "input": input})).await
    };
    let job = set("the first").await.body(201);
    assert_eq!((&job["status"], &job["output"]["version"]), (&json!("COMPLETE"), &json!(1)));
    assert_eq!(set("the first").await.body(200), job, "the same request is not run again");
    set("the second").await.is_problem(409, "belongs to another request");
    let all = server.get("/api/v1/jobs?details=true").await.body(200).to_string();
    assert!(!all.contains("the first") && !all.contains(r#""hidden""#), "{all}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_number_counts_however_it_is_written() {
    let server = Server::start().await;
    let run = async |operation: &str, input: Value| {
        server.post("/api/v1/run", json!({"operation": operation, "input": input})).await
    };
    run("lattice/write", json!({"path": "w/c", "value": 1})).await.body(200);
    for expect in [json!(99), json!(99.0), json!(1e3)] {
        run("lattice/write", json!({"path": "w/c", "value": 2, "expect": expect})).await.is_problem(409, "version");
    }
    let large = json!({"path": "w/c", "value": 2, "expect": 1e30});
    run("lattice/write", large).await.is_problem(400, "at `/expect`: expected a whole number from");
    let page = run("lattice/read", json!({"path": "w/c"})).await.body(200);
    assert_eq!(page["value"], 1, "{page}");
    server.post("/api/v1/invoke", json!({"operation": "test/echo", "input": {"a": 1}})).await.body(201);
    let later = 4_000_000_000_000.0;
    for since in [json!(later), json!(1e19)] {
        let asked = json!({"action": "cancel", "dryRun": true, "since": since});
        let matched = server.post("/api/v1/jobs", asked).await.body(200);
        assert_eq!(matched["matched"], 0, "{matched}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_ends_with_the_job_or_the_time() {
    let server = Server::start().await;
    server.echo_agent("clerk").await;
    let order = json!({"operation": "agent/request", "wait": 100, "input": {"agentId": "clerk", "input": "hi"}});
    let start = Instant::now();
    let job = server.post("/api/v1/invoke", order).await.body(201)["id"].clone();
    assert!(start.elapsed() >= Duration::from_millis(100));
    let long = path(&job, "?wait=120000");
    let (waited, cancelled) = tokio::join!(server.get(&long), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        server.put(&path(&job, "/cancel"), Value::Null).await
    });
    assert_eq!(cancelled.body(200)["status"], "CANCELLED");
    assert_eq!(waited.body(200)["status"], "CANCELLED");
    assert!(start.elapsed() < Duration::from_mins(1), "the wait went on after the end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_shows_changes_and_text_and_ends_with_the_job() {
    let server = Server::start().await;
    server.echo_agent("clerk").await;
    let task = server.post("/api/v1/agents/clerk/tasks", json!({"input": "hi"})).await.body(202);
    let job = task["job"].clone();
    let live = LiveSubject::Job(job.as_str().unwrap().parse().unwrap());
    let mut step = 0;
    let text = server
        .events(&path(&job, "/sse"), Duration::from_mins(1), async |text: &str| {
            if step == 0 && text.contains("job-update") {
                step = 1;
                server.venue.bus.signal(&live, Bytes::from(json!({"text": "two\nlines"}).to_string())).await.unwrap();
            } else if step == 1 && text.contains("event: token") && text.contains("\n:") {
                step = 2;
                server.put(&path(&job, "/cancel"), Value::Null).await.body(200);
            }
        })
        .await;
    let kinds: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!(kinds, ["job-update", "token", "job-update"], "{text}");
    let data: Vec<Value> =
        text.lines().filter_map(|line| line.strip_prefix("data: ")).map(|d| serde_json::from_str(d).unwrap()).collect();
    assert_eq!(data[0]["status"], "PENDING");
    assert_eq!(data[1], json!({"text": "two\nlines"}));
    assert_eq!((&data[2]["status"], &data[2]["id"]), (&json!("CANCELLED"), &job));
    assert!(text.lines().any(|line| line.starts_with(':')), "no heartbeat in {text}");
    // Who comes back behind a place has what came after it.
    let place: u64 = text.lines().find_map(|line| line.strip_prefix("id: ")).unwrap().parse().unwrap();
    for (after, texts) in [(place - 1, 1), (place, 0)] {
        let request = server.client.get(format!("{}{}", server.url, path(&job, "/sse")));
        let again = request.header("last-event-id", after).send().await.unwrap().text().await.unwrap();
        assert_eq!(again.matches("event: token").count(), texts, "{again}");
        assert!(again.contains("CANCELLED"), "{again}");
    }
    let bad = server.client.get(format!("{}{}", server.url, path(&job, "/sse"))).header("last-event-id", "x");
    assert_eq!(bad.send().await.unwrap().status(), 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn applying_an_agent_twice_changes_nothing() {
    let server = Server::start().await;
    let agent = "/api/v1/agents/clerk";
    let mut config = json!({"model": {"provider": "scripted", "name": "echo"}});
    assert_eq!(server.put(agent, config.clone()).await.body(201)["result"], "created");
    assert_eq!(server.put(agent, config.clone()).await.body(200)["result"], "unchanged");
    config["description"] = "files things".into();
    let updated = server.put(agent, config).await.body(200);
    assert_eq!((&updated["result"], &updated["configVersion"]), (&json!("updated"), &json!(2)));
    server.put(agent, json!({"modle": {}})).await.is_problem(400, "did you mean `model`");
    let agents = server.get("/api/v1/agents").await.body(200);
    assert_eq!(agents["agents"][0]["agentId"], "clerk");
    assert_eq!(agents["agents"][0]["description"], "files things");
    server.get("/api/v1/agents/none").await.is_problem(404, "no agent `none`");
}

/// What sorts between the record of `clerk` and the documents of `clerk`.
#[tokio::test(flavor = "multi_thread")]
async fn agents_whose_names_begin_alike_are_all_listed() {
    let server = Server::start().await;
    let config = json!({"model": {"provider": "scripted", "name": "echo"}});
    let names = ["clerk", "clerk-2", "clerk.3", "clerk+4", "clerks"];
    for name in names {
        server.put(&format!("/api/v1/agents/{name}"), config.clone()).await.body(201);
    }
    let agents = server.get("/api/v1/agents").await.body(200);
    let mut listed: Vec<_> =
        agents["agents"].as_array().unwrap().iter().map(|a| a["agentId"].as_str().unwrap()).collect();
    listed.sort_unstable();
    let mut names = names;
    names.sort_unstable();
    assert_eq!(listed, names);
}

/// Shuts a server down while it is asked for something that lasts; false when a request came
/// only after that, which nobody can tell from outside.
async fn shut_down_under_way(pause: Duration) -> bool {
    let mut server = Server::start().await;
    server.echo_agent("clerk").await;
    let task = server.post("/api/v1/agents/clerk/tasks", json!({"input": "hi"})).await.body(202);
    let url = server.url.clone();
    let get = |path: String| tokio::spawn(reqwest::get(format!("{url}{path}")));
    let stream = get(path(&task["job"], "/sse"));
    let waiting = get(path(&task["job"], "?wait=true"));
    let never = json!({"operation": "test/never"}).to_string();
    let stuck = tokio::spawn(reqwest::Client::new().post(format!("{url}/api/v1/run")).body(never).send());
    let stream = stream.await.unwrap().unwrap();
    tokio::time::sleep(pause).await;
    tokio::time::timeout(Duration::from_mins(1), server.shut_down()).await.expect("the end of the server");
    assert!(stream.text().await.unwrap().contains("PENDING"));
    let (Ok(waited), Ok(stuck)) = (waiting.await.unwrap(), stuck.await.unwrap()) else { return false };
    assert_eq!(waited.json::<Value>().await.unwrap()["status"], "PENDING");
    assert_eq!(stuck.status(), 503);
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_ends_streams_and_waiting_requests() {
    for pause in [100, 1_000, 5_000, 20_000] {
        if shut_down_under_way(Duration::from_millis(pause)).await {
            return;
        }
    }
    panic!("requests under way were cut off");
}

#[tokio::test(flavor = "multi_thread")]
async fn illegal_job_ids_are_refused_alike_everywhere() {
    let server = Server::start().await;
    for id in ["x", &"g".repeat(32), &"0".repeat(31)] {
        for (method, rest, body) in [
            (Method::GET, "", ""),
            (Method::GET, "/sse", ""),
            (Method::POST, "", "1"),
            (Method::PUT, "/cancel", ""),
            (Method::PUT, "/pause", ""),
            (Method::PUT, "/resume", ""),
            (Method::PUT, "/redrive", ""),
            (Method::PUT, "/delete", ""),
        ] {
            let answer = server.send(method, &format!("/api/v1/jobs/{id}{rest}"), &[], body).await;
            answer.is_problem(400, "illegal job id");
        }
    }
}
