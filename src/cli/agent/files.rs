//! Agent files and folders of them.

use super::super::exit::Failure;
use super::super::input;
use crate::config::position::locate;
use crate::config::yaml;
use crate::domain::agent::{AgentConfig, addresses};
use crate::domain::decode::{self, DataError};
use crate::domain::ids::AgentId;
use crate::venue::resources;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Configurations by agent, with their files.
pub(super) type AgentFiles = BTreeMap<AgentId, (Value, PathBuf)>;

/// Reads every agent of the files and folders; returns all errors together.
pub(super) fn read_all(files: &[PathBuf]) -> Result<AgentFiles, Failure> {
    let mut agents = AgentFiles::new();
    let mut errors = Vec::new();
    for file in list_files(files)? {
        match read(&file) {
            Err(problem) => errors.push(format!("`{}`: {problem}", file.display())),
            Ok((id, config)) => {
                if let Some((_, other)) = agents.insert(id.clone(), (config, file.clone())) {
                    errors.push(format!("`{}` and `{}` both name agent `{id}`", other.display(), file.display()));
                }
            }
        }
    }
    if errors.is_empty() { Ok(agents) } else { Err(Failure::usage(errors.join("\nerror: "))) }
}

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
        let mut inside: Vec<PathBuf> = entries.into_iter().map(|e| e.path()).filter(|p| kind(p).is_some()).collect();
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

fn kind(path: &Path) -> Option<AgentFileFormat> {
    match path.extension()?.to_str()? {
        "toml" => Some(AgentFileFormat::Toml),
        "json" => Some(AgentFileFormat::Json),
        "yaml" | "yml" => Some(AgentFileFormat::Yaml),
        _ => None,
    }
}

/// Reads and checks the configuration of an agent file.
pub(crate) fn read_config(path: &Path) -> Result<Value, String> {
    read(path).map(|(_, config)| config)
}

/// Replaces addresses by plain paths: the venue checks whose they are.
pub(super) fn without_owners(config: &Value) -> Value {
    let mut plain = config.clone();
    // Without an owner, no address belongs to another.
    if addresses::localise(None, &mut plain).is_err() {
        plain.clone_from(config);
    }
    plain
}

/// Reads the id and the checked configuration of an agent file.
fn read(path: &Path) -> Result<(AgentId, Value), String> {
    let Some(kind) = kind(path) else {
        let is_there = path.exists();
        let ending = "expected a file that ends in `.toml`, `.json` or `.yaml`";
        return Err(if is_there { ending } else { "there is no such file or folder" }.to_owned());
    };
    let text = input::file(path).map_err(|failure| failure.text)?;
    let mut config = parse(kind, &text)?;
    let wrong = |wrong: &DataError| with_position(kind, &text, wrong);
    let id = match config.as_object_mut().and_then(|map| map.shift_remove("id")) {
        Some(Value::String(id)) => id,
        Some(other) => return Err(wrong(&format!("`id`: expected text, got `{other}`").into())),
        None => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
    };
    let id = AgentId::new(id).map_err(|e| e.to_string())?;
    let checked = AgentConfig::parse(&without_owners(&config)).map_err(|error| wrong(&error))?;
    // The venue checks kinds of resources that it has besides.
    resources::check_own(&checked).map_err(|error| wrong(&error.into()))?;
    Ok((id, config))
}

/// Formats an error with its position in the file, if known.
fn with_position(kind: AgentFileFormat, text: &str, wrong: &DataError) -> String {
    let steps = wrong.steps();
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    let found = match kind {
        AgentFileFormat::Toml | AgentFileFormat::Json => locate(text, &steps),
        AgentFileFormat::Yaml => yaml::locate(text, &steps),
    };
    found.map_or_else(|| wrong.to_string(), |place| format!("{wrong} ({place})"))
}

fn parse(kind: AgentFileFormat, text: &str) -> Result<Value, String> {
    match kind {
        AgentFileFormat::Json => decode::json(text.as_bytes()).map_err(|e| format!("malformed JSON: {e}")),
        AgentFileFormat::Yaml => yaml::parse(text).map_err(|e| format!("malformed YAML: {e}")),
        AgentFileFormat::Toml => decode::toml(text).map_err(|e| format!("malformed TOML: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> Result<(AgentId, Value), String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        read(&path)
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
        assert!(file("x.yml", "a: 1\na: 2").unwrap_err().contains("duplicate mapping key: a"));
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
            ("a b.toml", "", "illegal agent id `a b`: whitespace is not allowed"),
            ("a.toml", "systemPromt = 1", "unknown key `systemPromt`, did you mean `systemPrompt` (line 1, column 1)"),
            ("a.yml", "systemPromt: 1", "unknown key `systemPromt`, did you mean `systemPrompt` (line 1, column 1)"),
            ("a.toml", "", "missing field `model`"),
        ] {
            assert_eq!(file(name, text).unwrap_err(), expected);
        }
        assert!(file("a.toml", "x = \n").unwrap_err().starts_with("malformed TOML: TOML parse error at line 1"));
    }
}
