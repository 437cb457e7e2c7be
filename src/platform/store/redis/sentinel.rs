//! Finds the primary by Sentinels. A primary that stood still while another took over continues for some seconds as if
//! it still were the primary, and some Sentinels learn of the failover two seconds later. So all of them are asked,
//! once a second under load, and the one that knows of the latest failover counts.

use super::failure::is_cut;
use super::server_connection::{RoundTrip, SingleConnection};
use super::servers::{RedisTls, SentinelPrimary, Servers, build_client, tcp_settings};
use futures::FutureExt;
use futures::future::join_all;
use parking_lot::Mutex;
use redis::aio::{ConnectionManagerConfig, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisError,
    ServerError, ServerErrorKind, Value,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Time for which an answer of the Sentinels is used, and twice that while they are asked again.
const ANSWER_AGE: Duration = Duration::from_secs(1);

/// Longest wait for the answer of a Sentinel, and of a server that they name for the first time.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);

/// Pause before a Sentinel that didn't answer is asked again.
const SILENCE_PAUSE: Duration = Duration::from_secs(10);

/// The Sentinels, and their last answer.
pub struct Sentinels {
    nodes: Vec<SentinelNode>,
    /// Name of the primary at the Sentinels.
    name: String,
    /// Connection settings of the servers, without the address.
    server: ConnectionInfo,
    tls: Option<RedisTls>,
    /// Held while the Sentinels are asked.
    asking: tokio::sync::Mutex<()>,
    said: Mutex<KnownPrimary>,
}

/// One Sentinel with its connection.
struct SentinelNode {
    client: Client,
    connection: tokio::sync::Mutex<Option<MultiplexedConnection>>,
    rests_until: Mutex<Option<Instant>>,
}

/// The primary that the Sentinels named.
struct KnownPrimary {
    client: Option<Client>,
    /// Grows with each primary that may be another.
    number: u64,
    /// Epoch of the failover that made it the primary: Sentinels that know only an earlier one are behind.
    epoch: u64,
    at: Instant,
    /// Time and error of the last request without an answer.
    failure: Option<(Instant, RedisError)>,
}

/// The answer of one Sentinel.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SentinelAnswer {
    host: String,
    port: u16,
    epoch: u64,
    /// Whether the Sentinel reaches the primary.
    is_up: bool,
}

impl SentinelAnswer {
    fn parse(facts: &BTreeMap<String, String>) -> Option<Self> {
        let flags = facts.get("flags")?;
        Some(Self {
            host: facts.get("ip")?.clone(),
            port: facts.get("port")?.parse().ok()?,
            epoch: facts.get("config-epoch")?.parse().ok()?,
            is_up: !flags.contains("s_down") && !flags.contains("o_down"),
        })
    }
}

/// Returns the primary of the latest failover, unless that is older than the known one; if all `sentinels` answer with
/// an older one, they were set up again, and it counts.
fn latest_primary(named: Vec<SentinelAnswer>, known: u64, sentinels: usize) -> Option<SentinelAnswer> {
    let is_all = named.len() == sentinels;
    let latest = named.into_iter().max_by_key(|named| (named.epoch, named.is_up));
    latest.filter(|latest| is_all || latest.epoch >= known)
}

impl Sentinels {
    /// Returns the Sentinels of `servers`, with their own login and the certificates of the servers.
    pub fn new(servers: &Servers, primary: &SentinelPrimary, tls: Option<&RedisTls>) -> Result<Self, RedisError> {
        let Some(server) = servers.nodes.first().cloned() else {
            return Err((ErrorKind::InvalidClientConfig, "no Sentinel is named").into());
        };
        let node = |node: &ConnectionInfo| {
            let info = node.addr().clone().into_connection_info()?.set_tcp_settings(tcp_settings());
            let info = info.set_redis_settings(primary.login.clone());
            Ok(SentinelNode {
                client: build_client(info, tls)?,
                connection: tokio::sync::Mutex::default(),
                rests_until: Mutex::default(),
            })
        };
        let nodes = servers.nodes.iter().map(node).collect::<Result<_, RedisError>>()?;
        let said = KnownPrimary { client: None, number: 0, epoch: 0, at: Instant::now(), failure: None };
        let (name, tls) = (primary.name.clone(), tls.cloned());
        Ok(Self { nodes, name, server, tls, asking: tokio::sync::Mutex::default(), said: Mutex::new(said) })
    }

