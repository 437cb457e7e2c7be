//! Stage 5 where budgets and rate limits count: a part of each is held before the model is asked, and
//! settled after.

use super::session::{Leased, Stop};
use super::{Worker, ask, origin};
use crate::domain::budget::{self, Account, Call, Origin, Purse, Short};
use crate::domain::chat::{ModelRequest, Reply, Usage};
use crate::domain::rate::{self, Wait};
use crate::domain::spend::Spent;
use crate::domain::turn::{Last, ModelFailure, Observed, Turn, code_of};
use crate::rates::{self, Booked};
use crate::store::{Change, DocWrite, Expect, StoreError, Written, decode, keys};
use bytes::Bytes;
use std::time::Duration;

/// Tries of a change that siblings get in the way of.
const TRIES: u32 = 64;
/// Pause until siblings may have given back what they hold.
const PAUSE: Duration = Duration::from_secs(1);
/// Tokens that a reply without a limit of its own is booked with.
const REPLY: u64 = 1_024;

/// What became of a model call.
pub(super) enum Asked {
    /// It was made, or refused; with what it has used.
    Made(Observed, Spent),
    /// Not now.
    Wait(Wait),
}

/// No call is made.
fn refused(why: ModelFailure) -> Asked {
    Asked::Made(Observed::Answered(Err(why)), Spent::default())
}

/// Calls the model once, within the budgets of the request and the rate limits of its provider.
pub(super) async fn ask(
    worker: &Worker,
    leased: &mut Leased,
    turn: &Turn,
    mut request: ModelRequest,
) -> Result<Asked, Stop> {
    let setting = turn.setting();
    let counted = match origin::check(worker, setting).await? {
        Ok(counted) => counted,
        Err(last) => return Ok(refused(ModelFailure::Short(last))),
    };
    let (purse, session) = (&setting.purse, setting.session.token());
    let prompt = budget::tokens(turn.prompt_bytes(), worker.ratio(&request.model));
    let price = request.model.price;
    let cut = match hold(worker, leased, turn, &mut request, prompt).await? {
        Hold::Given(cut) => cut,
        Hold::Not(asked) => return Ok(asked),
    };
    let settle = |used: Option<Usage>| {
        let session = &session;
        move |accounts: &mut [Account]| {
            budget::settle(accounts, session, used.map(|usage| (usage, price)));
            Ok(())
        }
    };
    let id = rates::id(&setting.owner, &setting.session, setting.turn);
    let booked = match book(worker, &request, id, prompt).await? {
        Ok(booked) => booked,
        Err(instead) => {
            if !purse.is_empty() {
                change(worker, leased, purse, settle(None)).await?;
            }
            return Ok(instead);
        }
    };
    let observed = tokio::select! {
        observed = in_time(worker, leased, turn, &request) => observed?,
        never = rates::keep(&worker.venue, &booked, worker.options.rates.hold) => match never {},
    };
    if let Observed::Answered(Ok(reply)) = &observed {
        worker.counted(&request.model, turn.prompt_bytes(), reply.usage.input);
    }
    let used = used(worker, &request, &observed, prompt);
    let spent = used.map_or_else(Spent::default, |usage| Spent::call(usage, price));
    if !purse.is_empty() {
        change(worker, leased, purse, settle(used)).await?;
    }
    if let (Some(counted), Some(_)) = (counted, used) {
        origin::count(worker, setting, counted).await;
    }
    let tokens = used.map_or(0, |usage| usage.input.saturating_add(usage.output));
    if let Err(error) = rates::settle(&worker.venue, booked, tokens).await {
        // A reply that is paid is not given up for the books of a limit.
        tracing::warn!(%error, "a model call is not settled; it counts as it was booked");
    }
    if let (Some((origin, given)), Observed::Answered(Ok(reply))) = (cut, &observed)
        && reply.usage.output >= given
    {
        let reason = format!("the budget is used up: the reply was cut off at {given} tokens");
        let short = Last { code: code_of(origin), reason };
        return Ok(Asked::Made(Observed::Answered(Err(ModelFailure::Short(short))), spent));
    }
    Ok(Asked::Made(observed, spent))
}

/// A place under the rate limits of the model's provider, or what becomes of the call instead.
async fn book<'w>(
    worker: &'w Worker,
    request: &ModelRequest,
    id: String,
    prompt: u64,
) -> Result<Result<Booked<'w>, Asked>, StoreError> {
    let (rates, reply) = (&worker.options.rates, request.model.max_tokens.map(u64::from));
    let tokens = match rate::reserve(&rates.limits, &request.model, prompt, reply, REPLY) {
        Ok(tokens) => tokens,
        Err(reason) => return Ok(Err(refused(ModelFailure::Permanent { reason }))),
    };
    Ok(rates::book(&worker.venue, rates, &request.model, id, tokens).await?.map_err(Asked::Wait))
}

/// A part of each budget, or why there is none.
enum Hold {
    /// Held; with what cut the reply to how many tokens, when one did.
    Given(Option<(Origin, u64)>),
    /// The model isn't asked.
    Not(Asked),
}

