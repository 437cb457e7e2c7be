//! What only the Redis backend has: functions that are lost, a memory limit, a server that dies.

use crate::support::redis::{RedisServer, store};
use bytes::Bytes;
use std::time::Duration;
use trellis::domain::ids::{EventId, JobId, Owner, SessionKey, sha256_hex};
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::domain::time::Millis;
use trellis::store::redis::{RedisOptions, RedisStore, ServerOrInjected};
use trellis::store::{
    Accounts, AdmissionOutcome, Admit, Commit, CommitOutcome, Continuation, DocEffect, DocWrite, DocumentStore,
    EventKind, Expect, Grant, Intake, LeaseCheck, LeaseOutcome, LeaseRequest, LeaseUse, NewEvent, Recount, Store,
    StoreError, StoreInspection, WriteOutcome, keys,
};

const NOW: Millis = Millis(1_700_000_000_000);

fn owner() -> Owner {
    "acme/ann".parse().unwrap()
}

fn session(name: &str) -> SessionKey {
    SessionKey { agent: "clerk".parse().unwrap(), session: name.parse().unwrap() }
}

fn in_agent(agent: &str, session: &SessionKey) -> SessionKey {
    SessionKey { agent: agent.parse().unwrap(), session: session.session.clone() }
}

fn put(key: &str, value: impl Into<Bytes>) -> DocWrite {
    DocWrite { key: key.to_owned(), expect: Expect::Any, change: DocEffect::Put(value.into()) }
}

async fn add_agent(store: &RedisStore, gate: &'static str) {
    let key = keys::agent_gate(&session("x").agent);
    assert_eq!(store.write(NOW, &owner(), &[put(&key, gate)]).await.unwrap(), WriteOutcome::Done);
}

fn message(session: &SessionKey, id: &str, body: &[u8]) -> Admit {
    Admit {
        owner: owner(),
        session: session.clone(),
        event: Some(NewEvent {
            id: EventId::new(id).unwrap(),
            body_hash: sha256_hex(body),
            kind: EventKind::Message,
            job: None,
            order: "0001".to_owned(),
            body: Bytes::copy_from_slice(body),
            open: None,
            finish: None,
            outbox: Vec::new(),
            quota: None,
            may_replace: false,
        }),
        lease: Some(LeaseRequest {
            token: uuid::Uuid::new_v4().to_string(),
            worker: "w1".to_owned(),
            ttl: Duration::from_secs(30),
            mailbox_limit: 100,
            crash_limit: 5,
            owner_cap: 0,
        }),
    }
}

fn wake(session: &SessionKey) -> Admit {
    Admit { event: None, ..message(session, "x", b"") }
}

fn granted(admitted: AdmissionOutcome) -> Grant {
    match admitted.lease {
        LeaseOutcome::Run(grant) => *grant,
        other => panic!("expected a grant, got {other:?}"),
    }
}

fn commit(grant: &Grant, state: impl Into<Bytes>) -> Commit {
    Commit {
        turn: grant.version + 1,
        consume: grant.mailbox.iter().map(|entry| entry.key.clone()).collect(),
        writes: Vec::new(),
        status: None,
        finish: Vec::new(),
        outbox: Vec::new(),
        state: state.into(),
        unless_cancelled: None,
        after_commit: LeaseUse::Release { arrivals: grant.arrivals, due: None, backoff: false },
    }
}

#[tokio::test]
async fn bytes_survive_as_they_are() {
    let Some(store) = store().await else { return };
    add_agent(&store, "ACTIVE 8 100 queue").await;
    let (all, s) = ((0..=255).collect::<Vec<u8>>(), session("main"));
    store.write(NOW, &owner(), &[put("w/x", all.clone()), put("w/empty", "")]).await.unwrap();
    let docs = store.read(&owner(), &["w/x".to_owned(), "w/empty".to_owned()]).await.unwrap();
    assert_eq!(docs[0].value.as_deref(), Some(&all[..]));
    assert_eq!(docs[1].value.as_deref(), Some(&b""[..]));
    let grant = granted(store.admit(NOW, &message(&s, "e1|é", &all)).await.unwrap());
    assert_eq!((&grant.mailbox[0].body[..], &*grant.mailbox[0].key), (&all[..], "0001|e1|é"));
    let done = store.commit(NOW, &grant.lease, &commit(&grant, all.clone())).await.unwrap();
    assert_eq!(done, CommitOutcome::Done(Continuation::Released { wakes: Vec::new() }));
    let grant = granted(store.admit(NOW, &message(&s, "e2", b"")).await.unwrap());
    assert_eq!((grant.state.as_deref(), grant.mailbox.len()), (Some(&all[..]), 1));
}

