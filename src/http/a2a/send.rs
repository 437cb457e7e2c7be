//! `SendMessage`: a new task, an answer to what a task asks, or a message to one that works.

use super::caller::A2aCaller;
use super::error::{A2aError, A2aErrorKind};
use crate::domain::authority::ResourcePath;
use crate::domain::event::Submission;
use crate::domain::ids::{EventId, JobId, SessionId, SessionKey, sha256_hex};
use crate::domain::job::{Job, JobHead};
use crate::domain::time::Millis;
use crate::domain::visible::quote_foreign;
use crate::http::Api;
use crate::http::extract::MAX_WAIT;
use crate::http::jobs::wait_for_end_or_question;
use crate::http::problem::Problem;
use crate::venue::a2a::answer::PreparedAnswer;
use crate::venue::a2a::input::{self, AgentInput, OUTPUT_TYPES};
use crate::venue::a2a::log::last_turn;
use crate::venue::a2a::messages::{self, TaskMessage};
use crate::venue::a2a::place::LogPlace;
use crate::venue::a2a::push::CheckedNotification;
use crate::venue::a2a::reader::TaskReader;
use crate::venue::a2a::session_of;
use crate::venue::a2a::task::TaskParts;
use crate::venue::ingress::{self, Arrival, SubmissionError, SubmitError, SubmitReceipt};
use crate::venue::jobs;
use crate::venue::operation::OpError;
use crate::view::a2a::{
    A2aMessage, A2aNotificationConfig, A2aSendAnswer, A2aSendRequest, A2aTask, A2aTaskState, A2aTaskStatus,
};

/// All parts of a task.
pub(super) const WHOLE: TaskParts = TaskParts { history: None, artifacts: true };

/// Hexadecimal digits of the id of a push notification that its client didn't name.
const NAME_DIGITS: usize = 32;

/// A message that was accepted.
pub(super) struct AcceptedMessage {
    /// Head of the job that it began or continued.
    pub(super) head: JobHead,
    /// Place in the log of the task before it.
    pub(super) from: LogPlace,
    /// The task as it was before its agent has read the message.
    pub(super) snapshot: A2aTask,
}

/// Returns a length as the number of messages.
pub(super) fn most_messages(length: Option<u32>) -> Option<usize> {
    length.map(|length| usize::try_from(length).unwrap_or(usize::MAX))
}

/// Sends a message, and waits until its task has ended or asks for something, unless the client wants the answer at
/// once. The wait has an end: then the task is returned as it is.
pub(super) async fn send(api: &Api, caller: &A2aCaller, request: &A2aSendRequest) -> Result<A2aSendAnswer, A2aError> {
    let accepted = accept(api, caller, request).await?;
    let configuration = request.configuration.clone().unwrap_or_default();
    let (reader, id) = (caller.reader(api), &accepted.head.id);
    let job = if configuration.return_immediately == Some(true) {
        jobs::get(&api.venue, caller.who.owner(), id).await?
    } else {
        wait_for_end_or_question(api, &caller.who, id, MAX_WAIT).await?
    };
    let job = job.ok_or_else(|| A2aError::no_task(id.as_str()))?;
    if let Some(message) = reader.direct_message(&job).await? {
        return Ok(A2aSendAnswer::Message(message));
    }
    let parts = TaskParts { history: most_messages(configuration.history_length), artifacts: true };
    Ok(A2aSendAnswer::Task(reader.read(&job, parts).await?))
}

