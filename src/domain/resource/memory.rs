//! Memory: entries by scope. A grant reads its own scope and those above, and writes its own and those below.

mod settings;

use super::{Ability, HeldNamespaces, NamespaceError, check_named, indent};
use crate::authority::capability::readable;
use crate::foreign::fit_name;
use crate::limits::{MEMORY_CONTENT_BYTES, MEMORY_TOPIC_BYTES, MEMORY_TOPICS};
use crate::time::Millis;
use crate::visible::check_line;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
pub use settings::{MemorySettings, MemorySettingsError, Preload, WritePolicy};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Kind of the resource, and first segment of its documents.
pub const KIND: &str = "memory";

/// Topic of entries that name none.
const GENERAL: &str = "general";

/// One entry of a memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryEntry {
    /// Id within the scope: the same for the same content.
    pub id: String,
    /// Namespace that the entry belongs to, without `r/`.
    pub scope: String,
    /// Key that the entry was put under; the next entry under it replaces this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Text of the entry.
    pub content: String,
    /// Topics of the entry; at least one.
    pub topics: Vec<String>,
    /// Kind of the content.
    #[serde(rename = "type")]
    pub kind: MemoryKind,
    /// Author of the entry.
    pub source: MemoryAuthor,
    /// Whether the entry is valid.
    pub status: MemoryStatus,
    /// Id of the entry that is valid instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<String>,
    /// Time of the first write.
    pub created: Millis,
    /// Time of the last change.
    pub updated: Millis,
    /// Tags from the configuration of the agent that wrote it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

/// Kind of an entry's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryKind {
    /// A statement about the world.
    #[default]
    Fact,
    /// A wish of a person.
    Preference,
    /// Something that happened once.
    Event,
    /// A summary of many entries.
    Summary,
    /// An experience of the agent.
    Episodic,
    /// General knowledge about a subject.
    Semantic,
    /// A description of how something is done.
    Procedural,
}

impl MemoryKind {
    /// Names of all kinds in tools.
    pub const NAMES: [&'static str; 7] =
        ["fact", "preference", "event", "summary", "episodic", "semantic", "procedural"];
}

/// Whether an entry is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryStatus {
    /// The entry is valid.
    Active,
    /// Another entry is valid instead.
    Superseded,
}

/// Author of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MemoryAuthor {
    /// Id of the agent.
    pub agent: String,
    /// Session of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Task that the session served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}

/// Why an entry can't be written or read as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// A topic is too long; holds its bytes.
    #[error("a topic has at most {MEMORY_TOPIC_BYTES} bytes in one line, got {0}")]
    LongTopic(usize),
    /// A topic breaks a rule of names.
    #[error("illegal topic {topic:?}: {rule}")]
    IllegalTopic {
        /// Topic of the entry.
        topic: String,
        /// Rule that it breaks.
        rule: &'static str,
    },
    /// The entry has too many topics; holds their number.
    #[error("an entry has at most {MEMORY_TOPICS} topics, got {0}")]
    TooManyTopics(usize),
    /// The content is blank.
    #[error("`content` is empty, say what is to be remembered")]
    NoContent,
    /// The content is too long; holds its bytes.
    #[error("`content` has {0} bytes, expected at most {MEMORY_CONTENT_BYTES}; write what is longer into a file")]
    LongContent(usize),
    /// The scope is illegal or may not be used.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The scope lies below a granted one, where the agent's policy forbids to write; holds the scope.
    #[error(
        "`scope`: `{}` lies below what is granted, and `writePolicy.descendants` of this memory is false",
        readable(.0)
    )]
    BelowGrant(String),
    /// The key is empty or too long; holds its bytes.
    #[error("`key`: expected 1 to {MEMORY_TOPIC_BYTES} bytes in one line, got {0}")]
    KeyLength(usize),
    /// The key breaks a rule of names.
    #[error("`key`: illegal name {key:?}: {rule}")]
    IllegalKey {
        /// Key of the entry.
        key: String,
        /// Rule that it breaks.
        rule: &'static str,
    },
}

/// Returns topics as they are stored: lower case, trimmed, each once, in their order; `general` if there are none.
pub fn normalise_topics(given: &[String]) -> Result<Vec<String>, MemoryError> {
    let mut kept: Vec<String> = Vec::new();
    for topic in given {
        let topic = topic.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        if topic.len() > MEMORY_TOPIC_BYTES {
            return Err(MemoryError::LongTopic(topic.len()));
        }
        check_line(&topic).map_err(|rule| MemoryError::IllegalTopic { topic: topic.clone(), rule })?;
        if !topic.is_empty() && !kept.contains(&topic) {
            kept.push(topic);
        }
    }
    if kept.len() > MEMORY_TOPICS {
        return Err(MemoryError::TooManyTopics(kept.len()));
    }
    Ok(if kept.is_empty() { vec![GENERAL.to_owned()] } else { kept })
}

