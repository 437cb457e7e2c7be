//! `trellis worker`: turns alone; and what all three process commands share.

use super::Context;
use super::exit::{Exit, Failure};
use super::roll::WorkerCommand;
use crate::app::{self, AppError, Role};
use crate::config::Config;
use crate::process::telemetry;
use clap::Args;

/// Runs turns without an HTTP API. Needs `store.url = "redis://…"` and `bus.url = "nats://…"`.
/// Start as many as you like: each takes what is free.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Example:\n  trellis worker --set store.url=redis://127.0.0.1 --set bus.url=nats://127.0.0.1 --slots 32"
)]
pub(crate) struct Worker {
    #[command(subcommand)]
    command: Option<WorkerCommand>,
    #[command(flatten)]
    slots: Slots,
}

/// How much one process does at once.
#[derive(Debug, Clone, Args)]
pub(crate) struct Slots {
    /// Turns at the same time [default: 16]
    #[arg(long, value_name = "N")]
    slots: Option<u32>,
}

impl Slots {
    /// As settings.
    pub fn flags(&self) -> Vec<(&'static str, String)> {
        self.slots.map(|n| ("worker.slots", n.to_string())).into_iter().collect()
    }
}

impl Worker {
    /// Runs it until a signal.
    pub async fn run(self, context: &Context) -> Result<Exit, Failure> {
        if let Some(command) = self.command {
            return command.run(context).await;
        }
        let loaded = context.load(self.slots.flags())?;
        run(&loaded.config, Role::Worker).await
    }
}

/// Runs a role until a signal ends it.
pub(crate) async fn run(config: &Config, role: Role) -> Result<Exit, Failure> {
    telemetry::init(&config.log).map_err(Failure::internal)?;
    app::run(config, role).await.map_err(|e| failure(&e))?;
    Ok(Exit::Ok)
}

/// The exit code of an error at the start.
pub(crate) fn failure(error: &AppError) -> Failure {
    let exit = match error {
        AppError::NotShared { .. }
        | AppError::NotDurable { .. }
        | AppError::Kind { .. }
        | AppError::File(_)
        | AppError::Auth(_)
        | AppError::Keys(_) => Exit::Usage,
        AppError::Store(_) | AppError::Nats(_) | AppError::Bus(_) => Exit::Unreachable,
        AppError::Listen { .. } | AppError::Format(_) => Exit::Conflict,
        AppError::Models(_) | AppError::Signals(_) | AppError::Panicked(_) => Exit::Internal,
    };
    Failure::new(exit, error.to_string())
}
