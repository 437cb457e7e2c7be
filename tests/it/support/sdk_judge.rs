//! The official SDKs as judges of requests and as readers of streams (`tests/clients/sdk_judge.py`).

use super::python;
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// An API that has an official SDK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sdk {
    OpenAi,
    Responses,
    Anthropic,
    Gemini,
}

impl Sdk {
    fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Responses => "responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
        }
    }

    /// What is wrong with each body, in their order; `None` without the SDKs. One process for all.
    pub fn check(self, bodies: &[Value]) -> Option<Vec<Vec<String>>> {
        let lines: Vec<String> = bodies.iter().map(|body| format!("{body}\n")).collect();
        let found = run(&["check", self.name()], &lines.concat())?;
        assert_eq!(found.len(), bodies.len(), "each body is judged");
        Some(found.into_iter().map(|list| serde_json::from_value(list).unwrap()).collect())
    }

    /// What the official client makes of the stream that each base URL answers with; `None` without the SDKs.
    pub fn read(self, urls: &[String]) -> Option<Vec<Value>> {
        let args: Vec<&str> = ["read", self.name()].into_iter().chain(urls.iter().map(String::as_str)).collect();
        let found = run(&args, "")?;
        assert_eq!(found.len(), urls.len(), "each stream is read");
        Some(found)
    }
}

fn run(args: &[&str], input: &str) -> Option<Vec<Value>> {
    static PYTHON: OnceLock<Option<PathBuf>> = OnceLock::new();
    let python = PYTHON.get_or_init(|| python::with("openai, anthropic, google.genai")).as_ref()?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/sdk_judge.py");
    let mut command = Command::new(python);
    command.arg(script).args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    // Both pipes may be full.
    let writing = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stdout));
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}
