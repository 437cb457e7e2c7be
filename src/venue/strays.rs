//! Messages with an unreadable subject, which no consumer gets: they are kept for operators.

use crate::bus::subject::for_address;
use crate::domain::dead::UnreadableMessage;
use crate::domain::ids::Owner;
use crate::domain::limits::{UNREADABLE_BYTES, UNREADABLE_KEPT};
use crate::domain::message::{BusMessage, MessageAddress};
use crate::domain::seal::SEAL;
use crate::domain::visible::beginning;
use crate::store::{DocWrite, StoreError, Window, keys};
use crate::venue::{Venue, venue_owner};

/// Keeps a message, and the newest ones before it. They belong to the venue: a message under the name of an unknown
/// owner doesn't create that owner.
///
/// After it: the message is counted once, however often it is delivered.
pub async fn keep(venue: &Venue, stray: &UnreadableMessage, sequence: u64) -> Result<(), StoreError> {
    let new = DocWrite::json(keys::stray(stray.received, sequence), stray);
    venue.keep_newest(keys::STRAYS, UNREADABLE_KEPT, new).await
}

/// Returns the subject of an address below the prefix, which only the queue knows.
pub fn subject_below_prefix(to: &MessageAddress) -> String {
    for_address("", to).trim_start_matches('.').to_owned()
}

/// Keeps the message of an agent that the queue will never take.
pub async fn keep_unsendable(
    venue: &Venue,
    owner: &Owner,
    message: &BusMessage,
    reason: &str,
) -> Result<(), StoreError> {
    let subject = subject_below_prefix(&message.to);
    let mut body = message.body.clone();
    body.as_object_mut().and_then(|body| body.shift_remove(SEAL));
    let body = body.to_string();
    tracing::warn!(%owner, subject, reason, bytes = body.len(), "a message that can't be sent is kept for `dead list`");
    let reason = match &message.to {
        MessageAddress::In { agent, .. } => format!("a message to agent `{agent}` was never sent: {reason}"),
        MessageAddress::Out { .. }
        | MessageAddress::Event { .. }
        | MessageAddress::Reply(_)
        | MessageAddress::Job { .. } => format!("it was never sent: {reason}"),
    };
    let stray = UnreadableMessage {
        subject,
        reason,
        owner: Some(owner.clone()),
        id: message.id.clone(),
        received: venue.now(),
        bytes: body.len(),
        body: beginning(body, UNREADABLE_BYTES),
        told: Vec::new(),
    };
    keep(venue, &stray, 0).await
}

/// Whose messages are listed.
#[derive(Debug, Clone, Copy)]
pub enum StrayOwner<'a> {
    /// Messages of every owner, and those without one.
    Any,
    /// Messages of an owner, and those whose subject names no owner.
    OneOrNone(&'a Owner),
    /// Messages of an owner.
    One(&'a Owner),
}

impl StrayOwner<'_> {
    fn includes(self, owner: Option<&Owner>) -> bool {
        match self {
            Self::Any => true,
            Self::OneOrNone(one) => owner.is_none_or(|owner| owner == one),
            Self::One(one) => owner == Some(one),
        }
    }
}

/// Lists the newest messages, and returns their number.
pub async fn list(
    venue: &Venue,
    whose: StrayOwner<'_>,
    limit: usize,
) -> Result<(Vec<UnreadableMessage>, usize), StoreError> {
    let window = Window { reverse: true, skip: 0, limit: UNREADABLE_KEPT, values: true };
    let page = venue.store.page(&venue_owner(), keys::STRAYS, window).await?;
    let mut strays = Vec::with_capacity(page.docs.len());
    for (key, doc) in &page.docs {
        strays.extend(doc.decode::<UnreadableMessage>(key)?);
    }
    strays.retain(|stray| whose.includes(stray.owner.as_ref()));
    let total = strays.len();
    strays.truncate(limit);
    Ok((strays, total))
}
