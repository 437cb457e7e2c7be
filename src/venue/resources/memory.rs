//! Memory: one document per entry, whose key is a function of scope and content. The same content is the same document,
//! so that of two turns that write it at once the later one finds it.

use super::{ProviderSettingsError, PurgeArea, ResourceAccess, ResourceCall, ResourceProvider, Tool};
use crate::domain::context::item::ItemContent;
use crate::domain::ids::hmac_hex;
use crate::domain::limits::{INPUT_BYTES, MEMORY_ENTRIES, MEMORY_LIMIT, MEMORY_READ, MEMORY_SEARCH};
use crate::domain::resource::memory::{
    self as rules, KIND, MemoryEntry, MemoryError, MemoryKind, MemoryQuery, MemorySettings, MemoryStatus, MemoryWrite,
    check_content, check_key, entries_view, nearest, normalise_topics, readable_scopes, replace_entry, select,
    supersede, write_scope,
};
use crate::domain::resource::{Ability, HeldNamespaces, namespace_prefix, prefix_below};
use crate::domain::time::Millis;
use crate::store::StoreError;
use crate::venue::failure::OpError;
use crate::venue::workspace::{DocChange, Docs, WorkspaceError};
use async_trait::async_trait;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Hexadecimal digits of an id.
const ID_DIGITS: usize = 24;

/// Provider of the resource kind `memory`.
pub struct MemoryProvider;

fn document_key(scope: &str, id: &str) -> String {
    format!("{}{id}", namespace_prefix(KIND, scope))
}

fn tool(name: &'static str, description: &'static str, writes: bool, input: &Value, required: &[&str]) -> Tool {
    let input = json!({"type": "object", "properties": input, "required": required, "additionalProperties": false});
    Tool { name: name.into(), description: description.into(), input, writes }
}

#[async_trait]
impl ResourceProvider for MemoryProvider {
    fn kind(&self) -> &str {
        KIND
    }

