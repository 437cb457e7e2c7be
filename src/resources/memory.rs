//! Memory: one document per entry, under a name that is a function of scope and content. The same
//! content is the same document, so that of two turns that write it at once one finds it there.

use super::{Access, Area, Call, Provider, Tool};
use crate::domain::ids::hmac_hex;
use crate::domain::limits::{MEMORY_ENTRIES, MEMORY_READ, MEMORY_SEARCH};
use crate::domain::resource::memory::{
    self as rules, Entry, KIND, Kind, Settings, Status, Wanted, Written, content, select, shown, superseded, target,
    topics, visible,
};
use crate::domain::resource::{Ability, below, within};
use crate::domain::time::Millis;
use crate::ops::OpError;
use crate::store::StoreError;
use crate::workspace::{DocChange, Docs, WorkspaceError};
use async_trait::async_trait;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Hex digits of an id.
const ID_DIGITS: usize = 24;

/// The provider.
pub struct Memory;

fn key(scope: &str, id: &str) -> String {
    format!("{}{id}", within(KIND, scope))
}

fn tool(name: &'static str, description: &'static str, writes: bool, input: &Value, required: &[&str]) -> Tool {
    let input = json!({"type": "object", "properties": input, "required": required, "additionalProperties": false});
    Tool { name, description, input, writes }
}

#[async_trait]
impl Provider for Memory {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn tools(&self) -> Vec<Tool> {
        let text = |about: &str| json!({"type": "string", "description": about});
        let list = |about: &str| json!({"type": "array", "items": {"type": "string"}, "description": about});
        let most = |most: usize| json!({"type": "integer", "minimum": 1, "maximum": most});
        let sort = || json!({"enum": ["fact", "preference", "event", "summary"]});
        vec![
            tool(
                "read",
                "What is remembered, the newest first: about some topics, or about anything.",
                false,
                &json!({"topics": list("any of these"), "limit": most(MEMORY_READ)}),
                &[],
            ),
            tool(
                "search",
                "Finds what is remembered by words, sort, tag or the beginning of a topic.",
                false,
                &json!({
                    "query": text("words that all occur in content or topics"), "kind": sort(), "tag": text("a tag"),
                    "prefix": text("how a topic begins"), "limit": most(MEMORY_SEARCH)
                }),
                &[],
            ),
            tool(
                "write",
                "Remembers something from the end of this turn on. The same content is kept once.",
                true,
                &json!({
                    "content": text("one self-contained statement"), "topics": list("what it is about"),
                    "type": sort(), "scope": text("namespace; the granted one when absent")
                }),
                &["content"],
            ),
            tool(
                "correct",
                "Puts a new statement in the place of an entry that is wrong or out of date.",
                true,
                &json!({"id": text("of the entry"), "content": text("what is right")}),
                &["id", "content"],
            ),
            tool("forget", "Deletes an entry for good.", true, &json!({"id": text("of the entry")}), &["id"]),
        ]
    }

    fn check(&self, settings: &Map<String, Value>) -> Result<(), String> {
        Settings::parse(settings).map(drop)
    }

