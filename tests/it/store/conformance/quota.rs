//! What owners keep is counted with every change. After every case of the suite the counts are those of a recount.

use super::*;
use trellis::domain::quota::{OwnLimits, Quota, QuotaCounts, QuotaExceeded, QuotaKind, QuotaUsage};
use trellis::store::{
    ForgetOutcome, ForgetRequest, Intake, Recount, Refusal, RestingSession, SessionSnapshot, SetSessionOutcome,
    StoreError,
};

/// A whole recount: what stood, and what is.
pub async fn recount(store: &dyn Store, owner: &Owner, mend: bool) -> (QuotaUsage, QuotaUsage) {
    loop {
        if let Recount::Done { stored: was, counted: is } = store.recount(owner, mend).await.unwrap() {
            return (was, is);
        }
    }
}

/// Of every owner.
pub async fn all_is_counted(store: &dyn Store) {
    let owners = store.owners(None, 1000).await.unwrap();
    for (owner, kept) in owners.iter().zip(store.usages(&owners).await.unwrap()) {
        let (was, is) = recount(store, owner, false).await;
        assert_eq!(was, is, "what is counted of `{owner}` is what is there");
        assert_eq!((store.usage(owner).await.unwrap().used, kept), (is, is));
    }
}

impl World {
    async fn used(&self) -> QuotaUsage {
        self.store.usage(&self.owner).await.unwrap().used
    }

    async fn delete(&self, key: &str) {
        let write = DocWrite { key: key.to_owned(), expect: Expect::Any, change: DocEffect::Delete };
        assert_eq!(self.write(T0, &[write]).await, WriteOutcome::Done);
    }
}

pub async fn documents_of_an_owner_are_counted(world: World) {
    assert_eq!(world.used().await, QuotaUsage::default());
    world.write(T0, &[put("w/a", "12345")]).await;
    assert_eq!(world.used().await, QuotaCounts { documents: 1, bytes: 8, sessions: 0, jobs: 0 });
    world.write(T0, &[put("w/a", "1"), put("w/b", "")]).await;
    assert_eq!(world.used().await, QuotaCounts { documents: 2, bytes: 7, sessions: 0, jobs: 0 });
    world.delete("w/a").await;
    world.delete("w/a").await;
    world.delete("w/b").await;
    assert_eq!(world.used().await, QuotaUsage::default());

    world.agent().await;
    let before = world.used().await;
    let grant = world.run(T0, task("t1")).await;
    let begun = world.used().await;
    assert_eq!((begun.sessions, begun.jobs, begun.documents), (1, 1, before.documents + 3));
    let commit = Commit { finish: vec![ends("t1", JobStatus::Complete)], ..last_turn(&grant) };
    world.commit(T0, &grant, &commit).await;
    let ended = world.used().await;
    assert_eq!((ended.sessions, ended.jobs, ended.documents), (1, 1, before.documents + 4), "its result");

    let mut documents = keys::job_documents(&job("t1")).to_vec();
    documents.push(keys::job_list_entry(T0, &job("t1")));
    let sessions = vec![RestingSession { session: session("main"), arrivals: 1 }];
    let forget = ForgetRequest { documents, sessions, ..ForgetRequest::default() };
    assert_eq!(world.store.forget(T0, &world.owner, &forget).await.unwrap(), ForgetOutcome::Done);
    assert_eq!(world.used().await, before, "nothing is left of it");

    let snapshot = SessionSnapshot { version: 3, state: Bytes::from_static(b"12345"), quota: None };
    let set =
        async |snapshot| world.store.set_session(T0, &world.owner, &session("fork"), snapshot, &[]).await.unwrap();
    assert_eq!(set(Some(&snapshot)).await, SetSessionOutcome::Done);
    let with = QuotaCounts { sessions: 1, bytes: before.bytes + 5, ..before };
    assert_eq!(world.used().await, with);
    world.append(T0, "fork", message("m1")).await;
    assert!(world.used().await.bytes > with.bytes, "what waits in a mailbox counts");
    assert_eq!(set(None).await, SetSessionOutcome::Done);
    assert_eq!(world.used().await, before);
}

