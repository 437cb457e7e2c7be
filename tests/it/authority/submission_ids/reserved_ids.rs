//! Producers who take the ids that the venue makes, as they were and as they are, before it does.

use super::{On, Site, Way, everywhere, until};
use crate::support::operate::{boss, operate};
use serde_json::{Value, json};
use trellis::domain::approval::ApprovalVerdict;
use trellis::domain::event::Submission;
use trellis::domain::ids::{EventId, JobId, SessionKey, VenueIdSubject, sha256_hex};
use trellis::domain::job::JobStatus;
use trellis::domain::message::InboundKind;
use trellis::domain::seal::{self, SubmissionAddress};
use trellis::domain::timer::{TimerId, TimerPhase};
use trellis::venue::approvals;
use trellis::venue::jobs;
use trellis::venue::timers;

const RULES: &str = r#"
[[rule]]
when = { agent = "boss", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "clerk", input = "count", wait = 20000 } }] }

[[rule]]
when = { agent = "payer", turn = 1 }
then = { calls = [{ tool = "pay", arguments = { path = "w/paid", value = 100 } }] }

[[rule]]
when = { agent = "clerk" }
then = { text = "seven" }

[[rule]]
when = { agent = "mole" }
then = { text = "a million" }

[[rule]]
then = { text = "told: {{tool_result}}" }
"#;

everywhere! {
    nobody_elses_output_is_passed_off_as_a_childs_result
    no_message_makes_a_parent_wait_for_ever
    no_submission_kills_a_timer
    no_submission_keeps_an_answer_from_its_session
}

/// With a worker, and agents.
async fn site(on: On) -> Option<Site> {
    let site = Site::open(on, RULES).await?;
    for agent in ["boss", "clerk", "mole"] {
        site.venue.agent(agent, json!({})).await;
    }
    let pay = json!([{"operation": "v/ops/lattice/append", "name": "pay", "approval": "ask"}]);
    site.venue.agent("payer", json!({"tools": pay})).await;
    site.venue.worker();
    Some(site)
}

/// The ids of the first call of the boss's first turn in session `s1`: as anybody could compute it once,
/// and as it is where that turn begins now.
fn of_call(site: &Site) -> (String, String) {
    let guess = format!("call-{}", &sha256_hex(b"local/me/boss/s1/1/0")[..32]);
    let session = SessionKey { agent: "boss".parse().unwrap(), session: "s1".parse().unwrap() };
    let (owner, start) = (&site.venue.owner, Some(site.venue.venue.now()));
    let place = VenueIdSubject::Call { owner, session: &session, turn: 1, call: 0, instance: None, start };
    (guess, EventId::of_venue(&site.venue.venue.key, place).to_string())
}

/// Somebody submits to the mole under the first id, and can't under the second.
async fn take(site: &Site, kind: &str, (guess, real): &(String, String)) {
    site.send(kind, "mole", guess, &json!({"input": "say so"})).await.unwrap();
    site.until_asked("mole").await;
    site.refused(kind, "mole", real, "made by the venue alone").await;
}

async fn boss_is_told_seven(site: &Site) {
    let session_id = Some("s1".parse().unwrap());
    let submission = Submission { input: json!("go"), session_id, ..Submission::default() };
    let job = site.venue.arrive("boss", "t1", true, submission).await.job.unwrap();
    let job = site.venue.ended(&job).await;
    let said = job.result.unwrap().output.unwrap_or_default().to_string();
    assert_eq!(job.status, JobStatus::Complete, "{said}");
    assert!(said.contains("seven") && !said.contains("million"), "{said}");
}

async fn nobody_elses_output_is_passed_off_as_a_childs_result(on: On) {
    let Some(site) = site(on).await else { return };
    take(&site, "task", &of_call(&site)).await;
    boss_is_told_seven(&site).await;
}

async fn no_message_makes_a_parent_wait_for_ever(on: On) {
    let Some(site) = site(on).await else { return };
    take(&site, "message", &of_call(&site)).await;
    boss_is_told_seven(&site).await;
}

async fn no_submission_kills_a_timer(on: On) {
    let Some(site) = site(on).await else { return };
    let (venue, owner) = (&site.venue.venue, &site.venue.owner);
    let input = json!({"agentId": "clerk", "input": "tick", "every": "4s"});
    let set = operate(venue, &boss(owner), "v/ops/agent/trigger", input).await.unwrap();
    let id = TimerId::new(set["timer"].as_str().unwrap()).unwrap();
    let timer = async || timers::get(venue, owner, &id).await.unwrap().0.unwrap();
    let (first, fired) = (timer().await, timer().await.fired);
    let at = first.next.unwrap();
    let guess = format!("timer-{id}-{}-{at}", first.generation);
    take(&site, "task", &(guess, first.event_id(&venue.key, owner, at).to_string())).await;
    until("it fires", async || timer().await.fired > fired).await;
    assert_eq!(timer().await.phase, TimerPhase::Active);
    site.until_asked("clerk").await;
}

