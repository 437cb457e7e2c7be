//! Kinds of resources that a remote server provides: the requests to it, and the checks of its answers.
//!
//! ```text
//! grants + call ─▶ namespaces that are meant ─▶ message ─▶ server ─▶ answer ─▶ items of those namespaces
//! ```
//!
//! The request names the owner of the data in fields that a model can't set: the words of a model are in `arguments`
//! alone, those of a configuration's author in `settings`. Answers are not trusted: an item of a namespace that wasn't
//! asked for is left out.

use super::{Ability, HeldNamespaces, NamespaceError, check_named, covers, is_legal_name};
use crate::authority::grant::check_namespace;
use crate::ids::Owner;
use crate::limits::{REMOTE_ITEMS, REMOTE_SAID_BYTES};
use crate::resource::memory::MemoryAuthor;
use serde_json::{Map, Value, json};

/// Name of the message format.
pub const PROTOCOL: &str = "trellis/resource/1";

/// Operations of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RemoteOperation {
    /// Returns the section for the context of every turn.
    Context,
    /// Lists the items of a namespace.
    List,
    /// Reads one item by its id.
    Read,
    /// Searches items by a text.
    Search,
    /// Stores an item under an id.
    Put,
    /// Deletes the item under an id.
    Delete,
    /// Deletes all items of a namespace.
    Purge,
}

impl RemoteOperation {
    /// Every operation, in the order of the protocol.
    pub const ALL: [Self; 7] =
        [Self::Context, Self::List, Self::Read, Self::Search, Self::Put, Self::Delete, Self::Purge];

    /// Returns the name in configurations and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Context => "context",
            Self::List => "list",
            Self::Read => "read",
            Self::Search => "search",
            Self::Put => "put",
            Self::Delete => "delete",
            Self::Purge => "purge",
        }
    }

    /// Returns the operation of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.as_str() == name)
    }

    /// Whether a model calls it, rather than the venue.
    pub const fn is_tool(self) -> bool {
        match self {
            Self::List | Self::Read | Self::Search | Self::Put | Self::Delete => true,
            Self::Context | Self::Purge => false,
        }
    }

    /// Returns the ability that it needs on a namespace.
    pub const fn ability(self) -> Ability {
        match self {
            Self::Context | Self::List | Self::Read | Self::Search => Ability::Read,
            Self::Put | Self::Delete | Self::Purge => Ability::Write,
        }
    }

    /// Returns the description for the model; empty if it is no tool.
    pub const fn description(self) -> &'static str {
        match self {
            Self::List => "What there is, by id; `next` says with which `cursor` to go on.",
            Self::Read => "One item by its id.",
            Self::Search => "Items that fit a question or some words, the best first.",
            Self::Put => "Keeps something under an id, at once, in the place of what is there.",
            Self::Delete => "Deletes what is kept under an id, at once and for good.",
            Self::Context | Self::Purge => "",
        }
    }

    /// Returns the JSON Schema of the model's arguments.
    pub fn input(self) -> Value {
        let text = |about: &str, most: usize| json!({"type": "string", "minLength": 1, "maxLength": most, "description": about});
        let namespace = || text("one of the granted namespaces or below; absent: all of them, or the only one", 1024);
        let limit = || json!({"type": "integer", "minimum": 1, "maximum": REMOTE_ITEMS});
        let cursor = || text("`next` of the answer before", 512);
        let id = || text("of the item", 512);
        let (properties, required): (Value, &[&str]) = match self {
            Self::List => (json!({"namespace": namespace(), "limit": limit(), "cursor": cursor()}), &[]),
            Self::Search => (
                json!({"query": text("what is looked for", 4096), "namespace": namespace(), "limit": limit(), "cursor": cursor()}),
                &["query"],
            ),
            Self::Read | Self::Delete => (json!({"id": id(), "namespace": namespace()}), &["id"]),
            Self::Put => (
                json!({
                    "id": id(), "namespace": namespace(),
                    "content": {"description": "text or data", "type": ["string", "object", "array", "number", "boolean"]}
                }),
                &["id", "content"],
            ),
            Self::Context | Self::Purge => (json!({}), &[]),
        };
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
    }
}

