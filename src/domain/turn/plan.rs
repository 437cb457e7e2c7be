//! Plans the calls of a reply: target, arguments, and the sections that they hand on.

use crate::call::CallRefusal;
use crate::call::Outcome;
use crate::call::PlannedCall;
use crate::call::PublishedVersion;
use crate::call::ResolvedCall;
use crate::call::ToolTarget;
use crate::call::innermost_operation;
use crate::chat::{Arguments, ToolCall};
use crate::decode::{self, Code};
use crate::limits::{HAND_OFFS_BYTES, SCHEMA_ERRORS};
use crate::nearest::did_you_mean;
use crate::schema::{arguments_error, find_misfits, veiled_misfits};
use crate::scope::ToolContext;
use crate::secret::hide::{self, HIDDEN};
use crate::tools::ToolTable;
use crate::tools::guard::{GuardDecision, RUNNERS};
use crate::turn::scoped::{ChosenSections, Sections, take_scope_choice};
use crate::values::inject::Injection;
use crate::visible::quote_foreign;
use serde_json::{Value, json};

/// Plans the calls of a reply. Sections that they hand on are stored in the record, so their bytes are limited.
pub(super) fn calls(said: &mut [ToolCall], tools: &ToolTable, sections: &Sections) -> Vec<PlannedCall> {
    let mut left = HAND_OFFS_BYTES;
    let bounded = |call: PlannedCall| {
        let bytes: usize = call.scoped.iter().map(|scoped| scoped.bytes).sum();
        if let Some(rest) = left.checked_sub(bytes) {
            left = rest;
            return call;
        }
        let reason = format!(
            "the calls of one reply hand on at most {HAND_OFFS_BYTES} bytes of sections, this one would be over it; \
             make it in your next turn"
        );
        PlannedCall { what: Err(CallRefusal::new(Outcome::Limit, reason)), scoped: Vec::new(), ..call }
    };
    said.iter_mut().map(|call| plan_call(call, tools, sections)).map(bounded).collect()
}

/// Refuses the last call of a reply that its token limit cut off, if its arguments are incomplete.
pub(super) fn without_incomplete_call(mut calls: Vec<PlannedCall>, said: &[ToolCall]) -> Vec<PlannedCall> {
    let is_half = said.last().is_some_and(|call| matches!(call.arguments, Arguments::Malformed(_)));
    if let Some(last) = calls.last_mut().filter(|_| is_half) {
        let text = format!(
            "the limit of tokens of a reply cut this call of `{}` off before its end: it was not made; make it again \
             with shorter arguments, or in parts",
            last.tool
        );
        last.what = Err(CallRefusal::new(Outcome::Limit, text));
    }
    calls
}

/// Plans one call. Values for arguments that the runtime fills in are removed from the call: the model's values never
/// count and don't stay in the transcript. Everything else stays as it was written. Keys that begin with `_` are no
/// arguments. If a call runs another operation by its path, and guards or bindings hold for that operation, the call
/// becomes a call of it.
pub(super) fn plan_call(call: &mut ToolCall, tools: &ToolTable, sections: &Sections) -> PlannedCall {
    let (id, tool) = (call.id.clone(), call.name.clone());
    let mut injection = tools.injection(&call.name).cloned().unwrap_or_default();
    let target = tools.target(&call.name).cloned();
    let reach = tools.reach(&call.name).cloned().unwrap_or_default();
    let deep = match &call.arguments {
        Arguments::Json(arguments) => decode::check(arguments).err(),
        Arguments::Malformed(_) => None,
    };
    if let Some(wrong) = deep {
        // Nothing of it is stored, because it would come back in every prompt and record.
        call.arguments = Arguments::Malformed(String::new());
        let what = Err(CallRefusal::arguments(format!("the arguments of `{tool}` can't be taken: {wrong}")));
        return PlannedCall { id, tool, what, injection, instance: None, scoped: Vec::new(), published: None };
    }
    let (what, chosen) = match (target, &mut call.arguments) {
        (None, _) => {
            let hint = did_you_mean(&call.name, &tools.names());
            (
                Err(CallRefusal::new(Outcome::Unknown, format!("unknown tool `{}`{hint}", quote_foreign(&call.name)))),
                ChosenSections::default(),
            )
        }
        (Some(_), Arguments::Malformed(text)) => {
            let text = unreadable_error(text, &call.name, tools);
            (Err(CallRefusal::arguments(text)), ChosenSections::default())
        }
        (Some(target), Arguments::Json(written)) => {
            let reserved = injection.find_reserved(written).map(|name| reserved_error(&call.name, name));
            injection.strip(written);
            let mut arguments = written.clone();
            let path = if let ToolTarget::Operation(path) = &target { Some(path.as_str()) } else { None };
            let said = take_scope_choice(path, &mut arguments);
            let chosen = reserved.map_or_else(|| sections.choose(&call.name, &reach, &said), Err);
            let planned = chosen.and_then(|chosen| {
                check_input(&call.name, &reach, &arguments, &injection)?;
                let what = resolve(target, arguments, written, tools, &mut injection, &chosen)?;
                Ok((what, chosen))
            });
            match planned {
                Ok((what, chosen)) => (Ok(what), chosen),
                Err(unmade) => (Err(unmade), ChosenSections::default()),
            }
        }
    };
    let ChosenSections { requested: _, instance, mut scoped } = chosen;
    if matches!(what, Ok(ResolvedCall { target: ToolTarget::Latent(_), .. })) {
        scoped.clear();
    }
    let published = published_operation(&what, &injection, tools);
    PlannedCall { id, tool, what, injection, instance, scoped, published }
}

