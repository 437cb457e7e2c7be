//! Seam 5, `Provider`: what agents can do with resources, by kind.
//!
//! ```text
//! declaration ─▶ Provider by kind ─▶ tools within the mode ─▶ call ─▶ buffered until the commit
//!                      └─▶ context: a section of the prompt
//! ```
//!
//! A declaration grants nothing. Every call and every section is checked against the current grants, and what a call
//! has used is checked again when its turn commits.

mod error;
pub mod files;
pub mod memory;
pub mod purge;
pub mod remote;
pub mod scratchpad;
mod sections;

use crate::domain::agent::AgentConfig;
use crate::domain::authority::envelope::{AccessMode, Envelope};
use crate::domain::call::{SentMarks, ToolTarget};
use crate::domain::chat::ToolSpec;
use crate::domain::context::item::ItemContent;
use crate::domain::ids::Owner;
use crate::domain::resource::memory::MemoryAuthor;
use crate::domain::resource::{Ability, HeldNamespaces, NamedResource, NamespaceUse, mode, prefix};
use crate::domain::time::Millis;
use crate::domain::tools::ResourceTool;
use crate::store::StoreError;
use crate::venue::failure::OpError;
use crate::venue::workspace::Workspace;
use async_trait::async_trait;
pub use error::{DeclaredResourceError, ProviderSettingsError};
pub use sections::context_items;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::sync::LazyLock;

/// A tool of a provider.
pub struct Tool {
    /// Name of the tool after the resource's name; without `_`, so that tools of two resources never have the same
    /// name.
    pub name: Cow<'static, str>,
    /// Description of the tool for the model.
    pub description: Cow<'static, str>,
    /// JSON Schema of the input.
    pub input: Value,
    /// Whether the tool changes something: in mode `read` it isn't offered, and is refused.
    pub writes: bool,
}

/// Documents of the tree as the turn sees them, and the grants, for a provider.
#[derive(Clone, Copy)]
pub struct ResourceAccess<'a> {
    /// Tree with the owner's documents.
    pub workspace: &'a Workspace,
    /// Namespaces that are granted now.
    pub held: &'a HeldNamespaces,
    /// Settings of the resource.
    pub settings: &'a Map<String, Value>,
    /// Name of the resource.
    pub resource: &'a str,
    /// Prefix of the names of its tools.
    pub prefix: &'a str,
    /// Key of the venue, under which ids disclose nothing about contents.
    pub key: &'a [u8],
    /// Time of the call on the venue's clock.
    pub now: Millis,
}

/// A call of a provider's tool.
pub struct ResourceCall<'a> {
    /// Documents and grants of the call.
    pub access: ResourceAccess<'a>,
    /// Name of the tool as the model knows it.
    pub name: &'a str,
    /// Index of the call in its reply.
    pub index: u32,
    /// Author of what the call writes.
    pub source: MemoryAuthor,
    /// Idempotency key: a function of the turn and the call, the same when the call is repeated.
    pub key: String,
    /// Marks with which a write leaves the venue.
    pub marks: SentMarks,
}

/// Documents that a purge deletes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PurgeArea {
    /// Prefix of the keys, or a whole key.
    pub prefix: String,
    /// Whether each document counts as one thing.
    pub counts: bool,
}

/// Provider of one kind of resource.
#[async_trait]
pub trait ResourceProvider: Send + Sync {
    /// Returns the name of the kind in configurations, which is the first segment of its documents.
    fn kind(&self) -> &str;

    /// Returns a description of the kind for models, if its name doesn't say it.
    fn about(&self) -> Option<&str> {
        None
    }

    /// Whether a call writes when it is made, so that no commit takes it back.
    fn writes_at_once(&self) -> bool {
        false
    }

    /// Returns the mode of a declaration that names none; `None` stands for `read`.
    fn default_mode(&self) -> Option<AccessMode> {
        None
    }

    /// Returns the tools, including those that write.
    fn tools(&self) -> Vec<Tool>;

    /// Checks the settings of a declaration.
    fn check(&self, settings: &Map<String, Value>) -> Result<(), ProviderSettingsError>;

