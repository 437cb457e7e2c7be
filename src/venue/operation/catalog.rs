//! All operations by path, with what is computed once for each: the compiled ones, and those that are published while
//! the process runs.

use super::publication_error::PublicationError;
use super::published::{Publication, ViewOperation};
use super::sources::{PublicationScope, PublishedOperations, PublishedSource};
use super::validators::{RecentValidators, SharedValidator};
use super::{Effect, OpError, Operation, ParsedCall, RuntimeCall, schema};
use crate::domain::a2a::task::RemoteCallPlan;
use crate::domain::agent::tool::tool_name;
use crate::domain::call::PublishedVersion;
use crate::domain::declared::JobsDeclaration;
use crate::domain::decode;
use crate::domain::ids::{AgentId, Owner, sha256_hex};
use crate::domain::lattice::catalog::{SourceName, catalog_path};
use crate::domain::time::Millis;
use crate::domain::tools::{OperationDirectory, OperationInfo};
use crate::venue::a2a_client::A2aAgents;
use crate::venue::mcp_client::McpServers;
use crate::venue::outbound::HttpPolicy;
use crate::venue::outbound::send::HttpSender;
use crate::venue::outbound::webhook::VenueWebhook;
use crate::venue::resources::ResourceProviders;
use jsonschema::Validator;
use parking_lot::RwLock;
use quick_cache::sync::Cache;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Description of an operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Catalog path, `v/ops/<group>/<name>`.
    pub path: Arc<str>,
    /// What the operation does, for models and people.
    pub description: String,
    /// JSON Schema of the input.
    pub input: Value,
    /// Effect of the operation, which decides whether it may be repeated.
    pub effect: Effect,
    /// Whether a call does something with the sections of its caller's context.
    pub takes_sections: bool,
}

/// Makes a call of valid arguments.
pub(super) type CallParser = dyn Fn(Value) -> Result<Box<dyn ParsedCall>, OpError> + Send + Sync;

/// The compiled input schema of an operation.
pub(super) enum InputValidator {
    Compiled(Arc<Validator>),
    Published(SharedValidator),
}

/// An operation of the catalogue.
pub struct RegisteredOperation {
    /// Description of the operation.
    pub spec: Spec,
    pub(super) validator: InputValidator,
    /// Entities that the operation is about; empty for built-in operations.
    pub entities: Vec<String>,
    /// Version of the publication, with its scope; `None` for a compiled operation.
    pub version: Option<Arc<str>>,
    pub(super) parser: Box<CallParser>,
}

/// Makes the catalogue's entry of an operation.
pub fn operation<T: Operation>() -> RegisteredOperation {
    let (description, input) = schema::describe_type::<T>();
    let validator = jsonschema::validator_for(&input).expect("the catalog's schemas are valid");
    let (path, effect, takes_sections) = (T::PATH.into(), T::EFFECT, T::TAKES_SECTIONS);
    let spec = Spec { path, description, input, effect, takes_sections };
    let validator = InputValidator::Compiled(Arc::new(validator));
    RegisteredOperation { spec, validator, entities: Vec::new(), version: None, parser: Box::new(parse::<T>) }
}

fn parse<T: Operation>(arguments: Value) -> Result<Box<dyn ParsedCall>, OpError> {
    match decode::into_type::<T>(arguments) {
        Ok(call) => Ok(Box::new(call)),
        Err(wrong) => Err(OpError::Arguments { path: T::PATH.into(), wrong: vec![wrong] }),
    }
}

impl RegisteredOperation {
    /// Returns the compiled input schema.
    pub(super) fn validator(&self) -> Result<Arc<Validator>, OpError> {
        match &self.validator {
            InputValidator::Compiled(known) => Ok(Arc::clone(known)),
            InputValidator::Published(shared) => shared
                .get(&self.spec.input)
                .map_err(|error| OpError::Failed(format!("the schema of `{}`: {error}", self.spec.path))),
        }
    }

