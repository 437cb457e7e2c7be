//! Loads: paths that an agent asked to see in its next turns, at the level of the agent, of the session or of the
//! active goal. An inner level shadows an outer one.

use crate::decode::{self, DataError};
use crate::lattice::value::type_name;
use crate::lattice::{Path, PathError};
use crate::limits::CONTEXT_LABEL_BYTES;
use crate::limits::{LOAD_BYTES, LOAD_BYTES_DEFAULT, LOADS};
use crate::visible::check_line;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// A loaded path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Load {
    /// Lattice path of the value.
    pub path: String,
    /// Heading in the prompt; the path when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Bytes, 256–10,000.
    #[schemars(range(min = 256, max = 10_000))]
    pub budget: usize,
}

/// A load as a request names it: a path, or a map of the path with its heading and its budget.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Value")]
struct RequestedLoad(Load);

/// The map of a requested load.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestedOptions {
    path: String,
    label: Option<String>,
    budget: Option<usize>,
}

impl TryFrom<Value> for RequestedLoad {
    type Error = DataError;

    fn try_from(value: Value) -> Result<Self, DataError> {
        let RequestedOptions { path, label, budget } = match value {
            Value::String(path) => RequestedOptions { path, label: None, budget: None },
            map @ Value::Object(_) => decode::into_type(map)?,
            other => {
                let found = type_name(&other);
                return Err(format!("expected a path, or a map with `path`, `label` and `budget`, got {found}").into());
            }
        };
        Ok(Self(Load { path, label, budget: budget.unwrap_or(LOAD_BYTES_DEFAULT) }))
    }
}

/// Reads the loads of a request, each as a path or as a map; a budget that isn't given is the default.
pub fn read_requested<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Load>, D::Error> {
    let requested = Vec::<RequestedLoad>::deserialize(from)?;
    Ok(requested.into_iter().map(|RequestedLoad(load)| load).collect())
}

/// Level at which a path is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoadLevel {
    /// Loaded for all sessions of the agent.
    Agent,
    /// Loaded for this session.
    Session,
    /// Loaded for the active goal.
    Frame,
}

/// The loads of a turn, by level.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoadsByLevel {
    /// Loads of the agent.
    pub agent: Vec<Load>,
    /// Loads of the session.
    pub session: Vec<Load>,
    /// Loads of the active goal, if a goal is open.
    pub frame: Option<Vec<Load>>,
}

impl LoadsByLevel {
    /// Returns the loads of a level.
    pub fn of_level(&self, level: LoadLevel) -> &[Load] {
        match level {
            LoadLevel::Agent => &self.agent,
            LoadLevel::Session => &self.session,
            LoadLevel::Frame => self.frame.as_deref().unwrap_or_default(),
        }
    }

    /// Applies a change, which counts for later calls of the same reply.
    pub fn apply(&mut self, change: &LoadChange) {
        change.apply(LoadLevel::Agent, &mut self.agent);
        change.apply(LoadLevel::Session, &mut self.session);
        if let Some(frame) = &mut self.frame {
            change.apply(LoadLevel::Frame, frame);
        }
    }
}

/// A heading that is not one short line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`label`: expected one line of 1 to {CONTEXT_LABEL_BYTES} bytes, got {label:?}")]
pub struct LabelError {
    /// Heading of the call.
    pub label: String,
}

/// Why a path isn't loaded or unloaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The call names no path.
    #[error("`path`: expected a lattice path")]
    NoPath,
    /// The call names an illegal path.
    #[error("`path`: {0}")]
    Path(PathError),
    /// An argument of the call has the wrong type or value.
    #[error("`{key}`: expected {expected}, got {found}")]
    Argument {
        /// Name of the argument.
        key: &'static str,
        /// Description of what is expected.
        expected: &'static str,
        /// Value of the argument.
        found: Value,
    },
    /// The call names the level of the goal, and no goal is open.
    #[error("`level`: no subgoal is open")]
    NoGoal,
    /// The heading is not one short line.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// [`LOADS`] paths are loaded.
    #[error("{LOADS} paths are loaded already; unload one first (context_unload)")]
    Full,
    /// The path to unload is not loaded.
    #[error("`{path}` is not loaded; loaded: {}", list_paths(.loaded))]
    NotLoaded {
        /// Path of the call.
        path: String,
        /// Paths that are loaded.
        loaded: Vec<String>,
    },
}

impl LoadError {
    fn argument(key: &'static str, expected: &'static str, found: &Value) -> Self {
        Self::Argument { key, expected, found: found.clone() }
    }
}

