//! A real `redis-server` on a free port with `config/redis.conf`, gone when the tests are.

use super::port;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use trellis::domain::ids::Owner;
use trellis::domain::shard::Shards;
use trellis::store::redis::{RedisOptions, RedisStore, ServerOrInjected};

/// Runs the server as a child and kills it as soon as its own input closes, so also when the test
/// process is killed. `$1` configuration, `$2` port, `$3` folder, `$4` = `shared` removes the folder; then more options.
const SUPERVISOR: &str = r#"
conf=$1 port=$2 dir=$3 shared=$4
shift 4
redis-server "$conf" --port "$port" --dir "$dir" --bind 127.0.0.1 --daemonize no "$@" >>"$dir/log" 2>&1 &
pid=$!
echo $pid >"$dir/pid"
cat >/dev/null
kill -9 $pid
wait $pid
if [ "$shared" = shared ]; then rm -rf "$dir"; fi
"#;

/// A server; killed with SIGKILL when dropped.
pub struct RedisServer {
    port: u16,
    dir: PathBuf,
    shared: bool,
    options: Vec<String>,
    supervisor: Option<Child>,
}

impl RedisServer {
    /// One for this test alone; `None` when there is no `redis-server`.
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// The same with more options than `config/redis.conf` has.
    pub fn start_with(options: &[&str]) -> Option<Self> {
        is_installed().then(|| Self::start_on_free_port(false, options))
    }