    /// Returns the operation in its version; `None` for a compiled operation.
    pub fn published_version(&self) -> Option<PublishedVersion> {
        let version = self.version.as_deref()?.to_owned();
        Some(PublishedVersion { path: self.spec.path.to_string(), version })
    }

    /// Parses arguments that fit the schema.
    ///
    /// # Errors
    /// Names, paths and numbers that no schema can check are invalid.
    pub fn parse(&self, arguments: Value) -> Result<Box<dyn ParsedCall>, OpError> {
        (self.parser)(arguments)
    }

    fn describe(&self, asked: &str, catalog: &CatalogView) -> OperationInfo {
        let aliases = catalog.aliases().filter(|(_, path)| **path == *self.spec.path);
        OperationInfo {
            requested_path: asked.to_owned(),
            path: self.spec.path.to_string(),
            description: self.spec.description.clone(),
            input: self.spec.input.clone(),
            entities: self.entities.clone(),
            aliases: aliases.map(|(alias, _)| alias.to_owned()).collect(),
        }
    }
}

/// What all owners share, and what never changes but for the venue's own names.
#[derive(Default)]
struct CompiledOperations {
    operations: BTreeMap<Arc<str>, Arc<RegisteredOperation>>,
    aliases: BTreeMap<&'static str, &'static str>,
    /// The venue's own name, address and DID.
    own_names: RwLock<BTreeSet<String>>,
}

/// All operations by path, and their aliases; names of the model providers that agents may use; and what is outside the
/// venue: hosts and the kinds of resources.
#[derive(Default)]
pub struct Catalog {
    /// Providers of resources, by kind.
    pub resources: ResourceProviders,
    /// HTTP client for the hosts that may be called.
    pub(crate) hosts: HttpSender,
    /// Servers of the Model Context Protocol.
    pub(crate) mcp: McpServers,
    /// Webhooks of the venue, which get the notifications of all owners.
    pub(crate) webhooks: Vec<VenueWebhook>,
    /// Agents elsewhere that the configuration names.
    pub(crate) a2a: A2aAgents,
    compiled: Arc<CompiledOperations>,
    published: PublishedOperations<RegisteredOperation>,
    validators: Arc<RecentValidators>,
    /// Operations that views were given lately, by path and version.
    recent: RecentOperations,
    providers: Vec<String>,
    /// Makes the calls of declared jobs for external workers.
    jobs: Option<JobCalls>,
    /// Makes the calls of agents elsewhere.
    remote_calls: Option<RemoteCalls>,
}

/// Makes what runs the calls of a declared job.
pub type JobCalls = fn(&JobsDeclaration) -> Arc<dyn RuntimeCall>;

/// Makes what sends messages to an agent elsewhere.
pub type RemoteCalls = fn(RemoteCallPlan) -> Arc<dyn RuntimeCall>;

/// Operations that views were given lately.
struct RecentOperations(Cache<String, Arc<RegisteredOperation>>);

impl Default for RecentOperations {
    fn default() -> Self {
        Self(Cache::new(VIEW_OPERATIONS_KEPT))
    }
}

/// Operations of views that a process keeps between turns.
const VIEW_OPERATIONS_KEPT: usize = 1_024;

impl Catalog {
    /// Makes a catalogue of these operations, and of aliases of their paths.
    pub fn new(
        operations: impl IntoIterator<Item = RegisteredOperation>,
        aliases: impl IntoIterator<Item = (&'static str, &'static str)>,
    ) -> Self {
        let by_path = |operation: RegisteredOperation| (Arc::clone(&operation.spec.path), Arc::new(operation));
        let compiled = CompiledOperations {
            operations: operations.into_iter().map(by_path).collect(),
            aliases: aliases.into_iter().collect(),
            own_names: RwLock::default(),
        };
        Self { compiled: Arc::new(compiled), ..Self::default() }
    }

