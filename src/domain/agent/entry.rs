//! Context entries: sections of a prompt that a configuration or an agent's state names.

use crate::authority::ResourcePath;
use crate::decode::{self, DataError};
use crate::ids::{AssetId, IdError, JobId};
use crate::lattice::value::get as navigate;
use crate::lattice::{Path, PathError};
use crate::limits::{CONTEXT_ENTRIES, ENTRY_BYTES};
use crate::load::{LabelError, check_label};
use crate::scope::{InstanceNameError, check_instance};
use crate::values::placeholder;
use crate::visible::quote_foreign;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One entry: a text, or a map that names the source of the content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, try_from = "Value")]
pub enum ContextEntry {
    /// An asset (64 hex digits or `a/…`), a path (a namespace prefix and no space), else literal text.
    Short(String),
    /// A source with options.
    Full(Box<FullEntry>),
}

/// An entry with options. Of several sources the first of `op`, `job`, `text`, `ref` counts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FullEntry {
    /// Catalogue path of an operation whose output is shown; only repeatable operations with the effect `read`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<String>,
    /// Input of `op`; placeholders in its texts are replaced by values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// What the pin that `op` named says of its input; of a turn alone.
    #[serde(skip)]
    pub pinned: Option<PinnedSchema>,
    /// A finished job whose output is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Place within the job's output: segments separated by `/`, or by dots as in Covia, see [`job_part`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Literal text of the entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Lattice path whose value is shown, or an asset.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// Heading in the prompt; the source when absent.
    #[serde(default, alias = "type", skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Bytes that the entry asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<usize>,
    /// Entries of a higher priority get their bytes first; 500 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Whether the turn fails without this entry.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    /// Instance that the entry is about, of several that the agent works on at once; absent = all.
    #[serde(default, alias = "_instance", skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
}

/// What a pin says of the arguments of its operation.
#[derive(Debug, Clone, PartialEq)]
pub struct PinnedSchema {
    /// Path of the pin.
    pub path: String,
    /// JSON Schema of the arguments.
    pub schema: Value,
}

/// Where an entry's content comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum EntrySource {
    /// The output of an operation.
    Operation {
        /// Path in the catalogue.
        path: String,
        /// Input of the operation.
        input: Value,
        /// What the input must fit besides the operation's own schema.
        pinned: Option<PinnedSchema>,
    },
    /// The output of a finished job.
    Job {
        /// Id of the job.
        job: JobId,
        /// Keys that lead to the shown part of its output.
        within: Vec<String>,
    },
    /// The text of the entry.
    Text(String),
    /// The value at a path.
    Path(Path),
    /// The text of an asset, else its description.
    Asset(AssetId),
}

/// Reason why a context entry is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContextEntryError {
    /// The value has another form than an entry.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The value is an item of a conversation: it has a type, and keys that no entry has.
    #[error(
        "{error}; write an item of type `{kind}` as `{{label: \"{kind}\", text: …}}`, a value as its JSON",
        kind = quote_foreign(.item)
    )]
    Item {
        /// First key that no entry has, or value that none has.
        error: DataError,
        /// Type of the item.
        item: String,
    },
    /// The id of the job is illegal.
    #[error("`job`: {0}")]
    Job(IdError),
    /// The path of the value is illegal.
    #[error("`ref`: {0}")]
    Reference(PathError),
    /// The entry names no source.
    #[error("expected one of `op`, `job`, `text` and `ref`")]
    NoSource,
    /// The path of the value has a placeholder.
    #[error(
        "the placeholder `{key}` is not filled in a path; write `{{\"op\": \"v/ops/lattice/read\", \"input\": \
         {{\"path\": …}}}}`, in whose input it is"
    )]
    Placeholder {
        /// Key of the placeholder.
        key: String,
    },
    /// The entry has an input and no operation.
    #[error("`input` belongs to `op`")]
    InputOwner,
    /// The entry has a place in an output and no job.
    #[error("`path` belongs to `job`; the path of a value is its `ref`")]
    PathOwner,
    /// The entry asks for no bytes, or for too many.
    #[error("`budget`: expected 1 to {ENTRY_BYTES} bytes, got {found}")]
    Budget {
        /// Bytes that the entry asks for.
        found: usize,
    },
    /// The name of the instance is illegal.
    #[error(transparent)]
    Instance(#[from] InstanceNameError),
    /// The heading is illegal.
    #[error(transparent)]
    Label(#[from] LabelError),
}

/// Reason why a list of context entries is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContextEntriesError {
    /// The list is too long.
    #[error("`context`: expected at most {CONTEXT_ENTRIES} entries, got {found}")]
    TooMany {
        /// Number of entries.
        found: usize,
    },
    /// An entry is refused.
    #[error("`context[{at}]`: {error}")]
    Entry {
        /// Index of the entry.
        at: usize,
        /// Rule that the entry breaks.
        error: ContextEntryError,
    },
}

