//! An answer of a person whose process dies before the session that waits hears of it.

use crate::support::venue::TestVenue;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use trellis::domain::approval::ApprovalVerdict;
use trellis::domain::authority::Authority;
use trellis::domain::job::JobStatus;
use trellis::domain::time::Millis;
use trellis::process::clock::Clock;
use trellis::store::faulty::{FaultPlan, FaultyStore};
use trellis::store::keys;
use trellis::venue::approvals;
use trellis::venue::operation::Caller;

const RULES: &str = r#"
[[rule]]
when = { turn = 1 }
then = { calls = [{ tool = "pay", arguments = { path = "w/paid", value = 100 } }] }

[[rule]]
then = { text = "done" }
"#;

#[tokio::test]
async fn the_sweep_delivers_an_answer_its_session_missed() {
    let clock = Clock::manual(Millis(1_774_699_200_000));
    let (venue, dir) = TestVenue::embedded_at(RULES, clock.clone()).await;
    let pay = json!({"operation": "v/ops/lattice/append", "name": "pay", "approval": "ask"});
    venue.agent("payer", json!({"tools": [pay]})).await;
    venue.worker();
    let job = venue.submit("payer", "t1", json!({})).await.job.unwrap();
    let list = || approvals::list(&venue.venue, &venue.owner, false, 0, 10);
    let asked = loop {
        match list().await.unwrap().items.pop() {
            Some(asked) => break asked,
            None => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    let store = FaultyStore::new(Arc::clone(&venue.venue.store), FaultPlan::FromMethod("admit"));
    let dying = TestVenue::at(store, Arc::clone(&venue.venue.bus), dir.path(), RULES, clock.clone()).await;
    let person = Caller::new(venue.owner.clone(), "a person".into(), Authority::without_limits());
    let verdict = ApprovalVerdict::Approved { arguments: None, scopes: None };
    approvals::decide(&dying.venue, &person, &asked.id, verdict, None).await.unwrap_err();
    assert!(list().await.unwrap().items.is_empty(), "it is answered: nobody answers it again");
    let marks = || venue.venue.store.scan(&venue.owner, keys::ANSWERS_DUE, None, false, 10);
    assert_eq!(marks().await.unwrap().len(), 1);
    clock.advance(Duration::from_secs(6));
    assert_eq!(venue.ended(&job).await.status, JobStatus::Complete);
    assert_eq!(venue.read("w/paid").await, Some(json!([100])));
    assert!(marks().await.unwrap().is_empty());
}
