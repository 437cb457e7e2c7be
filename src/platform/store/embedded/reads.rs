//! Reads that bypass the writer, each from one durable state.

use super::docs;
use super::index::split_key;
use super::layout::{self, DocRecord, Space};
use super::mailbox::LoadedSession;
use super::view::{DurableState, StoreFault, View};
use crate::domain::decode;
use crate::domain::ids::{AgentId, Owner, SessionKey};
use crate::domain::limits::GRANT_EVENTS;
use crate::domain::time::Millis;
use crate::store::{Doc, DocKey, DocPage, MailboxEntry, SessionFacts, Window};
use bytes::Bytes;
use serde::de::IgnoredAny;
use serde_json::Value;
use std::ops::ControlFlow;

fn continue_below<T>(found: &[T], limit: usize) -> ControlFlow<()> {
    if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

fn after_key(key: &[u8]) -> Vec<u8> {
    [key, b"\0"].concat()
}

/// Implements [`crate::store::DocumentStore::read`] on a durable state.
pub(super) fn read(state: &DurableState, owner: &Owner, keys: &[DocKey]) -> Result<Vec<Doc>, StoreFault> {
    let owner = owner.token();
    keys.iter().map(|key| docs::get(state, &owner, key)).collect()
}

/// Arguments of [`crate::store::DocumentStore::scan`].
pub(super) struct Scan {
    /// Prefix of the keys.
    pub(super) prefix: String,
    /// Last key of the previous page.
    pub(super) after: Option<String>,
    /// Whether the order is reversed.
    pub(super) reverse: bool,
    /// Documents per page.
    pub(super) limit: usize,
}

/// Implements [`crate::store::DocumentStore::scan`] on a durable state.
pub(super) fn scan(state: &DurableState, owner: &Owner, scan: &Scan) -> Result<Vec<(DocKey, Doc)>, StoreFault> {
    if scan.limit == 0 {
        return Ok(Vec::new());
    }
    let owner = owner.token();
    let skip = owner.len() + 1;
    let prefix = layout::doc(&owner, &scan.prefix);
    let (mut from, mut to) = (prefix.clone(), layout::prefix_end(&prefix));
    if let Some(after) = &scan.after {
        let after = layout::doc(&owner, after);
        if scan.reverse {
            to = to.min(after);
        } else {
            from = from.max(after_key(&after));
        }
    }
    let mut found = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        let key = String::from_utf8_lossy(&key[skip..]).into_owned();
        if let Some(doc) = docs::decode_present(&key, value) {
            found.push((key, doc));
        }
        Ok(continue_below(&found, scan.limit))
    };
    if scan.reverse {
        state.walk_back(Space::Docs, &from, &to, &mut visit)?;
    } else {
        state.walk(Space::Docs, &from, &to, &mut visit)?;
    }
    Ok(found)
}

/// Implements [`crate::store::DocumentStore::page`]; visits the keys of the whole prefix.
pub(super) fn page(state: &DurableState, owner: &Owner, prefix: &str, window: Window) -> Result<DocPage, StoreFault> {
    let owner = owner.token();
    let begin = owner.len() + 1;
    let from = layout::doc(&owner, prefix);
    let to = layout::prefix_end(&from);
    let mut page = DocPage::default();
    let wanted = window.skip..window.skip.saturating_add(window.limit);
    let mut visit = |key: &[u8], value: &[u8]| {
        if !DocRecord::is_present(value) {
            return Ok(ControlFlow::Continue(()));
        }
        if wanted.contains(&page.total) {
            let key = String::from_utf8_lossy(&key[begin..]).into_owned();
            let doc =
                if window.values { docs::decode_present(&key, value).unwrap_or_default() } else { Doc::default() };
            page.docs.push((key, doc));
        }
        page.total += 1;
        Ok(ControlFlow::Continue(()))
    };
    if window.reverse {
        state.walk_back(Space::Docs, &from, &to, &mut visit)?;
    } else {
        state.walk(Space::Docs, &from, &to, &mut visit)?;
    }
    Ok(page)
}

/// Implements [`crate::store::StoreInspection::owners`]; the order is that of tokens.
pub(super) fn owners(state: &DurableState, after: Option<&Owner>, limit: usize) -> Result<Vec<Owner>, StoreFault> {
    let mut found = Vec::new();
    if limit == 0 {
        return Ok(found);
    }
    let from = after.map_or_else(|| layout::owner(""), |owner| after_key(&layout::owner(&owner.token())));
    state.walk(Space::Core, &from, &layout::prefix_end(&layout::owner("")), &mut |key, _| {
        let token = String::from_utf8_lossy(&key[1..]);
        found.push(Owner::from_token(&token).map_err(|e| StoreFault::Record(e.to_string()))?);
        Ok(continue_below(&found, limit))
    })?;
    Ok(found)
}