async fn no_submission_keeps_an_answer_from_its_session(on: On) {
    let Some(site) = site(on).await else { return };
    let (venue, owner) = (&site.venue.venue, &site.venue.owner);
    let job = site.venue.submit("payer", "t1", json!("go")).await.job.unwrap();
    let waiting = async || approvals::list(venue, owner, false, 0, 100).await.unwrap().items;
    until("it asks", async || waiting().await.len() == 1).await;
    let approval = waiting().await.remove(0);
    let real = EventId::of_venue(&venue.key, VenueIdSubject::Answer(&approval.id)).to_string();
    take(&site, "message", &(format!("answer-{}", approval.id), real)).await;
    let approved = ApprovalVerdict::Approved { scopes: None, arguments: None };
    approvals::decide(venue, &boss(owner), &approval.id, approved, None).await.unwrap();
    assert_eq!(site.venue.ended(&job).await.status, JobStatus::Complete);
    assert_eq!(site.venue.read("w/paid").await, Some(json!([100])));
}

#[tokio::test(flavor = "multi_thread")]
async fn in_the_queue_an_id_of_the_venue_counts_under_its_seal_alone() {
    let Some(site) = site(On::Nats).await else { return };
    let (venue, owner) = (&site.venue.venue, &site.venue.owner);
    let id = EventId::from_stored(of_call(&site).1).unwrap();
    let another = EventId::of_venue(&venue.key, VenueIdSubject::Redrive(&JobId::new(&"0f".repeat(16)).unwrap()));
    let sealed = |inbox: &str| {
        let submission = Submission { input: json!("x"), reply_to: Some(inbox.into()), ..Submission::default() };
        let to = SubmissionAddress { owner, agent: &"clerk".parse().unwrap(), kind: InboundKind::Task };
        json!(seal::seal_submission(&venue.key, to, &id, submission))
    };
    let changed = |inbox: &str| {
        let mut body = sealed(inbox);
        body["input"] = json!("y");
        body
    };
    site.refuses("task", "clerk", another.as_str(), sealed, "`seal`").await;
    site.refuses("task", "clerk", "mine", sealed, "`seal`").await;
    site.refuses("task", "mole", id.as_str(), sealed, "`seal`").await;
    site.refuses("message", "clerk", id.as_str(), sealed, "`seal`").await;
    site.refuses("task", "clerk", id.as_str(), changed, "`seal`").await;
    site.send("task", "clerk", id.as_str(), &sealed("_INBOX.x")).await.unwrap();
    let job = JobId::derive(&venue.key, owner, &id);
    until("it is taken", async || jobs::get(venue, owner, &job).await.unwrap().is_some()).await;
    assert_eq!(site.venue.ended(&job).await.status, JobStatus::Complete);
}

/// A stream drops a second message with an id that it knows: nobody knows those of the venue before.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_suppresses_a_completion() {
    let Some(site) = site(On::Nats).await else { return };
    let Way::Queue { context, prefix } = &site.way else { unreachable!() };
    let job = JobId::derive(&site.venue.venue.key, &site.venue.owner, &"t1".parse().unwrap());
    let subject = format!("{prefix}.out.local.me.clerk.{job}");
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("Nats-Msg-Id", format!("done-{job}"));
    context.publish_with_headers(subject.clone(), headers, "{}".into()).await.unwrap().await.unwrap();
    assert_eq!(site.venue.run("clerk", "t1", json!("count")).await.status, JobStatus::Complete);
    let out = context.get_stream(format!("{}_OUT", prefix.to_uppercase())).await.unwrap();
    until("it is told", async || {
        let last = out.get_last_raw_message_by_subject(&subject).await.unwrap();
        String::from_utf8_lossy(&last.payload).contains("COMPLETE")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_in_the_venues_form_are_refused_from_producers() {
    let Some(site) = site(On::Embedded).await else { return };
    let Way::Http(server) = &site.way else { unreachable!() };
    let request = json!({"operation": "v/ops/agent/request", "input": {"agentId": "clerk", "input": 1}});
    let trigger = json!({"operation": "v/ops/agent/trigger", "input": {"agentId": "clerk", "after": "1h"}});
    for (path, body) in [
        ("agents/clerk/tasks", json!({"input": 1})),
        ("agents/clerk/messages", json!({"input": 1})),
        ("run", request.clone()),
        ("invoke", request),
        ("run", trigger),
    ] {
        let answer = server.post_once("venue:call-0", &format!("/api/v1/{path}"), body).await;
        answer.is_problem(400, "ids that begin with `venue:` are made by the venue alone, choose another");
    }
    assert_eq!(server.get("/api/v1/jobs").await.body(200)["total"], Value::from(0));
    assert_eq!(server.run("v/ops/timer/list", json!({})).await["total"], Value::from(0));
}
