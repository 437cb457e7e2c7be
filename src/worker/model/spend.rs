//! Stage 5 under budgets, caps and rate limits: a part of each is reserved before the model is called, and settled
//! after.

use super::origin::OriginCount;
use super::wallet::{PaymentError, Wallet};
use super::{call, origin};
use crate::domain::budget::{self, BudgetedCall, HoldError, LimitOrigin};
use crate::domain::charge::Charge;
use crate::domain::chat::ModelRequest;
use crate::domain::rate::{self, RateWait};
use crate::domain::spend::ModelUse;
use crate::domain::time::Millis;
use crate::domain::turn::fallback::NoReplyReason;
use crate::domain::turn::{FinalTurn, ModelFailure, Observation, Turn, TurnInput, limit_code};
use crate::domain::wait::WaitCause;
use crate::model::meter::CallMeter;
use crate::store::StoreError;
use crate::venue::notices::{self, ReachedCap};
use crate::venue::notifications;
use crate::venue::rates::{self, BookedCall, BookingError, RateSettings};
use crate::worker::lease::{LeasedSession, RunStop, keeper};
use crate::worker::state::Worker;
use std::sync::Arc;
use std::time::Duration;

/// Pause until other turns may have settled their reservations.
const RESERVATION_PAUSE: Duration = Duration::from_secs(1);
/// Pause until a reached cap is checked again: it may have been raised.
const CAP_CHECK_PAUSE: Duration = Duration::from_mins(15);
/// Tokens reserved for a reply without a limit of its own.
const DEFAULT_REPLY_TOKENS: u64 = 1_024;

/// Result of a call to one model.
pub(crate) enum ModelCallResult {
    /// The model was called, or the deadline came first; with what was used.
    Finished(Box<Observation>, ModelUse),
    /// The model's limits don't allow the call.
    OverLimit(NoReplyReason),
    /// Other turns have reserved what the call needs; it is made later.
    AwaitsBudget(RateWait),
}

/// Why nothing is reserved for a call, which is then not made.
enum ReservationError {
    /// The limits don't allow the call now; holds its result.
    NotMade(Box<ModelCallResult>),
    /// The store failed.
    Store(StoreError),
}

impl From<ModelCallResult> for ReservationError {
    fn from(instead: ModelCallResult) -> Self {
        Self::NotMade(Box::new(instead))
    }
}

impl From<StoreError> for ReservationError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl ReservationError {
    /// Returns the result of the call.
    fn into_result(self) -> Result<ModelCallResult, RunStop> {
        match self {
            Self::NotMade(instead) => Ok(*instead),
            Self::Store(error) => Err(error.into()),
        }
    }
}

/// Refuses a call before it is made.
fn refuse_call(why: ModelFailure) -> ModelCallResult {
    ModelCallResult::OverLimit(NoReplyReason::Failed(why))
}

/// Calls one model once, within the budgets of the request, the caps and the rate limits of its provider. The first
/// call of a turn that costs something takes `counted`.
pub(crate) async fn call_model(
    worker: &Worker,
    leased: &mut LeasedSession,
    turn: &Turn,
    request: &mut ModelRequest,
    counted: &mut Option<OriginCount>,
) -> Result<ModelCallResult, RunStop> {
    let turn_input = turn.input();
    if let Some(reason) = worker.venue.spend.price_error(&turn_input.owner, &request.model) {
        return Ok(refuse_call(ModelFailure::LimitReached(FinalTurn { code: limit_code(LimitOrigin::Cap), reason })));
    }
    request.model.price = worker.venue.spend.price(&request.model);
    let ratio = worker.venue.prompts.ratio(&turn_input.owner, &request.model);
    let (price, prompt) = (request.model.price, budget::tokens(turn.prompt_bytes(), ratio));
    let wallet = Wallet::for_turn(worker, turn_input, &request.model);
    let cut = match hold(worker, &wallet, turn, request, prompt).await {
        Ok(cut) => cut,
        Err(error) => return error.into_result(),
    };
    let id = rates::call_id(&turn_input.owner, &turn_input.session, turn_input.turn);
    let booked = match book(worker, &wallet, request, id, prompt).await {
        Ok(booked) => booked,
        Err(error) => return error.into_result(),
    };
    let meter = Arc::new(CallMeter::default());
    let observed = tokio::select! {
        biased;
        observed = call_until_deadline(worker, leased, turn, request, &meter) => observed,
        never = rates::renew_booking(&worker.venue, &booked, worker.options.rates.hold) => match never {},
    };
    let observed = match observed {
        Err(RunStop::Store(error)) => {
            // After a lost lease, another worker may have reserved under the same name; this reservation then ends by
            // itself.
            if keeper::is_surely_held(worker, leased) {
                settle_unmade_call(worker, &wallet, booked).await;
            }
            return Err(error.into());
        }
        observed => observed?,
    };
    // Attachments are estimated with caution, which would distort the bytes per token of text.
    if let Observation::Answered(Ok(reply)) = &observed
        && !request.has_attachments()
    {
        worker.venue.prompts.record_ratio(&turn_input.owner, &request.model, turn.prompt_bytes(), reply.usage.input);
    }
    let charge = charge(&observed, &meter, prompt, ratio);
    let spent = charge.map_or_else(ModelUse::default, |charge| ModelUse::of_charge(charge, price));
    record_use(worker, turn_input, request, &spent);
    let used = charge.map(|charge| charge.usage);
    let counting = async {
        if used.is_some()
            && let Some(counted) = counted.take()
        {
            origin::count(worker, turn_input, counted).await;
        }
    };
    // Three places in the store, written at the same time.
    let ((), (), settled) = tokio::join!(
        wallet.settle(used.map(|usage| (usage, price))),
        counting,
        rates::settle(&worker.venue, booked, spent.input.saturating_add(spent.output)),
    );
    if let Err(error) = settled {
        // A paid reply is not discarded because a rate limit can't be settled.
        tracing::warn!(%error, "a model call is not settled; it counts as it was booked");
    }
    Ok(ModelCallResult::Finished(Box::new(refuse_cut_reply(cut, observed)), spent))
}

