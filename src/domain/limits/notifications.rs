//! Limits of notifications and of the webhooks that get them.

use std::time::Duration;

/// Webhooks of one owner, and of the venue: each notification becomes one delivery for each of them.
pub const WEBHOOKS: usize = 10;

/// Open operations of an owner, its deliveries among them, beyond which a notification is not sent to webhooks: it is
/// counted as dropped. The rest of the room is for other operations.
pub const DELIVERY_ROOM: usize = 250;

/// Notifications of one owner that wait for a queue which takes none; of more the oldest are dropped and counted.
pub const NOTIFICATIONS_WAITING: usize = 1_000;

/// Bytes of what an approval shows in a notification; a larger one is read where the notification says.
pub const NOTIFICATION_BYTES: usize = 64 << 10;

/// Deliveries that were given up, of which a webhook's state keeps the error.
pub const UNDELIVERED_KEPT: usize = 20;

/// Caps of one owner that were announced and have not been reset, at most.
pub const CAPS_ANNOUNCED: usize = 200;

/// Time for one post to a webhook; protocols recommend 10 to 30 s.
pub const POST_TIME: Duration = Duration::from_secs(20);

/// Failed posts in a row after which a delivery is given up: about an hour.
pub const POST_TRIES: u32 = 20;
