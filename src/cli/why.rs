//! `trellis why`: lists the turns in which bytes of a path reached a model.

use super::CliContext;
use super::client::{Client, ServerArgs, read_view};
use super::exit::{Exit, Failure};
use super::output;
use super::turn::format_version;
use crate::domain::ids::AgentId;
use crate::view::ledger::{PathUseView, WhyView};
use clap::Args;

/// Arguments of `trellis why`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  trellis why w/invoices/17 --agent clerk")]
pub(crate) struct Why {
    /// Path of the value, e.g. `w/invoices/17`
    path: String,
    /// Of this agent only
    #[arg(long, value_name = "ID")]
    agent: Option<AgentId>,
    /// Which server, and for whom
    #[command(flatten)]
    server: ServerArgs,
}

impl Why {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let mut query = vec![("path", self.path.clone())];
        query.extend(self.agent.map(|agent| ("agent", agent.to_string())));
        let page = Client::new(&self.server)?.get("why", &query).await?;
        let out = context.out;
        let WhyView { turns, incomplete, .. } = read_view(page.clone())?;
        output::note_incomplete(&incomplete);
        out.page(&page, "turns", |_| {
            if turns.is_empty() {
                return format!("no turn has shown `{}` to a model", self.path);
            }
            let rows: Vec<_> = turns.iter().map(row).collect();
            out.table(&["TURN", "AS", "FROM", "THROUGH", "BYTES"], &rows)
        })?;
        Ok(Exit::Ok)
    }
}

fn row(reached: &PathUseView) -> Vec<String> {
    let is_outside = reached.agent.is_empty();
    let name = if is_outside {
        "outside".to_owned()
    } else {
        format!("{}/{}/{}", reached.agent, reached.session, reached.turn)
    };
    let version = format_version(reached.version, reached.hash.as_deref());
    let into = reached.into.as_ref().map(|into| format!(" to {into}")).unwrap_or_default();
    let gone = if reached.removed.is_none() || is_outside { "" } else { " (removed)" };
    vec![
        format!("{name}{gone}"),
        reached.via.clone(),
        format!("{}{version}{into}", reached.source),
        reached.through.clone(),
        reached.bytes.to_string(),
    ]
}
