//! Clients in Python.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A Python that has the module; without one (after a printed line) the test is skipped, and fails
/// when `CI` is set.
pub fn with(module: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools");
    let venvs = ["venv/bin", "venv-browser/bin"].map(|folder| tools.join(folder));
    let all = std::env::split_paths(&path).chain(venvs).map(|dir| dir.join("python3"));
    let found = all.filter(|file| file.exists()).find(|python| {
        let import = Command::new(python).args(["-c", &format!("import {module}")]).output();
        import.is_ok_and(|output| output.status.success())
    });
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "no python3 with {module}; `tests/run.sh` installs it");
        println!("skipped: no python3 with {module}; `tests/run.sh` installs it");
    }
    found
}