/// Counts what a call used, by model and by agent.
fn record_use(worker: &Worker, turn_input: &TurnInput, request: &ModelRequest, spent: &ModelUse) {
    let metrics = &worker.venue.metrics;
    metrics.models.record_use(&request.model.provider, &request.model.name, spent);
    let agent = turn_input.session.agent.as_str();
    metrics.agents.record_use(agent, spent.input.saturating_add(spent.output), spent.nano);
}

/// Refuses a reply that used all that a limit left: it isn't complete.
fn refuse_cut_reply(cut: Option<(LimitOrigin, u64)>, observed: Observation) -> Observation {
    let Some((origin, given)) = cut else { return observed };
    match observed {
        Observation::Answered(Ok(reply)) if reply.truncated || reply.usage.output >= given => {
            let what = if origin == LimitOrigin::Cap { "a cap is reached" } else { "the budget is used up" };
            let reason = format!("{what}: the reply was cut off at {given} tokens");
            Observation::Answered(Err(ModelFailure::LimitReached(FinalTurn { code: limit_code(origin), reason })))
        }
        observed => observed,
    }
}

/// Settles a call that was not made because the store failed. The reservation of a turn that has lost its lease is left
/// alone: another worker reserves under the same name.
async fn settle_unmade_call(worker: &Worker, wallet: &Wallet<'_>, booked: BookedCall) {
    let ((), settled) = tokio::join!(wallet.settle(None), rates::settle(&worker.venue, booked, 0));
    if let Err(error) = settled {
        tracing::warn!(%error, "a model call that was not made counts as it was booked");
    }
}

/// Reserves tokens of the model's rate limits. After an error the call's money is no longer reserved.
async fn book(
    worker: &Worker,
    wallet: &Wallet<'_>,
    request: &ModelRequest,
    id: String,
    prompt: u64,
) -> Result<BookedCall, ReservationError> {
    let reply = request.model.max_tokens.map(u64::from);
    // An owner's own server would take the calls and tokens of the others.
    let unlimited = RateSettings { limits: Vec::new(), hold: worker.options.rates.hold };
    let rates = if worker.model.is_own_server(&request.model) { &unlimited } else { &worker.options.rates };
    let booked: Result<BookedCall, ReservationError> =
        match rate::reserve(&rates.limits, &request.model, prompt, reply, DEFAULT_REPLY_TOKENS) {
            Ok(tokens) => match rates::book(&worker.venue, rates, &request.model, id, tokens).await {
                Ok(booked) => Ok(booked),
                Err(BookingError::OverLimit(wait)) => {
                    Err(ModelCallResult::OverLimit(NoReplyReason::RetryLater(wait)).into())
                }
                Err(BookingError::Store(error)) => Err(error.into()),
            },
            Err(error) => Err(refuse_call(ModelFailure::Permanent { reason: error.to_string() }).into()),
        };
    if booked.is_err() {
        wallet.settle(None).await;
    }
    booked
}

