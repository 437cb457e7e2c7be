//! The destroyer: one record of each kind is deleted, cut or replaced by junk, one at a time. Others are served, what
//! protects somebody holds, and within a minute the change is mended, or the audit names it and ends with 1, or it is
//! harmless.

use super::blockable_queue::LoadingQueue;
use super::busy_venue::{self, RULES, START, Scene, finish, hanging, is_protected, live, make, serves_others};
use super::record_kinds;
use super::{Blow, command, copy_folder, texts};
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use futures::{StreamExt, stream};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;
use trellis::process::clock::Clock;
use trellis::store::StoreError;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::redis::{RedisStore, ServerOrInjected};
use trellis::venue::upkeep::audit::{self, AuditError};

/// Cases at a time: mostly they wait.
const AT_ONCE: usize = 10;

/// Kinds whose loss may be silent, and why that is harmless.
const HARMLESS: &[(&str, &str)] = &[];

/// Kinds of the tables that are not in the scene, and why.
const ABSENT: [(&str, &[&str]); 5] = [
    (
        "documents that nothing but their readers goes by: the recount names any that is lost, as it does those of the scene",
        &[
            "b/<job>-agent",
            "card/<name>",
            "dead/<died>-<job>",
            "g/<agent>/card/<name>",
            "g/<agent>/mcp.login/<server>",
            "g/<agent>/mcp/<server>",
            "e.state",
            "g/<agent>/wait/<session>",
            "h.listed",
            "hook.at/<name>",
            "hook.at/venue/<name>",
            "hook/<name>",
            "j/<job>/m/<at>-<message>",
            "j/<job>/n/<config>",
            "j/<job>/w",
            "mcp.begun/<hash of the state>",
            "mcp.login/<server>",
            "mcp/<server>",
            "o/<collection>",
            "p/<name>",
            "r/scratchpad/<bucket>/<at>-<job>",
            "reads/<agent>/<created>/<number>",
            "reads/<agent>/s/<session>/<deleted>/<number>",
            "reads/~/<hash>",
            "u/<outcome>",
            "v/project",
            "v/users/<user>",
        ],
    ),
    (
        "marks that are gone as soon as a sweep has done what they say",
        &[
            "core fO",
            "g.end/<agent>",
            "g/<agent>/copy",
            "g/<agent>/copy/<session>",
            "h.due/<due>-<approval>",
            "i.due/<due>-<job>",
            "i/<job>",
            "O:turns",
            "origin/<hour>/<event>",
            "p.at/<period>",
            "queue o<sequence u64>",
        ],
    ),
    (
        "written where a queue outlives the store: the tests of set-backs lose them",
        &[
            "epoch",
            "epoch.back/<found>",
            "epoch.safe",
            "epoch.settled",
            "epoch.tail/<found>-<worker>",
            "marker",
            "stray/<published>-<sequence>",
        ],
    ),
    ("written by the program around the venue: the tests of builds lose it", &["format"]),
    ("notes of the servers themselves, which are written again", &["<prefix>:libraries", "<prefix>:{<shard>}:mark"]),
];

/// One record of a kind, and what is done to it.
#[derive(Debug, Clone)]
struct Case {
    kind: String,
    key: Vec<u8>,
    /// A field or a member of Redis, the keyspace of an embedded store; `None`: the whole key.
    field: Option<Vec<u8>>,
    blow: Blow,
}

fn cut(value: &[u8]) -> Vec<u8> {
    value[..value.len() / 2].to_vec()
}

const JUNK: &[u8] = b"\x01\xff junk";