    /// Returns the catalogue with these names of model providers.
    #[must_use]
    pub fn with_providers(self, providers: Vec<String>) -> Self {
        Self { providers, ..self }
    }

    /// Returns the catalogue with these kinds of resources.
    #[must_use]
    pub fn with_resources(self, resources: ResourceProviders) -> Self {
        Self { resources, ..self }
    }

    /// Returns the catalogue with a policy for calls to hosts; without one, none may be called.
    #[must_use]
    pub fn with_hosts(self, hosts: HttpPolicy) -> Self {
        Self { hosts: HttpSender::new(hosts), ..self }
    }

    /// Returns the catalogue with the venue's servers of the Model Context Protocol.
    #[must_use]
    pub fn with_mcp(self, mcp: McpServers) -> Self {
        Self { mcp, ..self }
    }

    /// Returns the catalogue with the venue's webhooks.
    #[must_use]
    pub fn with_webhooks(self, webhooks: Vec<VenueWebhook>) -> Self {
        Self { webhooks, ..self }
    }

    /// Returns the catalogue with the venue's agents elsewhere.
    #[must_use]
    pub fn with_a2a(self, a2a: A2aAgents) -> Self {
        Self { a2a, ..self }
    }

    /// Returns the catalogue with what sends messages to agents elsewhere.
    #[must_use]
    pub fn with_remote_calls(self, calls: RemoteCalls) -> Self {
        Self { remote_calls: Some(calls), ..self }
    }

    /// Returns what sends messages to agents elsewhere; `None` where the process sends none.
    pub const fn remote_calls(&self) -> Option<RemoteCalls> {
        self.remote_calls
    }

    /// Returns the names of the model providers that agents may use.
    pub fn providers(&self) -> &[String] {
        &self.providers
    }

    /// Returns the catalogue with what runs declared jobs.
    #[must_use]
    pub fn with_jobs(self, jobs: JobCalls) -> Self {
        Self { jobs: Some(jobs), ..self }
    }

    /// Returns what runs declared jobs; `None` where the process has no queues.
    pub const fn jobs(&self) -> Option<JobCalls> {
        self.jobs
    }

    /// Returns a view that has an operation besides its own. It is no part of the catalogue: other views don't have it.
    ///
    /// # Errors
    /// A name or a schema breaks a rule.
    pub fn extend_view(&self, view: &CatalogView, operation: ViewOperation) -> Result<CatalogView, PublicationError> {
        let key = ViewOperation::key_of(&operation.source, &operation.operation.name, &operation.version);
        let found = Arc::new(operation.register(&self.validators)?);
        self.recent.0.insert(key, Arc::clone(&found));
        Ok(view.with_declared(found))
    }

    /// Returns a view that has an operation which [`Self::extend_view`] has made lately; `None` if it hasn't.
    pub fn extend_with_recent(
        &self,
        view: &CatalogView,
        source: &SourceName,
        name: &str,
        version: &str,
    ) -> Option<CatalogView> {
        let found = self.recent.0.get(&ViewOperation::key_of(source, name, version))?;
        Some(view.with_declared(found))
    }

    /// Adds names under which callers may address this venue.
    pub fn add_own_names(&self, names: impl IntoIterator<Item = String>) {
        self.compiled.own_names.write().extend(names);
    }

    /// Replaces all operations of a publication's source by those of the publication. Views that exist stay as they
    /// are; later ones have all of the new operations and none of the old ones.
    ///
    /// # Errors
    /// A name, a schema or a number breaks a rule: nothing is published, and the operations before stay.
    pub fn publish(&self, publication: Publication, now: Millis) -> Result<(), PublicationError> {
        let compiled = self.compiled.operations.keys().map(|path| &**path);
        let compiled: Vec<&str> = compiled.chain(self.compiled.aliases.keys().copied()).collect();
        self.published.insert(publication.prepare(&compiled, &self.validators)?, now)
    }

