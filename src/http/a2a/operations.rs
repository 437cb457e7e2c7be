//! The operations of the protocol, for both bindings.

use super::caller::{A2aCaller, AgentPlace};
use super::card;
use super::error::{A2aError, A2aErrorKind};
use super::send::{WHOLE, accept, most_messages, send, task_id};
use super::stream::TaskStream;
use crate::domain::authority::ResourcePath;
use crate::domain::decode;
use crate::domain::ids::{JobId, SessionId};
use crate::domain::job::Job;
use crate::domain::time::Millis;
use crate::http::Api;
use crate::venue::a2a::log::last_turn;
use crate::venue::a2a::place::LogPlace;
use crate::venue::a2a::push;
use crate::venue::a2a::session_of;
use crate::venue::a2a::task::{TaskCursor, TaskFilter, TaskParts};
use crate::venue::jobs::{self, CancelOutcome};
use crate::view::a2a::{
    A2aListRequest, A2aNothing, A2aNotificationConfig, A2aNotificationPage, A2aNotificationRequest, A2aSendRequest,
    A2aTaskRequest,
};
use crate::view::to_json;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Tasks of a page that names no number, and tasks of a page at most.
const PAGE_SIZES: (u32, u32) = (50, 100);

/// Header of a client that comes back to a stream, with the id of the last event that it has.
const LAST_EVENT: &str = "last-event-id";

/// An operation of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum A2aOperation {
    SendMessage,
    SendStreamingMessage,
    GetTask,
    ListTasks,
    CancelTask,
    SubscribeToTask,
    CreateNotification,
    GetNotification,
    ListNotifications,
    DeleteNotification,
    GetExtendedCard,
}

impl A2aOperation {
    /// Returns the operation of a method of JSON-RPC.
    pub(super) fn parse(method: &str) -> Option<Self> {
        Some(match method {
            "SendMessage" => Self::SendMessage,
            "SendStreamingMessage" => Self::SendStreamingMessage,
            "GetTask" => Self::GetTask,
            "ListTasks" => Self::ListTasks,
            "CancelTask" => Self::CancelTask,
            "SubscribeToTask" => Self::SubscribeToTask,
            "CreateTaskPushNotificationConfig" => Self::CreateNotification,
            "GetTaskPushNotificationConfig" => Self::GetNotification,
            "ListTaskPushNotificationConfigs" => Self::ListNotifications,
            "DeleteTaskPushNotificationConfig" => Self::DeleteNotification,
            "GetExtendedAgentCard" => Self::GetExtendedCard,
            _ => return None,
        })
    }
}

/// What an operation is answered with.
pub(super) enum A2aReply {
    /// One answer to the request.
    Value(Value),
    /// A stream of events.
    Stream(Box<TaskStream>),
}

/// A request to an agent, of whatever binding.
pub(super) struct A2aRequest<'a> {
    pub(super) api: &'a Api,
    pub(super) place: &'a AgentPlace,
    pub(super) parts: &'a Parts,
}

