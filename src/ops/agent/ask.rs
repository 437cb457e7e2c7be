//! Requests, messages and chats, from a turn or from outside.
//!
//! From a turn they are effects: written under ids that are a function of the turn, fenced by its
//! lease, so that a turn that is run again starts nothing twice.

use super::{agent_id, no_agent};
use crate::domain::agent::AgentStatus;
use crate::domain::authority::envelope::Envelope;
use crate::domain::authority::{ResourcePath, grant};
use crate::domain::budget::Budget;
use crate::domain::chat::ChatMessage;
use crate::domain::decode;
use crate::domain::event::{Submission, fresh_session};
use crate::domain::ids::{AgentId, EventId, JobId, SessionId, SessionKey, hmac_hex};
use crate::domain::job::Job;
use crate::domain::limits::{CHILD_WAIT, LIST_BYTES, MESSAGE_DEPTH, SUBMISSION_BYTES};
use crate::domain::message::{Address, InKind, Message};
use crate::domain::outputs;
use crate::domain::principal::Principal;
use crate::domain::priority::Priority;
use crate::domain::scope::{Delegate, Handed, ScopedSection};
use crate::domain::seal;
use crate::domain::session::TurnRecord;
use crate::domain::turn::options;
use crate::ingress::{self, Arrival, SubmitError};
use crate::ops::child::{self, MAX_TIMEOUT, call_id, millis, still_running, with_handed};
use crate::store::{NewJob, Refusal, StoreError, keys, steps};
use crate::venue::agents;
use crate::venue::jobs;
use crate::venue::operation::{Caller, Invocation, OpError, Output, Site, TurnSite};
use serde_json::{Value, json};
use std::time::Duration;

/// How long a caller outside turns waits when it names no `timeout`: under the 30 s after which
/// common HTTP clients hang up.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(25);
/// Pause between two looks for the reply of a chat.
const CHAT_POLL: Duration = Duration::from_millis(50);

fn session_of(arguments: &Value) -> Result<Option<SessionId>, OpError> {
    match arguments["sessionId"].as_str() {
        None => Ok(None),
        Some(text) => SessionId::new(text).map(Some).map_err(|e| OpError::Invalid(e.to_string())),
    }
}

/// `agent/request`.
pub(super) async fn request(call: &Invocation<'_>, arguments: &Value) -> Result<Output, OpError> {
    let agent = agent_id(arguments)?;
    let submission = submission(call, arguments, "input")?;
    let left_at = submission.output_path.as_deref().and_then(|path| options::output_path(path).ok());
    let (job, wait) = match &call.site {
        Site::Turn(site) => {
            let submission = Submission { handed: handed(site), ..submission };
            let job = start_child(call, site, &agent, submission).await?;
            (job, millis(arguments, "wait", CHILD_WAIT))
        }
        Site::Api { key } => {
            let submitted = submit(call, key.clone(), &agent, true, submission).await?;
            let job = submitted.job.ok_or_else(|| OpError::Failed("a task without a job".into()))?;
            (job, millis(arguments, "timeout", DEFAULT_TIMEOUT))
        }
    };
    if let Some(path) = left_at {
        // Its output will be there, whether or not this call waits for it.
        call.reads.kept(ResourcePath::job(&job), format!("j/{job}/output"));
        call.reads.went(&[path.to_string()]);
    }
    let known = jobs::wait(call.venue, &call.caller.owner, &job, wait).await?;
    let ignored = known.as_ref().map(|job| job.head.ignored.clone()).unwrap_or_default();
    let ended = known.filter(|job| job.status.is_terminal());
    if ended.is_some() {
        call.reads.kept(ResourcePath::job(&job), format!("j/{job}/output"));
    }
    match (&call.site, ended) {
        (_, Some(done)) => Ok(answer(&agent, &done).into()),
        (Site::Turn(site), None) => Ok(still_running(site, json!({"agentId": agent}), job)),
        (Site::Api { .. }, None) => {
            let started = json!({"agentId": agent, "id": job, "job": job, "status": "STARTED"});
            Ok(with_ignored(started, &ignored).into())
        }
    }
}

