//! The mandate of entity ids: the entities that a request is about, and the operations that it may use.

use crate::values::{Values, get};
use serde_json::Value;

/// Key of the session value that holds the ids, unless `entityIdsKey` names another.
pub const DEFAULT_KEY: &str = "entity_ids";

/// A request without the list that its agent requires.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("ENTITY_IDS_REQUIRED: expected `sessionContext.{key}` as a non-empty list of non-empty strings, got {got}")]
pub struct EntityIdsRequired {
    /// Key of the list.
    pub key: String,
    /// Value that was found, in words.
    pub got: String,
}

/// Returns the ids of a request. Only the session's own value counts: no other tier can replace it.
pub fn ids(key: &str, session: &Values) -> Result<Vec<String>, EntityIdsRequired> {
    let wrong = |got: &str| EntityIdsRequired { key: key.to_owned(), got: got.to_owned() };
    match get(session, key) {
        None => Err(wrong("nothing")),
        Some(Value::Array(items)) if items.is_empty() => Err(wrong("an empty list")),
        Some(Value::Array(items)) => {
            let ids = items.iter().map(|item| match item {
                Value::String(id) if id.trim().is_empty() => Err(wrong("an empty string in it")),
                Value::String(id) => Ok(id.clone()),
                other => Err(wrong(&format!("a {} in it", crate::lattice::value::type_name(other)))),
            });
            ids.collect()
        }
        Some(other) => Err(wrong(&format!("a {}", crate::lattice::value::type_name(other)))),
    }
}

/// Whether a request about `ids` may use an operation with these `entities`; an operation without any is always
/// allowed.
pub fn allows(entities: &[String], ids: &[String]) -> bool {
    entities.is_empty() || entities.iter().any(|entity| ids.contains(entity))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(session: Value, expected: Result<&[&str], &str>) {
        let Value::Object(session) = session else { panic!("expected a map") };
        let found = ids(DEFAULT_KEY, &session).map_err(|error| error.got);
        let expected = expected.map(|ids| ids.iter().map(|id| (*id).to_owned()).collect()).map_err(str::to_owned);
        assert_eq!(found, expected, "{session:?}");
    }

    #[test]
    fn the_entity_list_has_only_non_empty_strings() {
        check(json!({"entity_ids": ["a", "b"]}), Ok(&["a", "b"]));
        check(json!({}), Err("nothing"));
        check(json!({"entity_ids": null}), Err("nothing"));
        check(json!({"entity_ids": "a"}), Err("a string"));
        check(json!({"entity_ids": {"0": "a"}}), Err("a map"));
        check(json!({"entity_ids": []}), Err("an empty list"));
        check(json!({"entity_ids": ["a", ""]}), Err("an empty string in it"));
        check(json!({"entity_ids": ["a", " "]}), Err("an empty string in it"));
        check(json!({"entity_ids": ["a", 1]}), Err("a number in it"));
    }

    #[test]
    fn another_key_can_be_named_and_the_error_names_it() {
        let Value::Object(session) = json!({"scope": {"shops": ["s"]}}) else { unreachable!() };
        assert_eq!(ids("scope.shops", &session), Ok(vec!["s".to_owned()]));
        let error = ids("shops", &session).unwrap_err();
        assert_eq!(
            error.to_string(),
            "ENTITY_IDS_REQUIRED: expected `sessionContext.shops` as a non-empty list of non-empty strings, got nothing"
        );
    }

    #[test]
    fn the_list_narrows_to_operations_of_its_entities() {
        let list = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        for (carried, asked, allowed) in [
            (&["a"][..], &["a"][..], true),
            (&["a", "b"], &["b", "c"], true),
            (&["a"], &["b"], false),
            (&[], &["b"], true),
            (&["a"], &[], false),
        ] {
            assert_eq!(allows(&list(carried), &list(asked)), allowed, "{carried:?} {asked:?}");
        }
    }
}
