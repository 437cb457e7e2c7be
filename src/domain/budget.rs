//! Budgets: the most that a request and everything under it may use together.
//!
//! An [`Account`] counts what is used of a budget. Before a model call its tokens and its price are held; after the
//! reply the real use is spent and the rest is free again. All jobs under a request hold from the same account, so that
//! siblings share one limit. Time needs no account: a deadline travels with the request.
//!
//! Money is counted in billionths of a dollar: a price per million tokens is a whole number of them.

use crate::chat::Price;
use crate::chat::TokenUsage;
use crate::chat::per_token;
use crate::ids::JobId;
use crate::limits::BUDGET_HOLD;
use crate::time::Millis;
use crate::unknown_fields::UnknownFields;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Billionths of a dollar in one dollar.
const NANO: f64 = 1e9;
/// Tokens that a reply gets at least: fewer hold no answer.
pub(super) const REPLY_LEAST: u64 = 16;
/// Tokens that a reply gets where nothing else limits it.
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
    /// Model calls in all.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// Seconds since the request was accepted.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_clock: Option<u64>,
}

/// A limit that is not more than 0.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("`{key}`: expected more than 0, got {found}")]
pub struct BudgetError {
    /// Key of the limit.
    pub key: &'static str,
    /// Number that was given.
    pub found: f64,
}

impl Budget {
    /// Whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks that each limit is more than 0.
    pub fn check(&self) -> Result<(), BudgetError> {
        let bad = |key: &'static str, found: f64| Err(BudgetError { key, found });
        match self {
            Self { tokens: Some(0), .. } => bad("tokens", 0.0),
            Self { turns: Some(0), .. } => bad("turns", 0.0),
            Self { wall_clock: Some(0), .. } => bad("wallClock", 0.0),
            Self { cost: Some(cost), .. } if !cost.is_finite() || *cost <= 0.0 => bad("cost", *cost),
            _ => Ok(()),
        }
    }

    /// Returns when the time of a request ends that was accepted at `accepted`.
    pub fn deadline(&self, accepted: Millis) -> Option<Millis> {
        self.wall_clock.map(|seconds| accepted.plus(Duration::from_secs(seconds)))
    }

    /// Whether an account must be kept for it: it limits tokens, cost or turns.
    pub const fn is_counted(&self) -> bool {
        self.tokens.is_some() || self.cost.is_some() || self.turns.is_some()
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked: positive and finite")]
fn nano(dollars: f64) -> u64 {
    (dollars * NANO).round() as u64
}

/// Origin of the limits of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LimitOrigin {
    /// The agent's configuration limits each of its tasks.
    Agent,
    /// The request names the limits.
    Request,
    /// A cap of the venue or of a session, see `domain::cap`.
    Cap,
}

/// Amounts that are used of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetUse {
    /// Tokens of prompts and replies.
    pub tokens: u64,
    /// Cost in billionths of a dollar.
    pub nano: u64,
    /// Model calls in all.
    pub turns: u32,
}

impl BudgetUse {
    /// Returns the use of one call.
    pub fn of_call(usage: TokenUsage, price: Option<Price>) -> Self {
        let nano = price.map_or(0, |price| price.cost(usage));
        Self { tokens: usage.input.saturating_add(usage.output), nano, turns: 1 }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.nano = self.nano.saturating_add(other.nano);
        self.turns = self.turns.saturating_add(other.turns);
    }
}

/// A budget with the amounts that are spent and held of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Account {
    /// Origin of the limits.
    pub origin: LimitOrigin,
    /// Limits of the account.
    pub limits: Budget,
    /// Amounts that are spent.
    #[serde(default)]
    pub spent: BudgetUse,
    /// Amounts that running calls hold, by session: each has one call at most.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub held: BTreeMap<String, Hold>,
    /// Fields that a newer build wrote.
    #[serde(flatten)]
    pub kept: UnknownFields,
}

/// Amounts that a running call holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Amounts that are held.
    #[serde(flatten)]
    pub used: BudgetUse,
    /// Time after which the holder counts as dead and the amounts count as spent.
    pub until: Millis,
}

/// A model call that is about to be made.
#[derive(Debug, Clone, Copy)]
pub struct BudgetedCall<'a> {
    /// Session that makes the call.
    pub session: &'a str,
    /// Estimated tokens of the prompt.
    pub prompt: u64,
    /// Tokens of the reply at most.
    pub reply: Option<u32>,
    /// Price of the model.
    pub price: Option<Price>,
    /// Time of the call.
    pub now: Millis,
}

/// Reason why a call is not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldError {
    /// The rest is too little, whatever other calls release.
    Spent {
        /// Origin of the limits.
        origin: LimitOrigin,
        /// Amounts that are used, in words.
        reason: String,
    },
    /// Other calls hold what it needs; they may release it.
    Held,
    /// A cap is reached.
    Capped {
        /// Name of the cap and the amounts used, in words.
        reason: String,
        /// Time at which the cap has room again; `None` if it never has.
        resets: Option<Millis>,
    },
}

