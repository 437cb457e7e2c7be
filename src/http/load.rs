//! Memory of requests at work. A value takes many times the size of its text while it is handled, so requests that
//! bring or read large ones wait for each other. One tenant may take at most half of the memory and no more than is
//! free: half when alone, a third beside another that does the same. Users of one tenant share its part in the same
//! way.

use crate::domain::ids::Owner;
use crate::domain::share::{Sharers, subtract_count};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Memory per byte of JSON while it is handled: a list of short numbers takes 16 bytes for each byte of text, twice
/// while it is checked and written. Measured: 20 to 50 MiB for 900 KB.
const PER_BYTE: u64 = 32;

/// Memory of a request that reads values named by its caller, at most 1 MB of text.
const READ: u64 = 16 << 20;

/// Bodies up to this size cost nothing: one per connection takes little.
const LIGHT: u64 = 4 << 10;

/// Memory per byte of an asset's content while it is stored: the body, and a part of it on its way to the store.
const PER_CONTENT_BYTE: u64 = 4;

/// Memory of a request, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cost {
    /// Memory in all.
    pub(super) all: u64,
    /// Memory of its body.
    pub(super) brought: u64,
}

impl Cost {
    /// Returns the cost of a request that brings the `bytes` of an asset.
    pub(super) const fn of_content(bytes: usize) -> Self {
        let brought = bytes as u64 * PER_CONTENT_BYTE;
        Self { all: brought, brought }
    }

    /// Returns the cost of a request with `body` bytes; `reads`: it reads values named by its caller.
    pub(super) const fn of(body: usize, reads: bool) -> Self {
        let body = body as u64;
        let brought = if body <= LIGHT { 0 } else { body * PER_BYTE };
        Self { all: if reads && brought < READ { READ } else { brought }, brought }
    }
}

/// The owner that a request is charged to, and the levels at which owners share.
#[derive(Debug, Clone)]
pub(super) struct Payer {
    tenant: Arc<str>,
    /// `tenant/user`; empty for an unidentified caller.
    owner: Arc<str>,
    sharers: Sharers,
}

impl Payer {
    pub(super) fn new(owner: Option<Owner>, sharers: Sharers) -> Self {
        let (tenant, owner) = owner
            .map_or_else(Default::default, |owner| (Arc::from(owner.tenant().as_str()), Arc::from(owner.to_string())));
        Self { tenant, owner, sharers }
    }
}

/// Memory in use and requests that wait for memory, in order; a request whose owner has used its share is overtaken.
struct Loads {
    room: u64,
    used: u64,
    of_tenant: HashMap<Arc<str>, u64>,
    of_owner: HashMap<Arc<str>, u64>,
    held: HashMap<u64, (Payer, u64)>,
    waiting: VecDeque<(u64, Payer, u64)>,
}

impl Loads {
    fn new(room: u64) -> Self {
        let (of_tenant, of_owner) = (HashMap::new(), HashMap::new());
        Self { room, used: 0, of_tenant, of_owner, held: HashMap::new(), waiting: VecDeque::new() }
    }

    const fn share(&self) -> u64 {
        self.room / 2
    }

    /// Adds a waiting request; [`Self::next`] starts it. A cost larger than a share counts as one share.
    fn enqueue(&mut self, number: u64, payer: Payer, cost: u64) {
        let cost = cost.min(self.share());
        self.waiting.push_back((number, payer, cost));
    }

    /// Whether an owner, and its tenant, may take this much more; the first request of each always may.
    fn has_share(&self, payer: &Payer, cost: u64) -> bool {
        let of = |counts: &HashMap<Arc<str>, u64>, name| counts.get(name).copied().unwrap_or(0);
        let (tenant, own) = (of(&self.of_tenant, &payer.tenant), of(&self.of_owner, &payer.owner));
        let free = self.room.saturating_sub(self.used);
        let fits = |own: u64, share: u64, free: u64| own == 0 || own + cost <= share.min(free);
        if !payer.sharers.tenants {
            return fits(own, self.share(), free);
        }
        // Most that the tenant can have while others free nothing.
        let of_tenant = self.share().min(u64::midpoint(free, tenant));
        fits(tenant, self.share(), free)
            && (!payer.sharers.users || fits(own, of_tenant / 2, of_tenant.saturating_sub(tenant)))
    }

    /// Changes the cost of a running request.
    fn takes(&mut self, number: u64, cost: u64) {
        if let Some((payer, _)) = self.leaves(number) {
            self.enters(number, payer, cost);
        }
    }

