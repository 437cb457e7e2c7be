//! A connection to one server, to all nodes of a cluster, or to the primary that Sentinels name.

use super::failure::{is_cut, is_temporary};
use super::sentinel::{SentinelConnection, SentinelReport, Sentinels};
use super::servers::{Servers, build_client, tcp_settings};
use crate::store::redis::RedisTls;
use parking_lot::Mutex;
use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::cluster::{ClusterClient, ClusterConfig};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::{Client, Cmd, ErrorKind, Pipeline, RedisError, Value};
use std::sync::Arc;
use std::time::Duration;

/// Longest wait for an answer; without one, a command may or may not have been applied. (The driver's default of 500 ms
/// is shorter than a slow fsync.)
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for the TCP connection and its greeting.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(2);
/// Attempts to connect before a waiting call fails; the next call starts again.
const CONNECT_RETRIES: usize = 3;

/// What is sent to a server in one round trip.
#[derive(Clone, Copy)]
pub enum RoundTrip<'c> {
    /// One command with one answer.
    One(&'c Cmd),
    /// A pipeline of this many commands, all of one slot in a cluster.
    All(&'c Pipeline, usize),
    /// A mark, a call and `WAIT`: the answers are the call's and, if the mark was written, that of `WAIT`.
    Waiting(&'c Pipeline),
}

/// The server of a cluster to send to.
#[derive(Clone, Copy)]
pub enum TargetNode<'c> {
    /// The primary that has the key of this command.
    KeyOf(&'c Cmd),
    /// The node at `host:port`.
    Node(&'c str),
}

impl TargetNode<'_> {
    fn routing(self) -> SingleNodeRoutingInfo {
        match self {
            // The answer must be current, so the primary has to give it.
            Self::KeyOf(cmd) => match first_key(cmd) {
                Some(key) => SingleNodeRoutingInfo::SpecificNode(Route::with_key(key, SlotAddr::Master)),
                None => SingleNodeRoutingInfo::RandomPrimary,
            },
            Self::Node(address) => {
                let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
                let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
                SingleNodeRoutingInfo::ByAddress { host, port: port.parse().unwrap_or_default() }
            }
        }
    }
}

/// Returns the first key of a command; a call of a function names its number of keys before it.
pub fn first_key(cmd: &Cmd) -> Option<&[u8]> {
    let mut words = cmd.args_iter().map(|word| match word {
        redis::Arg::Simple(bytes) => Some(bytes),
        _ => None,
    });
    let is_call = words.next()? == Some(b"FCALL");
    words.nth(if is_call { 2 } else { 0 })?
}

/// One of the connections of a [`super::connection::Pool`].
pub enum ServerConnection {
    /// A connection to one server.
    One(Box<SingleConnection>),
    /// Connections to a cluster.
    Cluster(Box<ClusterConnections>),
    /// A connection to the server that Sentinels call the primary.
    Sentinel(Box<SentinelConnection>),
}

/// A connection to one server. The driver reconnects when it breaks, but after a refused login it repeats that error
/// for ever: then a new one is made.
pub struct SingleConnection {
    client: Client,
    config: ConnectionManagerConfig,
    now: Renewable<ConnectionManager>,
}

/// A value that is replaced from time to time, with the number of earlier ones.
struct Renewable<T>(Mutex<(T, u64)>);

impl<T: Clone> Renewable<T> {
    fn new(first: T) -> Self {
        Self(Mutex::new((first, 0)))
    }

    fn get(&self) -> (T, u64) {
        self.0.lock().clone()
    }

    /// Replaces the value, unless another caller has done so since this number was returned.
    fn renew(&self, number: u64, make: impl FnOnce() -> Option<T>) {
        let mut now = self.0.lock();
        if now.1 == number
            && let Some(new) = make()
        {
            *now = (new, number + 1);
        }
    }
}

/// Connections to all nodes of a cluster.
///
/// The driver repeats nothing by itself: only the method of a command knows whether it may be sent again. The driver
/// reads the list of nodes again when one of them redirects or drops its connection; for a node that is only silent, a
/// new connection is made here.
pub struct ClusterConnections {
    client: ClusterClient,
    now: Renewable<ClusterConnection>,
}

impl ServerConnection {
    /// Returns `count` connections, which are opened at their first use.
    pub fn open_many(servers: &Servers, tls: Option<&RedisTls>, count: usize) -> Result<Vec<Self>, RedisError> {
        if servers.is_cluster {
            let mut builder = ClusterClient::builder(servers.nodes.clone())
                .retries(0)
                .response_timeout(RESPONSE_TIMEOUT)
                .connection_timeout(CONNECTION_TIMEOUT)
                .tcp_settings(tcp_settings());
            if let Some(tls) = tls {
                builder = builder.certs(tls.clone().into());
            }
            let client = builder.build()?;
            let wire = || {
                let now = Renewable::new(ClusterConnections::connect(&client));
                Self::Cluster(Box::new(ClusterConnections { client: client.clone(), now }))
            };
            return Ok((0..count).map(|_| wire()).collect());
        }
        let config = ConnectionManagerConfig::new()
            .set_response_timeout(Some(RESPONSE_TIMEOUT))
            .set_connection_timeout(Some(CONNECTION_TIMEOUT))
            .set_number_of_retries(CONNECT_RETRIES)
            .set_max_delay(Duration::from_secs(1));
        if let Some(primary) = &servers.primary {
            let sentinels = Arc::new(Sentinels::new(servers, primary, tls)?);
            let wire = || Self::Sentinel(Box::new(SentinelConnection::new(Arc::clone(&sentinels), config.clone())));
            return Ok((0..count).map(|_| wire()).collect());
        }
        let Some(server) = servers.nodes.first() else { return Ok(Vec::new()) };
        let client = build_client(server.clone(), tls)?;
        let wire = || Ok(Self::One(Box::new(SingleConnection::new(client.clone(), config.clone())?)));
        (0..count).map(|_| wire()).collect()
    }

    /// Sends, and sends again when the connection turns out to be dropped; the driver makes a new one. `before` is
    /// called between the two, since another server may be behind the new connection.
    pub async fn ask_twice(
        &self,
        asked: RoundTrip<'_>,
        place: TargetNode<'_>,
        before: impl AsyncFnOnce(&RedisError) -> Result<(), RedisError>,
    ) -> Result<Vec<Value>, RedisError> {
        match self.ask(asked, place).await {
            Err(error) if is_cut(&error) && !error.is_connection_refusal() => {
                tracing::debug!(%error, "connection to Redis dropped; asked again");
                before(&error).await?;
                self.ask(asked, place).await
            }
            other => other,
        }
    }

    /// Sends; an answer that is an error becomes `Err`.
    pub async fn ask(&self, asked: RoundTrip<'_>, place: TargetNode<'_>) -> Result<Vec<Value>, RedisError> {
        let mut answers = match self {
            Self::One(wire) => wire.ask(asked).await,
            Self::Cluster(wire) => wire.ask(asked, place.routing()).await,
            Self::Sentinel(wire) => wire.ask(asked).await,
        }?;
        if matches!(asked, RoundTrip::Waiting(..)) {
            let confirmed = answers.pop();
            let mut answers = answers.into_iter().map(Value::extract_error);
            let (marked, called) = (answers.next(), answers.next());
            // The call's own answer counts: without a mark it isn't clear what `WAIT` confirms.
            let called = called.unwrap_or(Ok(Value::Nil))?;
            return Ok(match marked {
                Some(Err(_)) | None => vec![called],
                Some(Ok(_)) => std::iter::once(called).chain(confirmed).collect(),
            });
        }
        answers.into_iter().map(Value::extract_error).collect()
    }

    /// Returns the answers of the Sentinels, if Sentinels name the primary.
    pub async fn sentinels(&self) -> Option<SentinelReport> {
        match self {
            Self::Sentinel(wire) => Some(wire.report().await),
            Self::One(_) | Self::Cluster(_) => None,
        }
    }

    /// Sends to every primary; each has its own answer. Without a cluster there is one, with an empty name. `note` gets
    /// the error of a dropped connection, since the answer may be another server's.
    pub async fn ask_all(
        &self,
        cmd: &Cmd,
        note: impl Fn(&RedisError),
    ) -> Result<Vec<(String, Result<Value, RedisError>)>, RedisError> {
        let Self::Cluster(wire) = self else {
            let before = async |error: &RedisError| {
                note(error);
                Ok(())
            };
            return match self.ask_twice(RoundTrip::One(cmd), TargetNode::KeyOf(cmd), before).await {
                Ok(mut answers) => Ok(vec![(String::new(), Ok(answers.pop().unwrap_or(Value::Nil)))]),
                Err(error) if is_temporary(&error) || !matches!(error.kind(), ErrorKind::Server(_)) => Err(error),
                // The server's answer is that it refuses.
                Err(error) => Ok(vec![(String::new(), Err(error))]),
            };
        };
        match wire.ask_all(cmd.clone()).await? {
            Value::Map(answers) => {
                Ok(answers.into_iter().map(|(node, answer)| (answer_text(&node), answer.extract_error())).collect())
            }
            other => Ok(vec![(String::new(), other.extract_error())]),
        }
    }
}

impl SingleConnection {
    /// Returns a connection that is opened at its first use.
    pub fn new(client: Client, config: ConnectionManagerConfig) -> Result<Self, RedisError> {
        let now = Renewable::new(ConnectionManager::new_lazy_with_config(client.clone(), config.clone())?);
        Ok(Self { client, config, now })
    }

    /// Sends; answers may be errors of the server.
    pub async fn ask(&self, asked: RoundTrip<'_>) -> Result<Vec<Value>, RedisError> {
        let (mut manager, number) = self.now.get();
        let answers = match asked {
            RoundTrip::One(cmd) => manager.req_packed_command(cmd).await.map(|value| vec![value]),
            RoundTrip::All(pipe, count) => manager.req_packed_commands(pipe, 0, count).await,
            RoundTrip::Waiting(pipe) => manager.req_packed_commands(pipe, 0, 3).await,
        };
        if answers.as_ref().is_err_and(|error| error.kind() == ErrorKind::AuthenticationFailed) {
            let make = || ConnectionManager::new_lazy_with_config(self.client.clone(), self.config.clone());
            self.now.renew(number, || make().ok());
        }
        answers
    }
}

impl ClusterConnections {
    fn connect(client: &ClusterClient) -> ClusterConnection {
        // Without this the driver's own requests for the slots wait for ever.
        let config = ClusterConfig::new().set_response_timeout(RESPONSE_TIMEOUT);
        client.get_pending_async_connection_with_config(config)
    }

    async fn ask(&self, asked: RoundTrip<'_>, to: SingleNodeRoutingInfo) -> Result<Vec<Value>, RedisError> {
        let (mut connection, number) = self.now.get();
        let answers = match asked {
            RoundTrip::One(cmd) => {
                connection.route_command(cmd.clone(), RoutingInfo::SingleNode(to)).await.map(|value| vec![value])
            }
            RoundTrip::All(pipe, count) => connection.route_pipeline(pipe.clone(), 0, count, to).await,
            RoundTrip::Waiting(pipe) => connection.route_pipeline(pipe.clone(), 0, 3, to).await,
        };
        self.renew_on_timeout(answers, number)
    }

    async fn ask_all(&self, cmd: Cmd) -> Result<Value, RedisError> {
        let (mut connection, number) = self.now.get();
        let everywhere = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
        self.renew_on_timeout(connection.route_command(cmd, everywhere).await, number)
    }

    /// Reconnects after a timeout: a silent node may be paused or cut off, and another may have its slots, which only
    /// the other nodes know.
    fn renew_on_timeout<T>(&self, answers: Result<T, RedisError>, number: u64) -> Result<T, RedisError> {
        if answers.as_ref().is_err_and(RedisError::is_timeout) {
            self.now.renew(number, || Some(Self::connect(&self.client)));
        }
        answers
    }
}

/// Returns the text of an answer, empty for any other type.
pub fn answer_text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.clone(),
        _ => String::new(),
    }
}