    /// Withdraws all operations that a source has published for this owner; `None` stands for those of all owners.
    /// Returns whether there were any.
    pub fn withdraw(&self, owner: Option<&Owner>, source: &SourceName) -> bool {
        self.withdraw_at(PublicationKey { owner, agent: None, source })
    }

    /// Withdraws all operations of a source like [`Catalog::withdraw`], also those that an agent alone may name.
    pub fn withdraw_at(&self, key: PublicationKey<'_>) -> bool {
        self.published.remove(key.scope().as_ref(), key.source)
    }

    /// Keeps the operations of a source until another time, if they are published in this version; returns whether they
    /// are. They are the same publication as before.
    pub fn renew(&self, key: PublicationKey<'_>, version: &str, expires: Option<Millis>, now: Millis) -> bool {
        self.published.renew(key.scope().as_ref(), key.source, version, expires, now)
    }

    /// Returns the compiled operations, which all owners have.
    pub fn compiled_view(&self) -> CatalogView {
        CatalogView { compiled: Arc::clone(&self.compiled), published: Arc::default(), declared: Arc::default() }
    }

    /// Returns the operations that calls of an owner may name at this time.
    pub fn for_owner(&self, owner: &Owner, now: Millis) -> CatalogView {
        self.for_agent(owner, None, now)
    }

    /// Returns the operations that calls of an agent may name at this time; `None` stands for callers of the owner.
    pub fn for_agent(&self, owner: &Owner, agent: Option<&AgentId>, now: Millis) -> CatalogView {
        let scope = PublicationScope { owner: owner.clone(), agent: agent.cloned() };
        let published = self.published.visible_to(&scope, now).into();
        CatalogView { compiled: Arc::clone(&self.compiled), published, declared: Arc::default() }
    }
}

/// The place of a source among all that are published.
#[derive(Debug, Clone, Copy)]
pub struct PublicationKey<'a> {
    /// Owner whose calls may name the operations; `None` stands for all owners.
    pub owner: Option<&'a Owner>,
    /// Agent whose calls alone may name them; `None` stands for all calls of the owner.
    pub agent: Option<&'a AgentId>,
    /// Name of the source.
    pub source: &'a SourceName,
}

impl PublicationKey<'_> {
    fn scope(&self) -> Option<PublicationScope> {
        self.owner.map(|owner| PublicationScope { owner: owner.clone(), agent: self.agent.cloned() })
    }
}

/// Why a call that was decided on a published operation isn't made; the texts are for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StaleOperationError {
    /// The operation was withdrawn, or its publication has expired.
    #[error("`{path}` is not offered any more: the call was not made")]
    Withdrawn {
        /// Path of the operation.
        path: String,
    },
    /// The operation has another version.
    #[error("`{path}` has changed since it was shown: the call was not made; look at its schema again")]
    Changed {
        /// Path of the operation.
        path: String,
    },
}

/// The refusal of a call that was decided when this version was not published.
impl From<PublishedVersion> for StaleOperationError {
    fn from(found: PublishedVersion) -> Self {
        Self::Changed { path: found.path }
    }
}

/// The operations that calls of one owner may name, as they were at one time: no publication changes a view.
#[derive(Clone)]
pub struct CatalogView {
    compiled: Arc<CompiledOperations>,
    published: Arc<[Arc<PublishedSource<RegisteredOperation>>]>,
    /// Operations of this view alone, by path.
    declared: Arc<BTreeMap<Arc<str>, Arc<RegisteredOperation>>>,
}

impl CatalogView {
    /// Finds the operation of `path`: its own path, an alias, or the path without `v/ops/`. Covia's `group:name` stands
    /// for `v/ops/group/name`.
    pub fn resolve(&self, path: &str) -> Option<&Arc<RegisteredOperation>> {
        let full = catalog_path(path);
        let real = self.compiled.aliases.get(full.as_str()).copied().unwrap_or(full.as_str());
        let published = || self.published.iter().find_map(|source| source.operations.get(real));
        self.compiled.operations.get(real).or_else(|| self.declared.get(real)).or_else(published)
    }

