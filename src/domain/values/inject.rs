//! `toolArgInjection`: arguments that the runtime fills in and the model never sees.

use crate::lattice::catalog::catalog_path;
use crate::lattice::value::type_name;
use crate::values::auto;
use crate::values::mapping::{MappingError, RowSource, check_key};
use crate::values::{Resolver, Tier};
use crate::visible::quote_foreign;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

mod argument;
mod reduce;
mod refusal;
#[cfg(test)]
mod tests;

pub use argument::{UnknownArgumentError, accepts};

/// Number of bindings of one configuration at most: each turn reads every one.
const BINDINGS: usize = 256;

/// Name in place of a tool: arguments of all tools that have them.
const ALL_TOOLS: &str = "_global";

/// Name in place of an argument: whether `_auto` rows fill in arguments of the tool.
const AUTO: &str = "_auto";

/// Bindings `{tool: {argument: key}}`. A tool is named as the model sees it or by its operation's path; any source of a
/// mapping row may replace a key. `{_global: {argument: key}}` applies to all tools that have the argument, and `{tool:
/// {_auto: false}}` excludes a tool from `_auto` rows.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub struct Bindings {
    tools: BTreeMap<String, BTreeMap<String, String>>,
    global: BTreeMap<String, String>,
    /// Tools that `_auto` rows don't apply to.
    manual: BTreeSet<String>,
}

impl TryFrom<Value> for Bindings {
    type Error = MappingError;

    /// Reads the stored form, also that of older builds, which knew no `_auto` here.
    fn try_from(mut value: Value) -> Result<Self, MappingError> {
        for (_, arguments) in value.as_object_mut().into_iter().flatten() {
            if let Some(arguments) = arguments.as_object_mut()
                && arguments.get(AUTO).is_some_and(|given| !given.is_boolean())
            {
                arguments.shift_remove(AUTO);
            }
        }
        Self::parse_unlimited("toolArgInjection", &value)
    }
}

impl From<Bindings> for Value {
    fn from(Bindings { tools, global, manual }: Bindings) -> Self {
        let plain = |arguments: BTreeMap<String, String>| -> Map<String, Self> {
            arguments.into_iter().map(|(argument, key)| (argument, key.into())).collect()
        };
        let mut all: BTreeMap<String, Map<String, Self>> =
            tools.into_iter().map(|(tool, arguments)| (tool, plain(arguments))).collect();
        for tool in manual {
            all.entry(tool).or_default().insert(AUTO.to_owned(), false.into());
        }
        if !global.is_empty() {
            let mut global = plain(global);
            // A build that would take this for a tool's name can't read it, and so leaves the agent to a newer one.
            global.insert(AUTO.to_owned(), true.into());
            all.insert(ALL_TOOLS.to_owned(), global);
        }
        all.into_iter().map(|(tool, arguments)| (tool, Self::Object(arguments))).collect()
    }
}

/// Arguments that calls of one tool get, resolved for one turn.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Injection {
    /// Arguments and their values, whatever the model sends.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub values: Map<String, Value>,
    /// Arguments whose key has no value and no fallback: the tool can't be called.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unresolved: Vec<UnresolvedArgument>,
    /// Values of arguments that are left to the model, for calls in which it sends none.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub defaults: Map<String, Value>,
    /// Arguments that only trusted code gives: a binding may, the model may not.
    #[serde(skip)]
    pub reserved: Vec<String>,
}

/// A bound argument without a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("INJECT_UNRESOLVED: argument `{argument}` is bound to `{key}`, which has no value and no fallback")]
pub struct UnresolvedArgument {
    /// Name of the argument.
    pub argument: String,
    /// Key that it is bound to.
    pub key: String,
}

/// Reason why arguments can't be filled into a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InjectionError {
    /// A bound argument has no value.
    #[error(transparent)]
    Unresolved(#[from] UnresolvedArgument),
    /// The call's own arguments aren't a map; holds their type.
    #[error("expected the arguments as a map, got {0}")]
    NoMap(&'static str),
}

/// Result of the bindings for one tool.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct InjectionPlan {
    /// Arguments for its calls.
    pub injection: Injection,
    /// Reports of what `_auto` could not decide, and of possible mistakes.
    pub reports: Vec<String>,
}

