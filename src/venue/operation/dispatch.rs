//! Dispatch of one call, in this order: resolve, validate, authorise, run with a time limit.

use super::pin::PinReader;
use super::{
    Caller, CatalogView, Effect, Invocation, Need, OpError, OpOutput, ParsedCall, RegisteredOperation, copies, fill,
};
use crate::domain::agent::AgentConfig;
use crate::domain::agent::tool::tool_name;
use crate::domain::decode::{self, Code, DataError};
use crate::domain::ids::JobId;
use crate::domain::lattice::address::localise;
use crate::domain::lattice::catalog::{RUN, catalog_path};
use crate::domain::limits::JOB_DEPTH;
use crate::domain::mcp::name::{TOOLS_CALL, called_tool};
use crate::domain::nearest::did_you_mean;
use crate::domain::reader::JobVisibility;
use crate::domain::schema::{self, make_whole};
use crate::domain::secret::{hide, reference};
use crate::domain::values::inject::{Injection, trusted_arguments};
use crate::domain::visible::{is_secret_name, quote_foreign};
use crate::venue::Venue;
use crate::venue::jobs;
use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// An operation that calls another server keeps its own time limit, because it knows whether its request has left. If
/// it doesn't, it is stopped so much later.
const OUTSIDE_GRACE: Duration = Duration::from_secs(5);

/// Why a call isn't made with the text that records hold in place of a hidden argument.
const LOST_VALUE: &str =
    "a hidden argument has only the text `[hidden]`, because records don't keep its value; send it again";

/// Why Covia's call of a tool names none.
const NO_TOOL: &str = "`server`: expected the name of a server that the agent or the venue names, with `toolName`, the \
                       name of a tool; a URL and a token belong into the server's declaration";

/// Finds the operation of `path`; the error proposes a similar one.
pub fn find_operation<'c>(catalog: &'c CatalogView, path: &str) -> Result<&'c Arc<RegisteredOperation>, OpError> {
    catalog.resolve(path).ok_or_else(|| {
        let known: Vec<&str> = catalog.operations().map(|found| &*found.spec.path).collect();
        let hint = alternative_to(path).map_or_else(|| did_you_mean(path, &known), str::to_owned);
        OpError::NotFound(format!("no operation `{}`{hint}", quote_foreign(path)))
    })
}

/// Returns what to use instead of operations that Covia's clients know and this venue doesn't have.
fn alternative_to(path: &str) -> Option<&'static str> {
    catalog_path(path).starts_with("v/ops/ucan/").then_some(
        ": this venue makes and looks into no tokens, `trellis token` does; present a token, or a chain of them, as `Authorization`",
    )
}

/// Returns the final arguments of a call. What the model sent is validated against the schema that it was shown; then
/// bound values are filled in, and the whole is validated. No error shows a bound value.
pub fn inject(catalog: &CatalogView, path: &str, arguments: Value, injection: &Injection) -> Result<Value, OpError> {
    if injection.is_empty() {
        return Ok(arguments);
    }
    let found = find_operation(catalog, path)?;
    let mut arguments = if arguments.is_null() { Value::Object(serde_json::Map::new()) } else { arguments };
    if !arguments.is_object() {
        return Err(OpError::Invalid(format!("expected the arguments of `{}` as a map", found.spec.path)));
    }
    injection.strip(&mut arguments);
    let reduced = schema::compile(&injection.reduce(&found.spec.input));
    let reduced = reduced.map_err(|error| OpError::Failed(format!("the schema of `{}`: {error}", found.spec.path)))?;
    validate_arguments(found, &reduced, &arguments, false)?;
    let arguments = injection.apply(arguments).map_err(|unresolved| OpError::Failed(unresolved.to_string()))?;
    validate_arguments(found, &*found.validator()?, &arguments, true)?;
    Ok(arguments)
}

