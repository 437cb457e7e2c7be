//! The attack: tasks go in while workers, nats-server and redis-server are killed in turn.

use super::fleet::lock;
use super::site::{Door, Kind, Site};
use super::worker_logs::{Hits, STAGES};
use super::workload::Task;
use crate::support::dice::Dice;
use crate::support::faulty_proxy::{Reach, Weather};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use trellis::domain::ids::JobId;

/// How long a process that enters the wanted stage is waited for.
const PATIENCE: Duration = Duration::from_millis(600);
/// The same for a stage that none has hit: a process may only be starting.
const NEW_STAGE: Duration = Duration::from_secs(10);
/// Kills beyond the planned ones, to reach stages that none has hit.
const EXTRA: usize = 40;

/// How much.
#[derive(Debug, Clone)]
pub struct Plan {
    pub tasks: usize,
    pub agents: usize,
    pub workers: usize,
    pub kills: usize,
    /// Accepted tasks that may be unfinished when the next ones go in.
    pub backlog: usize,
    /// For the attack, and once more for what is left to be done after it.
    pub limit: Duration,
    pub seed: u64,
}

/// What was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Worker,
    Nats,
    Redis,
    /// The way to one of them.
    Way,
}

/// What the attack did.
#[derive(Debug, Default)]
pub struct Log {
    pub tasks: Vec<Task>,
    /// Submissions beyond the first of a task.
    pub resubmitted: u64,
    pub worker_kills: u64,
    pub nats_kills: u64,
    pub redis_kills: u64,
    /// Times at which bytes between workers and servers were late, lost or cut off.
    pub disturbed: u64,
    /// Sessions of killed workers by stage: what their logs say after their death.
    pub hits: Hits,
    /// Kills of workers that hit at least one session at this stage.
    pub kills_at: Hits,
    /// Where the sessions of all workers were when a server was killed.
    pub server_hits: Hits,
    /// The machine was too slow for every kill that was planned or wanted.
    pub cut_short: bool,
    /// Of the attack itself.
    pub faults: Vec<String>,
}

struct Attack<'s> {
    site: &'s mut Site,
    plan: Plan,
    log: Log,
    dice: Dice,
    sending: JoinSet<Result<(Task, u64), String>>,
    open: Vec<JobId>,
    /// Submitted so far.
    next: usize,
    kills: usize,
}

/// Runs the plan until every task has ended, or the limit is reached.
pub async fn run(site: &mut Site, plan: &Plan) -> Log {
    let dice = Dice(plan.seed);
    let mut attack = Attack {
        site,
        plan: plan.clone(),
        log: Log::default(),
        dice,
        sending: JoinSet::new(),
        open: Vec::new(),
        next: 0,
        kills: 0,
    };
    let start = Instant::now();
    while attack.goes_on() && start.elapsed() < plan.limit {
        attack.submit(plan.tasks / plan.kills + 1);
        let pause = 30 + attack.dice.below(200);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        attack.kill().await;
        attack.catch_up(plan.backlog, Duration::from_secs(4)).await;
    }
    attack.log.cut_short = attack.goes_on();
    attack.catch_up(0, plan.limit).await;
    let (open, unsent) = (attack.open.len(), attack.sending.len());
    if open + unsent > 0 {
        attack
            .log
            .faults
            .push(format!("{open} tasks have no result after {:?}, {unsent} are not accepted", plan.limit));
    }
    attack.log
}

