//! A real proxy, proxy.py, and a front that speaks TLS: names below `proxied.example` are known to the proxy alone.

use super::python;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const START_MAX: Duration = Duration::from_mins(1);

/// The proxy; killed when dropped.
pub struct HttpProxy {
    child: Child,
    dir: TempDir,
    port: u16,
}

impl HttpProxy {
    /// That wants this `user:password`, or none; `None` without proxy.py.
    pub fn start(login: Option<&str>) -> Option<Self> {
        let python = python::with("proxy.http.proxy")?;
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(python);
        command.args(["-m", "proxy", "--hostname", "127.0.0.1", "--port", "0", "--port-file", "port"]);
        command.args(["--log-file", "log", "--num-acceptors", "1", "--num-workers", "1", "--threaded"]);
        command.args(["--plugins", "named_proxy.Names"]);
        if let Some(login) = login {
            command.args(["--basic-auth", login]);
        }
        command.current_dir(dir.path()).env("PYTHONPATH", clients()).env("HOME", dir.path());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let start = Instant::now();
        let port = loop {
            let written = std::fs::read_to_string(dir.path().join("port")).unwrap_or_default();
            if let Ok(port) = written.trim().parse() {
                break port;
            }
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none() && start.elapsed() < START_MAX, "proxy.py writes no port, ended {ended:?}");
            std::thread::sleep(Duration::from_millis(10));
        };
        Some(Self { child, dir, port })
    }

    /// `http://{login}127.0.0.1:PORT`.
    pub fn url(&self, login: &str) -> String {
        format!("http://{login}127.0.0.1:{}", self.port)
    }

    /// What it has written of requests.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for HttpProxy {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

/// TLS in front of a server; killed when dropped.
pub struct TlsFront {
    child: Child,
    pub port: u16,
}

impl TlsFront {
    /// With the server's certificate of `certificates` in this folder.
    pub fn start(certificates: &Path, port: u16) -> Option<Self> {
        let python = python::with("ssl")?;
        let mut command = Command::new(python);
        command.arg(clients().join("tls_front.py")).args(["server.pem", "server.key"]).arg(port.to_string());
        let mut child = command.current_dir(certificates).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Some(Self { child, port: line.trim().parse().unwrap() })
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}
