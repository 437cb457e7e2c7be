//! Every operation that changes something, made over HTTP, acknowledged, and lost with Redis' last seconds: it holds again
//! or it is named, one by one, and no line of the audit is untrue.

mod rows;

use crate::support::api_calls::{CallNames, closing_site, request};
use crate::support::cli::Process;
use crate::support::fleet::Fleet;
use crate::support::nats;
use crate::support::redis::RedisServer;
use futures::StreamExt;
use rows::{ELSEWHERE, PREPARED, ROWS, WITHOUT};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use trellis::venue::operation::Effect;

const LIMIT: Duration = Duration::from_mins(3);

const RULES: &str = r#"
[[rule]]
when = { agent = "payer", turn = 1 }
then = { calls = [{ tool = "pay", arguments = { path = "w/paid", value = "{{input}}" } }] }

[[rule]]
when = { agent = "asker", turn = 1 }
then = { calls = [{ tool = "human_ask", arguments = { title = "The order", asks = [{ id = "size", type = "choice", prompt = "Which?", choices = ["S", "L"] }] } }] }

[[rule]]
when = { agent = "clerk", turn = 1 }
then = { calls = [{ tool = "queue_publish", arguments = { queue = "ocr", input = {}, wait = 0 } }] }

[[rule]]
when = { agent = "poster", turn = 1 }
then = { calls = [{ tool = "http_post", arguments = { url = "http://127.0.0.1:SITE/", body = {} } }] }

[[rule]]
when = { agent = "waker", turn = 1 }
then = { calls = [{ tool = "agent_wake", arguments = { after = "50m" } }] }

[[rule]]
when = { agent = "keeper", turn = 1 }
then = { calls = [{ tool = "memory_write", arguments = { content = "remember me" } }] }

[[rule]]
then = { text = "done" }
"#;

struct Scene {
    fleet: Fleet,
    processes: Option<(Process, Process)>,
    url: String,
    client: reqwest::Client,
    ids: CallNames,
}

impl Scene {
    fn start(nats: String, redis: &RedisServer) -> Self {
        let fleet = Fleet::new(nats, redis);
        crate::support::cli::run(fleet.path(), &["secret", "keygen", "keys.txt"]).ok();
        let config = std::fs::read_to_string(fleet.path().join("fleet.toml")).unwrap();
        let site = closing_site();
        let more = format!(
            "[secrets]\nkey_file = \"keys.txt\"\n[http_client]\nallow_hosts = \"127.0.0.1:{site}\"\nallow_private = true\n"
        );
        std::fs::write(fleet.path().join("fleet.toml"), config + &more).unwrap();
        std::fs::write(fleet.path().join("rows.rules"), RULES.replace("SITE", &site.to_string())).unwrap();
        let (client, mut ids) = (reqwest::Client::new(), CallNames::default());
        ids.0.insert("site".to_owned(), site.to_string());
        let mut scene = Self { fleet, processes: None, url: String::new(), client, ids };
        scene.start_processes();
        scene
    }

    fn start_processes(&mut self) {
        let (worker, serve, url) = self.fleet.start_all();
        (self.processes, self.url) = (Some((worker, serve)), url);
    }