    /// Returns the primary that the Sentinels name, or named just now, with its number.
    async fn primary(&self) -> Result<(Client, u64), RedisError> {
        if let Some(known) = self.cached_primary(ANSWER_AGE) {
            return Ok(known);
        }
        let since = Instant::now();
        let _alone = if let Ok(alone) = self.asking.try_lock() {
            alone
        } else {
            if let Some(known) = self.cached_primary(2 * ANSWER_AGE) {
                return Ok(known);
            }
            let alone = self.asking.lock().await;
            if let Some(known) = self.cached_primary(ANSWER_AGE) {
                return Ok(known);
            }
            // The request that ran meanwhile was for all waiting callers.
            if let Some((_, error)) = self.said.lock().failure.clone().filter(|(at, _)| *at >= since) {
                return Err(error);
            }
            alone
        };
        let found = self.find_primary().await;
        let mut said = self.said.lock();
        let now = Instant::now();
        match (found, said.client.clone()) {
            (Ok((client, epoch)), before) => {
                if before.is_none_or(|before| address(&before) != address(&client)) {
                    said.number += 1;
                }
                *said =
                    KnownPrimary { client: Some(client.clone()), number: said.number, epoch, at: now, failure: None };
                Ok((client, said.number))
            }
            // The known primary may still serve although no Sentinel answers.
            (Err(error), Some(client)) => {
                tracing::debug!("`{}` is used: {error}", address(&client));
                said.at = now;
                Ok((client, said.number))
            }
            (Err(error), None) => {
                said.failure = Some((now, error.clone()));
                Err(error)
            }
        }
    }

    fn cached_primary(&self, age: Duration) -> Option<(Client, u64)> {
        let said = self.said.lock();
        let client = said.client.clone().filter(|_| said.at.elapsed() < age)?;
        Some((client, said.number))
    }

    /// Stops the use of the primary with this number, which doesn't serve, until the Sentinels name it again.
    fn drop_primary(&self, number: u64) {
        let mut said = self.said.lock();
        if said.number == number {
            said.client = None;
        }
    }

    /// Asks all Sentinels; returns the primary and the epoch of the failover that made it.
    async fn find_primary(&self) -> Result<(Client, u64), RedisError> {
        let answers = join_all(self.nodes.iter().map(|node| node.ask_primary(&self.name))).await;
        let (answered, failed): (Vec<_>, Vec<_>) = answers.into_iter().flatten().partition(Result::is_ok);
        let is_answered = !answered.is_empty();
        let named: Vec<_> = answered.into_iter().flatten().flatten().collect();
        let (known, before) = {
            let said = self.said.lock();
            (said.epoch, said.client.clone())
        };
        let Some(found) = latest_primary(named, known, self.nodes.len()) else {
            let failures = failed.into_iter().filter_map(Result::err);
            // A refused login is reported first, since an operator must correct it.
            let silence = failures.min_by_key(|error| error.kind() != ErrorKind::AuthenticationFailed);
            let silence = silence.filter(|_| !is_answered);
            return Err(silence.unwrap_or_else(|| unknown_primary(&self.name)));
        };
        let address = match self.server.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
                host: found.host,
                port: found.port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(found.host, found.port),
        };
        match before {
            // Its users find out whether it serves.
            Some(client) if client.get_connection_info().addr() == &address => return Ok((client, found.epoch)),
            _ if !found.is_up => return Err(unknown_primary(&self.name)),
            _ => {}
        }
        let client = build_client(self.server.clone().set_addr(address), self.tls.as_ref())?;
        if !is_primary(&client).await? {
            return Err(unknown_primary(&self.name));
        }
        Ok((client, found.epoch))
    }
}

