//! The destroyer: one record of each kind is deleted, cut or replaced by junk, one at a time. Others are served, and
//! within a minute the change is mended, or the audit names it and ends with 1, or it is harmless.

use super::scene::{HANGING, RULES, START, Scene, finish, live, make, serves_others};
use super::{Blow, command, texts};
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use futures::{StreamExt, stream};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::embedded::EmbeddedBus;
use trellis::process::clock::Clock;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::redis::{RedisStore, ServerOrInjected};
use trellis::upkeep::audit;

/// Cases at a time: mostly they wait.
const AT_ONCE: usize = 12;

/// Kinds whose loss may be silent, and why that is harmless.
const HARMLESS: &[(&str, &str)] = &[];

/// One record of a kind, and what is done to it.
#[derive(Debug, Clone)]
struct Case {
    kind: String,
    key: Vec<u8>,
    /// A field or a member; `None`: the whole key.
    field: Option<Vec<u8>>,
    blow: Blow,
}

/// A name without what is different in each venue.
fn mask(name: &str) -> String {
    let each = name.split('/').enumerate().map(|(at, part)| {
        let is_agent = at == 1 && (name.starts_with("g/") || name.starts_with("m.of/"));
        let is_id = part.len() > 20 || part.chars().any(|char| char.is_ascii_digit());
        if is_agent {
            "*"
        } else if is_id {
            "#"
        } else {
            part
        }
    });
    each.collect::<Vec<_>>().join("/")
}

fn cut(value: &[u8]) -> Vec<u8> {
    value[..value.len() / 2].to_vec()
}

const JUNK: &[u8] = b"\x01\xff junk";

/// What is silent or keeps others waiting, by case.
async fn judge<F: Future<Output = Result<(), String>>>(cases: Vec<Case>, run: impl Fn(Case) -> F) {
    let count = cases.len();
    let runs = cases.into_iter().map(|case| {
        let name = format!("{} {:?}", case.kind, case.blow);
        let ran = run(case);
        async move {
            let began = std::time::Instant::now();
            let why = ran.await.err();
            eprintln!("{name}: {:?} {}", began.elapsed(), why.as_deref().unwrap_or("ok"));
            Some((name, why?))
        }
    });
    let wrong: Vec<_> = stream::iter(runs).buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await;
    let is_harmless = |name: &str| HARMLESS.iter().any(|(kind, _)| name.starts_with(kind));
    let mut lines: Vec<_> =
        wrong.iter().filter(|(name, _)| !is_harmless(name)).map(|(name, why)| format!("{name}: {why}")).collect();
    lines.sort();
    assert!(count > 60, "{count} cases");
    assert!(lines.is_empty(), "{} of {count}\n{}", lines.len(), lines.join("\n"));
}

async fn examine(mut venue: TestVenue, scene: &Scene) -> Result<(), String> {
    live(&mut venue).await;
    serves_others(&mut venue).await?;
    let books = audit::all(&venue.venue).await;
    let is_named = books.as_ref().map_or(true, |books| !books.are_closed());
    let whole = if is_named { Ok(()) } else { finish(&venue, scene).await };
    venue.shutdown.run(Duration::from_secs(5)).await;
    whole.map_err(|why| format!("silent: {why}"))
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() { copy(&path, &target) } else { drop(std::fs::copy(&path, &target).unwrap()) }
    }
}

/// One record of each kind under a prefix.
async fn redis_cases(server: &RedisServer, prefix: &str) -> Vec<Case> {
    let mut kinds: BTreeMap<String, (Vec<u8>, Option<Vec<u8>>)> = BTreeMap::new();
    let mut keys = texts(command(server, &[b"KEYS", format!("{prefix}:*").as_bytes()]).await);
    keys.sort();
    for key in keys {
        let name = String::from_utf8_lossy(&key[prefix.len()..]).into_owned();
        let (of, rest) = match name.split_once("}:") {
            Some((_, rest)) => match rest.split_once(':') {
                Some((owner, rest)) if owner == "local/me" => ("O", rest.to_owned()),
                // Of another owner, or of the venue.
                Some(_) => continue,
                None => ("shard", rest.to_owned()),
            },
            None => ("venue", name.clone()),
        };
        let label = format!("{of}:{}", rest.split('/').next().unwrap_or_default());
        kinds.entry(format!("{label} (whole)")).or_insert((key.clone(), None));
        let fields = match texts(command(server, &[b"TYPE", &key]).await).remove(0).as_slice() {
            b"hash" => texts(command(server, &[b"HKEYS", &key]).await),
            b"zset" => texts(command(server, &[b"ZRANGE", &key, b"0", b"-1"]).await),
            _ => Vec::new(),
        };
        for field in fields {
            let text = String::from_utf8_lossy(&field).into_owned();
            let named = rest.starts_with("session:") || rest == "count" || rest == "doc" || rest == "keys";
            let class = if named { mask(&text) } else { "*".to_owned() };
            kinds.entry(format!("{label} {class}")).or_insert((key.clone(), Some(field)));
        }
    }
    let mut cases = Vec::new();
    for (kind, (key, field)) in kinds {
        for blow in [Blow::Deleted, Blow::Cut, Blow::Junk] {
            if field.is_some() || blow != Blow::Cut {
                cases.push(Case { kind: kind.clone(), key: key.clone(), field: field.clone(), blow });
            }
        }
    }
    cases
}

