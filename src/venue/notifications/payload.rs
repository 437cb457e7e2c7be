//! Bodies of notifications, each as its receiver may see it, with what is needed to answer.

use crate::domain::approval::{AnswerBody, Approval, ApprovalSubject, GivenAnswer};
use crate::domain::authority::ResourcePath;
use crate::domain::ids::{AgentId, JobId, Owner};
use crate::domain::invocation::NO_AGENT;
use crate::domain::limits::NOTIFICATION_BYTES;
use crate::domain::message::{InboundKind, MessageAddress};
use crate::domain::notification::{Notification, NotificationKind};
use crate::domain::session::WITHHELD;
use crate::domain::time::Millis;
use crate::store::StoreError;
use crate::venue::operation::Caller;
use crate::venue::{Venue, approvals};
use crate::view::approval::ApprovalView;
use crate::view::notification::{
    AnswerMessageView, AnswerRequestView, NotificationAnswerView, NotificationDataView, NotificationView,
};
use serde_json::{Map, Value, json};

/// Why what an approval asks is left out of its notification.
const TOO_LARGE: &str = "left out here, since it is large; read the approval";

/// Word for a notification by which somebody tries a webhook.
const TEST: &str = "test";

/// Receiver of a notification.
#[derive(Clone, Copy)]
pub(super) enum Receiver<'a> {
    /// Whoever may subscribe to the events of the owner.
    Owner,
    /// The caller who set a webhook.
    Caller(&'a Caller),
    /// A webhook of the venue, with the content of approvals or without it.
    Venue {
        /// Whether it is sent what approvals ask.
        with_content: bool,
    },
}

/// Returns the body of a notification for a receiver; `None` if this receiver may not know of it.
pub(super) async fn view(
    venue: &Venue,
    owner: &Owner,
    notification: &Notification,
    receiver: Receiver<'_>,
) -> Result<Option<NotificationView>, StoreError> {
    let approval = match &notification.approval {
        Some(id) => approvals::get(&*venue.store, owner, id).await?.map(|(approval, _)| approval),
        None => None,
    };
    let shown = approval.as_ref().map(|approval| show_approval(notification.kind, approval, receiver));
    let has_subject = shown.as_ref().is_some_and(|shown| shown.hidden.is_none());
    if !may_hear(notification, approval.as_ref(), receiver) {
        return Ok(None);
    }
    let answer = match approval.as_ref().filter(|_| has_subject) {
        Some(approval) if notification.kind == NotificationKind::ApprovalAsked => {
            Some(approval_answer(venue, owner, approval))
        }
        Some(_) | None => other_answer(notification),
    };
    let data = NotificationDataView {
        owner: owner.to_string(),
        venue: venue.name.clone(),
        agent: Some(notification.agent.clone()).filter(|agent| agent.as_str() != NO_AGENT),
        session: notification.session.clone(),
        job: notification.job.clone(),
        approval: shown.map(shorten),
        outcome: notification.outcome.clone(),
        operation: notification.operation.clone(),
        reason: notification.reason.clone(),
        resets: notification.resets,
        answer,
    };
    Ok(Some(NotificationView {
        id: notification.id.clone(),
        kind: notification.kind.as_str().to_owned(),
        timestamp: notification.at.rfc3339(),
        data,
    }))
}

/// Returns the body by which somebody tries a webhook.
pub(super) fn test_view(venue: &Venue, owner: &Owner, id: JobId, at: Millis) -> NotificationView {
    let data =
        NotificationDataView { owner: owner.to_string(), venue: venue.name.clone(), ..NotificationDataView::default() };
    NotificationView { id, kind: TEST.to_owned(), timestamp: at.rfc3339(), data }
}

/// Returns a body without what its approval asks, which the receiver reads elsewhere.
pub(super) fn without_content(view: NotificationView) -> NotificationView {
    let approval = view.data.approval.map(|approval| approval.without_subject(TOO_LARGE));
    NotificationView { data: NotificationDataView { approval, ..view.data }, ..view }
}

