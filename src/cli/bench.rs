//! `trellis bench …`: measures this machine with this configuration.

use super::exit::{Exit, Failure};
use super::output::note;
use super::{CliContext, role};
use crate::app::{self, App, Role};
use crate::bench::{
    self, BenchError, BenchPlan, BenchReport, BenchResult, BenchServer, CostProbe, FairnessLoad, IdleFleet,
    PromptCosts, ReadersLoad, SessionFleet, TaskSession, TaskShape,
};
use crate::config::{BusUrl, Config, StoreUrl};
use crate::domain::ids::Owner;
use crate::process::log;
use crate::process::shutdown::Shutdown;
use crate::process::telemetry::Metrics;
use crate::view::to_json;
use clap::{Args, Subcommand};
use serde_json::Value;
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
    Turns(BenchLoadArgs),
    /// Time from publish to completion, one task at a time
    #[command(after_help = "Example:\n  trellis bench latency --tasks 500")]
    Latency(BenchLoadArgs),
    /// What building a prompt costs, and keeping what it was made of
    #[command(after_help = "Example:\n  trellis bench context")]
    Context,
    /// How much of a session's last request begins the next one, for providers' caches
    #[command(after_help = "Example:\n  trellis bench prefix")]
    Prefix,
    /// Memory with many sessions that wait, and many that run at once
    #[command(after_help = "Example:\n  trellis bench sessions --sleeping 10000 --running 1000")]
    Sessions(SessionsArgs),
    /// CPU, store and bus calls of a fleet that has nothing to do
    #[command(after_help = "Example:\n  trellis bench idle --owners 100 --agents 10 --seconds 30")]
    Idle(IdleArgs),
    /// Bytes that reach disks per turn, while the context of one session grows by 1 KB with every turn
    #[command(after_help = "Example:\n  trellis bench growth --turns 300")]
    Growth(GrowthArgs),
    /// How long tasks of many owners wait while one more submits very many
    #[command(
        after_help = "Example:\n  trellis bench fairness --owners 1000 --backlog 100000\n\nWhat isn't done of the backlog at its end stays in the queue: use a bus and a store of its own."
    )]
    Fairness(FairnessArgs),
    /// How long small requests of many owners take over HTTP while one owner reads large values
    #[command(after_help = "Example:\n  trellis bench readers --readers 16 --bytes 3500000")]
    Readers(ReadersArgs),
}

/// Options of `bench readers`.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct ReadersArgs {
    /// Reads of the one owner at the same time
    #[arg(long = "readers", default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    at_once: u16,
    /// Bytes of the value that it reads; the largest that is read whole has 4 MiB
    #[arg(long, default_value_t = 3_500_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3_900_000))]
    bytes: u32,
    /// Other owners, each with one small request at a time
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    owners: u16,
    /// How long it is measured, in seconds; once without the one owner, and once beside it
    #[arg(long, default_value_t = 10, value_name = "S", value_parser = clap::value_parser!(u16).range(1..))]
    seconds: u16,
}

impl ReadersArgs {
    fn crowd(self) -> ReadersLoad {
        let Self { at_once, bytes, owners, seconds } = self;
        ReadersLoad {
            readers: at_once.into(),
            bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            owners: owners.into(),
            time: Duration::from_secs(seconds.into()),
        }
    }
}

/// Options of `bench fairness`.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct FairnessArgs {
    /// Owners beside the one
    #[arg(long, default_value_t = 100, value_name = "N")]
    owners: usize,
    /// Tasks of the one owner, as fast as the queue takes them
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    backlog: usize,
    /// Tasks per second of all others together
    #[arg(long, default_value_t = 20, value_name = "N")]
    rate: u32,
    /// How long it is measured, in seconds; once without the one owner, and once beside it
    #[arg(long, default_value_t = 20, value_name = "S")]
    seconds: u64,
    /// How long the model takes for each task
    #[arg(long, default_value_t = 200, value_name = "MS")]
    model_ms: u64,
}

