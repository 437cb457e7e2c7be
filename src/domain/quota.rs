//! Quotas: the most that an owner may keep in the store that it shares with others.
//!
//! Counted are documents (records of jobs and turns among them), their bytes with those of sessions and of events in
//! mailboxes, sessions, and records of jobs. New work and writes that would exceed a limit are refused. Accepted work
//! is finished, and a deletion is never refused.

use crate::tenant_users::TenantUserLimits;
use serde::{Deserialize, Serialize};
use std::fmt::{Display, Formatter};
use std::ops::Add;

/// A number for each kind that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QuotaCounts<T: Default> {
    /// Documents: values in the lattice, agents, parts of assets, records of jobs and turns.
    pub documents: T,
    /// Bytes of documents with their keys, of the states of sessions, and of events in mailboxes.
    pub bytes: T,
    /// Number of sessions.
    pub sessions: T,
    /// Records of jobs, ended ones included.
    pub jobs: T,
}

/// Largest limit that can be set: larger numbers aren't exact everywhere.
pub const MOST: u64 = 1 << 50;

/// Amounts that an owner keeps.
pub type QuotaUsage = QuotaCounts<u64>;

/// Amounts that an owner may keep at most; 0 = any number.
pub type Quota = QuotaCounts<u64>;

/// Limits that operators set for one owner; `None` = the venue's general limit.
pub type OwnLimits = QuotaCounts<Option<u64>>;

/// Kind of things that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaKind {
    /// Number of documents, [`QuotaCounts::documents`].
    Documents,
    /// Number of bytes, [`QuotaCounts::bytes`].
    Bytes,
    /// Number of sessions, [`QuotaCounts::sessions`].
    Sessions,
    /// Number of jobs, [`QuotaCounts::jobs`].
    Jobs,
}

/// A quota that has no room for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaExceeded {
    /// Kind of the reached limit.
    pub kind: QuotaKind,
    /// Amount that is kept.
    pub used: u64,
    /// Amount that would be added.
    pub adds: u64,
    /// Amount that may be kept.
    pub allowed: u64,
}

impl QuotaKind {
    /// Every kind, in the order of checks and of the stored line.
    pub const ALL: [Self; 4] = [Self::Documents, Self::Bytes, Self::Sessions, Self::Jobs];

    /// Returns the name in settings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Documents => "documents",
            Self::Bytes => "bytes",
            Self::Sessions => "sessions",
            Self::Jobs => "jobs",
        }
    }

    /// Returns what makes room, in words.
    const fn advice(self) -> &'static str {
        match self {
            Self::Documents | Self::Bytes => "delete values, agents or ended jobs that aren't needed",
            Self::Sessions => "delete sessions that aren't needed, or name one session for many requests",
            Self::Jobs => "delete ended jobs that aren't needed",
        }
    }
}

impl Display for QuotaExceeded {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { kind, used, adds, allowed } = self;
        let (name, freed) = (kind.as_str(), kind.advice());
        write!(
            f,
            "QUOTA_EXCEEDED: this owner's quota of {name} is {allowed}, {used} are used and {adds} would come to it; \
             {freed}, wait until retention does, or ask an operator for more (`trellis quota set --{name} N`)"
        )
    }
}

impl<T: Default + Copy> QuotaCounts<T> {
    /// Returns the number of one kind.
    pub const fn get(&self, kind: QuotaKind) -> T {
        match kind {
            QuotaKind::Documents => self.documents,
            QuotaKind::Bytes => self.bytes,
            QuotaKind::Sessions => self.sessions,
            QuotaKind::Jobs => self.jobs,
        }
    }

    /// Makes the number of each kind by a function.
    pub fn from_fn(of: impl Fn(QuotaKind) -> T) -> Self {
        Self {
            documents: of(QuotaKind::Documents),
            bytes: of(QuotaKind::Bytes),
            sessions: of(QuotaKind::Sessions),
            jobs: of(QuotaKind::Jobs),
        }
    }
}

