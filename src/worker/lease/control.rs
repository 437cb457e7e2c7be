//! Cancellation signals. A signal only makes the worker look: anybody may have sent it, and the store says whether the
//! task is cancelled. The renewal of the lease finds cancellations whose signal is lost.

use crate::domain::ids::JobId;
use crate::venue::jobs;
use crate::worker::state::{RECEIVE_PAUSE, Worker};
use futures::StreamExt;
use std::sync::Arc;
use std::time::Duration;

/// Pause between two looks: each owner's tasks are read at most ten times per second, however many signals come, and a
/// cancelled call ends within a second.
const CHECK_PAUSE: Duration = Duration::from_millis(100);

/// Receives signals and checks them until the process ends.
pub(crate) async fn run(worker: Arc<Worker>) {
    let end = worker.shutdown.end_token().clone();
    tokio::select! {
        biased;
        () = end.cancelled() => {}
        () = listen(&worker) => {}
        () = check_signals(&worker) => {}
    }
}

async fn listen(worker: &Worker) {
    loop {
        if let Ok(mut signals) = worker.venue.bus.listen_control().await {
            while let Some(signal) = signals.next().await {
                worker.tasks.on_signal(&signal);
            }
        }
        tokio::time::sleep(RECEIVE_PAUSE).await;
    }
}

async fn check_signals(worker: &Worker) {
    loop {
        worker.tasks.wait_for_signal().await;
        for (owner, tasks) in worker.tasks.take_signalled() {
            let ids: Vec<JobId> = tasks.iter().map(|(job, _)| job.clone()).collect();
            match jobs::list_ended(&worker.venue, &owner, &ids).await {
                Ok(cancelled) => {
                    tasks.iter().filter(|(job, _)| cancelled.contains(job)).for_each(|(_, token)| token.cancel());
                }
                Err(error) => {
                    tracing::debug!(%owner, %error, "not known whether tasks are cancelled; the renewal tells");
                }
            }
        }
        tokio::time::sleep(CHECK_PAUSE).await;
    }
}