/// Returns the part of a job's output that an entry names. Covia separates keys by dots, and begins with `output` where
/// the whole is meant; a key that exists as it is written counts first.
pub fn job_part<'v>(output: &'v Value, within: &[String]) -> Option<&'v Value> {
    let [dotted] = within else { return navigate(output, within) };
    navigate(output, within).or_else(|| {
        let keys: Vec<String> = dotted.split('.').map(str::to_owned).collect();
        let inside = |keys: &[String]| (!keys.contains(&String::new())).then(|| navigate(output, keys)).flatten();
        inside(&keys)
            .or_else(|| keys.split_first().filter(|(first, _)| *first == "output").and_then(|(_, rest)| inside(rest)))
    })
}

impl TryFrom<Value> for ContextEntry {
    type Error = ContextEntryError;

    fn try_from(value: Value) -> Result<Self, ContextEntryError> {
        match value {
            Value::String(text) => Ok(Self::Short(text)),
            other => {
                let item = other.get("type").and_then(Value::as_str).map(str::to_owned);
                decode::into_type(other).map(Self::Full).map_err(|error| match item {
                    None => ContextEntryError::Data(error),
                    Some(item) => ContextEntryError::Item { error, item },
                })
            }
        }
    }
}

impl ContextEntry {
    /// Returns the source of the content, or what is wrong with the entry.
    pub fn source(&self) -> Result<EntrySource, ContextEntryError> {
        let full = match self {
            Self::Short(text) => return Ok(reference(text).unwrap_or_else(|| EntrySource::Text(text.clone()))),
            Self::Full(full) => full,
        };
        if let Some(path) = &full.op {
            let input = full.input.clone().unwrap_or_else(|| Value::Object(serde_json::Map::new()));
            return Ok(EntrySource::Operation { path: path.clone(), input, pinned: full.pinned.clone() });
        }
        if let Some(job) = &full.job {
            let within = full.path.as_deref().unwrap_or_default().split('/').filter(|s| !s.is_empty());
            let job = JobId::new(job).map_err(ContextEntryError::Job)?;
            return Ok(EntrySource::Job { job, within: within.map(str::to_owned).collect() });
        }
        match (&full.text, &full.reference) {
            (Some(text), _) => Ok(EntrySource::Text(text.clone())),
            (None, Some(path)) => match asset(path) {
                Some(asset) => Ok(EntrySource::Asset(asset)),
                None => Path::parse(path).map(EntrySource::Path).map_err(ContextEntryError::Reference),
            },
            (None, None) => Err(ContextEntryError::NoSource),
        }
    }

    /// Checks that the source and the options fit together and are within their limits.
    pub fn check(&self) -> Result<(), ContextEntryError> {
        if let EntrySource::Path(path) = self.source()?
            && let Some(key) = placeholder::keys(&path.to_string()).first()
        {
            return Err(ContextEntryError::Placeholder { key: (*key).to_owned() });
        }
        let Self::Full(full) = self else { return Ok(()) };
        if full.op.is_none() && full.input.is_some() {
            return Err(ContextEntryError::InputOwner);
        }
        if full.job.is_none() && full.path.is_some() {
            return Err(ContextEntryError::PathOwner);
        }
        if let Some(found) = full.budget.filter(|budget| !(1..=ENTRY_BYTES).contains(budget)) {
            return Err(ContextEntryError::Budget { found });
        }
        full.instance.as_deref().map_or(Ok(()), check_instance)?;
        full.label.as_deref().map_or(Ok(()), check_label)?;
        Ok(())
    }

    /// Returns the heading in the prompt; `None` for literal text without one.
    pub fn label(&self) -> Option<String> {
        let explicit = match self {
            Self::Short(_) => None,
            Self::Full(full) => full.label.clone(),
        };
        explicit.or_else(|| self.source().ok().and_then(|source| source.name()))
    }

