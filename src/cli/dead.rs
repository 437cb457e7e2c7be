//! `trellis dead list|show|redrive`: tasks that killed too many workers.

use super::bulk::{BulkAction, BulkArgs};
use super::client::{Client, ServerArgs, read_view};
use super::escape::cell;
use super::exit::{Exit, Failure};
use super::output::{note, pretty};
use super::{CliContext, input};
use crate::domain::ids::JobId;
use crate::view::dead::{DeadLetterPage, DeadLetterView, RedriveView};
use crate::view::request::IdRequest;
use clap::Subcommand;
use serde::Serialize;

/// Dead letters: tasks that were given up, and messages with an unreadable subject.
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
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = input::list_limit())]
        limit: usize,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Show a dead task with its input
    #[command(after_help = "Example:\n  trellis dead show 0123456789abcdef0123456789abcdef")]
    Show {
        /// Id of the dead job
        id: JobId,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Drive a task that failed again, whatever its code, as a new job; twice is once
    ///
    /// With a filter all that failed and weren't driven again: their number is told first. The exit codes are then
    /// those of `job cancel`.
    #[command(
        after_help = "Examples:\n  trellis dead redrive 0123456789abcdef0123456789abcdef\n  trellis dead redrive --agent helper --code LIMIT_REACHED,DEAD --since 1d"
    )]
    Redrive {
        /// Id of the failed job
        id: Option<JobId>,
        /// Filter of the jobs, in the place of an id
        #[command(flatten)]
        many: Box<BulkArgs>,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
}

/// Arguments of `v/ops/dead/list`.
#[derive(Serialize)]
struct ListDeadRequest {
    offset: usize,
    limit: usize,
}

impl DeadCommand {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        match self {
            Self::List { offset, limit, server } => {
                let request = ListDeadRequest { offset, limit };
                let page = Client::new(&server)?.run("v/ops/dead/list", &request, None).await?;
                let DeadLetterPage { items: letters, unreadable, undelivered, .. } = read_view(page.clone())?;
                context.out.page(&page, "items", |_| {
                    let rows: Vec<_> = letters.iter().map(row).collect();
                    context.out.table(&["JOB", "AGENT", "SESSION", "DIED", "CRASHES", "REDRIVEN AS"], &rows)
                })?;
                for stray in &unreadable.items {
                    note(&format!("unreadable: {}: {}", stray.received.rfc3339(), cell(&stray.reason)));
                }
                for lost in &undelivered {
                    let (at, webhook) = (lost.at.rfc3339(), cell(&lost.webhook));
                    let (kind, error) = (lost.kind.as_str(), cell(&lost.error));
                    note(&format!("not delivered to webhook {webhook}: {at}: {kind} {}: {error}", lost.notification));
                }
            }
            Self::Show { id, server } => {
                let letter = Client::new(&server)?.run("v/ops/dead/show", &IdRequest { id: id.as_str() }, None).await?;
                context.out.value(&letter, || pretty(&letter))?;
            }
            Self::Redrive { id: None, many, server } => {
                many.check(false)?;
                return many.run(&Client::new(&server)?, context.out, BulkAction::REDRIVE, None).await;
            }
            Self::Redrive { id: Some(id), many, server } => {
                many.check(true)?;
                let request = IdRequest { id: id.as_str() };
                let driven = Client::new(&server)?.run("v/ops/dead/redrive", &request, None).await?;
                let RedriveView { job, duplicate, .. } = read_view(driven.clone())?;
                if duplicate {
                    note("it was driven again before");
                }
                context.out.value(&driven, || job.to_string())?;
            }
        }
        Ok(Exit::Ok)
    }
}

fn row(letter: &DeadLetterView) -> Vec<String> {
    vec![
        letter.job.to_string(),
        letter.agent.to_string(),
        letter.session.to_string(),
        letter.died.rfc3339(),
        letter.crashes.to_string(),
        letter.redriven.as_ref().map(ToString::to_string).unwrap_or_default(),
    ]
}
