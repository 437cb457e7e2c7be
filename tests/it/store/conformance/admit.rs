//! Stage 2: dedupe, refusals, append.

use super::*;
use trellis::store::{Intake, Refusal};

pub async fn an_event_is_appended_once(w: World) {
    w.agent().await;
    assert_eq!(w.append(T0, "main", message("e1")).await.intake, Intake::New);
    assert_eq!(w.append(at(1), "main", message("e1")).await.intake, Intake::Duplicate);
    let facts = w.facts("main").await;
    assert_eq!((facts.arrivals, facts.consumed, facts.mailbox.len()), (1, 0, 1));
    let got = &facts.mailbox[0];
    assert_eq!((&*got.key, got.kind), ("0001|e1", EventKind::Message));
    let mail = w.store.pending_events(&w.owner, &session("main")).await.unwrap();
    assert_eq!((mail.len(), &*mail[0].key, &mail[0].body[..]), (1, "0001|e1", &b"body of e1"[..]));
    // Also when it was consumed long ago.
    let grant = granted(w.admit(at(2), "main", message("e2")).await);
    w.done(at(3), &grant).await;
    assert_eq!(w.append(at(4), "main", message("e1")).await.intake, Intake::Duplicate);
    assert!(w.mailbox("main").await.is_empty());
    // Also when it comes for another session.
    assert_eq!(w.append(at(5), "other", message("e1")).await.intake, Intake::Duplicate);
}

pub async fn a_duplicate_still_tries_the_lease(w: World) {
    w.agent().await;
    w.append(T0, "main", message("e1")).await;
    let admitted = w.admit(at(1), "main", message("e1")).await;
    assert_eq!(admitted.intake, Intake::Duplicate);
    assert_eq!(granted(admitted).mailbox.len(), 1);
}

pub async fn another_body_is_a_conflict(w: World) {
    w.agent().await;
    w.append(T0, "main", task("e1")).await;
    let other = NewEvent { body_hash: sha256_hex(b"other"), body: Bytes::from_static(b"other"), ..task("e1") };
    let admitted = w.admit(at(1), "main", other).await;
    assert_eq!((admitted.intake, admitted.lease), (Intake::Conflict, LeaseOutcome::NotAsked));
    let mail = w.store.pending_events(&w.owner, &session("main")).await.unwrap();
    assert_eq!(&mail[0].body[..], b"body of e1");
    assert_eq!(w.status("e1").await, Some(JobStatus::Pending));
}

pub async fn an_unknown_agent_refuses_and_remembers_nothing(w: World) {
    let refused = w.admit(T0, "main", task("e1")).await;
    assert_eq!(refused.intake, Intake::Refused(Refusal::UnknownAgent));
    assert_eq!(refused.lease, LeaseOutcome::NotAsked);
    assert!(w.store.owners(None, 10).await.unwrap().is_empty());
    assert_eq!(w.status("e1").await, None);
    w.agent().await;
    assert_eq!(w.append(at(1), "main", task("e1")).await.intake, Intake::New);
}

pub async fn a_terminated_agent_refuses(w: World) {
    w.gate("TERMINATED 8 100 queue").await;
    for event in [task("e1"), message("e2"), event(EventKind::Result, "e3")] {
        let refused = w.admit(T0, "main", event).await;
        assert_eq!(refused.intake, Intake::Refused(Refusal::Terminated));
        assert_eq!(refused.lease, LeaseOutcome::NotAsked);
    }
}

pub async fn a_duplicate_is_recognised_before_the_agent_is_checked(w: World) {
    w.agent().await;
    w.append(T0, "main", message("e1")).await;
    w.gate("TERMINATED 8 100 queue").await;
    let admitted = w.append(at(1), "main", message("e1")).await;
    assert_eq!(admitted.intake, Intake::Duplicate);
}

pub async fn a_full_mailbox_refuses_tasks_and_messages_but_not_results(w: World) {
    w.gate("ACTIVE 8 2 queue").await;
    w.append(T0, "main", message("e1")).await;
    w.append(T0, "main", message("e2")).await;
    for event in [task("e3"), message("e4")] {
        let refused = w.append(at(1), "main", event).await;
        assert_eq!(refused.intake, Intake::Refused(Refusal::MailboxFull { limit: 2 }));
    }
    assert_eq!(w.append(at(1), "main", event(EventKind::Result, "e5")).await.intake, Intake::New);
    assert_eq!(w.append(at(1), "other", message("e6")).await.intake, Intake::New, "the limit is per session");
    // A refused event may come again.
    let grant = granted(w.admit_with(at(2), "main", None, Some(ask())).await);
    w.done(at(3), &grant).await;
    assert_eq!(w.append(at(4), "main", task("e3")).await.intake, Intake::New);
}

