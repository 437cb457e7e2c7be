//! Lists of an owner with one damaged record of each kind: each still answers, with the others.

use super::command;
use crate::support::both_stores::{On, on_both};
use crate::support::http::Server;
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use trellis::domain::event::Submission;
use trellis::domain::ids::{JobId, SessionKey};
use trellis::domain::job::JobStatus;
use trellis::domain::time::Millis;
use trellis::process::clock::Clock;
use trellis::store::{DocWrite, keys};
use trellis::venue::jobs;

const RULES: &str = r#"
[[rule]]
when = { agent = "payer", turn = 1 }
then = { calls = [{ tool = "pay", arguments = { path = "w/paid", value = 100 } }] }

[[rule]]
then = { text = "done {{input}}" }
"#;

/// An id that no record has.
const ID: &str = "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f";

on_both! {
    a_damaged_record_is_left_out_of_every_list
}

/// A record that becomes junk, the lists that would have it, and a word of another record that they must have.
struct BrokenRecord {
    keys: Vec<String>,
    lists: Vec<&'static str>,
    healthy: String,
}

fn broken(keys: &[String], lists: &[&'static str], healthy: &str) -> BrokenRecord {
    BrokenRecord { keys: keys.to_vec(), lists: lists.to_vec(), healthy: healthy.to_owned() }
}

/// Ends two turns of `helper/main`, stores an asset, and asks for an approval. Returns the asset and the approval.
async fn fill(venue: &TestVenue, server: &Server) -> (String, String) {
    venue.agent("helper", json!({})).await;
    let tool = json!({"operation": "v/ops/lattice/append", "name": "pay", "approval": "ask"});
    venue.agent("payer", json!({"tools": [tool]})).await;
    venue.worker();
    for id in ["first", "second"] {
        let session_id = Some("main".parse().unwrap());
        let submission = Submission { input: json!(id), session_id, ..Submission::default() };
        venue.ended(&venue.arrive("helper", id, true, submission).await.job.unwrap()).await;
    }
    let asked = venue.submit("payer", "asked", json!("go")).await.job.unwrap();
    for _ in 0..600 {
        let status = jobs::read_status(&venue.venue, &venue.owner, &asked).await.unwrap();
        if status.is_some_and(|(status, _)| status == JobStatus::InputRequired) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let asset = server.post("/api/v1/assets", json!({"content": "kept", "metadata": {"name": "kept"}})).await;
    assert!(asset.status.is_success(), "{asset:?}");
    let mut approvals = venue.venue.store.entries(&venue.owner, keys::OPEN_APPROVALS);
    let approval = approvals.keys().await.unwrap().unwrap().remove(0);
    let approval = keys::approval_of_open(&approval).unwrap().to_string();
    (asset.body.as_str().unwrap().to_owned(), approval)
}

fn records(venue: &TestVenue, asset: &str, approval: &str) -> Vec<BrokenRecord> {
    let session = |id: &str| SessionKey { agent: "helper".parse().unwrap(), session: id.parse().unwrap() };
    let job: JobId = ID.parse().unwrap();
    let day = venue.venue.spend.zone.day(venue.venue.now()).date;
    vec![
        broken(&["g/broken".into()], &["/api/v1/agents", "/agents"], "helper"),
        broken(
            &[keys::approval(&job), keys::open_approval(&job)],
            &["/api/v1/approvals", "/api/v1/approvals?all=true", "/approvals"],
            approval,
        ),
        broken(&[], &["/api/v1/agents/helper", "/agents/helper", "/api/v1/agents/payer", "/agents/payer"], ""),
        broken(
            &[keys::turn(&session("main"), 1)],
            &[
                "/api/v1/agents/helper/turns",
                "/api/v1/agents/helper/turns?session=main",
                "/api/v1/agents/helper/sessions/main",
                "/agents/helper",
            ],
            "second",
        ),
        broken(&[keys::session_day(&day, &session("other"), Millis(5))], &["/api/v1/spend"], "main"),
        broken(&[format!("cap/{day}"), format!("cap/{day}/me")], &["/api/v1/spend"], "main"),
        broken(
            &[format!("a/{}", "0f".repeat(32))],
            &["/api/v1/assets?details=true", "/api/v1/assets"],
            asset.rsplit('/').next().unwrap(),
        ),
        broken(&[format!("m/{ID}")], &["/api/v1/timers", "/timers"], ""),
        broken(&["s/BROKEN".into()], &["/api/v1/secrets", "/secrets"], ""),
        broken(
            &["hook/broken".into(), "hook.at/broken".into(), "e.state".into()],
            &["/api/v1/webhooks", "/failures"],
            "",
        ),
        broken(&[format!("u/{ID}")], &["/api/v1/outcomes", "/failures"], ""),
        broken(&[format!("dead/0000000000000005-{ID}")], &["/failures"], ""),
        broken(
            &[format!("l/0000000000000005-{ID}"), format!("j/{ID}"), format!("j/{ID}/s")],
            &["/api/v1/jobs?details=true", "/"],
            "helper",
        ),
    ]
}

/// Breaks one record of each kind after the other, and reads the lists.
async fn check_lists(venue: TestVenue, breaks: impl AsyncFn(&TestVenue, &str)) {
    let server = Server::of(Arc::clone(&venue.venue)).await;
    let (asset, approval) = fill(&venue, &server).await;
    let mut wrong = Vec::new();
    for BrokenRecord { keys, lists, healthy } in records(&venue, &asset, &approval) {
        for key in &keys {
            breaks(&venue, key).await;
        }
        for list in lists {
            let answer = server.get(list).await;
            if answer.status != 200 || !answer.body.to_string().contains(&healthy) {
                wrong.push(format!("{keys:?}: {list}: {} without `{healthy}`: {}", answer.status, answer.body));
            }
        }
    }
    let workers = DocWrite::put("worker/broken", "{\"cut\": ");
    venue.venue.store.write(venue.venue.now(), &keys::venue_owner(), &[workers]).await.unwrap();
    let workers = server.run("v/ops/worker/list", json!({})).await.to_string();
    assert!(workers.contains("\"test\""), "{workers}");
    let spent = server.get("/api/v1/spend").await.body(200);
    assert_eq!(spent["partial"], true, "{spent}");
    venue.shutdown.trigger();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

async fn a_damaged_record_is_left_out_of_every_list(on: On) {
    let Some((venue, _dir)) = on.venue(RULES, Clock::system()).await else { return };
    check_lists(venue, async |venue, key| {
        let junk = DocWrite::put(key, "{\"cut\": ");
        venue.venue.store.write(venue.venue.now(), &venue.owner, &[junk]).await.unwrap();
    })
    .await;
}

/// In Redis a document can lose its version, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_without_a_version_is_left_out_of_every_list() {
    let Some(server) = RedisServer::shared() else { return };
    let (venue, _dir, prefix) = TestVenue::redis_at(server, RULES, Clock::system()).await;
    let base = RedisServer::base(&prefix, &venue.owner);
    check_lists(venue, async |_, key| {
        command(server, &[b"HSET", format!("{base}:doc").as_bytes(), key.as_bytes(), b"junk"]).await;
        command(server, &[b"ZADD", format!("{base}:keys").as_bytes(), b"0", key.as_bytes()]).await;
    })
    .await;
}
