//! One way to the servers: a connection to one, to all nodes of a cluster, or to the primary that sentinels name.

use super::failure::{is_cut, passes};
use super::sentinel::{SentinelReport, SentinelWire, Sentinels};
use super::servers::{Servers, client, tcp};
use crate::store::redis::RedisTls;
use parking_lot::Mutex;
use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::cluster::{ClusterClient, ClusterConfig};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::{Client, Cmd, ErrorKind, Pipeline, RedisError, Value};
use std::sync::Arc;
use std::time::Duration;

/// A command without an answer after it may or may not have been applied. (The driver's own
/// default of 500 ms is shorter than a slow fsync.)
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// For the TCP connection and its greeting.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(2);
/// Attempts to connect before a waiting call fails; the next call starts them again.
const CONNECT_RETRIES: usize = 3;

/// What goes to a server in one round trip.
#[derive(Clone, Copy)]
pub enum RoundTrip<'c> {
    /// One command.
    One(&'c Cmd),
    /// So many, of one slot where there are slots.
    All(&'c Pipeline, usize),
    /// A mark, a call and `WAIT`: the answers are that of the call, and, where the mark was written, that of `WAIT` as it is.
    Waiting(&'c Pipeline),
}

/// Which server of a cluster is asked.
#[derive(Clone, Copy)]
pub enum Place<'c> {
    /// Who has the key of this command.
    Of(&'c Cmd),
    /// `host:port`.
    Node(&'c str),
}

impl Place<'_> {
    fn routing(self) -> SingleNodeRoutingInfo {
        match self {
            // What is answered counts, so it is the primary that answers.
            Self::Of(cmd) => match key(cmd) {
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

/// The first key of a command: a function says before how many it names.
pub fn key(cmd: &Cmd) -> Option<&[u8]> {
    let mut words = cmd.args_iter().map(|word| match word {
        redis::Arg::Simple(bytes) => Some(bytes),
        _ => None,
    });
    let is_call = words.next()? == Some(b"FCALL");
    words.nth(if is_call { 2 } else { 0 })?
}

/// One of the connections of a [`super::connection::Pool`].
pub enum Wire {
    /// To one server.
    One(Box<OneWire>),
    /// To a cluster.
    Cluster(Box<ClusterWire>),
    /// To whichever server sentinels call the primary.
    Sentinel(Box<SentinelWire>),
}

/// A connection to one server. The driver makes it anew when it breaks, but for ever says what the server said when it
/// refused a login: then a new one is made.
pub struct OneWire {
    client: Client,
    config: ConnectionManagerConfig,
    now: Renewed<ConnectionManager>,
}

/// What is made anew from time to time, with how many there were before.
struct Renewed<T>(Mutex<(T, u64)>);

impl<T: Clone> Renewed<T> {
    fn new(first: T) -> Self {
        Self(Mutex::new((first, 0)))
    }

    fn get(&self) -> (T, u64) {
        self.0.lock().clone()
    }

    /// Unless somebody has done it since this number was got.
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
/// The driver repeats nothing by itself: whether a command may be sent again, only its method knows. It asks for the
/// nodes anew when one of them points elsewhere or drops its connection; for a node that is only silent, a new one
/// is made.
pub struct ClusterWire {
    client: ClusterClient,
    now: Renewed<ClusterConnection>,
}

impl Wire {
    /// So many, connected when they are first used.
    pub fn several(servers: &Servers, tls: Option<&RedisTls>, count: usize) -> Result<Vec<Self>, RedisError> {
        if servers.is_cluster {
            let mut builder = ClusterClient::builder(servers.nodes.clone())
                .retries(0)
                .response_timeout(RESPONSE_TIMEOUT)
                .connection_timeout(CONNECTION_TIMEOUT)
                .tcp_settings(tcp());
            if let Some(tls) = tls {
                builder = builder.certs(tls.clone().into());
            }
            let client = builder.build()?;
            let wire = || {
                let now = Renewed::new(ClusterWire::connect(&client));
                Self::Cluster(Box::new(ClusterWire { client: client.clone(), now }))
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
            let wire = || Self::Sentinel(Box::new(SentinelWire::new(Arc::clone(&sentinels), config.clone())));
            return Ok((0..count).map(|_| wire()).collect());
        }
        let Some(server) = servers.nodes.first() else { return Ok(Vec::new()) };
        let client = client(server.clone(), tls)?;
        let wire = || Ok(Self::One(Box::new(OneWire::new(client.clone(), config.clone())?)));
        (0..count).map(|_| wire()).collect()
    }

    /// Asks, and once more when the connection turns out to be dropped; the driver makes a new one. `before` is called
    /// between the two: behind the new connection the server may be another.
    pub async fn ask_twice(
        &self,
        asked: RoundTrip<'_>,
        place: Place<'_>,
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

    /// Asks; an answer that is an error is one.
    pub async fn ask(&self, asked: RoundTrip<'_>, place: Place<'_>) -> Result<Vec<Value>, RedisError> {
        let mut answers = match self {
            Self::One(wire) => wire.ask(asked).await,
            Self::Cluster(wire) => wire.ask(asked, place.routing()).await,
            Self::Sentinel(wire) => wire.ask(asked).await,
        }?;
        if matches!(asked, RoundTrip::Waiting(..)) {
            let confirmed = answers.pop();
            let mut answers = answers.into_iter().map(Value::extract_error);
            let (marked, called) = (answers.next(), answers.next());
            // The call's own answer counts: without a mark nobody knows what is confirmed.
            let called = called.unwrap_or(Ok(Value::Nil))?;
            return Ok(match marked {
                Some(Err(_)) | None => vec![called],
                Some(Ok(_)) => std::iter::once(called).chain(confirmed).collect(),
            });
        }
        answers.into_iter().map(Value::extract_error).collect()
    }

    /// What Sentinels say, where they name the primary.
    pub async fn sentinels(&self) -> Option<SentinelReport> {
        match self {
            Self::Sentinel(wire) => Some(wire.report().await),
            Self::One(_) | Self::Cluster(_) => None,
        }
    }

    /// Asks every primary; each answers for itself. Without a cluster there is one, without a name. `note` is told of a
    /// connection that turns out to be dropped: the answer may be another server's.
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
            return match self.ask_twice(RoundTrip::One(cmd), Place::Of(cmd), before).await {
                Ok(mut answers) => Ok(vec![(String::new(), Ok(answers.pop().unwrap_or(Value::Nil)))]),
                Err(error) if passes(&error) || !matches!(error.kind(), ErrorKind::Server(_)) => Err(error),
                // Its answer: it refuses this.
                Err(error) => Ok(vec![(String::new(), Err(error))]),
            };
        };
        match wire.ask_all(cmd.clone()).await? {
            Value::Map(answers) => {
                Ok(answers.into_iter().map(|(node, answer)| (text(&node), answer.extract_error())).collect())
            }
            other => Ok(vec![(String::new(), other.extract_error())]),
        }
    }
}

impl OneWire {
    /// Connected when it is first used.
    pub fn new(client: Client, config: ConnectionManagerConfig) -> Result<Self, RedisError> {
        let now = Renewed::new(ConnectionManager::new_lazy_with_config(client.clone(), config.clone())?);
        Ok(Self { client, config, now })
    }

    /// Asks; answers may be errors of the server.
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

impl ClusterWire {
    fn connect(client: &ClusterClient) -> ClusterConnection {
        // Without this the driver's own questions, for the slots, wait for ever.
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
        self.watch(answers, number)
    }

    async fn ask_all(&self, cmd: Cmd) -> Result<Value, RedisError> {
        let (mut connection, number) = self.now.get();
        let everywhere = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
        self.watch(connection.route_command(cmd, everywhere).await, number)
    }

    /// A node that doesn't answer may be paused or cut off, and another have its slots by now: nobody but the other
    /// nodes says so.
    fn watch<T>(&self, answers: Result<T, RedisError>, number: u64) -> Result<T, RedisError> {
        if answers.as_ref().is_err_and(RedisError::is_timeout) {
            self.now.renew(number, || Some(Self::connect(&self.client)));
        }
        answers
    }
}

/// Text of an answer, empty for any other.
pub fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.clone(),
        _ => String::new(),
    }
}
