//! Which connections may be open: how many in all, how many of one address, and which goes when more come.
//!
//! A connection **waits** while it has no whole request: nothing of it yet, half a header, half a body.
//! It may be closed at any time for one that comes later, so that no number of clients that send
//! nothing keeps out one that does. One that **works** stays; when all of them do, the next is refused.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};

/// Descriptors that are kept for the store, the queue, model calls and files, where the process may have more.
const KEPT_DESCRIPTORS: usize = 512;

/// How many connections there may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    /// In all.
    pub total: usize,
    /// Of one address, or of one IPv6 network of 64 bits.
    pub per_address: usize,
    /// Addresses of reverse proxies, which may have all of them.
    pub proxies: Vec<IpAddr>,
}

impl Default for Room {
    fn default() -> Self {
        Self { total: 512, per_address: 256, proxies: Vec::new() }
    }
}

impl Room {
    /// No more than the descriptors of the process leave: half of them at least, and what others need not.
    #[must_use]
    pub fn within(self, descriptors: Option<usize>) -> Self {
        let free = descriptors.map_or(usize::MAX, |all| all.saturating_sub(KEPT_DESCRIPTORS).max(all / 2).max(1));
        Self { total: self.total.min(free), ..self }
    }

    fn has_proxy(&self, address: IpAddr) -> bool {
        self.proxies.iter().any(|proxy| proxy.to_canonical() == address.to_canonical())
    }
}

/// What becomes of a connection that comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// It is open, and that other one is to be closed for it.
    Open { number: u64, instead_of: Option<u64> },
    /// All connections work.
    Full,
    /// All connections of its address work.
    FullOfAddress,
}

/// A connection that is open.
struct Open {
    from: IpAddr,
    /// Since when it waits, in the order of events; `None` while it works.
    waits: Option<u64>,
}

/// The connections that are open.
pub(super) struct Connections {
    room: Room,
    open: BTreeMap<u64, Open>,
    of_address: HashMap<IpAddr, usize>,
    events: u64,
}

impl Connections {
    pub(super) fn new(room: Room) -> Self {
        Self { room, open: BTreeMap::new(), of_address: HashMap::new(), events: 0 }
    }

    /// One comes.
    pub(super) fn comes(&mut self, address: IpAddr) -> Admission {
        let from = network(address);
        let own = self.of_address.get(&from).copied().unwrap_or(0);
        let instead_of = if !self.room.has_proxy(address) && own >= self.room.per_address {
            match self.oldest_that_waits(Some(from)) {
                None => return Admission::FullOfAddress,
                other => other,
            }
        } else if self.open.len() >= self.room.total {
            match self.oldest_that_waits(None) {
                None => return Admission::Full,
                other => other,
            }
        } else {
            None
        };
        if let Some(other) = instead_of {
            self.goes(other);
        }
        let number = self.next();
        self.open.insert(number, Open { from, waits: Some(number) });
        *self.of_address.entry(from).or_default() += 1;
        Admission::Open { number, instead_of }
    }

    /// One has a whole request.
    pub(super) fn works(&mut self, number: u64) {
        if let Some(open) = self.open.get_mut(&number) {
            open.waits = None;
        }
    }

    /// One has been answered.
    pub(super) fn waits(&mut self, number: u64) {
        let event = self.next();
        if let Some(open) = self.open.get_mut(&number) {
            open.waits = Some(event);
        }
    }

    /// One is closed.
    pub(super) fn goes(&mut self, number: u64) {
        let Some(open) = self.open.remove(&number) else { return };
        if let Some(count) = self.of_address.get_mut(&open.from) {
            *count -= 1;
            if *count == 0 {
                self.of_address.remove(&open.from);
            }
        }
    }