/// A call of a delegate: a child job, which knows of its caller's context what it is handed.
pub(crate) async fn delegate(call: &Invocation<'_>, to: &Delegate, arguments: Value) -> Result<Output, OpError> {
    let Site::Turn(site) = &call.site else {
        return Err(OpError::Conflict("only a turn can delegate".into()));
    };
    let own = || site.lease.session.agent.clone();
    let agent = to.agent.clone().unwrap_or_else(own);
    if to.agent.is_some() {
        let (ability, resource) = request_needs(&agent);
        let permitted = call.caller.authority.permits(ability, resource);
        permitted.map_err(|denied| OpError::Denied(denied.text(call.named)))?;
    }
    let anonymous = to.agent.is_none().then(|| to.prompt.clone());
    let submission = Submission {
        input: arguments,
        caller: Some(call.caller.name.clone()),
        envelope: handed_on(call, site, None)?,
        handed: Handed { anonymous, ..handed(site) },
        ..Submission::default()
    };
    let job = start_child(call, site, &agent, submission).await?;
    let wait = to.wait.map_or(CHILD_WAIT, Duration::from_millis).min(MAX_TIMEOUT);
    let done = jobs::wait(call.venue, &call.caller.owner, &job, wait).await?;
    if let Some(done) = done.filter(|job| job.status.is_terminal()) {
        call.reads.kept(ResourcePath::job(&job), format!("j/{job}/output"));
        let answer = answer(&agent, &done);
        let nothing_went = site.handed.iter().all(|section| section.missing.is_some());
        return Ok(if nothing_went { with_handed(answer, site) } else { answer }.into());
    }
    Ok(still_running(site, json!({"agentId": agent}), job))
}

/// What of its turn's context a child of a call gets.
fn handed(site: &TurnSite<'_>) -> Handed {
    Handed { scoped: site.handed.iter().filter_map(ScopedSection::handed).collect(), anonymous: None }
}

/// An answer with the keys of a `sessionContext` that counted for nothing.
pub(crate) fn with_ignored(mut answer: Value, ignored: &[String]) -> Value {
    if !ignored.is_empty() {
        answer["ignored"] = json!({"sessionContext": ignored});
    }
    answer
}

/// Ability and resource that a request to an agent needs.
pub(crate) fn request_needs(agent: &AgentId) -> (&'static str, ResourcePath) {
    ("agent/request", ResourcePath::agent(agent))
}

/// What is sent, under no more authority than the caller's.
pub(crate) fn submission(call: &Invocation<'_>, arguments: &Value, content: &str) -> Result<Submission, OpError> {
    let named = arguments["context"].as_array();
    let (grants, envelope) = match &call.site {
        Site::Api { .. } => (named.cloned(), call.caller.request()),
        Site::Turn(site) => (None, handed_on(call, site, named.map(Vec::as_slice))?),
    };
    Ok(Submission {
        input: arguments[content].clone(),
        session_id: session_of(arguments)?,
        caller: Some(call.caller.name.clone()),
        session_context: arguments["sessionContext"].as_object().cloned().unwrap_or_default(),
        context_ids: decode::typed(arguments["contextIds"].clone()).unwrap_or_default(),
        context: grants,
        envelope,
        budget: budget(&arguments["budget"])?,
        response_schema: response_schema(arguments)?,
        loads: options::loads(&arguments["loads"]).map_err(|error| OpError::Invalid(format!("`loads`: {error}")))?,
        priority: priority(arguments)?,
        output_path: arguments["outputPath"].as_str().map(str::to_owned),
        ..Submission::default()
    })
}

fn priority(arguments: &Value) -> Result<Priority, OpError> {
    let named = &arguments["priority"];
    if named.is_null() {
        return Ok(Priority::Normal);
    }
    decode::typed(named.clone()).map_err(|error| OpError::Invalid(format!("`priority`: {error}")))
}

