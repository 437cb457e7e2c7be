//! Values that the runtime knows and the model need not name: four tiers, and their sources.
//!
//! | tier | set where |
//! |---|---|
//! | session | `sessionContext` of the request |
//! | user | verified claims, then `v/context/users/<user>` |
//! | agent | constants of the agent's `contextMapping` |
//! | project | `v/context/project` |

pub mod mapping;
pub mod resolver;

pub mod inserted_values;
pub mod placeholder;

pub mod auto;
pub mod inject;

pub mod config_forms;

pub mod entities;
pub mod protected_keys;

use crate::lattice::value::get as walk;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use mapping::{ContextMapping, MappingRow, RowSource};
pub use resolver::Resolver;

/// The values of one tier, by key.
pub type Values = Map<String, Value>;

/// Source of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Values of the request.
    Session,
    /// Values of the user, from claims and operators.
    User,
    /// Values of the agent's configuration.
    Agent,
    /// Values of the project.
    Project,
    /// The `fallback` of a mapping row, because no tier had a value.
    Fallback,
}

impl Tier {
    /// Returns the name in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::User => "user",
            Self::Agent => "agent",
            Self::Project => "project",
            Self::Fallback => "fallback",
        }
    }

    /// Returns the path under which operators store the values of a tier for a user; `None` for the other tiers.
    pub fn root(self, user: &str) -> Option<String> {
        match self {
            Self::User => Some(format!("v/context/users/{user}")),
            Self::Project => Some("v/context/project".to_owned()),
            Self::Session | Self::Agent | Self::Fallback => None,
        }
    }
}

/// Returns the path of a key's value, for a user; `at` is its place below the tier's root where the dots of the key
/// don't give it. `None` if the tier has no path.
fn path_of_key(key: &str, tier: Tier, at: Option<&str>, user: &str) -> Option<String> {
    let root = tier.root(user)?;
    Some(at.map_or_else(|| format!("{root}/{}", key.replace('.', "/")), |at| format!("{root}/{at}")))
}

/// The four tiers. They are kept apart, so that a report can say which one was used.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Tiers {
    /// Values of the request.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub session: Values,
    /// Values of the user.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub user: Values,
    /// Values of the agent's configuration.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub agent: Values,
    /// Values of the project.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub project: Values,
}

impl Tiers {
    /// Returns the value of a key and the first tier that has it: session, user, agent, project.
    pub fn resolve(&self, key: &str) -> Option<(&Value, Tier)> {
        self.resolve_from(Tier::Session, key)
    }

    /// Returns the value of a key and its tier, beginning at `first` and going down.
    pub fn resolve_from(&self, first: Tier, key: &str) -> Option<(&Value, Tier)> {
        self.find_from(first, key).map(|(value, tier, _)| (value, tier))
    }

    /// Returns the value of a key, its tier and its place in the tier, beginning at `first` and going down.
    fn find_from(&self, first: Tier, key: &str) -> Option<(&Value, Tier, Vec<String>)> {
        let order: &[Tier] = match first {
            Tier::Session => &[Tier::Session, Tier::User, Tier::Agent, Tier::Project],
            Tier::User => &[Tier::User, Tier::Agent, Tier::Project],
            Tier::Agent => &[Tier::Agent, Tier::Project],
            Tier::Project => &[Tier::Project],
            Tier::Fallback => &[],
        };
        order.iter().find_map(|tier| {
            let (value, place) = find(self.tier_values(*tier)?, key)?;
            Some((value, *tier, place))
        })
    }

    /// The values of one tier.
    const fn tier_values(&self, tier: Tier) -> Option<&Values> {
        match tier {
            Tier::Session => Some(&self.session),
            Tier::User => Some(&self.user),
            Tier::Agent => Some(&self.agent),
            Tier::Project => Some(&self.project),
            Tier::Fallback => None,
        }
    }
}

/// Returns the value of a key in one map: first literally (`"user.name"`), then by a dotted path in which a number
/// indexes an array. A missing value is never an error; `null` counts as missing.
pub fn get<'v>(values: &'v Values, key: &str) -> Option<&'v Value> {
    find(values, key).map(|(value, _)| value)
}

/// Returns the value of a key with the segments of its place.
fn find<'v>(values: &'v Values, key: &str) -> Option<(&'v Value, Vec<String>)> {
    let literal = values.get(key).map(|value| (value, vec![key.to_owned()]));
    let found = literal.or_else(|| {
        let (first, rest) = key.split_once('.')?;
        let rest: Vec<String> = rest.split('.').map(str::to_owned).collect();
        let value = walk(values.get(first)?, &rest)?;
        Some((value, [vec![first.to_owned()], rest].concat()))
    });
    found.filter(|(value, _)| !value.is_null())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn values(value: Value) -> Values {
        let Value::Object(map) = value else { panic!("expected a map") };
        map
    }

    fn tiers() -> Tiers {
        Tiers {
            session: values(json!({"a": "session", "n": null, "list": [{"x": 1}, {"x": 2}], "user.name": "literal"})),
            user: values(json!({"a": "user", "b": "user", "n": "user", "user": {"name": "walked"}})),
            agent: values(json!({"a": "agent", "b": "agent", "c": "agent"})),
            project: values(json!({"a": "project", "b": "project", "c": "project", "d": "project"})),
        }
    }

    #[test]
    fn resolve_walks_session_user_agent_project_and_says_which_won() {
        let tiers = tiers();
        for (key, expected) in [
            ("a", Some(("session", Tier::Session))),
            ("b", Some(("user", Tier::User))),
            ("c", Some(("agent", Tier::Agent))),
            ("d", Some(("project", Tier::Project))),
            ("e", None),
            ("n", Some(("user", Tier::User))),
        ] {
            let expected = expected.map(|(text, tier)| (json!(text), tier));
            assert_eq!(tiers.resolve(key).map(|(v, t)| (v.clone(), t)), expected, "{key}");
        }
    }

    #[test]
    fn a_key_is_literal_first_and_then_a_dotted_walk() {
        let tiers = tiers();
        for (key, expected) in [
            ("user.name", Some(json!("literal"))),
            ("list.1.x", Some(json!(2))),
            ("list.01.x", None),
            ("list.2.x", None),
            ("list.x", None),
            ("a.b.c", None),
            ("", None),
            (".", None),
            ("a.", None),
        ] {
            assert_eq!(tiers.resolve(key).map(|(v, _)| v.clone()), expected, "{key}");
        }
        let user = tiers.resolve_from(Tier::User, "user.name");
        assert_eq!(user, Some((&json!("walked"), Tier::User)));
    }

    #[test]
    fn tiers_are_kept_as_json_and_empty_ones_are_left_out() {
        assert_eq!(serde_json::to_value(Tiers::default()).unwrap(), json!({}));
        let again: Tiers = serde_json::from_value(serde_json::to_value(tiers()).unwrap()).unwrap();
        assert_eq!(again, tiers());
    }
}