/// Accepts a message: after it, it is durable, and so is the push notification that came with it.
pub(super) async fn accept(
    api: &Api,
    caller: &A2aCaller,
    request: &A2aSendRequest,
) -> Result<AcceptedMessage, A2aError> {
    let configuration = request.configuration.clone().unwrap_or_default();
    check_output_types(configuration.accepted_output_modes.as_deref().unwrap_or_default())?;
    let reader = caller.reader(api);
    let message = &request.message;
    let notification = configuration.task_push_notification_config.map(|config| with_default_id(message, config));
    // Checked first: a message whose updates can't be sent isn't accepted.
    let notification = notification.map(|config| reader.check_notification(&config)).transpose()?;
    let accepted = match message.task() {
        Some(id) => Box::pin(follow_up(api, caller, message, id)).await?,
        None => Box::pin(begin(api, caller, message)).await?,
    };
    if let Some(notification) = notification {
        notify(api, caller, &accepted, notification).await?;
    }
    Ok(accepted)
}

/// Refuses a message whose client reads none of the types that outputs have.
fn check_output_types(accepted: &[String]) -> Result<(), A2aError> {
    if accepted.is_empty() || OUTPUT_TYPES.iter().any(|kind| accepted.iter().any(|range| is_in_range(kind, range))) {
        return Ok(());
    }
    let found: Vec<String> = accepted.iter().take(10).map(|kind| format!("`{}`", quote_foreign(kind))).collect();
    let text = format!(
        "`configuration.acceptedOutputModes`: outputs are `{}`, and the client reads {}",
        OUTPUT_TYPES.join("` and `"),
        found.join(", ")
    );
    Err(A2aError::new(A2aErrorKind::ContentTypeNotSupported, text))
}

/// Whether a media type is in a range such as `text/*`; a range without a subtype, as older clients write it, has all.
fn is_in_range(kind: &str, range: &str) -> bool {
    let range = range.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let group = kind.split('/').next().unwrap_or_default();
    range == kind || range == "*/*" || range == "*" || range == group || range.strip_suffix("/*") == Some(group)
}

/// Names a push notification that has no id by its message: a message that comes again sets no second one.
fn with_default_id(message: &A2aMessage, config: A2aNotificationConfig) -> A2aNotificationConfig {
    let given = config.id.filter(|id| !id.is_empty());
    let id = given.unwrap_or_else(|| sha256_hex(message.message_id.as_bytes())[..NAME_DIGITS].to_owned());
    A2aNotificationConfig { id: Some(id), ..config }
}

async fn notify(
    api: &Api,
    caller: &A2aCaller,
    accepted: &AcceptedMessage,
    notification: CheckedNotification,
) -> Result<(), A2aError> {
    let id = &accepted.head.id;
    let job = jobs::get(&api.venue, caller.who.owner(), id).await?.ok_or_else(|| A2aError::no_task(id.as_str()))?;
    let token_owner = caller.who.token_owner.as_ref();
    caller.reader(api).set_notification(&job, notification, accepted.from, token_owner).await?;
    Ok(())
}

/// Begins a task, in a new context or in that of the message.
async fn begin(api: &Api, caller: &A2aCaller, message: &A2aMessage) -> Result<AcceptedMessage, A2aError> {
    let agent = &caller.agent.id;
    caller.permit("agent/request", ResourcePath::agent(agent), "`SendMessage`")?;
    let session = message.context().map(SessionId::new).transpose();
    let session = session.map_err(|error| A2aError::invalid(format!("`message.contextId`: {error}")))?;
    let read = caller.reader(api).input(message).await?;
    let turn = match &session {
        Some(session) => {
            let key = SessionKey { agent: agent.clone(), session: session.clone() };
            last_turn(&api.venue, caller.who.owner(), &key).await?
        }
        None => 0,
    };
    let id = submission_id(caller, message);
    let submission = Submission { input: read.input.clone(), session_id: session, ..Submission::default() };
    let receipt = submit(api, caller, id, true, submission).await?;
    let missing = || A2aError::new(A2aErrorKind::Internal, "the accepted message has no task");
    let job = receipt.job.as_ref().ok_or_else(missing)?;
    let job = jobs::get(&api.venue, caller.who.owner(), job).await?.ok_or_else(missing)?;
    if receipt.duplicate {
        return accept_repeated(api, caller, job, read).await;
    }
    // Not the present: the agent may have answered by now, and its answer comes later.
    let at = SentAt { at: job.head.created, turn, begins: true, answers: None };
    let sent = keep(api, caller, &job.head, at, read).await?;
    let status =
        A2aTaskStatus { state: A2aTaskState::Submitted, message: None, timestamp: Some(job.head.created.rfc3339()) };
    let snapshot = A2aTask {
        id: job.head.id.to_string(),
        context_id: job.head.session.to_string(),
        status,
        artifacts: None,
        history: Some(vec![sent.message]),
        metadata: None,
    };
    Ok(AcceptedMessage { head: job.head, from: LogPlace::behind_turn(turn), snapshot })
}

