//! Seam 5, `Provider`: what agents can do with resources, by kind.
//!
//! ```text
//! declaration ─▶ Provider by kind ─▶ tools within the mode ─▶ call ─▶ buffered until the commit
//!                      └─▶ context: a section of the prompt
//! ```
//!
//! A declaration grants nothing. Every call and every section is given the grants of the moment, and
//! what a call has used is asked again when its turn commits.

pub mod files;
pub mod memory;
pub mod purge;
pub mod remote;
pub mod scratchpad;

use crate::domain::agent::AgentConfig;
use crate::domain::authority::ResourcePath;
use crate::domain::authority::envelope::{Envelope, Mode};
use crate::domain::call::ToolTarget;
use crate::domain::chat::ToolSpec;
use crate::domain::context::item::{Absence, Content, Item, Section, Tags};
use crate::domain::ids::Owner;
use crate::domain::nearest::nearest;
use crate::domain::origin::Origin;
use crate::domain::resource::memory::MemoryAuthor;
use crate::domain::resource::{Ability, Declared, HeldNamespaces, Use, mode, prefix};
use crate::domain::time::Millis;
use crate::domain::tools::ResourceTool;
use crate::store::StoreError;
use crate::venue::Venue;
use crate::venue::failure::OpError;
use crate::venue::workspace::Workspace;
use async_trait::async_trait;
use futures::future::join_all;
use serde_json::{Map, Value};
use std::sync::LazyLock;

/// A tool of a provider.
pub struct Tool {
    /// Its name behind the resource's; without `_`, so that no two resources' tools have one name.
    pub name: &'static str,
    /// What it does, for the model.
    pub description: &'static str,
    /// JSON Schema of its input.
    pub input: Value,
    /// It changes something: not offered, and refused, in mode `read`.
    pub writes: bool,
}

/// What a provider works with: the tree's documents as the turn sees them, and what was granted.
#[derive(Clone, Copy)]
pub struct Access<'a> {
    /// The owner's documents.
    pub workspace: &'a Workspace,
    /// The grants of this moment.
    pub held: &'a HeldNamespaces,
    /// The resource's settings.
    pub settings: &'a Map<String, Value>,
    /// The resource's name.
    pub resource: &'a str,
    /// Names of its tools begin so.
    pub prefix: &'a str,
    /// The venue's key, under which ids say nothing about contents.
    pub key: &'a [u8],
    /// Now.
    pub now: Millis,
}

/// A call of a provider's tool.
pub struct ResourceCall<'a> {
    /// What it works with.
    pub access: Access<'a>,
    /// Name of the tool as the model knows it.
    pub name: &'a str,
    /// Place of the call in its reply.
    pub index: u32,
    /// Who calls.
    pub source: MemoryAuthor,
    /// A function of the turn and the call: the same when it is made again.
    pub key: String,
}

/// Documents that a purge deletes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Area {
    /// Their keys begin so, or are so.
    pub prefix: String,
    /// Each of them counts as one thing that was kept.
    pub counts: bool,
}

/// One kind of resource.
#[async_trait]
pub trait ResourceProvider: Send + Sync {
    /// Its name in configurations, and the first segment of its documents.
    fn kind(&self) -> &str;

    /// What it is, for models, where its name doesn't say it.
    fn about(&self) -> Option<&str> {
        None
    }

    /// What a call writes is written when it is made, and no commit takes it back.
    fn writes_at_once(&self) -> bool {
        false
    }

    /// The mode of a declaration that names none; `read` when this says nothing either.
    fn default_mode(&self) -> Option<Mode> {
        None
    }

    /// Its tools, those that write included.
    fn tools(&self) -> Vec<Tool>;

    /// What is wrong with the settings of a declaration.
    fn check(&self, settings: &Map<String, Value>) -> Result<(), String>;

