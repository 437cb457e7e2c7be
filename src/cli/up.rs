//! `trellis up`: runs worker and HTTP API in one process.

use super::exit::{Exit, Failure};
use super::{CliContext, role, running};
use crate::app::Role;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `trellis up`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  trellis up --data ./trellis-data --listen 127.0.0.1:8420")]
pub(crate) struct UpArgs {
    /// Folder of the embedded store; the same as `--set store.url=embedded:DIR`
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Address of the HTTP API [default: 127.0.0.1:8420]
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    #[command(flatten)]
    slots: role::Slots,
}

impl UpArgs {
    /// Runs until a signal ends it.
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let mut flags = self.slots.flags();
        flags.extend(running::store_flag(self.data.as_deref()));
        flags.extend(self.listen.map(|listen| ("http.listen", listen)));
        let loaded = context.load(flags)?;
        role::run(&loaded.config, Role::Up).await
    }
}
