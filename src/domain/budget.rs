//! Budgets: what a request and everything under it may use together.
//!
//! An [`Account`] is a lease on a budget. Before a model call its tokens and its price are held; when
//! it has answered, what it really used is spent and the rest is free again. All jobs under a request
//! hold from the same account, so that what one spends its siblings can't. Time needs no account: a
//! deadline travels with the request.
//!
//! Money is counted in billionths of a dollar: a price per million tokens is whole in them.

use crate::chat::Price;
use crate::chat::Usage;
use crate::chat::per_token;
use crate::ids::JobId;
use crate::kept::KeptKeys;
use crate::limits::BUDGET_HOLD;
use crate::time::Millis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Billionths of a dollar in a dollar.
const NANO: f64 = 1e9;
/// Tokens that a reply is given at least: fewer hold no answer.
pub(super) const REPLY_LEAST: u64 = 16;
/// Tokens of a reply that nothing else limits.
pub(super) const REPLY_MOST: u64 = 8_192;

/// What may be used at most. Absent = no limit of its own.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Budget {
    /// Tokens of prompts and replies.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// US dollars, by the prices of the models.
    #[schemars(extend("exclusiveMinimum" = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Model calls.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// Seconds since the request was accepted.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_clock: Option<u64>,
}

impl Budget {
    /// Nothing is limited.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Limits that can't be meant.
    pub fn check(&self) -> Result<(), String> {
        let bad = |key: &str, got: String| Err(format!("`{key}`: expected more than 0, got {got}"));
        match self {
            Self { tokens: Some(0), .. } => bad("tokens", "0".into()),
            Self { turns: Some(0), .. } => bad("turns", "0".into()),
            Self { wall_clock: Some(0), .. } => bad("wallClock", "0".into()),
            Self { cost: Some(cost), .. } if !cost.is_finite() || *cost <= 0.0 => bad("cost", cost.to_string()),
            _ => Ok(()),
        }
    }

    /// When its time is over, for what was accepted then.
    pub fn deadline(&self, accepted: Millis) -> Option<Millis> {
        self.wall_clock.map(|seconds| accepted.plus(Duration::from_secs(seconds)))
    }

    /// Whether an account must be kept for it.
    pub const fn is_counted(&self) -> bool {
        self.tokens.is_some() || self.cost.is_some() || self.turns.is_some()
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked: positive and finite")]
fn nano(dollars: f64) -> u64 {
    (dollars * NANO).round() as u64
}

/// Whose limits an account keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LimitOrigin {
    /// Those of the agent's configuration, per task.
    Agent,
    /// Those that the request names.
    Request,
    /// Those of the venue, or of a session: see `domain::cap`.
    Cap,
}

/// What is used of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetUse {
    /// Tokens.
    pub tokens: u64,
    /// Billionths of a dollar.
    pub nano: u64,
    /// Model calls.
    pub turns: u32,
}

impl BudgetUse {
    /// What one call has used.
    pub fn call(usage: Usage, price: Option<Price>) -> Self {
        let nano = price.map_or(0, |price| price.cost(usage));
        Self { tokens: usage.input.saturating_add(usage.output), nano, turns: 1 }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.nano = self.nano.saturating_add(other.nano);
        self.turns = self.turns.saturating_add(other.turns);
    }
}

/// A budget with what is spent of it and what is held of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Account {
    /// Whose limits it keeps.
    pub origin: LimitOrigin,
    /// The limits.
    pub limits: Budget,
    /// Used up.
    #[serde(default)]
    pub spent: BudgetUse,
    /// Held by running calls, by session: each has one at most.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub held: BTreeMap<String, Hold>,
    /// Of a newer build.
    #[serde(flatten)]
    pub kept: KeptKeys,
}

/// What a running call holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// So much.
    #[serde(flatten)]
    pub used: BudgetUse,
    /// Who held it is gone by then, and it is spent.
    pub until: Millis,
}

/// A call that is about to be made.
#[derive(Debug, Clone, Copy)]
pub struct BudgetedCall<'a> {
    /// The session that makes it.
    pub session: &'a str,
    /// Tokens of its prompt, estimated.
    pub prompt: u64,
    /// Tokens of its reply at most.
    pub reply: Option<u32>,
    /// What the model costs.
    pub price: Option<Price>,
    /// When.
    pub now: Millis,
}

