//! Push notifications of tasks: where updates are sent, and the job that sends them.
//!
//! A notification is a document of its task. It has a job of its own, which a worker runs in steps
//! ([`super::deliver`]): it reads the task's log from the place that was delivered last, and holds no slot between two
//! steps. A task that has ended gets one, too: it may have ended while the notification was set, and its client waits
//! for its end. Its credentials are sealed with the venue's keys.
//!
//! An address may hold a secret, and whoever sets a notification anew takes it from its client: only the caller who set
//! it, and those who may cancel the task, read, replace and delete it.

use super::place::LogPlace;
use super::reader::TaskReader;
use crate::domain::authority::ResourcePath;
use crate::domain::ids::secret::SecretName;
use crate::domain::ids::{EventId, JobId, Owner, VenueIdSubject, sha256_hex};
use crate::domain::invocation::{self as rules, InvokedOperation};
use crate::domain::job::{Job, JobHead};
use crate::domain::limits::INVOKED_OPEN;
use crate::domain::secret::{PlainSecret, SecretRecord};
use crate::domain::time::Millis;
use crate::store::{DocWrite, Edit, StoreError, Window, keys};
use crate::venue::operation::OpError;
use crate::venue::operation_jobs::{self, InvokedAdmission};
use crate::venue::outbound::url_resource;
use crate::venue::secrets::SecretError;
use crate::venue::{Venue, jobs};
use crate::view::a2a::{A2aAuthentication, A2aNotificationConfig};
use reqwest::Url;
use reqwest::header::HeaderValue;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Name of the operation in the jobs that deliver; no caller can invoke it.
const OPERATION: &str = "v/ops/a2a/notify";

/// Notifications of one task at most.
const NOTIFICATIONS: usize = 20;

/// Open operations of an owner beyond which no push notification is set.
const DELIVERY_ROOM: usize = INVOKED_OPEN / 2;

/// Bytes of an id at most.
const ID_BYTES: usize = 128;

/// Hexadecimal digits of a hash in names.
const NAME_DIGITS: usize = 16;

/// Beginning of what is sealed: with it the shortest token has the length of a secret.
pub(super) const SEALED_NAME: &str = "Authorization: ";

/// Scheme of a token without `authentication`.
const BEARER: &str = "Bearer";

/// A push notification as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PushNotification {
    /// Id that the client gave, or the venue.
    pub id: String,
    /// Address that updates are posted to.
    pub url: String,
    /// Scheme of the header `Authorization`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<String>,
    /// Header `Authorization`, sealed, where there are credentials behind the scheme.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization: Option<SecretRecord>,
    /// Place of the last event that was delivered.
    pub sent: LogPlace,
    /// Number of failures since.
    #[serde(default)]
    pub failures: u32,
    /// Job that delivers it.
    pub delivery: JobId,
    /// Mark of the caller who set it; `None` where callers need no token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Time at which it was set.
    pub created: Millis,
}

/// Task and notification of a job that delivers, as its input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryInput {
    /// Job of the task.
    pub task: JobId,
    /// Id of the notification.
    pub notification: String,
}

