//! Retention of prompts' parts: of each period that is over, those parts are deleted that no turn names any more.
//!
//! The names are found by the turns of the period, so that nothing is counted when parts are stored, and no needed part
//! is deleted. The turns of a period are those of each agent's timeline that started in it; for older builds also in
//! the week before or after. A turn that is committed late revokes the claim under which parts are deleted.

use super::batch::{DOCUMENTS, decode_readable};
use crate::domain::context::record::PartContents;
use crate::domain::context::record::manifest::{BaseManifest, Manifest, stretch_start};
use crate::domain::context::record::part::PartName;
use crate::domain::context::record::period::Period;
use crate::domain::ids::{AgentId, Owner, SessionId, SessionKey, decode_token};
use crate::domain::time::Millis;
use crate::store::{DocKey, DocWrite, StoreError, Window, WriteOutcome, keys};
use crate::venue::Venue;
use crate::venue::agents;
use crate::venue::ledger::{fetch_parts, walk};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

/// Time after which a period that still has turns is searched again.
const AGAIN: Duration = Duration::from_hours(24);
/// Parts that one pass checks: some megabytes of names.
const NAMES: usize = 50_000;
/// Entries of a timeline that one read returns.
const PAGE: usize = 500;

/// Where the next step continues; without a pass, after the period.
#[derive(Debug, Clone)]
pub(super) struct PartsPlace {
    period: Period,
    pass: Option<Pass>,
}

/// A pass through some of the parts of a period.
#[derive(Debug, Clone, Copy)]
struct Pass {
    /// Version of the document that holds the claim on the period. With another version nothing is deleted any more: a
    /// late turn was committed, or another worker has the claim.
    claim: u64,
    /// Documents that earlier passes have left: they come first.
    left: usize,
}

/// Makes one pass: through the first period after `place` that is over, if it is due, or the next pass of the same
/// period. Returns where the next step continues (`None` = at the beginning), and how many parts were deleted.
pub(super) async fn step(
    venue: &Venue,
    owner: &Owner,
    turns_kept: Option<Duration>,
    place: Option<PartsPlace>,
) -> Result<(Option<PartsPlace>, u64), StoreError> {
    let Some(turns_kept) = turns_kept else { return Ok((None, 0)) };
    let (period, pass) = match place {
        Some(PartsPlace { period, pass: Some(pass) }) => (period, pass),
        behind => {
            let Some(period) = next_period(venue, owner, turns_kept, behind.map(|place| place.period)).await? else {
                return Ok((None, 0));
            };
            let Some(pass) = claim_period(venue, owner, period).await? else {
                return Ok((Some(PartsPlace { period, pass: None }), 0));
            };
            (period, pass)
        }
    };
    let (pass, gone) = run_pass(venue, owner, period, pass).await.unwrap_or_else(|error| {
        // After any error parts stay, and no other work waits for them.
        tracing::warn!(%owner, period = period.number(), %error, "parts of prompts are not looked through; they stay");
        (None, 0)
    });
    Ok((Some(PartsPlace { period, pass }), gone))
}

/// Returns the next period that has parts, or had some at its last search, and is over.
async fn next_period(
    venue: &Venue,
    owner: &Owner,
    turns_kept: Duration,
    behind: Option<Period>,
) -> Result<Option<Period>, StoreError> {
    // Sorts after every name of the period.
    let all_of = behind.filter(|period| *period != Period::NO_PERIOD).map(|period| keys::parts(period) + "~");
    let stored = first_key(venue, owner, keys::PARTS, all_of).await?.and_then(|key| keys::period_of_part(&key));
    let looked = first_key(venue, owner, keys::PART_SCANS, behind.map(keys::part_scan)).await?;
    let looked = looked.and_then(|key| keys::period_of_scan(&key));
    let over = stored.into_iter().chain(looked).min().filter(|period| period.is_over(turns_kept, venue.now()));
    // Parts from before there were periods are older; as long as the oldest period isn't over, their turns are new.
    let none_is_newer = behind.is_none() && (over.is_some() || stored.is_none());
    if none_is_newer && first_key(venue, owner, &keys::parts(Period::NO_PERIOD), None).await?.is_some() {
        return Ok(Some(Period::NO_PERIOD));
    }
    Ok(over)
}

/// Returns the first key under a prefix after `behind`.
async fn first_key(
    venue: &Venue,
    owner: &Owner,
    prefix: &str,
    behind: Option<DocKey>,
) -> Result<Option<DocKey>, StoreError> {
    let found = venue.store.scan(owner, prefix, behind.as_deref(), false, 1).await?;
    Ok(found.into_iter().next().map(|(key, _)| key))
}

