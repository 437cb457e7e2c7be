//! A planted secret, used in calls and as a provider's key, by a process at trace level: it turns up
//! in no file, no key, no log line and no answer. Every look is shown to be able to find.

use super::echo_server::{Parrot, encodings};
use crate::support::cli::{Process, command, run};
use crate::support::fleet::Fleet;
use crate::support::model_server::ModelServer;
use crate::support::nats;
use crate::support::redis::RedisServer;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use trellis::domain::ids::Owner;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::{Store, StoreInspection};

const PLANTED: &str = "sk-planted/9a+Zq\"7\\w?x";
/// Written in the clear, to be found.
const CANARY: &str = "canary-that-is-no-secret";

/// The forms of the planted value that are found in these bytes.
fn found_in(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let mut forms: Vec<(String, String)> = vec![("itself".into(), PLANTED.into())];
    for (name, form) in encodings(PLANTED).as_object().unwrap() {
        let form = form.as_str().unwrap();
        // What is at the edges belongs to the neighbours.
        let core = if name == "one" || name == "two" { &form[4..form.len() - 4] } else { form.trim_end_matches('=') };
        if !name.contains("planted") {
            forms.push((name.clone(), core.to_owned()));
        }
    }
    forms.push(("a part".into(), "planted/9a".into()));
    forms.into_iter().filter(|(_, form)| text.contains(form.as_str())).map(|(name, _)| name).collect()
}

#[track_caller]
fn clean(what: &str, bytes: &[u8]) {
    let found = found_in(bytes);
    assert!(found.is_empty(), "{what} has the secret, {found:?}: {}", String::from_utf8_lossy(bytes));
}

fn files(folder: &Path, each: &mut impl FnMut(&Path, Vec<u8>)) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, each);
        } else if let Ok(bytes) = std::fs::read(&path) {
            each(&path, bytes);
        }
    }
}

/// What the processes of a test are given.
/// Everything that libraries say of connections, too.
const LOG_LEVEL: &str =
    "log.level=trace,hyper=trace,hyper_util=trace,reqwest=trace,rustls=trace,async_nats=trace,redis=trace";

struct Scene {
    parrot: Parrot,
    mock: Process,
    /// In front of the mock.
    _judge: ModelServer,
    mock_place: String,
}

impl Scene {
    fn start(dir: &Path) -> Self {
        let mut mock = Process::start(dir, ["mock-llm", "echo", "--listen", "127.0.0.1:0"]);
        let judge = ModelServer::in_front_of_url(&mock.says("on http://"));
        let mock_place = judge.address().to_string();
        Self { parrot: Parrot::start(), mock, _judge: judge, mock_place }
    }

    /// Settings of every process.
    fn settings(&self) -> Vec<String> {
        let hosts = format!("http_client.allow_hosts={}, {}", self.parrot.place(), self.mock_place);
        [hosts.as_str(), "http_client.allow_private=true", LOG_LEVEL, "models.scripted=."]
            .iter()
            .flat_map(|setting| ["--set".to_owned(), (*setting).to_owned()])
            .collect()
    }

    fn rules(&self) -> String {
        let arguments = format!(
            r#"{{ url = "{}", headers = {{ authorization = {{ "$secret" = "s/PLANTED", prefix = "Bearer " }} }}, body = {{ token = {{ "$secret" = "s/PLANTED" }} }} }}"#,
            self.parrot.url("/echo")
        );
        let set = format!("{{ name = \"BY_MODEL\", value = {} }}", toml_text(PLANTED));
        let wrapped = format!(
            "{{ operation = \"secret:set\", input = {{ name = \"WRAPPED\", value = {} }} }}",
            toml_text(PLANTED)
        );
        format!(
            r#"
[[rule]]
when = {{ agent = "caller", turn = 1 }}
then = {{ calls = [{{ tool = "http_post", arguments = {arguments} }}] }}
[[rule]]
when = {{ agent = "caller" }}
then = {{ text = "it said {{{{tool_result}}}}" }}
[[rule]]
when = {{ agent = "setter", turn = 1 }}
then = {{ calls = [{{ tool = "secret_set", arguments = {set} }}, {{ tool = "job_run", arguments = {wrapped} }}] }}
[[rule]]
when = {{ agent = "setter" }}
then = {{ text = "set" }}
"#
        )
    }

