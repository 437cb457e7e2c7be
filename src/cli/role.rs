//! Shared parts of the process commands `trellis up`, `worker` and `serve`.

use super::exit::{Exit, Failure};
use crate::app::{self, AppError, Role};
use crate::config::Config;
use crate::process::log;
use clap::Args;

/// How much one process does at once.
#[derive(Debug, Clone, Args)]
pub(crate) struct Slots {
    /// Turns at the same time [default: 16]
    #[arg(long, value_name = "N")]
    slots: Option<u32>,
}

impl Slots {
    /// Returns the options as settings.
    pub fn flags(&self) -> Vec<(&'static str, String)> {
        self.slots.map(|n| ("worker.slots", n.to_string())).into_iter().collect()
    }
}

/// Runs a role until a signal ends it.
pub(crate) async fn run(config: &Config, role: Role) -> Result<Exit, Failure> {
    log::init(&config.log).map_err(|error| Failure::internal(error.to_string()))?;
    app::run(config, role).await.map_err(|e| failure(&e))?;
    Ok(Exit::Ok)
}

/// Makes the failure of an error at the start.
pub(crate) fn failure(error: &AppError) -> Failure {
    let exit = match error {
        AppError::NotShared { .. }
        | AppError::NotDurable { .. }
        | AppError::StoreUrl(_)
        | AppError::Kind { .. }
        | AppError::McpServer { .. }
        | AppError::Webhook { .. }
        | AppError::Traces(_)
        | AppError::A2aAgent { .. }
        | AppError::Tools(_)
        | AppError::File(_)
        | AppError::Rules(_)
        | AppError::Auth(_)
        | AppError::Keys(_) => Exit::Usage,
        AppError::Store { .. } | AppError::Both(..) | AppError::Nats(_) | AppError::Bus(_) => Exit::Unreachable,
        AppError::NoStore(_) => Exit::NotFound,
        AppError::Listen { .. } | AppError::Format(_) | AppError::Names(_) => Exit::Conflict,
        AppError::Models(_) | AppError::Signals(_) | AppError::Panicked(_) => Exit::Internal,
    };
    Failure::new(exit, error.to_string())
}
