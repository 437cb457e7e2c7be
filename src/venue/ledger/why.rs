//! In which turns bytes of a path reached a model: as context, or as the result of a tool. What was
//! read says its record, which is written where it is read.

use super::answered::{AnsweredCall, answered_calls};
use super::trail::{ByteTrail, TRAIL_PLACES, TRAIL_USES, UseIndex};
use super::{walk, walk_agent};
use crate::domain::authority::{Authority, Capability};
use crate::domain::context::ledger::{Row, Status};
use crate::domain::context::record::manifest::{Base, WHOLE_EVERY};
use crate::domain::ids::{AgentId, JobId, Owner, SessionKey};
use crate::domain::origin::{Seen, physical};
use crate::domain::session::TurnRecord;
use crate::domain::time::Millis;
use crate::store::{DocWrite, Store, StoreError, keys};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// How an answer leaves a session.
pub const ANSWER: &str = "answer";
/// How what a caller from outside copied is listed.
pub const COPY: &str = "copy";

/// One way in which bytes of a path reached a model, or went on from there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PathUse {
    /// The agent; empty of a copy that a caller from outside made.
    pub agent: String,
    /// Its session.
    pub session: String,
    /// The turn; of a tool result the one that made the call: the model sees it from the next on.
    pub turn: u64,
    /// Key of the part, `tool <name>`, `answer` of a job that the turn ended, or `copy`.
    pub via: String,
    /// Path that was read.
    pub source: String,
    /// Version of the document that held it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Operation that read it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub through: String,
    /// Where its bytes went, when they were copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub into: Option<String>,
    /// Bytes in the prompt.
    pub bytes: usize,
    /// When the session, its agent or the copy was left without a record of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<Millis>,
}

impl PathUse {
    /// The reader may read what was read; of several sources, all.
    pub fn may_be_named_to(&self, reader: &Authority) -> bool {
        let may = |source: String| reader.is_unlimited() || reader.may_know(&read_of(source));
        self.sources().all(may)
    }

    /// The paths that were read, in full: `n/` and `c/` are those of its agent and its session.
    pub fn sources(&self) -> impl Iterator<Item = String> {
        self.source.split(", ").map(|source| physical(source, &self.agent, &self.session))
    }

    /// A copy that a caller from outside made.
    pub fn copy(seen: &Seen, at: Millis) -> Self {
        let Seen { path, version, through, allowed: _, into } = seen.clone();
        let (agent, session) = (String::new(), String::new());
        let via = COPY.to_owned();
        Self { agent, session, turn: 0, via, source: path, version, through, into, bytes: 0, removed: Some(at) }
    }
}

fn read_of(with: String) -> Capability {
    Capability { with, can: "crud/read".into() }
}

/// Reads of an owner's models that are recorded, at most [`TRAIL_USES`].
#[derive(Debug, Default)]
pub struct KnownUses {
    /// First what is kept of agents and sessions that were removed, then by agent and session, oldest first.
    uses: Vec<PathUse>,
    /// Whether the owner has more recorded reads than are loaded.
    is_cut: bool,
}

/// What is known of the way that the bytes of a path took.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Traced {
    /// Every use by which they reached a model, or went on.
    pub turns: Vec<PathUse>,
    /// What was not looked through, in words; empty where all was.
    pub incomplete: Vec<String>,
}

/// Places of paths that an experiment leaves out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TracedCopies {
    /// As the turn names them, by path.
    pub places: BTreeMap<String, Vec<String>>,
    /// What was not looked through, in words; empty where all was.
    pub incomplete: Vec<String>,
}

impl KnownUses {
    /// Of these agents, in this order, and then of removed ones, as far as there is room.
    pub async fn load(store: &dyn Store, owner: &Owner, agents: &[AgentId]) -> Result<Self, StoreError> {
        let mut found = UseList::new(TRAIL_USES);
        for agent in agents {
            collect(store, owner, agent, &mut found).await?;
        }
        let mut uses = UseList::new(TRAIL_USES.saturating_sub(found.uses.len()));
        load_kept(store, owner, &mut uses).await?;
        let is_cut = found.is_cut | uses.is_cut;
        found.uses.sort_by(|a, b| (&a.agent, &a.session, a.turn).cmp(&(&b.agent, &b.session, b.turn)));
        uses.uses.append(&mut found.uses);
        Ok(Self { uses: uses.uses, is_cut })
    }

    /// The uses by which bytes of a path, or of a copy of it, reached a model.
    pub fn trace(self, path: &str) -> Traced {
        let trail = UseIndex::new(&self.uses).trail(path);
        let incomplete = self.limit().chain(cut_trail(path, &trail)).collect();
        Traced { turns: trail.select(self.uses), incomplete }
    }

    /// The places where the bytes of paths went, as a turn of a session names them.
    pub fn copies(&self, paths: &[String], session: &SessionKey, turn: u64) -> TracedCopies {
        let index = UseIndex::new(&self.uses);
        let mut found = TracedCopies { incomplete: self.limit().collect(), ..TracedCopies::default() };
        for path in paths {
            let trail = index.trail(path);
            found.incomplete.extend(cut_trail(path, &trail));
            found.places.insert(path.clone(), trail.places_in(session, turn));
        }
        found
    }

