//! Calls that wait for approval: the question before a call, and the answers given since.

use super::round::CallRound;
use crate::domain::approval::{
    Approval, ApprovalAnswer, ApprovalSubject, ApprovalVerdict, AwaitingCall, CallPlace, CallSection, QuestionsError,
    check_questions,
};
use crate::domain::call::ToolTarget;
use crate::domain::call::{Outcome, PlannedCall, PublishedVersion, ResolvedCall};
use crate::domain::decode::{self, DataError};
use crate::domain::limits::APPROVAL_TIME_MAX;
use crate::domain::session::TurnRecord;
use crate::domain::tools::consent;
use crate::domain::turn::{ApprovalRequest, CallOutcome};
use crate::domain::values::inject::Injection;
use crate::ops::human;
use crate::store::StoreError;
use crate::venue::approvals;
use crate::venue::operation::{Need, dispatch};
use crate::worker::lease::transcript;
use crate::worker::lease::{LeasedSession, RunStop};
use crate::worker::state::Worker;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// A call with all that it would do.
pub(crate) struct ReadyCall<'a> {
    /// Index of the call in the reply.
    pub(crate) index: u32,
    /// The call as planned.
    pub(crate) call: &'a PlannedCall,
    /// Path of its operation, `g/<agent>`, or the name of the tool.
    pub(crate) operation: &'a str,
    /// Capabilities that it needs.
    pub(crate) capabilities: Vec<Need>,
    /// Action when it is approved.
    pub(crate) target: ToolTarget,
    /// Arguments as the call will send them.
    pub(crate) arguments: &'a Value,
}

/// Returns the awaiting outcome of a call that needs approval; `None` when the call is made at once. A call that would
/// be denied needs no approval.
pub(crate) fn ask_person(round: &CallRound<'_>, made: &ReadyCall<'_>) -> Option<CallOutcome> {
    let policy = round.needs_approval()?;
    let authority = &round.caller.authority;
    if !made.capabilities.iter().all(|need| authority.permits(need.ability, &need.resource).is_ok()) {
        return None;
    }
    if made.operation == human::ASK {
        return Some(match questions(round, made.arguments) {
            Ok((subject, time)) => awaiting_outcome(round, made, subject, time),
            Err(error) => CallOutcome::from_text(Outcome::Error, format!("error: {error}")),
        });
    }
    let catalog = round.catalog();
    let meant = |path: &str| catalog.resolve(path).map(|found| &*found.spec.path);
    let request = made.capabilities.iter().find(|need| need.ability == "agent/request");
    let call = consent::ConsentCall {
        tool: &made.call.tool,
        runs: made.operation,
        asks: request.map(|need| need.resource.as_str()),
        scoped: made.call.scoped.iter().any(|section| !section.empty),
    };
    let asks = consent::is_required(&round.turn_input().config, call, meant)
        || made
            .capabilities
            .iter()
            .any(|need| consent::policy_requires(policy, authority, need.ability, &need.resource));
    if !asks {
        return None;
    }
    if dispatch::hides(catalog, made.operation, made.arguments) {
        let text = "error: a person must approve this call, and it holds a value that may not be recorded or shown; \
                    name a secret instead";
        return Some(CallOutcome::from_text(Outcome::Error, text));
    }
    let scopes = made.call.scoped.iter().filter(|section| !section.empty).map(|section| CallSection {
        key: section.key.clone(),
        digest: section.digest(),
        bytes: section.bytes,
    });
    let subject = ApprovalSubject::Call {
        operation: made.operation.to_owned(),
        arguments: made.arguments.clone(),
        fixed: bound_arguments(round, made).into_iter().map(|(name, _)| name).collect(),
        scopes: scopes.collect(),
    };
    Some(awaiting_outcome(round, made, subject, round.worker.options.approval_time))
}

/// Returns the arguments that the runtime has filled in: all of a call that only runs another call.
fn bound_arguments(round: &CallRound<'_>, made: &ReadyCall<'_>) -> Map<String, Value> {
    let injected = &made.call.injection.values;
    let catalog = round.catalog();
    let through = match &made.call.what {
        Ok(ResolvedCall { target: ToolTarget::Operation(path), .. }) => {
            catalog.resolve(path).is_none_or(|found| *found.spec.path != *made.operation)
        }
        Ok(_) | Err(_) => false,
    };
    match made.arguments.as_object() {
        Some(all) if through && !injected.is_empty() => all.clone(),
        Some(_) | None => injected.clone(),
    }
}

