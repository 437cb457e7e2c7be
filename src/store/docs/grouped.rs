//! Changes of documents that many make at once: a meter of a rate limit, the book of a cap, a count.
//!
//! Each for itself would read, decide and write over what it has read, and where hundreds do that with one
//! document all but one begin anew each time. Here those of one process that come while a write is under way
//! go together in the next: one read, every decision in the order in which they came, one write. Processes
//! are in each other's way as before, but with a group each and not with a call.

use super::{EDIT_ATTEMPTS, pause_before};
use crate::domain::ids::Owner;
use crate::domain::time::Millis;
use crate::store::{Change, Doc, DocKey, DocWrite, OutsideWrite, Store, StoreError};
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Most changes that go together, and most documents that those after the first of them name.
const MOST: usize = 128;

/// One change of some documents of an owner. It may be made several times, each time of what was read anew; the last
/// counts.
pub trait GroupEdit: Send + Sync + 'static {
    /// What a document holds.
    type Sheet: Serialize + Send;
    /// What it comes to.
    type Answer: Send + 'static;

    /// Of which documents.
    fn keys(&self) -> &[DocKey];

    /// What the document at that place of its keys holds; `None` when it isn't there.
    fn decode(&self, at: usize, doc: &Doc) -> Result<Option<Self::Sheet>, StoreError>;

    /// Changes them, in the order of its keys. What it leaves `None` is not written.
    fn make(&self, sheets: &mut [Option<Self::Sheet>]) -> Self::Answer;
}

/// Where changes of one kind meet, in one process.
pub struct Grouped<A: GroupEdit> {
    lanes: Arc<Lanes<A>>,
}

/// What waits to be changed together, by owner and by the name under which they meet. A lane that is there has somebody who
/// empties it.
struct Lanes<A: GroupEdit>(Mutex<HashMap<LaneKey, Vec<Member<A>>>>);

type LaneKey = (Owner, String);

/// A change, and who waits for what it comes to.
struct Member<A: GroupEdit> {
    edit: A,
    now: Millis,
    done: oneshot::Sender<Result<A::Answer, StoreError>>,
}

/// A document of a group.
struct Page<S> {
    key: DocKey,
    version: u64,
    /// As it was read.
    before: Option<Bytes>,
    sheet: Result<Option<S>, StoreError>,
}

impl<A: GroupEdit> Default for Grouped<A> {
    fn default() -> Self {
        Self { lanes: Arc::new(Lanes(Mutex::default())) }
    }
}

impl<A: GroupEdit> Grouped<A> {
    /// Makes a change, with those that are made under the same name of a lane. [`StoreError::Contended`] when other
    /// processes were always faster: nothing was written then.
    ///
    /// After it: the change is durable. A crash before it, or a caller who doesn't wait for it: it was made or was not.
    /// What is under way when its caller leaves may still be written; it isn't decided on any more.
    pub async fn make(
        &self,
        store: &Arc<dyn Store>,
        now: Millis,
        owner: &Owner,
        lane: &str,
        edit: A,
    ) -> Result<A::Answer, StoreError> {
        let (done, answer) = oneshot::channel();
        let lane: LaneKey = (owner.clone(), lane.to_owned());
        if self.lanes.join(&lane, Member { edit, now, done }) {
            let (lanes, store) = (Arc::clone(&self.lanes), Arc::clone(store));
            // A task of its own: whoever came first may leave before the others have their answers.
            tokio::spawn(async move { Emptying { lanes: &lanes, lane: &lane }.run(&*store).await });
        }
        answer.await.unwrap_or_else(|_ended| {
            Err(StoreError::Unavailable { store: "documents".into(), reason: "the process ends".into() })
        })
    }
}

impl<A: GroupEdit> Lanes<A> {
    /// One more in a lane; whether it is the first, for whom nobody comes yet.
    fn join(&self, lane: &LaneKey, member: Member<A>) -> bool {
        match self.locked().entry(lane.clone()) {
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

    /// Fills up a group with who still waits. A lane where nobody does, for an empty group, is gone.
    fn fill(&self, lane: &LaneKey, group: &mut Vec<Member<A>>) {
        let mut lanes = self.locked();
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

    fn locked(&self) -> MutexGuard<'_, HashMap<LaneKey, Vec<Member<A>>>> {
        self.0.lock()
    }
}

/// Who empties a lane.
struct Emptying<'l, A: GroupEdit> {
    lanes: &'l Lanes<A>,
    lane: &'l LaneKey,
}

impl<A: GroupEdit> Drop for Emptying<'_, A> {
    /// Also after a panic: those who wait are told, and whoever comes next is the first again.
    fn drop(&mut self) {
        self.lanes.locked().remove(self.lane);
    }
}

