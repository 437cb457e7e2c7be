//! The journal in the queue of changes that the store acknowledged: kinds, ids and versions, no content.

use crate::ids::{EventId, JobId, Owner, sha256_hex};
use crate::job::JobStatus;
use crate::time::Millis;
use crate::venue_mac::VenueMac;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fmt::{Display, Formatter};

/// A change that the store has acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JournalEntry {
    /// Time of the acknowledgement.
    pub at: Millis,
    /// Owner of the changed document.
    pub owner: Owner,
    /// Change that was acknowledged.
    pub change: JournaledChange,
}

/// Kinds of changes. Sessions are given by their tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum JournaledChange {
    /// An event was admitted to a mailbox.
    Event {
        /// Id of the event.
        id: EventId,
        /// Token of its session.
        session: String,
        /// Job that the event opens.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job: Option<JobId>,
        /// Whether the store knew the event already, so that no session and no job began anew.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        repeated: bool,
    },
    /// A job has ended.
    End {
        /// Id of the job.
        job: JobId,
        /// Status of the job, a terminal one.
        status: JobStatus,
    },
    /// A turn was committed.
    Turn {
        /// Token of the session.
        session: String,
        /// Number of the turn.
        turn: u64,
    },
    /// A document was written outside turns, or (without a mark) deleted.
    Document {
        /// Key of the document.
        key: String,
        /// Mark of the value, see [`content_mark`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mark: Option<String>,
        /// Version after the write, where the writer knew it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
    },
    /// A job was paused or resumed.
    Hold {
        /// Id of the job.
        job: JobId,
        /// Whether it is paused.
        paused: bool,
    },
    /// A session was changed between its turns: its title, a compaction, a fork; without a mark it was deleted.
    Session {
        /// Token of the session.
        session: String,
        /// Number of turns that it had.
        turns: u64,
        /// Mark of the state that its next turn reads, see [`content_mark`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mark: Option<String>,
    },
    /// An owner asked for a deletion; this is the first of its documents.
    Deletion {
        /// Key of the document.
        key: String,
        /// Events whose ids are free again.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        events: Vec<EventId>,
    },
}

/// Changes that the store acknowledged to one process within a second, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JournalBatch {
    /// Name of the process.
    pub by: String,
    /// Changes, the oldest first.
    pub entries: Vec<JournalEntry>,
    /// Number of changes that the process couldn't keep while the queue was away.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
    /// Code under the venue's key, see [`VenueMac`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mac: String,
}

/// The code is needed because others may publish to the queue, and could feign losses.
impl VenueMac for JournalBatch {
    fn covered_text(&self) -> String {
        serde_json::to_string(&(&self.by, &self.entries, self.dropped)).unwrap_or_default()
    }

    fn mac(&self) -> &str {
        &self.mac
    }

    fn set_mac(&mut self, mac: String) {
        self.mac = mac;
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Returns 64 bits of a hash of a stored value in hexadecimal digits: enough to recognise the value, too few to reveal
/// it.
pub fn content_mark(value: &[u8]) -> String {
    let mut hash = sha256_hex(value);
    hash.truncate(16);
    hash
}

impl JournaledChange {
    /// Returns the name of its kind in the plural, for sums.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Event { .. } => "events",
            Self::End { .. } => "ends of jobs",
            Self::Turn { .. } => "turns",
            Self::Document { .. } => "documents",
            Self::Hold { .. } => "pauses and resumptions",
            Self::Session { .. } => "changes of sessions",
            Self::Deletion { .. } => "deletions",
        }
    }

    /// Returns the name of the changed thing: a later change of the same name replaces this one.
    fn name(&self) -> String {
        match self {
            Self::Event { id, .. } => format!("event {id}"),
            Self::End { job, .. } => format!("end {job}"),
            Self::Turn { session, turn } => format!("turn {turn} {session}"),
            Self::Document { key, .. } | Self::Deletion { key, .. } => format!("document {key}"),
            Self::Hold { job, .. } => format!("hold {job}"),
            Self::Session { session, .. } => format!("session {session}"),
        }
    }
}

/// Writes the change in words, with its id.
impl Display for JournaledChange {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Event { id, session, .. } => write!(f, "event `{id}` of `{session}`"),
            Self::End { job, status } => write!(f, "job `{job}` was {}", status.as_str()),
            Self::Turn { session, turn } => write!(f, "turn {turn} of `{session}`"),
            Self::Document { key, mark: Some(_), .. } => write!(f, "`{key}` was written"),
            Self::Document { key, mark: None, .. } | Self::Deletion { key, .. } => write!(f, "`{key}` was deleted"),
            Self::Hold { job, paused: true } => write!(f, "job `{job}` was paused"),
            Self::Hold { job, paused: false } => write!(f, "job `{job}` was resumed"),
            Self::Session { session, mark: Some(_), .. } => write!(f, "session `{session}` was changed"),
            Self::Session { session, mark: None, .. } => write!(f, "session `{session}` was deleted"),
        }
    }
}