    async fn call(&self, call: &Call<'_>, tool: &str, arguments: &Value) -> Result<Value, OpError> {
        match tool {
            "read" | "search" => {
                call.reads().await?;
                let entries = entries(&call.access).await?;
                let (wanted, most) = if tool == "read" {
                    (Wanted { topics: wanted_topics(arguments)?, ..Wanted::default() }, MEMORY_READ)
                } else {
                    (wanted(arguments), MEMORY_SEARCH)
                };
                let limit = arguments["limit"].as_u64().and_then(|limit| usize::try_from(limit).ok()).unwrap_or(most);
                Ok(shown(select(&entries, &wanted, limit.min(most))))
            }
            "write" => {
                let named = arguments["scope"].as_str();
                let policy = Settings::parse(call.access.settings).unwrap_or_default().write_policy;
                let scope = target(call.access.held, call.name, named, policy).map_err(OpError::Denied)?;
                let new = new_entry(call, arguments, &scope)?;
                call.uses(Ability::Write, &scope).await;
                Ok(call.access.workspace.change(call.index, Arc::new(Write(new))).await?)
            }
            "correct" => {
                let old = find(call, arguments).await?;
                let content = content(arguments["content"].as_str().unwrap_or_default()).map_err(OpError::Invalid)?;
                let id = id(&call.access, &old.scope, &content);
                let source = call.source.clone();
                let correct = Correct { scope: old.scope, old: old.id, id, content, source, now: call.access.now };
                Ok(call.access.workspace.change(call.index, Arc::new(correct)).await?)
            }
            "forget" => {
                let Entry { scope, id, .. } = find(call, arguments).await?;
                Ok(call.access.workspace.change(call.index, Arc::new(Forget { scope, id })).await?)
            }
            other => Err(OpError::NotFound(format!("a memory has no tool `{other}`"))),
        }
    }

    async fn context(&self, access: &Access<'_>) -> Result<Option<String>, StoreError> {
        // They were checked when the agent was applied.
        let settings = Settings::parse(access.settings).unwrap_or_default();
        let entries = entries(access).await?;
        Ok(rules::context(&entries, &settings, &format!("{}read", access.prefix)))
    }

    fn areas(&self, namespace: &str, recursive: bool) -> Vec<Area> {
        let area = |prefix| Area { prefix, counts: true };
        let below = recursive.then(|| below(KIND, namespace)).map(area);
        std::iter::once(area(within(KIND, namespace))).chain(below).collect()
    }
}