#[tokio::test]
async fn a_wake_made_by_the_server_reads_as_a_message_of_the_bus() {
    let Some(store) = store().await else { return };
    let owner: Owner = "t\"1/ü{x}".parse().unwrap();
    let (holder, waiter) = (session("main"), session("a\\b\"c.é%41"));
    let (holder, waiter) = (in_agent("näh.er", &holder), in_agent("näh.er", &waiter));
    let of_owner = |admit: Admit| Admit { owner: owner.clone(), ..admit };
    let gate = put(&keys::agent_gate(&holder.agent), "ACTIVE 1 100 queue");
    store.write(NOW, &owner, &[gate]).await.unwrap();
    let grant = granted(store.admit(NOW, &of_owner(message(&holder, "e1", b"1"))).await.unwrap());
    let waiting = store.admit(NOW, &of_owner(message(&waiter, "e2", b"2"))).await.unwrap();
    assert_eq!(waiting.lease, LeaseOutcome::Waiting);
    store.commit(NOW, &grant.lease, &commit(&grant, "")).await.unwrap();
    let entries = store.outbox(&owner).await.unwrap();
    let expected = BusMessage {
        to: MessageAddress::In { owner: owner.clone(), agent: waiter.agent, kind: InboundKind::Wake },
        id: None,
        body: serde_json::json!({"session": waiter.session}),
        trace: None,
    };
    assert_eq!(entries.len(), 1);
    assert_eq!(std::str::from_utf8(&entries[0].message).unwrap(), serde_json::to_string(&expected).unwrap());
}

/// The driver calls it an answer that can't be read: nothing is damaged, and a call again can help.
#[tokio::test]
async fn a_connection_cut_inside_an_answer_counts_as_lost() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let answers = tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut asked = [0; 4096];
            while let Ok(bytes @ 1..) = client.read(&mut asked).await {
                let text = String::from_utf8_lossy(&asked[..bytes]);
                if text.contains("FUNCTION") {
                    client.write_all(b"*1\r\n$200\r\nhalf").await.unwrap();
                    break;
                }
                // What the driver says of itself.
                let commands = text.matches('*').count();
                client.write_all("+OK\r\n".repeat(commands).as_bytes()).await.unwrap();
            }
        }
    });
    let error = RedisStore::open(RedisOptions { connections: 1, ..RedisOptions::new(url) }).await.err().unwrap();
    assert!(error.is_transient(), "{error:?}");
    assert!(error.to_string().contains("the connection was cut in the middle of an answer"), "{error}");
    answers.abort();
}

#[tokio::test]
async fn functions_are_loaded_again_when_the_server_lost_them() {
    let Some(server) = RedisServer::start() else { return };
    let store = RedisStore::open(server.options(ServerOrInjected::Injected)).await.unwrap();
    server.command(&["FUNCTION", "FLUSH"]).await.unwrap();
    add_agent(&store, "ACTIVE 8 100 queue").await;
}

#[tokio::test]
async fn owners_of_an_emptied_server_are_registered_again() {
    let Some(server) = RedisServer::start() else { return };
    let store = RedisStore::open(server.options(ServerOrInjected::Injected)).await.unwrap();
    let owners = async || store.owners(None, 10).await.unwrap();
    store.write(NOW, &owner(), &[put("w/a", "1")]).await.unwrap();
    assert_eq!(owners().await, [owner()]);
    server.command(&["FLUSHALL"]).await.unwrap();
    assert!(owners().await.is_empty());
    assert_eq!(store.write(NOW, &owner(), &[put("w/a", "1")]).await.unwrap(), WriteOutcome::Done);
    assert_eq!(owners().await, [owner()]);
    assert_eq!(store.read(&owner(), &["w/a".to_owned()]).await.unwrap()[0].version, 1);
}

#[tokio::test]
async fn a_damaged_record_is_corrupt_and_named() {
    let Some(store) = store().await else { return };
    add_agent(&store, "half a gate").await;
    let error = store.admit(NOW, &message(&session("main"), "e1", b"")).await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    assert!(error.to_string().contains("gate of agent clerk"), "{error}");
}

