//! Keys that a request can't set: who somebody is, is not for him to say.

use crate::domain::values::{Values, get};

/// Protected whoever asks.
const ALWAYS: &str = "tenant_id";

/// The capability to set them all the same.
pub const OVERRIDE: &str = "context/override";

/// A `sessionContext` that sets protected keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("CONTEXT_OVERRIDE_DENIED: `sessionContext` sets {}, which only a caller with `{OVERRIDE}` may", list(.keys))]
pub struct OverrideDenied {
    /// The keys.
    pub keys: Vec<String>,
}

fn list(keys: &[String]) -> String {
    keys.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ")
}

/// Refuses a session that gives a value to `tenant_id` or to one of `claims`, the keys that came
/// from a verified token: by its name, on the way to it (`{"user": {"name": …}}` for `user.name`)
/// or below it (`org.id` for `org`).
pub fn check<'k>(session: &Values, claims: impl IntoIterator<Item = &'k str>) -> Result<(), OverrideDenied> {
    let protected = std::iter::once(ALWAYS).chain(claims);
    let mut keys: Vec<String> = protected.filter(|key| sets(session, key)).map(str::to_owned).collect();
    keys.sort();
    keys.dedup();
    if keys.is_empty() { Ok(()) } else { Err(OverrideDenied { keys }) }
}

fn sets(session: &Values, key: &str) -> bool {
    let below = |given: &String| given.strip_prefix(key).is_some_and(|rest| rest.starts_with('.'));
    session.contains_key(key) || get(session, key).is_some() || session.keys().any(below)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check_keys(session: Value, claims: &[&str], expected: &[&str]) {
        let Value::Object(session) = session else { panic!("expected a map") };
        let denied = check(&session, claims.iter().copied()).err().map(|e| e.keys).unwrap_or_default();
        assert_eq!(denied, expected, "{session:?}");
    }

    #[test]
    fn tenant_id_and_verified_claims_can_t_be_overridden() {
        let claims = ["user_id", "user.name", "org"];
        check_keys(json!({"shipping": 1, "user_ids": [], "orgs": 1, "user": {"nick": "x"}}), &claims, &[]);
        check_keys(json!({"tenant_id": "x"}), &[], &["tenant_id"]);
        check_keys(json!({"tenant_id": null}), &[], &["tenant_id"]);
        check_keys(json!({"user_id": "x"}), &[], &[]);
        check_keys(json!({"user_id": "x", "tenant_id": "y"}), &claims, &["tenant_id", "user_id"]);
    }

    #[test]
    fn nor_by_the_way_to_a_key_or_below_it() {
        check_keys(json!({"user": {"name": "x"}}), &["user.name"], &["user.name"]);
        check_keys(json!({"user.name": "x"}), &["user.name"], &["user.name"]);
        check_keys(json!({"org.id": "x"}), &["org"], &["org"]);
        check_keys(json!({"tenant_id.x": 1}), &[], &["tenant_id"]);
    }

    #[test]
    fn the_refusal_names_the_keys() {
        let Value::Object(session) = json!({"tenant_id": 1, "user_id": 2}) else { unreachable!() };
        assert_eq!(
            check(&session, ["user_id"]).unwrap_err().to_string(),
            "CONTEXT_OVERRIDE_DENIED: `sessionContext` sets `tenant_id`, `user_id`, which only a caller with \
             `context/override` may"
        );
    }
}
