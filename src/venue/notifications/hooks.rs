//! Webhooks of an owner: set, list, delete; and what became of deliveries, for these and for the venue's.

use crate::config::url::parse_callable;
use crate::domain::authority::ResourcePath;
use crate::domain::ids::Owner;
use crate::domain::ids::secret::SecretName;
use crate::domain::limits::WEBHOOKS;
use crate::domain::notification::NotificationKind;
use crate::domain::notification::signature::WebhookKey;
use crate::domain::webhook::{NotificationsState, Webhook, WebhookName, WebhookState};
use crate::store::{DocWrite, Edit, StoreError, keys, skip_damaged};
use crate::venue::Venue;
use crate::venue::operation::{Caller, OpError};
use crate::venue::outbound::url_resource;
use crate::view::notification::{WebhookView, WebhooksView};
use reqwest::Url;
use serde::de::DeserializeOwned;

/// Request to set a webhook.
#[derive(Debug, Clone)]
pub struct WantedWebhook {
    /// Name of the webhook.
    pub name: WebhookName,
    /// Address that notifications are posted to.
    pub url: String,
    /// Kinds that are sent; empty = all.
    pub kinds: Vec<NotificationKind>,
    /// Secret with the key of its signatures.
    pub secret: SecretName,
}

/// Name and state of a webhook, of an owner or of the venue.
#[derive(Debug, Clone, Copy)]
pub(super) struct WebhookPlace<'a> {
    pub(super) name: &'a WebhookName,
    pub(super) of_venue: bool,
}

impl WebhookPlace<'_> {
    fn state_key(self) -> String {
        let name = self.name.as_str();
        if self.of_venue { keys::venue_webhook_state(name) } else { keys::webhook_state(name) }
    }
}

/// Returns the webhooks of an owner, by name.
pub async fn list(venue: &Venue, owner: &Owner) -> Result<Vec<Webhook>, StoreError> {
    let mut found = Vec::new();
    let mut pages = venue.store.docs(owner, keys::WEBHOOKS);
    while let Some(page) = pages.records::<Webhook>().await? {
        found.extend(page.into_iter().map(|(_, hook)| hook));
    }
    Ok(found)
}

/// Returns one webhook of an owner.
pub async fn get(venue: &Venue, owner: &Owner, name: &WebhookName) -> Result<Option<Webhook>, StoreError> {
    venue.store.get(owner, &keys::webhook(name.as_str())).await
}

/// Returns what is known of the deliveries of a webhook; nothing, if its record is damaged.
async fn read_listed_state(venue: &Venue, owner: &Owner, place: WebhookPlace<'_>) -> Result<WebhookState, StoreError> {
    read_listed_or_default(venue, owner, &place.state_key()).await
}

async fn read_listed_or_default<T: DeserializeOwned + Default>(
    venue: &Venue,
    owner: &Owner,
    key: &str,
) -> Result<T, StoreError> {
    Ok(skip_damaged(owner, key, venue.store.get(owner, key).await)?.flatten().unwrap_or_default())
}

/// Returns one webhook as people see it.
pub async fn view(venue: &Venue, owner: &Owner, hook: &Webhook) -> Result<WebhookView, StoreError> {
    let state = read_listed_state(venue, owner, WebhookPlace { name: &hook.name, of_venue: false }).await?;
    let shown = Url::parse(&hook.url).map(|url| url_resource(&url).to_string()).unwrap_or_default();
    Ok(WebhookView::of_owner(hook, shown, state))
}

/// Returns all webhooks that get notifications of an owner, and the number of notifications that were dropped.
pub async fn views(venue: &Venue, owner: &Owner) -> Result<WebhooksView, StoreError> {
    let mut items = Vec::new();
    for hook in list(venue, owner).await? {
        items.push(view(venue, owner, &hook).await?);
    }
    for hook in &venue.catalog.webhooks {
        let state = read_listed_state(venue, owner, WebhookPlace { name: &hook.name, of_venue: true }).await?;
        items.push(WebhookView::of_venue(hook.name.to_string(), hook.kinds.clone(), state));
    }
    let state: NotificationsState = read_listed_or_default(venue, owner, keys::NOTIFICATIONS_STATE).await?;
    Ok(WebhooksView { items, dropped: state.dropped })
}