    fn limit(&self) -> impl Iterator<Item = String> {
        let text = || {
            format!(
                "{TRAIL_USES} recorded reads were looked through, by agent, and there are more; with an `agent` its own \
                 come first"
            )
        };
        self.is_cut.then(text).into_iter()
    }
}

fn cut_trail(path: &str, trail: &ByteTrail) -> Option<String> {
    let text = || format!("copies of `{path}` were followed to {TRAIL_PLACES} places, and there are more");
    trail.is_cut().then(text)
}

/// Every turn in which bytes of a path, or of a copy of it, reached a model: first what is kept of agents and sessions
/// that were removed, then by agent and session, oldest first.
pub async fn trace(store: &dyn Store, owner: &Owner, agents: &[AgentId], path: &str) -> Result<Traced, StoreError> {
    let (known, path) = (KnownUses::load(store, owner, agents).await?, path.to_owned());
    follow(move || known.trace(&path)).await
}

/// Where the bytes of these paths went before a turn of a session.
pub async fn copies(
    store: &dyn Store,
    (owner, agents): (&Owner, &[AgentId]),
    paths: &[String],
    (session, turn): (&SessionKey, u64),
) -> Result<TracedCopies, StoreError> {
    let known = KnownUses::load(store, owner, agents).await?;
    let (paths, session) = (paths.to_vec(), session.clone());
    follow(move || known.copies(&paths, &session, turn)).await
}

/// Follows trails on a thread that serves nobody else: it can take seconds.
async fn follow<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, StoreError> {
    let stopped = |error: tokio::task::JoinError| StoreError::Unavailable {
        store: "ledger".to_owned(),
        reason: format!("a trail was not followed to its end: {error}"),
    };
    tokio::task::spawn_blocking(work).await.map_err(stopped)
}

/// Uses up to a number.
struct UseList {
    uses: Vec<PathUse>,
    most: usize,
    is_cut: bool,
}

impl UseList {
    const fn new(most: usize) -> Self {
        Self { uses: Vec::new(), most, is_cut: false }
    }

    /// Takes uses in; breaks when there is no room for all of them.
    fn extend(&mut self, uses: impl IntoIterator<Item = PathUse>) -> ControlFlow<()> {
        for reached in uses {
            if self.uses.len() >= self.most {
                self.is_cut = true;
                return ControlFlow::Break(());
            }
            self.uses.push(reached);
        }
        ControlFlow::Continue(())
    }
}

/// The same of one agent that there is, by what is known of it alone.
pub async fn why(store: &dyn Store, owner: &Owner, agent: &AgentId, path: &str) -> Result<Vec<PathUse>, StoreError> {
    let found = trace(store, owner, std::slice::from_ref(agent), path).await?;
    Ok(found.turns.into_iter().filter(|reached| reached.removed.is_none()).collect())
}

/// All that an agent's models have seen of any path.
pub async fn all(store: &dyn Store, owner: &Owner, agent: &AgentId) -> Result<Vec<PathUse>, StoreError> {
    let mut found = UseList::new(usize::MAX);
    collect(store, owner, agent, &mut found).await?;
    found.uses.sort_by(|a, b| (&a.session, a.turn).cmp(&(&b.session, b.turn)));
    Ok(found.uses)
}

/// Takes in what an agent's models have seen, as far as there is room.
async fn collect(store: &dyn Store, owner: &Owner, agent: &AgentId, found: &mut UseList) -> Result<(), StoreError> {
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
        results(store, owner, session, found).await?;
    }
    Ok(())
}

/// All that the models of one session have seen, which has this many turns.
pub async fn session_reads(
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
    results(store, owner, session, &mut found).await?;
    found.uses.sort_by_key(|reached| reached.turn);
    Ok(found.uses)
}

/// What a prompt had, by its record.
fn uses_in_prompt(owner: &Owner, session: &SessionKey, base: &Base) -> Vec<PathUse> {
    let rows = base.manifest.rows().filter_map(Result::ok);
    let mut found: Vec<PathUse> = rows.flat_map(|row| shown(session, base.turn, &row)).collect();
    for used in base.manifest.values().unwrap_or_default() {
        if let Some(path) = used.path(owner.user().as_str()) {
            let via = format!("placeholder {}", used.key);
            found.push(reached(session, base.turn, via, Seen::new(path), used.bytes));
        }
    }
    found
}

/// What a part of a prompt came from, and what an operation has read for it.
fn shown(session: &SessionKey, turn: u64, row: &Row) -> Vec<PathUse> {
    let Row { key, source, rendered, status, origin, .. } = row;
    let is_there = *rendered > 0 && matches!(status, Status::Full | Status::Shrunk) && key != "transcript";
    if !is_there {
        return Vec::new();
    }
    // Its configuration has the system prompt.
    let configured = (key == "system").then(|| format!("g/{}/config", session.agent));
    let own = source.iter().chain(&configured).flat_map(|source| source.split(", "));
    let own = own.map(|source| Seen { version: origin.version, ..Seen::new(source) });
    own.chain(origin.reads.iter().cloned()).map(|seen| reached(session, turn, key.clone(), seen, *rendered)).collect()
}

