//! `trellis worker`: runs turns; `worker list|drain`: lists workers and stops some.

use super::client::read_view;
use super::exit::{Exit, Failure};
use super::output::{CommandOutput, note};
use super::running::{self, RunningArgs, RunningServer};
use super::wait::format_limit;
use super::{CliContext, input, role};
use crate::app::{App, Role};
use crate::config::Config;
use crate::domain::worker_registry::DrainTarget;
use crate::process::clock::Clock;
use crate::store::{Store, StoreError};
use crate::venue::{Venue, registry};
use crate::view;
use crate::view::worker::{WorkerDrainView, WorkerView, WorkersView};
use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// Pause between two reads of the registry.
const REGISTRY_READ_PAUSE: Duration = Duration::from_millis(500);

/// Arguments of `trellis worker`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Example:\n  trellis worker --set store.url=redis://127.0.0.1 --set bus.url=nats://127.0.0.1 --slots 32"
)]
pub(crate) struct WorkerArgs {
    #[command(subcommand)]
    command: Option<WorkerCommand>,
    #[command(flatten)]
    slots: role::Slots,
}

/// Workers of a fleet.
#[derive(Debug, Subcommand)]
pub(crate) enum WorkerCommand {
    /// List the workers, with their builds and what they do
    ///
    /// Reads the list in the configured store; an embedded store that a running `trellis up` holds is asked over HTTP,
    /// and so is the server of `--url`.
    #[command(after_help = "Example:\n  trellis worker list --config fleet.toml")]
    List {
        #[command(flatten)]
        running: RunningArgs,
    },
    /// Tell workers to leave, as SIGTERM does
    ///
    /// Each takes nothing new, ends or hands back what it has within its `worker.grace`, and ends. The order is kept in
    /// the store, where the worker reads it with its next sweep. What starts workers anew (Kubernetes, `restart:
    /// always`) starts this one anew, too: there use its own way.
    #[command(
        after_help = "Examples:\n  trellis worker drain node7-4711 --wait\n  trellis worker drain --host node7 --wait=5m"
    )]
    Drain(DrainArgs),
}

/// Options of `worker drain`.
#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    /// Their names, as `trellis worker list` shows them
    #[arg(value_name = "WORKER", required_unless_present = "host")]
    workers: Vec<String>,
    /// All on this machine
    #[arg(long)]
    host: Option<String>,
    /// Wait until they have ended, at most so long
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "10m", value_parser = input::duration)]
    wait: Option<Duration>,
    #[command(flatten)]
    running: RunningArgs,
}

/// Access to the registry of workers.
enum RegistryAccess {
    /// A running server, which is asked each time.
    Server(RunningServer),
    /// A running server that ends with the drained workers: its own worker is among them.
    EndingServer(RunningServer),
    /// The configured store, opened here.
    Store(Box<App>),
}

/// Arguments of `v/ops/worker/drain`.
#[derive(Serialize)]
struct DrainRequest<'a> {
    workers: &'a [String],
    /// Machine whose workers stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a str>,
}

impl RegistryAccess {
    /// Orders workers to stop, over HTTP or in the store. Returns the access used, and their names.
    async fn order_drain(
        running: RunningServer,
        config: &Config,
        whom: DrainTarget,
    ) -> Result<(Self, Vec<String>), Failure> {
        let request = DrainRequest { workers: &whom.names, host: whom.host.as_deref() };
        if let Some(told) = running.clone().ask(config, "v/ops/worker/drain", &request).await? {
            let WorkerDrainView { draining, here } = read_view(told)?;
            let is_ending = draining.iter().all(|name| here.as_ref() == Some(name));
            let place = if is_ending { Self::EndingServer(running) } else { Self::Server(running) };
            return Ok((place, draining));
        }
        let app = running::open(config).await?;
        match registry::drain(&app.venue, &whom, "trellis worker drain").await {
            Ok(told) => Ok((Self::Store(Box::new(app)), told)),
            Err(error) => {
                app.close().await;
                Err(Failure::operation(&error))
            }
        }
    }

    async fn list(&self, config: &Config) -> Result<WorkersView, Failure> {
        match self {
            Self::Server(running) | Self::EndingServer(running) => {
                let list = running.clone().ask(config, "v/ops/worker/list", &json!({})).await;
                if let (Self::EndingServer(_), Err(failure)) = (self, &list)
                    && failure.exit == Exit::Unreachable
                    && running.has_stopped(config).await?
                {
                    return Ok(WorkersView::default());
                }
                // The server held the store and has ended.
                list?.map_or_else(|| Ok(WorkersView::default()), read_view)
            }
            Self::Store(app) => list(&app.venue).await,
        }
    }

    async fn close(self) {
        if let Self::Store(app) = self {
            app.close().await;
        }
    }
}

