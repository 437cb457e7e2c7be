//! Descriptions of the parameters in the paths of routes, such as `{id}` of `/api/v1/jobs/{id}`.

use super::portable::LARGEST_NUMBER;
use super::queries::VALUES;
use crate::domain::event::NAME;
use crate::domain::ids::JobId;
use crate::domain::timer::TimerId;
use serde_json::{Value, json};

/// Returns the parameters of a route's path, each as the last fixed segment before it and its name: `("jobs", "id")`.
pub(super) fn list(path: &str) -> Vec<(&str, &str)> {
    let mut before = "";
    let mut found = Vec::new();
    for segment in path.split('/') {
        match segment.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
            None => before = segment,
            Some(name) => found.push((before, name.trim_start_matches('*'))),
        }
    }
    found
}

/// Returns the parameters of a route's path as OpenAPI has them. One that [`describe`] doesn't know is left out; a test
/// finds it.
pub(super) fn describe_all(path: &str) -> Vec<Value> {
    let described = list(path).into_iter().filter_map(|(before, name)| {
        let (about, schema) = describe(before, name)?;
        Some(json!({"name": name, "in": "path", "required": true, "description": about, "schema": schema}))
    });
    described.collect()
}

/// Returns the description and the schema of the parameter `name` behind the segment `before`; `None` if there is no
/// such parameter.
fn describe(before: &str, name: &str) -> Option<(&'static str, Value)> {
    let text = |pattern: &str| json!({"type": "string", "pattern": pattern});
    Some(match (before, name) {
        ("agents", "id") => ("Agent id.", text(NAME)),
        (_, "session") => ("Session id.", text(NAME)),
        (_, "turn") => {
            ("Number of the turn, from 1.", json!({"type": "integer", "minimum": 1, "maximum": LARGEST_NUMBER}))
        }
        ("jobs", _) => ("Job id: 32 hexadecimal digits, a leading `0x` is dropped.", text(JobId::PATTERN)),
        ("timers", _) => ("Timer id: 32 hexadecimal digits.", text(TimerId::PATTERN)),
        ("approvals", _) => ("Approval id: 32 hexadecimal digits, a leading `0x` is dropped.", text(JobId::PATTERN)),
        ("outcomes", _) => {
            ("Id of a call of unknown outcome: 32 hexadecimal digits, a leading `0x` is dropped.", text(JobId::PATTERN))
        }
        ("values", _) => ("Name of a read operation on the lattice.", json!({"enum": VALUES})),
        ("operations", _) => {
            ("Catalog path; its slashes are not escaped.", text("^[A-Za-z0-9:_-]+(/[A-Za-z0-9:_-]+)*$"))
        }
        ("adapters", _) => ("Group of operations, e.g. `lattice`.", json!({"type": "string", "minLength": 1})),
        ("assets", _) => (
            "SHA-256 of an asset in hex, or `<sha-256>/content`; slashes are not escaped.",
            text("^(a/)?(0x)?[0-9a-fA-F]{64}(/content)?$"),
        ),
        ("secrets", _) => ("Name of the secret.", text("^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$")),
        ("webhooks", _) => ("Name of the webhook.", text("^[A-Za-z0-9-]{1,32}$")),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::secret::SecretName;
    use crate::domain::webhook::WebhookName;
    use crate::ops::asset::asset_id;

    #[test]
    fn the_pattern_of_an_id_is_what_its_parser_takes() {
        type Takes = fn(&str) -> bool;
        let parsers: [(&str, Takes); 7] = [
            ("jobs", |text| JobId::new(text).is_ok()),
            ("approvals", |text| JobId::new(text).is_ok()),
            ("outcomes", |text| JobId::new(text).is_ok()),
            ("timers", |text| TimerId::new(text).is_ok()),
            ("secrets", |text| SecretName::new(text).is_ok()),
            ("webhooks", |text| WebhookName::new(text).is_ok()),
            ("assets", |text| asset_id(text.strip_suffix("/content").unwrap_or(text)).is_ok()),
        ];
        let (short, long) = ("0f".repeat(16), "0f".repeat(32));
        let given = [
            String::new(),
            "x".to_owned(),
            "-x".to_owned(),
            "x.y-z".to_owned(),
            "x".repeat(65),
            short.clone(),
            short.to_uppercase(),
            format!("0x{short}"),
            format!("0X{short}"),
            format!("a/{short}"),
            format!("{short}0"),
            long.clone(),
            long.to_uppercase(),
            format!("0x{long}"),
            format!("a/0x{long}"),
            format!("0xa/{long}"),
            format!("{long}/content"),
        ];
        for (before, takes) in parsers {
            let (_, schema) = describe(before, "id").unwrap();
            for text in &given {
                assert_eq!(jsonschema::is_valid(&schema, &json!(text)), takes(text), "{before} `{text}`");
            }
        }
    }
}
