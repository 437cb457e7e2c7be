//! Keys that a request can't set: who somebody is, is not for him to say.

use crate::values::{Values, get};
use serde_json::Value;

/// Protected whoever asks.
const ALWAYS: &str = "tenant_id";

/// Of whom a request is, where a token says it: what it doesn't say, nobody says.
pub const USER_ID: &str = "user_id";
/// Names of the same, as tools and prompts use them: by the token's `sub`, `name` and `email`.
pub const IDENTITY: [&str; 5] = [USER_ID, "user_name", "user_email", "user.name", "user.email"];

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

/// Takes what a session says of the identity of its sender out of it, wherever [`get`] would find it,
/// and what lies below. Returns the keys that it had.
pub fn take_identity(session: &mut Values) -> Vec<String> {
    let mut taken = Vec::new();
    for name in IDENTITY {
        let below = format!("{name}.");
        let given: Vec<String> =
            session.keys().filter(|key| *key == name || key.starts_with(&below)).cloned().collect();
        for key in given {
            session.shift_remove(&key);
            taken.push(key);
        }
        let inner = name.split_once('.').and_then(|(first, rest)| match session.get_mut(first) {
            Some(Value::Object(map)) => map.shift_remove(rest),
            _ => None,
        });
        if inner.is_some() {
            taken.push(name.to_owned());
        }
    }
    taken
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
    fn what_is_said_of_an_identity_is_taken_out_wherever_it_would_be_found() {
        let Value::Object(mut session) = json!({
            "user_id": "x", "user_id.y": 1, "user_ids": [1], "user": {"name": "x", "email": null, "nick": "n"},
            "user.name": "z", "user_email": ["x"], "userId": "own", "username": "u",
        }) else {
            unreachable!()
        };
        let taken = take_identity(&mut session);
        assert_eq!(taken, ["user_id", "user_id.y", "user_email", "user.name", "user.name", "user.email"]);
        let left = json!({"user_ids": [1], "user": {"nick": "n"}, "userId": "own", "username": "u"});
        assert_eq!(Value::Object(session.clone()), left);
        assert!(IDENTITY.iter().all(|name| get(&session, name).is_none()));
        assert_eq!(take_identity(&mut session), Vec::<String>::new());
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