    /// Runs a tool with valid arguments. Writes go through the workspace and are durable with the turn's commit. The
    /// provider notes each namespace that the answer depends on, by [`ResourceCall::note_use`].
    async fn call(&self, call: &ResourceCall<'_>, tool: &str, arguments: &Value) -> Result<Value, OpError>;

    /// Returns the content of the resource's section in the context; `None` if it has none.
    async fn context(&self, _access: &ResourceAccess<'_>) -> Result<Option<ItemContent>, StoreError> {
        Ok(None)
    }

    /// Returns the documents of a namespace, with `recursive` also of those below it; none if they are stored
    /// elsewhere.
    fn areas(&self, _namespace: &str, _recursive: bool) -> Vec<PurgeArea> {
        Vec::new()
    }

    /// Deletes what another server stores of a namespace, and returns how much; `None` if it can't be asked to.
    async fn purge(&self, _owner: &Owner, _namespace: &str, _recursive: bool) -> Result<Option<usize>, OpError> {
        Ok(Some(0))
    }
}

impl ResourceCall<'_> {
    /// Notes that the call depends on the use of a namespace.
    pub async fn note_use(&self, ability: Ability, namespace: &str) {
        let used = NamespaceUse { ability, namespace: namespace.to_owned() };
        self.access.workspace.note_use(self.index, used).await;
    }

    /// Notes that the call reads everything that is granted. Refuses it if nothing is.
    pub async fn note_reads(&self) -> Result<(), OpError> {
        let held = self.access.held;
        held.check_any(self.name, Ability::Read)?;
        for namespace in held.with_ability(Ability::Read) {
            self.note_use(Ability::Read, namespace).await;
        }
        Ok(())
    }
}

/// A provider with what is computed once from it.
pub struct RegisteredProvider {
    /// Provider of one kind.
    pub provider: Box<dyn ResourceProvider>,
    /// Tools, each with its compiled schema.
    pub tools: Vec<(Tool, jsonschema::Validator)>,
}

/// The built-in providers.
static BUILT_IN: LazyLock<Vec<RegisteredProvider>> = LazyLock::new(|| {
    let own: [Box<dyn ResourceProvider>; 2] = [Box::new(memory::MemoryProvider), Box::new(files::FilesProvider)];
    own.into_iter().map(RegisteredProvider::new).collect()
});

impl RegisteredProvider {
    fn new(provider: Box<dyn ResourceProvider>) -> Self {
        let compiled = |tool: Tool| {
            let validator = jsonschema::validator_for(&tool.input).expect("the schemas of providers are valid");
            (tool, validator)
        };
        Self { tools: provider.tools().into_iter().map(compiled).collect(), provider }
    }
}

/// The providers of a venue by kind: the built-in ones, and those that its configuration adds.
#[derive(Default)]
pub struct ResourceProviders(Vec<RegisteredProvider>);

impl ResourceProviders {
    /// Makes the providers of a venue from those that its configuration adds.
    pub fn new(added: impl IntoIterator<Item = Box<dyn ResourceProvider>>) -> Self {
        Self(added.into_iter().map(RegisteredProvider::new).collect())
    }

    /// Returns all providers, the built-in ones first.
    pub fn list_providers(&self) -> impl Iterator<Item = &RegisteredProvider> {
        BUILT_IN.iter().chain(&self.0)
    }

    /// Finds the provider of a kind.
    pub fn find(&self, kind: &str) -> Option<&RegisteredProvider> {
        self.list_providers().find(|registered| registered.provider.kind() == kind)
    }

    /// Makes the error of a kind that nothing provides.
    pub(crate) fn no_provider(&self, declared: NamedResource<'_>) -> DeclaredResourceError {
        DeclaredResourceError::NoProvider {
            name: declared.name.to_owned(),
            kind: declared.kind.to_owned(),
            known: self.list_providers().map(|registered| registered.provider.kind().to_owned()).collect(),
        }
    }

    /// Checks an agent's resources: each kind must have a provider that accepts the settings.
    pub fn check(&self, config: &AgentConfig) -> Result<(), DeclaredResourceError> {
        for declared in config.resources.declarations() {
            let found = self.find(declared.kind).ok_or_else(|| self.no_provider(declared))?;
            check_settings(declared, found)?;
        }
        Ok(())
    }

    /// Returns the mode of a declared resource in a turn.
    pub fn mode(&self, declared: NamedResource<'_>, envelope: &Envelope, held: &HeldNamespaces) -> AccessMode {
        let default = self.find(declared.kind).and_then(|found| found.provider.default_mode());
        mode(declared, default, envelope, held)
    }

    /// Narrows the envelope that a turn passes on: no descendant may do more with a kind of resource than this agent,
    /// whatever the grants of this turn.
    #[must_use]
    pub fn clamp_envelope(&self, envelope: Envelope, config: &AgentConfig) -> Envelope {
        let none = HeldNamespaces::default();
        let modes =
            config.resources.declarations().map(|declared| (declared.kind, self.mode(declared, &envelope, &none)));
        let modes: Vec<_> = modes.collect();
        envelope.clamp_modes(modes)
    }

    /// Returns the tools of an agent's resources; those that write only in mode `read-write`.
    pub fn offered_tools(&self, config: &AgentConfig, envelope: &Envelope, held: &HeldNamespaces) -> Vec<ResourceTool> {
        self.tools(config, |declared| self.mode(declared, envelope, held))
    }

