//! Turns in which bytes of a path reached a model, as context or as the result of a tool. Each read is recorded where
//! it happens.

use super::answered_calls::{AnsweredCall, answered_calls};
use super::trail::{ByteTrail, TRAIL_PLACES, TRAIL_USES, UseIndex};
use super::{walk, walk_agent};
use crate::domain::authority::{Authority, Capability};
use crate::domain::context::ledger::{Row, RowStatus};
use crate::domain::context::record::manifest::{BaseManifest, WHOLE_EVERY};
use crate::domain::ids::{AgentId, JobId, Owner, SessionKey};
use crate::domain::lattice::Path;
use crate::domain::origin::{SourceRead, full_path};
use crate::domain::session::TurnRecord;
use crate::domain::time::Millis;
use crate::store::{DocWrite, Store, StoreError, keys};
use crate::view::ledger::PathUseView;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// The `via` of an answer that leaves a session.
pub const ANSWER: &str = "answer";
/// The `via` of a copy that a caller outside turns made.
pub const COPY: &str = "copy";

/// A use of a path: one way in which its bytes reached a model, or went on from there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PathUse {
    /// Name of the agent; empty for a copy that a caller outside turns made.
    pub agent: String,
    /// Session of the agent.
    pub session: String,
    /// Number of the turn. For a tool result it is the turn of the call: the model sees the result from the next turn
    /// on.
    pub turn: u64,
    /// Key of the prompt's part, `tool <name>`, `answer` for a job that the turn ended, or `copy`.
    pub via: String,
    /// Path that was read.
    pub source: String,
    /// Version of the document at the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// SHA-256 of a value of the tree that is kept in parts with versions of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Operation that read the path.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub through: String,
    /// Path to which the bytes were copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub into: Option<String>,
    /// Bytes in the prompt.
    pub bytes: usize,
    /// When the session or agent was deleted, or the copy was made, so that no other record of the use is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<Millis>,
}

impl PathUse {
    /// Whether the reader may read what was read; all of it, if there are several sources.
    pub fn may_be_named_to(&self, reader: &Authority) -> bool {
        let may = |source: String| reader.is_unlimited() || reader.may_know(&read_capability(source));
        self.sources().all(may)
    }

    /// Returns the full paths that were read: `n/` and `c/` become those of the agent and the session.
    pub fn sources(&self) -> impl Iterator<Item = String> {
        self.source.split(", ").map(|source| full_path(source, &self.agent, &self.session))
    }

    /// Makes the use of a copy that a caller outside turns made.
    pub fn outside_copy(seen: &SourceRead, at: Millis) -> Self {
        let SourceRead { path, version, hash, through, allowed: _, into } = seen.clone();
        let (agent, session) = (String::new(), String::new());
        let via = COPY.to_owned();
        Self { agent, session, turn: 0, via, source: path, version, hash, through, into, bytes: 0, removed: Some(at) }
    }
}

impl From<PathUse> for PathUseView {
    fn from(path_use: PathUse) -> Self {
        let PathUse { agent, session, turn, via, source, version, hash, through, into, bytes, removed } = path_use;
        Self { agent, session, turn, via, source, version, hash, through, into, bytes, removed }
    }
}

fn read_capability(with: String) -> Capability {
    Capability { with, can: "crud/read".into() }
}

/// Recorded reads of an owner's models, at most [`TRAIL_USES`].
#[derive(Debug, Default)]
pub struct KnownUses {
    /// First those of deleted agents and sessions, then by agent and session, oldest first.
    uses: Vec<PathUse>,
    /// Whether the owner has more recorded reads than are loaded.
    is_cut: bool,
}

/// Result of tracing the bytes of a path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TraceResult {
    /// All uses by which the bytes reached a model or went on.
    pub turns: Vec<PathUse>,
    /// Parts that were not searched, a sentence each; empty if all were.
    pub incomplete: Vec<String>,
}

/// Copies of the paths that an experiment leaves out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CopyTrace {
    /// Places as the turn names them, by path.
    pub places: BTreeMap<String, Vec<String>>,
    /// Parts that were not searched, a sentence each; empty if all were.
    pub incomplete: Vec<String>,
}

impl KnownUses {
    /// Loads the uses of these agents in this order, and then those of deleted ones, up to the limit.
    pub async fn load(store: &dyn Store, owner: &Owner, agents: &[AgentId]) -> Result<Self, StoreError> {
        let mut found = UseList::new(TRAIL_USES);
        for agent in agents {
            collect_uses(store, owner, agent, &mut found).await?;
        }
        let mut uses = UseList::new(TRAIL_USES.saturating_sub(found.uses.len()));
        load_kept(store, owner, &mut uses).await?;
        let is_cut = found.is_cut | uses.is_cut;
        found.uses.sort_by(|a, b| (&a.agent, &a.session, a.turn).cmp(&(&b.agent, &b.session, b.turn)));
        uses.uses.append(&mut found.uses);
        Ok(Self { uses: uses.uses, is_cut })
    }

