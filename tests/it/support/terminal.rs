//! The binary on a terminal: what it writes there, byte by byte.

use super::cli::command;
use super::python;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a command on a terminal of its own and copies what it writes; a terminal ends lines with `\r\n`.
const ON_TERMINAL: &str = r#"
import os, pty, subprocess, sys
ours, theirs = pty.openpty()
process = subprocess.Popen(sys.argv[1:], stdin=theirs, stdout=theirs, stderr=theirs)
os.close(theirs)
out = b""
while True:
    try:
        piece = os.read(ours, 65536)
    except OSError:
        break
    if not piece:
        break
    out += piece
process.wait()
sys.stdout.buffer.write(out)
"#;

/// What runs commands on a terminal.
pub struct Terminal {
    python: PathBuf,
}

impl Terminal {
    /// `None` where no Python has terminals.
    pub fn new() -> Option<Self> {
        python::with("pty").map(|python| Self { python })
    }

    /// All that the command writes, stderr included, in a folder and with `TRELLIS_URL`.
    pub fn run(&self, dir: &Path, url: &str, args: &[&str], env: &[(&str, &str)]) -> String {
        let binary = command(dir);
        let mut command = Command::new(&self.python);
        command.args(["-c", ON_TERMINAL]).arg(binary.get_program()).args(args).current_dir(dir);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TRELLIS")) {
            command.env_remove(name);
        }
        command.env_remove("NO_COLOR").env("TRELLIS_URL", url).env("TERM", "xterm").envs(env.iter().copied());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n")
    }
}
