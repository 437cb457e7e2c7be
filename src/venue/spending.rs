//! Spending for people: by day, model and session as commits record it, and what calls have reserved and used of the
//! caps.
//!
//! The two may differ a little: a cap also counts calls that run, and calls of dead workers, whose costs are unknown.

use crate::domain::budget::dollars;
use crate::domain::cap::{Cap, CapScope, CapUse, Ceiling};
use crate::domain::ids::{Owner, SessionKey};
use crate::domain::limits::{LIST_BYTES, LIST_LOOKS};
use crate::domain::spend::ModelUse;
use crate::store::{StoreError, decode_listed, keys, skip_damaged, steps};
use crate::venue::agents;
use crate::venue::{Venue, tenant_owner, venue_owner};
use crate::view::spend::{CapCostView, CapTokensView, CapView, ModelSpendView, SessionSpendView, SpendTodayView};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Returns what an owner has spent today, by the commits of its sessions, without its caps. It reads the first
/// [`LIST_LOOKS`] sessions and lists at most `limit` of them.
pub async fn today(venue: &Venue, owner: &Owner, limit: usize) -> Result<SpendTodayView, StoreError> {
    let day = venue.spend.zone.day(venue.now());
    let prefix = keys::session_days(&day.date);
    let found = steps::scan(&*venue.store, owner, steps::KeyRange::ascending(&prefix), LIST_LOOKS, LIST_BYTES).await?;
    let mut models: BTreeMap<String, ModelUse> = BTreeMap::new();
    let mut sessions: BTreeMap<String, (SessionKey, ModelUse)> = BTreeMap::new();
    let (mut all, mut is_partial) = (ModelUse::default(), !found.ended);
    for (key, doc) in found.docs {
        let Some(session) = keys::session_of_day(&key) else { continue };
        let spent: Option<BTreeMap<String, ModelUse>> = decode_listed(owner, &key, &doc.value.unwrap_or_default());
        is_partial |= spent.is_none();
        for (model, spent) in spent.unwrap_or_default() {
            let of_model = models.entry(model).or_default();
            *of_model = of_model.plus(spent);
            let (_, of_session) = sessions.entry(session.token()).or_insert((session.clone(), ModelUse::default()));
            *of_session = of_session.plus(spent);
            all = all.plus(spent);
        }
    }
    let mut most: Vec<_> = sessions.into_values().collect();
    most.sort_by_key(|(_, spent)| Reverse((spent.nano, spent.input + spent.output)));
    let by_model = models.into_iter().map(|(model, spent)| ModelSpendView { spent: (&spent).into(), model });
    let by_session = most.iter().take(limit).map(|(session, spent)| SessionSpendView {
        spent: spent.into(),
        agent_id: session.agent.to_string(),
        session_id: session.session.to_string(),
    });
    Ok(SpendTodayView {
        owner: owner.to_string(),
        day: day.date,
        zone: day.zone,
        resets: day.ends,
        spent: (&all).into(),
        models: by_model.collect(),
        sessions: by_session.collect(),
        sessions_in_all: most.len(),
        partial: is_partial,
        caps: Vec::new(),
    })
}

/// Returns the caps of an owner's day, of a user's day, of its tenant's day, of a session and of the models, with what is
/// used of them. Only operators see how much all owners together have used of a model.
pub async fn caps(
    venue: &Venue,
    owner: &Owner,
    user: &str,
    session: Option<&SessionKey>,
    sees_all: bool,
) -> Result<Vec<CapView>, StoreError> {
    let mut shown = Vec::new();
    if let Some(session) = session {
        let agent = agents::get(venue, owner, &session.agent).await?;
        let config = agent.map(|(agent, _)| agent.config);
        let own = config.as_ref().map_or_else(Ceiling::default, |config| config.limits.session);
        if let Some(cap) = venue.spend.session_cap(own) {
            let ttl = config.as_ref().and_then(|config| config.session.ttl.as_ref());
            let since = agents::sessions::last_expired_turn(venue, owner, session, ttl).await?;
            shown.extend(cap_view(venue, owner, &keys::session_cap(session), since, &cap, true).await?);
        }
    }
    let now = venue.now();
    let date = venue.spend.zone.day(now).date;
    let of_days = [
        (owner.clone(), keys::owner_cap(&date), venue.spend.owner_cap(owner, now)),
        (owner.clone(), keys::user_cap(&date, user), venue.spend.user_cap(user, now)),
        (tenant_owner(owner), keys::owner_cap(&date), venue.spend.tenant_cap(owner, now)),
    ];
    for (owner, key, cap) in of_days {
        let Some(cap) = cap else { continue };
        shown.extend(cap_view(venue, &owner, &key, 0, &cap, true).await?);
    }
    for cap in venue.spend.model_caps(now) {
        let (CapScope::Model(name), Some(day)) = (&cap.of, &cap.day) else { continue };
        shown.extend(cap_view(venue, &venue_owner(), &keys::model_cap(&day.date, name), 0, &cap, sees_all).await?);
    }
    Ok(shown)
}

/// Returns one cap with its account, which begins after turn `since` of the session; `None` if the account is damaged.
/// Without `whole` the amounts are left out.
async fn cap_view(
    venue: &Venue,
    owner: &Owner,
    key: &str,
    since: u64,
    cap: &Cap,
    whole: bool,
) -> Result<Option<CapView>, StoreError> {
    let Some(book) = skip_damaged(owner, key, venue.store.get::<CapUse>(owner, key).await)? else { return Ok(None) };
    let book = book.unwrap_or_default().for_conversation(since);
    let (spent, taken) = (book.spent, book.spent_and_held());
    let (of, user, model) = match &cap.of {
        CapScope::Session => ("session", None, None),
        CapScope::Owner => ("owner", None, None),
        CapScope::User(user) => ("user", Some(user.clone()), None),
        CapScope::Tenant => ("tenant", None, None),
        CapScope::Model(name) => ("model", None, Some(name.clone())),
    };
    let tokens = cap.limits.tokens.map(|limit| {
        let held = taken.tokens - spent.tokens;
        CapTokensView { limit, used: spent.tokens, held }
    });
    let cost = cap.limits.cost.map(|limit| {
        let held = dollars(taken.nano.saturating_sub(spent.nano));
        CapCostView { limit, used: dollars(spent.nano), held }
    });
    let is_reached =
        tokens.is_some_and(|tokens| tokens.used >= tokens.limit) || cost.is_some_and(|cost| cost.used >= cost.limit);
    Ok(Some(CapView {
        of: of.to_owned(),
        user,
        model,
        resets: cap.day.as_ref().map(|day| day.ends),
        reached: is_reached,
        calls: whole.then_some(spent.turns),
        tokens: tokens.filter(|_| whole),
        cost: cost.filter(|_| whole),
    }))
}
