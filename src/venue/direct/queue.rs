//! What waits for its admission, in turn by tenant and then by user: one who submits very much delays the others by one
//! submission, not by all that he has submitted.

use crate::domain::ids::{Owner, OwnerPart};
use std::collections::{HashMap, VecDeque};

/// Bounds of a queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueBounds {
    /// Most admissions at once; one tenant has at most half of them, and so has one user of its part.
    pub(super) at_once: usize,
    /// Most submissions that wait; one tenant has at most half of them, and one user an eighth.
    pub(super) waiting: usize,
    /// Most bytes of those that wait; one tenant has at most half of them, and one user an eighth.
    pub(super) bytes: usize,
}

/// Most parts of one tenant and of one user, as divisors of what all have.
const TENANT_PART: usize = 2;
const USER_PART: usize = 8;

/// Why a submission may not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{} submissions {whose} wait for their admission ({} bytes): send this one again later, under the same id", .load.waiting, .load.bytes)]
pub(super) struct SubmissionsFull {
    whose: &'static str,
    load: QueueLoad,
}

/// What waits and what is being admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct QueueLoad {
    waiting: usize,
    bytes: usize,
    running: usize,
}

impl QueueLoad {
    /// Whether one more with so many bytes fits into a part of the bounds. The first always fits.
    const fn fits(&self, bytes: usize, bounds: &QueueBounds, part: usize) -> bool {
        self.waiting == 0
            || (self.waiting < bounds.waiting / part && self.bytes.saturating_add(bytes) <= bounds.bytes / part)
    }

    const fn add(&mut self, bytes: usize) {
        self.waiting += 1;
        self.bytes += bytes;
    }

    const fn start(&mut self, bytes: usize) {
        self.waiting -= 1;
        self.bytes -= bytes;
        self.running += 1;
    }

    const fn is_nothing(&self) -> bool {
        self.waiting == 0 && self.running == 0
    }
}

struct UserLine<T> {
    load: QueueLoad,
    waiting: VecDeque<(usize, T)>,
}

struct TenantLine<T> {
    load: QueueLoad,
    users: HashMap<OwnerPart, UserLine<T>>,
    /// Users with something that waits, the next first.
    turns: VecDeque<OwnerPart>,
}

/// The waiting submissions, and how many are being admitted.
pub(super) struct FairQueue<T> {
    bounds: QueueBounds,
    load: QueueLoad,
    tenants: HashMap<OwnerPart, TenantLine<T>>,
    /// Tenants with something that waits, the next first.
    turns: VecDeque<OwnerPart>,
}

impl<T> FairQueue<T> {
    /// Makes an empty queue.
    pub(super) fn new(bounds: QueueBounds) -> Self {
        Self { bounds, load: QueueLoad::default(), tenants: HashMap::new(), turns: VecDeque::new() }
    }

    /// Adds a submission of `bytes` behind those of its owner, or returns it with the reason.
    pub(super) fn push(&mut self, owner: &Owner, bytes: usize, item: T) -> Result<(), (SubmissionsFull, T)> {
        if let Some(full) = self.find_full(owner, bytes) {
            return Err((full, item));
        }
        let tenant = self.tenants.entry(owner.tenant().clone()).or_insert_with(|| TenantLine {
            load: QueueLoad::default(),
            users: HashMap::new(),
            turns: VecDeque::new(),
        });
        let user = tenant
            .users
            .entry(owner.user().clone())
            .or_insert_with(|| UserLine { load: QueueLoad::default(), waiting: VecDeque::new() });
        if tenant.load.waiting == 0 {
            self.turns.push_back(owner.tenant().clone());
        }
        if user.load.waiting == 0 {
            tenant.turns.push_back(owner.user().clone());
        }
        user.waiting.push_back((bytes, item));
        for load in [&mut user.load, &mut tenant.load, &mut self.load] {
            load.add(bytes);
        }
        Ok(())
    }

    fn find_full(&self, owner: &Owner, bytes: usize) -> Option<SubmissionsFull> {
        let tenant = self.tenants.get(owner.tenant());
        let user = tenant.and_then(|tenant| tenant.users.get(owner.user()));
        let (of_tenant, of_user) = (tenant.map(|line| line.load), user.map(|line| line.load));
        let levels = [
            ("of this owner", of_user.unwrap_or_default(), USER_PART),
            ("of this tenant", of_tenant.unwrap_or_default(), TENANT_PART),
            ("of all tenants", self.load, 1),
        ];
        let full = levels.into_iter().find(|(_, load, part)| !load.fits(bytes, &self.bounds, *part));
        full.map(|(whose, load, _)| SubmissionsFull { whose, load })
    }