impl Bindings {
    /// Reads `{tool: {argument: key}}`.
    ///
    /// # Errors
    ///
    /// The error names the place and the rule; too many bindings are an error, too.
    pub fn parse(place: &str, value: &Value) -> Result<Self, MappingError> {
        let all = Self::parse_unlimited(place, value)?;
        let count: usize = all.tools.values().map(BTreeMap::len).sum::<usize>() + all.global.len() + all.manual.len();
        if count > BINDINGS {
            let reason = format!("expected at most {BINDINGS} arguments, got {count}");
            return Err(MappingError { place: place.to_owned(), reason });
        }
        Ok(all)
    }

    /// Reads bindings without a limit of their number: older builds stored more.
    fn parse_unlimited(place: &str, value: &Value) -> Result<Self, MappingError> {
        let wrong = |place: String, reason: String| MappingError { place, reason };
        let map = |place: &str, value: &Value| match value {
            Value::Object(map) => Ok(map.clone()),
            other => Err(wrong(place.to_owned(), format!("expected a map, got {}", type_name(other)))),
        };
        let mut all = Self::default();
        for (tool, arguments) in map(place, value)? {
            let place = format!("{place}.{tool}");
            for (argument, key) in map(&place, &arguments)? {
                let place = format!("{place}.{argument}");
                if argument == AUTO {
                    match key {
                        Value::Bool(false) if tool == ALL_TOOLS => {
                            return Err(wrong(place, "`_auto` belongs to one tool".into()));
                        }
                        Value::Bool(true) => {}
                        Value::Bool(false) => drop(all.manual.insert(tool.clone())),
                        other => {
                            let found = type_name(&other);
                            return Err(wrong(place, format!("expected `true` or `false`, got {found}")));
                        }
                    }
                    continue;
                }
                let Value::String(key) = key else {
                    return Err(wrong(place, format!("expected a key, got {}", type_name(&key))));
                };
                RowSource::parse_written(&key).map_err(|error| wrong(place.clone(), error.to_string()))?;
                check_key(&argument).map_err(|error| wrong(place.clone(), error.to_string()))?;
                all.tool_mut(&tool).insert(argument, key);
            }
        }
        Ok(all)
    }

    /// Reads `{tool: {argument: value}}`: constant values.
    pub fn constants(place: &str, value: &Value) -> Result<Self, MappingError> {
        let wrong = |place: String, reason: String| MappingError { place, reason };
        let Value::Object(tools) = value else {
            return Err(wrong(place.to_owned(), format!("expected a map, got {}", type_name(value))));
        };
        let mut keys = Map::new();
        for (tool, arguments) in tools {
            let place = format!("{place}.{tool}");
            let Value::Object(arguments) = arguments else {
                return Err(wrong(place, format!("expected a map, got {}", type_name(arguments))));
            };
            let mut bound = Map::new();
            for (argument, value) in arguments {
                if value.is_null() {
                    return Err(wrong(format!("{place}.{argument}"), "expected a value, got null".into()));
                }
                bound.insert(argument.clone(), format!("CONSTANT:{value}").into());
            }
            keys.insert(tool.clone(), bound.into());
        }
        Self::parse(place, &Value::Object(keys))
    }

    fn tool_mut(&mut self, tool: &str) -> &mut BTreeMap<String, String> {
        if tool == ALL_TOOLS { &mut self.global } else { self.tools.entry(tool.to_owned()).or_default() }
    }

