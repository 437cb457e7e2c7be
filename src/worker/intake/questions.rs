//! Questions of clients about their tasks: status, and why the task waits.

use super::callers::verify_asker;
use crate::bus::{JobQuestion, LiveSubject};
use crate::domain::event::is_answer_allowed;
use crate::domain::ids::{EventId, IdError, JobId};
use crate::domain::job::{Job, JobStatus};
use crate::domain::reader::JobVisibility;
use crate::domain::wait::WaitReason;
use crate::venue::{jobs, waits};
use crate::view::job::{JobView, WaitView};
use crate::view::queue::SubmissionStatusView;
use crate::view::to_json;
use crate::worker::state::{RECEIVE_PAUSE, Worker};
use bytes::Bytes;
use futures::StreamExt;
use std::sync::Arc;

/// Answers questions until the process ends, one at a time, so that their load is bounded.
pub(in crate::worker) async fn run(worker: Arc<Worker>) {
    let end = worker.shutdown.end_token().clone();
    tokio::select! {
        biased;
        () = end.cancelled() => {}
        () = listen(&worker) => {}
    }
}

async fn listen(worker: &Worker) {
    loop {
        if let Ok(mut questions) = worker.venue.bus.live_feed().questions().await {
            while let Some(question) = questions.next().await {
                let Some(answer) = answer(worker, &question).await else { continue };
                let reply = LiveSubject::Reply(question.reply);
                if let Err(error) = worker.venue.bus.signal(&reply, Bytes::from(to_json(&answer).to_string())).await {
                    tracing::debug!(%error, "question not answered; it is asked again");
                }
            }
        }
        tokio::time::sleep(RECEIVE_PAUSE).await;
    }
}

/// Returns the status of a submission's job and why it waits; `None`: no answer is sent.
/// What is known of an id without a job: a refusal is kept in the queue alone.
const NOT_ADMITTED: &str = "no job has this id: its message waits in the queue for a worker, or was refused, which \
                            `trellis.out` and `replyTo` say, or was never sent";

async fn answer(worker: &Worker, question: &JobQuestion) -> Option<SubmissionStatusView> {
    let (venue, owner) = (&*worker.venue, &question.owner);
    let (caller, is_verified) = verify_asker(worker, question).await.ok()?;
    if !is_answer_allowed(&question.reply, Some(owner), is_verified) {
        return None;
    }
    let id = match read_id(&question.body) {
        Ok(id) => JobId::derive(&venue.key, owner, &id),
        Err(error) => {
            let error = Some(format!("the body of a question is the id of a submission: {error}"));
            return Some(SubmissionStatusView { job: None, status: JobStatus::Rejected, waiting: None, error });
        }
    };
    let is_seen = |job: &Job| caller.reader().visibility(&job.head) != JobVisibility::Nothing;
    // A caller who may see nothing of a job gets the answer about one that doesn't exist.
    let Some(mut job) = jobs::read_for_people(venue, owner, &id).await.ok()?.filter(is_seen) else {
        let waiting = WaitView { reason: NOT_ADMITTED.to_owned(), ..WaitView::from(&WaitReason::NotAdmitted) };
        let waiting = Some(waiting);
        return Some(SubmissionStatusView { job: None, status: JobStatus::Pending, waiting, error: None });
    };
    waits::explain(venue, owner, &caller.reader(), &mut job).await.ok()?;
    let JobView { status, waiting, .. } = JobView::for_reader(&job, &caller.reader());
    Some(SubmissionStatusView { job: Some(id), status, waiting, error: None })
}

/// Returns the id of the submission that a question is about.
fn read_id(body: &[u8]) -> Result<EventId, QuestionError> {
    Ok(EventId::new(std::str::from_utf8(body)?)?)
}

/// Why a question names no submission.
#[derive(Debug, thiserror::Error)]
enum QuestionError {
    /// The body is no text.
    #[error(transparent)]
    Text(#[from] std::str::Utf8Error),
    /// The text is no id.
    #[error(transparent)]
    Id(#[from] IdError),
}
