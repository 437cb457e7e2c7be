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
const READ_MEMORY: u64 = 16 << 20;

/// Bodies up to this size cost nothing: one per connection takes little.
const FREE_BODY_BYTES: u64 = 4 << 10;

/// Memory per byte of an asset's content while it is stored: the body, and a part of it on its way to the store.
const PER_CONTENT_BYTE: u64 = 4;

/// Memory of a request, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemoryCost {
    /// Memory in all.
    pub(super) total: u64,
    /// Memory of its body.
    pub(super) body: u64,
}

impl MemoryCost {
    /// Returns the cost of a request that brings the `bytes` of an asset.
    pub(super) const fn content_cost(bytes: usize) -> Self {
        let brought = bytes as u64 * PER_CONTENT_BYTE;
        Self { total: brought, body: brought }
    }

    /// Returns the cost of a request with `body` bytes; `reads`: it reads values named by its caller.
    pub(super) const fn request_cost(body: usize, reads: bool) -> Self {
        let body = body as u64;
        let brought = if body <= FREE_BODY_BYTES { 0 } else { body * PER_BYTE };
        Self { total: if reads && brought < READ_MEMORY { READ_MEMORY } else { brought }, body: brought }
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
struct MemoryQueue {
    limit: u64,
    used: u64,
    of_tenant: HashMap<Arc<str>, u64>,
    of_owner: HashMap<Arc<str>, u64>,
    charges: HashMap<u64, (Payer, u64)>,
    waiting: VecDeque<(u64, Payer, u64)>,
}

impl MemoryQueue {
    fn new(room: u64) -> Self {
        let (of_tenant, of_owner) = (HashMap::new(), HashMap::new());
        Self { limit: room, used: 0, of_tenant, of_owner, charges: HashMap::new(), waiting: VecDeque::new() }
    }

    const fn share(&self) -> u64 {
        self.limit / 2
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
        let free = self.limit.saturating_sub(self.used);
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
    fn set_cost(&mut self, number: u64, cost: u64) {
        if let Some((payer, _)) = self.remove_charge(number) {
            self.add_charge(number, payer, cost);
        }
    }

    /// Removes a request that is done or waits no more.
    fn remove(&mut self, number: u64) {
        if self.remove_charge(number).is_none() {
            self.waiting.retain(|(other, ..)| *other != number);
        }
    }

    /// Starts the requests that have room, and returns their numbers.
    fn start_next(&mut self) -> Vec<u64> {
        let (mut numbers, mut kept) = (Vec::new(), VecDeque::new());
        let mut full = false;
        for (number, payer, cost) in std::mem::take(&mut self.waiting) {
            let has_share = cost == 0 || self.has_share(&payer, cost);
            let has_room = cost == 0 || !full && self.used + cost <= self.limit;
            if has_share && has_room {
                self.add_charge(number, payer, cost);
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

    fn add_charge(&mut self, number: u64, payer: Payer, cost: u64) {
        self.used += cost;
        *self.of_tenant.entry(Arc::clone(&payer.tenant)).or_default() += cost;
        *self.of_owner.entry(Arc::clone(&payer.owner)).or_default() += cost;
        self.charges.insert(number, (payer, cost));
    }

    fn remove_charge(&mut self, number: u64) -> Option<(Payer, u64)> {
        let (payer, cost) = self.charges.remove(&number)?;
        self.used -= cost;
        for (counts, name) in [(&mut self.of_tenant, &payer.tenant), (&mut self.of_owner, &payer.owner)] {
            subtract_count(counts, name, cost);
        }
        Some((payer, cost))
    }
}

/// Memory of all requests at work.
pub(super) struct MemoryLimiter(Mutex<LimiterState>);

struct LimiterState {
    loads: MemoryQueue,
    wakers: HashMap<u64, oneshot::Sender<()>>,
    numbers: u64,
}

impl MemoryLimiter {
    /// Makes the limit of `room` bytes for all requests together.
    pub(super) fn new(room: u64) -> Arc<Self> {
        Arc::new(Self(Mutex::new(LimiterState { loads: MemoryQueue::new(room), wakers: HashMap::new(), numbers: 0 })))
    }

    /// Waits for room and charges a request; `None` if there is no room within `time`.
    pub(super) async fn load(
        self: &Arc<Self>,
        payer: &Payer,
        cost: MemoryCost,
        time: Duration,
    ) -> Option<Arc<MemoryCharge>> {
        let (sender, begins) = oneshot::channel();
        let load = {
            let mut state = self.lock();
            state.numbers += 1;
            let number = state.numbers;
            state.wakers.insert(number, sender);
            state.loads.enqueue(number, payer.clone(), cost.total);
            state.wake();
            // From here on, dropping the load undoes all of it.
            Arc::new(MemoryCharge { scales: Arc::clone(self), number, brought: cost.body })
        };
        tokio::time::timeout(time, begins).await.ok()?.ok()?;
        Some(load)
    }

    fn lock(&self) -> MutexGuard<'_, LimiterState> {
        self.0.lock()
    }
}

impl LimiterState {
    fn wake(&mut self) {
        for number in self.loads.start_next() {
            // A request that is gone is removed when its load is dropped.
            if let Some(waker) = self.wakers.remove(&number) {
                let _ = waker.send(());
            }
        }
    }
}

/// Memory charged to one request, until this is dropped.
pub(super) struct MemoryCharge {
    scales: Arc<MemoryLimiter>,
    number: u64,
    brought: u64,
}

impl MemoryCharge {
    /// Reduces the charge to the memory of the body: the request reads nothing large.
    pub(super) fn release_read_memory(&self) {
        self.set_cost(self.brought);
    }

    /// Changes the charge to `cost` bytes.
    pub(super) fn set_cost(&self, cost: u64) {
        let mut state = self.scales.lock();
        state.loads.set_cost(self.number, cost);
        state.wake();
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        let mut state = self.scales.lock();
        state.wakers.remove(&self.number);
        state.loads.remove(self.number);
        state.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn cost(all: u64) -> MemoryCost {
        MemoryCost { total: all, body: 0 }
    }

    /// One of several users of the only tenant.
    fn payer(user: &str) -> Payer {
        Payer::new(Some(format!("t/{user}").parse().unwrap()), Sharers { tenants: false, users: true })
    }

    fn enqueue(loads: &mut MemoryQueue, number: u64, user: &str, cost: u64) -> Vec<u64> {
        loads.enqueue(number, payer(user), cost);
        loads.start_next()
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
            assert_eq!(MemoryCost::request_cost(body, reads).total, expected, "{body} {reads}");
            assert_eq!(
                MemoryCost::request_cost(body, reads).body,
                if body == 0 { 0 } else { expected },
                "{body} {reads}"
            );
        }
    }

    #[test]
    fn requests_go_in_order_and_no_owner_has_more_than_half() {
        let mut all = MemoryQueue::new(100);
        assert_eq!(enqueue(&mut all, 1, "ann", 30), [1]);
        assert_eq!(enqueue(&mut all, 2, "ann", 30), [0; 0], "her share is 50");
        assert_eq!(enqueue(&mut all, 3, "ann", 20), [3], "this fits it, and takes nobody's room who has a right to it");
        assert_eq!(enqueue(&mut all, 4, "bob", 40), [4]);
        assert_eq!(enqueue(&mut all, 5, "cy", 20), [0; 0], "90 are used");
        assert_eq!(enqueue(&mut all, 6, "dee", 10), [0; 0], "cy was first");
        assert_eq!(enqueue(&mut all, 7, "dee", 0), [7], "what takes nothing waits for nobody");
        all.remove(3);
        assert_eq!(all.start_next(), [5, 6], "ann's next still has no share");
        all.remove(1);
        assert_eq!(all.start_next(), [2]);
        for number in [2, 4, 5, 6, 7] {
            all.remove(number);
        }
        assert_eq!((all.used, all.of_tenant.len(), all.of_owner.len()), (0, 0, 0));
        assert_eq!((all.charges.len(), all.waiting.len()), (0, 0));
    }

    #[test]
    fn owners_who_take_all_they_can_leave_room_for_the_next() {
        let (mut all, mut number) = (MemoryQueue::new(256), 0);
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
        let (mut all, mut number) = (MemoryQueue::new(256), 0);
        let mut most = |owner: &str, users: bool| {
            let payer = Payer::new(Some(owner.parse().unwrap()), Sharers { tenants: true, users });
            let mut count = 0;
            loop {
                number += 1;
                all.enqueue(number, payer.clone(), 16);
                if all.start_next().is_empty() {
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
    fn leaving_and_shrinking_requests_make_room() {
        let mut all = MemoryQueue::new(100);
        assert_eq!(enqueue(&mut all, 1, "ann", 500), [1], "no more than a share");
        assert_eq!(enqueue(&mut all, 2, "ann", 10), [0; 0]);
        assert_eq!(enqueue(&mut all, 3, "ann", 50), [0; 0]);
        all.remove(2);
        all.set_cost(1, 0);
        assert_eq!(all.start_next(), [3]);
        all.set_cost(1, 90);
        assert_eq!(all.used, 140, "an answer is as large as it is");
        all.set_cost(2, 10);
        all.remove(2);
        assert_eq!(all.used, 140, "of one that isn't there nothing is counted");
    }

    #[tokio::test]
    async fn a_request_that_gives_up_frees_its_place() {
        let scales = MemoryLimiter::new(100);
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
