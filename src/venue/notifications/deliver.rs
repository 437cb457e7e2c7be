//! Deliveries to webhooks: each is a job of the owner that a worker runs, posted until the webhook takes it.
//!
//! A worker gives each owner its share of the slots for operations, so that a webhook which hangs keeps only those of its
//! own owner. Between two posts a delivery holds none.

use super::hooks::{self, WebhookPlace};
use super::payload::{self, Receiver};
use crate::domain::authority::Authority;
use crate::domain::authority::envelope::Envelope;
use crate::domain::authority::trail::Trail;
use crate::domain::ids::{EventId, JobId, Owner, VenueIdSubject};
use crate::domain::invocation::{self as rules, InvokedOperation, OperationCaller};
use crate::domain::job::{ErrorCode, JobHead, JobResult};
use crate::domain::limits::{DELIVERY_ROOM, POST_TRIES};
use crate::domain::notification::Notification;
use crate::domain::principal::Principal;
use crate::domain::visible::cut_error;
use crate::domain::webhook::{
    DELIVERY, Undelivered, Webhook, WebhookDelivery, WebhookName, WebhookState, retry_pause, wants,
};
use crate::store::{DocWrite, StoreError, Window, keys};
use crate::venue::Venue;
use crate::venue::operation::{Caller, OpError};
use crate::venue::operation_jobs::{self, InvokedAdmission, LeasedOperation, RunCaller, RunOutcome, read_caller};
use crate::venue::outbound::webhook::{self, PostError, SignedPost, VenueWebhook};
use crate::view::notification::WebhookTriedView;
use serde_json::json;

/// Name of the venue as the caller of deliveries to its own webhooks.
const VENUE: &str = "venue";

/// Name of a delivery's record among the notifications of its job.
const RECORD: &str = "event";

/// Whether a job delivers a notification to a webhook.
pub fn is_webhook_delivery(head: &JobHead) -> bool {
    head.op.as_deref() == Some(DELIVERY)
}

/// Starts the deliveries of a notification: one for each webhook that wants its kind. A repetition starts none twice.
pub(super) async fn start(
    venue: &Venue,
    owner: &Owner,
    hooks: &[Webhook],
    notification: &Notification,
) -> Result<(), StoreError> {
    for hook in hooks {
        if !wants(&hook.kinds, notification.kind) {
            continue;
        }
        let delivery = NewDelivery {
            name: &hook.name,
            of_venue: false,
            asker: hook.asker.clone(),
            principal: hook.principal.clone(),
            bound: Some(hook.bound.clone()),
            under: hook.under.clone(),
        };
        delivery.start(venue, owner, notification).await?;
    }
    for hook in &venue.catalog.webhooks {
        if !wants(&hook.kinds, notification.kind) {
            continue;
        }
        let asker = OperationCaller {
            name: VENUE.to_owned(),
            operator: true,
            authority: Authority::without_limits(),
            envelope: Envelope::default(),
            principal: Principal::ANYBODY,
            token_owner: None,
        };
        let (principal, bound, under) = (None, None, Trail::default());
        let delivery = NewDelivery { name: &hook.name, of_venue: true, asker, principal, bound, under };
        delivery.start(venue, owner, notification).await?;
    }
    Ok(())
}

/// A delivery that is to be started, with those it is made for.
struct NewDelivery<'a> {
    name: &'a WebhookName,
    of_venue: bool,
    asker: OperationCaller,
    principal: Option<String>,
    bound: Option<Box<Authority>>,
    under: Trail,
}

