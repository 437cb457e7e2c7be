//! Which server is the primary, as Sentinels say. One that stood still while another took over goes on as if it still
//! were, for some seconds, and some Sentinels hear of it two seconds later: so all of them are asked, once a second while
//! there is something to do, and the one that knows of the latest failover counts.

use super::failure::is_cut;
use super::servers::{Primary, RedisTls, Servers, client, tcp};
use super::wire::{OneWire, RoundTrip};
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

/// What Sentinels said counts for so long, and twice as long while they are asked again.
const COUNTS: Duration = Duration::from_secs(1);

/// Longest time for the answer of a Sentinel, and of a server that they name for the first time.
const LONGEST: Duration = Duration::from_millis(500);

/// One that didn't answer is asked again after it.
const SILENT: Duration = Duration::from_secs(10);

/// Sentinels, and what they have said.
pub struct Sentinels {
    nodes: Vec<Node>,
    /// What they call it.
    name: String,
    /// Of any of its servers, but for the address.
    server: ConnectionInfo,
    tls: Option<RedisTls>,
    /// Held by who asks them.
    asking: tokio::sync::Mutex<()>,
    said: Mutex<Said>,
}

/// One of them.
struct Node {
    client: Client,
    connection: tokio::sync::Mutex<Option<MultiplexedConnection>>,
    rests_until: Mutex<Option<Instant>>,
}

/// A primary.
struct Said {
    client: Option<Client>,
    /// Grows with each that may be another.
    number: u64,
    /// Of the failover that made it: Sentinels that know of an earlier one only are behind.
    epoch: u64,
    at: Instant,
    /// Why the last one who asked got no answer, and when.
    failure: Option<(Instant, RedisError)>,
}

/// What one Sentinel says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Named {
    host: String,
    port: u16,
    epoch: u64,
    /// It reaches it.
    is_up: bool,
}

impl Named {
    fn of(facts: &BTreeMap<String, String>) -> Option<Self> {
        let flags = facts.get("flags")?;
        Some(Self {
            host: facts.get("ip")?.clone(),
            port: facts.get("port")?.parse().ok()?,
            epoch: facts.get("config-epoch")?.parse().ok()?,
            is_up: !flags.contains("s_down") && !flags.contains("o_down"),
        })
    }
}

/// The primary of the latest failover, if that isn't older than what is known: unless all of so many Sentinels say so,
/// who were made anew then.
fn latest(named: Vec<Named>, known: u64, sentinels: usize) -> Option<Named> {
    let is_all = named.len() == sentinels;
    let latest = named.into_iter().max_by_key(|named| (named.epoch, named.is_up));
    latest.filter(|latest| is_all || latest.epoch >= known)
}

impl Sentinels {
    /// Who is asked, with a login of their own and the certificates of the servers.
    pub fn new(servers: &Servers, primary: &Primary, tls: Option<&RedisTls>) -> Result<Self, RedisError> {
        let Some(server) = servers.nodes.first().cloned() else {
            return Err((ErrorKind::InvalidClientConfig, "no Sentinel is named").into());
        };
        let node = |node: &ConnectionInfo| {
            let info = node.addr().clone().into_connection_info()?.set_tcp_settings(tcp());
            let info = info.set_redis_settings(primary.login.clone());
            Ok(Node {
                client: client(info, tls)?,
                connection: tokio::sync::Mutex::default(),
                rests_until: Mutex::default(),
            })
        };
        let nodes = servers.nodes.iter().map(node).collect::<Result<_, RedisError>>()?;
        let said = Said { client: None, number: 0, epoch: 0, at: Instant::now(), failure: None };
        let (name, tls) = (primary.name.clone(), tls.cloned());
        Ok(Self { nodes, name, server, tls, asking: tokio::sync::Mutex::default(), said: Mutex::new(said) })
    }

