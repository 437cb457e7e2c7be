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
/// Reads the configured store and queue, of all owners; exits with 1 when something is unaccounted
/// for. An embedded store must not be in use by another process.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  trellis audit --output json\n  trellis audit --repair")]
pub struct Audit {
    /// Repair what has been missing for ten minutes: lost tasks fail with `LOST` and their callers are
    /// told, lost results are sent again, lost messages are written off, and lists are put right. The
    /// books are closed after it.
    #[arg(long)]
    repair: bool,
}

impl Audit {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let config = context.load(Vec::new())?.config;
        let app = App::open(&config, Role::Doctor, Arc::new(Metrics::new())).await.map_err(|e| worker::failure(&e))?;
        let failure = |e: audit::AuditError| Failure::new(Exit::Unreachable, e.to_string());
        let repaired = if self.repair { Some(audit::repair(&app.venue).await.map_err(failure)?) } else { None };
        let books = audit::all(&app.venue).await.map_err(failure)?;
        app.close().await;
        let mut shown = json!(books);
        if let Some(repaired) = &repaired {
            shown["repaired"] = json!(repaired);
        }
        context.out.value(&shown, || {
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
        for repair in repaired.iter().flatten() {
            note(&format!("repaired: {}: {}; {}", repair.owner, repair.found, repair.did));
        }
        books.missing.iter().for_each(|line| note(&format!("missing: {line}")));
        Ok(if books.unaccounted == 0 { Exit::Ok } else { Exit::Internal })
    }
}
