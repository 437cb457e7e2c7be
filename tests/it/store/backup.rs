//! Backups of both backends through the binary: restored into a new place they go on, and what came later is told.

use crate::support::cli::{Process, Up, run};
use crate::support::fleet::Fleet;
use crate::support::nats;
use crate::support::port;
use crate::support::redis::RedisServer;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use trellis::venue::operation::Effect;

fn books(done: &str) -> Value {
    serde_json::from_str(done).unwrap()
}

/// The books once this many jobs have completed.
fn completed(what: &str, n: u64, audit: impl Fn() -> Value) -> Value {
    let began = Instant::now();
    loop {
        let books = audit();
        if books["completed"] == n {
            return books;
        }
        assert!(began.elapsed() < Duration::from_mins(1), "{what}: {books}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

#[test]
fn an_embedded_store_is_backed_up_while_it_works() {
    let mut up = Up::start();
    up.agent("echo", "echo");
    up.agent("slow", "[[rule]]\nthen = { text = \"done\", delay_ms = 3000 }\n");
    for n in 0..20 {
        up.run(&["submit", "echo", "x", "--id", &format!("before-{n}"), "--wait=30s"]).ok();
    }
    // In the middle of turns, and with some that wait.
    for n in 0..3 {
        up.run(&["submit", "slow", "x", "--id", &format!("slow-{n}")]).ok();
    }
    let made = books(&up.run(&["backup", "first", "--output", "json"]).ok());
    let path = up.dir.path().join("data/backups/first");
    assert!(made["path"].as_str().unwrap().ends_with("data/backups/first") && made["records"].as_u64() > Some(100));
    for n in 0..5 {
        up.run(&["submit", "echo", "x", "--id", &format!("after-{n}"), "--wait=30s"]).ok();
    }
    up.run(&["backup", "first"]).expect(6, "there is a backup `data/backups/first`: give another name, or delete it");
    up.run(&["backup", "../x"]).expect(2, "the name of a backup has up to 64 letters");
    let names: Vec<_> = std::fs::read_dir(&path).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(names, ["db"], "no key of secrets, and no lock");

    let restored = tempfile::tempdir().unwrap();
    copy(&path, &restored.path().join("data"));
    copy(&up.dir.path().join("slow.rules"), restored.path());
    let half_made = restored.path().join("data/backups/.half");
    std::fs::create_dir_all(half_made.join("db")).unwrap();
    let listen = format!("127.0.0.1:{}", port::lasting());
    let args = ["up", "--data", "data", "--listen", &listen, "--set", "models.scripted=."];
    let mut process = Process::start(restored.path(), args);
    let url = process.says("HTTP API on ").split(' ').next().unwrap().to_owned();
    let there = |args: &[&str]| run(restored.path(), &[args, &["--url", &url]].concat());
    let audit = |args: &[&str]| books(&there(&[&["audit", "--output", "json"], args].concat()).ok());
    assert!(!half_made.exists(), "what a crash left of a backup is removed");
    let found = completed("the copy goes on", 23, || audit(&[]));
    assert_eq!((&found["accepted"], &found["unaccounted"]), (&23.into(), &0.into()), "{found}");
    assert_eq!(audit(&["--after-loss"])["setBack"], serde_json::json!([]), "its queue is as old as it");
    // One that it knows is the same job; one that came later is new to it.
    assert_eq!(there(&["submit", "echo", "x", "--id", "before-1", "--wait=30s"]).ok(), "x");
    assert_eq!(there(&["submit", "echo", "x", "--id", "after-1", "--wait=30s"]).ok(), "x");
    assert_eq!(audit(&[])["accepted"], 24);
    process.signal("TERM");
    assert_eq!(process.ended().code(), Some(0), "{}", process.log());

    // The store itself has gone on, and is copied without a process, too.
    completed("the store goes on", 28, || books(&up.run(&["audit", "--output", "json"]).ok()));
    up.process.signal("TERM");
    up.process.ended();
    let here = run(up.dir.path(), &["backup", "second", "--set", "store.url=embedded:data"]).ok();
    assert!(here.contains("data/backups/second: "), "{here}");
    let audit = run(up.dir.path(), &["audit", "--output", "json", "--set", "store.url=embedded:data/backups/second"]);
    assert_eq!(books(&audit.ok())["completed"], 28);
}

/// A copy that held its own call as begun would have the restored store ask what came of it.
#[test]
fn a_backup_is_no_call_whose_begin_a_copy_holds() {
    let catalog = trellis::ops::catalog(false).compiled_view();
    let made = catalog.operations().find(|found| *found.spec.path == *"v/ops/venue/backup").unwrap();
    assert_eq!(made.spec.effect, Effect::Idempotent);
}

/// Points a fleet's configuration elsewhere.
fn change(fleet: &Fleet, from: &str, to: &str) {
    let file = fleet.path().join("fleet.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(file, text.replace(from, to)).unwrap();
}

async fn folder(server: &RedisServer) -> String {
    let found: Vec<String> = redis::from_redis_value(server.command(&["CONFIG", "GET", "dir"]).await.unwrap()).unwrap();
    found[1].clone()
}

/// A new server with what lies in `dump`, which then keeps a log: with one from the start it would begin empty.
async fn restored(dump: &Path) -> RedisServer {
    let mut server = RedisServer::start_with(&["--appendonly", "no"]).unwrap();
    let dir = folder(&server).await;
    server.kill();
    copy(dump, &Path::new(&dir).join("dump.rdb"));
    assert!(server.start_again());
    server.command(&["CONFIG", "SET", "appendonly", "yes"]).await.unwrap();
    while !server.text(&["INFO", "persistence"]).await.contains("aof_rewrite_in_progress:0") {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server
}

fn ends(processes: [Process; 2]) {
    for mut process in processes {
        process.signal("TERM");
        assert_eq!(process.ended().code(), Some(0), "{}", process.log());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_backup_works_with_the_current_and_a_new_queue() {
    let (Some(server), Some(nats)) = (RedisServer::start(), nats::shared()) else { return };
    let fleet = Fleet::new(nats, &server);
    let (worker, serve, url) = fleet.start_all();
    run(fleet.path(), &["agent", "apply", "echo.toml", "--url", &url]).ok();
    let submit = |id: &str| fleet.publish(&["submit", "echo", id, "--id", id, "--wait=30s"]);
    let audit = |args: &[&str]| fleet.run(&[&["audit", "--output", "json"], args].concat());
    for n in 0..5 {
        submit(&format!("before-{n}")).ok();
    }
    // The store's epoch is written with the auditor's beat; without one there is nothing to compare.
    completed("before", 5, || books(&audit(&[]).ok()));
    let dump = fleet.path().join("dump.rdb");
    let port = server.port().to_string();
    let copied = Command::new("redis-cli").args(["-p", &port, "--rdb"]).arg(&dump).output().unwrap();
    assert!(copied.status.success(), "{copied:?}");
    for n in 0..3 {
        submit(&format!("after-{n}")).ok();
    }
    completed("after", 8, || books(&audit(&[]).ok()));
    ends([worker, serve]);
    let old = server.url();
    drop(server);

    // The queue of today knows more than the backup.
    let server = restored(&dump).await;
    change(&fleet, &old, &server.url());
    let lost = audit(&["--after-loss"]).expect(1, "not everything is accounted for");
    let found = books(&lost.out);
    assert_eq!(found["missing"].as_array().map(Vec::len), Some(3), "{found}");
    assert_eq!((&found["completed"], &found["unknown"]), (&5.into(), &3.into()), "{found}");
    let (worker, serve, _) = fleet.start_all();
    submit("later").ok();
    // Sent again under the id that it had, what was lost is done.
    submit("after-0").ok();
    let found = completed("with the queue of today", 7, || books(&audit(&[]).out));
    assert_eq!((&found["accepted"], &found["unknown"]), (&7.into(), &2.into()), "{found}");
    ends([worker, serve]);

    // A new queue knows nothing, and says so by being empty.
    let again = restored(&dump).await;
    change(&fleet, &server.url(), &again.url());
    let prefix = nats::fresh_prefix();
    change(&fleet, &format!("prefix = \"{}\"", fleet.prefix), &format!("prefix = \"{prefix}\""));
    audit(&["--after-loss"]).expect(6, "`bus.prefix = ");
    change(&fleet, "[bus]", "[venue]\nadopt = true\n[bus]");
    let found = books(&audit(&["--after-loss"]).ok());
    assert_eq!((&found["completed"], &found["unknown"], &found["unaccounted"]), (&5.into(), &0.into(), &0.into()));
    let (worker, serve, _) = fleet.start_all();
    submit("later").ok();
    submit("before-1").ok();
    assert_eq!(books(&audit(&[]).ok())["completed"], 6);
    ends([worker, serve]);
    fleet.run(&["backup"]).expect(6, "`redis-cli --rdb FILE`");
}

#[test]
fn a_restore_without_the_key_file_names_lost_secrets() {
    let mut up = Up::start();
    up.file("value", "open sesame");
    up.run(&["secret", "set", "door", "@value"]).ok();
    let listed = up.run(&["secret", "list"]).ok();
    assert!(listed.contains("door") && !listed.contains("CAN'T BE OPENED"), "{listed}");
    up.process.signal("TERM");
    up.process.ended();
    let (key, aside) = (up.dir.path().join("data/secrets.key"), up.dir.path().join("aside.key"));
    std::fs::rename(&key, &aside).unwrap();
    up.start_again();
    up.process.says("no key for secrets is made: 1 secrets of 1 owners can't be opened");
    assert!(!key.exists(), "one that is made now would stand in the place of the one that is put back");
    let listed = up.run(&["secret", "list"]).ok();
    assert!(listed.contains("CAN'T BE OPENED: sealed with key "), "{listed}");
    up.process.signal("TERM");
    up.process.ended();
    std::fs::rename(&aside, &key).unwrap();
    up.start_again();
    let listed = up.run(&["secret", "list"]).ok();
    assert!(listed.contains("door") && !listed.contains("CAN'T BE OPENED"), "{listed}");
}
