//! Webhooks of an owner, what is to be delivered to one, and what became of deliveries.

use crate::authority::Authority;
use crate::authority::trail::Trail;
use crate::ids::JobId;
use crate::ids::secret::SecretName;
use crate::invocation::OperationCaller;
use crate::limits::{CAPS_ANNOUNCED, UNDELIVERED_KEPT};
use crate::notification::{Notification, NotificationKind};
use crate::time::{Millis, doubled_pause};
use crate::visible::quote_foreign;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Name of the operation in the jobs that deliver; no caller can invoke it.
pub const DELIVERY: &str = "v/ops/webhook/deliver";

/// Characters of a webhook's name at most.
const NAME_CHARS: usize = 32;

/// First and longest pause after a failed post; each is twice the one before.
const RETRY_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(5));

/// Name of a webhook, of an owner or in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WebhookName(String);

/// A text that is no name of a webhook.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a name of 1 to {NAME_CHARS} letters, digits and `-`, got `{}`", quote_foreign(.found))]
pub struct WebhookNameError {
    /// Text that was given.
    pub found: String,
}

impl WebhookName {
    /// Checks a name.
    pub fn new(text: &str) -> Result<Self, WebhookNameError> {
        let is_legal = (1..=NAME_CHARS).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if is_legal { Ok(Self(text.to_owned())) } else { Err(WebhookNameError { found: text.to_owned() }) }
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for WebhookName {
    type Error = WebhookNameError;
    fn try_from(text: String) -> Result<Self, WebhookNameError> {
        Self::new(&text)
    }
}

impl From<WebhookName> for String {
    fn from(name: WebhookName) -> Self {
        name.0
    }
}

impl fmt::Display for WebhookName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A webhook of an owner as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    /// Name of the webhook.
    pub name: WebhookName,
    /// Address that notifications are posted to. It may hold a secret.
    pub url: String,
    /// Kinds that are sent; empty = all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<NotificationKind>,
    /// Secret with the key of its signatures.
    pub secret: SecretName,
    /// Caller who set it: deliveries show and do what this caller may.
    pub asker: OperationCaller,
    /// Mark of that caller; `None` where callers need no token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// Upper bound of what deliveries may do.
    pub bound: Box<Authority>,
    /// Holders and grants under which it was set.
    #[serde(default, skip_serializing_if = "Trail::is_empty")]
    pub under: Trail,
    /// Time at which it was set.
    pub set: Millis,
}

/// Whether a list of kinds, of which an empty one means all, has a kind.
pub fn wants(kinds: &[NotificationKind], kind: NotificationKind) -> bool {
    kinds.is_empty() || kinds.contains(&kind)
}

/// A notification on its way to one webhook, as the job of its delivery keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WebhookDelivery {
    /// Webhook that gets it.
    pub webhook: WebhookName,
    /// Whether the venue's configuration names the webhook.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_venue: bool,
    /// What is sent, without its content.
    pub notification: Notification,
    /// Number of failed posts.
    #[serde(default)]
    pub failures: u32,
}

/// Returns the pause after this many failed posts.
pub fn retry_pause(failures: u32) -> Duration {
    doubled_pause(RETRY_PAUSES.0, RETRY_PAUSES.1, failures)
}

/// What became of the deliveries to a webhook.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WebhookState {
    /// Number of notifications that the webhook has taken, without those of the type `test`.
    pub delivered: u64,
    /// Time of the last delivery that the webhook has taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Millis>,
    /// Number of deliveries that were given up.
    pub failed: u64,
    /// Number of notifications that were never sent to it, because too much of the owner was open.
    pub dropped: u64,
    /// The last deliveries that were given up, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub undelivered: Vec<Undelivered>,
}

/// A delivery that was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Undelivered {
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

impl WebhookState {
    /// Counts a delivery that the webhook has taken.
    #[must_use]
    pub fn with_delivered(self, at: Millis) -> Self {
        Self { delivered: self.delivered.saturating_add(1), last: Some(at), ..self }
    }

