//! Commands that work on a store never make one: a wrong folder is an error, and no empty venue.

use crate::support::cli::{Up, run};
use std::path::Path;

/// Commands that open the configured store, with what they are called with.
const COMMANDS: [&[&str]; 9] = [
    &["audit"],
    &["audit", "--repair"],
    &["audit", "--settle"],
    &["audit", "--after-loss"],
    &["doctor"],
    &["backup", "nightly"],
    &["worker", "list"],
    &["worker", "drain", "one"],
    &["secret", "rotate"],
];

/// Names below a folder, at any depth.
fn count_entries(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| 1 + if path.is_dir() { count_entries(&path) } else { 0 }).sum()
}

#[test]
fn a_folder_without_a_store_is_an_error_and_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    for command in COMMANDS {
        for (place, folder) in [
            (&[][..], "trellis-data"),
            (&["--set", "store.url=embedded:nosuch"], "nosuch"),
            (&["--set", "store.url=embedded:empty"], "empty"),
            (&["--data", "nosuch"], "nosuch"),
        ] {
            let done = run(dir.path(), &[command, place, &["--set", "http.listen=127.0.0.1:0"]].concat());
            assert_eq!((done.code, done.out.as_str()), (5, ""), "{command:?} {place:?}: {done:?}");
            let said = done.err.contains("there is no store at `") && done.err.contains(&format!("{folder}`"));
            assert!(said && done.err.contains("`--set store.url=embedded:DIR`"), "{command:?} {place:?}: {done:?}");
            assert_eq!(count_entries(dir.path()), 1, "{command:?} {place:?} makes nothing");
        }
    }
    run(dir.path(), &["audit", "--data", "empty", "--url", "http://127.0.0.1:1"]).expect(2, "cannot be used with");
}

#[test]
fn the_folder_of_up_is_the_folder_of_the_commands() {
    let mut up = Up::start();
    up.agent("echo", "echo");
    up.run(&["submit", "echo", "x", "--wait=60s"]).ok();
    let listen = format!("http.listen={}", up.url.trim_start_matches("http://"));
    for is_running in [true, false] {
        let with_data = |args: &[&str]| run(up.dir.path(), &[args, &["--data", "data", "--set", &listen]].concat());
        assert!(with_data(&["audit"]).ok().contains("accepted = 1\n"), "{is_running}");
        assert!(with_data(&["doctor"]).ok().contains("embedded durability"), "{is_running}");
        let made = with_data(&["backup", &format!("running-{is_running}")]).ok();
        assert!(made.contains("data/backups/running-"), "{made}");
        if is_running {
            up.process.signal("TERM");
            up.process.ended();
        }
    }
    let copy = ["audit", "--data", "data/backups/running-true"];
    assert!(run(up.dir.path(), &copy).ok().contains("accepted = 1\n"));
}
