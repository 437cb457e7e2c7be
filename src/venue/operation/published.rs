//! Operations that come and go while the process runs: each source publishes its own, all of them at once.

use super::catalog::{RegisteredOperation, Spec};
use super::{Effect, Invocation, Need, OpError, OpOutput, ParsedCall};
use crate::domain::agent::tool::tool_name;
use crate::domain::authority::ResourcePath;
use crate::domain::authority::ability::INVOKE;
use crate::domain::decode::{self, DataError};
use crate::domain::foreign::{one_line, visible_line};
use crate::domain::ids::{JobId, Owner};
use crate::domain::lattice::Namespace;
use crate::domain::lattice::catalog::{CatalogNameError, OPERATIONS, SourceName};
use crate::domain::limits::{
    PUBLISHED_DESCRIPTION_BYTES, PUBLISHED_OPERATIONS, PUBLISHED_PER_OWNER, PUBLISHED_PER_SOURCE,
    PUBLISHED_SCHEMA_BYTES, PUBLISHED_SCHEMA_DEPTH, PUBLISHED_SOURCES, PUBLISHED_VERSION_BYTES,
};
use crate::domain::schema::{self, SchemaError};
use crate::domain::secret::Destination;
use crate::domain::time::Millis;
use crate::domain::visible::quote_foreign;
use crate::domain::wire::dialect::SchemaSubset;
use crate::domain::wire::schema::{ProjectionError, project};
use async_trait::async_trait;
use parking_lot::RwLock;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
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
    /// Version of all its operations together: it differs where the server, a schema or an effect does. A call that was
    /// decided on one version is never made with another, in whatever process.
    pub version: String,
    /// Time from which the operations are withdrawn; `None` if they stay until another publication.
    pub expires: Option<Millis>,
    /// The operations, at most [`PUBLISHED_PER_SOURCE`].
    pub operations: Vec<RuntimeOperation>,
}

/// Why a publication is refused: nothing of it is published.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublicationError {
    /// Compiled operations have the source's name as their group.
    #[error("source `{group}` is a group of compiled operations, expected another name")]
    CompiledGroup {
        /// Name of the source.
        group: SourceName,
    },
    /// The version is empty or too long.
    #[error("source `{group}`: expected a version of 1 to {PUBLISHED_VERSION_BYTES} bytes, got {bytes}")]
    Version {
        /// Name of the source.
        group: SourceName,
        /// Bytes of the version.
        bytes: usize,
    },
    /// The publication has too many operations.
    #[error("source `{group}`: expected at most {PUBLISHED_PER_SOURCE} operations, got {found}")]
    TooManyOperations {
        /// Name of the source.
        group: SourceName,
        /// Number of its operations.
        found: usize,
    },
    /// The owner has too many sources.
    #[error("source `{group}`: expected at most {PUBLISHED_SOURCES} sources of one owner")]
    TooManySources {
        /// Name of the source.
        group: SourceName,
    },
    /// The owner's sources together would have too many operations.
    #[error("source `{group}`: expected at most {PUBLISHED_PER_OWNER} operations of one owner, got {found}")]
    OwnerFull {
        /// Name of the source.
        group: SourceName,
        /// Number of operations of the owner with these.
        found: usize,
    },
    /// All sources together would have too many operations.
    #[error("source `{group}`: expected at most {PUBLISHED_OPERATIONS} operations of all sources, got {found}")]
    Full {
        /// Name of the source.
        group: SourceName,
        /// Number of operations of all sources with these.
        found: usize,
    },
    /// An operation breaks a rule.
    #[error("operation `{}` of source `{group}`: {rule}", quote_foreign(.operation))]
    Operation {
        /// Name of the source.
        group: SourceName,
        /// Name of the operation as it was given.
        operation: String,
        /// The rule that it breaks.
        rule: PublicationRule,
    },
}

