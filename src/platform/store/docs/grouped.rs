//! Concurrent edits of shared documents: the meter of a rate limit, the account of a cap, a count.
//!
//! If each caller read, decided and wrote on its own, hundreds of edits of one document would conflict and all but one
//! begin anew each time. Here the edits of one process that arrive during a write share the next one: one read, every
//! decision in order of arrival, one write. Processes still conflict with each other, but once per group and not
//! once per call.

use super::{EDIT_ATTEMPTS, pause_before};
use crate::domain::ids::Owner;
use crate::domain::time::Millis;
use crate::store::{Doc, DocEffect, DocKey, DocWrite, Store, StoreError, WriteOutcome};
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Most edits of a group, and most documents that it reads, unless its first edit names more.
const MOST: usize = 128;

/// An edit of some documents of an owner. It may be applied several times, each time to freshly read documents; the
/// last one counts.
pub trait GroupEdit: Send + Sync + 'static {
    /// The decoded value of a document.
    type Value: Serialize + Send;
    /// The result given to the caller.
    type Answer: Send + 'static;

    /// Returns the keys of the documents that it edits.
    fn keys(&self) -> &[DocKey];

    /// Decodes the document with the key at index `at`; `None` if it is absent.
    fn decode(&self, at: usize, doc: &Doc) -> Result<Option<Self::Value>, StoreError>;

    /// Edits the values, in the order of the keys. A value left `None` is not written.
    fn apply(&self, sheets: &mut [Option<Self::Value>]) -> Self::Answer;
}

/// Groups concurrent edits of one kind within a process.
pub struct EditBatcher<A: GroupEdit> {
    lanes: Arc<EditLanes<A>>,
}

/// Edits that wait for the next write, by owner and lane. Every lane in the map has a task that empties it.
struct EditLanes<A: GroupEdit>(Mutex<HashMap<LaneKey, Vec<PendingEdit<A>>>>);

/// A lane of an owner.
#[derive(Clone, PartialEq, Eq, Hash)]
struct LaneKey {
    owner: Owner,
    lane: String,
}

/// An edit, and the channel for its result.
struct PendingEdit<A: GroupEdit> {
    edit: A,
    now: Millis,
    done: oneshot::Sender<Result<A::Answer, StoreError>>,
}

/// One document of a group.
struct GroupDoc<S> {
    key: DocKey,
    version: u64,
    /// The bytes that were read.
    before: Option<Bytes>,
    sheet: Result<Option<S>, StoreError>,
}

impl<A: GroupEdit> Default for EditBatcher<A> {
    fn default() -> Self {
        Self { lanes: Arc::new(EditLanes(Mutex::default())) }
    }
}

impl<A: GroupEdit> EditBatcher<A> {
    /// Applies an edit together with the others of the same lane. [`StoreError::Contended`] if other processes won
    /// every try; then nothing was written.
    ///
    /// After it the edit is durable. After a crash, or when the caller drops the future, it was applied or not: a
    /// write that is under way may still succeed, but no further attempt is made.
    pub async fn apply(
        &self,
        store: &Arc<dyn Store>,
        now: Millis,
        owner: &Owner,
        lane: &str,
        edit: A,
    ) -> Result<A::Answer, StoreError> {
        let (done, answer) = oneshot::channel();
        let lane = LaneKey { owner: owner.clone(), lane: lane.to_owned() };
        if self.lanes.join(&lane, PendingEdit { edit, now, done }) {
            let (lanes, store) = (Arc::clone(&self.lanes), Arc::clone(store));
            // A separate task, because the first caller may leave before the others have their results.
            tokio::spawn(async move { LaneTask { lanes: &lanes, lane: &lane }.run(&*store).await });
        }
        answer.await.unwrap_or_else(|_ended| {
            Err(StoreError::Unavailable { store: "documents".into(), reason: "the process ends".into() })
        })
    }
}

impl<A: GroupEdit> EditLanes<A> {
    /// Adds an edit to a lane; returns whether it is the first, so that a task must be started.
    fn join(&self, lane: &LaneKey, member: PendingEdit<A>) -> bool {
        match self.lock().entry(lane.clone()) {
            Entry::Occupied(waiting) => {
                waiting.into_mut().push(member);
                false
            }
            Entry::Vacant(empty) => {
                empty.insert(vec![member]);
                true
            }
        }
    }

    /// Moves waiting edits into the group, up to its limits. A lane without any is removed if the group is empty.
    fn fill_group(&self, lane: &LaneKey, group: &mut Vec<PendingEdit<A>>) {
        let mut lanes = self.lock();
        let Some(waiting) = lanes.get_mut(lane) else { return };
        waiting.retain(|member| !member.done.is_closed());
        let mut docs = group.iter().map(|member| member.edit.keys().len()).sum::<usize>();
        let fits = waiting.iter().take(MOST.saturating_sub(group.len())).take_while(|member| {
            docs += member.edit.keys().len();
            docs <= MOST
        });
        let most = fits.count().max(usize::from(group.is_empty())).min(waiting.len());
        group.extend(waiting.drain(..most));
        if group.is_empty() {
            lanes.remove(lane);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LaneKey, Vec<PendingEdit<A>>>> {
        self.0.lock()
    }
}

/// The task that empties a lane.
struct LaneTask<'l, A: GroupEdit> {
    lanes: &'l EditLanes<A>,
    lane: &'l LaneKey,
}

impl<A: GroupEdit> Drop for LaneTask<'_, A> {
    /// Removes the lane, also after a panic: waiting callers get an error, and the next edit starts a new task.
    fn drop(&mut self) {
        self.lanes.lock().remove(self.lane);
    }
}

