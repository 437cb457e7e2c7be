//! Parts of prompts that are no longer kept: of each period that is over, those that no turn names any more.
//!
//! Nobody writes to such a period, and what its turns name is found by the turns: so nothing is counted when parts are
//! stored, and none goes that is needed. Its turns are those of each agent's timeline that started in it, or in the next.

use super::Batch;
use crate::domain::context::record::Parts;
use crate::domain::context::record::manifest::{Base, Manifest, stretch};
use crate::domain::context::record::part::PartName;
use crate::domain::context::record::period::Period;
use crate::domain::ids::{AgentId, Owner, SessionId, SessionKey, decode_token};
use crate::domain::time::Millis;
use crate::store::{DocWrite, StoreError, keys};
use crate::venue::Venue;
use crate::venue::agents;
use crate::venue::ledger::{fetch, walk};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

/// A period that still has turns is looked through again after so long.
const AGAIN: Duration = Duration::from_hours(24);
/// Names that are held in memory at a time: some 20 MB.
const NAMES: usize = 200_000;
/// Parts, and places in a timeline, that one read takes.
const PAGE: usize = 500;

/// Looks through the first period behind `after` that is over, if it is due. How many parts went, and where the next
/// step begins; `None` = at the beginning.
pub(super) async fn step(
    venue: &Venue,
    owner: &Owner,
    turns_kept: Option<Duration>,
    after: Option<Period>,
) -> Result<(Option<Period>, u64), StoreError> {
    let Some(turns_kept) = turns_kept else { return Ok((None, 0)) };
    let Some(period) = first(venue, owner, after).await?.filter(|period| period.is_over(turns_kept, venue.now()))
    else {
        return Ok((None, 0));
    };
    let mut gone = 0;
    if after.is_none() {
        // The oldest: what was stored before there were periods was stored before it, too.
        gone += look(venue, owner, Period::BEFORE, period.turns_end()).await?;
    }
    gone += look(venue, owner, period, period.turns_end()).await?;
    Ok((Some(period), gone))
}

/// The oldest period behind `after` that has parts.
async fn first(venue: &Venue, owner: &Owner, after: Option<Period>) -> Result<Option<Period>, StoreError> {
    // Behind every name of it.
    let after = after.map(|period| keys::parts(period) + "~");
    let found = venue.store.scan(owner, keys::PARTS, after.as_deref(), false, 1).await?;
    Ok(found.first().and_then(|(key, _)| keys::period_of_part(key)))
}

/// Forgets the parts of a period that none of its turns names; those started before `end`.
async fn look(venue: &Venue, owner: &Owner, period: Period, end: Millis) -> Result<u64, StoreError> {
    let (store, looked) = (&*venue.store, keys::parts_looked(period));
    let prefix = keys::parts(period);
    if store.scan(owner, &prefix, None, false, 1).await?.is_empty() {
        return Ok(0);
    }
    let last: Option<Millis> = store.get(owner, &looked).await?;
    if last.is_some_and(|last| last.plus(AGAIN) > venue.now()) {
        return Ok(0);
    }
    let (mut gone, mut kept, mut after) = (0, 0, None);
    loop {
        let needed = needed(venue, owner, (period, end), after.take()).await?;
        let mut batch = Batch::new(venue, owner);
        let mut parts =
            store.docs(owner, prefix.as_str()).after(needed.after.as_ref().map(|n| keys::part(period, n))).of(PAGE);
        'parts: while let Some(page) = parts.keys().await? {
            for key in page {
                let Some(name) = keys::part_of(period, &key) else { continue };
                if needed.until.as_ref().is_some_and(|until| name > *until) {
                    break 'parts;
                }
                if needed.names.contains(&name) {
                    kept += 1;
                } else {
                    batch.documents.push(key);
                    gone += 1;
                }
            }
            batch.flush_if_full().await?;
        }
        batch.flush().await?;
        after = needed.until;
        if after.is_none() {
            break;
        }
    }
    let write = if kept == 0 { DocWrite::delete(looked) } else { DocWrite::json(looked, &venue.now()) };
    store.write(venue.now(), owner, &[write]).await?;
    Ok(gone)
}

