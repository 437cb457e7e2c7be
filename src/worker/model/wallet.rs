//! Accounts that a model call is paid from: those of its task, and those of the caps of its session, of its owner's
//! day, of its user's day and of its model's day.
//!
//! The owner's accounts are in one place of the store and are reserved, or settled, in one write. Accounts that all
//! owners share are in another place and are reserved after it; if there is no room, the first reservation is settled.
//! What a dead worker has reserved counts as spent at the next call of its session, or after an hour and a half: the
//! call may have been made. A paid reply is never lost to a failed settlement: it then counts as it was reserved.

use crate::domain::budget;
use crate::domain::budget::{Account, Allotment, BudgetUse, BudgetedCall, HoldError, LimitOrigin, Purse};
use crate::domain::cap::{self, Cap, CapAccount, CapScope, CapUse};
use crate::domain::chat::Price;
use crate::domain::chat::{ModelSettings, TokenUsage};
use crate::domain::ids::Owner;
use crate::domain::time::Millis;
use crate::domain::turn::TurnInput;
use crate::store::{Doc, DocKey, EditBatcher, GroupEdit, StoreError, keys};
use crate::venue::{own_records, venue_owner};
use crate::worker::Worker;
use serde::{Serialize, Serializer};
use std::sync::Arc;

/// Accounts of one call.
pub(crate) struct Wallet<'w> {
    worker: &'w Worker,
    purse: &'w Purse,
    own_accounts: Arc<AccountSet>,
    shared_accounts: Arc<AccountSet>,
}

/// Accounts in one place of the store.
#[derive(Debug)]
struct AccountSet {
    owner: Owner,
    /// Name of the holder of reservations there.
    holder: String,
    /// Key under which writers that may change the same documents are grouped.
    lane: String,
    /// Keys of the accounts, then of the caps' accounts.
    keys: Vec<DocKey>,
    /// New accounts of the task; `None` for those of the requests above, which exist already or are deleted.
    accounts: Vec<Option<Account>>,
    /// Caps, in the order of their accounts.
    caps: Vec<Cap>,
    /// Number of the session's turns before it began anew.
    turns_before_reset: u64,
}

/// Change of all accounts in one place by a call.
#[derive(Debug)]
pub(crate) struct Payment {
    shelf: Arc<AccountSet>,
    step: PaymentStep,
}

#[derive(Debug, Clone)]
enum PaymentStep {
    Hold { prompt: u64, reply: Option<u32>, price: Option<Price>, now: Millis, last: bool },
    Settle(Option<(TokenUsage, Option<Price>)>),
}

/// Groups the payments of one process.
pub(crate) type Payments = EditBatcher<Payment>;

/// An account, or the account of a cap.
#[derive(Debug)]
pub(crate) enum AccountDoc {
    Account(Account),
    Book(CapUse),
}

impl Serialize for AccountDoc {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Account(account) => account.serialize(serializer),
            Self::Book(book) => book.serialize(serializer),
        }
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
        let caps = spend.caps_of_call((owner, &user), model, setting.config.limits.session, worker.venue.now());
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
    pub(crate) async fn hold(
        &self,
        call: BudgetedCall<'_>,
        last: bool,
    ) -> Result<Result<Option<Allotment>, HoldError>, StoreError> {
        let BudgetedCall { prompt, reply, price, now, .. } = call;
        let own = match self
            .apply_payment(&self.own_accounts, PaymentStep::Hold { prompt, reply, price, now, last })
            .await?
        {
            Ok(own) => own,
            Err(short) => return Ok(Err(short)),
        };
        let reply = own.map_or(reply, |own| Some(tokens(own.reply)));
        match self.apply_payment(&self.shared_accounts, PaymentStep::Hold { prompt, reply, price, now, last }).await {
            Ok(Ok(shared)) => Ok(Ok(shared
                .map(|granted| Allotment { cut_by: granted.cut_by.or(own.and_then(|own| own.cut_by)), ..granted })
                .or(own))),
            refused => {
                self.settle_account(&self.own_accounts, None).await;
                refused
            }
        }
    }

    /// Replaces the reservation by what the call used; `None`: it was not made.
    pub(crate) async fn settle(&self, used: Option<(TokenUsage, Option<Price>)>) {
        tokio::join!(self.settle_account(&self.own_accounts, used), self.settle_account(&self.shared_accounts, used));
    }

    async fn settle_account(&self, place: &Arc<AccountSet>, used: Option<(TokenUsage, Option<Price>)>) {
        let why = match self.apply_payment(place, PaymentStep::Settle(used)).await {
            Ok(Ok(_)) => return,
            Ok(Err(_)) => "others were always faster".to_owned(),
            Err(error) => error.to_string(),
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
    ) -> Result<Result<Option<Allotment>, HoldError>, StoreError> {
        if place.keys.is_empty() {
            return Ok(Ok(None));
        }
        let venue = &self.worker.venue;
        let pay = || {
            let payment = Payment { shelf: Arc::clone(place), step: step.clone() };
            self.worker.payments.apply(&venue.store, venue.now(), &place.owner, &place.lane, payment)
        };
        let paid = if place.owner == venue_owner() {
            // An unreadable record of the venue must not stop the calls of an owner.
            own_records::change_or_reset::<CapUse, _, _>(venue, &place.keys, pay).await
        } else {
            pay().await
        };
        match paid {
            Err(StoreError::Contended { .. }) => Ok(Err(HoldError::Held)),
            outcome => outcome,
        }
    }

    /// Whether the task has a budget.
    pub(crate) fn has_budget(&self) -> bool {
        !self.purse.is_empty()
    }
}

