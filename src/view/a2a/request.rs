//! Arguments of the operations of the Agent2Agent protocol.

use super::message::A2aMessage;
use super::task::A2aTaskState;
use serde::{Deserialize, Serialize};

/// Arguments of `SendMessage` and `SendStreamingMessage`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct A2aSendRequest {
    /// Message to the agent.
    pub message: A2aMessage,
    /// How it is answered.
    #[serde(default)]
    pub configuration: Option<A2aSendConfiguration>,
}

/// How a message is answered.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aSendConfiguration {
    /// Media types that the client reads; none = all.
    #[serde(default, alias = "accepted_output_modes")]
    pub accepted_output_modes: Option<Vec<String>>,
    /// Push notification of the task.
    #[serde(
        default,
        alias = "task_push_notification_config",
        alias = "pushNotificationConfig",
        alias = "push_notification_config"
    )]
    pub task_push_notification_config: Option<A2aNotificationConfig>,
    /// Most messages of the history in the answer; absent = all.
    #[serde(default, alias = "history_length")]
    pub history_length: Option<u32>,
    /// Whether the answer comes before the task has ended or asks for something.
    #[serde(default, alias = "return_immediately")]
    pub return_immediately: Option<bool>,
}

/// Arguments of `GetTask`, `CancelTask` and `SubscribeToTask`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aTaskRequest {
    /// Id of the task.
    #[serde(default)]
    pub id: Option<String>,
    /// Most messages of the history in the answer; absent = all.
    #[serde(default, alias = "history_length")]
    pub history_length: Option<u32>,
}

/// Arguments of `ListTasks`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aListRequest {
    /// Context of the tasks.
    #[serde(default, alias = "context_id")]
    pub context_id: Option<String>,
    /// State of the tasks.
    #[serde(default)]
    pub status: Option<A2aTaskState>,
    /// Most tasks of the page, 1 to 100; absent = 50.
    #[serde(default, alias = "page_size")]
    pub page_size: Option<u32>,
    /// Token of the page; absent or empty = the first.
    #[serde(default, alias = "page_token")]
    pub page_token: Option<String>,
    /// Most messages of the history of each task; absent = none.
    #[serde(default, alias = "history_length")]
    pub history_length: Option<u32>,
    /// Time since which the state must have changed, RFC 3339.
    #[serde(default, alias = "status_timestamp_after")]
    pub status_timestamp_after: Option<String>,
    /// Whether the tasks come with their outputs.
    #[serde(default, alias = "include_artifacts")]
    pub include_artifacts: Option<bool>,
}

/// Arguments that name a task, or one of its push notifications.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aNotificationRequest {
    /// Id of the task.
    #[serde(default, alias = "task_id")]
    pub task_id: Option<String>,
    /// Id of the push notification.
    #[serde(default)]
    pub id: Option<String>,
    /// Most push notifications of a page.
    #[serde(default, alias = "page_size")]
    pub page_size: Option<u32>,
    /// Token of the page; absent or empty = the first.
    #[serde(default, alias = "page_token")]
    pub page_token: Option<String>,
}

/// A push notification of a task: where updates are sent, and with which credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aNotificationConfig {
    /// Id of the push notification; made by the venue where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Id of the task; absent where the task is made with it.
    #[serde(default, alias = "task_id", skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// Address that updates are posted to.
    pub url: String,
    /// Token that is sent as a bearer token where there is no `authentication`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Content of the header `Authorization`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<A2aAuthentication>,
}

/// Push notifications of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aNotificationPage {
    /// Configurations of the page.
    pub configs: Vec<A2aNotificationConfig>,
    /// Token of the next page; empty after the last.
    pub next_page_token: String,
}

/// Content of the header `Authorization`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct A2aAuthentication {
    /// Scheme, such as `Bearer`.
    pub scheme: String,
    /// Credentials; their form depends on the scheme.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<String>,
}
