//! Agent files and folders of them.

use super::super::exit::Failure;
use super::super::input;
use super::layers::{self, AgentFileContent, AgentLayers};
use crate::config::position::{FilePosition, locate};
use crate::config::yaml::{self, YamlError};
use crate::domain::agent::{AgentConfig, addresses};
use crate::domain::decode::{self, DataError, TomlError};
use crate::domain::ids::{AgentId, IdError};
use crate::venue::resources;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Agent files by the id of their agent.
pub(crate) type AgentFiles = BTreeMap<AgentId, AgentFile>;

/// An agent file that was read and checked.
pub(crate) struct AgentFile {
    pub(crate) path: PathBuf,
    /// Arguments of `agent/create` that make this agent.
    pub(crate) layers: AgentLayers,
    /// The whole configuration; `None` if the file names a stored one, such as a template, which only the venue reads.
    pub(crate) config: Option<Value>,
}

/// Reason why an agent file is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AgentFileError {
    /// Nothing has the path.
    #[error("there is no such file or folder")]
    Missing,
    /// The name ends otherwise than those of agent files.
    #[error("expected a file that ends in `.toml`, `.json` or `.yaml`")]
    Extension,
    /// The file can't be read.
    #[error(transparent)]
    Unreadable(#[from] Failure),
    /// The text is not JSON, or breaks a limit of values.
    #[error("malformed JSON: {0}")]
    Json(DataError),
    /// The text is not YAML.
    #[error("malformed YAML: {0}")]
    Yaml(YamlError),
    /// The text is not TOML.
    #[error("malformed TOML: {0}")]
    Toml(TomlError),
    /// The id of the agent breaks a rule.
    #[error(transparent)]
    Id(#[from] IdError),
    /// A value breaks a rule, at a position that is unknown.
    #[error(transparent)]
    Data(DataError),
    /// A value breaks a rule.
    #[error("{error} ({position})")]
    DataAt {
        /// Rule with the place of the value.
        error: DataError,
        /// Position of the value in the file.
        position: FilePosition,
    },
    /// The file has no whole configuration.
    #[error(
        "it names what the venue keeps, such as a template: expected the configuration itself, as `trellis agent get` \
         shows it after `trellis agent apply`"
    )]
    NoConfig,
}

/// Reason why a file doesn't say which agent it is for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum AgentFileIdError {
    /// Two keys name different agents.
    #[error("`{key}`: `{id}` is another agent than that of `id`")]
    OtherAgent { key: &'static str, id: String },
    /// The id isn't a text.
    #[error("`{key}`: expected text, got `{found}`")]
    NoText { key: &'static str, found: Value },
}

/// Reads the agents of all files and folders. Fails with the errors of all of them, or if two name the same agent.
pub(crate) fn read_all(files: &[PathBuf]) -> Result<AgentFiles, Failure> {
    let mut agents = AgentFiles::new();
    let mut errors = Vec::new();
    for file in list_files(files)? {
        match read(&file) {
            Err(problem) => errors.push(format!("`{}`: {problem}", file.display())),
            Ok((id, read)) => {
                if let Some(other) = agents.insert(id.clone(), read) {
                    errors.push(format!("`{}` and `{}` both name agent `{id}`", other.path.display(), file.display()));
                }
            }
        }
    }
    if errors.is_empty() { Ok(agents) } else { Err(Failure::usage(errors.join("\nerror: "))) }
}

/// Returns the files among these paths, and the agent files directly in the folders among them, by name. Fails if a
/// folder can't be read or has none.
fn list_files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = std::fs::read_dir(path)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|e| Failure::usage(format!("folder `{}` can't be read: {e}", path.display())))?;
        let mut inside: Vec<PathBuf> =
            entries.into_iter().map(|e| e.path()).filter(|p| file_format(p).is_some()).collect();
        if inside.is_empty() {
            return Err(Failure::usage(format!("folder `{}` has no `.toml`, `.json` or `.yaml` file", path.display())));
        }
        inside.sort();
        files.append(&mut inside);
    }
    Ok(files)
}

#[derive(Clone, Copy)]
enum AgentFileFormat {
    Toml,
    Json,
    Yaml,
}

/// Returns the format of a file by the end of its name; `None` if it is not that of an agent file.
fn file_format(path: &Path) -> Option<AgentFileFormat> {
    match path.extension()?.to_str()? {
        "toml" => Some(AgentFileFormat::Toml),
        "json" => Some(AgentFileFormat::Json),
        "yaml" | "yml" => Some(AgentFileFormat::Yaml),
        _ => None,
    }
}