impl FairnessArgs {
    const fn crowd(&self) -> FairnessLoad {
        let Self { owners, backlog, rate, seconds, model_ms } = *self;
        let (time, model) = (Duration::from_secs(seconds), Duration::from_millis(model_ms));
        FairnessLoad { owners, backlog, rate, time, model }
    }
}

/// Options of `bench idle`.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct IdleArgs {
    /// Owners, each with agents of its own
    #[arg(long, default_value_t = 100, value_name = "N")]
    owners: usize,
    /// Agents of each owner
    #[arg(long, default_value_t = 10, value_name = "N")]
    agents: usize,
    /// Sessions of each agent that sleep, each with an event that waits
    #[arg(long, default_value_t = 0, value_name = "N")]
    sessions: usize,
    /// How long it is measured, in seconds
    #[arg(long, default_value_t = 10, value_name = "S")]
    seconds: u64,
}

impl IdleArgs {
    const fn fleet(&self) -> IdleFleet {
        let Self { owners, agents, sessions, seconds } = *self;
        IdleFleet { owners, agents, sessions, time: Duration::from_secs(seconds) }
    }
}

/// Options of `bench growth`.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct GrowthArgs {
    /// Turns; written bytes are told around the 10th, the 100th and the last
    #[arg(long, default_value_t = 300, value_name = "N")]
    turns: usize,
}

/// Options of `bench sessions`.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct SessionsArgs {
    /// Sessions that wait for a person, each with an open task
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    sleeping: usize,
    /// Sessions that are in a model call, all at once
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    running: usize,
}

/// Options of `bench turns` and `bench latency`.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct BenchLoadArgs {
    /// Tasks of all agents together
    #[arg(long, default_value_t = 5000, value_name = "N")]
    tasks: usize,
    /// Agents that share them
    #[arg(long, default_value_t = 50, value_name = "N")]
    agents: usize,
    /// Owners that share these agents; the raw commit rate is that of one
    #[arg(long, default_value_t = 1, value_name = "N")]
    owners: usize,
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

impl BenchLoadArgs {
    /// Returns the load of a measurement without tasks.
    const fn without_tasks(tasks: usize, agents: usize) -> Self {
        Self { tasks, agents, owners: 1, session: TaskSession::Fresh, turns: 1, tools: 0, shared: false }
    }

    const fn shape(&self) -> TaskShape {
        let Self { session, turns, tools, shared, .. } = *self;
        TaskShape { session, turns, tools, shared }
    }
}

impl Bench {
    /// Returns the name of the measurement, and its numbers of tasks and agents.
    const fn load(&self) -> (&'static str, BenchLoadArgs) {
        match self {
            Self::Turns(load) => ("turns", *load),
            Self::Latency(load) => ("latency", *load),
            Self::Context => ("context", BenchLoadArgs::without_tasks(1, 1)),
            Self::Prefix => ("prefix", BenchLoadArgs::without_tasks(1, 1)),
            Self::Sessions(SessionsArgs { sleeping, running }) => {
                ("sessions", BenchLoadArgs::without_tasks(*sleeping, *running))
            }
            Self::Idle(IdleArgs { owners, agents, .. }) => ("idle", BenchLoadArgs::without_tasks(*owners, *agents)),
            Self::Growth(GrowthArgs { turns }) => ("growth", BenchLoadArgs::without_tasks(*turns, 1)),
            Self::Fairness(FairnessArgs { owners, backlog, .. }) => {
                ("fairness", BenchLoadArgs::without_tasks(*backlog, *owners))
            }
            Self::Readers(_) => ("readers", BenchLoadArgs::without_tasks(1, 1)),
        }
    }