    /// Merges the bindings of two places; an argument that both bind is an error.
    pub fn merge(mut self, mut other: Self) -> Result<Self, MappingError> {
        let global = std::mem::take(&mut other.global);
        for (tool, arguments) in other.tools.into_iter().chain([(ALL_TOOLS.to_owned(), global)]) {
            for (argument, key) in arguments {
                let place = format!("toolArgInjection.{tool}.{argument}");
                if self.tool_mut(&tool).insert(argument, key).is_some() {
                    return Err(MappingError { place, reason: "bound twice".into() });
                }
            }
        }
        self.manual.append(&mut other.manual);
        Ok(self)
    }

    /// Adds the bindings of another place, which replace those of the same arguments.
    #[must_use]
    pub fn overlay(mut self, other: Self) -> Self {
        for (tool, arguments) in other.tools {
            self.tools.entry(tool).or_default().extend(arguments);
        }
        self.global.extend(other.global);
        self
    }

    /// Whether there are no bindings.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty() && self.global.is_empty() && self.manual.is_empty()
    }

    /// Returns the bound tools that are not among `known`.
    pub fn unknown_tools<'b>(&'b self, known: &'b [&str]) -> impl Iterator<Item = &'b str> {
        let manual = self.manual.iter().filter(|tool| !self.tools.contains_key(*tool));
        let tools = self.tools.keys().chain(manual).map(String::as_str);
        tools.filter(|tool| !known.iter().any(|known| is_same_tool(tool, known)))
    }

    /// Returns the bound tools, with the arguments of each.
    pub fn tools(&self) -> impl Iterator<Item = (&str, impl Iterator<Item = &str>)> {
        self.tools.iter().map(|(tool, arguments)| (tool.as_str(), arguments.keys().map(String::as_str)))
    }

    /// Returns the places of the configuration where a binding of a tool, or of one argument, may be written: a
    /// constant has two.
    pub fn binding_place(&self, tool: &str, argument: Option<&str>) -> String {
        let written = if tool == ALL_TOOLS { Some(&self.global) } else { self.tools.get(tool) };
        let mut keys = written.into_iter().flatten().filter(|(name, _)| argument.is_none_or(|one| one == *name));
        let below = argument.map(|argument| format!(".{}", quote_foreign(argument))).unwrap_or_default();
        let tool = quote_foreign(tool);
        let place = format!("`toolArgInjection.{tool}{below}`");
        if keys.all(|(_, key)| matches!(RowSource::parse(key), Ok(RowSource::Constant(_)))) {
            return format!("`contextMapping.constants.{tool}{below}` or {place}");
        }
        place
    }

    /// Arguments that are bound in all tools that have them.
    pub fn global(&self) -> impl Iterator<Item = &str> {
        self.global.keys().map(String::as_str)
    }

    /// Whether `_auto` rows fill in arguments of a tool.
    pub fn is_auto(&self, names: &[&str]) -> bool {
        !self.manual.iter().any(|tool| names.iter().any(|name| is_same_tool(tool, name)))
    }

    /// Whether an argument is bound under one of a tool's names.
    pub fn binds(&self, names: &[&str], argument: &str) -> bool {
        self.for_tool(names).contains_key(argument)
    }

    /// Rebinds bindings of paths to the names that the tools have in a turn. Each pair is a path and a name; several
    /// tools may have one path.
    pub fn rename(&mut self, tools: &[(String, String)]) {
        for (path, name) in tools {
            let same = self.tools.iter().filter(|(tool, _)| is_same_tool(tool, path));
            let arguments: Vec<_> = same.flat_map(|(_, arguments)| arguments.clone()).collect();
            for (argument, key) in arguments {
                self.tools.entry(name.clone()).or_default().entry(argument).or_insert(key);
            }
            if self.manual.iter().any(|tool| is_same_tool(tool, path)) {
                self.manual.insert(name.clone());
            }
        }
        let is_path = |tool: &str| tools.iter().any(|(path, _)| is_same_tool(tool, path));
        self.tools.retain(|tool, _| !is_path(tool));
        self.manual.retain(|tool| !is_path(tool));
    }

    /// Returns the bindings by argument, under any of a tool's names.
    fn for_tool(&self, names: &[&str]) -> BTreeMap<&str, Vec<&str>> {
        let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let is_it = |tool: &&String| names.iter().any(|name| is_same_tool(tool, name));
        for arguments in self.tools.iter().filter(|(tool, _)| is_it(tool)).map(|(_, arguments)| arguments) {
            for (argument, key) in arguments {
                let keys = found.entry(argument).or_default();
                if !keys.contains(&key.as_str()) {
                    keys.push(key);
                }
            }
        }
        found
    }

    /// Returns the injection for a tool with these `names`. A bound argument that the tool doesn't have is an error,
    /// because a binding without effect would deceive its author.
    pub fn plan(
        &self,
        names: &[&str],
        schema: &Value,
        values: &Resolver,
    ) -> Result<InjectionPlan, UnknownArgumentError> {
        let mut planned = InjectionPlan::default();
        let keys = if self.is_auto(names) { values.auto_keys() } else { Vec::new() };
        let found = auto::match_arguments(schema, &keys);
        let mut bound = self.for_tool(names);
        for (argument, key) in &self.global {
            if !bound.contains_key(argument.as_str()) && matches!(accepts(schema, argument), Ok(None)) {
                bound.insert(argument, vec![key]);
            }
        }
        for (argument, keys) in &bound {
            planned.reports.extend(accepts(schema, argument)?.map(|unknown| unknown.to_string()));
            let auto = found.matched.iter().find(|(name, _)| name == argument).map(|(_, key)| key.as_str());
            planned.injection.bind(values, argument, keys, auto);
        }
        for (argument, key) in found.matched.iter().filter(|(name, _)| !bound.contains_key(name.as_str())) {
            planned.injection.bind(values, argument, &[], Some(key));
        }
        let open = found.ambiguous.into_iter().filter(|(argument, _)| !bound.contains_key(argument.as_str()));
        planned.reports.extend(open.map(|(_, report)| report));
        planned.injection.reserved = trusted_arguments(schema).into_iter().map(str::to_owned).collect();
        Ok(planned)
    }
}