/// The rule that a published operation breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublicationRule {
    /// The name can't stand in a path.
    #[error(transparent)]
    Name(#[from] CatalogNameError),
    /// Another operation of the publication, or a compiled one, gives its tool the same name.
    #[error("expected another name, the tool `{tool}` is that of another operation")]
    TakenTool {
        /// Name of the tool.
        tool: String,
    },
    /// The schema is too deep.
    #[error("input schema: {}", one_line(&.0.to_string()))]
    SchemaDepth(#[from] DataError),
    /// The schema is too large.
    #[error("input schema: expected at most {PUBLISHED_SCHEMA_BYTES} bytes, got {bytes}")]
    SchemaBytes {
        /// Bytes of the schema as JSON.
        bytes: usize,
    },
    /// The value is no schema.
    #[error("input schema: {}", one_line(&.0.to_string()))]
    Schema(#[from] SchemaError),
    /// Model providers don't take the schema.
    #[error("input schema: {}", one_line(&.0.to_string()))]
    Projection(#[from] ProjectionError),
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

/// A publication whose operations are checked and compiled.
pub(super) struct PreparedPublication {
    source: SourceName,
    owner: Option<Owner>,
    expires: Option<Millis>,
    operations: BTreeMap<Arc<str>, Arc<RegisteredOperation>>,
}

impl Publication {
    /// Checks and compiles the operations; `compiled` are all paths and aliases of compiled ones.
    pub(super) fn prepare(self, compiled: &[&str]) -> Result<PreparedPublication, PublicationError> {
        let Self { source, owner, version, expires, operations } = self;
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
        let scope = if owner.is_some() { "owner" } else { "all" };
        let version: Arc<str> = format!("{scope}:{version}").into();
        let mut by_path = BTreeMap::new();
        for operation in operations {
            let name = operation.name.clone();
            let found = register(&source, &version, &mut tools, operation);
            let found =
                found.map_err(|rule| PublicationError::Operation { group: group.clone(), operation: name, rule })?;
            by_path.insert(Arc::clone(&found.spec.path), Arc::new(found));
        }
        Ok(PreparedPublication { source, owner, expires, operations: by_path })
    }
}

/// Makes the catalogue's entry of a published operation; `tools` are the names that no other tool may have.
fn register(
    source: &SourceName,
    version: &Arc<str>,
    tools: &mut BTreeSet<String>,
    operation: RuntimeOperation,
) -> Result<RegisteredOperation, PublicationRule> {
    let RuntimeOperation { name, description, input, effect, run: runner } = operation;
    let path: Arc<str> = source.operation_path(&name)?.into();
    let tool = tool_name(&path);
    if !tools.insert(tool.clone()) {
        return Err(PublicationRule::TakenTool { tool });
    }
    decode::check_to(&input, PUBLISHED_SCHEMA_DEPTH)?;
    let bytes = input.to_string().len();
    if bytes > PUBLISHED_SCHEMA_BYTES {
        return Err(PublicationRule::SchemaBytes { bytes });
    }
    schema::compile(&input)?;
    for subset in [SchemaSubset::OpenAi, SchemaSubset::Anthropic, SchemaSubset::Gemini] {
        project(&input, subset)?;
    }
    let resource = ResourcePath::at_keys(Namespace::Venue, ["ops", source.as_str(), name.as_str()]);
    let parser = move |arguments: Value| -> Result<Box<dyn ParsedCall>, OpError> {
        Ok(Box::new(PublishedCall { resource: resource.clone(), arguments, runner: Arc::clone(&runner) }))
    };
    let spec = Spec { path, description: visible_line(&description, PUBLISHED_DESCRIPTION_BYTES), input, effect };
    let version = Some(Arc::clone(version));
    Ok(RegisteredOperation { spec, validator: None, entities: Vec::new(), version, parser: Box::new(parser) })
}

/// The operations of one source, as one publication has them.
pub(super) struct PublishedSource {
    /// Number of the publication, of which no other one of the process has the same.
    pub(super) serial: u64,
    expires: Option<Millis>,
    pub(super) operations: BTreeMap<Arc<str>, Arc<RegisteredOperation>>,
}

impl PublishedSource {
    fn is_live(&self, now: Millis) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }
}

type Sources = BTreeMap<SourceName, Arc<PublishedSource>>;

/// The published operations of a process.
#[derive(Default)]
pub(super) struct PublishedOperations(RwLock<PublishedSources>);

#[derive(Default)]
struct PublishedSources {
    /// Number of the last publication.
    serial: u64,
    /// Sources of all owners.
    shared: Sources,
    owned: HashMap<Owner, Sources>,
}

impl PublishedSources {
    fn remove_expired(&mut self, now: Millis) {
        self.shared.retain(|_, source| source.is_live(now));
        self.owned.retain(|_, sources| {
            sources.retain(|_, source| source.is_live(now));
            !sources.is_empty()
        });
    }

    fn sources(&self, owner: Option<&Owner>) -> Option<&Sources> {
        owner.map_or(Some(&self.shared), |owner| self.owned.get(owner))
    }

    fn count_operations(&self) -> usize {
        self.owned.values().chain([&self.shared]).map(count_operations).sum()
    }
}

fn count_operations(sources: &Sources) -> usize {
    sources.values().map(|source| source.operations.len()).sum()
}

impl PublishedOperations {
    /// Puts a publication in the place of the one before of its source, and forgets what has expired.
    pub(super) fn insert(&self, publication: PreparedPublication, now: Millis) -> Result<(), PublicationError> {
        let PreparedPublication { source, owner, expires, operations } = publication;
        let mut all = self.0.write();
        all.remove_expired(now);
        let sources = all.sources(owner.as_ref());
        let replaced = sources.and_then(|sources| sources.get(&source)).map(|old| old.operations.len());
        if replaced.is_none() && sources.is_some_and(|sources| sources.len() >= PUBLISHED_SOURCES) {
            return Err(PublicationError::TooManySources { group: source });
        }
        let found = sources.map_or(0, count_operations) - replaced.unwrap_or(0) + operations.len();
        if found > PUBLISHED_PER_OWNER {
            return Err(PublicationError::OwnerFull { group: source, found });
        }
        let found = all.count_operations() - replaced.unwrap_or(0) + operations.len();
        if found > PUBLISHED_OPERATIONS {
            return Err(PublicationError::Full { group: source, found });
        }
        all.serial += 1;
        let published = Arc::new(PublishedSource { serial: all.serial, expires, operations });
        let sources = match owner {
            Some(owner) => all.owned.entry(owner).or_default(),
            None => &mut all.shared,
        };
        sources.insert(source, published);
        Ok(())
    }

    /// Removes a source; returns whether it was published.
    pub(super) fn remove(&self, owner: Option<&Owner>, source: &SourceName) -> bool {
        let mut all = self.0.write();
        let Some(owner) = owner else { return all.shared.remove(source).is_some() };
        let Some(sources) = all.owned.get_mut(owner) else { return false };
        let is_removed = sources.remove(source).is_some();
        if sources.is_empty() {
            all.owned.remove(owner);
        }
        is_removed
    }

    /// Returns the sources whose operations an owner's calls may name, by name.
    pub(super) fn visible_to(&self, owner: &Owner, now: Millis) -> Vec<Arc<PublishedSource>> {
        let all = self.0.read();
        let own = all.owned.get(owner).into_iter().flatten();
        let live = all.shared.iter().chain(own).filter(|(_, source)| source.is_live(now));
        live.collect::<BTreeMap<_, _>>().into_values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Unused;

    #[async_trait]
    impl RuntimeCall for Unused {
        async fn run(&self, _arguments: Value, _call: &Invocation<'_>) -> Result<OpOutput, OpError> {
            Ok(Value::Null.into())
        }
    }

    #[test]
    fn all_sources_together_publish_only_so_many_operations() {
        let name = |n: usize| RuntimeOperation {
            name: format!("n{n}"),
            description: String::new(),
            input: serde_json::json!({"type": "object"}),
            effect: Effect::Read,
            run: Arc::new(Unused),
        };
        let publication = Publication {
            source: SourceName::new("shop").unwrap(),
            owner: None,
            version: "v1".into(),
            expires: Some(Millis(10)),
            operations: (0..PUBLISHED_PER_SOURCE).map(name).collect(),
        };
        let PreparedPublication { source, operations, .. } = publication.prepare(&[]).unwrap();
        let all = PublishedOperations::default();
        let insert = |user: usize, now: u64| {
            let owner = Some(format!("local/u{user}").parse().unwrap());
            let (source, operations) = (source.clone(), operations.clone());
            all.insert(PreparedPublication { source, owner, expires: Some(Millis(10)), operations }, Millis(now))
        };
        let fits = PUBLISHED_OPERATIONS / PUBLISHED_PER_SOURCE;
        for user in 0..fits {
            assert_eq!(insert(user, 1), Ok(()), "{user}");
        }
        let found = (fits + 1) * PUBLISHED_PER_SOURCE;
        assert_eq!(insert(fits, 1), Err(PublicationError::Full { group: source.clone(), found }));
        assert_eq!(insert(0, 1), Ok(()), "in the place of the one before");
        assert_eq!(insert(fits, 10), Ok(()), "the others have expired");
    }
}
