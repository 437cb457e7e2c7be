//! Every key and record of the embedded store, with layout and lifetime.
//!
//! Four keyspaces of one fjall database. `O` is an owner's token and `S` a session's
//! (`agent/session`, both percent-encoded), so neither holds a `\0`.
//!
//! | keyspace | key | value | lifetime |
//! |---|---|---|---|
//! | `docs` | `O\0<document key>` | version u64, then `1` + bytes, or `0` + deleted-at ms u64 | live: until deleted; deleted: a day |
//! | `mail` | `O\0S\0<order>\0<event id>` | kind letter, arrival number u64, job length u8, job, body | until consumed |
//! | `core` | `n` | the store's number u64, groups of changes made durable u64; the file `head` beside the database says the same | for good |
//! | `core` | `oO` | empty; the owner exists | for good |
//! | `core` | `sO\0S` | JSON [`crate::domain::lease::SessionRecord`] | until it is forgotten |
//! | `core` | `pO\0S\0s` | session state of the last commit | until the next commit, or as the session |
//! | `core` | `pO\0S\0r` | recorded reply of the running turn | until its commit |
//! | `core` | `pO\0S\0c<index u32>` | recorded call of the running turn | until its commit |
//! | `core` | `pO\0S\0x` | JSON crash counts by mailbox key | until a commit |
//! | `core` | `dO\0<event id>` | `<body hash> <job or ->` | as the job, or the turn that consumed it |
//! | `core` | `uO` | documents, bytes, sessions, jobs that the owner keeps, u64 each; `u`: all owners are counted | for good |
//! | `core` | `fO` | u64, the highest epoch of a session that was forgotten | for good |
//! | `core` | `xO\0<outbox id>` | place u64, message | until published |
//! | `core` | `gO\0<deleted-at ms u64><document key>` | empty; a deleted document to forget | a day |
//! | `queue` | `q<sequence u64>` | JSON line of the embedded bus, see `bus::embedded` | until acknowledged |
//! | `queue` | `o<sequence u64>` | JSON of a completion, as older builds kept it | until the store is opened |
//!
//! Numbers are big-endian, so that they sort. Due times, leases, waiting queues and outboxes are also indexed in memory
//! ([`super::index`]) and rebuilt at open: they follow from the session and outbox records, and a log-structured tree
//! is slow as a queue.

use crate::domain::ids::JobId;
use crate::store::{Doc, EventKind};
use bytes::Bytes;

/// A keyspace of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Space {
    /// Versioned documents of owners.
    Docs,
    /// Entries of mailboxes.
    Mail,
    /// All other records of the protocol.
    Core,
    /// Lines of the embedded bus.
    Queue,
}

impl Space {
    /// Number of keyspaces.
    pub(super) const COUNT: usize = 4;
    /// All keyspaces, in the order of their numbers.
    pub(super) const ALL: [Self; Self::COUNT] = [Self::Docs, Self::Mail, Self::Core, Self::Queue];
}

/// Separates the parts of a key; no token contains it.
pub(crate) const SEPARATOR: u8 = 0;

fn join(letter: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut key = letter.to_vec();
    for (i, part) in parts.iter().enumerate() {
        if i > 0 {
            key.push(SEPARATOR);
        }
        key.extend_from_slice(part);
    }
    key
}

/// Returns the key of a document, or the prefix of documents.
pub(super) fn doc(owner: &str, key: &str) -> Vec<u8> {
    join(b"", &[owner.as_bytes(), key.as_bytes()])
}

/// Returns the key of an owner's registration.
pub(super) fn owner(owner: &str) -> Vec<u8> {
    join(b"o", &[owner.as_bytes()])
}

/// Returns the key of a session record, or the prefix of sessions.
pub(super) fn session(owner: &str, session: &str) -> Vec<u8> {
    join(b"s", &[owner.as_bytes(), session.as_bytes()])
}

/// The part of a session with the recorded reply of its running turn.
pub(super) const REPLY: &[u8] = b"r";

