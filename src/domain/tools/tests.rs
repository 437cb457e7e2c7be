//! Which tools are offered, under which names, and how they are bound.

use super::guard::GuardDecision;
use super::*;
use crate::lattice::catalog::RUN;
use crate::mcp::name::{TOOLS_CALL, TOOLS_CALL_ALIAS};

fn described(path: &str, alias: &str, input: Value, entities: &[&str]) -> OperationInfo {
    OperationInfo {
        requested_path: path.into(),
        path: path.into(),
        description: "D.".into(),
        input,
        entities: entities.iter().map(|entity| (*entity).to_owned()).collect(),
        aliases: vec![alias.to_owned()],
    }
}

fn lattice() -> [OperationInfo; 3] {
    [
        described("v/ops/lattice/read", "v/ops/covia/read", json!({}), &[]),
        described("v/ops/lattice/write", "v/ops/covia/write", json!({}), &[]),
        described("v/ops/agent/request", "", json!({}), &[]),
    ]
}

fn names(config: &Value, task_open: bool) -> Vec<String> {
    let table = resolve(
        &AgentConfig::parse(config).unwrap(),
        &[],
        TurnEnds::for_task(task_open),
        &Resolver::default(),
        &lattice()[..],
    );
    table.names().into_iter().map(str::to_owned).collect()
}

#[test]
fn names_come_from_the_override_or_the_path() {
    let model = json!({"provider": "scripted", "name": "echo"});
    let tools = json!(["v/ops/covia/read", {"operation": "v/ops/agent/request", "name": "ask"}]);
    let config = json!({"model": model, "tools": tools, "defaultTools": false});
    let harness = ["context_load", "context_unload"];
    assert_eq!(names(&config, false), [&["covia_read", "ask"][..], &harness].concat());
    assert_eq!(names(&config, true), [&["covia_read", "ask", "complete_task", "fail_task"][..], &harness].concat());
}

#[test]
fn defaults_follow_and_are_not_offered_twice() {
    let model = json!({"provider": "scripted", "name": "echo"});
    let config = json!({"model": model, "tools": ["v/ops/lattice/write"]});
    assert_eq!(names(&config, false)[..3], ["lattice_write", "agent_request", "lattice_read"]);
}

#[test]
fn a_tool_that_is_not_offered_says_why() {
    let model = json!({"provider": "scripted", "name": "echo"});
    let tools = json!(["v/ops/no/such", "v/ops/lattice/read",
        {"operation": "v/ops/lattice/write", "name": "lattice_read"},
        {"operation": "v/ops/lattice/write", "name": "a b"}]);
    let config = json!({"model": model, "tools": tools, "defaultTools": false});
    let table = resolve(
        &AgentConfig::parse(&config).unwrap(),
        &[],
        TurnEnds::for_task(false),
        &Resolver::default(),
        &lattice()[..],
    );
    let reasons: Vec<_> = table.refused.iter().map(|(_, reason)| reason.as_str()).collect();
    assert_eq!(reasons.len(), 3);
    assert_eq!(reasons[0], "no such operation in the catalog");
    assert!(reasons[1].starts_with("the name `lattice_read` is taken"));
    assert!(reasons[2].starts_with("`a b` is not a tool name"));
}

fn shop() -> [OperationInfo; 3] {
    let input = json!({
        "type": "object", "required": ["from", "to"], "additionalProperties": false,
        "properties": {"from": {"type": "string"}, "to": {"type": "string"}, "user_id": {"type": "string"}},
    });
    [
        described("v/ops/mail/send", "v/ops/grid/mail", input.clone(), &[]),
        described("v/ops/shop/order", "", input, &["shop-1", "shop-2"]),
        described(RUN, "v/ops/grid/run", json!({"type": "object"}), &[]),
    ]
}

fn with_tools(config: Value, tools: Value, session: Value) -> ToolTable {
    let mut config = config;
    config["model"] = json!({"provider": "scripted", "name": "echo"});
    config["defaultTools"] = false.into();
    config["tools"] = tools;
    let config = AgentConfig::parse(&config).unwrap();
    let Value::Object(session) = session else { panic!("expected a map") };
    let none = || serde_json::Map::new();
    let values = Resolver::new(session, none(), none(), config.context_mapping.clone());
    resolve(&config, &[], TurnEnds::for_task(true), &values, &shop()[..])
}

