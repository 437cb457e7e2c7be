//! Limits of open connections: in all and per address, and which one is closed for a new one.
//!
//! A connection **waits** while it has no whole request: none at all, half a header, half a body. It may be closed at
//! any time for a new one, so that clients that send nothing never keep out others. A connection that **works** stays
//! open; when all of them work, the next is refused.
//!
//! A request may work as long as its caller likes: it waits for a job, or its answer is a stream. So one tenant may
//! have no more requests at work than connections are free: half of all when alone, a third beside another tenant that
//! does the same. One user of a tenant may have no more than are free for the tenant.

use crate::domain::ids::{Owner, OwnerPart};
use crate::domain::share::{Sharers, TakenPlaces, has_free_place, subtract_count};
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};

/// File descriptors reserved for the store, the queue, model calls and files, where the process may have more.
const KEPT_DESCRIPTORS: usize = 512;

/// Limits of open connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Connections in all.
    pub total: usize,
    /// Connections of one address, or of one IPv6 network of 64 bits.
    pub per_address: usize,
    /// Addresses of reverse proxies, which have no limit per address.
    pub proxies: Vec<IpAddr>,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self { total: 512, per_address: 256, proxies: Vec::new() }
    }
}

impl ConnectionLimits {
    /// Lowers the total to what the process's file descriptors leave: at least half of them, or all but a reserve.
    #[must_use]
    pub fn limit_to_descriptors(self, descriptors: Option<usize>) -> Self {
        let free = descriptors.map_or(usize::MAX, |all| all.saturating_sub(KEPT_DESCRIPTORS).max(all / 2).max(1));
        Self { total: self.total.min(free), ..self }
    }

    fn has_proxy(&self, address: IpAddr) -> bool {
        self.proxies.iter().any(|proxy| proxy.to_canonical() == address.to_canonical())
    }
}

/// Decision about a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionDecision {
    /// It is open; the other connection, if any, is closed for it.
    Open { number: u64, instead_of: Option<u64> },
    /// All connections work: refused.
    Full,
    /// All connections of the address work: refused.
    FullOfAddress,
}

/// Account of a request, by which requests share the connections.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Requester {
    /// A caller whose owner is known from its token or header.
    Owner(Owner),
    /// An unidentified caller: all of its address, or of its IPv6 network, together.
    Unknown,
}

/// Refusal of a request: its requester, or its tenant, has as many at work as connections are free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShareExceeded {
    /// True if the limit of its address was reached, false if the total was.
    pub(super) is_address_limit: bool,
}

/// State of an open connection.
struct OpenConnection {
    address: IpAddr,
    is_proxy: bool,
    /// Number of the event at which it began to wait; `None` while it works.
    waiting_since: Option<u64>,
    /// Account of its request, while it works.
    requester: Option<Requester>,
}

/// A tenant or user that has a share of the connections.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Sharer {
    Tenant(OwnerPart),
    User(Owner),
    Unknown,
}

impl Requester {
    fn sharers(&self) -> Vec<Sharer> {
        match self {
            Self::Owner(owner) => vec![Sharer::Tenant(owner.tenant().clone()), Sharer::User(owner.clone())],
            Self::Unknown => vec![Sharer::Unknown],
        }
    }
}

/// Counts of requests at work.
#[derive(Default)]
struct WorkCounts {
    total: usize,
    of_address: HashMap<IpAddr, usize>,
    /// Counts by sharer, from one address and (`None`) from all.
    of_sharer: HashMap<(Option<IpAddr>, Sharer), usize>,
}

impl WorkCounts {
    fn add(&mut self, from: IpAddr, requester: &Requester) {
        self.total += 1;
        *self.of_address.entry(from).or_default() += 1;
        for sharer in requester.sharers() {
            *self.of_sharer.entry((Some(from), sharer.clone())).or_default() += 1;
            *self.of_sharer.entry((None, sharer)).or_default() += 1;
        }
    }

    fn remove(&mut self, from: IpAddr, requester: &Requester) {
        self.total -= 1;
        subtract_count(&mut self.of_address, &from, 1);
        for sharer in requester.sharers() {
            subtract_count(&mut self.of_sharer, &(Some(from), sharer.clone()), 1);
            subtract_count(&mut self.of_sharer, &(None, sharer), 1);
        }
    }