pub async fn a_busy_agent_that_rejects_takes_messages_only(w: World) {
    w.gate("ACTIVE 8 100 reject").await;
    assert_eq!(w.append(T0, "main", message("e0")).await.intake, Intake::New);
    assert_eq!(w.append(T0, "main", task("e1")).await.intake, Intake::New);
    assert_eq!(w.append(at(1), "main", task("e2")).await.intake, Intake::Refused(Refusal::Busy));
    assert_eq!(w.append(at(1), "main", message("e3")).await.intake, Intake::New);
    assert_eq!(w.append(at(1), "main", event(EventKind::Result, "e4")).await.intake, Intake::New);
    assert_eq!(w.append(at(1), "other", task("e5")).await.intake, Intake::New);
    // A task that ended no longer makes it busy, even when its holder hasn't dropped it yet.
    let _grant = granted(w.admit_with(at(2), "main", None, Some(ask())).await);
    let end = ends("e1", JobStatus::Cancelled);
    w.store.finish(at(3), &w.owner, &session("main"), &end, None, &[]).await.unwrap();
    assert_eq!(w.append(at(4), "main", task("e2")).await.intake, Intake::New);
}

pub async fn a_task_opens_its_job_once(w: World) {
    w.agent().await;
    w.append(T0, "main", task("e1")).await;
    assert_eq!(w.text(&keys::job_head(&job("e1"))).await.as_deref(), Some("head of e1"));
    let status = w.text(&keys::job_status(&job("e1"))).await.unwrap();
    assert_eq!(status, keys::encode_status(JobStatus::Pending, T0));
    assert_eq!(w.text(&keys::job_list_entry(T0, &job("e1"))).await.as_deref(), Some(""));
    let entry = &w.facts("main").await.mailbox[0];
    assert_eq!((&entry.job, entry.job_status), (&Some(job("e1")), Some(JobStatus::Pending)));
    w.append(at(7), "main", task("e1")).await;
    let listed = w.store.scan(&w.owner, keys::JOB_LIST, None, false, 10).await.unwrap();
    assert_eq!(listed.len(), 1);
}

pub async fn a_job_is_listed_with_the_children_of_the_job_that_started_it(w: World) {
    w.agent().await;
    let open = NewJob { parent: Some(job("p")), ..new_job("c1") };
    w.append(T0, "main", NewEvent { open: Some(open), ..task("c1") }).await;
    let grant = w.run(at(1), message("e0")).await;
    let open = vec![NewJob { parent: Some(job("p")), ..new_job("c2") }, new_job("j")];
    let write = trellis::store::Checkpoint { turn: 1, open, ..Default::default() };
    for _ in 0..2 {
        w.store.checkpoint(at(2), &grant.lease, &write).await.unwrap();
    }
    let children = w.store.scan(&w.owner, &keys::job_children(&job("p")), None, false, 10).await.unwrap();
    let mut expected = vec![keys::job_child(&job("p"), &job("c1")), keys::job_child(&job("p"), &job("c2"))];
    expected.sort();
    assert_eq!(children.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), expected);
}

pub async fn an_existing_status_survives_the_task(w: World) {
    w.agent().await;
    let end = ends("e1", JobStatus::Cancelled);
    w.store.finish(T0, &w.owner, &session("main"), &end, Some(&new_job("e1")), &[]).await.unwrap();
    let late = NewEvent { open: Some(NewJob { head: "another head".into(), ..new_job("e1") }), ..task("e1") };
    let grant = w.run(at(1), late).await;
    assert_eq!(w.status("e1").await, Some(JobStatus::Cancelled));
    assert_eq!(grant.mailbox[0].job_status, Some(JobStatus::Cancelled));
    assert_eq!(w.text(&keys::job_head(&job("e1"))).await.as_deref(), Some("head of e1"));
}

pub async fn the_first_result_of_a_job_wins(w: World) {
    w.agent().await;
    let grant = w.run(T0, message("e0")).await;
    let open = Commit { writes: vec![], ..last_turn(&grant) };
    w.store
        .checkpoint(
            T0,
            &grant.lease,
            &trellis::store::Checkpoint { turn: 1, open: vec![new_job("j")], ..Default::default() },
        )
        .await
        .unwrap();
    w.commit(T0, &grant, &open).await;
    let result = |id: &str, status| NewEvent {
        job: Some(job("j")),
        finish: Some(ends("j", status)),
        ..event(EventKind::Result, id)
    };
    assert_eq!(w.append(at(1), "main", result("r1", JobStatus::Complete)).await.intake, Intake::New);
    assert_eq!(w.append(at(2), "main", result("r2", JobStatus::Failed)).await.intake, Intake::Duplicate);
    assert_eq!(w.append(at(3), "main", result("r1", JobStatus::Complete)).await.intake, Intake::Duplicate);
    assert_eq!(w.status("j").await, Some(JobStatus::Complete));
    assert_eq!(w.result("j").await.as_deref(), Some("COMPLETE j"));
    assert_eq!(w.mailbox("main").await, ["0001|r1"]);
    assert_eq!(w.facts("main").await.mailbox[0].job_status, Some(JobStatus::Complete));
}

