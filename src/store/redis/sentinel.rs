//! Which server is the primary, as Sentinels say. One that stood still while another took over goes on as if it still
//! were, for some seconds, and some Sentinels hear of it two seconds later: so they are asked before anybody goes on with
//! it, and a server that was replaced isn't believed to be the primary before it says whom it has followed.

use super::servers::{RedisTls, Servers, tcp};
use super::wire::{RoundTrip, ask_over};
use futures::FutureExt;
use parking_lot::Mutex;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{AsyncConnectionConfig, Client, ErrorKind, RedisError, ServerError, ServerErrorKind, TlsMode, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What Sentinels said counts for so long.
const COUNTS: Duration = Duration::from_secs(1);

/// Longest time for their answer when nobody is known.
const LONGEST: Duration = Duration::from_secs(5);

/// The same when somebody is.
const SHORT: Duration = Duration::from_millis(500);

/// When they don't answer, and whoever was the primary still does, they are asked again after it.
const SILENT: Duration = Duration::from_secs(10);

/// What a Sentinel says that has not heard of a failover.
const REPLACED: &str = "another server has taken over from the primary that Sentinels name";

/// Sentinels, and what they have said.
pub struct Sentinels {
    asked: tokio::sync::Mutex<SentinelClient>,
    said: Mutex<Said>,
}

/// A primary.
#[derive(Clone)]
struct Said {
    client: Option<Client>,
    /// Of the last one that there was.
    lineage: Lineage,
    /// Grows with each that may be another.
    number: u64,
    until: Instant,
}

/// Ids of what a server writes and its replicas copy: a replica that becomes the primary takes a new one, and knows the
/// one before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Lineage {
    id: String,
    before: String,
}

impl Lineage {
    fn of(info: &str) -> Self {
        let value = |name: &str| {
            let found = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            found.map(|id| id.trim().to_owned()).unwrap_or_default()
        };
        Self { id: value("master_replid"), before: value("master_replid2") }
    }

    /// Whether this one took over from the other.
    fn replaced(&self, other: &Self) -> bool {
        !other.id.is_empty() && self.before == other.id && self.id != other.id
    }

    async fn ask(client: &Client) -> Result<Self, RedisError> {
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(COUNTS)).set_response_timeout(Some(COUNTS));
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).boxed().await?;
        let info: String = redis::cmd("INFO").arg("replication").query_async(&mut connection).await?;
        Ok(Self::of(&info))
    }
}

impl Sentinels {
    /// Who is asked: Sentinels have no login, and the certificates of the servers.
    pub fn new(servers: &Servers, primary: &str, tls: Option<&RedisTls>) -> Result<Self, RedisError> {
        let addresses = servers.nodes.iter().map(|node| node.addr().clone());
        let mut builder = SentinelClientBuilder::new(addresses, primary, SentinelServerType::Master)?
            .set_client_to_redis_tcp_settings(tcp())
            .set_client_to_sentinel_tcp_settings(tcp());
        if servers.is_tls {
            builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
        }
        if let Some(tls) = tls {
            builder = builder
                .set_client_to_redis_certificates(tls.clone().into())
                .set_client_to_sentinel_certificates(tls.clone().into());
        }
        if let Some(settings) = servers.nodes.first().map(redis::ConnectionInfo::redis_settings) {
            builder = builder.set_client_to_redis_db(settings.db());
            if let Some(user) = settings.username() {
                builder = builder.set_client_to_redis_username(user);
            }
            if let Some(password) = settings.password() {
                builder = builder.set_client_to_redis_password(password);
            }
        }
        let said = Said { client: None, lineage: Lineage::default(), number: 0, until: Instant::now() };
        let said = Mutex::new(said);
        Ok(Self { asked: tokio::sync::Mutex::new(builder.build()?), said })
    }

