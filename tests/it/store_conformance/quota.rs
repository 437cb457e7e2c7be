//! What owners keep is counted with every change. After every case of the suite the counts are those of a recount.

use super::*;
use trellis::domain::quota::{Counts, Usage};
use trellis::store::{Forget, Forgotten, Recount, Resting, Seat, Seated};

/// A whole recount: what stood, and what is.
pub async fn recount(store: &dyn Store, owner: &Owner, mend: bool) -> (Usage, Usage) {
    loop {
        if let Recount::Done { was, is } = store.recount(owner, mend).await.unwrap() {
            return (was, is);
        }
    }
}

/// Of every owner.
pub async fn all_is_counted(store: &dyn Store) {
    for owner in store.owners(None, 1000).await.unwrap() {
        let (was, is) = recount(store, &owner, false).await;
        assert_eq!(was, is, "what is counted of `{owner}` is what is there");
        assert_eq!(store.usage(&owner).await.unwrap().used, is);
    }
}

impl World {
    async fn used(&self) -> Usage {
        self.store.usage(&self.owner).await.unwrap().used
    }

    async fn delete(&self, key: &str) {
        let write = DocWrite { key: key.to_owned(), expect: Expect::Any, change: Change::Delete };
        assert_eq!(self.write(T0, &[write]).await, Written::Done);
    }
}

pub async fn what_an_owner_keeps_is_counted(world: World) {
    assert_eq!(world.used().await, Usage::default());
    world.write(T0, &[put("w/a", "12345")]).await;
    assert_eq!(world.used().await, Counts { documents: 1, bytes: 8, sessions: 0, jobs: 0 });
    world.write(T0, &[put("w/a", "1"), put("w/b", "")]).await;
    assert_eq!(world.used().await, Counts { documents: 2, bytes: 7, sessions: 0, jobs: 0 });
    world.delete("w/a").await;
    world.delete("w/a").await;
    world.delete("w/b").await;
    assert_eq!(world.used().await, Usage::default());

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
    let sessions = vec![Resting { session: session("main"), arrivals: 1 }];
    let forget = Forget { documents, sessions, ..Forget::default() };
    assert_eq!(world.store.forget(T0, &world.owner, &forget).await.unwrap(), Forgotten::Done);
    assert_eq!(world.used().await, before, "nothing is left of it");

    let seat = Seat { version: 3, state: Bytes::from_static(b"12345") };
    let seated = async |seat| world.store.seat(T0, &world.owner, &session("fork"), seat).await.unwrap();
    assert_eq!(seated(Some(&seat)).await, Seated::Done);
    let with = Counts { sessions: 1, bytes: before.bytes + 5, ..before };
    assert_eq!(world.used().await, with);
    world.append(T0, "fork", message("m1")).await;
    assert!(world.used().await.bytes > with.bytes, "what waits in a mailbox counts");
    assert_eq!(seated(None).await, Seated::Done);
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
        if let Recount::Done { was, is } = world.store.recount(&world.owner, true).await.unwrap() {
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