    /// Counts a delivery that was given up.
    #[must_use]
    pub fn with_failed(mut self, lost: Undelivered) -> Self {
        self.failed = self.failed.saturating_add(1);
        self.undelivered.push(lost);
        let excess = self.undelivered.len().saturating_sub(UNDELIVERED_KEPT);
        self.undelivered.drain(..excess);
        self
    }

    /// Counts a notification that is never sent to the webhook.
    #[must_use]
    pub fn with_dropped(self) -> Self {
        Self { dropped: self.dropped.saturating_add(1), ..self }
    }
}

/// State of an owner's notifications.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NotificationsState {
    /// Number of notifications that were dropped before they reached the queue and the webhooks.
    pub dropped: u64,
    /// Caps that were announced, by the id of the notification, with the time at which each may be announced again.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub caps: BTreeMap<String, Millis>,
}

impl NotificationsState {
    /// Returns the state after the announcement of a cap that holds until `until`; `None` if it was announced before, or
    /// if so many are that no more is.
    pub fn announce_cap(&self, id: &JobId, now: Millis, until: Millis) -> Option<Self> {
        let mut caps = self.caps.clone();
        caps.retain(|_, until| *until > now);
        if caps.contains_key(id.as_str()) || caps.len() >= CAPS_ANNOUNCED {
            return None;
        }
        caps.insert(id.to_string(), until);
        Some(Self { caps, ..self.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::POST_TRIES;

    fn id(nth: usize) -> JobId {
        JobId::new(&format!("{nth:032x}")).unwrap()
    }

    #[test]
    fn names_have_letters_digits_and_dashes() {
        for (text, is_legal) in [
            ("ops", true),
            ("On-Call-2", true),
            ("a".repeat(32).as_str(), true),
            ("a".repeat(33).as_str(), false),
            ("", false),
            ("a/b", false),
            ("a b", false),
            ("ä", false),
        ] {
            assert_eq!(WebhookName::new(text).is_ok(), is_legal, "{text}");
        }
    }

    #[test]
    fn an_empty_list_of_kinds_means_all() {
        for kind in NotificationKind::ALL {
            assert!(wants(&[], kind) && wants(&[NotificationKind::JobDead, kind], kind));
            assert_eq!(wants(&[NotificationKind::JobDead], kind), kind == NotificationKind::JobDead);
        }
    }

    #[test]
    fn pauses_grow_and_have_an_end() {
        for (failures, seconds) in [(1, 1), (2, 2), (5, 16), (9, 256), (10, 300), (64, 300)] {
            assert_eq!(retry_pause(failures).as_secs(), seconds, "{failures}");
        }
        let all: Duration = (1..POST_TRIES).map(retry_pause).sum();
        assert!((3_000..4_500).contains(&all.as_secs()), "{all:?}");
    }

    #[test]
    fn the_last_failures_are_kept() {
        let lost = |nth: usize| Undelivered {
            notification: id(nth),
            kind: NotificationKind::JobDead,
            job: id(nth),
            at: Millis(1),
            error: "503".into(),
        };
        let state = (0..UNDELIVERED_KEPT + 3).fold(WebhookState::default(), |state, nth| state.with_failed(lost(nth)));
        assert_eq!((state.failed, state.undelivered.len()), (23, UNDELIVERED_KEPT));
        assert_eq!((&state.undelivered[0].job, &state.undelivered[19].job), (&id(3), &id(22)));
        let state = state.with_dropped().with_delivered(Millis(7));
        assert_eq!((state.dropped, state.delivered, state.last), (1, 1, Some(Millis(7))));
    }

    #[test]
    fn a_cap_is_announced_once_until_it_resets() {
        let state = NotificationsState::default();
        let told = state.announce_cap(&id(1), Millis(10), Millis(20)).unwrap();
        assert_eq!(told.announce_cap(&id(1), Millis(19), Millis(20)), None);
        let again = told.announce_cap(&id(1), Millis(20), Millis(30)).unwrap();
        assert_eq!(again.caps.len(), 1);
        let full =
            (0..CAPS_ANNOUNCED).fold(state, |state, nth| state.announce_cap(&id(nth), Millis(10), Millis(20)).unwrap());
        assert_eq!(full.announce_cap(&id(999), Millis(10), Millis(20)), None, "the state has a bound");
    }
}
