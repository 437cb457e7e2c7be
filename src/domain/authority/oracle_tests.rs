//! Narrowing against a brute-force oracle: small trees of names, every ability on every name, and
//! random chains of intersection, delegation, redelivery and revocation. None ever widens.

use super::capability::Capability;
use super::envelope::Envelope;
use super::policy::{Actor, Policy, Revocation};
use super::{Authority, Scope, grant};
use crate::domain::ids::SessionKey;
use crate::domain::time::Millis;
use std::collections::BTreeSet;

/// Abilities that are asked, the leaves of the tree.
const ASKED: [&str; 6] = ["crud/read", "crud/write", "crud/append", "crud/delete", "agent/request", "http/get"];
/// Abilities that are held.
const HELD: [&str; 11] =
    ["*", "*", "*", "crud", "crud", "crud/read", "crud/write", "crud/append", "agent", "http", "none"];
const KEYS: [&str; 3] = ["a", "b", "ab"];

/// Small random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % n as u64).unwrap()
    }

    fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }
}

/// All names that are asked for: three levels under each first segment.
fn names() -> Vec<String> {
    let mut names = Vec::new();
    for first in ["w", "r", "g/x/n"] {
        names.push(first.to_owned());
        for one in KEYS {
            names.push(format!("{first}/{one}"));
            names.extend(KEYS.iter().map(|two| format!("{first}/{one}/{two}")));
        }
    }
    names
}

