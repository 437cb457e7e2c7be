//! Jobs by state, agent, session, time and text.

use super::{add_related, read_listed};
use crate::domain::ids::{AgentId, JobId, Owner, SessionId};
use crate::domain::job::{ErrorCode, Job, JobStatus};
use crate::domain::limits::{LIST_BYTES, LIST_LOOK_BYTES, LIST_LOOKS};
use crate::domain::reader::{JobReader, JobVisibility};
use crate::domain::time::Millis;
use crate::store::{StoreError, keys};
use crate::venue::Venue;
use serde::Deserialize;
use serde_json::Value;

/// Entries of the list that one step reads.
const STEP: usize = 100;

/// Filter of jobs; an absent or empty field excludes none.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JobListFilter {
    /// States of the job; any of them.
    pub statuses: Vec<JobStatus>,
    /// Codes with which the job ended; any of them.
    pub codes: Vec<ErrorCode>,
    /// Agent that serves the job.
    pub agent: Option<AgentId>,
    /// Session that serves the job.
    pub session: Option<SessionId>,
    /// Earliest time of acceptance.
    pub since: Option<Millis>,
    /// Latest time of acceptance.
    pub until: Option<Millis>,
    /// Reader who must see something of the job; a text is searched only in jobs of which he sees all. `None` is the
    /// venue itself.
    pub reader: Option<JobReader>,
    /// Text in input, output or error, in any case.
    pub text: Option<String>,
}

impl JobListFilter {
    /// Whether a job passes the filter, apart from its times.
    pub fn accepts(&self, job: &Job) -> bool {
        let of_agent = job.head.op.is_none();
        let sight = self.reader.as_ref().map_or(JobVisibility::Whole, |reader| reader.visibility(&job.head));
        (self.statuses.is_empty() || self.statuses.contains(&job.status))
            && (self.codes.is_empty()
                || job.result.as_ref().and_then(|r| r.error_code).is_some_and(|c| self.codes.contains(&c)))
            && self.agent.as_ref().is_none_or(|agent| of_agent && *agent == job.head.agent)
            && self.session.as_ref().is_none_or(|session| of_agent && *session == job.head.session)
            && sight != JobVisibility::Nothing
            && self.text.as_ref().is_none_or(|text| sight == JobVisibility::Whole && contains_text(job, text))
    }
}

fn contains_text(job: &Job, text: &str) -> bool {
    let text = text.to_lowercase();
    let result = job.result.as_ref();
    contains(&job.head.input, &text)
        || result.and_then(|result| result.output.as_ref()).is_some_and(|output| contains(output, &text))
        || result.and_then(|result| result.error.as_ref()).is_some_and(|error| error.to_lowercase().contains(&text))
}

