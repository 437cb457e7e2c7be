//! Finds bindings that can't be kept. A configuration with such bindings is refused, or its tool is closed in the
//! agent's turns.

use super::{OperationDirectory, OperationInfo, ResourceTool, ToolTableBuilder};
use crate::agent::AgentConfig;
use crate::agent::tool::{DEFAULT_TOOLS, HARNESS_TOOLS, ToolEntry, tool_name};
use crate::call::ToolTarget;
use crate::lattice::catalog::{RUN, is_stored_operation};
use crate::nearest::did_you_mean;
use crate::values::auto;
use crate::values::inject::{accepts, is_same_tool};
use crate::visible::quote_foreign;
use serde_json::{Value, json};
use std::borrow::Cow;

/// Bindings of a configuration that no call would get.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BindingFaults {
    /// Errors that refuse the configuration, because the model could choose the value.
    pub errors: Vec<String>,
    /// Warnings: bindings that only a turn can check, or that no call uses.
    pub warnings: Vec<String>,
}

/// Returns the names under which an operation can be bound: that of its tool, its paths, and the tool names of these
/// paths, unless the configuration gives such a name to another tool.
pub(super) fn binding_names(config: &AgentConfig, tool: Option<&str>, found: &OperationInfo) -> Vec<String> {
    let mut names: Vec<String> = tool.map(str::to_owned).into_iter().collect();
    let add = |names: &mut Vec<String>, name: String| {
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
    };
    for path in found.paths() {
        add(&mut names, path.to_owned());
        let derived = tool_name(path);
        let is_given =
            |entry: &ToolEntry| matches!(entry, ToolEntry::Named(tool) if tool.name.as_ref() == Some(&derived));
        if !config.tools.iter().any(is_given) {
            add(&mut names, derived);
        }
    }
    names
}

impl ToolTableBuilder<'_> {
    /// Reports bindings of tools that don't exist. If a tool's name differs from such a binding only in spelling, the
    /// tool is not offered, because its author wanted it bound.
    pub(super) fn check_unknown_bindings(&mut self, catalog: &(impl OperationDirectory + ?Sized)) {
        let bindings = &self.config.tool_arg_injection;
        if bindings.is_empty() {
            return;
        }
        let known: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let mut strangers: Vec<&str> = bindings.unknown_tools(&known).collect();
        if strangers.is_empty() {
            return;
        }
        let rest: Vec<String> =
            catalog.list_operations().iter().flat_map(|found| binding_names(self.config, None, found)).collect();
        strangers.retain(|stranger| !rest.iter().any(|name| is_same_tool(stranger, name)));
        for stranger in strangers {
            let report = format!("no tool `{}` is offered{}", quote_foreign(stranger), did_you_mean(stranger, &known));
            let place = format!("toolArgInjection.{}", quote_foreign(stranger));
            self.offered.retain(|offered| {
                let is_meant = auto::is_same_name(&offered.spec.name, stranger);
                if is_meant {
                    self.refused.push((offered.spec.name.clone(), format!("`{place}`: {report}")));
                    if let ToolTarget::Operation(path) = &offered.target {
                        self.unbound.push((path.clone(), format!("`{place}`: {report}")));
                    }
                }
                !is_meant
            });
            self.reports.push((place, report));
        }
    }
}

/// A tool that a binding may name.
struct BindableTool<'a> {
    names: Vec<String>,
    /// Schema of its arguments; `None` if it is known only in a turn.
    schema: Option<Cow<'a, Value>>,
    /// The model is offered the tool.
    is_offered: bool,
}

