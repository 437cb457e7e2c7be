//! What is under attack: a fleet over NATS and Redis, or one embedded process.

use super::check;
use super::fleet::{Fleet, Process, lock};
use super::worker_logs::Hits;
use super::workload::{RULES, Task, agents};
use crate::support::faulty_proxy::Way;
use crate::support::nats::NatsServer;
use crate::support::nats_cluster::NatsCluster;
use crate::support::redis::RedisServer;
use crate::support::redis_cluster::RedisCluster;
use async_nats::jetstream::stream::RawMessageErrorKind;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use trellis::bus::embedded::EmbeddedBus;
use trellis::bus::nats::{NatsBus, NatsOptions};
use trellis::bus::{Bus, subject};
use trellis::config::Config;
use trellis::domain::agent::AgentConfig;
use trellis::domain::cap::SpendSettings;
use trellis::domain::event::Completion;
use trellis::domain::ids::{JobId, Owner};
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::domain::quota::QuotaSettings;
use trellis::process::clock::Clock;
use trellis::process::retry::{AttemptFailure, RetryPolicy, retry};
use trellis::process::telemetry::Metrics;
use trellis::process::tracer::Tracer;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::patient::PatientStore;
use trellis::store::redis::{RedisOptions, RedisStore, ServerOrInjected};
use trellis::store::{Store, keys};
use trellis::venue::agents::apply;
use trellis::venue::context::PromptCache;
use trellis::venue::secrets::Vault;
use trellis::venue::{Venue, load_or_make_key};

/// Short, so that the sessions of a killed worker are soon taken over.
const LEASE: &str = "2s";
/// A submission is sent again until it is accepted.
const ACCEPT: Duration = Duration::from_mins(1);

/// What is under way when the last kill is over must come to rest within it.
const REST: Duration = Duration::from_mins(2);
/// Between two looks at what an embedded process does: it lets nobody else look, and is killed for
/// each.
const LOOK: Duration = Duration::from_secs(3);

/// A published completion.
pub struct Outbound {
    /// Its `Nats-Msg-Id`.
    pub id: String,
    pub completion: Completion,
    /// When the server stored it.
    pub stored: String,
}

/// The system under attack.
pub struct Site {
    pub owner: Owner,
    pub fleet: Fleet,
    pub processes: Vec<Process>,
    pub kind: Kind,
    http: reqwest::Client,
}

/// Its two forms.
pub enum Kind {
    /// Workers on servers of their own, one of a kind or a cluster; the venue is the harness's own look at them.
    Servers {
        nats: Arc<Mutex<Vec<NatsServer>>>,
        redis: Arc<Mutex<Vec<RedisServer>>>,
        /// Between workers and servers, one to each, when there are any. The harness has its own.
        ways: Vec<Way>,
        venue: Box<Venue>,
        bus: Arc<NatsBus>,
    },
    /// One process with everything inside.
    Embedded,
}

fn common(dir: &Path, slots: usize) -> BTreeMap<String, String> {
    std::fs::write(dir.join("rules.toml"), RULES).unwrap();
    let path = |name: &str| dir.join(name).display().to_string();
    [
        ("WORKER__LEASE", LEASE.to_owned()),
        ("WORKER__SLOTS", slots.to_string()),
        // Kills must not make a task look deadly.
        ("WORKER__CRASH_LIMIT", "1000".to_owned()),
        ("MODELS__SCRIPTED", path("rules.toml")),
        ("MODELS__CALLS_LOG", path("calls.jsonl")),
        ("LOG__FORMAT", "json".to_owned()),
        // The driver calls each connection that is cut off while it is made an error; Trellis says that it waits.
        ("LOG__LEVEL", "warn,async_nats::connector=off,trellis::stage=debug,trellis::app=info".to_owned()),
    ]
    .into_iter()
    .map(|(key, value)| (format!("TRELLIS__{key}"), value))
    .collect()
}

async fn venue(store: Arc<dyn Store>, bus: Arc<dyn Bus>) -> Venue {
    let clock = Clock::system();
    let key = load_or_make_key(&*store, clock.now()).await.unwrap();
    let metrics = Arc::new(Metrics::new());
    Venue {
        store,
        bus,
        clock,
        name: "chaos".into(),
        key,
        catalog: trellis::ops::catalog(false),
        secrets: Vault::default(),
        boundaries: Vec::new(),
        spend: SpendSettings::default(),
        quota: QuotaSettings::default(),
        prompts: PromptCache::default(),
        meters: trellis::venue::rates::Meters::default(),
        local: trellis::venue::local_worker::LocalWorker::default(),
        fleet: trellis::venue::registry::FleetCache::default(),
        history: trellis::venue::history::History::default(),
        metrics,
        tracer: Tracer::default(),
    }
}