/// Whether a value contains a text, given in lower case, in one of its strings or in its JSON.
pub fn contains(value: &Value, text: &str) -> bool {
    match value {
        Value::String(own) => own.to_lowercase().contains(text),
        Value::Array(items) => items.iter().any(|item| contains(item, text)),
        Value::Object(map) => map.iter().any(|(key, value)| key.to_lowercase().contains(text) || contains(value, text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string().contains(text),
    }
}

/// Cursor of a list: the entry of the last job that was read.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Cursor(String);

/// A text that is no cursor of a list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected the `next` of a batch, got `{found}`")]
pub struct CursorError {
    /// Text that was given.
    pub found: String,
}

impl TryFrom<String> for Cursor {
    type Error = CursorError;

    fn try_from(text: String) -> Result<Self, CursorError> {
        Self::parse(&text).ok_or(CursorError { found: text })
    }
}

impl Cursor {
    /// Returns when the job at the cursor was accepted: so far back the list was read.
    pub fn accepted_at(&self) -> Millis {
        created_at(&self.0)
    }

    /// Parses a cursor of an answer.
    pub fn parse(text: &str) -> Option<Self> {
        let (created, job) = text.split_once('-')?;
        let is_time = created.len() == 16 && created.bytes().all(|byte| byte.is_ascii_digit());
        (is_time && JobId::new(job).is_ok()).then(|| Self(text.to_owned()))
    }

    /// Returns the text of the cursor.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A page of a filtered list.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JobPage {
    /// Jobs, newest first.
    pub jobs: Vec<Job>,
    /// Cursor of the next page; `None` at the end of the list. An empty page may have a next one.
    pub next: Option<Cursor>,
}

/// Returns the jobs after the cursor that pass the filter, newest first: at most `limit`. It reads at most
/// [`LIST_LOOKS`] jobs and [`LIST_LOOK_BYTES`].
pub async fn find(
    venue: &Venue,
    owner: &Owner,
    filter: &JobListFilter,
    after: Option<&Cursor>,
    limit: usize,
) -> Result<JobPage, StoreError> {
    let mut found = JobPage::default();
    let place = match (after, filter.until) {
        (Some(cursor), _) => Some(format!("{}{}", keys::JOB_LIST, cursor.0)),
        (None, Some(until)) => Some(format!("{}{:016}", keys::JOB_LIST, until.0.saturating_add(1))),
        (None, None) => None,
    };
    let mut entries = venue.store.entries(owner, keys::JOB_LIST).reverse().start_after(place);
    let (mut left, mut bytes) = (LIST_LOOKS, LIST_LOOK_BYTES);
    while left > 0 {
        entries = entries.page_size(STEP.min(left));
        let Some(page) = entries.keys().await? else { break };
        left -= page.len();
        let places: Vec<&str> = page.iter().filter_map(|key| key.strip_prefix(keys::JOB_LIST)).collect();
        let new_enough: Vec<&str> = places
            .iter()
            .copied()
            .take_while(|place| filter.since.is_none_or(|since| created_at(place) >= since))
            .collect();
        let ids: Vec<_> = new_enough.iter().filter_map(|place| keys::listed_job(place)).collect();
        let mut looked = 0;
        while looked < ids.len() {
            let (jobs, left_of) = read_listed(venue, owner, &ids[looked..], LIST_BYTES.min(bytes), filter).await?;
            bytes = bytes.saturating_sub(LIST_BYTES.min(bytes) - left_of);
            for job in jobs {
                found.jobs.extend(job);
                let place = &new_enough[looked];
                looked += 1;
                if found.jobs.len() >= limit {
                    found.next = Some(Cursor((*place).to_owned()));
                    break;
                }
            }
            if bytes == 0 && found.next.is_none() {
                found.next = looked.checked_sub(1).map(|last| Cursor(new_enough[last].to_owned()));
            }
            if found.next.is_some() {
                add_related(venue, owner, &mut found.jobs).await?;
                return Ok(found);
            }
        }
        if new_enough.len() < places.len() {
            add_related(venue, owner, &mut found.jobs).await?;
            return Ok(found);
        }
    }
    found.next = entries.last_place().and_then(|key| Cursor::parse(key.strip_prefix(keys::JOB_LIST)?));
    add_related(venue, owner, &mut found.jobs).await?;
    Ok(found)
}

fn created_at(place: &str) -> Millis {
    Millis(place.split('-').next().and_then(|digits| digits.parse().ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_text_is_found_in_every_string_and_number() {
        for (value, text, expected) in [
            (json!("Invoice 17"), "invoice", true),
            (json!({"note": ["a", {"b": "Paid"}]}), "paid", true),
            (json!({"Vendor": 1}), "vendor", true),
            (json!({"n": 1234}), "23", true),
            (json!({"n": 1234}), "x", false),
            (json!(null), "", true),
        ] {
            assert_eq!(contains(&value, text), expected, "{value} {text}");
        }
    }

    #[test]
    fn a_cursor_is_a_place_of_the_list() {
        let job = "0f".repeat(16);
        for (text, good) in [
            (format!("0000000000000005-{job}"), true),
            (format!("5-{job}"), false),
            ("0000000000000005-x".to_owned(), false),
            (format!("000000000000000x-{job}"), false),
            (String::new(), false),
        ] {
            assert_eq!(Cursor::parse(&text).is_some(), good, "{text}");
        }
    }
}