/// A call after aliases and `job/run` are resolved. Authority and effect of a call are those of this operation,
/// whatever name it was called by.
#[derive(Clone)]
pub struct ResolvedOperation {
    /// The operation that runs; it may be withdrawn meanwhile.
    pub found: Arc<RegisteredOperation>,
    /// Valid arguments of the operation.
    pub arguments: Value,
    /// The path in the arguments of `job/run`, if that was called.
    pub inner: Option<String>,
    /// Whether errors show no argument.
    masked: bool,
}

impl ResolvedOperation {
    /// Returns what a call with these arguments needs.
    ///
    /// # Errors
    /// The arguments are invalid in a way that the schema can't check.
    pub fn needs(&self) -> Result<Vec<Need>, OpError> {
        parse_arguments(&self.found, self.arguments.clone(), self.masked)?.needs()
    }

    /// Whether a call with these arguments sends something to a server outside the venue.
    pub fn goes_outside(&self) -> bool {
        self.found.parse(self.arguments.clone()).is_ok_and(|parsed| parsed.destination().is_some())
    }
}

fn parse_arguments(found: &RegisteredOperation, arguments: Value, mask: bool) -> Result<Box<dyn ParsedCall>, OpError> {
    found.parse(arguments).map_err(|error| match error {
        OpError::Arguments { path, wrong } if mask => {
            OpError::Arguments { path, wrong: wrong.into_iter().map(DataError::without_value).collect() }
        }
        error => error,
    })
}

/// Resolves a call to the operation that it runs and its valid arguments. With `mask` no error shows an argument.
pub fn resolve_call(
    catalog: &CatalogView,
    path: &str,
    arguments: Value,
    mask: bool,
) -> Result<ResolvedOperation, OpError> {
    let mut found = find_operation(catalog, path)?;
    let (mut arguments, mut named) = (arguments, None);
    for _ in 0..=JOB_DEPTH {
        if arguments.is_null() {
            arguments = Value::Object(serde_json::Map::new());
        }
        let is_masked = mask || hide::has_hidden(&found.spec.input);
        validate_arguments(found, &*found.validator()?, &arguments, is_masked)?;
        make_whole(&found.spec.input, &mut arguments).map_err(|wrong| broken_rule(found, wrong.to_string()))?;
        reference::spell_out(&found.spec.input, &mut arguments);
        let path = match &*found.spec.path {
            TOOLS_CALL => called_tool(&arguments).ok_or_else(|| broken_rule(found, NO_TOOL.to_owned()))?,
            RUN => {
                catalog.check_venue(arguments.get("venue"))?;
                arguments["operation"].as_str().unwrap_or_default().to_owned()
            }
            _ => {
                let found = Arc::clone(found);
                return Ok(ResolvedOperation { found, arguments, inner: named, masked: mask });
            }
        };
        let key = if *found.spec.path == *RUN { "input" } else { "arguments" };
        let input = arguments.get_mut(key).map(Value::take).unwrap_or_default();
        found = find_operation(catalog, &path)?;
        (arguments, named) = (input, Some(path));
        // An operation that is called by its path gets the arguments of its caller, which may be a model.
        if let Some(name) = trusted_arguments(&found.spec.input).into_iter().find(|name| arguments.get(name).is_some())
        {
            return Err(OpError::Invalid(format!(
                "argument `{name}` of `{}` can't be given this way",
                found.spec.path
            )));
        }
    }
    Err(OpError::Invalid(format!("`v/ops/job/run` is nested more than {JOB_DEPTH} times, call the operation itself")))
}

/// A call that its caller may make.
pub struct PermittedCall {
    /// The operation that runs.
    pub found: Arc<RegisteredOperation>,
    /// The parsed call.
    pub parsed: Box<dyn ParsedCall>,
    inner: Option<String>,
    needs: Vec<Need>,
}

/// Resolves a call, and checks that it is valid and that its caller may make it. A refusal shows `named`.
pub async fn permit_call(
    venue: &Venue,
    catalog: &CatalogView,
    caller: &Caller,
    named: &str,
    path: &str,
    arguments: Value,
) -> Result<PermittedCall, OpError> {
    let mut arguments = arguments;
    localise(&caller.owner, &mut arguments).map_err(|error| OpError::Denied(error.to_string()))?;
    permit_resolved(venue, caller, named, resolve_call(catalog, path, arguments, false)?).await
}