/// Answers of all Sentinels at one time.
pub struct SentinelReport {
    /// Name of the primary in their configuration.
    pub name: String,
    /// Number of Sentinels in `store.url`.
    pub all: usize,
    /// Number of Sentinels that answer.
    pub answering: usize,
    /// Addresses of the primary, each with how many Sentinels name it.
    pub primaries: BTreeMap<String, usize>,
    /// Whether one of them reports the primary as down.
    pub is_down: bool,
}

impl Sentinels {
    /// Asks every Sentinel for the primary.
    pub async fn report(&self) -> SentinelReport {
        let answers = join_all(self.nodes.iter().map(|node| node.ask_primary(&self.name))).await;
        let answers: Vec<_> = answers.into_iter().flatten().flatten().collect();
        let mut primaries = BTreeMap::new();
        for named in answers.iter().flatten() {
            *primaries.entry(format!("{}:{}", named.host, named.port)).or_default() += 1;
        }
        let is_down = answers.iter().flatten().any(|named| !named.is_up);
        SentinelReport { name: self.name.clone(), all: self.nodes.len(), answering: answers.len(), primaries, is_down }
    }
}

impl SentinelNode {
    /// Asks the Sentinel; `None` if it was silent just now. `Err` is an error of its connection; `Ok(None)`: it knows
    /// no primary of that name.
    async fn ask_primary(&self, name: &str) -> Option<Result<Option<SentinelAnswer>, RedisError>> {
        if self.rests_until.lock().is_some_and(|until| until > Instant::now()) {
            return None;
        }
        let mut connection = self.connection.lock().await;
        let asked = async {
            let mut open = match connection.take() {
                Some(open) => open,
                None => connect(&self.client).await?,
            };
            let answer = redis::cmd("SENTINEL").arg("MASTER").arg(name).query_async::<Value>(&mut open).await;
            match answer {
                Ok(value) => {
                    *connection = Some(open);
                    Ok(SentinelAnswer::parse(&redis::from_redis_value(value)?))
                }
                Err(error) if error.detail().is_some_and(|words| words.contains("unknown command")) => {
                    Err((ErrorKind::InvalidClientConfig, "it is no Sentinel", address(&self.client)).into())
                }
                Err(error) if matches!(error.kind(), ErrorKind::Server(ServerErrorKind::ResponseError)) => Ok(None),
                Err(error) => Err(error),
            }
        };
        let asked = asked.map(|answer| answer.map_err(|error| self.explain_refusal(error)));
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, asked.boxed()).await;
        let answer = answer.unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()));
        if answer.as_ref().is_err_and(RedisError::is_timeout) {
            *self.rests_until.lock() = Some(Instant::now() + SILENCE_PAUSE);
        }
        Some(answer)
    }

    /// Converts a refused login: the Sentinel's login is meant, not the servers'.
    fn explain_refusal(&self, error: RedisError) -> RedisError {
        let is_refused = error.kind() == ErrorKind::AuthenticationFailed
            || error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm)
            || matches!(error.code(), Some("NOAUTH" | "WRONGPASS"));
        if !is_refused {
            return error;
        }
        let what = "the Sentinel wants another login: see `sentinel_password` in `store.url`";
        (ErrorKind::AuthenticationFailed, what, format!("{}, {error}", address(&self.client))).into()
    }
}

async fn connect(client: &Client) -> Result<MultiplexedConnection, RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(ANSWER_TIMEOUT))
        .set_response_timeout(Some(ANSWER_TIMEOUT));
    // Boxed, since the driver's type is too deep for the compiler.
    client.get_multiplexed_async_connection_with_config(&config).boxed().await
}