/// Returns the published operation that a call runs, in the version that the turn was offered.
fn published_operation(
    what: &Result<ResolvedCall, CallRefusal>,
    injection: &Injection,
    tools: &ToolTable,
) -> Option<PublishedVersion> {
    let Ok(ResolvedCall { target: ToolTarget::Operation(path), arguments }) = what else { return None };
    if tools.versions.is_empty() {
        return None;
    }
    // A binding may say which operation is run.
    let path = match injection.apply(arguments.clone()) {
        Ok(arguments) => innermost_operation(path, &arguments),
        Err(_) => innermost_operation(path, arguments),
    };
    let version = tools.versions.get(&path)?.clone();
    Some(PublishedVersion { path, version })
}

/// Returns the refusal of an argument whose value a model doesn't choose: without it the call would be another one.
fn reserved_error(tool: &str, name: &str) -> CallRefusal {
    CallRefusal::arguments(format!(
        "argument `{name}` of `{tool}` is given by trusted code alone; leave it out (the agent's author binds it by \
         `toolArgInjection`)"
    ))
}

/// Returns the error for arguments that can't be read as JSON within the venue's limits.
fn unreadable_error(text: &str, tool: &str, tools: &ToolTable) -> String {
    let shown = hide::shown_malformed(text, tools.specs.iter().find(|spec| spec.name == tool));
    let (rule, why) = match decode::lenient_json(text.as_bytes()) {
        // The error quotes numbers, which are hidden where the text is hidden.
        Err(wrong) if wrong.fact.code == Code::Limit && shown == HIDDEN => {
            ("can't be taken", wrong.without_value().to_string())
        }
        Err(wrong) if wrong.fact.code == Code::Limit => ("can't be taken", wrong.to_string()),
        Err(wrong) => ("are not JSON", wrong.fact.reason),
        Ok(_) => ("are not JSON", String::new()),
    };
    format!("the arguments of `{tool}` {rule}: {why}: {shown}")
}

fn resolve(
    target: ToolTarget,
    arguments: Value,
    written: &mut Value,
    tools: &ToolTable,
    injection: &mut Injection,
    chosen: &ChosenSections,
) -> Result<ResolvedCall, CallRefusal> {
    match target {
        ToolTarget::Operation(path) if RUNNERS.contains(&path.as_str()) && !tools.guards.is_empty() => {
            match tools.guards.check_run(&path, &arguments, written, injection) {
                GuardDecision::Free => Ok(ResolvedCall { target: ToolTarget::Operation(path), arguments }),
                GuardDecision::Refused(unmade) => Err(unmade),
                GuardDecision::Bound(path, arguments, inner) => {
                    *injection = *inner;
                    Ok(ResolvedCall { target: ToolTarget::Operation(path), arguments })
                }
            }
        }
        ToolTarget::Latent(_) => Ok(ResolvedCall { target: ToolTarget::Latent(chosen.requested.clone()), arguments }),
        target => Ok(ResolvedCall { target, arguments }),
    }
}

/// Checks the arguments of a call against the schema in the tool's entry or pin.
fn check_input(tool: &str, reach: &ToolContext, arguments: &Value, injection: &Injection) -> Result<(), CallRefusal> {
    let Some(schema) = &reach.input else { return Ok(()) };
    let nothing = json!({});
    let arguments = if arguments.is_null() { &nothing } else { arguments };
    let reduced = if injection.changes_schema() { injection.reduce(schema) } else { schema.clone() };
    let found = if hide::has_hidden(schema) {
        veiled_misfits(&reduced, arguments, SCHEMA_ERRORS)
    } else {
        find_misfits(&reduced, arguments, SCHEMA_ERRORS).map(|(found, _)| found)
    };
    let found = found.map_err(|error| CallRefusal::arguments(format!("the schema of `{tool}`: {error}")))?;
    arguments_error(tool, &found).map_or(Ok(()), |text| Err(CallRefusal::arguments(text)))
}
