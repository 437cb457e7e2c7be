//! Programs that read the API's description: linters, generators of clients, a fuzzer.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Folder of the packages from npm.
pub const NODE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/.tools/node-api/node_modules");
/// Programs of the packages from `PyPI`.
const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/.tools/venv-api/bin");

/// A program of a package from `PyPI`; without it (after a printed line) the test is skipped, and fails when `CI` is set.
pub fn python(name: &str) -> Option<PathBuf> {
    there(Path::new(PYTHON).join(name))
}

/// The same of a package from npm.
pub fn node(name: &str) -> Option<PathBuf> {
    there(Path::new(NODE).join(".bin").join(name))
}

/// A file of a package from npm.
pub fn package_file(name: &str) -> Option<PathBuf> {
    there(Path::new(NODE).join(name))
}

fn there(program: PathBuf) -> Option<PathBuf> {
    if program.exists() {
        return Some(program);
    }
    let text = format!("no {}; `tests/run.sh` installs it", program.display());
    assert!(std::env::var_os("CI").is_none(), "{text}");
    println!("skipped: {text}");
    None
}

/// Runs a program in a folder; fails the test unless it ends with 0.
#[track_caller]
pub fn run(dir: &Path, program: &Path, args: &[&str]) -> String {
    // Generators call formatters of their own folder.
    let path = std::env::join_paths(
        [PathBuf::from(PYTHON)].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    let output = Command::new(program).current_dir(dir).env("PATH", path.unwrap()).args(args).output().unwrap();
    let said = all_text(&output);
    assert!(output.status.success(), "{} {args:?}: {}\n{said}", program.display(), output.status);
    said
}

fn all_text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
