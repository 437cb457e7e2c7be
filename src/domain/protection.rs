//! Protection records: documents, ends and pauses of jobs, and spent amounts that protect an owner. The queue keeps the
//! newest of each beside the store, so that a store that lost its last seconds gets them back before anything else
//! runs.

use crate::bounds::PROTECTION_BYTES;
use crate::decode;
use crate::ids::{JobId, Owner, sha256_hex};
use crate::job::{JobResult, JobStatus};
use crate::time::Millis;
use crate::venue_mac::VenueMac;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt::{Display, Formatter};

/// Newest acknowledged state of one thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProtectionRecord {
    /// Owner that it protects.
    pub owner: Owner,
    /// Time of the store's acknowledgement.
    pub at: Millis,
    /// State that is restored.
    pub what: ProtectedState,
    /// Code under the venue's key, see [`VenueMac`].
    #[serde(default)]
    pub mac: String,
}

/// The code is needed because others may publish to the queue, and could put their own policy in force.
impl VenueMac for ProtectionRecord {
    fn covered_text(&self) -> String {
        serde_json::to_string(&(&self.owner, self.at, &self.what)).unwrap_or_default()
    }

    fn mac(&self) -> &str {
        &self.mac
    }

    fn set_mac(&mut self, mac: String) {
        self.mac = mac;
    }
}

fn hashed_name(name: &str) -> String {
    let mut hash = sha256_hex(name.as_bytes());
    hash.truncate(32);
    hash
}

impl ProtectionRecord {
    /// Makes a record with the code under this key.
    pub fn seal_new(owner: Owner, at: Millis, what: ProtectedState, key: &[u8]) -> Self {
        Self { owner, at, what, mac: String::new() }.seal(key)
    }

    /// Whether another record is about the same thing, in any state of it.
    pub fn has_subject_of(&self, other: &Self) -> bool {
        self.owner == other.owner && self.what.name() == other.what.name()
    }
}

/// States that are restored. Texts are as the store has them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ProtectedState {
    /// A document at this version; without a value it is deleted.
    Document {
        /// Key of the document.
        key: String,
        /// Version of the document; it grows with every write.
        version: u64,
        /// Text of the document.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<String>,
    },
    /// The end of a job from outside its turns: a cancel, a revocation, a limit of time.
    End {
        /// Token of the session that serves the job.
        session: String,
        /// Id of the job.
        job: JobId,
        /// Status of the job, a terminal one.
        status: JobStatus,
        /// Text of the result.
        result: String,
        /// Ids and texts of the messages that announce it.
        outbox: Vec<(String, String)>,
    },
    /// A pause of a job, or its end.
    Hold {
        /// Token of the session that serves the job.
        session: String,
        /// Id of the job.
        job: JobId,
        /// Whether it is paused.
        paused: bool,
    },
    /// An account of what is spent, at this version: its amounts only grow.
    Spending {
        /// Key of the account's document.
        key: String,
        /// Version of the document; it grows with every write.
        version: u64,
        /// Text of the document.
        value: String,
    },
}

/// Error of a job whose result was lost with the store's last seconds.
const LOST_RESULT: &str = "the store lost its last seconds, and with them what this job returned, which was too large for \
                           the queue; it had ended, and isn't run again";

impl ProtectedState {
    /// Whether a message of the queue can hold a record of it.
    pub fn fits_message(&self) -> bool {
        serde_json::to_vec(self).is_ok_and(|text| text.len() <= PROTECTION_BYTES)
    }

    /// Returns the end of a job without its output and its messages, for one that fits no message: it prevents another
    /// run. The audit's repair informs those who wait for the job.
    #[must_use]
    pub fn without_output(self) -> Self {
        match self {
            Self::End { session, job, status, .. } => {
                let result = JobResult {
                    status,
                    output: None,
                    error: Some(LOST_RESULT.to_owned()),
                    error_code: None,
                    truncated: false,
                };
                let result = serde_json::to_string(&result).unwrap_or_default();
                Self::End { session, job, status, result, outbox: Vec::new() }
            }
            other @ (Self::Document { .. } | Self::Hold { .. } | Self::Spending { .. }) => other,
        }
    }