    /// Returns why the measurement is not possible with these options.
    fn find_problem(&self) -> Option<String> {
        match self {
            Self::Turns(load) | Self::Latency(load) if load.tasks == 0 || load.agents == 0 => {
                Some("expected at least one task and one agent".to_owned())
            }
            Self::Turns(load) | Self::Latency(load) if !(1..=load.agents).contains(&load.owners) => Some(format!(
                "`--owners`: expected 1 to {}, as each has one of the agents, got {}",
                load.agents, load.owners
            )),
            Self::Turns(load) | Self::Latency(load) => load.shape().find_problem().map(str::to_owned),
            Self::Context | Self::Prefix | Self::Readers(_) => None,
            Self::Sessions(SessionsArgs { sleeping, running }) => (*sleeping == 0 || *running == 0)
                .then(|| "expected at least one session of each, that sleeps and that runs".to_owned()),
            Self::Idle(idle) => bench::idle_problem(idle.fleet()),
            Self::Growth(GrowthArgs { turns }) => bench::growth_problem(*turns),
            Self::Fairness(fairness) => fairness.crowd().find_problem(),
        }
    }

    /// Returns the rules of the scripted model.
    fn rules(&self) -> Option<String> {
        match self {
            Self::Turns(load) | Self::Latency(load) => Some(load.shape().rules()),
            Self::Sessions(_) => Some(bench::SESSION_RULES.to_owned()),
            Self::Prefix => Some(bench::prefix_rules().to_owned()),
            Self::Fairness(fairness) => Some(fairness.crowd().rules()),
            Self::Context | Self::Idle(_) | Self::Growth(_) | Self::Readers(_) => None,
        }
    }

    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        if let Some(problem) = self.find_problem() {
            return Err(Failure::usage(problem));
        }
        let scratch = Scratch::new().map_err(|e| Failure::internal(format!("no folder for the store: {e}")))?;
        let mut config = context.load(vec![("log.level", "warn".to_owned())])?.config;
        if let StoreUrl::Embedded(dir) = &mut config.store.url {
            dir.clone_from(&scratch.0);
        }
        if let Self::Sessions(sessions) = &self {
            config.worker.slots = sessions.running;
            config.models.calls_log = Some(scratch.calls_log());
        }
        if let Some(rules) = self.rules() {
            let written = std::fs::write(scratch.rules(), rules);
            written.map_err(|e| Failure::internal(format!("no rules for the model: {e}")))?;
            config.models.scripted = Some(scratch.rules());
        }
        log::init(&config.log).map_err(|error| Failure::internal(error.to_string()))?;
        let (name, load) = self.load();
        let plan = BenchPlan {
            tasks: load.tasks,
            shape: load.shape(),
            agents: load.agents,
            owners: load.owners,
            slots: config.worker.slots,
            raw: Duration::from_secs(3),
        };
        let measured = self.measure(&config, &plan).await?;
        let report = BenchReport { bench: name, store: kind(&config), slots: plan.slots, result: measured };
        context.out.value(&to_json(&report), || text(&report))?;
        Ok(if report.result.unaccounted() == 0 { Exit::Ok } else { Exit::Internal })
    }

    async fn measure(&self, config: &Config, plan: &BenchPlan) -> Result<BenchResult, Failure> {
        let metrics = Arc::new(Metrics::new());
        let mut app = App::open(config, Role::Up, Arc::clone(&metrics)).await.map_err(|e| role::failure(&e))?;
        let fsyncs = app.fsyncs();
        let venue = Arc::get_mut(&mut app.venue).ok_or_else(|| Failure::internal("the venue is in use already"))?;
        let probe = CostProbe::for_venue(venue, &servers(config), fsyncs);
        let shutdown = Shutdown::new(metrics);
        app::start_worker(config, &app, &shutdown);
        let owner = "bench/run".parse().map_err(|_| Failure::internal("an illegal owner"))?;
        match self {
            Self::Idle(IdleArgs { seconds, .. }) => note(&format!("measuring for {seconds} s")),
            _ => note("measuring; this takes about half a minute"),
        }
        let venue = &app.venue;
        let measured = match self {
            Self::Latency(_) => bench::latency(venue, &owner, plan, &probe).await.map(BenchResult::Latency),
            Self::Turns(_) => bench::turns(venue, &owner, plan, &probe).await.map(BenchResult::Turns),
            Self::Context => prompts(&app, &owner).await.map(BenchResult::Context),
            Self::Prefix => bench::prefix(venue, &owner).await.map(BenchResult::Prefix),
            Self::Sessions(SessionsArgs { sleeping, running }) => {
                let fleet = SessionFleet { sleeping: *sleeping, running: *running };
                let calls_log = config.models.calls_log.clone().unwrap_or_default();
                bench::sessions(venue, &owner, fleet, &calls_log, &shutdown).await.map(BenchResult::Sessions)
            }
            Self::Idle(idle) => bench::idle(venue, &owner, idle.fleet(), &probe).await.map(BenchResult::Idle),
            Self::Fairness(fairness) => {
                bench::fairness(venue, &owner, fairness.crowd()).await.map(BenchResult::Fairness)
            }
            Self::Readers(readers) => bench::readers(venue, &owner, readers.crowd()).await.map(BenchResult::Readers),
            Self::Growth(GrowthArgs { turns }) => {
                bench::measure_growth(venue, &owner, *turns, &probe).await.map(BenchResult::Growth)
            }
        };
        shutdown.trigger();
        shutdown.run(Duration::from_secs(5)).await;
        app.close().await;
        let mut measured = measured.map_err(|error: BenchError| Failure::internal(error.to_string()))?;
        if let BenchResult::Idle(report) = &mut measured {
            // This process must release the store before it is opened again.
            drop((app, probe));
            let open = Box::pin(App::open(config, Role::Up, Arc::new(Metrics::new())));
            let (next, time) = bench::time_opening(open).await;
            next.map_err(|e| role::failure(&e))?.close().await;
            report.open_seconds = Some(time.as_secs_f64());
        }
        Ok(measured)
    }
}

