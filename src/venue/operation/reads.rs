//! The record of what a call reads, written where it is read.

use super::Need;
use crate::domain::authority::{Authority, ResourcePath};
use crate::domain::call::SentMarks;
use crate::domain::lattice::Path;
use crate::domain::origin::{SourceRead, ValueState};
use crate::venue::workspace::TreeValue;
use parking_lot::{Mutex, MutexGuard};

/// Ability to read a path.
pub const READ: &str = "crud/read";

/// What one call has read so far, in order.
#[derive(Debug, Default)]
pub struct Reads {
    noted: Mutex<Vec<NotedRead>>,
    /// Whether only copies are recorded, as of a caller outside turns.
    copies_only: bool,
    /// Marks of the call that has left the venue.
    sent: Mutex<Option<SentMarks>>,
}

#[derive(Debug)]
struct NotedRead {
    seen: SourceRead,
    /// Resource on which the read needs a capability.
    on: ResourcePath,
    /// Whether the path had a value.
    found: bool,
}

impl NotedRead {
    fn copied_to(&self, place: &str) -> Self {
        let seen = SourceRead { into: Some(place.to_owned()), ..self.seen.clone() };
        Self { seen, on: self.on.clone(), found: self.found }
    }
}

/// Returns the record of a read of the tree. Its hash takes a pass over the whole value.
fn source_read(path: &Path, read: Option<&TreeValue>) -> SourceRead {
    let ValueState { version, hash } = read.map(TreeValue::state).unwrap_or_default();
    SourceRead { version, hash, ..SourceRead::new(path.to_string()) }
}

impl Reads {
    /// Makes the record of a caller outside turns, where only the copies of what is read are recorded.
    pub fn of_copies() -> Self {
        Self { copies_only: true, ..Self::default() }
    }

    /// Notes the marks of a call with an effect that leaves the venue.
    pub fn note_sent(&self, marks: SentMarks) {
        *self.sent.lock() = Some(marks);
    }

    /// Returns the marks of the call that has left the venue.
    pub fn sent_marks(&self) -> Option<SentMarks> {
        self.sent.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<NotedRead>> {
        self.noted.lock()
    }

    /// Notes a read of a path, and whether anything was there.
    pub fn note(&self, path: &Path, found: bool) {
        self.lock().push(NotedRead { seen: SourceRead::new(path.to_string()), on: path.into(), found });
    }

    /// Notes a read of a value of the tree; `None` if nothing was there.
    pub fn note_value(&self, path: &Path, read: Option<&TreeValue>) {
        if self.copies_only {
            self.note(path, read.is_some());
        } else {
            self.note_value_to_copy(path, read);
        }
    }

    /// Notes a read of a value of the tree that the operation copies: [`Self::note_copies`] follows.
    pub fn note_value_to_copy(&self, path: &Path, read: Option<&TreeValue>) {
        self.lock().push(NotedRead { seen: source_read(path, read), on: path.into(), found: read.is_some() });
    }

    /// Notes that the bytes of a path were copied to another one, if anything was there.
    pub fn note_copy(&self, from: &Path, into: &Path, found: bool) {
        let seen = SourceRead { into: Some(into.to_string()), ..SourceRead::new(from.to_string()) };
        self.lock().push(NotedRead { seen, on: from.into(), found });
    }

    /// Notes that a value of the tree was copied to another path; `None` if nothing was there.
    pub fn note_value_copy(&self, from: &Path, read: Option<&TreeValue>, into: &Path) {
        let seen = SourceRead { into: Some(into.to_string()), ..source_read(from, read) };
        self.lock().push(NotedRead { seen, on: from.into(), found: read.is_some() });
    }

    /// Notes a read of something of the venue's that has no path in the tree.
    pub fn note_kept(&self, on: ResourcePath, path: impl Into<String>) {
        self.lock().push(NotedRead { seen: SourceRead::new(path), on, found: true });
    }

    /// Notes that what the running operation has read was copied to these paths, and no more of it to the caller.
    pub fn note_copies(&self, into: &[String]) {
        let [first, more @ ..] = into else { return };
        let mut looks = self.lock();
        let mut others = Vec::new();
        for look in looks.iter_mut().filter(|look| look.seen.through.is_empty() && look.seen.into.is_none()) {
            others.extend(more.iter().map(|place| look.copied_to(place)));
            look.seen.into = Some(first.clone());
        }
        looks.extend(others);
    }

    /// Returns the number of reads; later ones belong to the operation that begins.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Notes the end of an operation: the operation and the capability of its reads. A path that it needed to read and
    /// that has no note is added, if it `answered`.
    pub(super) fn note_end(&self, begun: usize, through: &str, needs: &[Need], authority: &Authority, answered: bool) {
        let mut looks = self.lock();
        let noted = |looks: &[NotedRead], on: &ResourcePath| looks[begun..].iter().any(|look| look.on == *on);
        let needed = needs.iter().filter(|need| need.ability == READ && answered);
        for Need { resource, .. } in needed {
            if !noted(&looks, resource) {
                looks.push(NotedRead {
                    seen: SourceRead::new(resource.to_string()),
                    on: resource.clone(),
                    found: true,
                });
            }
        }
        for NotedRead { seen, on, .. } in looks[begun..].iter_mut().filter(|look| look.seen.through.is_empty()) {
            through.clone_into(&mut seen.through);
            seen.allowed = authority.justification(READ, &*on);
        }
    }

    /// Returns the reads that found something, each once.
    pub fn found_reads(&self) -> Vec<SourceRead> {
        let mut seen: Vec<SourceRead> =
            self.lock().iter().filter(|look| look.found).map(|look| look.seen.clone()).collect();
        seen.sort();
        seen.dedup();
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_hashed_only_where_a_record_holds_them() {
        let path = Path::parse("w/a").unwrap();
        let read = TreeValue { version: None, value: json!({"many": "documents"}) };
        let hashes = |reads: Reads, note: fn(&Reads, &Path, &TreeValue)| {
            note(&reads, &path, &read);
            let found = reads.found_reads();
            assert_eq!(found.len(), 1);
            found[0].hash.is_some()
        };
        let value = |reads: &Reads, path: &Path, read: &TreeValue| reads.note_value(path, Some(read));
        let to_copy = |reads: &Reads, path: &Path, read: &TreeValue| reads.note_value_to_copy(path, Some(read));
        let copy = |reads: &Reads, path: &Path, read: &TreeValue| reads.note_value_copy(path, Some(read), path);
        assert!(hashes(Reads::default(), value) && !hashes(Reads::of_copies(), value));
        for copies in [to_copy as fn(&Reads, &Path, &TreeValue), copy] {
            assert!(hashes(Reads::default(), copies) && hashes(Reads::of_copies(), copies));
        }
    }
}