/// Why a venue's configuration can't name a kind so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RemoteKindError {
    /// The venue has a kind of this name itself.
    #[error("`{0}` is a kind of its own, name this one otherwise")]
    BuiltIn(String),
    /// The name is illegal.
    #[error("expected a name of letters, digits, `_` and `-` that begins with a letter and has at most 40 characters")]
    Illegal(String),
}

/// Checks the name of a kind that a venue's configuration adds.
pub fn check_kind(name: &str) -> Result<(), RemoteKindError> {
    if ["memory", "files", "scratchpad"].contains(&name) {
        return Err(RemoteKindError::BuiltIn(name.to_owned()));
    }
    if is_legal_name(name) { Ok(()) } else { Err(RemoteKindError::Illegal(name.to_owned())) }
}

/// A list that names no operation of an agent, or an unknown one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("some of `{}` with commas between, and not `purge` alone", list_operations())]
pub struct RemoteOperationsError {
    /// The list as it is written.
    pub found: String,
}

fn list_operations() -> String {
    RemoteOperation::ALL.map(RemoteOperation::as_str).join("`, `")
}

/// Reads the operations of a provider from a list with commas between.
pub fn parse_operations(text: &str) -> Result<Vec<RemoteOperation>, RemoteOperationsError> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let mut found = names
        .map(|name| RemoteOperation::from_name(name).ok_or_else(|| name.to_owned()))
        .collect::<Result<Vec<_>, _>>();
    if let Ok(verbs) = &mut found {
        verbs.sort_unstable();
        verbs.dedup();
    }
    match found {
        Ok(verbs) if verbs.iter().any(|verb| verb.is_tool() || *verb == RemoteOperation::Context) => Ok(verbs),
        _ => Err(RemoteOperationsError { found: text.to_owned() }),
    }
}

/// Returns the namespaces of a call: the named one, else all granted ones; for a write the only one.
pub fn namespaces_for(
    held: &HeldNamespaces,
    tool: &str,
    verb: RemoteOperation,
    named: Option<&str>,
) -> Result<Vec<String>, NamespaceError> {
    let ability = verb.ability();
    if let Some(named) = named {
        let named = named.strip_prefix("r/").unwrap_or(named);
        check_named("namespace", named)?;
        held.check(tool, ability, named)?;
        return Ok(vec![named.to_owned()]);
    }
    match ability {
        Ability::Read => {
            held.check_any(tool, ability)?;
            Ok(held.with_ability(ability).to_vec())
        }
        Ability::Write => Ok(vec![held.only_namespace(tool, ability, "namespace")?.to_owned()]),
    }
}

/// A request to a provider.
#[derive(Debug, Clone, Copy)]
pub struct RemoteRequest<'a> {
    /// Operation of the provider.
    pub verb: RemoteOperation,
    /// Name of the kind in the venue's configuration.
    pub kind: &'a str,
    /// Name of the resource in the agent's configuration; empty if the request is about none.
    pub resource: &'a str,
    /// Owner of the data.
    pub owner: &'a Owner,
    /// Agent that makes the call.
    pub source: Option<&'a MemoryAuthor>,
    /// Namespaces of the call.
    pub namespaces: &'a [String],
    /// Revoked namespaces below them.
    pub except: &'a [String],
    /// Settings of the resource.
    pub settings: &'a Map<String, Value>,
    /// Arguments of the model.
    pub arguments: &'a Value,
}

/// Returns the message to a provider.
pub fn message(asked: &RemoteRequest<'_>) -> Value {
    let RemoteRequest { verb, kind, resource, owner, source, namespaces, except, settings, arguments } = *asked;
    let mut arguments = arguments.clone();
    if let Some(map) = arguments.as_object_mut() {
        // The field `namespaces` holds it, after it was checked.
        map.shift_remove("namespace");
    }
    let beneath = |gone: &&String| namespaces.iter().any(|namespace| covers(namespace, gone));
    json!({
        "protocol": PROTOCOL,
        "operation": verb.as_str(),
        "kind": kind,
        "resource": resource,
        "owner": {"tenant": owner.tenant().as_str(), "user": owner.user().as_str()},
        "by": source,
        "namespaces": namespaces,
        "except": except.iter().filter(beneath).collect::<Vec<_>>(),
        "settings": settings,
        "arguments": arguments,
    })
}

