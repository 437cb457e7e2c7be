//! What a worker says, and by which right.

use super::{Office, code, output};
use crate::support::venue::job_record;
use futures::StreamExt;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::timeout;
use trellis::bus::LiveSubject;
use trellis::domain::ids::JobId;
use trellis::domain::job::JobStatus;
use trellis::store::{DocEffect, DocWrite, Expect, keys};
use trellis::venue::jobs;

const LIMIT: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread")]
async fn signs_start_a_job_and_its_result_wakes_the_session() {
    let Some(office) = Office::open().await else { return };
    let (clerks, taken) = office.ordered("t1", json!({})).await;
    office.rests(&clerks).await;
    assert_eq!(office.job(&taken.job).await.status, JobStatus::Pending);
    office.books_are_closed().await;
    office.say(&taken, json!({"status": "STARTED"})).await;
    let first = office.started(&taken.job).await.outbound.unwrap();
    let mut live = office.venue.venue.bus.live_feed().follow(&taken.job, None).await.unwrap();
    office.say(&taken, json!({"status": "STARTED", "progress": {"page": 3, "of": 9}})).await;
    let piece = timeout(LIMIT, live.next()).await.unwrap().unwrap();
    assert_eq!(piece.body, r#"{"progress":{"page":3,"of":9}}"#);
    let again = office.job(&taken.job).await.outbound.unwrap();
    assert_eq!(again.started, first.started);
    assert!(again.heartbeat >= first.heartbeat);
    office.books_are_closed().await;
    assert!(!office.job(&clerks).await.status.is_terminal(), "waiting fails nothing");
    office.say(&taken, json!({"status": "COMPLETE", "output": {"text": "Invoice 17"}})).await;
    assert_eq!(output(&office.venue.ended(&clerks).await), "the worker is done");
    let record = job_record(&office.job(&taken.job).await);
    assert_eq!((&record["status"], &record["output"]["text"]), (&json!("COMPLETE"), &json!("Invoice 17")));
    assert_eq!(record["op"], "v/ops/queue/publish");
    assert_eq!(record["outbound"]["queue"], "ocr");
    assert!(record["outbound"]["started"].is_u64() && record["outbound"]["ignored"].is_null(), "{record}");
    office.is_watched_no_more().await;
    office.books_are_closed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_need_not_say_that_it_has_begun_and_may_fail() {
    let Some(office) = Office::open().await else { return };
    let (clerks, taken) = office.ordered("t1", json!({})).await;
    office.rests(&clerks).await;
    office.say(&taken, json!({"status": "FAILED", "error": "the scan is blank"})).await;
    assert_eq!(output(&office.venue.ended(&clerks).await), "the worker is not done");
    let job = office.job(&taken.job).await;
    assert_eq!((job.status, code(&job)), (JobStatus::Failed, json!("TASK_FAILED")));
    assert_eq!(job.result.unwrap().error.unwrap(), "the scan is blank");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fast_result_comes_back_in_the_turn() {
    let Some(office) = Office::open().await else { return };
    let (clerks, taken) = office.ordered("t1", json!({"wait": 200_000})).await;
    office.say(&taken, json!({"status": "COMPLETE", "output": "fast"})).await;
    assert_eq!(office.venue.ended(&clerks).await.status, JobStatus::Complete);
    let session = office.job(&clerks).await.head.session;
    let turns = serde_json::to_string(&office.venue.turns("clerk", session.as_str()).await).unwrap();
    assert!(turns.contains(r#"\"output\":\"fast\""#) && turns.contains(r#"\"queue\":\"ocr\""#), "{turns}");
    assert!(!turns.contains("STARTED"), "{turns}");
}

/// The terminal answer to what is refused; it has the reason.
async fn refused(office: &Office, subject: &str, mut body: Value) -> Value {
    let inbox = office.client.new_inbox();
    let mut answers = office.client.subscribe(inbox.clone()).await.unwrap();
    office.client.flush().await.unwrap();
    body["replyTo"] = inbox.into();
    office.send(subject, &body).await;
    let answer = timeout(LIMIT, answers.next()).await.unwrap().unwrap();
    serde_json::from_slice(&answer.payload).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_the_token_of_its_job_has_no_effect() {
    let Some(office) = Office::open().await else { return };
    let (clerks, taken) = office.ordered("t1", json!({})).await;
    let (_, other) = office.ordered("t2", json!({})).await;
    let subject = taken.body["answer"].as_str().unwrap();
    let owners = subject.replace(".local.me.", ".local.you.");
    let [own, of_other] = [&taken.body["token"], &other.body["token"]];
    for (subject, job, token) in [
        (subject, &taken.job, json!("00")),
        (subject, &taken.job, json!("0".repeat(64))),
        (subject, &taken.job, of_other.clone()),
        (subject, &other.job, own.clone()),
        (subject, &taken.job, json!(null)),
        (subject, &taken.job, json!({"not": "a text"})),
        (owners.as_str(), &taken.job, own.clone()),
    ] {
        for status in ["STARTED", "COMPLETE", "FAILED"] {
            let body = json!({"job": job, "token": token, "status": status, "output": "pay me"});
            let answer = refused(&office, subject, body).await;
            assert_eq!((&answer["status"], &answer["errorCode"]), (&json!("REJECTED"), &json!("FORGED")), "{answer}");
        }
    }
    let job = office.job(&taken.job).await;
    assert_eq!((job.status, job.outbound.unwrap().ignored.len()), (JobStatus::Pending, 0));
    office.say(&taken, json!({"status": "COMPLETE", "output": "true"})).await;
    assert_eq!(office.venue.ended(&clerks).await.status, JobStatus::Complete);
    assert_eq!(output(&office.job(&taken.job).await), "true");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_end_counts_and_later_ones_are_in_the_record() {
    let Some(office) = Office::open().await else { return };
    let (clerks, taken) = office.ordered("t1", json!({})).await;
    let first = json!({"status": "COMPLETE", "output": 1});
    office.say(&taken, first.clone()).await;
    office.venue.ended(&clerks).await;
    office.say(&taken, first).await;
    office.say(&taken, json!({"status": "FAILED", "error": "no"})).await;
    office.say(&taken, json!({"status": "COMPLETE", "output": 2})).await;
    office.say(&taken, json!({"status": "DONE"})).await;
    let job = office
        .becomes(&taken.job, "answered four times", |job| job.outbound.as_ref().unwrap().ignored.len() >= 3)
        .await;
    let shown = job_record(&job);
    assert_eq!((&shown["status"], &shown["output"]), (&json!("COMPLETE"), &json!(1)));
    let reasons: Vec<_> = job.outbound.unwrap().ignored.into_iter().map(|ignored| ignored.reason).collect();
    for part in ["`FAILED` came after", "`COMPLETE` came after the job had ended: it is COMPLETE", "got `DONE`"] {
        assert_eq!(reasons.iter().filter(|reason| reason.contains(part)).count(), 1, "{part}: {reasons:?}");
    }
    assert_eq!(reasons.len(), 3, "the same once more is nothing: {reasons:?}");
    office.books_are_closed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_answer_is_recorded_and_a_corrected_one_counts() {
    let Some(office) = Office::open().await else { return };
    let (clerks, taken) = office.ordered("t1", json!({})).await;
    office.say(&taken, json!({"status": "COMPLETE", "outptu": 1})).await;
    let noted = |job: &trellis::domain::job::Job| !job.outbound.as_ref().unwrap().ignored.is_empty();
    let job = office.becomes(&taken.job, "noted", noted).await;
    assert_eq!(job.status, JobStatus::Pending);
    assert!(job.outbound.unwrap().ignored[0].reason.contains("expected `output`"));
    office.say(&taken, json!({"status": "COMPLETE", "output": null})).await;
    office.venue.ended(&clerks).await;
    assert_eq!(office.job(&taken.job).await.status, JobStatus::Complete);
}

/// Waits until this job's id is on the control subject of its owner.
async fn told_to_stop(signals: &mut (impl StreamExt<Item = bytes::Bytes> + Unpin), job: &JobId) {
    while timeout(LIMIT, signals.next()).await.unwrap().unwrap() != job.to_string() {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_parent_cancels_the_job_and_tells_its_worker() {
    let Some(office) = Office::open().await else { return };
    let (clerks, taken) = office.ordered("t1", json!({})).await;
    office.say(&taken, json!({"status": "STARTED"})).await;
    office.started(&taken.job).await;
    let venue = &office.venue.venue;
    assert_eq!(taken.body["control"], format!("{}.ctl.local.me", office.prefix));
    let mut signals = venue.bus.listen(&LiveSubject::Control(office.venue.owner.clone())).await.unwrap();
    jobs::cancel(venue, &office.venue.owner, &clerks, None).await.unwrap();
    assert_eq!(office.venue.ended(&taken.job).await.status, JobStatus::Cancelled);
    told_to_stop(&mut signals, &taken.job).await;
    office.say(&taken, json!({"status": "STARTED"})).await;
    told_to_stop(&mut signals, &taken.job).await;
    office.say(&taken, json!({"status": "COMPLETE", "output": "too late"})).await;
    let noted = |job: &trellis::domain::job::Job| !job.outbound.as_ref().unwrap().ignored.is_empty();
    let job = office.becomes(&taken.job, "noted", noted).await;
    assert_eq!(job.status, JobStatus::Cancelled);
    assert!(job.outbound.unwrap().ignored[0].reason.contains("it is CANCELLED"));
    office.books_are_closed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unusable_answer_is_kept_and_its_worker_told() {
    let Some(office) = Office::open().await else { return };
    let (_, taken) = office.ordered("t1", json!({})).await;
    let venue = &office.venue.venue;
    let broken =
        DocWrite { key: keys::job_head(&taken.job), expect: Expect::Any, change: DocEffect::Put("no job".into()) };
    venue.store.write(venue.now(), &office.venue.owner, &[broken]).await.unwrap();
    let proof = taken.body["token"].as_str().unwrap();
    let body = json!({"job": taken.job, "token": proof, "status": "COMPLETE", "output": "lost?"});
    let answer = refused(&office, taken.body["answer"].as_str().unwrap(), body).await;
    assert_eq!(answer["status"], "REJECTED", "{answer}");
    assert!(answer["error"].as_str().unwrap().contains("can't be taken"), "{answer}");
    let mut strays = Vec::new();
    for _ in 0..600 {
        (strays, _) =
            trellis::venue::strays::list(venue, trellis::venue::strays::StrayOwner::One(&office.venue.owner), 10)
                .await
                .unwrap();
        if !strays.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(strays.len(), 1, "{strays:?}");
    assert!(strays[0].subject.ends_with(".result") && strays[0].reason.contains(taken.job.as_str()), "{strays:?}");
    assert!(strays[0].body.contains("lost?") && !strays[0].body.contains(proof), "{strays:?}");
}