impl NewDelivery<'_> {
    async fn start(self, venue: &Venue, owner: &Owner, notification: &Notification) -> Result<(), StoreError> {
        let place = WebhookPlace { name: self.name, of_venue: self.of_venue };
        let head = self.head(venue, owner, notification);
        let record = WebhookDelivery {
            webhook: self.name.clone(),
            of_venue: self.of_venue,
            notification: notification.clone(),
            failures: 0,
        };
        let documents = vec![DocWrite::json(keys::job_notification(&head.id, RECORD), &record)];
        let key = EventId::new(head.id.as_str()).expect("hex digits are a legal id");
        let invoked = InvokedOperation::new(head.id.clone(), key, self.asker, head.created);
        let count = Window { reverse: false, skip: 0, limit: 0, values: false };
        let open = venue.store.page(owner, keys::INVOKED_DUE, count).await?.total;
        let admitted = if open >= DELIVERY_ROOM {
            // What was admitted before a crash isn't dropped.
            let is_known = venue.store.doc(owner, &keys::job_status(&head.id)).await?.value.is_some();
            Ok(if is_known { InvokedAdmission::Known } else { InvokedAdmission::Full })
        } else {
            operation_jobs::admit_with(venue, owner, &head, &invoked, documents).await
        };
        match admitted {
            Ok(InvokedAdmission::Done | InvokedAdmission::Known) => Ok(()),
            Ok(InvokedAdmission::Full) | Err(StoreError::Over(_) | StoreError::TenantFull(_)) => {
                tracing::warn!(%owner, webhook = %self.name, id = %notification.id, "a notification is not sent to a webhook: too much of the owner is open or kept");
                hooks::note(venue, owner, place, WebhookState::with_dropped).await
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the head of the job: one for each notification and webhook.
    fn head(&self, venue: &Venue, owner: &Owner, notification: &Notification) -> JobHead {
        let of = if self.of_venue { "venue" } else { "owner" };
        // No caller can name the same: else its job would stand for the delivery.
        let cause = format!("{of} {} {}", self.name, notification.id);
        let subject = VenueIdSubject::Notification { owner, kind: DELIVERY, cause: &cause };
        let event = EventId::of_venue(&venue.key, subject);
        let job = JobId::derive(&venue.key, owner, &event);
        let input = json!({"webhook": self.name, "notification": notification.id, "type": notification.kind});
        JobHead {
            caller: Some(self.asker.name.clone()),
            principal: self.principal.clone(),
            bound: self.bound.clone(),
            under: self.under.clone(),
            ..rules::job_head(job, event, DELIVERY, input, venue.now())
        }
    }
}

fn not_sent() -> RunOutcome {
    RunOutcome::Ended(JobResult::complete(json!({"delivered": false})))
}

fn failure(code: ErrorCode, text: String) -> RunOutcome {
    RunOutcome::Ended(JobResult::failure(code, cut_error(text)))
}

/// Runs one step of a delivery: one post.
pub async fn run(venue: &Venue, owner: &Owner, held: &LeasedOperation) -> Result<RunOutcome, StoreError> {
    let job = &held.head().id;
    let key = keys::job_notification(job, RECORD);
    let (found, version) = venue.store.get_versioned::<WebhookDelivery>(owner, &key).await?;
    let Some(delivery) = found else {
        return Ok(failure(ErrorCode::Internal, "the record of the delivery is gone".to_owned()));
    };
    let place = WebhookPlace { name: &delivery.webhook, of_venue: delivery.of_venue };
    let lost = |error: String| Undelivered {
        notification: delivery.notification.id.clone(),
        kind: delivery.notification.kind,
        job: job.clone(),
        at: venue.now(),
        error: cut_error(error),
    };
    let caller = match read_caller(venue, owner, held).await? {
        RunCaller::Permitted(caller) => caller,
        RunCaller::Revoked(result) => {
            // Nothing comes any more from the webhook of a caller whose rights are gone: its state says so.
            let lost = lost(result.error.clone().unwrap_or_default());
            hooks::note(venue, owner, place, |state| state.with_failed(lost.clone())).await?;
            return Ok(RunOutcome::Ended(result));
        }
    };
    let Some(posted) = post(venue, owner, &caller, &delivery).await? else { return Ok(not_sent()) };
    let error = match posted {
        Ok(()) => {
            hooks::note(venue, owner, place, |state| state.with_delivered(venue.now())).await?;
            return Ok(RunOutcome::Ended(JobResult::complete(json!({"delivered": true}))));
        }
        Err(PostError::Later(OpError::Store(error))) if error.is_transient() => return Ok(RunOutcome::Retry),
        Err(error) => error,
    };
    let failures = delivery.failures.saturating_add(1);
    if matches!(error, PostError::Later(_)) && failures < POST_TRIES {
        tracing::debug!(%owner, webhook = %delivery.webhook, %error, failures, "notification not delivered yet");
        let changed = WebhookDelivery { failures, ..delivery };
        let write = DocWrite::json(key, &changed).at_version(version);
        venue.store.write(venue.now(), owner, &[write]).await?;
        return Ok(RunOutcome::Later(retry_pause(failures)));
    }
    let lost = lost(error.to_string());
    hooks::note(venue, owner, place, |state| state.with_failed(lost.clone())).await?;
    tracing::warn!(%owner, webhook = %delivery.webhook, %error, failures, "a notification is not delivered; its webhook is given up for it");
    Ok(match error {
        PostError::Never(_) => failure(ErrorCode::Refused, error.to_string()),
        PostError::Later(_) => {
            failure(ErrorCode::LimitReached, format!("given up after {failures} posts that failed: {error}"))
        }
    })
}

/// Posts a notification; `None` if there is nothing to post any more, or this receiver may not know of it.
async fn post(
    venue: &Venue,
    owner: &Owner,
    caller: &Caller,
    delivery: &WebhookDelivery,
) -> Result<Option<Result<(), PostError>>, StoreError> {
    let notification = &delivery.notification;
    if delivery.of_venue {
        let Some(hook) = venue_webhook(venue, &delivery.webhook) else { return Ok(None) };
        let receiver = Receiver::Venue { with_content: hook.with_content };
        let Some(view) = payload::view(venue, owner, notification, receiver).await? else { return Ok(None) };
        let body = serde_json::to_vec(&view).expect("notifications serialise");
        return Ok(Some(hook.post(&notification.id, venue.now(), body).await));
    }
    let Some(hook) = hooks::get(venue, owner, &delivery.webhook).await? else { return Ok(None) };
    let receiver = Receiver::Caller(caller);
    let Some(view) = payload::view(venue, owner, notification, receiver).await? else { return Ok(None) };
    let body = serde_json::to_vec(&view).expect("notifications serialise");
    Ok(Some(post_signed(venue, caller, &hook, &notification.id, body).await))
}

fn venue_webhook<'v>(venue: &'v Venue, name: &WebhookName) -> Option<&'v VenueWebhook> {
    venue.catalog.webhooks.iter().find(|hook| hook.name == *name)
}

