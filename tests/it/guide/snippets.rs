//! *Call agents from a program*: each block as it is printed, against a fleet.

use super::{blocks_in, has_programs, read, run_as_reader, rust_client, stdout_of};
use crate::support::api_tools::NODE;
use crate::support::cli::Process;
use crate::support::fleet::Fleet;
use crate::support::{nats, python};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PAGE: &str = "src/guide/snippets.md";

/// A fleet with the three agents of the page.
struct PageFleet {
    fleet: Fleet,
    _processes: (Process, Process),
    /// `http://127.0.0.1:PORT`.
    url: String,
}

impl PageFleet {
    /// Makes the agents by the page's own first block. `None` without the servers.
    fn start() -> Option<Self> {
        if !has_programs(&["bash", "curl", "jq"]) {
            return None;
        }
        let fleet = nats::shared().and_then(Fleet::on_shared_redis)?;
        let (worker, serve, url) = fleet.start_all();
        let fleet = Self { fleet, _processes: (worker, serve), url };
        fleet.shell(&blocks_in(PAGE, "sh")[0].text);
        Some(fleet)
    }

    /// A block with the addresses and the first token of subjects of this fleet.
    fn with_addresses(&self, text: &str) -> String {
        let mut text =
            text.replace("http://127.0.0.1:8420", &self.url).replace("nats://127.0.0.1:4222", &self.fleet.nats);
        for verb in ["in", "do", "out", "ask"] {
            text = text.replace(&format!("trellis.{verb}."), &format!("{}.{verb}.", self.fleet.prefix));
        }
        text
    }

    /// Runs a block in a shell that ends at the first error. Returns what it printed.
    fn shell(&self, text: &str) -> String {
        let text = self.with_addresses(text);
        let output = run_as_reader(self.fleet.path(), &self.url, Path::new("bash"), &["-euo", "pipefail", "-c", &text]);
        stdout_of(text.lines().next().unwrap_or_default(), &output)
    }

    /// Runs a block from a file. Returns what it printed.
    fn program(&self, program: &Path, file: &str, text: &str) -> String {
        std::fs::write(self.fleet.path().join(file), self.with_addresses(text)).unwrap();
        stdout_of(file, &run_as_reader(self.fleet.path(), &self.url, program, &[file]))
    }
}

/// Checks that the ends of the three tasks are there, in their order.
#[track_caller]
fn tells_all_ends(said: &str) {
    let mut rest = said;
    for end in ["Say hello", "CANCELLED", "paid"] {
        let at = rest.find(end).unwrap_or_else(|| panic!("no `{end}` in its place in: {said}"));
        rest = &rest[at + end.len()..];
    }
}

#[test]
fn the_curl_block_works_as_pasted() {
    let Some(fleet) = PageFleet::start() else { return };
    let blocks = blocks_in(PAGE, "sh");
    assert_eq!(blocks.len(), 2, "one that makes the agents, one of curl");
    let said = fleet.shell(&blocks[1].text);
    tells_all_ends(&said);
    assert!(said.contains("event: job-update"), "{said}");
}

#[test]
fn the_python_blocks_work_as_pasted() {
    let Some(python) = python::with("nats, httpx") else { return };
    let Some(fleet) = PageFleet::start() else { return };
    let blocks = blocks_in(PAGE, "python");
    assert_eq!(blocks.len(), 2, "HTTP and NATS");
    for (at, block) in blocks.iter().enumerate() {
        tells_all_ends(&fleet.program(&python, &format!("block{at}.py"), &block.text));
    }
}

#[test]
fn the_javascript_blocks_work_as_pasted() {
    if !has_programs(&["node"]) {
        return;
    }
    let package = PathBuf::from(NODE).join("@nats-io/transport-node");
    if !package.exists() {
        let text = format!("no {}; `tests/run.sh` installs it", package.display());
        assert!(std::env::var_os("CI").is_none(), "{text}");
        println!("skipped: {text}");
        return;
    }
    let Some(fleet) = PageFleet::start() else { return };
    std::os::unix::fs::symlink(NODE, fleet.fleet.path().join("node_modules")).unwrap();
    let blocks = blocks_in(PAGE, "js");
    assert_eq!(blocks.len(), 2, "HTTP and NATS");
    for (at, block) in blocks.iter().enumerate() {
        tells_all_ends(&fleet.program(Path::new("node"), &format!("block{at}.mjs"), &block.text));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_functions_of_the_rust_block_work() {
    let file = read("tests/it/guide/rust_client.rs");
    let blocks = blocks_in(PAGE, "rust");
    assert!(blocks.len() == 1 && blocks[0].text == file, "the page and tests/it/guide/rust_client.rs differ");
    let Some(fleet) = PageFleet::start() else { return };
    let client = async_nats::connect(&fleet.fleet.nats).await.unwrap();
    let api = format!("{}/api/v1", fleet.url);
    let subject = |agent: &str| format!("{}.do.local.me.{agent}.task", fleet.fleet.prefix);

    let job = rust_client::submit(&client, &subject("helper"), "r1", &json!("Say hello")).await.unwrap();
    assert_eq!(rust_client::wait(&api, &job).await.unwrap()["output"], "Say hello");
    let refused = rust_client::submit(&client, &subject("nobody"), "r2", &json!(1)).await.unwrap_err().to_string();
    assert!(refused.contains("no such agent"), "{refused}");

    let job = rust_client::submit(&client, &subject("sleeper"), "r3", &json!("Sleep")).await.unwrap();
    assert_eq!(rust_client::cancel(&api, &job).await.unwrap()["status"], "CANCELLED");

    let job = rust_client::submit(&client, &subject("payer"), "r4", &json!("Pay")).await.unwrap();
    while !rust_client::approve(&api, &job).await.unwrap() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(rust_client::wait(&api, &job).await.unwrap()["output"], "paid");
}

#[test]
fn what_other_pages_take_from_the_snippets_is_there() {
    let (snippets, first) = (read(PAGE), read("src/guide/first-agent.md"));
    for block in blocks_in("src/guide/coming-from.md", "toml") {
        assert!(snippets.contains(&block.text), "{}: is not in {PAGE}", block.place);
    }
    let own: Vec<_> = blocks_in("src/guide/coming-from.md", "python")
        .into_iter()
        .filter(|block| block.text.contains("api.post"))
        .collect();
    assert!(own.len() == 1 && snippets.contains(&own[0].text), "coming-from.md has another `submit` than {PAGE}");
    assert!(first.contains("trellis agent apply clerk.toml"));
}