fn show_approval(kind: NotificationKind, approval: &Approval, receiver: Receiver<'_>) -> ApprovalView {
    // A question that was answered meanwhile is sent as it was asked: a repetition is the same.
    let answer = approval.answer.clone().filter(|_| kind != NotificationKind::ApprovalAsked);
    let approval = Approval { answer, ..approval.clone() };
    match receiver {
        Receiver::Owner | Receiver::Venue { with_content: true } => ApprovalView::from(&approval),
        Receiver::Caller(caller) => approvals::view_for(caller, &approval),
        Receiver::Venue { with_content: false } => ApprovalView::from(&approval).without_subject(WITHHELD),
    }
}

/// Leaves out what an approval asks if it is large.
fn shorten(shown: ApprovalView) -> ApprovalView {
    let bytes = serde_json::to_vec(&shown).map_or(0, |bytes| bytes.len());
    if bytes > NOTIFICATION_BYTES { shown.without_subject(TOO_LARGE) } else { shown }
}

/// Whether a receiver may hear of a notification: to see what an approval asks is not enough, since whoever asks under no
/// authority is covered by every caller.
fn may_hear(notification: &Notification, approval: Option<&Approval>, receiver: Receiver<'_>) -> bool {
    let may_answer = match (receiver, approval) {
        (Receiver::Caller(caller), Some(approval)) => approvals::check_may_answer(caller, approval).is_ok(),
        (Receiver::Owner | Receiver::Venue { .. }, _) | (Receiver::Caller(_), None) => false,
    };
    may_answer || may_know(notification, receiver)
}

/// Whether a receiver may know what the agent or the job of a notification does.
fn may_know(notification: &Notification, receiver: Receiver<'_>) -> bool {
    let Receiver::Caller(caller) = receiver else { return true };
    let about = match &notification.job {
        Some(job) if notification.agent.as_str() == NO_AGENT => ResourcePath::job(job),
        Some(_) | None => ResourcePath::agent(&notification.agent),
    };
    caller.operator || caller.authority.permits("crud/read", about).is_ok()
}

/// Returns how an approval is answered: each body names the digest of what was asked, so that it counts for nothing else.
fn approval_answer(venue: &Venue, owner: &Owner, approval: &Approval) -> NotificationAnswerView {
    let digest = approval.digest.as_str();
    let mut bodies = Map::new();
    let given = match &approval.subject {
        ApprovalSubject::Call { .. } => {
            bodies.insert("approve".to_owned(), json!({"approve": {}, "digest": digest}));
            bodies.insert("reject".to_owned(), json!({"reject": {}, "digest": digest}));
            vec![GivenAnswer::Approve { arguments: None, scopes: None }, GivenAnswer::Reject { reason: None }]
        }
        ApprovalSubject::Questions { asks, .. } => {
            let blank: Map<String, Value> = asks.iter().map(|ask| (ask.id.clone(), Value::Null)).collect();
            bodies.insert("answers".to_owned(), json!({"answers": blank, "digest": digest}));
            vec![GivenAnswer::Answers(blank)]
        }
    };
    let to =
        MessageAddress::In { owner: owner.clone(), agent: approval.session.agent.clone(), kind: InboundKind::Decide };
    let message = |answer| AnswerBody { approval: approval.id.clone(), digest: Some(digest.to_owned()), answer };
    let nats = venue
        .bus
        .address_subject(&to)
        .map(|subject| AnswerMessageView { subject, bodies: given.into_iter().map(message).collect() });
    let http =
        AnswerRequestView { method: "POST".to_owned(), path: format!("/api/v1/approvals/{}", approval.id), bodies };
    NotificationAnswerView { http, nats }
}

