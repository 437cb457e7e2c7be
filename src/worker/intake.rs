//! One delivery: parse, admit, run, settle.

use super::callers::{self, Unknown};
use super::stage::{self, Stage};
use super::{Worker, invoked, orders, session, stray};
use crate::bus::{Delivery, Settle};
use crate::domain::decode::{self, Wrong};
use crate::domain::event::{ResultBody, reply_to_allowed, reply_to_own};
use crate::domain::external::Answer;
use crate::domain::ids::{EventId, IdOf, JobId, Owner, SessionId, SessionKey};
use crate::domain::invoked::job_of;
use crate::domain::job::{ErrorCode, Job, JobHead, JobResult, JobStatus};
use crate::domain::limits::MESSAGE_DEPTH;
use crate::domain::message::InKind;
use crate::domain::message::Message;
use crate::domain::seal::{self, Sender};
use crate::domain::visible::told;
use crate::ingress::{self, Arrival};
use crate::outbox;
use crate::store::{Admit, Finished, Intake, JobFinish, LeaseOutcome, NewJob, Refusal, StoreError};
use crate::venue::external::{self, Taken};
use crate::venue::jobs;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Redelivery of a message whose handling failed.
pub(super) const RETRY: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
struct WakeBody {
    session: SessionId,
}

/// The terminal answer to a message that can't become an event.
#[expect(clippy::unnecessary_box_returns, reason = "the error side of results that are mostly ids: it should be small")]
pub(super) fn refusal(code: ErrorCode, error: impl Into<String>) -> Box<JobResult> {
    Box::new(JobResult::ended(JobStatus::Rejected, code, told(error.into())))
}

/// Handles one delivery to its end.
pub(super) async fn handle(worker: &Arc<Worker>, delivery: Delivery) {
    tracing::debug!(target: stage::TARGET, agent = %delivery.agent, stage = Stage::Arrive.as_str());
    match delivery.kind {
        InKind::Task | InKind::Message => submission(worker, &delivery).await,
        InKind::Result => result(worker, &delivery).await,
        InKind::Wake => match decode::from_json::<WakeBody>(&delivery.body) {
            Ok(body) => {
                let session = SessionKey { agent: delivery.agent.clone(), session: body.session };
                if let Some(job) = job_of(&session) {
                    invoked::offer(worker, &delivery.owner, &job);
                    delivery.settle.ack().await;
                    return;
                }
                let admit = Admit { owner: delivery.owner.clone(), session, event: None, lease: None };
                admitted(worker, &delivery, admit, "wake").await;
            }
            Err(error) => stray::unusable(worker, &delivery, format!("malformed wake: {error}")).await,
        },
        InKind::Cancel => orders::cancel(worker, &delivery).await,
        InKind::Pause => orders::hold(worker, &delivery, true).await,
        InKind::Resume => orders::hold(worker, &delivery, false).await,
        InKind::Decide => orders::decide(worker, &delivery).await,
    }
}

/// What only the venue sends, and whose it is.
pub(super) fn said(worker: &Worker, delivery: &Delivery, what: &str) -> Result<(Value, Sender), Box<JobResult>> {
    let mut body = body_of(decode::message(&delivery.body, MESSAGE_DEPTH), what)?;
    let Delivery { owner, agent, kind, .. } = delivery;
    let sender = seal::unsealed(&worker.venue.key, owner, agent, *kind, &mut body);
    if sender != Sender::Venue {
        body_of(decode::check(&body), what)?;
    }
    Ok((body, sender))
}

pub(super) fn body_of<T>(parsed: Result<T, Wrong>, what: &str) -> Result<T, Box<JobResult>> {
    parsed.map_err(|error| refusal(ErrorCode::Refused, format!("malformed {what}: {error}")))
}

#[expect(clippy::unnecessary_box_returns, reason = "it is the error side of the same results")]
pub(super) fn forged(what: &str) -> Box<JobResult> {
    let or = if what == "result" { ", or with the `job` and `token` of a job for an external worker" } else { "" };
    let text = format!("FORGED: a {what} counts only under the seal of the venue that sends it{or}");
    refusal(ErrorCode::Forged, text)
}

