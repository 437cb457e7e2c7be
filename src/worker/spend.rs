//! Stage 5 where budgets count: a part of each is held before the model is asked, and settled after.

use super::Worker;
use super::ask;
use super::commit::Outcome;
use super::session::{self, Leased, Stop};
use crate::domain::budget::{self, Account, Call, Purse, Short};
use crate::domain::chat::{ModelRequest, Reply, Usage};
use crate::domain::turn::{Last, ModelFailure, Observed, Turn, code_of};
use crate::store::{After, Change, DocWrite, Expect, StoreError, Written, decode, keys};
use bytes::Bytes;
use std::time::Duration;

/// Tries of a change that siblings get in the way of.
const TRIES: u32 = 64;
/// Pause until siblings may have given back what they hold.
const PAUSE: Duration = Duration::from_secs(1);

/// Calls the model once, within the budgets of the request. `None`: siblings hold what it needs.
pub(super) async fn ask(
    worker: &Worker,
    leased: &mut Leased,
    turn: &Turn,
    mut request: ModelRequest,
) -> Result<Option<Observed>, Stop> {
    let setting = turn.setting();
    let (purse, job) = (&setting.purse, setting.plan.job().cloned());
    let session = setting.session.token();
    let prompt = budget::tokens(turn.prompt_bytes(), worker.ratio(&request.model));
    let price = request.model.price;
    let call = Call { session: &session, prompt, reply: request.model.max_tokens, price, now: worker.venue.now() };
    let mut cut = None;
    if !purse.is_empty() {
        let last = setting.last.is_some();
        let held = change(worker, leased, purse, |accounts| {
            if last { Ok(budget::hold_last(accounts, call)) } else { budget::hold(accounts, call) }
        });
        match held.await? {
            Some(Ok(given)) => {
                request.model.max_tokens = Some(u32::try_from(given.reply).unwrap_or(u32::MAX));
                cut = given.cut_by.map(|origin| (origin, given.reply));
            }
            Some(Err(Short::Spent { origin, reason })) => {
                let reason = format!("the budget is used up: {reason}");
                let short = Last { code: code_of(origin), reason };
                return Ok(Some(Observed::Answered(Err(ModelFailure::Short(short)))));
            }
            Some(Err(Short::Held)) | None => return Ok(None),
        }
    }
    let observed = match setting.purse.deadline.filter(|_| setting.last.is_none()) {
        None => ask::model(worker, leased, job.as_ref(), &request, &setting.config.retry).await?,
        Some(deadline) => {
            let left = deadline.at.since(worker.venue.now());
            let answered =
                tokio::time::timeout(left, ask::model(worker, leased, job.as_ref(), &request, &setting.config.retry))
                    .await;
            if let Ok(observed) = answered {
                observed?
            } else {
                let reason = format!("its time was over at {}, while its model was asked", deadline.at.rfc3339());
                let short = Last { code: code_of(deadline.origin), reason };
                Observed::Answered(Err(ModelFailure::Short(short)))
            }
        }
    };
    if let Observed::Answered(Ok(reply)) = &observed {
        worker.counted(&request.model, turn.prompt_bytes(), reply.usage.input);
    }
    if !purse.is_empty() {
        let used = used(worker, &request, &observed, prompt);
        change(worker, leased, purse, |accounts| {
            budget::settle(accounts, &session, used.map(|usage| (usage, price)));
            Ok(())
        })
        .await?;
    }
    if let (Some((origin, given)), Observed::Answered(Ok(reply))) = (cut, &observed)
        && reply.usage.output >= given
    {
        let reason = format!("the budget is used up: the reply was cut off at {given} tokens");
        let short = Last { code: code_of(origin), reason };
        return Ok(Some(Observed::Answered(Err(ModelFailure::Short(short)))));
    }
    Ok(Some(observed))
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
            // One that is gone belonged to a job that was forgotten: it binds nobody.
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

/// Gives the lease back until siblings may have given back what they hold.
pub(super) async fn wait(worker: &Worker, leased: &mut Leased) -> Result<Outcome, Stop> {
    let now = worker.venue.now();
    tracing::debug!(session = %leased.lease.session, "siblings hold the rest of the budget; waiting {PAUSE:?}");
    let then = After::Release { arrivals: u64::MAX, due: Some(now.plus(PAUSE)), backoff: true };
    session::release(worker, leased, now, then).await?;
    Ok(Outcome::Waiting)
}