    /// Makes a call as the table writes it; status and answer.
    async fn call(&self, call: &str) -> (u16, Value) {
        let call = self.ids.fill(call);
        let response = match request(&self.client, &self.url, &call).send().await {
            Ok(response) => response,
            Err(error) => return (0, json!(error.to_string())),
        };
        let status = response.status().as_u16();
        let text = response.text().await.unwrap_or_default();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// Makes a change, which must be acknowledged, and keeps its ids.
    async fn make(&mut self, name: &str, call: &str) {
        let (status, answer) = self.call(call).await;
        assert!((200..300).contains(&status), "{name}: {call}: {status} {answer}");
        self.ids.keep(name, &answer);
    }

    /// Waits for something in an answer.
    async fn until<T>(&self, call: &str, find: impl Fn(&Value) -> Option<T>) -> T {
        let end = Instant::now() + LIMIT;
        loop {
            let (status, answer) = self.call(call).await;
            if let Some(found) = find(&answer) {
                return found;
            }
            assert!(Instant::now() < end, "{call}: {status} {answer}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn prepare(&mut self) {
        for (name, call) in PREPARED {
            self.make(name, call).await;
        }
        for name in ["approved", "rejected", "answered"] {
            let session = json!(name);
            let id = self
                .until("GET /approvals", |found| {
                    let mut all = found["items"].as_array()?.iter();
                    let own = all.find(|one| one["session"] == session)?;
                    own["id"].as_str().map(str::to_owned)
                })
                .await;
            self.ids.0.insert(format!("approval-{name}"), id);
        }
        let outcome = self.until("GET /outcomes", |found| found["items"][0]["id"].as_str().map(str::to_owned)).await;
        self.ids.0.insert("outcome".to_owned(), outcome);
        let job = self.take_external().await;
        self.ids.0.insert("external".to_owned(), job["job"].as_str().unwrap().to_owned());
        self.ids.0.insert("answer".to_owned(), job.to_string());
    }

    /// The message that an external worker gets.
    async fn take_external(&self) -> Value {
        let client = async_nats::connect(&self.fleet.nats).await.unwrap();
        let context = async_nats::jetstream::new(client);
        let stream = context.get_stream(format!("{}_JOBS", self.fleet.prefix.to_uppercase())).await.unwrap();
        let config = async_nats::jetstream::consumer::pull::Config {
            durable_name: Some("ocr".to_owned()),
            filter_subject: format!("{}.jobs.ocr", self.fleet.prefix),
            ..Default::default()
        };
        let consumer = stream.get_or_create_consumer("ocr", config).await.unwrap();
        let message = consumer.messages().await.unwrap().next().await.unwrap().unwrap();
        message.ack().await.unwrap();
        serde_json::from_slice(&message.payload).unwrap()
    }

    /// The worker's result, until its job has ended.
    async fn answer_external(&self) {
        let taken: Value = serde_json::from_str(&self.ids.0["answer"]).unwrap();
        let context = async_nats::jetstream::new(async_nats::connect(&self.fleet.nats).await.unwrap());
        let body = json!({"job": taken["job"], "token": taken["token"], "status": "COMPLETE", "output": 1});
        let subject = taken["answer"].as_str().unwrap().to_owned();
        context.publish(subject, body.to_string().into()).await.unwrap().await.unwrap();
        self.until("GET /jobs/$ordered.job", |job| (job["status"] == "COMPLETE").then_some(())).await;
    }

    async fn holds(&self, row: &rows::Row) -> bool {
        let (status, answer) = self.call(row.show).await;
        let shown = format!("{status} {answer}");
        let words = self.ids.fill(row.holds);
        // A status isn't looked for in the text: ids of jobs may contain its digits.
        let held = match (words.strip_prefix('!'), words.parse::<u16>()) {
            (Some(words), _) => status < 300 && !shown.contains(words),
            (None, Ok(expected)) => status == expected,
            (None, Err(_)) => shown.contains(&words),
        };
        held && status != 0 && status < 500
    }

    /// Lines of what was lost, and whether a problem is shown.
    async fn lost(&self) -> Vec<String> {
        let (_, books) = self.call("venue/audit {}").await;
        let lines = books["lost"].as_array().cloned().unwrap_or_default();
        lines.iter().filter_map(|line| line.as_str().map(str::to_owned)).collect()
    }
}

/// What is wrong with the rows, in words.
async fn faults(scene: &Scene) -> (Vec<String>, Vec<String>) {
    let lines = scene.lost().await;
    let mut faults = Vec::new();
    for row in ROWS {
        let words = scene.ids.fill(row.words);
        let holds = scene.holds(row).await;
        let own: Vec<_> = lines.iter().filter(|line| line.contains(&words)).collect();
        let is_lost = own.iter().any(|line| line.contains(": lost, "));
        let is_back = own.iter().any(|line| !line.contains(": lost, "));
        match (holds, is_lost, is_back) {
            (true, _, true) | (false, true, _) => {}
            (false, false, true) => faults.push(format!("{}: said to be there again and isn't: {own:?}", row.name)),
            (false, false, false) => faults.push(format!("{}: gone, and nothing says `{words}`", row.name)),
            (true, true, false) => faults.push(format!("{}: said to be gone and is there: {own:?}", row.name)),
            (true, false, false) => faults.push(format!("{}: there again, and nothing says `{words}`", row.name)),
        }
    }
    (faults, lines)
}

fn is_problem(scene: &Scene) -> bool {
    let shown = scene.fleet.run(&["doctor"]);
    let is_shown = shown.out.contains("`trellis audit --settle`");
    assert!(!is_shown || shown.code == 1, "{shown:?}");
    is_shown
}

/// Makes every change, and waits until each can be seen.
async fn make_changes(scene: &mut Scene) {
    for row in ROWS {
        if row.change.starts_with("EXTERNAL") {
            scene.answer_external().await;
        } else {
            scene.make(row.name, row.change).await;
        }
    }
    let end = Instant::now() + LIMIT;
    for row in ROWS {
        while !scene.holds(row).await {
            assert!(Instant::now() < end, "{}: {:?}", row.name, scene.call(row.show).await);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// The command shows the same lines, the sums first, and the log has all that is lost.
fn log_and_command_agree(scene: &Scene, lines: &[String]) {
    let told = scene.fleet.run(&["audit", "--after-loss"]);
    let what = |line: &String| line.split_once(" (found at ").map_or_else(String::new, |(what, _)| what.to_owned());
    assert!(lines.iter().all(|line| told.out.contains(&what(line))), "{told:?}\n{lines:#?}");
    assert!(lines[0].contains(" lost in all: "), "{lines:#?}");
    let (worker, serve) = scene.processes.as_ref().unwrap();
    let log = worker.log() + &serve.log();
    for told in lines.iter().skip(1).filter(|line| line.contains(": lost, ")).map(what) {
        assert!(log.contains(&told), "`{told}` is not in the log: {log}");
    }
}

async fn each_kind_is_there_or_named(with_living_processes: bool) {
    let (Some(url), Some(mut server)) = (nats::shared(), RedisServer::start()) else { return };
    let mut scene = Scene::start(url, &server);
    scene.prepare().await;
    // Batches of the journal are behind the answers.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = server.log_file();
    make_changes(&mut scene).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    if !with_living_processes {
        let (worker, serve) = scene.processes.take().unwrap();
        for process in [&worker, &serve] {
            process.signal("KILL");
        }
    }
    server.lose_tail(before);
    if !with_living_processes {
        scene.start_processes();
    }
    let end = Instant::now() + LIMIT;
    loop {
        let (faults, lines) = faults(&scene).await;
        if faults.is_empty() {
            break;
        }
        assert!(Instant::now() < end, "{faults:#?}\n{lines:#?}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(is_problem(&scene));
    log_and_command_agree(&scene, &scene.lost().await);
    // What a process finds a little later is settled by then, too.
    let end = Instant::now() + LIMIT;
    while is_problem(&scene) {
        scene.fleet.run(&["audit", "--settle"]);
        assert!(Instant::now() < end, "{:?}", scene.fleet.run(&["doctor"]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_is_there_or_named_while_processes_live() {
    each_kind_is_there_or_named(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_is_there_or_named_when_processes_died() {
    each_kind_is_there_or_named(false).await;
}

/// The operation of a call, as far as it names one.
fn operation(call: &str) -> Option<String> {
    let first = call.split(' ').next()?;
    first.contains('/').then(|| format!("v/ops/{first}"))
}

#[test]
fn each_operation_that_changes_something_has_a_row() {
    let catalog = trellis::ops::catalog(false).compiled_view();
    let changes = catalog.operations().filter(|found| found.spec.effect != Effect::Read);
    let changes: BTreeSet<_> = changes.map(|found| found.spec.path.to_string()).collect();
    let rows = ROWS.iter().filter_map(|row| operation(row.change));
    for (path, name) in ELSEWHERE {
        assert!(ROWS.iter().any(|row| row.name == name), "{path}: no row `{name}`");
    }
    let others = ELSEWHERE.iter().chain(&WITHOUT).map(|(path, _)| (*path).to_owned());
    let known: BTreeSet<_> = rows.chain(others).collect();
    let missing: Vec<_> = changes.difference(&known).collect();
    assert!(missing.is_empty(), "operations without a row: {missing:#?}");
}
