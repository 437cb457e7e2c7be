//! A venue and its workers inside the test process, over any backend.

use crate::support::preview_check::Foresight;
use crate::support::redis::RedisServer;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::Bus;
use trellis::bus::embedded::EmbeddedBus;
use trellis::domain::agent::{AgentConfig, AgentRecord};
use trellis::domain::authority::Authority;
use trellis::domain::authority::policy::Revocation;
use trellis::domain::cap::SpendSettings;
use trellis::domain::event::Submission;
use trellis::domain::ids::{AgentId, EventId, JobId, Owner, SessionKey};
use trellis::domain::job::Job;
use trellis::domain::lattice::Path as LatticePath;
use trellis::domain::lattice::layout::Scope;
use trellis::domain::quota::QuotaSettings;
use trellis::domain::retention::RetentionRules;
use trellis::domain::session::TurnRecord;
use trellis::model::Model;
use trellis::model::endpoint::ProviderOptions;
use trellis::model::models::{ModelOptions, Models};
use trellis::process::clock::Clock;
use trellis::process::pace::Pace;
use trellis::process::retry::RetryPolicy;
use trellis::process::shutdown::Shutdown;
use trellis::process::telemetry::Metrics;
use trellis::process::tracer::Tracer;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::redis::{RedisStore, ServerOrInjected};
use trellis::store::{Store, keys};
use trellis::venue::agents;
use trellis::venue::auth::Auth;
use trellis::venue::context::PromptCache;
use trellis::venue::ingress::{Arrival, SubmitReceipt, submit};
use trellis::venue::jobs;
use trellis::venue::policy;
use trellis::venue::rates::RateSettings;
use trellis::venue::secrets::Vault;
use trellis::venue::workspace::{Workspace, WriteOp};
use trellis::venue::{Venue, load_or_make_key};
use trellis::view::job::JobView;
use trellis::view::to_json;
use trellis::worker::{self, WorkerOptions};

/// A venue with a folder for its rules and its log of model calls.
pub struct TestVenue {
    pub venue: Arc<Venue>,
    pub owner: Owner,
    pub dir: PathBuf,
    pub shutdown: Shutdown,
    /// Of its workers; long, so that a machine that stands still loses none.
    pub lease: Duration,
    /// Pause of its workers between two sweeps.
    pub sweep: Duration,
    /// How long its workers keep jobs and turns: for ever, so that a clock may be moved by years.
    pub retention: RetentionRules,
    /// How its workers recognise who sends.
    pub auth: Arc<Auth>,
    /// How its workers reach providers.
    pub providers: ProviderOptions,
    /// What its model providers take.
    pub rates: RateSettings,
    /// Longest call of its models.
    pub model_timeout: Duration,
    /// Sessions of one owner that its workers run at once, 0 = any number.
    pub owner_cap: u32,
    /// Percent of a worker's slots that one of several owners may hold.
    pub owner_share: u32,
    pub approval_time: Duration,
    /// Turns that one request causes in an hour.
    pub turns_per_origin: u32,
    /// Pause of its workers between two looks for what is lost; so long that there is none.
    pub audit: Duration,
    pub clock_limit: Duration,
    /// What previews have shown of its turns, where that is looked at.
    pub foresight: Option<Arc<Foresight>>,
    /// How its workers wait for models; short, so that a test that is about it is short, too.
    pub retry: RetryPolicy,
}

impl TestVenue {
    /// Over these backends; `rules` is the text of a rules file.
    pub async fn new(store: Arc<dyn Store>, bus: Arc<dyn Bus>, dir: &Path, rules: &str) -> Self {
        Self::at(store, bus, dir, rules, Clock::default()).await
    }

