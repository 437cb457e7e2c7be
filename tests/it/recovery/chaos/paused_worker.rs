//! A worker that stands still for longer than its leases, and then goes on where it was.

use super::fleet::lock;
use super::restart::ended;
use super::site::{Kind, Site};
use super::workload::Task;
use std::collections::HashMap;
use std::process::Command;
use std::time::{Duration, Instant};

const TASKS: usize = 60;
/// Of tasks, until a session is met where it is wanted.
const BATCHES: usize = 10;
/// Many leases: another worker has taken over by then.
const OVERTAKEN: Duration = Duration::from_mins(2);

fn signal(name: &str, pid: u32) {
    assert!(Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status().unwrap().success());
}

/// Sessions that wait for what the context of their first turn is made of; its reply asks for
/// tools, so that it will be recorded.
fn in_context(site: &Site) -> Vec<String> {
    let trail = lock(&site.fleet.trail);
    let steps: HashMap<_, _> = trail.steps.iter().map(|step| (&step.whose, (step.stage.as_str(), step.turn))).collect();
    let first = steps.into_iter().filter(|(_, step)| *step == ("context", Some(1)));
    first.map(|(session, _)| session.clone()).collect()
}

/// Whether another process has recorded a reply in each of these sessions.
fn overtaken(site: &Site, sessions: &[String], first: u32) -> bool {
    let trail = lock(&site.fleet.trail);
    let recorded =
        |session: &String| trail.steps.iter().any(|s| s.pid != first && s.whose == *session && s.stage == "tools");
    sessions.iter().all(recorded)
}

/// Redis answers nobody for a while, so that everybody waits for an answer.
async fn hold_answers(site: &Site) {
    let Kind::Servers { redis, .. } = &site.kind else { unreachable!("it was started with servers") };
    let url = lock(redis)[0].url();
    let mut connection = redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
    redis::cmd("CLIENT").arg(&["PAUSE", "150", "ALL"]).query_async::<()>(&mut connection).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_paused_beyond_its_leases_asks_no_model() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut site) = Site::servers(dir.path(), 1, 50).await else { return };
    let door = site.door();
    let send = async |batch: usize| {
        let first = 50 + batch * TASKS;
        let sends = (first..first + TASKS).map(|n| {
            let (door, task) = (door.clone(), Task::new(n, 50));
            async move { door.send(&task).await.unwrap().0 }
        });
        futures::future::join_all(sends).await
    };
    let mut jobs = send(0).await;
    let first = site.processes[0].pid;
    // Stopped when the answer that some context waits for is on its way.
    let waiting = loop {
        hold_answers(&site).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        signal("STOP", first);
        let waiting = in_context(&site);
        if !waiting.is_empty() {
            break waiting;
        }
        signal("CONT", first);
        if site.ended(&jobs).await.len() == jobs.len() {
            assert!(jobs.len() < BATCHES * TASKS, "no session was met while it made its context");
            jobs.extend(send(jobs.len() / TASKS).await);
        }
    };
    site.processes.push(site.fleet.start());
    let end = Instant::now() + OVERTAKEN;
    while !overtaken(&site, &waiting, first) {
        assert!(Instant::now() < end, "nobody went on with {waiting:?} within {OVERTAKEN:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    signal("CONT", first);
    ended(&site, &jobs, jobs.len()).await;
    site.kill_all();
    assert_eq!(lock(&site.fleet.trail).asked_after_record(), [] as [String; 0]);
}