/// Prefix of the parts of a session with the recorded calls of its running turn.
pub(super) const CALLS: &[u8] = b"c";

/// The part of a session with the state that its last commit wrote.
pub(super) const STATE: &[u8] = b"s";

/// Returns the key of a part of a session.
pub(super) fn part(owner: &str, session: &str, part: &[u8]) -> Vec<u8> {
    join(b"p", &[owner.as_bytes(), session.as_bytes(), part])
}

/// Returns the key of a call of the running turn.
pub(super) fn call(owner: &str, session: &str, index: u32) -> Vec<u8> {
    let mut key = part(owner, session, b"c");
    key.extend_from_slice(&index.to_be_bytes());
    key
}

/// Returns the key of a dedupe record.
pub(super) fn dedupe(owner: &str, event: &str) -> Vec<u8> {
    join(b"d", &[owner.as_bytes(), event.as_bytes()])
}

/// Returns the key of the highest epoch of an owner's forgotten sessions.
pub(super) fn epoch_floor(owner: &str) -> Vec<u8> {
    join(b"f", &[owner.as_bytes()])
}

/// Returns the key of an owner's usage.
pub(super) fn usage(owner: &str) -> Vec<u8> {
    join(b"u", &[owner.as_bytes()])
}

/// Returns the key of an outbox entry.
pub(super) fn outbox(owner: &str, id: &str) -> Vec<u8> {
    join(b"x", &[owner.as_bytes(), id.as_bytes()])
}

/// Returns the prefix of an owner's tombstone entries.
pub(super) fn tombstones(owner: &str) -> Vec<u8> {
    join(b"g", &[owner.as_bytes(), b""])
}

/// Returns the key of a tombstone's entry, by the time of the deletion in ms.
pub(super) fn tombstone(owner: &str, deleted: u64, key: &str) -> Vec<u8> {
    let mut out = tombstones(owner);
    out.extend_from_slice(&deleted.to_be_bytes());
    out.extend_from_slice(key.as_bytes());
    out
}

/// Returns the prefix of a mailbox.
pub(super) fn mailbox(owner: &str, session: &str) -> Vec<u8> {
    join(b"", &[owner.as_bytes(), session.as_bytes(), b""])
}

/// Converts a place `order|id` to its stored form `order\0id`, so that a shorter order sorts first.
pub(super) fn place_to_storage(place: &str) -> Vec<u8> {
    place.replacen('|', "\0", 1).into_bytes()
}

/// Converts a place back from its stored form.
pub(super) fn place_from_storage(bytes: &[u8]) -> Option<String> {
    Some(std::str::from_utf8(bytes).ok()?.replacen('\0', "|", 1))
}

/// Returns the first key after every key that starts with `prefix`, which must not be all `0xff`.
pub(crate) fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            break;
        }
    }
    end
}

/// A stored document, or the tombstone of a deleted one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DocRecord {
    /// Version and bytes.
    pub(super) doc: Doc,
    /// Time of the deletion in ms.
    pub(super) deleted: Option<u64>,
}

impl DocRecord {
    /// Encodes a version with its bytes, or with the time of the deletion in ms (`Err`).
    pub(super) fn encode(version: u64, value: Result<&[u8], u64>) -> Vec<u8> {
        let mut out = version.to_be_bytes().to_vec();
        match value {
            Ok(bytes) => {
                out.push(b'1');
                out.extend_from_slice(bytes);
            }
            Err(deleted) => {
                out.push(b'0');
                out.extend_from_slice(&deleted.to_be_bytes());
            }
        }
        out
    }

    /// Whether an encoded record is of a document that isn't deleted.
    pub(super) fn is_present(bytes: &[u8]) -> bool {
        split_number(bytes).is_some_and(|(_, rest)| rest.first() == Some(&b'1'))
    }

    /// Decodes the bytes of [`DocRecord::encode`].
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = split_number(bytes)?;
        let (flag, rest) = rest.split_first()?;
        match flag {
            b'1' => Some(Self { doc: Doc { version, value: Some(Bytes::copy_from_slice(rest)) }, deleted: None }),
            b'0' => Some(Self { doc: Doc { version, value: None }, deleted: Some(split_number(rest)?.0) }),
            _ => None,
        }
    }
}