/// Why a notification isn't set.
#[derive(Debug, thiserror::Error)]
pub enum NotificationError {
    /// The venue calls no other host.
    #[error("this venue sends no push notifications: it calls no host (`http_client.allow_hosts`)")]
    Unsupported,
    /// The configuration breaks a rule.
    #[error("{0}")]
    Invalid(String),
    /// The caller may not call this address, or nobody may.
    #[error("{0}")]
    Denied(String),
    /// The task has as many notifications as it may have.
    #[error("{0}")]
    Limit(String),
    /// The credentials can't be sealed.
    #[error("`authentication`: {0}")]
    Secret(SecretError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<OpError> for NotificationError {
    fn from(error: OpError) -> Self {
        match error {
            OpError::Denied(text) => Self::Denied(text),
            OpError::Store(error) => Self::Store(error),
            other => Self::Invalid(other.to_string()),
        }
    }
}

/// Whether a job delivers a push notification.
pub fn is_delivery(head: &JobHead) -> bool {
    head.op.as_deref() == Some(OPERATION)
}

/// Whether this venue may call some host.
pub fn is_supported(venue: &Venue) -> bool {
    venue.catalog.hosts.may_call()
}

/// Returns a stored notification as clients see it: without its credentials.
pub fn view(task: &JobId, stored: &PushNotification) -> A2aNotificationConfig {
    let scheme = stored.scheme.clone();
    A2aNotificationConfig {
        id: Some(stored.id.clone()),
        task_id: Some(task.to_string()),
        url: stored.url.clone(),
        token: None,
        authentication: scheme.map(|scheme| A2aAuthentication { scheme, credentials: None }),
    }
}

/// Returns all notifications of a task.
async fn list(venue: &Venue, owner: &Owner, task: &JobId) -> Result<Vec<PushNotification>, StoreError> {
    let mut found = Vec::new();
    let mut pages = venue.store.docs(owner, keys::job_notifications(task));
    while let Some(page) = pages.records::<PushNotification>().await? {
        found.extend(page.into_iter().map(|(_, stored)| stored));
    }
    Ok(found)
}

/// Returns the name under which the credentials of a notification are sealed.
pub(crate) fn credentials_name(task: &JobId, id: &str) -> SecretName {
    let name = format!("a2a-{task}-{}", &sha256_hex(id.as_bytes())[..NAME_DIGITS]);
    SecretName::new(&name).expect("digits and dashes are a legal name")
}

/// A notification whose form was checked.
#[derive(Debug, Clone)]
pub struct CheckedNotification {
    id: String,
    url: Url,
    scheme: Option<String>,
    authorization: Option<PlainSecret>,
}

impl TaskReader<'_> {
    /// Returns a notification of a task; `None` also if this caller may not see it.
    pub async fn notification(&self, task: &JobId, id: &str) -> Result<Option<PushNotification>, StoreError> {
        let key = keys::job_notification(task, id);
        let found = self.venue.store.get::<PushNotification>(&self.caller.owner, &key).await?;
        Ok(found.filter(|stored| self.check_access(task, stored).is_ok()))
    }

    /// Returns the notifications of a task that this caller may see.
    pub async fn notifications(&self, task: &JobId) -> Result<Vec<PushNotification>, StoreError> {
        let mut found = list(self.venue, &self.caller.owner, task).await?;
        found.retain(|stored| self.check_access(task, stored).is_ok());
        Ok(found)
    }

    /// Deletes a notification and cancels its delivery. One that isn't there is deleted.
    pub async fn delete_notification(&self, task: &JobId, id: &str) -> Result<(), NotificationError> {
        let (venue, owner, key) = (self.venue, &self.caller.owner, keys::job_notification(task, id));
        let Some(stored) = venue.store.get::<PushNotification>(owner, &key).await? else { return Ok(()) };
        self.check_access(task, &stored)?;
        venue.store.write(venue.now(), owner, &[DocWrite::delete(key)]).await?;
        jobs::cancel(venue, owner, &stored.delivery, Some("its push notification was deleted")).await?;
        Ok(())
    }

    /// Checks that this caller set a notification, or may cancel its task.
    fn check_access(&self, task: &JobId, stored: &PushNotification) -> Result<(), NotificationError> {
        let is_own = stored.by.is_some() && stored.by.as_deref() == self.caller.principal.mark();
        if is_own || self.caller.operator {
            return Ok(());
        }
        let permitted = self.caller.authority.permits("job/cancel", ResourcePath::job(task));
        permitted.map_err(|denied| NotificationError::Denied(denied.model_text("another caller's push notification")))
    }

    /// Checks a notification before anything is done: its form, and that this caller and this venue may call its
    /// address. The name in the address is looked up, and checked, for each connection.
    pub fn check_notification(&self, config: &A2aNotificationConfig) -> Result<CheckedNotification, NotificationError> {
        if !is_supported(self.venue) {
            return Err(NotificationError::Unsupported);
        }
        let invalid = NotificationError::Invalid;
        let url = Url::parse(&config.url).map_err(|error| invalid(format!("`url`: {error}")))?;
        self.venue.catalog.hosts.check(&url)?;
        let permitted = self.caller.authority.permits("http/post", url_resource(&url));
        permitted.map_err(|denied| NotificationError::Denied(denied.model_text("a push notification")))?;
        let id = config.id.clone().filter(|id| !id.is_empty());
        let id = id.unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
        if id.len() > ID_BYTES {
            return Err(invalid(format!("`id`: expected at most {ID_BYTES} bytes, got {}", id.len())));
        }
        let token = config.token.clone().filter(|token| !token.is_empty());
        let (scheme, credentials) = match (&config.authentication, token) {
            (Some(given), _) => (Some(given.scheme.clone()), given.credentials.clone().filter(|text| !text.is_empty())),
            (None, token) => (token.as_ref().map(|_| BEARER.to_owned()), token),
        };
        let header = [scheme.as_deref(), credentials.as_deref()].map(Option::unwrap_or_default).join(" ");
        let is_token = |scheme: &String| !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_graphic());
        if !scheme.as_ref().is_none_or(is_token) || HeaderValue::from_str(&header).is_err() {
            return Err(invalid("`authentication`: has characters that no header may have".to_owned()));
        }
        let authorization = credentials.map(|_| PlainSecret::new(format!("{SEALED_NAME}{header}"))).transpose();
        let authorization = authorization.map_err(|error| invalid(format!("`authentication.credentials`: {error}")))?;
        Ok(CheckedNotification { id, url, scheme, authorization })
    }

