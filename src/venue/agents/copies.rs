//! Copies of sessions. A copy holds a claim on the new name, which every step renews: of several copies to one name at
//! once one succeeds, and a refused one deletes what it has written.

use super::error::LifecycleError;
use crate::domain::ids::{AgentId, Owner, SessionKey};
use crate::domain::limits::COPY_CLAIM;
use crate::domain::quota::QuotaUsage;
use crate::domain::session::{SessionState, TurnRecord};
use crate::domain::time::Millis;
use crate::store::{
    Amend, AmendOutcome, Amendment, Doc, DocKey, DocWrite, SessionFacts, SessionSnapshot, SetSessionOutcome,
    StoreError, WriteOutcome, decode as document, keys,
};
use crate::venue::Venue;
use bytes::Bytes;

/// Turns that one step of a copy moves.
const COPIED: usize = 100;

/// Documents that one step of an undo deletes.
const TAKEN_BACK: usize = 500;

/// Exclusive right to copy to a name, with what was copied under it.
pub(super) struct CopyClaim<'a> {
    venue: &'a Venue,
    owner: &'a Owner,
    key: DocKey,
    version: u64,
    made: Vec<CopiedSession>,
}

/// A session that a copy has written, with the versions of its documents.
struct CopiedSession {
    session: SessionKey,
    snapshot: Option<SessionSnapshot>,
    documents: Vec<(DocKey, u64)>,
}

impl<'a> CopyClaim<'a> {
    /// Acquires the claim on a session's name; `None` if another copy holds it.
    pub(super) async fn for_session(
        venue: &'a Venue,
        owner: &'a Owner,
        to: &SessionKey,
    ) -> Result<Option<Self>, StoreError> {
        Self::acquire(venue, owner, keys::session_claim(to)).await
    }

    /// Acquires the claim on an agent's name; `None` if another copy holds it.
    pub(super) async fn for_agent(
        venue: &'a Venue,
        owner: &'a Owner,
        to: &AgentId,
    ) -> Result<Option<Self>, StoreError> {
        Self::acquire(venue, owner, keys::agent_claim(to)).await
    }

    async fn acquire(venue: &'a Venue, owner: &'a Owner, key: DocKey) -> Result<Option<Self>, StoreError> {
        let (since, version) = venue.store.get_versioned::<Millis>(owner, &key).await?;
        // The claim of a process that has died lapses.
        if since.is_some_and(|since| venue.now() < since.plus(COPY_CLAIM)) {
            return Ok(None);
        }
        let mut claim = Self { venue, owner, key, version, made: Vec::new() };
        Ok(claim.write(Vec::new()).await?.then_some(claim))
    }

    /// Writes documents and renews the claim in one write; `false` if nothing was written because the claim or a
    /// document has changed.
    async fn write(&mut self, mut writes: Vec<DocWrite>) -> Result<bool, StoreError> {
        let now = self.venue.now();
        writes.push(DocWrite::json(self.key.as_str(), &now).at_version(self.version));
        let done = self.venue.write_within_quota(self.owner, &writes).await? == WriteOutcome::Done;
        self.version += u64::from(done);
        Ok(done)
    }

    /// Copies the turns up to `at`, then creates the session that has them: nobody sees them before.
    pub(super) async fn copy(&mut self, from: &SessionFacts, at: u64, to: &SessionKey) -> Result<(), LifecycleError> {
        let (venue, owner) = (self.venue, self.owner);
        let state: SessionState = match &from.state {
            None => SessionState::default(),
            Some(bytes) => document(&format!("state of {}", from.key), bytes)?,
        };
        let state = serde_json::to_vec(&state.fork(at, venue.now())).expect("states serialise");
        venue
            .check_room(owner, QuotaUsage { documents: 2 * at, bytes: state.len() as u64, sessions: 1, jobs: 0 })
            .await?;
        self.made.push(CopiedSession { session: to.clone(), snapshot: None, documents: Vec::new() });
        let prefix = keys::turns(&from.key);
        let mut turns = venue.store.docs(owner, prefix).page_size(COPIED);
        while let Some(page) = turns.next().await? {
            if !self.copy_turns(page, at, to).await? {
                break;
            }
        }
        let snapshot = SessionSnapshot { version: at, state: Bytes::from(state), quota: Some(venue.quota().await) };
        match venue.store.set_session(venue.now(), owner, to, Some(&snapshot), &[]).await? {
            SetSessionOutcome::Done => {}
            SetSessionOutcome::Held(_) | SetSessionOutcome::Taken | SetSessionOutcome::Changed => {
                return Err(LifecycleError::Taken(to.clone()));
            }
        }
        if let Some(made) = self.made.last_mut() {
            made.snapshot = Some(snapshot);
        }
        Ok(())
    }

