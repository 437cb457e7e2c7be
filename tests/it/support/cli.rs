//! The binary as its users run it: short commands, and processes that stay.

use super::port;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_mins(2);

/// How a command ended.
#[derive(Debug)]
pub struct Done {
    /// Exit code; -1 when a signal ended it.
    pub code: i32,
    /// Its data.
    pub out: String,
    /// Everything else.
    pub err: String,
}

impl Done {
    /// Fails the test unless the command ended with this code and this in its stderr.
    #[track_caller]
    pub fn expect(self, code: i32, err: &str) -> Self {
        assert!(self.code == code && self.err.contains(err), "expected {code} and `{err}`, got {self:#?}");
        self
    }

    /// stdout without the newline at its end.
    #[track_caller]
    pub fn ok(self) -> String {
        self.expect(0, "").out.trim_end().to_owned()
    }
}

/// The binary in a folder, without the environment's own settings.
pub fn command(dir: &Path) -> Command {
    command_of(Path::new(env!("CARGO_BIN_EXE_trellis")), dir)
}

/// The same of another build.
pub fn command_of(binary: &Path, dir: &Path) -> Command {
    let mut command = Command::new(binary);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TRELLIS")) {
        command.env_remove(name);
    }
    command.current_dir(dir).stdin(Stdio::null());
    command
}

/// Runs a command to its end.
pub fn run(dir: &Path, args: &[&str]) -> Done {
    let output = command(dir).args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Done { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

/// A process that stays; killed when dropped.
pub struct Process {
    child: Child,
    log: Arc<Mutex<String>>,
}

impl Process {
    /// Starts it in a folder.
    pub fn start<S: AsRef<OsStr>>(dir: &Path, args: impl IntoIterator<Item = S>) -> Self {
        let mut command = command(dir);
        command.args(args);
        Self::of(command)
    }

    /// Starts any command.
    pub fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (lines, copy) = (BufReader::new(child.stderr.take().unwrap()).lines(), Arc::clone(&log));
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                copy.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        Self { child, log }
    }

    /// What it has said on stderr.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits until it says `words` and returns the rest of that line.
    pub fn says(&mut self, words: &str) -> String {
        let start = Instant::now();
        loop {
            let log = self.log();
            if let Some(line) = log.lines().find_map(|line| line.split_once(words)) {
                return line.1.to_owned();
            }
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none() && start.elapsed() < LIMIT, "no `{words}`, ended {ended:?}: {log}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Most memory that it has had, in MiB.
    pub fn peak_mib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
    }

    /// Sends a signal, e.g. `TERM`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < LIMIT, "still running: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `trellis up` in a folder of its own.
pub struct Up {
    /// The process.
    pub process: Process,
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    /// Its folder; `data` in it is the store.
    pub dir: TempDir,
    settings: Vec<String>,
}

impl Up {
    /// On a free port, with an empty store.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with other settings, `key=value`.
    pub fn start_with(settings: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), settings)
    }

    /// In a folder where what the settings name may lie already.
    pub fn start_in(dir: tempfile::TempDir, settings: &[&str]) -> Self {
        let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let (process, url) = up(dir.path(), &format!("127.0.0.1:{}", port::lasting()), &settings);
        Self { process, url, dir, settings }
    }

    /// After its end: on the same store and port.
    pub fn start_again(&mut self) {
        let address = self.url.trim_start_matches("http://").to_owned();
        (self.process, self.url) = up(self.dir.path(), &address, &self.settings);
    }

    /// A command to it.
    pub fn run(&self, args: &[&str]) -> Done {
        let output = command(self.dir.path()).env("TRELLIS_URL", &self.url).args(args).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Done { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Writes a file into its folder.
    pub fn file(&self, name: &str, text: &str) {
        std::fs::write(self.dir.path().join(name), text).unwrap();
    }

    /// Makes an agent with a scripted model: `echo`, `never`, or a file with these rules.
    pub fn agent(&self, name: &str, rules: &str) {
        let model = match rules {
            "echo" | "never" => rules.to_owned(),
            text => {
                self.file(&format!("{name}.rules"), text);
                format!("{name}.rules")
            }
        };
        self.file(&format!("{name}.toml"), &format!("model = {{ provider = \"scripted\", name = \"{model}\" }}"));
        self.run(&["agent", "apply", &format!("{name}.toml")]).ok();
    }
}

fn up(dir: &Path, listen: &str, settings: &[String]) -> (Process, String) {
    let args = ["up", "--data", "data", "--listen", listen, "--set", "models.scripted=."].into_iter();
    let settings = settings.iter().flat_map(|setting| ["--set", setting]);
    let mut process = Process::start(dir, args.chain(settings));
    let rest = process.says("HTTP API on ");
    let url = rest.split(' ').next().unwrap().to_owned();
    (process, url)
}