async fn is_primary(client: &Client) -> Result<bool, RedisError> {
    let mut connection = connect(client).await?;
    let info: String = redis::cmd("INFO").arg("replication").query_async(&mut connection).await?;
    Ok(info.lines().any(|line| line.trim() == "role:master"))
}

fn unknown_primary(name: &str) -> RedisError {
    (ErrorKind::MasterNameNotFoundBySentinel, "no Sentinel names it", name.to_owned()).into()
}

fn address(client: &Client) -> String {
    client.get_connection_info().addr().to_string()
}

/// A connection to the primary that Sentinels name.
pub struct SentinelConnection {
    sentinels: Arc<Sentinels>,
    config: ConnectionManagerConfig,
    now: Mutex<Option<(Arc<SingleConnection>, u64)>>,
}

impl SentinelConnection {
    /// Returns a connection that is opened at its first use.
    pub fn new(sentinels: Arc<Sentinels>, config: ConnectionManagerConfig) -> Self {
        // Another server may be the primary: few attempts at this one.
        Self { sentinels, config: config.set_number_of_retries(1), now: Mutex::default() }
    }

    /// Returns the current answers of all Sentinels.
    pub async fn report(&self) -> SentinelReport {
        self.sentinels.report().await
    }

    /// Sends to the primary; answers may be errors of the server.
    pub async fn ask(&self, asked: RoundTrip<'_>) -> Result<Vec<Value>, RedisError> {
        let (client, number) = self.sentinels.primary().await?;
        let wire = {
            let mut now = self.now.lock();
            match &*now {
                Some((wire, of)) if *of == number => Arc::clone(wire),
                _ => {
                    let wire = Arc::new(SingleConnection::new(client, self.config.clone())?);
                    Arc::clone(&now.insert((wire, number)).0)
                }
            }
        };
        let answers = wire.ask(asked).await;
        let may_be_another = match &answers {
            Ok(answers) => {
                answers.iter().any(|answer| matches!(answer, Value::ServerError(error) if is_replica(error)))
            }
            Err(error) => is_cut(error) || error.is_io_error() || error.is_timeout(),
        };
        if may_be_another {
            self.sentinels.drop_primary(number);
        }
        answers
    }
}

/// Whether the server is no primary any more, so that the Sentinels must be asked.
fn is_replica(error: &ServerError) -> bool {
    matches!(error.kind(), Some(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentinel_with_the_latest_failover_counts() {
        let named = |host: &str, epoch, is_up| SentinelAnswer { host: host.to_owned(), port: 6379, epoch, is_up };
        for (said, known, expected) in [
            (vec![named("a", 1, true), named("b", 2, true), named("a", 1, true)], 0, Some("b")),
            (vec![named("a", 1, true), named("a", 1, true)], 2, None),
            (vec![named("a", 1, true), named("a", 1, true), named("a", 1, true)], 2, Some("a")),
            (vec![named("a", 2, false), named("a", 2, true)], 2, Some("a")),
            (vec![named("b", 3, false), named("a", 2, true)], 2, Some("b")),
            (vec![], 0, None),
        ] {
            assert_eq!(latest_primary(said.clone(), known, 3).map(|found| found.host).as_deref(), expected, "{said:?}");
        }
    }

    #[test]
    fn answers_of_a_sentinel_are_parsed() {
        let facts = |flags: &str| {
            let facts = [("ip", "::1"), ("port", "7"), ("flags", flags), ("config-epoch", "4"), ("num-slaves", "2")];
            facts.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
        };
        let expected = |is_up| Some(SentinelAnswer { host: "::1".to_owned(), port: 7, epoch: 4, is_up });
        for (flags, is_up) in [("master", true), ("master,s_down", false), ("s_down,o_down,master", false)] {
            assert_eq!(SentinelAnswer::parse(&facts(flags)), expected(is_up), "{flags}");
        }
        assert_eq!(SentinelAnswer::parse(&BTreeMap::new()), None);
    }
}
