//! `trellis bench turns|latency|context|sessions`: measures this machine with this configuration.

use super::exit::{Exit, Failure};
use super::output::note;
use super::{Context, worker};
use crate::app::{self, App, Role};
use crate::bench::{self, BenchError, BenchPlan, Fleet, TaskSession, TaskShape};
use crate::config::{Config, StoreUrl};
use crate::domain::ids::Owner;
use crate::process::shutdown::Shutdown;
use crate::process::telemetry::{self, Metrics};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::os::unix::fs::DirBuilderExt;
use std::sync::Arc;
use std::time::Duration;

/// Measures with the configured store and queue, and with an embedded store in a folder of its own
/// when none is configured.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Tasks per second, against the raw commit rate of the same store in the same run
    #[command(
        after_help = "Examples:\n  trellis bench turns --tasks 5000 --output json\n  trellis bench turns --session same --turns 3 --tools 2 --shared"
    )]
    Turns(Load),
    /// Time from publish to completion, one task at a time
    #[command(after_help = "Example:\n  trellis bench latency --tasks 500")]
    Latency(Load),
    /// What building a prompt costs, and keeping what it was made of
    #[command(after_help = "Example:\n  trellis bench context")]
    Context,
    /// Memory with many sessions that wait, and many that run at once
    #[command(after_help = "Example:\n  trellis bench sessions --sleeping 10000 --running 1000")]
    Sessions(Sessions),
}

/// How many sessions.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Sessions {
    /// Sessions that wait for a person, each with an open task
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    sleeping: usize,
    /// Sessions that are in a model call, all at once
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    running: usize,
}

/// How much is measured.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Load {
    /// Tasks
    #[arg(long, default_value_t = 5000, value_name = "N")]
    tasks: usize,
    /// Agents that share them
    #[arg(long, default_value_t = 50, value_name = "N")]
    agents: usize,
    /// A session for each task, or one for each agent, whose conversation grows
    #[arg(long, value_enum, default_value = "fresh")]
    session: TaskSession,
    /// Turns of a task; each but the last makes calls
    #[arg(long, default_value_t = 1, value_name = "N")]
    turns: usize,
    /// Calls of such a turn, each a write to the lattice
    #[arg(long, default_value_t = 2, value_name = "N")]
    tools: usize,
    /// All calls write into one map, two levels down, instead of each to a path of its own
    #[arg(long)]
    shared: bool,
}

impl Load {
    /// Of measurements without a load of tasks.
    const fn of(tasks: usize, agents: usize) -> Self {
        Self { tasks, agents, session: TaskSession::Fresh, turns: 1, tools: 0, shared: false }
    }

    const fn shape(&self) -> TaskShape {
        let Self { session, turns, tools, shared, .. } = *self;
        TaskShape { session, turns, tools, shared }
    }
}