/// Reserves the cost of the call in all its accounts. Returns which limit cut the reply to how many tokens, if one did.
async fn hold(
    worker: &Worker,
    wallet: &Wallet<'_>,
    turn: &Turn,
    request: &mut ModelRequest,
    prompt: u64,
) -> Result<Option<(LimitOrigin, u64)>, ReservationError> {
    let (turn_input, now) = (turn.input(), worker.venue.now());
    let (reply, price) = (request.model.max_tokens, request.model.price);
    let call = BudgetedCall { session: &turn_input.session.token(), prompt, reply, price, now };
    let wait = |until, reason| RateWait { until, reason, told: false, cause: WaitCause::SpendingLimit };
    let short = |code, reason| refuse_call(ModelFailure::LimitReached(FinalTurn { code, reason }));
    let refused = match wallet.hold(call, turn_input.last.is_some()).await {
        Ok(None) => return Ok(None),
        Ok(Some(given)) => {
            request.model.max_tokens = Some(u32::try_from(given.reply).unwrap_or(u32::MAX));
            return Ok(given.cut_by.map(|origin| (origin, given.reply)));
        }
        Err(PaymentError::Store(error)) => return Err(error.into()),
        Err(PaymentError::Short(refused)) => refused,
    };
    let instead = match refused {
        HoldError::Spent { origin, reason } => {
            short(limit_code(origin), format!("the budget has no room for the next call: {reason}"))
        }
        HoldError::Capped { reason, resets } => {
            announce_cap(worker, turn, &reason, resets).await?;
            match resets.filter(|_| worker.venue.spend.waits_for_next_day()) {
                // A cap may be raised before its period ends.
                Some(resets) => ModelCallResult::OverLimit(NoReplyReason::RetryLater(wait(
                    resets.min(now.plus(CAP_CHECK_PAUSE)),
                    reason,
                ))),
                None => short(limit_code(LimitOrigin::Cap), reason),
            }
        }
        HoldError::Held => {
            let of = if wallet.has_budget() { "of its budget or of a cap" } else { "of a cap" };
            ModelCallResult::AwaitsBudget(wait(now.plus(RESERVATION_PAUSE), format!("other turns hold the rest {of}")))
        }
    };
    Err(instead.into())
}

/// Tells people that a cap is reached, once for each of its periods.
async fn announce_cap(
    worker: &Worker,
    turn: &Turn,
    reason: &str,
    resets: Option<Millis>,
) -> Result<(), ReservationError> {
    let (venue, turn_input) = (&worker.venue, turn.input());
    let cap = ReachedCap { session: &turn_input.session, job: turn_input.plan.job(), reason, resets };
    if notices::announce_cap(venue, &turn_input.owner, cap).await? {
        notifications::send_soon(venue, &turn_input.owner).await;
    }
    Ok(())
}

/// Calls the model, until the deadline of the task.
async fn call_until_deadline(
    worker: &Worker,
    leased: &mut LeasedSession,
    turn: &Turn,
    request: &ModelRequest,
    meter: &Arc<CallMeter>,
) -> Result<Observation, RunStop> {
    let turn_input = turn.input();
    let (job, retry) = (turn_input.plan.job().cloned(), turn_input.config.retry);
    let reply = call::model(worker, leased, job.as_ref(), request, &retry, meter);
    let Some(deadline) = turn_input.purse.deadline.filter(|_| turn_input.last.is_none()) else { return reply.await };
    let left = deadline.at.elapsed_since(worker.venue.now());
    if let Ok(observed) = tokio::time::timeout(left, reply).await {
        return observed;
    }
    let when = if meter.is_begun() { "while" } else { "before" };
    let reason = format!("its time was over at {}, {when} its model was asked", deadline.at.rfc3339());
    let short = FinalTurn { code: limit_code(deadline.origin), reason };
    Ok(Observation::Answered(Err(ModelFailure::LimitReached(short))))
}

/// Returns the cost of a call, also of one that was interrupted or ended without a reply. `ratio` is the model's bytes
/// per token, in thousandths.
fn charge(observed: &Observation, meter: &CallMeter, prompt: u64, ratio: u32) -> Option<Charge> {
    match observed {
        Observation::Answered(Ok(reply)) => {
            let said_bytes = meter.progress().said_bytes.max(reply.said_bytes());
            Some(Charge::of_reply(reply.usage, prompt, budget::tokens(said_bytes, ratio)))
        }
        Observation::Cancelled(_) | Observation::Answered(Err(_)) => meter.progress().charge(prompt, ratio),
        Observation::Gathered(..) | Observation::Offered(_) | Observation::Recorded | Observation::Called(_) => None,
    }
}