    /// Returns the uses by which bytes of a path, or of a copy of it, reached a model.
    pub fn trace(self, path: &str) -> TraceResult {
        let trail = UseIndex::new(&self.uses).trail(path);
        let incomplete = self.limit_note().chain(trail_limit_note(path, &trail)).collect();
        TraceResult { turns: trail.select(self.uses), incomplete }
    }

    /// Returns the places to which the bytes of these paths went, as a turn of a session names them.
    pub fn trace_copies(&self, paths: &[String], session: &SessionKey, turn: u64) -> CopyTrace {
        let index = UseIndex::new(&self.uses);
        let mut found = CopyTrace { incomplete: self.limit_note().collect(), ..CopyTrace::default() };
        for path in paths {
            let trail = index.trail(path);
            found.incomplete.extend(trail_limit_note(path, &trail));
            found.places.insert(path.clone(), trail.places_in(session, turn));
        }
        found
    }

    fn limit_note(&self) -> impl Iterator<Item = String> {
        let text = || {
            format!(
                "{TRAIL_USES} recorded reads were looked through, by agent, and there are more; with an `agent` its own \
                 come first"
            )
        };
        self.is_cut.then(text).into_iter()
    }
}

fn trail_limit_note(path: &str, trail: &ByteTrail) -> Option<String> {
    let text = || format!("copies of `{path}` were followed to {TRAIL_PLACES} places, and there are more");
    trail.is_cut().then(text)
}

/// Returns every use by which bytes of a path, or of a copy of it, reached a model: first those of deleted agents and
/// sessions, then by agent and session, oldest first.
pub async fn trace(
    store: &dyn Store,
    owner: &Owner,
    agents: &[AgentId],
    path: &str,
) -> Result<TraceResult, StoreError> {
    let (known, path) = (KnownUses::load(store, owner, agents).await?, path.to_owned());
    run_blocking(move || known.trace(&path)).await
}

/// Returns the places to which the bytes of these paths went before a turn of a session.
pub async fn trace_copies(
    store: &dyn Store,
    owner: &Owner,
    agents: &[AgentId],
    paths: &[String],
    session: &SessionKey,
    turn: u64,
) -> Result<CopyTrace, StoreError> {
    let known = KnownUses::load(store, owner, agents).await?;
    let (paths, session) = (paths.to_vec(), session.clone());
    run_blocking(move || known.trace_copies(&paths, &session, turn)).await
}

/// Computes trails on a thread for blocking work, because that can take seconds.
async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, StoreError> {
    let stopped = |error: tokio::task::JoinError| StoreError::Unavailable {
        store: "ledger".to_owned(),
        reason: format!("a trail was not followed to its end: {error}"),
    };
    tokio::task::spawn_blocking(work).await.map_err(stopped)
}

/// A bounded list of uses.
struct UseList {
    uses: Vec<PathUse>,
    most: usize,
    is_cut: bool,
}

impl UseList {
    const fn new(most: usize) -> Self {
        Self { uses: Vec::new(), most, is_cut: false }
    }

    /// Adds uses; breaks if there is no room for all of them.
    fn extend(&mut self, uses: impl IntoIterator<Item = PathUse>) -> ControlFlow<()> {
        for path_use in uses {
            if self.uses.len() >= self.most {
                self.is_cut = true;
                return ControlFlow::Break(());
            }
            self.uses.push(path_use);
        }
        ControlFlow::Continue(())
    }
}

/// Returns the uses of a path by one existing agent, as far as its own records show them.
pub async fn uses_of_agent(
    store: &dyn Store,
    owner: &Owner,
    agent: &AgentId,
    path: &str,
) -> Result<Vec<PathUse>, StoreError> {
    let found = trace(store, owner, std::slice::from_ref(agent), path).await?;
    Ok(found.turns.into_iter().filter(|path_use| path_use.removed.is_none()).collect())
}

/// Returns all uses of any path by an agent.
pub async fn all_uses(store: &dyn Store, owner: &Owner, agent: &AgentId) -> Result<Vec<PathUse>, StoreError> {
    let mut found = UseList::new(usize::MAX);
    collect_uses(store, owner, agent, &mut found).await?;
    found.uses.sort_by(|a, b| (&a.session, a.turn).cmp(&(&b.session, b.turn)));
    Ok(found.uses)
}

