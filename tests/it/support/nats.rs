//! nats-servers for tests: one shared by all cases, and own ones that can be killed.
//!
//! Every server runs under a shell that holds a pipe from this process: when the test binary ends,
//! however it ends, the pipe closes and the shell kills the server and removes its directory.

use super::port;
use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};
use tempfile::TempDir;
use trellis::bus::credentials::NatsFiles;
use trellis::bus::nats::NatsOptions;
use trellis::process::retry::RetryPolicy;
use trellis::process::telemetry::Metrics;

/// The project's own configuration file: what is tested is what is shipped.
const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/nats.conf");

const START_LIMIT: Duration = Duration::from_mins(1);

/// A running server with its own directory.
pub struct NatsServer {
    port: u16,
    dir: TempDir,
    runs: u32,
    config: String,
    arguments: Vec<String>,
    running: Option<Running>,
}

struct Running {
    /// Its standard input is the life line.
    shell: Child,
    pid: u32,
}

impl NatsServer {
    /// A server of this test's own; `None` (after a printed line) when there is no binary and `CI`
    /// isn't set.
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// The same with more arguments.
    pub fn start_with(arguments: &[&str]) -> Option<Self> {
        Self::start_as(CONFIG, arguments)
    }

    /// The same with another configuration file.
    pub fn start_as(config: &str, arguments: &[&str]) -> Option<Self> {
        let mut server = Self::stopped(config, arguments)?;
        server.restart();
        Some(server)
    }

    /// One that [`NatsServer::restart`] starts.
    pub fn stopped(config: &str, arguments: &[&str]) -> Option<Self> {
        binary()?;
        let dir = tempfile::Builder::new().prefix("trellis-nats").tempdir().unwrap();
        let (config, arguments) = (config.to_owned(), arguments.iter().map(ToString::to_string).collect());
        Some(Self { port: port::lasting(), dir, runs: 0, config, arguments, running: None })
    }

    /// `nats://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Kills it with SIGKILL; its directory stays.
    pub fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            kill_9(running.pid);
            // Before its pipe closes: the directory stays.
            let _ = running.shell.kill();
            let _ = running.shell.wait();
        }
    }

    /// Starts it again on the same port and directory.
    pub fn restart(&mut self) {
        self.kill();
        self.run(binary().expect("it was found at the start"));
    }

    /// Takes its disk away while it is down.
    pub fn wipe(&self) {
        assert!(self.running.is_none(), "it is down");
        std::fs::remove_dir_all(self.dir.path().join("js")).unwrap();
    }

    /// Stops it in its tracks (SIGSTOP), or lets it go on.
    pub fn pause(&self, paused: bool) {
        let pid = self.running.as_ref().expect("it runs").pid.to_string();
        let sent = Command::new("kill").args([if paused { "-STOP" } else { "-CONT" }, &pid]).status().unwrap();
        assert!(sent.success());
    }

    fn run(&mut self, binary: &Path) {
        self.runs += 1;
        let log = self.dir.path().join(format!("server-{}.log", self.runs));
        let script = "dir=$1; shift; \"$@\" & pid=$!; echo $pid; exec 1>/dev/null 2>&1; cat; kill -9 $pid; wait; rm -rf \"$dir\"";
        let mut shell = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(self.dir.path())
            .arg(binary)
            .args(["-c", &self.config, "-a", "127.0.0.1", "-p", &self.port.to_string(), "-l"])
            .arg(&log)
            .arg("-sd")
            .arg(self.dir.path().join("js"))
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pid = line.trim().parse().unwrap();
        self.running = Some(Running { shell, pid });
        let start = Instant::now();
        loop {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            if text.contains("Server is ready") {
                return;
            }
            assert!(start.elapsed() < START_LIMIT, "nats-server didn't start: {text}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn kill_9(pid: u32) {
    let _ = Command::new("kill").args(["-9", &pid.to_string()]).stderr(Stdio::null()).status();
}

/// URL of the server that all cases of this process share; each takes its own prefix.
pub fn shared() -> Option<String> {
    static SHARED: OnceLock<Option<NatsServer>> = OnceLock::new();
    SHARED.get_or_init(NatsServer::start).as_ref().map(NatsServer::url)
}

/// A prefix that no other case of this process has.
pub fn fresh_prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Options with short waits for a server of [`shared`] or [`NatsServer`].
pub fn options(url: &str) -> NatsOptions {
    NatsOptions {
        url: url.to_owned(),
        files: NatsFiles::default(),
        prefix: fresh_prefix(),
        replicas: 1,
        partitions: 1,
        out_max_age: Duration::from_hours(1),
        monitor: None,
        max_bytes: 16 << 20,
        ack_wait: Duration::from_secs(30),
        poll: Duration::from_millis(500),
        connect: RetryPolicy { total: Some(Duration::from_mins(1)), ..RetryPolicy::CONNECT },
        metrics: Arc::new(Metrics::new()),
        owner: None,
        adopt: false,
        reads_only: false,
    }
}

/// The real server. What stands on the path may be a script of pyenv, and killing a script doesn't
/// kill its server.
fn binary() -> Option<&'static Path> {
    static BINARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = BINARY.get_or_init(|| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let on_path = std::env::split_paths(&path).map(|dir| dir.join("nats-server"));
        let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/venv/bin/nats-server");
        let answers = [("pyenv", vec!["which", "nats-server"])]
            .into_iter()
            .filter_map(|(program, args)| Command::new(program).args(args).output().ok())
            .map(|output| PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
        on_path.chain([tools]).chain(answers).find(|file| is_elf(file))
    });
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "no nats-server binary; `tests/run.sh` installs one");
        println!("skipped: no nats-server binary; `tests/run.sh` installs one");
    }
    found.as_deref()
}

fn is_elf(file: &Path) -> bool {
    use std::io::Read;
    let mut magic = [0; 4];
    std::fs::File::open(file).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && &magic == b"\x7fELF"
}