/// Returns the entries that say how something must be: the newest of each thing; no pause of a job that has ended, no
/// turn of a session that was changed or deleted later, and nothing of what was deleted later.
pub fn current_entries(mut entries: Vec<JournalEntry>) -> Vec<JournalEntry> {
    entries.sort_by_key(|entry| entry.at);
    let (mut seen, mut gone) = (HashSet::new(), HashSet::new());
    let mut found: Vec<JournalEntry> = Vec::new();
    for entry in entries.into_iter().rev() {
        let owner = entry.owner.to_string();
        let of = |name: String| (owner.clone(), name);
        let is_over = match &entry.change {
            JournaledChange::Event { id, .. } => gone.contains(&of(format!("event {id}"))),
            JournaledChange::End { job, .. } => gone.contains(&of(format!("job {job}"))),
            JournaledChange::Hold { job, .. } => {
                seen.contains(&of(format!("end {job}"))) || gone.contains(&of(format!("job {job}")))
            }
            JournaledChange::Turn { session, .. } => seen.contains(&of(format!("session {session}"))),
            // A job that was submitted again under its id exists again.
            JournaledChange::Document { key, .. } | JournaledChange::Deletion { key, .. } => {
                seen.contains(&of(format!("opened {key}")))
            }
            // A session that was deleted begins anew with the next event.
            JournaledChange::Session { session, mark: None, .. } => seen.contains(&of(format!("in {session}"))),
            JournaledChange::Session { .. } => false,
        };
        if let JournaledChange::Event { session, repeated: false, .. } | JournaledChange::Turn { session, .. } =
            &entry.change
        {
            seen.insert(of(format!("in {session}")));
        }
        if let JournaledChange::Event { job: Some(job), repeated: false, .. } = &entry.change {
            seen.insert(of(format!("opened j/{job}")));
        }
        if let JournaledChange::Deletion { key, events } = &entry.change {
            gone.extend(events.iter().map(|id| of(format!("event {id}"))));
            gone.extend(key.strip_prefix("j/").map(|job| of(format!("job {job}"))));
        }
        // An entry that no longer counts still replaces those before it.
        let is_newest = seen.insert(of(entry.change.name()));
        if is_newest && !is_over {
            found.push(entry);
        }
    }
    found.reverse();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(at: u64, change: JournaledChange) -> JournalEntry {
        JournalEntry { at: Millis(at), owner: "acme/ada".parse().unwrap(), change }
    }

    #[test]
    fn only_the_latest_change_of_each_document_is_compared() {
        let job = JobId::new(&"0f".repeat(16)).unwrap();
        let document = |mark: &str| JournaledChange::Document {
            key: "w/a".to_owned(),
            mark: Some(mark.to_owned()),
            version: None,
        };
        let turn = |turn| JournaledChange::Turn { session: "a/s".to_owned(), turn };
        let session = JournaledChange::Session { session: "a/s".to_owned(), turns: 2, mark: None };
        let hold = JournaledChange::Hold { job: job.clone(), paused: true };
        let end = JournaledChange::End { job: job.clone(), status: JobStatus::Cancelled };
        let shown = |entries: Vec<JournalEntry>| {
            current_entries(entries).iter().map(|entry| entry.change.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(shown(vec![entry(1, document("x")), entry(2, document("y"))]).len(), 1);
        assert_eq!(shown(vec![entry(1, hold.clone()), entry(2, end.clone())]), [format!("job `{job}` was CANCELLED")]);
        assert_eq!(
            shown(vec![entry(1, turn(2)), entry(2, session.clone()), entry(3, turn(1))]),
            ["turn 1 of `a/s`"],
            "a deleted session begins anew"
        );
        assert_eq!(shown(vec![entry(1, turn(1)), entry(2, session.clone())]), ["session `a/s` was deleted"]);
        let deletion = JournaledChange::Deletion { key: format!("j/{job}"), events: vec!["e".parse().unwrap()] };
        let event = |repeated| JournaledChange::Event {
            id: "e".parse().unwrap(),
            session: "a/s".to_owned(),
            job: Some(job.clone()),
            repeated,
        };
        let deleted = format!("`j/{job}` was deleted");
        assert_eq!(
            shown(vec![entry(1, event(false)), entry(2, hold), entry(3, end), entry(4, deletion.clone())]),
            std::slice::from_ref(&deleted)
        );
        let gone = "session `a/s` was deleted";
        let again = "event `e` of `a/s`";
        for (repeated, left) in [(true, vec![gone, deleted.as_str(), again]), (false, vec![again])] {
            let entries = vec![entry(1, session.clone()), entry(2, deletion.clone()), entry(3, event(repeated))];
            assert_eq!(shown(entries), left, "repeated: {repeated}");
        }
    }

    #[test]
    fn a_batch_is_stored_without_content() {
        let change = JournaledChange::Document {
            key: "w/a".to_owned(),
            mark: Some(content_mark(b"secret text")),
            version: Some(3),
        };
        let batch = JournalBatch { by: "w1".to_owned(), entries: vec![entry(7, change)], ..JournalBatch::default() };
        let text = serde_json::to_string(&batch).unwrap();
        assert!(!text.contains("secret text") && text.len() < 160, "{text}");
        assert_eq!(serde_json::from_str::<JournalBatch>(&text).unwrap(), batch);
        assert!(!batch.is_genuine(b"key"));
        assert!(batch.seal(b"key").is_genuine(b"key"));
    }
}