pub async fn a_recount_goes_on_beside_writes_and_mends_what_drifted(world: World) {
    world.agent().await;
    let large = "x".repeat(600_000);
    for n in 0..20 {
        world.write(T0, &[put(&format!("w/{n:02}"), &large)]).await;
        world.append(T0, &format!("s{n:02}"), message(&format!("m{n}"))).await;
    }
    // Each write falls where the recount has been, or where it comes to later.
    let mut steps = 0;
    let (was, is) = loop {
        if let Recount::Done { stored: was, counted: is } = world.store.recount(&world.owner, true).await.unwrap() {
            break (was, is);
        }
        steps += 1;
        world.write(T0, &[put("w/00", &"y".repeat(steps)), put(&format!("w/{steps}5"), "new")]).await;
        world.delete(&format!("w/1{steps}")).await;
        world.append(T0, &format!("s{steps:02}"), message(&format!("later-{steps}"))).await;
    };
    assert_eq!(was, is);
    assert_eq!(world.used().await, is);
}

pub async fn owners_are_counted_apart(world: World) {
    let bob: Owner = "acme/bob".parse().unwrap();
    world.write(T0, &[put("w/a", "1")]).await;
    let ann = world.used().await;
    world.store.write(T0, &bob, &[put("w/a", "12"), put("l/0000000000000001-x", "")]).await.unwrap();
    assert_eq!(world.used().await, ann);
    let used = world.store.usage(&bob).await.unwrap().used;
    assert_eq!((used.documents, used.jobs), (2, 1));
}

impl World {
    async fn within(&self, quota: Quota, writes: &[DocWrite]) -> Result<WriteOutcome, QuotaExceeded> {
        match self.store.write_within(T0, &self.owner, writes, &quota).await {
            Ok(written) => Ok(written),
            Err(StoreError::Over(over)) => Err(over),
            Err(error) => panic!("{error}"),
        }
    }

    async fn appended(&self, to: &str, event: NewEvent, within: Quota) -> Intake {
        self.append(T0, to, NewEvent { quota: Some(within), ..event }).await.intake
    }
}

const NONE: Quota = QuotaCounts { documents: 0, bytes: 0, sessions: 0, jobs: 0 };

fn delete(key: &str) -> DocWrite {
    DocWrite { key: key.to_owned(), expect: Expect::Any, change: DocEffect::Delete }
}

pub async fn writes_that_would_pass_a_quota_are_refused_whole(world: World) {
    let two = Quota { documents: 2, ..NONE };
    assert_eq!(world.within(two, &[put("w/a", "1"), put("w/b", "1")]).await, Ok(WriteOutcome::Done));
    let refused = world.within(two, &[put("w/a", "2"), put("w/c", "1")]).await;
    assert_eq!(refused, Err(QuotaExceeded { kind: QuotaKind::Documents, used: 2, adds: 1, allowed: 2 }));
    assert_eq!((world.text("w/a").await.as_deref(), world.text("w/c").await), (Some("1"), None));
    assert_eq!(world.within(two, &[delete("w/a"), put("w/c", "1")]).await, Ok(WriteOutcome::Done));

    let bytes = Quota { bytes: 12, ..NONE };
    assert_eq!(world.within(bytes, &[put("w/b", "12345")]).await, Ok(WriteOutcome::Done));
    let refused = world.within(bytes, &[put("w/b", "123456")]).await;
    assert_eq!(refused, Err(QuotaExceeded { kind: QuotaKind::Bytes, used: 12, adds: 1, allowed: 12 }));
    // Lowered since: what is smaller, is as large as before or goes is never refused.
    let less = Quota { documents: 1, bytes: 1, ..NONE };
    for write in [put("w/b", "1234"), put("w/b", "4321"), delete("w/b"), delete("w/never")] {
        assert_eq!(world.within(less, &[write]).await, Ok(WriteOutcome::Done));
    }
    let expect = Expect::Version(7);
    let conflict = world.within(less, &[DocWrite { expect, ..put("w/d", "many bytes") }]).await.unwrap();
    assert!(matches!(conflict, WriteOutcome::Conflict(_)), "what conflicts is tried again first: {conflict:?}");
    assert_eq!(world.within(NONE, &[put("w/d", "1234567890")]).await, Ok(WriteOutcome::Done));
}

