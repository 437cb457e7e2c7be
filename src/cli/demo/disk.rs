//! Contents of the store's folder while no process has it open.

use super::super::exit::Failure;
use super::super::role;
use super::folder::{CLERK, Folder, HELPER};
use super::turns::Turn;
use crate::app::{App, Role};
use crate::config::Config;
use crate::domain::audit::Books;
use crate::domain::authority::Authority;
use crate::domain::context::record::Restored;
use crate::domain::ids::{AgentId, Owner};
use crate::domain::job::Job;
use crate::process::telemetry::Metrics;
use crate::store::StoreError;
use crate::upkeep::audit;
use crate::venue::Venue;
use crate::venue::agents;
use crate::venue::jobs;
use crate::venue::ledger;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A limit above the turns and jobs of the demo.
const MANY: usize = 1_000;

/// All records in the store.
pub(super) struct Disk {
    /// Committed turns, oldest first.
    pub(super) turns: Vec<Turn>,
    /// Restored prompts of the clerk's turns, by [`Turn::place`].
    pub(super) seen: BTreeMap<String, Restored>,
    /// All jobs, ended and open.
    pub(super) jobs: Vec<Job>,
    /// Result of the audit.
    pub(super) books: Books,
}

impl Disk {
    /// Opens the store in this process, reads it and closes it again.
    pub(super) async fn read(folder: &Folder) -> Result<Self, Failure> {
        let settings = [
            ("store.url".to_owned(), format!("embedded:{}", folder.data().display())),
            ("bus.url".to_owned(), "embedded".to_owned()),
        ];
        let loaded = Config::load(None, &BTreeMap::new(), &settings).map_err(|e| Failure::internal(e.to_string()))?;
        let app = App::open(&loaded.config, Role::Command, Arc::new(Metrics::new())).await;
        let app = app.map_err(|e| role::failure(&e))?;
        let disk = Self::of(&app.venue).await;
        app.close().await;
        disk
    }

    async fn of(venue: &Venue) -> Result<Self, Failure> {
        let store = |e: StoreError| Failure::internal(e.to_string());
        let owner: Owner = "local/me".parse().expect("a legal owner");
        let mut turns = Vec::new();
        for name in [CLERK, HELPER] {
            let agent = AgentId::new(name).expect("a legal agent id");
            for shown in
                agents::timeline(venue, (&owner, &Authority::unlimited()), &agent, 0, MANY).await.map_err(store)?
            {
                turns.push(Turn::parse(name, shown)?);
            }
        }
        let mut seen = BTreeMap::new();
        for turn in turns.iter().filter(|turn| turn.agent == CLERK) {
            let session = turn.key()?;
            let past = ledger::load(&*venue.store, &owner, &session, turn.record.turn).await.map_err(store)?;
            seen.extend(past.and_then(|past| past.seen).map(|seen| (turn.place(), seen)));
        }
        let jobs = jobs::list(venue, &owner, 0, MANY).await.map_err(store)?.items;
        let books = audit::all(venue).await.map_err(|e| Failure::internal(e.to_string()))?;
        Ok(Self { turns, seen, jobs, books })
    }
}
