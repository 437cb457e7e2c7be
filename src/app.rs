//! Composition root: it and what lies below it alone name concrete backends.

mod a2a_agents;
mod backends;
mod error;
mod introduce;
mod key_variables;
mod listen;
mod mcp_servers;
mod webhooks;
mod resource_kinds;
mod role;

use crate::bus::nats::{NatsBus, ServiceDescription, ServiceStatus, ServiceStatusSource};
use crate::config::{Config, StoreUrl};
use crate::http;
use crate::model::Model;
use crate::model::endpoint::{Keys, ModelEndpoint, ProviderOptions, SCRIPTED, providers};
use crate::model::models::{ModelOptions, Models};
use crate::model::rules_path;
use crate::ops;
use crate::process::clock::Clock;
use crate::process::host;
use crate::process::pace::Pace;
use crate::process::retry::RetryPolicy;
use crate::process::shutdown::Shutdown;
use crate::process::telemetry::Metrics;
use crate::store::Store;
use crate::store::embedded::EmbeddedStore;
use crate::store::measured::MeasuredStore;
use crate::venue::Venue;
use crate::venue::auth::Auth;
use crate::venue::auth::jwks::JwksError;
use crate::venue::clocks::{self, ClockWatch};
use crate::venue::context::PromptCache;
use crate::venue::declared;
use crate::venue::direct::{self, DirectRole};
use crate::venue::local_worker::LocalWorker;
use crate::venue::outbound::HttpPolicy;
use crate::venue::outbound::proxy::ProxyRoute;
use crate::venue::outbound::webhook::VenueWebhook;
use crate::venue::outside_tools;
use crate::venue::rates::{Meters, RateSettings};
use crate::venue::registry::FleetCache;
use crate::venue::secrets::{self, Vault};
use crate::venue::upkeep::audit::{journal, losses};
use crate::venue::upkeep::doctor;
use crate::venue::upkeep::settings::{self, LoggedSettings};
use crate::worker::{self, WorkerOptions};
pub use a2a_agents::A2aAgentProblem;
use backends::OpenBus;
pub use error::AppError;
pub use introduce::open_store_to_read;
use introduce::{bus_owner, check_store_identity};
pub use mcp_servers::McpServerProblem;
pub use resource_kinds::ResourceKindError;
pub use role::Role;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
pub use webhooks::WebhookProblem;

/// Everything that a role needs, opened.
pub struct App {
    /// The shared parts.
    pub venue: Arc<Venue>,
    /// Client of all configured models.
    pub model: Arc<dyn Model>,
    auth: Arc<Auth>,
    nats: Option<Arc<NatsBus>>,
    fsyncs: Option<Arc<AtomicU64>>,
}

impl App {
    /// Opens the configured backends. Roles that stay wait for absent servers, with a log line.
    pub async fn open(config: &Config, role: Role, metrics: Arc<Metrics>) -> Result<Self, AppError> {
        let clock = Clock::system();
        let auth = Arc::new(auth(config, role)?);
        let model = models(config)?;
        let opened = backends::open_store(config, role, &metrics).await?;
        let key = check_store_identity(config, role, &*opened.store, &clock).await?;
        let owner = key.as_ref().map(|key| bus_owner(config, key));
        let queue = backends::open_bus(config, &opened, &clock, owner).await?;
        let (fsyncs, key) = (opened.fsyncs(), key.unwrap_or_default());
        let (store, history) = backends::protect_store(config, role, &opened, &queue, &key).await?;
        let store = backends::limit_users(config, store);
        let store: Arc<dyn Store> = Arc::new(MeasuredStore::new(store, Arc::clone(&metrics), clock.clone()));
        let OpenBus { bus, nats } = queue;
        let catalog = ops::catalog_with(config.catalog.test, http_policy(config));
        let catalog = catalog
            .with_providers(providers(config.models.endpoints.keys().map(String::as_str)))
            .with_resources(resource_kinds::open_kinds(config)?)
            .with_mcp(mcp_servers::open_servers(config, role, &http_policy(config))?)
            .with_webhooks(webhooks_of(config, role)?)
            .with_a2a(
                a2a_agents::open_agents(config, &http_policy(config))
                    .map_err(|(name, problem)| AppError::A2aAgent { name, problem })?,
            );
        if let (Some(tools), Role::Up | Role::Serve | Role::Worker) = (&config.catalog.tools, role) {
            declared::publish_files(&catalog, tools, clock.now()).map_err(AppError::Tools)?;
        }
        let secrets = vault(config, role, &*store).await?;
        let (name, boundaries) = (config.venue.name.clone(), config.grants.protected.clone());
        let (spend, quota) = (config.spend.clone(), config.quota.clone());
        let prompts = PromptCache::default();
        catalog.add_own_names([name.clone()]);
        let venue = Venue {
            store,
            bus,
            clock,
            name,
            key,
            catalog,
            secrets,
            boundaries,
            spend,
            quota,
            prompts,
            meters: Meters::default(),
            local: local_worker(role, &model),
            fleet: FleetCache::default(),
            history,
            metrics,
        };
        // What begins before the first comparison of a role that stays goes by the store's clock, too.
        if let Err(error) = clocks::follow_store(&venue).await {
            tracing::debug!(%error, "the store's clock is not read yet");
        }
        Ok(Self { venue: Arc::new(venue), model, auth, nats, fsyncs })
    }