/// What is silent or keeps others waiting, by case.
async fn judge<F: Future<Output = Result<(), String>>>(cases: Vec<Case>, run: impl Fn(Case) -> F) {
    // Some of them, for a try by hand.
    let only = std::env::var("TRELLIS_STRIKE").unwrap_or_default();
    let is_meant = |case: &Case| {
        let name = format!("{} {:?}", case.kind, case.blow);
        only.split('|').any(|part| name.contains(part))
    };
    let cases: Vec<_> = cases.into_iter().filter(is_meant).collect();
    let count = cases.len();
    let runs = cases.into_iter().map(|case| {
        let name = format!("{} {:?}", case.kind, case.blow);
        let ran = run(case);
        async move {
            let began = std::time::Instant::now();
            let why = ran.await.err();
            eprintln!("CASE {name}: {:?} {}", began.elapsed(), why.as_deref().unwrap_or("ok"));
            Some((name, why?))
        }
    });
    let wrong: Vec<_> = stream::iter(runs).buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await;
    let is_harmless = |name: &str| HARMLESS.iter().any(|(kind, _)| name.starts_with(kind));
    let mut lines: Vec<_> =
        wrong.iter().filter(|(name, _)| !is_harmless(name)).map(|(name, why)| format!("{name}: {why}")).collect();
    lines.sort();
    assert!(lines.is_empty(), "{} of {count}\n{}", lines.len(), lines.join("\n"));
}

/// Whether a process that doesn't start has said what is wrong with the store.
fn said(error: &StoreError) -> Result<(), String> {
    if error.is_transient() { Err(error.to_string()) } else { Ok(()) }
}

async fn examine(mut venue: TestVenue, scene: &Scene) -> Result<(), String> {
    if venue.venue.key != scene.key {
        return Err("ids are made by another key".to_owned());
    }
    live(&mut venue).await;
    serves_others(&mut venue).await?;
    let books = audit::audit_all(&venue.venue).await;
    let is_named = match &books {
        Ok(books) => !books.are_balanced(),
        Err(AuditError::Store(error)) => said(error).is_ok(),
        Err(error) => return Err(error.to_string()),
    };
    let whole = if is_named { Ok(()) } else { finish(&venue, scene).await };
    let protected = is_protected(&venue, scene).await;
    venue.shutdown.trigger();
    venue.shutdown.run(Duration::from_secs(1)).await;
    protected.and(whole.map_err(|why| format!("silent: {why}")))
}

/// What was found of each kind, and what is in no table.
#[derive(Default)]
struct Found {
    kinds: BTreeMap<String, (Vec<u8>, Option<Vec<u8>>)>,
    unknown: BTreeSet<String>,
}

impl Found {
    fn add(&mut self, kind: String, key: &[u8], field: Option<&[u8]>) {
        self.kinds.entry(kind).or_insert_with(|| (key.to_vec(), field.map(<[u8]>::to_vec)));
    }

    /// The cases of every kind; fails when the tables and the scene differ.
    fn cases(self, rows: &[String], has_parts: impl Fn(&(Vec<u8>, Option<Vec<u8>>)) -> bool) -> Vec<Case> {
        assert!(self.unknown.is_empty(), "kinds without a row in the table of the layout: {:?}", self.unknown);
        let parts = |kind: &'_ String| {
            let (layout, class) = kind
                .strip_prefix("venue ")
                .unwrap_or(kind)
                .split_once(" · ")
                .unwrap_or((kind.strip_prefix("venue ").unwrap_or(kind), ""));
            let is_of_documents = layout == "O:doc" || layout.starts_with("docs ");
            [Some(layout.to_owned()), is_of_documents.then(|| class.to_owned())]
        };
        let present: BTreeSet<String> = self.kinds.keys().flat_map(parts).flatten().collect();
        let absent: BTreeSet<_> = rows.iter().map(String::as_str).filter(|row| !present.contains(*row)).collect();
        let expected: BTreeSet<_> = ABSENT
            .iter()
            .flat_map(|(_, rows)| *rows)
            .copied()
            .filter(|row| rows.iter().any(|other| other == row))
            .collect();
        assert_eq!(absent, expected, "kinds that the scene doesn't have: {:#?}", self.kinds.keys());
        let mut cases = Vec::new();
        for (kind, record) in self.kinds {
            for blow in [Blow::Deleted, Blow::Cut, Blow::Junk] {
                if blow != Blow::Cut || has_parts(&record) {
                    let (key, field) = record.clone();
                    cases.push(Case { kind: kind.clone(), key, field, blow });
                }
            }
        }
        cases
    }
}

