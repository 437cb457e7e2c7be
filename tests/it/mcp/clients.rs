//! The official Python SDK as a client, in the words of the README and of the guide.

use crate::support::cli::Up;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The Python that has the SDK; without it (after a printed line) the test is skipped, and fails when `CI` is set.
fn python() -> Option<PathBuf> {
    let python = Path::new(ROOT).join(".tools/venv-mcp/bin/python");
    if python.exists() {
        return Some(python);
    }
    assert!(std::env::var_os("CI").is_none(), "no {}; `tests/run.sh` installs it", python.display());
    println!("skipped: no {}; `tests/run.sh` installs it", python.display());
    None
}

#[test]
fn the_example_of_the_readme_works_as_pasted() {
    let client = std::fs::read_to_string(Path::new(ROOT).join("tests/clients/mcp_ask.py")).unwrap();
    for page in ["README.md", "src/guide/mcp.md"] {
        let text = std::fs::read_to_string(Path::new(ROOT).join(page)).unwrap();
        assert!(text.contains(&format!("```python\n{client}```\n")), "{page} has another client");
    }
    let Some(python) = python() else { return };
    let up = Up::start();
    up.file("helper.toml", "published = true\nmodel = { provider = \"scripted\", name = \"echo\" }\n");
    up.run(&["agent", "apply", "helper.toml"]).ok();
    // Only the port differs.
    let address = up.url.trim_start_matches("http://");
    up.file("client.py", &client.replace("127.0.0.1:8420", address));
    let output = Command::new(python).arg(up.dir.path().join("client.py")).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.trim_end().ends_with("Say hello"), "{said}");
}
