//! The store and the queue that a configuration names.

use super::{AppError, Role, process_name};
use crate::bus::Bus;
use crate::bus::embedded::EmbeddedBus;
use crate::bus::nats::{BusOpenError, NatsBus, NatsOptions};
use crate::config::files::{SETTINGS_FILE_BYTES, read_file};
use crate::config::{BusUrl, Config, SettingFileError, StoreUrl, TlsFiles, mask_url};
use crate::domain::identity::BusOwner;
use crate::process::clock::Clock;
use crate::process::retry::{AttemptFailure, RetryPolicy, retry};
use crate::process::telemetry::Metrics;
use crate::store::ack_log::AckLogStore;
use crate::store::embedded::EmbeddedStore;
use crate::store::journaled::{Journal, JournaledStore};
use crate::store::patient::PatientStore;
use crate::store::redis::{RedisOptions, RedisStore, RedisTls, Servers};
use crate::store::tenants::TenantStore;
use crate::store::{HistoryCheck, Store, StoreInspection};
use crate::venue::history::History;
use std::convert::Infallible;
use std::future::pending;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::sync::Notify;

/// Time for which one server may be away before the other is tried, too.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// An open store, and how to open its queue.
pub struct OpenStore {
    pub store: Arc<dyn Store>,
    /// The store, if it is on Redis.
    redis: Option<Arc<RedisStore>>,
    /// The store, if it is in this process, where it contains the queue, too.
    embedded: Option<Arc<EmbeddedStore>>,
    /// Options of a queue outside the store.
    nats: Option<NatsOptions>,
}

/// The queue, and what must be closed at the end.
pub struct OpenBus {
    pub bus: Arc<dyn Bus>,
    /// The queue, if it is in NATS.
    pub nats: Option<Arc<NatsBus>>,
}

impl OpenStore {
    /// Returns the counter of fsyncs of a store in this process.
    pub fn fsyncs(&self) -> Option<Arc<AtomicU64>> {
        self.embedded.as_ref().map(|store| store.fsyncs())
    }
}

pub async fn open_store(config: &Config, role: Role, metrics: &Arc<Metrics>) -> Result<OpenStore, AppError> {
    match (&config.store.url, &config.bus.url) {
        (StoreUrl::Embedded(dir), _) => {
            if matches!(role, Role::Worker | Role::Serve) {
                return Err(AppError::NotShared { command: role.command(), store: store_name(config) });
            }
            // A misspelt folder must not look like an empty venue.
            if matches!(role, Role::Command | Role::Doctor) && !EmbeddedStore::exists(dir) {
                return Err(AppError::NoStore(dir.clone()));
            }
            let store = EmbeddedStore::open_within(dir, config.store.max_bytes)?;
            let embedded = Some(Arc::clone(&store));
            Ok(OpenStore { store, redis: None, embedded, nats: None })
        }
        // The configuration refuses an embedded queue beside Redis.
        (StoreUrl::Redis(url), BusUrl::Nats(nats)) => {
            let options = NatsOptions {
                reads_only: role == Role::Doctor,
                ..NatsOptions::new(config, nats, role.patience(), Arc::clone(metrics))
            };
            // A missing file is reported without waiting for a server.
            options.files.check()?;
            let redis = match Box::pin(open_redis(config, url, role, &options)).await {
                Ok(redis) => redis,
                Err(error) => return Err(Box::pin(add_bus_error(error, &options, role)).await),
            };
            let store = Arc::clone(&redis) as Arc<dyn Store>;
            Ok(OpenStore { store, redis: Some(redis), embedded: None, nats: Some(options) })
        }
        (StoreUrl::Redis(_), BusUrl::Embedded) => {
            Err(AppError::NotShared { command: role.command(), store: "bus.url = \"embedded\"".to_owned() })
        }
    }
}

/// Returns the error of a store together with that of the queue, if that can't be reached either, so that an operator
/// learns of both at once.
async fn add_bus_error(error: AppError, options: &NatsOptions, role: Role) -> AppError {
    if role.patience().total.is_none() {
        return error;
    }
    match NatsBus::open(&NatsOptions { reads_only: true, ..options.clone() }).await {
        Err(bus @ BusOpenError::Connect { .. }) => AppError::Both(Box::new(error), Box::new(bus.into())),
        Ok(bus) => {
            bus.close().await;
            error
        }
        Err(_) => error,
    }
}

/// Opens the store; while that has to wait, the queue is tried, too, so that an operator learns of both at once.
async fn open_redis(config: &Config, url: &str, role: Role, nats: &NatsOptions) -> Result<Arc<RedisStore>, AppError> {
    let waits = Notify::new();
    let opening = retry_redis(config, url, role, &waits);
    if role.patience().total.is_some() {
        return opening.await;
    }
    let look = async {
        waits.notified().await;
        log_nats_state(nats).await;
        pending::<Infallible>().await
    };
    tokio::select! {
        biased;
        opened = opening => opened,
        never = look => match never {},
    }
}

/// Logs the state of the queue; while it is away, the connection logs its own lines again and again.
async fn log_nats_state(options: &NatsOptions) {
    let name = mask_url(&options.url);
    match NatsBus::open(&NatsOptions { reads_only: true, ..options.clone() }).await {
        Ok(bus) => {
            tracing::info!("NATS at `{name}` answers");
            bus.close().await;
        }
        Err(error @ BusOpenError::Connect { .. }) => tracing::warn!("{error}"),
        // Other errors are reported when it is opened for use.
        Err(_) => tracing::info!("NATS at `{name}` answers"),
    }
}