impl Attack<'_> {
    /// Kills are left, tasks are left, or a stage has not been hit.
    fn goes_on(&self) -> bool {
        let missed = self.log.hits.contains(&0) && self.kills < self.plan.kills + EXTRA;
        self.kills < self.plan.kills || self.next < self.plan.tasks || missed
    }

    fn submit(&mut self, count: usize) {
        for _ in 0..count {
            let task = Task::new(self.next, self.plan.agents);
            self.next += 1;
            let (door, again) = (self.site.door(), self.dice.below(5) == 0);
            let pause = Duration::from_millis(self.dice.below(1500));
            self.sending.spawn(deliver(door, task, again.then_some(pause)));
        }
    }

    async fn kill(&mut self) {
        let target = match (&self.site.kind, self.kills % 5) {
            (Kind::Servers { .. }, 2) => Target::Nats,
            (Kind::Servers { .. }, 4) => Target::Redis,
            (Kind::Servers { ways, .. }, 1 | 3) if !ways.is_empty() => Target::Way,
            (Kind::Servers { .. } | Kind::Embedded, _) => Target::Worker,
        };
        self.kills += 1;
        // Mostly short; now and then longer than a lease.
        let down = if self.dice.below(6) == 0 { 2500 } else { 50 + self.dice.below(400) };
        match target {
            Target::Worker => self.kill_worker().await,
            Target::Nats => {
                self.log.nats_kills += 1;
                self.kill_server(target, Duration::from_millis(down)).await;
            }
            Target::Redis => {
                self.log.redis_kills += 1;
                self.kill_server(target, Duration::from_millis(down)).await;
            }
            Target::Way => self.disturb(Duration::from_millis(down)).await,
        }
    }

    async fn kill_worker(&mut self) {
        self.log.worker_kills += 1;
        let any = usize::try_from(self.dice.below(self.site.processes.len() as u64)).unwrap();
        let fewest = STAGES.iter().zip(self.log.hits).min_by_key(|(_, n)| *n).map(|(stage, _)| *stage);
        // Every other one is left to chance, while every stage has been hit.
        let missed = self.log.hits.contains(&0);
        let aimed = fewest.filter(|_| missed || self.dice.below(2) == 0);
        let patience = if missed { NEW_STAGE } else { PATIENCE };
        let at = match aimed {
            Some(stage) => self.site.fleet.shoot(&self.site.processes, stage, patience).await.unwrap_or(any),
            None => any,
        };
        let hits = self.site.replace(at);
        add(&mut self.log.hits, hits);
        add(&mut self.log.kills_at, hits.map(|sessions| sessions.min(1)));
    }

    /// Something happens to one of the ways, or to both, for a while.
    async fn disturb(&mut self, time: Duration) {
        self.log.disturbed += 1;
        let late = Duration::from_millis(1 + self.dice.below(300));
        let weather = *self.dice.pick(&[Weather::Slow(late), Weather::Silent, Weather::Halved, Weather::Cut]);
        let reach = *self.dice.pick(&[Reach::All, Reach::Odd, Reach::Even]);
        let which = self.dice.below(3);
        let Kind::Servers { ways, .. } = &self.site.kind else { return };
        let met = |at: usize| which == 2 || which == at as u64;
        let met: Vec<_> = ways.iter().enumerate().filter(|(at, _)| met(*at)).map(|(_, way)| way).collect();
        for way in &met {
            way.set(weather, reach);
        }
        tokio::time::sleep(time).await;
        for way in &met {
            way.set(Weather::Clear, Reach::All);
        }
    }

    async fn kill_server(&mut self, target: Target, down: Duration) {
        for process in &self.site.processes {
            add(&mut self.log.server_hits, process.hits());
        }
        let Kind::Servers { nats, redis, .. } = &self.site.kind else { return };
        let (nats, redis, any) = (nats.clone(), redis.clone(), self.dice.below(1 << 16));
        let any = usize::try_from(any).unwrap();
        let restarted = tokio::task::spawn_blocking(move || match target {
            Target::Nats => {
                let mut servers = lock(&nats);
                let at = any % servers.len();
                servers[at].kill();
                std::thread::sleep(down);
                servers[at].restart();
            }
            Target::Redis | Target::Worker | Target::Way => {
                let mut servers = lock(&redis);
                let at = any % servers.len();
                servers[at].kill();
                std::thread::sleep(down);
                assert!(servers[at].start_again(), "redis-server did not start again");
            }
        });
        restarted.await.unwrap();
    }

    /// Until at most `backlog` accepted tasks are unfinished.
    async fn catch_up(&mut self, backlog: usize, patience: Duration) {
        let start = Instant::now();
        loop {
            while let Some(sent) = self.sending.try_join_next() {
                match sent.unwrap() {
                    Ok((task, tries)) => {
                        self.log.resubmitted += tries - 1;
                        self.open.extend(task.job.clone());
                        self.log.tasks.push(task);
                    }
                    Err(fault) => self.log.faults.push(fault),
                }
            }
            let ended = self.site.ended(&self.open).await;
            self.open.retain(|job| !ended.contains(job));
            if self.open.len() + self.sending.len() <= backlog || start.elapsed() > patience {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Sends a task until it is accepted; some are sent once more later.
async fn deliver(door: Door, mut task: Task, again: Option<Duration>) -> Result<(Task, u64), String> {
    let (job, mut tries) = door.send(&task).await?;
    if let Some(pause) = again {
        tokio::time::sleep(pause).await;
        let (same, more) = door.send(&task).await?;
        if same != job {
            return Err(format!("{} was sent twice and has two jobs", task.name));
        }
        tries += more;
    }
    task.job = Some(job);
    Ok((task, tries))
}

fn add(sum: &mut Hits, hits: Hits) {
    for (sum, hit) in sum.iter_mut().zip(hits) {
        *sum += hit;
    }
}
