//! Whatever starts old work again asks what was revoked since: redrives, what waits in a mailbox, a last reply.

use super::*;

async fn begun(venue: &TestVenue, agent: &str) {
    for _ in 0..1_000 {
        if calls(venue, agent) > 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("agent {agent} was never asked");
}

async fn redrive(venue: &TestVenue, job: &JobId) -> JobId {
    let driven = run(venue, &boss(&venue.owner), "dead/redrive", json!({"id": job})).await;
    JobId::new(driven["job"].as_str().unwrap()).unwrap()
}

on_both! {
    a_job_that_was_revoked_is_not_driven_again
    a_task_that_ends_after_the_revocation_fails
    waiting_messages_recheck_the_path_to_their_agent
    messages_sent_over_a_revoked_path_start_nothing
}

async fn a_job_that_was_revoked_is_not_driven_again(on: On) {
    let Some((venue, _dir)) = venue(on, Clock::system()).await else { return };
    venue.worker();
    let job = request(&venue, &boss(&venue.owner), "looper").await;
    begun(&venue, "looper").await;
    revoke(&venue, json!({"grant": job})).await;
    is_refused(&venue.ended(&job).await, job.as_str());
    let asked = calls(&venue, "looper");
    let second = redrive(&venue, &job).await;
    is_refused(&venue.ended(&second).await, job.as_str());
    let third = redrive(&venue, &second).await;
    is_refused(&venue.ended(&third).await, job.as_str());
    let failed = json!({"action": "redrive", "dryRun": true});
    let many = run(&venue, &boss(&venue.owner), "job/bulk", failed).await["matched"].clone();
    run(&venue, &boss(&venue.owner), "job/bulk", json!({"action": "redrive", "expected": many})).await;
    let fourth = redrive(&venue, &third).await;
    is_refused(&venue.ended(&fourth).await, job.as_str());
    assert_eq!(calls(&venue, "looper"), asked, "no model is asked for any of them");
}

async fn a_task_that_ends_after_the_revocation_fails(on: On) {
    let Some((venue, _dir)) = venue(on, Clock::system()).await else { return };
    venue.worker();
    let lost = by(&venue, "jti-lost");
    let asked = json!({"agentId": "slow", "input": "go", "timeout": 0, "outputPath": "w/out"});
    let asked = run(&venue, &lost, "agent/request", asked).await;
    let job = JobId::new(asked["job"].as_str().unwrap()).unwrap();
    begun(&venue, "slow").await;
    let answer = revoke(&venue, json!({"grant": "jti-lost"})).await;
    assert_eq!(names(&answer["stops"]["jobs"], "job"), [job.to_string()], "{answer}");
    is_refused(&venue.ended(&job).await, "grant `jti-lost`");
    assert_eq!(venue.read("w/out").await, None, "nor is its output written");
}

async fn waiting_messages_recheck_the_path_to_their_agent(on: On) {
    let Some((venue, _dir)) = venue(on, Clock::system()).await else { return };
    let (ann, other) = (by(&venue, "jti"), boss(&venue.owner));
    let (lost, kept) = (request(&venue, &ann, "a").await, request(&venue, &other, "a").await);
    for (who, session) in [(&ann, "lost"), (&other, "kept")] {
        let message = json!({"agentId": "a", "message": "hear me", "sessionId": session});
        run(&venue, who, "agent/message", message).await;
    }
    let deeper = json!({"path": ["g", "a", "n"], "holder": "local/ann"});
    revoke(&venue, json!({"path": "g/b", "holder": "local/ann"})).await;
    revoke(&venue, deeper).await;
    revoke(&venue, json!({"path": "g/a", "holder": "local/ann"})).await;
    venue.worker();
    is_refused(&venue.ended(&lost).await, "path `g/a` and holder `local/ann`");
    assert_eq!(venue.ended(&kept).await.status, JobStatus::Complete);
    for _ in 0..1_000 {
        if venue.turns("a", "kept").await.len() + venue.turns("a", "lost").await.len() == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let lost = venue.turns("a", "lost").await;
    assert!(format!("{:?}", lost[0].said).contains("path `g/a`"), "{:?}", lost[0].said);
    assert_eq!(calls(&venue, "a"), 2, "one task and one message");
}

async fn messages_sent_over_a_revoked_path_start_nothing(on: On) {
    let Some((venue, _dir)) = venue(on, Clock::system()).await else { return };
    venue.worker();
    run(&venue, &boss(&venue.owner), "agent/suspend", json!({"agentId": "idle"})).await;
    let top = request(&venue, &boss(&venue.owner), "top").await;
    let mut child = None;
    for _ in 0..1_000 {
        let all = jobs::list(&venue.venue, &venue.owner, 0, 100).await.unwrap().items;
        child = all.into_iter().find(|job| job.head.agent.as_str() == "idle").map(|job| job.head.id);
        if child.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // A path alone says what no agent may do: people still ask.
    revoke(&venue, json!({"path": "g/idle"})).await;
    let asked = request(&venue, &boss(&venue.owner), "idle").await;
    run(&venue, &boss(&venue.owner), "agent/resume", json!({"agentId": "idle"})).await;
    is_refused(&venue.ended(&child.expect("a child was started")).await, "path `g/idle`");
    assert_eq!(venue.ended(&asked).await.status, JobStatus::Complete);
    assert_eq!(venue.ended(&top).await.status, JobStatus::Complete, "what is not concerned goes on");
}