impl<T: Default + Copy + Add<Output = T>> Add for QuotaCounts<T> {
    type Output = Self;
    fn add(self, more: Self) -> Self {
        Self::from_fn(|kind| self.get(kind) + more.get(kind))
    }
}

impl Quota {
    /// Whether there is no limit.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Returns this quota with the limits that operators set for one owner.
    #[must_use]
    pub fn with_own(self, own: OwnLimits) -> Self {
        Self::from_fn(|kind| own.get(kind).unwrap_or(self.get(kind)))
    }

    /// Checks that `adds` has room besides `used`. Nothing always has room.
    pub fn check_room(&self, used: &QuotaUsage, adds: &QuotaUsage) -> Result<(), QuotaExceeded> {
        for kind in QuotaKind::ALL {
            let (used, adds, allowed) = (used.get(kind), adds.get(kind), self.get(kind));
            if allowed > 0 && adds > 0 && used.saturating_add(adds) > allowed {
                return Err(QuotaExceeded { kind, used, adds, allowed });
            }
        }
        Ok(())
    }
}

/// Settings under `quota.*`: limits of every owner for whom operators haven't set others, and of tenants.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QuotaSettings {
    /// Number of documents; 0 = any number.
    pub documents: u64,
    /// Bytes of all documents.
    pub bytes: ByteLimit,
    /// Number of sessions; 0 = any number.
    pub sessions: u64,
    /// Number of jobs; 0 = any number.
    pub jobs: u64,
    /// Numbers of users that tenants may have.
    pub tenant_users: TenantUserLimits,
}

/// A number of bytes, or a percentage of the store's limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteLimit {
    /// Number of bytes; 0 = any number.
    Number(u64),
    /// Percentage of the store's limit; any number in a store without one.
    Share(u64),
}

impl Default for ByteLimit {
    fn default() -> Self {
        Self::Number(0)
    }
}

impl ByteLimit {
    /// Reads `1073741824` and `25%`.
    pub fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| text.bytes().all(|c| c.is_ascii_digit()).then(|| text.parse().ok()).flatten();
        match text.strip_suffix('%') {
            Some(share) => number(share).filter(|share| (1..=100).contains(share)).map(Self::Share),
            None => number(text).filter(|bytes| *bytes <= MOST).map(Self::Number),
        }
    }
}

impl QuotaSettings {
    /// Returns the quota in a store with this limit in bytes.
    pub fn for_store(&self, limit: Option<u64>) -> Quota {
        let Self { documents, bytes, sessions, jobs, tenant_users: _ } = *self;
        let bytes = match bytes {
            ByteLimit::Number(bytes) => bytes,
            // A limit of 0 would mean any number.
            ByteLimit::Share(share) => limit.map_or(0, |limit| (limit / 100).saturating_mul(share).max(1)),
        };
        QuotaCounts { documents, bytes, sessions, jobs }
    }
}

impl OwnLimits {
    /// Returns the stored line: numbers in the order of [`QuotaKind::ALL`], `-` for the venue's limit. The stores read
    /// it themselves.
    pub fn encode(&self) -> String {
        let word = |kind| self.get(kind).map_or_else(|| "-".to_owned(), |limit: u64| limit.to_string());
        QuotaKind::ALL.map(word).join(" ")
    }

    /// Reads the stored line of [`OwnLimits::encode`].
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(bytes).ok()?.split(' ');
        let mut found = Self::default();
        for kind in QuotaKind::ALL {
            let limit = match words.next()? {
                "-" => None,
                number => Some(number.parse().ok()?),
            };
            *found.get_mut(kind) = limit;
        }
        words.next().is_none().then_some(found)
    }
}