/// Whether a binding's tool is the one of this name. A path has many forms, and no tool's name is a path.
pub fn is_same_tool(bound: &str, name: &str) -> bool {
    let is_path = |text: &str| text.contains(['/', ':']);
    bound == name || (is_path(bound) && is_path(name) && catalog_path(bound) == catalog_path(name))
}

/// Returns the arguments that a schema marks with `"x-trusted": true`: a model's value never counts for them.
pub fn trusted_arguments(schema: &Value) -> Vec<&str> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let is_trusted = |property: &Value| property.get("x-trusted") == Some(&Value::Bool(true));
    let trusted = properties.into_iter().flatten().filter(|(_, property)| is_trusted(property));
    trusted.map(|(name, _)| name.as_str()).collect()
}

/// Target of a binding: its precedence, its key and its value.
struct Candidate<'k> {
    rank: u8,
    key: &'k str,
    value: Option<(Value, Tier)>,
}

fn candidate<'k>(values: &Resolver, argument: &str, key: &'k str) -> Candidate<'k> {
    if let Some(row) = values.rows(key).next() {
        return Candidate { rank: row.source.rank(), key, value: values.lookup(key) };
    }
    match RowSource::parse(key) {
        Ok(RowSource::Walk(_)) | Err(_) => Candidate { rank: 1, key, value: values.lookup(key) },
        Ok(source) => Candidate { rank: source.rank(), key, value: values.value(argument, &source) },
    }
}

/// Rank of arguments that are left to the model.
const MODEL: u8 = RowSource::Llm.rank();

