//! What an agent's configuration can make a worker do through its model: nothing to its files, its memory and the others.

use crate::support::cli::Up;
use crate::support::model_calls::{plain_request, user};
use crate::support::model_server::ModelServer;
use crate::support::raw_reply::RawReply;
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use trellis::domain::chat::ModelSettings;
use trellis::domain::ids::JobId;
use trellis::domain::job::JobStatus;
use trellis::domain::rate::RateLimit;
use trellis::model::endpoint::{ModelEndpoint, ProviderOptions};
use trellis::model::models::{ModelOptions, Models};
use trellis::model::{LiveText, Model};
use trellis::process::clock::Clock;
use trellis::venue::rates::{self, BookingError, RateSettings};

/// Makes an agent of that scripted model and gives it a task: what the agent is suspended with.
fn refused(up: &Up, agent: &str, model: &str) -> String {
    up.file(&format!("{agent}.toml"), &format!("model = {{ provider = \"scripted\", name = {model:?} }}"));
    up.run(&["agent", "apply", &format!("{agent}.toml")]).ok();
    up.run(&["submit", agent, "go"]).ok();
    let start = Instant::now();
    loop {
        let shown = up.run(&["agent", "get", agent, "--output", "json"]).ok();
        let shown: Value = serde_json::from_str(&shown).unwrap();
        if shown["status"] == "SUSPENDED" {
            return shown["error"].as_str().unwrap().to_owned();
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{shown}");
    }
}

#[test]
fn the_name_of_a_model_is_no_path_on_the_worker() {
    for scripted in ["", "rules"] {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("rules");
        std::fs::create_dir(&inside).unwrap();
        let up = Up::start_in(dir, &[&format!("models.scripted={scripted}")]);
        let pipe = up.dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let victim = up.dir.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        let log = format!("calls_log = {:?}\n[[rule]]\nthen = {{ text = \"x\" }}\n", victim.display().to_string());
        up.file("writer.rules", &log);
        std::fs::write(inside.join("writer.rules"), log).unwrap();
        let absolute = |name: &str| up.dir.path().join(name).display().to_string();
        let names =
            ["/dev/zero", "/etc/passwd", "/no/such", "../victim", "none", &absolute("pipe"), &absolute("writer.rules")];
        for (n, name) in names.into_iter().enumerate() {
            let said = refused(&up, &format!("a{n}"), name);
            let expected = match scripted {
                "" => format!("the provider `scripted` has no model `{name}` here, only `echo` and `never`; "),
                _ => format!("there is no rules file `{name}` in the folder that `models.scripted` names; "),
            };
            let reason = said.split_once("can't be used: ").map_or(said.as_str(), |(_, reason)| reason);
            assert!(reason.starts_with(&expected), "the same for what exists and what doesn't: {said}");
        }
        if scripted == "rules" {
            let said = refused(&up, "writer", "writer.rules");
            assert!(said.contains("`calls_log` of rules file `writer.rules` is not a file in the folder"), "{said}");
        }
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
        up.agent("well", "echo");
        assert!(up.run(&["submit", "well", "hello", "--wait"]).ok().contains("hello"), "the others go on");
        let peak = up.process.peak_mib();
        assert!(peak < 400, "{peak} MiB");
    }
}

/// A venue over each store that can be had here.
async fn venues() -> Vec<(TestVenue, tempfile::TempDir)> {
    let mut venues = vec![TestVenue::embedded("").await];
    if let Some(server) = RedisServer::shared() {
        let (venue, dir, _) = TestVenue::redis_at(server, "", Clock::system()).await;
        venues.push((venue, dir));
    }
    venues
}

/// Twenty tasks of an agent whose model never answers, each in a session of its own.
async fn twenty(venue: &TestVenue) -> Vec<JobId> {
    let mut jobs = Vec::new();
    for n in 0..20 {
        jobs.push(venue.submit("stuck", &format!("t{n}"), json!("go")).await.job.unwrap());
    }
    jobs
}

fn stuck() -> Value {
    json!({"model": {"provider": "scripted", "name": "never"}, "concurrency": 20})
}

/// Calls of the model that never answers, once they are `expected` and stay so many.
async fn running(venue: &TestVenue, expected: usize) {
    let count = || venue.model_calls().iter().filter(|call| call["model"] == "scripted/never").count();
    let start = Instant::now();
    while count() < expected && start.elapsed() < Duration::from_secs(20) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_millis(800)).await;
    assert_eq!(count(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_on_a_hanging_model_do_not_stop_another_owner() {
    for (mut venue, _dir) in venues().await {
        venue.agent("stuck", stuck()).await;
        let first = std::mem::replace(&mut venue.owner, "local/you".parse().unwrap());
        venue.agent("well", json!({"model": {"provider": "scripted", "name": "echo"}})).await;
        let second = std::mem::replace(&mut venue.owner, first);
        venue.worker();
        // Until the worker has looked around once, it doesn't know that there is another owner.
        tokio::time::sleep(Duration::from_secs(1)).await;
        twenty(&venue).await;
        running(&venue, 6).await;
        venue.owner = second;
        for n in 0..5 {
            let start = Instant::now();
            let job = venue.run("well", &format!("w{n}"), json!("hello")).await;
            assert_eq!(job.result.unwrap().output, Some(json!("hello")));
            assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_alone_has_all_slots_and_the_timeout_frees_them() {
    for (mut venue, _dir) in venues().await {
        venue.model_timeout = Duration::from_secs(3);
        venue.retry.total = Some(Duration::from_millis(1));
        venue.agent("stuck", stuck()).await;
        venue.worker();
        let jobs = twenty(&venue).await;
        running(&venue, 8).await;
        for job in jobs {
            let result = venue.ended(&job).await.result.unwrap();
            let error = result.error.unwrap();
            assert!(error.contains("no complete reply within 3 s"), "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_has_the_calls_of_every_provider() {
    let (venue, dir) = TestVenue::embedded("").await;
    let server = ModelServer::scripted(vec![RawReply::new("text/plain", "no").status(429)]);
    let endpoint = ModelEndpoint { base_url: server.url("/v1/"), api_key_env: None };
    let providers =
        ProviderOptions { endpoints: [("local".to_owned(), endpoint)].into(), ..ProviderOptions::default() };
    let calls_log = Some(dir.path().join("calls.jsonl"));
    let models = Models::new(ModelOptions { providers, calls_log, ..ModelOptions::default() }).unwrap();
    for (provider, name) in [("local", "m"), ("scripted", "echo")] {
        let mut request = plain_request(provider, vec![user("hello")]);
        request.model.name = name.into();
        let _ = models.complete(&request, &[], &LiveText::channel().0).await;
    }
    let calls = venue.model_calls();
    let said: Vec<_> =
        calls.iter().map(|call| (call["model"].as_str().unwrap(), call["event"].as_str().unwrap())).collect();
    let expected =
        [("local/m", "started"), ("local/m", "failed"), ("scripted/echo", "started"), ("scripted/echo", "replied")];
    assert_eq!(said, expected);
    assert!(calls.iter().all(|call| call["turn"] == "acme/ann/clerk/default/1" && call["pid"] == std::process::id()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_no_minute_has_room_for_is_refused_at_once() {
    let (mut venue, _dir) = TestVenue::embedded("[[rule]]\nthen = { text = \"done\" }\n").await;
    let limits = RateLimit::list("scripted/rules:tokens=5000").unwrap();
    venue.rates = RateSettings { limits, hold: Duration::from_mins(1) };
    venue.worker();
    let model = |tokens: u32| json!({"provider": "scripted", "name": "rules", "maxTokens": tokens});
    venue.agent("small", json!({"model": model(100)})).await;
    assert_eq!(venue.run("small", "t1", json!("go")).await.status, JobStatus::Complete);
    venue.agent("large", json!({"model": model(5_000)})).await;
    let start = Instant::now();
    let result = venue.run("large", "t2", json!("go")).await.result.unwrap();
    let error = result.error.unwrap();
    assert!(error.contains("the rate limit of `scripted/rules` is 5000 tokens per minute"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_call_starts_as_soon_as_the_running_one_ends() {
    for (mut venue, _dir) in venues().await {
        let rules = "[[rule]]\nthen = { text = \"done\", delay_ms = 100 }\n";
        std::fs::write(venue.dir.join("rules.toml"), rules).unwrap();
        let limits = RateLimit::list("scripted:concurrency=1").unwrap();
        venue.rates = RateSettings { limits, hold: Duration::from_mins(1) };
        venue.sweep = Duration::from_secs(2);
        venue.worker();
        venue.agent("a", json!({})).await;
        let start = Instant::now();
        let mut jobs = Vec::new();
        for n in 0..6 {
            jobs.push(venue.submit("a", &format!("t{n}"), json!("go")).await.job.unwrap());
        }
        for job in jobs {
            assert_eq!(venue.ended(&job).await.status, JobStatus::Complete);
        }
        // By the sweep alone each would take two seconds.
        assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_killed_workers_model_slot_is_free_after_its_lease() {
    for (venue, _dir) in venues().await {
        let limits = RateLimit::list("scripted:concurrency=1").unwrap();
        let rates = RateSettings { limits, hold: Duration::from_secs(1) };
        let model = ModelSettings::new("scripted", "echo");
        let book = async |id: &str| match rates::book(&venue.venue, &rates, &model, id.to_owned(), 1).await {
            Err(error @ BookingError::Store(_)) => panic!("{error}"),
            booked => booked,
        };
        let living = book("a").await.unwrap();
        let look = async {
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_millis(500)).await;
                assert!(book("b").await.is_err(), "it is renewed");
            }
        };
        tokio::select! {
            never = rates::renew_booking(&venue.venue, &living, rates.hold) => match never {},
            () = look => {}
        }
        drop(living);
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        assert!(book("b").await.is_ok(), "nobody renews it any more");
    }
}
