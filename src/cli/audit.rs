//! `trellis audit`: closes the books.

use super::exit::{Exit, Failure};
use super::output::note;
use super::{Context, worker};
use crate::app::{App, Role};
use crate::audit;
use crate::telemetry::Metrics;
use clap::Args;
use serde_json::json;
use std::sync::Arc;

/// Compares everything that was accepted with what has ended, is pending, or is missing.
///
/// Reads the configured store and queue; exits with 1 when something is unaccounted for. An
/// embedded store must not be in use by another process.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  trellis audit --output json")]
pub struct Audit {}

impl Audit {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let config = context.load(Vec::new())?.config;
        let app = App::open(&config, Role::Doctor, Arc::new(Metrics::new())).await.map_err(|e| worker::failure(&e))?;
        let books = audit::all(&app.venue).await.map_err(|e| Failure::new(Exit::Unreachable, e.to_string()))?;
        app.close().await;
        context.out.value(&json!(books), || {
            format!(
                "accepted = {}\ncompleted = {}\nfailed = {}\ncancelled = {}\nrejected = {}\npending = {}\nwaiting = {}\nunaccounted = {}",
                books.accepted,
                books.completed,
                books.failed,
                books.cancelled,
                books.rejected,
                books.pending,
                books.waiting,
                books.unaccounted
            )
        })?;
        books.missing.iter().for_each(|line| note(&format!("missing: {line}")));
        Ok(if books.unaccounted == 0 { Exit::Ok } else { Exit::Internal })
    }
}
