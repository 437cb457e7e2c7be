//! `_auto`: arguments with the name of a declared key.
//!
//! Names are compared as a whole: case, `.`, `_`, `-`, spaces and `camelCase` are ignored, and a few short names equal
//! their long ones. The last dotted segment alone never matches: `customer.id` is not `id`.

use serde_json::Value;

/// Short names and their long forms.
const ALIASES: [(&str, &str); 4] =
    [("uid", "userid"), ("tid", "tenantid"), ("org", "organizationid"), ("aid", "accountid")];

/// Names that have another meaning in every tool.
const EXCLUDED_NAMES: [&str; 5] = ["id", "name", "type", "status", "title"];

/// Arguments of a tool that `_auto` fills in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Matches {
    /// Pairs of argument and key.
    pub matched: Vec<(String, String)>,
    /// Arguments that more than one key would fit, each with a line of report.
    pub ambiguous: Vec<(String, String)>,
}

/// Matches the top-level scalar arguments of a tool's schema with `keys`.
pub fn match_arguments(schema: &Value, keys: &[&str]) -> Matches {
    let mut found = Matches::default();
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return found };
    for argument in properties.iter().filter(|(_, schema)| is_scalar(schema)).map(|(name, _)| name) {
        let name = whole_name(argument);
        if EXCLUDED_NAMES.contains(&name.as_str()) {
            continue;
        }
        let candidates: Vec<&str> = keys.iter().copied().filter(|key| whole_name(key) == name).collect();
        match candidates.as_slice() {
            [] => {}
            [key] => found.matched.push((argument.clone(), (*key).to_owned())),
            several => {
                let several: Vec<_> = several.iter().map(|key| format!("`{key}`")).collect();
                let report = format!(
                    "`_auto` leaves argument `{argument}` to the model: {} would fit it, bind one of them",
                    several.join(" and ")
                );
                found.ambiguous.push((argument.clone(), report));
            }
        }
    }
    found
}

/// Returns a name in the form in which names are compared.
pub(super) fn whole_name(name: &str) -> String {
    let plain: String = name.chars().filter(|c| !"._- ".contains(*c)).flat_map(char::to_lowercase).collect();
    ALIASES.iter().find(|(short, _)| *short == plain).map_or(plain, |(_, long)| (*long).to_owned())
}

/// Whether other spellings of a name mean the same.
pub(super) fn has_aliases(name: &str) -> bool {
    !EXCLUDED_NAMES.contains(&whole_name(name).as_str())
}

/// Whether two names differ only in spelling.
pub fn is_same_name(one: &str, other: &str) -> bool {
    whole_name(one) == whole_name(other)
}

fn is_scalar(schema: &Value) -> bool {
    let scalar = |name: &Value| matches!(name.as_str(), Some("string" | "number" | "integer" | "boolean"));
    match &schema["type"] {
        Value::Array(types) => types.iter().any(scalar) && types.iter().all(|name| scalar(name) || name == "null"),
        name => scalar(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(argument: &str, keys: &[&str], expected: Option<&str>) {
        let schema = json!({"type": "object", "properties": {argument: {"type": "string"}}});
        let found = match_arguments(&schema, keys);
        assert_eq!(found.matched.first().map(|(_, key)| key.as_str()), expected, "{argument} {keys:?}");
    }

    #[test]
    fn whole_names_match_whatever_their_spelling() {
        for argument in ["user_id", "userId", "UserID", "user-id", "user.id", "USER ID", "uid"] {
            check(argument, &["user_id"], Some("user_id"));
        }
        check("userId", &["uid"], Some("uid"));
        check("tid", &["tenant_id"], Some("tenant_id"));
        check("org", &["organizationId"], Some("organizationId"));
        check("accountId", &["aid"], Some("aid"));
        check("organization", &["organization_id"], None);
        check("user", &["user_id"], None);
    }

    #[test]
    fn auto_never_matches_a_last_segment_or_a_reserved_name() {
        check("id", &["customer.id"], None);
        check("name", &["user.name"], None);
        check("userName", &["user.name"], Some("user.name"));
        for name in ["id", "name", "type", "status", "title", "Status"] {
            check(name, &[name], None);
        }
    }

    #[test]
    fn two_candidates_are_no_match_and_a_report() {
        let schema = json!({"properties": {"userId": {"type": "string"}}});
        let found = match_arguments(&schema, &["user_id", "uid"]);
        assert_eq!(found.matched, []);
        let report =
            "`_auto` leaves argument `userId` to the model: `user_id` and `uid` would fit it, bind one of them";
        assert_eq!(found.ambiguous, [("userId".to_owned(), report.to_owned())]);
    }

    #[test]
    fn only_top_level_scalars_are_matched() {
        for (schema, matched) in [
            (json!({"type": "string"}), true),
            (json!({"type": "integer"}), true),
            (json!({"type": ["string", "null"]}), true),
            (json!({"type": ["string", "object"]}), false),
            (json!({"type": "object"}), false),
            (json!({"type": "array"}), false),
            (json!({}), false),
            (json!(true), false),
        ] {
            let tool = json!({"properties": {"user_id": schema}});
            assert_eq!(!match_arguments(&tool, &["user_id"]).matched.is_empty(), matched, "{tool}");
        }
        let nested = json!({"properties": {"user": {"type": "object", "properties": {"user_id": {"type": "string"}}}}});
        assert_eq!(match_arguments(&nested, &["user_id"]), Matches::default());
        assert_eq!(match_arguments(&json!("no schema"), &["user_id"]), Matches::default());
    }
}