    /// Counts the fsyncs of a store in this process.
    pub fn fsyncs(&self) -> Option<Arc<AtomicU64>> {
        self.fsyncs.clone()
    }

    /// Sends what is queued and closes the connections.
    pub async fn close(&self) {
        if let Some(journaled) = self.venue.history.journal()
            && let Err(error) = journaled.flush().await
        {
            tracing::warn!(%error, "the last entries of the journal aren't kept");
        }
        if let Some(nats) = &self.nats {
            nats.close().await;
        }
    }
}

/// Runs a role until a signal ends it.
pub async fn run(config: &Config, role: Role) -> Result<(), AppError> {
    let metrics = Arc::new(Metrics::for_agents(config.metrics.agents.clone()));
    let shutdown = Shutdown::new(Arc::clone(&metrics));
    shutdown.listen_to_signals().map_err(AppError::Signals)?;
    listen::check_free(config, role).await?;
    if let Some(rules) = &config.models.scripted {
        rules_path::check(rules)?;
    }
    let app = tokio::select! {
        // Waiting for servers that are away ends with a signal too.
        () = shutdown.wait_triggered() => return Ok(()),
        app = App::open(config, role, metrics) => app?,
    };
    let told = guarantees(config, &app).await?;
    match role {
        Role::Up | Role::Serve => listen::serve(config, &app, role, &shutdown).await?,
        Role::Worker => listen::serve_health(config, &app, &shutdown).await?,
        Role::Command | Role::Doctor => {}
    }
    if matches!(role, Role::Up | Role::Worker) {
        start_worker(config, &app, &shutdown);
    }
    if role == Role::Worker {
        serve_description(config, &app, &shutdown);
    }
    if role == Role::Serve {
        watch_clocks(config, &app, &shutdown);
    }
    let (venue, auth, stop) = (Arc::clone(&app.venue), Arc::clone(&app.auth), shutdown.stop_token().clone());
    let takes = if role == Role::Serve { DirectRole::StandIn } else { DirectRole::Worker };
    shutdown.spawn_service("direct submissions", direct::run(venue, auth, takes, stop));
    let (venue, ending) = (Arc::clone(&app.venue), shutdown.end_token().clone());
    shutdown.spawn_rounds("places elsewhere", move || outside_tools::watch(Arc::clone(&venue), ending.clone()));
    let (venue, name, ending) = (Arc::clone(&app.venue), worker_options(config).name, shutdown.end_token().clone());
    let (venue_of_journal, end) = (Arc::clone(&app.venue), shutdown.end_token().clone());
    shutdown.spawn_rounds("journal", move || journal::flush(Arc::clone(&venue_of_journal), end.clone()));
    shutdown.spawn_rounds("tail", move || losses::watch(Arc::clone(&venue), name.clone(), ending.clone()));
    let (venue, ending, mends) = (Arc::clone(&app.venue), shutdown.end_token().clone(), role != Role::Serve);
    shutdown.spawn_rounds("settings", move || settings::watch(Arc::clone(&venue), told.clone(), mends, ending.clone()));
    let report = shutdown.run(config.worker.grace).await;
    app.close().await;
    if report.panics > 0 { Err(AppError::Panicked(report.panics)) } else { Ok(()) }
}

