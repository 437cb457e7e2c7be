//! Why a process can't start.

use super::a2a_agents::A2aAgentProblem;
use super::mcp_servers::McpServerProblem;
use super::resource_kinds::ResourceKindError;
use super::traces::TracesProblem;
use super::webhooks::WebhookProblem;
use crate::bus::BusError;
use crate::bus::nats::BusOpenError;
use crate::config::{SettingFileError, advice};
use crate::domain::format::FormatError;
use crate::domain::identity::NameMismatch;
use crate::domain::mcp::name::ServerName;
use crate::domain::webhook::WebhookName;
use crate::model::rules_path::RulesPathError;
use crate::store::StoreError;
use crate::store::embedded::StoreOpenError;
use crate::store::redis::ServersUrlError;
use crate::venue::auth::jwks::JwksError;
use crate::venue::declared::ToolFileError;
use crate::venue::secrets::KeyFileError;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a process can't start.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// A fleet role on a store that one process has for itself.
    #[error(
        "`{command}` needs a store that several processes can share, got `{store}`; set `store.url = \"redis://…\"` and `bus.url = \"nats://…\"`, or use `trellis up`, which is everything in one process"
    )]
    NotShared {
        /// Name of the command.
        command: &'static str,
        /// Value of `store.url`.
        store: String,
    },
    /// A command that works on an embedded store, and a folder without one.
    #[error(
        "there is no store at `{}`: `trellis up` makes one, other commands don't; name the folder of one with \
         `--set store.url=embedded:DIR`",
        .0.display()
    )]
    NoStore(PathBuf),
    /// A URL that no store can be at.
    #[error("`store.url`: {0}")]
    StoreUrl(ServersUrlError),
    /// The store could not be opened.
    #[error("{error}{}", away_store(.error))]
    Store {
        /// The store's own words.
        #[from]
        error: StoreError,
    },
    /// The store and the queue: both are said at once.
    #[error("{0}\nerror: {1}")]
    Both(Box<AppError>, Box<AppError>),
    /// Another `venue.name` or `bus.prefix` than the store was made with.
    #[error(transparent)]
    Names(#[from] NameMismatch),
    /// A build that is too far from the one that wrote it.
    #[error("this build can't work on the store: {0}")]
    Format(#[from] FormatError),
    /// The queue in NATS.
    #[error(transparent)]
    Nats(#[from] BusOpenError),
    /// The queue in the embedded store.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// The rules of the scripted model.
    #[error("`models.scripted`: {0}")]
    Rules(#[from] RulesPathError),
    /// The model client.
    #[error("the model client can't be set up: {0}")]
    Models(String),
    /// A kind of resources that a server elsewhere provides.
    #[error("`resources.kinds.{kind}`: {problem}")]
    Kind {
        /// Kind of the resource.
        kind: String,
        /// Reason why it can't be set up.
        problem: ResourceKindError,
    },
    /// A webhook of the configuration can't be used.
    #[error("`notifications.webhooks.{name}`: {problem}")]
    Webhook {
        /// Name of the webhook.
        name: WebhookName,
        /// Reason why it can't be used.
        problem: WebhookProblem,
    },
    /// The collector of traces can't be called.
    #[error(transparent)]
    Traces(#[from] TracesProblem),
    /// A server of the Model Context Protocol.
    #[error("`mcp.servers.{name}`: {problem}")]
    McpServer {
        /// Name of the server.
        name: ServerName,
        /// Reason why it can't be used.
        problem: McpServerProblem,
    },
    /// An agent elsewhere.
    #[error("`a2a.agents.{name}`: {problem}")]
    A2aAgent {
        /// Name of the agent.
        name: ServerName,
        /// Reason why it can't be used.
        problem: A2aAgentProblem,
    },
    /// The files of declared tools.
    #[error("`catalog.tools`: {0}")]
    Tools(ToolFileError),
    /// The keys of trusted issuers.
    #[error(transparent)]
    Auth(#[from] JwksError),
    /// A certificate, key or login of a connection.
    #[error(transparent)]
    File(#[from] SettingFileError),
    /// The address of the HTTP API, or of a worker's health.
    #[error("can't listen on `{address}`: {error}{there}; stop what uses it, or choose another address with `{with}`")]
    Listen {
        /// Address in `http.listen`.
        address: SocketAddr,
        /// What sets it.
        with: &'static str,
        /// The system's words.
        error: io::Error,
        /// Who answers there, when it is a venue.
        there: String,
    },
    /// The keys of secrets.
    #[error(transparent)]
    Keys(#[from] KeyFileError),
    /// The servers don't keep what they acknowledge, and the configuration wants it kept.
    #[error(
        "{broken} guarantees do not hold, and `store.require_durable` is set: {advice}; `trellis doctor` shows all"
    )]
    NotDurable {
        /// Number of broken guarantees.
        broken: usize,
        /// What to change.
        advice: String,
    },
    /// Handlers of signals could not be set.
    #[error("signals can't be handled: {0}")]
    Signals(io::Error),
    /// Tasks panicked while it ran; each has a log line.
    #[error("{0} tasks panicked; the log says where. Nothing accepted is lost")]
    Panicked(u64),
}

/// What to do about a store that is away, behind its error.
fn away_store(error: &StoreError) -> String {
    match error {
        StoreError::Unavailable { store, reason } if store.starts_with("redis") => {
            format!("; {}", advice::connection_advice(reason, "store.url", store))
        }
        _ => String::new(),
    }
}

impl From<StoreOpenError> for AppError {
    fn from(error: StoreOpenError) -> Self {
        match error {
            StoreOpenError::Store(error) => error.into(),
            StoreOpenError::Format(error) => Self::Format(error),
        }
    }
}
