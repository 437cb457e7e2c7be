//! Caps on spending: of a session in its life, of an owner, of one of its users and of a model in a day.
//!
//! A [`Book`] says what is spent under a cap and what running calls hold of it. A call is held with its
//! prompt and its longest reply before it is made, and settled with what it used: calls that run at the
//! same time can't pass a cap together, however many workers make them. What can pass it is what a
//! provider counts beyond the estimate of a prompt.
//!
//! A cap is no part of its book: when it is raised or lowered, what was spent stays.

mod day;
mod settings;

pub use day::{Day, Zone};
pub use settings::{CapReached, Ceiling, SpendSettings, prices};

use super::budget::{
    Allotment, Budget, BudgetUse, BudgetedCall, Hold, LimitOrigin, REPLY_LEAST, REPLY_MOST, Short, reclaim, room, taken,
};
use super::kept::KeptKeys;
use super::limits::BUDGET_HOLD;
use super::time::Millis;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const TOO_LITTLE: &str = "what is left is too little for another call";

/// What a cap is of, and where its book lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Of {
    /// A session, as long as it lives.
    Session,
    /// An owner, on a day.
    Owner,
    /// A user of an owner, on a day: whoever stands behind its requests.
    User(String),
    /// A model or a provider, on a day, for all owners.
    Model(String),
}

/// What may be spent at most.
#[derive(Debug, Clone, PartialEq)]
pub struct Cap {
    /// Of what.
    pub of: Of,
    /// How it is named to whom it stops.
    pub name: String,
    /// Tokens and dollars.
    pub limits: Budget,
    /// The day for which it counts; of a session there is none.
    pub day: Option<Day>,
    /// A call gets all that it asks for or waits; else a reply may be cut to what is left.
    pub whole: bool,
}

/// What is spent under a cap, and what is held of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Book {
    /// Used up.
    pub spent: BudgetUse,
    /// Held by running calls, by the session that makes them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub held: BTreeMap<String, Hold>,
    /// Of a session its turns before it: those whose time to live was over.
    #[serde(skip_serializing_if = "is_zero")]
    pub since: u64,
    /// Of a newer build.
    #[serde(flatten)]
    pub kept: KeptKeys,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A cap with its book.
#[derive(Debug, Clone, PartialEq)]
pub struct Capped {
    /// What may be spent.
    pub cap: Cap,
    /// What is.
    pub book: Book,
}

impl Cap {
    /// Why a call isn't made.
    fn reached(&self, call: BudgetedCall<'_>, least: u64, why: &str) -> Short {
        let fits = room(&self.limits, BudgetUse::default(), call, least).is_ok_and(|most| most >= least);
        let resets = match &self.day {
            Some(day) if fits => format!("; it resets at {} ({})", day.ends.rfc3339(), day.zone),
            Some(_) => "; no day has room for a call like this".to_owned(),
            None => "; a session's cap never resets, a new session has its own".to_owned(),
        };
        // What the others have used is nobody's business.
        let why = if matches!(self.of, Of::Model(_)) { TOO_LITTLE } else { why };
        Short::Capped {
            reason: format!("{} is reached: {why}{resets}", self.name),
            resets: self.day.as_ref().map(|day| day.ends).filter(|_| fits),
        }
    }
}

impl Book {
    fn reclaim(&mut self, session: &str, now: Millis) {
        reclaim(&mut self.held, &mut self.spent, session, now);
    }

    /// The book of a session that begins after its turn `since`: an expired session is new, and so is what it may
    /// spend.
    #[must_use]
    pub fn begun(self, since: u64) -> Self {
        if since > self.since { Self { since, ..Self::default() } } else { self }
    }

    /// What is spent and held.
    pub fn taken(&self) -> BudgetUse {
        taken(&self.held, self.spent)
    }
}

impl Capped {
    /// Tokens that the reply of a call may have: all that it wants, or what is left when nobody can give
    /// anything back.
    fn room(&self, call: BudgetedCall<'_>, wanted: u64) -> Result<u64, Short> {
        let (limits, book) = (&self.cap.limits, &self.book);
        let least = wanted.min(REPLY_LEAST);
        let alone = room(limits, book.spent, call, wanted).map_err(|why| self.cap.reached(call, least, &why))?;
        if alone < least {
            return Err(self.cap.reached(call, least, TOO_LITTLE));
        }
        match room(limits, book.taken(), call, wanted) {
            Ok(most) if most >= wanted => Ok(wanted),
            Ok(_) if self.cap.whole && alone < wanted && book.spent != BudgetUse::default() => {
                Err(self.cap.reached(call, least, TOO_LITTLE))
            }
            Ok(most) if most >= least && book.held.is_empty() => Ok(most),
            Ok(_) | Err(_) => Err(Short::Held),
        }
    }
}

/// Holds what a call needs under all of its caps, or under none.
pub fn hold(all: &mut [Capped], call: BudgetedCall<'_>) -> Result<Allotment, Short> {
    let asked = call.reply.map_or(REPLY_MOST, u64::from).max(1);
    let (mut reply, mut held) = (asked, false);
    for capped in all.iter_mut() {
        capped.book.reclaim(call.session, call.now);
        match capped.room(call, reply) {
            Ok(most) => reply = most,
            Err(Short::Held) => held = true,
            Err(reached) => return Err(reached),
        }
    }
    if held {
        return Err(Short::Held);
    }
    let nano = call.price.map_or(0, |price| price.ceiling(call.prompt, reply));
    let used = BudgetUse { tokens: call.prompt.saturating_add(reply), nano, turns: 1 };
    for capped in all {
        let until = call.now.plus(BUDGET_HOLD);
        capped.book.held.insert(call.session.to_owned(), Hold { used, until });
    }
    Ok(Allotment { reply, cut_by: (reply < asked).then_some(LimitOrigin::Cap) })
}

/// What a call has really used is spent, and the rest of what it held is free. A call that was not
/// made has used nothing; one whose hold is gone has been spent in full.
pub fn settle(all: &mut [Capped], session: &str, used: Option<BudgetUse>) {
    for Capped { book, .. } in all {
        if book.held.remove(session).is_some()
            && let Some(used) = used
        {
            book.spent.add(used);
        }
    }
}

#[cfg(test)]
mod tests;
