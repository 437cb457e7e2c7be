//! Shutdown in stages: stop receiving, wait for the commits of turns, cancel, publish the rest, abort.
//!
//! | stage | begins | token | who acts |
//! |---|---|---|---|
//! | stop | at the signal | [`Shutdown::stop_token`] | receivers and sweeps take nothing more |
//! | cancel | after three quarters of the grace, if turns still run | [`Shutdown::cancel_token`] | turns drop their model call and release their lease; waits for an absent store end, so that even an idle worker needs three quarters of the grace then |
//! | end | when no turn runs, at the latest after nine tenths | [`Shutdown::end_token`] | the relay publishes what is left, HTTP closes |
//! | abort | at the deadline | – | tasks that still run are dropped; their leases lapse |

use crate::process::telemetry::Metrics;
use futures::FutureExt;
use std::{
    any::Any,
    future::Future,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{signal::unix, time::Instant};
use tokio_util::{
    sync::{CancellationToken, WaitForCancellationFuture},
    task::TaskTracker,
};

/// Pause before a task of rounds that panicked begins again; it doubles up to the longest.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Tokens of the stages and the tasks that they end. Clones are the same shutdown.
#[derive(Clone)]
pub struct Shutdown(Arc<ShutdownState>);

struct ShutdownState {
    stop: CancellationToken,
    cancel: CancellationToken,
    end: CancellationToken,
    abort: CancellationToken,
    turns: TaskTracker,
    services: TaskTracker,
    panics: AtomicU64,
    metrics: Arc<Metrics>,
}

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskEnd {
    /// The task ended by itself, or the shutdown dropped it.
    ByItself,
    Panicked,
}

/// The result of a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShutdownReport {
    /// Number of tasks that didn't end by themselves before the deadline.
    pub aborted: usize,
    /// Number of tasks that panicked since the start of the process.
    pub panics: u64,
}

