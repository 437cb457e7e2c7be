//! `trellis why`: lists the turns in which bytes of a path reached a model.

use super::CliContext;
use super::client::{Client, ServerArgs};
use super::exit::{Exit, Failure};
use super::output;
use crate::domain::ids::AgentId;
use crate::view::ledger::PathUseView;
use clap::Args;

/// Lists the turns in which bytes of a path reached a model: as context, or as the result of a tool.
///
/// What lies above and below the path counts too. The result of a tool is listed with the turn
/// that made the call: the model sees it from the next one on. A copy is listed with its target, and leads on:
/// so do the answer of a job, a conversation that another agent reads, and the file that an agent was made of.
/// What models have seen is kept for `retention.turns` after their session or their agent is removed.
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
        output::note_incomplete(&page);
        out.typed_page::<PathUseView>(&page, "turns", |turns| {
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
    let version = reached.version.map(|version| format!("@{version}")).unwrap_or_default();
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