    /// Sets a notification of a task, in the place of one of its id. Events behind `from` are delivered, or where it
    /// replaces one, what that has not delivered. After it the notification is durable; after a crash before it, or in the
    /// middle, the client sets it again.
    pub async fn set_notification(
        &self,
        job: &Job,
        checked: CheckedNotification,
        from: LogPlace,
        token_owner: Option<&Owner>,
    ) -> Result<PushNotification, NotificationError> {
        let (venue, owner, task) = (self.venue, &self.caller.owner, &job.head.id);
        let CheckedNotification { id, url, scheme, authorization } = checked;
        let others = list(venue, owner, task).await?;
        if others.len() >= NOTIFICATIONS && !others.iter().any(|other| other.id == id) {
            return Err(NotificationError::Limit(format!(
                "the task has {NOTIFICATIONS} push notifications; delete one before setting another"
            )));
        }
        self.check_delivery_room().await?;
        let now = venue.now();
        let sealed =
            authorization.map(|value| venue.secrets.seal_unlisted(owner, &credentials_name(task, &id), &value, now));
        let sealed = sealed.transpose().map_err(NotificationError::Secret)?;
        let delivery = self.delivery_head(task, &id, &url, now);
        let stored = PushNotification {
            id,
            url: url.to_string(),
            scheme,
            authorization: sealed,
            sent: from,
            failures: 0,
            delivery: delivery.id.clone(),
            by: self.caller.principal.mark().map(str::to_owned),
            created: now,
        };
        let replaced = self.replace(task, &stored).await?;
        if let Err(error) = self.admit_delivery(&delivery, token_owner).await {
            let key = keys::job_notification(task, &stored.id);
            venue.store.write(venue.now(), owner, &[DocWrite::delete(key)]).await?;
            return Err(error);
        }
        if let Some(before) = replaced {
            jobs::cancel(venue, owner, &before.delivery, Some("its push notification was set anew")).await?;
        }
        Ok(stored)
    }

    /// Checks that deliveries leave room for other operations of the owner: that of a task which waits is open for days.
    async fn check_delivery_room(&self) -> Result<(), NotificationError> {
        let count = Window { reverse: false, skip: 0, limit: 0, values: false };
        let open = self.venue.store.page(&self.caller.owner, keys::INVOKED_DUE, count).await?.total;
        if open < DELIVERY_ROOM {
            return Ok(());
        }
        Err(NotificationError::Limit(format!(
            "{open} operations of this owner have not ended, and {DELIVERY_ROOM} are most for setting a push notification; \
             delete others, or try again when some have ended"
        )))
    }

    /// Writes a notification; returns the one that it replaces.
    async fn replace(
        &self,
        task: &JobId,
        stored: &PushNotification,
    ) -> Result<Option<PushNotification>, NotificationError> {
        let (venue, owner) = (self.venue, &self.caller.owner);
        let key = keys::job_notification(task, &stored.id);
        let quota = venue.quota().await;
        let attempt = || async {
            let (before, version) = venue.store.get_versioned::<PushNotification>(owner, &key).await?;
            if let Some(before) = &before {
                self.check_access(task, before)?;
            }
            let sent = before.as_ref().map_or(stored.sent, |before| before.sent);
            let write = DocWrite::json(key.as_str(), &PushNotification { sent, ..stored.clone() }).at_version(version);
            Ok::<_, NotificationError>(Edit::write([write], before).with_quota(quota))
        };
        venue.store.edit(venue.now(), owner, "push notification", &stored.id, attempt).await
    }

    /// Returns the head of the job that delivers a notification. Each time that a notification is set it is another job.
    fn delivery_head(&self, task: &JobId, id: &str, url: &Url, now: Millis) -> JobHead {
        let (venue, owner) = (self.venue, &self.caller.owner);
        let key = delivery_key(task, id, now);
        let event = EventId::of_venue(&venue.key, VenueIdSubject::Operation { owner, key: &key });
        let job = JobId::derive(&venue.key, owner, &event);
        let input = json!({"task": task, "notification": id, "url": url_resource(url).to_string()});
        JobHead {
            caller: Some(self.caller.name.clone()),
            principal: self.caller.principal.mark().map(str::to_owned),
            bound: Some(Box::new(self.caller.request_envelope().bound)),
            under: self.caller.trail(),
            ..rules::job_head(job, event, OPERATION, input, now)
        }
    }

    async fn admit_delivery(&self, head: &JobHead, token_owner: Option<&Owner>) -> Result<(), NotificationError> {
        let asker = self.caller.asker(token_owner);
        let key = EventId::new(head.id.as_str()).expect("hex digits are a legal id");
        let invoked = InvokedOperation::new(head.id.clone(), key, asker, head.created);
        match operation_jobs::admit(self.venue, &self.caller.owner, head, &invoked).await? {
            InvokedAdmission::Done | InvokedAdmission::Known => Ok(()),
            InvokedAdmission::Full => Err(NotificationError::Limit(
                "too many operations of this owner have not ended; try again when some have".to_owned(),
            )),
        }
    }
}

/// Returns the id of the submission that stands for setting a notification at a time.
fn delivery_key(task: &JobId, id: &str, now: Millis) -> EventId {
    let name = format!("a2a-notify-{task}-{}-{now}", &sha256_hex(id.as_bytes())[..NAME_DIGITS]);
    EventId::new(name).expect("digits and dashes are a legal id")
}