    fn agents(&self, dir: &Path) {
        std::fs::write(dir.join("rules.toml"), self.rules()).unwrap();
        let scripted = json!({"provider": "scripted", "name": "rules.toml"});
        let keyed = |url: String| json!({"provider": "openai", "name": "m", "baseUrl": url, "key": "s/PLANTED"});
        let mut headed = keyed(self.parrot.url("/v1/"));
        headed["headers"] = json!({"X-Gateway": {"$secret": "s/PLANTED", "prefix": "Token "}});
        for (name, config) in [
            ("caller", json!({"model": scripted, "tools": ["v/ops/http/post"]})),
            ("setter", json!({"model": scripted, "tools": ["v/ops/secret/set"]})),
            ("keyed", json!({"model": keyed(format!("http://{}/v1/", self.mock_place))})),
            ("parroted", json!({"model": headed})),
        ] {
            std::fs::write(dir.join(format!("{name}.json")), config.to_string()).unwrap();
        }
    }

    /// The story: everything that uses the secret, once. Gives all that was answered.
    fn play(&self, dir: &Path, url: &str) -> String {
        let mut answers = String::new();
        let mut http = |args: &[&str]| {
            let done = run(dir, &[args, &["--url", url]].concat());
            answers.push_str(&done.out);
            answers.push_str(&done.err);
            done
        };
        self.agents(dir);
        for name in ["caller", "setter", "keyed", "parroted"] {
            http(&["agent", "apply", &format!("{name}.json")]).ok();
        }
        set(dir, url, &[&self.parrot.place(), &self.mock_place]);
        http(&["lattice", "write", "w/notes/canary", CANARY]).ok();
        let said = http(&["submit", "caller", "go", "--wait=60s"]).ok();
        assert!(said.contains("[secret PLANTED]"), "{said}");
        assert!(self.parrot.heard().contains(PLANTED), "the call itself had it");
        assert_eq!(http(&["submit", "setter", "go", "--wait=60s"]).ok(), "set");
        assert_eq!(http(&["submit", "keyed", "hello provider", "--wait=60s"]).ok(), "hello provider");
        let before = self.parrot.heard().matches(PLANTED).count();
        let said = http(&["submit", "parroted", "hello parrot", "--wait=60s"]).ok();
        assert!(said.contains("your key: [secret PLANTED]"), "{said}");
        assert!(self.parrot.heard().matches(PLANTED).count() > before, "the provider got the key");
        assert!(self.parrot.heard().contains(&format!("x-gateway: Token {PLANTED}")), "and the header");
        let names = http(&["secret", "list"]).ok();
        assert!(names.contains("BY_MODEL") && names.contains("WRAPPED") && names.contains("PLANTED"), "{names}");
        http(&["secret", "delete", "WRAPPED"]).ok();
        http(&["job", "list", "--output", "json"]).ok();
        http(&["lattice", "read", "w"]).ok();
        http(&["lattice", "read", "s"]).ok();
        for agent in ["caller", "setter", "keyed", "parroted"] {
            http(&["agent", "get", agent, "--output", "json"]).ok();
            let turns = http(&["lattice", "read", &format!("g/{agent}/timeline"), "--output", "json"]).ok();
            let turns: Value = serde_json::from_str(&turns).unwrap();
            for turn in turns["value"].as_array().unwrap() {
                assert!(turn["turn"].is_u64(), "{turn}");
            }
            let listed = http(&["turn", "list", agent, "--output", "json"]).ok();
            let listed: Value = serde_json::from_str(&listed).unwrap();
            for turn in listed["turns"].as_array().or(listed["items"].as_array()).unwrap() {
                let name = turn["name"].as_str().unwrap();
                http(&["turn", "show", name, "--output", "json"]).ok();
            }
        }
        answers
    }
}

