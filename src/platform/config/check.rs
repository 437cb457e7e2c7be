//! Converts merged text and numbers to typed, checked values.

mod auth;
mod kinds;
mod a2a;
mod mcp;
mod notifications;
mod telemetry;
mod proxy;
mod quota;
mod spend;
mod tls;
mod urls;
mod values;

use super::layers::{ConfigErrors, ConfigLayers, ENDPOINTS, LayerEntry};
use super::mask::error_value;
use super::settings::{
    AuthMode, BusConfig, BusUrl, CatalogConfig, Config, EndpointConfig, GrantsConfig, HttpClientConfig, HttpConfig,
    LogConfig, LogFormat, MetricsConfig, ModelsConfig, RetryConfig, SecretsConfig, StoreConfig, StoreUrl, VenueConfig,
    WorkerConfig,
};
use crate::domain::authority::grant::Boundary;
use crate::domain::hosts::HostRule;
use crate::domain::ids::AgentId;
use crate::domain::limits::{APPROVAL_TIME_MAX, MODEL_CALL_MAX};
use crate::domain::rate::RateLimit;
use crate::domain::retention::RetentionRules;
use crate::domain::shard::Shards;
use crate::domain::visible::{check_line, is_unseen};
use std::path::{Path, PathBuf};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};
use tracing::level_filters::LevelFilter;
use values::{duration, number, parse, path};

/// Most agents with metrics of their own.
const METRICS_AGENTS_MAX: usize = 50;
const METRICS_AGENTS_RULE: &str = "at most 50 names of agents with commas between such as `triage, refunds`";

const SECOND: Duration = Duration::from_secs(1);
/// Most turns of one worker at the same time: one that waits for its model takes about 50 KB.
const MAX_SLOTS: i64 = 16_384;
const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

const STORE_URL: &str = "`embedded:DIR`, `redis://host:port`, `redis+cluster://host:port,host:port` or `redis+sentinel://host:port,host:port/primary` (`rediss` for TLS)";

/// Shortest lease: below it renewals and clock differences between machines use the lease up.
const SHORTEST_LEASE: Duration = Duration::from_millis(200);

/// Reads every key. An illegal value is recorded and replaced by a placeholder, which never leaves this function: any
/// error refuses the whole.
pub(super) fn config(mut layers: ConfigLayers) -> Result<Config, ConfigErrors> {
    let l = &mut layers;
    let config = Config {
        store: StoreConfig {
            url: urls::read(l, "store.url", STORE_URL, |text| store_url(text).map(Some))
                .unwrap_or_else(|| StoreUrl::Embedded(PathBuf::new())),
            prefix: parse(l, "store.prefix", PREFIX_RULE, prefix),
            connections: number(l, "store.connections", 1..=64),
            shards: shards(l, "store.shards"),
            tls: tls::read(l, "store"),
            wait_replicas: number(l, "store.wait_replicas", 0..=5),
            max_bytes: Some(number(l, "store.max_bytes", 0..=1 << 50)).filter(|bytes| *bytes > 0),
            require_durable: l.entry("store.require_durable").value.as_bool().unwrap_or_default(),
        },
        bus: bus(l),
        http: http(l),
        http_client: HttpClientConfig {
            allow_hosts: parse(
                l,
                "http_client.allow_hosts",
                "hosts with commas between such as `api.example.com, *.example.org, 10.0.0.7:8080`",
                |text| HostRule::list(text).ok(),
            ),
            allow_private: l.entry("http_client.allow_private").value.as_bool().unwrap_or_default(),
            timeout: duration(l, "http_client.timeout", Duration::from_millis(10)..=SECOND * 280),
            max_bytes: number(l, "http_client.max_bytes", 1..=64 << 20),
            redirects: number(l, "http_client.redirects", 0..=20),
            proxy: proxy::read(l, "http_client"),
        },
        worker: worker(l),
        secrets: SecretsConfig { key_file: path(l, "secrets.key_file") },
        auth: auth::read(l),
        grants: grants(l),
        models: models(l),
        resources: kinds::read(l),
        mcp: mcp::read(l),
        notifications: notifications::read(l),
        a2a: a2a::read(l),
        spend: spend::read(l),
        quota: quota::read(l),
        catalog: catalog(l),
        venue: VenueConfig {
            name: parse(l, "venue.name", VENUE_NAME_RULE, shown_name),
            adopt: l.entry("venue.adopt").value.as_bool().unwrap_or_default(),
        },
        metrics: MetricsConfig { agents: parse(l, "metrics.agents", METRICS_AGENTS_RULE, listed_agents) },
        log: LogConfig {
            format: parse(l, "log.format", "`text` or `json`", |text| match text {
                "text" => Some(LogFormat::Text),
                "json" => Some(LogFormat::Json),
                _ => None,
            }),
            level: parse(l, "log.level", "a level (`info`) or filter (`info,trellis::worker=debug`)", |text| {
                let filter = tracing_subscriber::EnvFilter::builder().parse(text);
                (filter.is_ok() && text.split(',').all(has_level)).then(|| text.to_owned())
            }),
        },
        telemetry: telemetry::read(l),
        retry: RetryConfig {
            first: duration(l, "retry.first", Duration::from_millis(1)..=HOUR),
            max: duration(l, "retry.max", Duration::from_millis(1)..=HOUR),
            total: duration(l, "retry.total", Duration::ZERO..=DAY),
        },
        retention: RetentionRules { jobs: retention(l, "retention.jobs"), turns: retention(l, "retention.turns") },
    };
    check_combinations(l, &config);
    if layers.errors.is_empty() { Ok(config) } else { Err(ConfigErrors(layers.errors)) }
}

