//! `trellis submit`: submits a task to an agent.

use super::client::{Client, ServerArgs, encode, read_view};
use super::exit::{Exit, Failure};
use super::output::remark;
use super::wait::{self, AwaitedJob};
use super::{CliContext, abilities, attach, input, queue};
use crate::domain::budget::Budget;
use crate::domain::decode;
use crate::domain::event::Submission;
use crate::domain::ids::{AgentId, EventId, JobId, SessionId};
use crate::domain::job::JobStatus;
use crate::domain::limits::SUBMISSION_BYTES;
use crate::domain::message::InboundKind;
use crate::domain::priority::Priority;
use crate::venue::ingress;
use crate::view::agent::ReceiptView;
use crate::view::request::StartedRequestView;
use crate::view::to_json;
use clap::Args;
use serde::Serialize;
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// Advice for a missing agent.
pub(crate) const NO_AGENT: &str = "`trellis agent list` shows which there are, `trellis agent apply FILE` makes one";

/// Gives an agent a task. Prints the job's id, or with `--wait` its output.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  trellis submit helper 'Say hello' --wait\n  trellis submit invoices @invoice.json --id inv-42 --wait=2m\n  trellis submit clerk 'What does it cost?' --attach receipt.png --wait\n  echo '{\"id\": 42}' | trellis submit invoices - --nats nats://127.0.0.1"
)]
pub(crate) struct Submit {
    /// Id of the agent
    agent: AgentId,
    /// The task: text, JSON, `@file`, or `-` for stdin
    #[arg(allow_hyphen_values = true)]
    input: Option<String>,
    /// A picture (png, jpeg, webp, gif), PDF or text that the model sees with the task: it is stored as an asset, and
    /// the input refers to it under `attachments`. Repeatable
    #[arg(long = "attach", value_name = "FILE", conflicts_with = "nats")]
    attach: Vec<PathBuf>,
    /// Take the input as text even if it looks like JSON
    #[arg(long)]
    text: bool,
    /// Wait for the end of the job, at most so long
    #[arg(long, value_name = "DUR", num_args = 0..=1, require_equals = true, value_parser = input::duration)]
    #[expect(clippy::option_option, reason = "clap's type of an option whose value is optional")]
    wait: Option<Option<Duration>>,
    /// Your id of this task: submitting it again under the same id is the same job
    #[arg(long, value_name = "KEY")]
    id: Option<EventId>,
    /// Conversation to put it into [default: one of its own]
    #[arg(long, value_name = "SESSION")]
    session: Option<SessionId>,
    /// A grant of this request: a resource namespace such as `app/user/u1`, or JSON `{"with": …, "can": …}`; it may
    /// do no more than its grants. Repeatable; without any it may do what you may
    #[arg(long = "grant", value_name = "GRANT", value_parser = input::grant)]
    grants: Vec<Value>,
    /// A value for this request, `KEY=VALUE`; JSON where it parses, else text. Repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = input::pair)]
    context: Vec<(String, Value)>,
    /// A shared bucket that the task sees, and that an agent with `contextWrite` puts its output into; no access
    /// boundary. Repeatable
    #[arg(long = "context-id", value_name = "BUCKET")]
    context_ids: Vec<String>,
    /// What the task and everything under it may use at most, `tokens=N`, `cost=DOLLARS`, `turns=N` or
    /// `wallClock=SECONDS`. Repeatable
    #[arg(long = "budget", value_name = "LIMIT=N", value_parser = input::pair)]
    budget: Vec<(String, Value)>,
    /// How urgent it is beside the other tasks of the agent: 1 before them, -1 behind them
    #[arg(long, value_name = "-1|0|1", default_value = "0", allow_hyphen_values = true)]
    priority: Priority,
    /// Which server, and for whom
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    queue: queue::QueueArgs,
}

/// Arguments of `v/ops/agent/request`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AgentTaskRequest<'a> {
    agent_id: &'a str,
    input: Value,
    /// Longest wait for the end of the job, in milliseconds.
    timeout: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a SessionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<Budget>,
    /// Absent is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<Priority>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    context_ids: &'a [String],
}

impl<'a> AgentTaskRequest<'a> {
    /// Makes the request of a task that is not waited for.
    pub(crate) const fn new(agent_id: &'a str, input: Value) -> Self {
        Self { agent_id, input, timeout: 0, session_id: None, budget: None, priority: None, context_ids: &[] }
    }
}

