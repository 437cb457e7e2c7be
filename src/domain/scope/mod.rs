//! Scopes: what of a caller's context goes with a call, and nothing else of it.
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
//! | `input` | the task's input |
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

use crate::authority::{Authority, ResourcePath};
use crate::consent::Consent;
use crate::decode;
use crate::ids::{AgentId, sha256_hex};
use crate::limits::SESSION_CHILDREN;
use crate::origin::Seen;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use empty::told;

/// Argument by which a model asks for sections.
pub const SCOPES: &str = "_scopes";
/// Argument by which a model names one of several instances.
pub const INSTANCE: &str = "_instance";

/// Names without anything behind them.
pub(crate) const NAMES: [&str; 7] = ["input", "state", "session", "pending", "inbox", "transcript", "goal"];
/// Names that go on with a label, a path or a name.
pub(crate) const GROUPS: [&str; 3] = ["context/", "loads/", "resource/"];
/// Names of one tool: each stands in its schema.
const NAMES_MAX: usize = 100;
/// Instances of one turn: more than a model can tell apart.
pub(crate) const INSTANCES: usize = 100;
/// Bytes of an instance's name.
const INSTANCE_BYTES: usize = 64;

/// What of its caller's context a tool's calls get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, try_from = "Value")]
pub enum Scopes {
    /// Always these sections: the model neither sees nor changes it.
    Const {
        /// Their names.
        #[serde(rename = "const")]
        names: Vec<String>,
    },
    /// Those of these that the model asks for.
    Enum {
        /// Their names.
        #[serde(rename = "enum")]
        names: Vec<String>,
        /// Whether a person is asked for each call that gets any.
        #[serde(skip_serializing_if = "Consent::is_none")]
        approval: Consent,
    },
}

impl TryFrom<Value> for Scopes {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let Value::Object(map) = &value else {
            return Err("`scopes`: expected `{const: [names]}` or `{enum: [names]}`".into());
        };
        let known = ["const", "enum", "approval", "type", "items"];
        if let Some(key) = map.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(format!("`scopes`: unknown key `{key}`, expected `const`, or `enum` and `approval`"));
        }
        let approval = map.get("approval").map_or(Ok(Consent::None), |given| {
            let wrong = |_| format!("`scopes.approval`: expected \"none\" or \"ask\", got {given}");
            decode::typed(given.clone()).map_err(wrong)
        })?;
        // The seed writes it as the JSON Schema of the argument.
        let choice = map.get("enum").or_else(|| map.get("items").and_then(|items| items.get("enum")));
        match (map.get("const"), choice) {
            (Some(list), None) if approval.is_none() => Ok(Self::Const { names: names("const", list)? }),
            (Some(_), None) => {
                Err("`scopes.approval`: the model asks for nothing here; set `approval` of the tool".into())
            }
            (None, Some(list)) => match names("enum", list)? {
                names if names.is_empty() => Err("`scopes.enum`: expected at least one section".into()),
                names => Ok(Self::Enum { names, approval }),
            },
            (Some(_), Some(_)) | (None, None) => Err("`scopes`: expected one of `const` and `enum`".into()),
        }
    }
}

fn names(key: &str, list: &Value) -> Result<Vec<String>, String> {
    let Value::Array(list) = list else {
        return Err(format!("`scopes.{key}`: expected a list of sections, got {list}"));
    };
    if list.len() > NAMES_MAX {
        return Err(format!("`scopes.{key}`: expected at most {NAMES_MAX} sections, got {}", list.len()));
    }
    let mut names: Vec<String> = Vec::new();
    for name in list {
        let Some(name) = name.as_str() else {
            return Err(format!("`scopes.{key}`: expected names of sections, got {name}"));
        };
        check_name(name).map_err(|error| format!("`scopes.{key}`: {error}"))?;
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// Whether a section may be handed on: what makes an agent what it is, and secrets, may not.
fn check_name(name: &str) -> Result<(), String> {
    let never = ["system", "tools", "map", "capabilities", "caps"].contains(&name)
        || is_secret(name)
        || name.strip_prefix("loads/").is_some_and(is_secret);
    if never {
        return Err(format!("section `{name}` can't be handed on"));
    }
    let grouped = GROUPS.iter().any(|group| name.strip_prefix(group).is_some_and(|rest| !rest.is_empty()));
    if grouped || NAMES.contains(&name) {
        return Ok(());
    }
    Err(format!(
        "no section `{name}`, expected one of {}, `context/<label>`, `loads/<path>`, `resource/<name>`",
        quoted(&NAMES)
    ))
}

/// Whether a name is one of `s/`.
pub(crate) fn is_secret(name: &str) -> bool {
    let name = name.trim_matches('/');
    name == "s" || name.starts_with("s/")
}

pub(crate) fn quoted<T: AsRef<str>>(names: &[T]) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    names.iter().map(|name| format!("`{}`", name.as_ref())).collect::<Vec<_>>().join(", ")
}

/// Whether a text can name an instance.
pub fn check_instance(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > INSTANCE_BYTES || name.contains(char::is_control) {
        return Err(format!("`instance`: expected one line of 1 to {INSTANCE_BYTES} bytes, got {name:?}"));
    }
    Ok(())
}

impl Scopes {
    /// The sections that a call may get.
    pub fn names(&self) -> &[String] {
        match self {
            Self::Const { names } | Self::Enum { names, .. } => names,
        }
    }

    /// Whether a person is asked for calls that get sections.
    pub const fn approval(&self) -> Consent {
        match self {
            Self::Const { .. } => Consent::None,
            Self::Enum { approval, .. } => *approval,
        }
    }

    /// What the model is told to look at, where nothing else is done with it.
    pub fn focus(names: &[String]) -> String {
        format!("Focus on: {}.", names.join(", "))
    }
}

/// What holds for the context of one tool's calls.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reach {
    /// The sections that they get.
    pub scopes: Option<Scopes>,
    /// JSON Schema of their arguments, of a tool without an operation.
    pub input: Option<Value>,
    /// They may name an instance: what they get, or who they go to, depends on it.
    pub instanced: bool,
}