pub async fn admission_writes_its_outbox_once(w: World) {
    w.agent().await;
    let event = NewEvent { outbox: vec![entry("m1"), entry("m2")], ..message("e1") };
    w.append(T0, "main", event.clone()).await;
    assert_eq!(w.outbox().await, ["m1", "m2"]);
    w.store.remove_published(&w.owner, &["m1".to_owned()]).await.unwrap();
    w.append(at(1), "main", event).await;
    assert_eq!(w.outbox().await, ["m2"]);
    let refused = NewEvent { outbox: vec![entry("m3")], ..message("e2") };
    w.append(at(1), "nobody/main", refused).await;
    assert_eq!(w.outbox().await, ["m2"]);
}

pub async fn a_mailbox_is_sorted_by_order_then_id(w: World) {
    w.agent().await;
    for (order, id) in [("2", "a"), ("1", "z"), ("10", "c"), ("1-0", "m"), ("1", "b"), ("0", "é|x")] {
        w.append(T0, "main", NewEvent { order: order.to_owned(), ..message(id) }).await;
    }
    let expected = ["0|é|x", "1|b", "1|z", "1-0|m", "10|c", "2|a"];
    assert_eq!(w.mailbox("main").await, expected);
    let mut grant = granted(w.admit_with(T0, "main", None, Some(ask())).await);
    assert_eq!(grant.mailbox.iter().map(|e| &*e.key).collect::<Vec<_>>(), expected);
    // Taking some out leaves the rest; an earlier one still comes first.
    grant.mailbox.truncate(3);
    w.commit(at(1), &grant, &turn(&grant)).await;
    w.append(at(2), "main", NewEvent { order: "1".to_owned(), ..message("late") }).await;
    assert_eq!(w.mailbox("main").await, ["1|late", "1-0|m", "10|c", "2|a"]);
}

pub async fn an_event_is_due_within_five_seconds(w: World) {
    w.agent().await;
    w.append(T0, "main", message("e1")).await;
    assert_eq!(w.due("main").await, Some(at(5000)));
    // More events don't put it off.
    w.append(at(4000), "main", message("e2")).await;
    assert_eq!(w.due("main").await, Some(at(5000)));
    let grant = granted(w.admit_with(at(4000), "main", None, Some(ask())).await);
    assert_eq!(w.due("main").await, Some(grant.until));
    // Under a lease, the lease's end is soon enough.
    w.append(at(4001), "main", message("e3")).await;
    assert_eq!(w.due("main").await, Some(grant.until));
}

pub async fn events_of_owners_are_apart(mut w: World) {
    w.agent().await;
    w.append(T0, "main", task("e1")).await;
    w.owner = "acme/bob".parse().unwrap();
    w.agent().await;
    assert_eq!(w.status("e1").await, None);
    assert_eq!(w.append(T0, "main", task("e1")).await.intake, Intake::New);
    assert_eq!(w.facts("main").await.arrivals, 1);
}

pub async fn events_that_arrive_at_once_are_all_kept(w: World) {
    w.agent().await;
    // Each twice, side by side: exactly one of each pair is new, exactly one caller gets the lease.
    let admit = |n: u64| {
        let event = NewEvent { order: format!("{:04}", n / 2), ..message(&format!("e{}", n / 2)) };
        w.admit(T0, "main", event)
    };
    let answers = futures::future::join_all((0..100).map(admit)).await;
    let new = answers.iter().filter(|a| a.intake == Intake::New).count();
    let runs = answers.iter().filter(|a| matches!(a.lease, LeaseOutcome::Run(_))).count();
    assert_eq!((new, runs), (50, 1));
    let facts = w.facts("main").await;
    assert_eq!((facts.arrivals, facts.mailbox.len()), (50, 50));
}

pub async fn a_lease_hands_out_a_bounded_weight(w: World) {
    w.agent().await;
    for n in 1..=5 {
        let heavy = NewEvent { body: vec![b'x'; 400_000].into(), ..message(&format!("e{n}")) };
        assert_eq!(w.append(at(n), "main", heavy).await.intake, Intake::New);
    }
    let keys = |mail: &[trellis::store::MailboxEntry]| mail.iter().map(|entry| entry.key.clone()).collect::<Vec<_>>();
    let seen = keys(&w.store.pending_events(&w.owner, &session("main")).await.unwrap());
    assert_eq!((seen.len(), w.facts("main").await.mailbox.len()), (3, 5));
    let grant = w.run(at(6), message("e6")).await;
    assert_eq!(keys(&grant.mailbox), seen);
    let CommitOutcome::Done(Continuation::Held { mailbox, .. }) = w.commit(at(7), &grant, &turn(&grant)).await else {
        panic!("the lease goes on")
    };
    assert_eq!(keys(&mailbox).len(), 3, "two heavy ones and the light one");
}