impl AgentConfig {
    /// Returns the errors and warnings for `toolArgInjection` and `_auto` rows. `resources` are the tools of the
    /// agent's resources, whatever a request may do with them.
    pub fn binding_faults(
        &self,
        catalog: &(impl OperationDirectory + ?Sized),
        resources: &[ResourceTool],
    ) -> BindingFaults {
        let mut faults = BindingFaults::default();
        let keys: Vec<&str> = self.context_mapping.auto_keys().collect();
        if self.tool_arg_injection.is_empty() && keys.is_empty() {
            return faults;
        }
        let tools = self.bindable_tools(catalog, resources);
        for (tool, arguments) in self.tool_arg_injection.tools() {
            let place = self.tool_arg_injection.binding_place(tool, None);
            let meant: Vec<&BindableTool<'_>> =
                tools.iter().filter(|one| one.names.iter().any(|name| is_same_tool(tool, name))).collect();
            if meant.is_empty() {
                faults.errors.push(format!("{place}: {}", explain_unknown_binding(tool, &tools)));
                continue;
            }
            if !meant.iter().any(|one| one.is_offered) && !self.finds_operations(catalog) {
                faults
                    .warnings
                    .push(format!("{place}: `{}` is not offered to this agent: nothing is bound", quote_foreign(tool)));
            }
            if meant.iter().all(|one| one.schema.is_none()) {
                let when = "its operation is known in a turn only: `trellis turn show` tells what can't be bound then";
                faults.warnings.push(format!("{place}: {when}"));
            }
            for argument in arguments {
                for schema in meant.iter().filter_map(|one| one.schema.as_deref()) {
                    let (list, text) = match accepts(schema, argument) {
                        Ok(None) => continue,
                        Ok(Some(text)) => (&mut faults.warnings, text),
                        Err(text) => (&mut faults.errors, text),
                    };
                    let line = format!("{}: {text}", self.tool_arg_injection.binding_place(tool, Some(argument)));
                    if !list.contains(&line) {
                        list.push(line);
                    }
                }
            }
        }
        for argument in self.tool_arg_injection.global() {
            let has = |one: &&BindableTool<'_>| {
                one.schema.as_ref().is_none_or(|schema| accepts(schema, argument) == Ok(None))
            };
            if !tools.iter().filter(|one| one.is_offered).any(|one| has(&one)) {
                let why = "no tool of this agent has an argument of this name";
                let place = self.tool_arg_injection.binding_place("_global", Some(argument));
                faults.warnings.push(format!("{place}: {why}"));
            }
        }
        for one in tools.iter().filter(|one| one.is_offered) {
            let Some(schema) = &one.schema else { continue };
            let names: Vec<&str> = one.names.iter().map(String::as_str).collect();
            if !self.tool_arg_injection.is_auto(&names) {
                continue;
            }
            for (argument, text) in auto::match_arguments(schema, &keys).ambiguous {
                if !self.tool_arg_injection.binds(&names, &argument) {
                    faults.errors.push(format!("`contextMapping`: tool `{}`: {text}", names[0]));
                }
            }
        }
        faults
    }

    /// Whether the model can reach operations that it isn't offered.
    fn finds_operations(&self, catalog: &(impl OperationDirectory + ?Sized)) -> bool {
        let finds = |entry: &ToolEntry| {
            let path = entry.operation();
            path == Some("more_tools")
                || path.and_then(|path| catalog.find(path)).is_some_and(|found| found.path == RUN)
        };
        self.default_tools || self.tools.iter().any(finds)
    }

    fn bindable_tools<'a>(
        &'a self,
        catalog: &(impl OperationDirectory + ?Sized),
        resources: &'a [ResourceTool],
    ) -> Vec<BindableTool<'a>> {
        let mut all = Vec::new();
        for entry in &self.tools {
            if matches!(entry, ToolEntry::Path(name) if HARNESS_TOOLS.contains(&name.as_str())) {
                continue;
            }
            let name = entry.tool_name();
            all.push(match (entry.operation(), entry.operation().and_then(|path| catalog.find(path)), entry) {
                (_, Some(found), _) => BindableTool {
                    names: binding_names(self, Some(&name), &found),
                    schema: Some(Cow::Owned(found.input)),
                    is_offered: true,
                },
                (Some(path), None, _) => {
                    // A path of no operation gets its warning with the tools.
                    let schema = (!is_stored_operation(path)).then_some(Cow::Owned(Value::Bool(true)));
                    BindableTool { names: vec![name, path.to_owned()], schema, is_offered: true }
                }
                (None, None, ToolEntry::Named(tool)) => {
                    let schema =
                        tool.input.as_ref().map_or_else(|| Cow::Owned(json!({"type": "object"})), Cow::Borrowed);
                    BindableTool { names: vec![name], schema: Some(schema), is_offered: true }
                }
                (None, None, ToolEntry::Path(_)) => continue,
            });
        }
        let offered = |tool: &'a ResourceTool| BindableTool {
            names: vec![tool.spec.name.clone()],
            schema: Some(Cow::Borrowed(&tool.spec.schema)),
            is_offered: true,
        };
        all.extend(resources.iter().map(offered));
        all.extend(catalog.list_operations().into_iter().map(|found| BindableTool {
            names: binding_names(self, None, &found),
            is_offered: self.default_tools && DEFAULT_TOOLS.contains(&found.path.as_str()),
            schema: Some(Cow::Owned(found.input)),
        }));
        all
    }
}

