//! Workers, nats-server and redis-server are killed with SIGKILL, and cut off, while tasks run; afterwards the
//! books must close. The short form is part of the suite; `tests/chaos.sh` runs the long one.

mod attack;
mod check;
mod fleet;
mod report;
mod restart;
mod site;
mod paused_worker;
mod worker_logs;
mod workload;

use attack::Plan;
use check::Evidence;
use fleet::lock;
use report::Report;
use site::Site;
use std::path::Path;
use std::time::{Duration, Instant};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(format!("TRELLIS_CHAOS_{name}")).map_or(default, |text| text.parse().expect("a number"))
}

fn plan(workers: u64, kills: u64) -> Plan {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let size = |name: &str, default: u64| usize::try_from(number(name, default)).unwrap();
    Plan {
        tasks: size("TASKS", 120),
        agents: size("AGENTS", 50),
        workers: size("WORKERS", workers),
        kills: size("KILLS", kills),
        backlog: size("BACKLOG", 25),
        limit: Duration::from_secs(number("LIMIT_SECONDS", 240)),
        seed: number("SEED", u64::from(now.subsec_nanos())),
    }
}

/// Attacks, lets everything come to rest, checks, reports; fails on any fault.
async fn attack_and_check(name: &str, mut site: Site, plan: Plan) {
    let start = Instant::now();
    let mut log = attack::run(&mut site, &plan).await;
    let (venue, outbound, moving) = site.rest().await;
    log.faults.extend(moving.into_iter().map(|what| format!("still moving: {what}")));
    let calls_log = std::fs::read_to_string(site.fleet.dir.join("calls.jsonl")).unwrap();
    let trail = std::mem::take(&mut *lock(&site.fleet.trail));
    let evidence = Evidence {
        venue: &venue,
        owner: &site.owner,
        tasks: &log.tasks,
        outbound: outbound.as_deref(),
        calls_log: &calls_log,
        trail: &trail,
    };
    let found = check::all(&evidence).await;
    for (stage, hits) in worker_logs::STAGES.iter().zip(log.hits) {
        if hits == 0 && !log.cut_short {
            log.faults.push(format!("no kill hit the stage `{stage}`"));
        }
    }
    let warnings: Vec<_> = trail.warnings.iter().map(|(text, n)| (text.clone(), *n)).collect();
    let report = Report {
        name,
        plan: &plan,
        log: &log,
        found: &found,
        warnings: &warnings,
        start_times: &trail.start_times,
        time: start.elapsed(),
    };
    eprintln!("{report}");
    if let Some(file) = std::env::var_os("TRELLIS_CHAOS_REPORT") {
        use std::io::Write;
        let file = std::fs::OpenOptions::new().create(true).append(true).open(file);
        file.and_then(|mut file| file.write_all(report.to_string().as_bytes())).unwrap();
    }
    assert!(log.faults.is_empty() && found.faults.is_empty(), "\n{report}");
}

/// A fleet on such servers, where they are installed.
async fn fleet(name: &str, site: impl AsyncFnOnce(&Path, usize, usize) -> Option<Site>, plan: Plan) {
    let dir = tempfile::tempdir().unwrap();
    let Some(site) = site(dir.path(), plan.workers, plan.agents).await else { return };
    attack_and_check(name, site, plan).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_under_kills_loses_nothing_and_repeats_nothing() {
    Box::pin(fleet("fleet", Site::servers, plan(3, 14))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_on_clusters_loses_and_repeats_nothing() {
    fleet("clusters", Site::clusters, plan(3, 15)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_that_is_cut_off_loses_nothing_and_repeats_nothing() {
    Box::pin(fleet("cut off", Site::cut_off, plan(3, 20))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_embedded_process_loses_and_repeats_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let plan = Plan { workers: 1, ..plan(1, 10) };
    let site = Site::embedded(dir.path(), plan.agents).await;
    attack_and_check("embedded", site, plan).await;
}