#[tokio::test]
async fn the_servers_clock_counts_unless_injected() {
    let Some(server) = RedisServer::shared() else { return };
    let store = RedisStore::open(server.options(ServerOrInjected::Server)).await.unwrap();
    add_agent(&store, "ACTIVE 8 100 queue").await;
    let before = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let grant = granted(store.admit(Millis(0), &message(&session("main"), "e1", b"")).await.unwrap());
    let ahead = Duration::from_millis(grant.until.0).saturating_sub(before);
    assert!((29..=600).contains(&ahead.as_secs()), "{ahead:?}");
}

#[tokio::test]
async fn at_the_memory_limit_only_new_work_is_refused() {
    let Some(server) = RedisServer::start() else { return };
    let options = server.options(ServerOrInjected::Injected);
    let store = RedisStore::open(options.clone()).await.unwrap();
    add_agent(&store, "ACTIVE 8 100 queue").await;
    let grant = granted(store.admit(NOW, &message(&session("a"), "e1", b"1")).await.unwrap());
    let mut append = message(&session("b"), "e2", b"2");
    append.lease = None;
    store.admit(NOW, &append).await.unwrap();

    store.write(NOW, &owner(), &[put("w/old", "1")]).await.unwrap();
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    let refused = store.admit(NOW, &message(&session("c"), "e3", b"3")).await.unwrap_err();
    assert!(matches!(refused, StoreError::Full { .. }), "{refused}");
    let refused = store.write(NOW, &owner(), &[put("w/x", "1")]).await.unwrap_err();
    assert!(matches!(refused, StoreError::Full { .. }), "{refused}");
    let erase = DocWrite { key: "w/old".into(), expect: Expect::Any, change: DocEffect::Delete };
    assert_eq!(store.write(NOW, &owner(), &[erase]).await.unwrap(), WriteOutcome::Done, "it frees memory");
    let job = JobId::new(&"ab".repeat(16)).unwrap();
    let event = EventId::new("e1").unwrap();
    for key in [
        keys::account("a"),
        keys::rate("m"),
        keys::session_cap(&session("b")),
        keys::owner_cap("2026-11-23"),
        keys::model_cap("2026-11-23", "m"),
        keys::origin(1, &event),
        keys::job_wait(&job),
    ] {
        let written = store.write(NOW, &owner(), &[put(&key, "1")]).await.unwrap();
        assert_eq!(written, WriteOutcome::Done, "{key}: what was taken can't go on without it");
        let beside = store.write(NOW, &owner(), &[put(&key, "2"), put("w/x", "1")]).await.unwrap_err();
        assert!(matches!(beside, StoreError::Full { .. }), "{beside}");
    }
    for key in [keys::agent(&session("b").agent), format!("j/{job}"), "w/s/w".to_owned(), "g/a/spender/s".to_owned()] {
        let refused = store.write(NOW, &owner(), &[put(&key, "1")]).await.unwrap_err();
        assert!(matches!(refused, StoreError::Full { .. }), "{key}: {refused}");
    }
    let another = RedisStore::open(options).await.unwrap();
    assert_eq!(
        another.renew(NOW, &grant.lease, Duration::from_secs(9)).await.unwrap(),
        LeaseCheck::Held { cancelled: false, policy: 0 }
    );
    let done = store.commit(NOW, &grant.lease, &commit(&grant, "s")).await.unwrap();
    assert_eq!(done, CommitOutcome::Done(Continuation::Released { wakes: Vec::new() }));
    assert_eq!(granted(store.admit(NOW, &wake(&session("b"))).await.unwrap()).mailbox.len(), 1);
}