    fn with_declared(&self, operation: Arc<RegisteredOperation>) -> Self {
        let mut declared = (*self.declared).clone();
        declared.insert(Arc::clone(&operation.spec.path), operation);
        Self { declared: Arc::new(declared), ..self.clone() }
    }

    /// Whether an operation is of this view alone: no publication withdraws it.
    pub fn is_of_view(&self, path: &str) -> bool {
        self.declared.contains_key(path)
    }

    /// Finds a published operation by the name of its tool, which doesn't say where the name of its source ends.
    pub(super) fn find_published_tool(&self, name: &str) -> Option<&Arc<RegisteredOperation>> {
        self.published_operations().find(|found| tool_name(&found.spec.path) == name)
    }

    /// Returns all operations: the compiled ones by path, then the published ones by path.
    pub fn operations(&self) -> impl Iterator<Item = &Arc<RegisteredOperation>> {
        self.compiled.operations.values().chain(self.published_operations())
    }

    fn published_operations(&self) -> impl Iterator<Item = &Arc<RegisteredOperation>> {
        let published = self.published.iter().flat_map(|source| source.operations.iter());
        let shown = published.filter(move |(path, _)| !self.declared.contains_key(*path)).map(|(_, found)| found);
        self.declared.values().chain(shown)
    }

    /// Returns all aliases with the paths that they stand for.
    pub fn aliases(&self) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
        self.compiled.aliases.iter().map(|(alias, path)| (*alias, *path))
    }

    /// Returns numbers that tell the published operations of this view from those of any other view of the process.
    pub(crate) fn publication_serials(&self) -> Vec<u64> {
        // The numbers of publications count from 1 and never get so far.
        let number = |found: &Arc<RegisteredOperation>| {
            let digest = sha256_hex(format!("{} {:?}", found.spec.path, found.version).as_bytes());
            u64::from_str_radix(&digest[..15], 16).unwrap_or_default() | (1 << 63)
        };
        self.published.iter().map(|source| source.serial).chain(self.declared.values().map(number)).collect()
    }

    /// Checks that a published operation still has the version on which a call was decided.
    ///
    /// # Errors
    /// The operation was withdrawn or has another version.
    pub fn check_version(&self, shown: &PublishedVersion) -> Result<(), StaleOperationError> {
        let path = shown.path.clone();
        match self.resolve(&path) {
            None => Err(StaleOperationError::Withdrawn { path }),
            Some(found) if found.version.as_deref() == Some(shown.version.as_str()) => Ok(()),
            Some(_) => Err(StaleOperationError::Changed { path }),
        }
    }

    /// Checks that a call addresses this venue.
    ///
    /// # Errors
    /// `name` is none of this venue's own names.
    pub fn check_venue(&self, name: Option<&Value>) -> Result<(), OpError> {
        let Some(name) = name.filter(|name| !name.is_null()) else { return Ok(()) };
        let text = name.as_str().unwrap_or_default().trim_end_matches('/');
        if self.compiled.own_names.read().contains(text) {
            return Ok(());
        }
        Err(OpError::Invalid(format!(
            "`venue`: operations run at this venue alone, got {name}; leave it out, or call the other venue's API with \
             `v/ops/http/post`"
        )))
    }
}

impl OperationDirectory for CatalogView {
    fn find(&self, path: &str) -> Option<OperationInfo> {
        self.resolve(path).map(|found| found.describe(path, self))
    }

    fn list_operations(&self) -> Vec<OperationInfo> {
        self.operations().map(|found| found.describe(&found.spec.path, self)).collect()
    }

    fn published_versions(&self) -> BTreeMap<String, String> {
        let published = self.published_operations().filter_map(|found| found.published_version());
        published.map(|PublishedVersion { path, version }| (path, version)).collect()
    }
}

#[cfg(test)]
mod tests;
