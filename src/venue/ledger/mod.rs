//! The ledger as it is stored: the manifests that make up a turn's record, and the parts they name.

mod answered_calls;
mod configure;
pub mod experiment;
pub mod turn_list;
mod replace;
#[cfg(test)]
mod samples_tests;
pub mod prompt_detail;
pub mod show;
pub mod trail;
pub mod path_uses;
mod leave_out;

use crate::domain::authority::Authority;
use crate::domain::context::inputs::Inputs;
use crate::domain::context::record::manifest::{BaseManifest, Manifest, stretch_start};
use crate::domain::context::record::part::PartName;
use crate::domain::context::record::period::Period;
use crate::domain::context::record::{PartContents, RestoredRecord, read};
use crate::domain::context::sight::{Sight, turn_sights};
use crate::domain::ids::{AgentId, Owner, SessionId, SessionKey, decode_token};
use crate::domain::session::TurnRecord;
use crate::store::{DocKey, Store, StoreError, Window, corrupt, decode, decode_listed, keys, steps};
use std::ops::ControlFlow;
use std::sync::Arc;

/// A past turn with its record and its prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct PastTurn {
    /// Number of the turn.
    pub turn: u64,
    /// The stored record of the turn.
    pub record: Option<TurnRecord>,
    /// The restored prompt; `None` if the turn had none.
    pub seen: Option<RestoredRecord>,
    /// Whether the reader may not see the turn.
    pub hidden: bool,
}

/// Reads the records of prompts of the turns `from` to `to`, oldest first, and returns the last. `from` must begin a
/// stretch. A record that builds on a missing one is skipped.
pub async fn walk(
    store: &dyn Store,
    owner: &Owner,
    session: &SessionKey,
    from: u64,
    to: u64,
    mut each: impl FnMut(&BaseManifest),
) -> Result<Option<BaseManifest>, StoreError> {
    let prefix = keys::ledgers(session);
    let after = keys::ledger(session, from.saturating_sub(1));
    let limit = usize::try_from(to.saturating_sub(from) + 1).unwrap_or(usize::MAX);
    let mut last: Option<BaseManifest> = None;
    for (key, doc) in store.scan(owner, &prefix, Some(&after), false, limit).await? {
        let Some((_, turn)) = keys::ledger_turn(&session.agent, &key) else { continue };
        if turn > to {
            break;
        }
        let bytes = doc.value.unwrap_or_default();
        let text = std::str::from_utf8(&bytes).map_err(|error| corrupt(&key, &error))?;
        match BaseManifest::read(last.as_ref(), turn, text) {
            Ok(base) => {
                each(&base);
                last = Some(base);
            }
            Err(error) => tracing::warn!(%owner, key, %error, "a record of a prompt can't be read"),
        }
    }
    Ok(last)
}

impl PastTurn {
    /// Returns the turn as `reader` may see it.
    #[must_use]
    pub fn visible_to(self, reader: &Authority) -> Self {
        let under = match (&self.record, self.seen.as_ref().map(|seen| &seen.inputs)) {
            (Some(record), _) => record.call_authority().clone(),
            (None, Some(Ok(inputs))) => inputs.frame.authority.clone(),
            // Nothing says what authority the turn had.
            (None, Some(Err(_)) | None) => Authority::without_limits(),
        };
        if reader.covers_reading(&under) {
            return self;
        }
        Self { record: self.record.map(|record| record.visible_to(reader)), seen: None, hidden: true, ..self }
    }
}

/// Whether a reader may see a whole prompt, which includes what other turns said.
pub fn may_read(reader: &Authority, inputs: &Inputs) -> bool {
    let seen = turn_sights(&inputs.transcript, inputs.frame.viewer(), |_| true);
    let shown = inputs.transcript.iter().zip(seen).filter(|(_, sight)| *sight != Sight::Hidden);
    reader.covers_reading(&inputs.frame.authority)
        && shown.map(|(turn, _)| turn.call_authority()).all(|under| reader.covers_reading(under))
}

/// Loads one past turn; `None` if there is none of that number.
pub async fn load(
    store: &dyn Store,
    owner: &Owner,
    session: &SessionKey,
    turn: u64,
) -> Result<Option<PastTurn>, StoreError> {
    let record = store.get(owner, &keys::turn(session, turn)).await?;
    let base = walk(store, owner, session, stretch_start(turn), turn, |_| ()).await?;
    let seen = match base.filter(|base| base.turn == turn) {
        Some(base) => Some(restore(store, owner, session, &base).await?),
        None => None,
    };
    Ok((record.is_some() || seen.is_some()).then_some(PastTurn { turn, record, seen, hidden: false }))
}

