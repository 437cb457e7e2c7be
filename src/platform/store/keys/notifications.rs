//! Keys of notifications and of webhooks.

use crate::domain::ids::{JobId, encode_token};
use crate::domain::time::Millis;

/// Prefix of notifications that are not sent yet, by the time at which they are due.
pub const NOTIFICATIONS_DUE: &str = "e.due/";

/// Returns the key of such a notification.
pub fn notification_due(due: Millis, notification: &JobId) -> String {
    format!("{NOTIFICATIONS_DUE}{:016}-{notification}", due.0)
}

/// Key of the state of an owner's notifications.
pub const NOTIFICATIONS_STATE: &str = "e.state";

/// Prefix of the webhooks of an owner.
pub const WEBHOOKS: &str = "hook/";

/// Returns the key of a webhook of an owner.
pub fn webhook(name: &str) -> String {
    format!("{WEBHOOKS}{}", encode_token(name))
}

/// Prefix of what became of deliveries to webhooks.
pub const WEBHOOK_STATES: &str = "hook.at/";

/// Returns the key of the state of a webhook of an owner.
pub fn webhook_state(name: &str) -> String {
    format!("{WEBHOOK_STATES}{}", encode_token(name))
}

/// Returns the key of an owner's state of a webhook of the venue.
pub fn venue_webhook_state(name: &str) -> String {
    format!("{WEBHOOK_STATES}venue/{}", encode_token(name))
}

#[cfg(test)]
mod tests {
    use super::super::job_of_due;
    use super::*;

    #[test]
    fn keys_of_notifications_and_webhooks_are_pinned() {
        let id = JobId::new(&"0f".repeat(16)).unwrap();
        assert_eq!(notification_due(Millis(5), &id), format!("e.due/0000000000000005-{id}"));
        assert_eq!(job_of_due(NOTIFICATIONS_DUE, &notification_due(Millis(5), &id)), Some((Millis(5), id)));
        assert_eq!((webhook("a"), webhook_state("a")), ("hook/a".to_owned(), "hook.at/a".to_owned()));
        assert_eq!(venue_webhook_state("a"), "hook.at/venue/a");
    }
}
