//! One step of a job that stands for a task elsewhere.

use super::cancel::cancel_task;
use super::output::result_of_answer;
use crate::domain::a2a::answer::{RemoteAnswer, RemoteState};
use crate::domain::a2a::card::{RemoteCard, RemoteInterface};
use crate::domain::a2a::fault::{RemoteFaultKind, RemoteReplyError};
use crate::domain::a2a::name::{GROUP, SEND, operation_path};
use crate::domain::a2a::shared::SharedAgentIds;
use crate::domain::a2a::task::{OPERATION, RemoteStep, RemoteTask, RemoteTaskInput, message_id};
use crate::domain::authority::ResourcePath;
use crate::domain::authority::ability::INVOKE;
use crate::domain::decode;
use crate::domain::ids::Owner;
use crate::domain::job::{ErrorCode, JobHead, JobResult};
use crate::domain::lattice::Namespace;
use crate::domain::limits::{A2A_LOOK_PAUSES, A2A_SEND_TRIES};
use crate::domain::secret::Mask;
use crate::domain::time::Millis;
use crate::domain::visible::cut_error;
use crate::store::StoreError;
use crate::venue::Venue;
use crate::venue::a2a_agents::{NamedRemoteAgent, approved_card, find_remote_agent};
use crate::venue::a2a_client::{AgentPeer, KnownRemoteAgent, PeerFailure};
use crate::venue::failure::OpError;
use crate::venue::operation::Caller;
use crate::venue::operation_jobs::{
    LeasedOperation, RunCaller, RunOutcome, keep_trying, read_caller, record_remote, result_of,
};
use crate::venue::outbound::departure::Departure;
use reqwest::Url;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

/// Whether a job stands for a task elsewhere.
pub fn is_remote(head: &JobHead) -> bool {
    head.op.as_deref() == Some(OPERATION)
}

/// Runs one step of a job: sends its message, or asks for its task.
pub async fn run(venue: &Venue, owner: &Owner, held: &LeasedOperation) -> Result<RunOutcome, StoreError> {
    let Ok(input) = decode::into_type::<RemoteTaskInput>(held.head().input.clone()) else {
        return Ok(failure(ErrorCode::Internal, "the input of the job can't be read".to_owned()));
    };
    if let Some(result) = held.given_up() {
        return Ok(stop(venue, owner, held, &input, result.clone()).await);
    }
    let caller = match read_caller(venue, owner, held).await? {
        RunCaller::Permitted(caller) => caller,
        RunCaller::Revoked(result) => return Ok(stop(venue, owner, held, &input, result).await),
    };
    let opened = OpenedAgent::open(venue, owner, &caller, &input).await;
    let step = match opened {
        Ok(opened) => RemoteTaskStep { venue, owner, caller: &caller, held, input: &input, opened },
        Err(OpError::Store(error)) if error.is_transient() => return Ok(RunOutcome::Retry),
        Err(error) => return Ok(stop(venue, owner, held, &input, result_of(Err(error))).await),
    };
    Box::pin(step.take()).await
}

/// Ends a job whose agent may not be asked any more. A task that it has begun is cancelled, as far as that still can be.
async fn stop(
    venue: &Venue,
    owner: &Owner,
    held: &LeasedOperation,
    input: &RemoteTaskInput,
    result: JobResult,
) -> RunOutcome {
    let Some(remote) = held.remote() else { return RunOutcome::Ended(result) };
    let is_cancelled = cancel_task(venue, owner, input, remote).await;
    if !remote.may_have_effect(is_cancelled) {
        return RunOutcome::Ended(result);
    }
    unknown_end(&format!("A2A agent `{}`", input.agent), &result.error.unwrap_or_default())
}

fn unknown_end(agent: &str, why: &str) -> RunOutcome {
    failure(
        ErrorCode::OutcomeUnknown,
        format!(
            "outcome unknown: {agent}: {why}; the agent may or may not have begun the task, look there before you send it \
             again"
        ),
    )
}

fn failure(code: ErrorCode, text: String) -> RunOutcome {
    RunOutcome::Ended(JobResult::failure(code, cut_error(text)))
}

/// Masks the secrets that went out with a request in the end of a job.
fn mask_outcome(mask: &Mask, outcome: RunOutcome) -> RunOutcome {
    match outcome {
        RunOutcome::Ended(result) => {
            let error = result.error.map(|text| mask.text(&text).into_owned());
            let output = result.output.map(|output| mask.value(output));
            RunOutcome::Ended(JobResult { output, error, ..result })
        }
        other @ (RunOutcome::Retry | RunOutcome::Later(_)) => other,
    }
}

