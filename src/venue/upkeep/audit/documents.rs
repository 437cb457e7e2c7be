//! Documents that the audit reads only to see whether they can be read. Lists leave damaged ones out, and work that needs
//! one stops, so that somebody must be told which it is.

use crate::domain::a2a::pin::CardPin;
use crate::domain::approval::Approval;
use crate::domain::budget::Account;
use crate::domain::cap::CapUse;
use crate::domain::dead::DeadLetter;
use crate::domain::ids::Owner;
use crate::domain::invocation::InvokedOperation;
use crate::domain::job::watch::ExternalWatch;
use crate::domain::mcp::oauth::record::{BegunLogin, ServerLogin};
use crate::domain::mcp::pin::McpPin;
use crate::domain::outcome::{OpenCall, UnknownOutcome};
use crate::domain::quota::OwnLimits;
use crate::domain::secret::SecretRecord;
use crate::domain::timer::Timer;
use crate::domain::webhook::{NotificationsState, Webhook, WebhookState};
use crate::store::{StoreError, decode, keys};
use crate::venue::{Venue, agents};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;

/// Reads a document as its users do.
type DocumentCheck = fn(&str, &[u8]) -> Result<(), StoreError>;

/// Prefixes of an owner's documents, and what reads these.
const OF_OWNERS: [(&str, DocumentCheck); 17] = [
    (keys::TIMERS, check_json::<Timer>),
    (keys::SECRETS, check_json::<SecretRecord>),
    (keys::APPROVALS, check_json::<Approval>),
    (keys::OUTCOMES, check_json::<UnknownOutcome>),
    (keys::OPEN_CALLS, check_json::<OpenCall>),
    (keys::OUTBOUND, check_json::<ExternalWatch>),
    (keys::INVOCATIONS, check_json::<InvokedOperation>),
    (keys::BUDGETS, check_json::<Account>),
    (keys::OWNER_CAPS, check_json::<CapUse>),
    (keys::DEAD_LETTERS, check_json::<DeadLetter>),
    (keys::MCP_PINS, check_json::<McpPin>),
    (keys::MCP_LOGINS, check_json::<ServerLogin>),
    (keys::MCP_BEGUN_LOGINS, check_json::<BegunLogin>),
    (keys::CARD_PINS, check_json::<CardPin>),
    (keys::WEBHOOKS, check_json::<Webhook>),
    (keys::WEBHOOK_STATES, check_json::<WebhookState>),
    (keys::NOTIFICATIONS_STATE, check_json::<NotificationsState>),
];

/// The same of an agent's documents, by what follows `g/<agent>/`.
const OF_AGENTS: [(&str, DocumentCheck); 4] = [
    (keys::MCP_PINS, check_json::<McpPin>),
    (keys::MCP_LOGINS, check_json::<ServerLogin>),
    (keys::CARD_PINS, check_json::<CardPin>),
    (keys::SESSION_CAPS, check_json::<CapUse>),
];

/// Returns documents of an owner that can't be read, as texts.
pub(super) async fn find_unreadable(venue: &Venue, owner: &Owner) -> Result<BTreeSet<String>, StoreError> {
    let mut unreadable = BTreeSet::new();
    for (prefix, check) in OF_OWNERS {
        find_under(venue, owner, prefix, check, &mut unreadable).await?;
    }
    for agent in agents::document_prefixes(&*venue.store, owner).await? {
        for (rest, check) in OF_AGENTS {
            find_under(venue, owner, &format!("{agent}{rest}"), check, &mut unreadable).await?;
        }
    }
    let limits = venue.store.doc(owner, keys::QUOTA).await?.value;
    if limits.is_some_and(|line| OwnLimits::decode(&line).is_none()) {
        unreadable.insert(format!("`{}` of `{owner}` can't be read: it is no line of limits", keys::QUOTA));
    }
    Ok(unreadable)
}

async fn find_under(
    venue: &Venue,
    owner: &Owner,
    prefix: &str,
    check: DocumentCheck,
    unreadable: &mut BTreeSet<String>,
) -> Result<(), StoreError> {
    let mut documents = venue.store.docs(owner, prefix);
    while let Some(page) = documents.next().await? {
        for (key, doc) in page {
            if let Err(error) = check(&key, &doc.value.unwrap_or_default()) {
                unreadable.insert(format!("a document of `{owner}` can't be read: {error}"));
            }
        }
    }
    Ok(())
}

fn check_json<T: DeserializeOwned>(key: &str, bytes: &[u8]) -> Result<(), StoreError> {
    decode::<T>(key, bytes).map(drop)
}