/// Why a call is not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Short {
    /// What is left is too little, whatever others give back.
    Spent {
        /// Whose limits they are.
        origin: LimitOrigin,
        /// What is used up, in words.
        reason: String,
    },
    /// Others hold what it needs; they may give it back.
    Held,
    /// A cap is reached.
    Capped {
        /// Which, and what of it is used.
        reason: String,
        /// When it has room again; of a session it never has.
        resets: Option<Millis>,
    },
}

/// What somebody who died left held is spent: the call may have been made.
pub(super) fn reclaim(held: &mut BTreeMap<String, Hold>, spent: &mut BudgetUse, session: &str, now: Millis) {
    held.retain(|holder, hold| {
        let left = holder == session || now >= hold.until;
        if left {
            spent.add(hold.used);
        }
        !left
    });
}

/// What is spent and held.
pub(super) fn taken(held: &BTreeMap<String, Hold>, spent: BudgetUse) -> BudgetUse {
    held.values().fold(spent, |mut sum, held| {
        sum.add(held.used);
        sum
    })
}

impl Account {
    /// A new one.
    pub fn new(origin: LimitOrigin, limits: Budget) -> Self {
        let (spent, held, kept) = (BudgetUse::default(), BTreeMap::new(), KeptKeys::default());
        Self { origin, limits, spent, held, kept }
    }

    fn reclaim(&mut self, session: &str, now: Millis) {
        reclaim(&mut self.held, &mut self.spent, session, now);
    }

    fn taken(&self) -> BudgetUse {
        taken(&self.held, self.spent)
    }

    /// Tokens that the reply of a call may have.
    fn room(&self, call: BudgetedCall<'_>) -> Result<u64, Short> {
        let wanted = call.reply.map_or(REPLY_MOST, u64::from).max(1);
        let least = wanted.min(REPLY_LEAST);
        match room(&self.limits, self.spent, call, wanted) {
            Ok(most) if most >= least => match room(&self.limits, self.taken(), call, wanted) {
                Ok(most) if most >= least => Ok(most),
                Ok(_) | Err(_) => Err(Short::Held),
            },
            Ok(_) => Err(self.spent_up("what is left is too little for another call".into())),
            Err(reason) => Err(self.spent_up(reason)),
        }
    }

    fn spent_up(&self, reason: String) -> Short {
        Short::Spent { origin: self.origin, reason }
    }

    fn hold(&mut self, call: BudgetedCall<'_>, reply: u64) {
        let nano = call.price.map_or(0, |price| price.ceiling(call.prompt, reply));
        let used = BudgetUse { tokens: call.prompt.saturating_add(reply), nano, turns: 1 };
        self.held.insert(call.session.to_owned(), Hold { used, until: call.now.plus(BUDGET_HOLD) });
    }
}

/// Tokens that the reply of a call may have within limits of which so much is used.
pub(super) fn room(limits: &Budget, used: BudgetUse, call: BudgetedCall<'_>, wanted: u64) -> Result<u64, String> {
    let mut most = wanted;
    if let Some(limit) = limits.turns
        && used.turns >= limit
    {
        return Err(format!("{limit} model calls were made"));
    }
    if let Some(limit) = limits.tokens {
        let left = limit.saturating_sub(used.tokens);
        let of = || format!("{} of {limit} tokens are used, the next call needs {}", used.tokens, call.prompt);
        most = most.min(left.checked_sub(call.prompt).ok_or_else(of)?);
    }
    if let Some(most_dollars) = limits.cost {
        let Some(price) = call.price else {
            return Err("the model has no `price`, so that its cost can't be limited".into());
        };
        let left = nano(most_dollars).saturating_sub(used.nano);
        let prompt = price.ceiling(call.prompt, 0);
        let of = || {
            format!(
                "${:.6} of ${most_dollars} are used, the next call needs ${:.6}",
                dollars(used.nano),
                dollars(prompt)
            )
        };
        let left = left.checked_sub(prompt).ok_or_else(of)?;
        // A reply that costs nothing is limited by nothing.
        let tokens = (u128::from(left) * 1_000).checked_div(per_token(price.output));
        most = tokens.map_or(most, |tokens| most.min(u64::try_from(tokens).unwrap_or(u64::MAX)));
    }
    Ok(most)
}

/// So many billionths of a dollar in dollars, for people.
#[expect(clippy::cast_precision_loss, reason = "shown with six digits")]
pub fn dollars(nano: u64) -> f64 {
    nano as f64 / NANO
}

