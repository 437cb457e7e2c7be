//! Answers of the functions: parts in a row; a list is an array, an absent value is a null.

use crate::domain::ids::SessionKey;
use crate::domain::job::JobStatus;
use crate::domain::time::Millis;
use crate::store::{
    Continuation, Doc, DocConflict, DocPage, EventKind, LeaseCheck, MailboxEntry, OutboxEntry, SessionFacts,
    StoreError, SweepResult, Versions,
};
use bytes::Bytes;
use redis::Value;

/// The parts of an answer, read one after the other.
pub struct AnswerParts {
    store: String,
    parts: std::vec::IntoIter<Value>,
}

impl AnswerParts {
    /// Returns the parts of `value`, which must be an array.
    pub fn new(store: &str, value: Value) -> Result<Self, StoreError> {
        match value {
            Value::Array(parts) => Ok(Self { store: store.to_owned(), parts: parts.into_iter() }),
            other => Err(corrupt_answer(store, &format!("expected an array, got {}", type_name(&other)))),
        }
    }

    /// Returns the error for an answer that no function gives.
    pub fn unexpected_error(&self, what: &str, got: &str) -> StoreError {
        corrupt_answer(&self.store, &format!("expected {what}, got `{got}`"))
    }

    fn next(&mut self, what: &str) -> Result<Value, StoreError> {
        self.parts.next().ok_or_else(|| corrupt_answer(&self.store, &format!("expected {what}, got nothing more")))
    }

    /// Reads bytes, or nil as `None`.
    pub fn optional(&mut self) -> Result<Option<Bytes>, StoreError> {
        match self.next("bytes or nil")? {
            Value::Nil | Value::Boolean(false) => Ok(None),
            Value::BulkString(bytes) => Ok(Some(bytes.into())),
            Value::SimpleString(text) => Ok(Some(text.into())),
            other => Err(corrupt_answer(&self.store, &format!("expected bytes or nil, got {}", type_name(&other)))),
        }
    }

    /// Skips the next part; returns whether it is not nil.
    pub fn take_presence(&mut self) -> Result<bool, StoreError> {
        self.next("something or nil").map(|part| part != Value::Nil)
    }

    /// Reads bytes; nil is an error.
    pub fn bytes(&mut self) -> Result<Bytes, StoreError> {
        self.optional()?.ok_or_else(|| corrupt_answer(&self.store, "expected bytes, got nil"))
    }

    /// Reads UTF-8 text.
    pub fn text(&mut self) -> Result<String, StoreError> {
        let bytes = self.bytes()?;
        String::from_utf8(bytes.into()).map_err(|error| corrupt_answer(&self.store, &error.to_string()))
    }

    /// Reads the result of a sweep.
    pub fn sweep_result(mut self) -> Result<SweepResult, StoreError> {
        let (mut sessions, mut due) = (self.read_nested()?, Vec::new());
        while !sessions.is_empty() {
            // An invalid session keeps no other from being served; the audit names it.
            due.extend(sessions.session().inspect_err(|error| tracing::debug!(%error, "not due")).ok());
        }
        let outbox = self.read_nested()?.read_each(Self::outbox_entry)?;
        let outbox = outbox.into_iter().map(|(_, entry)| entry).collect();
        let mut swept = SweepResult { due, outbox, more: self.number()? == 1, ..SweepResult::default() };
        let mut first = self.read_nested()?;
        for found in &mut swept.first {
            *found = first.optional()?.map(|key| String::from_utf8_lossy(&key).into_owned());
        }
        swept.next = self.optional_millis()?;
        Ok(swept)
    }

    /// Reads a whole number of at least 0.
    pub fn number(&mut self) -> Result<u64, StoreError> {
        match self.next("a number")? {
            Value::Int(number) => {
                u64::try_from(number).map_err(|_| corrupt_answer(&self.store, &format!("a negative number: {number}")))
            }
            other => Err(corrupt_answer(&self.store, &format!("expected a number, got {}", type_name(&other)))),
        }
    }

    /// Reads a time in milliseconds.
    pub fn millis(&mut self) -> Result<Millis, StoreError> {
        self.number().map(Millis)
    }

    /// Reads a stored time, or nil as `None`.
    pub fn optional_millis(&mut self) -> Result<Option<Millis>, StoreError> {
        let Some(bytes) = self.optional()? else { return Ok(None) };
        self.parse(&bytes).map(|number| Some(Millis(number)))
    }

