//! npm's `@copilotkit/aimock`, a mock of many providers that was written elsewhere, behind a strict judge.

use super::model_server::ModelServer;
use super::supervised_program::Supervised;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Starts it once for all tests and gives a judge in front of it; without it (after a printed line) the test is
/// skipped, and fails when `CI` is set.
pub fn judged() -> Option<ModelServer> {
    static SHARED: OnceLock<Option<Supervised>> = OnceLock::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let start = || {
        let script = root.join(".tools/node/node_modules/@copilotkit/aimock/dist/cli.js");
        let node = Command::new("node").arg("--version").output();
        if !script.exists() || !node.is_ok_and(|output| output.status.success()) {
            assert!(std::env::var_os("CI").is_none(), "no aimock; `tests/run.sh` installs it where Node.js is");
            println!("skipped: no aimock; `tests/run.sh` installs it where Node.js is");
            return None;
        }
        let fixtures = root.join("tests/it/models/aimock/fixtures.json").display().to_string();
        let args = |port: u16| {
            let port = port.to_string();
            let args = ["--port", &port, "--fixtures", &fixtures, "--strict", "--log-level", "warn"];
            [script.display().to_string()].into_iter().chain(args.map(str::to_owned)).collect()
        };
        Some(Supervised::start(&PathBuf::from("node"), args, "/ready"))
    };
    SHARED.get_or_init(start).as_ref().map(|mock| ModelServer::in_front_of(mock.address))
}
