//! Arguments that name a place elsewhere: a server of tools, or an agent.

use super::client::ServerArgs;
use clap::Args;

/// A place elsewhere, a server or an agent, that a command names.
#[derive(Debug, Args)]
pub(crate) struct NamedPlaceArgs {
    /// Name of the server, or of the agent elsewhere
    pub(crate) name: String,
    /// Agent that declares it; without it one of the venue
    #[arg(long, value_name = "AGENT")]
    pub(crate) agent: Option<String>,
    /// Which server to ask, and for whom
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}
