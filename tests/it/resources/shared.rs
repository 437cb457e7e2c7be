//! Declarations are checked wherever an agent is applied.

use crate::support::http::Server;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_with_a_kind_that_nothing_provides_is_refused() {
    let server = Server::start().await;
    let model = json!({"provider": "scripted", "name": "echo"});
    for (resources, expected) in [
        (json!({"memroy": {}}), "nothing provides the kind `memroy`, did you mean `memory`"),
        (json!({"memory": {"preload": 7}}), "`resources.memory`"),
        (json!({"lattice": {"kind": "files"}}), "the tool `lattice_"),
        (json!({"memory": {"mode": "write"}}), "unknown variant `write`, expected `read` or `read-write`"),
    ] {
        let config = json!({"model": model, "resources": resources});
        server.put("/api/v1/agents/clerk", config.clone()).await.is_problem(400, expected);
        let input = json!({"operation": "v/ops/agent/create", "input": {"agentId": "clerk", "config": config}});
        let answer = server.post("/api/v1/invoke", input).await;
        let text = answer.body.to_string();
        assert!(text.contains(&expected.replace('"', "\\\"")), "{text}");
    }
    let config = json!({"model": model, "resources": {"memory": {"mode": "read-write", "autoScan": true}}});
    server.put("/api/v1/agents/clerk", config).await.body(201);
}