    /// The one that waits longest; among all, one of the address that has the most.
    fn oldest_that_waits(&self, of: Option<IpAddr>) -> Option<u64> {
        let waiting = self.open.iter().filter_map(|(number, open)| Some((number, open, open.waits?)));
        let wanted = waiting.filter(|(_, open, _)| of.is_none_or(|from| open.from == from));
        let key = |open: &Open, since: u64| (self.of_address.get(&open.from).copied(), std::cmp::Reverse(since));
        wanted.max_by_key(|(_, open, since)| key(open, *since)).map(|(number, ..)| *number)
    }

    const fn next(&mut self) -> u64 {
        self.events += 1;
        self.events
    }
}

/// Whose connection it is: who has one IPv6 address has all of its network.
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

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn with(total: usize, per_address: usize, proxies: &[&str]) -> Connections {
        Connections::new(Room { total, per_address, proxies: proxies.iter().map(|p| address(p)).collect() })
    }

    #[track_caller]
    fn opens(all: &mut Connections, from: &str) -> (u64, Option<u64>) {
        match all.comes(address(from)) {
            Admission::Open { number, instead_of } => (number, instead_of),
            refused => panic!("{refused:?}"),
        }
    }

    #[test]
    fn those_that_wait_make_room_and_those_that_work_do_not() {
        let mut all = with(3, 3, &[]);
        let (first, _) = opens(&mut all, "10.0.0.1");
        let (second, _) = opens(&mut all, "10.0.0.1");
        let (third, none) = opens(&mut all, "10.0.0.1");
        assert_eq!(none, None);
        all.works(first);
        let (fourth, gone) = opens(&mut all, "10.0.0.1");
        assert_eq!(gone, Some(second));
        // Answered, it is the youngest of those that wait.
        all.waits(first);
        assert_eq!(opens(&mut all, "10.0.0.1").1, Some(third));
        assert_eq!(opens(&mut all, "10.0.0.1").1, Some(fourth));
        assert_eq!(opens(&mut all, "10.0.0.1").1, Some(first));
        for number in all.open.keys().copied().collect::<Vec<_>>() {
            all.works(number);
        }
        assert_eq!(all.comes(address("10.0.0.1")), Admission::FullOfAddress);
        assert_eq!(all.comes(address("10.0.0.2")), Admission::Full);
    }

    #[test]
    fn one_address_has_its_share_and_a_proxy_all() {
        let mut all = with(6, 2, &["::ffff:10.0.0.9"]);
        for address in ["10.0.0.1", "10.0.0.1", "2001:db8::1", "2001:db8::ffff"] {
            let (number, _) = opens(&mut all, address);
            all.works(number);
        }
        for (from, expected) in [
            ("10.0.0.1", Admission::FullOfAddress),
            ("::ffff:10.0.0.1", Admission::FullOfAddress),
            ("2001:db8::2:1", Admission::FullOfAddress),
        ] {
            assert_eq!(all.comes(address(from)), expected, "{from}");
        }
        for _ in 0..2 {
            let (number, _) = opens(&mut all, "10.0.0.9");
            all.works(number);
        }
        assert_eq!(all.comes(address("10.0.0.9")), Admission::Full);
    }

    #[test]
    fn the_address_with_the_most_makes_room_for_others() {
        let mut all = with(3, 2, &[]);
        let (lonely, _) = opens(&mut all, "10.0.0.1");
        let (many, _) = opens(&mut all, "10.0.0.2");
        opens(&mut all, "10.0.0.2");
        assert_eq!(opens(&mut all, "10.0.0.3").1, Some(many));
        all.goes(lonely);
        all.goes(lonely);
        assert_eq!(opens(&mut all, "10.0.0.4").1, None);
        assert_eq!(all.of_address.values().sum::<usize>(), all.open.len());
    }

    #[test]
    fn descriptors_bound_the_room() {
        let of = |descriptors| Room { total: 2000, ..Room::default() }.within(descriptors).total;
        for (descriptors, expected) in
            [(None, 2000), (Some(20_000), 2000), (Some(2048), 1536), (Some(1024), 512), (Some(256), 128), (Some(0), 1)]
        {
            assert_eq!(of(descriptors), expected, "{descriptors:?}");
        }
    }
}