impl Injection {
    /// Binds one argument: the bindings in the order of precedence, and the match of `_auto` last. A value goes before
    /// a fallback.
    fn bind(&mut self, values: &Resolver, argument: &str, keys: &[&str], auto: Option<&str>) {
        let mut candidates: Vec<_> = keys.iter().map(|key| candidate(values, argument, key)).collect();
        candidates
            .extend(auto.map(|key| Candidate { rank: RowSource::Auto.rank(), ..candidate(values, argument, key) }));
        candidates.sort_by_key(|candidate| candidate.rank);
        if let Some(left) = candidates.iter().find(|candidate| candidate.rank == MODEL) {
            if let Some((value, _)) = &left.value {
                self.defaults.insert(argument.to_owned(), value.clone());
            }
            return;
        }
        let is_value =
            |candidate: &&Candidate<'_>| candidate.value.as_ref().is_some_and(|(_, tier)| *tier != Tier::Fallback);
        let winner = candidates.iter().find(is_value).or_else(|| candidates.iter().find(|c| c.value.is_some()));
        if let Some((value, _)) = winner.and_then(|candidate| candidate.value.clone()) {
            self.values.insert(argument.to_owned(), value);
        } else {
            let key = candidates.first().map_or(argument, |candidate| candidate.key).to_owned();
            self.unresolved.push(UnresolvedArgument { argument: argument.to_owned(), key });
        }
    }

    /// Makes the injection of an operation without bindings.
    pub fn of_reserved(schema: &Value) -> Self {
        let reserved = trusted_arguments(schema).into_iter().map(str::to_owned).collect();
        Self { reserved, ..Self::default() }
    }

    /// Returns an argument that only trusted code gives, if these have one that nothing binds.
    pub fn find_reserved(&self, arguments: &Value) -> Option<&str> {
        let is_open = |name: &str| self.unresolved.iter().any(|unresolved| unresolved.argument == name);
        let is_bound = |name: &str| self.values.contains_key(name) || is_open(name);
        let given = |name: &&str| arguments.get(name).is_some_and(|value| !value.is_null()) && !is_bound(name);
        self.reserved.iter().map(String::as_str).find(given)
    }

    /// Whether the model sees another schema than the operation's.
    pub fn changes_schema(&self) -> bool {
        !self.is_empty() || !self.reserved.is_empty()
    }

    /// Whether it changes nothing of a model's arguments.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty() && self.unresolved.is_empty() && self.defaults.is_empty()
    }

    /// Returns the arguments that the model doesn't see.
    pub fn hidden_arguments(&self) -> impl Iterator<Item = &str> + '_ {
        let unresolved = self.unresolved.iter().map(|unresolved| unresolved.argument.as_str());
        let reserved = self.reserved.iter().map(String::as_str);
        self.values.keys().map(String::as_str).chain(unresolved).chain(reserved)
    }

    /// Takes out what the model may not say: its word never counts for a bound argument.
    pub fn strip(&self, arguments: &mut Value) {
        if let Value::Object(map) = arguments {
            for name in self.hidden_arguments() {
                map.shift_remove(name);
            }
        }
    }

    /// Returns the final arguments of a call. Arguments that are no map have no place for bound ones: the call isn't
    /// made.
    pub fn apply(&self, mut arguments: Value) -> Result<Value, InjectionError> {
        if let Some(unresolved) = self.unresolved.first() {
            return Err(unresolved.clone().into());
        }
        if self.is_empty() {
            return Ok(arguments);
        }
        if arguments.is_null() {
            arguments = Value::Object(Map::new());
        }
        let Value::Object(map) = &mut arguments else { return Err(InjectionError::NoMap(type_name(&arguments))) };
        for (name, value) in &self.defaults {
            map.entry(name.clone()).or_insert_with(|| value.clone());
        }
        for (name, value) in &self.values {
            map.insert(name.clone(), value.clone());
        }
        Ok(arguments)
    }

    /// Returns the schema as the model sees it: without the bound arguments in `properties`, `required`, `default` and
    /// `examples`, also inside `allOf`, `anyOf` and `oneOf`. An argument with a default is not required.
    pub fn reduce(&self, schema: &Value) -> Value {
        let mut schema = schema.clone();
        let hidden: Vec<&str> = self.hidden_arguments().collect();
        let optional: Vec<&str> = hidden.iter().copied().chain(self.defaults.keys().map(String::as_str)).collect();
        reduce::remove_arguments(&mut schema, &hidden, &optional);
        schema
    }
}