/// Why the questions of a call can't be put to a person.
#[derive(Debug, thiserror::Error)]
enum AskPersonError {
    /// The arguments have another form.
    #[error(transparent)]
    Arguments(#[from] DataError),
    /// The call names somebody who doesn't answer.
    #[error(transparent)]
    User(#[from] human::OtherPeopleError),
    /// A question breaks a rule.
    #[error(transparent)]
    Questions(#[from] QuestionsError),
}

fn questions(round: &CallRound<'_>, arguments: &Value) -> Result<(ApprovalSubject, Duration), AskPersonError> {
    let asked: human::AskPerson = decode::into_type(arguments.clone())?;
    asked.check_user(&round.turn_input().owner)?;
    check_questions(&asked.asks)?;
    let usual = round.worker.options.approval_time;
    let time = asked.seconds().map_or(usual, Duration::from_secs).min(APPROVAL_TIME_MAX);
    let (title, rules) = (asked.heading(), BTreeMap::new());
    Ok((ApprovalSubject::Questions { title, asks: asked.asks, rules }, time))
}

fn awaiting_outcome(
    round: &CallRound<'_>,
    made: &ReadyCall<'_>,
    subject: ApprovalSubject,
    time: Duration,
) -> CallOutcome {
    let turn_input = round.turn_input();
    let place = CallPlace {
        owner: &turn_input.owner,
        session: &turn_input.session,
        turn: round.turn(),
        call: made.index,
        start: round.reply_turn.start.time_in_ids(),
    };
    let venue = &round.worker.venue;
    let now = venue.now();
    let mut approval = Approval::new(&venue.key, place, &made.call.tool, subject, now, now.plus(time));
    approval.job = turn_input.plan.job().cloned();
    approval.under = turn_input.authority.clone().without_home();
    let text = format!("awaiting a person: approval `{}`", approval.id);
    let resolved = ResolvedCall { target: made.target.clone(), arguments: made.arguments.clone() };
    // A person may change the other arguments; bound ones stay as they were shown.
    let injection = Injection { values: bound_arguments(round, made), ..Injection::default() };
    let published = published_version(round, &made.target);
    let planned = PlannedCall { what: Ok(resolved), injection, published, ..made.call.clone() };
    CallOutcome {
        asked: Some(Box::new(ApprovalRequest { approval, planned })),
        ..CallOutcome::from_text(Outcome::Awaiting, &text)
    }
}

/// Returns the published operation of a target, in the version of this turn; `None` for any other target.
fn published_version(round: &CallRound<'_>, target: &ToolTarget) -> Option<PublishedVersion> {
    round.catalog().resolve(target.operation()?)?.published_version()
}

/// Returns the waiting calls that are decided: answered, expired, or of a task that has ended. An unanswered approval
/// is closed here, so that no later answer counts.
pub(crate) async fn decided_calls(
    worker: &Worker,
    leased: &LeasedSession,
) -> Result<Vec<(AwaitingCall, ApprovalAnswer)>, RunStop> {
    let Some(awaiting) = &leased.run.state.awaiting else { return Ok(Vec::new()) };
    let withdrawn = leased.run.is_withdrawn();
    let now = worker.venue.now();
    let mut decided = Vec::new();
    for call in &awaiting.calls {
        let close = match (withdrawn, now >= call.expires) {
            (true, _) => Some(ApprovalVerdict::Withdrawn),
            (false, true) => Some(ApprovalVerdict::Expired),
            (false, false) => None,
        };
        let answer =
            approvals::answer_or_close(&worker.venue, &leased.lease.owner, &call.approval, close.clone()).await?;
        let answer = match close {
            // The task has ended: no answer makes the call.
            Some(ApprovalVerdict::Withdrawn) => {
                answer.map(|answer| ApprovalAnswer { verdict: ApprovalVerdict::Withdrawn, ..answer })
            }
            _ => answer,
        };
        decided.extend(answer.map(|answer| (call.clone(), answer)));
    }
    Ok(decided)
}

/// Returns the record of the turn whose calls wait.
pub(crate) async fn awaiting_turn(worker: &Worker, leased: &mut LeasedSession) -> Result<TurnRecord, RunStop> {
    let turn = leased.run.state.awaiting.as_ref().map_or(0, |awaiting| awaiting.turn);
    let session = leased.lease.session.clone();
    let found = transcript::load_turn(worker, leased, turn).await?;
    let missing = || StoreError::Corrupt {
        store: "documents".into(),
        record: None,
        reason: format!("{session} has no turn {turn}"),
    };
    Ok(found.ok_or_else(missing)?)
}