    /// The primary that they name, or have named just now, with its number.
    async fn primary(&self) -> Result<(Client, u64), RedisError> {
        if let Some(known) = self.known(COUNTS) {
            return Ok(known);
        }
        let since = Instant::now();
        let _alone = if let Ok(alone) = self.asking.try_lock() {
            alone
        } else {
            if let Some(known) = self.known(2 * COUNTS) {
                return Ok(known);
            }
            let alone = self.asking.lock().await;
            if let Some(known) = self.known(COUNTS) {
                return Ok(known);
            }
            // Whoever asked meanwhile asked for all that waited.
            if let Some((_, error)) = self.said.lock().failure.clone().filter(|(at, _)| *at >= since) {
                return Err(error);
            }
            alone
        };
        let found = self.ask().await;
        let mut said = self.said.lock();
        let now = Instant::now();
        match (found, said.client.clone()) {
            (Ok((client, epoch)), before) => {
                if before.is_none_or(|before| address(&before) != address(&client)) {
                    said.number += 1;
                }
                *said = Said { client: Some(client.clone()), number: said.number, epoch, at: now, failure: None };
                Ok((client, said.number))
            }
            // It may serve though nobody can say so.
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

    fn known(&self, age: Duration) -> Option<(Client, u64)> {
        let said = self.said.lock();
        let client = said.client.clone().filter(|_| said.at.elapsed() < age)?;
        Some((client, said.number))
    }

    /// The primary of this number doesn't serve: it isn't used before they name it again.
    fn doubt(&self, number: u64) {
        let mut said = self.said.lock();
        if said.number == number {
            said.client = None;
        }
    }

    /// Asks all of them: the primary, and which failover made it.
    async fn ask(&self) -> Result<(Client, u64), RedisError> {
        let answers = join_all(self.nodes.iter().map(|node| node.ask(&self.name))).await;
        let (answered, failed): (Vec<_>, Vec<_>) = answers.into_iter().flatten().partition(Result::is_ok);
        let is_answered = !answered.is_empty();
        let named: Vec<_> = answered.into_iter().flatten().flatten().collect();
        let (known, before) = {
            let said = self.said.lock();
            (said.epoch, said.client.clone())
        };
        let Some(found) = latest(named, known, self.nodes.len()) else {
            let failures = failed.into_iter().filter_map(Result::err);
            // That one refuses the login is for somebody to mend.
            let silence = failures.min_by_key(|error| error.kind() != ErrorKind::AuthenticationFailed);
            let silence = silence.filter(|_| !is_answered);
            return Err(silence.unwrap_or_else(|| unknown(&self.name)));
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
            // Whether it serves, those find out who use it.
            Some(client) if client.get_connection_info().addr() == &address => return Ok((client, found.epoch)),
            _ if !found.is_up => return Err(unknown(&self.name)),
            _ => {}
        }
        let client = client(self.server.clone().set_addr(address), self.tls.as_ref())?;
        if !is_primary(&client).await? {
            return Err(unknown(&self.name));
        }
        Ok((client, found.epoch))
    }
}

/// Answers of all Sentinels, at one time.
pub struct SentinelReport {
    /// Name of the primary in their configuration.
    pub name: String,
    /// How many are named in `store.url`.
    pub all: usize,
    /// How many of them answer.
    pub answering: usize,
    /// Addresses of the primary, each with how many name it.
    pub primaries: BTreeMap<String, usize>,
    /// Whether one of them says that the primary is down.
    pub is_down: bool,
}

impl Sentinels {
    /// Asks every Sentinel.
    pub async fn report(&self) -> SentinelReport {
        let answers = join_all(self.nodes.iter().map(|node| node.ask(&self.name))).await;
        let answers: Vec<_> = answers.into_iter().flatten().flatten().collect();
        let mut primaries = BTreeMap::new();
        for named in answers.iter().flatten() {
            *primaries.entry(format!("{}:{}", named.host, named.port)).or_default() += 1;
        }
        let is_down = answers.iter().flatten().any(|named| !named.is_up);
        SentinelReport { name: self.name.clone(), all: self.nodes.len(), answering: answers.len(), primaries, is_down }
    }
}

impl Node {
    /// What it says; `None`: it was silent just now. An error is one of its connection; no `Named`: it knows nobody of
    /// that name.
    async fn ask(&self, name: &str) -> Option<Result<Option<Named>, RedisError>> {
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
                    Ok(Named::of(&redis::from_redis_value(value)?))
                }
                Err(error) if error.detail().is_some_and(|words| words.contains("unknown command")) => {
                    Err((ErrorKind::InvalidClientConfig, "it is no Sentinel", address(&self.client)).into())
                }
                Err(error) if matches!(error.kind(), ErrorKind::Server(ServerErrorKind::ResponseError)) => Ok(None),
                Err(error) => Err(error),
            }
        };
        let asked = asked.map(|answer| answer.map_err(|error| self.refused(error)));
        let answer = tokio::time::timeout(LONGEST, asked.boxed()).await;
        let answer = answer.unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()));
        if answer.as_ref().is_err_and(RedisError::is_timeout) {
            *self.rests_until.lock() = Some(Instant::now() + SILENT);
        }
        Some(answer)
    }

    /// Whose login it is that doesn't count: the servers have another.
    fn refused(&self, error: RedisError) -> RedisError {
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
    let config = AsyncConnectionConfig::new().set_connection_timeout(Some(LONGEST)).set_response_timeout(Some(LONGEST));
    // Of a type without a name: the driver's is too deep for the compiler.
    client.get_multiplexed_async_connection_with_config(&config).boxed().await
}