/// Returns the request by which a person acts on what is no approval; `None` where only time or a setting helps.
fn other_answer(notification: &Notification) -> Option<NotificationAnswerView> {
    let put = |path: String, bodies: &[(&str, Value)]| {
        let bodies = bodies.iter().map(|(name, body)| ((*name).to_owned(), body.clone())).collect();
        let path = format!("/api/v1/{path}");
        NotificationAnswerView { http: AnswerRequestView { method: "PUT".to_owned(), path, bodies }, nats: None }
    };
    match notification.kind {
        NotificationKind::JobDead if is_of_agent(&notification.agent) => {
            let job = notification.job.as_ref()?;
            Some(put(format!("jobs/{job}/redrive"), &[("redrive", json!({}))]))
        }
        NotificationKind::OutcomeUnknown => {
            let outcome = notification.outcome.as_ref()?;
            let bodies = [("done", json!({"done": true})), ("not done", json!({"done": false}))];
            Some(put(format!("outcomes/{outcome}"), &bodies))
        }
        NotificationKind::AgentSuspended => {
            Some(put(format!("agents/{}/resume", notification.agent.token()), &[("resume", json!({}))]))
        }
        NotificationKind::JobDead
        | NotificationKind::ApprovalAsked
        | NotificationKind::ApprovalDecided
        | NotificationKind::ApprovalExpired
        | NotificationKind::CapReached => None,
    }
}

fn is_of_agent(agent: &AgentId) -> bool {
    agent.as_str() != NO_AGENT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::approval::CallPlace;
    use crate::domain::authority::{Authority, Capability};
    use crate::domain::ids::SessionKey;
    use crate::domain::notification::NotificationCause;

    #[test]
    fn a_caller_hears_of_what_it_may_read_or_answer() {
        let owner: Owner = "t/u".parse().unwrap();
        let session = SessionKey { agent: "a".parse().unwrap(), session: "s".parse().unwrap() };
        let place = CallPlace { owner: &owner, session: &session, turn: 1, call: 0, start: None };
        let subject = ApprovalSubject::Call {
            operation: "v/ops/shop/pay".into(),
            arguments: json!({"amount": 5}),
            fixed: Vec::new(),
            scopes: Vec::new(),
        };
        let asked = Approval::new(b"key", place, "pay", subject, Millis(1), Millis(2));
        // The asking turn may do nothing more, so that every caller covers it.
        let asked = Approval { under: Authority::new(Some(Vec::new())), ..asked };
        let kind = NotificationKind::ApprovalAsked;
        let cause = NotificationCause { venue_key: b"key", owner: &owner, kind, name: "x" };
        let notification = Notification::new(cause, session.agent.clone(), Millis(1));
        for (held, expected) in [
            (&[("w", "*")][..], false),
            (&[], false),
            (&[("g/b", "crud/read")], false),
            (&[("g/a", "crud/read")], true),
            (&[("g/a", "job/approve")], true),
        ] {
            let held: Vec<_> = held
                .iter()
                .map(|(with, can)| Capability { with: (*with).to_owned(), can: (*can).to_owned() })
                .collect();
            let caller = Caller::new(owner.clone(), "ann".to_owned(), Authority::new(Some(held.clone())));
            assert_eq!(may_hear(&notification, Some(&asked), Receiver::Caller(&caller)), expected, "{held:?}");
        }
        assert!(may_hear(&notification, Some(&asked), Receiver::Owner));
    }

    #[test]
    fn each_kind_says_how_to_act_where_somebody_can() {
        let owner: Owner = "t/u".parse().unwrap();
        let job = JobId::new(&"0a".repeat(16)).unwrap();
        let of = |kind, agent: &str| {
            let cause = NotificationCause { venue_key: b"key", owner: &owner, kind, name: "x" };
            let made = Notification::new(cause, agent.parse().unwrap(), Millis(1));
            let shown = Notification { job: Some(job.clone()), outcome: Some(job.clone()), ..made };
            other_answer(&shown).map(|answer| format!("{} {}", answer.http.method, answer.http.path))
        };
        for (kind, agent, expected) in [
            (NotificationKind::JobDead, "a", Some(format!("PUT /api/v1/jobs/{job}/redrive"))),
            (NotificationKind::JobDead, NO_AGENT, None),
            (NotificationKind::OutcomeUnknown, "a", Some(format!("PUT /api/v1/outcomes/{job}"))),
            (NotificationKind::AgentSuspended, "a.b", Some("PUT /api/v1/agents/a%2Eb/resume".to_owned())),
            (NotificationKind::CapReached, "a", None),
            (NotificationKind::ApprovalDecided, "a", None),
            (NotificationKind::ApprovalExpired, "a", None),
        ] {
            assert_eq!(of(kind, agent), expected, "{kind:?}");
        }
    }
}
