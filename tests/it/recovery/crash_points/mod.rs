//! Every crash point of the basic scenarios: a worker dies at each store call in turn, before it
//! was applied or with its answer lost, and another one ends with the same state.

mod run_invariants;
mod final_state;
mod dying_worker;
mod poison_tasks;
mod equal_runs;
mod scenarios;

use crate::support::redis::RedisServer;
use crate::support::redis_cluster::{self, RedisCluster};
use crate::support::venue::job_record;
use crate::support::watched_store::Watched;
use dying_worker::{Life, Line, Log, Trace, Voice};
use equal_runs::same;
use final_state::{turn, untimed};
use run_invariants::check_course;
use scenarios::{ALL, RULES, Scenario, THREE_TURNS};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use trellis::bus::Bus;
use trellis::bus::embedded::EmbeddedBus;
use trellis::domain::agent::AgentConfig;
use trellis::domain::approval::ApprovalVerdict;
use trellis::domain::authority::Authority;
use trellis::domain::cap::SpendSettings;
use trellis::domain::context::assemble::assemble;
use trellis::domain::ids::{EventId, JobId, Owner};
use trellis::domain::job::{Job, JobStatus};
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::domain::quota::QuotaSettings;
use trellis::domain::session::TurnRecord;
use trellis::model::Model;
use trellis::model::rules::ScriptRules;
use trellis::model::scripted::{ScriptedModel, ScriptedOptions};
use trellis::process::clock::Clock;
use trellis::process::pace::Pace;
use trellis::process::retry::RetryPolicy;
use trellis::process::shutdown::Shutdown;
use trellis::process::telemetry::Metrics;
use trellis::store::Store;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::faulty::{FaultAt, FaultPlan, FaultyStore, InjectedFault};
use trellis::store::redis::{RedisStore, ServerOrInjected};
use trellis::venue::Venue;
use trellis::venue::agents;
use trellis::venue::approvals;
use trellis::venue::context::PromptCache;
use trellis::venue::ingress::{self, Arrival};
use trellis::venue::jobs;
use trellis::venue::ledger;
use trellis::venue::operation::Caller;
use trellis::venue::rates::RateSettings;
use trellis::venue::secrets::Vault;
use trellis::worker::{self, WorkerOptions};

const LEASE: Duration = Duration::from_secs(30);
/// A case takes well under a second; on a busy machine some take longer.
const PATIENCE: Duration = Duration::from_mins(2);
/// Every so many rounds of a case it is looked whether it is done.
const LOOK: u32 = 6;
/// Of a scenario with more calls than this, whose methods come again and again, each call is hit once: before it was
/// applied and with its answer lost, in turn (`TRELLIS_CRASH_POINTS=all`: both).
const LONG: u64 = 60;
/// Cases that run at once.
const AT_ONCE: usize = 12;

#[derive(Clone, Copy, PartialEq)]
enum Backend {
    Embedded,
    Redis,
    Cluster,
}

/// How a run ended.
struct Ended {
    /// What must not depend on crashes.
    state: Value,
    log: Vec<Trace>,
    /// Names of the first worker's mutating calls.
    calls: Vec<&'static str>,
    hit: Option<InjectedFault>,
}

/// One run of a scenario, with a first worker that dies as planned.
struct Run {
    scenario: &'static Scenario,
    owner: Owner,
    store: Arc<dyn Store>,
    bus: Arc<dyn Bus>,
    model: Arc<dyn Model>,
    clock: Clock,
    log: Log,
    metrics: Arc<Metrics>,
}

impl Run {
    async fn new(scenario: &'static Scenario, backend: Backend, dir: &Path) -> Self {
        let embedded = EmbeddedStore::open(&dir.join("store")).unwrap();
        let bus =
            Arc::new(EmbeddedBus::new(Arc::clone(&embedded), Duration::from_millis(150), Clock::system()).unwrap());
        let inner: Arc<dyn Store> = match backend {
            Backend::Embedded => embedded,
            Backend::Redis => {
                let options = RedisServer::shared().unwrap().options(ServerOrInjected::Injected);
                RedisStore::open(options).await.unwrap()
            }
            Backend::Cluster => redis_cluster::store().await.unwrap(),
        };
        std::fs::write(dir.join("rules.toml"), RULES).unwrap();
        let scripted = ScriptedOptions { rules: Some(dir.join("rules.toml")), ..ScriptedOptions::default() };
        let log = Log::default();
        Self {
            scenario,
            owner: "local/me".parse().unwrap(),
            store: Arc::new(Watched { inner, watch: Arc::clone(&log) }),
            bus,
            model: Arc::new(ScriptedModel::new(scripted)),
            clock: Clock::manual(Clock::system().now()),
            log,
            metrics: Arc::new(Metrics::new()),
        }
    }