impl Shutdown {
    /// Returns a shutdown in no stage. Panics of tasks are counted in `metrics`.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self(Arc::new(ShutdownState {
            stop: CancellationToken::new(),
            cancel: CancellationToken::new(),
            end: CancellationToken::new(),
            abort: CancellationToken::new(),
            turns: TaskTracker::new(),
            services: TaskTracker::new(),
            panics: AtomicU64::new(0),
            metrics,
        }))
    }

    /// Returns the token of the stage in which no more work is taken; child tokens and `select!` arms may use it.
    pub fn stop_token(&self) -> &CancellationToken {
        &self.0.stop
    }

    /// Returns the token of the stage in which turns end, without a commit if necessary.
    pub fn cancel_token(&self) -> &CancellationToken {
        &self.0.cancel
    }

    /// Returns the token of the stage in which no turn runs: publish what is left and end.
    pub fn end_token(&self) -> &CancellationToken {
        &self.0.end
    }

    /// Begins the first stage; [`Shutdown::run`] goes through the others.
    pub fn trigger(&self) {
        self.0.stop.cancel();
    }

    /// Returns a future that resolves when the first stage has begun.
    pub fn wait_triggered(&self) -> WaitForCancellationFuture<'_> {
        self.0.stop.cancelled()
    }

    /// Starts the task of a turn: the shutdown waits for its commit.
    pub fn spawn_turn(&self, name: &str, task: impl Future<Output = ()> + Send + 'static) {
        self.0.turns.spawn(self.guard(name.to_owned(), task));
    }

    /// Starts a task that runs until a stage ends it, such as a server. The process is useless without it: a panic
    /// begins the shutdown, so that a supervisor starts another process.
    pub fn spawn_service(&self, name: &str, task: impl Future<Output = ()> + Send + 'static) {
        let (shutdown, name, task) = (self.clone(), name.to_owned(), self.guard(name.to_owned(), task));
        self.0.services.spawn(async move {
            if task.await == TaskEnd::Panicked && !shutdown.0.stop.is_cancelled() {
                tracing::error!("without its task `{name}` this process is no use; it stops");
                shutdown.trigger();
            }
        });
    }

    /// [`Shutdown::spawn_service`] for a task that is created again, after a pause, when it panics.
    pub fn spawn_rounds<F>(&self, name: &'static str, make: impl Fn() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let shutdown = self.clone();
        self.0.services.spawn(async move {
            let (mut pause, mut begun) = (PAUSE, Instant::now());
            while shutdown.guard(name.to_owned(), make()).await == TaskEnd::Panicked {
                if begun.elapsed() > LONGEST_PAUSE {
                    pause = PAUSE;
                }
                tracing::error!("task `{name}` begins again in {} s", pause.as_secs());
                if shutdown.0.stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                    break;
                }
                (pause, begun) = ((pause * 2).min(LONGEST_PAUSE), Instant::now());
            }
        });
    }

    /// Returns the number of turns that run now.
    pub fn turns(&self) -> usize {
        self.0.turns.len()
    }

    /// Wraps a task so that a panic is logged and counted when it happens.
    fn guard<F>(&self, name: String, task: F) -> impl Future<Output = TaskEnd> + Send + 'static + use<F>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let inner = Arc::clone(&self.0);
        let abort = inner.abort.clone();
        // Boxed: each adapter around a future has room for it twice, as its argument and as what it polls.
        let task = AssertUnwindSafe(Box::pin(task)).catch_unwind();
        async move {
            let Some(Err(panic)) = abort.run_until_cancelled(task).await else { return TaskEnd::ByItself };
            inner.panics.fetch_add(1, Ordering::Relaxed);
            inner.metrics.task_panics.inc();
            tracing::error!("task `{name}` panicked: {}", panic_text(&*panic));
            TaskEnd::Panicked
        }
    }

    /// Begins the shutdown at the first SIGINT or SIGTERM; the second ends the process with code 130.
    pub fn listen_to_signals(&self) -> std::io::Result<()> {
        let mut interrupt = unix::signal(unix::SignalKind::interrupt())?;
        let mut terminate = unix::signal(unix::SignalKind::terminate())?;
        let shutdown = self.clone();
        tokio::spawn(async move {
            loop {
                let name = tokio::select! {
                    _ = interrupt.recv() => "SIGINT",
                    _ = terminate.recv() => "SIGTERM",
                };
                if shutdown.0.stop.is_cancelled() {
                    tracing::warn!("{name} again: exiting at once; leases lapse and other workers go on");
                    std::process::exit(130);
                }
                tracing::info!("{name}: stopping; once more exits at once");
                shutdown.trigger();
            }
        });
        Ok(())
    }

    /// Waits for the trigger, then goes through the stages within `grace`.
    pub async fn run(&self, grace: Duration) -> ShutdownReport {
        self.wait_triggered().await;
        let start = Instant::now();
        let ShutdownState { cancel, end, abort, turns, services, .. } = &*self.0;
        turns.close();
        services.close();
        if !turns.is_empty() {
            tracing::info!("stopping: {} turns go on to their commit", turns.len());
        }
        if tokio::time::timeout_at(start + grace * 3 / 4, turns.wait()).await.is_err() {
            tracing::warn!("stopping: cancelling {} turns and giving their leases back", turns.len());
        }
        cancel.cancel();
        let _ = tokio::time::timeout_at(start + grace * 9 / 10, turns.wait()).await;
        end.cancel();
        let rest = async {
            turns.wait().await;
            services.wait().await;
        };
        let _ = tokio::time::timeout_at(start + grace, rest).await;
        let aborted = turns.len() + services.len();
        if aborted > 0 {
            tracing::warn!("stopping: {aborted} tasks did not end within {grace:?}");
            abort.cancel();
            // A task that blocks its thread can't be dropped; the process ends without it.
            let _ = tokio::time::timeout(Duration::from_secs(1), async {
                turns.wait().await;
                services.wait().await;
            })
            .await;
        }
        let report = ShutdownReport { aborted, panics: self.0.panics.load(Ordering::Relaxed) };
        tracing::info!("stopped after {:.1} s", start.elapsed().as_secs_f32());
        report
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("?")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn new() -> Shutdown {
        Shutdown::new(Arc::new(Metrics::new()))
    }

    #[tokio::test]
    async fn stages_come_in_order_and_turns_are_waited_for() {
        let shutdown = new();
        let log = Arc::new(Mutex::new(Vec::new()));
        let note = |text: &'static str| {
            let log = Arc::clone(&log);
            move || log.lock().unwrap().push(text)
        };
        let (took, committed, relayed) = (note("stopped taking"), note("committed"), note("relayed"));
        let s = shutdown.clone();
        shutdown.spawn_service("receiver", async move {
            s.stop_token().cancelled().await;
            took();
        });
        shutdown.spawn_turn("turn", async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            committed();
        });
        let s = shutdown.clone();
        shutdown.spawn_service("relay", async move {
            s.end_token().cancelled().await;
            relayed();
        });
        shutdown.trigger();
        assert_eq!(shutdown.run(Duration::from_secs(5)).await, ShutdownReport { aborted: 0, panics: 0 });
        assert_eq!(*log.lock().unwrap(), ["stopped taking", "committed", "relayed"]);
    }

    #[tokio::test]
    async fn a_long_turn_is_cancelled_and_a_deaf_one_is_aborted() {
        let shutdown = new();
        let s = shutdown.clone();
        shutdown.spawn_turn("obedient", async move { s.cancel_token().cancelled().await });
        shutdown.spawn_turn("deaf", std::future::pending());
        shutdown.trigger();
        assert_eq!(shutdown.run(Duration::from_millis(200)).await, ShutdownReport { aborted: 1, panics: 0 });
        assert_eq!(shutdown.turns(), 0);
    }

    #[tokio::test]
    async fn panics_are_counted_and_do_not_hang_the_shutdown() {
        let shutdown = new();
        shutdown.spawn_turn("bad", async { panic!("on purpose") });
        shutdown.trigger();
        assert_eq!(shutdown.run(Duration::from_secs(5)).await, ShutdownReport { aborted: 0, panics: 1 });
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_ends_a_service_but_not_a_periodic_round() {
        let (shutdown, begun) = (new(), Arc::new(AtomicU64::new(0)));
        let (times, ending) = (Arc::clone(&begun), shutdown.end_token().clone());
        shutdown.spawn_rounds("rounds", move || {
            let (time, ending) = (times.fetch_add(1, Ordering::Relaxed), ending.clone());
            async move {
                assert!(time >= 2, "on purpose");
                ending.cancelled().await;
            }
        });
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!((begun.load(Ordering::Relaxed), shutdown.stop_token().is_cancelled()), (3, false));
        shutdown.spawn_service("service", async { panic!("on purpose") });
        assert_eq!(shutdown.run(Duration::from_secs(5)).await, ShutdownReport { aborted: 0, panics: 3 });
    }
}
