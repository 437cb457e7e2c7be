//! What was stored before there was a limit stops nothing: it is shown with a text where it is too deep.

use super::{nested, venues};
use crate::support::http::Server;
use crate::support::venue::TestVenue;
use bytes::Bytes;
use serde_json::{Value, json};
use std::sync::Arc;
use trellis::domain::event::Submission;
use trellis::domain::ids::{EventId, SessionKey};
use trellis::domain::job::JobStatus;
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::domain::seal::{self, SubmissionAddress};
use trellis::store::{DocEffect, DocWrite, Expect, OutboxEntry, keys};
use trellis::venue::outbox;

const RULES: &str = r#"
[[rule]]
when = { agent = "reader", turn = 1 }
then = { calls = [{ tool = "lattice_read", arguments = { path = "w/x/evil" } }, { tool = "lattice_read", arguments = { path = "w/x" } }, { tool = "lattice_slice", arguments = { path = "w" } }] }

[[rule]]
when = { agent = "reader" }
then = { text = "{{tool_result}}" }

[[rule]]
when = { agent = "plain", text = "again" }
then = { text = "still here" }

[[rule]]
when = { agent = "plain" }
then = { text = "done" }
"#;

const NOTE: &str = "[not shown: nested deeper than";

/// Puts bytes in the place of the document whose value has `mark`.
async fn replace(venue: &TestVenue, mark: &str, with: impl Fn(&str) -> String) {
    let store = &venue.venue.store;
    let mut replaced = 0;
    for (key, doc) in store.scan(&venue.owner, "", None, false, 10_000).await.unwrap() {
        let bytes = doc.value.unwrap_or_default();
        let Ok(text) = std::str::from_utf8(&bytes) else { continue };
        if text.contains(mark) {
            let change = DocEffect::Put(Bytes::from(with(text)));
            let write = DocWrite { key, expect: Expect::Any, change };
            store.write(venue.venue.now(), &venue.owner, &[write]).await.unwrap();
            replaced += 1;
        }
    }
    assert!(replaced > 0, "nothing has `{mark}`");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_too_deep_value_of_the_tree_is_shown_to_the_limit() {
    for (venue, _dir) in venues(RULES).await {
        venue.write("w/x/evil", json!("MARK")).await;
        venue.write("w/x/good", json!(1)).await;
        replace(&venue, "MARK", |text| text.replace("\"MARK\"", &nested(300).to_string())).await;
        venue
            .agent("reader", json!({"context": ["w/x/evil", "w/x", {"op": "lattice/read", "input": {"path": "w"}}]}))
            .await;
        venue.worker();
        let job = venue.run("reader", "t1", json!("read")).await;
        assert_eq!(job.status, JobStatus::Complete, "{:?}", job.result);

        let server = Server::of(Arc::clone(&venue.venue)).await;
        for path in ["w/x/evil", "w/x", "w"] {
            let body = server.get(&format!("/api/v1/values/read?path={path}")).await.body(200);
            assert!(body.to_string().contains(NOTE), "{path}: {body}");
        }
        server.get("/api/v1/values/list?path=w/x").await.body(200);
        server.get("/api/v1/values/slice?path=w/x").await.body(200);
        // It can be copied no further, and be overwritten and deleted.
        let run = async |operation: &str, input: Value| {
            server.post("/api/v1/run", json!({"operation": operation, "input": input})).await
        };
        let copied = run("lattice/copy", json!({"from": "w/x/evil", "to": "w/y/evil"})).await;
        copied.is_problem(400, "nested deeper than 64 levels");
        run("lattice/write", json!({"path": "w/x/evil", "value": 2})).await.body(200);
        run("lattice/delete", json!({"path": "w/x/evil"})).await.body(200);
    }
}

/// A task with an input of 300 levels lies in the mailbox, in its job and in the transcript.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_and_a_transcript_that_are_too_deep_go_on() {
    for (venue, _dir) in venues(RULES).await {
        venue.agent("plain", json!({"model": {"provider": "scripted", "name": "rules"}})).await;
        venue.worker();
        let task = Submission { input: nested(300), session_id: Some("s".parse().unwrap()), ..Submission::default() };
        let submitted = venue.arrive("plain", "deep", true, task).await;
        let job = venue.ended(&submitted.job.unwrap()).await;
        assert_eq!(job.status, JobStatus::Complete, "{:?}", job.result);
        assert!(job.head.input.to_string().contains(NOTE));

        let said = json!({"role": "assistant", "text": "x", "calls": [{"id": "c", "name": "f", "arguments": {"json": nested(300)}}]});
        let session = SessionKey { agent: "plain".parse().unwrap(), session: "s".parse().unwrap() };
        let key = keys::turn(&session, 1);
        let doc = venue.venue.store.read(&venue.owner, std::slice::from_ref(&key)).await.unwrap().remove(0);
        let mut record: Value = serde_json::from_slice(&doc.value.unwrap()).unwrap();
        record["said"] = json!([said]);
        let change = DocEffect::Put(Bytes::from(record.to_string()));
        let write = DocWrite { key, expect: Expect::Any, change };
        venue.venue.store.write(venue.venue.now(), &venue.owner, &[write]).await.unwrap();

        let again =
            Submission { input: json!("again"), session_id: Some("s".parse().unwrap()), ..Submission::default() };
        let submitted = venue.arrive("plain", "again", true, again).await;
        let next = venue.ended(&submitted.job.unwrap()).await;
        assert_eq!(next.result.unwrap().output, Some(json!("still here")));

        let server = Server::of(Arc::clone(&venue.venue)).await;
        for path in [
            format!("jobs/{}", job.head.id),
            "jobs?details=true".to_owned(),
            "agents/plain/turns/s/1".to_owned(),
            "values/read?path=g/plain/timeline".to_owned(),
            format!("values/read?path=j/{}", job.head.id),
        ] {
            server.get(&format!("/api/v1/{path}")).await.body(200);
        }
        super::nothing_is_left_in_the_outbox(&venue).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_is_too_deep_leaves_the_outbox_under_the_seal() {
    for (venue, _dir) in venues(RULES).await {
        venue.agent("plain", json!({})).await;
        let (owner, id) = (&venue.owner, EventId::new("child").unwrap());
        let agent = "plain".parse().unwrap();
        let task = Submission { input: nested(300), caller: Some("agent:boss".into()), ..Submission::default() };
        let to = SubmissionAddress { owner, agent: &agent, kind: InboundKind::Task };
        let sealed = seal::seal_submission(&venue.venue.key, to, &id, task);
        let to = MessageAddress::In { owner: owner.clone(), agent, kind: InboundKind::Task };
        let message =
            BusMessage { to, id: Some("child".into()), body: serde_json::to_value(sealed).unwrap(), trace: None };
        let entries: Vec<OutboxEntry> = vec![outbox::make_entry("child".into(), &message)];
        venue.venue.relay(owner, &entries).await;
        venue.worker();
        let job = trellis::domain::ids::JobId::derive(&venue.venue.key, owner, &id);
        for _ in 0..600 {
            if trellis::venue::jobs::get(&venue.venue, owner, &job).await.unwrap().is_some() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        let job = venue.ended(&job).await;
        assert_eq!((job.status, job.head.caller.as_deref()), (JobStatus::Complete, Some("agent:boss")));
        assert!(job.head.input.to_string().contains(NOTE));
    }
}