/// Reads everything that a manifest names, and restores the inputs of the prompt.
pub async fn restore(
    store: &dyn Store,
    owner: &Owner,
    session: &SessionKey,
    base: &BaseManifest,
) -> Result<RestoredRecord, StoreError> {
    let BaseManifest { period, manifest, .. } = base;
    let damaged = |error| corrupt(&keys::ledger(session, base.turn), &error);
    let mut parts = PartContents::new();
    fetch_parts(store, owner, *period, manifest.parts(), &mut parts).await?;
    let listed = Manifest::listed_parts(&parts, manifest.list_parts());
    fetch_parts(store, owner, *period, listed, &mut parts).await?;
    let mut transcript = Vec::new();
    if let Some(span) = manifest.span().map_err(damaged)? {
        let (prefix, after) = (keys::turns(session), keys::turn(session, span.first.saturating_sub(1)));
        for (key, doc) in store.scan(owner, &prefix, Some(&after), false, span.count).await? {
            let Some(bytes) = doc.value else { continue };
            let record: TurnRecord = decode(&key, &bytes)?;
            // An erased record counts as missing: prompts don't show what it said.
            if record.turn <= span.last && !record.erased {
                transcript.push(Arc::new(record.into()));
            }
        }
    }
    read(&format!("{owner}/{session}/{}", base.turn), manifest, &parts, transcript).map_err(damaged)
}

/// Parts that one read fetches.
const PARTS_PER_READ: usize = 500;

/// Reads parts of a period into `parts`, unless they are there already; missing parts stay out.
pub(crate) async fn fetch_parts(
    store: &dyn Store,
    owner: &Owner,
    period: Period,
    names: impl IntoIterator<Item = PartName>,
    parts: &mut PartContents,
) -> Result<(), StoreError> {
    let names: Vec<_> = names.into_iter().filter(|name| !parts.contains_key(name)).collect();
    for names in names.chunks(PARTS_PER_READ) {
        let keys: Vec<_> = names.iter().map(|name| keys::part(period, name)).collect();
        let docs = store.read(owner, &keys).await?;
        for ((name, key), doc) in names.iter().zip(&keys).zip(docs) {
            if let Some(bytes) = doc.value {
                let text = std::str::from_utf8(&bytes).map_err(|error| corrupt(key, &error))?;
                parts.insert(name.clone(), text.to_owned());
            }
        }
    }
    Ok(())
}

/// Reads the records of an agent's prompts, by session, oldest first, until `each` breaks.
pub async fn walk_agent(
    store: &dyn Store,
    owner: &Owner,
    agent: &AgentId,
    mut each: impl FnMut(&SessionKey, &BaseManifest) -> ControlFlow<()>,
) -> Result<(), StoreError> {
    let prefix = keys::agent_ledgers(agent);
    let mut at: Option<(SessionKey, Option<BaseManifest>)> = None;
    let mut manifests = store.docs(owner, prefix);
    while let Some(page) = manifests.next().await? {
        for (key, doc) in &page {
            let Some((token, turn)) = keys::ledger_turn(agent, key) else { continue };
            let Some(id) = decode_token(token).and_then(|id| SessionId::new(id).ok()) else { continue };
            if at.as_ref().is_none_or(|(session, _)| session.session != id) {
                at = Some((SessionKey { agent: agent.clone(), session: id }, None));
            }
            let Some((session, last)) = &mut at else { continue };
            let bytes = doc.value.clone().unwrap_or_default();
            let text = std::str::from_utf8(&bytes).map_err(|error| corrupt(key, &error))?;
            if let Ok(base) = BaseManifest::read(last.as_ref(), turn, text) {
                if each(session, &base).is_break() {
                    return Ok(());
                }
                *last = Some(base);
            }
        }
    }
    Ok(())
}

/// Returns turn records of an agent, newest first, each with its session: of one session, or of all.
pub async fn list_turns(
    store: &dyn Store,
    owner: &Owner,
    agent: &AgentId,
    session: Option<&SessionKey>,
    limit: usize,
) -> Result<Vec<(SessionId, TurnRecord)>, StoreError> {
    let mut found = Vec::new();
    if let Some(session) = session {
        for (key, doc) in store.scan(owner, &keys::turns(session), None, true, limit).await? {
            let record = decode_listed(owner, &key, &doc.value.unwrap_or_default());
            found.extend(record.map(|record| (session.session.clone(), record)));
        }
        return Ok(found);
    }
    let window = Window { reverse: true, skip: 0, limit, values: false };
    let page = store.page(owner, &keys::timeline(agent), window).await?;
    let places: Vec<_> = page.docs.iter().filter_map(|(key, _)| keys::timeline_turn(agent, key)).collect();
    let records: Vec<_> = places.iter().map(|(_, key)| key.clone()).collect();
    for ((token, key), doc) in places.iter().zip(steps::read_listed(store, owner, &records).await?) {
        let session = decode_token(token).and_then(|id| SessionId::new(id).ok());
        if let (Some(session), Some(bytes)) = (session, doc.value) {
            found.extend(decode_listed(owner, key, &bytes).map(|record| (session, record)));
        }
    }
    Ok(found)
}

/// Returns the keys of a turn's record, its manifest and its entry in the timeline.
pub fn documents_of_turn(session: &SessionKey, key: &DocKey, record: Option<&TurnRecord>) -> Vec<DocKey> {
    let mut documents = vec![key.clone()];
    documents.extend(keys::number_of_turn(key).map(|turn| keys::ledger(session, turn)));
    documents.extend(record.map(|record| keys::timeline_entry(session, record.start, record.turn)));
    documents
}
