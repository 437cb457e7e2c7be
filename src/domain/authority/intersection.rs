//! The intersection of two lists of capabilities. It stays small: each pair of capabilities may give another one.

use super::Capability;
use crate::limits::CAPABILITIES;
use std::collections::{HashMap, HashSet};
use std::iter::once;

/// Returns the intersection of two lists without what others replace; absent = no limit. It has at most
/// [`CAPABILITIES`], or as many as the longer list: what is beyond is not held.
pub(super) fn intersect_lists(a: Option<&Vec<Capability>>, b: Option<&Vec<Capability>>) -> Option<Vec<Capability>> {
    let (a, b) = match (a, b) {
        (None, other) | (other, None) => return other.cloned(),
        (Some(a), Some(b)) => (a, b),
    };
    let most = CAPABILITIES.max(a.len()).max(b.len());
    let mut seen: HashSet<Capability> = HashSet::new();
    let mut distinct = Vec::new();
    // What others replace is left out below.
    let enough = most.saturating_mul(4);
    for cap in a.iter().flat_map(|a| b.iter().filter_map(|b| a.intersect(b))) {
        if !seen.contains(&cap) {
            seen.insert(cap.clone());
            distinct.push(cap);
        }
        if distinct.len() == enough {
            break;
        }
    }
    let mut both = without_replaced(distinct);
    both.truncate(most);
    Some(both)
}

/// Returns the capabilities that no other one of the list replaces, in their order.
fn without_replaced(caps: Vec<Capability>) -> Vec<Capability> {
    let replaced = find_replaced(&caps);
    caps.into_iter().zip(replaced).filter(|(_, is_replaced)| !is_replaced).map(|(cap, _)| cap).collect()
}

/// Returns of each capability whether another one replaces it. It looks up those that could, instead of comparing each
/// with all.
fn find_replaced(caps: &[Capability]) -> Vec<bool> {
    // Where several have the same name, the first one counts.
    let places: HashMap<(&str, &str), usize> = caps.iter().enumerate().rev().map(|(at, cap)| (name(cap), at)).collect();
    let is_replaced = |(at, cap): (usize, &Capability)| {
        let (with, can) = name(cap);
        let abilities = || once("*").chain(prefixes(can)).chain((can == "crud/append").then_some("crud/write"));
        let mut wider = once("").chain(prefixes(with)).flat_map(|path| abilities().map(move |ability| (path, ability)));
        wider.any(|key| places.get(&key).is_some_and(|other| *other != at && caps[*other].replaces(cap)))
    };
    caps.iter().enumerate().map(is_replaced).collect()
}

/// Returns the path and the ability without the slash at their ends, which changes nothing.
fn name(cap: &Capability) -> (&str, &str) {
    (cap.with.trim_end_matches('/'), cap.can.trim_end_matches('/'))
}

/// Returns a path and the paths above it.
fn prefixes(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(move |(at, _)| path[..at].trim_end_matches('/')).chain(once(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caps(list: &[(&str, &str)]) -> Vec<Capability> {
        list.iter().map(|(with, can)| Capability { with: (*with).into(), can: (*can).into() }).collect()
    }

    #[test]
    fn an_intersection_has_nothing_that_another_part_replaces() {
        for (a, b, both) in [
            (
                caps(&[("w/a", "crud"), ("w", "crud/read")]),
                caps(&[("", "*")]),
                caps(&[("w/a", "crud"), ("w", "crud/read")]),
            ),
            (caps(&[("w/a", "crud/read"), ("w", "crud")]), caps(&[("", "*")]), caps(&[("w", "crud")])),
            (caps(&[("w", "crud/read")]), caps(&[("w/a", "*"), ("w", "crud")]), caps(&[("w", "crud/read")])),
            (caps(&[("w/", "crud"), ("w", "crud")]), caps(&[("w", "crud")]), caps(&[("w", "crud")])),
            (caps(&[("w", "crud/append"), ("w", "crud/write")]), caps(&[("", "*")]), caps(&[("w", "crud/write")])),
            (
                caps(&[("w/ab", "crud"), ("w/a", "crud")]),
                caps(&[("w", "*")]),
                caps(&[("w/ab", "crud"), ("w/a", "crud")]),
            ),
            (
                caps(&[("https://x/a", "http"), ("https://x", "http")]),
                caps(&[("", "*")]),
                caps(&[("https://x", "http")]),
            ),
            (caps(&[("", "crud"), ("w", "*")]), caps(&[("w", "crud/read")]), caps(&[("w", "crud/read")])),
            (caps(&[("r/a/b", "read"), ("r/a", "*")]), caps(&[("", "*")]), caps(&[("r/a/b", "read"), ("r/a", "*")])),
            (caps(&[("r/a", "read"), ("r/a/", "*")]), caps(&[("", "*")]), caps(&[("r/a/", "*")])),
            (caps(&[]), caps(&[("w", "crud")]), caps(&[])),
        ] {
            assert_eq!(intersect_lists(Some(&a), Some(&b)).unwrap(), both, "{a:?} {b:?}");
        }
    }

    /// Each pair of these gives another capability, and a chain of agents intersects the result again.
    #[test]
    fn an_intersection_stays_small_and_is_within_both_lists() {
        let list = |with: &dyn Fn(usize) -> String, can: &dyn Fn(usize) -> String| -> Vec<Capability> {
            (0..CAPABILITIES).map(|at| Capability { with: with(at), can: can(at) }).collect()
        };
        let paths = list(&|at| format!("w/k{at}"), &|_| "crud".into());
        let abilities = list(&|_| "w".into(), &|at| format!("crud/a{at}"));
        let both = intersect_lists(Some(&paths), Some(&abilities)).unwrap();
        assert_eq!(both.len(), CAPABILITIES);
        let is_within = |list: &[Capability]| both.iter().all(|cap| list.iter().any(|wide| wide.covers(cap)));
        assert!(is_within(&paths) && is_within(&abilities));
        assert_eq!(intersect_lists(Some(&both), Some(&paths)).unwrap(), both);
        let long: Vec<_> =
            (0..2 * CAPABILITIES).map(|at| Capability { with: format!("w/{at}"), can: "*".into() }).collect();
        assert_eq!(intersect_lists(Some(&long), Some(&caps(&[("w", "*")]))).unwrap(), long, "never fewer than it had");
    }
}
