//! The answer to a task that was submitted again: its completion, once more or as soon as there is one.

use crate::domain::ids::{JobId, Owner};
use crate::domain::job::Job;
use crate::venue::{Venue, jobs, outbox};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// How long the end of a job is waited for whose task was submitted again with another `replyTo`. Who is answered with
/// nothing by then submits it once more.
const ANSWER_TIME: Duration = Duration::from_mins(10);

/// Ends of jobs that a process waits for at once.
static AWAITED_ENDS: Semaphore = Semaphore::const_new(256);

/// Sends the completion of a job to whoever has submitted its task again: nothing else would answer it. Of a job that
/// has not ended, its end is waited for, unless its completion goes to that subject anyway. As with any `replyTo`, nobody
/// may listen.
pub async fn repeat_answer(venue: &Arc<Venue>, owner: &Owner, job: &JobId, reply_to: String) {
    match jobs::get(venue, owner, job).await {
        Ok(Some(known)) if known.result.is_some() => answer(venue, owner, known, reply_to).await,
        Ok(Some(known)) if known.head.reply_to.as_ref() != Some(&reply_to) => {
            let Ok(permit) = AWAITED_ENDS.try_acquire() else {
                tracing::warn!(%job, "duplicate not answered: too many wait for the ends of jobs; its job can be read");
                return;
            };
            let (venue, owner, job) = (Arc::clone(venue), owner.clone(), job.clone());
            tokio::spawn(async move {
                let _permit = permit;
                match jobs::wait(&venue, &owner, &job, ANSWER_TIME).await {
                    Ok(Some(ended)) => answer(&venue, &owner, ended, reply_to).await,
                    Ok(None) => {}
                    Err(error) => tracing::warn!(%job, %error, "duplicate not answered; its job can be read"),
                }
            });
        }
        Ok(_) => {}
        Err(error) => tracing::warn!(%job, %error, "duplicate not answered; its job can be read"),
    }
}

/// Sends the completion of a job; one that has not ended has none.
async fn answer(venue: &Venue, owner: &Owner, job: Job, reply_to: String) {
    let Job { head, result: Some(result), .. } = job else { return };
    let answer = outbox::repeat_completion(&venue.key, &head, &result, reply_to);
    if let Err(error) = outbox::publish_shortened(&*venue.bus, &venue.key, owner, &answer).await {
        tracing::warn!(job = %head.id, %error, "duplicate not answered; its job can be read");
    }
}