impl Bench {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let (name, load) = match &self {
            Self::Turns(load) => ("turns", *load),
            Self::Latency(load) => ("latency", *load),
            Self::Context => ("context", Load::of(1, 1)),
            Self::Sessions(Sessions { sleeping, running }) => ("sessions", Load::of(*sleeping, *running)),
        };
        if load.tasks == 0 || load.agents == 0 {
            return Err(Failure::usage("expected at least one task and one agent, or one session of each"));
        }
        if let Some(problem) = load.shape().problem() {
            return Err(Failure::usage(problem));
        }
        let scratch = Scratch::new().map_err(|e| Failure::internal(format!("no folder for the store: {e}")))?;
        let mut config = context.load(vec![("log.level", "warn".to_owned())])?.config;
        if let StoreUrl::Embedded(dir) = &mut config.store.url {
            dir.clone_from(&scratch.0);
        }
        let rules = match &self {
            Self::Turns(_) | Self::Latency(_) => Some(load.shape().rules()),
            Self::Sessions(sessions) => {
                config.worker.slots = sessions.running;
                config.models.calls_log = Some(scratch.calls_log());
                Some(bench::SESSION_RULES.to_owned())
            }
            Self::Context => None,
        };
        if let Some(rules) = rules {
            let written = std::fs::write(scratch.rules(), rules);
            written.map_err(|e| Failure::internal(format!("no rules for the model: {e}")))?;
            config.models.scripted = Some(scratch.rules());
        }
        telemetry::init(&config.log).map_err(Failure::internal)?;
        let plan = BenchPlan {
            tasks: load.tasks,
            shape: load.shape(),
            agents: load.agents,
            slots: config.worker.slots,
            raw: Duration::from_secs(3),
        };
        let measured = self.measure(&config, &plan).await?;
        let report = json!({
            "bench": name,
            "store": kind(&config),
            "slots": plan.slots,
            "result": measured,
        });
        context.out.value(&report, || text(&report))?;
        let lost = report["result"]["unaccounted"].as_u64().unwrap_or(0);
        Ok(if lost == 0 { Exit::Ok } else { Exit::Internal })
    }

    async fn measure(&self, config: &Config, plan: &BenchPlan) -> Result<Value, Failure> {
        let metrics = Arc::new(Metrics::new());
        let app = App::open(config, Role::Up, Arc::clone(&metrics)).await.map_err(|e| worker::failure(&e))?;
        let shutdown = Shutdown::new(metrics);
        app::start_worker(config, &app, &shutdown);
        let owner = "bench/run".parse().map_err(|_| Failure::internal("an illegal owner"))?;
        note("measuring; this takes about half a minute");
        let measured = match self {
            Self::Latency(_) => bench::latency(&app.venue, &owner, plan).await.map(|report| json!(report)),
            Self::Turns(_) => bench::turns(&app.venue, &owner, plan).await.map(|report| json!(report)),
            Self::Context => prompts(&app, &owner).await,
            Self::Sessions(Sessions { sleeping, running }) => {
                let fleet = Fleet { sleeping: *sleeping, running: *running };
                let calls_log = config.models.calls_log.clone().unwrap_or_default();
                let report = bench::sessions(&app.venue, &owner, fleet, &calls_log, &shutdown).await;
                report.map(|report| json!(report))
            }
        };
        shutdown.trigger();
        shutdown.run(Duration::from_secs(5)).await;
        app.close().await;
        measured.map_err(|error: BenchError| Failure::internal(error.to_string()))
    }
}

/// Times of the pure part, and durable bytes of real turns.
async fn prompts(app: &App, owner: &Owner) -> Result<Value, BenchError> {
    let times = bench::context().map_err(|e| BenchError::Stuck(e.to_string()))?;
    let mut report = json!(times);
    report["durable"] = json!(bench::growth(&app.venue, owner, &[10, 100, 300]).await?);
    Ok(report)
}

fn kind(config: &Config) -> &'static str {
    match config.store.url {
        StoreUrl::Embedded(_) => "embedded (fjall, fsync per group)",
        StoreUrl::Redis(_) => "redis + nats (durability: see `trellis doctor`)",
    }
}

fn text(report: &Value) -> String {
    let result = report["result"].as_object();
    let mut lines = vec![format!("store  {}", report["store"].as_str().unwrap_or_default())];
    lines.extend(result.into_iter().flatten().map(|(key, value)| {
        let value = value.as_f64().filter(|_| value.is_f64()).map_or_else(|| value.to_string(), |n| format!("{n:.2}"));
        format!("{}  {value}", key.replace('_', " "))
    }));
    lines.join("\n")
}

/// A folder that goes when the measurement ends.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new() -> std::io::Result<Self> {
        let dir = std::env::temp_dir().join(format!("trellis-bench-{}", std::process::id()));
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        Ok(Self(dir))
    }

    fn rules(&self) -> std::path::PathBuf {
        self.0.join("rules.toml")
    }

    fn calls_log(&self) -> std::path::PathBuf {
        self.0.join("calls.jsonl")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left over in the system's folder for such things is no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
