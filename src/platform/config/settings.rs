//! The validated settings.

use super::proxy::ProxySettings;
use crate::domain::a2a::remote::RemoteAgent;
use crate::domain::authority::envelope::AccessMode;
use crate::domain::authority::grant::Boundary;
use crate::domain::cap::SpendSettings;
use crate::domain::hosts::HostRule;
use crate::domain::ids::did::DidKey;
use crate::domain::mcp::server::McpServer;
use crate::domain::notification::NotificationKind;
use crate::domain::quota::QuotaSettings;
use crate::domain::rate::RateLimit;
use crate::domain::resource::remote::RemoteOperation;
use crate::domain::retention::RetentionRules;
use crate::domain::shard::Shards;
use crate::domain::token::TokenSubject;
use crate::domain::webhook::WebhookName;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

/// All settings; `config/default.toml` documents each key.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Settings under `store.*`.
    pub store: StoreConfig,
    /// Settings under `bus.*`.
    pub bus: BusConfig,
    /// Settings under `http.*`.
    pub http: HttpConfig,
    /// Settings under `http_client.*`.
    pub http_client: HttpClientConfig,
    /// Settings under `worker.*`.
    pub worker: WorkerConfig,
    /// Settings under `secrets.*`.
    pub secrets: SecretsConfig,
    /// Settings under `auth.*`.
    pub auth: AuthConfig,
    /// Settings under `grants.*`.
    pub grants: GrantsConfig,
    /// Settings under `models.*`.
    pub models: ModelsConfig,
    /// Settings under `resources.*`.
    pub resources: ResourcesConfig,
    /// Settings under `mcp.*`.
    pub mcp: McpConfig,
    /// Settings under `notifications.*`.
    pub notifications: NotificationsConfig,
    /// Settings under `a2a.*`.
    pub a2a: A2aConfig,
    /// Settings under `catalog.*`.
    pub catalog: CatalogConfig,
    /// Settings under `quota.*`.
    pub quota: QuotaSettings,
    /// Settings under `spend.*`.
    pub spend: SpendSettings,
    /// Settings under `venue.*`.
    pub venue: VenueConfig,
    /// Settings under `log.*`.
    pub log: LogConfig,
    /// Settings under `metrics.*`.
    pub metrics: MetricsConfig,
    /// Settings under `telemetry.*`.
    pub telemetry: TelemetryConfig,
    /// Settings under `retry.*`, for model providers.
    pub retry: RetryConfig,
    /// Settings under `retention.*`.
    pub retention: RetentionRules,
}

/// Settings of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// Kind and address of the store.
    pub url: StoreUrl,
    /// First part of every Redis key.
    pub prefix: String,
    /// Number of connections to Redis, 1 to 64.
    pub connections: usize,
    /// Number of shards that owners are divided into in Redis.
    pub shards: Shards,
    /// Bytes that an embedded store may have on disk.
    pub max_bytes: Option<u64>,
    /// Certificates for TLS to Redis.
    pub tls: TlsFiles,
    /// Replicas that must confirm a change before it is answered.
    pub wait_replicas: u32,
    /// Whether a start is refused when a guarantee doesn't hold.
    pub require_durable: bool,
}

/// PEM files of an encrypted connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsFiles {
    /// Certificate of the servers' authority; `None`: those that the system trusts.
    pub ca: Option<PathBuf>,
    /// This client's certificate and its key.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// A file of a connection that can't be used.
#[derive(Debug, thiserror::Error)]
#[error("`{setting}`: file `{}` can't be read: {error}", file.display())]
pub struct SettingFileError {
    /// The setting that names the file.
    pub setting: &'static str,
    /// Path of the file.
    pub file: PathBuf,
    /// What is wrong with it, without its content.
    pub error: std::io::Error,
}

/// Parsed value of `store.url`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// An embedded store, `embedded:DIR`.
    Embedded(PathBuf),
    /// `redis://…` or another of its schemes, credentials included.
    Redis(String),
}

/// Settings of the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusConfig {
    /// Kind and address of the queue.
    pub url: BusUrl,
    /// First token of every subject.
    pub prefix: String,
    /// Certificates for TLS to NATS.
    pub tls: TlsFiles,
    /// A file with the JWT and key of a NATS user.
    pub creds_file: Option<PathBuf>,
    /// Number of copies of every stream, 1 to 5.
    pub replicas: usize,
    /// Number of streams over which messages to agents are spread by their owner; 1 = one stream.
    pub partitions: usize,
    /// Time for which completions stay readable.
    pub out_max_age: Duration,
    /// Size limit of each stream, and of the embedded queue, in bytes.
    pub max_bytes: u64,
    /// URL of the NATS server's monitoring port.
    pub monitor: Option<String>,
}

/// Parsed value of `bus.url`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum BusUrl {
    /// The queue in the embedded store.
    #[default]
    Embedded,
    /// `nats://…`, credentials included, several separated by commas.
    Nats(String),
}

