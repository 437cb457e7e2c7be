//! A task that kills its workers: it is given up, kept, and driven again.

use super::*;
use trellis::domain::dead::DeadLetter;
use trellis::venue::dead_letters;
use trellis::venue::ingress::redrive::redrive;
use trellis::view::dead::DeadLetterView;

/// Five workers die in a row at the first call of this method; the sixth lives.
async fn poison(run: &Run, method: &'static str) -> Value {
    let healthy = run.venue(&Life(None));
    run.prepare(&healthy).await;
    let start = Instant::now();
    for n in 0..5 {
        let faulty = FaultyStore::new(Arc::clone(&run.store), FaultPlan::FromMethod(method));
        let life = Life(Some(faulty));
        run.worker(&format!("victim {n}"), &life);
        while !life.is_over() {
            assert!(start.elapsed() < PATIENCE, "victim {n} lives");
            run.sweep(&healthy).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
            run.clock.advance(Duration::from_millis(40));
        }
        run.clock.advance(LEASE + Duration::from_secs(6));
    }
    run.worker("survivor", &Life(None));
    loop {
        run.sweep(&healthy).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        run.clock.advance(Duration::from_millis(40));
        let state = run.state(&healthy).await;
        let job = &state["jobs"]["t1"];
        if job["status"] == "FAILED" && state["mailbox"] == json!([]) && state["outbox"] == json!([]) {
            return state;
        }
        assert!(start.elapsed() < PATIENCE, "{state:#}\nsessions: {:?}", run.sessions().await);
    }
}

/// The dead task is kept with all that is known of its end.
async fn kept(run: &Run, venue: &Arc<Venue>) -> DeadLetter {
    let trellis::venue::jobs::ListPage { items: letters, total, .. } =
        dead_letters::list(venue, &run.owner, 0, 10).await.unwrap();
    let [letter] = letters.as_slice() else { panic!("one dead letter, got {letters:?}") };
    assert_eq!((total, letter.crashes, letter.redriven.clone()), (1, 5, None));
    let told = "its worker died 5 times while serving it: `victim 0`, `victim 1`, `victim 2`, `victim 3`, `victim 4`";
    assert_eq!(letter.error, told);
    let shown = DeadLetterView::from(letter);
    for (n, attempt) in shown.attempts.iter().enumerate() {
        assert_eq!((&attempt.worker, attempt.turn), (&format!("victim {n}"), 1));
        assert!(attempt.lapsed <= shown.died, "{shown:?}");
    }
    let epochs: Vec<_> = shown.attempts.iter().map(|attempt| attempt.epoch).collect();
    assert!(epochs.len() == 5 && epochs.is_sorted(), "{shown:?}");
    letter.clone()
}

/// As it was sent it completes when it is driven again.
async fn redriven(run: &Run, venue: &Arc<Venue>) {
    let letter = kept(run, venue).await;
    let (job, duplicate) = redrive(venue, &run.owner, &letter.job).await.unwrap();
    assert_eq!((duplicate, job == letter.job), (false, false));
    assert_eq!(redrive(venue, &run.owner, &letter.job).await.unwrap(), (job.clone(), true), "twice is once");
    let kept = dead_letters::get(venue, &run.owner, &letter.job).await.unwrap().unwrap().0;
    assert_eq!(kept.redriven.as_ref(), Some(&job));
    let start = Instant::now();
    loop {
        run.sweep(venue).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        run.clock.advance(Duration::from_millis(40));
        let now = jobs::get(venue, &run.owner, &job).await.unwrap().unwrap();
        if now.status.is_terminal() {
            assert_eq!(now.head.redrive_of.as_ref(), Some(&letter.job));
            assert_eq!(now.status.as_str(), "COMPLETE", "{:?}", now.result);
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{now:?}");
    }
}

#[test]
fn a_task_that_kills_five_workers_is_dead_and_published() {
    dies(Backend::Embedded);
}

#[test]
fn a_task_that_kills_five_workers_is_dead_on_redis() {
    if RedisServer::shared().is_some() {
        dies(Backend::Redis);
    }
}

fn dies(backend: Backend) {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (state, log) = runtime.block_on(async {
        let run = Run::new(&THREE_TURNS, backend, dir.path()).await;
        let state = poison(&run, "checkpoint").await;
        let log = run.log.lock().unwrap().clone();
        redriven(&run, &run.venue(&Life(None))).await;
        (state, log)
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    assert_eq!(state["jobs"]["t1"]["result"]["errorCode"], "DEAD");
    check_course(&log, &state).unwrap();
}

/// Its reply was recorded: the turn that it belongs to is committed before the task is put aside.
#[test]
fn worker_deaths_at_a_commit_are_counted_and_the_task_kept() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let run = Run::new(&THREE_TURNS, Backend::Embedded, dir.path()).await;
        let state = poison(&run, "commit").await;
        assert_eq!(state["jobs"]["t1"]["result"]["errorCode"], "DEAD");
        kept(&run, &run.venue(&Life(None))).await;
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
}