fn with_values(config: Value, session: Value) -> ToolTable {
    let tools = json!([{"operation": "v/ops/mail/send", "name": "send_email"}, "v/ops/shop/order"]);
    with_tools(config, tools, session)
}

/// What a call of `job/run` with `path` comes to: what is filled in, or why it isn't made.
fn through(config: Value, tools: Value, path: &str) -> Result<Value, String> {
    let table = with_tools(config, tools, json!({"user_email": "ada@x", "entity_ids": ["shop-3"]}));
    let said = json!({"operation": path, "input": {"from": "eve@x", "to": "bob@x"}});
    match table.guards.check_run(RUN, &said, &mut said.clone(), &Injection::default()) {
        GuardDecision::Free => Ok(Value::Null),
        GuardDecision::Refused(unmade) => Err(unmade.text),
        GuardDecision::Bound(_, arguments, injection) => {
            assert_eq!(arguments, json!({"to": "bob@x"}), "what the model says counts for nothing");
            Ok(injection.values.into())
        }
    }
}

#[test]
fn a_binding_holds_through_job_run_too() {
    let bound = json!({"from": "ada@x"});
    let run_only = || json!([RUN]);
    let as_tool = || json!([RUN, {"operation": "v/ops/mail/send", "name": "send_email"}]);
    let bind = |name: &str| json!({"toolArgInjection": {name: {"from": "user_email"}}});
    for name in ["v/ops/mail/send", "v/ops/grid/mail", "mail:send"] {
        for tools in [run_only(), as_tool()] {
            for path in ["v/ops/mail/send", "grid/mail", "mail:send"] {
                assert_eq!(through(bind(name), tools.clone(), path), Ok(bound.clone()), "{name} {tools} {path}");
            }
        }
        let table = with_tools(bind(name), as_tool(), json!({"user_email": "ada@x"}));
        assert_eq!(table.injection("send_email").unwrap().values, *bound.as_object().unwrap());
        assert_eq!(table.reports, []);
    }
    assert_eq!(through(bind("send_email"), as_tool(), "mail:send"), Ok(bound.clone()), "by the tool's name");
    let auto = json!({"contextMapping": {"user_email": "_auto", "from": {"source": "user_email", "fallback": "x"}}});
    assert_eq!(through(auto, run_only(), "mail:send"), Ok(Value::Null), "`_auto` doesn't match here");
    let auto = json!({"contextMapping": {"user_id": "_auto"}});
    let table = with_tools(auto, run_only(), json!({"user_id": "u"}));
    let said = json!({"operation": "mail:send", "input": {"user_id": "eve"}});
    assert!(matches!(
        table.guards.check_run(RUN, &said, &mut said.clone(), &Injection::default()),
        GuardDecision::Bound(..)
    ));
    assert!(with_tools(bind("send_email"), json!([]), json!({})).guards.is_empty(), "nothing runs by a path");
}

#[test]
fn what_calls_tools_by_their_name_has_guards() {
    let mut all = shop().to_vec();
    all.push(described(TOOLS_CALL, TOOLS_CALL_ALIAS, json!({"type": "object"}), &[]));
    let config = json!({
        "model": {"provider": "scripted", "name": "echo"}, "defaultTools": false, "tools": [TOOLS_CALL],
        "toolArgInjection": {"v/ops/mail/send": {"from": "user_email"}}
    });
    let config = AgentConfig::parse(&config).unwrap();
    let none = || serde_json::Map::new();
    let Value::Object(session) = json!({"user_email": "ada@x"}) else { unreachable!() };
    let values = Resolver::new(session, none(), none(), config.context_mapping.clone());
    assert!(!resolve(&config, &[], TurnEnds::for_task(true), &values, &all[..]).guards.is_empty());
}

/// The shop, whose operation `v/ops/mail/send` is published.
struct PublishedShop;

impl OperationDirectory for PublishedShop {
    fn find(&self, path: &str) -> Option<OperationInfo> {
        OperationDirectory::find(&shop()[..], path)
    }

    fn list_operations(&self) -> Vec<OperationInfo> {
        shop().to_vec()
    }

    fn published_versions(&self) -> BTreeMap<String, String> {
        BTreeMap::from([("v/ops/mail/send".to_owned(), "v1".to_owned())])
    }
}

