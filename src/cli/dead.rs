//! `trellis dead list|show|redrive`: tasks that killed too many workers.

use super::CliContext;
use super::bulk::BulkArgs;
use super::client::{Client, ServerArgs};
use super::exit::{Exit, Failure};
use super::output::time;
use super::output::{Format, field, note, pretty, write_line};
use crate::domain::ids::JobId;
use clap::Subcommand;
use serde_json::json;

/// Dead letters.
#[derive(Debug, Subcommand)]
pub(crate) enum DeadCommand {
    /// List dead tasks, the last to die first; and messages whose subject meant nothing: those of the owner, for
    /// operators also those whose subject names no owner
    #[command(after_help = "Example:\n  trellis dead list --output ndjson")]
    List {
        /// Dead letters to skip
        #[arg(long, value_name = "N", default_value_t = 0)]
        offset: usize,
        /// Dead letters to show
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: usize,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Show a dead task with its input
    #[command(after_help = "Example:\n  trellis dead show 0123456789abcdef0123456789abcdef")]
    Show {
        /// Its job
        id: JobId,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Drive a task that failed again, whatever its code, as a new job; twice is once
    ///
    /// With a filter all that failed and weren't driven again: their number is told first.
    #[command(
        after_help = "Examples:\n  trellis dead redrive 0123456789abcdef0123456789abcdef\n  trellis dead redrive --agent helper --code LIMIT_REACHED,DEAD --since 1d"
    )]
    Redrive {
        /// Its job
        id: Option<JobId>,
        /// Which ones
        #[command(flatten)]
        many: Box<BulkArgs>,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
}

impl DeadCommand {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        match self {
            Self::List { offset, limit, server } => {
                let asked = json!({"offset": offset, "limit": limit});
                let page = Client::new(&server)?.run("v/ops/dead/list", &asked, None).await?;
                context.out.page(&page, "items", |letters| {
                    let rows: Vec<_> = letters
                        .iter()
                        .map(|letter| {
                            let shown = |key| if key == "died" { time(&letter[key]) } else { field(letter, key) };
                            ["job", "agent", "session", "died", "crashes", "redriven"].map(shown).into()
                        })
                        .collect();
                    context.out.table(&["JOB", "AGENT", "SESSION", "DIED", "CRASHES", "REDRIVEN AS"], &rows)
                })?;
                for stray in page["unreadable"]["items"].as_array().into_iter().flatten() {
                    note(&format!("unreadable: {}: {}", time(&stray["received"]), field(stray, "reason")));
                }
            }
            Self::Show { id, server } => {
                let letter = Client::new(&server)?.run("v/ops/dead/show", &json!({"id": id}), None).await?;
                context.out.value(&letter, || pretty(&letter))?;
            }
            Self::Redrive { id: None, many, server } => {
                many.check(false)?;
                return many.run(&Client::new(&server)?, context.out, ("redrive", "driven again"), json!({})).await;
            }
            Self::Redrive { id: Some(id), many, server } => {
                many.check(true)?;
                let driven = Client::new(&server)?.run("v/ops/dead/redrive", &json!({"id": id}), None).await?;
                if driven["duplicate"] == true {
                    note("it was driven again before");
                }
                match context.out.format {
                    Format::Text => write_line(driven["job"].as_str().unwrap_or_default())?,
                    Format::Json | Format::Ndjson => context.out.value(&driven, || pretty(&driven))?,
                }
            }
        }
        Ok(Exit::Ok)
    }
}