/// Who says something of a job that an agent waits for.
enum Told {
    /// The venue: how it ended.
    Venue(ResultBody),
    /// Its external worker.
    Worker(Answer),
}

/// Something about a job that an agent waits for: by the venue, or by its external worker.
async fn result(worker: &Worker, delivery: &Delivery) {
    let told = said(worker, delivery, "result").and_then(|(body, sender)| match sender {
        Sender::Venue => body_of(decode::typed::<ResultBody>(body), "result").map(Told::Venue),
        Sender::Anybody => match Answer::parse(&body) {
            Some(answer) if seal::token_fits(&worker.venue.key, &delivery.owner, &answer.job, &answer.token) => {
                Ok(Told::Worker(answer))
            }
            Some(answer) => {
                let text = format!("FORGED: the token is not that of job `{}` of `{}`", answer.job, delivery.owner);
                Err(refusal(ErrorCode::Forged, text))
            }
            None => Err(forged("result")),
        },
        Sender::Forger => Err(forged("result")),
    });
    match told {
        Ok(Told::Venue(body)) => {
            let Delivery { owner, agent, published, sequence, .. } = delivery;
            let admit = ingress::result_admission(&worker.venue.key, (owner, agent), body, *published, *sequence);
            admitted(worker, delivery, admit, "result").await;
        }
        Ok(Told::Worker(answer)) => answered(worker, delivery, answer).await,
        Err(refused) => refuse(worker, delivery, refused).await,
    }
}

/// What an external worker has said of its job.
async fn answered(worker: &Worker, delivery: &Delivery, answer: Answer) {
    let job = answer.job.clone();
    let message = id_of_place(&worker.venue.key, delivery);
    match external::answered(&worker.venue, &delivery.owner, answer, message.as_str()).await {
        Ok(Taken::Yes) => {}
        Ok(Taken::Ignored(reason)) => {
            tracing::warn!(owner = %delivery.owner, %job, reason, "answer of an external worker ignored");
        }
        Err(error) if error.is_transient() => {
            tracing::warn!(%job, %error, "answer of an external worker not taken yet");
            delivery.settle.nak(RETRY).await;
            return;
        }
        Err(error) => {
            tracing::error!(%job, %error, "answer of an external worker dropped");
            let reason = format!("the answer to job `{job}` can't be taken: {error}");
            return stray::unusable(worker, delivery, reason).await;
        }
    }
    delivery.settle.ack().await;
}

/// How long a message stays in the queue after an error of the store. Memory isn't freed in a moment.
fn pause(error: &StoreError) -> Duration {
    if matches!(error, StoreError::Full { .. }) { RETRY * 10 } else { RETRY }
}

/// The answer to a sender who isn't known, or not yet.
pub(super) async fn not_known(worker: &Worker, delivery: &Delivery, unknown: Unknown) {
    match unknown {
        Unknown::Refused(code, text) => refuse(worker, delivery, refusal(code, text)).await,
        Unknown::Later(error) => {
            tracing::warn!(%error, "not let in yet");
            delivery.settle.nak(pause(&error)).await;
        }
    }
}

/// Of a message whose producer gives no id: the same for every delivery of it, and for no other message,
/// so that every publish is new.
fn id_of_place(venue_key: &[u8], delivery: &Delivery) -> EventId {
    let Delivery { published, sequence, .. } = *delivery;
    EventId::of_venue(venue_key, IdOf::Place { published, sequence })
}

