//! Operations that come and go while the process runs: each source publishes its own, all of them at once.
//!
//! Others write their names, texts and schemas: a publication is checked and cleaned here, before anybody sees it.

use super::catalog::{InputValidator, RegisteredOperation, Spec};
use super::publication_error::{PublicationError, PublicationRule};
use super::sources::PreparedPublication;
use super::validators::{RecentValidators, SharedValidator};
use super::{Effect, Invocation, Need, OpError, OpOutput, ParsedCall};
use crate::domain::agent::tool::tool_name;
use crate::domain::authority::ResourcePath;
use crate::domain::authority::ability::INVOKE;
use crate::domain::decode;
use crate::domain::foreign::{ForeignText, visible_line};
use crate::domain::ids::{AgentId, JobId, Owner};
use crate::domain::lattice::Namespace;
use crate::domain::lattice::catalog::{OPERATIONS, SourceName};
use crate::domain::limits::{
    PUBLISHED_DESCRIPTION_BYTES, PUBLISHED_PER_SOURCE, PUBLISHED_SCHEMA_BYTES, PUBLISHED_SCHEMA_DEPTH,
    PUBLISHED_VERSION_BYTES,
};
use crate::domain::schema;
use crate::domain::secret::Destination;
use crate::domain::time::Millis;
use crate::domain::wire::dialect::SchemaSubset;
use crate::domain::wire::schema::project;
use async_trait::async_trait;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Runs the calls of one published operation.
#[async_trait]
pub trait RuntimeCall: Send + Sync {
    /// Returns the capabilities that a call needs besides `invoke` on the operation's path.
    fn more_needs(&self, _arguments: &Value) -> Result<Vec<Need>, OpError> {
        Ok(Vec::new())
    }

    /// Returns the server that a call is sent to: secrets of the owner that may go there are masked in its result.
    fn destination(&self, _arguments: &Value) -> Option<Destination> {
        None
    }

    /// Whether a call does something with the sections of its caller's context.
    fn takes_sections(&self) -> bool {
        false
    }

    /// Runs a call with arguments that fit the schema. Its needs are permitted by then.
    async fn run(&self, arguments: Value, call: &Invocation<'_>) -> Result<OpOutput, OpError>;
}

/// An operation as its source publishes it.
#[derive(Clone)]
pub struct RuntimeOperation {
    /// Name within its source, the last segment of its path.
    pub name: String,
    /// What the operation does, for models and people: foreign text, of which one visible line is shown.
    pub description: String,
    /// JSON Schema of the input, with references into itself alone.
    pub input: Value,
    /// Effect of the operation, which decides whether it may be repeated.
    pub effect: Effect,
    /// Runs its calls.
    pub run: Arc<dyn RuntimeCall>,
}

/// All operations of one source.
#[derive(Clone)]
pub struct Publication {
    /// Source, the group of the paths `v/ops/<source>/<name>`.
    pub source: SourceName,
    /// Owner whose calls may name the operations; `None` stands for all owners. An owner's source hides one of all
    /// owners that has the same name.
    pub owner: Option<Owner>,
    /// Agent of the owner whose calls alone may name the operations; `None` stands for all agents of the owner. An agent's
    /// source hides one of its owner that has the same name.
    pub agent: Option<AgentId>,
    /// Version of all its operations together: it differs where the server, a schema or an effect does. A call that was
    /// decided on one version is never made with another, in whatever process.
    pub version: String,
    /// Time from which the operations are withdrawn; `None` if they stay until another publication.
    pub expires: Option<Millis>,
    /// The operations, at most [`PUBLISHED_PER_SOURCE`].
    pub operations: Vec<RuntimeOperation>,
}

/// An operation that one view has besides those of the catalogue.
#[derive(Clone)]
pub struct ViewOperation {
    /// Group of its path.
    pub source: SourceName,
    /// Version of the operation: it differs where anything of the operation does.
    pub version: String,
    /// Operation with its calls.
    pub operation: RuntimeOperation,
}

impl ViewOperation {
    /// Returns the key of an operation in a version.
    pub(super) fn key_of(source: &SourceName, name: &str, version: &str) -> String {
        format!("{source}/{name} {version}")
    }

    /// Checks and compiles the operation.
    pub(super) fn register(self, recent: &Arc<RecentValidators>) -> Result<RegisteredOperation, PublicationError> {
        let Self { source, version, operation } = self;
        let (name, version) = (operation.name.clone(), Arc::from(format!("view:{version}")));
        let found = register(&source, &version, recent, &mut BTreeSet::new(), operation);
        found.map_err(|rule| PublicationError::Operation { group: source, operation: name, rule })
    }
}

/// A call of a published operation.
struct PublishedCall {
    /// The operation's own path.
    resource: ResourcePath,
    arguments: Value,
    runner: Arc<dyn RuntimeCall>,
}

#[async_trait]
impl ParsedCall for PublishedCall {
    fn needs(&self) -> Result<Vec<Need>, OpError> {
        let mut needs = vec![Need::new(INVOKE, &self.resource)];
        needs.extend(self.runner.more_needs(&self.arguments)?);
        Ok(needs)
    }

