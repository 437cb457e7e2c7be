//! A key with a `/` in it is one segment, whichever way it comes in.

use super::Site;
use reqwest::Method;
use serde_json::json;

#[tokio::test]
async fn a_grant_of_a_path_does_not_cover_a_lookalike_key() {
    let site = Site::new().await;
    let all = site.token("acme/ann", &json!({}));
    let held = ["w/vendor", "o", "a", "w/vendor\\/payroll", "w/vendor%2Fpayroll", "w/vendor/payroll"];
    let held: Vec<_> = held.iter().map(|with| json!({"with": with, "can": "*"})).collect();
    let some = site.token("acme/ann", &json!({"att": held}));
    let key = json!(["w", "vendor/payroll"]);
    site.run("lattice/write", json!({"path": key, "value": {"ann": [1]}}), &all).await.body(200);
    let below = json!(["w", "vendor/payroll", "ann"]);
    for (operation, input) in [
        ("lattice/read", json!({"path": key})),
        ("lattice/read", json!({"path": below})),
        ("lattice/read", json!({"paths": ["w/vendor", key]})),
        ("covia/read", json!({"path": key})),
        ("lattice/write", json!({"path": key, "value": 2})),
        ("lattice/append", json!({"path": below, "value": 2})),
        ("lattice/delete", json!({"path": key})),
        ("lattice/list", json!({"path": key})),
        ("lattice/slice", json!({"path": below})),
        ("lattice/inspect", json!({"paths": [key]})),
        ("lattice/count", json!({"path": key})),
        ("lattice/aggregate", json!({"path": key})),
        ("lattice/copy", json!({"from": key, "to": "w/vendor/copy"})),
        ("lattice/copy", json!({"from": "w/vendor", "to": key})),
        ("asset/pin", json!({"path": key, "name": "pin"})),
        ("job/run", json!({"operation": "v/ops/lattice/read", "input": {"path": key}})),
    ] {
        site.run(operation, input, &some).await.is_problem(403, "w/vendor\\/payroll");
    }
    // The path that reads like it is another place, and nothing was written to either.
    let body = site.run("lattice/read", json!({"path": "w/vendor/payroll"}), &some).await.body(200);
    assert_eq!(body["exists"], false, "{body}");
    for text in ["w/vendor/payroll", "w/vendor%2Fpayroll", "w/vendor%252Fpayroll", "w/vendor%5C%2Fpayroll"] {
        let body = site.get(&format!("/api/v1/values/read?path={text}"), &some).await;
        assert!(body.status == 403 || body.body["exists"] == false, "{text}: {}", body.body);
    }
    let body = site.run("lattice/read", json!({"path": key}), &all).await.body(200);
    assert_eq!(body["value"], json!({"ann": [1]}));
    // And it can be revoked by itself.
    let answer = site.run("policy/revoke", json!({"holder": "acme/ann", "path": key}), &all).await.body(200);
    assert_eq!(answer["revocations"][0]["path"], "w/vendor\\/payroll");
    site.run("lattice/read", json!({"path": key}), &all).await.is_problem(403, "which was revoked");
    site.run("lattice/list", json!({"path": "w/vendor"}), &all).await.body(200);
    site.run("policy/revoke", json!({"path": "c/x"}), &all).await.is_problem(400, "is always its own");
}

#[tokio::test]
async fn every_spelling_of_a_job_is_the_job_that_was_revoked() {
    let site = Site::new().await;
    let ann = site.token("acme/ann", &json!({}));
    let agent = json!({"model": {"provider": "scripted", "name": "echo"}});
    site.send(Method::PUT, "/api/v1/agents/a", &ann, None, &agent).await.body(201);
    let task = site.send(Method::POST, "/api/v1/agents/a/tasks", &ann, None, &json!({"input": "go"})).await.body(202);
    let job = task["job"].as_str().unwrap();
    let spellings = [job.to_owned(), job.to_uppercase(), format!("0x{job}"), format!("0x{}", job.to_uppercase())];
    for id in &spellings {
        site.get(&format!("/api/v1/jobs/{id}"), &ann).await.body(200);
    }
    let revoked = json!({"holder": "acme/ann", "path": format!("j/0x{job}")});
    site.run("policy/revoke", revoked, &ann).await.body(200);
    for id in &spellings {
        site.get(&format!("/api/v1/jobs/{id}"), &ann).await.is_problem(403, "which was revoked");
        let path = json!({"path": format!("j/{id}/input")});
        site.run("lattice/read", path, &ann).await.is_problem(403, "which was revoked");
        site.run("job/result", json!({"id": id}), &ann).await.is_problem(403, "which was revoked");
        let cancel = format!("/api/v1/jobs/{id}/cancel");
        site.send(Method::PUT, &cancel, &ann, None, &json!(null)).await.is_problem(403, "which was revoked");
    }
}