impl Submit {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let input = self.input.as_deref().map_or(Ok(Value::Null), |given| input::value(given, self.text))?;
        let input = match self.attach.as_slice() {
            [] => input,
            files => attach::attach_files(&Client::new(&self.server)?, input, files).await?,
        };
        check_size(&input)?;
        abilities::note_unknown("--grant", &self.grants);
        let id = self.id.clone().unwrap_or_else(ingress::fresh_id);
        match &self.queue.nats {
            Some(url) => self.submit_over_queue(context, url, id, input).await,
            None => self.submit_over_http(context, &id, input).await,
        }
    }

    fn budget(&self) -> Result<Budget, Failure> {
        let named: Value = self.budget.iter().cloned().collect::<serde_json::Map<_, _>>().into();
        let budget: Budget = decode::into_type(named).map_err(|e| Failure::usage(format!("`--budget`: {e}")))?;
        budget.check().map_err(|error| Failure::usage(format!("`--budget`: {error}")))?;
        Ok(budget)
    }

    async fn submit_over_http(&self, context: &CliContext, id: &EventId, input: Value) -> Result<Exit, Failure> {
        let client = Client::new(&self.server)?;
        let budget = self.budget()?;
        let accepted = if self.context.is_empty() && self.grants.is_empty() {
            let request = AgentTaskRequest {
                session_id: self.session.as_ref(),
                budget: (!self.budget.is_empty()).then_some(budget),
                priority: (!self.priority.is_normal()).then_some(self.priority),
                context_ids: &self.context_ids,
                ..AgentTaskRequest::new(self.agent.as_str(), input)
            };
            client.run("v/ops/agent/request", &request, Some(id)).await
        } else {
            // Operations accept no values of a request: an agent that calls one could set its own.
            let submission = Submission {
                input,
                session_id: self.session.clone(),
                session_context: self.context.iter().cloned().collect(),
                context_ids: self.context_ids.clone(),
                budget,
                priority: self.priority,
                context: input::grants(&self.grants),
                ..Submission::default()
            };
            let answer = client.submit(&format!("agents/{}/tasks", encode(self.agent.as_str())), &submission, id).await;
            answer.and_then(|answer| self.read_receipt(&answer))
        };
        let accepted = accepted.map_err(|e| e.with_advice_on("no agent `", NO_AGENT))?;
        let StartedRequestView { job, .. } = read_view(accepted.clone())?;
        match self.wait {
            None => {
                context.out.value(&accepted, || job.to_string())?;
                remark(&format!("accepted; `trellis job wait {job}` waits for it"));
                Ok(Exit::Ok)
            }
            Some(limit) => wait::wait_until_ended(&client, &job, limit).await?.print(context.out, limit),
        }
    }

    /// Returns the receipt of a task in the form of an answer to a request.
    fn read_receipt(&self, answer: &Value) -> Result<Value, Failure> {
        let ReceiptView { job, status, warnings, .. } = read_view(answer.clone())?;
        abilities::note_warnings(&warnings, &self.grants);
        let without = || Failure::internal(format!("the server accepted the task without a job id: {answer}"));
        let job = job.ok_or_else(without)?;
        let (id, status) = (Some(job.clone()), status.unwrap_or(JobStatus::Pending));
        Ok(to_json(&StartedRequestView { id, status, ..StartedRequestView::of_agent(self.agent.clone(), job) }))
    }

    fn print_pending(&self, context: &CliContext, id: &EventId, job: Option<&JobId>) -> Result<(), Failure> {
        let pending = PendingSubmission { id, job, agent_id: &self.agent, status: JobStatus::Pending };
        context.out.value(&to_json(&pending), || job.map_or_else(|| id.to_string(), ToString::to_string))
    }

    async fn submit_over_queue(
        &self,
        context: &CliContext,
        url: &str,
        id: EventId,
        input: Value,
    ) -> Result<Exit, Failure> {
        let bus = context.load(Vec::new())?.config.bus;
        let publisher = queue::Publisher::connect(url, bus, &self.server).await?;
        let owner = queue::owner(&self.server);
        let reply_to = Some(queue::inbox(&owner, &id));
        let submission = Submission {
            input,
            session_id: self.session.clone(),
            reply_to,
            session_context: self.context.iter().cloned().collect(),
            context_ids: self.context_ids.clone(),
            budget: self.budget()?,
            priority: self.priority,
            context: input::grants(&self.grants),
            ..Submission::default()
        };
        let mut answers = publisher.listen(submission.reply_to.as_deref().unwrap_or_default()).await?;
        let job = publisher.submit(&owner, &self.agent, InboundKind::Task, &id, &submission).await?;
        let Some(limit) = self.wait else {
            self.print_pending(context, &id, job.as_ref())?;
            match job {
                Some(job) => remark(&format!("accepted; `trellis job wait {job}` waits for it")),
                None => remark("the queue has it, and no worker yet: this is the submission's id, not yet a job's"),
            }
            return Ok(Exit::Ok);
        };
        if let Some(completion) = queue::completion(&publisher, &mut answers, &owner, &id, limit).await? {
            return AwaitedJob::from_completion(completion)?.print(context.out, limit);
        }
        self.print_pending(context, &id, job.as_ref())?;
        let after = wait::format_limit(limit);
        let text = format!("no completion of submission `{id}` after {after}; it goes on; `trellis job list` shows it");
        Err(Failure::new(Exit::TimedOut, text))
    }
}

/// What is printed of a submission that waits in the queue.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PendingSubmission<'a> {
    id: &'a EventId,
    /// Its job, once it is admitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<&'a JobId>,
    agent_id: &'a AgentId,
    status: JobStatus,
}

/// Refuses an input that the server would refuse for its size.
pub(crate) fn check_size(input: &Value) -> Result<(), Failure> {
    let bytes = input.to_string().len();
    if bytes <= SUBMISSION_BYTES {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "the input has {bytes} bytes, expected at most {SUBMISSION_BYTES}; put large values into `w/` with `trellis lattice write` and name their path"
    )))
}