impl Reach {
    /// A tool's schema as the model sees it.
    pub fn extend(&self, mut schema: Value) -> Value {
        if let Some(Scopes::Enum { names, .. }) = &self.scopes {
            let about = "Sections of your context that go with this call; nothing else of it does.";
            let property = json!({"type": "array", "items": {"enum": names}, "description": about});
            add(&mut schema, SCOPES, property);
        }
        schema
    }

    /// The same for a turn with these instances.
    pub fn extend_instances(&self, mut schema: Value, instances: &[String]) -> Value {
        if self.instanced && !instances.is_empty() {
            let about = format!(
                "The instance that this call is about: it gets what is of that one and what is of none. At most \
                 {SESSION_CHILDREN} calls of one reply are given to other agents; name the rest in the next one."
            );
            add(&mut schema, INSTANCE, json!({"enum": instances, "description": about}));
        }
        schema
    }
}

fn add(schema: &mut Value, name: &str, property: Value) {
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

/// A section on its way to what a call runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScopedSection {
    /// Its key, e.g. `context/plan`.
    pub key: String,
    /// Path, asset, job or operation that it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Ability and resource of everything that reading it needs: asked for again when it is handed on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<(String, ResourcePath)>,
    /// The caller had it from its own caller: no less than revoking it takes it away.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub received: bool,
    /// Of a conversation: what its turns were allowed to do at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under: Option<Authority>,
    /// What was read for it, besides its source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<Seen>,
    /// What it says; of a part that was cut, text.
    pub content: Value,
    /// Bytes of it as text.
    pub bytes: usize,
    /// Bytes of the whole, about.
    pub of: usize,
    /// Why there is nothing in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// The caller has nothing of it for this call: the reason is for the caller alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub empty: bool,
}

/// What is known of a section that was handed on, without what it says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandedOn {
    /// Its key.
    pub key: String,
    /// Where it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Bytes that went.
    pub bytes: usize,
    /// Bytes of the whole, where some were left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<usize>,
    /// Why there was nothing in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

impl ScopedSection {
    /// Whether who holds `authority` may still hand it on; else the text of the denial. Of what was
    /// received only what was revoked since is gone: its giver was asked for the rest.
    pub fn held(&self, authority: &Authority) -> Result<(), String> {
        let what = || format!("section `{}`", self.key);
        for (ability, resource) in &self.needs {
            if self.received && !authority.is_revoked(resource) {
                continue;
            }
            authority.permits(ability, resource).map_err(|denied| denied.text(&what()))?;
            if self.received {
                return Err(format!("Capability denied: {} came from {resource}, which was revoked.", what()));
            }
        }
        let is_new = |under: &Authority| authority.revoked().iter().any(|gone| !under.revoked().contains(gone));
        let lost = |under: &Authority| if self.received { is_new(under) } else { !authority.covers(under) };
        if self.under.as_ref().is_some_and(lost) {
            return Err(format!(
                "Capability denied: {} shows turns that were allowed to do more than you are now.",
                what()
            ));
        }
        Ok(())
    }

    /// What was read for it: who gets it knows that.
    pub fn seen(&self) -> impl Iterator<Item = Seen> {
        let own = self.source.iter().flat_map(|source| source.split(", ")).map(Seen::new);
        own.chain(self.reads.iter().cloned())
    }

    /// SHA-256 of what it says.
    pub fn digest(&self) -> String {
        sha256_hex(self.content.to_string().as_bytes())
    }

    /// As who gets it has it; an empty one with what he may know of it, if anything.
    #[must_use]
    pub fn handed(&self) -> Option<Self> {
        let missing = if self.empty { Some(empty::received(&self.key)?.to_owned()) } else { self.missing.clone() };
        Some(Self { received: true, missing, ..self.clone() })
    }

    /// For timelines and results.
    pub fn note(&self) -> HandedOn {
        HandedOn {
            key: self.key.clone(),
            source: self.source.clone(),
            bytes: self.bytes,
            of: (self.of > self.bytes).then_some(self.of),
            missing: self.missing.clone(),
        }
    }
}

/// What an operation gets beside its arguments: what each section says, by key. Sections of one key
/// are a list of them, in their order; messages always are.
pub fn map(scoped: &[ScopedSection]) -> Map<String, Value> {
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

/// What a delegate's job brings along.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Handed {
    /// Sections of its caller's context, in the order of that.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scoped: Vec<ScopedSection>,
    /// It runs without an agent of its own: this is its whole system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anonymous: Option<String>,
}

impl Handed {
    /// Nothing.
    pub const fn is_empty(&self) -> bool {
        self.scoped.is_empty() && self.anonymous.is_none()
    }
}

/// Who does what a call asks for, as a child job.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delegate {
    /// An agent; absent = nobody's own agent, with `prompt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// What the tool is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prompt: String,
    /// Milliseconds in which a fast one answers inside the turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<u64>,
    /// Path at which the output is written with the commit that completes the child job, below `w/` or `o/`.
    #[serde(rename = "outputPath", default, skip_serializing_if = "Option::is_none")]
    pub output_path: Option<String>,
}
