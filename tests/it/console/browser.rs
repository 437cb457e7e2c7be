//! A person at the console in a real browser; the pictures lie in the target folder.

use crate::support::cli::{Up, command_of};
use crate::support::python;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/console_browser.py");

/// The file of axe-core, which judges pages.
const AXE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/.tools/axe/node_modules/axe-core/axe.min.js");

const RULES: &str = r#"
[[rule]]
when = { agent = "slow" }
then = { text = "INV-1004 is paid: nothing is left to do", delay_ms = 1500, stream_chunk_ms = 50 }

[[rule]]
when = { agent = "payer", turn = 1 }
then = { calls = [{ tool = "pay", arguments = { path = "w/paid", value = 100 } }] }

[[rule]]
when = { agent = "broken" }
then = { fault = "bad_request" }

[[rule]]
when = { agent = "hostile" }
then = { text = "<script>document.title='owned'</script> \u202e1004" }

[[rule]]
then = { text = "done" }
"#;

/// Definitions of the agents, without their model.
const AGENTS: [(&str, &str); 4] = [
    (
        "slow",
        "context = [\"w/rule\", \"w/pay/salaries\"]\ncaps = [{ with = \"w/rule\", can = \"crud/read\" }]\nsystemPrompt = \"You check invoices.\"\n",
    ),
    ("payer", "[[tools]]\noperation = \"v/ops/lattice/append\"\nname = \"pay\"\napproval = \"ask\"\n"),
    ("broken", ""),
    ("hostile", ""),
];

/// Whether Chromium of the system and axe-core are there.
fn has_chromium() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|dir| dir.join("chromium").is_file()) && Path::new(AXE).is_file();
    assert!(is_there || std::env::var_os("CI").is_none(), "no chromium or no axe-core; `tests/run.sh` installs them");
    is_there
}

fn pictures() -> PathBuf {
    let binary = Path::new(env!("CARGO_BIN_EXE_trellis"));
    let folder = binary.parent().unwrap().join("console");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn a_person_works_at_the_console() {
    if !has_chromium() {
        return;
    }
    let Some(python) = python::with("playwright") else { return };
    let mut up = Up::start();
    up.file("rules.toml", RULES);
    for (name, rest) in AGENTS {
        let model = "model = { provider = \"scripted\", name = \"rules.toml\" }\n";
        up.file(&format!("{name}.toml"), &format!("{model}{rest}"));
        up.run(&["agent", "apply", &format!("{name}.toml")]).ok();
    }
    up.run(&["lattice", "write", "w/rule", "\"Pay on the last day.\""]).ok();
    up.run(&["lattice", "write", "w/pay/salaries", "\"99,000\""]).ok();
    up.run(&["timer", "set", "slow", "go", "--cron", "0 9 * * MON-FRI", "--timezone", "Europe/Berlin"]).ok();
    up.run(&["timer", "set", "slow", "go", "--every", "1h"]).ok();
    let mut person = command_of(&python, up.dir.path());
    person.args([CLIENT, &up.url]).arg(pictures()).arg(AXE);
    let mut person = person.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(person.stdout.take().unwrap()).lines();
    let mut errors = person.stderr.take().unwrap();
    let errors = std::thread::spawn(move || {
        let mut text = String::new();
        errors.read_to_string(&mut text).map(|_| text)
    });
    let line = said.next().map(Result::unwrap).unwrap_or_default();
    if line == "kill" {
        up.process.signal("KILL");
        up.process.ended();
        std::thread::sleep(std::time::Duration::from_secs(4));
        up.start_again();
        writeln!(person.stdin.take().unwrap(), "again").unwrap();
    }
    let rest: Vec<String> = said.map(Result::unwrap).collect();
    let ended = person.wait().unwrap();
    let errors = errors.join().unwrap().unwrap();
    assert!(ended.success() && rest == ["ok"], "{line} {rest:?}\n{errors}\n{}", up.process.log());
}