/// Posts a body to a webhook of the caller's owner. The address and its host are checked for each post.
async fn post_signed(
    venue: &Venue,
    caller: &Caller,
    hook: &Webhook,
    id: &JobId,
    body: Vec<u8>,
) -> Result<(), PostError> {
    let url = hooks::check_post(venue, caller, &hook.url, &hook.secret)?;
    let key = hooks::signing_key(venue, &caller.owner, &hook.secret).await?;
    let post = SignedPost { url, key: &key, id, now: venue.now(), body };
    webhook::send(&venue.catalog.hosts, post, None).await
}

/// Posts a notification of the type `test` to a webhook, once.
pub async fn try_webhook(venue: &Venue, caller: &Caller, name: &WebhookName) -> Result<WebhookTriedView, OpError> {
    let missing =
        || OpError::NotFound(format!("no webhook `{name}`; `trellis webhook list` shows those that there are"));
    let hook = hooks::get(venue, &caller.owner, name).await?.ok_or_else(missing)?;
    let id = JobId::new(&uuid::Uuid::new_v4().simple().to_string()).expect("hex digits are a legal id");
    let view = payload::test_view(venue, &caller.owner, id.clone(), venue.now());
    let body = serde_json::to_vec(&view).expect("notifications serialise");
    let posted = post_signed(venue, caller, &hook, &id, body).await;
    Ok(match posted {
        Ok(()) => WebhookTriedView { taken: true, error: None, id },
        Err(PostError::Later(error @ OpError::Store(_)) | PostError::Never(error @ OpError::Denied(_))) => {
            return Err(error);
        }
        Err(error) => WebhookTriedView { taken: false, error: Some(cut_error(error.to_string())), id },
    })
}
