//! Shards: groups of owners, which workers divide among themselves for sweeps, the audit and retention.
//!
//! ```text
//! owner ──hash──▶ shard ──highest hash of shard and worker──▶ the live worker that sweeps it
//! ```
//!
//! Nothing is handed over when a worker comes or goes: each computes the same shares from the same registry. Two
//! workers with different registries for a moment sweep a shard twice or not at all, and the next sweep sees the same.

use crate::ids::Owner;
use sha2::{Digest, Sha256};
use std::fmt::{Display, Formatter};
use std::sync::Arc;

/// Number of shards of a store: a power of two, fixed when the store is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shards(u16);

/// A number of shards that isn't allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} shards: expected a power of two from 1 to {max}", max = Shards::MOST)]
pub struct ShardCountError(u64);

/// One of a store's shards, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(pub u16);

/// Writes three hexadecimal digits, as in keys.
impl Display for Shard {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:03x}", self.0)
    }
}

impl Default for Shards {
    fn default() -> Self {
        Self(256)
    }
}

impl Display for Shards {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The shards of one worker, as it computed them at its last sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    of: Shards,
    /// Shards in ascending order.
    shards: Arc<[Shard]>,
}

impl Share {
    /// Makes the share of `worker` while the workers `live` exist; all shards if it isn't among them.
    pub fn new(of: Shards, live: &[String], worker: &str) -> Self {
        Self { of, shards: of.share(live, worker).into() }
    }

    /// Returns the shards in ascending order.
    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// Whether an owner is in one of the shards.
    pub fn holds(&self, owner: &Owner) -> bool {
        self.shards.len() == usize::from(self.of.0)
            || self.shards.binary_search(&self.of.shard_of(&owner.token())).is_ok()
    }
}

impl Default for Share {
    /// Makes the share of all shards.
    fn default() -> Self {
        Self { of: Shards::ONE, shards: Arc::new([Shard(0)]) }
    }
}

/// Returns the first eight bytes of the SHA-256 of the joined parts.
fn hash(parts: &[&[u8]]) -> u64 {
    let mut sha = Sha256::new();
    for part in parts {
        sha.update(part);
    }
    sha.finalize().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Shards {
    /// Largest number of shards: more wouldn't divide the work better, because each sweep reads every one.
    pub const MOST: u64 = 4096;

    /// One shard for all owners.
    pub const ONE: Self = Self(1);

    /// Makes a number of shards, if it is allowed.
    pub fn new(count: u64) -> Result<Self, ShardCountError> {
        match u16::try_from(count) {
            Ok(number) if number.is_power_of_two() && count <= Self::MOST => Ok(Self(number)),
            Ok(_) | Err(_) => Err(ShardCountError(count)),
        }
    }

    /// Returns the number of shards.
    pub const fn count(self) -> u16 {
        self.0
    }

    /// Returns every shard, in ascending order.
    pub fn iter(self) -> impl Iterator<Item = Shard> {
        (0..self.0).map(Shard)
    }

    /// Returns the shard of an owner, by its token.
    pub fn shard_of(self, owner: &str) -> Shard {
        let place = hash(&[owner.as_bytes()]) % u64::from(self.0);
        Shard(u16::try_from(place).unwrap_or_default())
    }

    /// Returns a token in each shard, in ascending order: the first of `token(0)`, `token(1)`, … that is in it.
    pub fn token_per_shard(self, token: impl Fn(u32) -> String) -> Vec<String> {
        let (mut found, mut left) = (vec![None; usize::from(self.0)], self.0);
        for token in (0..).map(token) {
            let place = &mut found[usize::from(self.shard_of(&token).0)];
            if place.is_none() {
                (*place, left) = (Some(token), left - 1);
            }
            if left == 0 {
                break;
            }
        }
        found.into_iter().flatten().collect()
    }

    fn share(self, live: &[String], worker: &str) -> Vec<Shard> {
        let weight =
            |shard: Shard, worker: &str| (hash(&[&shard.0.to_be_bytes(), worker.as_bytes()]), worker.to_owned());
        let is_mine = |shard: &Shard| {
            let mine = weight(*shard, worker);
            live.iter().all(|other| weight(*shard, other) <= mine)
        };
        let alone = !live.iter().any(|other| other == worker);
        (0..self.0).map(Shard).filter(|shard| alone || is_mine(shard)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_number_of_shards_is_a_power_of_two() {
        for (count, expected) in [(1, true), (256, true), (4096, true), (0, false), (3, false), (8192, false)] {
            assert_eq!(Shards::new(count).is_ok(), expected, "{count}");
        }
        let refused = Shards::new(100).unwrap_err().to_string();
        assert_eq!(refused, "100 shards: expected a power of two from 1 to 4096");
    }

    #[test]
    fn an_owner_keeps_its_shard() {
        let shards = Shards::default();
        assert_eq!(shards.shard_of("local/me").to_string(), "0aa");
        let used: BTreeSet<_> = (0..10_000).map(|n| shards.shard_of(&format!("acme/u{n}"))).collect();
        assert_eq!(used.len(), 256, "no shard is left out");
        assert_eq!(Shards::new(1).unwrap().shard_of("local/me"), Shard(0));
    }

    #[test]
    fn every_shard_has_a_token() {
        for shards in [Shards::ONE, Shards::default(), Shards::new(4096).unwrap()] {
            let names = shards.token_per_shard(|n| format!("n{n}"));
            let places: Vec<_> = names.iter().map(|name| shards.shard_of(name)).collect();
            assert_eq!(places, (0..shards.count()).map(Shard).collect::<Vec<_>>());
        }
        assert_eq!(Shards::ONE.token_per_shard(|n| format!("n{n}")), ["n0"]);
    }

    #[test]
    fn every_shard_is_swept_by_one_of_the_live() {
        let shards = Shards::default();
        let live: Vec<_> = ["a", "b", "c", "d"].map(str::to_owned).into();
        let parts: Vec<_> = live.iter().map(|worker| shards.share(&live, worker)).collect();
        let all: BTreeSet<_> = parts.iter().flatten().collect();
        assert_eq!((all.len(), parts.iter().map(Vec::len).sum::<usize>()), (256, 256));
        for owner in (0..1000).map(|n| Owner::from_token(&format!("acme/u{n}")).unwrap()) {
            let holds = |worker: &&String| Share::new(shards, &live, worker).holds(&owner);
            assert_eq!(live.iter().filter(holds).count(), 1, "{owner}");
            assert!(Share::default().holds(&owner) && Share::new(shards, &live, "nobody").holds(&owner));
        }
        let sizes: Vec<_> = parts.iter().map(Vec::len).collect();
        assert!(sizes.iter().all(|size| (40..90).contains(size)), "{sizes:?}");
        // Those of one that left are divided, and the others keep theirs.
        let left = &live[..3];
        for worker in left {
            let before = shards.share(&live, worker);
            let after = shards.share(left, worker);
            assert!(before.iter().all(|shard| after.contains(shard)));
        }
        assert_eq!(shards.share(left, "d").len(), 256, "one that nobody knows of leaves nothing out");
    }
}