/// The admission of a submission of somebody who is known, or its terminal answer.
async fn admission(worker: &Worker, delivery: &Delivery) -> Result<Result<Admit, Box<JobResult>>, StoreError> {
    let venue = &worker.venue;
    let parsed = ingress::parse(&delivery.body).and_then(|said| {
        let (to, named, sealed) =
            ((&delivery.owner, &delivery.agent, delivery.kind), delivery.id.as_deref(), said.seal.is_some());
        let place = || id_of_place(&venue.key, delivery);
        ingress::unsealed(venue, to, named, place, said).map(|(id, said)| (id, said, sealed))
    });
    let (id, said, sealed) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return Ok(Err(refusal(error.code(), error.to_string()))),
    };
    let (submission, by, may_override) = match callers::identified(worker, delivery, sealed, said).await {
        Ok(identified) => identified,
        Err(Unknown::Refused(code, text)) => return Ok(Err(refusal(code, text))),
        Err(Unknown::Later(error)) => return Err(error),
    };
    let arrival = Arrival {
        owner: delivery.owner.clone(),
        agent: delivery.agent.clone(),
        task: delivery.kind == InKind::Task,
        id,
        submission,
        received: delivery.published,
        sequence: delivery.sequence,
        by,
        may_override,
    };
    match ingress::let_in(venue, &arrival).await? {
        Ok(admit) => Ok(Ok(admit)),
        Err(error) => {
            let refused = refusal(error.code(), error.to_string());
            if sealed && arrival.task {
                never_begun(worker, &arrival, &refused).await?;
            }
            Ok(Err(refused))
        }
    }
}

/// Ends the job that a turn has started with a task that isn't let in: the session that waits for it is told.
async fn never_begun(worker: &Worker, arrival: &Arrival, refused: &JobResult) -> Result<(), StoreError> {
    let job = JobId::derive(&worker.venue.key, &arrival.owner, &arrival.id);
    match jobs::get(&worker.venue, &arrival.owner, &job).await? {
        Some(job) if !job.status.is_terminal() => {
            jobs::end(&worker.venue, &arrival.owner, &job, refused, Vec::new()).await.map(drop)
        }
        _ => Ok(()),
    }
}

async fn submission(worker: &Worker, delivery: &Delivery) {
    let admission = match admission(worker, delivery).await {
        Ok(admission) => admission,
        Err(error) => return not_known(worker, delivery, Unknown::Later(error)).await,
    };
    match admission {
        Ok(admit) => {
            if let Err(error) = ingress::make_way(&worker.venue, &admit).await {
                return not_known(worker, delivery, Unknown::Later(error)).await;
            }
            let kind = if delivery.kind == InKind::Task { "task" } else { "message" };
            admitted(worker, delivery, admit, kind).await;
        }
        Err(refused) => {
            // It was accepted before, by a key that is gone by now: that stands, and it goes on.
            match known_session(worker, delivery, &refused).await {
                Ok(Some(session)) => {
                    let admit = Admit { owner: delivery.owner.clone(), session, event: None, lease: None };
                    admitted(worker, delivery, admit, "wake").await;
                }
                Ok(None) => refuse(worker, delivery, refused).await,
                Err(error) => {
                    tracing::warn!(%error, "submission not looked up yet");
                    delivery.settle.nak(RETRY).await;
                }
            }
        }
    }
}

/// The session of a task that is delivered again, has a job, and wouldn't be let in any more.
async fn known_session(
    worker: &Worker,
    delivery: &Delivery,
    refused: &JobResult,
) -> Result<Option<SessionKey>, StoreError> {
    let by_token = matches!(refused.error_code, Some(ErrorCode::Unauthenticated | ErrorCode::CapDenied));
    if !by_token || delivery.delivered < 2 || delivery.kind != InKind::Task {
        return Ok(None);
    }
    let key = &worker.venue.key;
    let named = delivery.id.as_deref().map_or_else(|| Ok(id_of_place(key, delivery)), EventId::new);
    let Ok(id) = named else { return Ok(None) };
    let job = JobId::derive(key, &delivery.owner, &id);
    let job = jobs::get(&worker.venue, &delivery.owner, &job).await?;
    let of = |job: Job| SessionKey { agent: job.head.agent, session: job.head.session };
    Ok(job.filter(|job| job.head.agent == delivery.agent).map(of))
}

/// Where a message that can't be served says that its answer goes, if its sender may say so: of nobody an
/// inbox that is everybody's, and that only where no tokens are required.
pub(super) fn answer_to(worker: &Worker, owner: Option<&Owner>, body: &[u8]) -> Option<String> {
    let allowed = if worker.options.auth.is_required() { reply_to_own } else { reply_to_allowed };
    let (tenant, user) = owner.map(|owner| (owner.tenant().token(), owner.user().token())).unwrap_or_default();
    reply_to(body).filter(|subject| allowed(subject, &tenant, &user))
}