    /// Counts the working connections, of one address or of all, that a request of this requester shares with.
    fn count_taken(&self, from: Option<IpAddr>, requester: &Requester) -> TakenPlaces {
        let all = from.map_or(self.total, |from| self.of_address.get(&from).copied().unwrap_or(0));
        let count = |sharer| self.of_sharer.get(&(from, sharer)).copied().unwrap_or(0);
        match requester {
            Requester::Owner(owner) => {
                let tenant = count(Sharer::Tenant(owner.tenant().clone()));
                TakenPlaces { all, tenant, user: count(Sharer::User(owner.clone())), ..TakenPlaces::default() }
            }
            Requester::Unknown => TakenPlaces { all, user: count(Sharer::Unknown), ..TakenPlaces::default() },
        }
    }
}

/// All open connections.
pub(super) struct Connections {
    room: ConnectionLimits,
    open: BTreeMap<u64, OpenConnection>,
    of_address: HashMap<IpAddr, usize>,
    working: WorkCounts,
    events: u64,
}

impl Connections {
    pub(super) fn new(room: ConnectionLimits) -> Self {
        let (open, of_address, working) = (BTreeMap::new(), HashMap::new(), WorkCounts::default());
        Self { room, open, of_address, working, events: 0 }
    }

    /// Adds a connection, if there is room or one that waits can be closed for it.
    pub(super) fn accept(&mut self, address: IpAddr) -> ConnectionDecision {
        let from = network(address);
        let own = self.of_address.get(&from).copied().unwrap_or(0);
        let is_proxy = self.room.has_proxy(address);
        let instead_of = if !is_proxy && own >= self.room.per_address {
            match self.longest_waiting(Some(from)) {
                None => return ConnectionDecision::FullOfAddress,
                other => other,
            }
        } else if self.open.len() >= self.room.total {
            match self.longest_waiting(None) {
                None => return ConnectionDecision::Full,
                other => other,
            }
        } else {
            None
        };
        if let Some(other) = instead_of {
            self.remove(other);
        }
        let number = self.next_event();
        self.open
            .insert(number, OpenConnection { address: from, is_proxy, waiting_since: Some(number), requester: None });
        *self.of_address.entry(from).or_default() += 1;
        ConnectionDecision::Open { number, instead_of }
    }

    /// Marks a connection with a whole request as working, unless its requester has used its share; then it waits as
    /// before.
    /// `sharers`: levels at which owners share.
    pub(super) fn start_work(
        &mut self,
        number: u64,
        requester: Requester,
        sharers: Sharers,
    ) -> Result<(), ShareExceeded> {
        // A connection closed meanwhile is answered nonetheless.
        let Some(open) = self.open.get_mut(&number) else { return Ok(()) };
        let there = self.working.count_taken(Some(open.address), &requester);
        let mut everywhere = self.working.count_taken(None, &requester);
        if requester == Requester::Unknown {
            // Unidentified callers of other addresses count as others.
            everywhere.user = there.user;
        }
        let is_short_there = !open.is_proxy && !has_free_place(self.room.per_address, there, sharers);
        if is_short_there || !has_free_place(self.room.total, everywhere, sharers) {
            return Err(ShareExceeded { is_address_limit: is_short_there });
        }
        self.working.add(open.address, &requester);
        open.requester = Some(requester);
        open.waiting_since = None;
        Ok(())
    }

    /// Marks a connection as waiting after its answer.
    pub(super) fn mark_idle(&mut self, number: u64) {
        let event = self.next_event();
        if let Some(open) = self.open.get_mut(&number) {
            open.waiting_since = Some(event);
            if let Some(requester) = open.requester.take() {
                self.working.remove(open.address, &requester);
            }
        }
    }

    /// Removes a closed connection.
    pub(super) fn remove(&mut self, number: u64) {
        let Some(open) = self.open.remove(&number) else { return };
        subtract_count(&mut self.of_address, &open.address, 1);
        if let Some(requester) = open.requester {
            self.working.remove(open.address, &requester);
        }
    }

