//! `trellis audit`: accounts for everything that was accepted.

use super::client::read_view;
use super::exit::{Exit, Failure};
use super::output::{Format, note};
use super::running::RunningArgs;
use super::{CliContext, escape};
use crate::app::Role;
use crate::domain::audit::AuditTotals;
use crate::process::host;
use crate::venue::Venue;
use crate::venue::upkeep::audit::{self, AuditError};
use crate::view;
use crate::view::audit::{AuditView, RepairView};
use clap::Args;
use serde::Serialize;
use serde_json::Value;

/// Arguments of `trellis audit`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  trellis audit --output json\n  trellis audit --repair\n  trellis audit --after-loss\n  trellis audit --settle\n  trellis audit --data ./restored"
)]
pub(crate) struct AuditArgs {
    /// Repair what has been missing for ten minutes: lost tasks are put back into their mailboxes (one whose values are
    /// gone with it fails with `LOST`, and its caller is told), lost results are sent again, lost messages are written
    /// off, lists are put right, and what owners keep is counted anew for their quotas. The books are closed after it. Workers put back lost tasks by themselves within a
    /// minute.
    #[arg(long)]
    repair: bool,
    /// Show only what is known to be lost: times at which the store was older than the queue knew it, acknowledged changes
    /// that processes or the queue's journal know and the store lacks, and jobs that the queue tells of and the store
    /// doesn't know. Exits with 1 when such a job is not accounted for.
    #[arg(long)]
    after_loss: bool,
    /// Note that everything that was found lost until now is dealt with: `doctor` shows no problem for it any more. The
    /// list stays readable.
    #[arg(long)]
    settle: bool,
    #[command(flatten)]
    running: RunningArgs,
}

/// Arguments of `v/ops/venue/audit`.
#[derive(Serialize)]
struct AuditRequest {
    repair: bool,
    settle: bool,
}

/// Totals that are shown after a loss: the last of all.
const TOTALS_AFTER_LOSS: usize = 2;

impl AuditArgs {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let config = self.running.load(context)?;
        let request = AuditRequest { repair: self.repair, settle: self.settle };
        // An audit of an unused venue must not create streams or keys.
        let running = self.running.server(context);
        let failed = |error: AuditError| Failure::new(Exit::Unreachable, error.to_string());
        let to_json = |report: AuditView| view::to_json(&report);
        let untouched = async |venue: &Venue| {
            let owners = venue.store.owners(None, 1).await.map_err(|error| failed(error.into()))?;
            if owners.is_empty() {
                audit::report(venue, false).await.map(to_json).map_err(failed)
            } else {
                Ok(Value::Null)
            }
        };
        let here = async |venue: &Venue| {
            if self.settle {
                audit::settle(venue, &host::user()).await.map_err(failed)?;
            }
            audit::report(venue, self.repair).await.map(to_json).map_err(failed)
        };
        let operation = "v/ops/venue/audit";
        let mut shown = Value::Null;
        if !self.repair && !self.settle {
            shown = running.clone().call_or_run_as(Role::Doctor, &config, operation, &request, untouched).await?;
        }
        if shown.is_null() {
            shown = running.call_or_run_here(&config, operation, &request, here).await?;
        }
        let report: AuditView = read_view(shown.clone())?;
        let totals = list_totals(&report.totals);
        let totals = if self.after_loss { &totals[totals.len() - TOTALS_AFTER_LOSS..] } else { &totals[..] };
        let lines: Vec<_> = totals.iter().map(|(name, total)| format!("{name} = {total}")).collect();
        let details = list_details(&report.totals, self.after_loss);
        // What is lost is what `--after-loss` asks for; otherwise the details explain the totals.
        let listed = if self.after_loss { &details[..] } else { &[] };
        context.out.value(&shown, || [&lines[..], listed].concat().join("\n"))?;
        if context.out.format == Format::Text {
            note_repairs(&report);
            details[listed.len()..].iter().for_each(|line| note(line));
        }
        let AuditTotals { unaccounted, damaged, drift, .. } = &report.totals;
        if *unaccounted == 0 && *damaged == 0 && drift.is_empty() {
            return Ok(Exit::Ok);
        }
        Err(Failure::internal("not everything is accounted for, or records are damaged or have drifted"))
    }
}

/// Returns the totals that are shown, by name, in order.
const fn list_totals(totals: &AuditTotals) -> [(&'static str, u64); 12] {
    [
        ("accepted", totals.accepted),
        ("completed", totals.completed),
        ("failed", totals.failed),
        ("cancelled", totals.cancelled),
        ("rejected", totals.rejected),
        ("pending", totals.pending),
        ("waiting", totals.waiting),
        ("queued", totals.queued),
        ("unreadable", totals.unreadable),
        ("damaged", totals.damaged),
        ("unknown", totals.unknown),
        ("unaccounted", totals.unaccounted),
    ]
}

/// Writes what was repaired to stderr, line by line.
fn note_repairs(report: &AuditView) {
    for RepairView { owner, found, did } in report.repaired.iter().flatten() {
        let [owner, found, did] = [owner, found, did].map(|text| escape::escape_data(text));
        note(&format!("repaired: {owner}: {found}; {did}"));
    }
}

/// Returns the lines behind the totals, those of losses first; with `after_loss` only these.
fn list_details(totals: &AuditTotals, after_loss: bool) -> Vec<String> {
    let details = [
        ("set back", &totals.set_back),
        ("lost", &totals.lost),
        ("missing", &totals.missing),
        ("queued", &totals.queued_by_owner),
        ("damaged", &totals.damaged_records),
        ("unreadable", &totals.unreadable_subjects),
        ("drift", &totals.drift),
    ];
    let shown = details.into_iter().take(if after_loss { 3 } else { details.len() });
    shown.flat_map(|(kind, lines)| lines.iter().map(move |line| format!("{kind}: {line}"))).collect()
}
