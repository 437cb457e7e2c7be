//! Blocks of the pages: shell, JSON and TOML that their readers accept.

use super::{Block, blocks, blocks_in, pages, read};
use crate::support::api_tools::{python, run};
use crate::support::cli::{Up, run as run_command};
use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Stdio};

/// The blocks of all pages in one language.
fn all_in(language: &str) -> Vec<Block> {
    pages().iter().flat_map(|page| blocks(page)).filter(|block| block.language == language).collect()
}

#[test]
fn shell_blocks_are_legal_shell() {
    let found = all_in("sh");
    assert!(found.len() > 100, "{} blocks", found.len());
    for block in found {
        let mut shell = Command::new("bash").arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        shell.stdin.take().unwrap().write_all(block.text.as_bytes()).unwrap();
        let output = shell.wait_with_output().unwrap();
        assert!(output.status.success(), "{}: {}", block.place, String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn json_blocks_are_legal_json() {
    for block in all_in("json") {
        let read: Result<Value, _> = serde_json::from_str(&block.text);
        assert!(read.is_ok(), "{}: {read:?}", block.place);
    }
}

/// The file of an agent that a block shows a part of.
fn whole_agent(block: &Block) -> Value {
    let table: toml::Table = block.text.parse().unwrap_or_else(|error| panic!("{}: {error}", block.place));
    let mut agent = serde_json::to_value(table).unwrap();
    let model = agent.as_object_mut().unwrap().entry("model").or_insert_with(|| json!({}));
    if let Some(model) = model.as_object_mut() {
        model.entry("provider").or_insert_with(|| "scripted".into());
        model.entry("name").or_insert_with(|| "echo".into());
    }
    agent
}

#[test]
fn toml_blocks_are_agents_or_settings() {
    let up = Up::start();
    for block in all_in("toml") {
        up.file("block.toml", &block.text);
        let settings = run_command(up.dir.path(), &["config", "check", "--config", "block.toml"]);
        if settings.code == 0 {
            continue;
        }
        up.file("block.json", &whole_agent(&block).to_string());
        let agent = up.run(&["agent", "apply", "--dry-run", "block.json"]);
        assert!(agent.code == 0, "{}: as an agent: {}\nas settings: {}", block.place, agent.err, settings.err);
    }
}

#[test]
fn the_go_block_is_legal_go() {
    let Some(python) = python("python3") else { return };
    let dir = tempfile::tempdir().unwrap();
    for block in blocks_in("src/guide/snippets.md", "go") {
        std::fs::write(dir.path().join("block.go"), &block.text).unwrap();
        std::fs::write(dir.path().join("check.py"), read("tests/clients/go_syntax.py")).unwrap();
        run(dir.path(), &python, &["check.py", "block.go"]);
    }
}