/// Returns the webhooks of the venue for roles that send to them or show them; others need no secrets.
fn webhooks_of(config: &Config, role: Role) -> Result<Vec<VenueWebhook>, AppError> {
    match role {
        Role::Up | Role::Serve | Role::Worker => webhooks::open_webhooks(config, &http_policy(config))
            .map_err(|(name, problem)| AppError::Webhook { name, problem }),
        Role::Command | Role::Doctor => Ok(Vec::new()),
    }
}

/// Shows the worker as a service of NATS.
fn serve_description(config: &Config, app: &App, shutdown: &Shutdown) {
    let Some(nats) = app.nats.clone() else { return };
    let slots = config.worker.slots;
    let about =
        ServiceDescription { version: env!("CARGO_PKG_VERSION").to_owned(), worker: process_name(config), slots };
    let (metrics, ending) = (Arc::clone(&app.venue.metrics), shutdown.end_token().clone());
    let status: ServiceStatusSource = Arc::new(move || {
        let busy = u64::try_from(metrics.slots_busy.get()).unwrap_or_default();
        ServiceStatus { slots: slots as u64, busy }
    });
    shutdown.spawn_rounds("service", move || {
        let (nats, about, status, ending) = (Arc::clone(&nats), about.clone(), Arc::clone(&status), ending.clone());
        async move { nats.serve_description(about, status, ending).await }
    });
}

/// Compares the clocks in a process without a worker, which does it itself.
fn watch_clocks(config: &Config, app: &App, shutdown: &Shutdown) {
    let (limit, every) = (config.worker.clock_limit, config.worker.sweep);
    let (venue, ending) = (Arc::clone(&app.venue), shutdown.end_token().clone());
    shutdown.spawn_rounds("clocks", move || {
        let (venue, ending) = (Arc::clone(&venue), ending.clone());
        async move {
            let mut watch = ClockWatch::new(limit);
            watch.start(&venue).await;
            watch.run(&venue, every, &ending).await;
        }
    });
}

/// Whether an embedded store is in the hands of a running process.
pub fn is_held(config: &Config) -> bool {
    match &config.store.url {
        StoreUrl::Embedded(dir) => EmbeddedStore::is_held(dir),
        StoreUrl::Redis(_) => false,
    }
}

/// Says at the start which guarantees don't hold, and refuses to go on where they must.
async fn guarantees(config: &Config, app: &App) -> Result<LoggedSettings, AppError> {
    let found = match doctor::examine(&app.venue).await {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!("which guarantees hold isn't known: {error}");
            return Ok(LoggedSettings::default());
        }
    };
    let (broken, advice) = (found.count_broken(), found.advice(false));
    if broken > 0 && config.store.require_durable {
        return Err(AppError::NotDurable { broken, advice: advice.join("; ") });
    }
    if broken > 0 {
        tracing::warn!("{broken} guarantees do not hold with these servers; `trellis doctor` shows all");
    }
    for line in &advice {
        tracing::warn!("{line}");
    }
    Ok(LoggedSettings::after_start(&found))
}

/// Starts a worker in this process; `shutdown` ends it.
pub fn start_worker(config: &Config, app: &App, shutdown: &Shutdown) {
    let options = WorkerOptions { auth: Arc::clone(&app.auth), ..worker_options(config) };
    tracing::info!("worker `{}`: {} slots, lease {:?}", options.name, options.slots, options.lease);
    let work = worker::run(Arc::clone(&app.venue), Arc::clone(&app.model), options, shutdown.clone());
    shutdown.spawn_service("worker", work);
}

