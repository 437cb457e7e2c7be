//! Seam 4, `Operation`: what agents and callers can do, by catalog path.
//!
//! An operation says what it is, what it needs and what happens when it is repeated; [`dispatch`]
//! checks all of that in one place before any operation runs. The operations themselves are [`crate::ops`].

pub mod dispatch;
mod fill;
pub mod pin;
mod reads;

pub use reads::{READ, Reads};

use crate::domain::authority::envelope::Envelope;
use crate::domain::authority::trail::{Maker, Trail};
use crate::domain::authority::{Authority, Capability, ResourcePath};
use crate::domain::decode::Wrong;
use crate::domain::event::{Mandate, Parent};
use crate::domain::ids::{EventId, JobId, Owner};
use crate::domain::limits::OPERATION_TIME;
use crate::domain::principal::Principal;
use crate::domain::reader::Reader;
use crate::domain::scope::ScopedSection;
use crate::domain::secret::Destination;
use crate::domain::tools::guard::catalog_path;
use crate::domain::tools::{Described, Directory};
use crate::store::{Lease, StoreError};
use crate::venue::Venue;
use crate::venue::resources::Providers;
use crate::venue::secrets::SecretError;
use crate::venue::workspace::{Workspace, WorkspaceError};
use async_trait::async_trait;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// What happens to the world when an operation runs, and so what may happen after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing: it is simply run again.
    Read,
    /// Kept in the turn until its commit: it is simply run again.
    Buffered,
    /// Written at once under an id that is a function of the turn: running it again changes nothing.
    Idempotent,
    /// Not repeatable: intent is recorded before it, and an intent without an outcome is
    /// `outcome_unknown`.
    Once,
}

/// What an operation is.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Catalog path, `v/ops/<group>/<name>`.
    pub path: &'static str,
    /// What it does, for models and people.
    pub description: &'static str,
    /// JSON Schema of its input.
    pub input: Value,
    /// What happens when it is repeated.
    pub effect: Effect,
}

/// One thing that a call needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// An ability, e.g. `crud/read`.
    pub ability: &'static str,
    /// On what.
    pub resource: ResourcePath,
}

/// Why an operation has no result.
#[derive(Debug, thiserror::Error)]
pub enum OpError {
    /// Arguments that don't fit.
    #[error("{0}")]
    Invalid(String),
    /// Arguments that don't fit the operation's schema.
    #[error("arguments of `{path}` are not valid: {}", listed(.wrong))]
    Arguments {
        /// The operation.
        path: &'static str,
        /// What is wrong with them: the first few.
        wrong: Vec<Wrong>,
    },
    /// No capability for it; the text is complete.
    #[error("{0}")]
    Denied(String),
    /// No such agent, job, operation.
    #[error("{0}")]
    NotFound(String),
    /// The state doesn't allow it.
    #[error("{0}")]
    Conflict(String),
    /// A limit of what may run or be kept is reached.
    #[error("{0}")]
    Limit(String),
    /// It was tried and failed.
    #[error("{0}")]
    Failed(String),
    /// Another server, which it needs, doesn't answer or answers nonsense.
    #[error("{0}")]
    Upstream(String),
    /// Took longer than allowed; it may have happened.
    #[error("{0}")]
    Timeout(String),
    /// The running turn lost its lease: stop everything.
    #[error("the lease was lost")]
    Fenced,
    /// The store: the whole turn is tried again later.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn listed(wrong: &[Wrong]) -> String {
    let one = |Wrong { pointer, fact, .. }: &Wrong| match pointer.as_str() {
        "" => fact.to_string(),
        place => format!("at `{place}`: {fact}"),
    };
    wrong.iter().map(one).collect::<Vec<_>>().join("; ")
}

impl From<WorkspaceError> for OpError {
    fn from(error: WorkspaceError) -> Self {
        match error {
            WorkspaceError::Store(error) => Self::Store(error),
            WorkspaceError::VersionConflict { .. } => Self::Conflict(error.to_string()),
            WorkspaceError::Path(_)
            | WorkspaceError::NotHere { .. }
            | WorkspaceError::Change(_)
            | WorkspaceError::Refused(_) => Self::Invalid(error.to_string()),
        }
    }
}

impl From<SecretError> for OpError {
    fn from(error: SecretError) -> Self {
        match error {
            SecretError::Store(error) => Self::Store(error),
            SecretError::Missing(_) => Self::NotFound(error.to_string()),
            SecretError::NoKey | SecretError::Exists(_) | SecretError::TooMany => Self::Conflict(error.to_string()),
            SecretError::Sealed { .. } | SecretError::Random(_) => Self::Failed(error.to_string()),
        }
    }
}