/// Returns a content as it is stored, without space around it.
pub fn check_content(given: &str) -> Result<String, MemoryError> {
    let kept = given.trim();
    if kept.is_empty() {
        return Err(MemoryError::NoContent);
    }
    if kept.len() > MEMORY_CONTENT_BYTES {
        return Err(MemoryError::LongContent(kept.len()));
    }
    Ok(kept.to_owned())
}

/// Returns the scopes that can be read: the granted ones and all above them, the topmost first, and none below or
/// beside them.
pub fn readable_scopes(held: &HeldNamespaces) -> Vec<String> {
    let mut scopes: Vec<String> = Vec::new();
    for granted in held.with_ability(Ability::Read) {
        let ends = granted.match_indices('/').map(|(at, _)| at).chain([granted.len()]);
        let above = ends.filter(|end| *end > 0).map(|end| granted[..end].to_owned());
        scopes.extend(above.filter(|scope| held.is_in_branches(scope)));
    }
    scopes.sort();
    scopes.dedup();
    scopes
}

/// Returns the scope of a write: the named one, if it is granted or, where the agent's policy allows it, below a
/// granted one; without a name the only granted one.
pub fn write_scope(
    held: &HeldNamespaces,
    tool: &str,
    named: Option<&str>,
    policy: WritePolicy,
) -> Result<String, MemoryError> {
    let scope = match named {
        None => held.only_namespace(tool, Ability::Write, "scope")?,
        Some(named) => named.strip_prefix("r/").unwrap_or(named),
    };
    check_named("scope", scope)?;
    held.check(tool, Ability::Write, scope).map_err(NamespaceError::from)?;
    if !policy.descendants && !held.with_ability(Ability::Write).iter().any(|granted| granted == scope) {
        return Err(MemoryError::BelowGrant(scope.to_owned()));
    }
    Ok(scope.to_owned())
}

/// Conditions of a read or a search.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemoryQuery {
    /// Topics of which an entry has any; empty = all entries.
    pub topics: Vec<String>,
    /// Words that all occur in the content or the topics; lower case.
    pub words: Vec<String>,
    /// Kind of the entries.
    pub kind: Option<MemoryKind>,
    /// Tag of the entries.
    pub tag: Option<String>,
    /// Beginning of a topic; lower case.
    pub prefix: Option<String>,
}

impl MemoryQuery {
    fn takes(&self, entry: &MemoryEntry) -> bool {
        let text = || format!("{}\n{}", entry.content.to_lowercase(), entry.topics.join("\n"));
        entry.status == MemoryStatus::Active
            && (self.topics.is_empty() || self.topics.iter().any(|topic| entry.topics.contains(topic)))
            && self.kind.is_none_or(|kind| kind == entry.kind)
            && self.tag.as_ref().is_none_or(|tag| entry.tags.contains(tag))
            && self.prefix.as_deref().is_none_or(|prefix| entry.topics.iter().any(|topic| topic.starts_with(prefix)))
            && (self.words.is_empty() || {
                let text = text();
                self.words.iter().all(|word| text.contains(word))
            })
    }
}

/// Entries that match a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundEntries<'e> {
    /// The first entries, up to a limit.
    pub entries: Vec<&'e MemoryEntry>,
    /// Number of all entries that match.
    pub count: usize,
}

/// Returns at most `limit` of the valid entries that match, the last changed first.
pub fn select<'e>(
    entries: impl IntoIterator<Item = &'e MemoryEntry>,
    wanted: &MemoryQuery,
    limit: usize,
) -> FoundEntries<'e> {
    let mut entries: Vec<&MemoryEntry> = entries.into_iter().filter(|entry| wanted.takes(entry)).collect();
    entries.sort_by(|a, b| (b.updated, &b.scope, &b.id).cmp(&(a.updated, &a.scope, &a.id)));
    let count = entries.len();
    entries.truncate(limit);
    FoundEntries { entries, count }
}

/// Returns entries as a tool shows them.
pub fn entries_view(found: FoundEntries<'_>) -> Value {
    let FoundEntries { entries, count } = found;
    let more = count - entries.len();
    let mut shown = json!({"entries": entries.into_iter().map(entry_view).collect::<Vec<_>>()});
    if more > 0 {
        shown["more"] = more.into();
    }
    shown
}

/// Returns an entry as a tool shows it.
pub fn entry_view(entry: &MemoryEntry) -> Value {
    let mut shown = json!({
        "id": entry.id, "scope": entry.scope, "content": entry.content, "topics": entry.topics,
        "type": entry.kind, "created": entry.created.rfc3339(), "by": entry.source.agent,
    });
    if entry.updated != entry.created {
        shown["updated"] = entry.updated.rfc3339().into();
    }
    if let Some(key) = &entry.key {
        shown["key"] = key.as_str().into();
    }
    if !entry.tags.is_empty() {
        shown["tags"] = json!(entry.tags);
    }
    shown
}