    /// Removes a request that is done or waits no more.
    fn goes(&mut self, number: u64) {
        if self.leaves(number).is_none() {
            self.waiting.retain(|(other, ..)| *other != number);
        }
    }

    /// Starts the requests that have room, and returns their numbers.
    fn next(&mut self) -> Vec<u64> {
        let (mut numbers, mut kept) = (Vec::new(), VecDeque::new());
        let mut full = false;
        for (number, payer, cost) in std::mem::take(&mut self.waiting) {
            let has_share = cost == 0 || self.has_share(&payer, cost);
            let has_room = cost == 0 || !full && self.used + cost <= self.room;
            if has_share && has_room {
                self.enters(number, payer, cost);
                numbers.push(number);
            } else {
                // Requests behind don't overtake one that waits for room, or it would wait forever.
                full |= has_share;
                kept.push_back((number, payer, cost));
            }
        }
        self.waiting = kept;
        numbers
    }

    fn enters(&mut self, number: u64, payer: Payer, cost: u64) {
        self.used += cost;
        *self.of_tenant.entry(Arc::clone(&payer.tenant)).or_default() += cost;
        *self.of_owner.entry(Arc::clone(&payer.owner)).or_default() += cost;
        self.held.insert(number, (payer, cost));
    }

    fn leaves(&mut self, number: u64) -> Option<(Payer, u64)> {
        let (payer, cost) = self.held.remove(&number)?;
        self.used -= cost;
        for (counts, name) in [(&mut self.of_tenant, &payer.tenant), (&mut self.of_owner, &payer.owner)] {
            subtract_count(counts, name, cost);
        }
        Some((payer, cost))
    }
}

/// Memory of all requests at work.
pub(super) struct Scales(Mutex<State>);

struct State {
    loads: Loads,
    wakers: HashMap<u64, oneshot::Sender<()>>,
    numbers: u64,
}