/// Who calls.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Whose data it is about.
    pub owner: Owner,
    /// Name for records: the owner, or `agent:<id>`.
    pub name: String,
    /// What it may do.
    pub authority: Authority,
    /// What it may do for others, too: write what users can't, act for other owners.
    pub operator: bool,
    /// The request that it acts for: ids of its grants, claims, modes.
    pub envelope: Envelope,
    /// Whose the ids are that it gives.
    pub principal: Principal,
}

impl Caller {
    /// Somebody who acts for no request but its own.
    pub fn new(owner: Owner, name: String, authority: Authority) -> Self {
        Self { owner, name, authority, operator: false, envelope: Envelope::default(), principal: Principal::ANYBODY }
    }

    /// What travels with a request of this caller, who is no turn.
    pub fn request(&self) -> Envelope {
        let mut envelope = self.envelope.clone();
        envelope.bound = envelope.bound.intersect(&self.authority).nowhere();
        envelope.holders.push(self.name.clone());
        envelope
    }

    /// By what it reads what was said and done under some authority: operators read all of it.
    pub fn reads(&self) -> Cow<'_, Authority> {
        if self.operator { Cow::Owned(Authority::unlimited()) } else { Cow::Borrowed(&self.authority) }
    }

    /// As a reader of jobs.
    pub fn reader(&self) -> Reader {
        let mark = self.principal.mark().map(str::to_owned);
        Reader { authority: self.authority.clone(), mark, operator: self.operator }
    }

    /// Under whom and under what it acts.
    pub fn trail(&self) -> Trail {
        let mut trail = self.envelope.trail();
        trail.holders.push(self.name.clone());
        trail.grants.extend(self.authority.home().job.as_ref().map(ToString::to_string));
        trail
    }

    /// An agent, not a person or a service: an owner's name has a slash in it, an agent's has none.
    pub fn is_agent(&self) -> bool {
        self.name.starts_with("agent:") && !self.name.contains('/')
    }
}

impl From<&Caller> for Maker {
    fn from(caller: &Caller) -> Self {
        Self { authority: caller.authority.clone(), trail: caller.trail() }
    }
}

/// Where a call comes from.
#[derive(Debug, Clone)]
pub enum Site<'a> {
    /// A tool call of a running turn.
    Turn(TurnSite<'a>),
    /// A caller outside turns; `key` makes a submission idempotent.
    Api {
        /// The caller's own id of the request.
        key: Option<EventId>,
    },
}

/// A tool call of a running turn.
#[derive(Debug, Clone)]
pub struct TurnSite<'a> {
    /// The turn's lease: effects are fenced by it.
    pub lease: &'a Lease,
    /// Number of the turn.
    pub turn: u64,
    /// Place of the call in its reply.
    pub call: u32,
    /// The instance that it is about.
    pub instance: Option<&'a str>,
    /// What of the turn's context goes with it: a child job gets it as sections of its own.
    pub handed: &'a [ScopedSection],
    /// The request that the turn serves.
    pub mandate: &'a Mandate,
    /// What a child job of this call has as its parent.
    pub parent: &'a Parent,
    /// Children that the session waits for already, with those that calls before this one start.
    pub children: usize,
    /// Children that the session's run has started, with the same.
    pub run_children: usize,
    /// The most that the agent may hand on; absent = what it may do itself.
    pub delegable: Option<&'a [Capability]>,
    /// How long the agent lets one call run; absent = as long as the venue.
    pub time: Option<Duration>,
}

/// Everything an operation may use.
#[derive(Clone)]
pub struct Invocation<'a> {
    /// The name by which its caller called it: of a tool, or the path of an operation as it was written. Denials
    /// say it.
    pub named: &'a str,
    /// The process's shared parts.
    pub venue: &'a Venue,
    /// Who calls.
    pub caller: &'a Caller,
    /// The owner's tree as the caller sees it.
    pub workspace: &'a Workspace,
    /// What of its caller's context goes with it, by key of the section; no part of the arguments.
    pub scoped: &'a Map<String, Value>,
    /// Where the call comes from.
    pub site: Site<'a>,
    /// Takes down what it reads.
    pub reads: &'a Reads,
}

impl Invocation<'_> {
    /// How long the operation may run.
    pub fn time(&self) -> Duration {
        match &self.site {
            Site::Turn(TurnSite { time: Some(time), .. }) => OPERATION_TIME.min(*time),
            Site::Turn(_) | Site::Api { .. } => OPERATION_TIME,
        }
    }
}

/// Of a call that no section of any context goes with.
pub static NOTHING: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

/// What an operation returned.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// The result.
    pub value: Value,
    /// A child job that is still running: its result comes as an event.
    pub started: Option<JobId>,
}