/// Opens the queue; while that takes long, the store is tried, too.
async fn open_nats(config: &Config, options: &NatsOptions, store: &OpenStore) -> Result<NatsBus, BusOpenError> {
    let look = async {
        tokio::time::sleep(LOOK_AFTER).await;
        if let Some(redis) = &store.redis {
            log_redis_state(&store_name(config), redis).await;
        }
        pending::<Infallible>().await
    };
    tokio::select! {
        biased;
        opened = NatsBus::open(options) => opened,
        never = look => match never {},
    }
}

/// Logs the state of the store.
async fn log_redis_state(name: &str, store: &RedisStore) {
    match store.time().await {
        Ok(_) => tracing::info!("Redis at `{name}` answers"),
        Err(error) => tracing::warn!("{}", AppError::from(error)),
    }
}

/// Opens the queue of a store; `owner` identifies the store.
pub async fn open_bus(
    config: &Config,
    store: &OpenStore,
    clock: &Clock,
    owner: Option<BusOwner>,
) -> Result<OpenBus, AppError> {
    match (&store.embedded, &store.nats) {
        (Some(store), _) => {
            let bus =
                EmbeddedBus::with_limit(Arc::clone(store), config.worker.lease, clock.clone(), config.bus.max_bytes)?;
            Ok(OpenBus { bus: Arc::new(bus), nats: None })
        }
        (None, Some(options)) => {
            let bus = Arc::new(open_nats(config, &NatsOptions { owner, ..options.clone() }, store).await?);
            Ok(OpenBus { bus: Arc::clone(&bus) as Arc<dyn Bus>, nats: Some(bus) })
        }
        (None, None) => Err(AppError::NotShared { command: "trellis", store: store_name(config) }),
    }
}

/// Opens the store; `waits` is notified whenever an attempt has failed.
async fn retry_redis(config: &Config, url: &str, role: Role, waits: &Notify) -> Result<Arc<RedisStore>, AppError> {
    let c = &config.store;
    Servers::parse(url).map_err(AppError::StoreUrl)?;
    let options = RedisOptions {
        prefix: c.prefix.clone(),
        connections: c.connections,
        shards: c.shards,
        tls: Some(certificates(&c.tls)?),
        wait_replicas: c.wait_replicas,
        waits_for_failover: matches!(role, Role::Up | Role::Worker),
        reads_only: role == Role::Doctor,
        ..RedisOptions::new(url)
    };
    let store = retry(role.patience(), &format!("Redis at `{}`", mask_url(url)), || {
        let options = options.clone();
        async move {
            let opened = RedisStore::open(options).await;
            opened.inspect_err(|_| waits.notify_one()).map_err(|error| AttemptFailure::from(error).map(AppError::from))
        }
    })
    .await?;
    Ok(store)
}

/// Wraps the store with everything that protects it against a loss of its last seconds, and applies protective changes
/// to it.
pub async fn protect_store(
    config: &Config,
    role: Role,
    opened: &OpenStore,
    bus: &OpenBus,
    key: &[u8],
) -> Result<(Arc<dyn Store>, History), AppError> {
    let (Some(store), Some(bus)) = (&opened.redis, &bus.nats) else {
        return Ok((Arc::clone(&opened.store), History::default()));
    };
    let shards = store.is_cluster().then_some(config.store.shards);
    if role == Role::Doctor {
        return Ok((Arc::clone(&opened.store), History::new(None, shards)));
    }
    let journal = Arc::clone(bus) as Arc<dyn Journal>;
    let name = process_name(config);
    let journaled = Arc::new(JournaledStore::new(Arc::clone(&opened.store), journal, &name, key));
    let check = Arc::clone(&journaled) as Arc<dyn HistoryCheck>;
    store.set_check(Arc::downgrade(&check));
    let first = || async { check.check_history().await.map_err(AttemptFailure::from) };
    retry(role.patience(), "what protects owners", first).await?;
    let tail = Arc::new(AckLogStore::new(Arc::clone(&journaled) as Arc<dyn Store>));
    let history = History::new(Some(Arc::clone(&tail)), shards).with_journal(journaled);
    if role == Role::Serve {
        // A caller gets its error at once, with the time of a retry.
        return Ok((tail, history));
    }
    // A turn that outlives its lease has lost it: a longer wait for the server saves nothing.
    let policy = RetryPolicy { max: Duration::from_secs(1), total: Some(config.worker.lease), ..RetryPolicy::CONNECT };
    Ok((Arc::new(PatientStore::new(tail, policy)), history))
}

/// Wraps the store with the limits on the users of tenants, if there are any.
pub fn limit_users(config: &Config, store: Arc<dyn Store>) -> Arc<dyn Store> {
    let limits = &config.quota.tenant_users;
    if limits.is_none() { store } else { Arc::new(TenantStore::new(store, limits.clone())) }
}

/// Reads the files of `store.tls_*`.
fn certificates(files: &TlsFiles) -> Result<RedisTls, SettingFileError> {
    let read = |setting, file: &PathBuf| {
        read_file(file, SETTINGS_FILE_BYTES).map_err(|error| SettingFileError { setting, file: file.clone(), error })
    };
    let authority = files.ca.as_ref().map(|file| read("store.tls_ca", file)).transpose()?;
    let client = files
        .client
        .as_ref()
        .map(|(cert, key)| Ok::<_, SettingFileError>((read("store.tls_cert", cert)?, read("store.tls_key", key)?)));
    Ok(RedisTls { authority, client: client.transpose()? })
}

/// Returns the store's address for messages.
pub fn store_name(config: &Config) -> String {
    match &config.store.url {
        StoreUrl::Embedded(dir) => format!("embedded:{}", dir.display()),
        StoreUrl::Redis(url) => mask_url(url),
    }
}