impl<T: Default> QuotaCounts<T> {
    /// Returns the number of one kind for changes.
    pub const fn get_mut(&mut self, kind: QuotaKind) -> &mut T {
        match kind {
            QuotaKind::Documents => &mut self.documents,
            QuotaKind::Bytes => &mut self.bytes,
            QuotaKind::Sessions => &mut self.sessions,
            QuotaKind::Jobs => &mut self.jobs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_a_number_or_a_share_of_the_stores_limit() {
        for (text, expected) in [
            ("0", Some(ByteLimit::Number(0))),
            ("1024", Some(ByteLimit::Number(1024))),
            ("25%", Some(ByteLimit::Share(25))),
            ("100%", Some(ByteLimit::Share(100))),
            ("0%", None),
            ("101%", None),
            ("-1", None),
            ("+1", None),
            ("1 %", None),
            ("", None),
            ("%", None),
            ("18446744073709551615", None),
        ] {
            assert_eq!(ByteLimit::parse(text), expected, "{text}");
        }
        for (bytes, limit, expected) in [
            (ByteLimit::Share(25), Some(1000), 250),
            (ByteLimit::Share(25), None, 0),
            (ByteLimit::Share(1), Some(5), 1),
            (ByteLimit::Number(7), Some(1000), 7),
            (ByteLimit::Share(100), Some(u64::MAX), u64::MAX / 100 * 100),
        ] {
            let settings = QuotaSettings { bytes, jobs: 9, ..QuotaSettings::default() };
            assert_eq!(settings.for_store(limit), counts(0, expected, 0, 9), "{bytes:?} of {limit:?}");
        }
    }

    const fn counts(documents: u64, bytes: u64, sessions: u64, jobs: u64) -> QuotaUsage {
        QuotaCounts { documents, bytes, sessions, jobs }
    }

    #[test]
    fn writes_within_quota_pass_and_the_first_exceeded_is_named() {
        let quota = counts(10, 100, 0, 3);
        for (used, adds, expected) in [
            (counts(0, 0, 0, 0), counts(10, 100, 9, 3), None),
            (counts(9, 0, 0, 0), counts(1, 0, 0, 0), None),
            (counts(9, 0, 0, 0), counts(2, 0, 0, 0), Some(QuotaKind::Documents)),
            (counts(0, 90, 0, 0), counts(0, 11, 0, 0), Some(QuotaKind::Bytes)),
            (counts(0, 0, 1 << 60, 0), counts(0, 0, 1, 0), None),
            (counts(0, 0, 0, 3), counts(1, 1, 1, 1), Some(QuotaKind::Jobs)),
            // Over its quota already: what adds nothing goes on.
            (counts(20, 200, 0, 9), counts(0, 0, 0, 0), None),
            (counts(20, 50, 0, 9), counts(0, 5, 1, 0), None),
            (counts(u64::MAX, 0, 0, 0), counts(u64::MAX, 0, 0, 0), Some(QuotaKind::Documents)),
        ] {
            let found = quota.check_room(&used, &adds).err().map(|over| over.kind);
            assert_eq!(found, expected, "{used:?} {adds:?}");
            assert_eq!(Quota::default().check_room(&used, &adds), Ok(()));
        }
    }

    #[test]
    fn an_owners_own_quota_counts_before_the_venues_default() {
        let own = OwnLimits { documents: Some(5), bytes: None, sessions: Some(0), jobs: None };
        assert_eq!(own.encode(), "5 - 0 -");
        assert_eq!(OwnLimits::decode(b"5 - 0 -"), Some(own));
        for damaged in ["5 - 0", "5 - 0 - -", "", "a - - -", "-1 - - -"] {
            assert_eq!(OwnLimits::decode(damaged.as_bytes()), None, "{damaged}");
        }
        assert_eq!(counts(1, 2, 3, 4).with_own(own), counts(5, 2, 0, 4));
        assert_eq!(OwnLimits::default().encode(), "- - - -");
    }

    #[test]
    fn a_refusal_names_the_quota_its_use_and_what_to_do() {
        let over = QuotaExceeded { kind: QuotaKind::Sessions, used: 9, adds: 1, allowed: 9 }.to_string();
        for part in ["QUOTA_EXCEEDED", "quota of sessions is 9", "9 are used", "delete", "operator", "--sessions"] {
            assert!(over.contains(part), "{part}: {over}");
        }
    }
}