/// Implements [`crate::store::StoreInspection::sessions`]; the order is that of tokens.
pub(super) fn sessions(
    state: &DurableState,
    owner: &Owner,
    agent: Option<&AgentId>,
    after: Option<&SessionKey>,
    limit: usize,
) -> Result<Vec<SessionFacts>, StoreFault> {
    let mut keys = Vec::new();
    if limit == 0 {
        return Ok(Vec::new());
    }
    let token = owner.token();
    let prefix = layout::session(&token, &agent.map(|a| format!("{}/", a.token())).unwrap_or_default());
    let after = after.map(|key| after_key(&layout::session(&token, &key.token()))).unwrap_or_default();
    state.walk(Space::Core, &prefix.clone().max(after), &layout::prefix_end(&prefix), &mut |key, _| {
        // A key that names no session is skipped.
        let named = split_key(key).ok().and_then(|(_, session)| SessionKey::from_token(&session).ok());
        keys.extend(named);
        Ok(continue_below(&keys, limit))
    })?;
    let each = keys.into_iter().map(|key| match facts(state, owner, &key) {
        // A damaged record keeps no other session from being listed.
        Err(StoreFault::Record(error)) => Ok(SessionFacts {
            damaged: vec![format!("its record can't be read: {error}")],
            unreadable: true,
            ..empty_facts(key)
        }),
        facts => facts,
    });
    each.collect()
}

/// Implements [`crate::store::StoreInspection::pending_events`] on a durable state.
pub(super) fn mail(state: &DurableState, owner: &Owner, key: &SessionKey) -> Result<Vec<MailboxEntry>, StoreFault> {
    let mail = LoadedSession::load(state, owner, key)?.first_events(state, GRANT_EVENTS as usize)?;
    Ok(mail.into_iter().map(|m| m.entry).collect())
}

/// Returns the facts of a session without a readable record.
const fn empty_facts(key: SessionKey) -> SessionFacts {
    SessionFacts {
        key,
        version: 0,
        epoch: 0,
        lease_until: None,
        lease_worker: None,
        due: None,
        touched: Millis(0),
        arrivals: 0,
        consumed: 0,
        mailbox: Vec::new(),
        state: None,
        damaged: Vec::new(),
        unreadable: false,
    }
}

fn facts(state: &DurableState, owner: &Owner, key: &SessionKey) -> Result<SessionFacts, StoreFault> {
    let loaded = LoadedSession::load(state, owner, key)?;
    let (mailbox, damaged) = loaded.all_entries(state)?;
    let mailbox = mailbox.into_iter().map(|m| m.entry).collect();
    let damaged = damaged.iter().map(|place| format!("the event `{}` of its mailbox", place.escape_debug()));
    let mut damaged: Vec<_> = damaged.collect();
    damaged.extend(turn_damage(state, &loaded)?);
    let left = match loaded.record.version {
        0 => None,
        _ => state.get(Space::Core, &loaded.part(layout::STATE))?.map(|bytes| Bytes::copy_from_slice(&bytes)),
    };
    Ok(SessionFacts {
        key: key.clone(),
        version: loaded.record.version,
        epoch: loaded.record.epoch,
        lease_until: loaded.record.lease.as_ref().map(|l| l.until),
        lease_worker: loaded.record.lease.as_ref().map(|l| l.worker.clone()),
        due: loaded.record.due,
        touched: loaded.record.touched,
        arrivals: loaded.record.arrivals,
        consumed: loaded.record.consumed,
        mailbox,
        state: left,
        damaged,
        unreadable: false,
    })
}

/// Returns what is damaged of the checkpoint of a session, in words.
fn turn_damage(state: &DurableState, loaded: &LoadedSession) -> Result<Vec<String>, StoreFault> {
    let mut damaged = Vec::new();
    if !loaded.record.checkpointed {
        return Ok(damaged);
    }
    let is_readable = |bytes: &[u8]| decode::read_stored::<IgnoredAny>(bytes).is_ok();
    let reply = state.get(Space::Core, &loaded.part(layout::REPLY))?;
    if reply.as_ref().is_some_and(|reply| !is_readable(reply)) {
        damaged.push("the reply that was recorded for its next turn is damaged".to_owned());
    }
    let (prefix, mut is_any) = (loaded.part(layout::CALLS), false);
    state.walk(Space::Core, &prefix, &layout::prefix_end(&prefix), &mut |key, record| {
        // The last index is of calls that failed before there was a reply.
        is_any |= key.get(prefix.len()..) != Some(&u32::MAX.to_be_bytes());
        if !is_readable(record) {
            damaged.push("the record of a call of its next turn is damaged".to_owned());
        }
        Ok(ControlFlow::Continue(()))
    })?;
    if is_any && reply.is_none() && !awaits_people(state, loaded)? {
        damaged.push("the reply that was recorded for its next turn is gone".to_owned());
    }
    Ok(damaged)
}

/// Whether the calls of a session wait for people, with the reply that was committed.
fn awaits_people(state: &DurableState, loaded: &LoadedSession) -> Result<bool, StoreFault> {
    let left = state.get(Space::Core, &loaded.part(layout::STATE))?;
    let left = left.and_then(|bytes| decode::read_stored::<Value>(&bytes).ok());
    Ok(left.is_some_and(|left| left.get("awaiting").is_some_and(|awaiting| !awaiting.is_null())))
}
