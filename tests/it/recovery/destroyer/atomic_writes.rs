//! A call that fails leaves nothing behind, whichever of its writes it was that failed.

use super::{command, texts};
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use trellis::domain::event::Submission;
use trellis::domain::ids::SessionKey;
use trellis::domain::job::{JobResult, JobStatus};
use trellis::domain::time::Millis;
use trellis::process::clock::Clock;
use trellis::store::{
    Admit, Checkpoint, Commit, DocEffect, DocWrite, Expect, ForgetRequest, Grant, JobFinish, LeaseOutcome,
    LeaseRequest, LeaseUse, OutboxEntry, StoreError, keys,
};

const START: Millis = Millis(1_767_225_600_000);
const ECHO: &str = "[[rule]]\nthen = { text = \"done {{input}}\" }\n";

/// Every key under a prefix, with all that is in it.
async fn image(server: &RedisServer, prefix: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut image = BTreeMap::new();
    let pattern = format!("{prefix}:*");
    for key in texts(command(server, &[b"KEYS", pattern.as_bytes()]).await) {
        // The serialised form depends on the order of insertion: the content is compared.
        let kind = texts(command(server, &[b"TYPE", &key]).await).remove(0);
        let mut content = match kind.as_slice() {
            b"hash" => {
                let all = texts(command(server, &[b"HGETALL", &key]).await);
                all.chunks(2).map(|pair| pair.join(&b'=')).collect()
            }
            b"zset" => {
                let all = texts(command(server, &[b"ZRANGE", &key, b"0", b"-1", b"WITHSCORES"]).await);
                all.chunks(2).map(|pair| pair.join(&b'=')).collect()
            }
            b"set" => texts(command(server, &[b"SMEMBERS", &key]).await),
            _ => texts(command(server, &[b"GET", &key]).await),
        };
        content.sort();
        image.insert(key, content.join(&b'\n'));
    }
    image
}

fn write(key: &str, change: DocEffect) -> DocWrite {
    DocWrite { key: key.to_owned(), expect: Expect::Any, change }
}

/// A session that is leased, with events in its mailbox, a call on record and an outbox.
async fn scene(server: &RedisServer) -> (TestVenue, tempfile::TempDir, String, Box<Grant>) {
    let (venue, dir, prefix) = TestVenue::redis_at(server, ECHO, Clock::manual(START)).await;
    venue.agent("helper", json!({})).await;
    let there = venue.submit("helper", "t1", json!("x")).await;
    let again = Submission { session_id: Some(there.session.session.clone()), ..Submission::default() };
    venue.arrive("helper", "m1", false, again).await;
    let lease = LeaseRequest {
        token: "token".into(),
        worker: "w".into(),
        ttl: Duration::from_secs(30),
        mailbox_limit: 9,
        crash_limit: 5,
        owner_cap: 0,
    };
    let admit = Admit { owner: venue.owner.clone(), session: there.session, event: None, lease: Some(lease) };
    let LeaseOutcome::Run(grant) = venue.venue.store.admit(START, &admit).await.unwrap().lease else {
        panic!("no lease")
    };
    let checkpoint = Checkpoint {
        turn: 1,
        reply: Some("reply".into()),
        calls: vec![(0, "call".into())],
        open: Vec::new(),
        writes: Vec::new(),
        outbox: vec![OutboxEntry { id: "o1".into(), message: "m".into() }],
    };
    venue.venue.store.checkpoint(START, &grant.lease, &checkpoint).await.unwrap();
    venue.venue.store.write(START, &venue.owner, &[write("w/old", DocEffect::Put("old".into()))]).await.unwrap();
    (venue, dir, prefix, grant)
}

const CALLS: [&str; 6] = ["commit", "release", "finish", "forget", "write", "checkpoint"];

async fn call(venue: &TestVenue, grant: &Grant, name: &str) -> Result<(), StoreError> {
    let (store, owner, now) = (&venue.venue.store, &venue.owner, START.plus(Duration::from_secs(1)));
    let session: &SessionKey = &grant.lease.session;
    let job = grant.mailbox.iter().find_map(|entry| entry.job.clone()).unwrap();
    let outbox = vec![OutboxEntry { id: "o2".into(), message: "m".into() }];
    let result = serde_json::to_vec(&JobResult::failure(trellis::domain::job::ErrorCode::Lost, "x")).unwrap();
    let finish = JobFinish { job: job.clone(), status: JobStatus::Failed, result: result.into() };
    let writes = vec![write("w/new", DocEffect::Put("new".into())), write("w/old", DocEffect::Delete)];
    match name {
        "commit" => {
            let commit = Commit {
                turn: 1,
                consume: grant.mailbox.iter().map(|entry| entry.key.clone()).collect(),
                writes,
                finish: vec![finish],
                outbox,
                state: "state".into(),
                after_commit: LeaseUse::Release { arrivals: grant.arrivals, due: Some(now), backoff: false },
                status: None,
                unless_cancelled: None,
            };
            store.commit(now, &grant.lease, &commit).await.map(drop)
        }
        "release" => {
            let then = LeaseUse::Release { arrivals: grant.arrivals, due: Some(now), backoff: true };
            store.release(now, &grant.lease, then).await.map(drop)
        }
        "finish" => store.finish(now, owner, session, &finish, None, &outbox).await.map(drop),
        "forget" => {
            let documents = vec!["w/old".to_owned(), keys::job_head(&job)];
            let forget =
                ForgetRequest { documents, sessions_with_losses: vec![session.clone()], ..ForgetRequest::default() };
            store.forget(now, owner, &forget).await.map(drop)
        }
        "write" => store.write(now, owner, &writes).await.map(drop),
        _ => {
            let checkpoint = Checkpoint {
                turn: 1,
                reply: Some("again".into()),
                calls: vec![(1, "more".into())],
                open: Vec::new(),
                writes: Vec::new(),
                outbox,
            };
            store.checkpoint(now, &grant.lease, &checkpoint).await.map(drop)
        }
    }
}

/// Each key of the owner becomes one of another type in turn, so that each write there fails.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_which_one_write_fails_writes_nothing() {
    let Some(server) = RedisServer::shared() else { return };
    let mut failures = BTreeMap::new();
    for name in CALLS {
        let suffixes = [
            ":doc",
            ":keys",
            ":gone",
            ":count",
            ":due",
            ":outbox",
            ":relay",
            ":running:",
            ":running:helper",
            ":woken",
            ":waiting:helper",
            ":turns",
            ":mailbox:{s}",
            ":event:{s}",
            ":crash:{s}",
            ":session:{s}",
            ":call:{s}",
        ];
        for suffix in suffixes {
            let (venue, _dir, prefix, grant) = scene(server).await;
            let base = RedisServer::base(&prefix, &venue.owner);
            let key = format!("{base}{}", suffix.replace("{s}", &grant.lease.session.token()));
            command(server, &[b"SET", key.as_bytes(), b"junk"]).await;
            let before = image(server, &prefix).await;
            let outcome = call(&venue, &grant, name).await;
            let after = image(server, &prefix).await;
            if outcome.is_err() {
                *failures.entry(name).or_insert(0) += 1;
                let changed: Vec<_> = before
                    .keys()
                    .chain(after.keys())
                    .filter(|key| before.get(*key) != after.get(*key))
                    .map(|key| String::from_utf8_lossy(key).into_owned())
                    .collect();
                assert!(changed.is_empty(), "{name} with {suffix} broken has changed {changed:?}: {outcome:?}");
            }
        }
    }
    // It would show nothing if no call had failed.
    for name in CALLS {
        assert!(failures.contains_key(name), "{name}: {failures:?}");
    }
}