fn list_paths(paths: &[String]) -> String {
    if paths.is_empty() { "nothing is".to_owned() } else { paths.join(", ") }
}

/// Change by a tool of the runtime that counts from the next turn on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoadChange {
    /// The path is shown from the next turn on.
    Load(LoadLevel, Load),
    /// The path isn't shown any more at that level.
    Unload(LoadLevel, String),
    /// Operations are offered besides the configured ones.
    Offer(Vec<String>),
}

impl Load {
    /// Makes a load; its budget is clamped to the limits.
    pub fn new(path: &Path, label: Option<String>, budget: Option<usize>) -> Result<Self, LabelError> {
        if let Some(label) = &label {
            check_label(label)?;
        }
        let budget = budget.unwrap_or(LOAD_BYTES_DEFAULT).clamp(*LOAD_BYTES.start(), *LOAD_BYTES.end());
        Ok(Self { path: path.to_string(), label, budget })
    }
}

impl LoadChange {
    /// Returns the change of a call of `context_load`, and the path that its caller must be allowed to read. With
    /// `goal` the default level is the active goal.
    pub fn from_load_call(arguments: &Value, goal: bool) -> Result<(Path, Self), LoadError> {
        let path = parse_path(arguments)?;
        let label = match &arguments["label"] {
            Value::Null => None,
            Value::String(label) => Some(label.clone()),
            other => return Err(LoadError::argument("label", "a string", other)),
        };
        let budget = match &arguments["budget"] {
            Value::Null => None,
            given => match given.as_u64() {
                Some(bytes) => Some(usize::try_from(bytes).unwrap_or(usize::MAX)),
                None => return Err(LoadError::argument("budget", "a number of bytes", given)),
            },
        };
        let level = match &arguments["level"] {
            Value::Null if goal => LoadLevel::Frame,
            Value::Null => LoadLevel::Session,
            Value::String(level) if level == "frame" && !goal => return Err(LoadError::NoGoal),
            given => decode::into_type(given.clone())
                .map_err(|_| LoadError::argument("level", "`session`, `agent` or `frame`", given))?,
        };
        let load = Load::new(&path, label, budget)?;
        Ok((path, Self::Load(level, load)))
    }

    /// Returns the change of a call of `context_unload`: at the innermost level that has the path.
    pub fn from_unload_call(arguments: &Value, loads: &LoadsByLevel) -> Result<Self, LoadError> {
        let path = parse_path(arguments)?.to_string();
        let levels = [(LoadLevel::Frame, loads.frame.as_deref().unwrap_or_default())];
        let levels =
            levels.into_iter().chain([(LoadLevel::Session, &*loads.session), (LoadLevel::Agent, &*loads.agent)]);
        let has = |(_, loads): &(LoadLevel, &[Load])| loads.iter().any(|load| load.path == path);
        if let Some((level, _)) = levels.clone().find(has) {
            return Ok(Self::Unload(level, path));
        }
        let loaded = levels.flat_map(|(_, loads)| loads).map(|load| load.path.clone()).collect();
        Err(LoadError::NotLoaded { path, loaded })
    }

    /// Applies the change to the loads of a level.
    pub fn apply(&self, of: LoadLevel, loads: &mut Vec<Load>) {
        match self {
            Self::Load(level, load) if *level == of => match loads.iter_mut().find(|known| known.path == load.path) {
                Some(known) => known.clone_from(load),
                None => loads.push(load.clone()),
            },
            Self::Unload(level, path) if *level == of => loads.retain(|load| load.path != *path),
            Self::Load(..) | Self::Unload(..) | Self::Offer(_) => {}
        }
    }

    /// Whether it changes the agent's record.
    pub const fn is_of_agent(&self) -> bool {
        matches!(self, Self::Load(LoadLevel::Agent, _) | Self::Unload(LoadLevel::Agent, _))
    }
}

/// Checks that one more path may be loaded.
pub fn check_load_count(loads: &[Load], path: &Path) -> Result<(), LoadError> {
    let path = path.to_string();
    if loads.len() < LOADS || loads.iter().any(|load| load.path == path) {
        return Ok(());
    }
    Err(LoadError::Full)
}

fn parse_path(arguments: &Value) -> Result<Path, LoadError> {
    match &arguments["path"] {
        Value::String(path) => Path::parse(path).map_err(LoadError::Path),
        Value::Null => Err(LoadError::NoPath),
        given => Err(LoadError::argument("path", "a string", given)),
    }
}

