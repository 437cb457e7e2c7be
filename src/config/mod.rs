//! Configuration: defaults, file, environment and flags become one validated value, once.

pub mod away;
mod check;
pub mod files;
pub mod url;
mod layers;
mod mask;
pub mod position;
pub mod proxy;
pub mod yaml;

pub use layers::{ConfigError, ConfigErrors, DEFAULTS, SettingOrigin};
use mask::error_value;
pub use mask::{mask_url, mask_value};

use crate::domain::authority::envelope::Mode;
use crate::domain::authority::grant::Boundary;
use crate::domain::cap::SpendSettings;
use crate::domain::hosts::HostRule;
use crate::domain::ids::did::DidKey;
use crate::domain::quota::QuotaSettings;
use crate::domain::rate::Limit;
use crate::domain::resource::remote::Verb;
use crate::domain::retention::RetentionRules;
use crate::domain::shard::Shards;
use crate::domain::token::TokenSubject;
use proxy::ProxySettings;
use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

/// Everything that can be set; `config/default.toml` documents each key.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `store.*`.
    pub store: StoreConfig,
    /// `bus.*`.
    pub bus: BusConfig,
    /// `http.*`.
    pub http: HttpConfig,
    /// `http_client.*`.
    pub http_client: HttpClientConfig,
    /// `worker.*`.
    pub worker: WorkerConfig,
    /// `secrets.*`.
    pub secrets: SecretsConfig,
    /// `auth.*`.
    pub auth: AuthConfig,
    /// `grants.*`.
    pub grants: GrantsConfig,
    /// `models.*`.
    pub models: ModelsConfig,
    /// `resources.*`.
    pub resources: ResourcesConfig,
    /// `catalog.*`.
    pub catalog: CatalogConfig,
    /// `quota.*`.
    pub quota: QuotaSettings,
    /// `spend.*`.
    pub spend: SpendSettings,
    /// `venue.*`.
    pub venue: VenueConfig,
    /// `log.*`.
    pub log: LogConfig,
    /// `retry.*`, for model providers.
    pub retry: RetryConfig,
    /// `retention.*`.
    pub retention: RetentionRules,
}

/// Where state is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// Which backend.
    pub url: StoreUrl,
    /// First part of every Redis key.
    pub prefix: String,
    /// Connections to Redis, 1 to 64.
    pub connections: usize,
    /// Shards that owners lie in in Redis.
    pub shards: Shards,
    /// Bytes that an embedded store may have on the disk.
    pub max_bytes: Option<u64>,
    /// Certificates for TLS to Redis.
    pub tls: TlsFiles,
    /// Replicas that must have a change before it is answered.
    pub wait_replicas: u32,
    /// Don't start when a guarantee doesn't hold.
    pub require_durable: bool,
}

/// PEM files of a connection that is encrypted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsFiles {
    /// Who signs the servers' certificates; `None`: who the system trusts.
    pub ca: Option<PathBuf>,
    /// This client's certificate and its key.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// A file of a connection that can't be used.
#[derive(Debug, thiserror::Error)]
#[error("`{setting}`: file `{}` can't be read: {error}", file.display())]
pub struct SettingFileError {
    /// Which setting names it.
    pub setting: &'static str,
    /// Its path.
    pub file: PathBuf,
    /// What is wrong with it, without what is in it.
    pub error: std::io::Error,
}

/// `store.url`, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// `embedded:DIR`.
    Embedded(PathBuf),
    /// `redis://…` or another of its schemes, credentials included.
    Redis(String),
}

/// The queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusConfig {
    /// Which backend.
    pub url: BusUrl,
    /// First token of every subject.
    pub prefix: String,
    /// Certificates for TLS to NATS.
    pub tls: TlsFiles,
    /// A file with the JWT and key of a NATS user.
    pub creds_file: Option<PathBuf>,
    /// Copies of every stream, 1 to 5.
    pub replicas: usize,
    /// Streams over which messages for agents are spread by their owner; 1 = there is but one.
    pub partitions: usize,
    /// How long completions stay readable.
    pub out_max_age: Duration,
    /// Size limit of each stream, and of the embedded queue, in bytes.
    pub max_bytes: u64,
    /// Address of the NATS server's monitoring port.
    pub monitor: Option<String>,
}

/// `bus.url`, parsed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum BusUrl {
    /// The queue in the embedded store.
    #[default]
    Embedded,
    /// `nats://…`, credentials included, several separated by commas.
    Nats(String),
}

/// The HTTP API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpConfig {
    /// Its address.
    pub listen: SocketAddr,
    /// Longest request body, in bytes.
    pub body_limit: usize,
    /// Memory that requests in work may take together, in bytes.
    pub memory: u64,
    /// Connections that may be open.
    pub connections: usize,
    /// Of one address.
    pub connections_per_address: usize,
    /// Addresses that may have more.
    pub proxies: Vec<IpAddr>,
    /// For a header to arrive.
    pub header_time: Duration,
    /// For a body to arrive.
    pub body_time: Duration,
    /// Without a request.
    pub idle_time: Duration,
    /// After a signal, before no more requests are taken.
    pub linger: Duration,
}

/// Calls of the operations `http:*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpClientConfig {
    /// Hosts that may be called.
    pub allow_hosts: Vec<HostRule>,
    /// Also addresses that are not public.
    pub allow_private: bool,
    /// One call.
    pub timeout: Duration,
    /// Body of an answer, in bytes.
    pub max_bytes: usize,
    /// Redirects that are followed.
    pub redirects: usize,
    /// What carries the calls, and those to servers of `resources.kinds`.
    pub proxy: ProxySettings,
}

