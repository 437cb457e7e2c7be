//! Spending for people: by day, model and session as commits record it, and what calls have reserved and used of the
//! caps.
//!
//! The two may differ a little: a cap also counts calls that run, and calls of dead workers, whose costs are unknown.

use crate::domain::budget::dollars;
use crate::domain::cap::{Cap, CapScope, CapUse, Ceiling};
use crate::domain::ids::{Owner, SessionKey};
use crate::domain::limits::{LIST_BYTES, LIST_LOOKS};
use crate::domain::spend::ModelUse;
use crate::store::{StoreError, decode, keys, steps};
use crate::venue::agents;
use crate::venue::{Venue, venue_owner};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Returns what an owner has spent today, by the commits of its sessions; of the first [`LIST_LOOKS`] of them.
pub async fn today_json(venue: &Venue, owner: &Owner, limit: usize) -> Result<Value, StoreError> {
    let day = venue.spend.zone.day(venue.now());
    let prefix = keys::session_days(&day.date);
    let found = steps::scan(&*venue.store, owner, &prefix, None, false, LIST_LOOKS, LIST_BYTES).await?;
    let mut models: BTreeMap<String, ModelUse> = BTreeMap::new();
    let mut sessions: BTreeMap<String, (SessionKey, ModelUse)> = BTreeMap::new();
    let mut all = ModelUse::default();
    for (key, doc) in found.docs {
        let (Some(session), Some(bytes)) = (keys::session_of_day(&key), doc.value) else { continue };
        for (model, spent) in decode::<BTreeMap<String, ModelUse>>(&key, &bytes)? {
            let of_model = models.entry(model).or_default();
            *of_model = of_model.plus(spent);
            let (_, of_session) = sessions.entry(session.token()).or_insert((session.clone(), ModelUse::default()));
            *of_session = of_session.plus(spent);
            all = all.plus(spent);
        }
    }
    let mut most: Vec<_> = sessions.into_values().collect();
    most.sort_by_key(|(_, spent)| Reverse((spent.nano, spent.input + spent.output)));
    let with = |mut shown: Value, names: &[(&str, &str)]| {
        for (key, name) in names {
            shown[*key] = (*name).into();
        }
        shown
    };
    let by_model = models.iter().map(|(model, spent)| with(spent.to_json(), &[("model", model)]));
    let by_session = most.iter().take(limit).map(|(session, spent)| {
        with(spent.to_json(), &[("agentId", session.agent.as_str()), ("sessionId", session.session.as_str())])
    });
    Ok(json!({
        "owner": owner.to_string(), "day": day.date, "zone": day.zone, "resets": day.ends,
        "spent": all.to_json(), "models": by_model.collect::<Vec<_>>(),
        "sessions": by_session.collect::<Vec<_>>(), "sessionsInAll": most.len(), "partial": !found.ended,
    }))
}

/// Returns the caps of an owner's day, of a user's day, of a session and of the models, with what is used of them. Only
/// operators see how much all owners together have used of a model.
pub async fn caps_json(
    venue: &Venue,
    (owner, user): (&Owner, &str),
    session: Option<&SessionKey>,
    sees_all: bool,
) -> Result<Vec<Value>, StoreError> {
    let mut shown = Vec::new();
    if let Some(session) = session {
        let agent = agents::get(venue, owner, &session.agent).await?;
        let config = agent.map(|(agent, _)| agent.config);
        let own = config.as_ref().map_or_else(Ceiling::default, |config| config.limits.session);
        if let Some(cap) = venue.spend.session_cap(own) {
            let ttl = config.as_ref().and_then(|config| config.session.ttl.as_ref());
            let since = agents::sessions::last_expired_turn(venue, owner, session, ttl).await?;
            shown.push(cap_json(venue, owner, (&keys::session_cap(session), since), &cap, true).await?);
        }
    }
    if let Some(cap) = venue.spend.owner_cap(owner, venue.now()) {
        let date = cap.day.as_ref().map(|day| day.date.clone()).unwrap_or_default();
        shown.push(cap_json(venue, owner, (&keys::owner_cap(&date), 0), &cap, true).await?);
    }
    if let Some(cap) = venue.spend.user_cap(user, venue.now()) {
        let date = cap.day.as_ref().map(|day| day.date.clone()).unwrap_or_default();
        shown.push(cap_json(venue, owner, (&keys::user_cap(&date, user), 0), &cap, true).await?);
    }
    for cap in venue.spend.model_caps(venue.now()) {
        let (CapScope::Model(name), Some(day)) = (&cap.of, &cap.day) else { continue };
        shown.push(cap_json(venue, &venue_owner(), (&keys::model_cap(&day.date, name), 0), &cap, sees_all).await?);
    }
    Ok(shown)
}

/// Returns one cap with its account, which begins after turn `since` of the session.
async fn cap_json(
    venue: &Venue,
    owner: &Owner,
    (key, since): (&str, u64),
    cap: &Cap,
    whole: bool,
) -> Result<Value, StoreError> {
    let book = venue.store.get::<CapUse>(owner, key).await?.unwrap_or_default().for_conversation(since);
    let (spent, taken) = (book.spent, book.spent_and_held());
    let mut shown = match &cap.of {
        CapScope::Session => json!({"of": "session"}),
        CapScope::Owner => json!({"of": "owner"}),
        CapScope::User(user) => json!({"of": "user", "user": user}),
        CapScope::Model(name) => json!({"of": "model", "model": name}),
    };
    if let Some(day) = &cap.day {
        shown["resets"] = json!(day.ends);
    }
    let tokens = cap.limits.tokens.is_some_and(|limit| spent.tokens >= limit);
    let cost = cap.limits.cost.is_some_and(|limit| dollars(spent.nano) >= limit);
    shown["reached"] = (tokens || cost).into();
    if whole {
        shown["calls"] = spent.turns.into();
        if let Some(limit) = cap.limits.tokens {
            let held = taken.tokens - spent.tokens;
            shown["tokens"] = json!({"limit": limit, "used": spent.tokens, "held": held});
        }
        if let Some(limit) = cap.limits.cost {
            let held = dollars(taken.nano.saturating_sub(spent.nano));
            shown["cost"] = json!({"limit": limit, "used": dollars(spent.nano), "held": held});
        }
    }
    Ok(shown)
}