/// Returns the place of this process's worker. `serve` has none, and what the workers' rules are it can only guess from
/// its own.
fn local_worker(role: Role, models: &Arc<dyn Model>) -> LocalWorker {
    let local = LocalWorker::default();
    if role == Role::Serve {
        let models = Arc::clone(models);
        local.set_absent(Box::new(move |asked| asked.provider != SCRIPTED || models.missing_key(asked).is_none()));
    }
    local
}

/// The name of this process among those of the venue.
fn process_name(config: &Config) -> String {
    let name = &config.worker.name;
    if name.is_empty() { format!("{}-{}", host::name(), std::process::id()) } else { name.clone() }
}

fn worker_options(config: &Config) -> WorkerOptions {
    let c = &config.worker;
    let (first, max, total) = (config.retry.first, config.retry.max, Some(config.retry.total));
    let retry = RetryPolicy { first, max, total, jitter: RetryPolicy::JITTER };
    WorkerOptions {
        name: process_name(config),
        slots: c.slots,
        operations: c.operations,
        lease: c.lease,
        sweep: c.sweep,
        crash_limit: c.crash_limit,
        owner_cap: c.owner_cap,
        owner_share: c.owner_share,
        approval_time: c.approval_time,
        turns_per_origin: c.turns_per_origin,
        audit: c.audit,
        upkeep: Pace::percent(c.upkeep_share),
        retry,
        rates: RateSettings { limits: config.models.limits.clone(), hold: c.lease },
        auth: Arc::default(),
        retention: config.retention,
        clock_limit: c.clock_limit,
    }
}

fn auth(config: &Config, role: Role) -> Result<Auth, JwksError> {
    let auth = Auth::open(&config.auth, &config.venue.name)?;
    if role == Role::Worker {
        // It has no address of its own; tokens are made for the API's.
        auth.audience_did(http::catalog::did(&format!("http://{}", config.http.listen)));
    }
    Ok(auth)
}

/// The keys of secrets. The folder of an embedded store exists by then.
async fn vault(config: &Config, role: Role, store: &dyn Store) -> Result<Vault, AppError> {
    let variable = std::env::var(secrets::KEY_VARIABLE).ok();
    let file = config.secrets.key_file.as_deref();
    let dir = match &config.store.url {
        StoreUrl::Embedded(dir) => dir,
        StoreUrl::Redis(_) => return Ok(Vault::new(secrets::load(variable.as_deref(), file)?)),
    };
    let keys = secrets::load_or_make(variable.as_deref(), file, dir, false)?;
    if !keys.is_empty() || role != Role::Up {
        return Ok(Vault::new(keys));
    }
    // Beside a key that is made now the old one could not be put back.
    let lost = secrets::find_lost(store, &keys).await?;
    if lost.secrets > 0 {
        tracing::error!("no key for secrets is made: {lost}");
        return Ok(Vault::new(keys));
    }
    Ok(Vault::new(secrets::load_or_make(variable.as_deref(), file, dir, true)?))
}

fn http_policy(config: &Config) -> HttpPolicy {
    let c = &config.http_client;
    HttpPolicy {
        hosts: c.allow_hosts.clone(),
        allow_private: c.allow_private,
        timeout: c.timeout,
        max_bytes: c.max_bytes,
        redirects: c.redirects,
        proxy: ProxyRoute::new(&c.proxy, "http_client.proxy"),
        ..HttpPolicy::default()
    }
}

/// The models of a configuration.
pub fn models(config: &Config) -> Result<Arc<dyn Model>, AppError> {
    let c = &config.models;
    let endpoints = c.endpoints.iter().map(|(name, given)| {
        let endpoint = ModelEndpoint { base_url: given.base_url.clone(), api_key_env: given.api_key_env.clone() };
        (name.clone(), endpoint)
    });
    let providers = ProviderOptions {
        endpoints: endpoints.collect(),
        keys: Keys::from_env(),
        unlisted_hosts: http_policy(config),
        proxy: ProxyRoute::new(&c.proxy, "models.proxy"),
    };
    let (scripted, calls_log) = (c.scripted.clone(), c.calls_log.clone());
    let models = Models::new(ModelOptions { scripted, providers, calls_log, timeout: c.timeout });
    Ok(Arc::new(models.map_err(|e| AppError::Models(e.to_string()))?))
}