/// A refused body may still say where its answer goes.
fn reply_to(body: &[u8]) -> Option<String> {
    let value = decode::message(body, MESSAGE_DEPTH).ok()?;
    value.get("replyTo")?.as_str().map(str::to_owned)
}

/// Admits an event, and runs its session where its owner has a slot for it.
async fn admitted(worker: &Worker, delivery: &Delivery, mut admit: Admit, kind: &'static str) {
    let (owner, session) = (admit.owner.clone(), admit.session.clone());
    let seat = worker.seats.take(&owner);
    admit.lease = seat.as_ref().map(|_| worker.lease_request());
    if seat.is_none() && admit.event.is_none() {
        // A wake has nothing to admit: its session stays due.
        worker.seats.pass_over(&owner, &session);
        delivery.settle.ack().await;
    } else {
        taken_in(worker, delivery, admit, kind).await;
    }
    drop(seat);
    if let Some(next) = worker.seats.next(&owner)
        && let Err(error) = worker.venue.bus.publish(&Message::wake(&owner, &next)).await
    {
        tracing::debug!(session = %next, %error, "wake not published; the sweep will");
    }
}

async fn taken_in(worker: &Worker, delivery: &Delivery, admit: Admit, kind: &'static str) {
    Stage::Admit.enter(&admit.session);
    let asked = worker.venue.clock.steady();
    let answer = match worker.venue.store.admit(worker.venue.now(), &admit).await {
        Ok(answer) => answer,
        Err(error) => {
            tracing::warn!(session = %admit.session, %error, "event not admitted yet");
            delivery.settle.nak(pause(&error)).await;
            Stage::Idle.enter(&admit.session);
            return;
        }
    };
    let metrics = &worker.venue.metrics;
    match answer.intake {
        Intake::Nothing => {}
        Intake::New => metrics.admitted(kind, "new"),
        Intake::Duplicate => {
            metrics.admitted(kind, "duplicate");
            answer_again(worker, delivery, &admit).await;
        }
        Intake::Conflict => {
            metrics.admitted(kind, "conflict");
            let text = "this id was used before with another body, caller or authority; use a new id for a new request";
            refuse(worker, delivery, refusal(ErrorCode::Conflict, text)).await;
            return;
        }
        Intake::Refused(refusal) => {
            metrics.admitted(kind, "refused");
            not_taken(worker, delivery, &admit, &refusal).await;
            return;
        }
    }
    match answer.lease {
        LeaseOutcome::Run(grant) => {
            let end = session::run(worker, *grant, asked, &*delivery.settle).await;
            settle(worker, &delivery.settle, end).await;
            Stage::Idle.enter(&admit.session);
            return;
        }
        // The first delivery is in the mailbox by now, and the session is due: its holder, or the
        // sweep, goes on. A redelivery is what brings back the session of a dead worker.
        LeaseOutcome::Busy(until) if delivery.delivered > 1 => {
            delivery.settle.nak(until.since(worker.venue.now()).max(RETRY)).await;
        }
        LeaseOutcome::NotAsked => {
            worker.seats.pass_over(&admit.owner, &admit.session);
            delivery.settle.ack().await;
        }
        LeaseOutcome::Busy(_)
        | LeaseOutcome::Empty
        | LeaseOutcome::Waiting
        | LeaseOutcome::Suspended
        | LeaseOutcome::Backoff(_) => delivery.settle.ack().await,
    }
    Stage::Idle.enter(&admit.session);
}

/// A task submitted again: when its job has ended, nothing else will answer this submission.
/// Whoever listens gets it; as with any `replyTo`, nobody may.
async fn answer_again(worker: &Worker, delivery: &Delivery, admit: &Admit) {
    let job = admit.event.as_ref().and_then(|event| event.open.as_ref()).map(|open| &open.job);
    let (Some(job), Some(subject)) = (job, reply_to(&delivery.body)) else { return };
    let answered = match jobs::get(&worker.venue, &admit.owner, job).await {
        Ok(Some(Job { head, result: Some(result), .. })) => {
            let answer = outbox::completion_again(&worker.venue.key, &head, &result, subject);
            worker.venue.bus.publish(&answer).await.map_err(|e| e.to_string())
        }
        // Its completion goes to the same subject: another one would have been a conflict.
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    };
    if let Err(error) = answered {
        tracing::warn!(%job, error, "duplicate not answered; its job can be read");
    }
}