    /// Runs a tool with valid arguments. Writes go through the workspace: they are durable with the
    /// turn's commit. Each namespace that the answer depends on is noted by [`ResourceCall::uses`].
    async fn call(&self, call: &ResourceCall<'_>, tool: &str, arguments: &Value) -> Result<Value, OpError>;

    /// What stands in the context; `None` for nothing.
    async fn context(&self, _access: &Access<'_>) -> Result<Option<Content>, StoreError> {
        Ok(None)
    }

    /// The documents of a namespace, with `recursive` of all below it too; none of what isn't kept here.
    fn areas(&self, _namespace: &str, _recursive: bool) -> Vec<Area> {
        Vec::new()
    }

    /// Deletes what is kept elsewhere of a namespace, and says how much; `None` when that can't be asked.
    async fn purge(&self, _owner: &Owner, _namespace: &str, _recursive: bool) -> Result<Option<usize>, OpError> {
        Ok(Some(0))
    }
}

impl ResourceCall<'_> {
    /// The call depends on the use of a namespace.
    pub async fn uses(&self, ability: Ability, namespace: &str) {
        let used = Use { ability, namespace: namespace.to_owned() };
        self.access.workspace.uses(self.index, used).await;
    }

    /// A read that depends on everything that was granted. Refused when nothing was.
    pub async fn reads(&self) -> Result<(), OpError> {
        let held = self.access.held;
        held.any(self.name, Ability::Read).map_err(OpError::Denied)?;
        for namespace in held.on(Ability::Read) {
            self.uses(Ability::Read, namespace).await;
        }
        Ok(())
    }
}

/// A provider with what is computed once from it.
pub struct RegisteredProvider {
    /// The provider.
    pub provider: Box<dyn ResourceProvider>,
    /// Its tools, each with its compiled schema.
    pub tools: Vec<(Tool, jsonschema::Validator)>,
}