    /// The primary that they name, or have named just now, with its number.
    async fn primary(&self) -> Result<(Client, u64), RedisError> {
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let mut sentinels = self.asked.lock().await;
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let before = self.said.lock().clone();
        let limit = if before.client.is_some() { SHORT } else { LONGEST };
        let answer = tokio::time::timeout(limit, named(&mut sentinels, &before)).await;
        let answer = answer.unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()));
        let mut said = self.said.lock();
        match (answer, before.client) {
            (Ok((client, lineage)), before) => {
                let is_same = before.is_some_and(|before| address(&before) == address(&client));
                let number = if is_same { said.number } else { said.number + 1 };
                *said = Said { client: Some(client.clone()), lineage, number, until: Instant::now() + COUNTS };
                Ok((client, number))
            }
            // It may serve though nobody can say so.
            (Err(error), Some(client)) => {
                tracing::warn!(
                    "Sentinels don't say which Redis is the primary, `{}` is used: {error}",
                    address(&client)
                );
                said.until = Instant::now() + if is_replaced(&error) { COUNTS } else { SILENT };
                Ok((client, said.number))
            }
            (Err(error), None) => Err(error),
        }
    }

    fn known(&self) -> Option<(Client, u64)> {
        let said = self.said.lock();
        let client = said.client.clone().filter(|_| Instant::now() < said.until)?;
        Some((client, said.number))
    }

    /// The primary of this number doesn't serve: it isn't used before they name it again.
    fn doubt(&self, number: u64) {
        let mut said = self.said.lock();
        if said.number == number {
            said.client = None;
        }
    }
}

/// Who Sentinels say is the primary, unless it is one that the last was made the primary in place of.
async fn named(sentinels: &mut SentinelClient, before: &Said) -> Result<(Client, Lineage), RedisError> {
    // Of a type without a name: the driver's is too deep for the compiler.
    let client = sentinels.async_get_client().boxed().await?;
    if before.client.as_ref().is_some_and(|before| address(before) == address(&client)) {
        return Ok((client, before.lineage.clone()));
    }
    let lineage = Lineage::ask(&client).await?;
    if before.lineage.replaced(&lineage) {
        return Err((ErrorKind::MasterNameNotFoundBySentinel, REPLACED, address(&client)).into());
    }
    Ok((client, lineage))
}

fn is_replaced(error: &RedisError) -> bool {
    error.to_string().contains(REPLACED)
}

fn address(client: &Client) -> String {
    client.get_connection_info().addr().to_string()
}

/// A connection to the primary.
pub struct SentinelWire {
    sentinels: Arc<Sentinels>,
    config: ConnectionManagerConfig,
    now: Mutex<Option<(ConnectionManager, u64)>>,
}

impl SentinelWire {
    /// Connected when it is first used.
    pub fn new(sentinels: Arc<Sentinels>, config: ConnectionManagerConfig) -> Self {
        // Another server may be the primary: few attempts at this one.
        Self { sentinels, config: config.set_number_of_retries(1), now: Mutex::default() }
    }

    /// Asks the primary; answers may be errors of the server.
    pub async fn ask(&self, asked: RoundTrip<'_>) -> Result<Vec<Value>, RedisError> {
        let (client, number) = self.sentinels.primary().await?;
        let manager = {
            let mut now = self.now.lock();
            match &*now {
                Some((manager, of)) if *of == number => manager.clone(),
                _ => {
                    let manager = ConnectionManager::new_lazy_with_config(client, self.config.clone())?;
                    now.insert((manager, number)).0.clone()
                }
            }
        };
        let answers = ask_over(manager, asked).await;
        let may_be_another = match &answers {
            Ok(answers) => {
                answers.iter().any(|answer| matches!(answer, Value::ServerError(error) if is_replica(error)))
            }
            Err(error) => error.is_connection_dropped() || error.is_connection_refusal() || error.is_timeout(),
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
    fn who_took_over_from_whom_is_known_by_their_ids() {
        let of = |id: &str, before: &str| {
            Lineage::of(&format!(
                "role:master\r\nmaster_replid:{id}\r\nmaster_replid2:{before}\r\nmaster_repl_offset:7\r\n"
            ))
        };
        let (first, second, third) = (of("a", "0"), of("b", "a"), of("c", "b"));
        assert_eq!(first, Lineage { id: "a".into(), before: "0".into() });
        assert!(second.replaced(&first) && third.replaced(&second));
        for (one, other) in [(&first, &second), (&first, &first), (&second, &third), (&first, &Lineage::default())] {
            assert!(!one.replaced(other), "{one:?} {other:?}");
        }
        assert!(!Lineage::default().replaced(&Lineage::default()));
    }
}