/// Checks that a caller may make a resolved call.
async fn permit_resolved(
    venue: &Venue,
    caller: &Caller,
    named: &str,
    resolved: ResolvedOperation,
) -> Result<PermittedCall, OpError> {
    let ResolvedOperation { found, arguments, inner, masked } = resolved;
    let parsed = parse_arguments(&found, arguments, masked)?;
    let needs = parsed.needs()?;
    for need in &needs {
        let permitted = caller.authority.permits(need.ability, &need.resource);
        if let Err(denied) = permitted
            && !submitted_by_caller(venue, caller, parsed.reads_job()).await?
        {
            return Err(OpError::Denied(denied.model_text(inner.as_deref().unwrap_or(named))));
        }
    }
    Ok(PermittedCall { found, parsed, inner, needs })
}

/// Whether the caller submitted the job that a call reads.
async fn submitted_by_caller(venue: &Venue, caller: &Caller, job: Option<JobId>) -> Result<bool, OpError> {
    let Some(job) = job else { return Ok(false) };
    let head = jobs::head(venue, &caller.owner, &job).await?;
    Ok(head.is_some_and(|head| caller.reader().visibility(&head) == JobVisibility::Whole))
}

/// Resolves a call and runs its operation.
pub async fn invoke(call: &Invocation<'_>, path: &str, arguments: Value) -> Result<OpOutput, OpError> {
    let (caller, mut arguments) = (call.caller, arguments);
    let pins = PinReader {
        venue: call.venue,
        catalog: call.catalog,
        owner: &caller.owner,
        authority: &caller.authority,
        workspace: call.workspace,
    };
    let path = &pins.resolve_pin(path, &arguments).await?;
    pins.resolve_inner(path, &mut arguments).await?;
    let permitted = permit_call(call.venue, call.catalog, call.caller, call.named, path, arguments).await?;
    run_permitted(call, permitted).await
}

/// Runs the operation of a call whose pins, addresses and arguments are resolved, if the caller may make it.
pub async fn invoke_resolved(call: &Invocation<'_>, resolved: ResolvedOperation) -> Result<OpOutput, OpError> {
    let permitted = permit_resolved(call.venue, call.caller, call.named, resolved).await?;
    run_permitted(call, permitted).await
}

async fn run_permitted(call: &Invocation<'_>, permitted: PermittedCall) -> Result<OpOutput, OpError> {
    let PermittedCall { found, mut parsed, inner, needs } = permitted;
    let call = &Invocation { named: inner.as_deref().unwrap_or(call.named), ..call.clone() };
    // From here on the arguments contain secrets: they are shown to nobody, and the result is masked.
    let mask = fill::fill_secrets(call, &mut *parsed).await?;
    let limit = call.time_limit();
    let patience = if parsed.destination().is_some() { limit + OUTSIDE_GRACE } else { limit };
    let begun = call.reads.count();
    let late = |_| {
        let text = format!("operation `{}` took longer than {} s", found.spec.path, limit.as_secs_f64());
        Err(match found.spec.effect {
            Effect::Once => OpError::OutcomeUnknown(text),
            Effect::Read | Effect::Buffered | Effect::Idempotent => OpError::Timeout(text),
        })
    };
    let result = tokio::time::timeout(patience, parsed.run(call)).await.unwrap_or_else(late);
    call.reads.note_end(begun, &found.spec.path, &needs, &call.caller.authority, result.is_ok());
    if begun == 0 && result.is_ok() {
        copies::record_copies(call).await;
    }
    let output = fill::mask_result(&mask, result)?;
    Ok(OpOutput { value: decode::limit_depth(output.value), ..output })
}

