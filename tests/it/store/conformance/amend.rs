//! Sessions that are changed between their turns, and dropped, from outside.

use super::*;
use trellis::store::{Amend, AmendOutcome, Amendment};

/// A session that one turn has left.
async fn rested(world: &World) -> SessionFacts {
    world.agent().await;
    let grant = world.run(T0, message("m")).await;
    world.done(at(1), &grant).await;
    world.facts("main").await
}

fn keep(seen: &SessionFacts, state: &'static str) -> Amend {
    let then = Amendment::State(Bytes::from_static(state.as_bytes()));
    Amend { version: seen.version, expected_state: seen.state.clone(), amendment: then, writes: Vec::new() }
}

fn gone(seen: &SessionFacts) -> Amend {
    let then = Amendment::Remove { arrivals: seen.arrivals };
    let delete = |key: &str| DocWrite { key: key.to_owned(), expect: Expect::Any, change: DocEffect::Delete };
    Amend {
        version: seen.version,
        expected_state: seen.state.clone(),
        amendment: then,
        writes: vec![delete("w/of-it")],
    }
}

impl World {
    async fn amend(&self, now: Millis, name: &str, amend: &Amend) -> AmendOutcome {
        self.store.amend(now, &self.owner, &session(name), amend).await.unwrap()
    }
}

pub async fn an_amended_session_goes_on_with_what_it_was_given(world: World) {
    let seen = rested(&world).await;
    let amend = Amend { writes: vec![put("w/with-it", "1")], ..keep(&seen, "amended") };
    assert_eq!(world.amend(at(2), "main", &amend).await, AmendOutcome::Done);
    assert_eq!(world.amend(at(3), "main", &amend).await, AmendOutcome::Done, "twice is once");
    let docs = world.store.read(&world.owner, &["w/with-it".to_owned()]).await.unwrap();
    assert_eq!((docs[0].value.clone(), docs[0].version), (Some(Bytes::from("1")), 1));
    let facts = world.facts("main").await;
    assert_eq!((facts.version, facts.touched, facts.due), (seen.version, seen.touched, seen.due));
    let grant = granted(world.admit(at(4), "main", message("m2")).await);
    assert_eq!((grant.version, grant.state), (1, Some(Bytes::from("amended"))));
}

pub async fn a_session_is_amended_only_as_it_was_seen(world: World) {
    let seen = rested(&world).await;
    assert_eq!(world.amend(at(2), "main", &keep(&seen, "first")).await, AmendOutcome::Done);
    assert_eq!(world.amend(at(3), "main", &keep(&seen, "second")).await, AmendOutcome::Changed);
    assert_eq!(world.amend(at(3), "main", &gone(&seen)).await, AmendOutcome::Changed);
    assert_eq!(world.amend(at(3), "nowhere", &keep(&seen, "x")).await, AmendOutcome::Changed);
    world.append(at(3), "new", message("n")).await;
    let new = world.facts("new").await;
    assert_eq!(world.amend(at(3), "new", &keep(&new, "x")).await, AmendOutcome::Changed, "it had no turn yet");
    let seen = world.facts("main").await;
    world.append(at(4), "main", task("t")).await;
    assert_eq!(world.amend(at(5), "main", &gone(&seen)).await, AmendOutcome::Changed, "it got something since");
    assert_eq!(world.amend(at(5), "main", &keep(&seen, "third")).await, AmendOutcome::Done, "mail waits for its turn");
    let grant = granted(world.admit(at(6), "main", message("m2")).await);
    assert_eq!((grant.state.clone(), grant.mailbox.len()), (Some(Bytes::from("third")), 2));
    world.done(at(7), &grant).await;
    assert_eq!(world.amend(at(8), "main", &keep(&seen, "fourth")).await, AmendOutcome::Changed, "it had a turn since");
}

pub async fn a_session_is_amended_only_where_its_checks_hold(world: World) {
    let seen = rested(&world).await;
    assert_eq!(world.write(at(2), &[put("w/mark", "1")]).await, WriteOutcome::Done);
    for (version, answer) in [(2, AmendOutcome::Changed), (0, AmendOutcome::Changed), (1, AmendOutcome::Done)] {
        let writes = vec![put("w/with-it", "1"), DocWrite::check("w/mark", version)];
        let amend = Amend { writes: writes.clone(), ..keep(&seen, "amended") };
        assert_eq!(world.amend(at(3), "main", &amend).await, answer, "{version}");
        let docs = world.store.read(&world.owner, &["w/with-it".to_owned()]).await.unwrap();
        assert_eq!(docs[0].value.is_some(), answer == AmendOutcome::Done);
    }
    let seen = world.facts("main").await;
    for (version, answer) in [(2, AmendOutcome::Changed), (1, AmendOutcome::Done)] {
        let amend = Amend { writes: vec![DocWrite::check("w/mark", version)], ..gone(&seen) };
        assert_eq!(world.amend(at(4), "main", &amend).await, answer, "{version}");
    }
    assert!(world.store.sessions(&world.owner, None, None, 9).await.unwrap().is_empty());
}

pub async fn a_session_that_a_worker_has_is_not_amended(world: World) {
    let seen = rested(&world).await;
    let grant = world.run(at(2), message("m2")).await;
    let lapsed = Millis(grant.until.0 + 1);
    for now in [at(3), lapsed] {
        for amend in [keep(&seen, "x"), gone(&seen)] {
            assert_eq!(world.amend(now, "main", &amend).await, AmendOutcome::Held);
        }
    }
    // Nobody took it over, so what its holder decided still counts.
    world.done(lapsed, &grant).await;
    assert_eq!(world.facts("main").await.version, 2);
}

pub async fn a_dropped_session_is_gone_with_its_documents_and_its_holders(world: World) {
    let seen = rested(&world).await;
    assert_eq!(world.write(at(2), &[put("w/of-it", "1")]).await, WriteOutcome::Done);
    world.append(at(2), "main", message("m2")).await;
    let seen = SessionFacts { arrivals: seen.arrivals + 1, ..seen };
    for again in [at(3), at(4)] {
        assert_eq!(world.amend(again, "main", &gone(&seen)).await, AmendOutcome::Done);
    }
    assert!(world.store.sessions(&world.owner, None, None, 9).await.unwrap().is_empty());
    let docs = world.store.read(&world.owner, &["w/of-it".to_owned()]).await.unwrap();
    assert_eq!(docs[0].value, None);
    let new = granted(world.admit(at(5), "main", message("m3")).await);
    assert_eq!((new.version, new.state, new.mailbox.len()), (0, None, 1));
    assert!(new.lease.epoch > seen.epoch);
}