/// Returns the task of a message that came again; its events are told from the begin. If the process that accepted the
/// message died before it had stored it, it is stored now, unless the job's input was erased.
async fn accept_repeated(
    api: &Api,
    caller: &A2aCaller,
    job: Job,
    read: AgentInput,
) -> Result<AcceptedMessage, A2aError> {
    let first = messages::find_first(&api.venue, caller.who.owner(), &job.head.id).await?;
    let turn = first.as_ref().map_or(0, |first| first.turn);
    if first.is_none() && job.head.input == read.input {
        let at = SentAt { at: job.head.created, turn, begins: true, answers: None };
        keep(api, caller, &job.head, at, read).await?;
    }
    let snapshot = caller.reader(api).read(&job, WHOLE).await?;
    Ok(AcceptedMessage { head: job.head, from: LogPlace::behind_turn(turn), snapshot })
}

/// Continues a task: answers what it asks, or tells its agent something.
async fn follow_up(api: &Api, caller: &A2aCaller, message: &A2aMessage, id: &str) -> Result<AcceptedMessage, A2aError> {
    let reader = caller.reader(api);
    let job = reader.find(id).await?.ok_or_else(|| A2aError::no_task(id))?;
    if message.context().is_some_and(|context| context != job.head.session.as_str()) {
        return Err(A2aError::invalid("`message.contextId`: the task has another context; leave it out"));
    }
    let read = reader.input(message).await?;
    let snapshot = reader.read(&job, WHOLE).await?;
    // Before anything else: a message that was accepted may have answered the question, or ended the task.
    if let Some(sent) = reader.find_sent(&job, &read.message).await? {
        if let Some(approval) = sent.answers.as_ref().filter(|_| !job.status.is_terminal()) {
            // The process may have died before it gave the answer.
            let answer = reader.read_answer_again(approval, message, &read.input).await?;
            give(&reader, answer).await?;
        }
        return Ok(AcceptedMessage { head: job.head, from: LogPlace::behind_turn(sent.turn), snapshot });
    }
    if job.status.is_terminal() {
        return Err(ended_error(&job));
    }
    let turn = last_turn(&api.venue, caller.who.owner(), &session_of(&job.head)).await?;
    let answer = reader.read_answer(&job, message, &read.input).await?;
    if answer.is_none() {
        tell(api, caller, message, &job, &read).await?;
    }
    let answers = answer.as_ref().map(|answer| answer.approval.clone());
    let sent = keep(api, caller, &job.head, SentAt { at: api.venue.now(), turn, begins: false, answers }, read).await?;
    if let Err(error) = give(&reader, answer).await {
        // After a failure of the store nobody knows whether it is given: the same message finds out.
        if !matches!(error, OpError::Store(_)) {
            messages::remove(&api.venue, caller.who.owner(), &job.head.id, &sent).await?;
        }
        return Err(error.into());
    }
    Ok(AcceptedMessage { head: job.head, from: LogPlace::behind_turn(turn), snapshot })
}

async fn give(reader: &TaskReader<'_>, answer: Option<PreparedAnswer>) -> Result<(), OpError> {
    match answer {
        Some(answer) => reader.give_answer(answer).await,
        None => Ok(()),
    }
}

