//! `trellis serve`: serves the HTTP API without running turns.

use super::exit::{Exit, Failure};
use super::{CliContext, role};
use crate::app::Role;
use clap::Args;

/// Arguments of `trellis serve`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  trellis serve --set store.url=redis://127.0.0.1 --set bus.url=nats://127.0.0.1 --listen 127.0.0.1:8420"
)]
pub(crate) struct Serve {
    /// Address of the HTTP API [default: 127.0.0.1:8420]
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
}

impl Serve {
    /// Serves until a signal ends it.
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let loaded = context.load(self.listen.map(|listen| ("http.listen", listen)).into_iter().collect())?;
        role::run(&loaded.config, Role::Serve).await
    }
}