/// What a call was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allotment {
    /// Tokens that its reply may have.
    pub reply: u64,
    /// Whose limits made them fewer than it asked for: a reply that is as long was cut off.
    pub cut_by: Option<LimitOrigin>,
}

/// Holds what a call needs of all accounts, or of none.
pub fn hold(accounts: &mut [Account], call: BudgetedCall<'_>) -> Result<Allotment, Short> {
    for account in accounts.iter_mut() {
        account.reclaim(call.session, call.now);
    }
    let mut reply = call.reply.map_or(REPLY_MOST, u64::from);
    let (mut held, mut cut_by) = (false, None);
    for account in accounts.iter() {
        match account.room(call) {
            Ok(room) if room < reply => (reply, cut_by) = (room, Some(account.origin)),
            Ok(_) => {}
            Err(Short::Held) => held = true,
            Err(spent) => return Err(spent),
        }
    }
    if held {
        return Err(Short::Held);
    }
    for account in accounts {
        account.hold(call, reply);
    }
    Ok(Allotment { reply, cut_by })
}

/// What a call has really used is spent, and the rest of what it held is free. A call that was not
/// made has used nothing.
pub fn settle(accounts: &mut [Account], session: &str, used: Option<(Usage, Option<Price>)>) {
    for account in accounts {
        // Settled before, by this very call.
        if account.held.remove(session).is_none() {
            continue;
        }
        if let Some((usage, price)) = used {
            account.spent.add(BudgetUse::call(usage, price));
        }
    }
}

/// What a call used, where its provider doesn't say: as it was estimated.
pub const fn counted(usage: Usage, prompt: u64, reply: u64) -> Usage {
    Usage {
        input: if usage.input == 0 { prompt } else { usage.input },
        output: if usage.output == 0 { reply } else { usage.output },
        ..usage
    }
}

/// Tokens of a prompt of so many bytes, at thousandths of bytes per token, rounded up.
pub fn tokens(bytes: usize, ratio: u32) -> u64 {
    (bytes as u64).saturating_mul(1_000).div_ceil(u64::from(ratio.max(1)))
}

/// Holds what the last call of a task needs, whatever is left: it ends the task.
pub fn hold_last(accounts: &mut [Account], call: BudgetedCall<'_>) -> Allotment {
    let reply = call.reply.map_or(REPLY_MOST, u64::from);
    for account in accounts {
        account.reclaim(call.session, call.now);
        account.hold(call, reply);
    }
    Allotment { reply, cut_by: None }
}

/// When a request's time is over, and whose limit that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deadline {
    /// Then.
    pub at: Millis,
    /// Whose.
    pub origin: LimitOrigin,
}

/// What a turn pays from.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Purse {
    /// Accounts of the requests above, outermost first.
    pub inherited: Vec<String>,
    /// Those of its own task: made by its first call.
    pub own: Vec<(String, Account)>,
    /// When its time is over.
    pub deadline: Option<Deadline>,
}

impl Purse {
    /// Of a task that was accepted then, by an agent with these limits, with this budget of its own,
    /// under these accounts and until then.
    pub fn of_task(
        job: &JobId,
        accepted: Millis,
        agent: &Budget,
        request: &Budget,
        (inherited, deadline): (&[String], Option<Millis>),
    ) -> Self {
        let own = [(LimitOrigin::Agent, "agent", agent), (LimitOrigin::Request, "request", request)];
        let at = |origin, at: Option<Millis>| at.map(|at| Deadline { at, origin });
        let times = own.iter().map(|(origin, _, limits)| at(*origin, limits.deadline(accepted)));
        let deadline = times.chain([at(LimitOrigin::Request, deadline)]).flatten().min_by_key(|deadline| deadline.at);
        let own = own.into_iter().filter(|(_, _, limits)| limits.is_counted());
        let own = own.map(|(origin, name, limits)| (format!("{job}-{name}"), Account::new(origin, *limits)));
        Self { inherited: inherited.to_vec(), own: own.collect(), deadline }
    }

    /// Its accounts, by name.
    pub fn accounts(&self) -> impl Iterator<Item = &String> {
        self.inherited.iter().chain(self.own.iter().map(|(name, _)| name))
    }

    /// Nothing is counted.
    pub fn is_empty(&self) -> bool {
        self.accounts().next().is_none()
    }
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
