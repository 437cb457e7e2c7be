//! Submissions over `trellis.do`: whichever process takes one admits it and answers as `JetStream` answers a publish,
//! after the store has it. Without a process the sender is told so at once, and may publish to `trellis.in` instead.

mod answer;
mod queue;

use crate::bus::{DirectSubmission, LiveSubject};
use crate::domain::event::is_answer_allowed;
use crate::domain::ids::{AgentId, EventId, Owner};
use crate::domain::message::InboundKind;
use crate::domain::seal::SubmissionAddress;
use crate::domain::trace::TraceParent;
use crate::venue::Venue;
use crate::venue::auth::Auth;
use crate::venue::ingress::sender::{self, IdentifiedSubmission, MessageEnvelope, SenderRefusal};
use crate::venue::ingress::{self, Arrival, SubmitReceipt};
use crate::venue::registry;
use crate::view::to_json;
use answer::DirectRefusal;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use queue::{FairQueue, QueueBounds};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// What waits here: a client that is told nothing asks again elsewhere, so that the wait is short.
const BOUNDS: QueueBounds = QueueBounds { at_once: 256, waiting: 8_192, bytes: 64 << 20 };

/// Pause after the queue couldn't be listened to.
const LISTEN_PAUSE: Duration = Duration::from_secs(1);

/// Interval at which a stand-in looks for workers.
const ROLL_EVERY: Duration = Duration::from_secs(2);

/// A direct submission whose subject was understood.
struct Submitted {
    owner: Owner,
    agent: AgentId,
    kind: InboundKind,
    id: Option<String>,
    authorization: Option<String>,
    trace: Option<TraceParent>,
    body: Bytes,
    reply: String,
}

/// Admits direct submissions of a venue.
struct DirectIntake {
    venue: Arc<Venue>,
    auth: Arc<Auth>,
    role: DirectRole,
    /// Number of the last submission that was taken here.
    taken: AtomicU64,
}

/// Which processes take direct submissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectRole {
    /// One with a worker, which runs what it admits.
    Worker,
    /// One without, while no worker is there: it would have to wake one for each.
    StandIn,
}

/// Admits direct submissions until `stop`; those that wait then are still admitted.
pub async fn run(venue: Arc<Venue>, auth: Arc<Auth>, role: DirectRole, stop: CancellationToken) {
    let intake = Arc::new(DirectIntake { venue, auth, role, taken: AtomicU64::new(0) });
    let (mut waiting, mut running) = (FairQueue::new(BOUNDS), JoinSet::new());
    while !stop.is_cancelled() {
        if intake.is_needed().await {
            let until = stop.child_token();
            match intake.venue.bus.live_feed().direct_submissions(until.clone()).await {
                Ok(submissions) => {
                    serve(&intake, submissions, &mut waiting, &mut running, &until).await;
                    // The subscription is gone. What waits is admitted now, not with the next one hours later.
                    finish_waiting(&intake, &mut waiting, &mut running).await;
                }
                Err(error) => tracing::debug!(%error, "direct submissions can't be listened to yet"),
            }
        }
        stop.run_until_cancelled(tokio::time::sleep(LISTEN_PAUSE)).await;
    }
}

/// Admits the submissions that still wait when the subscription is gone.
async fn finish_waiting(intake: &Arc<DirectIntake>, waiting: &mut FairQueue<Submitted>, running: &mut JoinSet<Owner>) {
    loop {
        start_next(intake, waiting, running);
        let Some(finished) = running.join_next().await else { return };
        note_finished(waiting, finished);
    }
}

/// Admits what arrives until the subscription ends. It is read at once, also while much waits: the server drops what a
/// slow reader leaves.
async fn serve(
    intake: &Arc<DirectIntake>,
    mut submissions: BoxStream<'static, DirectSubmission>,
    waiting: &mut FairQueue<Submitted>,
    running: &mut JoinSet<Owner>,
    until: &CancellationToken,
) {
    let mut look = tokio::time::interval(ROLL_EVERY);
    loop {
        tokio::select! {
            biased;
            // What the server has sent already still comes, and then the stream ends.
            _ = look.tick() => if !intake.is_needed().await { until.cancel() },
            Some(finished) = running.join_next() => note_finished(waiting, finished),
            next = submissions.next() => match next {
                None => return,
                Some(submission) => take(intake, submission, waiting).await,
            },
        }
        start_next(intake, waiting, running);
    }
}

fn note_finished(waiting: &mut FairQueue<Submitted>, finished: Result<Owner, tokio::task::JoinError>) {
    match finished {
        Ok(owner) => waiting.finish(&owner),
        Err(error) => tracing::error!(%error, "an admission ended without its owner"),
    }
}

fn start_next(intake: &Arc<DirectIntake>, waiting: &mut FairQueue<Submitted>, running: &mut JoinSet<Owner>) {
    while let Some((owner, submitted)) = waiting.pop() {
        let intake = Arc::clone(intake);
        running.spawn(async move {
            if AssertUnwindSafe(intake.admit(submitted)).catch_unwind().await.is_err() {
                tracing::error!(%owner, "the admission of a direct submission panicked; its sender gets no answer");
            }
            owner
        });
    }
}

