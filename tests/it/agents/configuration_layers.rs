//! Configurations that name where they are stored, forks that say what is other, and what an agent does.

use crate::support::operate::{boss, operate};
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::time::Duration;
use trellis::domain::authority::{Authority, Capability};
use trellis::domain::ids::JobId;
use trellis::venue::operation::{Caller, OpError};

async fn run(venue: &TestVenue, operation: &str, input: Value) -> Result<Value, OpError> {
    operate(&venue.venue, &boss(&venue.owner), &format!("v/ops/{operation}"), input).await
}

/// Somebody who may do this.
fn with(venue: &TestVenue, caps: &[(&str, &str)]) -> Caller {
    let caps = caps.iter().map(|(with, can)| Capability { with: (*with).into(), can: (*can).into() }).collect();
    Caller::new(venue.owner.clone(), "local/ann".into(), Authority::new(Some(caps)))
}

fn echo(prompt: &str) -> Value {
    json!({"model": {"provider": "scripted", "name": "echo"}, "systemPrompt": prompt, "defaultTools": false})
}

#[tokio::test]
async fn a_definition_is_a_path_an_asset_a_pin_or_layers_of_these() {
    let (venue, _dir) = TestVenue::embedded("").await;
    venue.write("w/agents/base", echo("from a path")).await;
    let stored = run(&venue, "asset/store", json!({"content": echo("from an asset")})).await.unwrap();
    let asset = stored["path"].as_str().unwrap();
    run(&venue, "asset/pin", json!({"path": asset, "name": "base"})).await.unwrap();
    let over = json!({"systemPrompt": "said here", "concurrency": 2});
    let mut form = echo("of the record");
    form["state"] = json!({"config": {"systemPrompt": "of its state", "concurrency": 4}});
    venue.write("w/agents/form", form).await;
    venue.write("w/agents/older", json!({"name": "Old", "agent": {"config": echo("of the older form")}})).await;
    for (n, given, prompt, concurrency) in [
        (0, json!({"definition": "w/agents/base"}), "from a path", None),
        (1, json!({"definition": asset}), "from an asset", None),
        (2, json!({"config": stored["hash"]}), "from an asset", None),
        (3, json!({"definition": "o/base"}), "from an asset", None),
        (4, json!({"definition": "w/agents/base", "config": over}), "said here", Some(2)),
        (5, json!({"config": ["w/agents/base", {"concurrency": 3}, asset]}), "from an asset", Some(3)),
        (6, json!({"config": "w/agents/form"}), "of its state", Some(4)),
        (7, json!({"config": ["w/agents/form", {"systemPrompt": "said here"}]}), "said here", Some(4)),
        (8, json!({"config": ["w/agents/base", "w/agents/form"]}), "of its state", Some(4)),
        (9, json!({"definition": "w/agents/older"}), "of the older form", None),
    ] {
        let mut input = given.clone();
        input["agentId"] = format!("a{n}").into();
        let made = run(&venue, "agent/create", input).await.unwrap();
        assert_eq!(made["created"], true, "{given}");
        let config = venue.record(&format!("a{n}")).await.config;
        assert_eq!((config.system_prompt.as_str(), config.concurrency), (prompt, concurrency), "{given}");
    }
    run(&venue, "agent/update", json!({"agentId": "a0", "config": [asset, {"concurrency": 5}]})).await.unwrap();
    let config = venue.record("a0").await.config;
    assert_eq!((config.system_prompt.as_str(), config.concurrency), ("from an asset", Some(5)));
    for (given, part) in [
        (json!("w/none"), "no configuration at `w/none`"),
        (json!("q/x"), "got `q/x`"),
        (json!("w/agents/base/systemPrompt"), "is no configuration"),
        (json!([1]), "got 1"),
        (Value::Array(vec![json!({}); 17]), "at most 16 layers"),
    ] {
        let error = run(&venue, "agent/create", json!({"agentId": "x", "config": given})).await.unwrap_err();
        assert!(error.to_string().contains(part), "{given}: {error}");
    }
}

