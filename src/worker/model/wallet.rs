//! Everything that a model call is paid from: the accounts of its task, and the caps of its session, of
//! its owner's day and of its model's day.
//!
//! What is the owner's lies in one place of the store and is held, or settled, in one write. What all
//! owners share lies in another place and is held after it; a call that finds no room there gives back
//! what it holds of the first. What somebody who dies in between has held is spent, at the next call of
//! its session or half an hour later: the call may have been made. To settle never costs a reply that is
//! paid: what can't be settled counts as it was held.

use crate::domain::budget;
use crate::domain::budget::{Account, Allotment, BudgetUse, BudgetedCall, LimitOrigin, Purse, Short};
use crate::domain::cap::{self, Book, Cap, Capped, Of};
use crate::domain::chat::Price;
use crate::domain::chat::{ModelSettings, Usage};
use crate::domain::ids::Owner;
use crate::domain::turn::Setting;
use crate::store::{DocKey, DocWrite, Edit, StoreError, keys};
use crate::venue::{Venue, venue_owner};
use crate::worker::Worker;

/// What one call is paid from.
pub(crate) struct Wallet<'w> {
    venue: &'w Venue,
    purse: &'w Purse,
    /// Its session, as the accounts and the caps of its owner know it.
    session: String,
    own: Shelf,
    shared: Shelf,
}

/// Accounts and books that lie in one place.
struct Shelf {
    owner: Owner,
    /// Who holds, as it is called there.
    holder: String,
    /// With what those of its own task begin.
    accounts: Vec<(DocKey, Option<Account>)>,
    caps: Vec<(DocKey, Cap)>,
    /// Turns of the session before it began anew.
    since: u64,
}

/// What is on a shelf.
#[derive(Clone, PartialEq)]
struct Tray {
    accounts: Vec<Account>,
    capped: Vec<Capped>,
}

impl<'w> Wallet<'w> {
    /// Of a turn that asks this model.
    pub(crate) fn of(worker: &'w Worker, setting: &'w Setting, model: &ModelSettings) -> Self {
        let (venue, purse, owner) = (&*worker.venue, &setting.purse, &setting.owner);
        let session = setting.session.token();
        let inherited = purse.inherited.iter().map(|name| (keys::account(name), None));
        let of_task = purse.own.iter().map(|(name, account)| (keys::account(name), Some(account.clone())));
        let caps = venue.spend.caps(owner, model, setting.config.limits.session, venue.now());
        let (shared, own): (Vec<_>, Vec<_>) = caps.into_iter().partition(|cap| matches!(cap.of, Of::Model(_)));
        let keyed = |caps: Vec<Cap>| caps.into_iter().map(|cap| (book_of(&cap, setting), cap)).collect();
        let own = Shelf {
            owner: owner.clone(),
            holder: session.clone(),
            accounts: inherited.chain(of_task).collect(),
            caps: keyed(own),
            since: setting.state.since,
        };
        let holder = format!("{}/{session}", owner.token());
        let shared = Shelf { owner: venue_owner(), holder, accounts: Vec::new(), caps: keyed(shared), since: 0 };
        Self { venue, purse, session, own, shared }
    }

    /// Holds what a call needs, everywhere or nowhere; `None` where nothing limits it. Before the `last`
    /// call of a task its own budget doesn't count any more; caps do.
    pub(crate) async fn hold(
        &self,
        call: BudgetedCall<'_>,
        last: bool,
    ) -> Result<Result<Option<Allotment>, Short>, StoreError> {
        let own = match self.hold_own(call, last).await? {
            Ok(own) => own,
            Err(short) => return Ok(Err(short)),
        };
        if self.shared.is_empty() {
            return Ok(Ok(own));
        }
        let reply = own.map_or(call.reply, |own| Some(tokens(own.reply)));
        let held = self.shared.change(self.venue, |tray| self.shared.hold(tray, BudgetedCall { reply, ..call })).await;
        match held {
            Ok(Ok(granted)) => {
                let cut_by = granted.cut_by.or(own.and_then(|own| own.cut_by));
                Ok(Ok(Some(Allotment { cut_by, ..granted })))
            }
            refused => {
                self.settle_on(&self.own, None).await;
                Ok(refused?.map(Some))
            }
        }
    }

    async fn hold_own(
        &self,
        call: BudgetedCall<'_>,
        last: bool,
    ) -> Result<Result<Option<Allotment>, Short>, StoreError> {
        if self.own.is_empty() {
            return Ok(Ok(None));
        }
        let held = self.own.change(self.venue, |tray| {
            if !last && tray.accounts.len() < self.own.accounts.len() {
                let reason = "the budget of the request above is gone, its job was deleted or forgotten".into();
                return Err(Short::Spent { origin: LimitOrigin::Request, reason });
            }
            if tray.accounts.is_empty() {
                return self.own.hold(tray, call);
            }
            let of_task = BudgetedCall { session: &self.session, ..call };
            let granted = if last {
                budget::hold_last(&mut tray.accounts, of_task)
            } else {
                budget::hold(&mut tray.accounts, of_task)?
            };
            let capped = self.own.hold(tray, BudgetedCall { reply: Some(tokens(granted.reply)), ..call })?;
            Ok(Allotment { reply: capped.reply, cut_by: capped.cut_by.or(granted.cut_by) })
        });
        Ok(held.await?.map(Some))
    }