/// Replaces hidden values in the arguments of a call, so that they may be recorded and shown; also where another
/// operation runs the operation.
pub fn hide(catalog: &CatalogView, path: &str, arguments: &mut Value) {
    let (mut path, mut arguments) = (path.to_owned(), arguments);
    for _ in 0..=JOB_DEPTH {
        // Who calls a tool that isn't offered may mean an operation all the same.
        let found = catalog.resolve(&path).or_else(|| catalog.find_published_tool(&tool_name(&path)));
        let Some(found) = found else { return };
        if *found.spec.path == *TOOLS_CALL {
            let Some(tool) = called_tool(arguments) else { return };
            path = tool;
            let Some(input) = arguments.get_mut("arguments") else { return };
            arguments = input;
            continue;
        }
        if *found.spec.path != *RUN {
            return hide::hide(&found.spec.input, arguments);
        }
        let Some(inner) = arguments["operation"].as_str() else { return };
        path = inner.to_owned();
        let Some(input) = arguments.get_mut("input") else { return };
        arguments = input;
    }
}

/// Whether the arguments of a call have values that [`hide()`] would replace.
pub fn hides(catalog: &CatalogView, path: &str, arguments: &Value) -> bool {
    let mut kept = arguments.clone();
    hide(catalog, path, &mut kept);
    kept != *arguments
}

fn validate_arguments(
    found: &RegisteredOperation,
    validator: &jsonschema::Validator,
    arguments: &Value,
    mask: bool,
) -> Result<(), OpError> {
    let mut steps = 0;
    // Others write the schemas of published operations, and references multiply the work of a check.
    if found.version.is_some() {
        steps = schema::cost(&found.spec.input, arguments).map_err(|error| broken_rule(found, error.to_string()))?;
        // A worker that continues with a recorded call has only the record of it.
        if hide::has_lost_value(&found.spec.input, arguments) {
            return Err(broken_rule(found, LOST_VALUE.to_owned()));
        }
    }
    let (errors, _) = schema::first_errors(validator, arguments, steps, 5);
    let wrong: Vec<DataError> = errors.iter().map(|error| describe_misfit(&found.spec.input, error, mask)).collect();
    if wrong.is_empty() { Ok(()) } else { Err(OpError::Arguments { path: Arc::clone(&found.spec.path), wrong }) }
}

/// Makes the error of arguments that break a rule as a whole.
fn broken_rule(found: &RegisteredOperation, rule: String) -> OpError {
    OpError::Arguments { path: Arc::clone(&found.spec.path), wrong: vec![DataError::root(Code::Rule, rule)] }
}

fn describe_misfit(schema: &Value, error: &ValidationError<'_>, mask: bool) -> DataError {
    let code = match error.kind() {
        ValidationErrorKind::Type { .. } | ValidationErrorKind::Enum { .. } | ValidationErrorKind::Constant { .. } => {
            Code::Type
        }
        ValidationErrorKind::Required { .. } => Code::Missing,
        ValidationErrorKind::AdditionalProperties { .. } => Code::Unknown,
        _ => Code::Rule,
    };
    let pointer = error.instance_path().to_string();
    let shown = match error.instance().as_ref() {
        _ if mask || pointer.split('/').any(is_secret_name) => "value".to_owned(),
        Value::Object(_) => "a map".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::String(text) => format!("\"{}\"", quote_foreign(text)),
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_)) => plain.to_string(),
    };
    let text = match error.kind() {
        ValidationErrorKind::Enum { options } => describe_choice(&shown, options),
        ValidationErrorKind::AdditionalProperties { unexpected } if pointer.is_empty() => {
            format!("{}{}", error.masked_with(shown), describe_unexpected(&schema["properties"], unexpected))
        }
        _ => error.masked_with(shown).to_string(),
    };
    DataError::at_pointer(&pointer, code, text)
}

/// Returns what may be meant by the first of the keys that an operation doesn't know: a key of an agent's configuration
/// for `config`, or the nearest known one.
fn describe_unexpected(known: &Value, unexpected: &[String]) -> String {
    let (Some(known), Some(key)) = (known.as_object(), unexpected.first()) else { return String::new() };
    if known.contains_key("agentId") && known.contains_key("config") && AgentConfig::has_key(key) {
        return format!("; `{key}` is a key of the agent's configuration, put it into `config`");
    }
    let names: Vec<&str> = known.keys().map(String::as_str).collect();
    did_you_mean(key, &names)
}

