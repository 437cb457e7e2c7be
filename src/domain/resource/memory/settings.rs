//! Settings of a memory in an agent's configuration, in the forms of agntz too.

use super::MemoryKind;
use crate::authority::grant::check_namespace;
use crate::decode::{self, DataError};
use crate::limits::{
    MEMORY_PRELOAD, MEMORY_PRELOAD_CHARS, MEMORY_PRELOAD_CHARS_MOST, MEMORY_PRELOAD_MOST, MEMORY_TOPIC_BYTES,
};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Topic that agntz always loads.
const CORE: &str = "core";

/// Why the settings of a memory are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemorySettingsError {
    /// The settings have another form.
    #[error(transparent)]
    Data(#[from] DataError),
    /// `namespace` is neither a text nor a list of texts; holds the value.
    #[error("`namespace`: expected a namespace or a list of them, got {0}")]
    Branches(Value),
    /// A namespace breaks this rule.
    #[error("`namespace`: {0}")]
    Branch(&'static str),
    /// A number is zero.
    #[error("expected at least 1, got 0")]
    Zero,
    /// `preload` has none of the forms; holds the value.
    #[error("`preload`: expected a list of topics, or `all`, or {{core, topics, limit, maxChars, types}}, got {0}")]
    Preload(Value),
    /// `preload` names an empty list of kinds.
    #[error("`types`: expected at least one, got none")]
    NoTypes,
    /// The promotion is unknown; holds its name.
    #[error(
        "`writePolicy.ancestorPromotion`: expected `none`, got `{0}`: a grant writes into its own scope and below it, \
         never above"
    )]
    Promotion(String),
    /// A tag is empty or too long; holds its bytes.
    #[error("`tags`: expected 1 to {MEMORY_TOPIC_BYTES} bytes each, got {0}")]
    TagLength(usize),
}

/// Settings of an agent's memory.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MemorySettings {
    /// Whether the context shows the readable topics.
    pub auto_scan: bool,
    /// Entries that the context shows.
    pub preload: Preload,
    /// Number of preloaded entries in an older form of agntz; `preload` wins over it.
    preload_limit: Option<PositiveNumber>,
    /// Branches of the granted namespaces beyond which it neither reads nor writes; empty = all granted ones.
    pub namespace: Branches,
    /// Tags of the entries that it writes.
    pub tags: Vec<String>,
    /// Scopes that it may write.
    pub write_policy: WritePolicy,
    /// Whether it may forget a whole scope at once.
    pub forget_scope: bool,
}

impl Default for MemorySettings {
    fn default() -> Self {
        Self {
            auto_scan: true,
            preload: Preload::default(),
            preload_limit: None,
            namespace: Branches::default(),
            tags: Vec::new(),
            write_policy: WritePolicy::default(),
            forget_scope: false,
        }
    }
}

/// Namespaces, written as one text or as a list.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(try_from = "Value")]
pub struct Branches(pub Vec<String>);

impl TryFrom<Value> for Branches {
    type Error = MemorySettingsError;

    fn try_from(value: Value) -> Result<Self, MemorySettingsError> {
        let given = if value.is_string() { Value::Array(vec![value]) } else { value };
        let wrong = |_| MemorySettingsError::Branches(given.clone());
        let branches: Vec<String> = decode::into_type(given.clone()).map_err(wrong)?;
        for branch in &branches {
            check_namespace(branch).map_err(MemorySettingsError::Branch)?;
        }
        Ok(Self(branches))
    }
}

/// Entries that the context shows; by default none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(try_from = "Value")]
pub struct Preload {
    /// Whether entries of all topics are shown.
    pub all: bool,
    /// Topics of which a shown entry has any, in their stored form.
    pub topics: Vec<String>,
    /// Kinds of the shown entries; empty = all kinds.
    pub kinds: Vec<MemoryKind>,
    /// Number of entries; [`MEMORY_PRELOAD`] when absent.
    limit: Option<usize>,
    /// Characters of all entries together.
    chars: Option<usize>,
}

