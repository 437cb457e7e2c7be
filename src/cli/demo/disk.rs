//! Contents of the store's folder while no process has it open.

use super::super::exit::Failure;
use super::super::role;
use super::folder::{CLERK_AGENT, DemoFolder, HELPER_AGENT};
use super::turns::DemoTurn;
use crate::app::{App, Role};
use crate::config::Config;
use crate::domain::audit::AuditTotals;
use crate::domain::authority::Authority;
use crate::domain::context::record::RestoredRecord;
use crate::domain::ids::{AgentId, Owner};
use crate::domain::job::Job;
use crate::process::telemetry::Metrics;
use crate::store::StoreError;
use crate::venue::Venue;
use crate::venue::agents;
use crate::venue::jobs;
use crate::venue::ledger;
use crate::venue::upkeep::audit;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A limit above the turns and jobs of the demo.
const LIST_LIMIT: usize = 1_000;

/// All records in the store.
pub(crate) struct StoreContents {
    /// Committed turns, oldest first.
    pub(crate) turns: Vec<DemoTurn>,
    /// Restored prompts of the clerk's turns, by [`DemoTurn::place`].
    pub(crate) seen: BTreeMap<String, RestoredRecord>,
    /// All jobs, ended and open.
    pub(crate) jobs: Vec<Job>,
    /// Result of the audit.
    pub(crate) books: AuditTotals,
}

impl StoreContents {
    /// Opens the store in this process, reads it and closes it again.
    pub(crate) async fn read(folder: &DemoFolder) -> Result<Self, Failure> {
        let settings = [
            ("store.url".to_owned(), format!("embedded:{}", folder.data().display())),
            ("bus.url".to_owned(), "embedded".to_owned()),
        ];
        let loaded = Config::load(None, &BTreeMap::new(), &settings).map_err(|e| Failure::internal(e.to_string()))?;
        let app = App::open(&loaded.config, Role::Command, Arc::new(Metrics::new())).await;
        let app = app.map_err(|e| role::failure(&e))?;
        let disk = Self::read_venue(&app.venue).await;
        app.close().await;
        disk
    }

    async fn read_venue(venue: &Venue) -> Result<Self, Failure> {
        let store = |e: StoreError| Failure::internal(e.to_string());
        let owner: Owner = "local/me".parse().expect("a legal owner");
        let mut turns = Vec::new();
        for name in [CLERK_AGENT, HELPER_AGENT] {
            let agent = AgentId::new(name).expect("a legal agent id");
            let reader = Authority::without_limits();
            let timeline = agents::timeline(venue, &owner, &reader, &agent, 0, LIST_LIMIT).await.map_err(store)?;
            turns.extend(timeline.into_iter().map(|turn| DemoTurn::new(name, turn)));
        }
        let mut seen = BTreeMap::new();
        for turn in turns.iter().filter(|turn| turn.agent == CLERK_AGENT) {
            let session = turn.key()?;
            let past = ledger::load(&*venue.store, &owner, &session, turn.record.turn).await.map_err(store)?;
            seen.extend(past.and_then(|past| past.seen).map(|seen| (turn.place(), seen)));
        }
        let jobs = jobs::list(venue, &owner, 0, LIST_LIMIT).await.map_err(store)?.items;
        let books = audit::audit_all(venue).await.map_err(|e| Failure::internal(e.to_string()))?;
        Ok(Self { turns, seen, jobs, books })
    }
}