    /// The one of this test process; `None` when there is no `redis-server`.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<RedisServer>> = OnceLock::new();
        SHARED.get_or_init(|| is_installed().then(|| Self::start_on_free_port(true, &[]))).as_ref()
    }

    /// Gone with its folder when the test process is, where it is shared.
    pub fn start_on_free_port(shared: bool, options: &[&str]) -> Self {
        for _ in 0..5 {
            let port = port::lasting();
            let dir = tempfile::tempdir().unwrap().keep();
            let options = options.iter().map(ToString::to_string).collect();
            let mut server = Self { port, dir, shared, options, supervisor: None };
            if server.start_again() {
                return server;
            }
        }
        panic!("no `redis-server` came up in five attempts");
    }

    /// After [`RedisServer::kill`]: the same port and folder. False when it didn't come up.
    pub fn start_again(&mut self) -> bool {
        self.spawn();
        let end = Instant::now() + Duration::from_mins(1);
        while Instant::now() < end {
            if self.answers() {
                return true;
            }
            if self.found_its_port_taken() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.kill();
        false
    }

    /// Somebody else got the port between the choice of it and the start.
    fn found_its_port_taken(&self) -> bool {
        let log = std::fs::read_to_string(self.dir.join("log")).unwrap_or_default();
        log.contains("Failed listening on port")
    }

    /// The same without waiting until it has loaded its data.
    pub fn spawn(&mut self) {
        // A copy: who has a replica become the primary writes that into the file.
        let (shipped, conf) = (concat!(env!("CARGO_MANIFEST_DIR"), "/config/redis.conf"), self.dir.join("redis.conf"));
        if !conf.exists() {
            std::fs::copy(shipped, &conf).unwrap();
        }
        let mut command = Command::new("sh");
        command.arg("-c").arg(SUPERVISOR).arg("redis-supervisor").arg(conf);
        command.arg(self.port.to_string()).arg(&self.dir).arg(if self.shared { "shared" } else { "own" });
        command.args(&self.options);
        let output = File::create(self.dir.join("supervisor.log")).unwrap();
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(output);
        self.supervisor = Some(command.spawn().unwrap());
    }

    /// It is this one that listens on the port, and it has loaded its data.
    fn answers(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else { return false };
        let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
        let mut answer = [0; 512];
        let ask = |stream: &mut TcpStream, answer: &mut [u8]| -> std::io::Result<String> {
            if let Some(password) = self.option("--requirepass") {
                stream.write_all(format!("AUTH {password}\r\n").as_bytes())?;
                let _ = stream.read(answer)?;
            }
            stream.write_all(b"CONFIG GET dir\r\n")?;
            let n = stream.read(answer)?;
            Ok(String::from_utf8_lossy(&answer[..n]).into_owned())
        };
        ask(&mut stream, &mut answer).is_ok_and(|text| text.contains(&*self.dir.to_string_lossy()))
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill(&mut self) {
        if let Some(mut supervisor) = self.supervisor.take() {
            drop(supervisor.stdin.take());
            let _ = supervisor.wait();
        }
    }

    /// The part of the log that grows, and its bytes.
    pub fn log_file(&self) -> (PathBuf, u64) {
        let files = std::fs::read_dir(self.dir.join("appendonlydir")).unwrap();
        let mut parts =
            files.map(|file| file.unwrap().path()).filter(|path| path.to_string_lossy().ends_with(".incr.aof"));
        let path = parts.next().expect("the server keeps a log");
        let bytes = path.metadata().unwrap().len();
        (path, bytes)
    }

    /// Kills it, cuts its log to what [`RedisServer::log_file`] told earlier, and starts it without what came later.
    pub fn lose_tail(&mut self, (path, bytes): (PathBuf, u64)) {
        self.kill();
        std::fs::File::options().write(true).open(path).unwrap().set_len(bytes).unwrap();
        assert!(self.start_again());
    }

    /// Stops it in its tracks (SIGSTOP), or lets it go on.
    pub fn pause(&self, paused: bool) {
        let pid = std::fs::read_to_string(self.dir.join("pid")).unwrap();
        let sent = Command::new("kill").args([if paused { "-STOP" } else { "-CONT" }, pid.trim()]).status().unwrap();
        assert!(sent.success());
    }

    /// What an option was given with.
    pub fn option(&self, name: &str) -> Option<&str> {
        let at = self.options.iter().position(|option| option == name)?;
        self.options.get(at + 1).map(String::as_str)
    }

    /// The text that answers a command.
    pub async fn text(&self, words: &[&str]) -> String {
        redis::from_redis_value(self.command(words).await.unwrap()).unwrap()
    }

    /// Whether it is a primary. One that becomes it ends its connections: then it isn't known.
    pub async fn is_primary(&self) -> bool {
        let said = self.command(&["INFO", "replication"]).await;
        said.is_ok_and(|said| redis::from_redis_value::<String>(said).is_ok_and(|said| said.contains("role:master")))
    }

    /// Its port.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// `redis://127.0.0.1:PORT`, with its password.
    pub fn url(&self) -> String {
        let login = self.option("--requirepass").map(|password| format!(":{password}@")).unwrap_or_default();
        format!("redis://{login}127.0.0.1:{}", self.port)
    }

    /// Options for a store of its own on this server.
    pub fn options(&self, clock: ServerOrInjected) -> RedisOptions {
        let mut options = RedisOptions::new(self.url());
        options.prefix = format!("t{}", uuid::Uuid::now_v7().simple());
        options.connections = 2;
        options.clock = clock;
        options
    }

    /// What the keys of an owner begin with, under this prefix.
    pub fn base(prefix: &str, owner: &Owner) -> String {
        let token = owner.token();
        format!("{prefix}:{{{}}}:{token}", Shards::default().shard_of(&token))
    }

    /// A command of the test's own.
    pub async fn command(&self, words: &[&str]) -> redis::RedisResult<redis::Value> {
        let client = redis::Client::open(self.url())?;
        // A server under load, or one that fills itself for a test, takes longer than the driver's half second.
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(30)));
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query_async(&mut connection).await
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A store of its own on the shared server, with injected time; `None` when there is no server.
pub async fn store() -> Option<Arc<RedisStore>> {
    let server = RedisServer::shared()?;
    Some(RedisStore::open(server.options(ServerOrInjected::Injected)).await.unwrap())
}

pub fn is_installed() -> bool {
    let found = Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        assert!(std::env::var_os("CI").is_none(), "`redis-server` is not on PATH");
        eprintln!("skipped: `redis-server` is not on PATH");
    }
    found
}