/// Spends what dead holders and earlier calls of this session left held: their calls may have been made.
pub(super) fn spend_lapsed_holds(held: &mut BTreeMap<String, Hold>, spent: &mut BudgetUse, session: &str, now: Millis) {
    held.retain(|holder, hold| {
        let left = holder == session || now >= hold.until;
        if left {
            spent.add(hold.used);
        }
        !left
    });
}

/// Returns the sum of what is spent and held.
pub(super) fn spent_and_held(held: &BTreeMap<String, Hold>, spent: BudgetUse) -> BudgetUse {
    held.values().fold(spent, |mut sum, held| {
        sum.add(held.used);
        sum
    })
}

impl Account {
    /// Makes an account of which nothing is used.
    pub fn new(origin: LimitOrigin, limits: Budget) -> Self {
        let (spent, held, kept) = (BudgetUse::default(), BTreeMap::new(), UnknownFields::default());
        Self { origin, limits, spent, held, kept }
    }

    fn reclaim(&mut self, session: &str, now: Millis) {
        spend_lapsed_holds(&mut self.held, &mut self.spent, session, now);
    }

    fn spent_and_held(&self) -> BudgetUse {
        spent_and_held(&self.held, self.spent)
    }

    /// Returns the tokens that the reply of a call may have.
    fn room(&self, call: BudgetedCall<'_>) -> Result<u64, HoldError> {
        let wanted = call.reply.map_or(REPLY_MOST, u64::from).max(1);
        let least = wanted.min(REPLY_LEAST);
        match room(&self.limits, self.spent, call, wanted) {
            Ok(most) if most >= least => match room(&self.limits, self.spent_and_held(), call, wanted) {
                Ok(most) if most >= least => Ok(most),
                Ok(_) | Err(_) => Err(HoldError::Held),
            },
            Ok(_) => Err(self.spent_error(&BudgetRoomError::Rest)),
            Err(error) => Err(self.spent_error(&error)),
        }
    }

    fn spent_error(&self, error: &BudgetRoomError) -> HoldError {
        HoldError::Spent { origin: self.origin, reason: error.to_string() }
    }

    fn hold(&mut self, call: BudgetedCall<'_>, reply: u64) {
        let nano = call.price.map_or(0, |price| price.ceiling(call.prompt, reply));
        let used = BudgetUse { tokens: call.prompt.saturating_add(reply), nano, turns: 1 };
        self.held.insert(call.session.to_owned(), Hold { used, until: call.now.plus(BUDGET_HOLD) });
    }
}

/// Limit of a budget that a call doesn't fit into.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(super) enum BudgetRoomError {
    /// All model calls were made.
    #[error("{limit} model calls were made")]
    Turns {
        /// Number of calls at most.
        limit: u32,
    },
    /// The rest of the tokens doesn't hold the prompt.
    #[error("{used} of {limit} tokens are used, the next call needs {needed}")]
    Tokens {
        /// Tokens that are used.
        used: u64,
        /// Tokens at most.
        limit: u64,
        /// Tokens of the prompt.
        needed: u64,
    },
    /// The cost is limited and the price of the model is unknown.
    #[error("the model has no `price`, so that its cost can't be limited")]
    NoPrice,
    /// The rest of the money doesn't pay for the prompt.
    #[error("${:.6} of ${limit} are used, the next call needs ${:.6}", dollars(*used), dollars(*needed))]
    Cost {
        /// Billionths of a dollar that are used.
        used: u64,
        /// Dollars at most.
        limit: f64,
        /// Billionths of a dollar that the prompt costs.
        needed: u64,
    },
    /// The rest holds the prompt and no reply.
    #[error("what is left is too little for another call")]
    Rest,
}

/// Returns the tokens that the reply of a call may have within limits of which `used` is used.
pub(super) fn room(
    limits: &Budget,
    used: BudgetUse,
    call: BudgetedCall<'_>,
    wanted: u64,
) -> Result<u64, BudgetRoomError> {
    let mut most = wanted;
    if let Some(limit) = limits.turns
        && used.turns >= limit
    {
        return Err(BudgetRoomError::Turns { limit });
    }
    if let Some(limit) = limits.tokens {
        let left = limit.saturating_sub(used.tokens);
        let error = BudgetRoomError::Tokens { used: used.tokens, limit, needed: call.prompt };
        most = most.min(left.checked_sub(call.prompt).ok_or(error)?);
    }
    if let Some(most_dollars) = limits.cost {
        let Some(price) = call.price else {
            return Err(BudgetRoomError::NoPrice);
        };
        let left = nano(most_dollars).saturating_sub(used.nano);
        let prompt = price.ceiling(call.prompt, 0);
        let error = BudgetRoomError::Cost { used: used.nano, limit: most_dollars, needed: prompt };
        let left = left.checked_sub(prompt).ok_or(error)?;
        // A reply that costs nothing has no limit.
        let tokens = (u128::from(left) * 1_000).checked_div(per_token(price.output));
        most = tokens.map_or(most, |tokens| most.min(u64::try_from(tokens).unwrap_or(u64::MAX)));
    }
    Ok(most)
}