/// Checks that a heading is one short line.
pub fn check_label(label: &str) -> Result<(), LabelError> {
    let bad = label.is_empty() || label.len() > CONTEXT_LABEL_BYTES || check_line(label).is_err();
    if bad {
        return Err(LabelError { label: label.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn load(path: &str, budget: u64, level: &str) -> LoadChange {
        LoadChange::from_load_call(&json!({"path": path, "budget": budget, "level": level}), false).unwrap().1
    }

    #[test]
    fn a_request_names_loads_by_path_or_with_options() {
        let read = |given: &Value| read_requested(given.clone()).map_err(|error| error.to_string());
        let load = |label: Option<&str>, budget| Load { path: "w/x".into(), label: label.map(str::to_owned), budget };
        for (given, expected) in [
            (json!(["w/x"]), load(None, 500)),
            (json!([{"path": "w/x"}]), load(None, 500)),
            (json!([{"path": "w/x", "label": "X", "budget": 900}]), load(Some("X"), 900)),
        ] {
            assert_eq!(read(&given), Ok(vec![expected]), "{given}");
        }
        for (given, expected) in [
            (json!([7]), "expected a path, or a map with"),
            (json!([{"label": "x"}]), "`path`"),
            (json!([{"path": "w/x", "bugdet": 5}]), "bugdet"),
        ] {
            let error = read(&given).unwrap_err();
            assert!(error.contains(expected), "{given}: {error}");
        }
    }

    #[test]
    fn a_load_has_256_to_10000_bytes_and_500_when_nothing_is_said() {
        for (asked, budget) in [(json!(null), 500), (json!(0), 256), (json!(5_000), 5_000), (json!(99_999), 10_000)] {
            let (_, change) = LoadChange::from_load_call(&json!({"path": "w/a", "budget": asked}), false).unwrap();
            let LoadChange::Load(LoadLevel::Session, load) = change else { panic!("a load of the session") };
            assert_eq!(load.budget, budget, "{asked}");
        }
    }

    #[test]
    fn a_load_replaces_its_path_and_an_unload_takes_the_innermost() {
        let (mut agent, mut session) = (Vec::new(), Vec::new());
        for change in [load("w/a", 300, "agent"), load("w/a", 400, "session"), load("w/a", 500, "session")] {
            change.apply(LoadLevel::Agent, &mut agent);
            change.apply(LoadLevel::Session, &mut session);
        }
        assert_eq!((agent.len(), session.len(), session[0].budget), (1, 1, 500));
        let unload = |loads: &LoadsByLevel| LoadChange::from_unload_call(&json!({"path": "w/a"}), loads);
        let mut loads = LoadsByLevel { agent, frame: Some(session.clone()), session };
        for level in [LoadLevel::Frame, LoadLevel::Session, LoadLevel::Agent] {
            let change = unload(&loads).unwrap();
            assert_eq!(change, LoadChange::Unload(level, "w/a".into()));
            loads.apply(&change);
        }
        assert_eq!(unload(&loads).unwrap_err().to_string(), "`w/a` is not loaded; loaded: nothing is");
    }

    #[test]
    fn mistakes_are_named() {
        for (arguments, expected) in [
            (json!({}), "`path`: expected a lattice path"),
            (json!({"path": 7}), "`path`: expected a string, got 7"),
            (json!({"path": "w/a", "budget": -1}), "`budget`: expected a number of bytes, got -1"),
            (
                json!({"path": "w/a", "level": "world"}),
                "`level`: expected `session`, `agent` or `frame`, got \"world\"",
            ),
            (json!({"path": "w/a", "level": "frame"}), "`level`: no subgoal is open"),
            (json!({"path": "w/a", "label": 7}), "`label`: expected a string, got 7"),
        ] {
            assert_eq!(LoadChange::from_load_call(&arguments, false).unwrap_err().to_string(), expected);
        }
        let error = LoadChange::from_load_call(&json!({"path": "w/../s"}), false).unwrap_err();
        assert!(matches!(&error, LoadError::Path(_)) && error.to_string().starts_with("`path`: "), "{error}");
        let path = |n: usize| Path::parse(&format!("w/{n}")).unwrap();
        let full: Vec<_> = (0..LOADS).map(|n| Load::new(&path(n), None, None).unwrap()).collect();
        assert!(check_load_count(&full, &path(0)).is_ok());
        assert!(check_load_count(&full, &path(LOADS)).unwrap_err().to_string().contains("unload one first"));
    }
}