    /// The venue as a process with this life sees it.
    fn venue(&self, life: &Life) -> Arc<Venue> {
        let store: Arc<dyn Store> = match &life.0 {
            Some(store) => store.clone(),
            None => Arc::clone(&self.store),
        };
        let bus = Line { inner: Arc::clone(&self.bus), life: life.clone(), log: Arc::clone(&self.log) };
        Arc::new(Venue {
            // Not random: ids of jobs are the same in every run.
            key: b"crash points".to_vec(),
            store,
            bus: Arc::new(bus),
            clock: self.clock.clone(),
            name: "test".into(),
            catalog: trellis::ops::catalog(true),
            secrets: Vault::default(),
            boundaries: Vec::new(),
            spend: SpendSettings::default(),
            quota: QuotaSettings::default(),
            prompts: PromptCache::default(),
            meters: trellis::venue::rates::Meters::default(),
            local: trellis::venue::local_worker::LocalWorker::default(),
            fleet: trellis::venue::registry::FleetCache::default(),
            history: trellis::venue::history::History::default(),
            metrics: Arc::clone(&self.metrics),
            tracer: trellis::process::tracer::Tracer::default(),
        })
    }

    fn worker(&self, name: &str, life: &Life) {
        let options = WorkerOptions {
            rates: RateSettings::default(),
            auth: Arc::default(),
            name: name.into(),
            slots: 8,
            operations: 8,
            lease: LEASE,
            // The run sweeps itself, so that the calls of a worker are the same every time.
            sweep: Duration::from_hours(1),
            crash_limit: 5,
            owner_cap: 0,
            owner_share: 100,
            clock_limit: Duration::from_secs(5),
            approval_time: Duration::from_hours(1),
            turns_per_origin: 1_000,
            audit: Duration::from_hours(1_000_000),
            upkeep: Pace::default(),
            retention: trellis::domain::retention::RetentionRules::NEVER,
            retry: RetryPolicy {
                first: Duration::from_millis(200),
                max: Duration::from_secs(1),
                total: Some(Duration::from_mins(10)),
                ..RetryPolicy::CONNECT
            },
        };
        let model = Voice { inner: Arc::clone(&self.model), life: life.clone(), log: Arc::clone(&self.log) };
        let shutdown = Shutdown::new(Arc::clone(&self.metrics));
        tokio::spawn(worker::run(self.venue(life), Arc::new(model), options, shutdown));
    }

    async fn prepare(&self, venue: &Arc<Venue>) {
        for (id, config) in self.scenario.agents {
            let mut config: Value = serde_json::from_str(config).unwrap();
            config["model"] = config.get("model").cloned().unwrap_or(json!({"provider": "scripted", "name": "rules"}));
            let config = AgentConfig::parse(&config).unwrap();
            agents::apply(venue, &self.owner, &id.parse().unwrap(), &config, true, &Authority::without_limits())
                .await
                .unwrap();
        }
        for (sequence, sent) in (1..).zip(self.scenario.events) {
            if self.scenario.direct {
                let arrival = Arrival {
                    owner: self.owner.clone(),
                    agent: sent.agent.parse().unwrap(),
                    task: sent.task,
                    id: EventId::new(sent.id).unwrap(),
                    submission: serde_json::from_str(sent.body).unwrap(),
                    received: venue.now(),
                    sequence,
                    by: trellis::domain::principal::Principal::ANYBODY,
                    may_override: false,
                    trace: None,
                };
                ingress::submit(venue, &arrival).await.unwrap();
            } else {
                let kind = if sent.task { InboundKind::Task } else { InboundKind::Message };
                let to = MessageAddress::In { owner: self.owner.clone(), agent: sent.agent.parse().unwrap(), kind };
                let body = serde_json::from_str(sent.body).unwrap();
                venue.bus.publish(&BusMessage { to, id: Some(sent.id.into()), body, trace: None }).await.unwrap();
            }
        }
    }