/// An agent elsewhere as a job may call it.
pub(super) struct OpenedAgent {
    named: NamedRemoteAgent,
    known: Arc<KnownRemoteAgent>,
}

impl OpenedAgent {
    /// Finds the agent of a job, as it is configured now. The place must be that of the call.
    pub(super) async fn find(venue: &Venue, owner: &Owner, input: &RemoteTaskInput) -> Result<Self, OpError> {
        let named = find_remote_agent(venue, owner, input.declared_by.as_ref(), &input.agent).await?;
        if named.settings().place_hash() != input.place {
            return Err(OpError::Conflict(format!(
                "the A2A agent `{}` has another `url`, other `headers` or other `keys` since the call was made, so it is \
                 not asked any more",
                input.agent
            )));
        }
        let known = named.find_known(venue)?;
        Ok(Self { named, known })
    }

    async fn open(venue: &Venue, owner: &Owner, caller: &Caller, input: &RemoteTaskInput) -> Result<Self, OpError> {
        let place = ResourcePath::at_keys(Namespace::Venue, ["ops", GROUP, input.agent.as_str(), SEND]);
        let permitted = caller.authority.permits(INVOKE, place);
        permitted.map_err(|denied| OpError::Denied(denied.model_text(&operation_path(&input.agent))))?;
        Self::find(venue, owner, input).await
    }

    /// Returns the agent as it is asked for an owner.
    pub(super) async fn peer<'a>(&'a self, venue: &'a Venue, owner: &Owner) -> Result<AgentPeer<'a>, OpError> {
        let resolved = self.known.endpoint.resolve_headers(&*venue.store, &venue.secrets, owner).await?;
        Ok(self.known.endpoint.peer(&venue.catalog.hosts, resolved))
    }

    /// Returns the address for a new task: of those that the approved card has, one at the host of the card, else the
    /// first.
    async fn choose_interface(&self, venue: &Venue) -> Result<RemoteInterface, OpError> {
        let pin = approved_card(venue, &self.named).await?;
        if pin.change.is_some() {
            return Err(OpError::Conflict(format!(
                "the card of the A2A agent `{}` has changed since it was approved, so nothing was sent: a person looks at \
                 the change with `trellis a2a agent {}` and approves it",
                pin.agent, pin.agent
            )));
        }
        let card = RemoteCard::read(&pin.card).map_err(|error| OpError::Upstream(error.to_string()))?;
        let origin = self.known.endpoint.card_url().origin();
        let is_own = |one: &&RemoteInterface| Url::parse(&one.url).is_ok_and(|url| url.origin() == origin);
        let found = card.interfaces.iter().find(is_own).or_else(|| card.interfaces.first());
        found.cloned().ok_or_else(|| OpError::Upstream("the card has no address".to_owned()))
    }
}

/// One step of a job.
struct RemoteTaskStep<'a> {
    venue: &'a Venue,
    owner: &'a Owner,
    caller: &'a Caller,
    held: &'a LeasedOperation,
    input: &'a RemoteTaskInput,
    opened: OpenedAgent,
}