impl Scales {
    /// Makes the limit of `room` bytes for all requests together.
    pub(super) fn new(room: u64) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { loads: Loads::new(room), wakers: HashMap::new(), numbers: 0 })))
    }

    /// Waits for room and charges a request; `None` if there is no room within `time`.
    pub(super) async fn load(self: &Arc<Self>, payer: &Payer, cost: Cost, time: Duration) -> Option<Arc<Load>> {
        let (sender, begins) = oneshot::channel();
        let load = {
            let mut state = self.lock();
            state.numbers += 1;
            let number = state.numbers;
            state.wakers.insert(number, sender);
            state.loads.enqueue(number, payer.clone(), cost.all);
            state.wake();
            // From here on, dropping the load undoes all of it.
            Arc::new(Load { scales: Arc::clone(self), number, brought: cost.brought })
        };
        tokio::time::timeout(time, begins).await.ok()?.ok()?;
        Some(load)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

impl State {
    fn wake(&mut self) {
        for number in self.loads.next() {
            // A request that is gone is removed when its load is dropped.
            if let Some(waker) = self.wakers.remove(&number) {
                let _ = waker.send(());
            }
        }
    }
}

/// Memory charged to one request, until this is dropped.
pub(super) struct Load {
    scales: Arc<Scales>,
    number: u64,
    brought: u64,
}

impl Load {
    /// Reduces the charge to the memory of the body: the request reads nothing large.
    pub(super) fn reads_nothing(&self) {
        self.takes(self.brought);
    }

    /// Changes the charge to `cost` bytes.
    pub(super) fn takes(&self, cost: u64) {
        let mut state = self.scales.lock();
        state.loads.takes(self.number, cost);
        state.wake();
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let mut state = self.scales.lock();
        state.wakers.remove(&self.number);
        state.loads.goes(self.number);
        state.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn cost(all: u64) -> Cost {
        Cost { all, brought: 0 }
    }

    /// One of several users of the only tenant.
    fn payer(user: &str) -> Payer {
        Payer::new(Some(format!("t/{user}").parse().unwrap()), Sharers { tenants: false, users: true })
    }

    fn enqueue(loads: &mut Loads, number: u64, user: &str, cost: u64) -> Vec<u64> {
        loads.enqueue(number, payer(user), cost);
        loads.next()
    }

    #[test]
    fn the_cost_is_of_the_body_or_of_what_is_read() {
        for (body, reads, expected) in [
            (0, false, 0),
            (4_096, false, 0),
            (4_097, false, 4_097 * 32),
            (900_000, false, 28_800_000),
            (0, true, 16 << 20),
            (900_000, true, 28_800_000),
        ] {
            assert_eq!(Cost::of(body, reads).all, expected, "{body} {reads}");
            assert_eq!(Cost::of(body, reads).brought, if body == 0 { 0 } else { expected }, "{body} {reads}");
        }
    }

    #[test]
    fn whoever_came_first_goes_first_and_nobody_has_more_than_half() {
        let mut all = Loads::new(100);
        assert_eq!(enqueue(&mut all, 1, "ann", 30), [1]);
        assert_eq!(enqueue(&mut all, 2, "ann", 30), [0; 0], "her share is 50");
        assert_eq!(enqueue(&mut all, 3, "ann", 20), [3], "this fits it, and takes nobody's room who has a right to it");
        assert_eq!(enqueue(&mut all, 4, "bob", 40), [4]);
        assert_eq!(enqueue(&mut all, 5, "cy", 20), [0; 0], "90 are used");
        assert_eq!(enqueue(&mut all, 6, "dee", 10), [0; 0], "cy was first");
        assert_eq!(enqueue(&mut all, 7, "dee", 0), [7], "what takes nothing waits for nobody");
        all.goes(3);
        assert_eq!(all.next(), [5, 6], "ann's next still has no share");
        all.goes(1);
        assert_eq!(all.next(), [2]);
        for number in [2, 4, 5, 6, 7] {
            all.goes(number);
        }
        assert_eq!((all.used, all.of_tenant.len(), all.of_owner.len()), (0, 0, 0));
        assert_eq!((all.held.len(), all.waiting.len()), (0, 0));
    }

    #[test]
    fn owners_who_take_all_they_can_leave_room_for_the_next() {
        let (mut all, mut number) = (Loads::new(256), 0);
        let mut most = |owner: &str| {
            let mut count = 0;
            loop {
                number += 1;
                if enqueue(&mut all, number, owner, 16).is_empty() {
                    return count;
                }
                count += 1;
            }
        };
        assert_eq!(["ann", "bob", "cy", "dee", "eve"].map(&mut most), [8, 4, 2, 1, 1]);
        assert_eq!(all.used, 256);
    }

    #[test]
    fn the_users_of_a_tenant_take_together_what_one_tenant_takes() {
        let (mut all, mut number) = (Loads::new(256), 0);
        let mut most = |owner: &str, users: bool| {
            let payer = Payer::new(Some(owner.parse().unwrap()), Sharers { tenants: true, users });
            let mut count = 0;
            loop {
                number += 1;
                all.enqueue(number, payer.clone(), 16);
                if all.next().is_empty() {
                    return count;
                }
                count += 1;
            }
        };
        let held = ["a/1", "a/2", "a/3", "a/4", "a/5"].map(|user| most(user, true));
        assert_eq!(held, [4, 2, 1, 1, 0], "half of all together");
        assert_eq!([most("b/1", false), most("c/1", false)], [4, 2], "and so has the next tenant");
    }

    #[test]
    fn one_that_waits_no_more_and_one_that_gets_lighter_make_room() {
        let mut all = Loads::new(100);
        assert_eq!(enqueue(&mut all, 1, "ann", 500), [1], "no more than a share");
        assert_eq!(enqueue(&mut all, 2, "ann", 10), [0; 0]);
        assert_eq!(enqueue(&mut all, 3, "ann", 50), [0; 0]);
        all.goes(2);
        all.takes(1, 0);
        assert_eq!(all.next(), [3]);
        all.takes(1, 90);
        assert_eq!(all.used, 140, "an answer is as large as it is");
        all.takes(2, 10);
        all.goes(2);
        assert_eq!(all.used, 140, "of one that isn't there nothing is counted");
    }

    #[tokio::test]
    async fn who_gives_up_leaves_nothing_behind() {
        let scales = Scales::new(100);
        let first = scales.load(&payer("ann"), cost(50), Duration::from_mins(1)).await.unwrap();
        assert!(scales.load(&payer("ann"), cost(1), Duration::from_millis(1)).await.is_none());
        let waiting = tokio::spawn({
            let scales = Arc::clone(&scales);
            async move { scales.load(&payer("ann"), cost(50), Duration::from_mins(1)).await.is_some() }
        });
        drop(first);
        assert!(waiting.await.unwrap());
        let state = scales.lock();
        assert_eq!((state.loads.used, state.loads.waiting.len(), state.wakers.len()), (0, 0, 0));
    }
}