    /// Parses a part that was read before.
    pub fn parse<T: std::str::FromStr>(&self, bytes: &[u8]) -> Result<T, StoreError> {
        let text = String::from_utf8_lossy(bytes);
        text.parse().map_err(|_| self.unexpected_error("a legal value", &text))
    }

    /// Reads a part and parses it.
    pub fn parse_next<T: std::str::FromStr>(&mut self) -> Result<T, StoreError> {
        let bytes = self.bytes()?;
        self.parse(&bytes)
    }

    /// Reads the next part as an array of parts.
    pub fn read_nested(&mut self) -> Result<Self, StoreError> {
        let store = self.store.clone();
        Self::new(&store, self.next("an array")?)
    }

    /// Reads all remaining parts, each an array.
    pub fn read_each<T>(
        mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let mut all = Vec::with_capacity(self.parts.len());
        while !self.is_empty() {
            all.push(read(&mut self.read_nested()?)?);
        }
        Ok(all)
    }

    /// Reads a page of documents, with or without values.
    pub fn page(&mut self, values: bool) -> Result<DocPage, StoreError> {
        let total = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        let read = |part: &mut Self| Ok((part.text()?, if values { part.doc()? } else { Doc::default() }));
        Ok(DocPage { total, docs: self.read_nested()?.read_each(read)? })
    }

    /// Reads all remaining parts in pairs, as `HGETALL` returns them.
    pub fn read_pairs<T>(
        mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let mut all = Vec::with_capacity(self.parts.len() / 2);
        while !self.is_empty() {
            all.push(read(&mut self)?);
        }
        Ok(all)
    }

    /// Whether no part is left.
    pub fn is_empty(&self) -> bool {
        self.parts.len() == 0
    }

    /// Reads a session's token.
    pub fn session(&mut self) -> Result<SessionKey, StoreError> {
        let token = self.text()?;
        SessionKey::from_token(&token).map_err(|error| corrupt_answer(&self.store, &error.to_string()))
    }

    /// Reads a job's status.
    pub fn status(&mut self) -> Result<JobStatus, StoreError> {
        let text = self.text()?;
        JobStatus::parse(&text).ok_or_else(|| self.unexpected_error("a job status", &text))
    }

    /// Reads `count` documents as they are stored in their hash.
    pub fn stored_docs(mut self, count: usize) -> Result<Vec<Doc>, StoreError> {
        (0..count).map(|_| self.stored_doc()).collect()
    }

    /// Reads a document as it is stored in its hash: `<version> <bytes>`, for a deleted one `<version>`, or nil.
    fn stored_doc(&mut self) -> Result<Doc, StoreError> {
        let Some(raw) = self.optional()? else { return Ok(Doc::default()) };
        let gap = raw.iter().position(|byte| *byte == b' ');
        let version = self.parse(&raw[..gap.unwrap_or(raw.len())])?;
        Ok(Doc { version, value: gap.map(|gap| raw.slice(gap + 1..)) })
    }

    /// Reads a document as version and value.
    pub fn doc(&mut self) -> Result<Doc, StoreError> {
        Ok(Doc { version: self.number()?, value: self.optional()? })
    }

    /// Reads the check of a lease.
    pub fn lease_check(&mut self) -> Result<LeaseCheck, StoreError> {
        match self.text()?.as_str() {
            "yes" => Ok(LeaseCheck::Held { cancelled: self.number()? == 1, policy: self.number()? }),
            "fenced" => Ok(LeaseCheck::Fenced),
            other => Err(self.unexpected_error("`yes` or `fenced`", other)),
        }
    }

    /// Reads the conflicts of documents.
    pub fn conflicts(&mut self) -> Result<Vec<DocConflict>, StoreError> {
        self.read_nested()?.read_each(|part| Ok(DocConflict { key: part.text()?, actual: part.number()? }))
    }

    /// Reads an outbox entry with its number, which gives the order in which entries were decided.
    pub fn outbox_entry(&mut self) -> Result<(u64, OutboxEntry), StoreError> {
        Ok((self.number()?, self.entry()?))
    }

    /// Reads an entry of the list of sessions: its token, and the session's facts if the token is valid.
    pub fn listed_session(&mut self) -> Result<(String, Option<SessionFacts>), StoreError> {
        let token = String::from_utf8_lossy(&self.bytes()?).into_owned();
        match SessionKey::from_token(&token) {
            Ok(key) => Ok((token, Some(self.session_facts(key)?))),
            Err(error) => {
                tracing::debug!(token, %error, "a listed session that is none is passed over");
                Ok((token, None))
            }
        }
    }

