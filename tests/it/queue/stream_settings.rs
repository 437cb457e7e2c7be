//! Streams and consumers that somebody changed by hand: what a start puts right, what stops it, what `doctor` says.

use crate::support::nats::{NatsServer, options, shared};
use crate::support::port;
use async_nats::jetstream::Context;
use serde_json::{Value, json};
use std::time::Duration;
use trellis::bus::Bus;
use trellis::bus::nats::{BusOpenError, NatsBus, NatsOptions};
use trellis::domain::identity::BusOwner;
use trellis::store::BackendSetting;

/// What follows from a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Follows {
    /// A start puts it right; `doctor` says a problem before it.
    Mended,
    /// Nothing starts; `doctor` says a problem.
    Stopped,
    /// It is an operator's to choose: a start leaves it, `doctor` says nothing.
    Free,
}

use Follows::{Free, Mended, Stopped};

/// A setting of a stream with another value; `made` where a server takes it for a new stream only.
struct Change {
    stream: &'static str,
    setting: &'static str,
    value: Value,
    follows: Follows,
    made: bool,
}

fn change(stream: &'static str, setting: &'static str, value: Value, follows: Follows) -> Change {
    Change { stream, setting, value, follows, made: false }
}

fn made(stream: &'static str, setting: &'static str, value: Value, follows: Follows) -> Change {
    Change { made: true, ..change(stream, setting, value, follows) }
}

const MINUTE: u64 = 60_000_000_000;

fn stream_changes() -> Vec<Change> {
    let mut all = Vec::new();
    // The rules are the same for all streams; `` is the inbound one.
    for stream in ["", "_OUT", "_LIVE", "_TIMERS", "_JOBS"] {
        all.extend([
            change(stream, "max_msgs", json!(1_000), Mended),
            change(stream, "max_msgs_per_subject", json!(1), Mended),
            change(stream, "max_msg_size", json!(100), Mended),
            change(stream, "description", json!("ours"), Free),
            change(stream, "deny_delete", json!(true), Stopped),
            change(stream, "sealed", json!(true), Stopped),
            made(stream, "storage", json!(if stream == "_LIVE" { "file" } else { "memory" }), Stopped),
        ]);
    }
    for stream in ["", "_TIMERS", "_JOBS"] {
        all.push(made(stream, "retention", json!("limits"), Stopped));
    }
    for stream in ["_OUT", "_LIVE", "_EPOCH"] {
        all.push(made(stream, "retention", json!("workqueue"), Stopped));
    }
    all.extend([
        change("", "max_age", json!(MINUTE), Mended),
        change("", "discard", json!("old"), Mended),
        change("", "max_bytes", json!(1_000_000), Mended),
        change("", "duplicate_window", json!(MINUTE), Mended),
        change("", "no_ack", json!(true), Mended),
        change("", "allow_rollup_hdrs", json!(true), Mended),
        change("", "deny_purge", json!(true), Stopped),
        change("", "allow_msg_ttl", json!(true), Stopped),
        made("", "allow_msg_schedules", json!(true), Stopped),
        change("", "allow_direct", json!(true), Free),
        change("", "compression", json!("s2"), Free),
        change("", "metadata", json!({"by": "us"}), Free),
        change("", "sources", json!([{"name": "elsewhere"}]), Stopped),
        change("_TIMERS", "max_age", json!(MINUTE), Mended),
        change("_JOBS", "discard", json!("old"), Mended),
        change("_OUT", "max_age", json!(MINUTE), Mended),
        change("_EPOCH", "max_msgs_per_subject", json!(5), Mended),
        change("_EPOCH", "max_age", json!(MINUTE), Mended),
        made("", "persist_mode", json!("async"), Stopped),
    ]);
    all
}

