//! Accounts that a model call is paid from: those of its task, and those of the caps of its session, of its owner's
//! day, of its user's day, of its tenant's day and of its model's day.
//!
//! The owner's accounts are in one place of the store and are reserved, or settled, in one write. The account that the
//! owners of a tenant share, and those that all owners share, are in two other places and are reserved after it; if
//! there is no room, the earlier reservations are settled.
//! What a dead worker has reserved counts as spent at the next call of its session, or after an hour and a half: the
//! call may have been made. A paid reply is never lost to a failed settlement: it then counts as it was reserved.

use crate::domain::budget::{Allotment, BudgetedCall, HoldError, Purse};
use crate::domain::cap::{Cap, CapScope, CapUse};
use crate::domain::chat::{ModelSettings, Price, TokenUsage};
use crate::domain::ids::Owner;
use crate::domain::turn::TurnInput;
use crate::store::{DocKey, StoreError, keys};
use crate::venue::{is_reserved, own_records, tenant_owner, venue_owner};
use crate::worker::state::Worker;
use crate::worker::state::accounts::{AccountSet, Payment, PaymentStep, clamp_tokens};
use futures::future::join_all;
use std::sync::Arc;

/// Accounts of one call.
pub(crate) struct Wallet<'w> {
    worker: &'w Worker,
    purse: &'w Purse,
    /// Accounts by their place in the store, in the order in which they are reserved: those of the owner, then those
    /// that other owners share, of the tenant and of the venue.
    places: [Arc<AccountSet>; 3],
}

/// Why a payment is not made.
#[derive(Debug)]
pub(crate) enum PaymentError {
    /// An account doesn't hold the cost.
    Short(HoldError),
    /// The store failed.
    Store(StoreError),
}

impl From<StoreError> for PaymentError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl<'w> Wallet<'w> {
    /// Collects the accounts of a turn that calls this model.
    pub(crate) fn for_turn(worker: &'w Worker, turn_input: &'w TurnInput, model: &ModelSettings) -> Self {
        let (spend, purse, owner) = (&worker.venue.spend, &turn_input.purse, &turn_input.owner);
        let session = turn_input.session.token();
        let inherited = purse.inherited.iter().map(|name| (keys::account(name), None));
        let of_task = purse.own.iter().map(|(name, account)| (keys::account(name), Some(account.clone())));
        let user = turn_input.mandate.envelope.user(owner);
        let caps = spend.caps_of_call(owner, &user, model, turn_input.config.limits.session, worker.venue.now());
        let (mut of_models, caps): (Vec<_>, Vec<_>) =
            caps.into_iter().partition(|cap| matches!(cap.of, CapScope::Model(_)));
        if worker.model.is_own_server(model) {
            // What such a server reports would use up what all other owners may spend.
            of_models.clear();
        }
        let (of_tenant, caps): (Vec<_>, Vec<_>) = caps.into_iter().partition(|cap| cap.of == CapScope::Tenant);
        let (mut keys, accounts): (Vec<_>, Vec<_>) = inherited.chain(of_task).unzip();
        let of_owner = caps.iter().any(|cap| cap.of == CapScope::Owner);
        let of_user = caps.iter().find(|cap| matches!(cap.of, CapScope::User(_)));
        // Tasks of an owner are grouped by the account of its day, those of a user by the account of his; else all that
        // one request causes, by its account.
        let lane = match of_user {
            _ if of_owner => String::new(),
            Some(cap) => cap_account_key(cap, turn_input),
            None => keys.first().unwrap_or(&session).clone(),
        };
        keys.extend(caps.iter().map(|cap| cap_account_key(cap, turn_input)));
        let holder = format!("{}/{session}", owner.token());
        let own = AccountSet {
            owner: owner.clone(),
            holder: session,
            lane,
            keys,
            accounts,
            caps,
            turns_before_reset: turn_input.state.since,
        };
        let shared = |owner: Owner, lane: &str, caps: Vec<Cap>| AccountSet {
            owner,
            holder: holder.clone(),
            lane: lane.to_owned(),
            keys: caps.iter().map(|cap| cap_account_key(cap, turn_input)).collect(),
            accounts: Vec::new(),
            caps,
            turns_before_reset: 0,
        };
        let of_tenant = shared(tenant_owner(owner), "", of_tenant);
        let of_models = shared(venue_owner(), &model.provider, of_models);
        Self { worker, purse, places: [own, of_tenant, of_models].map(Arc::new) }
    }

