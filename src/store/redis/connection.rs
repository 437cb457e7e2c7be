//! The connections: several per process, functions loaded on demand, errors classified.

use super::keyspace::LIBRARY;
use crate::store::StoreError;
use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::{Client, Cmd, ErrorKind, IntoConnectionInfo, Pipeline, RedisError, ServerErrorKind, Value};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A command without an answer after it may or may not have been applied. (The driver's own
/// default of 500 ms is shorter than a slow fsync.)
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// For the TCP connection and its greeting.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(2);
/// Attempts to connect before a waiting call fails; the next call starts them again.
const CONNECT_RETRIES: usize = 3;
/// Pauses while the server reads its append-only file; then the call fails.
const LOADING_PAUSES: [Duration; 4] =
    [Duration::from_millis(100), Duration::from_millis(400), Duration::from_secs(1), Duration::from_secs(2)];

/// Connections to one server.
pub struct Pool {
    store: String,
    managers: Vec<ConnectionManager>,
    next: AtomicUsize,
}

impl Pool {
    /// Connections that are opened when they are first used; only the `url` is checked here.
    pub fn new(url: &str, connections: usize) -> Result<Self, StoreError> {
        let bad = |error: RedisError| StoreError::Unavailable {
            store: "redis".to_owned(),
            reason: format!("illegal url: {error}"),
        };
        let info = url.into_connection_info().map_err(bad)?;
        let info = info.set_tcp_settings(redis::io::tcp::TcpSettings::default().set_nodelay(true));
        let store = format!("redis://{}", info.addr());
        let client = Client::open(info).map_err(bad)?;
        let config = ConnectionManagerConfig::new()
            .set_response_timeout(Some(RESPONSE_TIMEOUT))
            .set_connection_timeout(Some(CONNECTION_TIMEOUT))
            .set_number_of_retries(CONNECT_RETRIES)
            .set_max_delay(Duration::from_secs(1));
        let managers = (0..connections.max(1))
            .map(|_| ConnectionManager::new_lazy_with_config(client.clone(), config.clone()).map_err(bad))
            .collect::<Result<_, _>>()?;
        Ok(Self { store, managers, next: AtomicUsize::new(0) })
    }

    /// The server's address, without credentials.
    pub fn store(&self) -> &str {
        &self.store
    }

    /// Runs a command, waiting a little for a server that loads, and loading the library when the
    /// server doesn't know it (a new server, or one whose functions were flushed).
    ///
    /// A server that restarted has dropped every connection of the pool, and each tells only when it
    /// is used: such a call is made again at once, on a new connection.
    pub async fn run(&self, cmd: &Cmd, again: Again) -> Result<Value, StoreError> {
        match self.send(Asked::One(cmd), again).await {
            Err(error) if is_unknown_function(&error) => {
                self.load().await?;
                self.send(Asked::One(cmd), again).await.map_err(|error| self.classify(&error))
            }
            answer => answer.map_err(|error| self.classify(&error)),
        }
    }

    /// Asks several things in one round trip; the answers are an array. None is a call of a function.
    pub async fn run_all(&self, cmds: &[Cmd]) -> Result<Value, StoreError> {
        if cmds.is_empty() {
            return Ok(Value::Array(Vec::new()));
        }
        let mut pipe = redis::pipe();
        for cmd in cmds {
            pipe.add_command(cmd.clone());
        }
        self.send(Asked::All(&pipe, cmds.len()), Again::Yes).await.map_err(|error| self.classify(&error))
    }

    /// Puts the library of this build on the server.
    ///
    /// Only when it isn't there: loading is refused at the memory limit, where commits must go on.
    pub async fn load(&self) -> Result<(), StoreError> {
        let mut list = redis::cmd("FUNCTION");
        list.arg("LIST").arg("LIBRARYNAME").arg(&LIBRARY.name);
        let found = self.send(Asked::One(&list), Again::Yes).await.map_err(|error| self.classify(&error))?;
        if matches!(&found, Value::Array(libraries) if !libraries.is_empty()) {
            return Ok(());
        }
        let mut load = redis::cmd("FUNCTION");
        load.arg("LOAD").arg("REPLACE").arg(&LIBRARY.code);
        self.send(Asked::One(&load), Again::Yes).await.map(drop).map_err(|error| self.classify(&error))
    }

    async fn send(&self, asked: Asked<'_>, again: Again) -> Result<Value, RedisError> {
        let mut pauses = LOADING_PAUSES.iter();
        loop {
            let turn = self.next.fetch_add(1, Ordering::Relaxed);
            let mut manager = self.managers[turn % self.managers.len()].clone();
            let answer = match again {
                Again::Yes => ask(&mut manager, asked).await,
                // Whether the connection lasts is found out by a question that can be asked again.
                Again::No => match ask(&mut manager, Asked::One(&redis::cmd("PING"))).await {
                    Ok(_) => asked.of(&mut manager).await,
                    gone => gone,
                },
            };
            match (&answer, pauses.next()) {
                (Err(error), Some(pause)) if is_loading(error) => tokio::time::sleep(*pause).await,
                _ => return answer,
            }
        }
    }

    fn classify(&self, error: &RedisError) -> StoreError {
        let (store, reason) = (self.store.clone(), error.to_string());
        match verdict(error) {
            Verdict::Unavailable => StoreError::Unavailable { store, reason },
            Verdict::Full => StoreError::Full { store, reason },
            Verdict::Corrupt => StoreError::Corrupt { store, reason },
        }
    }
}

/// Whether a command may be sent again when its connection broke: then nobody knows whether it was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// Applied twice it does what it does once, and answers the same.
    Yes,
    /// Its second answer would be another one.
    No,
}