fn bus(l: &mut ConfigLayers) -> BusConfig {
    BusConfig {
        url: urls::read(l, "bus.url", "`embedded` or `nats://host:port`", bus_url),
        tls: tls::read(l, "bus"),
        creds_file: path(l, "bus.creds_file"),
        prefix: parse(l, "bus.prefix", PREFIX_RULE, prefix),
        replicas: number(l, "bus.replicas", 1..=5),
        partitions: number(l, "bus.partitions", 1..=64),
        out_max_age: duration(l, "bus.out_max_age", SECOND..=DAY * 3650),
        max_bytes: number(l, "bus.max_bytes", 1 << 20..=1 << 50),
        monitor: parse(l, "bus.monitor", "`` or `http://host:port`", |text| match text {
            "" => Some(None),
            text => has_host(text, &["http://"]).then(|| Some(Some(text.trim_end_matches('/').to_owned()))).flatten(),
        }),
    }
}

fn http(l: &mut ConfigLayers) -> HttpConfig {
    HttpConfig {
        listen: parse(l, "http.listen", "an address such as `127.0.0.1:8420`", |text| text.parse().ok().map(Some))
            .unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0))),
        public: parse(l, "http.public", "`` or a URL such as `https://trellis.example`", |text| match text {
            "" => Some(None),
            text => auth::server_url(text).map(Some),
        }),
        body_limit: number(l, "http.body_limit", 1024..=983_040),
        memory: number(l, "http.memory", (64 << 20)..=(1 << 40)),
        connections: number(l, "http.connections", 1..=100_000),
        connections_per_address: number(l, "http.connections_per_address", 1..=100_000),
        proxies: parse(l, "http.proxies", "IP addresses with commas between such as `10.0.0.7, fd00::7`", |text| {
            text.split(',').map(str::trim).filter(|text| !text.is_empty()).map(|text| text.parse().ok()).collect()
        }),
        header_time: duration(l, "http.header_time", Duration::from_millis(10)..=HOUR),
        body_time: duration(l, "http.body_time", Duration::from_millis(10)..=HOUR),
        idle_time: duration(l, "http.idle_time", Duration::from_millis(10)..=HOUR),
        linger: duration(l, "http.linger", Duration::ZERO..=HOUR),
    }
}

fn catalog(l: &mut ConfigLayers) -> CatalogConfig {
    let tools = path(l, "catalog.tools");
    if let Some(path) = tools.as_ref().filter(|path| !path.exists()) {
        refuse_path(l, "catalog.tools", &format!("a file or a folder of tools, and `{}` is neither", path.display()));
    }
    CatalogConfig { test: l.entry("catalog.test").value.as_bool().unwrap_or_default(), tools }
}

/// Returns the agents that have metrics of their own; `None` if one has no legal name, or if they are too many.
fn listed_agents(text: &str) -> Option<BTreeSet<String>> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let names: Option<BTreeSet<String>> =
        names.map(|name| Some(AgentId::new(name).ok()?.as_str().to_owned())).collect();
    names.filter(|names| names.len() <= METRICS_AGENTS_MAX)
}

fn grants(l: &mut ConfigLayers) -> GrantsConfig {
    GrantsConfig {
        protected: parse(
            l,
            "grants.protected",
            "namespaces with commas between such as `app/user, app/org:min=2:boundary`",
            |text| text.split(',').map(str::trim).filter(|t| !t.is_empty()).map(|t| Boundary::parse(t).ok()).collect(),
        ),
    }
}