    fn session_facts(&mut self, key: SessionKey) -> Result<SessionFacts, StoreError> {
        let facts = SessionFacts {
            key,
            version: self.number()?,
            epoch: self.number()?,
            lease_until: self.optional_millis()?,
            lease_worker: self.optional()?.map(|name| String::from_utf8_lossy(&name).into_owned()),
            due: self.optional_millis()?,
            arrivals: self.number()?,
            consumed: self.number()?,
            mailbox: self.mailbox_with(|_| ())?,
            state: self.optional()?,
            touched: self.millis()?,
            damaged: self.read_nested()?.escaped_texts()?,
            unreadable: false,
        };
        self.with_reason(facts)
    }

    /// Adds the reason to a session whose record can't be read.
    fn with_reason(&mut self, mut facts: SessionFacts) -> Result<SessionFacts, StoreError> {
        facts.damaged = facts.damaged.iter().map(|place| format!("the event `{place}` of its mailbox")).collect();
        if let Some(why) = self.optional()? {
            facts.unreadable = true;
            facts.damaged.push(format!("its record can't be read: {}", String::from_utf8_lossy(&why).escape_debug()));
        }
        facts.damaged.extend(self.read_nested()?.escaped_texts()?);
        Ok(facts)
    }

    /// Reads all remaining parts as text without control characters.
    fn escaped_texts(mut self) -> Result<Vec<String>, StoreError> {
        let mut all = Vec::with_capacity(self.parts.len());
        while !self.is_empty() {
            all.push(String::from_utf8_lossy(&self.bytes()?).escape_debug().to_string());
        }
        Ok(all)
    }

    /// Reads the pending events of a mailbox.
    pub fn mailbox(&mut self) -> Result<Vec<MailboxEntry>, StoreError> {
        self.mailbox_with(|body| body)
    }

    fn mailbox_with<B>(&mut self, keep: impl Fn(Bytes) -> B) -> Result<Vec<MailboxEntry<B>>, StoreError> {
        self.read_nested()?.read_each(|part| {
            let key = part.text()?;
            let letter = part.text()?;
            let kind = letter.chars().next().and_then(EventKind::from_letter);
            let kind = kind.ok_or_else(|| part.unexpected_error("an event kind", &letter))?;
            let job = part.optional()?.map(|job| part.parse(&job)).transpose()?;
            let status = part.optional()?;
            let job_status = match &status {
                None => None,
                Some(text) => {
                    let text = String::from_utf8_lossy(text);
                    Some(JobStatus::parse(&text).ok_or_else(|| part.unexpected_error("a job status", &text))?)
                }
            };
            let crashes = u32::try_from(part.number()?).unwrap_or(u32::MAX);
            Ok(MailboxEntry { key, kind, job, job_status, crashes, body: keep(part.bytes()?) })
        })
    }

    fn entry(&mut self) -> Result<OutboxEntry, StoreError> {
        Ok(OutboxEntry { id: self.text()?, message: self.bytes()? })
    }

    /// Reads the versions that a turn depends on.
    pub fn versions(&mut self) -> Result<Versions, StoreError> {
        let mut part = self.read_nested()?;
        Ok(Versions { gate: part.number()?, policy: part.number()?, erasures: part.number()? })
    }

    /// Reads what a holder has after a commit or a release.
    pub fn continuation(&mut self) -> Result<Continuation, StoreError> {
        let mut part = self.read_nested()?;
        match part.text()?.as_str() {
            "released" => Ok(Continuation::Released { wakes: part.read_nested()?.read_each(Self::entry)? }),
            "held" => {
                let (mailbox, arrivals) = (part.mailbox()?, part.number()?);
                Ok(Continuation::Held { mailbox, arrivals, versions: part.versions()? })
            }
            other => Err(part.unexpected_error("`held` or `released`", other)),
        }
    }
}

fn corrupt_answer(store: &str, reason: &str) -> StoreError {
    StoreError::Corrupt { store: store.to_owned(), record: None, reason: reason.to_owned() }
}

const fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nil",
        Value::Int(_) => "a number",
        Value::BulkString(_) | Value::SimpleString(_) => "text",
        Value::Array(_) => "an array",
        _ => "something else",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misshapen_answer_is_corrupt_and_names_the_expected_shape() {
        let mut answer = AnswerParts::new("redis", Value::Array(vec![Value::Int(-1), Value::Nil])).unwrap();
        assert!(answer.number().unwrap_err().to_string().contains("negative"));
        assert!(answer.bytes().unwrap_err().to_string().contains("expected bytes, got nil"));
        assert!(answer.text().unwrap_err().to_string().contains("got nothing more"));
    }
}
