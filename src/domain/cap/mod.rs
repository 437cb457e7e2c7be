//! Caps on spending: of a session in its life, of an owner, of one of its users, of a tenant and of a model in a day.
//!
//! A [`CapUse`] holds what is spent under a cap and what running calls hold of it. A call is held with its prompt and its
//! longest reply before it is made, and settled with its real use. So calls that run at the same time can't exceed a
//! cap together, however many workers make them; only tokens that a provider counts beyond the estimate of a prompt
//! can.
//!
//! A cap is stored apart from its book: when it is raised or lowered, the spent amounts stay.

mod day;
mod settings;

pub use day::{Day, Zone};
pub use settings::{CapPolicy, Ceiling, SESSION_CAP, SpendSettings, SpendSettingsError, parse_prices};

use super::budget::{
    Allotment, Budget, BudgetRoomError, BudgetUse, BudgetedCall, Hold, HoldError, LimitOrigin, REPLY_LEAST, REPLY_MOST,
    room, spend_lapsed_holds, spent_and_held,
};
use super::limits::BUDGET_HOLD;
use super::time::Millis;
use super::unknown_fields::UnknownFields;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Scope of a cap, which also says where its book is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CapScope {
    /// One session, as long as it lives.
    Session,
    /// One owner, on one day.
    Owner,
    /// One user of an owner, on one day: the user for whom requests are made.
    User(String),
    /// One tenant, on one day: all its owners together.
    Tenant,
    /// One model or one provider, on one day, for all owners.
    Model(String),
}

/// A limit on spending within a scope.
#[derive(Debug, Clone, PartialEq)]
pub struct Cap {
    /// Scope of the cap.
    pub of: CapScope,
    /// Name of the cap in error texts.
    pub name: String,
    /// Tokens and dollars at most.
    pub limits: Budget,
    /// Day that the cap counts for; `None` for a session.
    pub day: Option<Day>,
    /// Whether a call gets all that it asks for or waits; else its reply may be cut to the rest.
    pub whole: bool,
}

/// Amounts that are spent under a cap and held of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CapUse {
    /// Amounts that are spent.
    pub spent: BudgetUse,
    /// Amounts that running calls hold, by session.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub held: BTreeMap<String, Hold>,
    /// Number of the session's turns before this book: those of its expired conversations.
    #[serde(skip_serializing_if = "is_zero")]
    pub since: u64,
    /// Fields that a newer build wrote.
    #[serde(flatten)]
    pub kept: UnknownFields,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A cap with its book.
#[derive(Debug, Clone, PartialEq)]
pub struct CapAccount {
    /// Limit of the spending.
    pub cap: Cap,
    /// Amounts of the spending.
    pub book: CapUse,
}

impl Cap {
    /// Returns the error for a call that doesn't fit.
    fn reached_error(&self, call: BudgetedCall<'_>, least: u64, why: &BudgetRoomError) -> HoldError {
        let fits = room(&self.limits, BudgetUse::default(), call, least).is_ok_and(|most| most >= least);
        let resets = match &self.day {
            Some(day) if fits => format!("; it resets at {} ({})", day.ends.rfc3339(), day.zone),
            Some(_) => "; no day has room for a call like this".to_owned(),
            None if fits => "; a session's cap never resets, a new session has its own".to_owned(),
            None => "; no session has room for a call like this".to_owned(),
        };
        // What other owners have used stays private.
        let why = if matches!(self.of, CapScope::Model(_)) { &BudgetRoomError::Rest } else { why };
        HoldError::Capped {
            reason: format!("{} is reached: {why}{resets}", self.name),
            resets: self.day.as_ref().map(|day| day.ends).filter(|_| fits),
        }
    }
}

impl CapUse {
    fn reclaim(&mut self, session: &str, now: Millis) {
        spend_lapsed_holds(&mut self.held, &mut self.spent, session, now);
    }

    /// Returns the book of a session that begins after its turn `since`: an expired session starts with an empty book.
    #[must_use]
    pub fn for_conversation(self, since: u64) -> Self {
        if since > self.since { Self { since, ..Self::default() } } else { self }
    }

    /// Returns the sum of what is spent and held.
    pub fn spent_and_held(&self) -> BudgetUse {
        spent_and_held(&self.held, self.spent)
    }
}

impl CapAccount {
    /// Returns the tokens that the reply of a call may have: all that it wants, or the rest when no running call can
    /// release anything.
    fn room(&self, call: BudgetedCall<'_>, wanted: u64) -> Result<u64, HoldError> {
        let (limits, book) = (&self.cap.limits, &self.book);
        let least = wanted.min(REPLY_LEAST);
        let alone = room(limits, book.spent, call, wanted).map_err(|why| self.cap.reached_error(call, least, &why))?;
        if alone < least {
            return Err(self.cap.reached_error(call, least, &BudgetRoomError::Rest));
        }
        match room(limits, book.spent_and_held(), call, wanted) {
            Ok(most) if most >= wanted => Ok(wanted),
            Ok(_) if self.cap.whole && alone < wanted && book.spent != BudgetUse::default() => {
                Err(self.cap.reached_error(call, least, &BudgetRoomError::Rest))
            }
            Ok(most) if most >= least && book.held.is_empty() => Ok(most),
            Ok(_) | Err(_) => Err(HoldError::Held),
        }
    }
}

/// Holds what a call needs under all of its caps, or under none.
pub fn hold(all: &mut [CapAccount], call: BudgetedCall<'_>) -> Result<Allotment, HoldError> {
    let asked = call.reply.map_or(REPLY_MOST, u64::from).max(1);
    let (mut reply, mut held) = (asked, false);
    for capped in all.iter_mut() {
        capped.book.reclaim(call.session, call.now);
        match capped.room(call, reply) {
            Ok(most) => reply = most,
            Err(HoldError::Held) => held = true,
            Err(reached) => return Err(reached),
        }
    }
    if held {
        return Err(HoldError::Held);
    }
    let nano = call.price.map_or(0, |price| price.ceiling(call.prompt, reply));
    let used = BudgetUse { tokens: call.prompt.saturating_add(reply), nano, turns: 1 };
    for capped in all {
        let until = call.now.plus(BUDGET_HOLD);
        capped.book.held.insert(call.session.to_owned(), Hold { used, until });
    }
    Ok(Allotment { reply, cut_by: (reply < asked).then_some(LimitOrigin::Cap) })
}

/// Spends what a call has used and releases the rest of its hold. A call that was not made has used nothing; one whose
/// hold is gone was spent in full.
pub fn settle(all: &mut [CapAccount], session: &str, used: Option<BudgetUse>) {
    for CapAccount { book, .. } in all {
        if book.held.remove(session).is_some()
            && let Some(used) = used
        {
            book.spent.add(used);
        }
    }
}

#[cfg(test)]
mod tests;