/// Adds all uses by an agent, up to the limit of the list.
async fn collect_uses(
    store: &dyn Store,
    owner: &Owner,
    agent: &AgentId,
    found: &mut UseList,
) -> Result<(), StoreError> {
    let mut sessions: Vec<SessionKey> = Vec::new();
    walk_agent(store, owner, agent, |session, base| {
        if sessions.last() != Some(session) {
            sessions.push(session.clone());
        }
        found.extend(uses_in_prompt(owner, session, base))
    })
    .await?;
    for session in &sessions {
        if found.is_cut {
            break;
        }
        collect_results(store, owner, session, found).await?;
    }
    Ok(())
}

/// Returns all uses by one session, which has this many turns.
pub async fn session_uses(
    store: &dyn Store,
    owner: &Owner,
    session: &SessionKey,
    turns: u64,
) -> Result<Vec<PathUse>, StoreError> {
    let mut found = UseList::new(usize::MAX);
    let mut from = 1;
    while from <= turns {
        let to = from + WHOLE_EVERY - 1;
        walk(store, owner, session, from, to, |base| found.uses.extend(uses_in_prompt(owner, session, base))).await?;
        from = to + 1;
    }
    collect_results(store, owner, session, &mut found).await?;
    found.uses.sort_by_key(|path_use| path_use.turn);
    Ok(found.uses)
}

/// Returns the uses of a prompt, by its manifest.
fn uses_in_prompt(owner: &Owner, session: &SessionKey, base: &BaseManifest) -> Vec<PathUse> {
    let rows = base.manifest.rows().filter_map(Result::ok);
    let mut found: Vec<PathUse> = rows.flat_map(|row| uses_of_row(session, base.turn, &row)).collect();
    for used in base.manifest.values().unwrap_or_default() {
        if let Some(path) = used.path(owner.user().as_str()) {
            let via = format!("placeholder {}", used.key);
            found.push(new_use(session, base.turn, via, SourceRead::new(path), used.bytes));
        }
    }
    found
}

/// Returns the uses of a part of a prompt: its sources, and what an operation has read for it.
fn uses_of_row(session: &SessionKey, turn: u64, row: &Row) -> Vec<PathUse> {
    let Row { key, source, rendered, status, origin, .. } = row;
    let is_there = *rendered > 0 && matches!(status, RowStatus::Full | RowStatus::Shrunk) && key != "transcript";
    if !is_there {
        return Vec::new();
    }
    // The system prompt is a part of the configuration.
    let configured = (key == "system").then(|| format!("g/{}/config", session.agent));
    let own = source.iter().chain(&configured).flat_map(|source| source.split(", "));
    let own = own.map(|source| {
        let hash = origin.hash.clone().filter(|_| origin.version.is_none() && is_tree_path(source));
        SourceRead { version: origin.version, hash, ..SourceRead::new(source) }
    });
    own.chain(origin.reads.iter().cloned()).map(|seen| new_use(session, turn, key.clone(), seen, *rendered)).collect()
}

/// Whether a source is one path of the owner's tree, the hash of whose value is known.
fn is_tree_path(source: &str) -> bool {
    Path::parse(source).is_ok_and(|path| path.namespace().is_writable())
}

fn new_use(session: &SessionKey, turn: u64, via: String, seen: SourceRead, bytes: usize) -> PathUse {
    let SourceRead { path, version, hash, through, allowed: _, into } = seen;
    let (agent, session) = (session.agent.to_string(), session.session.to_string());
    PathUse { agent, session, turn, via, source: path, version, hash, through, into, bytes, removed: None }
}

async fn collect_results(
    store: &dyn Store,
    owner: &Owner,
    session: &SessionKey,
    found: &mut UseList,
) -> Result<(), StoreError> {
    let mut turns = store.docs(owner, keys::turns(session));
    while let Some(page) = turns.records::<TurnRecord>().await? {
        let calls = page.iter().flat_map(|(_, record)| uses_of_calls(session, record));
        let answers = page.iter().flat_map(|(_, record)| uses_of_answers(session, record));
        if found.extend(calls.chain(answers)).is_break() {
            break;
        }
    }
    Ok(())
}

/// Returns the uses of jobs that a turn has ended: what its session has seen went into their outputs.
fn uses_of_answers(session: &SessionKey, record: &TurnRecord) -> Vec<PathUse> {
    let answer = |job: &JobId| {
        let own = SourceRead::new(format!("g/{}/sessions/{}", session.agent, session.session));
        let seen = SourceRead { into: Some(format!("j/{job}/output")), ..own };
        new_use(session, record.turn, ANSWER.to_owned(), seen, 0)
    };
    record.ended.iter().map(|(job, _)| answer(job)).collect()
}