/// Names that turns need, as far as they fit into memory: all of those behind `after` and up to `until`.
#[derive(Default)]
struct Needed {
    after: Option<PartName>,
    names: BTreeSet<PartName>,
    /// `None` = to the last.
    until: Option<PartName>,
}

impl Needed {
    fn extend(&mut self, names: impl IntoIterator<Item = PartName>) {
        for name in names {
            if self.after.as_ref().is_some_and(|after| name <= *after)
                || self.until.as_ref().is_some_and(|until| name > *until)
            {
                continue;
            }
            self.names.insert(name);
            if self.names.len() > NAMES {
                self.names.pop_last();
                self.until = self.names.last().cloned();
            }
        }
    }
}

/// What the turns of a period need that started before `end`.
async fn needed(
    venue: &Venue,
    owner: &Owner,
    (period, end): (Period, Millis),
    after: Option<PartName>,
) -> Result<Needed, StoreError> {
    let store = &*venue.store;
    let mut needed = Needed { after, ..Needed::default() };
    let mut read = HashSet::new();
    for agent in agents::all(venue, owner).await? {
        let mut turns = store
            .entries(owner, keys::timeline(&agent))
            .after(Some(keys::timeline_from(&agent, period.turns_begin())))
            .of(PAGE);
        let until = keys::timeline_from(&agent, end);
        let mut more = true;
        while more && let Some(entries) = turns.keys().await? {
            more = entries.last().is_some_and(|entry| *entry < until);
            for ((session, from), to) in stretches(&agent, entries.iter().take_while(|entry| **entry < until)) {
                let mut lists = BTreeSet::new();
                let take = |base: &Base| {
                    if base.period == period {
                        needed.extend(base.manifest.parts());
                        lists.extend(base.manifest.lists());
                    }
                };
                walk(store, owner, &session, from, to, take).await?;
                lists.retain(|list| !read.contains(list));
                let mut parts = Parts::new();
                fetch(store, owner, period, lists.iter().cloned(), &mut parts).await?;
                needed.extend(Manifest::listed(&parts, lists.iter().cloned()));
                if read.len() < NAMES {
                    read.extend(lists);
                }
            }
        }
    }
    Ok(needed)
}

/// Where manifests must be read from to know those of these turns, and how far: by session and first turn.
fn stretches<'e>(agent: &AgentId, entries: impl Iterator<Item = &'e String>) -> BTreeMap<(SessionKey, u64), u64> {
    let mut found = BTreeMap::new();
    for entry in entries {
        let Some((token, key)) = keys::timeline_turn(agent, entry) else { continue };
        let Some(id) = decode_token(token).and_then(|id| SessionId::new(id).ok()) else { continue };
        let Some(turn) = keys::number_of_turn(&key) else { continue };
        let session = SessionKey { agent: agent.clone(), session: id };
        let last = found.entry((session, stretch(turn))).or_insert(turn);
        *last = turn.max(*last);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(n: usize) -> PartName {
        PartName::parse(&format!("{n:021}A")).unwrap()
    }

    #[test]
    fn of_more_names_than_fit_the_first_are_complete() {
        let mut needed = Needed { after: Some(name(9)), ..Needed::default() };
        // Not in their order, and some of them again.
        let all = NAMES + 1_000;
        needed.extend((0..all).rev().step_by(2).map(name));
        needed.extend((0..all).map(name));
        let until = needed.until.clone().expect("not all fit");
        assert_eq!((needed.names.len(), until), (NAMES, name(9 + NAMES)));
        assert_eq!((needed.names.first(), needed.names.last()), (Some(&name(10)), Some(&name(9 + NAMES))));
        let mut rest = Needed { after: needed.until, ..Needed::default() };
        rest.extend((0..all).map(name));
        assert_eq!((rest.names.len(), rest.until), (all - NAMES - 10, None));
    }
}