    /// Returns the instance that the entry is about.
    pub fn instance(&self) -> Option<&str> {
        match self {
            Self::Short(_) => None,
            Self::Full(full) => full.instance.as_deref(),
        }
    }

    /// Returns the bytes that the entry asks for, its priority, and whether the turn fails without it.
    pub fn options(&self) -> (Option<usize>, Option<i32>, bool) {
        match self {
            Self::Short(_) => (None, None, false),
            Self::Full(full) => (full.budget, full.priority, full.required),
        }
    }
}

impl EntrySource {
    /// Returns the resource that a reader of this source must be allowed to read. Operations check their own needs.
    pub fn resource(&self) -> Option<ResourcePath> {
        match self {
            Self::Operation { .. } | Self::Text(_) => None,
            Self::Job { job, .. } => Some(ResourcePath::job(job)),
            Self::Path(path) => Some(path.into()),
            Self::Asset(asset) => Some(ResourcePath::asset(asset)),
        }
    }

    /// Returns the name of the source as the ledger records it; `None` for literal text.
    pub fn name(&self) -> Option<String> {
        match self {
            Self::Operation { path, .. } => Some(path.clone()),
            Self::Job { job, within } if within.is_empty() => Some(format!("j/{job}/output")),
            Self::Job { job, within } => Some(format!("j/{job}/output/{}", within.join("/"))),
            Self::Text(_) => None,
            Self::Path(path) => Some(path.to_string()),
            Self::Asset(asset) => Some(format!("a/{asset}")),
        }
    }
}

/// Checks each entry of a list; an error begins with the place of the entry.
pub fn check_entries(entries: &[ContextEntry]) -> Result<(), ContextEntriesError> {
    if entries.len() > CONTEXT_ENTRIES {
        return Err(ContextEntriesError::TooMany { found: entries.len() });
    }
    for (at, entry) in entries.iter().enumerate() {
        entry.check().map_err(|error| ContextEntriesError::Entry { at, error })?;
    }
    Ok(())
}

/// Returns the source that a text names: an asset or a path.
fn reference(text: &str) -> Option<EntrySource> {
    if let Some(asset) = asset(text) {
        return Some(EntrySource::Asset(asset));
    }
    if text.contains(char::is_whitespace) || !text.contains('/') {
        return None;
    }
    Path::parse(text).ok().map(EntrySource::Path)
}