/// Returns the servers that the measurement uses.
fn servers(config: &Config) -> Vec<BenchServer> {
    let redis = match &config.store.url {
        StoreUrl::Embedded(_) => Vec::new(),
        StoreUrl::Redis(url) => BenchServer::parse_urls("redis", url, 6379),
    };
    let nats = match &config.bus.url {
        BusUrl::Embedded => Vec::new(),
        BusUrl::Nats(urls) => BenchServer::parse_urls("nats", urls, 4222),
    };
    [redis, nats].concat()
}

/// Measures times of the pure part, and durable bytes of real turns.
async fn prompts(app: &App, owner: &Owner) -> Result<PromptCosts, BenchError> {
    let times = bench::context().map_err(|e| BenchError::TimedOut(e.to_string()))?;
    Ok(PromptCosts { times, durable: bench::growth(&app.venue, owner, &[10, 100, 300]).await? })
}

fn kind(config: &Config) -> &'static str {
    match config.store.url {
        StoreUrl::Embedded(_) => "embedded (fjall, fsync per group)",
        StoreUrl::Redis(_) => "redis + nats (durability: see `trellis doctor`)",
    }
}

fn text(report: &BenchReport) -> String {
    let result = to_json(&report.result);
    let mut lines = vec![format!("store  {}", report.store)];
    for (key, value) in result.as_object().into_iter().flatten() {
        let key = key.replace('_', " ");
        match value.as_array() {
            Some(rows) => lines.extend(rows.iter().map(|row| format!("{key}  {}", cell(row)))),
            None => lines.push(format!("{key}  {}", cell(value))),
        }
    }
    lines.join("\n")
}

/// Formats a value in a line; an unknown one as a dash.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => format!("{:.2}", number.as_f64().unwrap_or_default()),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(items) => items.iter().map(|item| format!("({})", cell(item))).collect::<Vec<_>>().join(" "),
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| format!("{} {}", key.replace('_', " "), cell(value));
            fields.iter().map(field).collect::<Vec<_>>().join(", ")
        }
    }
}

/// A folder that is deleted when the measurement ends.
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
        // Files left in the system's temporary folder do no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
