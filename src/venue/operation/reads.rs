//! The record of what a call reads, written where it is read.

use super::Need;
use crate::domain::authority::{Authority, ResourcePath};
use crate::domain::lattice::Path;
use crate::domain::origin::Seen;
use parking_lot::{Mutex, MutexGuard};

/// Ability of reading what has a path.
pub const READ: &str = "crud/read";

/// What one call has looked at so far, in order.
#[derive(Debug, Default)]
pub struct Reads(Mutex<Vec<Look>>);

#[derive(Debug)]
struct Look {
    seen: Seen,
    /// What reading it needs a right to.
    on: ResourcePath,
    /// Something was there.
    found: bool,
}

impl Look {
    fn gone_to(&self, place: &str) -> Self {
        let seen = Seen { into: Some(place.to_owned()), ..self.seen.clone() };
        Self { seen, on: self.on.clone(), found: self.found }
    }
}

impl Reads {
    fn lock(&self) -> MutexGuard<'_, Vec<Look>> {
        self.0.lock()
    }

    /// A path was read, and whether anything was there.
    pub fn note(&self, path: &Path, version: Option<u64>, found: bool) {
        self.lock().push(Look { seen: Seen { version, ..Seen::new(path.to_string()) }, on: path.into(), found });
    }

    /// The bytes of a path went to another one.
    pub fn copied(&self, from: &Path, version: Option<u64>, into: &Path, found: bool) {
        let seen = Seen { version, into: Some(into.to_string()), ..Seen::new(from.to_string()) };
        self.lock().push(Look { seen, on: from.into(), found });
    }

    /// Something of the venue's that is no place in the tree was read.
    pub fn kept(&self, on: ResourcePath, path: impl Into<String>) {
        self.lock().push(Look { seen: Seen::new(path), on, found: true });
    }

    /// What the operation that runs has read went to these places, and no more of it to who called.
    pub fn went(&self, into: &[String]) {
        let [first, more @ ..] = into else { return };
        let mut looks = self.lock();
        let mut others = Vec::new();
        for look in looks.iter_mut().filter(|look| look.seen.through.is_empty() && look.seen.into.is_none()) {
            others.extend(more.iter().map(|place| look.gone_to(place)));
            look.seen.into = Some(first.clone());
        }
        looks.extend(others);
    }

    /// How many there are; what comes after them is of the operation that begins now.
    pub(super) fn begun(&self) -> usize {
        self.lock().len()
    }

    /// The operation has ended: says through what its reads were, and by which right. What it needed to
    /// read and nothing else was noted of, it has `answered` from.
    pub(super) fn ended(&self, begun: usize, through: &str, needs: &[Need], authority: &Authority, answered: bool) {
        let mut looks = self.lock();
        let noted = |looks: &[Look], on: &ResourcePath| looks[begun..].iter().any(|look| look.on == *on);
        let needed = needs.iter().filter(|need| need.ability == READ && answered);
        for Need { resource, .. } in needed {
            if !noted(&looks, resource) {
                looks.push(Look { seen: Seen::new(resource.to_string()), on: resource.clone(), found: true });
            }
        }
        for Look { seen, on, .. } in looks[begun..].iter_mut().filter(|look| look.seen.through.is_empty()) {
            through.clone_into(&mut seen.through);
            seen.allowed = authority.grounds(READ, &*on);
        }
    }

    /// What was there, each once.
    pub fn seen(&self) -> Vec<Seen> {
        let mut seen: Vec<Seen> = self.lock().iter().filter(|look| look.found).map(|look| look.seen.clone()).collect();
        seen.sort();
        seen.dedup();
        seen
    }
}