#[tokio::test]
async fn a_killed_server_keeps_what_it_acknowledged() {
    let Some(mut server) = RedisServer::start() else { return };
    let store = RedisStore::open(server.options(ServerOrInjected::Injected)).await.unwrap();
    add_agent(&store, "ACTIVE 8 100 queue").await;
    let s = session("main");
    let grant = granted(store.admit(NOW, &message(&s, "e1", b"1")).await.unwrap());
    store.commit(NOW, &grant.lease, &commit(&grant, "after one turn")).await.unwrap();
    server.kill();
    let error = store.admit(NOW, &message(&s, "e2", b"2")).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    assert!(server.start_again());

    let admitted = loop {
        match store.admit(NOW, &message(&s, "e1", b"1")).await {
            Err(StoreError::Unavailable { .. }) => tokio::time::sleep(Duration::from_millis(20)).await,
            other => break other.unwrap(),
        }
    };
    assert_eq!((admitted.intake, admitted.lease), (Intake::Duplicate, LeaseOutcome::Empty));
    let facts = store.sessions(&owner(), None, None, 10).await.unwrap();
    assert_eq!((facts[0].version, facts[0].arrivals, facts[0].consumed), (1, 1, 1));
}

#[tokio::test]
async fn a_server_that_loads_is_waited_for() {
    let Some(mut server) = RedisServer::start() else { return };
    let store = RedisStore::open(server.options(ServerOrInjected::Injected)).await.unwrap();
    add_agent(&store, "ACTIVE 8 100 queue").await;
    // Enough that reading the log takes a moment.
    let fill = "for i = 1, 50000 do redis.call('SET', KEYS[1] .. i, i) end";
    for key in ["a", "b", "c", "d", "e", "f"] {
        server.command(&["EVAL", fill, "1", key]).await.unwrap();
    }
    let mut loading = false;
    // Whoever looks too late finds it loaded, and looks again.
    for _ in 0..20 {
        server.kill();
        server.spawn();
        loading = loop {
            match server.command(&["PING"]).await {
                Err(error) if error.kind() == redis::ErrorKind::Server(redis::ServerErrorKind::BusyLoading) => {
                    break true;
                }
                Err(_) => {}
                Ok(_) => break false,
            }
        };
        if loading {
            break;
        }
    }
    let admitted = loop {
        match store.admit(NOW, &message(&session("main"), "e1", b"1")).await {
            Err(error) if !error.to_string().contains("LOADING") => tokio::time::sleep(Duration::from_millis(5)).await,
            other => break other.unwrap(),
        }
    };
    assert_eq!((loading, admitted.intake), (true, Intake::New));
}

#[tokio::test]
async fn the_settings_of_the_shipped_configuration_have_no_problem() {
    let Some(server) = RedisServer::start() else { return };
    let store = RedisStore::open(server.options(ServerOrInjected::Injected)).await.unwrap();
    let settings = store.settings().await.unwrap();
    assert_eq!(settings.len(), 7);
    assert!(settings.iter().all(|setting| setting.problem.is_none()), "{settings:?}");
    server.command(&["CONFIG", "SET", "appendfsync", "everysec"]).await.unwrap();
    let settings = store.settings().await.unwrap();
    let wrong: Vec<_> = settings.iter().filter(|setting| setting.problem.is_some()).collect();
    assert_eq!((wrong.len(), &*wrong[0].name, &*wrong[0].value), (1, "redis appendfsync", "everysec"));
}

/// `TRELLIS_BENCH=<seconds>` makes it a measurement; otherwise it is a short check that commits
/// side by side don't disturb each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_sessions_commit_side_by_side() {
    let Some(server) = RedisServer::shared() else { return };
    let mut options = server.options(ServerOrInjected::Server);
    options.connections = 8;
    let store = RedisStore::open(options).await.unwrap();
    add_agent(&store, "ACTIVE 64 100 queue").await;
    let seconds = std::env::var("TRELLIS_BENCH").map_or(0.2, |text| text.parse().unwrap());
    let start = std::time::Instant::now();
    let runs = (0..64).map(|n| {
        let store = store.clone();
        tokio::spawn(async move {
            let s = session(&format!("s{n}"));
            let mut grant = granted(store.admit(NOW, &message(&s, &format!("e{n}"), b"1")).await.unwrap());
            while start.elapsed().as_secs_f64() < seconds {
                let mut commit = commit(&grant, vec![b's'; 1500]);
                commit.after_commit = LeaseUse::Keep;
                commit.writes =
                    vec![put(&format!("w/{n}"), vec![b'x'; 500]), put(&keys::turn(&s, commit.turn), vec![b't'; 500])];
                let done = store.commit(NOW, &grant.lease, &commit).await.unwrap();
                assert!(matches!(done, CommitOutcome::Done(Continuation::Held { .. })), "{done:?}");
                grant.version += 1;
            }
            grant.version
        })
    });
    let turns: u64 = futures::future::join_all(runs).await.into_iter().map(Result::unwrap).sum();
    let rate = f64::from(u32::try_from(turns).unwrap()) / start.elapsed().as_secs_f64();
    println!("{turns} commits, {rate:.0} a second");
    let facts = store.sessions(&owner(), None, None, 100).await.unwrap();
    assert_eq!((facts.len(), facts.iter().map(|facts| facts.version).sum::<u64>()), (64, turns));
}