/// Part of a provider's answer that has another form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RemoteAnswerError {
    /// The answer is no map.
    #[error("expected a map with `items`")]
    NotAMap,
    /// `items` is missing, or is no list.
    #[error("expected `items`, a list of maps")]
    NoItems,
    /// The answer is no section of the context.
    #[error("expected a map with `text` or `items`")]
    NoSection,
}

/// Returns the items of a provider's answer that belong to the namespaces of the call and may be read.
pub fn answer_items(answer: Value, held: &HeldNamespaces, namespaces: &[String]) -> Result<Value, RemoteAnswerError> {
    let Value::Object(mut answer) = answer else { return Err(RemoteAnswerError::NotAMap) };
    let Some(Value::Array(items)) = answer.shift_remove("items") else { return Err(RemoteAnswerError::NoItems) };
    let given = items.len();
    let mut kept: Vec<Value> = items.into_iter().filter_map(|item| check_item(item, held, namespaces)).collect();
    let left_out = given - kept.len();
    let more = kept.len() > REMOTE_ITEMS;
    kept.truncate(REMOTE_ITEMS);
    let mut shown = json!({"items": kept});
    if let Some(Value::String(next)) = answer.shift_remove("next") {
        shown["next"] = cut_bytes(&next, 512).into();
    }
    if more {
        shown["more"] = format!("only {REMOTE_ITEMS} are shown, name a `namespace` or a smaller `limit`").into();
    }
    if left_out > 0 {
        shown["leftOut"] = format!("{left_out} items that lie in no namespace that was asked for").into();
    }
    Ok(shown)
}

/// Returns an item with its namespace, if it belongs to a namespace of the call and may be read.
fn check_item(item: Value, held: &HeldNamespaces, namespaces: &[String]) -> Option<Value> {
    let Value::Object(mut item) = item else { return None };
    let namespace = match (item.shift_remove("namespace"), namespaces) {
        (Some(Value::String(named)), _) => named,
        // An item without a namespace belongs to the only one of the call.
        (None, [one]) if !one.is_empty() => one.clone(),
        _ => return None,
    };
    let is_meant = check_namespace(&namespace).is_ok()
        && namespaces.iter().any(|asked| covers(asked, &namespace))
        && held.allows(Ability::Read, &namespace);
    if !is_meant {
        return None;
    }
    let mut shown = Map::from_iter([("namespace".to_owned(), Value::String(namespace))]);
    shown.extend(item);
    Some(Value::Object(shown))
}

/// Returns a provider's section for the context: `text`, or items as [`answer_items`] returns them; `None` for nothing.
pub fn context_section(
    answer: Value,
    held: &HeldNamespaces,
    namespaces: &[String],
) -> Result<Option<Value>, RemoteAnswerError> {
    match (answer.get("text"), answer.get("items")) {
        (Some(Value::String(text)), None) if text.trim().is_empty() => Ok(None),
        (Some(Value::String(_)), None) => Ok(answer.get("text").cloned()),
        (None | Some(Value::Null), Some(_)) => {
            let found = answer_items(answer, held, namespaces)?;
            Ok(Some(found).filter(|found| found["items"] != json!([])))
        }
        (None | Some(Value::Null), None) if answer.is_object() => Ok(None),
        _ => Err(RemoteAnswerError::NoSection),
    }
}

/// Returns why a provider refused: `error` of its answer, or all of the answer, cut.
pub fn refusal_text(answer: &Value) -> String {
    let text = match answer {
        Value::String(text) => text.clone(),
        Value::Object(map) => match map.get("error").or_else(|| map.get("message")) {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        },
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let text: Vec<_> = text.split_whitespace().collect();
    cut_bytes(&text.join(" "), REMOTE_SAID_BYTES)
}

fn cut_bytes(text: &str, bytes: usize) -> String {
    text[..text.floor_char_boundary(bytes)].to_owned()
}

#[cfg(test)]
mod tests;