    /// Returns a name that newer records of the same thing share, in hexadecimal digits.
    pub fn name(&self) -> String {
        match self {
            Self::Document { key, .. } => Self::document_name(key),
            Self::End { job, .. } => hashed_name(&format!("end {job}")),
            Self::Hold { job, .. } => hashed_name(&format!("hold {job}")),
            Self::Spending { key, .. } => hashed_name(&format!("spending {key}")),
        }
    }

    /// Returns the name of records of a document; every owner's document with this key has it.
    pub fn document_name(key: &str) -> String {
        hashed_name(&format!("document {key}"))
    }

    /// Whether the record may be dropped some time after it was made. Records of jobs, answers, timers and erasures end
    /// with the retention; policies, gates, secrets and accounts count as long as they exist.
    pub fn expires(&self) -> bool {
        match self {
            Self::Document { key, value: Some(_), .. } => {
                ["j/", "h/", "m/"].iter().any(|prefix| key.starts_with(prefix))
                    || key.starts_with("g/") && key.matches('/').count() > 2
            }
            // The store knows the version of a deleted document for a day.
            Self::Document { value: None, .. } | Self::End { .. } | Self::Hold { .. } | Self::Spending { .. } => true,
        }
    }
}

/// Writes the state in words, with the name that operators know.
impl Display for ProtectedState {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Document { key, value: Some(_), .. } => write!(f, "`{key}` was written"),
            Self::Document { key, value: None, .. } => write!(f, "`{key}` was deleted"),
            Self::End { job, status, .. } => write!(f, "job `{job}` was {}", status.as_str()),
            Self::Hold { job, paused: true, .. } => write!(f, "job `{job}` was paused"),
            Self::Hold { job, paused: false, .. } => write!(f, "job `{job}` was resumed"),
            Self::Spending { key, .. } => write!(f, "`{key}` was charged"),
        }
    }
}

/// Returns the text of an account with the larger amounts of the store's and the queue's. `None` if the store's has
/// them already, or if one of them can't be read.
pub fn larger_account(store: Option<&[u8]>, queue: &[u8]) -> Option<String> {
    let queue: Value = decode::read_stored(queue).ok()?;
    let Some(store) = store else { return Some(queue.to_string()) };
    let store: Value = decode::read_stored(store).ok()?;
    let since = |account: &Value| account["since"].as_u64().unwrap_or_default();
    let merged = match since(&store).cmp(&since(&queue)) {
        std::cmp::Ordering::Less => queue,
        std::cmp::Ordering::Greater => return None,
        std::cmp::Ordering::Equal => merge(&store, &queue)?,
    };
    (merged != store).then(|| merged.to_string())
}