    /// Returns all tools that an agent's resources have, whatever a request may do with them.
    pub fn declared_tools(&self, config: &AgentConfig) -> Vec<ResourceTool> {
        self.tools(config, |_| AccessMode::ReadWrite)
    }

    fn tools(&self, config: &AgentConfig, mode: impl Fn(NamedResource<'_>) -> AccessMode) -> Vec<ResourceTool> {
        let mut offered = Vec::new();
        for declared in config.resources.declarations() {
            let Some(found) = self.find(declared.kind) else { continue };
            let mode = mode(declared);
            let what = match found.provider.about() {
                None => declared.name.to_owned(),
                Some(about) => format!("{}, {about}", declared.name),
            };
            for (tool, _) in found.tools.iter().filter(|(tool, _)| mode == AccessMode::ReadWrite || !tool.writes) {
                let target = ToolTarget::Resource { resource: declared.name.to_owned(), tool: tool.name.to_string() };
                let name = format!("{}{}", prefix(declared.name), tool.name);
                let description = format!("Resource: {what}. {}", tool.description);
                offered.push(ResourceTool { target, spec: ToolSpec { name, description, schema: tool.input.clone() } });
            }
        }
        offered
    }
}

fn check_settings(declared: NamedResource<'_>, found: &RegisteredProvider) -> Result<(), DeclaredResourceError> {
    let checked = found.provider.check(&declared.resource.settings);
    checked.map_err(|error| DeclaredResourceError::Settings { name: declared.name.to_owned(), error: Box::new(error) })
}

/// Checks resources like [`ResourceProviders::check`] where the venue isn't known: only the built-in kinds.
pub fn check_own(config: &AgentConfig) -> Result<(), DeclaredResourceError> {
    let own = ResourceProviders::default();
    let mut known = config.resources.declarations().filter_map(|declared| Some((declared, own.find(declared.kind)?)));
    known.try_for_each(|(declared, found)| check_settings(declared, found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tools_have_short_names_and_schemas_that_say_what_they_take() {
        for registered in ResourceProviders::default().list_providers() {
            let kind = registered.provider.kind();
            assert!(!registered.tools.is_empty(), "{kind}");
            for (tool, _) in &registered.tools {
                assert!(tool.name.bytes().all(|b| b.is_ascii_lowercase()), "{kind} {}", tool.name);
                assert_eq!(tool.input["additionalProperties"], json!(false), "{kind} {}", tool.name);
            }
        }
    }

    #[test]
    fn unknown_resource_kinds_and_settings_are_refused() {
        let check = |resources: Value| {
            let config = json!({"model": {"provider": "scripted", "name": "echo"}, "resources": resources});
            ResourceProviders::default().check(&AgentConfig::parse(&config).unwrap())
        };
        assert_eq!(check(json!({"memory": {}, "notes": {"kind": "files"}})), Ok(()));
        for (resources, expected) in [
            (json!({"memori": {}}), "`resources.memori`: nothing provides the kind `memori`, did you mean `memory`"),
            (json!({"crm": {}}), "nothing provides the kind `crm`, there are `memory` and `files`"),
            (json!({"notes": {"kind": "memory", "autoscan": 1}}), "`resources.notes`: unknown field `autoscan`"),
            (json!({"files": {"root": "x"}}), "`resources.files`: unknown field `root`"),
        ] {
            let error = check(resources).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn tools_that_write_are_offered_in_one_mode_only() {
        let config = json!({"model": {"provider": "scripted", "name": "echo"}, "resources": {
            "memory": {"mode": "read-write"}, "my-files": {"kind": "files"}
        }});
        let config = AgentConfig::parse(&config).unwrap();
        let own = ResourceProviders::default();
        let names = |envelope: &Envelope| {
            let tools = own.offered_tools(&config, envelope, &HeldNamespaces::default());
            tools.into_iter().map(|tool| tool.spec.name).collect::<Vec<_>>().join(" ")
        };
        let all = "memory_read memory_search memory_write memory_correct memory_get memory_put memory_forget my_files_list my_files_read";
        assert_eq!(names(&Envelope::default()), all);
        let bound = Envelope::default().clamp_modes([("memory", AccessMode::Read)]);
        assert_eq!(names(&bound), "memory_read memory_search memory_get my_files_list my_files_read");
        let handed = own.clamp_envelope(Envelope::default(), &config);
        assert_eq!(handed.mode("memory", AccessMode::ReadWrite), AccessMode::ReadWrite);
        assert_eq!(
            handed.mode("files", AccessMode::ReadWrite),
            AccessMode::Read,
            "the default of what is declared counts too"
        );
        assert_eq!(own.clamp_envelope(bound, &config).mode("memory", AccessMode::ReadWrite), AccessMode::Read);
    }
}