impl Preload {
    /// Whether no entries are shown.
    pub const fn is_none(&self) -> bool {
        !self.all && self.topics.is_empty()
    }

    /// Returns the number of entries that are shown at most.
    pub fn limit(&self) -> usize {
        self.limit.unwrap_or(MEMORY_PRELOAD).min(MEMORY_PRELOAD_MOST)
    }

    /// Returns the characters of all entries together at most.
    pub fn chars(&self) -> usize {
        self.chars.unwrap_or(MEMORY_PRELOAD_CHARS).min(MEMORY_PRELOAD_CHARS_MOST)
    }

    /// Makes the settings of the core topic, if it is wanted, and of these topics.
    fn select_topics(core: bool, topics: Option<PreloadTopics>) -> Self {
        let mut wanted: Vec<String> = core.then(|| CORE.to_owned()).into_iter().collect();
        match topics {
            // Events are shown only when they are asked for.
            Some(PreloadTopics::All(AllTopics::All)) => {
                return Self { all: true, kinds: LASTING_KINDS.to_vec(), ..Self::default() };
            }
            Some(PreloadTopics::These(topics)) => {
                for topic in topics {
                    let topic = topic.trim().to_lowercase();
                    if !wanted.contains(&topic) {
                        wanted.push(topic);
                    }
                }
            }
            None => {}
        }
        Self { topics: wanted, ..Self::default() }
    }
}

/// Kinds of entries that stay true for long.
const LASTING_KINDS: [MemoryKind; 5] =
    [MemoryKind::Fact, MemoryKind::Preference, MemoryKind::Summary, MemoryKind::Semantic, MemoryKind::Procedural];

/// A list of topics, or all of them.
#[derive(Deserialize)]
#[serde(untagged)]
enum PreloadTopics {
    All(AllTopics),
    These(Vec<String>),
}

/// The word `all`.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum AllTopics {
    All,
}

/// A whole number of at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "usize")]
struct PositiveNumber(usize);

impl TryFrom<usize> for PositiveNumber {
    type Error = MemorySettingsError;

    fn try_from(given: usize) -> Result<Self, MemorySettingsError> {
        if given == 0 { Err(MemorySettingsError::Zero) } else { Ok(Self(given)) }
    }
}

/// Preload settings in the form of a map.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PreloadMap {
    #[serde(default)]
    core: bool,
    topics: Option<PreloadTopics>,
    limit: Option<PositiveNumber>,
    max_chars: Option<PositiveNumber>,
    types: Option<Vec<MemoryKind>>,
}

impl TryFrom<Value> for Preload {
    type Error = MemorySettingsError;

    fn try_from(value: Value) -> Result<Self, MemorySettingsError> {
        match value {
            Value::Bool(core) => Ok(Self::select_topics(core, None)),
            Value::Object(_) => {
                let full: PreloadMap = decode::into_type(value)?;
                if full.types.as_ref().is_some_and(Vec::is_empty) {
                    return Err(MemorySettingsError::NoTypes);
                }
                let preload = Self::select_topics(full.core, full.topics);
                let (limit, chars) =
                    (full.limit.map(|PositiveNumber(limit)| limit), full.max_chars.map(|PositiveNumber(chars)| chars));
                let kinds = full.types.unwrap_or_else(|| preload.kinds.clone());
                Ok(Self { kinds, limit, chars, ..preload })
            }
            other => {
                let topics = decode::into_type(other.clone()).map_err(|_| MemorySettingsError::Preload(other))?;
                // The short form includes the core topic.
                Ok(Self::select_topics(true, Some(topics)))
            }
        }
    }
}

/// Scopes that an agent may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WritePolicy {
    /// Whether scopes below the granted ones may be written, too.
    pub descendants: bool,
    /// Further writes above the granted scopes.
    pub ancestor_promotion: Promotion,
}

impl Default for WritePolicy {
    fn default() -> Self {
        Self { descendants: true, ancestor_promotion: Promotion::None }
    }
}

