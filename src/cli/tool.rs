//! `trellis tool …`: writes declarations of tools, and tries tools.

use super::CliContext;
use super::client::{Client, ServerArgs};
use super::escape::escape_data;
use super::exit::{Exit, Failure};
use super::input;
use super::output::{note, pretty};
use crate::config::yaml;
use crate::domain::declared::ToolDeclaration;
use crate::domain::declared::openapi::{self, ImportChoice, ImportedTools};
use crate::domain::ids::AgentId;
use crate::domain::ids::secret::SecretName;
use crate::domain::lattice::catalog::DECLARED;
use crate::view::to_json;
use clap::Subcommand;
use serde::Serialize;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// Tools by declaration: calls of services, and jobs for external workers.
#[derive(Debug, Subcommand)]
pub(crate) enum ToolCommand {
    /// Write declarations of the operations of an OpenAPI document
    ///
    /// Of OpenAPI 3.0 and 3.1, as JSON or YAML in one file. The output is a file for `catalog.tools`; each of its `tools`
    /// may also stand in an agent's file, or below `o/`. Credentials become references to secrets.
    #[command(
        after_help = "Example:\n  trellis tool import openapi.json --only getOrder,createRefund > tools/shop.json"
    )]
    Import {
        /// Path of the document
        file: PathBuf,
        /// Ids of the operations, with commas between [default: all]
        #[arg(long, value_name = "ID", value_delimiter = ',')]
        only: Vec<String>,
        /// URL of the server, in the place of that of the document
        #[arg(long, value_name = "URL")]
        base_url: Option<String>,
        /// Secret that is sent where the document asks for credentials [default: the name of their scheme]
        #[arg(long, value_name = "NAME")]
        secret: Option<SecretName>,
        /// Check results against the schemas of the document, too
        #[arg(long)]
        check_results: bool,
    },
    /// Call a tool once, and show its result
    ///
    /// The name is that of an operation (`shop:get_order`), of a record (`o/get_order`), or of a tool that an agent
    /// declares, also one of its MCP servers (`mcp:wiki:search`). The call really is made: one with an effect has it.
    #[command(after_help = "Example:\n  trellis tool try get_order '{\"order_id\": \"A-7\"}' --agent clerk")]
    Try {
        /// Name of the tool
        name: String,
        /// Arguments as JSON; `@FILE` or `-` for stdin
        #[arg(default_value = "{}", value_name = "JSON")]
        arguments: String,
        /// Agent that declares the tool
        #[arg(long, value_name = "AGENT")]
        agent: Option<AgentId>,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
}

/// File of declared tools.
#[derive(Serialize)]
struct ImportedFile {
    tools: Vec<ToolDeclaration>,
}

/// Body of a run of a tool.
#[derive(Serialize)]
struct ToolRunRequest<'a> {
    operation: &'a str,
    input: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a AgentId>,
}

impl ToolCommand {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        match self {
            Self::Import { file, only, base_url, secret, check_results } => {
                let choice = ImportChoice { only, server: base_url, secret, checks_results: check_results };
                let ImportedTools { tools, skipped } = openapi::import(&read_document(&file)?, &choice)
                    .map_err(|error| Failure::usage(format!("`{}`: {error}", file.display())))?;
                for (id, reason) in &skipped {
                    note(&format!("left out: `{}`: {}", escape_data(id), escape_data(&reason.to_string())));
                }
                if tools.is_empty() {
                    return Err(Failure::usage(format!("`{}`: no operation can be declared", file.display())));
                }
                let imported = to_json(&ImportedFile { tools });
                context.out.value(&imported, || pretty(&imported))?;
                Ok(Exit::Ok)
            }
            Self::Try { name, arguments, agent, server } => {
                let input = input::map_or_list(&arguments)?;
                let is_path = name.contains(['/', ':']);
                let operation = if is_path { name } else { format!("{DECLARED}{name}") };
                let request = ToolRunRequest { operation: &operation, input: &input, agent: agent.as_ref() };
                let result = Client::new(&server)?.post("run", &request).await.map_err(|failure| {
                    if is_path || !failure.text.contains("no operation") {
                        return failure;
                    }
                    let hint = "a tool that isn't declared is named by its path, as `v/ops/lattice/read`";
                    Failure::new(failure.exit, format!("{}; {hint}", failure.text))
                })?;
                context.out.value(&result, || pretty(&result))?;
                Ok(Exit::Ok)
            }
        }
    }
}

/// Reads an OpenAPI document. Those of large services have more values than a venue takes.
fn read_document(file: &Path) -> Result<Value, Failure> {
    let text = input::file(file)?;
    let is_yaml = file.extension().is_some_and(|ending| ending == "yaml" || ending == "yml");
    let malformed = |reason: String| Failure::usage(format!("`{}`: {reason}", file.display()));
    let document = if is_yaml {
        yaml::parse(&text).map_err(|error| malformed(format!("malformed YAML: {error}")))?
    } else {
        let read: Result<Map<String, Value>, _> = serde_json::from_str(&text);
        read.map_err(|error| malformed(format!("malformed JSON: {error}")))?.into()
    };
    Ok(document)
}