    /// Returns the connection that has waited longest; among all addresses, one of the address that has the most.
    fn longest_waiting(&self, of: Option<IpAddr>) -> Option<u64> {
        let waiting = self.open.iter().filter_map(|(number, open)| Some((number, open, open.waiting_since?)));
        let wanted = waiting.filter(|(_, open, _)| of.is_none_or(|from| open.address == from));
        let key =
            |open: &OpenConnection, since: u64| (self.of_address.get(&open.address).copied(), std::cmp::Reverse(since));
        wanted.max_by_key(|(_, open, since)| key(open, *since)).map(|(number, ..)| *number)
    }

    const fn next_event(&mut self) -> u64 {
        self.events += 1;
        self.events
    }
}

/// Returns the network that an address counts for: a client with one IPv6 address has all of its network.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_TENANT: Sharers = Sharers { tenants: false, users: true };
    const TENANTS: Sharers = Sharers { tenants: true, users: true };

    fn owner(name: &str) -> Requester {
        Requester::Owner(name.parse().unwrap())
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn with(total: usize, per_address: usize, proxies: &[&str]) -> Connections {
        Connections::new(ConnectionLimits { total, per_address, proxies: proxies.iter().map(|p| address(p)).collect() })
    }

    #[track_caller]
    fn opens(all: &mut Connections, from: &str) -> (u64, Option<u64>) {
        match all.accept(address(from)) {
            ConnectionDecision::Open { number, instead_of } => (number, instead_of),
            refused => panic!("{refused:?}"),
        }
    }

    /// It has a request of an owner of its own.
    #[track_caller]
    fn works(all: &mut Connections, number: u64) {
        let requester = Requester::Owner(format!("of/{number}").parse().unwrap());
        assert_eq!(all.start_work(number, requester, ONE_TENANT), Ok(()));
    }

    #[test]
    fn waiting_connections_make_room_and_working_ones_do_not() {
        let mut all = with(3, 3, &[]);
        let (first, _) = opens(&mut all, "10.0.0.1");
        let (second, _) = opens(&mut all, "10.0.0.1");
        let (third, none) = opens(&mut all, "10.0.0.1");
        assert_eq!(none, None);
        works(&mut all, first);
        let (fourth, gone) = opens(&mut all, "10.0.0.1");
        assert_eq!(gone, Some(second));
        // Answered, it is the youngest of those that wait.
        all.mark_idle(first);
        assert_eq!(opens(&mut all, "10.0.0.1").1, Some(third));
        assert_eq!(opens(&mut all, "10.0.0.1").1, Some(fourth));
        assert_eq!(opens(&mut all, "10.0.0.1").1, Some(first));
        for number in all.open.keys().copied().collect::<Vec<_>>() {
            works(&mut all, number);
        }
        assert_eq!(all.accept(address("10.0.0.1")), ConnectionDecision::FullOfAddress);
        assert_eq!(all.accept(address("10.0.0.2")), ConnectionDecision::Full);
    }

    #[test]
    fn one_address_has_its_share_and_a_proxy_all() {
        let mut all = with(6, 2, &["::ffff:10.0.0.9"]);
        for address in ["10.0.0.1", "10.0.0.1", "2001:db8::1", "2001:db8::ffff"] {
            let (number, _) = opens(&mut all, address);
            works(&mut all, number);
        }
        for (from, expected) in [
            ("10.0.0.1", ConnectionDecision::FullOfAddress),
            ("::ffff:10.0.0.1", ConnectionDecision::FullOfAddress),
            ("2001:db8::2:1", ConnectionDecision::FullOfAddress),
        ] {
            assert_eq!(all.accept(address(from)), expected, "{from}");
        }
        for _ in 0..2 {
            let (number, _) = opens(&mut all, "10.0.0.9");
            works(&mut all, number);
        }
        assert_eq!(all.accept(address("10.0.0.9")), ConnectionDecision::Full);
    }

    #[test]
    fn the_address_with_the_most_makes_room_for_others() {
        let mut all = with(3, 2, &[]);
        let (lonely, _) = opens(&mut all, "10.0.0.1");
        let (many, _) = opens(&mut all, "10.0.0.2");
        opens(&mut all, "10.0.0.2");
        assert_eq!(opens(&mut all, "10.0.0.3").1, Some(many));
        all.remove(lonely);
        all.remove(lonely);
        assert_eq!(opens(&mut all, "10.0.0.4").1, None);
        assert_eq!(all.of_address.values().sum::<usize>(), all.open.len());
    }

    /// Requests of one requester from one address that get to work, as many as do.
    fn fill(all: &mut Connections, from: &str, requester: &Requester) -> Vec<u64> {
        fill_among(ONE_TENANT, all, from, requester)
    }

    fn fill_among(sharers: Sharers, all: &mut Connections, from: &str, requester: &Requester) -> Vec<u64> {
        let mut at_work = Vec::new();
        while let ConnectionDecision::Open { number, .. } = all.accept(address(from)) {
            if all.start_work(number, requester.clone(), sharers).is_err() {
                all.remove(number);
                break;
            }
            at_work.push(number);
        }
        at_work
    }

    #[test]
    fn an_owners_working_requests_leave_free_connections() {
        let mut all = with(64, 64, &[]);
        let counts: Vec<_> =
            (0..7).map(|n| fill(&mut all, &format!("10.0.0.{n}"), &owner(&format!("o/{n}"))).len()).collect();
        assert_eq!(counts, [32, 16, 8, 4, 2, 1, 1], "the next has half of what is left");
        assert_eq!(all.accept(address("10.0.0.9")), ConnectionDecision::Full);
        for number in all.open.keys().copied().collect::<Vec<_>>() {
            all.mark_idle(number);
        }
        assert_eq!(fill(&mut all, "10.0.0.1", &owner("o/1")).len(), 32);
        for number in all.open.keys().copied().collect::<Vec<_>>() {
            all.remove(number);
        }
        let WorkCounts { total, of_address, of_sharer } = &all.working;
        assert_eq!((*total, of_address.len(), of_sharer.len()), (0, 0, 0));
    }

    /// From one address or from many, behind a proxy or not, its users have together what one tenant has.
    #[test]
    fn the_users_of_a_tenant_have_together_what_one_tenant_has() {
        for (total, per_address, expected) in [(64, 64, [16, 8, 4, 2, 1, 1]), (640, 64, [16, 8, 4, 2, 1, 1])] {
            let mut all = with(total, per_address, &[]);
            let mut fill = |name: &str| fill_among(TENANTS, &mut all, "10.0.0.1", &owner(name)).len();
            assert_eq!(["a/1", "a/2", "a/3", "a/4", "a/5", "a/6"].map(&mut fill), expected, "{total} {per_address}");
            assert_eq!(["a/7", "b/1", "c/1"].map(&mut fill), [0, 8, 6], "{total} {per_address}");
        }
        let mut all = with(64, 16, &[]);
        let held: usize = (0..20)
            .map(|n| fill_among(TENANTS, &mut all, &format!("10.0.0.{n}"), &owner(&format!("a/{}", n % 7))).len())
            .sum();
        assert!(held <= 32, "{held} from twenty addresses");
        assert!(fill_among(TENANTS, &mut all, "10.0.1.1", &owner("b/1")).len() >= 4, "another tenant has its own");
    }

    #[test]
    fn requests_share_the_connections_of_their_address_too() {
        let mut all = with(64, 16, &["10.0.0.9"]);
        assert_eq!(fill(&mut all, "10.0.0.1", &owner("o/a")).len(), 8);
        assert_eq!(fill(&mut all, "10.0.0.1", &Requester::Unknown).len(), 4);
        assert_eq!(fill(&mut all, "10.0.0.2", &owner("o/a")).len(), 8);
        assert_eq!(fill(&mut all, "10.0.0.2", &Requester::Unknown).len(), 4, "others of another address");
        let ConnectionDecision::Open { number, .. } = all.accept(address("10.0.0.1")) else { panic!("it is full") };
        assert_eq!(all.start_work(number, owner("o/a"), ONE_TENANT), Err(ShareExceeded { is_address_limit: true }));
        assert_eq!(fill(&mut all, "10.0.0.9", &owner("o/a")).len(), 12, "28 in all, and 28 are free");
    }

    #[test]
    fn descriptors_bound_the_room() {
        let of = |descriptors| {
            ConnectionLimits { total: 2000, ..ConnectionLimits::default() }.limit_to_descriptors(descriptors).total
        };
        for (descriptors, expected) in
            [(None, 2000), (Some(20_000), 2000), (Some(2048), 1536), (Some(1024), 512), (Some(256), 128), (Some(0), 1)]
        {
            assert_eq!(of(descriptors), expected, "{descriptors:?}");
        }
    }
}
