//! `trellis resource list|purge`: lists and erases what agents keep in resources.

use super::CliContext;
use super::client::{Client, ServerArgs, read_view};
use super::escape::escape_data;
use super::exit::{Exit, Failure};
use super::output::{Format, note, remark};
use crate::view::resource::{ErasedRecordsView, ResourceListView, ResourcePurgeView};
use clap::Subcommand;
use serde::Serialize;

/// What agents keep under resource namespaces: memory, files, scratchpads.
#[derive(Debug, Subcommand)]
pub(crate) enum ResourceCommand {
    /// List the namespaces under which something is kept
    #[command(after_help = "Example:\n  trellis resource list app/user")]
    List {
        /// Only this namespace and what lies below
        namespace: Option<String>,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Erase what every kind of resource keeps in a namespace; for operators
    ///
    /// Turns that ran under it lose what was said in them, their prompts, and their jobs' inputs and outputs; a replay
    /// of them says `erased`. Doing it again finds nothing and changes nothing. Revoke the namespace first (`trellis policy revoke --path
    /// r/NAMESPACE`), so that no running turn writes into it anew.
    #[command(after_help = "Example:\n  trellis resource purge app/user/u_123 --recursive --yes")]
    Purge {
        /// The namespace, e.g. `app/user/u_123`
        namespace: String,
        /// Everything below it too
        #[arg(long)]
        recursive: bool,
        /// Really do it: nothing brings it back
        #[arg(long)]
        yes: bool,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
}

/// Arguments of `v/ops/resource/list`.
#[derive(Serialize)]
struct ListResourcesRequest {
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
}

/// Arguments of `v/ops/resource/purge`.
#[derive(Serialize)]
struct PurgeRequest {
    namespace: String,
    /// Whether all namespaces below it are purged too.
    recursive: bool,
}

impl ResourceCommand {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        match self {
            Self::List { namespace, server } => {
                let request = ListResourcesRequest { namespace };
                let kept = Client::new(&server)?.run("v/ops/resource/list", &request, None).await?;
                let ResourceListView { resources } = read_view(kept.clone())?;
                if resources.is_empty() && context.out.format == Format::Text {
                    note("nothing is kept there");
                } else {
                    context.out.typed_value::<ResourceListView>(kept, format_list)?;
                }
            }
            Self::Purge { namespace, recursive, yes, server } => {
                if !yes {
                    return Err(Failure::usage(format!(
                        "this erases what is kept in `{namespace}` for good; say so with `--yes`"
                    )));
                }
                let request = PurgeRequest { namespace, recursive };
                let purged = Client::new(&server)?.run("v/ops/resource/purge", &request, None).await?;
                context.out.typed_value::<ResourcePurgeView>(purged, format_purge)?;
                remark("`trellis policy revoke --path r/NAMESPACE` keeps running turns from writing there anew");
            }
        }
        Ok(Exit::Ok)
    }
}

fn format_list(kept: &ResourceListView) -> String {
    let rows = kept.resources.iter();
    let rows = rows.map(|row| format!("{}  {}  {}", escape_data(&row.namespace), escape_data(&row.kind), row.count));
    rows.collect::<Vec<_>>().join("\n")
}

fn format_purge(purge: &ResourcePurgeView) -> String {
    let ErasedRecordsView { turns, jobs, dead_letters, timers } = &purge.erased;
    let erased = [("turns", turns), ("jobs", jobs), ("deadLetters", dead_letters), ("timers", timers)];
    let counts = purge.purged.iter().map(|(kind, count)| (kind.as_str(), count)).chain(erased);
    counts.map(|(kind, count)| format!("{}  {count}", escape_data(kind))).collect::<Vec<_>>().join("\n")
}