/// Settings of the HTTP API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpConfig {
    /// Address to listen at.
    pub listen: SocketAddr,
    /// Address under which clients know the API, without `/` at its end.
    pub public: Option<String>,
    /// Longest request body, in bytes.
    pub body_limit: usize,
    /// Memory that requests in work may take together, in bytes.
    pub memory: u64,
    /// Most open connections.
    pub connections: usize,
    /// Most open connections of one address.
    pub connections_per_address: usize,
    /// Addresses of reverse proxies, which may have all connections.
    pub proxies: Vec<IpAddr>,
    /// Longest time for a header to arrive.
    pub header_time: Duration,
    /// Longest time for a body to arrive.
    pub body_time: Duration,
    /// Longest time without a request.
    pub idle_time: Duration,
    /// Time after a signal in which requests are still taken.
    pub linger: Duration,
}

/// Settings of calls of the operations `http:*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpClientConfig {
    /// Hosts that may be called.
    pub allow_hosts: Vec<HostRule>,
    /// Whether addresses that aren't public may be called, too.
    pub allow_private: bool,
    /// Longest time of one call.
    pub timeout: Duration,
    /// Longest body of an answer, in bytes.
    pub max_bytes: usize,
    /// Most redirects that are followed.
    pub redirects: usize,
    /// Proxy of the calls, and of those to servers of `resources.kinds`.
    pub proxy: ProxySettings,
}

/// Settings of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerConfig {
    /// Name in leases and logs; empty = host name and process id.
    pub name: String,
    /// Address at which a worker without an API serves its health.
    pub listen: Option<SocketAddr>,
    /// Number of turns at the same time.
    pub slots: usize,
    /// Number of invoked operations at the same time.
    pub operations: usize,
    /// Lease of a session, and ack wait.
    pub lease: Duration,
    /// Longest wait of one request for work.
    pub poll: Duration,
    /// Time between two sweeps.
    pub sweep: Duration,
    /// Crashes after which an event is a dead letter.
    pub crash_limit: u32,
    /// Sessions of one owner that the fleet runs at once, 0 = any number.
    pub owner_cap: u32,
    /// Percentage of its slots that one of several owners may hold.
    pub owner_share: u32,
    /// Time that a person has for an approval.
    pub approval_time: Duration,
    /// Turns that one request may cause in an hour, 0 = any number.
    pub turns_per_origin: u32,
    /// Pause between two audits for lost work.
    pub audit: Duration,
    /// Most percent of its time that a scan of all owners works.
    pub upkeep_share: u32,
    /// Deadline of a shutdown.
    pub grace: Duration,
    /// Difference to the store's clock above which a worker begins no work.
    pub clock_limit: Duration,
}

/// Settings of stored secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretsConfig {
    /// File with the keys; without it the environment's, or one in an embedded store's folder.
    pub key_file: Option<PathBuf>,
}

/// Settings of authentication: who may submit, read and change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuthConfig {
    /// How callers are authenticated.
    pub mode: AuthMode,
    /// Accepted `aud` of a token; empty = the venue's DID and its name.
    pub audience: Vec<String>,
    /// File with the key set of trusted issuers.
    pub jwks: Option<PathBuf>,
    /// Keys whose holders may sign their own tokens.
    pub did_keys: DidKeys,
    /// Subjects of tokens that are operators.
    pub operators: Vec<TokenSubject>,
    /// Addresses of the servers that issue tokens, for clients that have none.
    pub authorization_servers: Vec<String>,
    /// Accepted difference of clocks.
    pub leeway: Duration,
}

/// Parsed value of `auth.did_keys`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DidKeys {
    /// `*`: every key is accepted.
    All,
    /// Only these keys are accepted.
    Only(Vec<DidKey>),
}

impl Default for DidKeys {
    fn default() -> Self {
        Self::Only(Vec::new())
    }
}

/// Settings of what requests may be granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantsConfig {
    /// Resource namespaces at and above which no request is granted anything.
    pub protected: Vec<Boundary>,
}

/// Parsed value of `auth.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AuthMode {
    /// Everyone who can connect is accepted; loopback only.
    #[default]
    None,
    /// Callers need a signed token.
    Jwt,
}

/// Settings of model providers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelsConfig {
    /// Rules file of the scripted model, or a folder of them.
    pub scripted: Option<PathBuf>,
    /// File that gets one JSON line per call.
    pub calls_log: Option<PathBuf>,
    /// Longest wait for one reply.
    pub timeout: Duration,
    /// Rate limits of providers, fleet-wide.
    pub limits: Vec<RateLimit>,
    /// Own model servers, by name.
    pub endpoints: BTreeMap<String, EndpointConfig>,
    /// Proxy of the calls.
    pub proxy: ProxySettings,
}

/// Settings under `models.endpoints.<name>`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EndpointConfig {
    /// Base URL of an OpenAI-compatible API.
    pub base_url: String,
    /// Environment variable with the key; `None` = no key.
    pub api_key_env: Option<String>,
}