    /// Makes the accounts of a task whose turn calls no model itself: the calls of its steps are paid from them.
    pub(crate) async fn open_accounts(worker: &Worker, turn_input: &TurnInput) -> Result<(), StoreError> {
        let own = &turn_input.purse.own;
        let (keys, accounts): (Vec<_>, Vec<_>) =
            own.iter().map(|(name, account)| (keys::account(name), Some(account.clone()))).unzip();
        let Some(lane) = keys.first().cloned() else { return Ok(()) };
        let accounts = AccountSet {
            owner: turn_input.owner.clone(),
            holder: turn_input.session.token(),
            lane: lane.clone(),
            keys,
            accounts,
            caps: Vec::new(),
            turns_before_reset: turn_input.state.since,
        };
        let (venue, payment) = (&worker.venue, Payment::new(Arc::new(accounts), PaymentStep::Open));
        // Nothing can be short: no account is asked for anything.
        worker.payments.apply(&venue.store, venue.now(), &turn_input.owner, &lane, payment).await.map(drop)
    }

    /// Reserves the cost of a call in all accounts or in none; `None` where nothing limits it. Before the `last` call
    /// of a task its own budget doesn't count; caps do.
    pub(crate) async fn hold(&self, call: BudgetedCall<'_>, last: bool) -> Result<Option<Allotment>, PaymentError> {
        let BudgetedCall { prompt, reply, price, now, .. } = call;
        let mut granted: Option<Allotment> = None;
        for (held, place) in self.places.iter().enumerate() {
            let reply = granted.map_or(reply, |granted| Some(clamp_tokens(granted.reply)));
            match self.apply_payment(place, PaymentStep::Hold { prompt, reply, price, now, last }).await {
                Ok(Some(next)) => {
                    let cut_by = next.cut_by.or(granted.and_then(|granted| granted.cut_by));
                    granted = Some(Allotment { cut_by, ..next });
                }
                Ok(None) => {}
                Err(error) => {
                    for earlier in self.places.iter().take(held) {
                        self.settle_account(earlier, None).await;
                    }
                    return Err(error);
                }
            }
        }
        Ok(granted)
    }

    /// Replaces the reservation by what the call used; `None`: it was not made.
    pub(crate) async fn settle(&self, used: Option<(TokenUsage, Option<Price>)>) {
        join_all(self.places.iter().map(|place| self.settle_account(place, used))).await;
    }

    async fn settle_account(&self, place: &Arc<AccountSet>, used: Option<(TokenUsage, Option<Price>)>) {
        let why = match self.apply_payment(place, PaymentStep::Settle(used)).await {
            Ok(_) => return,
            Err(PaymentError::Short(_)) => "others were always faster".to_owned(),
            Err(PaymentError::Store(error)) => error.to_string(),
        };
        let [own, ..] = &self.places;
        let (owner, session) = (&place.owner, &own.holder);
        tracing::warn!(%owner, session, why, "a model call is not settled; it counts as it was held");
    }

    /// Changes all accounts in one place or none, together with other calls of this process. If other processes were
    /// always faster, the rest counts as reserved by them.
    async fn apply_payment(
        &self,
        place: &Arc<AccountSet>,
        step: PaymentStep,
    ) -> Result<Option<Allotment>, PaymentError> {
        if place.keys.is_empty() {
            return Ok(None);
        }
        let venue = &self.worker.venue;
        let pay = || {
            let payment = Payment::new(Arc::clone(place), step.clone());
            self.worker.payments.apply(&venue.store, venue.now(), &place.owner, &place.lane, payment)
        };
        let paid = if is_reserved(&place.owner) {
            // An unreadable record of the venue or of a tenant must not stop the calls of an owner.
            own_records::change_or_reset::<CapUse, _, _>(venue, &place.owner, &place.keys, pay).await
        } else {
            pay().await
        };
        match paid {
            Err(StoreError::Contended { .. }) => Err(PaymentError::Short(HoldError::Held)),
            outcome => outcome?.map_err(PaymentError::Short),
        }
    }

    /// Whether the task has a budget.
    pub(crate) fn has_budget(&self) -> bool {
        !self.purse.is_empty()
    }
}

/// Returns the key of a cap's account.
fn cap_account_key(cap: &Cap, turn_input: &TurnInput) -> DocKey {
    let date = cap.day.as_ref().map(|day| day.date.as_str()).unwrap_or_default();
    match &cap.of {
        CapScope::Session => keys::session_cap(&turn_input.session),
        CapScope::Owner | CapScope::Tenant => keys::owner_cap(date),
        CapScope::User(user) => keys::user_cap(date, user),
        CapScope::Model(name) => keys::model_cap(date, name),
    }
}