/// Reads and checks the configuration of an agent file. Fails if the file names a stored one.
pub(crate) fn read_config(path: &Path) -> Result<Value, AgentFileError> {
    let (_, file) = read(path)?;
    file.config.ok_or(AgentFileError::NoConfig)
}

/// Returns a configuration with plain lattice paths, such as `w/x`, in place of addresses, such as `/tenant/user/w/x`.
/// Whose tree an address leads into is checked by the venue alone.
pub(crate) fn strip_owners(config: &Value) -> Value {
    let mut plain = config.clone();
    // Without an owner, no address belongs to another.
    if addresses::localise(None, &mut plain).is_err() {
        plain.clone_from(config);
    }
    plain
}

/// Reads and checks an agent file, and returns it with the id of its agent: the one it has, or else its name without
/// the extension.
fn read(path: &Path) -> Result<(AgentId, AgentFile), AgentFileError> {
    let format = file_format(path)
        .ok_or_else(|| if path.exists() { AgentFileError::Extension } else { AgentFileError::Missing })?;
    let text = input::file(path)?;
    let mut content = parse(format, &text)?;
    let wrong = |error: DataError| with_position(format, &text, error);
    let id = match take_id(&mut content).map_err(|error| wrong(error.to_string().into()))? {
        Some(id) => id,
        None => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
    };
    let id = AgentId::new(id)?;
    let path = path.to_owned();
    let config = match layers::classify(content).map_err(|error| wrong(error.to_string().into()))? {
        AgentFileContent::Config(config) => config,
        AgentFileContent::Layers(layers) => return Ok((id, AgentFile { path, layers, config: None })),
    };
    let checked = AgentConfig::parse(&strip_owners(&config)).map_err(wrong)?;
    // Only the built-in kinds of resources are known here; the venue checks the others.
    resources::check_own(&checked).map_err(|error| wrong(error.to_string().into()))?;
    let layers = AgentLayers::from_config(config.clone());
    Ok((id, AgentFile { path, layers, config: Some(config) }))
}

/// Removes the id of the agent from the content of a file and returns it: `id`, or `agentId` as in `agent/create`.
fn take_id(content: &mut Value) -> Result<Option<String>, AgentFileIdError> {
    let mut found: Option<String> = None;
    for key in ["id", "agentId"] {
        match content.as_object_mut().and_then(|map| map.shift_remove(key)) {
            None => {}
            Some(Value::String(id)) if found.as_ref().is_none_or(|other| *other == id) => found = Some(id),
            Some(Value::String(id)) => return Err(AgentFileIdError::OtherAgent { key, id }),
            Some(found) => return Err(AgentFileIdError::NoText { key, found }),
        }
    }
    Ok(found)
}

/// Adds the position in the file to an error, if known.
fn with_position(format: AgentFileFormat, text: &str, error: DataError) -> AgentFileError {
    let steps = error.steps();
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    let found = match format {
        AgentFileFormat::Toml | AgentFileFormat::Json => locate(text, &steps),
        AgentFileFormat::Yaml => yaml::locate(text, &steps),
    };
    match found {
        Some(position) => AgentFileError::DataAt { error, position },
        None => AgentFileError::Data(error),
    }
}

