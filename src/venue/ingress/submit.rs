//! A direct submission: it is stored at once, and its job can be read with the answer.

use super::error::{PreparationError, SubmissionError};
use super::{AdmittedEvent, Arrival, admit, end_admit_span, ignored_keys, prepare_admission};
use crate::domain::authority::grant;
use crate::domain::ids::{AgentId, EventId, JobId, SessionKey};
use crate::domain::limits::SUBMISSION_BYTES;
use crate::store::{Intake, Refusal, StoreError};
use crate::venue::Venue;
use crate::venue::local_worker::HandoverOutcome;

/// Answer to a direct submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmitReceipt {
    /// Job of a task; `None` for a message.
    pub job: Option<JobId>,
    /// Session that serves it.
    pub session: SessionKey,
    /// Event id that the producer chose.
    pub id: EventId,
    /// Whether the same submission was accepted before.
    pub duplicate: bool,
    /// Ignored keys of the `sessionContext`, which the token claims.
    pub ignored: Vec<String>,
    /// Abilities of the grants that nothing needs, each as a warning.
    pub warnings: Vec<String>,
}

/// Why a direct submission was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// The submission is invalid.
    #[error(transparent)]
    Submission(#[from] SubmissionError),
    /// The agent or its session refuses it.
    #[error("agent `{agent}`: {refusal}")]
    Refused {
        /// Name of the agent.
        agent: AgentId,
        /// Reason of the refusal.
        refusal: Refusal,
    },
    /// The id was used before with another body, caller or authority. The error doesn't disclose which.
    #[error(
        "submission `{0}` was accepted before with another body, caller or authority; use a new id for a new request"
    )]
    Conflict(EventId),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<PreparationError> for SubmitError {
    fn from(error: PreparationError) -> Self {
        match error {
            PreparationError::Submission(error) => Self::Submission(error),
            PreparationError::Store(error) => Self::Store(error),
        }
    }
}

/// Accepts a submission into the store at once, and runs it here if a slot is free, else wakes a worker. The job can be
/// read at once; if the wake is lost, the session is due within 5 s.
pub async fn submit(venue: &Venue, arrival: &Arrival) -> Result<SubmitReceipt, SubmitError> {
    let bytes = serde_json::to_vec(&arrival.submission).map_or(0, |b| b.len());
    if bytes > SUBMISSION_BYTES {
        return Err(SubmissionError::TooLarge { bytes, limit: SUBMISSION_BYTES }.into());
    }
    let span = venue.tracer.start();
    let request = prepare_admission(venue, arrival).await?;
    let session = request.session.clone();
    let job = request.event.as_ref().and_then(|event| event.open.as_ref()).map(|open| open.job.clone());
    let (intake, is_asked) = match venue.local.admit(request).await {
        HandoverOutcome::Stored(intake) => (intake?, true),
        HandoverOutcome::Returned(mut request) => (admit(venue, &mut request).await?.intake, false),
    };
    let (owner, sent, outcome) = (&arrival.owner, arrival.trace, &intake);
    end_admit_span(venue, span, AdmittedEvent { owner, session: &session, id: &arrival.id, sent, outcome });
    let kind = if arrival.task { "task" } else { "message" };
    let duplicate = match intake {
        Intake::New | Intake::Nothing | Intake::ReplaceRunning => false,
        Intake::Duplicate => true,
        Intake::Conflict => {
            venue.metrics.count_admitted(kind, "conflict");
            return Err(SubmitError::Conflict(arrival.id.clone()));
        }
        Intake::Refused(refusal) => {
            venue.metrics.count_admitted(kind, "refused");
            return Err(SubmitError::Refused { agent: arrival.agent.clone(), refusal });
        }
    };
    venue.metrics.count_admitted(kind, if duplicate { "duplicate" } else { "new" });
    if !duplicate && !is_asked {
        venue.wake(&arrival.owner, &session).await;
    }
    let (id, ignored) = (arrival.id.clone(), ignored_keys(arrival));
    let warnings = arrival.submission.context.as_deref().map(grant::unknown_abilities).unwrap_or_default();
    Ok(SubmitReceipt { job, session, id, duplicate, ignored, warnings })
}
