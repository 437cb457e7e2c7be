//! `trellis resource list|purge`: lists and erases what agents keep in resources.

use super::CliContext;
use super::client::{Client, ServerArgs};
use super::exit::{Exit, Failure};
use super::output::{field, remark};
use clap::Subcommand;
use serde_json::{Value, json};

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

impl ResourceCommand {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        match self {
            Self::List { namespace, server } => {
                let asked = namespace.map_or_else(|| json!({}), |namespace| json!({"namespace": namespace}));
                let kept = Client::new(&server)?.run("v/ops/resource/list", &asked, None).await?;
                context.out.value(&kept, || format_list(&kept))?;
            }
            Self::Purge { namespace, recursive, yes, server } => {
                if !yes {
                    return Err(Failure::usage(format!(
                        "this erases what is kept in `{namespace}` for good; say so with `--yes`"
                    )));
                }
                let asked = json!({"namespace": namespace, "recursive": recursive});
                let purged = Client::new(&server)?.run("v/ops/resource/purge", &asked, None).await?;
                context.out.value(&purged, || {
                    [format_counts(&purged["purged"]), format_counts(&purged["erased"])].join("\n")
                })?;
                remark("`trellis policy revoke --path r/NAMESPACE` keeps running turns from writing there anew");
            }
        }
        Ok(Exit::Ok)
    }
}

fn format_list(kept: &Value) -> String {
    let rows = kept["resources"].as_array().into_iter().flatten();
    let rows = rows.map(|row| format!("{}  {}  {}", field(row, "namespace"), field(row, "kind"), row["count"]));
    rows.collect::<Vec<_>>().join("\n")
}

fn format_counts(purged: &Value) -> String {
    let counts = purged.as_object().into_iter().flatten();
    counts.map(|(kind, count)| format!("{kind}  {count}")).collect::<Vec<_>>().join("\n")
}