/// Checks the key that an entry is put under, and returns it trimmed.
pub fn check_key(given: &str) -> Result<String, MemoryError> {
    let kept = given.trim();
    if kept.is_empty() || kept.len() > MEMORY_TOPIC_BYTES {
        return Err(MemoryError::KeyLength(kept.len()));
    }
    check_line(kept).map_err(|rule| MemoryError::IllegalKey { key: kept.to_owned(), rule })?;
    Ok(kept.to_owned())
}

/// Returns the entry that replaces another one under the same key: it keeps the time of the first write.
pub fn replace_entry(new: MemoryEntry, there: Option<&MemoryEntry>) -> MemoryEntry {
    MemoryEntry { created: there.map_or(new.created, |there| there.created), ..new }
}

/// Returns the entry of a key in the deepest scope: a deeper scope wins.
pub fn nearest<'e>(entries: impl IntoIterator<Item = &'e MemoryEntry>, key: &str) -> Option<&'e MemoryEntry> {
    let named =
        entries.into_iter().filter(|entry| entry.key.as_deref() == Some(key) && entry.status == MemoryStatus::Active);
    named.max_by_key(|entry| (entry.scope.split('/').count(), entry.updated))
}

/// Result of a write of a content that may exist already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryWrite {
    /// A valid entry with this content exists.
    Deduped,
    /// The entry is stored: new, or valid again.
    Put(Box<MemoryEntry>),
}

/// Applies the rule of writing: the same content in the same scope is the same entry.
pub fn merge_entry(new: MemoryEntry, there: Option<MemoryEntry>) -> MemoryWrite {
    match there {
        None => MemoryWrite::Put(Box::new(new)),
        Some(there) => match there.status {
            MemoryStatus::Active => MemoryWrite::Deduped,
            // The entry keeps its id and its age, because the same content was written before.
            MemoryStatus::Superseded => MemoryWrite::Put(Box::new(MemoryEntry {
                status: MemoryStatus::Active,
                superseded_by: None,
                updated: new.updated,
                topics: new.topics,
                kind: new.kind,
                ..there
            })),
        },
    }
}

/// Marks an entry as replaced by another one; its content stays.
pub fn supersede(old: MemoryEntry, by: &str, now: Millis) -> MemoryEntry {
    MemoryEntry { status: MemoryStatus::Superseded, superseded_by: Some(by.to_owned()), updated: now, ..old }
}

/// Returns the section of the context: the topics, and the preloaded entries. `None` if the settings want neither.
pub fn context(entries: &[MemoryEntry], settings: &MemorySettings, read: &str) -> Option<String> {
    let mut parts = Vec::new();
    if settings.auto_scan {
        parts.push(scan(entries));
    }
    parts.extend(preload(entries, &settings.preload, read));
    (!parts.is_empty()).then(|| parts.join("\n\n"))
}

fn scan(entries: &[MemoryEntry]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.status == MemoryStatus::Active) {
        for topic in &entry.topics {
            *counts.entry(topic).or_default() += 1;
        }
    }
    if counts.is_empty() {
        return "Memory topics: none.".to_owned();
    }
    let mut text = "Memory topics visible to this run:".to_owned();
    for (topic, count) in counts {
        let _ = write!(text, "\n- {} ({count})", fit_name(topic));
    }
    text
}

fn preload(entries: &[MemoryEntry], preload: &Preload, read: &str) -> Option<String> {
    if preload.is_none() {
        return None;
    }
    let topics = if preload.all { Vec::new() } else { preload.topics.clone() };
    let wanted = MemoryQuery { topics, ..MemoryQuery::default() };
    let of_kind = |entry: &&MemoryEntry| preload.kinds.is_empty() || preload.kinds.contains(&entry.kind);
    let FoundEntries { entries: found, count } = select(entries.iter().filter(of_kind), &wanted, preload.limit());
    let mut lines: Vec<String> = Vec::new();
    let mut left = preload.chars();
    for entry in &found {
        let line = format!("- [{}] {}", fit_name(&entry.topics.join(", ")), indent(&entry.content));
        let length = line.chars().count() + usize::from(!lines.is_empty());
        let Some(rest) = left.checked_sub(length) else {
            // A single entry that is too long is shown in part.
            if lines.is_empty() && left > LEAST_CHARS {
                let cut: String = line.chars().take(left - CUT_MARK.len()).collect();
                lines.push(cut + CUT_MARK);
            }
            break;
        };
        left = rest;
        lines.push(line);
    }
    if lines.is_empty() {
        return None;
    }
    let more = count - lines.len();
    if more > 0 {
        lines.push(format!("... {more} more entries not shown; use {read}."));
    }
    Some(format!("Preloaded memory entries (most recent first):\n{}", lines.join("\n")))
}

/// Mark behind the beginning of an entry.
const CUT_MARK: &str = "...";
/// Characters of an entry below which nothing of it is shown.
const LEAST_CHARS: usize = 20;

#[cfg(test)]
mod tests;
