//! Accounts that a model call is paid from: those of its task, and those of the caps of its session, of its owner's
//! day, of its user's day and of its model's day.
//!
//! The owner's accounts are in one place of the store and are reserved, or settled, in one write. Accounts that all
//! owners share are in another place and are reserved after it; if there is no room, the first reservation is settled.
//! What a dead worker has reserved counts as spent at the next call of its session, or after an hour and a half: the
//! call may have been made. A paid reply is never lost to a failed settlement: it then counts as it was reserved.

use crate::domain::budget::{Allotment, BudgetedCall, HoldError, Purse};
use crate::domain::cap::{Cap, CapScope, CapUse};
use crate::domain::chat::{ModelSettings, Price, TokenUsage};
use crate::domain::turn::TurnInput;
use crate::store::{DocKey, StoreError, keys};
use crate::venue::{own_records, venue_owner};
use crate::worker::state::Worker;
use crate::worker::state::accounts::{AccountSet, Payment, PaymentStep, clamp_tokens};
use std::sync::Arc;

/// Accounts of one call.
pub(crate) struct Wallet<'w> {
    worker: &'w Worker,
    purse: &'w Purse,
    own_accounts: Arc<AccountSet>,
    shared_accounts: Arc<AccountSet>,
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
    pub(crate) fn for_turn(worker: &'w Worker, setting: &'w TurnInput, model: &ModelSettings) -> Self {
        let (spend, purse, owner) = (&worker.venue.spend, &setting.purse, &setting.owner);
        let session = setting.session.token();
        let inherited = purse.inherited.iter().map(|name| (keys::account(name), None));
        let of_task = purse.own.iter().map(|(name, account)| (keys::account(name), Some(account.clone())));
        let user = setting.mandate.envelope.user(owner);
        let caps = spend.caps_of_call(owner, &user, model, setting.config.limits.session, worker.venue.now());
        let (shared, caps): (Vec<_>, Vec<_>) = caps.into_iter().partition(|cap| matches!(cap.of, CapScope::Model(_)));
        let (mut keys, accounts): (Vec<_>, Vec<_>) = inherited.chain(of_task).unzip();
        let of_owner = caps.iter().any(|cap| cap.of == CapScope::Owner);
        let of_user = caps.iter().find(|cap| matches!(cap.of, CapScope::User(_)));
        // Tasks of an owner are grouped by the account of its day, those of a user by the account of his; else all that
        // one request causes, by its account.
        let lane = match of_user {
            _ if of_owner => String::new(),
            Some(cap) => cap_account_key(cap, setting),
            None => keys.first().unwrap_or(&session).clone(),
        };
        keys.extend(caps.iter().map(|cap| cap_account_key(cap, setting)));
        let holder = format!("{}/{session}", owner.token());
        let own = AccountSet {
            owner: owner.clone(),
            holder: session,
            lane,
            keys,
            accounts,
            caps,
            turns_before_reset: setting.state.since,
        };
        let shared = AccountSet {
            owner: venue_owner(),
            holder,
            lane: model.provider.clone(),
            keys: shared.iter().map(|cap| cap_account_key(cap, setting)).collect(),
            accounts: Vec::new(),
            caps: shared,
            turns_before_reset: 0,
        };
        Self { worker, purse, own_accounts: Arc::new(own), shared_accounts: Arc::new(shared) }
    }

    /// Reserves the cost of a call in all accounts or in none; `None` where nothing limits it. Before the `last` call
    /// of a task its own budget doesn't count; caps do.
    pub(crate) async fn hold(&self, call: BudgetedCall<'_>, last: bool) -> Result<Option<Allotment>, PaymentError> {
        let BudgetedCall { prompt, reply, price, now, .. } = call;
        let step = PaymentStep::Hold { prompt, reply, price, now, last };
        let own = self.apply_payment(&self.own_accounts, step).await?;
        let reply = own.map_or(reply, |own| Some(clamp_tokens(own.reply)));
        match self.apply_payment(&self.shared_accounts, PaymentStep::Hold { prompt, reply, price, now, last }).await {
            Ok(shared) => Ok(shared
                .map(|granted| Allotment { cut_by: granted.cut_by.or(own.and_then(|own| own.cut_by)), ..granted })
                .or(own)),
            Err(error) => {
                self.settle_account(&self.own_accounts, None).await;
                Err(error)
            }
        }
    }

    /// Replaces the reservation by what the call used; `None`: it was not made.
    pub(crate) async fn settle(&self, used: Option<(TokenUsage, Option<Price>)>) {
        tokio::join!(self.settle_account(&self.own_accounts, used), self.settle_account(&self.shared_accounts, used));
    }

    async fn settle_account(&self, place: &Arc<AccountSet>, used: Option<(TokenUsage, Option<Price>)>) {
        let why = match self.apply_payment(place, PaymentStep::Settle(used)).await {
            Ok(_) => return,
            Err(PaymentError::Short(_)) => "others were always faster".to_owned(),
            Err(PaymentError::Store(error)) => error.to_string(),
        };
        let (owner, session) = (&place.owner, &self.own_accounts.holder);
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
        let paid = if place.owner == venue_owner() {
            // An unreadable record of the venue must not stop the calls of an owner.
            own_records::change_or_reset::<CapUse, _, _>(venue, &place.keys, pay).await
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
fn cap_account_key(cap: &Cap, setting: &TurnInput) -> DocKey {
    let date = cap.day.as_ref().map(|day| day.date.as_str()).unwrap_or_default();
    match &cap.of {
        CapScope::Session => keys::session_cap(&setting.session),
        CapScope::Owner => keys::owner_cap(date),
        CapScope::User(user) => keys::user_cap(date, user),
        CapScope::Model(name) => keys::model_cap(date, name),
    }
}