impl<A: GroupEdit> LaneTask<'_, A> {
    async fn run(self, store: &dyn Store) {
        loop {
            let mut group = Vec::new();
            self.lanes.fill_group(self.lane, &mut group);
            if group.is_empty() {
                // The lane was removed, and may already belong to another task.
                return std::mem::forget(self);
            }
            let answers = self.apply_group(store, &mut group).await;
            match answers {
                Ok(answers) => group.into_iter().zip(answers).for_each(|(member, answer)| {
                    let _gone = member.done.send(answer);
                }),
                Err(error) => group.into_iter().for_each(|member| {
                    let _gone = member.done.send(Err(error.clone()));
                }),
            }
        }
    }

    /// Applies the edits of a group in one write; edits that arrive before a retry join the group.
    async fn apply_group(
        &self,
        store: &dyn Store,
        group: &mut Vec<PendingEdit<A>>,
    ) -> Result<Vec<Result<A::Answer, StoreError>>, StoreError> {
        let LaneKey { owner, lane } = self.lane;
        for tried in 0..EDIT_ATTEMPTS {
            if tried > 0 {
                pause_before(tried).await;
                self.lanes.fill_group(self.lane, group);
            }
            let mut pages = read_group(store, owner, group).await?;
            // A caller that left may have a successor that decided otherwise.
            group.retain(|member| !member.done.is_closed());
            let answers = group.iter().map(|member| apply_edit(&member.edit, &mut pages)).collect();
            let writes = group_writes(pages);
            let now = group.iter().map(|member| member.now).max().unwrap_or_default();
            if writes.is_empty() || store.write(now, owner, &writes).await? == WriteOutcome::Done {
                return Ok(answers);
            }
        }
        Err(StoreError::Contended { what: format!("`{lane}`") })
    }
}

/// Reads the documents of a group, by key.
async fn read_group<A: GroupEdit>(
    store: &dyn Store,
    owner: &Owner,
    group: &[PendingEdit<A>],
) -> Result<HashMap<DocKey, GroupDoc<A::Value>>, StoreError> {
    let mut wanted = HashMap::new();
    for PendingEdit { edit, .. } in group {
        for (at, key) in edit.keys().iter().enumerate() {
            wanted.entry(key).or_insert((edit, at));
        }
    }
    let keys: Vec<DocKey> = wanted.keys().map(|key| (*key).clone()).collect();
    let docs = store.read(owner, &keys).await?;
    let pages = keys.into_iter().zip(docs).map(|(key, doc)| {
        let (edit, at) = wanted[&key];
        let sheet = edit.decode(at, &doc);
        (key.clone(), GroupDoc { key, version: doc.version, before: doc.value, sheet })
    });
    Ok(pages.collect())
}

/// Applies one edit; returns the error of the first of its documents that can't be decoded.
fn apply_edit<A: GroupEdit>(
    edit: &A,
    pages: &mut HashMap<DocKey, GroupDoc<A::Value>>,
) -> Result<A::Answer, StoreError> {
    let broken = edit.keys().iter().find_map(|key| pages[key].sheet.as_ref().err());
    if let Some(error) = broken {
        return Err(error.clone());
    }
    let mut take = |key| pages.get_mut(key)?.sheet.as_mut().ok()?.take();
    let mut taken: Vec<_> = edit.keys().iter().map(&mut take).collect();
    let answer = edit.apply(&mut taken);
    for (key, sheet) in edit.keys().iter().zip(taken) {
        if let Some(page) = pages.get_mut(key) {
            page.sheet = Ok(sheet);
        }
    }
    Ok(answer)
}

/// Returns the writes of a group, empty if nothing changed; unchanged documents are checked, since the decisions depend
/// on them.
fn group_writes<S: Serialize>(pages: HashMap<DocKey, GroupDoc<S>>) -> Vec<DocWrite> {
    let mut changed = false;
    let pages = pages.into_values();
    let writes = pages.map(|GroupDoc { key, version, before, sheet }| match sheet {
        Ok(Some(sheet)) => {
            let write = DocWrite::json(key.as_str(), &sheet);
            if before.map(DocEffect::Put).as_ref() == Some(&write.change) {
                DocWrite::check(key, version)
            } else {
                changed = true;
                write.at_version(version)
            }
        }
        Ok(None) | Err(_) => DocWrite::check(key, version),
    });
    let writes: Vec<_> = writes.collect();
    if changed { writes } else { Vec::new() }
}

#[cfg(test)]
#[path = "grouped_tests.rs"]
mod tests;