fn uses_of_calls(session: &SessionKey, record: &TurnRecord) -> Vec<PathUse> {
    let of = |(name, text, seen): (&str, &str, SourceRead)| {
        // The answer of a copy shows no bytes of it.
        let bytes = if seen.into.is_some() { 0 } else { text.len() };
        new_use(session, record.turn, format!("tool {name}"), seen, bytes)
    };
    call_reads(record).into_iter().map(of).collect()
}

/// Returns what the calls of a turn have read, each with its tool and the answer to the model.
fn call_reads(record: &TurnRecord) -> Vec<(&str, &str, SourceRead)> {
    let reads = |answered: AnsweredCall<'_>| answered.reads(record).into_owned();
    let answers = answered_calls(record).map(|answered| (answered.tool, answered.text, reads(answered)));
    answers.flat_map(|(tool, text, seen)| seen.into_iter().map(move |seen| (tool, text, seen))).collect()
}

/// Returns the uses of a path by deleted agents and sessions, and by copies from outside; of one agent, or of all.
pub async fn removed_uses(
    store: &dyn Store,
    owner: &Owner,
    agent: Option<&AgentId>,
    path: &str,
) -> Result<Vec<PathUse>, StoreError> {
    let mut found = UseList::new(TRAIL_USES);
    load_kept(store, owner, &mut found).await?;
    let known = KnownUses { uses: found.uses, is_cut: found.is_cut };
    let path = path.to_owned();
    let mut found = run_blocking(move || known.trace(&path)).await?.turns;
    found.retain(|path_use| agent.is_none_or(|agent| path_use.agent == agent.as_str()));
    Ok(found)
}

async fn load_kept(store: &dyn Store, owner: &Owner, found: &mut UseList) -> Result<(), StoreError> {
    let mut pages = store.docs(owner, keys::READS);
    while let Some(page) = pages.records::<Vec<PathUse>>().await? {
        if found.extend(page.into_iter().flat_map(|(_, kept)| kept)).is_break() {
            break;
        }
    }
    Ok(())
}

/// Uses that one document holds: about 100 KB.
const KEPT_PER_PAGE: usize = 500;

/// Such documents that one write makes.
pub const KEPT_PAGES: usize = 20;

/// Returns the writes that keep uses after the records of their turns are gone; `key` returns the key of a numbered
/// document.
pub fn kept_writes(mut seen: Vec<PathUse>, at: Millis, key: impl Fn(usize) -> String) -> Vec<DocWrite> {
    for path_use in &mut seen {
        path_use.removed = Some(at);
    }
    let pages = seen.chunks(KEPT_PER_PAGE).enumerate();
    pages.map(|(number, page)| DocWrite::json(key(number), &page)).collect()
}

/// Writes such documents while `checks` hold. The first document is written last: if it exists, all do.
pub async fn write_kept(
    store: &dyn Store,
    owner: &Owner,
    now: Millis,
    pages: &[DocWrite],
    checks: &[DocWrite],
) -> Result<(), StoreError> {
    for pages in pages.rchunks(KEPT_PAGES) {
        store.write(now, owner, &[pages, checks].concat()).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::chat::{Arguments, ChatMessage, ToolCall};
    use crate::domain::session::CallRecord;
    use serde_json::{Value, json};

    fn record(reads: Option<Vec<SourceRead>>, arguments: Value) -> TurnRecord {
        let call = ToolCall { id: "c".into(), name: "t".into(), arguments: Arguments::Json(arguments) };
        let made = CallRecord {
            tool: "t".into(),
            operation: "v/ops/t".into(),
            outcome: "ok".into(),
            reads,
            ..CallRecord::default()
        };
        let said = vec![
            ChatMessage::assistant(String::new(), vec![call]),
            ChatMessage::Tool { call: "c".into(), name: "t".into(), text: "12345".into() },
        ];
        TurnRecord { turn: 3, said, calls: vec![made], ..TurnRecord::default() }
    }

    #[test]
    fn only_paths_that_were_read_count() {
        let session = SessionKey { agent: "a".parse().unwrap(), session: "s".parse().unwrap() };
        let named = json!({"path": "w/x", "value": 1});
        let of = |record: &TurnRecord| {
            let found = uses_of_calls(&session, record).into_iter();
            found.map(|path_use| (path_use.source, path_use.version, path_use.bytes)).collect::<Vec<_>>()
        };
        assert_eq!(of(&record(Some(Vec::new()), named.clone())), []);
        let seen = SourceRead { version: Some(2), ..SourceRead::new("w/y") };
        assert_eq!(of(&record(Some(vec![seen.clone()]), named.clone())), [("w/y".to_owned(), Some(2), 5)]);
        let copied = SourceRead { into: Some("w/z".into()), ..seen };
        assert_eq!(of(&record(Some(vec![copied]), named.clone()))[0].2, 0);
        assert_eq!(of(&record(None, named)), [("w/x".to_owned(), None, 5)], "a record of before");
    }
}
