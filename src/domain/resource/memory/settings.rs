//! Settings of a memory in an agent's configuration, in the forms of agntz too.

use super::MemoryKind;
use crate::decode;
use crate::limits::{MEMORY_PRELOAD, MEMORY_PRELOAD_CHARS, MEMORY_TOPIC_BYTES};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The topic that agntz loads always.
const CORE: &str = "core";

/// How an agent uses a memory.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MemorySettings {
    /// The topics that can be read stand in the context.
    pub auto_scan: bool,
    /// Entries that stand in the context.
    pub preload: Preload,
    /// Marks of the entries that it writes.
    pub tags: Vec<String>,
    /// Where it may write.
    pub write_policy: WritePolicy,
    /// It may forget a whole scope at once.
    pub forget_scope: bool,
}

impl Default for MemorySettings {
    fn default() -> Self {
        Self {
            auto_scan: true,
            preload: Preload::default(),
            tags: Vec::new(),
            write_policy: WritePolicy::default(),
            forget_scope: false,
        }
    }
}

/// Entries that stand in the context; by default none.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub struct Preload {
    /// About whatever.
    pub all: bool,
    /// Those about any of these, as they are kept.
    pub topics: Vec<String>,
    /// Of these sorts; empty = of any.
    pub kinds: Vec<MemoryKind>,
    /// So many of them.
    pub limit: usize,
    /// Characters of all of them together.
    pub chars: usize,
}

impl Default for Preload {
    fn default() -> Self {
        let (limit, chars) = (MEMORY_PRELOAD, MEMORY_PRELOAD_CHARS);
        Self { all: false, topics: Vec::new(), kinds: Vec::new(), limit, chars }
    }
}

impl Preload {
    /// Nothing is wanted.
    pub const fn is_none(&self) -> bool {
        !self.all && self.topics.is_empty()
    }

    /// About these.
    fn about(topics: Topics) -> Self {
        match topics {
            Topics::All(All::All) => Self { all: true, ..Self::default() },
            Topics::These(topics) => {
                let topics = topics.iter().map(|topic| topic.trim().to_lowercase()).collect();
                Self { topics, ..Self::default() }
            }
        }
    }
}

/// Topics, or all of them.
#[derive(Deserialize)]
#[serde(untagged)]
enum Topics {
    All(All),
    These(Vec<String>),
}

/// The word `all`.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum All {
    All,
}

/// The form of a map.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Full {
    #[serde(default)]
    core: bool,
    topics: Option<Topics>,
    limit: Option<usize>,
    max_chars: Option<usize>,
    #[serde(default)]
    types: Vec<MemoryKind>,
}

impl TryFrom<Value> for Preload {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        match value {
            Value::Bool(core) => {
                Ok(Self { topics: core.then(|| CORE.to_owned()).into_iter().collect(), ..Self::default() })
            }
            Value::Object(_) => {
                let full: Full = decode::typed(value).map_err(|wrong| wrong.to_string())?;
                let mut preload = full.topics.map(Self::about).unwrap_or_default();
                if full.core && !preload.topics.iter().any(|topic| topic == CORE) {
                    preload.topics.insert(0, CORE.to_owned());
                }
                preload.limit = at_most("limit", full.limit, MEMORY_PRELOAD)?;
                preload.chars = at_most("maxChars", full.max_chars, MEMORY_PRELOAD_CHARS)?;
                Ok(Self { kinds: full.types, ..preload })
            }
            other => {
                let wrong = |_| {
                    format!(
                        "`preload`: expected a list of topics, or `all`, or {{core, topics, limit, maxChars, types}}, \
                         got {other}"
                    )
                };
                decode::typed(other.clone()).map(Self::about).map_err(wrong)
            }
        }
    }
}

fn at_most(key: &str, given: Option<usize>, most: usize) -> Result<usize, String> {
    match given {
        None => Ok(most),
        Some(given) if (1..=most).contains(&given) => Ok(given),
        Some(given) => Err(format!("`preload.{key}`: expected 1 to {most}, got {given}")),
    }
}