    fn tools(&self) -> Vec<Tool> {
        let text = |about: &str| json!({"type": "string", "description": about});
        let list = |about: &str| json!({"type": "array", "items": {"type": "string"}, "description": about});
        let most = || json!({"type": "integer", "minimum": 1, "maximum": MEMORY_LIMIT});
        let sort = || json!({"enum": MemoryKind::NAMES});
        vec![
            tool(
                "read",
                "What is remembered, what was changed last first: about some topics, or about anything.",
                false,
                &json!({"topics": list("any of these"), "limit": most()}),
                &[],
            ),
            tool(
                "search",
                "Finds what is remembered by words, sort, tag or the beginning of a topic.",
                false,
                &json!({
                    "query": text("words that all occur in content or topics"), "kind": sort(), "tag": text("a tag"),
                    "prefix": text("how a topic begins"), "limit": most()
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
            tool(
                "get",
                "What is remembered under a key, in the nearest scope that has it.",
                false,
                &json!({"key": text("as it was put")}),
                &["key"],
            ),
            tool(
                "put",
                "Remembers something under a key, in the place of what is there.",
                true,
                &json!({
                    "key": text("a short name"), "content": text("one self-contained statement"),
                    "topics": list("what it is about"), "type": sort(),
                    "scope": text("namespace; the granted one when absent")
                }),
                &["key", "content"],
            ),
            tool(
                "forget",
                "Deletes an entry for good, by its id or its key; or, where the agent may, all of a scope.",
                true,
                &json!({
                    "id": text("of the entry"), "key": text("as it was put; the nearest scope that has it, or `scope`"),
                    "scope": text("namespace, without what lies below")
                }),
                &[],
            ),
        ]
    }

    fn check(&self, settings: &Map<String, Value>) -> Result<(), ProviderSettingsError> {
        MemorySettings::parse(settings)?;
        Ok(())
    }

    async fn call(&self, call: &ResourceCall<'_>, tool: &str, arguments: &Value) -> Result<Value, OpError> {
        let held = call.access.held.limit_to(&parse_settings(&call.access).namespace.0);
        let access = ResourceAccess { held: &held, ..call.access };
        let (source, key, marks) = (call.source.clone(), call.key.clone(), call.marks.clone());
        let call = &ResourceCall { access, source, key, marks, ..*call };
        match tool {
            "read" | "search" => {
                call.note_reads().await?;
                let entries = read_entries(&call.access).await?;
                let (wanted, usual) = if tool == "read" {
                    (MemoryQuery { topics: parse_topics(arguments)?, ..MemoryQuery::default() }, MEMORY_READ)
                } else {
                    (parse_query(arguments), MEMORY_SEARCH)
                };
                let limit = arguments["limit"].as_u64().and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usual);
                Ok(entries_view(select(&entries, &wanted, limit.min(MEMORY_LIMIT))))
            }
            "write" => {
                let new = new_entry(call, arguments, &named_write_scope(call, arguments)?)?;
                call.note_use(Ability::Write, &new.scope).await;
                Ok(call.access.workspace.change(call.index, Arc::new(WriteEntry(new))).await?)
            }
            "get" => {
                call.note_reads().await?;
                let key = parse_key(arguments)?;
                let entries = read_entries(&call.access).await?;
                Ok(match nearest(&entries, &key) {
                    Some(entry) => json!({"found": true, "entry": rules::entry_view(entry)}),
                    None => json!({"found": false}),
                })
            }
            "put" => {
                let key = parse_key(arguments)?;
                let scope = named_write_scope(call, arguments)?;
                let new = new_entry(call, arguments, &scope)?;
                let id = keyed_id(&call.access, &scope, &key);
                call.note_use(Ability::Write, &scope).await;
                let put = PutEntry(MemoryEntry { id, key: Some(key), ..new });
                Ok(call.access.workspace.change(call.index, Arc::new(put)).await?)
            }
            "correct" => {
                let old = find_entry(call, arguments).await?;
                if let Some(key) = &old.key {
                    let text = format!("`{}` is kept under a key: put `{key}` again instead", old.id);
                    return Err(OpError::Invalid(text));
                }
                let content = parse_content(arguments)?;
                let id = entry_id(&call.access, &old.scope, &content);
                let source = call.source.clone();
                let correct = CorrectEntry { scope: old.scope, old: old.id, id, content, source, now: call.access.now };
                Ok(call.access.workspace.change(call.index, Arc::new(correct)).await?)
            }
            "forget" => {
                let text = |key: &str| arguments[key].as_str();
                let MemoryEntry { scope, id, .. } = match (text("id"), text("key"), text("scope")) {
                    (Some(_), None, None) => find_entry(call, arguments).await?,
                    (None, Some(key), scope) => find_keyed(call, key, scope).await?,
                    (None, None, Some(_)) => return forget_scope(call, arguments).await,
                    (None, None, None) | (Some(_), _, Some(_)) | (Some(_), Some(_), None) => {
                        return Err(OpError::Invalid("expected one of `id`, `key` and `scope`".into()));
                    }
                };
                Ok(call.access.workspace.change(call.index, Arc::new(ForgetEntry { scope, id })).await?)
            }
            other => Err(OpError::NotFound(format!("a memory has no tool `{other}`"))),
        }
    }

    async fn context(&self, access: &ResourceAccess<'_>) -> Result<Option<ItemContent>, StoreError> {
        let settings = parse_settings(access);
        let held = access.held.limit_to(&settings.namespace.0);
        let entries = read_entries(&ResourceAccess { held: &held, ..*access }).await?;
        let text = rules::context(&entries, &settings, &format!("{}read", access.prefix));
        Ok(text.map(|text| ItemContent::from_value(text.into(), INPUT_BYTES)))
    }

    fn areas(&self, namespace: &str, recursive: bool) -> Vec<PurgeArea> {
        let area = |prefix| PurgeArea { prefix, counts: true };
        let below = recursive.then(|| prefix_below(KIND, namespace)).map(area);
        std::iter::once(area(namespace_prefix(KIND, namespace))).chain(below).collect()
    }
}

/// Parses the settings, which were checked when the agent was applied.
fn parse_settings(access: &ResourceAccess<'_>) -> MemorySettings {
    MemorySettings::parse(access.settings).unwrap_or_default()
}

/// Returns all entries of the visible scopes, superseded ones included.
async fn read_entries(access: &ResourceAccess<'_>) -> Result<Vec<MemoryEntry>, StoreError> {
    let mut entries = Vec::new();
    for scope in readable_scopes(access.held) {
        // Two turns at once may exceed the limit by one entry each.
        entries.extend(
            access.workspace.documents::<MemoryEntry>(&namespace_prefix(KIND, &scope), MEMORY_ENTRIES + 64).await?,
        );
    }
    Ok(entries)
}

fn invalid_argument(error: &MemoryError) -> OpError {
    OpError::Invalid(error.to_string())
}

/// Returns the scope that a write names.
fn named_write_scope(call: &ResourceCall<'_>, arguments: &Value) -> Result<String, OpError> {
    let policy = parse_settings(&call.access).write_policy;
    write_scope(call.access.held, call.name, arguments["scope"].as_str(), policy)
        .map_err(|error| OpError::Denied(error.to_string()))
}

async fn forget_scope(call: &ResourceCall<'_>, arguments: &Value) -> Result<Value, OpError> {
    if !parse_settings(&call.access).forget_scope {
        return Err(OpError::Denied(
            "`scope`: this agent forgets single entries, by their `id`; `forgetScope` of its memory says otherwise"
                .into(),
        ));
    }
    let scope = named_write_scope(call, arguments)?;
    call.note_use(Ability::Write, &scope).await;
    let entries =
        call.access.workspace.documents::<MemoryEntry>(&namespace_prefix(KIND, &scope), MEMORY_ENTRIES + 64).await?;
    let ids = entries.into_iter().map(|entry| entry.id).collect();
    Ok(call.access.workspace.change(call.index, Arc::new(ForgetEntries { scope, ids })).await?)
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn parse_topics(arguments: &Value) -> Result<Vec<String>, OpError> {
    let named = texts(&arguments["topics"]);
    if named.is_empty() { Ok(Vec::new()) } else { normalise_topics(&named).map_err(|error| invalid_argument(&error)) }
}

fn parse_key(arguments: &Value) -> Result<String, OpError> {
    check_key(arguments["key"].as_str().unwrap_or_default()).map_err(|error| invalid_argument(&error))
}

fn parse_content(arguments: &Value) -> Result<String, OpError> {
    check_content(arguments["content"].as_str().unwrap_or_default()).map_err(|error| invalid_argument(&error))
}

fn parse_kind(value: &Value) -> Option<MemoryKind> {
    serde_json::from_value(value.clone()).ok()
}

fn parse_query(arguments: &Value) -> MemoryQuery {
    let lower = |key: &str| arguments[key].as_str().map(|text| text.trim().to_lowercase());
    MemoryQuery {
        topics: Vec::new(),
        words: lower("query").unwrap_or_default().split_whitespace().map(str::to_owned).collect(),
        kind: parse_kind(&arguments["kind"]),
        tag: arguments["tag"].as_str().map(str::to_owned),
        prefix: lower("prefix").filter(|prefix| !prefix.is_empty()),
    }
}

/// Returns the id of an entry. It is an HMAC under the venue's key, so that nobody can test guesses of forgotten
/// contents against ids.
fn entry_id(access: &ResourceAccess<'_>, scope: &str, content: &str) -> String {
    let said = json!([KIND, access.workspace.owner(), scope, content]).to_string();
    hmac_hex(access.key, said.as_bytes())[..ID_DIGITS].to_owned()
}

/// Returns the id of an entry that is put under a key; the content doesn't change it.
fn keyed_id(access: &ResourceAccess<'_>, scope: &str, key: &str) -> String {
    let said = json!([KIND, access.workspace.owner(), scope, {"key": key}]).to_string();
    hmac_hex(access.key, said.as_bytes())[..ID_DIGITS].to_owned()
}

fn new_entry(call: &ResourceCall<'_>, arguments: &Value, scope: &str) -> Result<MemoryEntry, OpError> {
    let content = parse_content(arguments)?;
    Ok(MemoryEntry {
        id: entry_id(&call.access, scope, &content),
        scope: scope.to_owned(),
        key: None,
        content,
        topics: normalise_topics(&texts(&arguments["topics"])).map_err(|error| invalid_argument(&error))?,
        kind: parse_kind(&arguments["type"]).unwrap_or_default(),
        source: call.source.clone(),
        status: MemoryStatus::Active,
        superseded_by: None,
        created: call.access.now,
        updated: call.access.now,
        tags: parse_settings(&call.access).tags,
    })
}

/// Returns the scopes in which an entry that is to be changed may lie, the topmost first.
fn changeable_scopes(held: &HeldNamespaces) -> Vec<String> {
    let mut scopes = readable_scopes(held);
    scopes.extend(held.with_ability(Ability::Write).iter().filter(|scope| !scope.is_empty()).cloned());
    scopes.dedup();
    scopes
}

/// Finds the entry under a key: in `scope`, or in the nearest scope that has it.
async fn find_keyed(call: &ResourceCall<'_>, given: &str, scope: Option<&str>) -> Result<MemoryEntry, OpError> {
    let held = call.access.held;
    held.check_any(call.name, Ability::Write)?;
    let name = check_key(given).map_err(|error| invalid_argument(&error))?;
    for one in changeable_scopes(held).iter().rev().filter(|one| scope.is_none_or(|scope| scope == one.as_str())) {
        let place = document_key(one, &keyed_id(&call.access, one, &name));
        if let Some(found) = call.access.workspace.document::<MemoryEntry>(&place).await? {
            held.check(call.name, Ability::Write, one)?;
            call.note_use(Ability::Write, one).await;
            return Ok(found);
        }
    }
    Err(OpError::NotFound(format!("nothing is kept under `{}` in the scopes of this request", name.escape_debug())))
}

/// Finds the entry that a change names: one that can be read or written, in a scope that can be written.
async fn find_entry(call: &ResourceCall<'_>, arguments: &Value) -> Result<MemoryEntry, OpError> {
    let held = call.access.held;
    held.check_any(call.name, Ability::Write)?;
    let id = arguments["id"].as_str().unwrap_or_default();
    let scopes = changeable_scopes(held);
    let legal = id.len() == ID_DIGITS && id.bytes().all(|b| b.is_ascii_hexdigit());
    for scope in scopes.iter().filter(|_| legal) {
        if let Some(found) = call.access.workspace.document::<MemoryEntry>(&document_key(scope, id)).await? {
            held.check(call.name, Ability::Write, scope)?;
            call.note_use(Ability::Write, scope).await;
            return Ok(found);
        }
    }
    Err(OpError::NotFound(format!("no entry `{}` in the scopes of this request", id.escape_debug())))
}

/// Change that writes an entry, unless the same content exists.
struct WriteEntry(MemoryEntry);

async fn put_entry(docs: &mut Docs<'_>, new: &MemoryEntry) -> Result<bool, WorkspaceError> {
    let key = document_key(&new.scope, &new.id);
    let there: Option<MemoryEntry> = docs.get(&key).await?;
    let is_new = there.is_none();
    match rules::merge_entry(new.clone(), there) {
        MemoryWrite::Deduped => Ok(true),
        MemoryWrite::Put(entry) => {
            if is_new {
                check_room(docs, &new.scope).await?;
            }
            docs.put(&key, &*entry).await?;
            Ok(false)
        }
    }
}

async fn check_room(docs: &Docs<'_>, scope: &str) -> Result<(), WorkspaceError> {
    let (count, _) = docs.count(&namespace_prefix(KIND, scope)).await?;
    if count < MEMORY_ENTRIES {
        return Ok(());
    }
    Err(WorkspaceError::Refused(format!(
        "the scope `{scope}` has {count} entries, the most that one may have; forget some first"
    )))
}

/// Change that replaces the entry of a key.
struct PutEntry(MemoryEntry);

#[async_trait]
impl DocChange for PutEntry {
    async fn make(&self, docs: &mut Docs<'_>) -> Result<Value, WorkspaceError> {
        let Self(new) = self;
        let place = document_key(&new.scope, &new.id);
        let there: Option<MemoryEntry> = docs.get(&place).await?;
        if there.is_none() {
            check_room(docs, &new.scope).await?;
        }
        docs.put(&place, &replace_entry(new.clone(), there.as_ref())).await?;
        Ok(json!({"id": new.id, "scope": new.scope, "key": new.key, "existed": there.is_some()}))
    }
}

#[async_trait]
impl DocChange for WriteEntry {
    async fn make(&self, docs: &mut Docs<'_>) -> Result<Value, WorkspaceError> {
        let deduped = put_entry(docs, &self.0).await?;
        Ok(json!({"id": self.0.id, "scope": self.0.scope, "deduped": deduped}))
    }
}

struct CorrectEntry {
    scope: String,
    old: String,
    id: String,
    content: String,
    source: rules::MemoryAuthor,
    now: Millis,
}

#[async_trait]
impl DocChange for CorrectEntry {
    async fn make(&self, docs: &mut Docs<'_>) -> Result<Value, WorkspaceError> {
        let Self { scope, old, id, content, source, now } = self;
        let there: Option<MemoryEntry> = docs.get(&document_key(scope, old)).await?;
        let there =
            there.ok_or_else(|| WorkspaceError::Refused(format!("the entry `{old}` was forgotten meanwhile")))?;
        if there.status == MemoryStatus::Superseded {
            let by = there.superseded_by.unwrap_or_default();
            return Err(WorkspaceError::Refused(format!("`{old}` holds no more, correct `{by}` instead")));
        }
        if id == old {
            return Ok(json!({"id": id, "scope": scope, "deduped": true}));
        }
        let new = MemoryEntry {
            id: id.clone(),
            content: content.clone(),
            source: source.clone(),
            created: *now,
            updated: *now,
            ..there.clone()
        };
        let deduped = put_entry(docs, &new).await?;
        docs.put(&document_key(scope, old), &supersede(there, id, *now)).await?;
        Ok(json!({"id": id, "scope": scope, "supersedes": old, "deduped": deduped}))
    }
}

struct ForgetEntry {
    scope: String,
    id: String,
}

#[async_trait]
impl DocChange for ForgetEntry {
    async fn make(&self, docs: &mut Docs<'_>) -> Result<Value, WorkspaceError> {
        docs.delete(&document_key(&self.scope, &self.id)).await?;
        Ok(json!({"id": self.id, "forgotten": true}))
    }
}

struct ForgetEntries {
    scope: String,
    ids: Vec<String>,
}

#[async_trait]
impl DocChange for ForgetEntries {
    async fn make(&self, docs: &mut Docs<'_>) -> Result<Value, WorkspaceError> {
        for id in &self.ids {
            docs.delete(&document_key(&self.scope, id)).await?;
        }
        Ok(json!({"scope": self.scope, "forgotten": self.ids.len()}))
    }
}
