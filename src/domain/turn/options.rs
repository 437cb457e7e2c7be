//! Options of a request about its session and its output: paths to show, and where the output is written.

use crate::authority::{Authority, DenialError};
use crate::decode::{self, DataError};
use crate::lattice::{OutputPathError, Path, PathError};
use crate::limits::LOADS;
use crate::load::{LabelError, Load, check_load_count};
use crate::session::SessionState;
use crate::turn::run::Plan;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Options of one shown path.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LoadOptions {
    label: Option<String>,
    budget: Option<usize>,
}

/// The loads of a call, by path, with their options; at most [`LOADS`].
#[derive(Debug, Default, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub struct NamedLoads(pub Vec<Load>);

/// Why a session can't show the loads of a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadsError {
    /// There are more than [`LOADS`]; holds their number.
    #[error("expected at most {LOADS} paths, got {0}")]
    TooMany(usize),
    /// A path is illegal.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The options of a path can't be read.
    #[error("`{path}`: {error}")]
    Options {
        /// Path of the load.
        path: String,
        /// What is wrong with its options.
        error: DataError,
    },
    /// The heading of a path is not one short line.
    #[error("`{path}`: {error}")]
    Heading {
        /// Path of the load.
        path: String,
        /// What is wrong with its heading.
        error: LabelError,
    },
    /// A heading is not one short line.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// A load isn't as the venue would write it; holds its path.
    #[error("`{0}`: expected a path as it is written and a budget within its limits")]
    NotNormal(String),
}

/// Why the output of a request can't be written to a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutputTargetError {
    /// The request is a message.
    #[error("a message has no output, give it to a task")]
    NoTask,
    /// The path is not one of an output.
    #[error(transparent)]
    Path(#[from] OutputPathError),
    /// The request may not write there.
    #[error(transparent)]
    Denied(#[from] DenialError),
}

impl TryFrom<Map<String, Value>> for NamedLoads {
    type Error = LoadsError;

    fn try_from(named: Map<String, Value>) -> Result<Self, LoadsError> {
        check_count(named.len())?;
        let one = |(path, how): (String, Value)| {
            let parsed = Path::parse(&path)?;
            let options = match how {
                Value::Null | Value::Bool(true) => Ok(LoadOptions::default()),
                how => decode::into_type(how),
            };
            match options {
                Ok(LoadOptions { label, budget }) => {
                    Load::new(&parsed, label, budget).map_err(|error| LoadsError::Heading { path, error })
                }
                Err(error) => Err(LoadsError::Options { path, error }),
            }
        };
        named.into_iter().map(one).collect::<Result<_, _>>().map(Self)
    }
}

/// Checks that a session can show these loads.
pub fn check_loads(loads: &[Load]) -> Result<(), LoadsError> {
    check_count(loads.len())?;
    for load in loads {
        let path = Path::parse(&load.path)?;
        let again = Load::new(&path, load.label.clone(), Some(load.budget))?;
        if again != *load {
            return Err(LoadsError::NotNormal(load.path.clone()));
        }
    }
    Ok(())
}

fn check_count(loads: usize) -> Result<(), LoadsError> {
    if loads > LOADS {
        return Err(LoadsError::TooMany(loads));
    }
    Ok(())
}

/// Checks that a request with at most the authority `bound` can write its output to a path.
pub fn check_output(text: &str, task: bool, bound: &Authority) -> Result<(), OutputTargetError> {
    if !task {
        return Err(OutputTargetError::NoTask);
    }
    let path = Path::parse_output(text)?;
    bound.permits("crud/write", &path).map_err(|denied| DenialError::new("the request", denied))?;
    Ok(())
}

/// Adds the loads of the requests that a turn begins to the session. If there is no room for all, the first ones are
/// added.
pub fn add_requested_loads(state: &mut SessionState, plan: &Plan) {
    let begun = state.task.as_ref().map(|progress| progress.job.clone());
    let task = plan.task.as_ref().filter(|task| task.event.job() != begun.as_ref());
    let messages = plan.messages.iter().filter(|message| !state.shown.contains(&message.key));
    let asked: Vec<Load> = messages.chain(task).flat_map(|pending| pending.event.loads.clone()).collect();
    for load in asked {
        let has_room = Path::parse(&load.path).is_ok_and(|path| check_load_count(&state.loads, &path).is_ok());
        match state.loads.iter_mut().find(|known| known.path == load.path) {
            Some(known) => *known = load,
            None if has_room => state.loads.push(load),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::Capability;
    use serde_json::json;

    #[test]
    fn loads_are_named_by_path_and_shown_as_they_say() {
        let said = json!({"w/a": null, "w/b": true, "w/c": {"label": "C", "budget": 900}});
        let loads = |said: &Value| decode::into_type::<NamedLoads>(said.clone()).map(|NamedLoads(loads)| loads);
        let found = loads(&said).unwrap();
        let shown: Vec<_> = found.iter().map(|load| (load.path.as_str(), load.label.as_deref(), load.budget)).collect();
        assert_eq!(shown, [("w/a", None, 500), ("w/b", None, 500), ("w/c", Some("C"), 900)]);
        assert_eq!(check_loads(&found), Ok(()));
        for (wrong, part) in
            [(json!({"q/x": null}), "q/x"), (json!({"w/a": {"lable": "x"}}), "`w/a`"), (json!({"w/a": 7}), "`w/a`")]
        {
            assert!(loads(&wrong).unwrap_err().to_string().contains(part), "{wrong}");
        }
        let many: Vec<_> = (0..=LOADS).map(|n| Load { path: format!("w/{n}"), label: None, budget: 500 }).collect();
        assert!(check_loads(&many).unwrap_err().to_string().contains("at most"));
        let forged = Load { path: "w/a".into(), label: None, budget: 1 << 30 };
        assert!(check_loads(&[forged]).is_err());
    }

    #[test]
    fn an_output_goes_where_the_request_may_write() {
        let bound = |with: &str| Authority::new(Some(vec![Capability { with: with.into(), can: "crud/write".into() }]));
        for (path, task, with, fits) in [
            ("w/out", true, "w/out", true),
            ("w/out/x", true, "w/out", true),
            ("w/out-of", true, "w/out", false),
            ("w/out", false, "w/out", false),
            ("c/out", true, "", false),
            ("g/a", true, "", false),
            ("w", true, "", false),
        ] {
            assert_eq!(check_output(path, task, &bound(with)).is_ok(), fits, "{path} {task} {with}");
        }
    }
}