/// Where an agent may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WritePolicy {
    /// Also into scopes below those that were granted.
    pub descendants: bool,
    /// What else is written above them.
    pub ancestor_promotion: Promotion,
}

impl Default for WritePolicy {
    fn default() -> Self {
        Self { descendants: true, ancestor_promotion: Promotion::None }
    }
}

/// What is written above the granted scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Promotion {
    /// Nothing.
    None,
}

impl TryFrom<String> for Promotion {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "none" => Ok(Self::None),
            other => Err(format!(
                "`writePolicy.ancestorPromotion`: expected `none`, got `{other}`: a grant writes into its own scope and \
                 below it, never above"
            )),
        }
    }
}

impl MemorySettings {
    /// Reads them.
    pub fn parse(settings: &Map<String, Value>) -> Result<Self, String> {
        let read: Self = decode::typed(Value::Object(settings.clone())).map_err(|wrong| wrong.to_string())?;
        match read.tags.iter().find(|tag| tag.is_empty() || tag.len() > MEMORY_TOPIC_BYTES) {
            None => Ok(read),
            Some(tag) => Err(format!("`tags`: expected 1 to {MEMORY_TOPIC_BYTES} bytes each, got {}", tag.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn settings(value: &Value) -> Result<MemorySettings, String> {
        MemorySettings::parse(value.as_object().unwrap())
    }

    #[test]
    fn preload_is_read_in_all_its_forms() {
        let preload = |topics: &[&str]| Preload {
            topics: topics.iter().map(|topic| (*topic).to_owned()).collect(),
            ..Preload::default()
        };
        for (value, expected) in [
            (json!(false), preload(&[])),
            (json!(true), preload(&["core"])),
            (json!("all"), Preload { all: true, ..preload(&[]) }),
            (json!(["Goals "]), preload(&["goals"])),
            (json!({}), preload(&[])),
            (json!({"core": true, "topics": ["goals"]}), preload(&["core", "goals"])),
            (
                json!({"topics": "all", "types": ["fact"]}),
                Preload { all: true, kinds: vec![MemoryKind::Fact], ..preload(&[]) },
            ),
            (
                json!({"topics": ["a"], "limit": 30, "maxChars": 10000}),
                Preload { limit: 30, chars: 10_000, ..preload(&["a"]) },
            ),
        ] {
            assert_eq!(settings(&json!({"preload": value})).map(|read| read.preload), Ok(expected), "{value}");
        }
        let policy = json!({"writePolicy": {"descendants": false, "ancestorPromotion": "none"}});
        assert!(!settings(&policy).unwrap().write_policy.descendants);
    }

    #[test]
    fn settings_that_mean_nothing_are_refused() {
        for (value, expected) in [
            (json!({"autoscan": true}), "unknown field `autoscan`"),
            (json!({"preload": "some"}), "expected a list of topics, or `all`"),
            (json!({"preload": {"limit": 0}}), "`preload.limit`: expected 1 to 50, got 0"),
            (json!({"preload": {"maxChars": 50_000}}), "`preload.maxChars`: expected 1 to 12000, got 50000"),
            (json!({"preload": {"most": 1}}), "`preload`: unknown field `most`"),
            (json!({"preload": {"types": ["rumour"]}}), "`preload.types[0]`: unknown variant `rumour`"),
            (json!({"autoScan": "yes"}), "expected a boolean"),
            (json!({"tags": [""]}), "`tags`: expected 1 to 64 bytes"),
            (json!({"writePolicy": {"ancestorPromotion": "parent"}}), "expected `none`, got `parent`: a grant writes"),
            (json!({"writePolicy": {"up": true}}), "unknown field `up`"),
        ] {
            let error = settings(&value).unwrap_err();
            assert!(error.contains(expected), "{value}: {error}");
        }
    }
}