async fn hold(
    worker: &Worker,
    leased: &Leased,
    turn: &Turn,
    request: &mut ModelRequest,
    prompt: u64,
) -> Result<Hold, Stop> {
    let setting = turn.setting();
    let (purse, session, now) = (&setting.purse, setting.session.token(), worker.venue.now());
    if purse.is_empty() {
        return Ok(Hold::Given(None));
    }
    let (reply, price) = (request.model.max_tokens, request.model.price);
    let call = Call { session: &session, prompt, reply, price, now };
    let last = setting.last.is_some();
    let held = change(worker, leased, purse, |accounts| {
        if !last && accounts.len() < purse.accounts().count() {
            let reason = "the budget of the request above is gone, its job was deleted or forgotten".into();
            return Err(Short::Spent { origin: Origin::Request, reason });
        }
        if last { Ok(budget::hold_last(accounts, call)) } else { budget::hold(accounts, call) }
    });
    Ok(match held.await? {
        Some(Ok(given)) => {
            request.model.max_tokens = Some(u32::try_from(given.reply).unwrap_or(u32::MAX));
            Hold::Given(given.cut_by.map(|origin| (origin, given.reply)))
        }
        Some(Err(Short::Spent { origin, reason })) => {
            let reason = format!("the budget is used up: {reason}");
            let short = Last { code: code_of(origin), reason };
            Hold::Not(refused(ModelFailure::Short(short)))
        }
        Some(Err(Short::Held)) | None => {
            let reason = "other turns of the request hold the rest of its budget".into();
            Hold::Not(Asked::Wait(Wait { until: now.plus(PAUSE), reason, told: false }))
        }
    })
}

/// Calls the model before the time of its task is over.
async fn in_time(worker: &Worker, leased: &mut Leased, turn: &Turn, request: &ModelRequest) -> Result<Observed, Stop> {
    let setting = turn.setting();
    let (job, retry) = (setting.plan.job().cloned(), setting.config.retry);
    let call = ask::model(worker, leased, job.as_ref(), request, &retry);
    let Some(deadline) = setting.purse.deadline.filter(|_| setting.last.is_none()) else { return call.await };
    let left = deadline.at.since(worker.venue.now());
    if let Ok(observed) = tokio::time::timeout(left, call).await {
        return observed;
    }
    let reason = format!("its time was over at {}, while its model was asked", deadline.at.rfc3339());
    let short = Last { code: code_of(deadline.origin), reason };
    Ok(Observed::Answered(Err(ModelFailure::Short(short))))
}

/// What a call has used; one that was broken off has used its prompt at least.
fn used(worker: &Worker, request: &ModelRequest, observed: &Observed, prompt: u64) -> Option<Usage> {
    match observed {
        Observed::Answered(Ok(Reply { text, usage, .. })) => {
            let reply = budget::tokens(text.len(), worker.ratio(&request.model));
            Some(budget::counted(*usage, prompt, reply))
        }
        Observed::Cancelled(_) | Observed::Answered(Err(ModelFailure::Short(_))) => {
            Some(Usage { input: prompt, output: 0 })
        }
        Observed::Answered(Err(
            ModelFailure::Transient { .. } | ModelFailure::Unusable { .. } | ModelFailure::Permanent { .. },
        ))
        | Observed::Gathered(..)
        | Observed::Recorded
        | Observed::Called(_) => None,
    }
}

/// Changes all accounts of a purse, or none. `None`: others were always faster.
async fn change<T>(
    worker: &Worker,
    leased: &Leased,
    purse: &Purse,
    edit: impl Fn(&mut [Account]) -> Result<T, Short>,
) -> Result<Option<Result<T, Short>>, Stop> {
    let (venue, owner) = (&worker.venue, &leased.lease.owner);
    let names: Vec<_> = purse.accounts().map(|name| keys::account(name)).collect();
    for _ in 0..TRIES {
        let docs = venue.store.read(owner, &names).await?;
        let own = names.iter().skip(purse.inherited.len()).zip(&purse.own);
        let mut known = Vec::with_capacity(names.len());
        for (key, doc) in names.iter().zip(docs) {
            let fresh = own.clone().find(|(name, _)| *name == key).map(|(_, (_, account))| account.clone());
            let account = doc.value.map(|bytes| decode::<Account>(key, &bytes)).transpose()?.or(fresh);
            // One that is gone belonged to a job that was forgotten: there is nothing to settle.
            known.extend(account.map(|account| (key, doc.version, account)));
        }
        let mut accounts: Vec<_> = known.iter().map(|(_, _, account)| account.clone()).collect();
        let edited = match edit(&mut accounts) {
            Ok(edited) => edited,
            Err(short) => return Ok(Some(Err(short))),
        };
        let write = |((key, version, _), account): (&(&String, u64, Account), &Account)| DocWrite {
            key: (*key).clone(),
            expect: Expect::Version(*version),
            change: Change::Put(Bytes::from(serde_json::to_vec(account).expect("accounts serialise"))),
        };
        let writes: Vec<_> = known.iter().zip(&accounts).map(write).collect();
        let written: Result<Written, StoreError> = venue.store.write(venue.now(), owner, &writes).await;
        if written? == Written::Done {
            return Ok(Some(Ok(edited)));
        }
    }
    Ok(None)
}