fn ended_error(job: &Job) -> A2aError {
    let (id, status) = (&job.head.id, job.status.as_str());
    let text = format!("task `{id}` is {status} and takes no message; send one without `taskId` in its context");
    A2aError::new(A2aErrorKind::UnsupportedOperation, text)
}

/// Sends a message to an open job, which reads it in its next turn.
async fn tell(
    api: &Api,
    caller: &A2aCaller,
    message: &A2aMessage,
    job: &Job,
    read: &AgentInput,
) -> Result<(), A2aError> {
    caller.permit("job/message", ResourcePath::job(&job.head.id), "a message to a task")?;
    let submission = Submission {
        input: read.input.clone(),
        session_id: Some(job.head.session.clone()),
        job: Some(job.head.id.clone()),
        ..Submission::default()
    };
    submit(api, caller, submission_id(caller, message), false, submission).await.map(drop)
}

/// Returns the id of the submission of a message: the client's key, or one that follows from the message.
fn submission_id(caller: &A2aCaller, message: &A2aMessage) -> EventId {
    let made = || input::event_id(message, &caller.agent.id, &caller.who.caller.principal);
    caller.who.key.clone().unwrap_or_else(made)
}

/// Place of a message among those of its task.
struct SentAt {
    at: Millis,
    /// Last turn of the session before it.
    turn: u64,
    /// Whether the task was made of it.
    begins: bool,
    /// Approval that it answers.
    answers: Option<JobId>,
}

/// Stores a message beside its job, for the history of the task; returns it as it is stored.
async fn keep(
    api: &Api,
    caller: &A2aCaller,
    head: &JobHead,
    SentAt { at, turn, begins, answers }: SentAt,
    read: AgentInput,
) -> Result<TaskMessage, A2aError> {
    let (context_id, task_id) = (Some(head.session.to_string()), Some(head.id.to_string()));
    let message = A2aMessage { context_id, task_id, ..read.message };
    let sent = TaskMessage { at, turn, begins, answers, message };
    messages::store(&api.venue, caller.who.owner(), &head.id, &sent).await?;
    Ok(sent)
}

async fn submit(
    api: &Api,
    caller: &A2aCaller,
    id: EventId,
    task: bool,
    submission: Submission,
) -> Result<SubmitReceipt, A2aError> {
    let who = &caller.who;
    let envelope = who.caller.request_envelope();
    let arrival = Arrival {
        owner: who.owner().clone(),
        agent: caller.agent.id.clone(),
        task,
        id,
        submission: Submission { envelope, caller: Some(who.caller.name.clone()), ..submission },
        received: api.venue.now(),
        sequence: 0,
        by: who.caller.principal.clone(),
        may_override: who.may_override,
        trace: who.trace,
    };
    ingress::submit(&api.venue, &arrival).await.map_err(|error| match error {
        SubmitError::Submission(error @ SubmissionError::NotOpen { .. }) => {
            A2aError::new(A2aErrorKind::UnsupportedOperation, error)
        }
        error => Problem::from(error).into(),
    })
}

/// Checks that a text may be the id of a task; another text names none.
pub(super) fn task_id(text: Option<&str>) -> Result<JobId, A2aError> {
    let text =
        text.filter(|text| !text.is_empty()).ok_or_else(|| A2aError::invalid("`id`: expected the id of a task"))?;
    JobId::new(text).map_err(|_| A2aError::no_task(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_reads_no_output_is_refused() {
        for (accepted, is_taken) in [
            (vec![], true),
            (vec!["text/plain"], true),
            (vec!["image/png", "Application/JSON; charset=utf-8"], true),
            (vec!["text/*"], true),
            (vec!["*/*"], true),
            (vec!["text"], true),
            (vec!["image/png"], false),
            (vec!["text/html", "audio/*", ""], false),
        ] {
            let given: Vec<String> = accepted.iter().map(|kind| (*kind).to_owned()).collect();
            assert_eq!(check_output_types(&given).is_ok(), is_taken, "{accepted:?}");
        }
    }
}