/// A stored mailbox entry, as its value in `mail`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MailRecord<'a> {
    /// Task, message or result.
    pub(super) kind: EventKind,
    /// Number of the event among the session's arrivals.
    pub(super) arrival: u64,
    /// Job of the event.
    pub(super) job: Option<JobId>,
    /// JSON of the event.
    pub(super) body: &'a [u8],
}

impl<'a> MailRecord<'a> {
    /// Encodes the record.
    pub(super) fn encode(&self) -> Vec<u8> {
        let job = self.job.as_ref().map_or("", JobId::as_str);
        let mut out = Vec::with_capacity(10 + job.len() + self.body.len());
        out.push(self.kind.letter() as u8);
        out.extend_from_slice(&self.arrival.to_be_bytes());
        out.push(u8::try_from(job.len()).expect("a job id has 32 bytes"));
        out.extend_from_slice(job.as_bytes());
        out.extend_from_slice(self.body);
        out
    }

    /// Returns the bytes that an encoded record counts: its body, and kind and job as a line.
    pub(super) fn weight(bytes: &[u8]) -> i64 {
        let job = bytes.get(9).copied().map_or(0, usize::from);
        to_signed((bytes.len() + 3 + job.max(1)).saturating_sub(10 + job))
    }

    /// Decodes the bytes of [`MailRecord::encode`].
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let kind = EventKind::from_letter(*kind as char)?;
        let (arrival, rest) = split_number(rest)?;
        let (length, rest) = rest.split_first()?;
        let (job, body) = rest.split_at_checked(usize::from(*length))?;
        let job = match std::str::from_utf8(job).ok()? {
            "" => None,
            text => Some(JobId::new(text).ok()?),
        };
        Some(Self { kind, arrival, job, body })
    }
}

/// Decodes a big-endian number; returns it and the remaining bytes.
pub(crate) fn split_number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*head), rest))
}

/// Splits an outbox entry into place and message. A damaged entry without a place gets place 0 and stays as it is.
pub(super) fn place_and_message(bytes: &[u8]) -> (u64, &[u8]) {
    split_number(bytes).unwrap_or((0, bytes))
}

/// Converts a length for a signed sum.
pub(crate) fn to_signed(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_pinned_and_round_trip() {
        let bytes = DocRecord::encode(2, Ok(b"x"));
        assert_eq!(bytes, b"\0\0\0\0\0\0\0\x021x");
        assert_eq!(DocRecord::decode(&bytes).unwrap().doc.value.unwrap(), "x");
        let bytes = DocRecord::encode(3, Err(7));
        assert_eq!(bytes, b"\0\0\0\0\0\0\0\x030\0\0\0\0\0\0\0\x07");
        assert_eq!(DocRecord::decode(&bytes).unwrap().deleted, Some(7));
        for job in [None, Some(JobId::new(&"0f".repeat(16)).unwrap())] {
            let mail = MailRecord { kind: EventKind::Task, arrival: 1, job, body: b"{}" };
            assert_eq!(MailRecord::decode(&mail.encode()), Some(mail));
        }
        assert_eq!(MailRecord::decode(b"t"), None);
    }

    #[test]
    fn keys_are_pinned_and_sort_a_shorter_order_first() {
        assert_eq!(session("t/u", "a/main"), b"st/u\0a/main");
        assert_eq!(call("t/u", "a/main", 1), b"pt/u\0a/main\0c\0\0\0\x01");
        assert_eq!(tombstone("t/u", 1, "w/x"), b"gt/u\0\0\0\0\0\0\0\0\x01w/x");
        assert!(place_to_storage("1|z") < place_to_storage("10|a"));
        assert_eq!(place_from_storage(&place_to_storage("1|a|b")).unwrap(), "1|a|b");
        assert_eq!(prefix_end(b"a\xff"), b"b");
    }
}