async fn strike_redis(server: &RedisServer, case: &Case, key: &[u8]) {
    let Some(field) = &case.field else {
        command(server, &[b"DEL", key]).await;
        if case.blow == Blow::Junk {
            command(server, &[b"SET", key, b"junk"]).await;
        }
        return;
    };
    let is_hash = texts(command(server, &[b"TYPE", key]).await).remove(0) == b"hash";
    if is_hash {
        let value = texts(command(server, &[b"HGET", key, field]).await).pop().unwrap_or_default();
        match case.blow {
            Blow::Deleted => command(server, &[b"HDEL", key, field]).await,
            Blow::Cut => command(server, &[b"HSET", key, field, &cut(&value)]).await,
            Blow::Junk => command(server, &[b"HSET", key, field, JUNK]).await,
        };
        return;
    }
    let score = texts(command(server, &[b"ZSCORE", key, field]).await).pop().unwrap_or_else(|| b"0".to_vec());
    command(server, &[b"ZREM", key, field]).await;
    match case.blow {
        Blow::Deleted => {}
        Blow::Cut => drop(command(server, &[b"ZADD", key, &score, &cut(field)]).await),
        Blow::Junk => drop(command(server, &[b"ZADD", key, &score, JUNK]).await),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_loss_of_a_record_of_redis_is_silent() {
    let Some(server) = RedisServer::shared() else { return };
    let (venue, dir, prefix) = TestVenue::redis_at(server, HANGING, Clock::manual(START)).await;
    let scene = make(&venue).await;
    drop(venue);
    let cases = redis_cases(server, &prefix).await;
    let (prefix, scene, dir) = (&prefix, &scene, dir.path());
    judge(cases, |case| async move {
        let mut options = server.options(ServerOrInjected::Injected);
        for key in texts(command(server, &[b"KEYS", format!("{prefix}:*").as_bytes()]).await) {
            let to = [options.prefix.as_bytes(), &key[prefix.len()..]].concat();
            command(server, &[b"COPY", &key, &to]).await;
        }
        let key = [options.prefix.as_bytes(), &case.key[prefix.len()..]].concat();
        strike_redis(server, &case, &key).await;
        let own = tempfile::tempdir().unwrap();
        copy(&dir.join("queue"), &own.path().join("queue"));
        options.connections = 1;
        let clock = Clock::manual(START.plus(Duration::from_mins(1)));
        let queue = EmbeddedStore::open(&own.path().join("queue")).unwrap();
        let bus = EmbeddedBus::new(queue, Duration::from_secs(2), clock.clone()).unwrap();
        // One that isn't opened has said so.
        let Ok(store) = RedisStore::open(options).await else { return Ok(()) };
        let venue = TestVenue::at(store, Arc::new(bus), own.path(), RULES, clock).await;
        examine(venue, scene).await
    })
    .await;
}

const SPACES: [&str; 4] = ["docs", "mail", "core", "queue"];

fn embedded_cases(dir: &Path) -> Vec<Case> {
    let database = fjall::Database::builder(dir.join("db")).open().unwrap();
    let mut kinds: BTreeMap<String, (Vec<u8>, Vec<u8>)> = BTreeMap::new();
    for space in SPACES {
        let keyspace = database.keyspace(space, fjall::KeyspaceCreateOptions::default).unwrap();
        for item in keyspace.iter() {
            let (key, _) = item.into_inner().unwrap();
            let parts: Vec<_> = key.split(|byte| *byte == 0).map(|part| String::from_utf8_lossy(part)).collect();
            let kind = match space {
                "docs" if parts[0] == "local/me" => format!("docs {}", mask(&parts[1])),
                "mail" => format!("mail {}", parts[1].split('/').next().unwrap_or_default()),
                "core" | "queue" if !parts[0].contains("_venue") => {
                    let letter = parts[0].chars().next().unwrap_or_default();
                    let of = parts.get(1).map(|session| session.split('/').next().unwrap_or_default());
                    let of = of.filter(|_| letter == 's' || letter == 'p').unwrap_or_default();
                    let part = parts.get(2).filter(|_| letter == 'p').map(|part| &part[..1]).unwrap_or_default();
                    format!("{space} {letter} {of} {part}")
                }
                _ => continue,
            };
            kinds.entry(kind).or_insert((space.as_bytes().to_vec(), key.to_vec()));
        }
    }
    let each = kinds.into_iter().flat_map(|(kind, (space, key))| {
        [Blow::Deleted, Blow::Cut, Blow::Junk].map(|blow| Case {
            kind: kind.clone(),
            key: key.clone(),
            field: Some(space.clone()),
            blow,
        })
    });
    each.collect()
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
    let (venue, dir) = TestVenue::embedded_at(HANGING, Clock::manual(START)).await;
    let scene = make(&venue).await;
    drop(venue);
    let cases = embedded_cases(dir.path());
    let (scene, dir) = (&scene, dir.path());
    judge(cases, |case| async move {
        let own = tempfile::tempdir().unwrap();
        copy(dir, own.path());
        strike_embedded(own.path(), &case);
        let clock = Clock::manual(START.plus(Duration::from_mins(1)));
        // One that isn't opened has said so.
        let Ok(store) = EmbeddedStore::open(own.path()) else { return Ok(()) };
        let Ok(bus) = EmbeddedBus::new(Arc::clone(&store), Duration::from_secs(2), clock.clone()) else {
            return Ok(());
        };
        let venue = TestVenue::at(store, Arc::new(bus), own.path(), RULES, clock).await;
        examine(venue, scene).await
    })
    .await;
}