fn worker(l: &mut ConfigLayers) -> WorkerConfig {
    WorkerConfig {
        name: parse(l, "worker.name", WORKER_NAME_RULE, |text| {
            let is_legal = text.chars().count() <= 128 && check_line(text).is_ok() && !text.contains(is_unseen);
            is_legal.then(|| text.to_owned())
        }),
        listen: parse(l, "worker.listen", "`` or an address such as `0.0.0.0:8420`", |text| match text {
            "" => Some(None),
            text => text.parse().ok().map(Some),
        }),
        slots: number(l, "worker.slots", 1..=MAX_SLOTS),
        operations: number(l, "worker.operations", 1..=4096),
        lease: duration(l, "worker.lease", SHORTEST_LEASE..=HOUR),
        poll: duration(l, "worker.poll", Duration::from_millis(50)..=SECOND * 30),
        sweep: duration(l, "worker.sweep", Duration::from_millis(10)..=HOUR),
        crash_limit: number(l, "worker.crash_limit", 1..=1000),
        owner_cap: number(l, "worker.owner_cap", 0..=1_000_000),
        owner_share: number(l, "worker.owner_share", 1..=100),
        approval_time: duration(l, "worker.approval_time", SECOND..=APPROVAL_TIME_MAX),
        turns_per_origin: number(l, "worker.turns_per_origin", 0..=1_000_000),
        audit: duration(l, "worker.audit", SECOND..=DAY),
        upkeep_share: number(l, "worker.upkeep_share", 1..=100),
        grace: duration(l, "worker.grace", Duration::ZERO..=HOUR),
        clock_limit: duration(l, "worker.clock_limit", SECOND..=DAY),
    }
}

/// Reads a retention; `None` = for ever.
fn retention(l: &mut ConfigLayers, key: &str) -> Option<Duration> {
    let range = Duration::from_mins(1)..=DAY * 36_500;
    parse(l, key, "`never` or a duration from 1m to 100 years such as `30d`", |text| match text {
        "never" | "0" => Some(None),
        text => humantime::parse_duration(text).ok().filter(|given| range.contains(given)).map(Some),
    })
}

fn models(l: &mut ConfigLayers) -> ModelsConfig {
    let timeout = duration(l, "models.timeout", Duration::from_millis(10)..=MODEL_CALL_MAX);
    let mut errors = Vec::new();
    let mut endpoints = BTreeMap::new();
    for (name, leaves) in l.free_entries(&ENDPOINTS) {
        let leaf = |leaf: &str| leaves.get(leaf).and_then(|entry| entry.value.as_str()).unwrap_or_default().to_owned();
        let endpoint = EndpointConfig {
            base_url: leaf("base_url"),
            api_key_env: Some(leaf("api_key_env")).filter(|name| !name.is_empty()),
        };
        if !(endpoint.base_url.starts_with("http://") || endpoint.base_url.starts_with("https://")) {
            let origin = leaves.get("base_url").or(leaves.get("api_key_env")).map(|entry| entry.origin.clone());
            let key = format!("models.endpoints.{name}.base_url");
            let problem =
                format!("expected a URL with `http://` or `https://`, got `{}`", error_value(&key, &endpoint.base_url));
            errors.push((key, origin, problem));
        }
        endpoints.insert(name, endpoint);
    }
    for (key, origin, problem) in errors {
        l.add_error(&key, origin.unwrap_or(super::SettingOrigin::Default), problem);
    }
    let rule = "limits with commas between such as `openai:requests=500:tokens=200000, openai/gpt-4o:concurrency=10`";
    let limits = parse(l, "models.limits", rule, |text| RateLimit::list(text).map(Some)).unwrap_or_default();
    let (scripted, calls_log) = (path(l, "models.scripted"), path(l, "models.calls_log"));
    if let Some(path) = scripted.as_ref().filter(|path| !path.exists()) {
        refuse_path(l, "models.scripted", &format!("a file or a folder of rules, and `{}` is neither", path.display()));
    }
    let folder = calls_log.as_deref().and_then(Path::parent).filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        refuse_path(
            l,
            "models.calls_log",
            &format!("a file in a folder that exists, and `{}` is none", folder.display()),
        );
    }
    ModelsConfig { scripted, calls_log, timeout, limits, endpoints, proxy: proxy::read(l, "models") }
}

