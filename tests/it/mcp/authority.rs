//! Who may do what by `/mcp`: the same as by the API.

use super::Site;
use crate::authority::tokens::{issuer, token};
use reqwest::Method;
use serde_json::{Value, json};
use trellis::venue::auth::signing::SigningKey;

async fn site() -> (Site, SigningKey) {
    let mut signing = None;
    let site = Site::with_tokens(|dir| {
        let (issuer, auth) = issuer(dir);
        signing = Some(issuer);
        auth
    });
    let site = site.await;
    (site, signing.unwrap())
}

fn names(listed: &Value) -> Vec<&str> {
    listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn another_owners_job_is_no_task_and_no_resource() {
    let (site, issuer) = site().await;
    let ann = site.client().with_tasks(false).with_token(token(&issuer, "acme/ann", &json!({})));
    let bob = site.client().with_tasks(false).with_token(token(&issuer, "acme/bob", &json!({})));
    let job = ann.call("ask_slow", json!({"input": "x"})).await["taskId"].clone();
    let uri = format!("trellis://jobs/{}", job.as_str().unwrap());
    for (method, params) in [
        ("tasks/get", json!({"taskId": job})),
        ("tasks/cancel", json!({"taskId": job})),
        ("tasks/update", json!({"taskId": job, "inputResponses": {}})),
        ("resources/read", json!({"uri": uri})),
    ] {
        assert_eq!(bob.code(method, params).await, -32602, "{method}");
    }
    for (tool, arguments) in [
        ("get_job", json!({"job": job})),
        ("wait_for_job", json!({"job": job, "seconds": 1})),
        ("cancel_job", json!({"job": job})),
        ("answer_approval", json!({"approval": job, "approve": true})),
    ] {
        assert_eq!(bob.call(tool, arguments).await["isError"], true, "{tool}");
    }
    let listed = bob.result("tools/list", json!({})).await;
    assert_eq!(names(&listed).len(), 5, "bob has no agents: {listed}");
    assert_eq!(ann.result("tasks/get", json!({"taskId": job})).await["status"], "working");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_one_agent_sees_and_asks_that_one() {
    let (site, issuer) = site().await;
    let of_echo = json!({"att": [{"with": "g/echo", "can": "agent/request"}]});
    let limited = site.client().with_token(token(&issuer, "acme/ann", &of_echo));
    let whole = site.client().with_token(token(&issuer, "acme/ann", &json!({})));
    let listed = limited.result("tools/list", json!({})).await;
    let agents: Vec<_> = names(&listed).into_iter().filter(|name| name.starts_with("ask_")).collect();
    assert_eq!(agents, ["ask_echo"]);
    let said = limited.call("ask_echo", json!({"input": "hi"})).await;
    assert_eq!(said["structuredContent"]["output"], "hi", "its own job is read: {said}");
    assert_eq!(limited.code("tools/call", json!({"name": "ask_typed", "arguments": {"city": "Ulm"}})).await, -32602);
    let other = limited.call("submit_task", json!({"agent": "typed", "input": "x"})).await;
    assert!(other["isError"] == true && other["content"][0]["text"].as_str().unwrap().contains("agent/request"));
    let foreign = whole.call("submit_task", json!({"agent": "slow", "input": "x"})).await;
    let foreign = foreign["structuredContent"]["job"].clone();
    for (tool, arguments) in [("get_job", json!({"job": foreign})), ("cancel_job", json!({"job": foreign}))] {
        assert_eq!(limited.call(tool, arguments).await["isError"], true, "{tool}");
    }
    for uri in ["trellis://lattice/w", "trellis://agents/echo/timeline", "trellis://agents/echo/turns/x/1"] {
        let refused = limited.ask("resources/read", json!({"uri": uri})).await;
        assert_eq!(refused["error"]["code"], 403, "{uri}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_token_a_client_learns_where_to_get_one() {
    let (site, issuer) = site().await;
    let refused = site.client().send("tools/list", json!({})).await;
    refused.is_problem(401, "no token");
    let place = format!("{}/.well-known/oauth-protected-resource", site.server.url);
    let expected = format!("Bearer realm=\"trellis\", resource_metadata=\"{place}/mcp\"");
    assert_eq!(refused.header("www-authenticate"), expected);
    for path in ["/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"] {
        let metadata = site.server.get(path).await.body(200);
        assert_eq!(metadata["resource"], format!("{}/mcp", site.server.url));
        assert_eq!(metadata["bearer_methods_supported"], json!(["header"]));
    }
    let plain = site.server.get("/api/v1/jobs").await;
    assert_eq!(plain.header("www-authenticate"), "Bearer realm=\"trellis\"");
    // A page of another origin may have got hold of a token.
    let bearer = format!("Bearer {}", token(&issuer, "acme/ann", &json!({})));
    for (headers, status) in [
        (vec![("origin", "https://evil.example")], 403),
        (vec![("host", "trellis.example"), ("origin", "https://trellis.example")], 200),
        (vec![("origin", "http://localhost:3000")], 200),
    ] {
        let (given, body) = super::stateless_request("tools/list", json!({}), &json!({}));
        let mut all: Vec<(&str, &str)> = given.iter().map(|(name, value)| (*name, value.as_str())).collect();
        all.push(("authorization", bearer.as_str()));
        all.extend(headers.clone());
        let answer = site.server.send(Method::POST, "/mcp", &all, body.to_string()).await;
        assert_eq!(answer.status.as_u16(), status, "{headers:?}: {}", answer.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn covias_clients_find_the_server_without_a_token() {
    let (site, _issuer) = site().await;
    let found = site.server.get("/.well-known/mcp").await.body(200);
    assert_eq!(found["mcp_version"], super::STATELESS);
    assert_eq!(found["tools_endpoint"], format!("{}/mcp", site.server.url));
    assert_eq!(found["endpoint"], json!({"path": "/mcp", "transport": "streamable-http"}));
    let card = site.server.get("/.well-known/agent-card.json").await.body(200);
    assert!(card["name"].is_string() && card["version"].is_string(), "{card}");
    // Who the agents are is nothing for everybody.
    assert_eq!((&card["skills"], &card["supportedInterfaces"]), (&json!([]), &json!([])));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_a_job_does_not_answer_its_approvals() {
    let (site, issuer) = site().await;
    let whole = site.client().with_tasks(true).with_token(token(&issuer, "acme/ann", &json!({})));
    let reads = json!({"att": [{"with": "j", "can": "crud/read"}]});
    let reader = site.client().with_tasks(true).with_token(token(&issuer, "acme/ann", &reads));
    let task = whole.call("ask_payer", json!({"input": "pay"})).await["taskId"].clone();
    let asking = super::tasks::until(&whole, &task, "input_required").await;
    let key = asking["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let seen = reader.result("tasks/get", json!({"taskId": task})).await;
    assert!(seen["status"] == "working" && seen.get("inputRequests").is_none(), "the call is hidden: {seen}");
    for given in [json!({"action": "accept", "content": {"approve": true}}), json!({"action": "decline"})] {
        let refused = reader.ask("tasks/update", json!({"taskId": task, "inputResponses": {&key: given}})).await;
        assert!(refused["error"].is_object(), "{refused}");
    }
    for approve in [true, false] {
        let refused = reader.call("answer_approval", json!({"approval": key, "approve": approve})).await;
        assert_eq!(refused["isError"], true, "{refused}");
    }
    super::tasks::until(&whole, &task, "input_required").await;
    assert_eq!(site.venue.read("w/paid").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_agent_gets_the_tool_of_another_one() {
    let site = Site::new().await;
    let published = || json!({"model": {"provider": "scripted", "name": "echo"}, "published": true});
    let tool_of = |listed: &Value, agent: &str| {
        let tool = listed["tools"].as_array().unwrap().iter().find(|tool| tool["title"] == agent).unwrap();
        tool["name"].as_str().unwrap().to_owned()
    };
    site.venue.agent("a.b", published()).await;
    let own = tool_of(&site.client().result("tools/list", json!({})).await, "a.b");
    let forger = own.strip_prefix("ask_").unwrap();
    site.venue.agent(forger, published()).await;
    let other = tool_of(&site.client().result("tools/list", json!({})).await, forger);
    assert_ne!(own, other);
    for (tool, agent) in [(&own, "a.b"), (&other, forger)] {
        let said = site.client().call(tool, json!({"input": "x"})).await;
        assert_eq!(said["structuredContent"]["agent"], agent, "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_authentication_only_loopback_is_served() {
    let site = Site::new().await;
    for (headers, status) in [
        (vec![("host", "evil.example")], 403),
        (vec![("host", "evil.example"), ("origin", "http://evil.example")], 403),
        (vec![("origin", "https://evil.example")], 403),
        (vec![("origin", "null")], 403),
        (vec![("sec-fetch-site", "cross-site")], 403),
        (vec![("origin", "http://localhost:3000")], 200),
    ] {
        let (given, body) = super::stateless_request("tools/list", json!({}), &json!({}));
        let mut all: Vec<(&str, &str)> = given.iter().map(|(name, value)| (*name, value.as_str())).collect();
        all.extend(headers.clone());
        let answer = site.server.send(Method::POST, "/mcp", &all, body.to_string()).await;
        assert_eq!(answer.status.as_u16(), status, "{headers:?}: {}", answer.body);
    }
    let metadata = site.server.get("/.well-known/oauth-protected-resource/mcp").await;
    metadata.is_problem(404, "takes no tokens");
    let client = site.server.get("/client-metadata.json").await;
    client.is_problem(404, "no public address (`http.public`)");
}