async fn is_primary(client: &Client) -> Result<bool, RedisError> {
    let mut connection = connect(client).await?;
    let info: String = redis::cmd("INFO").arg("replication").query_async(&mut connection).await?;
    Ok(info.lines().any(|line| line.trim() == "role:master"))
}

fn unknown(name: &str) -> RedisError {
    (ErrorKind::MasterNameNotFoundBySentinel, "no Sentinel names it", name.to_owned()).into()
}

fn address(client: &Client) -> String {
    client.get_connection_info().addr().to_string()
}

/// A connection to the primary.
pub struct SentinelWire {
    sentinels: Arc<Sentinels>,
    config: ConnectionManagerConfig,
    now: Mutex<Option<(Arc<OneWire>, u64)>>,
}

impl SentinelWire {
    /// Connected when it is first used.
    pub fn new(sentinels: Arc<Sentinels>, config: ConnectionManagerConfig) -> Self {
        // Another server may be the primary: few attempts at this one.
        Self { sentinels, config: config.set_number_of_retries(1), now: Mutex::default() }
    }

    /// What all Sentinels say now.
    pub async fn report(&self) -> SentinelReport {
        self.sentinels.report().await
    }

    /// Asks the primary; answers may be errors of the server.
    pub async fn ask(&self, asked: RoundTrip<'_>) -> Result<Vec<Value>, RedisError> {
        let (client, number) = self.sentinels.primary().await?;
        let wire = {
            let mut now = self.now.lock();
            match &*now {
                Some((wire, of)) if *of == number => Arc::clone(wire),
                _ => {
                    let wire = Arc::new(OneWire::new(client, self.config.clone())?);
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
            self.sentinels.doubt(number);
        }
        answers
    }
}

/// It was the primary: that is for the Sentinels to say now.
fn is_replica(error: &ServerError) -> bool {
    matches!(error.kind(), Some(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_knows_of_the_latest_failover_counts() {
        let named = |host: &str, epoch, is_up| Named { host: host.to_owned(), port: 6379, epoch, is_up };
        for (said, known, expected) in [
            (vec![named("a", 1, true), named("b", 2, true), named("a", 1, true)], 0, Some("b")),
            (vec![named("a", 1, true), named("a", 1, true)], 2, None),
            (vec![named("a", 1, true), named("a", 1, true), named("a", 1, true)], 2, Some("a")),
            (vec![named("a", 2, false), named("a", 2, true)], 2, Some("a")),
            (vec![named("b", 3, false), named("a", 2, true)], 2, Some("b")),
            (vec![], 0, None),
        ] {
            assert_eq!(latest(said.clone(), known, 3).map(|found| found.host).as_deref(), expected, "{said:?}");
        }
    }

    #[test]
    fn what_a_sentinel_says_is_read() {
        let facts = |flags: &str| {
            let facts = [("ip", "::1"), ("port", "7"), ("flags", flags), ("config-epoch", "4"), ("num-slaves", "2")];
            facts.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
        };
        let expected = |is_up| Some(Named { host: "::1".to_owned(), port: 7, epoch: 4, is_up });
        for (flags, is_up) in [("master", true), ("master,s_down", false), ("s_down,o_down,master", false)] {
            assert_eq!(Named::of(&facts(flags)), expected(is_up), "{flags}");
        }
        assert_eq!(Named::of(&BTreeMap::new()), None);
    }
}
