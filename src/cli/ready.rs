//! `trellis ready`: asks whether a running process can take work.

use super::CliContext;
use super::client::{Client, ServerArgs};
use super::exit::{Exit, Failure};
use clap::Args;
use serde_json::json;

/// Asks a running process whether it can take work: `trellis up` or `trellis serve`, or a worker at its
/// `worker.listen`.
///
/// Exits with 8 when it can't or doesn't answer: a health check for containers, which needs no shell.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  trellis ready --url http://127.0.0.1:8420")]
pub(crate) struct Ready {
    /// Its address
    #[arg(long, value_name = "URL", env = "TRELLIS_URL", default_value = "http://127.0.0.1:8420")]
    url: String,
}

impl Ready {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        Client::new(&ServerArgs { url: self.url, ..ServerArgs::default() })?.ready().await?;
        context.out.value(&json!({"status": "ready"}), || "ready".to_owned())?;
        Ok(Exit::Ok)
    }
}
