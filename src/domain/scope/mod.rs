//! Scopes: the sections of a caller's context that go with a call, and no others.
//!
//! ```text
//! inputs of the prompt ─▶ Sections ─▶ (reply: `_scopes`, `_instance`) ─▶ Scoped, at most 64 KiB
//!                                                                          │
//!                        operation: a map beside the arguments ◀───────────┤
//!                        delegate:  sections of a child job's context ◀────┘
//! ```
//!
//! | name | what it is |
//! |---|---|
//! | `input` | the task's input, and entries labelled `input` |
//! | `inbox`, `pending` | messages; results of child jobs and those that still run |
//! | `transcript` | the conversation as the prompt shows it |
//! | `context/<label>` | an entry of the configuration or of the agent's state |
//! | `loads/<path>`, `resource/<name>` | a loaded path; a resource |
//! | `state` | entries and loads that the agent keeps, and entries labelled `state` |
//! | `session` | loads that the session keeps, and entries labelled `session` |
//! | `goal` | the stack of goals |

pub(crate) mod empty;
#[cfg(test)]
mod tests;

use crate::authority::{Authority, DenialError, ResourcePath};
use crate::consent::Consent;
use crate::decode;
use crate::ids::{AgentId, sha256_hex};
use crate::limits::SESSION_CHILDREN;
use crate::origin::SourceRead;
use crate::visible;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use empty::empty_hand_off_note;

/// Argument by which a model asks for sections.
pub const SCOPES: &str = "_scopes";
/// Argument by which a model names one of several instances.
pub const INSTANCE: &str = "_instance";

/// Names of sections that stand alone.
pub(crate) const NAMES: [&str; 7] = ["input", "state", "session", "pending", "inbox", "transcript", "goal"];
/// Prefixes of names, followed by a label, a path or a name.
pub(crate) const GROUPS: [&str; 3] = ["context/", "loads/", "resource/"];
/// Number of sections of one tool: each is part of its schema.
const NAMES_MAX: usize = 100;
/// Number of instances of one turn: more than a model can tell apart.
pub(crate) const INSTANCES: usize = 100;
/// Bytes of an instance's name at most.
const INSTANCE_BYTES: usize = 64;

/// Sections of the caller's context that a tool's calls get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, try_from = "Value")]
pub enum Scopes {
    /// These sections with every call: the model neither sees nor changes them.
    Const {
        /// Names of the sections.
        #[serde(rename = "const")]
        names: Vec<String>,
    },
    /// Those of these sections that the model asks for.
    Enum {
        /// Names of the sections.
        #[serde(rename = "enum")]
        names: Vec<String>,
        /// Whether each call that gets sections needs a person's approval.
        #[serde(skip_serializing_if = "Consent::is_none")]
        approval: Consent,
    },
}

impl TryFrom<Value> for Scopes {
    type Error = ScopesError;

    fn try_from(value: Value) -> Result<Self, ScopesError> {
        let Value::Object(map) = &value else { return Err(ScopesError::NotAMap) };
        let known = ["const", "enum", "approval", "type", "items"];
        if let Some(key) = map.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(ScopesError::UnknownKey(key.clone()));
        }
        let approval = map.get("approval").map_or(Ok(Consent::None), |given| {
            decode::into_type(given.clone()).map_err(|_| ScopesError::Approval(given.clone()))
        })?;
        // Covia writes it as the JSON Schema of the argument.
        let choice = map.get("enum").or_else(|| map.get("items").and_then(|items| items.get("enum")));
        match (map.get("const"), choice) {
            (Some(list), None) if approval.is_none() => Ok(Self::Const { names: parse_names("const", list)? }),
            (Some(_), None) => Err(ScopesError::ApprovalOfConst),
            (None, Some(list)) => match parse_names("enum", list)? {
                names if names.is_empty() => Err(ScopesError::NoSections),
                names => Ok(Self::Enum { names, approval }),
            },
            (Some(_), Some(_)) | (None, None) => Err(ScopesError::NotOneList),
        }
    }
}

