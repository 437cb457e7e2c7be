//! What a turn must fetch for its prompt: entries of the agent, and loads.

use super::item::{HandOffTags, Section, StoredBy};
use crate::agent::AgentState;
use crate::agent::entry::{ContextEntry, ContextEntryError, EntrySource};
use crate::lattice::{Path, PathError};
use crate::load::Load;

/// Reason why a piece of context has no source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContextReadError {
    /// The entry is refused.
    #[error(transparent)]
    Entry(#[from] ContextEntryError),
    /// The path of the load is illegal.
    #[error(transparent)]
    Load(#[from] PathError),
}

/// One piece of context that a turn must fetch.
#[derive(Debug, Clone, PartialEq)]
pub struct ContextRead {
    /// Section that it belongs to.
    pub section: Section,
    /// Key in the ledger, `context/<label>` or `loads/<path>`.
    pub key: String,
    /// Heading in the prompt.
    pub label: Option<String>,
    /// Source to fetch from, or the reason why there is none.
    pub source: Result<EntrySource, ContextReadError>,
    /// Bytes asked for.
    pub asked: Option<usize>,
    /// Priority; parts with higher ones get their bytes first.
    pub priority: i32,
    /// The turn fails without it.
    pub required: bool,
    /// Tags that count when it is handed on.
    pub tags: HandOffTags,
}

/// Returns what is to be fetched: the entries in their order, then the loads; an inner load replaces an outer one of
/// the same path. `loads` goes from the outermost level to the innermost.
pub fn plan_reads<'a>(entries: impl IntoIterator<Item = &'a ContextEntry>, loads: &[&[Load]]) -> Vec<ContextRead> {
    let mut reads: Vec<ContextRead> =
        entries.into_iter().enumerate().map(|(at, entry)| entry_read(at, entry)).collect();
    for (level, list) in loads.iter().enumerate() {
        for load in *list {
            let inner = loads[level + 1..].iter().any(|inner| inner.iter().any(|other| other.path == load.path));
            if !inner {
                reads.push(load_read(load));
            }
        }
    }
    reads
}

/// Returns the [`plan_reads`] of an agent: its configured entries, its stored ones, its loads and those of its session.
pub fn plan_agent_reads(config: &[ContextEntry], state: &AgentState, session: &[Load]) -> Vec<ContextRead> {
    let mut reads = plan_reads(config.iter().chain(&state.context), &[&state.loads, session]);
    let entries = config.len() + state.context.len();
    for read in &mut reads[config.len()..entries] {
        read.tags.kept = Some(StoredBy::Agent);
    }
    for read in &mut reads[entries..] {
        let own = session.iter().any(|load| read.key == format!("loads/{}", load.path));
        read.tags.kept = Some(if own { StoredBy::Session } else { StoredBy::Agent });
    }
    reads
}

fn entry_read(at: usize, entry: &ContextEntry) -> ContextRead {
    let mut label = entry.label();
    let (asked, priority, required) = entry.options();
    let mut key = format!("context/{}", label.clone().unwrap_or_else(|| (at + 1).to_string()));
    let priority = priority.unwrap_or(Section::Context.priority());
    let instance = entry.instance().map(str::to_owned);
    if let Some(instance) = &instance {
        key = format!("{key}@{instance}");
        label = Some(
            label.map_or_else(|| format!("instance {instance}"), |label| format!("{label} (instance {instance})")),
        );
    }
    let tags = HandOffTags { instance, ..HandOffTags::default() };
    let source = entry.source().map_err(ContextReadError::Entry);
    ContextRead { section: Section::Context, key, label, source, asked, priority, required, tags }
}

fn load_read(load: &Load) -> ContextRead {
    ContextRead {
        section: Section::Loads,
        key: format!("loads/{}", load.path),
        label: Some(load.label.clone().unwrap_or_else(|| load.path.clone())),
        source: Path::parse(&load.path).map(EntrySource::Path).map_err(ContextReadError::Load),
        asked: Some(load.budget),
        priority: Section::Loads.priority(),
        required: false,
        tags: HandOffTags::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn entry(value: Value) -> ContextEntry {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn inner_loads_shadow_outer_ones_of_the_same_path() {
        let load = |path: &str, budget| Load::new(&Path::parse(path).unwrap(), None, budget).unwrap();
        let agent = [load("w/a", Some(300)), load("w/b", None)];
        let session = [load("w/a", Some(99_999))];
        let reads = plan_reads(&[entry(json!({"text": "t"}))], &[&agent, &session]);
        let shown: Vec<_> = reads.iter().map(|read| (read.key.as_str(), read.asked)).collect();
        assert_eq!(shown, [("context/1", None), ("loads/w/b", Some(500)), ("loads/w/a", Some(10_000))]);
        assert_eq!(load("w/a", Some(0)).budget, 256);
    }
}