impl A2aRequest<'_> {
    /// Runs an operation with its arguments.
    pub(super) async fn run(&self, operation: A2aOperation, arguments: Value) -> Result<A2aReply, A2aError> {
        let caller = A2aCaller::identify(self.api, self.place, self.parts).await?;
        let value = match operation {
            A2aOperation::SendMessage => to_json(&send(self.api, &caller, &read(arguments)?).await?),
            A2aOperation::SendStreamingMessage => return self.stream_message(caller, arguments).await,
            A2aOperation::SubscribeToTask => return self.subscribe(caller, arguments).await,
            A2aOperation::GetTask => self.get_task(&caller, &read(arguments)?).await?,
            A2aOperation::ListTasks => self.list_tasks(&caller, &read(arguments)?).await?,
            A2aOperation::CancelTask => self.cancel_task(&caller, &read(arguments)?).await?,
            A2aOperation::CreateNotification => self.create_notification(&caller, &read(arguments)?).await?,
            A2aOperation::GetNotification => self.get_notification(&caller, &read(arguments)?).await?,
            A2aOperation::ListNotifications => self.list_notifications(&caller, &read(arguments)?).await?,
            A2aOperation::DeleteNotification => self.delete_notification(&caller, &read(arguments)?).await?,
            A2aOperation::GetExtendedCard => {
                caller.permit_details()?;
                to_json(&card::make_extended_card(self.api, self.place, &caller))
            }
        };
        Ok(A2aReply::Value(value))
    }

    async fn find(&self, caller: &A2aCaller, id: Option<&str>) -> Result<Job, A2aError> {
        let id = task_id(id)?;
        caller.reader(self.api).find(id.as_str()).await?.ok_or_else(|| A2aError::no_task(id.as_str()))
    }

    async fn stream_message(&self, caller: A2aCaller, arguments: Value) -> Result<A2aReply, A2aError> {
        let request: A2aSendRequest = read(arguments)?;
        let accepted = accept(self.api, &caller, &request).await?;
        let length = request.configuration.and_then(|configuration| configuration.history_length);
        let snapshot = accepted.snapshot.with_last_messages(most_messages(length));
        let stream = TaskStream::new(self.api, self.parts, caller, accepted.head, accepted.from).await?;
        Ok(A2aReply::Stream(Box::new(stream.begin_with(snapshot).end_at_question())))
    }

    /// Subscribes to a task: from now on, or from the event on that the client names.
    async fn subscribe(&self, caller: A2aCaller, arguments: Value) -> Result<A2aReply, A2aError> {
        let request: A2aTaskRequest = read(arguments)?;
        let head = self.find(&caller, request.id.as_deref()).await?.head;
        let from = match self.last_event()? {
            Some(place) => place,
            // The place first: what happens between the two is told twice rather than never.
            None => LogPlace::behind_turn(last_turn(&self.api.venue, caller.who.owner(), &session_of(&head)).await?),
        };
        let job = self.find(&caller, request.id.as_deref()).await?;
        if job.status.is_terminal() {
            let text = format!("task `{}` has ended, and nothing more will be told of it", job.head.id);
            return Err(A2aError::new(A2aErrorKind::UnsupportedOperation, text));
        }
        let snapshot = caller.reader(self.api).read(&job, WHOLE).await?;
        let stream = TaskStream::new(self.api, self.parts, caller, head, from).await?;
        Ok(A2aReply::Stream(Box::new(stream.begin_with(snapshot))))
    }

    fn last_event(&self) -> Result<Option<LogPlace>, A2aError> {
        let Some(given) = self.parts.headers.get(LAST_EVENT) else { return Ok(None) };
        let text = given.to_str().unwrap_or("?").trim().to_owned();
        let place = LogPlace::try_from(text);
        place.map(Some).map_err(|error| A2aError::invalid(format!("header `Last-Event-ID`: {error}")))
    }

    async fn get_task(&self, caller: &A2aCaller, request: &A2aTaskRequest) -> Result<Value, A2aError> {
        let job = self.find(caller, request.id.as_deref()).await?;
        let parts = TaskParts { history: most_messages(request.history_length), artifacts: true };
        Ok(to_json(&caller.reader(self.api).read(&job, parts).await?))
    }

    async fn list_tasks(&self, caller: &A2aCaller, request: &A2aListRequest) -> Result<Value, A2aError> {
        let size = request.page_size.unwrap_or(PAGE_SIZES.0);
        let most = PAGE_SIZES.1;
        if !(1..=most).contains(&size) {
            return Err(A2aError::invalid(format!("`pageSize`: expected 1 to {most}, got {size}")));
        }
        let session = request.context_id.as_deref().filter(|id| !id.is_empty()).map(SessionId::new).transpose();
        let since =
            request.status_timestamp_after.as_deref().filter(|text| !text.is_empty()).map(parse_time).transpose()?;
        let filter = TaskFilter {
            session: session.map_err(|error| A2aError::invalid(format!("`contextId`: {error}")))?,
            state: request.status,
            since,
        };
        let token = request.page_token.as_deref().filter(|token| !token.is_empty());
        let bad = || A2aError::invalid("`pageToken`: expected the `nextPageToken` of a page");
        let after = token.map(|token| TaskCursor::parse(token).ok_or_else(bad)).transpose()?;
        let parts = TaskParts {
            history: Some(most_messages(request.history_length).unwrap_or(0)),
            artifacts: request.include_artifacts == Some(true),
        };
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        Ok(to_json(&caller.reader(self.api).list(&filter, after.as_ref(), size, parts).await?))
    }

    async fn cancel_task(&self, caller: &A2aCaller, request: &A2aTaskRequest) -> Result<Value, A2aError> {
        let job = self.find(caller, request.id.as_deref()).await?;
        let id = &job.head.id;
        caller.permit("job/cancel", ResourcePath::job(id), "`CancelTask`")?;
        let reason = format!("by {} through A2A", caller.who.caller.name);
        match jobs::cancel(&self.api.venue, caller.who.owner(), id, Some(&reason)).await? {
            CancelOutcome::Done(job) => Ok(to_json(&caller.reader(self.api).read(&job, WHOLE).await?)),
            CancelOutcome::Unknown => Err(A2aError::no_task(id.as_str())),
            CancelOutcome::Already(job) => {
                let text = format!("task `{id}` is {} and can't be cancelled any more", job.status.as_str());
                Err(A2aError::new(A2aErrorKind::TaskNotCancelable, text))
            }
        }
    }

    async fn create_notification(&self, caller: &A2aCaller, config: &A2aNotificationConfig) -> Result<Value, A2aError> {
        self.check_notifications()?;
        let reader = caller.reader(self.api);
        let head = self.find(caller, config.task_id.as_deref()).await?.head;
        let checked = reader.check_notification(config)?;
        let from = last_turn(&self.api.venue, caller.who.owner(), &session_of(&head)).await?;
        let job = self.find(caller, config.task_id.as_deref()).await?;
        let token_owner = caller.who.token_owner.as_ref();
        let stored = reader.set_notification(&job, checked, LogPlace::behind_turn(from), token_owner).await?;
        Ok(to_json(&push::view(&job.head.id, &stored)))
    }

    async fn get_notification(&self, caller: &A2aCaller, request: &A2aNotificationRequest) -> Result<Value, A2aError> {
        self.check_notifications()?;
        let (task, id) = self.notification(caller, request).await?;
        let found = caller.reader(self.api).notification(&task, &id).await?.ok_or_else(|| {
            A2aError::new(A2aErrorKind::TaskNotFound, format!("task `{task}` has no such push notification"))
        })?;
        Ok(to_json(&push::view(&task, &found)))
    }

    async fn list_notifications(
        &self,
        caller: &A2aCaller,
        request: &A2aNotificationRequest,
    ) -> Result<Value, A2aError> {
        self.check_notifications()?;
        let task = self.find(caller, request.task_id.as_deref()).await?.head.id;
        let found = caller.reader(self.api).notifications(&task).await?;
        // A task has few of them: they are one page.
        let configs = found.iter().map(|stored| push::view(&task, stored)).collect();
        Ok(to_json(&A2aNotificationPage { configs, next_page_token: String::new() }))
    }

    async fn delete_notification(
        &self,
        caller: &A2aCaller,
        request: &A2aNotificationRequest,
    ) -> Result<Value, A2aError> {
        self.check_notifications()?;
        let (task, id) = self.notification(caller, request).await?;
        caller.reader(self.api).delete_notification(&task, &id).await?;
        Ok(to_json(&A2aNothing {}))
    }

    async fn notification(
        &self,
        caller: &A2aCaller,
        request: &A2aNotificationRequest,
    ) -> Result<(JobId, String), A2aError> {
        let task = self.find(caller, request.task_id.as_deref()).await?.head.id;
        let id = request.id.clone().filter(|id| !id.is_empty());
        Ok((task, id.ok_or_else(|| A2aError::invalid("`id`: expected the id of a push notification"))?))
    }

    fn check_notifications(&self) -> Result<(), A2aError> {
        if push::is_supported(&self.api.venue) {
            return Ok(());
        }
        Err(push::NotificationError::Unsupported.into())
    }
}

/// Reads the arguments of an operation; none are an empty map.
fn read<T: DeserializeOwned>(arguments: Value) -> Result<T, A2aError> {
    let arguments = if arguments.is_null() { Map::new().into() } else { arguments };
    Ok(decode::typed_with_hint(&arguments)?)
}

fn parse_time(text: &str) -> Result<Millis, A2aError> {
    let bad = || A2aError::invalid("`statusTimestampAfter`: expected a time as `2026-11-21T22:00:00Z`");
    Millis::parse(text).ok_or_else(bad)
}