/// Explains a binding of a tool that doesn't exist.
fn explain_unknown_binding(tool: &str, tools: &[BindableTool<'_>]) -> String {
    if HARNESS_TOOLS.contains(&tool) {
        return format!("the arguments of the harness's tool `{tool}` can't be bound");
    }
    let offered = tools.iter().filter(|one| one.is_offered).flat_map(|one| &one.names);
    let all = tools.iter().flat_map(|one| &one.names);
    let names: Vec<&str> = offered.chain(all).map(String::as_str).collect();
    let hint = did_you_mean(tool, &names);
    format!(
        "there is no tool and no operation `{}`{hint}; expected a tool's name, or the path of its operation",
        quote_foreign(tool)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::ToolSpec;

    fn described(path: &str, input: Value) -> OperationInfo {
        OperationInfo {
            requested_path: path.into(),
            path: path.into(),
            description: String::new(),
            input,
            entities: Vec::new(),
            aliases: Vec::new(),
        }
    }

    fn catalog() -> [OperationInfo; 3] {
        let mail = json!({
            "type": "object", "additionalProperties": false, "properties": {"to": {"type": "string"}, "user_id": {"type": "string"}},
            "anyOf": [{"properties": {"from": {}}}]
        });
        let open = json!({"type": "object", "properties": {"from": {}}, "additionalProperties": true});
        [
            described("v/ops/mail/send", mail),
            described("v/ops/mail/open", open),
            described(RUN, json!({"type": "object", "properties": {"operation": {}, "input": {}}})),
        ]
    }

    fn check(more: &Value, errors: &[&str], warnings: &[&str]) {
        let mut config = json!({
            "model": {"provider": "scripted", "name": "echo"}, "defaultTools": false,
            "tools": [
                {"operation": "v/ops/mail/send", "name": "send_email"}, "mail:open", "o/pin",
                {"name": "note", "description": "d", "input": {"type": "object", "properties": {"text": {}}}},
                {"delegate": "helper"}
            ]
        });
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let config = AgentConfig::parse(&config).unwrap();
        let spec = ToolSpec {
            name: "memory_write".into(),
            description: String::new(),
            schema: json!({"type": "object", "properties": {"content": {}}}),
        };
        let target = ToolTarget::Resource { resource: "memory".into(), tool: "write".into() };
        let found = config.binding_faults(&catalog()[..], &[ResourceTool { target, spec }]);
        for (found, expected) in [(&found.errors, errors), (&found.warnings, warnings)] {
            assert_eq!(found.len(), expected.len(), "{more}: {found:?}");
            for (found, expected) in found.iter().zip(expected) {
                assert!(found.contains(expected), "{more}: {found}");
            }
        }
    }

    #[test]
    fn each_binding_without_a_call_is_an_error_with_its_place() {
        let bind = |tool: &str, argument: &str| json!({"toolArgInjection": {tool: {argument: "k"}}});
        for (tool, argument, errors, warnings) in [
            ("send_email", "to", vec![], vec![]),
            ("v/ops/mail/send", "from", vec![], vec![]),
            ("mail:send", "to", vec![], vec![]),
            ("mail_send", "to", vec![], vec![]),
            ("memory_write", "content", vec![], vec![]),
            ("note", "text", vec![], vec![]),
            (
                "sendEmail",
                "to",
                vec![
                    "`toolArgInjection.sendEmail`: there is no tool and no operation `sendEmail`, did you mean `send_email`",
                ],
                vec![],
            ),
            (
                "send_email",
                "frm",
                vec![
                    "`toolArgInjection.send_email.frm`: `toolArgInjection` binds argument `frm`, which the operation doesn't name, did you mean `from`",
                ],
                vec![],
            ),
            ("note", "txt", vec!["did you mean `text`"], vec![]),
            ("memory_write", "value", vec!["doesn't name"], vec![]),
            (
                "complete_task",
                "result",
                vec!["the arguments of the harness's tool `complete_task` can't be bound"],
                vec![],
            ),
            ("mail_open", "frm", vec![], vec!["did you mean `from`"]),
            ("helper", "anything", vec![], vec!["doesn't name"]),
            ("o/pin", "to", vec![], vec!["its operation is known in a turn only"]),
            ("job_run", "input", vec![], vec!["`job_run` is not offered to this agent"]),
        ] {
            check(&bind(tool, argument), &errors, &warnings);
        }
        let mut reached = bind("v/ops/mail/send", "to");
        reached["tools"] = json!(["more_tools"]);
        check(&reached, &[], &[]);
    }

    #[test]
    fn ambiguous_auto_keys_are_an_error_until_one_is_bound() {
        let rows = json!({"user_id": "_auto", "uid": "_auto", "to": "_auto"});
        check(
            &json!({"contextMapping": rows}),
            &["tool `send_email`: `_auto` leaves argument `user_id` to the model"],
            &[],
        );
        check(&json!({"contextMapping": rows, "toolArgInjection": {"send_email": {"user_id": "uid"}}}), &[], &[]);
        check(&json!({"contextMapping": rows, "toolArgInjection": {"send_email": {"_auto": false}}}), &[], &[]);
        check(&json!({"contextMapping": {"user_id": "_auto"}}), &[], &[]);
    }

    #[test]
    fn what_is_bound_in_all_tools_is_bound_where_it_is_named() {
        check(&json!({"toolArgInjection": {"_global": {"user_id": "user_id"}}}), &[], &[]);
        let none = "`toolArgInjection._global.uesr_id`: no tool of this agent has an argument of this name";
        let known = json!(["mail:send"]);
        check(&json!({"tools": known, "toolArgInjection": {"_global": {"uesr_id": "user_id"}}}), &[], &[none]);
        let constant = json!({"contextMapping": {"constants": {"none": {"a": 1}}}});
        let place = "`contextMapping.constants.none` or `toolArgInjection.none`";
        let none =
            format!("{place}: there is no tool and no operation `none`, did you mean `note`; expected a tool's name");
        check(&constant, &[&none], &[]);
    }
}