impl<A: GroupEdit> Emptying<'_, A> {
    async fn run(self, store: &dyn Store) {
        loop {
            let mut group = Vec::new();
            self.lanes.fill(self.lane, &mut group);
            if group.is_empty() {
                // The lane is gone, and may be another's already.
                return std::mem::forget(self);
            }
            let answers = self.together(store, &mut group).await;
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

    /// Makes the changes of a group, in one write; whoever comes while it has to begin anew comes with it.
    async fn together(
        &self,
        store: &dyn Store,
        group: &mut Vec<Member<A>>,
    ) -> Result<Vec<Result<A::Answer, StoreError>>, StoreError> {
        let (owner, lane) = self.lane;
        for tried in 0..EDIT_ATTEMPTS {
            if tried > 0 {
                pause_before(tried).await;
                self.lanes.fill(self.lane, group);
            }
            let mut pages = read(store, owner, group).await?;
            // Who has left meanwhile may have a successor, who has decided otherwise.
            group.retain(|member| !member.done.is_closed());
            let answers = group.iter().map(|member| make(&member.edit, &mut pages)).collect();
            let writes = writes(pages);
            let now = group.iter().map(|member| member.now).max().unwrap_or_default();
            if writes.is_empty() || store.write(now, owner, &writes).await? == OutsideWrite::Done {
                return Ok(answers);
            }
        }
        Err(StoreError::Contended { what: format!("`{lane}`") })
    }
}

/// The documents of a group, by key.
async fn read<A: GroupEdit>(
    store: &dyn Store,
    owner: &Owner,
    group: &[Member<A>],
) -> Result<HashMap<DocKey, Page<A::Sheet>>, StoreError> {
    let mut wanted = HashMap::new();
    for Member { edit, .. } in group {
        for (at, key) in edit.keys().iter().enumerate() {
            wanted.entry(key).or_insert((edit, at));
        }
    }
    let keys: Vec<DocKey> = wanted.keys().map(|key| (*key).clone()).collect();
    let docs = store.read(owner, &keys).await?;
    let pages = keys.into_iter().zip(docs).map(|(key, doc)| {
        let (edit, at) = wanted[&key];
        let sheet = edit.decode(at, &doc);
        (key.clone(), Page { key, version: doc.version, before: doc.value, sheet })
    });
    Ok(pages.collect())
}

/// One change; not made where one of its documents can't be read.
fn make<A: GroupEdit>(edit: &A, pages: &mut HashMap<DocKey, Page<A::Sheet>>) -> Result<A::Answer, StoreError> {
    let broken = edit.keys().iter().find_map(|key| pages[key].sheet.as_ref().err());
    if let Some(error) = broken {
        return Err(error.clone());
    }
    let mut take = |key| pages.get_mut(key)?.sheet.as_mut().ok()?.take();
    let mut taken: Vec<_> = edit.keys().iter().map(&mut take).collect();
    let answer = edit.make(&mut taken);
    for (key, sheet) in edit.keys().iter().zip(taken) {
        if let Some(page) = pages.get_mut(key) {
            page.sheet = Ok(sheet);
        }
    }
    Ok(answer)
}

/// What is to be written, when anything is: it counts only as long as all that was read is as it was.
fn writes<S: Serialize>(pages: HashMap<DocKey, Page<S>>) -> Vec<DocWrite> {
    let mut changed = false;
    let pages = pages.into_values();
    let writes = pages.map(|Page { key, version, before, sheet }| match sheet {
        Ok(Some(sheet)) => {
            let write = DocWrite::json(key.as_str(), &sheet);
            if before.map(Change::Put).as_ref() == Some(&write.change) {
                DocWrite::check(key, version)
            } else {
                changed = true;
                write.at(version)
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