/// Why the sections of a tool's calls are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScopesError {
    /// The value is no map.
    #[error("`scopes`: expected `{{const: [names]}}` or `{{enum: [names]}}`")]
    NotAMap,
    /// The map has an unknown key; holds the key.
    #[error("`scopes`: unknown key `{}`, expected `const`, or `enum` and `approval`", visible::quote_foreign(.0))]
    UnknownKey(String),
    /// The map has both lists, or none.
    #[error("`scopes`: expected one of `const` and `enum`")]
    NotOneList,
    /// `approval` has another value; holds the value.
    #[error("`scopes.approval`: expected \"none\" or \"ask\", got {0}")]
    Approval(Value),
    /// `approval` stands beside `const`.
    #[error("`scopes.approval`: the model asks for nothing here; set `approval` of the tool")]
    ApprovalOfConst,
    /// `enum` is empty.
    #[error("`scopes.enum`: expected at least one section")]
    NoSections,
    /// The value of a list is none.
    #[error("`scopes.{key}`: expected a list of sections, got {found}")]
    NotAList {
        /// `const` or `enum`.
        key: &'static str,
        /// Value of the list.
        found: Value,
    },
    /// A list has too many sections.
    #[error("`scopes.{key}`: expected at most {NAMES_MAX} sections, got {found}")]
    TooMany {
        /// `const` or `enum`.
        key: &'static str,
        /// Number of sections.
        found: usize,
    },
    /// An element of a list is no text.
    #[error("`scopes.{key}`: expected names of sections, got {found}")]
    NotAText {
        /// `const` or `enum`.
        key: &'static str,
        /// Element that is no text.
        found: Value,
    },
    /// A section can't be handed on.
    #[error("`scopes.{key}`: {error}")]
    Section {
        /// `const` or `enum`.
        key: &'static str,
        /// What is wrong with the section.
        error: SectionNameError,
    },
}

/// Why a section can't be handed on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SectionNameError {
    /// The section defines an agent, or is a secret; holds its name.
    #[error("section `{0}` can't be handed on")]
    Private(String),
    /// No section has this name.
    #[error(
        "no section `{0}`, expected one of {known}, `context/<label>`, `loads/<path>`, `resource/<name>`",
        known = visible::quote_names(&NAMES)
    )]
    Unknown(String),
}

/// A text that can't name an instance.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`instance`: expected one line of 1 to {INSTANCE_BYTES} bytes, got {name:?}")]
pub struct InstanceNameError {
    /// Text that was given.
    pub name: String,
}