/// Checks values that are legal alone but not together; illegal values are not compared.
fn check_combinations(l: &mut ConfigLayers, config: &Config) {
    let bad: Vec<String> = l.errors.iter().map(|error| error.key.clone()).collect();
    let mut clash = |keys: [&str; 2], wrong: bool, problem: String| {
        if wrong && !keys.iter().any(|key| bad.iter().any(|other| other == key)) {
            // The error belongs to the key that was set, if only one of them was.
            let key = if l.entry(keys[0]).origin == super::SettingOrigin::Default { keys[1] } else { keys[0] };
            let origin = l.entry(key).origin.clone();
            l.add_error(key, origin, problem);
        }
    };
    let (embedded_store, embedded_bus) =
        (matches!(config.store.url, StoreUrl::Embedded(_)), config.bus.url == BusUrl::Embedded);
    clash(
        ["bus.url", "store.url"],
        embedded_store != embedded_bus,
        if embedded_bus {
            "the embedded bus lives in the embedded store; expected `bus.url = \"nats://…\"` with `store.url = \"redis://…\"`"
        } else {
            "the embedded store serves one process and brings its own bus; expected `store.url = \"redis://…\"` with `bus.url = \"nats://…\"`"
        }
        .to_owned(),
    );
    clash(
        ["http.listen", "auth.mode"],
        config.auth.mode == AuthMode::None && !config.http.listen.ip().is_loopback(),
        format!(
            "with `auth.mode = \"none\"` everybody who can connect may do everything; expected a loopback address such as `127.0.0.1:8420`, got `{}`",
            config.http.listen
        ),
    );
    auth::check_combinations(config, &mut clash);
    let (linger, grace) = (config.http.linger, config.worker.grace);
    clash(
        ["http.linger", "worker.grace"],
        // The requests of its last moment need some seconds to end.
        !linger.is_zero() && linger + SECOND * 5 > grace,
        format!(
            "expected `worker.grace` at least 5s longer than `http.linger`, got `{}` and `{}`",
            humantime::format_duration(grace),
            humantime::format_duration(linger)
        ),
    );
    clash(
        ["bus.creds_file", "bus.url"],
        config.bus.creds_file.is_some() && matches!(&config.bus.url, BusUrl::Nats(url) if url.contains('@')),
        "a client has one login: expected `bus.creds_file` or a user in `bus.url`, got both".to_owned(),
    );
    if let Err(problem) = config.spend.check() {
        clash(["spend.prices", config.spend.money_setting()], true, problem.to_string());
    }
    clash(
        ["retry.max", "retry.first"],
        config.retry.max < config.retry.first,
        format!(
            "expected `retry.max` of at least `retry.first`, got `{}` and `{}`",
            humantime::format_duration(config.retry.max),
            humantime::format_duration(config.retry.first)
        ),
    );
}

const VENUE_NAME_RULE: &str = "at least one character, on one line, and none that can't be seen";
const WORKER_NAME_RULE: &str = "up to 128 characters without line breaks or other control characters";

const PREFIX_RULE: &str = "1 to 32 lower-case letters, digits, `-` or `_`, starting with a letter";

/// Parses a prefix that is legal as a Redis key part, a subject token and, in capitals, a stream name.
fn prefix(text: &str) -> Option<String> {
    let legal = text.len() <= 32
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_');
    legal.then(|| text.to_owned())
}

fn shown_name(text: &str) -> Option<String> {
    (!text.trim().is_empty() && check_line(text).is_ok()).then(|| text.to_owned())
}

fn store_url(text: &str) -> Option<StoreUrl> {
    if let Some(dir) = text.strip_prefix("embedded:") {
        return (!dir.is_empty()).then(|| StoreUrl::Embedded(PathBuf::from(dir)));
    }
    let schemes =
        ["redis://", "rediss://", "redis+cluster://", "rediss+cluster://", "redis+sentinel://", "rediss+sentinel://"];
    has_host(text, &schemes).then(|| StoreUrl::Redis(text.to_owned()))
}

fn bus_url(text: &str) -> Option<BusUrl> {
    if text == "embedded" {
        return Some(BusUrl::Embedded);
    }
    text.split(',').all(|url| has_host(url, &["nats://", "tls://"])).then(|| BusUrl::Nats(text.to_owned()))
}

fn has_host(url: &str, schemes: &[&str]) -> bool {
    schemes.iter().filter_map(|scheme| url.strip_prefix(scheme)).any(|rest| !rest.is_empty() && !rest.starts_with('/'))
}

/// Whether a part of a filter names a level. A single word that is no level would be taken for the name of a module,
/// with all other lines off.
fn has_level(directive: &str) -> bool {
    let directive = directive.trim();
    directive.contains('=') || (!directive.is_empty() && directive.parse::<LevelFilter>().is_ok())
}

fn refuse_path(l: &mut ConfigLayers, key: &str, expected: &str) {
    let origin = l.entry(key).origin.clone();
    l.add_error(key, origin, format!("expected {expected}"));
}

fn shards(l: &mut ConfigLayers, key: &str) -> Shards {
    let LayerEntry { value, origin } = l.entry(key).clone();
    let given = value.as_integer().unwrap_or_default();
    Shards::new(u64::try_from(given).unwrap_or_default()).unwrap_or_else(|_| {
        l.add_error(key, origin, format!("expected a power of two from 1 to {}, got `{given}`", Shards::MOST));
        Shards::default()
    })
}