/// Whose records are struck: those of the owner of the scene, and those of the venue.
fn whose(owner: &str) -> Option<&'static str> {
    match owner {
        "local/me" => Some(""),
        _ if owner.contains("_venue") => Some("venue "),
        _ => None,
    }
}

/// One record of each kind under a prefix.
async fn redis_cases(server: &RedisServer, prefix: &str) -> Vec<Case> {
    let (layouts, documents) = (record_kinds::redis(), record_kinds::documents());
    let mut found = Found::default();
    let mut keys = texts(command(server, &[b"KEYS", format!("{prefix}:*").as_bytes()]).await);
    keys.sort();
    for key in keys {
        let name = String::from_utf8_lossy(&key[prefix.len()..]).into_owned();
        let (whose, layout) = match name.split_once("}:") {
            None => ("", format!("<prefix>{name}")),
            Some((_, rest)) => match rest.split_once(':') {
                None => ("", format!("<prefix>:{{<shard>}}:{rest}")),
                Some((owner, rest)) => {
                    let Some(whose) = whose(owner) else { continue };
                    let first = rest.split(':').next().unwrap_or_default();
                    let of = match rest.strip_prefix(first).and_then(|rest| rest.strip_prefix(':')) {
                        None => String::new(),
                        Some(_) if ["running", "waiting"].contains(&first) => ":<agent>".to_owned(),
                        Some(_) => ":S".to_owned(),
                    };
                    (whose, format!("O:{first}{of}"))
                }
            },
        };
        let Some((layout, fields)) = layouts.iter().find(|(row, _)| *row == layout) else {
            found.unknown.insert(layout);
            continue;
        };
        let kind = format!("{whose}{layout}");
        found.add(format!("{kind} · whole"), &key, None);
        let members = match texts(command(server, &[b"TYPE", &key]).await).remove(0).as_slice() {
            b"hash" => texts(command(server, &[b"HKEYS", &key]).await),
            b"zset" => texts(command(server, &[b"ZRANGE", &key, b"0", b"-1"]).await),
            b"set" => texts(command(server, &[b"SMEMBERS", &key]).await),
            _ => continue,
        };
        for member in members {
            let text = String::from_utf8_lossy(&member).into_owned();
            let class = match layout.as_str() {
                "O:doc" | "O:keys" | "O:gone" => record_kinds::kind_of_document(&documents, &text),
                "O:session:S" | "O:count" => Some(text.clone()).filter(|text| fields.contains(text.as_str())),
                _ => Some("each".to_owned()),
            };
            match class {
                Some(class) => found.add(format!("{kind} · {class}"), &key, Some(&member)),
                None => drop(found.unknown.insert(format!("{kind} · {text}"))),
            }
        }
    }
    let rows: Vec<_> = layouts.into_iter().map(|(row, _)| row).chain(documents).collect();
    found.cases(&rows, |(_, field)| field.is_some())
}

async fn strike_redis(server: &RedisServer, case: &Case, key: &[u8]) {
    let Some(field) = &case.field else {
        command(server, &[b"DEL", key]).await;
        if case.blow == Blow::Junk {
            command(server, &[b"SET", key, b"junk"]).await;
        }
        return;
    };
    let changed = match case.blow {
        Blow::Deleted => None,
        Blow::Cut => Some(cut(field)),
        Blow::Junk => Some(JUNK.to_vec()),
    };
    match texts(command(server, &[b"TYPE", key]).await).remove(0).as_slice() {
        b"hash" => {
            let value = texts(command(server, &[b"HGET", key, field]).await).pop().unwrap_or_default();
            match case.blow {
                Blow::Deleted => command(server, &[b"HDEL", key, field]).await,
                Blow::Cut => command(server, &[b"HSET", key, field, &cut(&value)]).await,
                Blow::Junk => command(server, &[b"HSET", key, field, JUNK]).await,
            };
        }
        b"zset" => {
            let score = texts(command(server, &[b"ZSCORE", key, field]).await).pop().unwrap_or_else(|| b"0".to_vec());
            command(server, &[b"ZREM", key, field]).await;
            if let Some(member) = changed {
                command(server, &[b"ZADD", key, &score, &member]).await;
            }
        }
        _ => {
            command(server, &[b"SREM", key, field]).await;
            if let Some(member) = changed {
                command(server, &[b"SADD", key, &member]).await;
            }
        }
    }
}

