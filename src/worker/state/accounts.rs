//! Accounts that model calls are paid from. Calls of one process that change the same accounts at the same time share a
//! write.

use crate::domain::budget::{self, Account, Allotment, BudgetUse, BudgetedCall, HoldError, LimitOrigin};
use crate::domain::cap::{self, Cap, CapAccount, CapScope, CapUse};
use crate::domain::chat::{Price, TokenUsage};
use crate::domain::ids::Owner;
use crate::domain::time::Millis;
use crate::store::{Doc, DocKey, EditBatcher, GroupEdit, StoreError};
use serde::{Serialize, Serializer};
use std::sync::Arc;

/// Groups the payments of one process.
pub(crate) type Payments = EditBatcher<Payment>;

/// Accounts in one place of the store.
#[derive(Debug)]
pub(crate) struct AccountSet {
    pub(crate) owner: Owner,
    /// Name of the holder of reservations there.
    pub(crate) holder: String,
    /// Key under which writers that may change the same documents are grouped.
    pub(crate) lane: String,
    /// Keys of the accounts, then of the caps' accounts.
    pub(crate) keys: Vec<DocKey>,
    /// New accounts of the task; `None` for those of the requests above, which exist already or are deleted.
    pub(crate) accounts: Vec<Option<Account>>,
    /// Caps, in the order of their accounts.
    pub(crate) caps: Vec<Cap>,
    /// Number of the session's turns before it began anew.
    pub(crate) turns_before_reset: u64,
}

/// Change of all accounts in one place by a call.
#[derive(Debug)]
pub(crate) struct Payment {
    accounts: Arc<AccountSet>,
    step: PaymentStep,
}

/// Step of a call's payment.
#[derive(Debug, Clone)]
pub(crate) enum PaymentStep {
    /// Makes the accounts that don't exist yet: others are paid from them.
    Open,
    /// Reserves the cost of a call.
    Hold { prompt: u64, reply: Option<u32>, price: Option<Price>, now: Millis, last: bool },
    /// Replaces the reservation by what the call used; `None`: the call was not made.
    Settle(Option<(TokenUsage, Option<Price>)>),
}

impl Payment {
    /// Makes a step of the payment from these accounts.
    pub(crate) const fn new(accounts: Arc<AccountSet>, step: PaymentStep) -> Self {
        Self { accounts, step }
    }
}

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

impl GroupEdit for Payment {
    type Value = AccountDoc;
    type Answer = Result<Option<Allotment>, HoldError>;

    fn keys(&self) -> &[DocKey] {
        &self.accounts.keys
    }

    fn decode(&self, at: usize, doc: &Doc) -> Result<Option<AccountDoc>, StoreError> {
        let key = &self.accounts.keys[at];
        Ok(if at < self.accounts.accounts.len() {
            doc.decode(key)?.map(AccountDoc::Account)
        } else {
            doc.decode(key)?.map(AccountDoc::Book)
        })
    }

    fn apply(&self, sheets: &mut [Option<AccountDoc>]) -> Self::Answer {
        let AccountSet { accounts: fresh, caps, holder, turns_before_reset: since, .. } = &*self.accounts;
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
            PaymentStep::Open => Ok(None),
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
            let is_kept = matches!(self.step, PaymentStep::Open) || absent != Some(&account);
            *sheet = is_kept.then_some(AccountDoc::Account(account));
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
    match cap::hold(capped, BudgetedCall { reply: Some(clamp_tokens(granted.reply)), ..call }) {
        Ok(under) => Ok(Allotment { reply: under.reply, cut_by: under.cut_by.or(granted.cut_by) }),
        Err(short) => {
            budget::settle(accounts, call.session, None);
            Err(short)
        }
    }
}

/// Returns tokens of a reply as a limit of a model call.
pub(crate) fn clamp_tokens(reply: u64) -> u32 {
    u32::try_from(reply).unwrap_or(u32::MAX)
}