/// Puts a submission into the queue, or refuses it.
async fn take(intake: &Arc<DirectIntake>, submission: DirectSubmission, waiting: &mut FairQueue<Submitted>) {
    let DirectSubmission { to, id, authorization, trace, body, reply, bytes } = submission;
    let submitted = match to {
        Err(error) => return intake.answer_unread(&reply, &DirectRefusal::bad_request(error.to_string())).await,
        Ok((owner, agent, kind)) => Submitted { owner, agent, kind, id, authorization, trace, body, reply },
    };
    if !matches!(submitted.kind, InboundKind::Task | InboundKind::Message) {
        let text = "expected `task` or `message` as the last token of the subject; publish others to `trellis.in`";
        return intake.answer(&submitted.owner, &submitted.reply, Err(DirectRefusal::bad_request(text))).await;
    }
    let owner = submitted.owner.clone();
    if let Err((full, submitted)) = waiting.push(&owner, bytes, submitted) {
        intake.answer(&owner, &submitted.reply, Err(DirectRefusal::busy(full.to_string()))).await;
    }
}

impl DirectIntake {
    /// Whether this process takes submissions now.
    async fn is_needed(&self) -> bool {
        match self.role {
            DirectRole::Worker => true,
            DirectRole::StandIn => registry::fleet_state(&self.venue).await.is_ok_and(|fleet| fleet.workers == 0),
        }
    }

    async fn admit(&self, submitted: Submitted) {
        let answer = self.try_admit(&submitted).await;
        self.answer(&submitted.owner, &submitted.reply, answer).await;
    }

    async fn try_admit(&self, submitted: &Submitted) -> Result<SubmitReceipt, DirectRefusal> {
        let venue = &self.venue;
        let Submitted { owner, agent, kind, id, authorization, body, .. } = submitted;
        let received = venue.now();
        let parsed = ingress::parse(body).and_then(|said| {
            let to = SubmissionAddress { owner, agent, kind: *kind };
            let sealed = said.seal.is_some();
            ingress::open_seal(venue, to, id.as_deref(), ingress::fresh_id, said).map(|(id, said)| (id, said, sealed))
        });
        let (id, said, sealed): (EventId, _, _) = parsed?;
        let envelope =
            MessageEnvelope { owner, agent, kind: *kind, authorization: authorization.as_deref(), published: received };
        let sent = sender::identify(venue, &self.auth, envelope, sealed, said).await;
        let IdentifiedSubmission { submission, by, may_override } = sent.map_err(|refusal| match refusal {
            SenderRefusal::Refused(code, text) => DirectRefusal::of_sender(code, text),
            SenderRefusal::RetryLater(error) => error.into(),
        })?;
        let arrival = Arrival {
            owner: owner.clone(),
            agent: agent.clone(),
            task: *kind == InboundKind::Task,
            id,
            submission,
            received,
            sequence: 0,
            by,
            may_override,
            trace: submitted.trace,
        };
        let receipt = Box::pin(ingress::submit(venue, &arrival)).await?;
        if let (true, Some(job), Some(subject)) = (receipt.duplicate, &receipt.job, arrival.submission.reply_to) {
            ingress::repeat_answer(venue, owner, job, subject).await;
        }
        Ok(receipt)
    }

    /// Whether the sender may name this subject for the answer.
    fn may_reply(&self, reply: &str, owner: Option<&Owner>) -> bool {
        is_answer_allowed(reply, owner, self.auth.is_required())
    }

    async fn answer(&self, owner: &Owner, reply: &str, answer: Result<SubmitReceipt, DirectRefusal>) {
        if !self.may_reply(reply, Some(owner)) {
            let expected = format!("trellis.reply.{}.{}.", owner.tenant().token(), owner.user().token());
            tracing::warn!(%owner, "a direct submission gets no answer: expected an inbox under `{expected}`");
            return;
        }
        let body = match answer {
            Ok(receipt) => to_json(&answer::ack(self.taken.fetch_add(1, Ordering::Relaxed) + 1, receipt)),
            Err(refusal) => {
                tracing::info!(%owner, reason = refusal.text(), "direct submission refused");
                to_json(&refusal.view())
            }
        };
        self.signal(reply, body.to_string()).await;
    }

    /// Refuses a submission whose subject names no owner.
    async fn answer_unread(&self, reply: &str, refusal: &DirectRefusal) {
        if self.may_reply(reply, None) {
            self.signal(reply, to_json(&refusal.view()).to_string()).await;
        }
    }

    async fn signal(&self, reply: &str, body: String) {
        let to = LiveSubject::Reply(reply.to_owned());
        if let Err(error) = self.venue.bus.signal(&to, Bytes::from(body)).await {
            tracing::debug!(%error, "a direct submission is not answered; its sender asks again");
        }
    }
}