#[test]
fn a_value_for_all_tools_is_filled_into_no_foreign_schema() {
    let (global, named) = ("_global", "mail_send");
    let bind = |tool: &str| json!({"toolArgInjection": {tool: {"from": "user_email"}}});
    for (config, tools, filled) in [
        (bind(global), json!([RUN]), None),
        (json!({"contextMapping": {"user_id": "_auto"}}), json!([RUN]), None),
        (bind(named), json!([RUN]), Some("from")),
        (bind(global), json!([RUN, "v/ops/mail/send"]), Some("from")),
    ] {
        let shown = format!("{config} {tools}");
        let mut config = config;
        config["model"] = json!({"provider": "scripted", "name": "echo"});
        config["defaultTools"] = false.into();
        config["tools"] = tools;
        let config = AgentConfig::parse(&config).unwrap();
        let Value::Object(session) = json!({"user_email": "ada@x", "user_id": "u"}) else { unreachable!() };
        let none = serde_json::Map::new;
        let values = Resolver::new(session, none(), none(), config.context_mapping.clone());
        let found = ["v/ops/mail/send".to_owned()];
        let table = resolve(&config, &found, TurnEnds::for_task(true), &values, &PublishedShop);
        assert_eq!(table.target("mail_send").is_some(), filled.is_some(), "{shown}: {:?}", table.refused);
        let said = json!({"operation": "mail:send", "input": {"to": "bob@x"}});
        match (table.guards.check_run(RUN, &said, &mut said.clone(), &Injection::default()), filled) {
            (GuardDecision::Bound(_, _, injection), Some(filled)) => {
                assert!(injection.values.contains_key(filled), "{shown}");
            }
            (GuardDecision::Refused(unmade), None) => {
                assert!(unmade.text.contains("is bound for all tools"), "{shown}: {unmade:?}");
            }
            (found, expected) => panic!("{shown}: expected {expected:?}, got {found:?}"),
        }
    }
}

#[test]
fn a_differently_bound_operation_is_called_by_its_tool() {
    let bind = json!({"toolArgInjection": {"a": {"from": "user_email"}, "b": {"from": "CONSTANT:b@x"}}});
    let named = |names: &[&str]| {
        let tool = |name: &&str| json!({"operation": "v/ops/mail/send", "name": name});
        Value::Array(names.iter().map(tool).chain([json!(RUN)]).collect())
    };
    let error = through(bind.clone(), named(&["a", "b"]), "mail:send").unwrap_err();
    assert_eq!(error, "`v/ops/mail/send`: it is offered as `a` and `b`, call one of these");
    assert_eq!(through(bind, named(&["b"]), "mail:send"), Ok(json!({"from": "b@x"})));
    let wrong = json!({"toolArgInjection": {"a": {"frm": "user_email"}}});
    let error = through(wrong, named(&["a"]), "mail:send").unwrap_err();
    assert!(error.contains("did you mean `from`"), "a binding that can't be kept: {error}");
}

#[test]
fn entity_ids_narrow_what_job_run_runs() {
    let config = json!({"entityIdsRequired": true});
    let error = through(config.clone(), json!([RUN]), "shop:order").unwrap_err();
    assert_eq!(error, "`v/ops/shop/order`: it carries none of the entities of this request");
    assert_eq!(through(config, json!([RUN]), "mail:send"), Ok(Value::Null));
    assert_eq!(through(json!({}), json!([RUN]), "shop:order"), Ok(Value::Null));
}

#[test]
fn injected_arguments_are_in_no_schema_and_no_hash() {
    for name in ["send_email", "v/ops/mail/send"] {
        let config = json!({"toolArgInjection": {name: {"from": "user_email"}}});
        let table = with_values(config.clone(), json!({"user_email": "ada@x"}));
        assert_eq!(table.specs[0].schema["required"], json!(["to"]));
        assert!(!json!(table.specs[0]).to_string().contains("from"), "{name}");
        assert_eq!(table.injection("send_email").unwrap().values["from"], "ada@x");
        assert_eq!(table.injection("shop_order"), Some(&Injection::default()));
        assert_eq!(table.hash, with_values(config, json!({"user_email": "bob@x"})).hash);
    }
}

#[test]
fn wrong_bindings_are_reported_and_their_tools_not_offered() {
    let table = with_values(json!({"toolArgInjection": {"send_emial": {"from": "k"}}}), json!({}));
    assert_eq!(table.reports[0].1, "no tool `send_emial` is offered, did you mean `send_email`");
    let table = with_values(json!({"toolArgInjection": {"send_email": {"frm": "k"}}}), json!({}));
    assert!(table.refused[0].1.contains("did you mean `from`"), "{:?}", table.refused);
    assert_eq!(table.reports, []);
    let auto = json!({"contextMapping": {"user_id": "_auto", "uid": "_auto"}});
    let table = with_values(auto, json!({"user_id": 1, "uid": 2}));
    assert!(table.reports[0].1.starts_with("`_auto` leaves argument `user_id` to the model"));
}