pub async fn an_owners_own_quota_counts_before_the_venues(world: World) {
    let own = OwnLimits { documents: Some(2), bytes: Some(0), ..OwnLimits::default() };
    world.write(T0, &[put(keys::QUOTA, &own.encode())]).await;
    let standing = world.store.usage(&world.owner).await.unwrap();
    assert_eq!((standing.operator_quota, standing.used.documents), (own, 1));
    let venues = Quota { documents: 100, bytes: 5, sessions: 0, jobs: 0 };
    assert_eq!(world.within(venues, &[put("w/a", "more than five")]).await, Ok(WriteOutcome::Done));
    for venues in [venues, NONE] {
        assert_eq!(world.within(venues, &[put("w/b", "1")]).await.unwrap_err().kind, QuotaKind::Documents);
    }
    assert_eq!(world.write(T0, &[put("w/b", "1")]).await, WriteOutcome::Done, "nothing else has a quota");
}

pub async fn events_over_quota_are_refused_and_not_remembered(world: World) {
    world.agent().await;
    for (kind, quota, event) in [
        (QuotaKind::Jobs, Quota { jobs: 1, ..NONE }, task("t2")),
        (QuotaKind::Sessions, Quota { sessions: 1, ..NONE }, message("m2")),
        (QuotaKind::Documents, Quota { documents: 5, ..NONE }, task("t3")),
        (QuotaKind::Bytes, Quota { bytes: 1, ..NONE }, message("m3")),
        (QuotaKind::Documents, Quota { documents: 1, ..NONE }, message("m4")),
    ] {
        world.append(T0, "main", task("t1")).await;
        let to = format!("{kind:?}");
        let refused = world.appended(&to, event.clone(), quota).await;
        assert!(
            matches!(refused, Intake::Refused(Refusal::Quota(QuotaExceeded { kind: found, .. })) if found == kind),
            "{refused:?}"
        );
        assert_eq!(world.appended("main", task("t1"), quota).await, Intake::Duplicate, "it was accepted");
        assert_eq!(world.appended(&to, event, NONE).await, Intake::New, "under the same id, when there is room");
    }
    assert_eq!(world.appended("main", message("m9"), Quota { sessions: 1, jobs: 1, ..NONE }).await, Intake::New);
    let result = event(EventKind::Result, "r1");
    assert_eq!(world.appended("main", result, Quota { documents: 1, ..NONE }).await, Intake::New);
    let snapshot = SessionSnapshot { version: 1, state: Bytes::new(), quota: Some(Quota { sessions: 1, ..NONE }) };
    let refused = world.store.set_session(T0, &world.owner, &session("fork"), Some(&snapshot), &[]).await.unwrap_err();
    assert!(matches!(refused, StoreError::Over(QuotaExceeded { kind: QuotaKind::Sessions, .. })), "{refused}");
}

pub async fn accepted_work_ends_whatever_the_quota(world: World) {
    world.agent().await;
    let grant = world.run(T0, task("t1")).await;
    let own = OwnLimits { documents: Some(1), bytes: Some(1), sessions: Some(1), jobs: Some(1) };
    world.write(T0, &[put(keys::QUOTA, &own.encode())]).await;
    let commit = Commit {
        writes: vec![put("w/out", "a long output")],
        finish: vec![ends("t1", JobStatus::Complete)],
        ..last_turn(&grant)
    };
    assert!(matches!(world.commit(T0, &grant, &commit).await, CommitOutcome::Done(_)));
    assert_eq!(world.status("t1").await, Some(JobStatus::Complete));
    // A result of what was begun, and a task that a turn has begun.
    assert_eq!(world.append(T0, "main", event(EventKind::Result, "r1")).await.intake, Intake::New);
    assert_eq!(world.append(T0, "child", task("t2")).await.intake, Intake::New);
}
