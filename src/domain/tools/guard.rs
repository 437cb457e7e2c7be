//! Rules for an operation, however a model reaches it: `job/run` runs other operations by their path, and `mcp/tools-call`
//! tools by their name, so the bindings of a direct call also hold for these ways.

use crate::call::{CallRefusal, Outcome};
use crate::lattice::catalog::RUN;
use crate::lattice::catalog::catalog_path;
use crate::lattice::catalog::is_stored_operation;
use crate::limits::JOB_DEPTH;
use crate::mcp::name::{TOOLS_CALL, called_tool};
use crate::values::inject::Injection;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The rule for one operation.
#[derive(Debug, Clone, PartialEq)]
pub enum GuardRule {
    /// The operation can't be called, for this reason.
    Refuse(String),
    /// The runtime fills these arguments in.
    Inject(Injection),
}

/// The rules for the operations of the catalogue, offered as tools or not.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Guards {
    /// Catalogue path of each alias.
    aliases: BTreeMap<String, String>,
    /// Rules by catalogue path; operations without one are free.
    rules: BTreeMap<String, GuardRule>,
}

/// The decision on a call of an operation that runs others.
#[derive(Debug, Clone, PartialEq)]
pub enum GuardDecision {
    /// No rule holds for the operation that it runs, or it runs none.
    Free,
    /// The call is not made, for this reason.
    Refused(CallRefusal),
    /// It becomes a call of this operation, with the model's arguments and the injected ones.
    Bound(String, Value, Box<Injection>),
}

impl Guards {
    /// Adds the rule of an operation with these aliases.
    pub fn add(&mut self, path: &str, aliases: &[String], rule: GuardRule) {
        self.aliases.extend(aliases.iter().map(|alias| (alias.clone(), path.to_owned())));
        if !matches!(&rule, GuardRule::Inject(injection) if injection.is_empty()) {
            self.rules.insert(path.to_owned(), rule);
        }
    }

    /// Whether no operation has a rule.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the schema of an operation as a model sees it: without bound arguments.
    pub fn visible_schema(&self, path: &str, schema: &Value) -> Value {
        match self.rules.get(&self.resolve_alias(path)) {
            Some(GuardRule::Inject(injection)) => injection.reduce(schema),
            Some(GuardRule::Refuse(_)) | None => Injection::of_reserved(schema).reduce(schema),
        }
    }

    fn resolve_alias(&self, asked: &str) -> String {
        let path = catalog_path(asked);
        self.aliases.get(&path).cloned().unwrap_or(path)
    }

    /// Decides on a call of `path`, one of [`RUNNERS`]. `said` are the model's arguments, `written` is their copy in the
    /// transcript, from which bound arguments are removed; `own` is filled into the call itself.
    pub fn check_run(&self, path: &str, said: &Value, written: &mut Value, own: &Injection) -> GuardDecision {
        // A call that can't be made at all is refused later, with the reason.
        let Ok(mut arguments) = own.apply(said.clone()) else { return GuardDecision::Free };
        let (mut path, mut inside) = (path.to_owned(), Vec::new());
        for depth in 0..=JOB_DEPTH {
            let key = if path == TOOLS_CALL { "arguments" } else { "input" };
            path = match self.find_next(&path, &arguments) {
                Ok(Some(next)) => next,
                Ok(None) => return GuardDecision::Free,
                Err(refused) => return GuardDecision::Refused(refused),
            };
            arguments = arguments.get_mut(key).map(Value::take).unwrap_or_default();
            inside.push(key);
            match (self.rules.get(&path), RUNNERS.contains(&path.as_str())) {
                (None, true) if depth < JOB_DEPTH => {}
                (None, _) => return GuardDecision::Free,
                (Some(GuardRule::Refuse(reason)), _) => {
                    return GuardDecision::Refused(CallRefusal::new(Outcome::Denied, format!("`{path}`: {reason}")));
                }
                (Some(GuardRule::Inject(_)), true) => {
                    let text = format!("`{path}` can't be run by another operation where its arguments are bound");
                    return GuardDecision::Refused(CallRefusal::arguments(text));
                }
                (Some(GuardRule::Inject(injection)), false) => {
                    if let Some(name) = injection.find_reserved(&arguments) {
                        let text = format!("argument `{name}` of `{path}` can't be given this way");
                        return GuardDecision::Refused(CallRefusal::arguments(text));
                    }
                    if let Some(inner) = value_at(written, &inside) {
                        injection.strip(inner);
                    }
                    injection.strip(&mut arguments);
                    return GuardDecision::Bound(path, arguments, Box::new(injection.clone()));
                }
            }
        }
        GuardDecision::Free
    }

