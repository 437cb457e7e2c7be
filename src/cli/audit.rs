//! `trellis audit`: accounts for everything that was accepted.

use super::CliContext;
use super::exit::{Exit, Failure};
use super::output::{Format, field, note};
use super::running::RunningArgs;
use crate::app::Role;
use crate::process::host;
use crate::upkeep::audit::{self, AuditError};
use crate::venue::Venue;
use clap::Args;
use serde_json::{Value, json};

/// Compares everything that was accepted with what has ended, is pending, or is missing.
///
/// Reads the configured store and queue, of all owners; exits with 1 when something is unaccounted
/// for, a record is damaged, or a quota counts otherwise than what is kept. An embedded store that a running `trellis up` holds is asked over HTTP, and so is the server of `--url`.
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

/// Keys of the totals that are shown, in order.
const SHOWN_TOTALS: [&str; 12] = [
    "accepted",
    "completed",
    "failed",
    "cancelled",
    "rejected",
    "pending",
    "waiting",
    "queued",
    "unreadable",
    "damaged",
    "unknown",
    "unaccounted",
];

impl AuditArgs {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let config = self.running.load(context)?;
        let input = json!({"repair": self.repair, "settle": self.settle});
        // An audit of an unused venue must not create streams or keys.
        let running = self.running.server(context);
        let failed = |error: AuditError| Failure::new(Exit::Unreachable, error.to_string());
        let untouched = async |venue: &Venue| {
            let owners = venue.store.owners(None, 1).await.map_err(|error| failed(error.into()))?;
            if owners.is_empty() { audit::report(venue, false).await.map_err(failed) } else { Ok(Value::Null) }
        };
        let here = async |venue: &Venue| {
            if self.settle {
                audit::settle(venue, &host::user()).await.map_err(failed)?;
            }
            audit::report(venue, self.repair).await.map_err(failed)
        };
        let asked = ("v/ops/venue/audit", &input);
        let mut shown = Value::Null;
        if !self.repair && !self.settle {
            shown = running.clone().call_or_run_as(Role::Doctor, &config, asked, untouched).await?;
        }
        if shown.is_null() {
            shown = running.call_or_run_here(&config, asked, here).await?;
        }
        let numbers = if self.after_loss { &SHOWN_TOTALS[SHOWN_TOTALS.len() - 2..] } else { &SHOWN_TOTALS[..] };
        let line = |name: &&str| format!("{name} = {}", shown[*name].as_u64().unwrap_or_default());
        context.out.value(&shown, || numbers.iter().map(line).collect::<Vec<_>>().join("\n"))?;
        if context.out.format == Format::Text {
            note_details(&shown, self.after_loss);
        }
        let is_whole = shown["unaccounted"] == 0
            && shown["damaged"].as_u64().unwrap_or_default() == 0
            && shown["drift"].as_array().is_none_or(Vec::is_empty);
        if is_whole {
            return Ok(Exit::Ok);
        }
        Err(Failure::internal("not everything is accounted for, or records are damaged or have drifted"))
    }
}

/// Writes the details of the totals to stderr, line by line.
fn note_details(shown: &Value, after_loss: bool) {
    for repair in shown["repaired"].as_array().into_iter().flatten() {
        let [owner, found, did] = ["owner", "found", "did"].map(|key| field(repair, key));
        note(&format!("repaired: {owner}: {found}; {did}"));
    }
    let lines = [
        ("set back", "setBack"),
        ("lost", "lost"),
        ("missing", "missing"),
        ("queued", "queuedByOwner"),
        ("damaged", "damagedRecords"),
        ("unreadable", "unreadableSubjects"),
        ("drift", "drift"),
    ];
    for (kind, key) in lines.into_iter().take(if after_loss { 3 } else { lines.len() }) {
        for line in shown[key].as_array().into_iter().flatten().filter_map(Value::as_str) {
            note(&format!("{kind}: {line}"));
        }
    }
}
