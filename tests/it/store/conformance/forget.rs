//! What an owner no longer keeps: documents, dedupe records, sessions that rest.

use super::*;
use trellis::store::{ForgetOutcome, ForgetRequest, Intake, RestingSession, SessionSnapshot, SetSessionOutcome};

fn resting(name: &str, arrivals: u64) -> RestingSession {
    RestingSession { session: session(name), arrivals }
}

fn sessions(sessions: &[RestingSession]) -> ForgetRequest {
    ForgetRequest { sessions: sessions.to_vec(), ..ForgetRequest::default() }
}

impl World {
    async fn forget(&self, now: Millis, forget: &ForgetRequest) -> ForgetOutcome {
        self.store.forget(now, &self.owner, forget).await.unwrap()
    }

    async fn known(&self) -> Vec<SessionKey> {
        let all = self.store.sessions(&self.owner, None, None, 100).await.unwrap();
        all.into_iter().map(|facts| facts.key).collect()
    }
}

pub async fn a_forgotten_event_is_new_again(world: World) {
    world.agent().await;
    let grant = world.run(T0, task("t1")).await;
    world.done(T0, &grant).await;
    assert_eq!(world.append(at(1), "main", task("t1")).await.intake, Intake::Duplicate);
    let head = keys::job_head(&job("t1"));
    let documents = vec![head.clone(), keys::job_status(&job("t1")), "w/never/written".to_owned()];
    let forget = ForgetRequest { documents, events: vec![EventId::new("t1").unwrap()], ..ForgetRequest::default() };
    assert_eq!(world.forget(at(2), &forget).await, ForgetOutcome::Done);
    assert_eq!(world.forget(at(2), &forget).await, ForgetOutcome::Done);
    assert_eq!((world.text(&head).await, world.status("t1").await), (None, None));
    assert_eq!(world.append(at(3), "main", task("t1")).await.intake, Intake::New);
    assert_eq!(world.status("t1").await, Some(JobStatus::Pending));
    assert_eq!(world.mailbox("main").await.len(), 1);
}

pub async fn a_session_that_rests_is_forgotten_and_begins_anew(world: World) {
    world.agent().await;
    let old = world.run(T0, message("m1")).await;
    world.done(at(5), &old).await;
    assert_eq!(world.facts("main").await.touched, at(5));
    let document = put("g/clerk/turn/main/1", "x");
    world.write(T0, std::slice::from_ref(&document)).await;
    let forget = ForgetRequest { documents: vec![document.key.clone()], ..sessions(&[resting("main", 1)]) };
    assert_eq!(world.forget(at(6), &forget).await, ForgetOutcome::Done);
    assert_eq!((world.known().await, world.text(&document.key).await), (Vec::new(), None));
    assert_eq!(world.forget(at(6), &forget).await, ForgetOutcome::Done, "again");
    world.nothing_is_due(at(100_000)).await;
    let new = world.run(at(7), message("m2")).await;
    assert_eq!((new.version, new.state.clone(), new.mailbox.len(), new.arrivals), (0, None, 1, 1));
    assert!(new.lease.epoch > old.lease.epoch, "no holder of before is its holder");
    assert_eq!(world.commit(at(8), &old, &turn(&old)).await, CommitOutcome::Fenced);
    world.done(at(8), &new).await;
}

pub async fn a_session_that_got_something_meanwhile_keeps_all(world: World) {
    world.agent().await;
    let grant = world.run(T0, message("m1")).await;
    world.done(T0, &grant).await;
    let grant = granted(world.admit(T0, "other", message("m2")).await);
    world.done(T0, &grant).await;
    let document = put("g/clerk/turn/main/1", "x");
    world.write(T0, std::slice::from_ref(&document)).await;
    let events = vec![EventId::new("m1").unwrap()];
    let rest = sessions(&[resting("other", 1), resting("main", 1)]);
    let forget = ForgetRequest { documents: vec![document.key.clone()], events, ..rest };
    world.append(at(1), "main", message("m3")).await;
    assert_eq!(world.forget(at(2), &forget).await, ForgetOutcome::Changed(session("main")), "mail");
    let grant = match world.wake(at(3), "main").await {
        LeaseOutcome::Run(grant) => *grant,
        other => panic!("expected a grant, got {other:?}"),
    };
    assert_eq!(world.forget(at(4), &forget).await, ForgetOutcome::Changed(session("main")), "a lease");
    world.done(at(5), &grant).await;
    assert_eq!(world.forget(at(6), &forget).await, ForgetOutcome::Changed(session("main")), "it had mail");
    assert_eq!(world.known().await, [session("main"), session("other")]);
    assert_eq!(world.text(&document.key).await.as_deref(), Some("x"));
    assert_eq!(world.append(at(7), "main", message("m1")).await.intake, Intake::Duplicate);
}

pub async fn a_session_that_is_due_or_waits_is_not_forgotten(world: World) {
    world.gate("ACTIVE 1 100 queue").await;
    let grant = granted(world.admit(T0, "parked", message("m1")).await);
    let parked = Commit {
        after_commit: LeaseUse::Release { arrivals: grant.arrivals, due: Some(at(60_000)), backoff: false },
        ..turn(&grant)
    };
    world.commit(T0, &grant, &parked).await;
    let running = granted(world.admit(at(1), "running", message("m2")).await);
    assert_eq!(world.admit(at(1), "waiting", message("m3")).await.lease, LeaseOutcome::Waiting);
    for name in ["parked", "running", "waiting"] {
        let forget = sessions(&[resting(name, 1)]);
        assert_eq!(world.forget(at(2), &forget).await, ForgetOutcome::Changed(session(name)));
    }
    assert_eq!(world.due("parked").await, Some(at(60_000)));
    world.done(at(3), &running).await;
    assert_eq!(world.take_wakes().await, ["waiting"]);
    assert_eq!(world.known().await.len(), 3);
}

pub async fn a_set_session_without_mail_is_forgotten_like_any_other(world: World) {
    world.agent().await;
    let snapshot = SessionSnapshot { version: 7, state: Bytes::from_static(b"state"), quota: None };
    assert_eq!(
        world.store.set_session(at(4), &world.owner, &session("branch"), Some(&snapshot), &[]).await.unwrap(),
        SetSessionOutcome::Done
    );
    let facts = world.facts("branch").await;
    assert_eq!((facts.touched, facts.arrivals), (at(4), 0));
    assert_eq!(world.forget(at(5), &sessions(&[resting("branch", 0)])).await, ForgetOutcome::Done);
    assert_eq!(world.known().await, []);
    let new = granted(world.admit(at(6), "branch", message("m")).await);
    assert_eq!((new.version, new.state), (0, None));
}