impl From<Value> for Output {
    fn from(value: Value) -> Self {
        Self { value, started: None }
    }
}

/// One operation of the catalog.
#[async_trait]
pub trait Operation: Send + Sync {
    /// What it is.
    fn spec(&self) -> Spec;

    /// What a call with these (valid) arguments needs, on resolved paths.
    fn needs(&self, arguments: &Value) -> Result<Vec<Need>, OpError>;

    /// The operation that valid arguments mean to run in this one's stead, and its arguments: what
    /// is asked of the call then is what that operation asks.
    fn inner(&self, _arguments: &mut Value) -> Option<(String, Value)> {
        None
    }

    /// The job that a call with valid arguments reads: who asked for that needs nothing else.
    fn reads_job(&self, _arguments: &Value) -> Option<JobId> {
        None
    }

    /// Where a call goes: references to secrets in its arguments count only for a place that each
    /// is bound to. `None`: it goes nowhere, and takes none.
    fn destination(&self, _arguments: &Value) -> Result<Option<Destination>, OpError> {
        Ok(None)
    }

    /// Runs it. Capabilities are checked and arguments validated by then.
    async fn invoke(&self, call: &Invocation<'_>, arguments: Value) -> Result<Output, OpError>;
}

/// An operation with what is computed once from its spec.
pub struct RegisteredOperation {
    /// The operation.
    pub operation: Arc<dyn Operation>,
    /// Its spec.
    pub spec: Spec,
    /// The compiled input schema.
    pub validator: jsonschema::Validator,
    /// The entities that it is about; the built-in operations are about none.
    pub entities: Vec<String>,
}

/// All operations by path, and their aliases; the names of the model providers that agents may name; and the kinds of
/// resources.
#[derive(Default)]
pub struct Catalog {
    /// The providers of resources by kind.
    pub resources: Providers,
    operations: BTreeMap<&'static str, RegisteredOperation>,
    aliases: BTreeMap<&'static str, &'static str>,
    providers: Vec<String>,
}

impl Catalog {
    /// A catalog of these operations, and of other names for their paths.
    pub fn of(
        operations: impl IntoIterator<Item = Arc<dyn Operation>>,
        aliases: impl IntoIterator<Item = (&'static str, &'static str)>,
    ) -> Self {
        let mut catalog = Self { aliases: aliases.into_iter().collect(), ..Self::default() };
        operations.into_iter().for_each(|operation| catalog.add(operation));
        catalog
    }

    /// The same with these names of model providers.
    #[must_use]
    pub fn calling(self, providers: Vec<String>) -> Self {
        Self { providers, ..self }
    }

    /// The same with these kinds of resources.
    #[must_use]
    pub fn keeping(self, resources: Providers) -> Self {
        Self { resources, ..self }
    }

    /// The names of the model providers that agents may name.
    pub fn providers(&self) -> &[String] {
        &self.providers
    }

    fn add(&mut self, operation: Arc<dyn Operation>) {
        let spec = operation.spec();
        let validator = jsonschema::validator_for(&spec.input).expect("the catalog's schemas are valid");
        self.operations.insert(spec.path, RegisteredOperation { operation, spec, validator, entities: Vec::new() });
    }

    /// The operation that `path` means: its own path, an alias, or the path without `v/ops/`.
    /// Covia's `group:name` is the same as `v/ops/group/name`.
    pub fn resolve(&self, path: &str) -> Option<&RegisteredOperation> {
        let full = catalog_path(path);
        let real = self.aliases.get(full.as_str()).copied().unwrap_or(full.as_str());
        self.operations.get(real)
    }

    /// All operations, by path.
    pub fn operations(&self) -> impl Iterator<Item = &RegisteredOperation> {
        self.operations.values()
    }

    /// All aliases and what they mean.
    pub fn aliases(&self) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
        self.aliases.iter().map(|(alias, path)| (*alias, *path))
    }
}

impl RegisteredOperation {
    fn described(&self, asked: &str, catalog: &Catalog) -> Described {
        let aliases = catalog.aliases().filter(|(_, path)| *path == self.spec.path);
        Described {
            asked: asked.to_owned(),
            path: self.spec.path.to_owned(),
            description: self.spec.description.to_owned(),
            input: self.spec.input.clone(),
            entities: self.entities.clone(),
            aliases: aliases.map(|(alias, _)| alias.to_owned()).collect(),
        }
    }
}

impl Directory for Catalog {
    fn find(&self, path: &str) -> Option<Described> {
        self.resolve(path).map(|found| found.described(path, self))
    }

    fn all(&self) -> Vec<Described> {
        self.operations().map(|found| found.described(found.spec.path, self)).collect()
    }
}