/// Each case, and what is wrong of all.
async fn check_all<F: Future<Output = ()> + Send + 'static>(cases: Vec<Change>, check: impl Fn(Change) -> F) {
    let mut wrong = Vec::new();
    for case in cases {
        if let Err(error) = tokio::spawn(check(case)).await {
            let panic = error.into_panic();
            wrong.push(panic.downcast_ref::<String>().cloned().unwrap_or_default());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

async fn context(url: &str) -> Context {
    async_nats::jetstream::new(async_nats::connect(url).await.unwrap())
}

/// A question to the server's API.
async fn ask(context: &Context, subject: String, body: &Value) -> Value {
    let answer: Value = context.request(subject, body).await.unwrap();
    answer
}

async fn stream_config(context: &Context, name: &str) -> Value {
    ask(context, format!("STREAM.INFO.{name}"), &json!({})).await["config"].clone()
}

fn problems(rows: &[BackendSetting]) -> Vec<String> {
    let is_of_settings = |row: &&BackendSetting| {
        ["nats settings of", "nats options of", "nats streams", "nats owner"]
            .iter()
            .any(|name| row.name.starts_with(name))
    };
    let wrong = rows.iter().filter(is_of_settings).filter(|row| row.problem.is_some());
    wrong.map(|row| format!("{}: {}", row.name, row.value)).collect()
}

/// What `doctor` says of the settings.
async fn doctor(options: &NatsOptions) -> Vec<String> {
    let looking = NatsBus::open(&NatsOptions { reads_only: true, ..options.clone() }).await.unwrap();
    problems(&looking.settings().await.unwrap())
}

async fn check_stream(url: &str, case: &Change) {
    let Change { stream, setting, value, follows, made } = case;
    let what = format!("{stream} {setting} = {value}");
    let options = options(url);
    NatsBus::open(&options).await.unwrap();
    let context = context(url).await;
    let name = format!("{}{stream}", options.prefix.to_uppercase());
    let before = stream_config(&context, &name).await;
    let mut changed = before.clone();
    changed[*setting] = value.clone();
    if *setting == "max_age" {
        // The window may not be longer than the age.
        changed["duplicate_window"] = json!(MINUTE.min(before["duplicate_window"].as_u64().unwrap()));
    }
    if *setting == "allow_msg_schedules" {
        // A server takes schedules with this alone.
        changed["discard"] = json!("old");
    }
    let api = if *made {
        ask(&context, format!("STREAM.DELETE.{name}"), &json!({})).await;
        "CREATE"
    } else {
        "UPDATE"
    };
    let answer = ask(&context, format!("STREAM.{api}.{name}"), &changed).await;
    assert!(answer.get("error").is_none(), "{what}: {answer}");
    let changed = stream_config(&context, &name).await;

    let said = doctor(&options).await;
    let said_of_it = said.iter().any(|line| line.contains(&format!("`{setting}`")) && line.contains(&name));
    assert_eq!(said_of_it, *follows != Free, "{what}: {said:?}");
    assert_eq!(stream_config(&context, &name).await, changed, "{what}: doctor only reads");

    let opened = NatsBus::open(&options).await;
    let after = stream_config(&context, &name).await;
    match follows {
        Stopped => {
            let error = opened.err().unwrap_or_else(|| panic!("{what}: it started")).to_string();
            assert!(error.contains(&format!("`{setting}`")) && error.contains(&name), "{what}: {error}");
            assert_eq!(after, changed, "{what}: it is left as it is");
        }
        Mended => {
            opened.unwrap();
            assert_eq!(after[*setting], before[*setting], "{what}");
            assert_eq!(doctor(&options).await, Vec::<String>::new(), "{what}");
        }
        Free => {
            opened.unwrap();
            assert_eq!(after, changed, "{what}: it is left as it is");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_setting_of_each_stream_is_put_right_or_stops_the_start() {
    // Its own: a sealed stream can't be emptied.
    let Some(server) = NatsServer::start() else { return };
    let url = server.url();
    check_all(stream_changes(), |case| {
        let url = url.clone();
        async move { check_stream(&url, &case).await }
    })
    .await;
}

fn consumer_changes() -> Vec<Change> {
    vec![
        change("", "ack_wait", json!(MINUTE), Mended),
        change("", "max_deliver", json!(3), Mended),
        change("", "max_ack_pending", json!(1), Mended),
        change("", "filter_subject", json!("PREFIX.in.*.*.*.task"), Mended),
        change("", "filter_subjects", json!(["PREFIX.in.*.*.*.task", "PREFIX.in.*.*.*.wake"]), Mended),
        change("", "headers_only", json!(true), Mended),
        change("", "max_batch", json!(1), Mended),
        change("", "max_bytes", json!(1_000), Mended),
        change("", "max_expires", json!(MINUTE), Mended),
        change("", "inactive_threshold", json!(MINUTE), Mended),
        change("", "backoff", json!([MINUTE]), Mended),
        change("", "description", json!("ours"), Free),
        change("", "sample_freq", json!("10"), Free),
        made("", "pause_until", json!("2099-01-01T00:00:00Z"), Mended),
        made("", "replay_policy", json!("original"), Stopped),
        made("", "deliver_subject", json!("elsewhere"), Stopped),
        change("_TIMERS", "ack_wait", json!(MINUTE), Mended),
        change("_TIMERS", "max_deliver", json!(3), Mended),
        change("_TIMERS", "filter_subject", json!("PREFIX.sched.>"), Mended),
        change("_TIMERS", "headers_only", json!(true), Mended),
    ]
}

async fn check_consumer(url: &str, case: &Change) {
    let Change { stream, setting, value, follows, made } = case;
    let what = format!("consumer of {stream} {setting} = {value}");
    let options = options(url);
    NatsBus::open(&options).await.unwrap();
    let context = context(url).await;
    let name = format!("{}{stream}", options.prefix.to_uppercase());
    let consumer = if *stream == "_TIMERS" { "timers" } else { "workers" };
    let config = async || ask(&context, format!("CONSUMER.INFO.{name}.{consumer}"), &json!({})).await["config"].clone();
    let before = config().await;
    let mut changed = before.clone();
    changed[*setting] = serde_json::from_str(&value.to_string().replace("PREFIX", &options.prefix)).unwrap();
    if *setting == "filter_subjects" {
        changed.as_object_mut().unwrap().remove("filter_subject");
    }
    if *setting == "backoff" {
        changed["ack_wait"] = json!(MINUTE);
    }
    if *setting == "deliver_subject" {
        changed.as_object_mut().unwrap().remove("max_waiting");
    }
    if *made {
        ask(&context, format!("CONSUMER.DELETE.{name}.{consumer}"), &json!({})).await;
    }
    let request = json!({"stream_name": name, "config": changed});
    let answer = ask(&context, format!("CONSUMER.DURABLE.CREATE.{name}.{consumer}"), &request).await;
    assert!(answer.get("error").is_none(), "{what}: {answer}");
    let changed = config().await;

    let said = doctor(&options).await;
    let said_of_it = said.iter().any(|line| line.contains(&format!("`{setting}`")) && line.contains(consumer));
    assert_eq!(said_of_it, *follows != Free, "{what}: {said:?}");
    assert_eq!(config().await, changed, "{what}: doctor only reads");

    let opened = NatsBus::open(&options).await;
    match follows {
        Stopped => {
            let error = opened.err().unwrap_or_else(|| panic!("{what}: it started")).to_string();
            let names = error.contains(&format!("`{setting}`")) && error.contains(&name) && error.contains(consumer);
            assert!(names && error.contains("nats consumer rm"), "{what}: {error}");
            assert_eq!(config().await, changed, "{what}: it is left as it is");
        }
        Mended => {
            opened.unwrap();
            assert_eq!(config().await[*setting], before[*setting], "{what}");
            assert_eq!(doctor(&options).await, Vec::<String>::new(), "{what}");
        }
        Free => {
            opened.unwrap();
            assert_eq!(config().await, changed, "{what}: it is left as it is");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_consumer_setting_is_fixed_or_stops_the_start() {
    let Some(url) = shared() else { return };
    check_all(consumer_changes(), |case| {
        let url = url.clone();
        async move { check_consumer(&url, &case).await }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_cant_be_put_right_keeps_no_other_from_it() {
    let Some(url) = shared() else { return };
    let options = options(&url);
    NatsBus::open(&options).await.unwrap();
    let (context, name) = (context(&url).await, options.prefix.to_uppercase());
    let mut timers = stream_config(&context, &format!("{name}_TIMERS")).await;
    timers["allow_msg_ttl"] = json!(true);
    ask(&context, format!("STREAM.UPDATE.{name}_TIMERS"), &timers).await;
    let config = async || ask(&context, format!("CONSUMER.INFO.{name}.workers"), &json!({})).await["config"].clone();
    let before = config().await;
    let mut changed = before.clone();
    changed["max_batch"] = json!(1);
    let request = json!({"stream_name": name, "config": changed});
    ask(&context, format!("CONSUMER.DURABLE.CREATE.{name}.workers"), &request).await;
    assert_eq!(config().await["max_batch"], 1);
    let error = NatsBus::open(&options).await.err().unwrap().to_string();
    assert!(error.contains("`allow_msg_ttl`") && error.contains(&format!("{name}_TIMERS")), "{error}");
    assert_eq!(config().await, before, "with this limit workers take no work");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_competing_consumer_stops_the_start() {
    let Some(url) = shared() else { return };
    let options = options(&url);
    NatsBus::open(&options).await.unwrap();
    let (context, prefix) = (context(&url).await, &options.prefix);
    let timers = format!("{}_TIMERS", prefix.to_uppercase());
    let config =
        json!({"durable_name": "thief", "ack_policy": "explicit", "filter_subject": format!("{prefix}.sched.>")});
    let request = json!({"stream_name": timers, "config": config});
    let answer = ask(&context, format!("CONSUMER.DURABLE.CREATE.{timers}.thief"), &request).await;
    assert!(answer.get("error").is_none(), "{answer}");
    let said = doctor(&options).await;
    assert!(said.iter().any(|line| line.contains("thief")), "{said:?}");
    let error = NatsBus::open(&options).await.err().unwrap();
    let said = error.to_string();
    assert!(matches!(error, BusOpenError::Consumer { .. }) && said.contains("`thief`"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_only_commands_create_no_stream() {
    let Some(url) = shared() else { return };
    let options = options(&url);
    assert_eq!(doctor(&options).await, Vec::<String>::new());
    let names = ask(&context(&url).await, "STREAM.NAMES".to_owned(), &json!({})).await.to_string();
    assert!(!names.contains(&format!("\"{}", options.prefix.to_uppercase())), "{names}");
}

fn owned(options: &NatsOptions, store: &str) -> NatsOptions {
    let owner = BusOwner { store: store.to_owned(), venue: "v".to_owned(), prefix: "p".to_owned() };
    NatsOptions { owner: Some(owner), ..options.clone() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_belongs_to_the_store_that_began_with_it() {
    let Some(url) = shared() else { return };
    let options = options(&url);
    // One that an earlier version made.
    NatsBus::open(&options).await.unwrap();
    NatsBus::open(&owned(&options, "first")).await.unwrap();
    NatsBus::open(&owned(&options, "first")).await.unwrap();
    let name = options.prefix.to_uppercase();
    let before = stream_config(&context(&url).await, &name).await;
    let stranger = NatsOptions { max_bytes: 2 << 20, ..owned(&options, "second") };
    let error = NatsBus::open(&stranger).await.err().unwrap();
    let said = error.to_string();
    assert!(matches!(error, BusOpenError::ForeignStore { .. }), "{said}");
    for part in ["store first", "store second", &url["nats://".len()..], &name, "venue.adopt"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(stream_config(&context(&url).await, &name).await, before, "it is left as it is");
    let looked = doctor(&owned(&options, "second")).await;
    assert!(looked.iter().any(|line| line.starts_with("nats owner: store first")), "{looked:?}");
    NatsBus::open(&NatsOptions { adopt: true, ..owned(&options, "second") }).await.unwrap();
    let error = NatsBus::open(&owned(&options, "first")).await.err().unwrap();
    assert!(matches!(error, BusOpenError::ForeignStore { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_stores_that_claim_a_queue_starts() {
    let Some(url) = shared() else { return };
    for _ in 0..10 {
        let options = options(&url);
        let (one, two) = (owned(&options, "one"), owned(&options, "two"));
        let (first, second) = tokio::join!(NatsBus::open(&one), NatsBus::open(&two));
        assert!(first.is_err() || second.is_err(), "both started");
        let again = async |options: &NatsOptions| {
            let options = NatsOptions { connect: options.connect, ..options.clone() };
            tokio::time::timeout(Duration::from_mins(2), NatsBus::open(&options)).await.unwrap().is_ok()
        };
        assert!(again(&one).await != again(&two).await, "one of them has it");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_monitor_of_another_server_says_nothing_of_this_one() {
    let monitors = [port::lasting().to_string(), port::lasting().to_string()];
    let (Some(own), Some(_other)) =
        (NatsServer::start_with(&["-m", &monitors[0]]), NatsServer::start_with(&["-m", &monitors[1]]))
    else {
        return;
    };
    let sync = async |port: &String| {
        let monitor = Some(format!("http://127.0.0.1:{port}"));
        let bus = NatsBus::open(&NatsOptions { monitor, ..options(&own.url()) }).await.unwrap();
        let all = bus.settings().await.unwrap();
        all.into_iter().find(|setting| setting.name == "nats sync_interval").unwrap()
    };
    let right = sync(&monitors[0]).await;
    assert_eq!((right.value.as_str(), right.problem), ("always", None));
    let wrong = sync(&monitors[1]).await;
    assert_eq!(wrong.value, "not shown to clients");
    assert!(wrong.problem.is_some_and(|problem| problem.contains("is of another server")));
}