fn tokens(reply: u64) -> u32 {
    u32::try_from(reply).unwrap_or(u32::MAX)
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

impl GroupEdit for Payment {
    type Value = AccountDoc;
    type Answer = Result<Option<Allotment>, HoldError>;

    fn keys(&self) -> &[DocKey] {
        &self.shelf.keys
    }

    fn decode(&self, at: usize, doc: &Doc) -> Result<Option<AccountDoc>, StoreError> {
        let key = &self.shelf.keys[at];
        Ok(if at < self.shelf.accounts.len() {
            doc.decode(key)?.map(AccountDoc::Account)
        } else {
            doc.decode(key)?.map(AccountDoc::Book)
        })
    }

    fn apply(&self, sheets: &mut [Option<AccountDoc>]) -> Self::Answer {
        let AccountSet { accounts: fresh, caps, holder, turns_before_reset: since, .. } = &*self.shelf;
        let (of_accounts, of_books) = sheets.split_at_mut(fresh.len());
        let (mut places, mut accounts) = (Vec::new(), Vec::new());
        for (sheet, fresh) in of_accounts.iter_mut().zip(fresh) {
            // A missing account belonged to a forgotten job: there is nothing to settle.
            let (account, absent) = match sheet.take() {
                Some(AccountDoc::Account(account)) => (Some(account), None),
                Some(AccountDoc::Book(_)) | None => (fresh.clone(), fresh.as_ref()),
            };
            if let Some(account) = account {
                places.push((sheet, absent));
                accounts.push(account);
            }
        }
        let (there, mut capped): (Vec<_>, Vec<_>) = of_books
            .iter_mut()
            .zip(caps)
            .map(|(sheet, cap)| {
                let (there, book) = match sheet.take() {
                    Some(AccountDoc::Book(book)) => (true, book),
                    Some(AccountDoc::Account(_)) | None => (false, CapUse::default()),
                };
                let book = if cap.of == CapScope::Session { book.for_conversation(*since) } else { book };
                (there, CapAccount { cap: cap.clone(), book })
            })
            .unzip();
        let answer = match self.step {
            PaymentStep::Hold { prompt, reply, price, now, last } => {
                let call = BudgetedCall { session: holder, prompt, reply, price, now };
                hold(&mut accounts, fresh.len(), &mut capped, call, last).map(Some)
            }
            PaymentStep::Settle(used) => {
                budget::settle(&mut accounts, holder, used);
                cap::settle(&mut capped, holder, used.map(|(usage, price)| BudgetUse::of_call(usage, price)));
                Ok(None)
            }
        };
        for ((sheet, absent), account) in places.into_iter().zip(accounts) {
            *sheet = (absent != Some(&account)).then_some(AccountDoc::Account(account));
        }
        for ((sheet, there), CapAccount { book, .. }) in of_books.iter_mut().zip(there).zip(capped) {
            *sheet = (there || book != CapUse::default()).then_some(AccountDoc::Book(book));
        }
        answer
    }
}

/// Reserves the cost of a call in `all` accounts and under all caps, or nowhere.
fn hold(
    accounts: &mut [Account],
    all: usize,
    capped: &mut [CapAccount],
    call: BudgetedCall<'_>,
    last: bool,
) -> Result<Allotment, HoldError> {
    if !last && accounts.len() < all {
        let reason = "the budget of the request above is gone, its job was deleted or forgotten".into();
        return Err(HoldError::Spent { origin: LimitOrigin::Request, reason });
    }
    if accounts.is_empty() {
        return cap::hold(capped, call);
    }
    let granted = if last { budget::hold_last(accounts, call) } else { budget::hold(accounts, call)? };
    match cap::hold(capped, BudgetedCall { reply: Some(tokens(granted.reply)), ..call }) {
        Ok(under) => Ok(Allotment { reply: under.reply, cut_by: under.cut_by.or(granted.cut_by) }),
        Err(short) => {
            budget::settle(accounts, call.session, None);
            Err(short)
        }
    }
}