impl Site {
    /// A fleet of so many workers; `None` when a server's binary is missing.
    pub async fn servers(dir: &Path, workers: usize, served: usize) -> Option<Self> {
        Self::single(dir, (workers, served), false).await
    }

    /// The same whose workers reach the servers on ways that can be disturbed.
    pub async fn cut_off(dir: &Path, workers: usize, served: usize) -> Option<Self> {
        Self::single(dir, (workers, served), true).await
    }

    async fn single(dir: &Path, (workers, served): (usize, usize), has_ways: bool) -> Option<Self> {
        let (nats, redis) = (NatsServer::start()?, RedisServer::start()?);
        let (nats_url, options) = (nats.url(), redis.options(ServerOrInjected::Server));
        let mut ways = Vec::new();
        for url in [&nats_url, &options.url].into_iter().filter(|_| has_ways) {
            let (_, address) = url.split_once("://").unwrap();
            ways.push(Way::to(address.trim_end_matches('/').to_owned()).await);
        }
        // Boxed for callers whose futures would be too large for a stack.
        let site = Self::over((vec![nats], nats_url, 1), (vec![redis], options), ways, dir, (workers, served));
        Some(Box::pin(site).await)
    }

    /// The same on clusters: three NATS servers with as many partitions, three primaries of Redis with a replica each that
    /// has what counts.
    pub async fn clusters(dir: &Path, workers: usize, served: usize) -> Option<Self> {
        let (nats, redis) = (NatsCluster::start()?, RedisCluster::start().await?);
        let options = RedisOptions { wait_replicas: 1, ..redis.options(ServerOrInjected::Server) };
        let nats_url = nats.url();
        let site = Self::over((nats.nodes, nats_url, 3), (redis.nodes, options), Vec::new(), dir, (workers, served));
        Some(Box::pin(site).await)
    }

    async fn over(
        (nats, nats_url, replicas): (Vec<NatsServer>, String, usize),
        (redis, options): (Vec<RedisServer>, RedisOptions),
        ways: Vec<Way>,
        dir: &Path,
        (workers, served): (usize, usize),
    ) -> Self {
        // Servers of its own: the names needn't be.
        let redis_options = RedisOptions { prefix: "chaos".into(), ..options };
        let seen = |at: usize, scheme: &str, url: &str| {
            ways.get(at).map_or_else(|| url.to_owned(), |way| format!("{scheme}://{}", way.address))
        };
        let mut env = common(dir, 12);
        for (key, value) in [
            ("STORE__URL", seen(1, "redis", &redis_options.url)),
            ("STORE__PREFIX", redis_options.prefix.clone()),
            ("STORE__WAIT_REPLICAS", redis_options.wait_replicas.to_string()),
            ("BUS__URL", seen(0, "nats", &nats_url)),
            ("BUS__REPLICAS", replicas.to_string()),
            ("BUS__PARTITIONS", replicas.to_string()),
            ("BUS__PREFIX", "chaos".to_owned()),
        ] {
            env.insert(format!("TRELLIS__{key}"), value);
        }
        let config = Config::load(None, &env, &[]).unwrap().config;
        let metrics = Arc::new(Metrics::new());
        let bus = NatsBus::open(&NatsOptions::new(&config, &nats_url, RetryPolicy::CONNECT, metrics)).await.unwrap();
        let (bus, store) =
            (Arc::new(bus), RedisStore::open(RedisOptions { connections: 2, ..redis_options }).await.unwrap());
        let venue = venue(store, Arc::clone(&bus) as Arc<dyn Bus>).await;
        let owner: Owner = "local/me".parse().unwrap();
        for (id, config) in agents(served) {
            apply(
                &venue,
                &owner,
                &id,
                &AgentConfig::parse(&config).unwrap(),
                true,
                &trellis::domain::authority::Authority::without_limits(),
            )
            .await
            .unwrap();
        }
        let fleet = Fleet::new(dir, &["worker"], env);
        let processes = (0..workers).map(|_| fleet.start()).collect();
        let (nats, redis) = (Arc::new(Mutex::new(nats)), Arc::new(Mutex::new(redis)));
        let kind = Kind::Servers { nats, redis, ways, venue: Box::new(venue), bus };
        Self { owner, fleet, processes, kind, http: reqwest::Client::new() }
    }

