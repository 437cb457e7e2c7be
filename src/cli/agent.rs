//! `trellis agent apply|get|list`.

use super::client::{Client, Server, encode};
use super::exit::{Exit, Failure};
use super::output::{Format, Out, field, pretty, write_line};
use super::submit::NO_AGENT;
use super::{Context, input};
use crate::domain::agent::AgentConfig;
use crate::domain::ids::AgentId;
use crate::resources;
use clap::Subcommand;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Agents: durable records with a configuration.
#[derive(Debug, Subcommand)]
pub enum Agent {
    /// Create agents from files, or give existing ones another configuration
    ///
    /// A file is TOML or JSON; the agent's id is its key `id`, else the file's name without its
    /// ending. Of a folder, all `.toml` and `.json` files. Nothing is sent unless all are valid.
    /// Applying the same again changes nothing.
    #[command(after_help = "Example:\n  trellis agent apply agents/ helper.toml")]
    Apply {
        /// Files and folders
        #[arg(required = true, value_name = "FILE|DIR")]
        files: Vec<PathBuf>,
        /// Which server, and for whom
        #[command(flatten)]
        server: Server,
    },
    /// Show an agent: status, configuration, open tasks
    #[command(after_help = "Example:\n  trellis agent get helper")]
    Get {
        /// Its id
        id: AgentId,
        /// Which server, and for whom
        #[command(flatten)]
        server: Server,
    },
    /// List agents
    #[command(after_help = "Example:\n  trellis agent list --output ndjson")]
    List {
        /// Which server, and for whom
        #[command(flatten)]
        server: Server,
    },
}

impl Agent {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Result<Exit, Failure> {
        match self {
            Self::Apply { files, server } => apply(&Client::new(&server)?, context.out, &files).await,
            Self::Get { id, server } => {
                let info = Client::new(&server)?.get(&format!("agents/{}", encode(id.as_str())), &[]).await;
                let info = info.map_err(|e| e.hint(Exit::NotFound, NO_AGENT))?;
                context.out.value(&info, || pretty(&info))?;
                Ok(Exit::Ok)
            }
            Self::List { server } => list(&Client::new(&server)?, context.out).await,
        }
    }
}

async fn list(client: &Client, out: Out) -> Result<Exit, Failure> {
    let page = client.run("v/ops/agent/list", &json!({}), None).await?;
    out.page(&page, "agents", |agents| {
        let rows: Vec<_> = agents
            .iter()
            .map(|agent| vec![field(agent, "agentId"), field(agent, "status"), field(agent, "description")])
            .collect();
        out.table(&["AGENT", "STATUS", "DESCRIPTION"], &rows)
    })?;
    Ok(Exit::Ok)
}

async fn apply(client: &Client, out: Out, files: &[PathBuf]) -> Result<Exit, Failure> {
    let agents = read_all(files)?;
    let mut answers = Vec::new();
    for (id, (config, file)) in &agents {
        let body = json!({"agentId": id, "config": config, "overwrite": true});
        let answer = client.run("v/ops/agent/create", &body, None).await.map_err(|failure| {
            let done = answers.len();
            let rest = if done > 0 { format!(" ({done} of {} are applied)", agents.len()) } else { String::new() };
            Failure::new(failure.exit, format!("agent `{id}` of `{}`{rest}: {failure}", file.display()))
        })?;
        if out.format == Format::Text {
            let what = if answer["created"] == true { "created" } else { "applied" };
            write_line(&format!("{id} {what}, configuration {}", answer["configVersion"]))?;
        }
        answers.push(answer);
    }
    match out.format {
        Format::Text => {}
        Format::Json | Format::Ndjson => out.page(&json!({"agents": answers}), "agents", |_| String::new())?,
    }
    Ok(Exit::Ok)
}

type Agents = BTreeMap<AgentId, (Value, PathBuf)>;

/// Every agent of the files and folders; all errors together.
fn read_all(files: &[PathBuf]) -> Result<Agents, Failure> {
    let mut agents = Agents::new();
    let mut errors = Vec::new();
    for file in expand(files)? {
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

fn expand(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
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
            return Err(Failure::usage(format!("folder `{}` has no `.toml` and no `.json` file", path.display())));
        }
        inside.sort();
        files.append(&mut inside);
    }
    Ok(files)
}

#[derive(Clone, Copy)]
enum Kind {
    Toml,
    Json,
}

fn kind(path: &Path) -> Option<Kind> {
    match path.extension()?.to_str()? {
        "toml" => Some(Kind::Toml),
        "json" => Some(Kind::Json),
        _ => None,
    }
}

/// The checked configuration of an agent file.
pub fn config_of(path: &Path) -> Result<Value, String> {
    read(path).map(|(_, config)| config)
}

/// Id and checked configuration of an agent file.
fn read(path: &Path) -> Result<(AgentId, Value), String> {
    let kind = kind(path).ok_or("expected a file that ends in `.toml` or `.json`")?;
    let text = input::file(path).map_err(|failure| failure.text)?;
    let mut config = parse(kind, &text)?;
    let id = match config.as_object_mut().and_then(|map| map.shift_remove("id")) {
        Some(Value::String(id)) => id,
        Some(other) => return Err(format!("`id`: expected text, got `{other}`")),
        None => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
    };
    let id = AgentId::new(id).map_err(|e| e.to_string())?;
    let checked = AgentConfig::parse(&config).map_err(|e| e.to_string())?;
    resources::check(&checked)?;
    Ok((id, config))
}

fn parse(kind: Kind, text: &str) -> Result<Value, String> {
    match kind {
        Kind::Json => serde_json::from_str(text).map_err(|e| format!("malformed JSON: {e}")),
        Kind::Toml => {
            let table: toml::Table = text.parse().map_err(|e: toml::de::Error| format!("malformed TOML: {e}"))?;
            serde_json::to_value(table).map_err(|e| e.to_string())
        }
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
    fn mistakes_are_named() {
        for (name, text, expected) in [
            ("a.yaml", "", "expected a file that ends in `.toml` or `.json`"),
            ("a.json", "{", "malformed JSON: EOF while parsing an object at line 1 column 1"),
            ("a.json", r#"{"id": 1}"#, "`id`: expected text, got `1`"),
            ("a b.toml", "", "illegal agent id `a b`: whitespace is not allowed"),
            ("a.toml", "systemPromt = 1", "unknown key `systemPromt`, did you mean `systemPrompt`"),
            ("a.toml", "", "missing field `model`"),
        ] {
            assert_eq!(file(name, text).unwrap_err(), expected);
        }
        assert!(file("a.toml", "x = \n").unwrap_err().starts_with("malformed TOML: TOML parse error at line 1"));
    }
}
