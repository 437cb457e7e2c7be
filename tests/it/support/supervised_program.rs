//! A program on a free port that ends with its value, and with the test process however that ends.

use super::port;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Runs the program as a child and kills it as soon as its own input closes.
const SUPERVISOR: &str = r#"
"$@" &
pid=$!
cat >/dev/null
kill -9 $pid
wait $pid
"#;

const START_MAX: Duration = Duration::from_mins(1);

pub struct Supervised {
    pub address: SocketAddr,
    supervisor: Child,
}

impl Supervised {
    /// Starts `program` with the arguments for a port, and waits until `GET path` answers with 200.
    pub fn start(program: &Path, args: impl Fn(u16) -> Vec<String>, path: &str) -> Self {
        let port = port::lasting();
        let name = program.file_name().unwrap().to_string_lossy();
        let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{port}.log"));
        let output = File::create(&log).unwrap();
        let mut command = Command::new("sh");
        command.arg("-c").arg(SUPERVISOR).arg("supervisor").arg(program).args(args(port));
        command.stdin(Stdio::piped()).stdout(output.try_clone().unwrap()).stderr(output);
        let supervised =
            Self { address: SocketAddr::from(([127, 0, 0, 1], port)), supervisor: command.spawn().unwrap() };
        let start = Instant::now();
        while !supervised.answers(path) {
            let said = || std::fs::read_to_string(&log).unwrap_or_default();
            assert!(start.elapsed() < START_MAX, "{name} doesn't come up: {}", said());
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = std::fs::remove_file(log);
        supervised
    }

    fn answers(&self, path: &str) -> bool {
        let Ok(mut stream) = TcpStream::connect(self.address) else { return false };
        let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
        let asked = stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes());
        let mut head = [0; 12];
        asked.is_ok() && stream.read_exact(&mut head).is_ok() && head == *b"HTTP/1.1 200"
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        drop(self.supervisor.stdin.take());
        let _ = self.supervisor.wait();
    }
}
