//! The store and the queue that a configuration names.

use super::{AppError, Role, process_name};
use crate::bus::Bus;
use crate::bus::embedded::EmbeddedBus;
use crate::bus::nats::{NatsBus, NatsOptions};
use crate::config::{BusUrl, Config, SettingFileError, StoreUrl, TlsFiles, mask_url};
use crate::process::clock::Clock;
use crate::process::retry::{AttemptFailure, RetryPolicy, retry};
use crate::process::telemetry::Metrics;
use crate::store::embedded::EmbeddedStore;
use crate::store::journaled::{Journal, JournaledStore};
use crate::store::patient::PatientStore;
use crate::store::redis::{RedisOptions, RedisStore, RedisTls, Servers};
use crate::store::tail::TailStore;
use crate::store::{HistoryCheck, Store};
use crate::venue::history::History;
use crate::venue::{format, load_or_make_key};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Store and queue, and what must be closed at the end.
pub struct Backends {
    pub store: Arc<dyn Store>,
    pub bus: Arc<dyn Bus>,
    pub history: History,
    /// Of a queue in NATS.
    pub nats: Option<Arc<NatsBus>>,
    /// Of a store in this process.
    pub fsyncs: Option<Arc<AtomicU64>>,
}

pub async fn open(config: &Config, role: Role, clock: &Clock, metrics: &Arc<Metrics>) -> Result<Backends, AppError> {
    match (&config.store.url, &config.bus.url) {
        (StoreUrl::Embedded(dir), _) => {
            if matches!(role, Role::Worker | Role::Serve) {
                return Err(AppError::NotShared { command: role.command(), store: store_name(config) });
            }
            let store = EmbeddedStore::open_within(dir, config.store.max_bytes)?;
            let bus =
                EmbeddedBus::within(Arc::clone(&store), config.worker.lease, clock.clone(), config.bus.max_bytes)?;
            let fsyncs = Some(store.fsyncs());
            Ok(Backends { store, bus: Arc::new(bus), history: History::default(), nats: None, fsyncs })
        }
        // The configuration refuses an embedded queue beside Redis.
        (StoreUrl::Redis(url), BusUrl::Nats(nats)) => {
            let options = NatsOptions::new(config, nats, role.patience(), Arc::clone(metrics));
            // Nobody has to wait for a server to learn that a file is missing.
            options.files.check()?;
            let redis = redis(config, url, role).await?;
            let bus = Arc::new(NatsBus::open(&options).await?);
            let (store, history) = remembered(config, role, clock, redis, &bus).await?;
            Ok(Backends { store, bus: Arc::clone(&bus) as Arc<dyn Bus>, history, nats: Some(bus), fsyncs: None })
        }
        (StoreUrl::Redis(_), BusUrl::Embedded) => {
            Err(AppError::NotShared { command: role.command(), store: "bus.url = \"embedded\"".to_owned() })
        }
    }
}

async fn redis(config: &Config, url: &str, role: Role) -> Result<Arc<RedisStore>, AppError> {
    let c = &config.store;
    Servers::of(url).map_err(AppError::StoreUrl)?;
    let options = RedisOptions {
        prefix: c.prefix.clone(),
        connections: c.connections,
        shards: c.shards,
        tls: Some(certificates(&c.tls)?),
        wait_replicas: c.wait_replicas,
        waits_for_failover: matches!(role, Role::Up | Role::Worker),
        ..RedisOptions::new(url)
    };
    let store = retry(role.patience(), &format!("Redis at `{}`", mask_url(url)), || {
        let options = options.clone();
        async move { RedisStore::open(options).await.map_err(AttemptFailure::from) }
    })
    .await?;
    Ok(store)
}

/// The store with everything that is known against a loss of its last seconds; what protects owners is in force in it.
async fn remembered(
    config: &Config,
    role: Role,
    clock: &Clock,
    store: Arc<RedisStore>,
    bus: &Arc<NatsBus>,
) -> Result<(Arc<dyn Store>, History), AppError> {
    let shards = store.is_cluster().then_some(config.store.shards);
    if role == Role::Doctor {
        return Ok((store, History::of(None, shards)));
    }
    let journal = Arc::clone(bus) as Arc<dyn Journal>;
    let name = process_name(config);
    // Nothing is written into the store of a build that is too far.
    let fits = || async { format::agree(&*store, clock.now(), true).await.map_err(AttemptFailure::from) };
    retry(role.patience(), &format!("store `{}`", store_name(config)), fits).await??;
    let key = || async { load_or_make_key(&*store, clock.now()).await.map_err(AttemptFailure::from) };
    let key = retry(role.patience(), &format!("store `{}`", store_name(config)), key).await?;
    let journaled = Arc::new(JournaledStore::new(Arc::clone(&store) as Arc<dyn Store>, journal, &name, &key));
    let check = Arc::clone(&journaled) as Arc<dyn HistoryCheck>;
    store.set_check(Arc::downgrade(&check));
    let first = || async { check.check_history().await.map_err(AttemptFailure::from) };
    retry(role.patience(), "what protects owners", first).await?;
    let tail = Arc::new(TailStore::new(Arc::clone(&journaled) as Arc<dyn Store>));
    let history = History::of(Some(Arc::clone(&tail)), shards).with_journal(journaled);
    if role == Role::Serve {
        // A caller is told at once, and when to try again.
        return Ok((tail, history));
    }
    // A turn that outlives its lease has lost it: waiting longer for the server saves nothing.
    let policy = RetryPolicy { max: Duration::from_secs(1), total: Some(config.worker.lease), ..RetryPolicy::CONNECT };
    Ok((Arc::new(PatientStore::new(tail, policy)), history))
}

/// Reads the files of `store.tls_*`.
fn certificates(files: &TlsFiles) -> Result<RedisTls, SettingFileError> {
    let read = |setting, file: &PathBuf| {
        std::fs::read(file).map_err(|error| SettingFileError { setting, file: file.clone(), error })
    };
    let authority = files.ca.as_ref().map(|file| read("store.tls_ca", file)).transpose()?;
    let client = files
        .client
        .as_ref()
        .map(|(cert, key)| Ok::<_, SettingFileError>((read("store.tls_cert", cert)?, read("store.tls_key", key)?)));
    Ok(RedisTls { authority, client: client.transpose()? })
}

/// For messages.
pub fn store_name(config: &Config) -> String {
    match &config.store.url {
        StoreUrl::Embedded(dir) => format!("embedded:{}", dir.display()),
        StoreUrl::Redis(url) => mask_url(url),
    }
}
