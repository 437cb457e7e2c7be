//! A session with its loaded record, and its mailbox.

use super::docs;
use super::index::parse_session;
use super::layout::{self, MailRecord, STATE, Space};
use super::tx::{Tx, UsageChange};
use super::view::{StoreFault, View};
use crate::domain::ids::{Owner, SessionKey};
use crate::domain::lease::SessionRecord;
use crate::domain::limits::GRANT_BYTES;
use crate::domain::priority::{HIGH_PREFIX, LOW_PREFIX};
use crate::domain::time::Millis;
use crate::store::{EventKind, MailboxEntry, NewEvent};
use bytes::Bytes;
use std::{collections::BTreeMap, ops::ControlFlow};

/// A session on the writer: its stored record, and its new one.
pub(super) struct LoadedSession {
    /// Token of the owner.
    pub(super) owner: String,
    /// Token of the session.
    pub(super) token: String,
    /// Owner of the session.
    pub(super) owner_id: Owner,
    /// Agent and session.
    pub(super) key: SessionKey,
    stored: SessionRecord,
    /// The record to be saved.
    pub(super) record: SessionRecord,
}

/// Visits place (stored form) and record of entries; `Break` ends the walk.
type VisitMail<'v> = &'v mut dyn FnMut(&str, &[u8]) -> Result<ControlFlow<()>, StoreFault>;

/// A mailbox entry with its place in stored form and its arrival number.
pub(super) struct MailItem<Body = Bytes> {
    /// Place in stored form.
    pub(super) place: String,
    /// Number of the event among the session's arrivals.
    pub(super) arrival: u64,
    /// The entry for callers.
    pub(super) entry: MailboxEntry<Body>,
}

/// Returns the highest epoch of the owner's forgotten sessions.
pub(super) fn epoch_floor(view: &impl View, owner: &str) -> Result<u64, StoreFault> {
    let floor = view.get(Space::Core, &layout::epoch_floor(owner))?;
    Ok(floor.and_then(|bytes| layout::split_number(&bytes).map(|(floor, _)| floor)).unwrap_or(0))
}

impl LoadedSession {
    /// Loads the session's record; an unknown session has an empty one.
    pub(super) fn load(view: &impl View, owner: &Owner, key: &SessionKey) -> Result<Self, StoreFault> {
        let (owner_token, token) = (owner.token(), key.token());
        let record = view.get(Space::Core, &layout::session(&owner_token, &token))?;
        let was = record.map(|bytes| parse_session(&bytes)).transpose()?.unwrap_or_default();
        let now = was.clone();
        Ok(Self { owner: owner_token, token, owner_id: owner.clone(), key: key.clone(), stored: was, record: now })
    }

    /// Whether the session has a record.
    pub(super) fn is_known(&self) -> bool {
        self.stored != SessionRecord::default()
    }

    /// Writes the record if it changed, and updates the index.
    pub(super) fn save(&mut self, tx: &mut Tx<'_>) -> Result<(), StoreFault> {
        if self.stored == self.record {
            return Ok(());
        }
        let bytes = serde_json::to_vec(&self.record).map_err(|e| StoreFault::Record(e.to_string()))?;
        tx.put(Space::Core, layout::session(&self.owner, &self.token), bytes);
        tx.index_mut().update_session(&self.owner, &self.token, &self.stored, &self.record);
        if !self.is_known() {
            tx.add_usage(&self.owner, UsageChange { sessions: 1, ..UsageChange::default() });
        }
        self.stored = self.record.clone();
        Ok(())
    }

    /// Removes the session with all its records; later sessions of its owner begin with a higher epoch.
    pub(super) fn erase(&mut self, tx: &mut Tx<'_>) -> Result<(), StoreFault> {
        let places = [(Space::Mail, layout::mailbox(&self.owner, &self.token)), (Space::Core, self.part(b""))];
        for (space, prefix) in places {
            let (mut keys, mut weight) = (Vec::new(), 0);
            let state = self.part(STATE);
            tx.walk(space, &prefix, &layout::prefix_end(&prefix), &mut |key, value| {
                keys.push(key.to_vec());
                weight += match space {
                    Space::Mail => MailRecord::weight(value),
                    _ if key == state => layout::to_signed(value.len()),
                    _ => 0,
                };
                Ok(ControlFlow::Continue(()))
            })?;
            tx.add_bytes(&self.owner, -weight);
            for key in keys {
                tx.remove(space, key);
            }
        }
        if self.is_known() {
            tx.add_usage(&self.owner, UsageChange { sessions: -1, ..UsageChange::default() });
        }
        if self.stored.epoch > epoch_floor(tx, &self.owner)? {
            tx.put(Space::Core, layout::epoch_floor(&self.owner), self.stored.epoch.to_be_bytes().to_vec());
        }
        tx.remove(Space::Core, layout::session(&self.owner, &self.token));
        tx.index_mut().update_session(&self.owner, &self.token, &self.stored, &SessionRecord::default());
        (self.stored, self.record) = (SessionRecord::default(), SessionRecord::default());
        Ok(())
    }

