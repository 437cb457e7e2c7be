//! Posts to webhooks in the form of Standard Webhooks, and the webhooks that the configuration names.

use super::send::{HttpSender, OutgoingRequest, header_value};
use super::{HttpPolicy, url_destination, url_resource};
use crate::domain::hosts::{HostRule, HostRuleError};
use crate::domain::ids::JobId;
use crate::domain::limits::POST_TIME;
use crate::domain::notification::NotificationKind;
use crate::domain::notification::signature::WebhookKey;
use crate::domain::time::Millis;
use crate::domain::webhook::WebhookName;
use crate::venue::failure::OpError;
use bytes::Bytes;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};

/// Header with the id of a notification.
const ID: HeaderName = HeaderName::from_static("webhook-id");

/// Header with the time of the post, in seconds since 1970.
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");

/// Header with the signature.
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// Status of a server that wants no more posts.
const GONE: u16 = 410;

/// A webhook of the configuration, for the notifications of all owners.
pub struct VenueWebhook {
    /// Name of the webhook.
    pub name: WebhookName,
    /// Kinds that are sent; empty = all.
    pub kinds: Vec<NotificationKind>,
    /// Whether it is sent what approvals ask, with arguments.
    pub with_content: bool,
    url: Url,
    key: WebhookKey,
    sender: HttpSender,
}

impl VenueWebhook {
    /// Makes a webhook at a URL; `policy` has the limits of all calls to other hosts.
    ///
    /// # Errors
    /// The host of the URL is no rule for hosts.
    pub fn new(
        name: WebhookName,
        kinds: Vec<NotificationKind>,
        url: Url,
        key: WebhookKey,
        policy: &HttpPolicy,
    ) -> Result<Self, HostRuleError> {
        let to = url_destination(&url);
        let rule = HostRule::parse(&format!("{}:{}", to.host, to.port))?;
        let setting = format!("notifications.webhooks.{name}");
        let policy = HttpPolicy { hosts: vec![rule], redirects: 0, setting, ..policy.clone() };
        Ok(Self { name, kinds, with_content: false, url, key, sender: HttpSender::new(policy) })
    }

    /// Returns the webhook that is sent content.
    #[must_use]
    pub fn with_content(self, with_content: bool) -> Self {
        Self { with_content, ..self }
    }

    /// Posts a notification. Errors don't name the address: owners see them.
    pub(crate) async fn post(&self, id: &JobId, now: Millis, body: Vec<u8>) -> Result<(), PostError> {
        let post = SignedPost { url: self.url.clone(), key: &self.key, id, now, body };
        let sent = send(&self.sender, post, Some(format!("the venue's webhook {}", self.name))).await;
        sent.map_err(|error| self.hide_address(error))
    }

    /// Returns an error that doesn't name the address: refusals and failures of TLS have it in their text.
    fn hide_address(&self, error: PostError) -> PostError {
        let text = error.to_string();
        let is_named = self.url.host_str().is_some_and(|host| text.contains(host));
        if !is_named && !matches!(error, PostError::Never(OpError::Denied(_))) {
            return error;
        }
        tracing::warn!(webhook = %self.name, reason = text, "a webhook of the configuration can't be called");
        let shown = format!("the venue's webhook {} can't be called; the venue's log has the reason", self.name);
        match error {
            PostError::Later(_) => PostError::Later(OpError::Upstream(shown)),
            PostError::Never(_) => PostError::Never(OpError::Upstream(shown)),
        }
    }
}

/// A body that is posted, with the key of its signature.
pub(crate) struct SignedPost<'a> {
    pub(crate) url: Url,
    pub(crate) key: &'a WebhookKey,
    pub(crate) id: &'a JobId,
    pub(crate) now: Millis,
    pub(crate) body: Vec<u8>,
}

/// Why a webhook has not taken a post.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PostError {
    /// It may take it later.
    #[error("{0}")]
    Later(OpError),
    /// It will never take it, or may not be called.
    #[error("{0}")]
    Never(OpError),
}

impl From<OpError> for PostError {
    fn from(error: OpError) -> Self {
        if matches!(error, OpError::Denied(_) | OpError::Invalid(_)) { Self::Never(error) } else { Self::Later(error) }
    }
}

/// Posts a body under its signature. The address is checked as that of every other call, and no redirect is followed.
/// `shown` names the place in errors, if it isn't the URL.
pub(crate) async fn send(sender: &HttpSender, post: SignedPost<'_>, shown: Option<String>) -> Result<(), PostError> {
    let SignedPost { url, key, id, now, body } = post;
    let seconds = now.0 / 1_000;
    let mut headers = HeaderMap::new();
    headers.insert(ID, header_value(id.as_str())?);
    headers.insert(TIMESTAMP, HeaderValue::from(seconds));
    headers.insert(SIGNATURE, header_value(&key.sign(id.as_str(), seconds, &body))?);
    let place = shown.clone().unwrap_or_else(|| url_resource(&url).to_string());
    // A post that is redirected comes to most servers as a request without a body, and an answer to that is none.
    let refuse_redirect = |_: &Url| -> Result<(), OpError> {
        Err(OpError::Upstream(format!("`{place}` redirects, which is not followed")))
    };
    let ask = OutgoingRequest {
        method: Method::POST,
        url,
        headers,
        body: Some((Bytes::from(body), HeaderValue::from_static("application/json"))),
        timeout: Some(POST_TIME),
        repeatable: true,
        shown,
    };
    match sender.send(ask, &refuse_redirect).await?.status {
        200..300 => Ok(()),
        GONE => Err(PostError::Never(OpError::Upstream(format!("`{place}` answered {GONE}: it wants no more")))),
        status => Err(PostError::Later(OpError::Upstream(format!("`{place}` answered {status}")))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_venues_webhooks_name_no_address() {
        let hook = VenueWebhook::new(
            WebhookName::new("ops").unwrap(),
            Vec::new(),
            Url::parse("https://pager.corp.internal/in?key=1").unwrap(),
            WebhookKey::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap(),
            &HttpPolicy::default(),
        );
        let hook = hook.unwrap();
        let hidden = "the venue's webhook ops can't be called; the venue's log has the reason";
        for (error, is_later, expected) in [
            (PostError::Later(OpError::Upstream("not valid for name `pager.corp.internal`".to_owned())), true, hidden),
            (PostError::Never(OpError::Denied("`x` is at 10.0.0.7, which is not public".to_owned())), false, hidden),
            (PostError::Later(OpError::Upstream("`the webhook` answered 500".to_owned())), true, "answered 500"),
        ] {
            let shown = hook.hide_address(error);
            assert!(shown.to_string().contains(expected), "{shown}");
            assert_eq!(matches!(shown, PostError::Later(_)), is_later, "{shown}");
        }
    }
}