fn parse_names(key: &'static str, list: &Value) -> Result<Vec<String>, ScopesError> {
    let Value::Array(list) = list else { return Err(ScopesError::NotAList { key, found: list.clone() }) };
    if list.len() > NAMES_MAX {
        return Err(ScopesError::TooMany { key, found: list.len() });
    }
    let mut names: Vec<String> = Vec::new();
    for name in list {
        let Some(name) = name.as_str() else {
            return Err(ScopesError::NotAText { key, found: name.clone() });
        };
        check_name(name).map_err(|error| ScopesError::Section { key, error })?;
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// Checks that a section may be handed on: those that define an agent, and secrets, may not.
fn check_name(name: &str) -> Result<(), SectionNameError> {
    let never = ["system", "tools", "map", "capabilities", "caps"].contains(&name)
        || is_secret(name)
        || name.strip_prefix("loads/").is_some_and(is_secret);
    if never {
        return Err(SectionNameError::Private(name.to_owned()));
    }
    let grouped = GROUPS.iter().any(|group| name.strip_prefix(group).is_some_and(|rest| !rest.is_empty()));
    if grouped || NAMES.contains(&name) { Ok(()) } else { Err(SectionNameError::Unknown(name.to_owned())) }
}

/// Whether a name is under `s/`.
pub(crate) fn is_secret(name: &str) -> bool {
    let name = name.trim_matches('/');
    name == "s" || name.starts_with("s/")
}

/// Checks that a text can name an instance.
pub fn check_instance(name: &str) -> Result<(), InstanceNameError> {
    if name.is_empty() || name.len() > INSTANCE_BYTES || name.contains(char::is_control) {
        return Err(InstanceNameError { name: name.to_owned() });
    }
    Ok(())
}

impl Scopes {
    /// Returns the names of the sections that a call may get.
    pub fn names(&self) -> &[String] {
        match self {
            Self::Const { names } | Self::Enum { names, .. } => names,
        }
    }

    /// Whether calls that get sections need a person's approval.
    pub const fn approval(&self) -> Consent {
        match self {
            Self::Const { .. } => Consent::None,
            Self::Enum { approval, .. } => *approval,
        }
    }

    /// Returns the instruction for the model to look at some sections.
    pub fn focus_text(names: &[String]) -> String {
        format!("Focus on: {}.", names.join(", "))
    }
}

/// Context and schema of one tool's calls.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolContext {
    /// Sections that the calls get.
    pub scopes: Option<Scopes>,
    /// JSON Schema of the arguments of a tool without an operation, or of a pin with its own schema.
    pub input: Option<Value>,
    /// Whether a call may name an instance, on which its sections or its agent depend.
    pub instanced: bool,
}

impl ToolContext {
    /// Returns a tool's schema as the model sees it.
    pub fn extend(&self, mut schema: Value) -> Value {
        if let Some(Scopes::Enum { names, .. }) = &self.scopes {
            let about = "Sections of your context that go with this call; nothing else of it does.";
            let property = json!({"type": "array", "items": {"enum": names}, "description": about});
            add_property(&mut schema, SCOPES, property);
        }
        schema
    }

    /// Adds the argument for the instances of a turn to a tool's schema.
    pub fn extend_instances(&self, mut schema: Value, instances: &[String]) -> Value {
        if self.instanced && !instances.is_empty() {
            let about = format!(
                "The instance that this call is about: it gets what is of that one and what is of none. At most \
                 {SESSION_CHILDREN} calls of one reply are given to other agents; name the rest in the next one."
            );
            add_property(&mut schema, INSTANCE, json!({"enum": instances, "description": about}));
        }
        schema
    }
}

fn add_property(schema: &mut Value, name: &str, property: Value) {
    if !schema.is_object() {
        *schema = json!({"type": "object"});
    }
    match schema.get_mut("properties").and_then(Value::as_object_mut) {
        Some(known) => {
            known.insert(name.to_owned(), property);
        }
        None => schema["properties"] = json!({name: property}),
    }
}

/// A section that goes with a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScopedSection {
    /// Key of the section, e.g. `context/plan`.
    pub key: String,
    /// Path, asset, job or operation that it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Abilities and resources that reading it needs: they are checked again when it is handed on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<(String, ResourcePath)>,
    /// Whether the caller got it from its own caller: then only a revocation takes it away.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub received: bool,
    /// Upper bound of what the turns of a conversation were allowed to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under: Option<Authority>,
    /// Reads for it, besides its source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<SourceRead>,
    /// Content of the section; a text where it was cut.
    pub content: Value,
    /// Bytes of the content as text.
    pub bytes: usize,
    /// Bytes of the whole section, about.
    pub of: usize,
    /// Reason why it has no content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// Whether the caller has no content of it for this call: the reason is for the caller alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub empty: bool,
}

/// Facts of a section that was handed on, without its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HandOffRecord {
    /// Key of the section.
    pub key: String,
    /// Path, asset, job or operation that it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Bytes that were handed on.
    pub bytes: usize,
    /// Bytes of the whole section, where some were left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<usize>,
    /// Reason why it had no content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// Why a section may not be handed on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandOffError {
    /// Reading it needs a capability that is missing.
    #[error(transparent)]
    Denied(#[from] DenialError),
    /// What a received section came from was revoked.
    #[error("Capability denied: section `{key}` came from {resource}, which was revoked.")]
    Revoked {
        /// Key of the section.
        key: String,
        /// The revoked resource.
        resource: ResourcePath,
    },
    /// The section shows turns that had more authority; holds its key.
    #[error("Capability denied: section `{0}` shows turns that were allowed to do more than you are now.")]
    Exceeded(String),
}