/// Each connection of the pool is dropped by the restart, and each call meets another one.
#[tokio::test]
async fn no_call_fails_after_a_restart_of_the_server() {
    let Some(mut server) = RedisServer::start() else { return };
    let mut options = server.options(ServerOrInjected::Injected);
    options.connections = 8;
    let store = RedisStore::open(options).await.unwrap();
    add_agent(&store, "ACTIVE 8 100 queue").await;
    for round in 0_u64..3 {
        for _ in 0..16 {
            store.read(&owner(), &["w/x".into()]).await.unwrap();
        }
        server.kill();
        assert!(server.start_again());
        for n in 0..8_u64 {
            match n % 4 {
                0 => drop(store.read(&owner(), &["w/x".into()]).await.unwrap()),
                1 => {
                    // Not one that is repeated blindly: it would meet its own version.
                    let expect = Expect::Version(round * 2 + n / 4);
                    let write = DocWrite { expect, ..put("w/x", "1") };
                    assert_eq!(store.write(NOW, &owner(), &[write]).await.unwrap(), WriteOutcome::Done);
                }
                2 => {
                    let name = format!("e{round}-{n}");
                    let admitted = store.admit(NOW, &message(&session(&name), &name, b"1")).await.unwrap();
                    assert_eq!(admitted.intake, Intake::New);
                }
                _ => drop(store.sweep(NOW, &owner(), Duration::from_secs(1), 10).await.unwrap()),
            }
        }
    }
}

/// The key of what an owner keeps.
async fn counts_key(server: &RedisServer) -> String {
    let redis::Value::Array(found) = server.command(&["KEYS", "*:count"]).await.unwrap() else { panic!("no keys") };
    let redis::Value::BulkString(key) = &found[0] else { panic!("no key of counts: {found:?}") };
    String::from_utf8(key.clone()).unwrap()
}

#[tokio::test]
async fn sweeps_count_older_records_and_correct_drift() {
    let Some(server) = RedisServer::start() else { return };
    let store = RedisStore::open(server.options(ServerOrInjected::Injected)).await.unwrap();
    add_agent(&store, "ACTIVE 8 100 queue").await;
    for n in 0..1_500 {
        store.write(NOW, &owner(), &[put(&format!("w/{n}"), "12345")]).await.unwrap();
    }
    let used = store.usage(&owner()).await.unwrap().used;
    assert_eq!((used.documents, used.jobs, used.sessions), (1_501, 0, 0));
    let key = counts_key(&server).await;
    server.command(&["HDEL", &key, "bytes"]).await.unwrap();
    let mut sweeps = 1;
    while store.sweep(NOW, &owner(), Duration::from_secs(1), 10).await.unwrap().more {
        // One that falls where the count has been already, and one where it has not.
        store.write(NOW, &owner(), &[put("a/0", "1234"), put("z/9", format!("{sweeps}"))]).await.unwrap();
        sweeps += 1;
    }
    let Recount::Done { stored, counted } = recounted(&store, false).await else { panic!("expected an end") };
    assert_eq!((stored, stored.bytes), (counted, used.bytes + 7 + 4));
    assert!((4..9).contains(&sweeps), "{sweeps}");

    server.command(&["HINCRBY", &key, "bytes", "100"]).await.unwrap();
    for (mend, drift) in [(false, 100), (true, 100), (false, 0)] {
        let Recount::Done { stored, counted } = recounted(&store, mend).await else { panic!("expected an end") };
        assert_eq!(stored.bytes - counted.bytes, drift, "{mend}");
    }
    assert_eq!(store.usage(&owner()).await.unwrap().used, counted);
}

async fn recounted(store: &RedisStore, mend: bool) -> Recount {
    loop {
        let recount = store.recount(&owner(), mend).await.unwrap();
        if recount != Recount::More {
            return recount;
        }
    }
}