    /// Returns the path of the operation that a call of one of [`RUNNERS`] names; `None` if it names none.
    fn find_next(&self, path: &str, arguments: &Value) -> Result<Option<String>, CallRefusal> {
        if path == TOOLS_CALL {
            return Ok(called_tool(arguments));
        }
        let Some(asked) = arguments["operation"].as_str() else { return Ok(None) };
        if is_stored_operation(asked) {
            let text = format!("`{asked}`: where arguments are bound a pin isn't run by its path; name its operation");
            return Err(CallRefusal::arguments(text));
        }
        if let Some(strange) = unknown_key(arguments) {
            let text = format!("arguments of `{RUN}` are not valid: '{strange}' was unexpected");
            return Err(CallRefusal::arguments(text));
        }
        Ok(Some(self.resolve_alias(asked)))
    }
}

/// Operations that run another one, which their arguments name.
pub const RUNNERS: [&str; 2] = [RUN, TOOLS_CALL];

/// Returns a key that a call of [`RUN`] doesn't have.
fn unknown_key(arguments: &Value) -> Option<&str> {
    let known = |key: &&str| ["operation", "input", "venue"].contains(key);
    arguments.as_object().into_iter().flat_map(Map::keys).map(String::as_str).find(|key| !known(key))
}

fn value_at<'v>(value: &'v mut Value, path: &[&str]) -> Option<&'v mut Value> {
    path.iter().try_fold(value, |value, key| value.get_mut(*key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::name::TOOLS_CALL_ALIAS;
    use crate::values::inject::UnresolvedArgument;
    use serde_json::json;

    fn injection(values: Value) -> Injection {
        let Value::Object(values) = values else { panic!("expected a map") };
        Injection { values, ..Injection::default() }
    }

    fn guards() -> Guards {
        let mut guards = Guards::default();
        guards.add(RUN, &["v/ops/grid/run".into()], GuardRule::Inject(Injection::default()));
        let write = GuardRule::Inject(injection(json!({"path": "w/good"})));
        guards.add("v/ops/lattice/write", &["v/ops/covia/write".into()], write);
        guards.add("v/ops/shop/order", &[], GuardRule::Refuse("not yours".into()));
        guards
    }

    fn check(said: &Value, expected: &Result<Option<Value>, &str>, shown: &Value) {
        let mut heard = said.clone();
        match (guards().check_run(RUN, said, &mut heard, &Injection::default()), expected) {
            (GuardDecision::Free, Ok(None)) => {}
            (GuardDecision::Bound(path, arguments, filled), Ok(Some(expected))) => {
                assert_eq!((path.as_str(), &arguments), ("v/ops/lattice/write", expected), "{said}");
                assert_eq!(filled.values["path"], "w/good");
            }
            (GuardDecision::Refused(unmade), Err(part)) => assert!(unmade.text.contains(*part), "{said}: {unmade:?}"),
            (found, expected) => panic!("{said}: expected {expected:?}, got {found:?}"),
        }
        assert_eq!(&heard, shown, "what stays in the transcript");
    }

    fn run(operation: &str, input: Value) -> Value {
        Value::Object(Map::from_iter([("operation".into(), operation.into()), ("input".into(), input)]))
    }

    #[test]
    fn bindings_hold_under_every_name_and_at_every_depth() {
        let evil = || json!({"path": "w/evil", "value": 1});
        let kept = || json!({"value": 1});
        for name in ["v/ops/lattice/write", "lattice/write", "lattice:write", "/covia:write/", "v/ops/covia/write"] {
            check(&run(name, evil()), &Ok(Some(kept())), &run(name, kept()));
            let nested = |inner: Value| run("job:run", run("grid/run", run(name, inner)));
            check(&nested(evil()), &Ok(Some(kept())), &nested(kept()));
        }
        let bare = json!({"operation": "lattice/write"});
        check(&bare, &Ok(Some(Value::Null)), &bare);
        let list = run("lattice/write", json!([1]));
        check(&list, &Ok(Some(json!([1]))), &list);
    }

    #[test]
    fn guarded_values_come_only_from_the_request() {
        for name in ["v/ops/shop/order", "shop:order"] {
            let order = run(name, json!({}));
            check(&order, &Err("`v/ops/shop/order`: not yours"), &order);
        }
        for free in [run("lattice/read", json!({"path": "w/evil"})), json!({}), json!([]), json!({"operation": 7})] {
            check(&free, &Ok(None), &free);
        }
        let pinned = json!({"operation": "o/write", "input": {"path": "w/evil"}});
        check(&pinned, &Err("name its operation"), &pinned);
        let strange = json!({"operation": "lattice/write", "input": {"value": 1}, "wait": 1});
        check(&strange, &Err("'wait' was unexpected"), &strange);
        let mut deep = run("lattice/write", json!({"path": "w/evil"}));
        for _ in 0..=JOB_DEPTH {
            deep = run(RUN, deep);
        }
        check(&deep, &Ok(None), &deep);
    }

    #[test]
    fn bindings_of_the_run_win_over_the_models_arguments() {
        let own = injection(json!({"operation": "v/ops/lattice/write"}));
        let mut said = json!({"input": {"path": "w/evil", "value": 1}});
        let heard = said.clone();
        let GuardDecision::Bound(path, arguments, _) = guards().check_run(RUN, &heard, &mut said, &own) else {
            panic!("it is bound")
        };
        assert_eq!((path.as_str(), arguments), ("v/ops/lattice/write", json!({"value": 1})));
        assert_eq!(said, json!({"input": {"value": 1}}));
        let mut bound = guards();
        bound.add(RUN, &[], GuardRule::Inject(own.clone()));
        let itself = run(RUN, json!({}));
        let passage = bound.check_run(RUN, &itself, &mut itself.clone(), &Injection::default());
        assert!(matches!(passage, GuardDecision::Refused(_)));
        let missing = UnresolvedArgument { argument: "operation".into(), key: "k".into() };
        let unresolved = Injection { unresolved: vec![missing], ..Injection::default() };
        assert_eq!(guards().check_run(RUN, &json!({}), &mut json!({}), &unresolved), GuardDecision::Free);
    }

    #[test]
    fn bindings_hold_for_tools_of_servers_called_by_name() {
        let mut guards = Guards::default();
        guards.add(TOOLS_CALL, &[TOOLS_CALL_ALIAS.into()], GuardRule::Inject(Injection::default()));
        guards.add("v/ops/mcp/shop/pay", &[], GuardRule::Inject(injection(json!({"from": "ada"}))));
        guards.add("v/ops/mcp/shop/drop", &[], GuardRule::Refuse("not yours".into()));
        let call = |tool: &str, arguments: Value| json!({"server": "shop", "toolName": tool, "arguments": arguments});
        let evil = || json!({"from": "eve", "sum": 1});
        for (path, wrap) in [
            (TOOLS_CALL, None),
            (RUN, Some("mcp:tools-call")),
            (RUN, Some("v/ops/mcp/tools/call")),
            (RUN, Some("mcp:tools:call")),
        ] {
            let wrapped = |inner: Value| wrap.map_or_else(|| inner.clone(), |name| run(name, inner.clone()));
            let check = |said: &Value, heard: &mut Value| guards.check_run(path, said, heard, &Injection::default());
            let said = wrapped(call("pay", evil()));
            let mut heard = said.clone();
            let GuardDecision::Bound(bound, arguments, filled) = check(&said, &mut heard) else {
                panic!("{said}: it is bound")
            };
            assert_eq!((bound.as_str(), arguments), ("v/ops/mcp/shop/pay", json!({"sum": 1})), "{said}");
            assert_eq!((&filled.values["from"], &heard), (&json!("ada"), &wrapped(call("pay", json!({"sum": 1})))));
            let refused = wrapped(call("drop", json!({})));
            assert!(matches!(check(&refused, &mut refused.clone()), GuardDecision::Refused(_)), "{refused}");
            let free = wrapped(call("look", evil()));
            assert_eq!(check(&free, &mut free.clone()), GuardDecision::Free, "{free}");
        }
    }
}
