//! Names in a configuration that the venue doesn't know: a warning, and an error where the caller is strict.

use crate::support::cli::Up;
use crate::support::http::Server;
use reqwest::Method;
use serde_json::{Value, json};
use std::path::Path;
use trellis::domain::authority::ability;

fn slips() -> Value {
    json!({
        "model": {"provider": "opneai", "name": "gpt-5.4"},
        "tools": ["v/ops/lattice/raed", "mcp:tools:call"],
        "caps": [{"with": "w", "can": "crud/raed"}]
    })
}

/// What is warned of, in its order.
const WARNINGS: [&str; 3] = [
    "`model.provider`: no provider `opneai`, did you mean `openai`",
    "`tools[0]`: no operation `v/ops/lattice/raed`, did you mean `v/ops/lattice/read`",
    "`caps[0].can`: nothing needs `crud/raed`, did you mean `crud/read`",
];

fn operation(name: &str, input: &Value) -> Value {
    json!({"operation": format!("v/ops/agent/{name}"), "input": input})
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_name_is_a_warning_or_an_error_in_strict_mode() {
    let server = Server::start().await;
    let strict = |config: Value| {
        let mut config = config;
        config["strict"] = true.into();
        config
    };
    // Refused first: nothing is written.
    server.put("/api/v1/agents/a?strict=true", slips()).await.is_problem(400, WARNINGS[1]);
    server.put("/api/v1/agents/a", strict(slips())).await.is_problem(400, "without `strict` these are warnings");
    let create = |strict: bool| operation("create", &json!({"agentId": "b", "config": slips(), "strict": strict}));
    server.post("/api/v1/run", create(true)).await.is_problem(400, WARNINGS[0]);
    for agent in ["a", "b"] {
        server.get(&format!("/api/v1/agents/{agent}")).await.is_problem(404, "no agent");
    }
    let mut odd = slips();
    odd["strict"] = "yes".into();
    server.put("/api/v1/agents/a", odd).await.is_problem(400, "`strict`: expected `true` or `false`");

    let dry = operation("create", &json!({"agentId": "b", "config": slips(), "dryRun": true}));
    let said = server.post("/api/v1/run", dry).await.body(200);
    let told = ["agentId", "dryRun", "warnings"].map(|key| said[key].clone());
    assert_eq!(told, [json!("b"), json!(true), json!(WARNINGS)]);
    assert_eq!(said["config"]["tools"], slips()["tools"], "as it would be kept");
    server.get("/api/v1/agents/b").await.is_problem(404, "no agent");
    assert_eq!(server.put("/api/v1/agents/a", slips()).await.body(201)["warnings"], json!(WARNINGS));
    assert_eq!(server.post("/api/v1/run", create(false)).await.body(200)["warnings"], json!(WARNINGS));

    // Said in one place it is said: what isn't in the other undoes nothing.
    server.put("/api/v1/agents/a?strict=false", strict(slips())).await.is_problem(400, "without `strict`");
    let put = |said: bool| json!({"config": {"delegable": [{"with": "w", "can": "crd"}]}, "strict": said}).to_string();
    for (query, said) in [("false", true), ("true", false), ("true", true)] {
        let path = format!("/api/v1/agents/a?strict={query}");
        server.send(Method::PATCH, &path, &[], put(said)).await.is_problem(400, "without `strict`");
    }

    let more = json!({"config": {"delegable": [{"with": "w", "can": "crd"}]}});
    let patch = async |query: &str| {
        server.send(Method::PATCH, &format!("/api/v1/agents/a{query}"), &[], more.to_string()).await
    };
    let patched = patch("?strict=true").await;
    patched.is_problem(400, "`delegable[0].can`: nothing needs `crd`, did you mean `crud`");
    let said = patch("").await.body(200);
    assert_eq!((&said["updated"], said["warnings"].as_array().map(Vec::len)), (&json!(true), Some(4)));
    let update = |strict| operation("update", &json!({"agentId": "b", "config": more["config"], "strict": strict}));
    server.post("/api/v1/run", update(true)).await.is_problem(400, WARNINGS[2]);
    assert_eq!(server.post("/api/v1/run", update(false)).await.body(200)["warnings"].as_array().map(Vec::len), Some(4));

    let known = json!({"model": "openai/gpt-5.4", "tools": ["covia:read", "subgoal"], "loop": "goalTree"});
    assert_eq!(server.put("/api/v1/agents/c", strict(known)).await.body(201)["warnings"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_have_no_effect_is_a_warning_and_strict_refuses_it() {
    let server = Server::start().await;
    let scopes = json!({"const": ["input"]});
    let tool = |operation: &str, name: &str| json!({"operation": operation, "name": name, "scopes": scopes});
    let declared = |more: Value| {
        let mut tool = json!({"description": "d", "input": {"type": "object", "properties": {}}, "scopes": scopes});
        tool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        tool
    };
    let mcp = json!([{"name": "mine", "url": "https://tools.invalid/"}]);
    let poke = json!({"url": "https://tools.invalid/", "headers": {"Authorization": {"$secret": "s/POKE"}}});
    let takes_none = |at: usize| format!("`tools[{at}].scopes`: ");
    let config = json!({
        "model": "openai/x", "mcp": mcp, "context": [{"op": "v/ops/lattice/write", "input": {}}, {"op": "v/ops/job/run"}],
        "tools": [
            tool("v/ops/http/post", "post"), declared(json!({"name": "poke", "http": poke})),
            tool("v/ops/mcp/mine/add", "add"), tool("v/ops/agent/request", "ask"), tool("v/ops/queue/publish", "give"),
            declared(json!({"name": "ocr", "jobs": {"queue": "ocr"}})), tool("v/ops/job/run", "any"),
            json!({"delegate": "nobody", "scopes": scopes}), json!({"name": "note", "description": "d", "scopes": scopes}),
        ],
    });
    let said = server.put("/api/v1/agents/a", config.clone()).await.body(201)["warnings"].to_string();
    for at in 0..9 {
        assert_eq!(said.contains(&takes_none(at)), at < 3, "{at}: {said}");
    }
    for part in [
        "`context[0].op`: `v/ops/lattice/write` does more than read",
        "`mcp[0]`: ",
        "there is no agent `nobody` yet",
        "no secret `POKE`",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("context[1]"), "{said}");
    let host = json!({"model": "openai/x", "mcp": mcp});
    server.put("/api/v1/agents/b?strict=true", host).await.is_problem(400, "`mcp[0]`: ");
    let missing = json!({"model": "openai/x", "tools": [{"delegate": "nobody"}]});
    server.put("/api/v1/agents/b?strict=true", missing).await.body(201);
    for (place, fine) in [(0, false), (3, true)] {
        let one = json!({"model": "openai/x", "tools": [config["tools"][place]]});
        let answer = server.put("/api/v1/agents/c?strict=true", one).await;
        if fine { drop(answer.body(201)) } else { answer.is_problem(400, "takes no sections of the context") }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_warns_of_abilities_that_nothing_needs() {
    let server = Server::start().await;
    server.put("/api/v1/agents/a", json!({"model": "openai/gpt-5.4"})).await.body(201);
    let send = async |kind: &str, grants: Value| {
        server.post(&format!("/api/v1/agents/a/{kind}"), json!({"input": 1, "context": grants})).await.body(202)
    };
    let warning = "`context[1].can`: nothing needs `crud/raed`, did you mean `crud/read`";
    for kind in ["tasks", "messages"] {
        let slip = json!([{"with": "w", "can": "crud"}, {"with": "w", "can": "crud/raed"}]);
        let receipt = send(kind, slip).await;
        assert_eq!(receipt["warnings"], json!([warning]), "{receipt}");
        for known in [json!([]), json!([{"with": "w", "can": "crud/read"}])] {
            let receipt = send(kind, known).await;
            assert_eq!(receipt.get("warnings"), None, "{receipt}");
        }
    }
}

#[test]
fn apply_warns_on_stderr_and_strict_mode_applies_nothing() {
    let up = Up::start();
    up.file("good.json", &json!({"model": "scripted/echo"}).to_string());
    up.file("slip.json", &slips().to_string());
    let cli = |args: &[&str]| up.run(args);
    let all = ["agent", "apply", "good.json", "slip.json"];
    cli(&[&all[..], &["--strict"]].concat()).expect(2, WARNINGS[0]);
    cli(&["agent", "get", "good"]).expect(5, "no agent `good`");
    let dry = cli(&[&all[..], &["--dry-run"]].concat()).expect(0, WARNINGS[2]);
    assert!(dry.out.contains("slip would be created"), "{dry:?}");
    let done = cli(&all).expect(0, &format!("warning: agent `slip`: {}", WARNINGS[2]));
    assert!(done.out.contains("slip created"), "{done:?}");
    cli(&["agent", "update", "good", "model=nobody/x", "--strict"]).expect(2, "`model.provider`: no provider `nobody`");
    cli(&["agent", "update", "good", "model=nobody/x"]).expect(0, "warning: agent `good`: `model.provider`");
}

/// Texts behind which the code names an ability.
const ASKED_BY: [&str; 7] = ["permits(\"", "ability: \"", "Holder(\"", "need(\"", "own(\"", "all(\"", "only(\""];

#[test]
fn every_ability_that_the_code_asks_for_is_a_known_one() {
    let mut asked = 0;
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !path.ends_with("tests") {
                    folders.push(path);
                }
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap();
            let after = ASKED_BY.iter().flat_map(|begin| code.split(begin).skip(1));
            let arms = code.split("=> \"").skip(1).filter(|_| code.contains("const fn ability"));
            for rest in after.chain(arms) {
                let name = rest.split('"').next().unwrap();
                if name.matches('/').count() == 1 && name.bytes().all(|b| b.is_ascii_lowercase() || b"/-".contains(&b))
                {
                    asked += 1;
                    assert!(ability::is_known(name), "`{name}` of {} is missing in ability.rs", path.display());
                }
            }
        }
    }
    assert!(asked > 40, "{asked}");
}
