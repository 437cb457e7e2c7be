//! Tools as a provider takes them: legal, unique names and projected schemas. Replies are mapped back.

use super::EncodeError;
use super::dialect::{Dialect, ToolNameRule};
use super::schema::{self, Renames};
use crate::chat::ToolSpec;
use serde_json::Value;
use std::collections::BTreeSet;

/// Name for a tool whose name has no legal character.
const UNNAMED: &str = "unnamed";

/// A tool as it is sent.
#[derive(Debug, Clone, PartialEq)]
pub struct SentTool {
    /// Name of the tool in Trellis.
    pub own_name: String,
    /// The name that is sent.
    pub name: String,
    /// What the tool does.
    pub description: String,
    /// The schema that is sent.
    pub schema: Value,
    /// How the arguments map back to our schema.
    pub renames: Renames,
}

/// The tools of a request as they are sent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolNames {
    /// Tools in the order of the request.
    pub tools: Vec<SentTool>,
    rule: Option<ToolNameRule>,
}

impl ToolNames {
    /// Makes legal names and projected schemas for the tools of a request.
    pub fn for_dialect(tools: &[ToolSpec], dialect: &Dialect) -> Result<Self, EncodeError> {
        let rule = dialect.tool_names;
        let mut taken = BTreeSet::new();
        let mut sent = Vec::with_capacity(tools.len());
        for tool in tools {
            let projected = schema::project(&tool.schema, dialect.schema).map_err(|reason| EncodeError::Schema {
                tool: tool.name.clone(),
                provider: dialect.provider.to_owned(),
                reason,
            })?;
            let name = unique_name(&legal_name(&tool.name, rule), rule, &mut taken);
            sent.push(SentTool {
                own_name: tool.name.clone(),
                name,
                description: tool.description.clone(),
                schema: projected.schema,
                renames: projected.renames,
            });
        }
        Ok(Self { tools: sent, rule: Some(rule) })
    }

    /// Returns the sent name for one of ours; an unknown name, which a model has invented, is made legal.
    pub fn sent_name(&self, ours: &str) -> String {
        match (self.tools.iter().find(|tool| tool.own_name == ours), self.rule) {
            (Some(tool), _) => tool.name.clone(),
            (None, Some(rule)) => legal_name(ours, rule),
            (None, None) => ours.to_owned(),
        }
    }

    /// Finds the tool that a reply calls by this name.
    pub fn find(&self, sent: &str) -> Option<&SentTool> {
        self.tools.iter().find(|tool| tool.name == sent)
    }

    /// Returns our name for a name in a reply; an unknown name stays as the model wrote it.
    pub fn own_name(&self, sent: &str) -> String {
        self.find(sent).map_or_else(|| sent.to_owned(), |tool| tool.own_name.clone())
    }
}

/// Makes the nearest name that the rule allows.
fn legal_name(name: &str, rule: ToolNameRule) -> String {
    let kept = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let mut found: String = name.trim().chars().map(kept).take(rule.chars).collect();
    if found.is_empty() {
        return UNNAMED.to_owned();
    }
    if rule.begins_with_letter && !found.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        found.insert(0, '_');
        found.truncate(rule.chars);
    }
    found
}

/// Makes a name unique by a number at its end, and adds it to `taken`.
fn unique_name(name: &str, rule: ToolNameRule, taken: &mut BTreeSet<String>) -> String {
    let mut found = name.to_owned();
    let mut number = 2;
    while !taken.insert(found.clone()) {
        let end = format!("_{number}");
        found = format!("{}{end}", &name[..name.len().min(rule.chars - end.len())]);
        number += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::dialect::find_dialect;
    use super::*;
    use serde_json::json;

    fn names(provider: &str, ours: &[&str]) -> ToolNames {
        let spec = |name: &&str| ToolSpec {
            name: (*name).to_owned(),
            description: String::new(),
            schema: json!({"type": "object", "properties": {"a": {"type": "string"}}}),
        };
        ToolNames::for_dialect(&ours.iter().map(spec).collect::<Vec<_>>(), &find_dialect(provider).unwrap()).unwrap()
    }

    #[test]
    fn names_are_legal_unique_and_mapped_back() {
        let long = "x".repeat(70);
        let given = ["read", "a.b", "a b", "ü", "", "9lives", &long, &format!("{long}y")];
        for provider in ["openai", "gemini"] {
            let names = names(provider, &given);
            let mut seen = BTreeSet::new();
            for (ours, tool) in given.iter().zip(&names.tools) {
                assert!(seen.insert(tool.name.clone()), "{} twice", tool.name);
                assert!(tool.name.len() <= 64 && !tool.name.is_empty());
                assert!(tool.name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)), "{}", tool.name);
                assert_eq!(names.own_name(&tool.name), *ours);
                assert_eq!(names.sent_name(ours), tool.name);
            }
        }
        assert!(names("gemini", &["9lives"]).tools[0].name.starts_with('_'));
    }

    #[test]
    fn invented_names_of_the_history_are_legal_too() {
        let names = names("openai", &["read"]);
        for (given, expected) in [
            ("functions.read", "functions_read"),
            ("rm -rf /", "rm_-rf__"),
            ("", UNNAMED),
            ("read ", "read"),
            ("ß", "_"),
        ] {
            assert_eq!(names.sent_name(given), expected, "{given}");
        }
        assert_eq!(names.own_name("functions.read"), "functions.read", "what was never sent stays as it was written");
    }
}