fn parse(format: AgentFileFormat, text: &str) -> Result<Value, AgentFileError> {
    match format {
        AgentFileFormat::Json => decode::json(text.as_bytes()).map_err(AgentFileError::Json),
        AgentFileFormat::Yaml => yaml::parse(text).map_err(AgentFileError::Yaml),
        AgentFileFormat::Toml => decode::toml(text).map_err(AgentFileError::Toml),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn file(name: &str, text: &str) -> Result<(AgentId, Value), AgentFileError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        read(&path).map(|(id, file)| (id, file.config.unwrap_or_else(|| json!(file.layers))))
    }

    #[test]
    fn a_file_may_name_what_the_venue_keeps() {
        let template = "v/agents/templates/reader";
        for (name, text, id, given) in [
            ("a.json", json!({"config": template}), "a", json!({"config": [template]})),
            ("a.json", json!(template), "a", json!({"config": [template]})),
            (
                "a.json",
                json!([template, {"model": "gpt-5.4"}]),
                "a",
                json!({"config": [template, {"model": "gpt-5.4"}]}),
            ),
            (
                "a.json",
                json!({"agentId": "b", "name": "B", "config": [template], "definition": "o/c"}),
                "b",
                json!({"config": [template, {"name": "B"}], "definition": "o/c"}),
            ),
            (
                "a.json",
                json!({"id": "b", "systemPrompt": "s", "state": {"config": [template], "context": ["w/a"]}}),
                "b",
                json!({"config": [{"systemPrompt": "s"}, template], "state": {"context": ["w/a"]}}),
            ),
            (
                "a.json",
                json!({"config": template, "state": {"config": "o/d"}}),
                "a",
                json!({"config": [template, "o/d"]}),
            ),
            (
                "a.json",
                json!({"agentId": "b", "config": {"model": "gpt-5.4"}, "state": {"context": []}}),
                "b",
                json!({"model": "gpt-5.4", "state": {"context": []}}),
            ),
            (
                "a.json",
                json!({"agentId": "b", "overwrite": true, "config": {"model": "gpt-5.4"}}),
                "b",
                json!({"model": "gpt-5.4"}),
            ),
        ] {
            let (found, content) = file(name, &text.to_string()).unwrap();
            assert_eq!((found.as_str(), content), (id, given), "{text}");
        }
        let toml = "config = [\"v/agents/templates/reader\", { model = \"gpt-5.4\" }]";
        assert_eq!(file("t.toml", toml).unwrap().1["config"][0], template);
    }

    #[test]
    fn the_id_is_a_key_or_the_name_of_the_file() {
        let model = "model = { provider = \"scripted\", name = \"echo\" }";
        assert_eq!(file("a.b.toml", model).unwrap().0.as_str(), "a.b");
        let (id, config) = file("x.toml", &format!("id = \"y\"\n{model}")).unwrap();
        assert_eq!((id.as_str(), config["id"].is_null()), ("y", true));
        let json = r#"{"model": {"provider": "scripted", "name": "echo"}}"#;
        assert_eq!(file("j.json", json).unwrap().0.as_str(), "j");
    }

    #[test]
    fn a_manifest_in_yaml_is_an_agent_file() {
        let text =
            "id: helper\nkind: llm\nmodel:\n  provider: openai\n  name: gpt-5.4\ninstruction: |\n  Help.\n  Say no.\n";
        let (id, config) = file("x.yaml", text).unwrap();
        let read = AgentConfig::parse(&config).unwrap();
        assert_eq!((id.as_str(), read.system_prompt.as_str()), ("helper", "Help.\nSay no.\n"));
        assert!(file("x.yml", "a: 1\na: 2").unwrap_err().to_string().contains("duplicate mapping key: a"));
        assert!(file("x.yml", "model: scripted/echo\nsystemPrompt: no").is_ok(), "no boolean");
    }

    #[test]
    fn mistakes_are_named() {
        for (name, text, expected) in [
            ("a.yaml", "", "expected an agent configuration as a map, got null"),
            ("a.txt", "", "expected a file that ends in `.toml`, `.json` or `.yaml`"),
            (
                "a.yaml",
                "a: [{b: 123456789012345678901234567890}]",
                "malformed YAML: number 123456789012345680000000000000 is larger than 64 bits hold: write it as a text",
            ),
            ("a.json", "{", "malformed JSON: EOF while parsing an object at line 1 column 1"),
            ("a.json", r#"{"id": 1}"#, "`id`: expected text, got `1` (line 1, column 2)"),
            (
                "a.json",
                r#"{"id": "b", "agentId": "c", "model": "gpt-5.4"}"#,
                "`agentId`: `c` is another agent than that of `id` (line 1, column 13)",
            ),
            (
                "a.json",
                r#"{"config": "v/agents/templates/reader", "model": "gpt-5.4"}"#,
                "`model`: what stands beside `config` counts for nothing: put it into the list, `config: [\"v/…\", {\"model\": …}]` (line 1, column 41)",
            ),
            (
                "a.json",
                r#"{"overwrite": false, "config": {"model": "gpt-5.4"}}"#,
                "`overwrite`: an agent that exists becomes what its file says: expected `true`, or leave the key out (line 1, column 2)",
            ),
            ("a b.toml", "", "illegal agent id `a b`: whitespace is not allowed"),
            ("a.toml", "systemPromt = 1", "unknown key `systemPromt`, did you mean `systemPrompt` (line 1, column 1)"),
            ("a.yml", "systemPromt: 1", "unknown key `systemPromt`, did you mean `systemPrompt` (line 1, column 1)"),
            ("a.toml", "", "missing field `model`"),
        ] {
            assert_eq!(file(name, text).unwrap_err().to_string(), expected);
        }
        let error = file("a.toml", "x = \n").unwrap_err().to_string();
        assert!(error.starts_with("malformed TOML: TOML parse error at line 1"), "{error}");
    }
}