fn toml_text(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

/// Sets the secret as a person does.
fn set(dir: &Path, url: &str, hosts: &[&str]) {
    let mut command = command(dir);
    command.args(["secret", "set", "PLANTED", "--url", url]);
    for host in hosts {
        command.args(["--host", host]);
    }
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(PLANTED.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planted_secret_is_in_no_file_document_log_or_answer() {
    let dir = tempfile::tempdir().unwrap();
    let scene = Scene::start(dir.path());
    let settings = scene.settings();
    let args = ["up", "--data", "data", "--listen", "127.0.0.1:0"].map(str::to_owned).into_iter().chain(settings);
    let mut up = Process::start(dir.path(), args);
    let url = up.says("HTTP API on ").split(' ').next().unwrap().to_owned();
    let answers = scene.play(dir.path(), &url);
    assert!(answers.contains("[hidden]") && answers.contains("[secret PLANTED]"), "{answers}");
    clean("an answer", answers.as_bytes());
    up.signal("TERM");
    assert_eq!(up.ended().code(), Some(0));
    let log = up.log();
    assert!(log.contains("TRACE") && log.contains("DEBUG"), "at trace level");
    clean("the log", log.as_bytes());
    clean("the provider's log", scene.mock.log().as_bytes());
    let mut looked_at = 0;
    files(&dir.path().join("data"), &mut |path, bytes| {
        clean(&path.display().to_string(), &bytes);
        looked_at += 1;
    });
    assert!(looked_at > 1);
    // Files are compressed: each document is looked at too.
    let store = EmbeddedStore::open(&dir.path().join("data")).unwrap();
    let mut all = Vec::new();
    for owner in store.owners(None, 100).await.unwrap() {
        all.extend(documents(&*store, &owner).await);
    }
    let text = String::from_utf8_lossy(&all);
    assert!(text.contains(CANARY) && text.contains("[secret PLANTED]") && text.contains("[hidden]"), "it can find");
    assert!(text.contains("\"$secret\""), "references stay");
    clean("a document", &all);
    assert_ne!(found_in(scene.parrot.heard().as_bytes()), Vec::<String>::new(), "it can find");
    for (name, form) in encodings(PLANTED).as_object().unwrap() {
        assert!(name.contains("planted") || !found_in(form.as_str().unwrap().as_bytes()).is_empty(), "{name}");
    }
}

async fn documents(store: &dyn Store, owner: &Owner) -> Vec<u8> {
    let mut all = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = store.scan(owner, "", after.as_deref(), false, 500).await.unwrap();
        let Some((last, _)) = page.last() else { return all };
        after = Some(last.clone());
        for (key, doc) in page {
            all.extend_from_slice(key.as_bytes());
            all.extend_from_slice(doc.value.unwrap_or_default().as_ref());
            all.push(b'\n');
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planted_secret_is_in_no_key_and_no_log_of_a_fleet() {
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    let dir = fleet.path().to_owned();
    let scene = Scene::start(&dir);
    run(&dir, &["secret", "keygen", "keys.txt"]).ok();
    let start = |role: &str| {
        let more = ["--config", "fleet.toml", "--set", "secrets.key_file=keys.txt"].map(str::to_owned);
        Process::start(&dir, std::iter::once(role.to_owned()).chain(more).chain(scene.settings()))
    };
    let (mut worker, mut serve) = (start("worker"), start("serve"));
    worker.says("worker `");
    let url = serve.says("HTTP API on ").split(' ').next().unwrap().to_owned();
    clean("an answer", scene.play(&dir, &url).as_bytes());
    for process in [&mut worker, &mut serve] {
        process.signal("TERM");
        assert_eq!(process.ended().code(), Some(0));
        clean("a log", process.log().as_bytes());
    }
    let config: toml::Table = std::fs::read_to_string(dir.join("fleet.toml")).unwrap().parse().unwrap();
    let prefix = config["store"]["prefix"].as_str().unwrap();
    let all = redis_bytes(RedisServer::shared().unwrap(), prefix).await;
    let text = String::from_utf8_lossy(&all);
    assert!(text.contains(CANARY) && text.contains("[secret PLANTED]") && text.contains("[hidden]"), "it can find");
    clean("Redis", &all);
}

/// Every key under a prefix with everything in it.
async fn redis_bytes(server: &RedisServer, prefix: &str) -> Vec<u8> {
    let mut all = Vec::new();
    let keys = server.command(&["KEYS", &format!("{prefix}*")]).await.unwrap();
    let redis::Value::Array(keys) = keys else { panic!("expected a list, got {keys:?}") };
    for key in keys {
        let key: String = redis::from_redis_value(key).unwrap();
        let kind: String = redis::from_redis_value(server.command(&["TYPE", &key]).await.unwrap()).unwrap();
        let read: &[&str] = match kind.as_str() {
            "string" => &["GET", &key],
            "hash" => &["HGETALL", &key],
            "list" => &["LRANGE", &key, "0", "-1"],
            "set" => &["SMEMBERS", &key],
            "zset" => &["ZRANGE", &key, "0", "-1"],
            "stream" => &["XRANGE", &key, "-", "+"],
            "none" => continue,
            other => panic!("a key of type {other}"),
        };
        all.extend_from_slice(key.as_bytes());
        flat(&server.command(read).await.unwrap(), &mut all);
    }
    all
}

fn flat(value: &redis::Value, all: &mut Vec<u8>) {
    match value {
        redis::Value::BulkString(bytes) => all.extend_from_slice(bytes),
        redis::Value::SimpleString(text) => all.extend_from_slice(text.as_bytes()),
        redis::Value::Array(items) | redis::Value::Set(items) => items.iter().for_each(|item| flat(item, all)),
        redis::Value::Map(entries) => entries.iter().for_each(|(key, value)| {
            flat(key, all);
            flat(value, all);
        }),
        _ => {}
    }
    all.push(b'\n');
}
