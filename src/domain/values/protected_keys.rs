//! Protected keys, which a request can't set: callers don't decide on their own identity.
//!
//! They are compared by their whole names, as `_auto` does: `user_id`, `userId`, `uid`, `user.id` and `{"user": {"id":
//! …}}` are the same.

use crate::values::auto::whole_name;
use crate::values::{Values, get};
use crate::visible::quote_names;
use serde_json::{Map, Value};

/// Whole name of the tenant's id: protected from every caller.
const TENANT: [&str; 1] = ["tenantid"];

/// Key of the user's id, which only a token sets.
pub const USER_ID: &str = "user_id";
/// Whole names of the user's id, name and e-mail address, as tools and prompts use them; the token's `sub`, `name` and
/// `email` set them.
const IDENTITY: [&str; 7] =
    ["userid", "username", "useremail", "useruserid", "useruid", "userusername", "useruseremail"];
/// Key of the map that holds them; any other value of this name counts as one of them.
const USER: &str = "user";

/// Bytes of a name above which it is no beginning of a protected one, even behind a tier.
const LONGEST: usize = 24;

/// Capability to set them nevertheless.
pub const OVERRIDE: &str = "context/override";

/// A `sessionContext` that sets protected keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("CONTEXT_OVERRIDE_DENIED: `sessionContext` sets {}, which only a caller with `{OVERRIDE}` may", quote_names(.keys))]
pub struct OverrideDenied {
    /// Protected keys that it sets.
    pub keys: Vec<String>,
}

/// Removes the identity of the sender from a session's values, wherever [`get`] would find it, with what is below.
/// Returns the removed keys.
pub fn take_identity(session: &mut Values) -> Vec<String> {
    let mut taken = Vec::new();
    take(session, "", &mut taken);
    taken
}

fn take(values: &mut Values, above: &str, taken: &mut Vec<String>) {
    for key in values.keys().cloned().collect::<Vec<_>>() {
        let path = join_key(above, &key);
        let is_user = whole_name(without_tier(&path)) == USER && !values[&key].is_object();
        if is_user || is_or_below(&path, &IDENTITY) {
            values.shift_remove(&key);
            taken.push(path);
        } else if let Some(Value::Object(inner)) = values.get_mut(&key)
            && whole_name(&path).len() <= LONGEST
        {
            take(inner, &path, taken);
        }
    }
}

/// Collects the keys by which a session gives a value to one of these whole names.
fn find(values: &Map<String, Value>, above: &str, names: &[&str], found: &mut Vec<String>) {
    for (key, value) in values {
        let path = join_key(above, key);
        if is_or_below(&path, names) {
            found.push(path);
        } else if let Value::Object(inner) = value
            && whole_name(&path).len() <= LONGEST
        {
            find(inner, &path, names, found);
        }
    }
}

fn join_key(above: &str, key: &str) -> String {
    if above.is_empty() { key.to_owned() } else { format!("{above}.{key}") }
}

/// Whether a dotted key is one of these names, or below one.
fn is_or_below(key: &str, names: &[&str]) -> bool {
    is_named(key, names) || is_named(without_tier(key), names)
}

/// Returns a key without the tier before it: in a placeholder `session.user_id` is a key of that name.
fn without_tier(key: &str) -> &str {
    key.strip_prefix("session.").unwrap_or(key)
}

fn is_named(key: &str, names: &[&str]) -> bool {
    let ends = key.match_indices('.').map(|(at, _)| at).chain([key.len()]);
    ends.into_iter().any(|end| names.contains(&whole_name(&key[..end]).as_str()))
}

/// Refuses a session that gives a value to `tenant_id` in any spelling, or to one of `claims`, the keys of a verified
/// token: by its name, on the way to it (`{"user": {"name": …}}` for `user.name`) or below it (`org.id` for `org`).
pub fn check<'k>(session: &Values, claims: impl IntoIterator<Item = &'k str>) -> Result<(), OverrideDenied> {
    let mut keys: Vec<String> = claims.into_iter().filter(|key| sets_key(session, key)).map(str::to_owned).collect();
    find(session, "", &TENANT, &mut keys);
    keys.sort();
    keys.dedup();
    if keys.is_empty() { Ok(()) } else { Err(OverrideDenied { keys }) }
}

fn sets_key(session: &Values, key: &str) -> bool {
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
        for spelt in ["tenantId", "TENANT-ID", "tenant.id", "tid"] {
            check_keys(json!({spelt: "x"}), &[], &[spelt]);
        }
        check_keys(json!({"tenant": {"id": "x"}}), &[], &["tenant.id"]);
        check_keys(json!({"tenant": {"name": "x"}, "tenants": 1, "lead": {"tenant_id": 1}}), &[], &[]);
        check_keys(json!({"user_id": "x"}), &[], &[]);
        check_keys(json!({"user_id": "x", "tenant_id": "y"}), &claims, &["tenant_id", "user_id"]);
    }

    #[test]
    fn identity_claims_in_values_are_removed_everywhere() {
        let Value::Object(mut session) = json!({
            "user_id": "x", "user_id.y": 1, "user_ids": [1], "user": {"name": "x", "email": null, "nick": "n"},
            "user.name": "z", "user_email": ["x"], "userId": "x", "uid": 1, "users": {"id": 1}, "lead": {"user_id": 1},
            "User": {"ID": "x", "id": {"y": 1}, "user_id": "x"}, "u": {"id": 1, "x": 2}, "USER.ID.y": 1,
        }) else {
            unreachable!()
        };
        let taken = take_identity(&mut session);
        let expected = [
            "user_id",
            "user_id.y",
            "user.name",
            "user.email",
            "user.name",
            "user_email",
            "userId",
            "uid",
            "User.ID",
            "User.id",
            "User.user_id",
            "u.id",
            "USER.ID.y",
        ];
        assert_eq!(taken, expected);
        let left = json!({
            "user_ids": [1], "user": {"nick": "n"}, "users": {"id": 1}, "lead": {"user_id": 1},
            "User": {}, "u": {"x": 2},
        });
        assert_eq!(Value::Object(session.clone()), left);
        assert_eq!(take_identity(&mut session), Vec::<String>::new());
        for session in
            [json!({"session": {"user_id": "x", "a": 1}}), json!({"session.user_id": "x", "session": {"a": 1}})]
        {
            let Value::Object(mut session) = session else { unreachable!() };
            assert_eq!(take_identity(&mut session), ["session.user_id"]);
            assert_eq!(Value::Object(session), json!({"session": {"a": 1}}));
        }
        for user in [json!("eve"), json!(["eve"]), json!(7)] {
            let mut session = Values::from_iter([("user".to_owned(), user)]);
            assert_eq!(take_identity(&mut session), ["user"]);
        }
    }

    #[test]
    fn protection_covers_paths_above_and_below_a_key() {
        check_keys(json!({"user": {"name": "x"}}), &["user.name"], &["user.name"]);
        check_keys(json!({"user.name": "x"}), &["user.name"], &["user.name"]);
        check_keys(json!({"org.id": "x"}), &["org"], &["org"]);
        check_keys(json!({"tenant_id.x": 1}), &[], &["tenant_id.x"]);
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
