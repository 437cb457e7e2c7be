//! Files: one document with the facts of a file, and one with its content, whose key contains the hash.

use super::{ProviderSettingsError, PurgeArea, ResourceCall, ResourceProvider, Tool};
use crate::domain::limits::{FILE_READ_BYTES, FILES_LISTED};
use crate::domain::resource::files::{
    self as rules, File, KIND, check_settings, content_prefix, full_name, prefix_below, range, record_key,
    record_prefix, to_json,
};
use crate::domain::resource::{Ability, NamespaceError, hash};
use crate::domain::time::Millis;
use crate::venue::failure::OpError;
use crate::venue::workspace::{DocChange, Docs, WorkspaceError};
use async_trait::async_trait;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Provider of the resource kind `files`.
pub struct FilesProvider;

#[async_trait]
impl ResourceProvider for FilesProvider {
    fn kind(&self) -> &str {
        KIND
    }

    fn tools(&self) -> Vec<Tool> {
        let text = |about: &str| json!({"type": "string", "description": about});
        let path = || text("name of the file, below the granted namespace or beginning with it");
        let input = |properties: Value, required: &[&str]| json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
        vec![
            Tool {
                name: "list".into(),
                description: "Names, sizes and hashes of the files that can be read.".into(),
                input: input(
                    json!({"prefix": text("only files whose name begins with this namespace or folder")}),
                    &[],
                ),
                writes: false,
            },
            Tool {
                name: "read".into(),
                description: "A file's text, or a range of its bytes; `next` says where to read on.".into(),
                input: input(
                    json!({
                        "path": path(), "offset": {"type": "integer", "minimum": 0},
                        "length": {"type": "integer", "minimum": 1, "maximum": FILE_READ_BYTES}
                    }),
                    &["path"],
                ),
                writes: false,
            },
            Tool {
                name: "write".into(),
                description: "Writes a text file whole, from the end of this turn on.".into(),
                input: input(
                    json!({
                        "path": path(), "content": text("the whole text"),
                        "expect": text("hash that the file must have, or an empty text when there must be none")
                    }),
                    &["path", "content"],
                ),
                writes: true,
            },
        ]
    }

    fn check(&self, settings: &Map<String, Value>) -> Result<(), ProviderSettingsError> {
        Ok(check_settings(settings)?)
    }

    async fn call(&self, call: &ResourceCall<'_>, tool: &str, arguments: &Value) -> Result<Value, OpError> {
        match tool {
            "list" => list(call, arguments).await,
            "read" => read(call, arguments).await,
            "write" => write(call, arguments).await,
            other => Err(OpError::NotFound(format!("files have no tool `{other}`"))),
        }
    }

    fn areas(&self, namespace: &str, recursive: bool) -> Vec<PurgeArea> {
        // A namespace may be the name of a file.
        let mut areas = vec![
            PurgeArea { prefix: record_prefix(namespace), counts: true },
            PurgeArea { prefix: content_prefix(namespace), counts: false },
        ];
        if recursive {
            areas.push(PurgeArea { prefix: prefix_below(namespace, false), counts: true });
            areas.push(PurgeArea { prefix: prefix_below(namespace, true), counts: false });
        }
        areas
    }
}

async fn list(call: &ResourceCall<'_>, arguments: &Value) -> Result<Value, OpError> {
    call.note_reads().await?;
    let held = call.access.held;
    let wanted = arguments["prefix"].as_str().unwrap_or_default().trim_end_matches('/');
    let full = if wanted.is_empty() { None } else { Some(folder(call, wanted)?) };
    let mut found: Vec<File> = Vec::new();
    for namespace in held.with_ability(Ability::Read) {
        let place = full.as_deref().unwrap_or(namespace);
        for file in call.access.workspace.documents::<File>(&prefix_below(place, false), FILES_LISTED + 1).await? {
            if held.allows(Ability::Read, &file.path) && !found.contains(&file) {
                found.push(file);
            }
        }
        if full.is_some() {
            break;
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    let more = found.len() > FILES_LISTED;
    found.truncate(FILES_LISTED);
    let mut answer = json!({"files": found.iter().map(to_json).collect::<Vec<_>>()});
    if more {
        answer["more"] = "there are more; name a `prefix`".into();
    }
    Ok(answer)
}

/// Returns the full name of a granted namespace or of a folder below one.
fn folder(call: &ResourceCall<'_>, wanted: &str) -> Result<String, OpError> {
    let held = call.access.held;
    let bare = wanted.strip_prefix("r/").unwrap_or(wanted);
    if held.with_ability(Ability::Read).iter().any(|namespace| namespace == bare) {
        return Ok(bare.to_owned());
    }
    full_name(held, call.name, Ability::Read, wanted).map_err(|error| denial(&error))
}

fn denial(error: &NamespaceError) -> OpError {
    OpError::Denied(error.to_string())
}

async fn read(call: &ResourceCall<'_>, arguments: &Value) -> Result<Value, OpError> {
    let asked = arguments["path"].as_str().unwrap_or_default();
    let path = full_name(call.access.held, call.name, Ability::Read, asked).map_err(|error| denial(&error))?;
    call.note_use(Ability::Read, &path).await;
    let missing = || OpError::NotFound(format!("no file `{path}`"));
    let file: File = call.access.workspace.document(&record_key(&path)).await?.ok_or_else(missing)?;
    let text: String =
        call.access.workspace.document(&rules::content_key(&path, &file.hash)).await?.ok_or_else(missing)?;
    let number = |key: &str| arguments[key].as_u64().map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    Ok(range(&file, &text, number("offset").unwrap_or(0), number("length")))
}

async fn write(call: &ResourceCall<'_>, arguments: &Value) -> Result<Value, OpError> {
    let asked = arguments["path"].as_str().unwrap_or_default();
    let path = full_name(call.access.held, call.name, Ability::Write, asked).map_err(|error| denial(&error))?;
    call.note_use(Ability::Write, &path).await;
    let write = WriteFile {
        path,
        text: arguments["content"].as_str().unwrap_or_default().to_owned(),
        expect: arguments["expect"].as_str().map(str::to_owned),
        by: call.source.agent.clone(),
        now: call.access.now,
    };
    Ok(call.access.workspace.change(call.index, Arc::new(write)).await?)
}

struct WriteFile {
    path: String,
    text: String,
    expect: Option<String>,
    by: String,
    now: Millis,
}

#[async_trait]
impl DocChange for WriteFile {
    async fn make(&self, docs: &mut Docs<'_>) -> Result<Value, WorkspaceError> {
        let Self { path, text, expect, by, now } = self;
        let there: Option<File> = docs.get(&record_key(path)).await?;
        let new = rules::new_record(path, text, expect.as_deref(), there.as_ref(), by, *now);
        let new = new.map_err(|error| WorkspaceError::Refused(error.to_string()))?;
        if let Some(old) = there.as_ref().filter(|old| old.hash != new.hash) {
            docs.delete(&rules::content_key(path, &old.hash)).await?;
        }
        docs.put(&rules::content_key(path, &hash(text)), text).await?;
        docs.put(&record_key(path), &new).await?;
        Ok(json!({"path": path, "hash": new.hash, "bytes": new.bytes, "existed": there.is_some()}))
    }
}