fn asset(text: &str) -> Option<AssetId> {
    AssetId::from_name(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(value: Value) -> ContextEntry {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_part_of_a_jobs_output_is_named_with_slashes_or_dots() {
        let output = json!({"decision": {"rule": "AP-1", "a.b": 1}, "list": [{"x": 2}], "v1.2": 3});
        for (within, expected) in [
            (&["decision", "rule"][..], Some(json!("AP-1"))),
            (&["decision.rule"], Some(json!("AP-1"))),
            (&["output.decision.rule"], Some(json!("AP-1"))),
            (&["output"], Some(output.clone())),
            (&["list.0.x"], Some(json!(2))),
            (&["v1.2"], Some(json!(3))),
            (&["decision", "a.b"], Some(json!(1))),
            (&["decision", "a.c"], None),
            (&["decision..rule"], None),
            (&["nothing"], None),
            (&[], Some(output.clone())),
        ] {
            let within: Vec<String> = within.iter().map(|part| (*part).to_owned()).collect();
            assert_eq!(job_part(&output, &within), expected.as_ref(), "{within:?}");
        }
    }

    #[test]
    fn a_placeholder_in_a_path_is_refused_with_what_to_write() {
        for (json, is_path) in [
            (json!("w/docs/${doc}"), true),
            (json!({"ref": "w/{{doc}}/x", "label": "d"}), true),
            (json!({"op": "v/ops/lattice/read", "input": {"path": "w/docs/${doc}"}}), false),
            (json!("see w/docs/${doc}"), false),
            (json!("w/docs/$doc"), false),
        ] {
            let checked = entry(json.clone()).check();
            assert_eq!(checked.is_err(), is_path, "{json}");
            let expected = "the placeholder `doc` is not filled in a path; write `{\"op\"";
            assert!(checked.is_ok() || checked.unwrap_err().to_string().starts_with(expected), "{json}");
        }
    }

    #[test]
    fn the_source_follows_the_form() {
        let path = |p| Ok(EntrySource::Path(Path::parse(p).unwrap()));
        let hash = "ab".repeat(32);
        let job = "0f".repeat(16);
        let asset = || Ok(EntrySource::Asset(AssetId::new(&hash).unwrap()));
        for (json, source) in [
            (json!("w/docs/policy"), path("w/docs/policy")),
            (json!("w/ is the workspace"), Ok(EntrySource::Text("w/ is the workspace".into()))),
            (json!("Be brief"), Ok(EntrySource::Text("Be brief".into()))),
            (json!(hash), asset()),
            (json!(format!("a/{hash}")), asset()),
            (json!(format!("/a/{hash}")), asset()),
            (json!({"ref": format!("/a/{hash}/")}), asset()),
            (json!(format!("0x{hash}")), asset()),
            (json!({"ref": hash}), asset()),
            (json!(format!("/a/{hash}")), asset()),
            (json!(format!("a/{hash}/")), asset()),
            (json!(format!("0x{hash}")), asset()),
            (json!({"ref": format!("/a/{hash}")}), asset()),
            (json!(format!("/{hash}")), Ok(EntrySource::Text(format!("/{hash}")))),
            (json!(format!("a/{hash}/content")), path(&format!("a/{hash}/content"))),
            (json!({"ref": "w/a", "label": "A"}), path("w/a")),
            (
                json!({"op": "v/ops/lattice/list", "input": {"path": "w"}, "text": "t"}),
                Ok(EntrySource::Operation {
                    path: "v/ops/lattice/list".into(),
                    input: json!({"path": "w"}),
                    pinned: None,
                }),
            ),
            (
                json!({"job": job, "path": "a/0", "ref": "w/a"}),
                Ok(EntrySource::Job { job: JobId::new(&job).unwrap(), within: vec!["a".into(), "0".into()] }),
            ),
            (json!({"text": "t", "ref": "w/a"}), Ok(EntrySource::Text("t".into()))),
            (json!({"type": "state", "_instance": "①", "text": "Hello"}), Ok(EntrySource::Text("Hello".into()))),
            (json!({"label": "A"}), Err(ContextEntryError::NoSource)),
        ] {
            assert_eq!(entry(json.clone()).source(), source, "{json}");
        }
    }

    #[test]
    fn a_typed_item_is_a_labelled_entry_or_a_helpful_error() {
        let kept = json!({"text": "Hello", "label": "state", "instance": "①"});
        assert_eq!(json!(entry(json!({"type": "state", "_instance": "①", "text": "Hello"}))), kept);
        let error = serde_json::from_value::<ContextEntry>(json!({"type": "state", "user": {"id": 1}})).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("unknown field `user`") && error.contains("`{label: \"state\", text: …}`"), "{error}");
    }

    #[test]
    fn mistakes_are_named() {
        for (json, expected) in [
            (json!({"text": "t", "budget": 0}), "`budget`: expected 1 to 4000000 bytes, got 0"),
            (json!({"text": "t", "budget": 4_000_001}), "`budget`: expected 1 to 4000000 bytes, got 4000001"),
            (json!({"text": "t", "label": "a\nb"}), "`label`: expected one line of 1 to 200 bytes, got \"a\\nb\""),
            (json!({"text": "t", "input": {}}), "`input` belongs to `op`"),
            (json!({"ref": "w/a", "path": "b"}), "`path` belongs to `job`; the path of a value is its `ref`"),
        ] {
            assert_eq!(entry(json.clone()).check().unwrap_err().to_string(), expected, "{json}");
        }
        assert!(entry(json!({"ref": "w/../s"})).check().unwrap_err().to_string().starts_with("`ref`: "));
        assert!(entry(json!({"job": "x"})).check().unwrap_err().to_string().starts_with("`job`: "));
        assert_eq!(ContextEntryError::NoSource.to_string(), "expected one of `op`, `job`, `text` and `ref`");
        let many = vec![entry(json!("x")); CONTEXT_ENTRIES + 1];
        assert_eq!(check_entries(&many).unwrap_err().to_string(), "`context`: expected at most 200 entries, got 201");
        for (json, expected) in [
            (json!({"rfe": "w/x"}), "unknown field `rfe`"),
            (json!({"text": "t", "budget": -1}), "`budget`: expected a whole number of at least 0, got number -1"),
            (json!(7), "expected a map with `"),
        ] {
            let error = serde_json::from_value::<ContextEntry>(json).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