fn response_schema(arguments: &Value) -> Result<Option<Value>, OpError> {
    let named = &arguments["responseSchema"];
    match (named.is_null(), arguments["strict"].as_bool()) {
        (true, Some(true)) => return Err(OpError::Invalid("`strict`: expected `responseSchema` with it".into())),
        (true, _) => return Ok(None),
        (false, Some(false)) => {
            let why = "`strict`: an output always is what `responseSchema` says, or its task fails; leave it out";
            return Err(OpError::Invalid(why.into()));
        }
        (false, _) => {}
    }
    outputs::check(named).map_err(|error| OpError::Invalid(format!("`responseSchema`: {error}")))?;
    Ok(Some(named.clone()))
}

fn budget(named: &Value) -> Result<Budget, OpError> {
    if named.is_null() {
        return Ok(Budget::default());
    }
    let budget: Budget = decode::typed(named.clone()).map_err(|e| OpError::Invalid(format!("`budget`: {e}")))?;
    budget.check().map_err(|error| OpError::Invalid(format!("`budget`: {error}")))?;
    Ok(budget)
}

fn handed_on(call: &Invocation<'_>, site: &TurnSite<'_>, named: Option<&[Value]>) -> Result<Envelope, OpError> {
    let named = named.map(|grants| grant::parse(grants, &call.venue.boundaries)).transpose();
    let named = named.map_err(|error| OpError::Invalid(error.to_string()))?;
    let Caller { name, authority, envelope, .. } = call.caller;
    envelope
        .handed_on(name.clone(), authority, site.delegable, named.as_deref(), call.workspace.scope())
        .map_err(|error| OpError::Denied(error.to_string()))
}

fn answer(agent: &AgentId, job: &Job) -> Value {
    let mut value = child::answer(job);
    value["agentId"] = agent.as_str().into();
    value["job"] = value["id"].clone();
    value["sessionId"] = job.head.session.as_str().into();
    value
}

async fn start_child(
    call: &Invocation<'_>,
    site: &TurnSite<'_>,
    agent: &AgentId,
    mut submission: Submission,
) -> Result<JobId, OpError> {
    match agents::get(call.venue, &call.caller.owner, agent).await? {
        None => return Err(no_agent(agent)),
        Some((record, _)) if record.status == AgentStatus::Terminated => {
            return Err(OpError::Conflict(format!("agent `{agent}`: {}", Refusal::Terminated)));
        }
        Some(_) => {}
    }
    // Who is nobody's own agent can call nothing, and so closes no cycle.
    let named = submission.handed.anonymous.is_none().then_some(agent);
    child::check_limits(site, &submission.envelope.lineage, named)?;
    submission.parent = Some(site.parent.clone());
    let arrival = Arrival {
        owner: call.caller.owner.clone(),
        agent: agent.clone(),
        task: true,
        id: call_id(call.venue, site),
        submission,
        received: call.venue.now(),
        sequence: 0,
        by: Principal::ANYBODY,
        may_override: false,
    };
    let job = JobId::derive(&call.venue.key, &arrival.owner, &arrival.id);
    let session = arrival.submission.session_id.clone().unwrap_or_else(|| fresh_session(&job));
    let head = ingress::job_head(&arrival, &job, &session, &arrival.submission.envelope);
    let open = ingress::new_job(&head);
    send(call, site, &arrival, InKind::Task, vec![open]).await?;
    Ok(job)
}

