//! `subscriptions/listen`: a stream of notifications about the list of tools, jobs and tasks.
//!
//! It looks at the store now and then, as the event stream of a job does: any process tells of what any other has done.

use super::agent_tools;
use super::call::{McpCall, to_result};
use super::client::McpClient;
use super::refusal::{INVALID_PARAMS, RpcRefusal};
use super::reply::stream_response;
use super::resource_address::ResourceAddress;
use super::tasks::parse_task;
use crate::domain::ids::JobId;
use crate::domain::job::JobStatus;
use crate::domain::reader::JobVisibility;
use crate::domain::time::Millis;
use crate::http::Api;
use crate::http::extract::StreamCaller;
use crate::store::StoreError;
use crate::venue::operation::Caller;
use crate::venue::{job_view, jobs};
use crate::view::mcp::{
    McpNotification, McpResourceFacts, McpResultMessage, McpSubscribed, McpSubscriptionFilter, McpTask,
};
use crate::view::to_json;
use axum::http::HeaderMap;
use axum::response::Response;
use futures::{Stream, stream};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// Key of the subscription in each of its notifications.
const SUBSCRIPTION_KEY: &str = "io.modelcontextprotocol/subscriptionId";

/// Pause between two looks at what is subscribed to.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// How many times as long as a look the pause after it is: a subscription to much costs no more than one to little.
const PAUSE_FACTOR: u32 = 20;

/// Jobs and tasks of one subscription.
const WATCHED: usize = 100;

/// Pages of tools that one look reads.
const TOOL_PAGES: usize = 10;

/// What a client asks for; other kinds of notifications are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WantedNotifications {
    tools_list_changed: bool,
    resource_subscriptions: Vec<String>,
    task_ids: Vec<String>,
}

/// A job that a subscription watches.
struct SubscribedJob {
    id: JobId,
    /// Address as the client has given it; `None` for a task.
    uri: Option<String>,
    /// Status and time of the last change that was told.
    last: Option<(JobStatus, Millis)>,
}

/// State of an open subscription.
struct Subscription {
    api: Api,
    caller: Caller,
    client: McpClient,
    /// Headers of the request, by which the caller is verified again.
    headers: HeaderMap,
    id: Value,
    held: VecDeque<Value>,
    jobs: Vec<SubscribedJob>,
    /// Steady time from which the jobs are looked at again.
    next_jobs_look: Duration,
    /// Hash of the list of tools, where its changes are told.
    tools: Option<u64>,
    /// Steady time from which the tools are looked at again.
    next_tools_look: Duration,
    is_ended: bool,
}

/// Opens the stream. Its first message says which of the wanted notifications it will have.
pub(super) async fn open(call: &McpCall, headers: HeaderMap) -> Result<Response, RpcRefusal> {
    let wanted: WantedNotifications = call.parameter("notifications")?;
    if wanted.resource_subscriptions.len() + wanted.task_ids.len() > WATCHED {
        let text = format!("`params.notifications`: expected at most {WATCHED} resources and tasks");
        return Err(RpcRefusal::malformed_message(INVALID_PARAMS, text));
    }
    if !wanted.task_ids.is_empty() {
        call.client.require_tasks()?;
    }
    let mut filter =
        McpSubscriptionFilter { tools_list_changed: wanted.tools_list_changed, ..McpSubscriptionFilter::default() };
    let mut watched = Vec::new();
    for uri in wanted.resource_subscriptions {
        let Some(ResourceAddress::Job(id)) = ResourceAddress::parse(&uri) else { continue };
        if let Some(id) = find_visible(call, &id).await? {
            filter.resource_subscriptions.push(uri.clone());
            watched.push(watch(call, id, Some(uri)).await?);
        }
    }
    for text in wanted.task_ids {
        if let Some(id) = find_visible(call, &text).await? {
            filter.task_ids.push(text);
            watched.push(watch(call, id, None).await?);
        }
    }
    let caller = call.who.caller.clone();
    let tools = if wanted.tools_list_changed { Some(tools_hash(&call.api, &caller).await?) } else { None };
    call.who.release_memory();
    let first_look = call.api.venue.clock.steady() + LOOK_PAUSE;
    let mut subscription = Subscription {
        api: call.api.clone(),
        caller,
        client: call.client.clone(),
        headers,
        id: call.request.id.clone(),
        held: VecDeque::new(),
        jobs: watched,
        next_jobs_look: first_look,
        tools,
        next_tools_look: first_look,
        is_ended: false,
    };
    subscription.hold("notifications/subscriptions/acknowledged", to_result(&McpSubscribed { notifications: filter }));
    Ok(stream_response(&call.api, subscription.messages()))
}

/// Returns the id of a job; `None` if there is none that the caller may see, which the first message shows.
async fn find_visible(call: &McpCall, text: &str) -> Result<Option<JobId>, RpcRefusal> {
    match parse_task(call, text).await {
        Ok(id) => Ok(Some(id)),
        Err(refusal) if refusal.fault.code == INVALID_PARAMS => Ok(None),
        Err(refusal) => Err(refusal),
    }
}

async fn watch(call: &McpCall, id: JobId, uri: Option<String>) -> Result<SubscribedJob, StoreError> {
    let last = jobs::read_status(&call.api.venue, call.owner(), &id).await?;
    Ok(SubscribedJob { id, uri, last })
}

