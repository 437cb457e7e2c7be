//! Every tool that this version has can be offered to every provider.

use super::*;
use crate::decode;
use crate::wire::dialect::{DIALECTS, find_dialect};
use crate::wire::names::ToolNames;
use crate::wire::schema::tests::rules;
use serde_json::json;

/// The catalog as it stands, with Covia's names for some of it.
fn catalog() -> Vec<OperationInfo> {
    let Value::Object(pinned) = decode::lenient_json(include_bytes!("../../ops/pinned.json")).unwrap() else {
        panic!("expected operations by path")
    };
    let described = |(path, spec): (String, Value)| OperationInfo {
        requested_path: path.clone(),
        description: spec["description"].as_str().unwrap().to_owned(),
        input: spec["input"].clone(),
        entities: Vec::new(),
        aliases: vec![path.replace("/lattice/", "/covia/").replace("/job/", "/grid/")],
        path,
    };
    pinned.into_iter().map(described).collect()
}

/// Checks the tools of an agent as each provider gets them; returns their names.
fn check(config: &Value, ends: TurnEnds<'_>, catalog: &[OperationInfo]) -> Vec<String> {
    let config = AgentConfig::parse(config).unwrap();
    let table = resolve(&config, &[], ends, &Resolver::default(), catalog);
    for dialect in DIALECTS {
        let names = ToolNames::for_dialect(&table.specs, &dialect).unwrap();
        for tool in &names.tools {
            let wrong = rules::wrong(&tool.schema, dialect.schema);
            assert_eq!(wrong, None, "`{}` for `{}`: {}", tool.own_name, dialect.provider, tool.schema);
        }
    }
    table.names().into_iter().map(str::to_owned).collect()
}

#[test]
fn every_operation_can_be_offered() {
    let catalog = catalog();
    let paths: Vec<&str> = catalog.iter().map(|found| found.path.as_str()).collect();
    let config = json!({"model": {"provider": "openai", "name": "m"}, "tools": paths, "defaultTools": false});
    let names = check(&config, TurnEnds::for_task(true), &catalog);
    assert!(names.len() >= paths.len(), "{} tools of {} operations", names.len(), paths.len());
}

#[test]
fn agents_of_every_kind_can_be_offered_their_tools() {
    let catalog = catalog();
    let list = json!({"type": "array"});
    let union = json!({"oneOf": [{"type": "object", "properties": {"a b": {}}}, {"type": ["string", "null"]}]});
    let openai = json!({"provider": "openai", "name": "m"});
    for output in [None, Some(&list), Some(&union)] {
        let ends = TurnEnds { inner: true, output, goal: output, ..TurnEnds::for_task(true) };
        let mut config = json!({"model": openai});
        let names = check(&config, ends, &catalog);
        assert!(names.iter().any(|name| name == "agent_create"), "{names:?}");
        // One that only looks on and hands out work, and one that leads others.
        config = json!({
            "model": openai, "loop": "goalTree", "defaultTools": false,
            "tools": [
                "v/ops/covia/read", "v/ops/covia/list", "v/ops/covia/inspect", "v/ops/grid/run", "v/ops/agent/request",
                "v/ops/agent/message", "v/ops/agent/list", "v/ops/agent/info", "subgoal", "compact", "more_tools",
                "complete", "fail"
            ]
        });
        let names = check(&config, ends, &catalog);
        for name in ["covia_read", "grid_run", "subgoal", "compact", "more_tools", "complete", "fail"] {
            assert!(names.iter().any(|known| known == name), "{name} of {names:?}");
        }
        config = json!({
            "model": openai, "defaultTools": false,
            "tools": [
                "agent:create", "agent:fork", "agent:message", "agent:request", "agent:list", "agent:info", "covia:read",
                {"delegate": "helper"}, {"name": "note", "description": "d"},
                {"delegate": "anonymous", "name": "sum", "description": "d", "input": union, "scopes": {"const": ["input"]}}
            ]
        });
        let names = check(&config, ends, &catalog);
        for name in ["agent_create", "covia_read", "helper", "note", "sum"] {
            assert!(names.iter().any(|known| known == name), "{name} of {names:?}");
        }
    }
    assert!(find_dialect("openai").is_some());
}

#[test]
fn tools_of_resources_can_be_offered() {
    use crate::resource::remote::RemoteOperation;
    for verb in RemoteOperation::ALL {
        for dialect in DIALECTS {
            let spec = ToolSpec { name: "x".to_owned(), description: String::new(), schema: verb.input() };
            let names = ToolNames::for_dialect(&[spec], &dialect).unwrap();
            assert_eq!(rules::wrong(&names.tools[0].schema, dialect.schema), None, "{verb:?}");
        }
    }
}