/// Says which values are allowed: all of them, where the library names the first two of many.
fn describe_choice(shown: &str, options: &Value) -> String {
    let names: Vec<String> = options.as_array().into_iter().flatten().map(Value::to_string).collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => {
            format!("{shown} is not one of {} or {last}", others.join(", "))
        }
        _ => format!("{shown} is not one of {}", names.concat()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::values::inject::UnresolvedArgument;

    use serde_json::json;

    #[test]
    fn a_misfit_of_a_choice_names_all_that_is_allowed() {
        for (options, expected) in [
            (json!(["a"]), r#""x" is not one of "a""#),
            (json!(["a", 1]), r#""x" is not one of "a" or 1"#),
            (json!(["a", "b", "c", "d", "e"]), r#""x" is not one of "a", "b", "c", "d" or "e""#),
        ] {
            assert_eq!(describe_choice("\"x\"", &options), expected);
        }
    }

    #[test]
    fn an_unexpected_key_is_told_with_its_place_or_the_nearest_name() {
        let catalog = crate::ops::catalog(false).compiled_view();
        for (path, arguments, expected) in [
            (
                "v/ops/agent/update",
                json!({"agentId": "a", "limits": {}}),
                "unexpected); `limits` is a key of the agent's",
            ),
            ("v/ops/agent/create", json!({"agentId": "a", "systemPrompt": "x"}), "put it into `config`"),
            ("v/ops/agent/update", json!({"agentId": "a", "confgi": {}}), "unexpected), did you mean `config`"),
            ("v/ops/lattice/read", json!({"path": "w/x", "limits": {}}), "('limits' was unexpected)"),
            ("v/ops/lattice/read", json!({"path": "w/x", "maxsize": 1}), "did you mean `maxSize`"),
        ] {
            let found = find_operation(&catalog, path).unwrap();
            let error = validate_arguments(found, &found.validator().unwrap(), &arguments, false).unwrap_err();
            assert!(error.to_string().contains(expected), "{path} {arguments}: {error}");
        }
    }

    fn check_inject(injected: &Value, unresolved: bool, arguments: Value, expected: Result<Value, &str>) {
        let Value::Object(values) = injected.clone() else { panic!("expected a map") };
        let missing = UnresolvedArgument { argument: "path".into(), key: "target".into() };
        let unresolved = if unresolved { vec![missing] } else { Vec::new() };
        let injection = Injection { values, unresolved, ..Injection::default() };
        let shown = arguments.to_string();
        let done = inject(&crate::ops::catalog(false).compiled_view(), "v/ops/lattice/write", arguments, &injection);
        match (done.map_err(|error| error.to_string()), expected) {
            (Ok(done), Ok(expected)) => assert_eq!(done, expected, "{shown}"),
            (Err(error), Err(part)) => {
                assert!(error.contains(part) && !error.contains("s3cret"), "{shown}: {error}");
            }
            (done, expected) => panic!("{shown}: expected {expected:?}, got {done:?}"),
        }
    }

    #[test]
    fn arguments_are_validated_before_and_after_injection() {
        let path = json!({"path": "w/s3cret"});
        let wrong = json!({"path": {"s3cret": 1}});
        let ok = json!({"path": "w/s3cret", "value": 1});
        check_inject(&path, false, json!({"value": 1}), Ok(ok.clone()));
        check_inject(&path, false, json!({"value": 1, "path": "w/evil"}), Ok(ok));
        check_inject(&path, false, Value::Null, Err("\"value\" is a required property"));
        check_inject(&path, false, json!({"value": 1, "vlaue": 2}), Err("'vlaue' was unexpected"));
        check_inject(&path, false, json!([1]), Err("as a map"));
        check_inject(&wrong, false, json!({"value": 1}), Err("at `/path`"));
        check_inject(
            &json!({}),
            true,
            json!({"value": 1}),
            Err("INJECT_UNRESOLVED: argument `path` is bound to `target`"),
        );
        // The model's own mistake is said first: it can mend that.
        check_inject(&json!({}), true, json!({}), Err("\"value\" is a required property"));
    }
}
