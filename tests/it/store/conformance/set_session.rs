//! Sessions that are set to a turn, and forgotten.

use super::*;
use trellis::store::{Intake, Refusal, SessionSnapshot, SetSessionOutcome};

fn snapshot(version: u64) -> SessionSnapshot {
    SessionSnapshot { version, state: Bytes::from(format!("state {version}")), quota: None }
}

impl World {
    async fn set(&self, now: Millis, name: &str, snapshot: Option<&SessionSnapshot>) -> SetSessionOutcome {
        self.store.set_session(now, &self.owner, &session(name), snapshot, &[]).await.unwrap()
    }
}

/// A process that was held up on its way finds that the deletion in whose name it forgets sessions has been ended.
pub async fn no_session_is_forgotten_or_set_under_a_check_that_fails(world: World) {
    world.agent().await;
    let mark = || DocWrite::put("mark", "1");
    let set_under = async |now, name: &str, snapshot: Option<&SessionSnapshot>, check: DocWrite| {
        world.store.set_session(now, &world.owner, &session(name), snapshot, &[check]).await.unwrap()
    };
    world.store.write(T0, &world.owner, &[mark()]).await.unwrap();
    let seen = DocWrite::check("mark", world.store.doc(&world.owner, "mark").await.unwrap().version);
    let grant = world.run(T0, message("m1")).await;
    let lapsed = Millis(grant.until.0 + 1);
    assert_eq!(set_under(at(1), "main", None, seen.clone()).await, SetSessionOutcome::Held(grant.until));
    assert_eq!(set_under(lapsed, "other", Some(&snapshot(1)), seen.clone()).await, SetSessionOutcome::Done);
    // The same name stands for another deletion, or for none, since.
    for change in [mark(), DocWrite::delete("mark")] {
        world.store.write(lapsed, &world.owner, &[change]).await.unwrap();
        assert_eq!(set_under(lapsed, "main", None, seen.clone()).await, SetSessionOutcome::Changed);
        assert_eq!(set_under(lapsed, "new", Some(&snapshot(1)), seen.clone()).await, SetSessionOutcome::Changed);
        assert_eq!(set_under(lapsed, "never", None, seen.clone()).await, SetSessionOutcome::Done, "it isn't there");
    }
    assert_eq!(world.mailbox("main").await.len(), 1, "what was accepted is there");
    let gone = DocWrite::check("mark", world.store.doc(&world.owner, "mark").await.unwrap().version);
    assert_eq!(set_under(lapsed, "main", None, gone.clone()).await, SetSessionOutcome::Done);
    assert_eq!(
        set_under(lapsed, "main", None, seen).await,
        SetSessionOutcome::Done,
        "a repetition whose first answer was lost"
    );
    let left: Vec<_> = world.store.sessions(&world.owner, None, None, 100).await.unwrap();
    assert_eq!(left.into_iter().map(|facts| facts.key).collect::<Vec<_>>(), [session("other")]);
}

pub async fn a_new_session_goes_on_behind_its_snapshot(world: World) {
    world.agent().await;
    assert_eq!(world.set(T0, "branch", Some(&snapshot(7))).await, SetSessionOutcome::Done);
    let facts = world.facts("branch").await;
    assert_eq!((facts.version, facts.arrivals, facts.due, facts.mailbox.len()), (7, 0, None, 0));
    assert_eq!(facts.state, Some(Bytes::from("state 7")));
    assert_eq!(world.wake(T0, "branch").await, LeaseOutcome::Empty);
    let grant = granted(world.admit(T0, "branch", task("t")).await);
    assert_eq!((grant.version, grant.state.clone()), (7, Some(Bytes::from("state 7"))));
    world.done(T0, &grant).await;
    assert_eq!(world.facts("branch").await.version, 8);
}

pub async fn a_set_session_makes_its_owner_known(world: World) {
    assert_eq!(world.set(T0, "branch", None).await, SetSessionOutcome::Done);
    assert!(!world.store.owners(None, 10_000).await.unwrap().contains(&world.owner));
    assert_eq!(world.set(T0, "branch", Some(&snapshot(1))).await, SetSessionOutcome::Done);
    assert!(world.store.owners(None, 10_000).await.unwrap().contains(&world.owner));
}

pub async fn a_session_set_twice_is_set_once_and_none_is_replaced(world: World) {
    world.agent().await;
    assert_eq!(world.set(T0, "branch", Some(&snapshot(7))).await, SetSessionOutcome::Done);
    assert_eq!(world.set(at(1), "branch", Some(&snapshot(7))).await, SetSessionOutcome::Done);
    assert_eq!(world.set(at(1), "branch", Some(&snapshot(8))).await, SetSessionOutcome::Taken);
    world.append(T0, "main", message("m")).await;
    assert_eq!(world.set(T0, "main", Some(&snapshot(1))).await, SetSessionOutcome::Taken);
    assert_eq!(world.mailbox("main").await.len(), 1);
}

