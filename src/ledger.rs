//! The ledger as it is stored: which manifests make up a turn's record, and the parts they name.

use crate::domain::context::record::manifest::{Base, stretch};
use crate::domain::context::record::{Parts, Restored, read};
use crate::domain::ids::{Owner, SessionKey};
use crate::domain::session::TurnRecord;
use crate::store::{Store, StoreError, decode, keys};

/// A past turn: what it did, and what its model saw.
#[derive(Debug, Clone, PartialEq)]
pub struct PastTurn {
    /// Its number.
    pub turn: u64,
    /// What it did.
    pub record: Option<TurnRecord>,
    /// What its model saw; `None` of a turn that had no prompt.
    pub seen: Option<Restored>,
}

fn corrupt(key: &str, error: &impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt { store: "documents".into(), reason: format!("`{key}`: {error}") }
}

/// Reads the records of the turns `from` to `to` that have one, oldest first; the answer is the
/// last. `from` begins a stretch. A record that builds on one that is gone is left out.
pub async fn walk(
    store: &dyn Store,
    owner: &Owner,
    session: &SessionKey,
    from: u64,
    to: u64,
    mut each: impl FnMut(&Base),
) -> Result<Option<Base>, StoreError> {
    let prefix = keys::ledgers(session);
    let after = keys::ledger(session, from.saturating_sub(1));
    let limit = usize::try_from(to.saturating_sub(from) + 1).unwrap_or(usize::MAX);
    let mut last: Option<Base> = None;
    for (key, doc) in store.scan(owner, &prefix, Some(&after), false, limit).await? {
        let Some((_, turn)) = keys::ledger_turn(&session.agent, &key) else { continue };
        if turn > to {
            break;
        }
        let bytes = doc.value.unwrap_or_default();
        let text = std::str::from_utf8(&bytes).map_err(|error| corrupt(&key, &error))?;
        match Base::read(last.as_ref(), turn, text) {
            Ok(base) => {
                each(&base);
                last = Some(base);
            }
            Err(error) => tracing::warn!(%owner, key, %error, "a record of a prompt can't be read"),
        }
    }
    Ok(last)
}

/// One past turn; `None` when there is none of that number.
pub async fn load(
    store: &dyn Store,
    owner: &Owner,
    session: &SessionKey,
    turn: u64,
) -> Result<Option<PastTurn>, StoreError> {
    let key = keys::turn(session, turn);
    let record = store.read(owner, std::slice::from_ref(&key)).await?.pop().and_then(|doc| doc.value);
    let record = record.map(|bytes| decode(&key, &bytes)).transpose()?;
    let base = walk(store, owner, session, stretch(turn), turn, |_| ()).await?;
    let seen = match base.filter(|base| base.turn == turn) {
        Some(base) => Some(restore(store, owner, session, &base).await?),
        None => None,
    };
    Ok((record.is_some() || seen.is_some()).then_some(PastTurn { turn, record, seen }))
}

/// Reads everything that a record names.
pub async fn restore(
    store: &dyn Store,
    owner: &Owner,
    session: &SessionKey,
    base: &Base,
) -> Result<Restored, StoreError> {
    let manifest = &base.manifest;
    let damaged = |error| corrupt(&keys::ledger(session, base.turn), &error);
    let mut parts = Parts::new();
    fetch(store, owner, manifest.parts(), &mut parts).await?;
    let listed = crate::domain::context::record::manifest::Manifest::listed(&parts, manifest.lists());
    fetch(store, owner, listed, &mut parts).await?;
    let mut transcript = Vec::new();
    if let Some(span) = manifest.span().map_err(damaged)? {
        let (prefix, after) = (keys::turns(session), keys::turn(session, span.first.saturating_sub(1)));
        for (key, doc) in store.scan(owner, &prefix, Some(&after), false, span.count).await? {
            let Some(bytes) = doc.value else { continue };
            let record: TurnRecord = decode(&key, &bytes)?;
            if record.turn <= span.last {
                transcript.push(record);
            }
        }
    }
    read(&format!("{owner}/{session}/{}", base.turn), manifest, &parts, transcript).map_err(damaged)
}

/// Parts that one read asks for.
const PARTS_PER_READ: usize = 500;

async fn fetch(
    store: &dyn Store,
    owner: &Owner,
    names: impl IntoIterator<Item = crate::domain::context::record::part::PartName>,
    parts: &mut Parts,
) -> Result<(), StoreError> {
    let names: Vec<_> = names.into_iter().filter(|name| !parts.contains_key(name)).collect();
    for names in names.chunks(PARTS_PER_READ) {
        let keys: Vec<_> = names.iter().map(keys::part).collect();
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
