//! What is dropped where an owner has too much open, and what a repetition does.

use crate::support::venue::{TestVenue, all_jobs};
use serde_json::json;
use std::time::Duration;
use trellis::domain::authority::Authority;
use trellis::domain::authority::envelope::Envelope;
use trellis::domain::authority::policy::Revocation;
use trellis::domain::authority::trail::Trail;
use trellis::domain::ids::JobId;
use trellis::domain::invocation::OperationCaller;
use trellis::domain::limits::DELIVERY_ROOM;
use trellis::domain::notification::NotificationKind;
use trellis::domain::principal::Principal;
use trellis::domain::time::Millis;
use trellis::domain::webhook::{Webhook, WebhookName};
use trellis::store::{DocWrite, keys};
use trellis::venue::agents::lifecycle;
use trellis::venue::notifications::{self, deliver, hooks};
use trellis::venue::operation_jobs::{self, RunOutcome, RunTerms};
use trellis::venue::policy;

const RULES: &str = "[[rule]]\nthen = { text = \"done\" }\n";

/// Writes a webhook of the owner, which nobody delivers to: there is no worker.
async fn webhook(venue: &TestVenue, kinds: &[NotificationKind]) {
    let asker = OperationCaller {
        name: "local/me".into(),
        operator: false,
        authority: Authority::without_limits(),
        envelope: Envelope::default(),
        principal: Principal::ANYBODY,
        token_owner: Some(venue.owner.clone()),
    };
    let hook = Webhook {
        name: WebhookName::new("phone").unwrap(),
        url: "https://hooks.example.com/".into(),
        kinds: kinds.to_vec(),
        secret: "HOOK".parse().unwrap(),
        asker,
        principal: None,
        bound: Box::new(Authority::without_limits()),
        under: Trail::default(),
        set: Millis(1),
    };
    let write = DocWrite::json(keys::webhook("phone"), &hook);
    venue.venue.store.write(venue.venue.now(), &venue.owner, &[write]).await.unwrap();
}

async fn pending(venue: &TestVenue) -> Vec<DocWrite> {
    let found = venue.venue.store.scan(&venue.owner, keys::NOTIFICATIONS_DUE, None, false, 10).await.unwrap();
    found.into_iter().map(|(key, doc)| DocWrite::put(key, doc.value.unwrap())).collect()
}

async fn suspend(venue: &TestVenue) {
    venue.agent("a", json!({})).await;
    lifecycle::suspend(&venue.venue, &venue.owner, &"a".parse().unwrap(), "for now").await.unwrap();
}

#[tokio::test]
async fn a_repeated_notification_starts_one_delivery() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    webhook(&venue, &[]).await;
    suspend(&venue).await;
    let before = pending(&venue).await;
    assert_eq!(before.len(), 1, "it is decided with the suspension");
    for _ in 0..2 {
        // As after a crash before the document was deleted.
        venue.venue.store.write(venue.venue.now(), &venue.owner, &before).await.unwrap();
        assert!(!notifications::send_due(&venue.venue, &venue.owner).await.unwrap());
        assert!(pending(&venue).await.is_empty());
    }
    let jobs = all_jobs(&venue.venue, &venue.owner).await;
    let deliveries: Vec<_> = jobs.iter().filter(|job| job.head.input["webhook"] == "phone").collect();
    assert_eq!(deliveries.len(), 1, "{jobs:?}");
}

#[tokio::test]
async fn a_kind_that_is_not_wanted_starts_no_delivery() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    webhook(&venue, &[NotificationKind::JobDead]).await;
    suspend(&venue).await;
    notifications::send_due(&venue.venue, &venue.owner).await.unwrap();
    assert!(all_jobs(&venue.venue, &venue.owner).await.is_empty() && pending(&venue).await.is_empty());
}

#[tokio::test]
async fn what_has_no_room_is_dropped_and_counted() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    webhook(&venue, &[]).await;
    let far = Millis(u64::from(u32::MAX) * 1_000);
    let id = |n: usize| JobId::new(&format!("{n:032x}")).unwrap();
    let open: Vec<_> = (0..DELIVERY_ROOM).map(|n| DocWrite::index_entry(keys::invoked_due(far, &id(n)))).collect();
    venue.venue.store.write(venue.venue.now(), &venue.owner, &open).await.unwrap();
    suspend(&venue).await;
    notifications::send_due(&venue.venue, &venue.owner).await.unwrap();
    let shown = hooks::views(&venue.venue, &venue.owner).await.unwrap();
    assert_eq!((shown.items[0].dropped, shown.items[0].failed, shown.dropped), (1, 0, 0), "{shown:?}");
    assert!(pending(&venue).await.is_empty(), "it doesn't wait");
}

/// Revokes the caller who set the webhook, and runs the one delivery that there is.
async fn run_revoked(venue: &TestVenue) {
    let revocation = Revocation {
        id: "r".into(),
        path: None,
        holder: Some("local/me".into()),
        grant: None,
        reason: None,
        by: "an operator".into(),
        at: venue.venue.now(),
    };
    policy::revoke(&venue.venue, &venue.owner, revocation).await.unwrap().unwrap();
    let job = all_jobs(&venue.venue, &venue.owner).await.remove(0).head.id;
    let terms = RunTerms { worker: "w", lease: Duration::from_mins(1), crash_limit: 3 };
    let held = operation_jobs::acquire(&venue.venue, &venue.owner, &job, terms).await.unwrap().unwrap();
    let end = deliver::run(&venue.venue, &venue.owner, &held).await.unwrap();
    assert!(matches!(&end, RunOutcome::Ended(result) if result.error.is_some()), "{end:?}");
}

#[tokio::test]
async fn a_webhook_whose_caller_is_revoked_shows_what_it_lost() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    webhook(&venue, &[]).await;
    suspend(&venue).await;
    notifications::send_due(&venue.venue, &venue.owner).await.unwrap();
    run_revoked(&venue).await;
    let shown = hooks::views(&venue.venue, &venue.owner).await.unwrap();
    assert_eq!((shown.items[0].failed, shown.items[0].undelivered.len()), (1, 1), "{shown:?}");
}

#[tokio::test]
async fn a_late_delivery_leaves_nothing_of_a_deleted_webhook() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    webhook(&venue, &[]).await;
    suspend(&venue).await;
    notifications::send_due(&venue.venue, &venue.owner).await.unwrap();
    assert!(hooks::delete(&venue.venue, &venue.owner, &WebhookName::new("phone").unwrap()).await.unwrap());
    run_revoked(&venue).await;
    let state = venue.venue.store.doc(&venue.owner, &keys::webhook_state("phone")).await.unwrap();
    assert_eq!(state.value, None);
}