    /// One process on a store of its own.
    pub async fn embedded(dir: &Path, served: usize) -> Self {
        let fleet = Fleet::new(dir, &["up", "--data", "data", "--listen", "127.0.0.1:0"], common(dir, 24));
        let processes = vec![fleet.start()];
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(5)).build().unwrap();
        let site = Self { owner: "local/me".parse().unwrap(), fleet, processes, kind: Kind::Embedded, http };
        for (id, config) in agents(served) {
            let url = format!("{}/api/v1/agents/{id}", site.url().await);
            site.http.put(url).json(&config).send().await.unwrap().error_for_status().unwrap();
        }
        site
    }

    /// Where the running process listens.
    async fn url(&self) -> String {
        let pid = self.processes.first().map(|process| process.pid);
        for _ in 0..6000 {
            let listening = lock(&self.fleet.trail).listening.clone();
            if let Some((_, url)) = listening.filter(|(by, _)| Some(*by) == pid) {
                return url;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the process does not listen: {:?}", lock(&self.fleet.trail).trouble);
    }

    /// A sender that works while things are killed.
    pub fn door(&self) -> Door {
        match &self.kind {
            Kind::Servers { bus, venue, .. } => {
                Door::Queue { owner: self.owner.clone(), bus: Arc::clone(bus), key: venue.key.clone() }
            }
            Kind::Embedded => Door::Http { http: self.http.clone(), fleet: self.fleet.clone() },
        }
    }

    /// Which of these jobs have ended; fewer when something is down.
    pub async fn ended(&self, jobs: &[JobId]) -> Vec<JobId> {
        let mut ended = Vec::new();
        if let Kind::Servers { venue, .. } = &self.kind {
            let wanted: Vec<_> = jobs.iter().map(keys::job_status).collect();
            let docs = venue.store.read(&self.owner, &wanted).await.unwrap_or_default();
            for (job, doc) in jobs.iter().zip(docs) {
                let status = doc.value.and_then(|bytes| keys::decode_status(&bytes));
                ended.extend(status.filter(|(status, _)| status.is_terminal()).map(|_| job.clone()));
            }
            return ended;
        }
        let url = self.url().await;
        for job in jobs {
            let Ok(answer) = self.http.get(format!("{url}/api/v1/jobs/{job}")).send().await else { break };
            let Ok(record) = answer.json::<serde_json::Value>().await else { break };
            if ["COMPLETE", "FAILED", "CANCELLED", "REJECTED"].contains(&record["status"].as_str().unwrap_or_default())
            {
                ended.push(job.clone());
            }
        }
        ended
    }

    /// Kills process `at` and starts another in its place; says where that hit.
    pub fn replace(&mut self, at: usize) -> Hits {
        let hits = self.processes.swap_remove(at).kill(&self.fleet.trail);
        self.processes.push(self.fleet.start());
        hits
    }

    /// Kills all processes.
    pub fn kill_all(&mut self) -> Hits {
        let mut all = Hits::default();
        for process in self.processes.drain(..) {
            for (sum, hit) in all.iter_mut().zip(process.kill(&self.fleet.trail)) {
                *sum += hit;
            }
        }
        all
    }

    /// Kills all processes once nothing moves any more; everything as it lies there then, and what
    /// still moves.
    pub async fn rest(&mut self) -> (Venue, Option<Vec<Outbound>>, Option<String>) {
        let end = Instant::now() + REST;
        while let Kind::Servers { venue, .. } = &self.kind
            && check::moving(venue, &self.owner).await.is_some()
            && Instant::now() < end
        {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        loop {
            if matches!(self.kind, Kind::Embedded) {
                tokio::time::sleep(LOOK).await;
            }
            self.kill_all();
            let (venue, outbound) = self.open().await;
            let moving = check::moving(&venue, &self.owner).await;
            if moving.is_none() || Instant::now() > end {
                return (venue, outbound, moving);
            }
            drop((venue, outbound));
            self.processes.push(self.fleet.start());
        }
    }

    /// Everything as it lies in the store and the queue. No process may be running when embedded.
    async fn open(&self) -> (Venue, Option<Vec<Outbound>>) {
        match &self.kind {
            Kind::Servers { venue: own, bus, .. } => {
                // Connections to servers that were killed meanwhile are found out by their use.
                let store = Arc::new(PatientStore::new(Arc::clone(&own.store), check::PATIENCE));
                let venue = venue(store, Arc::clone(bus) as Arc<dyn Bus>).await;
                (venue, Some(self.published().await))
            }
            Kind::Embedded => {
                let store = EmbeddedStore::open(&self.fleet.dir.join("data")).unwrap();
                let bus = EmbeddedBus::new(Arc::clone(&store), Duration::from_secs(2), Clock::system()).unwrap();
                (venue(store, Arc::new(bus)).await, None)
            }
        }
    }

    /// Every message of the stream of completions; a server that was killed may still be looking for its leader.
    async fn published(&self) -> Vec<Outbound> {
        let read = || async { self.try_published().await.map_err(AttemptFailure::Transient) };
        retry(check::PATIENCE, "the stream of completions", read).await.unwrap()
    }

    async fn try_published(&self) -> Result<Vec<Outbound>, async_nats::Error> {
        let config = Config::load(None, &self.fleet.env(), &[]).unwrap().config;
        let Kind::Servers { nats, .. } = &self.kind else { return Ok(Vec::new()) };
        let urls: Vec<async_nats::ServerAddr> = lock(nats).iter().map(|server| server.url().parse().unwrap()).collect();
        let prefix = &config.bus.prefix;
        let context = async_nats::jetstream::new(async_nats::connect(urls).await?);
        let stream = context.get_stream(format!("{}_OUT", prefix.to_uppercase())).await?;
        let (mut out, mut next) = (Vec::new(), 1);
        let filter = subject::all_outbound(prefix);
        loop {
            match stream.raw_message_builder().sequence(next).next_by_subject(filter.clone()).send().await {
                Ok(message) => {
                    next = message.sequence + 1;
                    let id = message.headers.get("Nats-Msg-Id").unwrap().to_string();
                    let completion = serde_json::from_slice(&message.payload).unwrap();
                    out.push(Outbound { id, completion, stored: format!("{:?}", message.time) });
                }
                Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => break,
                Err(error) => return Err(error.into()),
            }
        }
        let held = stream.get_info().await?.state.messages;
        if out.len() as u64 != held {
            return Err(format!("{} were read of the {held} that it has", out.len()).into());
        }
        Ok(out)
    }
}

/// Sends submissions, again and again until they are accepted.
#[derive(Clone)]
pub enum Door {
    /// Over NATS.
    Queue { owner: Owner, bus: Arc<NatsBus>, key: Vec<u8> },
    /// Over HTTP, to whichever process listens.
    Http { http: reqwest::Client, fleet: Fleet },
}

impl Door {
    /// Its job; how often it was sent.
    pub async fn send(&self, task: &Task) -> Result<(JobId, u64), String> {
        let start = Instant::now();
        let mut tries = 0;
        loop {
            tries += 1;
            match self.try_send(task).await {
                Ok(job) => return Ok((job, tries)),
                Err(error) if start.elapsed() > ACCEPT => return Err(format!("{}: not accepted: {error}", task.name)),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    async fn try_send(&self, task: &Task) -> Result<JobId, String> {
        match self {
            Self::Queue { owner, bus, key } => {
                let to = MessageAddress::In { owner: owner.clone(), agent: task.agent_id(), kind: InboundKind::Task };
                let body = serde_json::to_value(task.submission()).unwrap();
                let message = BusMessage { to, id: Some(task.name.clone()), body, trace: None };
                bus.publish(&message).await.map_err(|error| error.to_string())?;
                Ok(JobId::derive(key, owner, &task.event()))
            }
            Self::Http { http, fleet } => {
                let (_, url) = lock(&fleet.trail).listening.clone().ok_or("nobody listens")?;
                let request = http.post(format!("{url}/api/v1/agents/{}/tasks", task.agent));
                let request = request.header("Idempotency-Key", &task.name).json(&task.submission());
                let answer = request.send().await.map_err(|error| error.to_string())?;
                let body: serde_json::Value = answer.json().await.map_err(|error| error.to_string())?;
                JobId::new(body["job"].as_str().ok_or_else(|| body.to_string())?).map_err(|error| error.to_string())
            }
        }
    }
}