fn merge(store: &Value, queue: &Value) -> Option<Value> {
    let mut merged = store.as_object()?.clone();
    let amounts = |account: &Value| account["spent"].as_object().cloned().unwrap_or_default();
    let mut spent: Map<String, Value> = amounts(store);
    for (name, amount) in amounts(queue) {
        let known = spent.get(&name).and_then(Value::as_u64).unwrap_or_default();
        if amount.as_u64().unwrap_or_default() > known {
            spent.insert(name, amount);
        }
    }
    if !spent.is_empty() {
        merged.insert("spent".to_owned(), Value::Object(spent));
    }
    let holds = |account: &Value| account["held"].as_object().cloned().unwrap_or_default();
    // A call whose hold is in the store and not in the queue was settled: its amount is spent in the queue's account.
    let held: Map<String, Value> = holds(queue);
    if held.is_empty() {
        merged.remove("held");
    } else {
        merged.insert("held".to_owned(), Value::Object(held));
    }
    Some(Value::Object(merged))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document(key: &str) -> ProtectedState {
        ProtectedState::Document { key: key.to_owned(), version: 1, value: Some("{}".to_owned()) }
    }

    #[test]
    fn an_end_that_fits_no_message_is_kept_without_its_output() {
        let end = |bytes: usize| ProtectedState::End {
            session: "a/b".to_owned(),
            job: JobId::new(&"0f".repeat(16)).unwrap(),
            status: JobStatus::Complete,
            result: json!({"status": "COMPLETE", "output": "\"".repeat(bytes)}).to_string(),
            outbox: vec![("id".to_owned(), "message".to_owned())],
        };
        // A quote is two bytes of the result, and four of the record.
        let bytes = PROTECTION_BYTES / 4;
        assert!(end(bytes - 100).fits_message());
        assert!(!end(bytes).fits_message());
        let lean = end(bytes).without_output();
        assert!(lean.fits_message());
        assert_eq!(lean.name(), end(1).name());
        let ProtectedState::End { status, result, outbox, .. } = lean else { panic!("it is another kind") };
        let result: JobResult = serde_json::from_str(&result).unwrap();
        assert_eq!((status, result.status, outbox.len()), (JobStatus::Complete, JobStatus::Complete, 0));
        assert!(result.error.unwrap().contains("isn't run again"));
    }

    #[test]
    fn operator_settings_are_protected_and_expiring_records_not() {
        for (key, expires) in [
            ("policy", false),
            ("quota", false),
            ("s/KEY", false),
            ("g/echo", false),
            ("g/echo/gate", false),
            ("g/echo/turn/main/0000000000000001", true),
            ("j/0f/r", true),
            ("h/0f", true),
            ("m/0f", true),
        ] {
            assert_eq!(document(key).expires(), expires, "{key}");
        }
    }

    #[test]
    fn a_record_that_somebody_else_made_or_changed_is_not_genuine() {
        let record =
            |what| ProtectionRecord { owner: "acme/ada".parse().unwrap(), at: Millis(7), what, mac: String::new() };
        let sealed = record(document("policy")).seal(b"key");
        assert!(sealed.is_genuine(b"key"));
        let stored = serde_json::from_str::<ProtectionRecord>(&serde_json::to_string(&sealed).unwrap()).unwrap();
        assert!(stored.is_genuine(b"key"));
        assert!(!sealed.is_genuine(b"other"));
        assert!(!ProtectionRecord { what: document("quota"), ..sealed }.is_genuine(b"key"));
        assert!(!record(document("policy")).is_genuine(b"key"));
    }

    #[test]
    fn records_of_the_same_thing_have_the_same_name() {
        let job = JobId::new(&"0f".repeat(16)).unwrap();
        let hold = |paused| ProtectedState::Hold { session: "a/b".to_owned(), job: job.clone(), paused };
        let deleted = ProtectedState::Document { key: "s/KEY".to_owned(), version: 2, value: None };
        assert!(deleted.expires());
        assert_eq!(deleted.name(), document("s/KEY").name());
        assert_eq!(hold(true).name(), hold(false).name());
        assert_ne!(document("policy").name(), document("quota").name());
        assert_eq!(document("policy").name().len(), 32);
    }

    #[test]
    fn of_two_accounts_the_larger_amounts_count() {
        let account = |tokens: u64, since: u64| {
            json!({"spent": {"tokens": tokens, "nano": 1, "turns": 1}, "since": since}).to_string()
        };
        let larger = |store: Option<&str>, queue: &str| {
            let merged = larger_account(store.map(str::as_bytes), queue.as_bytes());
            merged.map(|text| serde_json::from_str::<Value>(&text).unwrap()["spent"]["tokens"].as_u64().unwrap())
        };
        assert_eq!(larger(None, &account(5, 0)), Some(5));
        assert_eq!(larger(Some(&account(3, 0)), &account(5, 0)), Some(5));
        assert_eq!(larger(Some(&account(5, 0)), &account(3, 0)), None);
        assert_eq!(larger(Some(&account(9, 0)), &account(1, 7)), Some(1), "the session began anew");
        assert_eq!(larger(Some(&account(1, 7)), &account(9, 0)), None);
        assert_eq!(larger(Some("damaged"), &account(9, 0)), None);
    }
}