    /// Copies the turns of a page up to turn `at`; `false` if it has none.
    async fn copy_turns(&mut self, page: Vec<(DocKey, Doc)>, at: u64, to: &SessionKey) -> Result<bool, LifecycleError> {
        let mut puts = Vec::with_capacity(2 * page.len());
        for (key, doc) in page {
            let bytes = doc.value.unwrap_or_default();
            let record: TurnRecord = document(&key, &bytes)?;
            if record.turn <= at {
                puts.push((keys::turn(to, record.turn), bytes));
                puts.push((keys::timeline_entry(to, record.start, record.turn), Bytes::new()));
            }
        }
        if puts.is_empty() {
            return Ok(false);
        }
        let places: Vec<DocKey> = puts.iter().map(|(key, _)| key.clone()).collect();
        let before = self.venue.store.read(self.owner, &places).await?;
        // Checked after that read: a turn of a session that was created later has another version.
        if self.venue.store.find_session(self.owner, to).await?.is_some() {
            return Err(LifecycleError::Taken(to.clone()));
        }
        let versions: Vec<u64> = before.into_iter().map(|doc| doc.version).collect();
        let puts = puts.into_iter().zip(&versions);
        let writes = puts.map(|((key, bytes), version)| DocWrite::put(key, bytes).at_version(*version)).collect();
        // Noted before the write, so that an undo covers a write whose answer is lost.
        let written = places.into_iter().zip(versions).map(|(key, version)| (key, version + 1));
        if let Some(made) = self.made.last_mut() {
            made.documents.extend(written);
        }
        if self.write(writes).await? { Ok(true) } else { Err(LifecycleError::Taken(to.clone())) }
    }

    /// Copies every session of an agent to another agent that has none.
    pub(super) async fn copy_all(&mut self, from: &AgentId, to: &AgentId) -> Result<(), LifecycleError> {
        let venue = self.venue;
        let mut sessions = venue.store.all_sessions(self.owner, Some(from));
        while let Some(page) = sessions.next().await? {
            for facts in page.iter().filter(|facts| facts.version > 0) {
                let to = SessionKey { agent: to.clone(), session: facts.key.session.clone() };
                self.copy(facts, facts.version, &to).await?;
            }
        }
        Ok(())
    }

    /// Releases the claim. If `done` is an error, deletes what was copied.
    pub(super) async fn release<T>(mut self, done: Result<T, LifecycleError>) -> Result<T, LifecycleError> {
        if done.is_err() {
            for made in std::mem::take(&mut self.made) {
                self.delete_copy(made).await?;
            }
        }
        let free = DocWrite::delete(self.key.as_str()).at_version(self.version);
        // The version check spares a claim that has lapsed and belongs to another copy.
        self.venue.store.write(self.venue.now(), self.owner, &[free]).await?;
        done
    }

    /// Deletes a copied session with its documents, except those that were overwritten. Deletes nothing if the session
    /// has been used.
    async fn delete_copy(&self, made: CopiedSession) -> Result<(), StoreError> {
        if let Some(snapshot) = made.snapshot {
            let then = Amendment::Remove { arrivals: 0 };
            let amend = Amend {
                version: snapshot.version,
                expected_state: Some(snapshot.state),
                amendment: then,
                writes: Vec::new(),
            };
            let gone = self.venue.store.amend(self.venue.now(), self.owner, &made.session, &amend).await?;
            if gone != AmendOutcome::Done {
                return Ok(());
            }
        }
        for some in made.documents.chunks(TAKEN_BACK) {
            let mut left: Vec<DocWrite> =
                some.iter().map(|(key, version)| DocWrite::delete(key.as_str()).at_version(*version)).collect();
            while !left.is_empty() {
                match self.venue.store.write(self.venue.now(), self.owner, &left).await? {
                    WriteOutcome::Done => break,
                    WriteOutcome::Conflict(others) => {
                        left.retain(|write| !others.iter().any(|other| other.key == write.key));
                    }
                }
            }
        }
        Ok(())
    }
}