    /// Stores the session state that the next turn finds.
    pub(super) fn set_state(&self, tx: &mut Tx<'_>, state: &[u8]) -> Result<(), StoreFault> {
        let old = tx.get(Space::Core, &self.part(STATE))?.map_or(0, |old| old.len());
        tx.add_bytes(&self.owner, layout::to_signed(state.len()) - layout::to_signed(old));
        tx.put(Space::Core, self.part(STATE), state.to_vec());
        Ok(())
    }

    /// Returns the key of a part of this session.
    pub(super) fn part(&self, part: &[u8]) -> Vec<u8> {
        layout::part(&self.owner, &self.token, part)
    }

    /// Returns the rank of the session among waiting ones: -1 with an urgent task, 1 with only tasks of low priority,
    /// else 0.
    pub(super) fn waiting_rank(&self, view: &impl View) -> Result<i8, StoreFault> {
        let Some(head) = self.record.head.as_ref().filter(|_| self.record.pending_events() > 0) else { return Ok(0) };
        let prefix = [layout::mailbox(&self.owner, &self.token).as_slice(), HIGH_PREFIX.as_bytes()].concat();
        let mut urgent = head.starts_with(HIGH_PREFIX);
        if head.as_str() < HIGH_PREFIX {
            view.walk(Space::Mail, &prefix, &layout::prefix_end(&prefix), &mut |_, _| {
                urgent = true;
                Ok(ControlFlow::Break(()))
            })?;
        }
        Ok(if urgent { -1 } else { i8::from(head.starts_with(LOW_PREFIX)) })
    }

    /// Adds an event to the mailbox.
    pub(super) fn append(&mut self, tx: &mut Tx<'_>, now: Millis, event: &NewEvent) -> Result<(), StoreFault> {
        let place = format!("{}\0{}", event.order, event.id);
        self.record.append(now, &place);
        let record =
            MailRecord { kind: event.kind, arrival: self.record.arrivals, job: event.job.clone(), body: &event.body };
        let mut key = layout::mailbox(&self.owner, &self.token);
        key.extend_from_slice(place.as_bytes());
        let record = record.encode();
        let old = tx.get(Space::Mail, &key)?.map_or(0, |old| MailRecord::weight(&old));
        tx.add_bytes(&self.owner, MailRecord::weight(&record) - old);
        tx.put(Space::Mail, key, record);
        let rank = if self.record.waiting.is_some() { self.waiting_rank(tx)? } else { self.record.rank };
        if rank != self.record.rank {
            self.record.rank = rank;
            self.save(tx)?;
        }
        Ok(())
    }

    /// Removes entries by place in stored form; absent ones are ignored.
    pub(super) fn consume(&mut self, tx: &mut Tx<'_>, places: &[Vec<u8>]) -> Result<(), StoreFault> {
        let mailbox = layout::mailbox(&self.owner, &self.token);
        for place in places {
            let key = [mailbox.as_slice(), place].concat();
            let record = tx.get(Space::Mail, &key)?;
            self.record.consume(place, record.is_some());
            if let Some(record) = record {
                tx.add_bytes(&self.owner, -MailRecord::weight(&record));
                tx.remove(Space::Mail, key);
            }
        }
        let mut head = None;
        if self.record.pending_events() > 0 {
            self.walk(tx, &mut |place, _| {
                head = Some(place.to_owned());
                Ok(ControlFlow::Break(()))
            })?;
        }
        self.record.head = head;
        Ok(())
    }

    /// Visits the mailbox in order, by place in stored form.
    pub(super) fn walk(&self, view: &impl View, visit: VisitMail<'_>) -> Result<(), StoreFault> {
        if self.record.pending_events() == 0 {
            return Ok(());
        }
        let prefix = layout::mailbox(&self.owner, &self.token);
        let mut from = prefix.clone();
        from.extend_from_slice(self.record.head.as_deref().unwrap_or_default().as_bytes());
        // Mostly there is one entry, and the read of one key is much cheaper than that of a range.
        if self.record.pending_events() == 1
            && let Some(head) = &self.record.head
            && let Some(value) = view.get(Space::Mail, &from)?
        {
            return visit(head, &value).map(drop);
        }
        view.walk(Space::Mail, &from, &layout::prefix_end(&prefix), &mut |key, value| {
            let place = std::str::from_utf8(&key[prefix.len()..])
                .map_err(|_| StoreFault::Record(format!("mailbox key of `{}` is damaged", self.token)))?;
            visit(place, value)
        })
    }

