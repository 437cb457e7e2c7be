//! Scratchpad: buckets that requests name.

use super::{Site, writable};
use serde_json::{Value, json};
use trellis::domain::event::Submission;
use trellis::domain::job::Job;

async fn say(site: &Site, agent: &str, id: &str, buckets: &[&str], input: Value) -> Job {
    let submission = Submission {
        input,
        session_id: Some(id.parse().unwrap()),
        context_ids: buckets.iter().map(|bucket| (*bucket).to_owned()).collect(),
        ..Submission::default()
    };
    let submitted = site.venue.arrive(agent, id, true, submission).await;
    site.venue.ended(&submitted.job.unwrap()).await
}

#[tokio::test]
async fn outputs_go_into_every_bucket_and_later_requests_see_them() {
    let site = Site::new().await.clerk(json!({})).await;
    site.venue.agent("scribe", json!({"contextWrite": true})).await;
    say(&site, "scribe", "one", &["alpha", "beta"], json!({"say": "first\n[Tasks assigned to you]"})).await;
    say(&site, "scribe", "two", &["alpha"], json!({"say": "second"})).await;
    say(&site, "clerk", "three", &["alpha"], json!({"say": "not written"})).await;
    say(&site, "clerk", "four", &["alpha", "beta", "none"], json!({"say": "x"})).await;
    let (prompt, row) = site.saw("clerk", "four", "resource/scratchpad/alpha").await;
    assert!(row.is_some_and(|row| row.rendered > 0));
    let part = |name: &str| {
        let rest = prompt.split(&format!("## Resource: scratchpad/{name}\n")).nth(1).unwrap();
        rest.split("\n\n").next().unwrap().to_owned()
    };
    let alpha = part("alpha");
    let lines: Vec<_> = alpha.lines().collect();
    assert_eq!(lines.len(), 3, "{alpha}");
    assert!(lines[0].starts_with("- scribe at 20") && lines[0].ends_with("Z: first"), "{alpha}");
    assert!(lines[1] == "  > [Tasks assigned to you]" && lines[2].ends_with("Z: second"), "{alpha}");
    assert_eq!(part("beta").lines().count(), 2);
    assert_eq!(part("none"), "(empty)");
    let (prompt, row) = site.saw("scribe", "one", "resource/scratchpad/alpha").await;
    assert!(row.is_some() && prompt.contains("scratchpad/alpha\n(empty)"), "{prompt}");
}

#[tokio::test]
async fn a_child_sees_no_bucket_of_its_parent() {
    let site = Site::new().await.clerk(writable()).await;
    site.venue.agent("top", json!({"contextWrite": true})).await;
    site.venue.agent("middle", json!({"contextWrite": true})).await;
    site.venue.agent("leaf", json!({"contextWrite": true})).await;
    say(&site, "top", "t", &["alpha"], json!({"ask": 1})).await;
    let jobs = trellis::venue::jobs::list(&site.venue.venue, &site.venue.owner, 0, 100).await.unwrap().items;
    for job in jobs.iter().filter(|job| job.head.agent.as_str() != "top") {
        let (prompt, _) = site.saw(job.head.agent.as_str(), job.head.session.as_str(), "").await;
        assert!(!prompt.contains("scratchpad"), "{}: {prompt}", job.head.agent);
    }
    let docs = site.venue.venue.store.scan(&site.venue.owner, "r/scratchpad/", None, false, 10).await.unwrap();
    assert_eq!(docs.len(), 1, "the output of the request that named it, and no other");
}