/// Sends a submission, with the job it opens, as an effect of the running turn.
async fn send(
    call: &Invocation<'_>,
    site: &TurnSite<'_>,
    arrival: &Arrival,
    kind: InKind,
    open: Vec<NewJob>,
) -> Result<(), OpError> {
    // What would be refused when it arrives is refused now: its caller would hear nothing of it.
    let admit = ingress::admission(call.venue, arrival).map_err(|error| OpError::Invalid(error.to_string()))?;
    let adds = admit.event.as_ref().map(|event| event.adds(false)).unwrap_or_default();
    let Arrival { owner, agent, id, submission, .. } = arrival;
    let sealed = seal::seal_submission(&call.venue.key, (owner, agent, kind), id, submission.clone());
    let bytes = serde_json::to_vec(&sealed).map_or(0, |b| b.len());
    if bytes > SUBMISSION_BYTES {
        let error = ingress::SubmissionError::TooLarge { bytes, limit: SUBMISSION_BYTES };
        return Err(OpError::Invalid(error.to_string()));
    }
    let body = serde_json::to_value(&sealed).expect("submissions serialise");
    decode::check_to(&body, MESSAGE_DEPTH).map_err(|wrong| OpError::Invalid(wrong.to_string()))?;
    let to = Address::In { owner: owner.clone(), agent: agent.clone(), kind };
    let message = Message { to, id: Some(id.to_string()), body };
    child::room(call, adds, &open, Some(&admit.session)).await?;
    child::start(call, site, id, &message, open).await
}

async fn submit(
    call: &Invocation<'_>,
    key: Option<EventId>,
    agent: &AgentId,
    task: bool,
    submission: Submission,
) -> Result<ingress::Submitted, OpError> {
    let arrival = Arrival {
        owner: call.caller.owner.clone(),
        agent: agent.clone(),
        task,
        id: key.unwrap_or_else(ingress::fresh_id),
        submission,
        received: call.venue.now(),
        sequence: 0,
        by: call.caller.principal.clone(),
        may_override: false,
    };
    ingress::submit(call.venue, &arrival).await.map_err(|error| match error {
        SubmitError::Submission(error @ ingress::SubmissionError::NotOpen { .. }) => {
            OpError::Conflict(error.to_string())
        }
        SubmitError::Submission(error @ ingress::SubmissionError::NoJob(_)) => OpError::NotFound(error.to_string()),
        SubmitError::Submission(error) => OpError::Invalid(error.to_string()),
        SubmitError::Refused { refusal: Refusal::UnknownAgent, agent } => no_agent(&agent),
        SubmitError::Refused { refusal: Refusal::Quota(over), .. } => OpError::Store(StoreError::Over(over)),
        SubmitError::Refused { .. } | SubmitError::Conflict(_) => OpError::Conflict(error.to_string()),
        SubmitError::Store(error) => OpError::Store(error),
    })
}

/// `agent/message`.
pub(super) async fn message(call: &Invocation<'_>, arguments: &Value) -> Result<Value, OpError> {
    let agent = agent_id(arguments)?;
    let ignored = deliver(call, &agent, event_id(call), submission(call, arguments, "message")?).await?;
    Ok(with_ignored(json!({"agentId": agent, "delivered": true}), &ignored))
}

/// The id of what a call sends.
pub(crate) fn event_id(call: &Invocation<'_>) -> EventId {
    match &call.site {
        Site::Api { key } => key.clone().unwrap_or_else(ingress::fresh_id),
        Site::Turn(site) => call_id(call.venue, site),
    }
}

/// Sends a message; returns the keys of its `sessionContext` that count for nothing.
pub(crate) async fn deliver(
    call: &Invocation<'_>,
    agent: &AgentId,
    id: EventId,
    submission: Submission,
) -> Result<Vec<String>, OpError> {
    let Site::Turn(site) = &call.site else {
        return Ok(submit(call, Some(id), agent, false, submission).await?.ignored);
    };
    if agents::get(call.venue, &call.caller.owner, agent).await?.is_none() {
        return Err(no_agent(agent));
    }
    child::check_way(site, &submission.envelope.lineage, Some(agent))?;
    let arrival = Arrival {
        owner: call.caller.owner.clone(),
        agent: agent.clone(),
        task: false,
        id,
        submission,
        received: call.venue.now(),
        sequence: 0,
        by: Principal::ANYBODY,
        may_override: false,
    };
    ingress::heard(call.venue, &arrival).await?.map_err(|error| OpError::Invalid(error.to_string()))?;
    send(call, site, &arrival, InKind::Message, Vec::new()).await?;
    Ok(ingress::ignored(&arrival))
}