    /// What a sweep does, by a process that never dies.
    async fn sweep(&self, venue: &Venue) {
        let swept = self.store.sweep(venue.now(), &self.owner, Duration::from_secs(5), 256).await.unwrap();
        venue.relay(&self.owner, &swept.outbox).await;
        for session in &swept.due {
            venue.bus.publish(&BusMessage::wake(&self.owner, session)).await.unwrap();
        }
    }

    /// Runs it to its end.
    async fn run(self, plan: FaultPlan) -> Result<Ended, String> {
        let healthy = self.venue(&Life(None));
        self.prepare(&healthy).await;
        let faulty = FaultyStore::new(Arc::clone(&self.store), plan);
        let first = Life(Some(Arc::clone(&faulty)));
        self.worker("first", &first);
        let (start, mut replaced, mut cancelled) = (Instant::now(), false, false);
        for round in 1.. {
            tokio::time::sleep(Duration::from_millis(4)).await;
            if first.is_over() && !replaced {
                // The applied half of a call whose answer is lost.
                tokio::time::sleep(Duration::from_millis(10)).await;
                self.clock.advance(LEASE + Duration::from_secs(6));
                self.worker("second", &Life(None));
                replaced = true;
            }
            if let (Some(event), false) = (self.scenario.cancel, cancelled) {
                cancelled = self.cancel(&healthy, event, replaced).await;
            }
            self.answer(&healthy).await;
            self.clock.advance(Duration::from_millis(40));
            self.sweep(&healthy).await;
            // It reads everything there is.
            if round % LOOK != 0 {
                continue;
            }
            let state = self.state(&healthy).await;
            if self.is_done(&state) {
                self.replay().await?;
                let log = self.log.lock().unwrap().clone();
                return Ok(Ended { state, log, calls: faulty.calls(), hit: faulty.injected_faults().first().copied() });
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("not done: {state:#}\nsessions: {:?}", self.sessions().await));
            }
        }
        unreachable!("it runs until it is done or takes too long")
    }

    /// Every prompt that was answered can be built again from its record.
    async fn replay(&self) -> Result<(), String> {
        for session in self.sessions().await {
            let prefix = trellis::store::keys::turns(&session.key);
            for (key, doc) in self.store.scan(&self.owner, &prefix, None, false, 100).await.unwrap() {
                let record: TurnRecord = serde_json::from_slice(&doc.value.unwrap()).unwrap();
                if record.prompt.is_empty() {
                    continue;
                }
                let past = ledger::load(&*self.store, &self.owner, &session.key, record.turn).await.unwrap();
                let inputs = past.and_then(|past| past.seen?.inputs.ok()).ok_or(format!("`{key}` has no ledger"))?;
                let again = assemble(&inputs).map_err(|refused| refused.error.to_string())?;
                if again.ledger.prompt != record.prompt {
                    return Err(format!("the prompt of `{key}` comes out otherwise"));
                }
            }
        }
        Ok(())
    }

    /// Cancels the job once it was asked for by a worker that lives.
    async fn cancel(&self, venue: &Venue, event: &str, replaced: bool) -> bool {
        let asked = self.log.lock().unwrap().iter().filter(|t| matches!(t, Trace::Asked(_))).count();
        let job = JobId::derive(&venue.key, &self.owner, &EventId::new(event).unwrap());
        if asked == 0 && !replaced || jobs::get(venue, &self.owner, &job).await.unwrap().is_none() {
            return false;
        }
        jobs::cancel(venue, &self.owner, &job, None).await.unwrap();
        true
    }

    /// Approves what is appended, and rejects the rest.
    async fn answer(&self, venue: &Venue) {
        let caller = Caller::new(self.owner.clone(), "a person".into(), Authority::without_limits());
        for approval in approvals::list(venue, &self.owner, false, 0, 1_000).await.unwrap().items {
            let verdict = match approval.tool.as_str() {
                "lattice_append" => ApprovalVerdict::Approved { arguments: None, scopes: None },
                _ => ApprovalVerdict::Rejected { reason: None },
            };
            approvals::decide(venue, &caller, &approval.id, verdict, Some(&approval.digest)).await.unwrap();
        }
    }

    async fn sessions(&self) -> Vec<trellis::store::SessionFacts> {
        self.store.sessions(&self.owner, None, None, 100).await.unwrap()
    }

    fn is_done(&self, state: &Value) -> bool {
        let ended = |job: &Value| {
            let status = job["status"].as_str().and_then(JobStatus::parse);
            status.is_some_and(JobStatus::is_terminal)
        };
        let jobs = state["jobs"].as_object().unwrap();
        let turns: usize = state["turns"].as_object().unwrap().values().map(|t| t.as_array().unwrap().len()).sum();
        jobs.len() == self.scenario.jobs
            && jobs.values().all(ended)
            && turns >= self.scenario.turns
            && state["mailbox"] == json!([])
            && state["outbox"] == json!([])
    }

    /// Everything that the end of a run must agree in: no times, no numbers of turns.
    async fn state(&self, venue: &Venue) -> Value {
        let mut turns: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        let mut mailbox = Vec::new();
        for session in self.sessions().await {
            mailbox.extend(session.mailbox.iter().map(|entry| json!(entry.key)));
            let prefix = trellis::store::keys::turns(&session.key);
            let found = self.store.scan(&self.owner, &prefix, None, false, 100).await.unwrap();
            let records = found.into_iter().map(|(_, doc)| serde_json::from_slice(&doc.value.unwrap()).unwrap());
            // Whether a task that was cancelled left a turn without a reply depends on the moment.
            let said = records.filter(|record: &TurnRecord| !record.said.is_empty());
            turns.insert(session.key.to_string(), said.map(|record| turn(&record)).collect());
        }
        let all = jobs::list(venue, &self.owner, 0, 100).await.unwrap().items;
        let job = |job: Job| {
            let result = serde_json::to_value(&job.result).unwrap();
            // How far a cancelled one comes depends on the moment, and so does how long a prompt is.
            let spend = job_record(&job)["spend"].take();
            let replies = ["own", "tree"].map(|part| (&spend[part]["calls"], &spend[part]["output"]));
            let spend = if self.scenario.cancel.is_some() { Value::Null } else { json!(replies) };
            (job.head.event.to_string(), json!({"status": job.status, "result": result, "spend": spend}))
        };
        let children = all.iter().filter_map(|job| {
            let call = job.head.event.as_str().strip_prefix("venue:call-")?;
            Some(json!([call, job.head.id]))
        });
        let children: Vec<Value> = children.collect();
        let jobs: BTreeMap<String, Value> = all.into_iter().map(job).collect();
        let tree = self.store.scan(&self.owner, "w/", None, false, 100).await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let tree: BTreeMap<String, String> =
            tree.into_iter().map(|(key, doc)| (key, text(&doc.value.unwrap()))).collect();
        let kept = self.store.scan(&self.owner, "r/", None, false, 100).await.unwrap();
        let kept: Vec<Value> = kept.into_iter().map(|(_, doc)| untimed(&doc.value.unwrap())).collect();
        let outbox = self.store.outbox(&self.owner).await.unwrap();
        let outbox: Vec<String> = outbox.into_iter().map(|entry| entry.id).collect();
        json!({
            "turns": turns, "jobs": jobs, "tree": tree, "kept": kept, "mailbox": mailbox, "outbox": outbox,
            "children": children,
        })
    }
}