/// Claims a period for a search; `None` if it was searched lately.
async fn claim_period(venue: &Venue, owner: &Owner, period: Period) -> Result<Option<Pass>, StoreError> {
    let (now, key) = (venue.now(), keys::part_scan(period));
    let doc = venue.store.doc(owner, &key).await?;
    if decode_readable::<Millis>(&key, &doc).is_some_and(|last| last.plus(AGAIN) > now) {
        return Ok(None);
    }
    let write = DocWrite::json(key, &now).at_version(doc.version);
    let written = venue.store.write(now, owner, &[write]).await?;
    Ok((written == WriteOutcome::Done).then_some(Pass { claim: doc.version + 1, left: 0 }))
}

/// Deletes those of the next parts of a period that none of its turns names. Returns the next pass, if there are more
/// parts.
async fn run_pass(venue: &Venue, owner: &Owner, period: Period, pass: Pass) -> Result<(Option<Pass>, u64), StoreError> {
    let window = Window { reverse: false, skip: pass.left, limit: NAMES, values: false };
    let found = venue.store.page(owner, &keys::parts(period), window).await?.docs;
    let mut unnamed: BTreeSet<PartName> = found.iter().filter_map(|(key, _)| keys::part_name(period, key)).collect();
    let found = found.len();
    if !unnamed.is_empty() {
        remove_named(venue, owner, period, &mut unnamed).await?;
    }
    let mut gone = 0;
    let unnamed: Vec<_> = unnamed.into_iter().collect();
    for names in unnamed.chunks(DOCUMENTS) {
        if !delete_parts(venue, owner, period, names, pass.claim).await? {
            return Ok((None, gone));
        }
        gone += names.len() as u64;
    }
    let left = pass.left + found - unnamed.len();
    if found == NAMES {
        return Ok((Some(Pass { left, ..pass }), gone));
    }
    if left == 0 {
        // A turn that is committed in between has the period searched again.
        let last = DocWrite::delete(keys::part_scan(period)).at_version(pass.claim);
        venue.store.write(venue.now(), owner, &[last]).await?;
    }
    Ok((None, gone))
}

/// Deletes parts under a claim; `false` if the claim was revoked and none was deleted.
async fn delete_parts(
    venue: &Venue,
    owner: &Owner,
    period: Period,
    names: &[PartName],
    claim: u64,
) -> Result<bool, StoreError> {
    let mut writes: Vec<_> = names.iter().map(|name| DocWrite::delete(keys::part(period, name))).collect();
    writes.push(DocWrite::check(keys::part_scan(period), claim));
    Ok(venue.store.write(venue.now(), owner, &writes).await? == WriteOutcome::Done)
}

/// Removes from `unnamed` what turns of a period name.
async fn remove_named(
    venue: &Venue,
    owner: &Owner,
    period: Period,
    unnamed: &mut BTreeSet<PartName>,
) -> Result<(), StoreError> {
    let store = &*venue.store;
    // For parts from before there were periods, any turn may name them: older builds may have run again for a while.
    let end = if period == Period::NO_PERIOD { venue.now() } else { period.turns_end() };
    let mut read = HashSet::new();
    for agent in agents::all_ids(venue, owner).await? {
        let mut turns = store
            .entries(owner, keys::timeline(&agent))
            .start_after(Some(keys::timeline_from(&agent, period.turns_begin())))
            .page_size(PAGE);
        let until = keys::timeline_from(&agent, end);
        let mut more = true;
        while more && let Some(entries) = turns.keys().await? {
            more = entries.last().is_some_and(|entry| *entry < until);
            for ((session, from), to) in stretches(&agent, entries.iter().take_while(|entry| **entry < until)) {
                let mut lists = BTreeSet::new();
                let take = |base: &BaseManifest| {
                    if base.period == period {
                        for name in base.manifest.parts() {
                            unnamed.remove(&name);
                        }
                        lists.extend(base.manifest.list_parts());
                    }
                };
                walk(store, owner, &session, from, to, take).await?;
                lists.retain(|list| !read.contains(list));
                let mut parts = PartContents::new();
                fetch_parts(store, owner, period, lists.iter().cloned(), &mut parts).await?;
                for name in Manifest::listed_parts(&parts, lists.iter().cloned()) {
                    unnamed.remove(&name);
                }
                if unnamed.is_empty() {
                    return Ok(());
                }
                if read.len() < NAMES {
                    read.extend(lists);
                }
            }
        }
    }
    Ok(())
}

/// Returns from where manifests must be read to know those of these turns, and up to where: by session and first turn.
fn stretches<'e>(agent: &AgentId, entries: impl Iterator<Item = &'e String>) -> BTreeMap<(SessionKey, u64), u64> {
    let mut found = BTreeMap::new();
    for entry in entries {
        let Some((token, key)) = keys::timeline_turn(agent, entry) else { continue };
        let Some(id) = decode_token(token).and_then(|id| SessionId::new(id).ok()) else { continue };
        let Some(turn) = keys::number_of_turn(&key) else { continue };
        let session = SessionKey { agent: agent.clone(), session: id };
        let last = found.entry((session, stretch_start(turn))).or_insert(turn);
        *last = turn.max(*last);
    }
    found
}