pub async fn a_held_session_is_neither_set_nor_forgotten(world: World) {
    world.agent().await;
    let grant = world.run(T0, message("m")).await;
    for wanted in [None, Some(&snapshot(3))] {
        assert_eq!(world.set(at(1), "main", wanted).await, SetSessionOutcome::Held(grant.until));
    }
    world.done(at(2), &grant).await;
    assert_eq!(world.facts("main").await.version, 1);
}

pub async fn a_forgotten_session_is_gone_and_begins_again(world: World) {
    world.agent().await;
    let grant = world.run(T0, task("t1")).await;
    world.done(T0, &grant).await;
    world.append(at(1), "main", task("t2")).await;
    world.append(at(1), "other", message("m")).await;
    assert_eq!(world.set(at(2), "main", None).await, SetSessionOutcome::Done);
    assert_eq!(world.set(at(2), "main", None).await, SetSessionOutcome::Done);
    let left: Vec<_> = world.store.sessions(&world.owner, None, None, 100).await.unwrap();
    assert_eq!(left.into_iter().map(|facts| facts.key).collect::<Vec<_>>(), [session("other")]);
    let due: Vec<_> = world.store.sweep(at(60_000), &world.owner, GRACE, 100).await.unwrap().due;
    assert_eq!(due, [session("other")]);
    assert_eq!(world.wake(at(60_000), "main").await, LeaseOutcome::Empty);
    let again = granted(world.admit(at(60_001), "main", task("t3")).await);
    assert_eq!((again.version, again.state, again.mailbox.len()), (0, None, 1));
    let facts = world.facts("main").await;
    assert_eq!((facts.arrivals, facts.consumed), (1, 0));
}

pub async fn no_holder_of_before_comes_back_after_a_session_was_forgotten(world: World) {
    world.agent().await;
    let old = world.run(T0, message("m1")).await;
    let lapsed = Millis(old.until.0 + 1);
    assert_eq!(world.set(lapsed, "main", None).await, SetSessionOutcome::Done);
    assert_eq!(world.commit(lapsed, &old, &turn(&old)).await, CommitOutcome::Fenced);
    let new = granted(world.admit(lapsed, "main", message("m2")).await);
    assert!(new.lease.epoch > old.lease.epoch);
    assert_eq!(world.commit(lapsed, &old, &turn(&old)).await, CommitOutcome::Fenced);
    world.done(lapsed, &new).await;
}

pub async fn a_forgotten_session_holds_no_slot_and_waits_for_none(world: World) {
    world.gate("ACTIVE 1 100 queue").await;
    let old = granted(world.admit(T0, "a", message("m1")).await);
    assert_eq!(world.admit(T0, "b", message("m2")).await.lease, LeaseOutcome::Waiting);
    let lapsed = Millis(old.until.0 + 1);
    assert_eq!(world.set(lapsed, "b", None).await, SetSessionOutcome::Done);
    assert_eq!(world.set(lapsed, "a", None).await, SetSessionOutcome::Done);
    granted(world.admit(lapsed, "c", message("m3")).await);
    assert_eq!(world.admit(lapsed, "d", message("m4")).await.lease, LeaseOutcome::Waiting);
}

pub async fn an_agent_with_policy_replace_takes_tasks_like_queue(world: World) {
    world.gate("ACTIVE 8 2 replace").await;
    for id in ["t1", "t2"] {
        world.append(T0, "main", task(id)).await;
    }
    let full = world.append(T0, "main", task("t3")).await.intake;
    assert_eq!(full, Intake::Refused(Refusal::MailboxFull { limit: 2 }));
}

pub async fn a_task_that_asks_for_its_policy_is_taken_unless_replace(world: World) {
    let asking = |id: &str| NewEvent { may_replace: true, ..task(id) };
    world.gate("ACTIVE 8 100 queue").await;
    assert_eq!(world.append(T0, "main", asking("t1")).await.intake, Intake::New);
    world.gate("ACTIVE 8 100 replace").await;
    // What was taken before is known, and a message takes nobody's place.
    assert_eq!(world.append(T0, "main", asking("t1")).await.intake, Intake::Duplicate);
    let said = NewEvent { may_replace: true, ..message("m1") };
    assert_eq!(world.append(T0, "main", said).await.intake, Intake::New);
    let asked = world.admit(T0, "main", asking("t2")).await;
    assert_eq!((asked.intake, asked.lease), (Intake::ReplaceRunning, LeaseOutcome::NotAsked));
    assert_eq!(world.facts("main").await.mailbox.len(), 2, "nothing is remembered of it");
    assert_eq!(world.append(T0, "main", task("t2")).await.intake, Intake::New);
}