fn run_case(scenario: &'static Scenario, backend: Backend, plan: FaultPlan) -> Result<Ended, String> {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ended = runtime.block_on(async {
        let run = Run::new(scenario, backend, dir.path()).await;
        run.run(plan).await
    });
    // All that still runs dies here, the dead included.
    runtime.shutdown_timeout(Duration::from_secs(1));
    let ended = ended?;
    check_course(&ended.log, &ended.state)?;
    Ok(ended)
}

/// Runs the scenario once without a fault and once for each fault.
fn enumerate(scenario: &'static Scenario, backend: Backend) {
    let expected = run_case(scenario, backend, FaultPlan::Never).unwrap_or_else(|e| panic!("{}: {e}", scenario.name));
    let last = expected.calls.len() as u64;
    assert!(last >= 4, "{}: expected several calls, got {:?}", scenario.name, expected.calls);
    let at = [FaultAt::Before, FaultAt::After];
    let both = (1..=last).flat_map(|n| at.map(|at| FaultPlan::From { n, at }));
    let in_turn = (1..=last).zip(at.into_iter().cycle()).map(|(n, at)| FaultPlan::From { n, at });
    let is_short = last <= LONG || std::env::var_os("TRELLIS_CRASH_POINTS").is_some_and(|points| points == "all");
    let plans: Vec<_> = if is_short { both.collect() } else { in_turn.collect() };
    let (next, hits) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let failures = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(plan) = plans.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let outcome = run_case(scenario, backend, *plan).and_then(|ended| {
                        hits.fetch_add(usize::from(ended.hit.is_some()), Ordering::SeqCst);
                        same(scenario, &expected.state, &ended)
                    });
                    if let Err(error) = outcome {
                        let name = expected.calls[usize::try_from(number(*plan)).unwrap() - 1];
                        failures.lock().unwrap().push(format!("{plan:?} (`{name}`): {error}"));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    let (name, calls) = (scenario.name, &expected.calls);
    assert!(
        failures.is_empty(),
        "{name}: {} of {}:\n{}\ncalls: {calls:?}",
        failures.len(),
        plans.len(),
        failures.join("\n")
    );
    let hits = hits.into_inner();
    // Wakes by the clock shift the last calls a little from run to run.
    assert!(hits * 2 >= plans.len(), "{name}: {hits} of {} faults happened", plans.len());
    eprintln!("{name}: {} crash points, {hits} hit", plans.len());
}

const fn number(plan: FaultPlan) -> u64 {
    match plan {
        FaultPlan::Never | FaultPlan::FromMethod(_) | FaultPlan::EachOf(_) => 0,
        FaultPlan::Nth { n, .. } | FaultPlan::From { n, .. } => n,
    }
}

fn named(name: &str) -> &'static Scenario {
    ALL.iter().find(|scenario| scenario.name == name).unwrap_or_else(|| panic!("no scenario `{name}`"))
}