#[test]
fn entity_ids_narrow_the_tools_to_those_that_carry_one_of_them() {
    let offered = |required: bool, ids: Value| {
        let table = with_values(json!({"entityIdsRequired": required}), json!({"entity_ids": ids}));
        table.target("shop_order").is_some() && table.target("send_email").is_some()
    };
    assert!(offered(true, json!(["shop-2", "x"])));
    assert!(!offered(true, json!(["shop-3"])));
    assert!(offered(false, json!(["shop-3"])), "without the mandate the value is any value");
    let table = with_values(json!({"entityIdsRequired": true}), json!({"entity_ids": ["shop-3"]}));
    assert_eq!(table.refused, [("v/ops/shop/order".into(), "it carries none of the entities of this request".into())]);
    assert!(table.target("send_email").is_some(), "an operation without entities is not affected");
}

#[test]
fn a_tool_for_entities_is_for_no_other_request_under_any_name() {
    let tools = |more: &[Value]| {
        let own = json!({"operation": "v/ops/mail/send", "name": "mail_one", "entities": ["shop-1"]});
        Value::Array([&[json!(RUN), own], more].concat())
    };
    let required = || json!({"entityIdsRequired": true});
    let offered = |tools: Value, ids: Value| {
        let table = with_tools(required(), tools, json!({"entity_ids": ids}));
        table.names().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(offered(tools(&[]), json!(["shop-1"])).contains(&"mail_one".to_owned()));
    assert!(!offered(tools(&[]), json!(["shop-3"])).contains(&"mail_one".to_owned()));
    // Nor by its path, nor when it is found.
    let error = through(required(), tools(&[]), "mail:send").unwrap_err();
    assert_eq!(error, "`v/ops/mail/send`: it carries none of the entities of this request");
    let mut config = required();
    config["model"] = json!({"provider": "scripted", "name": "echo"});
    config["tools"] = tools(&[]);
    let mut config = AgentConfig::parse(&config).unwrap();
    let none = || serde_json::Map::new();
    let session = json!({"entity_ids": ["shop-3"]}).as_object().unwrap().clone();
    let values = Resolver::new(session, none(), none(), config.context_mapping.clone());
    let table = resolve(&config, &["v/ops/mail/send".into()], TurnEnds::for_task(true), &values, &shop()[..]);
    assert!(table.target("mail_send").is_none() && table.target("mail_one").is_none());
    // What another tool has for these entities is called as that one is.
    let other = json!({"operation": "v/ops/mail/send", "name": "mail_three", "entities": ["shop-3"]});
    let bound = json!({"entityIdsRequired": true, "toolArgInjection": {"mail_three": {"from": "user_email"}}});
    assert_eq!(through(bound, tools(&[other]), "mail:send"), Ok(json!({"from": "ada@x"})));
    // Without the mandate no request would name any.
    config.entity_ids_required = false;
    let error = AgentConfig::parse(&json!(config)).unwrap_err().to_string();
    assert!(error.contains("`tools[1].entities` needs `entityIdsRequired = true`"), "{error}");
}

#[test]
fn the_output_of_a_task_has_the_type_that_its_tool_takes() {
    let table = |output: Option<Value>, tools: Value| {
        let config = AgentConfig::parse(&json!({
            "model": {"provider": "scripted", "name": "echo"}, "defaultTools": false, "tools": tools,
        }));
        let ends = TurnEnds { task: true, inner: false, output: output.as_ref(), goal: None };
        resolve(&config.unwrap(), &[], ends, &Resolver::default(), &Vec::<OperationInfo>::new()[..]).output()
    };
    assert_eq!(table(None, json!([])), None);
    let map =
        json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "integer"}}});
    let found = table(Some(map.clone()), json!([])).unwrap();
    assert_eq!((found.schema, found.tools_optional), (map, true));
    let list = json!({"type": "array", "items": {"type": "integer"}});
    let own = json!([{"name": "look", "description": "d", "input": {"type": "object"}}]);
    let found = table(Some(list.clone()), own).unwrap();
    assert_eq!(
        (&found.schema["properties"]["result"], found.tools_optional),
        (&list, false),
        "what is no map is in one"
    );
}
