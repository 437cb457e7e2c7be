//! `SendMessage`: a new task, an answer to what a task asks, or a message to one that works.

use super::caller::A2aCaller;
use super::error::{A2aError, A2aErrorKind};
use crate::domain::authority::ResourcePath;
use crate::domain::event::Submission;
use crate::domain::ids::{EventId, JobId, SessionId, SessionKey};
use crate::domain::job::{Job, JobHead};
use crate::http::Api;
use crate::http::extract::MAX_WAIT;
use crate::http::jobs::wait_for_end_or_question;
use crate::http::problem::Problem;
use crate::venue::a2a::input::{self, AgentInput};
use crate::venue::a2a::log::last_turn;
use crate::venue::a2a::messages::{self, TaskMessage};
use crate::venue::a2a::place::LogPlace;
use crate::venue::a2a::push::CheckedNotification;
use crate::venue::a2a::session_of;
use crate::venue::a2a::task::TaskParts;
use crate::venue::ingress::{self, Arrival, SubmissionError, SubmitError, SubmitReceipt};
use crate::venue::jobs;
use crate::view::a2a::{A2aMessage, A2aSendAnswer, A2aSendRequest, A2aTask, A2aTaskState, A2aTaskStatus};

/// All parts of a task.
pub(super) const WHOLE: TaskParts = TaskParts { history: None, artifacts: true };

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
    let reader = caller.reader(api);
    let notification = configuration.task_push_notification_config.as_ref();
    // Checked first: a message whose updates can't be sent isn't accepted.
    let notification = notification.map(|config| reader.check_notification(config)).transpose()?;
    let message = &request.message;
    let accepted = match message.task_id.as_deref().filter(|id| !id.is_empty()) {
        Some(id) => Box::pin(follow_up(api, caller, message, id)).await?,
        None => Box::pin(begin(api, caller, message)).await?,
    };
    if let Some(notification) = notification {
        notify(api, caller, &accepted, notification).await?;
    }
    Ok(accepted)
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
    let session = message.context_id.as_deref().filter(|id| !id.is_empty()).map(SessionId::new).transpose();
    let session = session.map_err(|error| A2aError::invalid(format!("`message.contextId`: {error}")))?;
    let read = caller.reader(api).input(message).await?;
    let turn = match &session {
        Some(session) => {
            let key = SessionKey { agent: agent.clone(), session: session.clone() };
            last_turn(&api.venue, caller.who.owner(), &key).await?
        }
        None => 0,
    };
    let id = caller.who.key.clone().unwrap_or_else(|| input::event_id(message));
    let submission = Submission { input: read.input.clone(), session_id: session, ..Submission::default() };
    let receipt = submit(api, caller, id, true, submission).await?;
    let missing = || A2aError::new(A2aErrorKind::Internal, "the accepted message has no task");
    let job = receipt.job.as_ref().ok_or_else(missing)?;
    let job = jobs::get(&api.venue, caller.who.owner(), job).await?.ok_or_else(missing)?;
    if receipt.duplicate {
        // Its first submission has stored the message, and its events are told from the begin.
        let from = LogPlace::behind_turn(first_turn(api, caller, &job).await?);
        let snapshot = caller.reader(api).read(&job, WHOLE).await?;
        return Ok(AcceptedMessage { head: job.head, from, snapshot });
    }
    let sent = keep(api, caller, &job.head, turn, read).await?;
    let status =
        A2aTaskStatus { state: A2aTaskState::Submitted, message: None, timestamp: Some(job.head.created.rfc3339()) };
    let snapshot = A2aTask {
        id: job.head.id.to_string(),
        context_id: job.head.session.to_string(),
        status,
        artifacts: None,
        history: Some(vec![sent]),
        metadata: None,
    };
    Ok(AcceptedMessage { head: job.head, from: LogPlace::behind_turn(turn), snapshot })
}

/// Returns the last turn of a job's session before the job.
async fn first_turn(api: &Api, caller: &A2aCaller, job: &Job) -> Result<u64, A2aError> {
    let sent = messages::list(&api.venue, caller.who.owner(), &job.head).await?;
    Ok(sent.first().map_or(0, |first| first.turn))
}

/// Continues a task: answers what it asks, or tells its agent something.
async fn follow_up(api: &Api, caller: &A2aCaller, message: &A2aMessage, id: &str) -> Result<AcceptedMessage, A2aError> {
    let reader = caller.reader(api);
    let job = reader.find(id).await?.ok_or_else(|| A2aError::no_task(id))?;
    let context = message.context_id.as_deref().filter(|id| !id.is_empty());
    if context.is_some_and(|context| context != job.head.session.as_str()) {
        return Err(A2aError::invalid("`message.contextId`: the task has another context; leave it out"));
    }
    if job.status.is_terminal() {
        return Err(ended_error(&job));
    }
    let read = reader.input(message).await?;
    let turn = last_turn(&api.venue, caller.who.owner(), &session_of(&job.head)).await?;
    let snapshot = reader.read(&job, WHOLE).await?;
    if !reader.answer(&job, message, &read.input).await? {
        tell(api, caller, message, &job, &read).await?;
    }
    keep(api, caller, &job.head, turn, read).await?;
    Ok(AcceptedMessage { head: job.head, from: LogPlace::behind_turn(turn), snapshot })
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
    let id = caller.who.key.clone().unwrap_or_else(|| input::event_id(message));
    submit(api, caller, id, false, submission).await.map(drop)
}

/// Stores a message beside its job, for the history of the task; returns it as the history has it.
async fn keep(
    api: &Api,
    caller: &A2aCaller,
    head: &JobHead,
    turn: u64,
    read: AgentInput,
) -> Result<A2aMessage, A2aError> {
    let (context_id, task_id) = (Some(head.session.to_string()), Some(head.id.to_string()));
    let message = A2aMessage { context_id, task_id, ..read.message };
    let sent = TaskMessage { at: api.venue.now(), turn, message };
    messages::store(&api.venue, caller.who.owner(), &head.id, &sent).await?;
    Ok(sent.message)
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