    fn reads_job(&self) -> Option<JobId> {
        None
    }

    fn destination(&self) -> Option<Destination> {
        self.runner.destination(&self.arguments)
    }

    fn secrets(&mut self) -> Vec<&mut Value> {
        Vec::new()
    }

    async fn run(self: Box<Self>, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let Self { arguments, runner, .. } = *self;
        runner.run(arguments, call).await
    }
}

impl Publication {
    /// Checks and compiles the operations; `compiled` are all paths and aliases of compiled ones, and `recent` keeps
    /// validators between calls.
    pub(super) fn prepare(
        self,
        compiled: &[&str],
        recent: &Arc<RecentValidators>,
    ) -> Result<PreparedPublication<RegisteredOperation>, PublicationError> {
        let Self { source, owner, agent, version, expires, operations } = self;
        let (group, prefix) = (source.clone(), format!("{OPERATIONS}{source}/"));
        // In another case the path would look like that of a compiled operation.
        let is_taken = |path: &&str| path.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(&prefix));
        if compiled.iter().any(is_taken) {
            return Err(PublicationError::CompiledGroup { group });
        }
        let (bytes, found) = (version.len(), operations.len());
        if bytes == 0 || bytes > PUBLISHED_VERSION_BYTES {
            return Err(PublicationError::Version { group, bytes });
        }
        if found > PUBLISHED_PER_SOURCE {
            return Err(PublicationError::TooManyOperations { group, found });
        }
        let mut tools: BTreeSet<String> = compiled.iter().map(|path| tool_name(path)).collect();
        // An owner's source may come and go in the place of one of all owners, and both may have versions of one name.
        let scope = match (&owner, &agent) {
            (Some(_), Some(_)) => "agent",
            (Some(_), None) => "owner",
            (None, _) => "all",
        };
        let version: Arc<str> = format!("{scope}:{version}").into();
        let (mut by_path, mut bytes) = (BTreeMap::new(), 0);
        for operation in operations {
            let name = operation.name.clone();
            let found = register(&source, &version, recent, &mut tools, operation);
            let found =
                found.map_err(|rule| PublicationError::Operation { group: group.clone(), operation: name, rule })?;
            bytes += found.spec.input.to_string().len() + found.spec.description.len();
            by_path.insert(Arc::clone(&found.spec.path), Arc::new(found));
        }
        Ok(PreparedPublication { source, owner, agent, version, expires, operations: by_path, bytes })
    }
}

/// Makes the catalogue's entry of a published operation; `tools` are the names that no other tool may have.
fn register(
    source: &SourceName,
    version: &Arc<str>,
    recent: &Arc<RecentValidators>,
    tools: &mut BTreeSet<String>,
    operation: RuntimeOperation,
) -> Result<RegisteredOperation, PublicationRule> {
    let RuntimeOperation { name, description, input, effect, run: runner } = operation;
    let path: Arc<str> = source.operation_path(&name)?.into();
    let tool = tool_name(&path);
    if !tools.insert(tool.clone()) {
        return Err(PublicationRule::TakenTool { tool });
    }
    let input = clean_schema(input)?;
    let segments = std::iter::once("ops").chain(source.segments()).chain([name.as_str()]);
    let resource = ResourcePath::at_keys(Namespace::Venue, segments);
    let takes_sections = runner.takes_sections();
    let parser = move |arguments: Value| -> Result<Box<dyn ParsedCall>, OpError> {
        Ok(Box::new(PublishedCall { resource: resource.clone(), arguments, runner: Arc::clone(&runner) }))
    };
    let validator = InputValidator::Published(SharedValidator::new(&input, recent));
    let spec = Spec { path, description: clean_text(&description), input, effect, takes_sections };
    let version = Some(Arc::clone(version));
    Ok(RegisteredOperation { spec, validator, entities: Vec::new(), version, parser: Box::new(parser) })
}

/// Checks an operation as `Publication::prepare` does, without the others of its source: a source may leave out those
/// that can't be published.
pub fn check_runtime_operation(source: &SourceName, operation: &RuntimeOperation) -> Result<(), PublicationRule> {
    source.operation_path(&operation.name)?;
    clean_schema(operation.input.clone()).map(drop)
}

/// Checks a schema, and returns it with clean texts.
fn clean_schema(input: Value) -> Result<Value, PublicationRule> {
    decode::check_to(&input, PUBLISHED_SCHEMA_DEPTH)?;
    let bytes = input.to_string().len();
    if bytes > PUBLISHED_SCHEMA_BYTES {
        return Err(PublicationRule::SchemaBytes { bytes });
    }
    let mut input = input;
    schema::edit_annotations(&mut input, &clean_text);
    schema::compile(&input)?;
    for subset in [SchemaSubset::OpenAi, SchemaSubset::Anthropic, SchemaSubset::Gemini] {
        project(&input, subset)?;
    }
    Ok(input)
}

/// Makes a text of a server one visible line that can't be taken for a line of the venue.
fn clean_text(text: &str) -> String {
    ForeignText::text(visible_line(text, PUBLISHED_DESCRIPTION_BYTES)).into_owned()
}