impl RemoteTaskStep<'_> {
    async fn take(self) -> Result<RunOutcome, StoreError> {
        let now = self.venue.now();
        let remote = match self.held.remote() {
            Some(remote) => remote.clone(),
            None => match self.opened.choose_interface(self.venue).await {
                Ok(interface) => RemoteTask::new(interface, &self.input.message, now),
                Err(OpError::Store(error)) if error.is_transient() => return Ok(RunOutcome::Retry),
                Err(error) => return Ok(RunOutcome::Ended(result_of(Err(error)))),
            },
        };
        if now >= self.input.deadline {
            return Ok(self.give_up(&remote).await);
        }
        let peer = match self.opened.peer(self.venue, self.owner).await {
            Ok(peer) => peer,
            Err(OpError::Store(error)) if error.is_transient() => return Ok(RunOutcome::Retry),
            Err(error) => {
                let result = result_of(Err(error));
                return Ok(stop(self.venue, self.owner, self.held, self.input, result).await);
            }
        };
        let outcome = match remote.next_step(self.opened.named.settings().repeatable) {
            RemoteStep::Doubt => self.unknown_outcome("the process that sent the message ended before its answer"),
            RemoteStep::Send => self.send(&peer, remote.clone()).await?,
            RemoteStep::Ask(task) => self.ask(&peer, &remote, task).await?,
        };
        Ok(mask_outcome(&peer.resolved.mask, outcome))
    }

    /// Returns the name of the agent for errors.
    fn agent_name(&self) -> String {
        self.opened.known.endpoint.display_name()
    }

    fn unknown_outcome(&self, why: &str) -> RunOutcome {
        unknown_end(&self.agent_name(), why)
    }

    /// Sends the message. That it may leave is stored before it does.
    async fn send(&self, peer: &AgentPeer<'_>, remote: RemoteTask) -> Result<RunOutcome, StoreError> {
        let now = self.venue.now();
        let remote = RemoteTask { sending: remote.sending.or(Some(now)), ..remote };
        if !record_remote(self.venue, self.owner, self.held, &remote).await? {
            return Ok(RunOutcome::Retry);
        }
        let id = message_id(&self.held.head().id);
        let call = remote.interface.send(&self.input.message.to_protocol(&id));
        let departure = Departure::default();
        let error = match peer.ask(&remote.interface, &call, Some(&id), &departure).await {
            Ok(answer) => match RemoteAnswer::read(&answer) {
                Ok(answer) => return self.settle_first(peer, remote, answer).await,
                Err(error) => PeerFailure::Answer(error),
            },
            Err(error) => error,
        };
        match &error {
            PeerFailure::Transport(refused @ (OpError::Denied(_) | OpError::Invalid(_))) if !departure.has_left() => {
                Ok(self.refusal(ErrorCode::CapDenied, refused))
            }
            PeerFailure::Transport(_) if !departure.has_left() => self.send_later(remote, true, &error).await,
            PeerFailure::Answer(RemoteReplyError::Fault(fault)) if fault.kind == RemoteFaultKind::Busy => {
                self.send_later(remote, true, &error).await
            }
            PeerFailure::Answer(RemoteReplyError::Fault(fault)) if fault.kind.is_without_effect() => {
                Ok(self.refusal(ErrorCode::Refused, fault))
            }
            PeerFailure::Transport(_) | PeerFailure::Answer(_) => {
                if self.opened.named.settings().repeatable {
                    return self.send_later(remote, false, &error).await;
                }
                Ok(self.unknown_outcome(&error.to_string()))
            }
        }
    }

    /// Has the message sent again after a pause. `is_unsent`: nothing has reached the agent.
    async fn send_later(
        &self,
        remote: RemoteTask,
        is_unsent: bool,
        error: &PeerFailure,
    ) -> Result<RunOutcome, StoreError> {
        let failures = remote.failures.saturating_add(1);
        if failures >= A2A_SEND_TRIES {
            let text = format!("given up after {failures} tries: {error}");
            return Ok(if is_unsent {
                self.refusal(ErrorCode::LimitReached, &text)
            } else {
                self.unknown_outcome(&text)
            });
        }
        let sending = if is_unsent { self.earlier_sending() } else { remote.sending };
        let remote = RemoteTask { failures, sending, ..remote };
        tracing::debug!(owner = %self.owner, agent = %self.input.agent, %error, failures, "message to an A2A agent not sent yet");
        if !record_remote(self.venue, self.owner, self.held, &remote).await? {
            return Ok(RunOutcome::Retry);
        }
        Ok(RunOutcome::Later(remote.retry_pause()))
    }

    /// Returns the time since which an earlier try may have reached the agent; `None` if none has.
    fn earlier_sending(&self) -> Option<Millis> {
        self.held.remote().and_then(|stored| stored.sending)
    }

    /// Returns the end of a job whose message was not taken this time. What an earlier try did is not known, whatever became
    /// of this one.
    fn refusal(&self, code: ErrorCode, why: &dyn Display) -> RunOutcome {
        match self.earlier_sending() {
            Some(_) => self.unknown_outcome(&why.to_string()),
            None => failure(code, format!("{}: {why}", self.agent_name())),
        }
    }

    /// Takes the answer to the message. A task that the message answers may still show the question of before.
    async fn settle_first(
        &self,
        peer: &AgentPeer<'_>,
        remote: RemoteTask,
        answer: RemoteAnswer,
    ) -> Result<RunOutcome, StoreError> {
        let is_old = self.input.message.task.is_some()
            && matches!(answer.state, RemoteState::InputRequired | RemoteState::AuthRequired);
        let is_settled = answer.state.is_settled() && !is_old;
        let Some(task) = answer.task.clone() else {
            return if is_settled {
                self.end(peer, answer).await
            } else {
                Ok(self.unknown_outcome("its answer names no task"))
            };
        };
        // Before the end: after a crash in between the task is asked for, and the message isn't sent again.
        let remote = RemoteTask { task: Some(task), begun: self.venue.now(), failures: 0, ..remote };
        if !self.keep_task(&remote).await? {
            return Ok(RunOutcome::Retry);
        }
        if is_settled { self.end(peer, answer).await } else { Ok(RunOutcome::Later(A2A_LOOK_PAUSES.0)) }
    }

    /// Stores the id of a new task, with retries: only this worker knows it. `false` if the lease is lost.
    async fn keep_task(&self, remote: &RemoteTask) -> Result<bool, StoreError> {
        keep_trying(|| record_remote(self.venue, self.owner, self.held, remote)).await
    }

    /// Asks for the task.
    async fn ask(&self, peer: &AgentPeer<'_>, remote: &RemoteTask, task: &str) -> Result<RunOutcome, StoreError> {
        let call = remote.interface.get(task);
        let read = match peer.ask(&remote.interface, &call, None, &Departure::default()).await {
            Ok(answer) => RemoteAnswer::read_task(&answer).map_err(PeerFailure::Answer),
            Err(error) => Err(error),
        };
        let error = match read {
            Ok(answer) if answer.state.is_settled() => return self.end(peer, answer).await,
            Ok(_) => {
                let pause = remote.look_pause(self.venue.now());
                let seen = RemoteTask { failures: 0, ..remote.clone() };
                let is_new = self.held.remote() != Some(&seen);
                if is_new && !record_remote(self.venue, self.owner, self.held, &seen).await? {
                    return Ok(RunOutcome::Retry);
                }
                return Ok(RunOutcome::Later(self.limit_to_deadline(pause)));
            }
            Err(error) => error,
        };
        let is_final = match &error {
            PeerFailure::Transport(error) => matches!(error, OpError::Denied(_) | OpError::Invalid(_)),
            PeerFailure::Answer(RemoteReplyError::Fault(fault)) => !fault.kind.may_pass(),
            PeerFailure::Answer(RemoteReplyError::Data(_) | RemoteReplyError::Form(_)) => false,
        };
        if is_final {
            let shown = self.shown_id(task);
            let why = format!("task `{shown}`: {error}");
            return Ok(self.end_unanswered(remote, false, ErrorCode::TaskFailed, &why));
        }
        let remote = RemoteTask { failures: remote.failures.saturating_add(1), ..remote.clone() };
        tracing::debug!(owner = %self.owner, agent = %self.input.agent, %error, "an A2A agent doesn't tell of its task yet");
        if !record_remote(self.venue, self.owner, self.held, &remote).await? {
            return Ok(RunOutcome::Retry);
        }
        Ok(RunOutcome::Later(self.limit_to_deadline(remote.retry_pause())))
    }

    fn limit_to_deadline(&self, pause: Duration) -> Duration {
        pause.min(self.input.deadline.elapsed_since(self.venue.now()))
    }

    async fn end(&self, peer: &AgentPeer<'_>, answer: RemoteAnswer) -> Result<RunOutcome, StoreError> {
        let shown = |id: Option<String>| id.map(|id| self.shown_id(&id));
        let answer = RemoteAnswer { task: shown(answer.task), context: shown(answer.context), ..answer };
        let ended = result_of_answer(self.venue, self.caller, self.input, &peer.resolved.mask, &answer).await;
        ended.map(RunOutcome::Ended)
    }

    /// Returns an id of the agent as the caller is shown it, and may name it again.
    fn shown_id(&self, id: &str) -> String {
        if !self.opened.named.is_shared() {
            return id.to_owned();
        }
        let RemoteTaskInput { agent, place, .. } = self.input;
        SharedAgentIds { key: &self.venue.key, owner: self.owner, agent, place }.show(id)
    }

    /// Ends a job whose time is over.
    async fn give_up(&self, remote: &RemoteTask) -> RunOutcome {
        let Some(task) = &remote.task else {
            let why = "its time is over, and no answer has come";
            return self.end_unanswered(remote, false, ErrorCode::Timeout, why);
        };
        let is_cancelled = cancel_task(self.venue, self.owner, self.input, remote).await;
        let told = if is_cancelled {
            "the agent was asked to cancel it"
        } else {
            "the agent could not be asked to cancel it, so it may go on"
        };
        let task = self.shown_id(task);
        let why = format!("task `{task}` did not end in time (`deadline`); {told}");
        self.end_unanswered(remote, is_cancelled, ErrorCode::Timeout, &why)
    }

    /// Returns the end of a job without an answer of the agent.
    fn end_unanswered(&self, remote: &RemoteTask, is_cancelled: bool, code: ErrorCode, why: &str) -> RunOutcome {
        if remote.may_have_effect(is_cancelled) {
            return self.unknown_outcome(why);
        }
        failure(code, format!("{}: {why}", self.agent_name()))
    }
}
