//! Webhooks that fail, hang, redirect or may not be called; what a caller may set and see; and a kill before the post.

use super::embedded::{listed, up};
use super::{HookAnswer, HookServer, SECRET};
use futures::future::join_all;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn a_post_comes_again_until_it_is_taken() {
    let hook = HookServer::start(|index| HookAnswer::Status(if index < 2 { 500 } else { 200 })).await;
    let up = up(&hook, &["payer"], &[]);
    up.run(&["agent", "suspend", "payer"]).ok();
    let posts = hook.wait("agent-suspended", 3).await;
    let first = &posts[0];
    for post in &posts {
        post.verify();
        assert_eq!((&post.body, &post.headers["webhook-id"]), (&first.body, &first.headers["webhook-id"]));
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(hook.all().len(), 3, "what was taken comes no more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_not_followed() {
    let inner = HookServer::willing().await;
    for to in ["http://169.254.169.254/latest/meta-data/".to_owned(), inner.url()] {
        let hook = HookServer::start(move |index| match index {
            0 => HookAnswer::Redirect(to.clone()),
            _ => HookAnswer::Status(200),
        })
        .await;
        let up = up(&hook, &["payer"], &[]);
        up.run(&["agent", "suspend", "payer"]).ok();
        assert_eq!(hook.wait("agent-suspended", 2).await.len(), 2, "a redirected post is not a taken one");
    }
    assert!(inner.all().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_hangs_delays_no_other() {
    let hook = HookServer::start(|_| HookAnswer::Hang).await;
    let other = HookServer::willing().await;
    let hosts = format!("http_client.allow_hosts=127.0.0.1:{}, 127.0.0.1:{}", hook.port, other.port);
    let up = up(&hook, &["payer"], &[&hosts]);
    up.run(&["webhook", "set", "other", &other.url(), "--secret", "s/HOOK"]).ok();
    let began = Instant::now();
    up.run(&["agent", "suspend", "payer"]).ok();
    up.run(&["agent", "resume", "payer"]).ok();
    let job = up.run(&["submit", "payer", "pay 40"]).ok();
    other.wait("approval-asked", 1).await;
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    up.run(&["job", "cancel", &job]).ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_commit_and_post_loses_nothing() {
    let hook = HookServer::start(|index| if index == 0 { HookAnswer::Hang } else { HookAnswer::Status(200) }).await;
    let mut up = up(&hook, &["payer"], &["worker.lease=500ms"]);
    up.run(&["submit", "payer", "pay 40"]).ok();
    hook.wait("approval-asked", 1).await;
    up.process.signal("KILL");
    up.process.ended();
    up.start_again();
    let posts = hook.wait("approval-asked", 2).await;
    assert_eq!(posts[0].headers["webhook-id"], posts[1].headers["webhook-id"], "a receiver knows it again");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_gone_is_given_up_and_shown() {
    let hook = HookServer::start(|_| HookAnswer::Status(410)).await;
    let up = up(&hook, &["payer"], &[]);
    up.run(&["agent", "suspend", "payer"]).ok();
    hook.wait("agent-suspended", 1).await;
    let listed = listed(&up, "failed", 1).await;
    let lost = &listed["items"][0]["undelivered"][0];
    assert_eq!(lost["type"], "agent-suspended", "{listed}");
    assert!(lost["error"].as_str().unwrap().contains("answered 410"), "{lost}");
    let dead: Value = serde_json::from_str(&up.run(&["dead", "list", "--output", "json"]).ok()).unwrap();
    assert_eq!(dead["undelivered"][0]["webhook"], "phone", "{dead}");
    let said = up.run(&["dead", "list"]);
    assert!(said.err.contains("not delivered to webhook phone"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kinds_are_chosen_and_a_webhook_is_tried() {
    let hook = HookServer::willing().await;
    let up = up(&hook, &["payer"], &[]);
    let set = ["webhook", "set", "phone", &hook.url(), "--secret", "s/HOOK", "--kind", "job-dead"];
    up.run(&set).ok();
    up.run(&["agent", "suspend", "payer"]).ok();
    up.run(&["webhook", "try", "phone"]).ok();
    hook.wait("test", 1).await[0].verify();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(hook.of_kind("agent-suspended").is_empty());
    up.run(&["webhook", "delete", "phone"]).ok();
    up.run(&["webhook", "try", "phone"]).expect(5, "no webhook `phone`");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_not_be_set_is_refused_with_the_reason() {
    let hook = HookServer::willing().await;
    let up = up(&hook, &[], &[]);
    let url = hook.url();
    up.file("plain.txt", "0123456789abcdef");
    up.run(&["secret", "set", "PLAIN", "@plain.txt"]).ok();
    for (url, secret, kind, code, part) in [
        ("http://169.254.169.254/", "s/HOOK", None, 7, "is not one that this venue allows"),
        ("http://10.0.0.1/", "s/HOOK", None, 7, "is not one that this venue allows"),
        ("file:///etc/passwd", "s/HOOK", None, 2, "`url`"),
        ("http://u:p@127.0.0.1/", "s/HOOK", None, 2, "`url`"),
        ("nonsense", "s/HOOK", None, 2, "`url`"),
        (url.as_str(), "s/NONE", None, 5, "no secret `NONE`"),
        (url.as_str(), "s/PLAIN", None, 2, "expected `whsec_`"),
        (url.as_str(), "whsec_x", None, 2, "`secret`"),
        (url.as_str(), "s/HOOK", Some("job-ded"), 2, "kinds"),
    ] {
        let mut args = vec!["webhook", "set", "bad", url, "--secret", secret];
        args.extend(kind.into_iter().flat_map(|kind| ["--kind", kind]));
        up.run(&args).expect(code, part);
    }
    up.run(&["webhook", "set", "a/b", &url, "--secret", "s/HOOK"]).expect(2, "expected a name of 1 to 32");
    // One is set already.
    for nth in 1..10 {
        up.run(&["webhook", "set", &format!("more-{nth}"), &url, "--secret", "s/HOOK"]).ok();
    }
    let full = up.run(&["webhook", "set", "more-10", &url, "--secret", "s/HOOK"]);
    assert!(full.code != 0 && full.err.contains("at most 10 webhooks"), "{full:?}");
    assert!(!full.err.contains(SECRET));
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_that_are_set_at_once_keep_their_bound() {
    let hook = HookServer::willing().await;
    let up = up(&hook, &[], &[]);
    let client = reqwest::Client::new();
    let body = json!({"url": hook.url(), "secret": {"$secret": "s/HOOK"}});
    let set = |nth: usize| client.put(format!("{}/api/v1/webhooks/more-{nth}", up.url)).json(&body).send();
    let answers = join_all((0..30).map(set)).await;
    let count = answers.into_iter().filter(|answer| answer.as_ref().unwrap().status().is_success()).count();
    let listed: Value = serde_json::from_str(&up.run(&["webhook", "list", "--output", "json"]).ok()).unwrap();
    let webhooks = listed["items"].as_array().unwrap().len();
    // One is set already.
    assert!(count > 0 && webhooks == count + 1 && webhooks <= 10, "{count} set: {listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_owner_is_not_told() {
    let hook = HookServer::willing().await;
    let up = up(&hook, &[], &[]);
    up.file("payer.toml", &super::definition("payer"));
    up.run(&["agent", "apply", "payer.toml", "--owner", "local/bob"]).ok();
    up.run(&["agent", "suspend", "payer", "--owner", "local/bob"]).ok();
    let listed = up.run(&["webhook", "list", "--owner", "local/bob", "--output", "json"]).ok();
    assert!(!listed.contains("phone"), "{listed}");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(hook.all().is_empty(), "{:?}", hook.all());
}