/// All entries of the visible scopes, those that hold no more included.
async fn entries(access: &Access<'_>) -> Result<Vec<Entry>, StoreError> {
    let mut entries = Vec::new();
    for scope in visible(access.held) {
        // One over the limit fits when two turns at once have written the last one.
        entries.extend(access.workspace.documents::<Entry>(&within(KIND, &scope), MEMORY_ENTRIES + 64).await?);
    }
    Ok(entries)
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn wanted_topics(arguments: &Value) -> Result<Vec<String>, OpError> {
    let named = texts(&arguments["topics"]);
    if named.is_empty() { Ok(Vec::new()) } else { topics(&named).map_err(OpError::Invalid) }
}

fn kind(value: &Value) -> Option<Kind> {
    serde_json::from_value(value.clone()).ok()
}

fn wanted(arguments: &Value) -> Wanted {
    let lower = |key: &str| arguments[key].as_str().map(|text| text.trim().to_lowercase());
    Wanted {
        topics: Vec::new(),
        words: lower("query").unwrap_or_default().split_whitespace().map(str::to_owned).collect(),
        kind: kind(&arguments["kind"]),
        tag: arguments["tag"].as_str().map(str::to_owned),
        prefix: lower("prefix").filter(|prefix| !prefix.is_empty()),
    }
}

/// Under the venue's key: nobody can try contents that were forgotten against their ids.
fn id(access: &Access<'_>, scope: &str, content: &str) -> String {
    let said = json!([KIND, access.workspace.owner(), scope, content]).to_string();
    hmac_hex(access.key, said.as_bytes())[..ID_DIGITS].to_owned()
}

fn new_entry(call: &Call<'_>, arguments: &Value, scope: &str) -> Result<Entry, OpError> {
    let content = content(arguments["content"].as_str().unwrap_or_default()).map_err(OpError::Invalid)?;
    let settings = Settings::parse(call.access.settings).unwrap_or_default();
    Ok(Entry {
        id: id(&call.access, scope, &content),
        scope: scope.to_owned(),
        content,
        topics: topics(&texts(&arguments["topics"])).map_err(OpError::Invalid)?,
        kind: kind(&arguments["type"]).unwrap_or_default(),
        source: call.source.clone(),
        status: Status::Active,
        superseded_by: None,
        created: call.access.now,
        updated: call.access.now,
        tags: settings.tags,
    })
}

/// The entry that a change means: one that can be seen or written, in a scope that can be written.
async fn find(call: &Call<'_>, arguments: &Value) -> Result<Entry, OpError> {
    let held = call.access.held;
    held.any(call.name, Ability::Write).map_err(OpError::Denied)?;
    let id = arguments["id"].as_str().unwrap_or_default();
    let mut scopes = visible(held);
    scopes.extend(held.on(Ability::Write).iter().filter(|scope| !scope.is_empty()).cloned());
    scopes.dedup();
    let legal = id.len() == ID_DIGITS && id.bytes().all(|b| b.is_ascii_hexdigit());
    for scope in scopes.iter().filter(|_| legal) {
        if let Some(found) = call.access.workspace.document::<Entry>(&key(scope, id)).await? {
            held.check(call.name, Ability::Write, scope).map_err(OpError::Denied)?;
            call.uses(Ability::Write, scope).await;
            return Ok(found);
        }
    }
    Err(OpError::NotFound(format!("no entry `{}` in the scopes of this request", id.escape_debug())))
}

/// Puts an entry, or finds the same content there.
struct Write(Entry);

async fn put(docs: &mut Docs<'_>, new: &Entry) -> Result<bool, WorkspaceError> {
    let key = key(&new.scope, &new.id);
    let there: Option<Entry> = docs.get(&key).await?;
    let is_new = there.is_none();
    match rules::write(new.clone(), there) {
        Written::Deduped => Ok(true),
        Written::Put(entry) => {
            let (count, _) = docs.count(&within(KIND, &new.scope)).await?;
            if is_new && count >= MEMORY_ENTRIES {
                return Err(WorkspaceError::Refused(format!(
                    "the scope `{}` has {count} entries, the most that one may have; forget some first",
                    new.scope
                )));
            }
            docs.put(&key, &*entry).await?;
            Ok(false)
        }
    }
}

#[async_trait]
impl DocChange for Write {
    async fn make(&self, docs: &mut Docs<'_>) -> Result<Value, WorkspaceError> {
        let deduped = put(docs, &self.0).await?;
        Ok(json!({"id": self.0.id, "scope": self.0.scope, "deduped": deduped}))
    }
}

struct Correct {
    scope: String,
    old: String,
    id: String,
    content: String,
    source: rules::Source,
    now: Millis,
}

#[async_trait]
impl DocChange for Correct {
    async fn make(&self, docs: &mut Docs<'_>) -> Result<Value, WorkspaceError> {
        let Self { scope, old, id, content, source, now } = self;
        let there: Option<Entry> = docs.get(&key(scope, old)).await?;
        let there =
            there.ok_or_else(|| WorkspaceError::Refused(format!("the entry `{old}` was forgotten meanwhile")))?;
        if there.status == Status::Superseded {
            let by = there.superseded_by.unwrap_or_default();
            return Err(WorkspaceError::Refused(format!("`{old}` holds no more, correct `{by}` instead")));
        }
        if id == old {
            return Ok(json!({"id": id, "scope": scope, "deduped": true}));
        }
        let new = Entry {
            id: id.clone(),
            content: content.clone(),
            source: source.clone(),
            created: *now,
            updated: *now,
            ..there.clone()
        };
        let deduped = put(docs, &new).await?;
        docs.put(&key(scope, old), &superseded(there, id, *now)).await?;
        Ok(json!({"id": id, "scope": scope, "supersedes": old, "deduped": deduped}))
    }
}

struct Forget {
    scope: String,
    id: String,
}

#[async_trait]
impl DocChange for Forget {
    async fn make(&self, docs: &mut Docs<'_>) -> Result<Value, WorkspaceError> {
        docs.delete(&key(&self.scope, &self.id)).await?;
        Ok(json!({"id": self.id, "forgotten": true}))
    }
}
