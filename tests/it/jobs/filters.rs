//! Lists of jobs and turns with filters by state, agent, session, time and text.

use crate::support::venue::TestVenue;
use serde_json::json;
use trellis::domain::authority::Authority;
use trellis::domain::event::Submission;
use trellis::domain::ids::JobId;
use trellis::domain::job::JobStatus;
use trellis::domain::limits::LIST_LOOKS;
use trellis::domain::time::Millis;
use trellis::venue::jobs::list::{Cursor, JobListFilter, find};
use trellis::venue::jobs::{self};
use trellis::venue::ledger::turn_list as turns;

async fn task(venue: &TestVenue, agent: &str, session: &str, text: &str) -> JobId {
    let submission = Submission {
        input: json!({"message": text}),
        session_id: Some(session.parse().unwrap()),
        ..Submission::default()
    };
    venue.arrive(agent, &format!("{agent}-{}", text.replace(' ', "-")), true, submission).await.job.unwrap()
}

async fn filled() -> (TestVenue, tempfile::TempDir, Vec<JobId>) {
    let (venue, dir) = TestVenue::embedded("").await;
    for agent in ["a", "b"] {
        venue.agent(agent, json!({"model": {"provider": "scripted", "name": "echo"}})).await;
    }
    let mut ids = Vec::new();
    for (agent, session, text) in
        [("a", "s1", "Red"), ("a", "s2", "green"), ("b", "s1", "blue red"), ("b", "s1", "last")]
    {
        ids.push(task(&venue, agent, session, text).await);
        tokio::time::sleep(std::time::Duration::from_millis(3)).await;
    }
    jobs::cancel(&venue.venue, &venue.owner, &ids[3], Some("changed Mind")).await.unwrap();
    (venue, dir, ids)
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_found_by_state_agent_session_time_and_text() {
    let (venue, _dir, ids) = filled().await;
    let created = |n: usize| {
        let (venue, ids) = (&venue, &ids);
        async move { jobs::get(&venue.venue, &venue.owner, &ids[n]).await.unwrap().unwrap().head.created }
    };
    let (second, third) = (created(1).await, created(2).await);
    let text = |text: &str| JobListFilter { text: Some(text.into()), ..JobListFilter::default() };
    for (filter, expected) in [
        (JobListFilter::default(), vec![3, 2, 1, 0]),
        (JobListFilter { statuses: vec![JobStatus::Cancelled], ..JobListFilter::default() }, vec![3]),
        (
            JobListFilter { statuses: vec![JobStatus::Cancelled, JobStatus::Pending], ..JobListFilter::default() },
            vec![3, 2, 1, 0],
        ),
        (JobListFilter { agent: Some("a".parse().unwrap()), ..JobListFilter::default() }, vec![1, 0]),
        (JobListFilter { session: Some("s1".parse().unwrap()), ..JobListFilter::default() }, vec![3, 2, 0]),
        (
            JobListFilter {
                agent: Some("b".parse().unwrap()),
                session: Some("s2".parse().unwrap()),
                ..JobListFilter::default()
            },
            vec![],
        ),
        (JobListFilter { since: Some(third), ..JobListFilter::default() }, vec![3, 2]),
        (JobListFilter { until: Some(Millis(third.0 - 1)), ..JobListFilter::default() }, vec![1, 0]),
        (JobListFilter { since: Some(Millis(third.0 + 3_600_000)), ..JobListFilter::default() }, vec![]),
        (text("RED"), vec![2, 0]),
        (text("changed mind"), vec![3]),
        (text("nowhere"), vec![]),
    ] {
        let found = find(&venue.venue, &venue.owner, &filter, None, 10).await.unwrap();
        let got: Vec<_> = found.jobs.iter().map(|job| ids.iter().position(|id| *id == job.head.id).unwrap()).collect();
        assert_eq!((got, found.next), (expected, None), "{filter:?}");
    }
    assert!(second < third);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filtered_list_goes_on_at_its_cursor() {
    let (venue, _dir, ids) = filled().await;
    let filter = JobListFilter { session: Some("s1".parse().unwrap()), ..JobListFilter::default() };
    let (mut got, mut cursor) = (Vec::new(), None::<Cursor>);
    for _ in 0..10 {
        let page = find(&venue.venue, &venue.owner, &filter, cursor.as_ref(), 1).await.unwrap();
        got.extend(page.jobs.into_iter().map(|job| job.head.id));
        cursor = page.next.map(|next| Cursor::parse(next.as_str()).unwrap());
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(got, [ids[3].clone(), ids[2].clone(), ids[0].clone()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_request_looks_at_a_bounded_number_of_jobs() {
    let (venue, _dir) = TestVenue::embedded("").await;
    venue.agent("a", json!({"model": {"provider": "scripted", "name": "echo"}, "mailbox": 5000})).await;
    let wanted = task(&venue, "a", "s", "needle").await;
    let many: Vec<_> = (0..LIST_LOOKS + 5).map(|n| format!("hay {n}")).collect();
    let sent = many.iter().map(|text| task(&venue, "a", "s", text));
    futures::future::join_all(sent).await;
    let filter = JobListFilter { text: Some("needle".into()), ..JobListFilter::default() };
    let page = find(&venue.venue, &venue.owner, &filter, None, 10).await.unwrap();
    assert_eq!(page.jobs.len(), 0);
    let page = find(&venue.venue, &venue.owner, &filter, page.next.as_ref(), 10).await.unwrap();
    let found: Vec<_> = page.jobs.iter().map(|job| job.head.id.clone()).collect();
    assert_eq!((found, page.next), (vec![wanted], None));
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_are_found_by_state_session_time_and_text() {
    let (venue, _dir, ids) = filled().await;
    venue.worker();
    for id in &ids {
        venue.ended(id).await;
    }
    let agent = "a".parse().unwrap();
    let (store, all_authority) = (&*venue.venue.store, Authority::without_limits());
    let all = turns::TurnFilter::default();
    let text = |text: &str| turns::TurnFilter { text: Some(text.into()), ..turns::TurnFilter::default() };
    let of =
        |session: &str| turns::TurnFilter { session: Some(session.parse().unwrap()), ..turns::TurnFilter::default() };
    for (filter, expected) in [
        (all.clone(), 2),
        (of("s1"), 1),
        (of("s3"), 0),
        (text("rED"), 1),
        (turns::TurnFilter { statuses: vec![JobStatus::Complete], ..all.clone() }, 2),
        (turns::TurnFilter { statuses: vec![JobStatus::Failed], ..all.clone() }, 0),
        (turns::TurnFilter { since: Some(Millis(u64::MAX)), ..all.clone() }, 0),
        (turns::TurnFilter { until: Some(Millis(1)), ..all.clone() }, 0),
    ] {
        let range = turns::TurnPageRange { after: None, limit: 10 };
        let found = turns::find(store, &venue.owner, &all_authority, &agent, &filter, range).await.unwrap();
        assert_eq!((found.turns.len(), found.next), (expected, None), "{filter:?}");
    }
    let range = turns::TurnPageRange { after: None, limit: 1 };
    let first = turns::find(store, &venue.owner, &all_authority, &agent, &all, range).await.unwrap();
    let range = turns::TurnPageRange { after: first.next.as_deref(), limit: 1 };
    assert!(range.after.is_some());
    let second = turns::find(store, &venue.owner, &all_authority, &agent, &all, range).await.unwrap();
    assert_ne!(first.turns[0].0, second.turns[0].0);
}