#[tokio::test]
async fn an_update_takes_state_as_create_does() {
    let (venue, _dir) = TestVenue::embedded("").await;
    let mut config = echo("x");
    config["context"] = json!(["w/a"]);
    let state = json!({"config": {"concurrency": 2}, "context": ["w/b"]});
    run(&venue, "agent/create", json!({"agentId": "a", "config": config, "state": state})).await.unwrap();
    let rules = json!({"label": "Rules", "text": "be kind"});
    let typed = json!({"type": "Rules", "text": "be kind"});
    for (patch, updated, context, concurrency) in [
        (json!({}), false, json!(["w/a", "w/b"]), 2),
        (json!({"state": {"context": ["w/c"]}}), true, json!(["w/a", "w/b", "w/c"]), 2),
        // What is there already isn't shown twice.
        (json!({"state": {"context": ["w/c", "w/a"]}}), false, json!(["w/a", "w/b", "w/c"]), 2),
        (json!({"state": {"context": ["/local/me/w/c"]}}), false, json!(["w/a", "w/b", "w/c"]), 2),
        (
            json!({"config": {"context": ["w/d"]}, "state": {"config": {"concurrency": 3}, "context": ["w/e"]}}),
            true,
            json!(["w/d", "w/e"]),
            3,
        ),
        (json!({"config": {"state": {"context": ["w/f"]}}}), true, json!(["w/d", "w/e", "w/f"]), 3),
        (json!({"config": {"context": null}, "state": {"context": [typed]}}), true, json!([rules]), 3),
        (json!({"state": {"context": [typed]}}), false, json!([rules]), 3),
    ] {
        let mut input = patch.clone();
        input["agentId"] = "a".into();
        if patch != json!({}) {
            let answer = run(&venue, "agent/update", input).await.unwrap();
            assert_eq!(answer["updated"], updated, "{patch}");
        }
        let config = venue.record("a").await.config;
        assert_eq!((json!(config.context), config.concurrency), (context, Some(concurrency)), "{patch}");
    }
    for (operation, input, part) in [
        ("update", json!({"state": {}}), "expected `config`, `state.config` or `state.context`"),
        ("update", json!({"state": {"context": []}}), "`state.context`: an empty list adds nothing to `context`"),
        ("update", json!({"state": {"context": "w/x"}}), "`state.context`: expected a list, got string"),
        ("update", json!({"state": {"context": [1]}}), "context"),
        ("update", json!({"state": {"history": []}}), "`state.history`: expected `state.config` and `state.context`"),
        (
            "update",
            json!({"config": {"state": {"context": ["w/x"]}}, "state": {"context": ["w/y"]}}),
            "`state`: `config` has a `state` too",
        ),
        (
            "create",
            json!({"config": {"model": "scripted/echo", "state": {"context": ["w/x"]}}, "state": {}, "overwrite": true}),
            "`state`: `config` has a `state` too",
        ),
    ] {
        let before = venue.record("a").await.config;
        let mut given = input.clone();
        given["agentId"] = "a".into();
        let error = run(&venue, &format!("agent/{operation}"), given).await.unwrap_err().to_string();
        assert!(error.contains(part), "{input}: {error}");
        assert_eq!(venue.record("a").await.config, before, "{input}");
    }
}

#[tokio::test]
async fn a_definition_is_used_under_the_authority_of_its_author() {
    let (venue, _dir) = TestVenue::embedded("").await;
    let mut keyed = echo("keyed");
    keyed["model"]["key"] = "s/KEY".into();
    venue.write("w/secretive/agent", keyed).await;
    let create = json!({"agentId": "a", "definition": "w/secretive/agent"});
    let make = ("g/a", "agent");
    for (caps, part) in [
        (vec![make], "requires crud/read on w/secretive/agent"),
        (vec![make, ("w/secret", "crud")], "requires crud/read on w/secretive/agent"),
        (vec![make, ("w/secretive", "crud/read")], "requires secret/use on s/KEY"),
    ] {
        let by = with(&venue, &caps);
        let error = operate(&venue.venue, &by, "v/ops/agent/create", create.clone()).await.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let all = with(&venue, &[make, ("w/secretive", "crud/read"), ("s/KEY", "secret/use")]);
    operate(&venue.venue, &all, "v/ops/agent/create", create).await.unwrap();
    venue.agent("b", echo("b")).await;
    let update = json!({"agentId": "b", "config": "w/secretive/agent"});
    let by = with(&venue, &[("g/b", "agent"), ("w/secretive", "crud/read")]);
    let error = operate(&venue.venue, &by, "v/ops/agent/update", update).await.unwrap_err().to_string();
    assert!(error.contains("requires secret/use on s/KEY"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_names_its_changes_and_answers_show_the_true_status() {
    let (venue, _dir) = TestVenue::embedded("").await;
    venue.agent("deaf", json!({"model": {"provider": "scripted", "name": "never"}})).await;
    venue.worker();
    let input = json!({"agentId": "deaf", "input": "go", "timeout": 0});
    let job = run(&venue, "agent/request", input).await.unwrap()["job"].as_str().unwrap().to_owned();
    let create = json!({"agentId": "deaf", "config": echo("x")});
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while run(&venue, "agent/create", create.clone()).await.unwrap()["status"] != "RUNNING" {
        assert!(tokio::time::Instant::now() < deadline, "it never ran");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let fork = json!({"sourceId": "deaf", "agentId": "copy", "config": {"description": "another"}});
    let forked = run(&venue, "agent/fork", fork.clone()).await.unwrap();
    assert_eq!((&forked["agentId"], &forked["forkedFrom"]), (&json!("copy"), &json!("deaf")), "{forked}");
    assert_eq!((&forked["created"], &forked["status"]), (&json!(true), &json!("SLEEPING")), "{forked}");
    let copy = venue.record("copy").await.config;
    assert_eq!((copy.description.as_deref(), copy.model.name.as_str()), (Some("another"), "never"));
    assert!(run(&venue, "agent/fork", fork).await.unwrap_err().to_string().contains("`copy` exists"));
    let both = json!({"sourceId": "deaf", "agentId": "c", "to": "d"});
    assert!(run(&venue, "agent/fork", both).await.unwrap_err().to_string().contains("expected one of"));
    let error = run(&venue, "agent/resume", json!({"agentId": "copy", "autoWake": false})).await.unwrap_err();
    assert!(error.to_string().contains("/autoWake"), "{error}");
    let gone = run(&venue, "agent/delete", json!({"agentId": "deaf", "remove": true})).await.unwrap();
    assert_eq!((&gone["status"], &gone["removed"]), (&json!("TERMINATED"), &json!(true)));
    assert!(run(&venue, "agent/info", json!({"agentId": "deaf"})).await.is_err());
    venue.ended(&JobId::new(&job).unwrap()).await;
}