/// Returns a hash of the tools that a caller sees, without those that every caller has.
async fn tools_hash(api: &Api, caller: &Caller) -> Result<u64, StoreError> {
    let mut hasher = DefaultHasher::new();
    let mut after = None;
    for _ in 0..TOOL_PAGES {
        let page = agent_tools::list(api, caller, after.as_ref()).await?;
        for tool in &page.tools {
            to_json(tool).to_string().hash(&mut hasher);
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let added = api.options.mcp_extension.iter().flat_map(|extension| extension.entries("tools"));
    added.for_each(|tool| tool.to_string().hash(&mut hasher));
    Ok(hasher.finish())
}

impl Subscription {
    fn messages(self) -> impl Stream<Item = Value> + Send + 'static {
        stream::unfold(self, |mut open| async move { open.next().await.map(|message| (message, open)) })
    }

    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(message) = self.held.pop_front() {
                return Some(message);
            }
            if self.is_ended {
                return None;
            }
            let closing = self.api.closing.clone();
            if closing.run_until_cancelled(tokio::time::sleep(LOOK_PAUSE)).await.is_none() {
                self.hold_end();
                continue;
            }
            if !self.check_caller().await {
                self.is_ended = true;
                continue;
            }
            if let Err(error) = self.look().await {
                tracing::debug!(%error, "a subscription couldn't look at what has changed; it tries again");
            }
        }
    }

    /// Keeps a notification to be sent.
    fn hold(&mut self, method: &'static str, mut params: Map<String, Value>) {
        params.insert("_meta".to_owned(), self.meta());
        self.held.push_back(to_json(&McpNotification::new(method, &params)));
    }

    fn meta(&self) -> Value {
        Value::Object(Map::from_iter([(SUBSCRIPTION_KEY.to_owned(), self.id.clone())]))
    }

    /// Keeps the answer that ends the subscription.
    fn hold_end(&mut self) {
        let complete = ("resultType".to_owned(), Value::from("complete"));
        let result = Map::from_iter([complete, ("_meta".to_owned(), self.meta())]);
        self.held.push_back(to_json(&McpResultMessage::new(self.id.clone(), result)));
        self.is_ended = true;
    }

    /// Checks that the caller's token still counts, with what it permits now; else returns false.
    async fn check_caller(&mut self) -> bool {
        match self.api.verify_again(&self.headers).await {
            Ok(StreamCaller::Verified(caller)) => {
                self.caller = *caller;
                true
            }
            Ok(StreamCaller::Refused) => false,
            // While the store is away nothing new is read either.
            Ok(StreamCaller::WithoutToken) | Err(_) => true,
        }
    }

    /// Keeps a notification for each change since the last look.
    async fn look(&mut self) -> Result<(), StoreError> {
        let begin = self.api.venue.clock.steady();
        if begin >= self.next_jobs_look {
            let looked = self.look_at_jobs().await;
            self.next_jobs_look = self.next_look(begin);
            looked?;
        }
        let begin = self.api.venue.clock.steady();
        if let Some(known) = self.tools.filter(|_| begin >= self.next_tools_look) {
            let now = tools_hash(&self.api, &self.caller).await;
            self.next_tools_look = self.next_look(begin);
            let now = now?;
            self.tools = Some(now);
            if now != known {
                self.hold("notifications/tools/list_changed", Map::new());
            }
        }
        Ok(())
    }

    /// Returns the steady time of the look after one that has begun at `begin` and ends now.
    fn next_look(&self, begin: Duration) -> Duration {
        let end = self.api.venue.clock.steady();
        end + end.saturating_sub(begin) * PAUSE_FACTOR
    }

    async fn look_at_jobs(&mut self) -> Result<(), StoreError> {
        for at in 0..self.jobs.len() {
            let SubscribedJob { id, last, .. } = &self.jobs[at];
            // What has ended stays as it is.
            if last.is_some_and(|(status, _)| status.is_terminal()) {
                continue;
            }
            let (id, last) = (id.clone(), *last);
            let now = jobs::read_status(&self.api.venue, &self.caller.owner, &id).await?;
            if now == last {
                continue;
            }
            match self.jobs[at].uri.clone() {
                Some(uri) => self.hold_update(&id, uri).await?,
                None => self.hold_task(&id).await?,
            }
            // Only now: a change that couldn't be read is found again.
            self.jobs[at].last = now;
        }
        Ok(())
    }

    /// Keeps a notification that a job has changed, if the caller may still see it.
    async fn hold_update(&mut self, id: &JobId, uri: String) -> Result<(), StoreError> {
        let head = jobs::head(&self.api.venue, &self.caller.owner, id).await?;
        // A job that was deleted has changed, too.
        if head.is_none_or(|head| self.caller.reader().visibility(&head) != JobVisibility::Nothing) {
            self.hold("notifications/resources/updated", to_result(&McpResourceFacts { uri }));
        }
        Ok(())
    }

    /// Keeps a notification with a task as it is now, if the caller may still see it.
    async fn hold_task(&mut self, id: &JobId) -> Result<(), StoreError> {
        let Some(job) = jobs::read_for_people(&self.api.venue, &self.caller.owner, id).await? else { return Ok(()) };
        if self.caller.reader().visibility(&job.head) == JobVisibility::Nothing {
            return Ok(());
        }
        let record = job_view::record_for(&self.api.venue, &self.caller, &job).await?;
        let task = McpTask::new(&record, self.client.asks_people);
        self.hold("notifications/tasks", to_result(&task));
        Ok(())
    }
}
