//! Sends notifications: as events on the queue and as deliveries to webhooks.
//!
//! ```text
//! document of a notification ──▶ `trellis.events.…`
//!            │ (deleted last)  └▶ a job for each webhook that wants its kind ──▶ post, again after failures
//! ```
//!
//! The document is written with what it tells of ([`crate::venue::notices`]). A process that dies before the document is
//! deleted leaves it to the sweep: the event goes out under the same id again, and the jobs exist already.

pub mod deliver;
pub mod hooks;
mod payload;

use crate::bus::BusError;
use crate::domain::ids::Owner;
use crate::domain::limits::NOTIFICATIONS_WAITING;
use crate::domain::message::{BusMessage, MessageAddress};
use crate::domain::notification::Notification;
use crate::domain::webhook::NotificationsState;
use crate::store::{DocKey, DocWrite, Edit, StoreError, Window, keys};
use crate::venue::Venue;
use crate::view::notification::NotificationView;
use payload::Receiver;
use std::time::Duration;

/// Notifications of one owner that one step sends: each may start a delivery for each of 20 webhooks, and a sweep has
/// other owners to look at.
const PAGE: usize = 16;

/// Pause after an event that the queue has not taken.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Sends what is due now, for those who have just decided a notification. What fails is left to the sweep.
pub async fn send_soon(venue: &Venue, owner: &Owner) {
    if let Err(error) = Box::pin(send_due(venue, owner)).await {
        tracing::debug!(%owner, %error, "notifications are not sent yet; the sweep will do it");
    }
}

/// Sends due notifications of an owner; returns whether there are more. Any process may do it at any time, and several at
/// once.
pub async fn send_due(venue: &Venue, owner: &Owner) -> Result<bool, StoreError> {
    let now = venue.now();
    let found = venue.store.scan(owner, keys::NOTIFICATIONS_DUE, None, false, PAGE).await?;
    if found.is_empty() {
        return Ok(false);
    }
    let count = found.len();
    let webhooks = hooks::list(venue, owner).await?;
    for (key, doc) in found {
        if keys::sweep_time(&key).is_some_and(|due| due > now) {
            return Ok(false);
        }
        let notification = match doc.decode::<Notification>(&key) {
            Ok(Some(notification)) => notification,
            Ok(None) => continue,
            Err(error) => {
                tracing::error!(%owner, key, %error, "a notification can't be read; it is dropped and counted");
                drop_notifications(venue, owner, &[key]).await?;
                continue;
            }
        };
        let published = match payload::view(venue, owner, &notification, Receiver::Owner).await? {
            Some(view) => publish(venue, owner, &notification, view).await,
            None => Ok(()),
        };
        match published {
            Ok(()) => {}
            // One that fits no message is delivered by webhooks alone.
            Err(error @ BusError::TooLarge { .. }) => {
                tracing::error!(%owner, id = %notification.id, %error, "a notification fits no message of the queue");
            }
            Err(error) => {
                tracing::warn!(%owner, id = %notification.id, %error, "a notification is not published yet");
                postpone(venue, owner, &key, &notification).await?;
                return Ok(false);
            }
        }
        deliver::start(venue, owner, &webhooks, &notification).await?;
        venue.store.write(venue.now(), owner, &[DocWrite::delete(key)]).await?;
    }
    Ok(count == PAGE)
}

/// Publishes the event of a notification; one without the content of its approval where the queue takes no more.
async fn publish(
    venue: &Venue,
    owner: &Owner,
    notification: &Notification,
    view: NotificationView,
) -> Result<(), BusError> {
    let to = MessageAddress::Event { owner: owner.clone(), agent: notification.agent.clone(), kind: notification.kind };
    let message = |view: &NotificationView| BusMessage {
        to: to.clone(),
        id: Some(notification.id.to_string()),
        body: serde_json::to_value(view).expect("notifications serialise"),
        trace: None,
    };
    let published = venue.bus.publish(&message(&view)).await;
    let Err(BusError::TooLarge { .. }) = &published else { return published };
    venue.bus.publish(&message(&payload::without_content(view))).await
}

/// Moves a notification that the queue has not taken to a later time. While more wait than may, the oldest are dropped.
async fn postpone(venue: &Venue, owner: &Owner, key: &str, notification: &Notification) -> Result<(), StoreError> {
    let now = venue.now();
    let later = keys::notification_due(now.plus(RETRY_PAUSE), &notification.id);
    let writes = [DocWrite::delete(key.to_owned()), DocWrite::json(later, notification)];
    venue.store.write(now, owner, &writes).await?;
    let count = Window { reverse: false, skip: 0, limit: 0, values: false };
    let waiting = venue.store.page(owner, keys::NOTIFICATIONS_DUE, count).await?.total;
    let excess = waiting.saturating_sub(NOTIFICATIONS_WAITING).min(PAGE);
    if excess == 0 {
        return Ok(());
    }
    let oldest = venue.store.scan(owner, keys::NOTIFICATIONS_DUE, None, false, excess).await?;
    let oldest: Vec<DocKey> = oldest.into_iter().map(|(key, _)| key).collect();
    tracing::warn!(%owner, dropped = oldest.len(), "too many notifications wait for the queue; the oldest are dropped");
    drop_notifications(venue, owner, &oldest).await
}

/// Deletes notifications that are never sent, and counts them where the owner sees it.
async fn drop_notifications(venue: &Venue, owner: &Owner, dropped: &[DocKey]) -> Result<(), StoreError> {
    let attempt = || async {
        let key = keys::NOTIFICATIONS_STATE;
        let (state, version) = venue.store.get_versioned::<NotificationsState>(owner, key).await?;
        let mut state = state.unwrap_or_default();
        state.dropped = state.dropped.saturating_add(dropped.len() as u64);
        let mut writes = vec![DocWrite::json(key, &state).at_version(version)];
        writes.extend(dropped.iter().map(|key| DocWrite::delete(key.clone())));
        Ok::<_, StoreError>(Edit::write(writes, ()))
    };
    venue.store.edit(venue.now(), owner, "state of the notifications", owner, attempt).await
}
