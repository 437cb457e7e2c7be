//! Notifications as they are sent, and answers about webhooks.

use super::approval::ApprovalView;
use crate::domain::approval::AnswerBody;
use crate::domain::ids::{AgentId, JobId, SessionId};
use crate::domain::notification::NotificationKind;
use crate::domain::time::Millis;
use crate::domain::webhook::{Undelivered, Webhook, WebhookState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Body of a notification, on `trellis.events.…` and in posts to webhooks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NotificationView {
    /// Id; a repetition has the same one.
    pub id: JobId,
    /// Word of the kind, or `test`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Time of the cause, in the form of RFC 3339.
    pub timestamp: String,
    /// Agent, job and cause.
    pub data: NotificationDataView,
}

/// What a notification is about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub struct NotificationDataView {
    /// Owner as `tenant/user`.
    pub owner: String,
    /// Name of the venue.
    pub venue: String,
    /// Agent; absent for an operation that no agent runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// Session, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Job, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// The approval, as this receiver may see it; absent if it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalView>,
    /// Entry of the unknown outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<JobId>,
    /// Operation or tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Why it has happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time at which a cap resets, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resets: Option<Millis>,
    /// How to answer or to act, where somebody can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<NotificationAnswerView>,
}

/// What is needed to answer a notification, over HTTP or over NATS.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NotificationAnswerView {
    /// Request over HTTP.
    pub http: AnswerRequestView,
    /// Message over NATS; absent in a venue without NATS, and where HTTP is the only way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nats: Option<AnswerMessageView>,
}

/// A request that answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AnswerRequestView {
    /// Method of the request.
    pub method: String,
    /// Path below the address of the venue.
    pub path: String,
    /// The possible bodies, by what they mean.
    pub bodies: Map<String, Value>,
}

/// A message that answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AnswerMessageView {
    /// Subject of the message.
    pub subject: String,
    /// The possible bodies, by what they mean.
    pub bodies: Vec<AnswerBody>,
}

/// Webhooks of an owner, and the deliveries of its notifications to those of the venue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhooksView {
    /// Webhooks by name.
    pub items: Vec<WebhookView>,
    /// Notifications of the owner that were dropped before they reached the queue and any webhook.
    pub dropped: u64,
}

/// A webhook with what became of its deliveries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookView {
    /// Name of the webhook.
    pub name: String,
    /// Whether the venue's configuration names it: then it is for all owners, and its address is not shown.
    pub of_venue: bool,
    /// Address that notifications are posted to, without its query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Kinds that are sent; empty = all.
    pub kinds: Vec<NotificationKind>,
    /// Path of the secret with the key of its signatures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Caller who set it: it is shown what this caller may see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Notifications that the webhook has taken, without those of the type `test`.
    pub delivered: u64,
    /// Time of the last delivery that the webhook has taken, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub last: Option<Millis>,
    /// Deliveries that were given up.
    pub failed: u64,
    /// Notifications that were not sent to it, because too much of the owner was open.
    pub dropped: u64,
    /// The last deliveries that were given up, the oldest first.
    pub undelivered: Vec<Undelivered>,
}

impl WebhookView {
    /// Makes the view of an owner's webhook; `url` is its address without the query.
    pub fn of_owner(hook: &Webhook, url: String, state: WebhookState) -> Self {
        Self {
            url: Some(url),
            secret: Some(hook.secret.path()),
            by: Some(hook.asker.name.clone()),
            ..Self::new(hook.name.to_string(), hook.kinds.clone(), state)
        }
    }

    /// Makes the view of a webhook of the venue, as owners see it.
    pub fn of_venue(name: String, kinds: Vec<NotificationKind>, state: WebhookState) -> Self {
        Self { of_venue: true, ..Self::new(name, kinds, state) }
    }

    fn new(name: String, kinds: Vec<NotificationKind>, state: WebhookState) -> Self {
        let WebhookState { delivered, last, failed, dropped, undelivered } = state;
        let (of_venue, url, secret, by) = (false, None, None, None);
        Self { name, of_venue, url, kinds, secret, by, delivered, last, failed, dropped, undelivered }
    }
}

/// A notification that a webhook was not given, among the dead letters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UndeliveredView {
    /// Name of the webhook.
    pub webhook: String,
    /// Id of the notification.
    pub notification: JobId,
    /// Kind of the notification.
    #[serde(rename = "type")]
    pub kind: NotificationKind,
    /// Job of the delivery.
    pub job: JobId,
    /// Time of the last try, in milliseconds since 1970.
    #[schemars(with = "u64")]
    pub at: Millis,
    /// The last failure.
    pub error: String,
}

impl WebhooksView {
    /// Returns the last deliveries of all webhooks that were given up, the latest first.
    pub fn list_undelivered(&self) -> Vec<UndeliveredView> {
        let of_hook = |hook: &WebhookView| {
            let webhook = hook.name.clone();
            hook.undelivered.clone().into_iter().map(move |lost| {
                let Undelivered { notification, kind, job, at, error } = lost;
                UndeliveredView { webhook: webhook.clone(), notification, kind, job, at, error }
            })
        };
        let mut all: Vec<_> = self.items.iter().flat_map(of_hook).collect();
        all.sort_by_key(|lost| std::cmp::Reverse(lost.at));
        all
    }
}

/// End of a webhook's deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WebhookDeletedView {
    /// Whether there was a webhook of this name.
    pub deleted: bool,
}

/// A post to try a webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WebhookTriedView {
    /// Whether the webhook has taken the notification: it has answered 200 to 299.
    pub taken: bool,
    /// Why the webhook has not taken it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Header `webhook-id` of the post.
    pub id: JobId,
}