/// Copies every key under a prefix to another.
async fn copy_keys(server: &RedisServer, from: &str, to: &str) {
    let script = "for _, key in ipairs(redis.call('KEYS', ARGV[1] .. ':*')) do
        redis.call('COPY', key, ARGV[2] .. string.sub(key, #ARGV[1] + 1)) end";
    command(server, &[b"EVAL", script.as_bytes(), b"0", from.as_bytes(), to.as_bytes()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_loss_of_a_record_of_redis_is_silent() {
    let Some(server) = &RedisServer::start() else { return };
    let (clock, dir) = (Clock::manual(START), tempfile::tempdir().unwrap());
    let options = server.options(ServerOrInjected::Injected);
    let prefix = options.prefix.clone();
    let queue = EmbeddedStore::open(&dir.path().join("queue")).unwrap();
    let bus = LoadingQueue::new(queue, clock.clone());
    let store = RedisStore::open(options).await.unwrap();
    let venue = busy_venue::venue(store, bus.clone(), dir.path(), &hanging(), clock).await;
    let scene = make(&venue, &bus).await;
    let now = venue.venue.now();
    drop((venue, bus));
    let cases = redis_cases(server, &prefix).await;
    let (prefix, scene, dir) = (&prefix, &scene, dir.path());
    judge(cases, |case| async move {
        let mut options = server.options(ServerOrInjected::Injected);
        copy_keys(server, prefix, &options.prefix).await;
        let key = [options.prefix.as_bytes(), &case.key[prefix.len()..]].concat();
        strike_redis(server, &case, &key).await;
        let own = tempfile::tempdir().unwrap();
        copy_folder(&dir.join("queue"), &own.path().join("queue"));
        options.connections = 1;
        let clock = Clock::manual(now.plus(Duration::from_mins(1)));
        let queue = EmbeddedStore::open(&own.path().join("queue")).unwrap();
        let bus = LoadingQueue::new(queue, clock.clone());
        // One that isn't opened has said so.
        let store = match RedisStore::open(options).await {
            Err(error) => return said(&error),
            Ok(store) => store,
        };
        if let Err(error) = trellis::venue::load_or_make_key(&*store, clock.now()).await {
            return said(&error);
        }
        examine(busy_venue::venue(store, bus, own.path(), RULES, clock).await, scene).await
    })
    .await;
}

const SPACES: [&str; 4] = ["docs", "mail", "core", "queue"];

/// The layout of a key of an embedded store, and whose it is.
fn embedded_kind(space: &str, key: &[u8], documents: &[String]) -> Option<Result<String, String>> {
    let parts: Vec<_> = key.split(|byte| *byte == 0).map(|part| String::from_utf8_lossy(part).into_owned()).collect();
    let letter = parts[0].chars().next().unwrap_or_default();
    let owner =
        if ["docs", "mail"].contains(&space) { parts[0].as_str() } else { parts[0].get(1..).unwrap_or_default() };
    let of_all = ["n", "u"].contains(&parts[0].as_str()) || space == "queue";
    let whose = if of_all { "" } else { whose(owner)? };
    let layout = match (space, letter) {
        ("docs", _) => match record_kinds::kind_of_document(documents, &parts[1]) {
            Some(kind) => format!("O\\0<document key> · {kind}"),
            None => return Some(Err(parts[1].clone())),
        },
        ("mail", _) => "O\\0S\\0<order>\\0<event id>".to_owned(),
        ("core", 'n') => "n".to_owned(),
        ("core", 'u') if of_all => "uO · all".to_owned(),
        ("core", 'o' | 'u' | 'f') => format!("{letter}O"),
        ("core", 's') => "sO\\0S".to_owned(),
        ("core", 'p') => {
            let part = parts[2].chars().next().unwrap_or_default();
            format!("pO\\0S\\0{}", if part == 'c' { "c<index u32>".to_owned() } else { part.to_string() })
        }
        ("core", 'd') => "dO\\0<event id>".to_owned(),
        ("core", 'x') => "xO\\0<outbox id>".to_owned(),
        ("core", 'g') => "gO\\0<deleted-at ms u64><document key>".to_owned(),
        ("queue", letter) => format!("{letter}<sequence u64>"),
        _ => return Some(Err(parts[0].clone())),
    };
    Some(Ok(format!("{whose}{space} {layout}")))
}

fn embedded_cases(dir: &Path) -> Vec<Case> {
    let documents = record_kinds::documents();
    let database = fjall::Database::builder(dir.join("db")).open().unwrap();
    let mut found = Found::default();
    for space in SPACES {
        let keyspace = database.keyspace(space, fjall::KeyspaceCreateOptions::default).unwrap();
        for item in keyspace.iter() {
            let (key, _) = item.into_inner().unwrap();
            match embedded_kind(space, &key, &documents) {
                Some(Ok(kind)) => found.add(kind, &key, Some(space.as_bytes())),
                Some(Err(key)) => drop(found.unknown.insert(format!("{space} {key}"))),
                None => {}
            }
        }
    }
    let rows: Vec<_> =
        record_kinds::embedded().into_iter().map(|(space, row)| format!("{space} {row}")).chain(documents).collect();
    found.cases(&rows, |_| true)
}

fn strike_embedded(dir: &Path, case: &Case) {
    let database = fjall::Database::builder(dir.join("db")).open().unwrap();
    let space = String::from_utf8(case.field.clone().unwrap()).unwrap();
    let keyspace = database.keyspace(&space, fjall::KeyspaceCreateOptions::default).unwrap();
    let value = keyspace.get(&case.key).unwrap().unwrap();
    match case.blow {
        Blow::Deleted => keyspace.remove(case.key.clone()).unwrap(),
        Blow::Cut => keyspace.insert(case.key.clone(), cut(&value)).unwrap(),
        Blow::Junk => keyspace.insert(case.key.clone(), JUNK).unwrap(),
    }
    database.persist(fjall::PersistMode::SyncAll).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_loss_of_a_record_of_an_embedded_store_is_silent() {
    let (clock, dir) = (Clock::manual(START), tempfile::tempdir().unwrap());
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let bus = LoadingQueue::new(store.clone(), clock.clone());
    let venue = busy_venue::venue(store, bus.clone(), dir.path(), &hanging(), clock).await;
    let scene = make(&venue, &bus).await;
    let now = venue.venue.now();
    drop((venue, bus));
    std::fs::remove_file(dir.path().join("calls.jsonl")).unwrap();
    let cases = embedded_cases(dir.path());
    let (scene, dir) = (&scene, dir.path());
    judge(cases, |case| async move {
        let own = tempfile::tempdir().unwrap();
        copy_folder(dir, own.path());
        strike_embedded(own.path(), &case);
        let clock = Clock::manual(now.plus(Duration::from_mins(1)));
        // One that isn't opened has said so.
        let Ok(store) = EmbeddedStore::open(own.path()) else { return Ok(()) };
        if trellis::venue::load_or_make_key(&*store, clock.now()).await.is_err() {
            return Ok(());
        }
        let bus = LoadingQueue::new(store.clone(), clock.clone());
        examine(busy_venue::venue(store, bus, own.path(), RULES, clock).await, scene).await
    })
    .await;
}