/// The conversation of a chat: the one that it names, which must be there, or a new one. That one is a
/// function of the message's id, so that a chat that is asked again goes on in it.
async fn conversation(
    call: &Invocation<'_>,
    agent: &AgentId,
    event: &EventId,
    named: Option<&SessionId>,
) -> Result<SessionKey, OpError> {
    let (venue, owner) = (call.venue, &call.caller.owner);
    let Some(session) = named else {
        let said = json!(["chat", owner.token(), agent, event]).to_string();
        let digits = &hmac_hex(&venue.key, said.as_bytes())[..16];
        let session = SessionId::new(format!("chat-{digits}")).expect("hex digits are a legal id");
        return Ok(SessionKey { agent: agent.clone(), session });
    };
    let key = SessionKey { agent: agent.clone(), session: session.clone() };
    if agents::sessions::find(venue, owner, &key).await?.is_some() {
        return Ok(key);
    }
    if agents::get(venue, owner, agent).await?.is_none() {
        return Err(no_agent(agent));
    }
    Err(OpError::NotFound(format!(
        "agent `{agent}` has no session `{session}`; leave `sessionId` out and a new one is made, its id is in the answer"
    )))
}

/// `agent/chat`: a message, and the first text that the agent says after it has seen it.
pub(super) async fn chat(call: &Invocation<'_>, arguments: &Value) -> Result<Value, OpError> {
    let agent = agent_id(arguments)?;
    let event = event_id(call);
    let submission = submission(call, arguments, "message")?;
    let key = conversation(call, &agent, &event, submission.session_id.as_ref()).await?;
    let session = key.session.clone();
    let submission = Submission { session_id: Some(session.clone()), ..submission };
    let ignored = deliver(call, &agent, event.clone(), submission).await?;
    let deadline = call.venue.clock.steady() + millis(arguments, "timeout", DEFAULT_TIMEOUT);
    loop {
        if let Some(text) = reply_to(call, &key, &event).await? {
            let answer = json!({"agentId": agent, "sessionId": session, "response": text, "answered": [event]});
            return Ok(with_ignored(answer, &ignored));
        }
        if call.venue.clock.steady() >= deadline {
            let answer = json!({"agentId": agent, "sessionId": session, "response": null, "answered": []});
            return Ok(with_ignored(answer, &ignored));
        }
        tokio::time::sleep(CHAT_POLL).await;
    }
}

async fn reply_to(call: &Invocation<'_>, session: &SessionKey, event: &EventId) -> Result<Option<String>, OpError> {
    let (owner, turns) = (&call.caller.owner, keys::turns(session));
    let newest = steps::scan(&*call.venue.store, owner, &turns, None, true, 20, LIST_BYTES).await?.docs;
    let mut text = None;
    // Newest first: remember the earliest text at or after the turn that consumed the event.
    for (_, doc) in newest {
        let Some(record) = doc.value.and_then(|b| decode::stored::<TurnRecord>(&b).ok()) else { continue };
        if !call.caller.reads().covers_reading(record.under()) {
            continue;
        }
        if let Some(said) = final_text(&record) {
            text = Some(said);
        }
        if record.events.contains(event) {
            return Ok(text);
        }
    }
    Ok(None)
}

fn final_text(record: &TurnRecord) -> Option<String> {
    if record.frame != 0 {
        // What a goal returns is not for the one who asks.
        return None;
    }
    record.said.iter().find_map(|message| match message {
        ChatMessage::Assistant { text, calls } if calls.is_empty() => Some(text.clone()),
        ChatMessage::Assistant { .. } | ChatMessage::User { .. } | ChatMessage::Tool { .. } => None,
    })
}
