//! Declarations that can't be right, and configurations that can't work: each is refused or named at `agent apply`.

use super::service::Service;
use super::{apply, tool, venue};
use crate::support::cli::{command, run};
use serde_json::{Value, json};

const RULES: &str = "[[rule]]\nthen = { text = \"done\" }\n";

#[test]
fn a_declaration_that_can_not_be_right_is_refused_by_name() {
    let service = Service::start();
    let up = venue(&service, &[]);
    let get = |url: &str| tool("t", json!({"url": url}));
    let circle = json!({"type": "object", "allOf": [{"$ref": "#"}]});
    let mut round = get("https://a.example/{id}");
    round["input"] = circle;
    let mut large = get("https://a.example/{id}");
    large["input"]["description"] = "x".repeat(1 << 20).into();
    let fine = get(&service.url("/orders/{id}"));
    let mut read_target = fine.clone();
    read_target["operation"] = "v/ops/lattice/read".into();
    for (tools, part) in [
        (json!([get("https://{id}/x")]), "`http.url`: the host is fixed"),
        (json!([get("https://a.example{id}")]), "`http.url`: the host is fixed"),
        (json!([get("https://u:p@a.example/{id}")]), "`http.url`: expected a host without a user"),
        (json!([get("file:///etc/{id}")]), "`http.url`: expected `http://` or `https://`"),
        (json!([round]), "`tools[0].input`: the reference `#`"),
        (json!([large]), "`tools[0].input`: the schema has 1048666 bytes, expected at most 65536"),
        (
            json!([tool("t", json!({"url": "https://a.example", "headers": {"Host": "evil"}}))]),
            "the venue sets this header",
        ),
        (
            json!([tool("t", json!({"method": "DELETE", "url": "https://a.example", "effect": "read"}))]),
            "DELETE changes something",
        ),
        (
            json!([tool("t", json!({"url": "https://a.example", "status": {"teapot": "error"}}))]),
            "`teapot`: expected a status",
        ),
        (json!([fine, fine]), "`t` is declared twice, first by `tools[0]`"),
        (json!([fine, "o/t"]), "`t` is declared twice, first by `tools[0]`"),
        (json!([read_target]), "a tool with `http` or `jobs` is one itself, `v/ops/own/t`"),
        (
            json!([tool("lattice_read", json!({"url": "https://a.example"}))]),
            "`lattice_read` is the name of the tool of `v/ops/lattice/read`",
        ),
    ] {
        let done = apply(&up, "clerk", RULES, json!({"tools": tools}));
        assert!(done.code != 0 && done.err.contains(part), "expected `{part}`, got {done:#?}");
    }
    let [hosts, private] = service.settings();
    for (text, part) in [
        (json!({"tools": [get("https://{id}/x")]}).to_string(), "`tools[0]`: `http.url`: the host is fixed"),
        (json!({"tools": [], "groop": "x"}).to_string(), "unknown field `groop`"),
        (json!({"group": "own", "tools": []}).to_string(), "is the group of tools that agents and records declare"),
        (json!({"group": "lattice", "tools": [fine]}).to_string(), "is a group of compiled operations"),
        ("{".to_owned(), "shop.json"),
    ] {
        std::fs::write(up.dir.path().join("shop.json"), &text).unwrap();
        let args = ["up", "--data", "other", "--listen", "127.0.0.1:0", "--set", &hosts, "--set", &private];
        let output = command(up.dir.path()).args(args).args(["--set", "catalog.tools=shop.json"]).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && err.contains("`catalog.tools`") && err.contains(part), "{text}: {err}");
    }
    run(up.dir.path(), &["tool", "import", "none.json"]).expect(2, "can't be read");
}

#[test]
fn apply_warns_of_tools_and_capabilities_that_can_not_work() {
    let service = Service::start();
    let up = venue(&service, &[]);
    let invoke = |with: &str| json!({"with": with, "can": "invoke"});
    let web = json!({"with": service.url(""), "can": "http"});
    let tools = |url: String| json!([tool("get_order", json!({"url": url}))]);
    let fine = tools(service.url("/orders/{id}"));
    let strict = |config: &Value| {
        up.file("clerk.json", &config.to_string());
        up.run(&["agent", "apply", "clerk.json", "--strict"])
    };
    for (tools, caps, part) in [
        (fine.clone(), json!([invoke("v/ops/own/get_order"), web]), ""),
        (
            fine.clone(),
            json!([invoke("v/ops/own"), {"with": "https://a.example", "can": "http"}]),
            "`caps` deny every call of `get_order`",
        ),
        (
            fine.clone(),
            json!([invoke("v/ops/own"), web, {"with": "queue/ocr", "can": "queue/publish"}]),
            "`caps[2]`: no tool of this agent can use `queue/publish`",
        ),
        (
            fine,
            json!([invoke("v/ops/own"), web, invoke("v/ops/shop")]),
            "`caps[2]`: no tool of this agent can use `invoke`",
        ),
        (
            tools("https://nowhere.example/{id}".into()),
            json!([invoke("v/ops/own"), {"with": "https://nowhere.example", "can": "http"}]),
            "host `nowhere.example` port 443 is not one that this venue allows",
        ),
        (
            json!(["v/ops/lattice/raed"]),
            Value::Null,
            "no operation `v/ops/lattice/raed`, did you mean `v/ops/lattice/read`",
        ),
    ] {
        let mut config = json!({"tools": tools, "defaultTools": false});
        if caps != Value::Null {
            config["caps"] = caps;
        }
        let done = apply(&up, "clerk", RULES, config.clone());
        assert!(done.code == 0 && done.err.contains(part), "{config}: expected `{part}`, got {done:#?}");
        assert_eq!(done.err.contains("warning:"), !part.is_empty(), "{config}: {}", done.err);
        config["model"] = json!({"provider": "scripted", "name": "clerk.rules"});
        let done = strict(&config);
        assert!((done.code == 0) == part.is_empty() && done.err.contains(part), "{config}: strict {done:#?}");
    }
}

#[test]
fn files_warn_and_nobody_takes_the_place_of_their_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let job = |queue: &str| json!({"name": "ocr", "description": "Reads a scan.", "jobs": {"queue": queue}});
    let away = tool("away", json!({"url": "https://nowhere.example/{id}"}));
    std::fs::write(dir.path().join("shop.json"), json!({"tools": [job("ocr"), away]}).to_string()).unwrap();
    let up = crate::support::cli::Up::start_in(dir, &["catalog.tools=shop.json"]);
    assert!(up.process.log().contains("host `nowhere.example` port 443 is not one"), "{}", up.process.log());
    let done = apply(&up, "clerk", RULES, json!({"tools": [job("mine")]}));
    assert!(done.code != 0 && done.err.contains("is the name of the tool of `v/ops/jobs/ocr`"), "{done:#?}");
    up.run(&["lattice", "write", "o/ocr", &job("mine").to_string()]).ok();
    let done = up.run(&["tool", "try", "o/ocr"]);
    assert!(done.code != 0 && done.err.contains("`v/ops/jobs/ocr` is an operation of the venue"), "{done:#?}");
}
