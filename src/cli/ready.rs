//! `trellis ready`: asks whether a running process can take work.

use super::CliContext;
use super::client::{Client, ServerArgs, read_view};
use super::exit::{Exit, Failure};
use super::output::note;
use crate::view::audit::ReadinessView;
use clap::Args;

/// Arguments of `trellis ready`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  trellis ready --url http://127.0.0.1:8420")]
pub(crate) struct Ready {
    /// Address of the process
    #[arg(long, value_name = "URL", env = "TRELLIS_URL", default_value = "http://127.0.0.1:8420")]
    url: String,
}

impl Ready {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let ready = Client::new(&ServerArgs { url: self.url, ..ServerArgs::default() })?.ready().await?;
        if let Some(queue) = read_view::<ReadinessView>(ready.clone())?.queue {
            note(&queue);
        }
        context.out.value(&ready, || "ready".to_owned())?;
        Ok(Exit::Ok)
    }
}