type Set = BTreeSet<(String, &'static str)>;

/// What a capability permits, said a second time and in another way: by lists of segments.
fn says(cap: &Capability, ability: &str, name: &str) -> bool {
    let split = |text: &str| text.split('/').filter(|s| !s.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    let under = |general: Vec<String>, special: Vec<String>| special.starts_with(&general);
    let able = cap.can == "*"
        || under(split(&cap.can), split(ability))
        || (cap.can == "crud/write" && ability == "crud/append");
    able && under(split(&cap.with), split(name))
}

fn is_resource(name: &str) -> bool {
    name == "r" || name.starts_with("r/")
}

/// All pairs, or those of a list; a list limits the dimensions that it mentions.
fn bound(list: Option<&[Capability]>) -> Set {
    let all = names().into_iter().flat_map(|name| ASKED.iter().map(move |ability| (name.clone(), *ability)));
    let Some(list) = list else { return all.collect() };
    let mentions = |resource: bool| list.is_empty() || list.iter().any(|cap| is_resource(&cap.with) == resource);
    all.filter(|(name, ability)| {
        !mentions(is_resource(name))
            || list.iter().any(|cap| is_resource(&cap.with) == is_resource(name) && says(cap, ability, name))
    })
    .collect()
}

fn permitted(authority: &Authority) -> Set {
    bound(None).into_iter().filter(|(name, ability)| authority.permits(ability, name).is_ok()).collect()
}

fn random_caps(random: &mut Random) -> Vec<Capability> {
    let count = random.below(5);
    let cap = |random: &mut Random| {
        let first = random.of(&["w", "w", "w", "r", "g/x/n", "", ""]);
        let depth = if first.is_empty() { 0 } else { random.below(4).saturating_sub(1) };
        let mut with = first.to_owned();
        for _ in 0..depth {
            with = format!("{with}/{}", random.of(&KEYS));
        }
        if random.below(5) == 0 {
            with.push('/');
        }
        Capability { with, can: random.of(&HELD).to_owned() }
    };
    (0..count.max(usize::from(random.below(12) > 0))).map(|_| cap(random)).collect()
}

fn maybe_caps(random: &mut Random) -> Option<Vec<Capability>> {
    (random.below(2) > 0).then(|| random_caps(random))
}

fn home(agent: &str) -> Scope {
    let session = SessionKey { agent: agent.parse().unwrap(), session: "s".parse().unwrap() };
    Scope { session: Some(session), job: None }
}

/// A request's way through up to five agents. Returns how much was left after each.
fn chain(random: &mut Random) -> Vec<usize> {
    let roots = maybe_caps(random);
    let grants = maybe_caps(random);
    let mut policy = Policy { roots: roots.clone(), ..Policy::default() };
    let mut envelope = Envelope::default().granted(grants.clone());
    // What may be permitted at most, as sets. Resources need a grant that names them.
    let granted = grants.iter().flatten().any(|cap| is_resource(&cap.with));
    let mut most: Set = bound(roots.as_deref()).intersection(&bound(grants.as_deref())).cloned().collect();
    most.retain(|(name, _)| granted || !is_resource(name));
    let mut left = Vec::new();
    for agent in ["m", "x", "y", "z", "q"].iter().take(1 + random.below(5)) {
        let (caps, creator) = (maybe_caps(random), Authority::new(maybe_caps(random)));
        let home = home(agent);
        most = most.intersection(&bound(caps.as_deref())).cloned().collect();
        let holder = format!("agent:{agent}");
        if random.below(4) == 0 {
            let path = format!("w/{}", random.of(&KEYS));
            most.retain(|(name, _)| {
                let (name, path) = (format!("{name}/"), format!("{path}/"));
                !name.starts_with(&path) && !path.starts_with(&name)
            });
            let id = random.below(1000).to_string();
            let (path, by) = (Some(path), "t/u".to_owned());
            let revocation = Revocation { id, path, holder: None, grant: None, reason: None, by, at: Millis(0) };
            policy.revocations.push(revocation);
        }
        // Redelivered, resumed, delayed: written and read back, as often as it likes.
        let text = serde_json::to_string(&envelope).unwrap();
        envelope = serde_json::from_str(&text).unwrap();
        let actor = Actor { holder: &holder, caps: caps.as_deref(), creator: &creator, home: &home };
        let now = policy.effective(actor, &envelope);
        let held = permitted(&now);
        assert!(held.is_subset(&most), "widened: {:?}", held.difference(&most).next());
        let again = permitted(&policy.effective(actor, &Envelope { bound: now.clone().nowhere(), ..envelope.clone() }));
        assert_eq!(again, held, "resuming is the same");
        // Nothing is lost either: what all of the lists permit is permitted.
        let creators = permitted_by(&creator);
        let lost: Vec<_> = most.intersection(&creators).filter(|pair| !held.contains(*pair)).collect();
        assert_eq!(lost, Vec::<&(String, &str)>::new());
        most = held.clone();
        left.push(held.len());
        let wanted = (random.below(4) == 0).then(|| random_caps(random));
        let delegable = (random.below(4) == 0).then(|| random_caps(random));
        let child = envelope.handed_on(holder, &now, delegable.as_deref(), wanted.as_deref(), &home);
        let Ok(child) = child else {
            // A refused call starts no child.
            let ceiling = now.within(&Authority::new(delegable.clone()).at(&home));
            assert!(wanted.iter().flatten().any(|cap| grant::narrow(&ceiling, std::slice::from_ref(cap)).is_err()));
            break;
        };
        envelope = child;
        for list in [delegable, wanted] {
            most = most.intersection(&bound(list.as_deref())).cloned().collect();
        }
        assert!(permitted(&envelope.bound).is_subset(&most), "handed on more than held");
    }
    left
}

/// What a creator's bound leaves, where of resources "not mentioned" is no limit.
fn permitted_by(creator: &Authority) -> Set {
    match (&creator.paths, &creator.resources) {
        (None, Some(resources)) => bound(Some(resources)),
        (Some(paths), None) => bound(Some(paths)),
        (None, None) | (Some(_), Some(_)) => bound(creator.listed().as_deref()),
    }
}

#[test]
fn no_chain_of_narrowing_delegation_and_redelivery_widens_authority() {
    let (mut chains, mut kept) = (0u32, 0u32);
    for seed in 0..500 {
        let left = chain(&mut Random(seed));
        assert!(left.windows(2).all(|pair| pair[1] <= pair[0]), "seed {seed}: {left:?}");
        chains += 1;
        kept += u32::from(left.last().is_some_and(|last| *last > 0));
    }
    println!("{kept} of {chains} chains kept some authority");
    assert!(kept * 2 > chains, "the check says little: only {kept} of {chains} chains kept any authority");
}

#[test]
fn an_authority_covers_another_only_if_it_permits_all_of_it() {
    let mut covered = 0;
    for seed in 0..1_000 {
        let mut random = Random(seed);
        let a = Authority::new(maybe_caps(&mut random));
        let mut b = Authority::new(maybe_caps(&mut random));
        if random.below(2) == 0 {
            b = a.intersect(&b);
        }
        if random.below(4) == 0 {
            b = b.without("w/a");
        }
        if a.covers(&b) {
            covered += 1;
            assert!(permitted(&b).is_subset(&permitted(&a)), "seed {seed}: {a:?} {b:?}");
        }
    }
    assert!(covered > 250, "only {covered} pairs");
}