/// Resources that agents can declare beside the built-in kinds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResourcesConfig {
    /// Kinds that other servers provide, by name.
    pub kinds: BTreeMap<String, ResourceKind>,
}

/// Settings under `resources.kinds.<name>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceKind {
    /// URL of its server.
    pub url: String,
    /// Operations that the server provides.
    pub operations: Vec<RemoteOperation>,
    /// The mode of a declaration that names none; `None` = `read`.
    pub mode: Option<AccessMode>,
    /// What it is, for models.
    pub about: String,
    /// Environment variable with the key; `None` = no key.
    pub key_env: Option<String>,
    /// Header that carries the key.
    pub header: String,
    /// Text before the key in the header.
    pub prefix: String,
    /// Longest time of one call.
    pub timeout: Duration,
    /// Whether its address may be one that isn't public.
    pub allow_private: bool,
}

/// Servers of the Model Context Protocol whose tools the agents of all owners may use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct McpConfig {
    /// Servers in the order of their names.
    pub servers: Vec<VenueMcpServer>,
    /// Whether other processes than `trellis up` start programs as servers, too.
    pub commands: bool,
}

/// Settings under `mcp.servers.<name>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VenueMcpServer {
    /// What an agent could set of it, too.
    pub server: McpServer,
    /// Program and arguments of a server on stdin and stdout; empty = the server has a URL.
    pub command: Vec<String>,
    /// Environment variables that the program gets besides `PATH` and `HOME`.
    pub env: Vec<String>,
    /// Environment variable with the venue's key; `None` = no key.
    pub key_env: Option<String>,
    /// Header that carries the key.
    pub header: String,
    /// Text before the key in the header.
    pub prefix: String,
    /// Environment variable with the secret of the venue's client at the login server.
    pub client_secret_env: Option<String>,
    /// Environment variable with the private key of that client.
    pub private_key_env: Option<String>,
    /// Whether its address may be one that isn't public.
    pub allow_private: bool,
}

/// Notifications of all owners.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NotificationsConfig {
    /// Webhooks in the order of their names.
    pub webhooks: Vec<WebhookConfig>,
}

/// Settings under `notifications.webhooks.<name>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookConfig {
    /// Name of the webhook.
    pub name: WebhookName,
    /// Address that notifications are posted to.
    pub url: String,
    /// Kinds that are sent; empty = all.
    pub kinds: Vec<NotificationKind>,
    /// Environment variable with the secret of its signatures.
    pub secret_env: String,
    /// Whether it is sent what approvals ask, with arguments.
    pub with_content: bool,
    /// Whether its address may be one that isn't public.
    pub allow_private: bool,
}

/// Agents elsewhere that the agents of all owners may give work to by the Agent2Agent protocol.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct A2aConfig {
    /// Agents in the order of their names.
    pub agents: Vec<VenueA2aAgent>,
}

/// Settings under `a2a.agents.<name>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VenueA2aAgent {
    /// What an agent could set of it, too.
    pub agent: RemoteAgent,
    /// Environment variable with the venue's key; `None` = no key.
    pub key_env: Option<String>,
    /// Header that carries the key.
    pub header: String,
    /// Text before the key in the header.
    pub prefix: String,
    /// Whether its address may be one that isn't public.
    pub allow_private: bool,
}

/// Settings of the operations that agents can call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogConfig {
    /// Whether the operations `test:*` are included.
    pub test: bool,
    /// File, or folder of files, with tools by declaration for all owners.
    pub tools: Option<PathBuf>,
}

/// Settings of this installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VenueConfig {
    /// Name of the venue.
    pub name: String,
    /// Whether a start takes over a queue that belongs to another store, and renames the store.
    pub adopt: bool,
}

/// Settings of metrics.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MetricsConfig {
    /// Names of the agents that have metrics of their own.
    pub agents: BTreeSet<String>,
}

/// Settings under `telemetry.otlp.*`: traces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TelemetryConfig {
    /// URL of the collector, without `/v1/traces`; `None`: traces are off.
    pub endpoint: Option<String>,
    /// Environment variable with headers of each request, `name=value` with commas between; empty = none.
    pub headers_env: String,
    /// Name of the service that the spans are of.
    pub service: String,
    /// Share of the traces that is recorded, 0 to 100.
    pub percent: u32,
    /// Longest time of one request.
    pub timeout: Duration,
}

/// Settings of log lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// Form of the lines.
    pub format: LogFormat,
    /// A level or a filter of `tracing-subscriber`.
    pub level: String,
}

/// Parsed value of `log.format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Waits between tries of a model provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryConfig {
    /// Pause after the first failed attempt.
    pub first: Duration,
    /// Longest pause between two attempts.
    pub max: Duration,
    /// Most time of all pauses together.
    pub total: Duration,
}