/// Writes above the granted scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Promotion {
    /// No writes above the granted scopes.
    None,
}

impl TryFrom<String> for Promotion {
    type Error = MemorySettingsError;

    fn try_from(text: String) -> Result<Self, MemorySettingsError> {
        if text == "none" { Ok(Self::None) } else { Err(MemorySettingsError::Promotion(text)) }
    }
}

impl MemorySettings {
    /// Reads the settings of a resource.
    pub fn parse(settings: &Map<String, Value>) -> Result<Self, MemorySettingsError> {
        let mut read: Self = decode::into_type(Value::Object(settings.clone()))?;
        read.preload.limit = read.preload.limit.or(read.preload_limit.map(|PositiveNumber(limit)| limit));
        match read.tags.iter().find(|tag| tag.is_empty() || tag.len() > MEMORY_TOPIC_BYTES) {
            None => Ok(read),
            Some(tag) => Err(MemorySettingsError::TagLength(tag.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn settings(value: &Value) -> Result<MemorySettings, MemorySettingsError> {
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
            (json!("all"), Preload { all: true, kinds: LASTING_KINDS.to_vec(), ..preload(&[]) }),
            (json!(["Goals ", "core"]), preload(&["core", "goals"])),
            (json!({}), preload(&[])),
            (json!({"core": true, "topics": ["goals"]}), preload(&["core", "goals"])),
            (json!({"topics": ["goals"]}), preload(&["goals"])),
            (
                json!({"topics": "all", "types": ["event"]}),
                Preload { all: true, kinds: vec![MemoryKind::Event], ..preload(&[]) },
            ),
            (
                json!({"topics": ["a"], "limit": 200, "maxChars": 50_000}),
                Preload { limit: Some(200), chars: Some(50_000), ..preload(&["a"]) },
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
            (json!({"preload": {"limit": 0}}), "`preload.limit`: expected at least 1, got 0"),
            (json!({"preload": {"maxChars": "x"}}), "`preload.maxChars`: expected"),
            (json!({"preload": {"types": []}}), "`preload.types`: expected at least one, got none"),
            (json!({"preloadLimit": 0}), "`preloadLimit`: expected at least 1, got 0"),
            (json!({"namespace": 1}), "`namespace`: expected a namespace or a list of them, got 1"),
            (json!({"namespace": ["app/"]}), "`namespace`: "),
            (json!({"preload": {"most": 1}}), "`preload`: unknown field `most`"),
            (json!({"preload": {"types": ["rumour"]}}), "`preload.types[0]`: unknown variant `rumour`"),
            (json!({"autoScan": "yes"}), "expected a boolean"),
            (json!({"tags": [""]}), "`tags`: expected 1 to 64 bytes"),
            (json!({"writePolicy": {"ancestorPromotion": "parent"}}), "expected `none`, got `parent`: a grant writes"),
            (json!({"writePolicy": {"up": true}}), "unknown field `up`"),
        ] {
            let error = settings(&value).unwrap_err().to_string();
            assert!(error.contains(expected), "{value}: {error}");
        }
    }

    #[test]
    fn limits_of_preloaded_entries_have_bounds_of_their_own() {
        let limits = |value: Value| settings(&value).map(|read| (read.preload.limit(), read.preload.chars())).unwrap();
        assert_eq!(limits(json!({})), (50, 12_000));
        assert_eq!(limits(json!({"preload": {"limit": 1_000, "maxChars": 100_000}})), (200, 50_000));
        assert_eq!(limits(json!({"preload": "all", "preloadLimit": 7})).0, 7);
        assert_eq!(limits(json!({"preload": {"limit": 3}, "preloadLimit": 7})).0, 3);
    }

    #[test]
    fn branches_are_a_text_or_a_list() {
        let branches = |value: Value| settings(&json!({"namespace": value})).map(|read| read.namespace.0).unwrap();
        assert_eq!(branches(json!("app/org")), ["app/org"]);
        assert_eq!(branches(json!(["a", "b/c"])), ["a", "b/c"]);
    }
}