/// Returns billionths of a dollar as dollars, for people.
#[expect(clippy::cast_precision_loss, reason = "shown with six digits")]
pub fn dollars(nano: u64) -> f64 {
    nano as f64 / NANO
}

/// Share of the budgets that a call got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allotment {
    /// Tokens that the reply may have.
    pub reply: u64,
    /// Origin of the limits that made them fewer than requested: a reply of that length was cut off.
    pub cut_by: Option<LimitOrigin>,
}

/// Holds what a call needs in all accounts, or in none.
pub fn hold(accounts: &mut [Account], call: BudgetedCall<'_>) -> Result<Allotment, HoldError> {
    for account in accounts.iter_mut() {
        account.reclaim(call.session, call.now);
    }
    let mut reply = call.reply.map_or(REPLY_MOST, u64::from);
    let (mut held, mut cut_by) = (false, None);
    for account in accounts.iter() {
        match account.room(call) {
            Ok(room) if room < reply => (reply, cut_by) = (room, Some(account.origin)),
            Ok(_) => {}
            Err(HoldError::Held) => held = true,
            Err(spent) => return Err(spent),
        }
    }
    if held {
        return Err(HoldError::Held);
    }
    for account in accounts {
        account.hold(call, reply);
    }
    Ok(Allotment { reply, cut_by })
}

/// Spends what a call has used and releases the rest of its hold. A call that was not made has used nothing.
pub fn settle(accounts: &mut [Account], session: &str, used: Option<(TokenUsage, Option<Price>)>) {
    for account in accounts {
        // This call was settled before.
        if account.held.remove(session).is_none() {
            continue;
        }
        if let Some((usage, price)) = used {
            account.spent.add(BudgetUse::of_call(usage, price));
        }
    }
}

/// Returns the tokens of a call, with estimates where the provider gives no number.
pub const fn with_estimates(usage: TokenUsage, prompt: u64, reply: u64) -> TokenUsage {
    TokenUsage {
        input: if usage.input == 0 { prompt } else { usage.input },
        output: if usage.output == 0 { reply } else { usage.output },
        ..usage
    }
}

/// Returns the tokens of a prompt of `bytes` bytes, rounded up; `ratio` is thousandths of bytes per token.
pub fn tokens(bytes: usize, ratio: u32) -> u64 {
    (bytes as u64).saturating_mul(1_000).div_ceil(u64::from(ratio.max(1)))
}

/// Holds what the last call of a task needs, beyond the limits if need be: it ends the task.
pub fn hold_last(accounts: &mut [Account], call: BudgetedCall<'_>) -> Allotment {
    let reply = call.reply.map_or(REPLY_MOST, u64::from);
    for account in accounts {
        account.reclaim(call.session, call.now);
        account.hold(call, reply);
    }
    Allotment { reply, cut_by: None }
}

/// Time at which a request ends, and the origin of that limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deadline {
    /// End of the request.
    pub at: Millis,
    /// Origin of the limit.
    pub origin: LimitOrigin,
}

/// Accounts that a turn is charged to, and its deadline.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Purse {
    /// Names of the accounts of the requests above, outermost first.
    pub inherited: Vec<String>,
    /// Accounts of its own task, by name: its first call makes them.
    pub own: Vec<(String, Account)>,
    /// Deadline of the turn.
    pub deadline: Option<Deadline>,
}

impl Purse {
    /// Makes the purse of a task that was accepted at `accepted`: `agent` are the limits of its agent, `request` is its
    /// own budget, `inherited` are the accounts of the requests above, with their deadline.
    pub fn for_task(
        job: &JobId,
        accepted: Millis,
        agent: &Budget,
        request: &Budget,
        inherited: &[String],
        deadline: Option<Millis>,
    ) -> Self {
        let own = [(LimitOrigin::Agent, "agent", agent), (LimitOrigin::Request, "request", request)];
        let at = |origin, at: Option<Millis>| at.map(|at| Deadline { at, origin });
        let times = own.iter().map(|(origin, _, limits)| at(*origin, limits.deadline(accepted)));
        let deadline = times.chain([at(LimitOrigin::Request, deadline)]).flatten().min_by_key(|deadline| deadline.at);
        let own = own.into_iter().filter(|(_, _, limits)| limits.is_counted());
        let own = own.map(|(origin, name, limits)| (format!("{job}-{name}"), Account::new(origin, *limits)));
        Self { inherited: inherited.to_vec(), own: own.collect(), deadline }
    }

    /// Returns the names of all accounts.
    pub fn accounts(&self) -> impl Iterator<Item = &String> {
        self.inherited.iter().chain(self.own.iter().map(|(name, _)| name))
    }

    /// Whether no account counts anything.
    pub fn is_empty(&self) -> bool {
        self.accounts().next().is_none()
    }
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