async fn settle(worker: &Worker, settle: &Arc<dyn Settle>, end: session::End) {
    match end {
        // Beside the next session: a slot need not wait until the queue has forgotten this one.
        session::End::Idle => {
            let settle = Arc::clone(settle);
            worker.shutdown.spawn_turn("acknowledgement", async move { settle.ack().await });
        }
        session::End::Lost => settle.nak(RETRY).await,
        session::End::Failed(error) => {
            tracing::warn!(%error, "session given up for now");
            settle.nak(RETRY).await;
        }
    }
}

/// An event that the agent or its mailbox doesn't take. Of a terminated agent the refusal is a
/// job that can be read; an unknown owner gets no keys of its own. Whoever was refused because
/// too much was going on, or too much is kept, may try again under the same id, so that no job may stand there.
async fn not_taken(worker: &Worker, delivery: &Delivery, admit: &Admit, refusal: &Refusal) {
    let code = if matches!(refusal, Refusal::Quota(_)) { ErrorCode::QuotaExceeded } else { ErrorCode::Refused };
    let result = JobResult::ended(JobStatus::Rejected, code, format!("agent `{}`: {refusal}", delivery.agent));
    let event = admit.event.as_ref();
    let make = match refusal {
        Refusal::Terminated => true,
        Refusal::UnknownAgent | Refusal::MailboxFull { .. } | Refusal::Busy | Refusal::Quota(_) => false,
    };
    if let Some(open) = event.and_then(|event| event.open.as_ref())
        && let Err(error) = reject(worker, admit, open, &result, make).await
    {
        tracing::warn!(%error, "refusal not recorded yet");
        delivery.settle.nak(RETRY).await;
        return;
    }
    refuse(worker, delivery, Box::new(result)).await;
}

/// Ends the job of a refused task; with `make`, one that isn't there yet is made in that status.
/// A job that a turn has started exists before its task arrives: the session that waits for it is
/// told, or it would wait forever.
async fn reject(
    worker: &Worker,
    admit: &Admit,
    open: &NewJob,
    result: &JobResult,
    make: bool,
) -> Result<(), StoreError> {
    let finish = JobFinish {
        job: open.job.clone(),
        status: result.status,
        result: Bytes::from(serde_json::to_vec(result).expect("results serialise")),
    };
    let venue = &worker.venue;
    let head: Option<JobHead> = decode::stored(&open.head).ok();
    let key = &worker.venue.key;
    let told =
        head.filter(|head| head.parent.is_some()).map(|head| outbox::completions(key, &admit.owner, &head, result));
    let entries = told.unwrap_or_default();
    let open = make.then_some(open);
    let finished = venue.store.finish(venue.now(), &admit.owner, &admit.session, &finish, open, &entries).await?;
    if finished == Finished::Done {
        venue.relay(&admit.owner, &entries).await;
    }
    Ok(())
}

/// Publishes the terminal answer, then acknowledges: never retried, never lost without a trace.
pub(super) async fn refuse(worker: &Worker, delivery: &Delivery, result: Box<JobResult>) {
    let key = &worker.venue.key;
    let place = id_of_place(key, delivery);
    // An id that is nobody's to take isn't answered under either.
    let named = delivery.id.as_deref().and_then(|id| EventId::new(id).ok());
    let id = named.unwrap_or_else(|| place.clone());
    tracing::info!(
        owner = %delivery.owner, agent = %delivery.agent, %id,
        reason = result.error.as_deref().unwrap_or_default(),
        "submission refused"
    );
    let owner: &Owner = &delivery.owner;
    let reply_to = answer_to(worker, Some(owner), &delivery.body);
    let answers = outbox::refusal(key, (owner, &delivery.agent), &id, &place, reply_to.as_deref(), &result);
    for answer in answers {
        if let Err(error) = worker.venue.bus.publish(&answer).await {
            tracing::warn!(%error, "refusal not published yet");
            delivery.settle.nak(RETRY).await;
            return;
        }
    }
    delivery.settle.ack().await;
}