    fn decode<'b>(&self, place: &str, bytes: &'b [u8]) -> Result<MailRecord<'b>, StoreFault> {
        MailRecord::decode(bytes)
            .ok_or_else(|| StoreFault::Record(format!("mailbox entry `{place}` of `{}` is damaged", self.token)))
    }

    /// Returns crash counts by place in stored form.
    pub(super) fn crashes(&self, view: &impl View) -> Result<BTreeMap<String, u32>, StoreFault> {
        if !self.record.crashed {
            return Ok(BTreeMap::new());
        }
        let Some(bytes) = view.get(Space::Core, &self.part(b"x"))? else { return Ok(BTreeMap::new()) };
        // Counts that can't be decoded begin at 0.
        Ok(serde_json::from_slice(&bytes).unwrap_or_default())
    }

    /// Decodes an entry for callers, with what `keep` makes of its body.
    fn decode_entry<Body>(
        &self,
        view: &impl View,
        place: &str,
        bytes: &[u8],
        crashes: &BTreeMap<String, u32>,
        keep: impl Fn(&[u8]) -> Body,
    ) -> Result<MailItem<Body>, StoreFault> {
        let record = self.decode(place, bytes)?;
        let job_status = match &record.job {
            Some(job) => docs::job_status(view, &self.owner, job)?,
            None => None,
        };
        let entry = MailboxEntry {
            key: layout::place_from_storage(place.as_bytes()).unwrap_or_default(),
            kind: record.kind,
            job: record.job,
            job_status,
            crashes: crashes.get(place).copied().unwrap_or(0),
            body: keep(record.body),
        };
        Ok(MailItem { place: place.to_owned(), arrival: record.arrival, entry })
    }

    /// Returns the first `limit` entries, up to [`GRANT_BYTES`]. They always contain a task if there is one, however
    /// much is before it: the one that has begun, else the first.
    pub(super) fn first_events(&self, view: &impl View, limit: usize) -> Result<Vec<MailItem>, StoreFault> {
        self.select_entries(view, limit, Bytes::copy_from_slice, Bytes::len, &mut Vec::new())
    }

    /// Returns all entries in the same order without bodies, and the places of damaged ones.
    pub(super) fn all_entries(&self, view: &impl View) -> Result<(Vec<MailItem<()>>, Vec<String>), StoreFault> {
        let mut damaged = Vec::new();
        let mail = self.select_entries(view, usize::MAX, |_| (), |()| 0, &mut damaged)?;
        Ok((mail, damaged))
    }

    fn select_entries<Body>(
        &self,
        view: &impl View,
        limit: usize,
        keep: impl Fn(&[u8]) -> Body + Copy,
        weigh: impl Fn(&Body) -> usize,
        damaged: &mut Vec<String>,
    ) -> Result<Vec<MailItem<Body>>, StoreFault> {
        let crashes = self.crashes(view)?;
        let (mut mail, mut size) = (Vec::new(), 0);
        self.walk(view, &mut |place, bytes| {
            if mail.len() >= limit || size >= GRANT_BYTES {
                return Ok(ControlFlow::Break(()));
            }
            let found = match self.decode_entry(view, place, bytes, &crashes, keep) {
                Err(StoreFault::Record(_)) => {
                    damaged.push(place.to_owned());
                    return Ok(ControlFlow::Continue(()));
                }
                found => found?,
            };
            size += weigh(&found.entry.body);
            mail.push(found);
            Ok(ControlFlow::Continue(()))
        })?;
        let first = mail.iter().position(|mail| mail.entry.kind == EventKind::Task);
        let task = match (&self.record.task, first) {
            (Some(begun), _) => Some(begun.clone()),
            (None, Some(_)) => None,
            (None, None) => self.first_task(view)?,
        };
        let Some(task) = task else { return Ok(mail) };
        let found = if let Some(at) = mail.iter().position(|mail| mail.place == task) {
            Some(mail.remove(at))
        } else {
            let key = [layout::mailbox(&self.owner, &self.token).as_slice(), task.as_bytes()].concat();
            let bytes = view.get(Space::Mail, &key)?;
            match bytes.map(|bytes| self.decode_entry(view, &task, &bytes, &crashes, keep)).transpose() {
                Err(StoreFault::Record(_)) => None,
                found => found?,
            }
        };
        if let Some(found) = found {
            mail.truncate(limit.saturating_sub(1));
            mail.insert(first.unwrap_or(mail.len()).min(mail.len()), found);
        }
        Ok(mail)
    }

    /// Returns the place of the first task, which sorts behind all other events.
    fn first_task(&self, view: &impl View) -> Result<Option<String>, StoreFault> {
        let mailbox = layout::mailbox(&self.owner, &self.token);
        let from = [mailbox.as_slice(), HIGH_PREFIX.as_bytes()].concat();
        let mut first = None;
        view.walk(Space::Mail, &from, &layout::prefix_end(&mailbox), &mut |key, _| {
            let place = key.get(mailbox.len()..).and_then(|place| std::str::from_utf8(place).ok());
            first = place.map(str::to_owned);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(first)
    }

    /// Whether the mailbox has a task whose job is open.
    pub(super) fn has_open_task(&self, view: &impl View) -> Result<bool, StoreFault> {
        let mut open = false;
        self.walk(view, &mut |place, bytes| {
            let Ok(record) = self.decode(place, bytes) else { return Ok(ControlFlow::Continue(())) };
            if record.kind == EventKind::Task {
                let status = match &record.job {
                    Some(job) => docs::job_status(view, &self.owner, job)?,
                    None => None,
                };
                open = !status.is_some_and(crate::domain::job::JobStatus::is_terminal);
            }
            Ok(if open { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(open)
    }
}