    /// The call has used so much; `None`: it was not made.
    pub(crate) async fn settle(&self, used: Option<(Usage, Option<Price>)>) {
        self.settle_on(&self.own, used).await;
        self.settle_on(&self.shared, used).await;
    }

    async fn settle_on(&self, place: &Shelf, used: Option<(Usage, Option<Price>)>) {
        if place.is_empty() {
            return;
        }
        let spent = used.map(|(usage, price)| BudgetUse::call(usage, price));
        let settled = place.change(self.venue, |tray| {
            budget::settle(&mut tray.accounts, &self.session, used);
            cap::settle(&mut tray.capped, &place.holder, spent);
            Ok(())
        });
        let why = match settled.await {
            Ok(Ok(())) => return,
            Ok(Err(_)) => "others were always faster".to_owned(),
            Err(error) => error.to_string(),
        };
        tracing::warn!(owner = %place.owner, session = self.session, why, "a model call is not settled; it counts as it was held");
    }

    /// Whether its task has a budget.
    pub(crate) fn has_budget(&self) -> bool {
        !self.purse.is_empty()
    }
}

fn tokens(reply: u64) -> u32 {
    u32::try_from(reply).unwrap_or(u32::MAX)
}

/// Where the book of a cap lies.
fn book_of(cap: &Cap, setting: &Setting) -> DocKey {
    let date = cap.day.as_ref().map(|day| day.date.as_str()).unwrap_or_default();
    match &cap.of {
        Of::Session => keys::session_book(&setting.session),
        Of::Owner => keys::owner_book(date),
        Of::Model(name) => keys::model_book(date, name),
    }
}

impl Shelf {
    fn is_empty(&self) -> bool {
        self.accounts.is_empty() && self.caps.is_empty()
    }

    fn hold(&self, tray: &mut Tray, call: BudgetedCall<'_>) -> Result<Allotment, Short> {
        cap::hold(&mut tray.capped, BudgetedCall { session: &self.holder, ..call })
    }

    /// Changes everything on it, or nothing. Where others are always faster, what there is counts as held by them.
    async fn change<T>(
        &self,
        venue: &Venue,
        change: impl Fn(&mut Tray) -> Result<T, Short>,
    ) -> Result<Result<T, Short>, StoreError> {
        let (accounts, caps) = (self.accounts.iter().map(|(key, _)| key), self.caps.iter().map(|(key, _)| key));
        let names: Vec<DocKey> = accounts.chain(caps).cloned().collect();
        let attempt = || async {
            let docs = venue.store.read(&self.owner, &names).await?;
            let (accounts, books) = docs.split_at(self.accounts.len());
            let (mut places, mut tray) = (Vec::new(), Tray { accounts: Vec::new(), capped: Vec::new() });
            for ((key, fresh), doc) in self.accounts.iter().zip(accounts) {
                // One that is gone belonged to a job that was forgotten: there is nothing to settle.
                if let Some(account) = doc.decode(key)?.or_else(|| fresh.clone()) {
                    places.push((key, doc.version));
                    tray.accounts.push(account);
                }
            }
            for ((key, cap), doc) in self.caps.iter().zip(books) {
                let book: Book = doc.decode(key)?.unwrap_or_default();
                let book = if cap.of == Of::Session { book.begun(self.since) } else { book };
                places.push((key, doc.version));
                tray.capped.push(Capped { cap: cap.clone(), book });
            }
            let before = tray.clone();
            let changed = change(&mut tray);
            let as_before = changed.is_err() || tray == before;
            Ok(if as_before { Edit::nothing(changed) } else { Edit::write(writes(&places, &tray), changed) })
        };
        match venue.store.edit(venue.now(), &self.owner, ("the accounts of", &self.holder), attempt).await {
            Err(StoreError::Contended { .. }) => Ok(Err(Short::Held)),
            changed => changed,
        }
    }
}

/// The whole tray, as long as it is as it was read.
fn writes(places: &[(&DocKey, u64)], tray: &Tray) -> Vec<DocWrite> {
    let (accounts, books) = places.split_at(tray.accounts.len());
    let accounts = accounts
        .iter()
        .zip(&tray.accounts)
        .map(|((key, version), account)| DocWrite::json(key.as_str(), account).at(*version));
    let books = books
        .iter()
        .zip(&tray.capped)
        .map(|((key, version), capped)| DocWrite::json(key.as_str(), &capped.book).at(*version));
    accounts.chain(books).collect()
}