/// What goes to a server in one round trip.
#[derive(Clone, Copy)]
enum Asked<'c> {
    One(&'c Cmd),
    /// So many.
    All(&'c Pipeline, usize),
}

impl Asked<'_> {
    async fn of(self, manager: &mut ConnectionManager) -> Result<Value, RedisError> {
        let answer = match self {
            Self::One(cmd) => manager.req_packed_command(cmd).await,
            Self::All(pipe, count) => manager.req_packed_commands(pipe, 0, count).await.map(Value::Array),
        };
        answer.and_then(Value::extract_error)
    }
}

/// Asks, and once more when the connection turns out to be dropped; the driver makes a new one.
async fn ask(manager: &mut ConnectionManager, asked: Asked<'_>) -> Result<Value, RedisError> {
    match asked.of(manager).await {
        Err(error) if error.is_connection_dropped() && !error.is_connection_refusal() => {
            tracing::debug!(%error, "connection to Redis dropped; asked again");
            asked.of(manager).await
        }
        other => other,
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Unavailable,
    Full,
    Corrupt,
}

fn verdict(error: &RedisError) -> Verdict {
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::ResponseError) if says(error, "max number of clients") => {
            Verdict::Unavailable
        }
        ErrorKind::Server(ServerErrorKind::ResponseError | ServerErrorKind::CrossSlot)
        | ErrorKind::Parse
        | ErrorKind::UnexpectedReturnType => Verdict::Corrupt,
        ErrorKind::Extension => match error.code() {
            Some("OOM" | "MISCONF") => Verdict::Full,
            // The server is busy, or lacks the replicas or the login that it asks for.
            Some("BUSY" | "NOREPLICAS" | "NOAUTH" | "WRONGPASS") => Verdict::Unavailable,
            _ => Verdict::Corrupt,
        },
        _ => Verdict::Unavailable,
    }
}

fn is_loading(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::BusyLoading)
}

fn is_unknown_function(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::ResponseError) && says(error, "Function not found")
}

fn says(error: &RedisError, words: &str) -> bool {
    error.detail().is_some_and(|detail| detail.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: &str, expected: &Verdict) {
        let error = redis::make_extension_error(code.to_owned(), Some("words".to_owned()));
        assert_eq!(&verdict(&error), expected, "{code}");
    }

    #[test]
    fn errors_say_whether_calling_again_can_help() {
        check("OOM", &Verdict::Full);
        check("MISCONF", &Verdict::Full);
        check("BUSY", &Verdict::Unavailable);
        check("NOREPLICAS", &Verdict::Unavailable);
        check("WRONGTYPE", &Verdict::Corrupt);
        check("CORRUPT", &Verdict::Corrupt);
        let io = RedisError::from(std::io::Error::other("reset"));
        assert_eq!(verdict(&io), Verdict::Unavailable);
    }

    #[test]
    fn an_illegal_url_is_refused_and_a_legal_one_shown_without_its_password() {
        assert!(Pool::new("http://x", 1).is_err());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _guard = runtime.enter();
        let pool = Pool::new("redis://me:secret@127.0.0.1:7/0", 2).unwrap();
        assert_eq!(pool.store(), "redis://127.0.0.1:7");
    }
}
