//! `trellis up` as a child process, which can be killed and never outlives the demo.

use super::super::client::{Client, ServerArgs};
use super::super::exit::Failure;
use super::folder::DemoFolder;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

/// Time limit of a start, which takes a second on a slow disk.
const START_TIME_LIMIT: Duration = Duration::from_secs(20);
/// Time limit of a stop, above the grace of a shutdown.
const STOP_TIME_LIMIT: Duration = Duration::from_secs(25);
const CHECK_PAUSE: Duration = Duration::from_millis(20);

/// Text in the log when the API listens.
const LISTENING_TEXT: &str = "HTTP API on ";

/// A running server; dropping it kills it.
pub(crate) struct DemoServer {
    child: Child,
    /// Process id of the server.
    pub(crate) pid: u32,
    /// URL of its API.
    pub(crate) url: String,
    /// HTTP client of the server.
    pub(crate) client: Client,
}

impl DemoServer {
    /// Starts this binary on the folder and waits until it is ready; `name` is that of its log file.
    pub(crate) async fn start(folder: &DemoFolder, name: &str) -> Result<Self, Failure> {
        let log = folder.path().join(format!("{name}.log"));
        let cannot = |e: std::io::Error| Failure::internal(format!("`trellis up` can't be started: {e}"));
        let mut child = command(folder, &log).map_err(cannot)?.spawn().map_err(cannot)?;
        let pid = child.id().ok_or_else(|| start_failure(&log))?;
        let deadline = Instant::now() + START_TIME_LIMIT;
        loop {
            if let Some(url) = address(&log) {
                let client = Client::new(&ServerArgs { url: url.clone(), ..ServerArgs::default() })?;
                if client.ready().await.is_ok() {
                    return Ok(Self { child, pid, url, client });
                }
            }
            if child.try_wait().map_err(cannot)?.is_some() || Instant::now() > deadline {
                return Err(start_failure(&log));
            }
            sleep(CHECK_PAUSE).await;
        }
    }

    /// Sends SIGKILL, after which the process can do nothing more.
    pub(crate) async fn kill(mut self) -> Result<(), Failure> {
        self.child.kill().await.map_err(|e| Failure::internal(format!("process {} can't be killed: {e}", self.pid)))
    }

    /// Sends SIGTERM and waits for the end of the process.
    pub(crate) async fn stop(mut self) -> Result<(), Failure> {
        // By the shell's own `kill`: where there is a terminal, there is a shell.
        let sent = Command::new("sh").arg("-c").arg(format!("kill -TERM {}", self.pid)).status().await;
        sent.map_err(|e| Failure::internal(format!("process {} can't be stopped: {e}", self.pid)))?;
        match timeout(STOP_TIME_LIMIT, self.child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(Failure::internal(format!("process {} ended with {status}", self.pid))),
            Ok(Err(error)) => Err(Failure::internal(format!("process {} can't be waited for: {error}", self.pid))),
            Err(_) => Err(Failure::internal(format!("process {} did not stop within {STOP_TIME_LIMIT:?}", self.pid))),
        }
    }
}

/// Makes the command, without environment variables that are meant for other servers.
fn command(folder: &DemoFolder, log: &Path) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TRELLIS")) {
        command.env_remove(name);
    }
    command.arg("up").arg("--data").arg(folder.data()).args(["--listen", "127.0.0.1:0"]);
    for (key, value) in settings(folder) {
        command.arg("--set").arg(format!("{key}={value}"));
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(std::fs::File::create(log)?).kill_on_drop(true);
    Ok(command)
}

/// Crash limit in the demo: the third worker doesn't serve the task any more.
pub(crate) const CRASH_LIMIT: u32 = 2;

/// Settings of the demo's server besides its folder.
pub(crate) fn settings(folder: &DemoFolder) -> [(&'static str, String); 3] {
    let path = |path: PathBuf| path.display().to_string();
    [
        ("models.scripted", path(folder.rules())),
        ("models.calls_log", path(folder.calls())),
        ("worker.crash_limit", CRASH_LIMIT.to_string()),
    ]
}

fn address(log: &Path) -> Option<String> {
    let text = std::fs::read_to_string(log).ok()?;
    // Only complete lines are read.
    let (whole, _) = text.rsplit_once('\n')?;
    let line = whole.lines().find_map(|line| line.split_once(LISTENING_TEXT))?.1;
    line.split_whitespace().next().map(str::to_owned)
}

fn start_failure(log: &Path) -> Failure {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let last = text.lines().next_back().unwrap_or("it said nothing").to_owned();
    Failure::internal(format!("`trellis up` did not become ready: {last}"))
}