    /// The same by this clock.
    pub async fn at(store: Arc<dyn Store>, bus: Arc<dyn Bus>, dir: &Path, rules: &str, clock: Clock) -> Self {
        std::fs::write(dir.join("rules.toml"), rules).unwrap();
        let metrics = Arc::new(Metrics::new());
        let venue = Venue {
            key: load_or_make_key(&*store, clock.now()).await.unwrap(),
            store,
            bus,
            clock,
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
            metrics: Arc::clone(&metrics),
            tracer: Tracer::default(),
        };
        Self {
            venue: Arc::new(venue),
            owner: "local/me".parse().unwrap(),
            dir: dir.to_owned(),
            shutdown: Shutdown::new(metrics),
            lease: Duration::from_secs(30),
            sweep: Duration::from_millis(200),
            auth: Arc::default(),
            providers: ProviderOptions::default(),
            rates: RateSettings::default(),
            model_timeout: Duration::from_mins(10),
            owner_cap: 0,
            owner_share: 75,
            clock_limit: Duration::from_secs(5),
            approval_time: Duration::from_hours(1),
            turns_per_origin: 1_000,
            audit: Duration::from_hours(1_000_000),
            foresight: None,
            retry: RetryPolicy {
                first: Duration::from_millis(20),
                max: Duration::from_millis(200),
                total: Some(Duration::from_secs(2)),
                ..RetryPolicy::CONNECT
            },
            retention: RetentionRules::NEVER,
        }
    }

    /// Over an embedded store and queue in a folder of its own, which is there as long as it is held.
    pub async fn embedded(rules: &str) -> (Self, tempfile::TempDir) {
        Self::embedded_at(rules, Clock::system()).await
    }

    /// The same by this clock.
    pub async fn embedded_at(rules: &str, clock: Clock) -> (Self, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        (Self::reopened(dir.path(), rules, clock).await, dir)
    }

    /// Over the embedded store and queue of a folder, by this clock.
    pub async fn reopened(dir: &Path, rules: &str, clock: Clock) -> Self {
        let store = EmbeddedStore::open(dir).unwrap();
        let bus = EmbeddedBus::new(Arc::clone(&store), Duration::from_secs(2), clock.clone()).unwrap();
        Self::at(store, Arc::new(bus), dir, rules, clock).await
    }

    /// Over Redis, with an embedded queue in a folder of its own, by this clock; and the prefix of its
    /// keys.
    pub async fn redis_at(server: &RedisServer, rules: &str, clock: Clock) -> (Self, tempfile::TempDir, String) {
        let dir = tempfile::tempdir().unwrap();
        let options = server.options(ServerOrInjected::Injected);
        let prefix = options.prefix.clone();
        let queue = EmbeddedStore::open(&dir.path().join("queue")).unwrap();
        let bus = EmbeddedBus::new(queue, Duration::from_secs(2), clock.clone()).unwrap();
        let store = RedisStore::open(options).await.unwrap();
        (Self::at(store, Arc::new(bus), dir.path(), rules, clock).await, dir, prefix)
    }

    /// The workers that it starts look at a preview of each turn, and the turn must see the same. For tests in which
    /// nothing else happens while a turn asks its model.
    #[must_use]
    pub fn foreseen(mut self) -> Self {
        self.foresight = Some(Arc::default());
        self
    }

    pub fn tree(&self) -> Workspace {
        Workspace::new(Arc::clone(&self.venue.store), self.owner.clone(), Scope::default())
    }

    /// Writes a value of the lattice.
    pub async fn write(&self, path: &str, value: Value) {
        let op = WriteOp::Write { path: LatticePath::parse(path).unwrap(), value, expect: None };
        self.tree().apply_now(self.venue.now(), &op).await.unwrap();
    }

    /// A value of the lattice.
    pub async fn read(&self, path: &str) -> Option<Value> {
        self.tree().get(&LatticePath::parse(path).unwrap()).await.unwrap()
    }

    /// The records of a session's turns, the first ones first.
    pub async fn turns(&self, agent: &str, session: &str) -> Vec<TurnRecord> {
        let key = SessionKey { agent: agent.parse().unwrap(), session: session.parse().unwrap() };
        let found = self.venue.store.scan(&self.owner, &keys::turns(&key), None, false, 100).await.unwrap();
        found.into_iter().map(|(_, doc)| serde_json::from_slice(&doc.value.unwrap()).unwrap()).collect()
    }

