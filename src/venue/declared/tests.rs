//! Views with declared tools, and what is said of configurations.

use super::*;
use crate::domain::hosts::HostRule;
use crate::ops;
use crate::venue::outbound::HttpPolicy;
use serde_json::{Value, json};

fn config(tools: &Value, caps: &Value) -> AgentConfig {
    let model = json!({"provider": "scripted", "name": "echo"});
    let mut config = json!({"model": model, "defaultTools": false, "tools": tools});
    if !caps.is_null() {
        config["caps"] = caps.clone();
    }
    AgentConfig::parse(&config).unwrap()
}

fn tool(name: &str, url: &str, method: &str) -> Value {
    let input = json!({"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]});
    json!({"name": name, "description": "d", "input": input, "http": {"url": url, "method": method}})
}

#[test]
fn a_declared_tool_is_of_its_view_alone() {
    let catalog = ops::catalog(false);
    let shared = catalog.compiled_view();
    let declare = |url: &str| {
        let jobs = json!({"name": "ocr", "description": "d", "jobs": {"queue": "ocr"}});
        view_with_config(&catalog, shared.clone(), &config(&json!([tool("get", url, "GET"), jobs]), &Value::Null))
    };
    let (view, same, other) =
        (declare("https://a.example/{id}"), declare("https://a.example/{id}"), declare("https://b.example/{id}"));
    for path in ["v/ops/own/get", "own:get", "v/ops/jobs/ocr"] {
        assert!(view.resolve(path).is_some() && shared.resolve(path).is_none(), "{path}");
    }
    assert!(view.is_of_view("v/ops/own/get") && !view.is_of_view("v/ops/lattice/read"));
    let shown = view.resolve("v/ops/own/get").unwrap().published_version().unwrap();
    assert_eq!(same.check_version(&shown), Ok(()), "whichever process has made the view");
    assert!(other.check_version(&shown).is_err() && shared.check_version(&shown).is_err());
    assert_eq!(view.publication_serials(), same.publication_serials());
    assert_ne!(view.publication_serials(), other.publication_serials());
}

#[test]
fn the_effect_of_a_declaration_is_that_of_its_operation() {
    let catalog = ops::catalog(false);
    for (method, declared, effect) in [
        ("GET", Value::Null, Effect::Read),
        ("POST", Value::Null, Effect::Once),
        ("POST", json!("read"), Effect::Read),
        ("PUT", json!("repeatable"), Effect::Idempotent),
        ("DELETE", Value::Null, Effect::Once),
    ] {
        let mut tool = tool("t", "https://a.example/{id}", method);
        if declared != Value::Null {
            tool["http"]["effect"] = declared;
        }
        let view = view_with_config(&catalog, catalog.compiled_view(), &config(&json!([tool]), &Value::Null));
        assert_eq!(view.resolve("own/t").unwrap().spec.effect, effect, "{method}");
    }
}

#[test]
fn tools_and_capabilities_that_can_not_work_are_named() {
    let hosts = HostRule::list("a.example").unwrap();
    let catalog = ops::catalog_with(false, HttpPolicy { hosts, ..HttpPolicy::default() });
    let shared = catalog.compiled_view();
    let own = json!({"with": "v/ops/own", "can": "invoke"});
    let web = json!({"with": "https://a.example", "can": "http/get"});
    let get = tool("get", "https://a.example/orders/{id}", "GET");
    let post = json!({"with": "https://a.example/x", "can": "http/post"});
    let hook = json!(["v/ops/http/post"]);
    for (tools, caps, parts) in [
        (json!([get]), Value::Null, vec![]),
        (json!([get]), json!([own, web]), vec![]),
        (
            json!([get]),
            json!([own]),
            vec!["`caps` deny every call of `get`: it needs `http/get` on `https://a.example/orders`"],
        ),
        (json!([get]), json!([web]), vec!["`caps` deny every call of `get`: it needs `invoke` on `v/ops/own/get`"]),
        (json!([get]), json!([own, web, post]), vec!["`caps[2]`: no tool of this agent can use `http/post`"]),
        (hook.clone(), json!([post]), vec![]),
        (
            hook,
            json!([web]),
            vec!["`caps` deny every call of `http_post`", "`caps[0]`: no tool of this agent can use `http/get`"],
        ),
        (json!([get, "v/ops/job/run"]), json!([own, web, post]), vec![]),
        (json!([get, "v/ops/mcp/shop/*"]), json!([own, web, {"with": "v/ops/mcp/shop", "can": "invoke"}]), vec![]),
        (
            json!([get, "v/ops/mcp/shop/*"]),
            json!([own, web, {"with": "v/ops/mcp/other", "can": "invoke"}]),
            vec!["`caps[2]`: no tool of this agent can use `invoke`"],
        ),
        (json!([get, "more_tools"]), json!([own, web, post]), vec![]),
        (json!([get, {"delegate": "kid"}]), json!([own, web, {"with": "g/kid", "can": "agent/request"}]), vec![]),
        (json!([get]), json!([own, web, {"with": "w", "can": "crud"}, {"with": "", "can": "*"}]), vec![]),
        (
            json!([tool("get", "https://b.example/{id}", "GET")]),
            Value::Null,
            vec!["`tools[0].http.url`: host `b.example` port 443 is not one that this venue allows"],
        ),
        (
            json!([tool("get", "https://[zz]/{id}", "GET")]),
            Value::Null,
            vec!["`tools[0].http.url`: invalid IPv6 address"],
        ),
    ] {
        let config = config(&tools, &caps);
        let view = view_with_config(&catalog, shared.clone(), &config);
        let found = lint::warnings(&catalog, &view, &config);
        assert_eq!(found.len(), parts.len(), "{tools} {caps}: {found:?}");
        for part in parts {
            assert!(found.iter().any(|line| line.contains(part)), "{tools} {caps}: expected `{part}` in {found:?}");
        }
    }
    let names = lint::shadowed_names(
        &shared,
        &config(&json!([tool("job_run", "https://a.example/{id}", "GET")]), &Value::Null),
    );
    assert_eq!(names, ["`tools[0]`: `job_run` is the name of the tool of `v/ops/job/run`, give it another `name`"]);
}
