//! Narrowing against a brute-force oracle: small trees of names, every ability on every name, and
//! random chains of intersection, delegation, redelivery and revocation. None ever widens.

use super::capability::Capability;
use super::envelope::Envelope;
use super::policy::{Actor, Policy, Revocation};
use super::trail::Trail;
use super::{Authority, ResourcePath, Scope, grant};
use crate::ids::SessionKey;
use crate::lattice::Path;
use crate::time::Millis;
use std::collections::BTreeSet;
use std::sync::LazyLock;

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

/// A name that is asked for, as a list of segments.
type Name = Vec<String>;

/// All names that are asked for, with the resources that they are: three levels under each first
/// segment, and in the lattice keys that read like two segments.
static NAMES: LazyLock<Vec<(Name, ResourcePath)>> = LazyLock::new(|| {
    let mut names: Vec<Name> = Vec::new();
    for first in [&["w"][..], &["r"], &["g", "x", "n"]] {
        let mut add = |below: &[&str]| names.push(first.iter().chain(below).map(|key| (*key).to_owned()).collect());
        add(&[]);
        for one in KEYS {
            add(&[one]);
            for two in KEYS {
                add(&[one, two]);
            }
        }
        if first != ["r"] {
            for below in [&["a/b"][..], &["a/b", "a"], &["a", "a/b"], &["a/"], &["/a"]] {
                add(below);
            }
        }
    }
    names.into_iter().map(|name| (name.clone(), on(&name))).collect()
});

/// The name as it is asked on: of the lattice by its path, given as an array of keys.
fn on(name: &Name) -> ResourcePath {
    if is_resource(name) {
        return ResourcePath::namespace(&name[1..].join("/"));
    }
    let keys = name.iter().map(|key| serde_json::Value::String(key.clone())).collect();
    ResourcePath::from(&Path::from_json(&serde_json::Value::Array(keys)).unwrap())
}

/// Places in [`NAMES`], and abilities.
type Set = BTreeSet<(usize, &'static str)>;

fn split(text: &str) -> Name {
    text.split('/').filter(|segment| !segment.is_empty()).map(str::to_owned).collect()
}

/// What a capability permits, said a second time and in another way: by lists of segments.
fn says(cap: &Capability, ability: &str, name: &Name) -> bool {
    let able = cap.can == "*"
        || split(ability).starts_with(&split(&cap.can))
        || (cap.can == "crud/write" && ability == "crud/append");
    able && name.starts_with(&split(&cap.with))
}

fn is_resource(name: &[String]) -> bool {
    name.first().is_some_and(|first| first == "r")
}

/// All pairs, or those of a list; a list limits the dimensions that it mentions.
fn bound(list: Option<&[Capability]>) -> Set {
    let all = (0..NAMES.len()).flat_map(|at| ASKED.iter().map(move |ability| (at, *ability)));
    let Some(list) = list else { return all.collect() };
    let of_resources = |cap: &Capability| is_resource(&split(&cap.with));
    let mentions = |resource: bool| list.is_empty() || list.iter().any(|cap| of_resources(cap) == resource);
    let (paths, resources) = (mentions(false), mentions(true));
    all.filter(|(at, ability)| {
        let name = &NAMES[*at].0;
        let is = is_resource(name);
        !(if is { resources } else { paths })
            || list.iter().any(|cap| of_resources(cap) == is && says(cap, ability, name))
    })
    .collect()
}

fn permitted(authority: &Authority) -> Set {
    bound(None).into_iter().filter(|(at, ability)| authority.permits(ability, &NAMES[*at].1).is_ok()).collect()
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
    let mut envelope = Envelope::default().narrow_to_grants(grants.clone());
    // What may be permitted at most, as sets. Resources need a grant that names them.
    let granted = grants.iter().flatten().any(|cap| is_resource(&split(&cap.with)));
    let mut most: Set = bound(roots.as_deref()).intersection(&bound(grants.as_deref())).copied().collect();
    most.retain(|(at, _)| granted || !is_resource(&NAMES[*at].0));
    let mut left = Vec::new();
    for agent in ["m", "x", "y", "z", "q"].iter().take(1 + random.below(5)) {
        let (caps, creator) = (maybe_caps(random), Authority::new(maybe_caps(random)));
        let home = home(agent);
        most = most.intersection(&bound(caps.as_deref())).copied().collect();
        let holder = format!("agent:{agent}");
        if random.below(4) == 0 {
            let path: Name = ["w", random.of(&["a", "b", "ab", "a/b"])].map(str::to_owned).to_vec();
            most.retain(|(at, _)| {
                let name = &NAMES[*at].0;
                !name.starts_with(&path) && !path.starts_with(name)
            });
            let id = random.below(1000).to_string();
            let (path, by) = (Some(on(&path)), "t/u".to_owned());
            let revocation = Revocation { id, path, holder: None, grant: None, reason: None, by, at: Millis(0) };
            policy.revocations.push(revocation);
        }
        // Redelivered, resumed, delayed: written and read back, as often as it likes.
        let text = serde_json::to_string(&envelope).unwrap();
        envelope = serde_json::from_str(&text).unwrap();
        let actor =
            Actor { holder: &holder, caps: caps.as_deref(), creator: &creator, made: &Trail::default(), home: &home };
        let now = policy.effective(actor, &envelope);
        let held = permitted(&now);
        assert!(held.is_subset(&most), "widened: {:?}", held.difference(&most).next());
        let again =
            permitted(&policy.effective(actor, &Envelope { bound: now.clone().without_home(), ..envelope.clone() }));
        assert_eq!(again, held, "resuming is the same");
        // Nothing is lost either: what all of the lists permit is permitted.
        let creators = permitted_by(&creator);
        let lost: Vec<_> = most.intersection(&creators).filter(|pair| !held.contains(*pair)).collect();
        assert_eq!(lost, Vec::<&(usize, &str)>::new());
        most = held.clone();
        left.push(held.len());
        let wanted = (random.below(4) == 0).then(|| random_caps(random));
        let delegable = (random.below(4) == 0).then(|| random_caps(random));
        let child = envelope.hand_on(holder, &now, delegable.as_deref(), wanted.as_deref(), &home);
        let Ok(child) = child else {
            // A refused call starts no child.
            let ceiling = now.limit_to(&Authority::new(delegable.clone()).bind_home(&home));
            assert!(wanted.iter().flatten().any(|cap| grant::narrow(&ceiling, std::slice::from_ref(cap)).is_err()));
            break;
        };
        envelope = child;
        for list in [delegable, wanted] {
            most = most.intersection(&bound(list.as_deref())).copied().collect();
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
        (None, None) | (Some(_), Some(_)) => bound(creator.capabilities().as_deref()),
    }
}

#[test]
fn no_chain_of_delegations_and_redeliveries_widens_authority() {
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
            b = b.except_resource("w/a");
        }
        if a.covers(&b) {
            covered += 1;
            assert!(permitted(&b).is_subset(&permitted(&a)), "seed {seed}: {a:?} {b:?}");
        }
    }
    assert!(covered > 250, "only {covered} pairs");
}