    /// Removes the next submission, which counts as being admitted until [`FairQueue::finish`]; `None` while none may
    /// begin.
    pub(super) fn pop(&mut self) -> Option<(Owner, T)> {
        if self.load.running >= self.bounds.at_once {
            return None;
        }
        let of_tenant = (self.bounds.at_once / TENANT_PART).max(1);
        let of_user = (of_tenant / TENANT_PART).max(1);
        let next_user = |line: &TenantLine<T>| {
            let has_room = |user: &OwnerPart| line.users.get(user).is_some_and(|user| user.load.running < of_user);
            if line.load.running < of_tenant { line.turns.iter().position(has_room) } else { None }
        };
        let next = |tenant: &OwnerPart| self.tenants.get(tenant).and_then(next_user);
        let (place, user) = self.turns.iter().enumerate().find_map(|(place, tenant)| Some((place, next(tenant)?)))?;
        let tenant_name = self.turns.remove(place)?;
        let tenant = self.tenants.get_mut(&tenant_name)?;
        let user_name = tenant.turns.remove(user)?;
        let user = tenant.users.get_mut(&user_name)?;
        let (bytes, item) = user.waiting.pop_front()?;
        for load in [&mut user.load, &mut tenant.load, &mut self.load] {
            load.start(bytes);
        }
        if user.load.waiting > 0 {
            tenant.turns.push_back(user_name.clone());
        }
        if tenant.load.waiting > 0 {
            self.turns.push_back(tenant_name.clone());
        }
        Some((Owner::new(tenant_name, user_name), item))
    }

    /// Notes that an admission of an owner is over.
    pub(super) fn finish(&mut self, owner: &Owner) {
        self.load.running -= 1;
        let Some(tenant) = self.tenants.get_mut(owner.tenant()) else { return };
        tenant.load.running -= 1;
        if let Some(user) = tenant.users.get_mut(owner.user()) {
            user.load.running -= 1;
            if user.load.is_nothing() {
                tenant.users.remove(owner.user());
            }
        }
        if tenant.load.is_nothing() {
            self.tenants.remove(owner.tenant());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: QueueBounds = QueueBounds { at_once: 8, waiting: 80, bytes: 800 };

    fn owner(text: &str) -> Owner {
        text.parse().unwrap()
    }

    fn filled(counts: &[(&str, usize)]) -> FairQueue<usize> {
        let mut queue = FairQueue::new(BOUNDS);
        for (name, count) in counts {
            for item in 0..*count {
                queue.push(&owner(name), 1, item).unwrap();
            }
        }
        queue
    }

    fn popped(queue: &mut FairQueue<usize>) -> Vec<String> {
        std::iter::from_fn(|| queue.pop()).map(|(owner, item)| format!("{owner} {item}")).collect()
    }

    #[test]
    fn owners_take_turns_and_none_has_more_than_its_part_at_once() {
        for (counts, expected) in [
            (&[("a/1", 5)][..], &["a/1 0", "a/1 1"][..]),
            (&[("a/1", 5), ("a/2", 1)], &["a/1 0", "a/2 0", "a/1 1"]),
            (
                &[("a/1", 5), ("a/2", 5), ("a/3", 5), ("b/1", 2)],
                &["a/1 0", "b/1 0", "a/2 0", "b/1 1", "a/3 0", "a/1 1"],
            ),
        ] {
            assert_eq!(popped(&mut filled(counts)), expected, "{counts:?}");
        }
    }

    #[test]
    fn an_admission_that_is_over_makes_room_for_its_owner() {
        let mut queue = filled(&[("a/1", 3)]);
        assert_eq!(popped(&mut queue), ["a/1 0", "a/1 1"]);
        queue.finish(&owner("a/1"));
        assert_eq!(popped(&mut queue), ["a/1 2"]);
        for _ in 0..2 {
            queue.finish(&owner("a/1"));
        }
        assert_eq!((queue.load, queue.tenants.len(), queue.turns.len()), (QueueLoad::default(), 0, 0));
    }

    #[test]
    fn each_level_has_its_bound_and_a_first_one_fits() {
        let mut queue = filled(&[("a/1", 10)]);
        let text = |refused: Result<(), (SubmissionsFull, usize)>| refused.unwrap_err().0.to_string();
        assert!(text(queue.push(&owner("a/1"), 1, 0)).starts_with("10 submissions of this owner wait"));
        for user in 2..5 {
            for item in 0..10 {
                queue.push(&owner(&format!("a/{user}")), 1, item).unwrap();
            }
        }
        assert!(text(queue.push(&owner("a/9"), 361, 0)).starts_with("40 submissions of this tenant wait"));
        queue.push(&owner("b/1"), 700, 0).unwrap();
        assert!(text(queue.push(&owner("b/1"), 1, 0)).contains("of this owner wait for their admission (700 bytes)"));
        assert!(text(queue.push(&owner("c/1"), 100, 0)).starts_with("41 submissions of all tenants wait"));
    }
}
