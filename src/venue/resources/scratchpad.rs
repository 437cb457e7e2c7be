//! Scratchpad: buckets of a request, which prompts show and to which agents add their outputs.

use super::PurgeArea;
use crate::domain::context::item::{HandOffTags, ItemContent, PromptItem, Section};
use crate::domain::ids::{JobId, Owner};
use crate::domain::limits::{BUCKET_KEPT, BUCKET_SHOWN, INPUT_BYTES};
use crate::domain::origin::Origin;
use crate::domain::resource::scratchpad::{KIND, Note, context, key};
use crate::domain::resource::{namespace_prefix, prefix_below};
use crate::store::{Store, StoreError, decode};
use crate::venue::workspace::{self, DocChange, Docs, Workspace, WorkspaceError};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;

/// Call index of the notes among the writes of a turn, which no call of a reply has.
pub const NOTES: u32 = workspace::OWN_WRITES + 2;

/// Returns the buckets of a request as sections of its prompt.
pub async fn context_items(
    store: &dyn Store,
    owner: &Owner,
    buckets: &[String],
) -> Result<Vec<PromptItem>, StoreError> {
    let mut items = Vec::with_capacity(buckets.len());
    for bucket in buckets {
        let newest = store.scan(owner, &namespace_prefix(KIND, bucket), None, true, BUCKET_SHOWN).await?;
        let notes = newest.into_iter().rev().filter_map(|(key, doc)| Some(decode::<Note>(&key, &doc.value?)));
        let notes = notes.collect::<Result<Vec<_>, _>>()?;
        items.push(PromptItem {
            section: Section::Resource,
            key: format!("resource/{KIND}/{bucket}"),
            label: Some(format!("{KIND}/{bucket}")),
            source: Some(format!("r/{KIND}/{bucket}")),
            allowed: None,
            asked: None,
            priority: Section::Resource.priority(),
            required: false,
            unresolved: Vec::new(),
            tags: HandOffTags::default(),
            origin: Origin::default(),
            content: ItemContent::from_value(context(&notes).into(), INPUT_BYTES),
            attachments: Vec::new(),
        });
    }
    Ok(items)
}

/// Appends a task's output to the buckets of its request, with the turn's commit.
pub async fn append(workspace: &Workspace, buckets: &[String], job: &JobId, note: &Note) -> Result<(), WorkspaceError> {
    for bucket in buckets {
        let append = AppendNote { bucket: bucket.clone(), job: job.clone(), note: note.clone() };
        workspace.change(NOTES, Arc::new(append)).await?;
    }
    Ok(())
}

struct AppendNote {
    bucket: String,
    job: JobId,
    note: Note,
}

#[async_trait]
impl DocChange for AppendNote {
    async fn make(&self, docs: &mut Docs<'_>) -> Result<Value, WorkspaceError> {
        let Self { bucket, job, note } = self;
        let (count, oldest) = docs.count(&namespace_prefix(KIND, bucket)).await?;
        if let Some(oldest) = oldest.filter(|_| count >= BUCKET_KEPT) {
            docs.delete(&oldest).await?;
        }
        docs.put(&key(bucket, note.at, job), note).await?;
        Ok(json!({"bucket": bucket}))
    }
}

/// Returns the documents of the buckets that a namespace names, with `recursive` also of those below it.
pub fn areas(namespace: &str, recursive: bool) -> Vec<PurgeArea> {
    let area = |prefix| PurgeArea { prefix, counts: true };
    let below = recursive.then(|| prefix_below(KIND, namespace)).map(area);
    std::iter::once(area(namespace_prefix(KIND, namespace))).chain(below).collect()
}