fn reached(session: &SessionKey, turn: u64, via: String, seen: Seen, bytes: usize) -> PathUse {
    let Seen { path, version, through, allowed: _, into } = seen;
    let (agent, session) = (session.agent.to_string(), session.session.to_string());
    PathUse { agent, session, turn, via, source: path, version, through, into, bytes, removed: None }
}

async fn results(
    store: &dyn Store,
    owner: &Owner,
    session: &SessionKey,
    found: &mut UseList,
) -> Result<(), StoreError> {
    let mut turns = store.docs(owner, keys::turns(session));
    while let Some(page) = turns.records::<TurnRecord>().await? {
        let calls = page.iter().flat_map(|(_, record)| called(session, record));
        let answers = page.iter().flat_map(|(_, record)| uses_of_answers(session, record));
        if found.extend(calls.chain(answers)).is_break() {
            break;
        }
    }
    Ok(())
}

/// Jobs that a turn has ended: what its session has seen went into their outputs.
fn uses_of_answers(session: &SessionKey, record: &TurnRecord) -> Vec<PathUse> {
    let answer = |job: &JobId| {
        let own = Seen::new(format!("g/{}/sessions/{}", session.agent, session.session));
        let seen = Seen { into: Some(format!("j/{job}/output")), ..own };
        reached(session, record.turn, ANSWER.to_owned(), seen, 0)
    };
    record.ended.iter().map(|(job, _)| answer(job)).collect()
}

fn called(session: &SessionKey, record: &TurnRecord) -> Vec<PathUse> {
    let of = |(name, text, seen): (&str, &str, Seen)| {
        // Of a copy the answer says no more than that it was made.
        let bytes = if seen.into.is_some() { 0 } else { text.len() };
        reached(session, record.turn, format!("tool {name}"), seen, bytes)
    };
    reads(record).into_iter().map(of).collect()
}

/// What the calls of a turn have read, each with the tool and what the model was answered.
fn reads(record: &TurnRecord) -> Vec<(&str, &str, Seen)> {
    let reads = |answered: AnsweredCall<'_>| answered.reads(record).into_owned();
    let answers = answered_calls(record).map(|answered| (answered.tool, answered.text, reads(answered)));
    answers.flat_map(|(tool, text, seen)| seen.into_iter().map(move |seen| (tool, text, seen))).collect()
}

/// What is kept of agents and sessions that were removed, of one agent or of all, and of copies from outside.
pub async fn removed(
    store: &dyn Store,
    owner: &Owner,
    agent: Option<&AgentId>,
    path: &str,
) -> Result<Vec<PathUse>, StoreError> {
    let mut found = UseList::new(TRAIL_USES);
    load_kept(store, owner, &mut found).await?;
    let known = KnownUses { uses: found.uses, is_cut: found.is_cut };
    let path = path.to_owned();
    let mut found = follow(move || known.trace(&path)).await?.turns;
    found.retain(|reached| agent.is_none_or(|agent| reached.agent == agent.as_str()));
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

/// Lines that one document keeps: about 100 KB.
const KEPT_PER_PAGE: usize = 500;

/// Such documents that one write makes.
pub const KEPT_PAGES: usize = 20;

/// Writes that keep what models have seen after its records are gone; `key` names the document of a number.
pub fn kept_writes(mut seen: Vec<PathUse>, at: Millis, key: impl Fn(usize) -> String) -> Vec<DocWrite> {
    for reached in &mut seen {
        reached.removed = Some(at);
    }
    let pages = seen.chunks(KEPT_PER_PAGE).enumerate();
    pages.map(|(number, page)| DocWrite::json(key(number), &page)).collect()
}

/// Writes such documents while `checks` hold. The first one comes last: where it is, all are.
pub async fn write_kept(
    store: &dyn Store,
    owner: &Owner,
    now: Millis,
    (pages, checks): (&[DocWrite], &[DocWrite]),
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

    fn record(reads: Option<Vec<Seen>>, arguments: Value) -> TurnRecord {
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
    fn what_was_read_counts_and_what_was_only_named_does_not() {
        let session = SessionKey { agent: "a".parse().unwrap(), session: "s".parse().unwrap() };
        let named = json!({"path": "w/x", "value": 1});
        let of = |record: &TurnRecord| {
            let found = called(&session, record).into_iter();
            found.map(|reached| (reached.source, reached.version, reached.bytes)).collect::<Vec<_>>()
        };
        assert_eq!(of(&record(Some(Vec::new()), named.clone())), []);
        let seen = Seen { version: Some(2), ..Seen::new("w/y") };
        assert_eq!(of(&record(Some(vec![seen.clone()]), named.clone())), [("w/y".to_owned(), Some(2), 5)]);
        let copied = Seen { into: Some("w/z".into()), ..seen };
        assert_eq!(of(&record(Some(vec![copied]), named.clone()))[0].2, 0);
        assert_eq!(of(&record(None, named)), [("w/x".to_owned(), None, 5)], "a record of before");
    }
}
