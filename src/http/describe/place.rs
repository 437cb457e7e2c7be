//! Parameters of a path, by the segment before them.

use super::portable::LARGEST_NUMBER;
use super::queries::VALUES;
use crate::domain::event::NAME;
use crate::domain::ids::JobId;
use crate::domain::timer::TimerId;
use serde_json::{Value, json};

/// Describes the parameters in a path.
pub(super) fn parameters(path: &str) -> Vec<Value> {
    let mut before = "";
    let mut found = Vec::new();
    for segment in path.split('/') {
        match segment.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
            None => before = segment,
            Some(name) => {
                let name = name.trim_start_matches('*');
                let (about, schema) = parameter(before, name);
                found.push(
                    json!({"name": name, "in": "path", "required": true, "description": about, "schema": schema}),
                );
            }
        }
    }
    found
}

fn parameter(before: &str, name: &str) -> (&'static str, Value) {
    let text = |pattern: &str| json!({"type": "string", "pattern": pattern});
    match (before, name) {
        ("agents", "id") => ("Agent id.", text(NAME)),
        (_, "session") => ("Session id.", text(NAME)),
        (_, "turn") => ("Number of the turn.", json!({"type": "integer", "minimum": 1, "maximum": LARGEST_NUMBER})),
        ("jobs", _) => ("Job id: 32 hexadecimal digits, a leading `0x` is dropped.", text(JobId::PATTERN)),
        ("timers", _) => ("Its id, 32 hexadecimal digits.", text(TimerId::PATTERN)),
        ("approvals" | "outcomes", _) => {
            ("Its id: 32 hexadecimal digits, a leading `0x` is dropped.", text(JobId::PATTERN))
        }
        ("values", _) => ("What to do.", json!({"enum": VALUES})),
        ("operations", _) => {
            ("Catalog path; its slashes are not escaped.", text("^[A-Za-z0-9:_-]+(/[A-Za-z0-9:_-]+)*$"))
        }
        ("adapters", _) => ("Group, e.g. `lattice`.", json!({"type": "string", "minLength": 1})),
        ("assets", _) => (
            "SHA-256 of an asset in hex, or `<sha-256>/content`; slashes are not escaped.",
            text("^(a/)?(0x)?[0-9a-fA-F]{64}(/content)?$"),
        ),
        _ => ("Name of the secret.", text("^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::secret::SecretName;
    use crate::ops::asset::asset_id;

    #[test]
    fn the_pattern_of_an_id_is_what_its_parser_takes() {
        type Takes = fn(&str) -> bool;
        let parsers: [(&str, Takes); 6] = [
            ("jobs", |text| JobId::new(text).is_ok()),
            ("approvals", |text| JobId::new(text).is_ok()),
            ("outcomes", |text| JobId::new(text).is_ok()),
            ("timers", |text| TimerId::new(text).is_ok()),
            ("secrets", |text| SecretName::new(text).is_ok()),
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
            let (_, schema) = parameter(before, "id");
            for text in &given {
                assert_eq!(jsonschema::is_valid(&schema, &json!(text)), takes(text), "{before} `{text}`");
            }
        }
    }
}