/// Running turns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerConfig {
    /// Name in leases and logs; empty = host name and process id.
    pub name: String,
    /// Address at which a worker without an API tells how it is.
    pub listen: Option<SocketAddr>,
    /// Turns at the same time.
    pub slots: usize,
    /// Operations that were invoked, at the same time.
    pub operations: usize,
    /// Lease of a session, and ack wait.
    pub lease: Duration,
    /// Wait of one request for work.
    pub poll: Duration,
    /// Time between two sweeps.
    pub sweep: Duration,
    /// Crashes after which an event is dead.
    pub crash_limit: u32,
    /// Sessions of one owner that the fleet runs at once, 0 = any number.
    pub owner_cap: u32,
    /// Percent of its slots that one of several owners may hold.
    pub owner_share: u32,
    /// How long a person has for an approval.
    pub approval_time: Duration,
    /// Turns that one request causes in an hour, 0 = any number.
    pub turns_per_origin: u32,
    /// Pause between two looks for what is lost.
    pub audit: Duration,
    /// Percent of its time that a look at all owners takes at most.
    pub upkeep_share: u32,
    /// Deadline of a shutdown.
    pub grace: Duration,
    /// Distance to the store's clock beyond which a worker begins nothing.
    pub clock_limit: Duration,
}

/// Secrets at rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretsConfig {
    /// File with the keys; without it the environment's, or one in an embedded store's folder.
    pub key_file: Option<PathBuf>,
}

/// Who may submit, ask and change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuthConfig {
    /// How callers are recognised.
    pub mode: AuthMode,
    /// What `aud` of a token must name; empty = the venue's DID and its name.
    pub audience: Vec<String>,
    /// Key set of trusted issuers.
    pub jwks: Option<PathBuf>,
    /// Keys that may speak for themselves.
    pub did_keys: DidKeys,
    /// Subjects that are operators.
    pub operators: Vec<TokenSubject>,
    /// How far clocks may differ.
    pub leeway: Duration,
}

/// `auth.did_keys`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DidKeys {
    /// `*`: whoever makes one.
    All,
    /// These.
    Only(Vec<DidKey>),
}

impl Default for DidKeys {
    fn default() -> Self {
        Self::Only(Vec::new())
    }
}

/// What requests may be granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantsConfig {
    /// Resource namespaces at and above which nobody is granted anything.
    pub protected: Vec<Boundary>,
}

/// `auth.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AuthMode {
    /// Everybody who can reach it; loopback only.
    #[default]
    None,
    /// By a signed token.
    Jwt,
}

/// Model providers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelsConfig {
    /// Rules file of the scripted model, or a folder of them.
    pub scripted: Option<PathBuf>,
    /// File with one JSON line for each call.
    pub calls_log: Option<PathBuf>,
    /// Longest wait for one reply.
    pub timeout: Duration,
    /// What providers take, fleet-wide.
    pub limits: Vec<Limit>,
    /// Own servers by name.
    pub endpoints: BTreeMap<String, EndpointConfig>,
    /// What carries the calls.
    pub proxy: ProxySettings,
}

/// `models.endpoints.<name>`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EndpointConfig {
    /// Of an OpenAI-compatible API.
    pub base_url: String,
    /// Environment variable with the key; `None` = no key.
    pub api_key_env: Option<String>,
}

/// What agents can declare as resources, beside what every venue has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResourcesConfig {
    /// Kinds that servers elsewhere provide, by name.
    pub kinds: BTreeMap<String, ResourceKind>,
}

/// `resources.kinds.<name>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceKind {
    /// Where its server is asked.
    pub url: String,
    /// What it can be asked.
    pub operations: Vec<Verb>,
    /// The mode of a declaration that names none; `None` = `read`.
    pub mode: Option<Mode>,
    /// What it is, for models.
    pub about: String,
    /// Environment variable with the key; `None` = no key.
    pub key_env: Option<String>,
    /// Header that the key stands in.
    pub header: String,
    /// What stands before the key.
    pub prefix: String,
    /// One call.
    pub timeout: Duration,
    /// Also when it has no public address.
    pub allow_private: bool,
}

/// The operations that agents can call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogConfig {
    /// `test:*` among them.
    pub test: bool,
}

/// This installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VenueConfig {
    /// Its name.
    pub name: String,
    /// A start takes over the queue and the names of whoever had them before.
    pub adopt: bool,
}

/// Log lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// Their form.
    pub format: LogFormat,
    /// A level or a filter of `tracing-subscriber`.
    pub level: String,
}

/// `log.format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One object a line.
    Json,
}

/// Waits between tries of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryConfig {
    /// The first.
    pub first: Duration,
    /// The longest.
    pub max: Duration,
    /// All together.
    pub total: Duration,
}

/// A configuration and where each of its values came from.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The validated values.
    pub config: Config,
    /// Every key in the order of `config/default.toml`, for `config show`.
    pub entries: Vec<ShownKey>,
}

/// One key as `config show --origin` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownKey {
    /// E.g. `worker.slots`.
    pub key: String,
    /// In TOML syntax, credentials masked.
    pub value: String,
    /// Which layer set it.
    pub origin: SettingOrigin,
}

impl Config {
    /// Reads all layers: built-in defaults, `file`, `env` (variables `TRELLIS__SECTION__KEY`; others
    /// are ignored), `overrides` (`key`, `value`), later ones winning. Reports all errors together.
    pub fn load(
        file: Option<&Path>,
        env: &BTreeMap<String, String>,
        overrides: &[(String, String)],
    ) -> Result<Loaded, ConfigErrors> {
        let layers = layers::Layers::read(file, env, overrides);
        let entries = layers.shown();
        check::config(layers).map(|config| Loaded { config, entries })
    }
}

#[cfg(test)]
mod tests;