impl WorkerArgs {
    /// Runs until a signal ends it.
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        if let Some(command) = self.command {
            return Box::pin(command.run(context)).await;
        }
        let loaded = context.load(self.slots.flags())?;
        role::run(&loaded.config, Role::Worker).await
    }
}

impl WorkerCommand {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        match self {
            Self::List { running } => {
                let config = running.load(context)?;
                let list = match running.server(context).ask(&config, "v/ops/worker/list", &json!({})).await? {
                    Some(list) => list,
                    None => view::to_json(&list_stored(&*running::open_store(&config).await?).await?),
                };
                context.out.typed_value(list, |list: &WorkersView| text(context.out, &list.workers))?;
                Ok(Exit::Ok)
            }
            Self::Drain(DrainArgs { workers, host, wait, running }) => {
                let config = running.load(context)?;
                let (place, told) =
                    RegistryAccess::order_drain(running.server(context), &config, DrainTarget { names: workers, host })
                        .await?;
                let done = drain(context, &config, &place, told, wait).await;
                place.close().await;
                done
            }
        }
    }
}

async fn list(venue: &Venue) -> Result<WorkersView, Failure> {
    registry::workers_view(venue).await.map_err(|error| Failure::new(Exit::Unreachable, error.to_string()))
}

/// Lists the workers without a look at the queue, which may be away.
async fn list_stored(store: &dyn Store) -> Result<WorkersView, Failure> {
    let failed = |error: StoreError| Failure::new(Exit::Unreachable, error.to_string());
    let now = store.time().await.map_err(failed)?.unwrap_or_else(|| Clock::system().now());
    registry::stored_workers_view(store, now).await.map_err(failed)
}

/// What is printed of drained workers.
#[derive(Serialize)]
struct DrainDocument<'a> {
    draining: &'a [String],
    /// Workers that have not ended.
    left: &'a [String],
}

/// Names the drained workers, and waits for their end if asked to.
async fn drain(
    context: &CliContext,
    config: &Config,
    place: &RegistryAccess,
    told: Vec<String>,
    wait: Option<Duration>,
) -> Result<Exit, Failure> {
    note(&format!("told to leave: {}", told.join(", ")));
    let left = match wait {
        None => Vec::new(),
        Some(limit) => wait_until_stopped(config, place, &told, limit).await?,
    };
    context.out.value(&view::to_json(&DrainDocument { draining: &told, left: &left }), String::new)?;
    if left.is_empty() {
        return Ok(Exit::Ok);
    }
    let text = format!("{} still there after {}; they leave when they can", left.join(", "), format_limit(wait));
    Err(Failure::new(Exit::TimedOut, text))
}

/// Waits until the workers have ended, and notes their progress. Returns those that haven't.
async fn wait_until_stopped(
    config: &Config,
    place: &RegistryAccess,
    told: &[String],
    limit: Duration,
) -> Result<Vec<String>, Failure> {
    let deadline = Instant::now() + limit;
    let mut said = BTreeMap::new();
    loop {
        let WorkersView { workers } = place.list(config).await?;
        let mut left = Vec::new();
        for name in told {
            let now = match workers.iter().find(|worker| worker.name == *name) {
                None => "has left".to_owned(),
                Some(worker) => {
                    left.push(name.clone());
                    describe_progress(worker)
                }
            };
            if said.insert(name.clone(), now.clone()).as_ref() != Some(&now) {
                note(&format!("{name} {now}"));
            }
        }
        if left.is_empty() || Instant::now() >= deadline {
            return Ok(left);
        }
        tokio::time::sleep(REGISTRY_READ_PAUSE).await;
    }
}

fn describe_progress(worker: &WorkerView) -> String {
    match (worker.state.as_str(), worker.busy) {
        ("silent", _) => {
            "says nothing any more: it was killed, or stands still; its sessions go on elsewhere".to_owned()
        }
        ("leaving", 0) => "is leaving".to_owned(),
        ("leaving", 1) => "is leaving: 1 session goes on to its commit".to_owned(),
        ("leaving", busy) => format!("is leaving: {busy} sessions go on to their commits"),
        (_, _) => "hasn't read it yet".to_owned(),
    }
}

fn text(out: CommandOutput, workers: &[WorkerView]) -> String {
    let row = |worker: &WorkerView| {
        let WorkerView { name, host, state, version, busy, slots, since, seen, .. } = worker.clone();
        vec![name, host, state, format!("{busy}/{slots}"), version, since.rfc3339(), seen.rfc3339()]
    };
    let rows: Vec<_> = workers.iter().map(row).collect();
    out.table(&["WORKER", "HOST", "STATE", "BUSY", "VERSION", "SINCE", "SEEN"], &rows)
}
