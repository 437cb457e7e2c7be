//! The guide, the README and the project's papers: links lead somewhere, blocks are legal, and what is printed works.

mod blocks;
mod first_agent;
mod links;
mod rust_client;
mod snippets;
mod troubleshooting;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A fenced block of a page.
struct Block {
    /// Page, with the line on which the block begins.
    place: String,
    /// Word after the fence; empty without one.
    language: String,
    text: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// All pages, by their paths below the root of the repository.
fn pages() -> Vec<String> {
    let folders = ["src/guide", ".github"];
    let files = folders.iter().flat_map(|folder| {
        let names = std::fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(move |name| format!("{folder}/{}", name.to_string_lossy()))
    });
    let is_page = |path: &String| Path::new(path).extension().is_some_and(|end| end == "md" || end == "txt");
    let mut pages: Vec<String> = files.filter(is_page).chain(["README.md".to_owned()]).collect();
    pages.sort();
    assert!(pages.len() > 30, "{pages:?}");
    pages
}

/// The blocks of a page.
fn blocks(page: &str) -> Vec<Block> {
    let text = read(page);
    let (mut found, mut open): (Vec<Block>, Option<Block>) = (Vec::new(), None);
    for (at, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), open.take()) {
            (Some(language), None) => {
                let place = format!("{page}:{}", at + 1);
                open = Some(Block { place, language: language.trim().to_owned(), text: String::new() });
            }
            (Some(_), Some(block)) => found.push(block),
            (None, Some(mut block)) => {
                block.text.push_str(line);
                block.text.push('\n');
                open = Some(block);
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{page}: the last block isn't closed");
    found
}

/// The blocks of a page in one language.
fn blocks_in(page: &str, language: &str) -> Vec<Block> {
    let mut found = blocks(page);
    found.retain(|block| block.language == language);
    assert!(!found.is_empty(), "{page} has no block in {language}");
    found
}

/// Whether these programs are there; without one (after a printed line) the test is skipped, and fails when `CI` is set.
fn has_programs(names: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &&&str| std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    let missing: Vec<_> = names.iter().filter(|name| !is_there(name)).collect();
    if missing.is_empty() {
        return true;
    }
    assert!(std::env::var_os("CI").is_none(), "the guide's commands need {missing:?}: install them");
    println!("skipped: the guide's commands need {missing:?}");
    false
}

/// Runs a program as a reader of the guide does: with `trellis` in the path, in a folder, against a venue.
fn run_as_reader(dir: &Path, url: &str, program: &Path, args: &[&str]) -> Output {
    let binary = PathBuf::from(env!("CARGO_BIN_EXE_trellis"));
    let own = binary.parent().unwrap().to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([own].into_iter().chain(std::env::split_paths(&path))).unwrap();
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TRELLIS")) {
        command.env_remove(name);
    }
    command.env("PATH", path).env("TRELLIS_URL", url).current_dir(dir).stdin(Stdio::null());
    command.args(args).output().unwrap()
}

/// Returns what a program printed; fails the test unless it ended well.
#[track_caller]
fn stdout_of(what: &str, output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{what}: {}\n{out}\n{err}", output.status);
    out
}