/// The providers that this program brings along.
static OWN: LazyLock<Vec<RegisteredProvider>> = LazyLock::new(|| {
    let own: [Box<dyn ResourceProvider>; 2] = [Box::new(memory::Memory), Box::new(files::Files)];
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

/// The providers of a venue by kind: its own, and those that its configuration adds.
#[derive(Default)]
pub struct Providers(Vec<RegisteredProvider>);

impl Providers {
    /// Those of this program with these beside them.
    pub fn with(added: impl IntoIterator<Item = Box<dyn ResourceProvider>>) -> Self {
        Self(added.into_iter().map(RegisteredProvider::new).collect())
    }

    /// All of them, its own first.
    pub fn all(&self) -> impl Iterator<Item = &RegisteredProvider> {
        OWN.iter().chain(&self.0)
    }

    /// The provider of a kind.
    pub fn of(&self, kind: &str) -> Option<&RegisteredProvider> {
        self.all().find(|registered| registered.provider.kind() == kind)
    }

    fn none(&self, declared: Declared<'_>) -> String {
        let kinds: Vec<&str> = self.all().map(|registered| registered.provider.kind()).collect();
        let named: Vec<_> = kinds.iter().map(|kind| format!("`{kind}`")).collect();
        let hint = nearest(declared.kind, &kinds).map_or_else(
            || format!(", there are {}; a resource of another name says which by `kind`", listed(&named)),
            |kind| format!(", did you mean `{kind}`"),
        );
        format!("`resources.{}`: nothing provides the kind `{}`{hint}", declared.name, declared.kind)
    }

    /// What is wrong with an agent's resources: a kind that nothing provides, settings that it doesn't know.
    pub fn check(&self, config: &AgentConfig) -> Result<(), String> {
        for declared in config.resources.declared() {
            let found = self.of(declared.kind).ok_or_else(|| self.none(declared))?;
            checked(declared, found)?;
        }
        Ok(())
    }

    /// What may be done with a declared resource in a turn.
    pub fn mode(&self, declared: Declared<'_>, envelope: &Envelope, held: &HeldNamespaces) -> Mode {
        let default = self.of(declared.kind).and_then(|found| found.provider.default_mode());
        mode(declared, default, envelope, held)
    }

    /// What a turn hands on: no descendant may do more with a kind of resource than this agent, whatever
    /// the grants of this turn.
    #[must_use]
    pub fn clamped(&self, envelope: Envelope, config: &AgentConfig) -> Envelope {
        let none = HeldNamespaces::default();
        let modes = config.resources.declared().map(|declared| (declared.kind, self.mode(declared, &envelope, &none)));
        let modes: Vec<_> = modes.collect();
        envelope.clamped(modes)
    }

    /// The tools of an agent's resources, those that write only where the mode is `read-write`.
    pub fn offered(&self, config: &AgentConfig, envelope: &Envelope, held: &HeldNamespaces) -> Vec<ResourceTool> {
        self.tools(config, |declared| self.mode(declared, envelope, held))
    }

    /// All tools that an agent's resources have, whatever a request may do with them.
    pub fn declared(&self, config: &AgentConfig) -> Vec<ResourceTool> {
        self.tools(config, |_| Mode::ReadWrite)
    }

    fn tools(&self, config: &AgentConfig, mode: impl Fn(Declared<'_>) -> Mode) -> Vec<ResourceTool> {
        let mut offered = Vec::new();
        for declared in config.resources.declared() {
            let Some(found) = self.of(declared.kind) else { continue };
            let mode = mode(declared);
            let what = match found.provider.about() {
                None => declared.name.to_owned(),
                Some(about) => format!("{}, {about}", declared.name),
            };
            for (tool, _) in found.tools.iter().filter(|(tool, _)| mode == Mode::ReadWrite || !tool.writes) {
                let target = ToolTarget::Resource { resource: declared.name.to_owned(), tool: tool.name.to_owned() };
                let name = format!("{}{}", prefix(declared.name), tool.name);
                let description = format!("Resource: {what}. {}", tool.description);
                offered.push(ResourceTool { target, spec: ToolSpec { name, description, schema: tool.input.clone() } });
            }
        }
        offered
    }
}

fn checked(declared: Declared<'_>, found: &RegisteredProvider) -> Result<(), String> {
    let checked = found.provider.check(&declared.resource.settings);
    checked.map_err(|error| format!("`resources.{}`: {error}", declared.name))
}

/// `a`, `b` and `c`.
fn listed(named: &[String]) -> String {
    match named.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => named.join(""),
    }
}

/// [`Providers::check`] where the venue isn't known: of the kinds that every venue has.
pub fn check_own(config: &AgentConfig) -> Result<(), String> {
    let own = Providers::default();
    let mut known = config.resources.declared().filter_map(|declared| Some((declared, own.of(declared.kind)?)));
    known.try_for_each(|(declared, found)| checked(declared, found))
}

/// The resources' sections of a prompt, one item each; what can't be had says why.
pub async fn items(
    venue: &Venue,
    config: &AgentConfig,
    held: &HeldNamespaces,
    workspace: &Workspace,
) -> Result<Vec<Item>, StoreError> {
    // Some of them ask others: all at once, so that their times don't add up.
    let contents = config.resources.declared().map(|declared| async move {
        let content = content(venue, declared, held, workspace).await?;
        Ok(content.map(|content| item(declared.name, held, content)))
    });
    let items: Result<Vec<_>, StoreError> = join_all(contents).await.into_iter().collect();
    Ok(items?.into_iter().flatten().collect())
}

async fn content(
    venue: &Venue,
    declared: Declared<'_>,
    held: &HeldNamespaces,
    workspace: &Workspace,
) -> Result<Option<Content>, StoreError> {
    let providers = &venue.catalog.resources;
    let Some(found) = providers.of(declared.kind) else {
        return Ok(Some(Content::Absent(Absence::Failed, providers.none(declared))));
    };
    if held.on(Ability::Read).is_empty() {
        let reason = "no grant of this request names a resource namespace that can be read";
        return Ok(Some(Content::Absent(Absence::Denied, reason.into())));
    }
    let prefix = prefix(declared.name);
    let (settings, resource) = (&declared.resource.settings, declared.name);
    let access = Access { workspace, held, settings, resource, prefix: &prefix, key: &venue.key, now: venue.now() };
    found.provider.context(&access).await
}

fn item(name: &str, held: &HeldNamespaces, content: Content) -> Item {
    let (source, allowed) = held.names();
    // Who is handed it must be granted all that it was read from.
    let needs = held
        .on(Ability::Read)
        .iter()
        .map(|namespace| ("read".to_owned(), ResourcePath::namespace(namespace)))
        .collect();
    let has = |text: String| Some(text).filter(|text| !text.is_empty());
    Item {
        section: Section::Resource,
        key: format!("resource/{name}"),
        label: Some(name.to_owned()),
        // Never without one: what is fetched is data, and its placeholders are not filled in.
        source: has(source).or_else(|| Some("r".into())),
        allowed: has(allowed),
        asked: None,
        priority: Section::Resource.priority(),
        required: false,
        unresolved: Vec::new(),
        tags: Tags { needs, ..Tags::default() },
        origin: Origin::default(),
        content,
        attachments: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tools_have_short_names_and_schemas_that_say_what_they_take() {
        for registered in Providers::default().all() {
            let kind = registered.provider.kind();
            assert!(!registered.tools.is_empty(), "{kind}");
            for (tool, _) in &registered.tools {
                assert!(tool.name.bytes().all(|b| b.is_ascii_lowercase()), "{kind} {}", tool.name);
                assert_eq!(tool.input["additionalProperties"], json!(false), "{kind} {}", tool.name);
            }
        }
    }

    #[test]
    fn kinds_that_nothing_provides_and_settings_that_mean_nothing_are_refused() {
        let check = |resources: Value| {
            let config = json!({"model": {"provider": "scripted", "name": "echo"}, "resources": resources});
            Providers::default().check(&AgentConfig::parse(&config).unwrap())
        };
        assert_eq!(check(json!({"memory": {}, "notes": {"kind": "files"}})), Ok(()));
        for (resources, expected) in [
            (json!({"memori": {}}), "`resources.memori`: nothing provides the kind `memori`, did you mean `memory`"),
            (json!({"crm": {}}), "nothing provides the kind `crm`, there are `memory` and `files`"),
            (json!({"notes": {"kind": "memory", "autoscan": 1}}), "`resources.notes`: unknown field `autoscan`"),
            (json!({"files": {"root": "x"}}), "`resources.files`: unknown field `root`"),
        ] {
            let error = check(resources).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn tools_that_write_are_offered_in_one_mode_only() {
        let config = json!({"model": {"provider": "scripted", "name": "echo"}, "resources": {
            "memory": {"mode": "read-write"}, "my-files": {"kind": "files"}
        }});
        let config = AgentConfig::parse(&config).unwrap();
        let own = Providers::default();
        let names = |envelope: &Envelope| {
            let tools = own.offered(&config, envelope, &HeldNamespaces::default());
            tools.into_iter().map(|tool| tool.spec.name).collect::<Vec<_>>().join(" ")
        };
        let all = "memory_read memory_search memory_write memory_correct memory_get memory_put memory_forget my_files_list my_files_read";
        assert_eq!(names(&Envelope::default()), all);
        let bound = Envelope::default().clamped([("memory", Mode::Read)]);
        assert_eq!(names(&bound), "memory_read memory_search memory_get my_files_list my_files_read");
        let handed = own.clamped(Envelope::default(), &config);
        assert_eq!(handed.mode("memory", Mode::ReadWrite), Mode::ReadWrite);
        assert_eq!(handed.mode("files", Mode::ReadWrite), Mode::Read, "the default of what is declared counts too");
        assert_eq!(own.clamped(bound, &config).mode("memory", Mode::ReadWrite), Mode::Read);
    }
}