impl ScopedSection {
    /// Checks that a holder of `authority` may hand it on. For a received section only later revocations count: its
    /// giver was checked for the rest.
    pub fn check_authority(&self, authority: &Authority) -> Result<(), HandOffError> {
        for (ability, resource) in &self.needs {
            if self.received && !authority.is_revoked(resource) {
                continue;
            }
            let permitted = authority.permits(ability, resource);
            permitted.map_err(|denied| DenialError::new(&format!("section `{}`", self.key), denied))?;
            if self.received {
                return Err(HandOffError::Revoked { key: self.key.clone(), resource: resource.clone() });
            }
        }
        let is_new = |under: &Authority| authority.revocations().iter().any(|gone| !under.revocations().contains(gone));
        let lost = |under: &Authority| if self.received { is_new(under) } else { !authority.covers(under) };
        if self.under.as_ref().is_some_and(lost) {
            return Err(HandOffError::Exceeded(self.key.clone()));
        }
        Ok(())
    }

    /// Returns the reads for it, which its receiver may know.
    pub fn reads_with_source(&self) -> impl Iterator<Item = SourceRead> {
        let own = self.source.iter().flat_map(|source| source.split(", ")).map(SourceRead::new);
        own.chain(self.reads.iter().cloned())
    }

    /// Returns the SHA-256 of the content, in hexadecimal digits.
    pub fn digest(&self) -> String {
        sha256_hex(self.content.to_string().as_bytes())
    }

    /// Returns the section as its receiver gets it; for an empty one with what the receiver may know of it, if
    /// anything.
    #[must_use]
    pub fn for_receiver(&self) -> Option<Self> {
        let missing =
            if self.empty { Some(empty::receiver_reason(&self.key)?.to_owned()) } else { self.missing.clone() };
        Some(Self { received: true, missing, ..self.clone() })
    }

    /// Returns the facts for timelines and results.
    pub fn to_record(&self) -> HandOffRecord {
        HandOffRecord {
            key: self.key.clone(),
            source: self.source.clone(),
            bytes: self.bytes,
            of: (self.of > self.bytes).then_some(self.of),
            missing: self.missing.clone(),
        }
    }
}

/// Returns the sections that an operation gets beside its arguments: contents by key. Several sections of one key are a
/// list, in their order; messages always are.
pub fn contents_by_key(scoped: &[ScopedSection]) -> Map<String, Value> {
    let mut map = Map::new();
    for section in scoped.iter().filter(|section| section.missing.is_none()) {
        let same = scoped.iter().filter(|other| other.key == section.key && other.missing.is_none());
        let contents: Vec<Value> = same.map(|other| other.content.clone()).collect();
        let content =
            if contents.len() == 1 && section.key != "inbox" { section.content.clone() } else { contents.into() };
        map.entry(section.key.clone()).or_insert(content);
    }
    map
}

/// Context that a delegate's job gets.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DelegateContext {
    /// Sections of its caller's context, in the order of that context.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scoped: Vec<ScopedSection>,
    /// System prompt of a job without an agent of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anonymous: Option<String>,
    /// Place of the step that the job does, in the pipeline of its agent: index and `stateKey` with `:` between them, of
    /// nested pipelines with `/` between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Whether the input is what came before the step of a pipeline: inputs that its agent doesn't name are left out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub upstream: bool,
}

impl DelegateContext {
    /// Whether it has neither sections nor a prompt, and is for no step.
    pub const fn is_empty(&self) -> bool {
        self.scoped.is_empty() && self.anonymous.is_none() && self.step.is_none() && !self.upstream
    }

    /// Whether its job is done by no other agent than the caller's: it closes no cycle.
    pub const fn is_own(&self) -> bool {
        self.anonymous.is_some() || self.step.is_some()
    }
}

/// Target of a call that is served by a child job.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delegate {
    /// Id of the agent; absent = an anonymous delegate with `prompt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// Description of the tool.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prompt: String,
    /// Milliseconds in which a fast delegate answers inside the turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<u64>,
    /// Path at which the output is written with the commit that completes the child job, below `w/` or `o/`.
    #[serde(rename = "outputPath", default, skip_serializing_if = "Option::is_none")]
    pub output_path: Option<String>,
    /// Place of the step that an agent without an id does, in the pipeline of the caller's agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Whether the input is what came before the step of a pipeline.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub upstream: bool,
}