macro_rules! scenarios {
    ($($test:ident = $name:literal;)*) => {
        $(#[test]
        fn $test() {
            enumerate(named($name), Backend::Embedded);
        })*

        #[test]
        fn every_scenario_is_run() {
            assert_eq!(ALL.iter().map(|scenario| scenario.name).collect::<Vec<_>>(), [$($name),*]);
        }
    };
}

scenarios! {
    a_task_of_three_turns = "a task of three turns with tools";
    a_task_with_a_child_job_inside_the_turn = "a task with a child job that answers within the turn";
    a_task_parked_for_its_child_job = "a task that is parked until its child job ends";
    a_task_with_an_external_job_inside_the_turn = "a task with a job for an external worker that answers within the turn";
    a_task_parked_for_an_external_worker = "a task that is parked until an external worker is done";
    a_message_with_tools = "a message with tools";
    a_cancelled_task = "a cancelled task";
    two_tasks_in_one_session = "two tasks in one session";
    a_cancelled_task_before_another = "a cancelled task before another in its session";
    a_task_with_explicit_completion = "a task with explicit completion";
    a_task_with_injected_arguments = "a task whose calls get arguments that its model never sees";
    a_task_with_calls_that_a_person_decides_on = "a task with a call that a person approves and one that is rejected";
    a_task_with_resources = "a task that remembers, writes a file and fills a bucket";
    a_provider_that_is_overloaded = "a provider that is overloaded twice";
    a_tree_of_goals = "a tree of goals with a typed output";
    a_pipeline = "a pipeline with branches and a tool";
}

#[test]
fn a_task_of_three_turns_ends_once_on_redis() {
    if RedisServer::shared().is_some() {
        enumerate(&THREE_TURNS, Backend::Redis);
    }
}

#[test]
fn a_task_of_three_turns_ends_once_on_a_redis_cluster() {
    if RedisCluster::shared().is_some() {
        enumerate(&THREE_TURNS, Backend::Cluster);
    }
}

#[test]
fn the_rules_of_the_scenarios_are_legal() {
    ScriptRules::parse(RULES).unwrap();
}