    /// Starts a worker.
    pub fn worker(&self) {
        let (scripted, calls_log) = (Some(self.dir.join("rules.toml")), Some(self.dir.join("calls.jsonl")));
        let (providers, timeout) = (self.providers.clone(), self.model_timeout);
        let models = ModelOptions { scripted, calls_log, providers, timeout };
        let models: Arc<dyn Model> = Arc::new(Models::new(models).unwrap());
        let models = match &self.foresight {
            None => models,
            Some(foresight) => foresight.of(models, &self.venue),
        };
        let options = WorkerOptions {
            rates: self.rates.clone(),
            auth: Arc::clone(&self.auth),
            name: "test".into(),
            slots: 8,
            operations: 8,
            lease: self.lease,
            sweep: self.sweep,
            crash_limit: 5,
            owner_cap: self.owner_cap,
            owner_share: self.owner_share,
            approval_time: self.approval_time,
            turns_per_origin: self.turns_per_origin,
            audit: self.audit,
            upkeep: Pace::default(),
            retry: self.retry,
            retention: self.retention,
            clock_limit: self.clock_limit,
        };
        let (venue, shutdown) = (Arc::clone(&self.venue), self.shutdown.clone());
        self.shutdown.spawn_service("worker", worker::run(venue, models, options, shutdown));
    }

    pub async fn agent(&self, id: &str, config: Value) {
        let mut config = config;
        if config.get("model").is_none() && config.get("pipeline").is_none() {
            config["model"] = json!({"provider": "scripted", "name": "rules"});
        }
        let config = AgentConfig::parse(&config).unwrap();
        let id: AgentId = id.parse().unwrap();
        let authority = Authority::without_limits();
        // Boxed for callers whose futures would be too large for a stack.
        Box::pin(agents::apply(&self.venue, &self.owner, &id, &config, true, &authority)).await.unwrap();
    }

    /// The record of an agent.
    pub async fn record(&self, agent: &str) -> AgentRecord {
        agents::get(&self.venue, &self.owner, &agent.parse().unwrap()).await.unwrap().unwrap().0
    }

    /// Revokes a path, as `r1`.
    pub async fn revoke(&self, path: &str) {
        let revocation = Revocation {
            id: "r1".into(),
            path: Some(super::operate::on(path)),
            holder: None,
            grant: None,
            reason: None,
            by: "test".into(),
            at: self.venue.now(),
        };
        policy::revoke(&self.venue, &self.owner, revocation).await.unwrap().unwrap();
    }

    pub async fn submit(&self, agent: &str, id: &str, input: Value) -> SubmitReceipt {
        self.arrive(agent, id, true, Submission { input, ..Submission::default() }).await
    }

    pub async fn arrive(&self, agent: &str, id: &str, task: bool, submission: Submission) -> SubmitReceipt {
        let arrival = Arrival {
            owner: self.owner.clone(),
            agent: agent.parse().unwrap(),
            task,
            id: EventId::new(id).unwrap(),
            submission,
            received: self.venue.now(),
            sequence: 0,
            by: trellis::domain::principal::Principal::ANYBODY,
            may_override: false,
            trace: None,
        };
        submit(&self.venue, &arrival).await.unwrap()
    }

    /// The job once it has ended; fails the test when it doesn't within a minute and when a
    /// preview of a turn showed something else.
    pub async fn ended(&self, job: &JobId) -> Job {
        let job = jobs::wait(&self.venue, &self.owner, job, Duration::from_mins(1)).await.unwrap().unwrap();
        eprintln!("{} {:?} {:?}", job.head.agent, job.status, job.result);
        assert!(job.status.is_terminal(), "job {} is still {:?}", job.head.id, job.status);
        if let Some(foresight) = &self.foresight {
            foresight.check(&self.venue).await;
        }
        job
    }

    /// Submits a task and waits for its end.
    pub async fn run(&self, agent: &str, id: &str, input: Value) -> Job {
        let submitted = self.submit(agent, id, input).await;
        self.ended(&submitted.job.unwrap()).await
    }

    /// Lines of the log of model calls; the last may be half written as yet.
    pub fn model_calls(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.dir.join("calls.jsonl")).unwrap_or_default();
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        whole.map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for TestVenue {
    fn drop(&mut self) {
        self.shutdown.trigger();
        self.shutdown.cancel_token().cancel();
        self.shutdown.end_token().cancel();
    }
}

/// A job's record, for a reader who sees all of it.
pub fn job_record(job: &Job) -> Value {
    to_json(&JobView::from(job))
}

/// Every job of an owner, page by page.
pub async fn all_jobs(venue: &Venue, owner: &Owner) -> Vec<Job> {
    let mut all = Vec::new();
    let mut next = 0;
    loop {
        let page = jobs::list(venue, owner, next, 1_000).await.unwrap();
        all.extend(page.items);
        next = page.next;
        if next >= page.total {
            return all;
        }
    }
}