/// Returns the key of a webhook's signatures.
pub(super) async fn signing_key(venue: &Venue, owner: &Owner, secret: &SecretName) -> Result<WebhookKey, OpError> {
    let opened = venue.secrets.open(&*venue.store, owner, secret).await?;
    WebhookKey::parse(opened.value.reveal())
        .map_err(|error| OpError::Invalid(format!("`secret`: the value of `{}`: {error}", secret.path())))
}

/// Checks that a caller may post to an address with signatures by this secret, and that the venue may call it. The name
/// in the address is looked up, and checked, for each connection.
pub(super) fn check_post(venue: &Venue, caller: &Caller, url: &str, secret: &SecretName) -> Result<Url, OpError> {
    let url = parse_callable(url).map_err(|error| OpError::Invalid(format!("`url`: {error}")))?;
    venue.catalog.hosts.check(&url)?;
    let permitted = caller.authority.permits("http/post", url_resource(&url));
    permitted.map_err(|denied| OpError::Denied(denied.model_text("a webhook")))?;
    let permitted = caller.authority.permits("secret/use", ResourcePath::secret(secret));
    permitted.map_err(|denied| OpError::Denied(denied.model_text("a webhook")))?;
    Ok(url)
}

/// Sets a webhook of the caller's owner, in the place of one of its name.
pub async fn set(venue: &Venue, caller: &Caller, wanted: WantedWebhook) -> Result<Webhook, OpError> {
    let owner = &caller.owner;
    let url = check_post(venue, caller, &wanted.url, &wanted.secret)?;
    signing_key(venue, owner, &wanted.secret).await?;
    let asker = caller.asker(Some(owner));
    let WantedWebhook { name, url: _, mut kinds, secret } = wanted;
    kinds.sort_unstable();
    kinds.dedup();
    let hook = Webhook {
        name,
        url: url.to_string(),
        kinds,
        secret,
        asker,
        principal: caller.principal.mark().map(str::to_owned),
        bound: Box::new(caller.request_envelope().bound),
        under: caller.trail(),
        set: venue.now(),
    };
    let quota = venue.quota().await;
    let attempt = || async {
        let key = keys::webhook(hook.name.as_str());
        let (before, version) = venue.store.get_versioned::<Webhook>(owner, &key).await?;
        let mut writes = vec![DocWrite::json(key, &hook).at_version(version)];
        if before.is_none() {
            // Written again, and read before the count: of several that are set at once, each counts those before it.
            let key = keys::NOTIFICATIONS_STATE;
            let (state, version) = venue.store.get_versioned::<NotificationsState>(owner, key).await?;
            writes.push(DocWrite::json(key, &state.unwrap_or_default()).at_version(version));
            if list(venue, owner).await?.len() >= WEBHOOKS {
                let text = format!("expected at most {WEBHOOKS} webhooks of one owner; delete another");
                return Err(OpError::Limit(text));
            }
        }
        Ok(Edit::write(writes, ()).with_quota(quota))
    };
    venue.store.edit(venue.now(), owner, "webhook", &hook.name, attempt).await?;
    Ok(hook)
}

/// Deletes a webhook of an owner with its state; returns whether it was there. Deliveries to it end without a post.
pub async fn delete(venue: &Venue, owner: &Owner, name: &WebhookName) -> Result<bool, StoreError> {
    let existed = get(venue, owner, name).await?.is_some();
    let name = name.as_str();
    let writes = [DocWrite::delete(keys::webhook(name)), DocWrite::delete(keys::webhook_state(name))];
    venue.store.write(venue.now(), owner, &writes).await?;
    Ok(existed)
}

/// Changes the state of a webhook.
pub(super) async fn note(
    venue: &Venue,
    owner: &Owner,
    place: WebhookPlace<'_>,
    change: impl Fn(WebhookState) -> WebhookState + Sync,
) -> Result<(), StoreError> {
    let attempt = || async {
        // The state of a webhook that was deleted meanwhile would stay for good.
        if !place.of_venue && get(venue, owner, place.name).await?.is_none() {
            return Ok(Edit::without_writes(()));
        }
        let key = place.state_key();
        let (state, version) = venue.store.get_versioned::<WebhookState>(owner, &key).await?;
        let changed = change(state.unwrap_or_default());
        Ok::<_, StoreError>(Edit::write([DocWrite::json(key, &changed).at_version(version)], ()))
    };
    venue.store.edit(venue.now(), owner, "state of a webhook", place.name, attempt).await
}
