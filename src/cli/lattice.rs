//! `trellis lattice …`: reads and writes values of the lattice.

use super::client::{Client, ServerArgs, read_view};
use super::escape::escape_data;
use super::exit::{Exit, Failure};
use super::output::{format_plain, note};
use super::{CliContext, input};
use crate::view::lattice::{KeysView, ResultView, ValueDeletedView, ValueView};
use crate::view::request::{DeleteValueRequest, ReadValueRequest, WriteValueRequest};
use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::Value;

/// The owner's tree of values: `w/` is the workspace that agents share.
#[derive(Debug, Subcommand)]
pub(crate) enum Lattice {
    /// Print the value at a path
    #[command(after_help = "Example:\n  trellis lattice read w/vendors/acme")]
    Read {
        /// Path of the value
        #[command(flatten)]
        at: PathArgs,
        /// Refuse values over so many bytes
        #[arg(long, value_name = "BYTES")]
        max_size: Option<u64>,
    },
    /// Write a value at a path; siblings stay
    #[command(after_help = "Example:\n  trellis lattice write w/vendors/acme '{\"status\": \"approved\"}'")]
    Write {
        /// Path of the value
        #[command(flatten)]
        at: PathArgs,
        /// Value to write
        #[command(flatten)]
        value: ValueArgs,
        /// Only if the path has this version (as `read --output json` shows it; of a collection its entries have versions); 0 =
        /// never written
        #[arg(long, value_name = "VERSION")]
        expect: Option<u64>,
    },
    /// Append a value to the array at a path, which is made if need be
    #[command(after_help = "Example:\n  trellis lattice append w/log 'called the vendor'")]
    Append {
        /// Path of the value
        #[command(flatten)]
        at: PathArgs,
        /// Value to write
        #[command(flatten)]
        value: ValueArgs,
    },
    /// Delete what is at a path; nothing there is no error
    #[command(after_help = "Example:\n  trellis lattice delete w/vendors/acme")]
    Delete {
        /// Path of the value
        #[command(flatten)]
        at: PathArgs,
    },
    /// List the keys of a map, or the namespaces when no path is given
    #[command(after_help = "Example:\n  trellis lattice list w/vendors --limit 100")]
    List {
        /// Path of a map
        path: Option<String>,
        /// Keys to skip
        #[arg(long, value_name = "N")]
        offset: Option<u64>,
        /// Keys to show [default: 1000]
        #[arg(long, value_name = "N")]
        limit: Option<u64>,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Show values within a budget: a summary of what is large
    #[command(after_help = "Example:\n  trellis lattice inspect w/vendors w/policy --budget 2000")]
    Inspect {
        /// One or more paths
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<String>,
        /// Bytes of each
        #[arg(long, value_name = "BYTES", default_value_t = 2000)]
        budget: u64,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
}

/// Where in whose tree.
#[derive(Debug, Args)]
pub(crate) struct PathArgs {
    /// Path, e.g. `w/vendors/acme`
    path: String,
    /// Which server, and for whom
    #[command(flatten)]
    server: ServerArgs,
}

/// A value to write.
#[derive(Debug, Args)]
pub(crate) struct ValueArgs {
    /// Text, JSON, `@file`, or `-` for stdin
    #[arg(allow_hyphen_values = true)]
    value: String,
    /// Take the value as text even if it looks like JSON
    #[arg(long)]
    text: bool,
}

/// Arguments of `v/ops/lattice/list`.
#[derive(Serialize)]
struct ListKeysRequest<'a> {
    /// Path of the map; absent for the namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
}

/// Arguments of `v/ops/lattice/inspect`.
#[derive(Serialize)]
struct InspectRequest<'a> {
    paths: &'a [String],
    /// Bytes of each value.
    budget: u64,
    compact: bool,
}

impl Lattice {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        match self {
            Self::Read { at, max_size } => read(context, &at, max_size).await,
            Self::Write { at, value, expect } => {
                let value = input::value(&value.value, value.text)?;
                let request = WriteValueRequest { path: &at.path, value, expect };
                change(context, &at, "write", &request, "written").await
            }
            Self::Append { at, value } => {
                let value = input::value(&value.value, value.text)?;
                let request = WriteValueRequest { path: &at.path, value, expect: None };
                change(context, &at, "append", &request, "appended").await
            }
            Self::Delete { at } => delete(context, &at).await,
            Self::List { path, offset, limit, server } => {
                let request = ListKeysRequest { path: path.as_deref(), offset, limit };
                let answer = call(&server, "list", &request).await?;
                list(context, path.as_deref().unwrap_or("/"), &answer)
            }
            Self::Inspect { paths, budget, server } => inspect(context, &server, &paths, budget).await,
        }
    }
}

async fn call(server: &ServerArgs, verb: &str, request: &impl Serialize) -> Result<Value, Failure> {
    Client::new(server)?.run(&format!("v/ops/lattice/{verb}"), request, None).await
}

async fn change(
    context: &CliContext,
    at: &PathArgs,
    verb: &str,
    request: &impl Serialize,
    done: &str,
) -> Result<Exit, Failure> {
    let answer = call(&at.server, verb, request).await?;
    context.out.value(&answer, || format!("{} {done}", at.path))?;
    Ok(Exit::Ok)
}

async fn delete(context: &CliContext, at: &PathArgs) -> Result<Exit, Failure> {
    let answer = call(&at.server, "delete", &DeleteValueRequest { path: &at.path }).await?;
    context.out.typed_value::<ValueDeletedView>(answer, |view| {
        if view.deleted { format!("{} deleted", at.path) } else { format!("{}: nothing was there", at.path) }
    })?;
    Ok(Exit::Ok)
}

async fn read(context: &CliContext, at: &PathArgs, max_size: Option<u64>) -> Result<Exit, Failure> {
    let answer = call(&at.server, "read", &ReadValueRequest { path: &at.path, max_size }).await?;
    let ValueView { exists, value, truncated, size, .. } = read_view(answer.clone())?;
    if !exists {
        return Err(no_value_failure(&at.path));
    }
    if truncated == Some(true) {
        return Err(Failure::usage(format!(
            "the value at `{}` has {} bytes, more than asked for; read a part of it, or `trellis lattice inspect` it",
            at.path,
            size.unwrap_or_default()
        )));
    }
    context.out.value(&answer, || format_plain(&value.unwrap_or_default()))?;
    Ok(Exit::Ok)
}

fn no_value_failure(path: &str) -> Failure {
    Failure::new(Exit::NotFound, format!("nothing at `{path}`; `trellis lattice list` shows what there is"))
}

fn list(context: &CliContext, path: &str, answer: &Value) -> Result<Exit, Failure> {
    let KeysView { exists, kind, count, offset, keys, .. } = read_view(answer.clone())?;
    if !exists {
        return Err(no_value_failure(path));
    }
    let Some(keys) = keys else {
        let kind = escape_data(&kind);
        let text = || match count {
            Some(count) => format!("{kind} of {count}"),
            None => kind.to_string(),
        };
        context.out.value(answer, text)?;
        return Ok(Exit::Ok);
    };
    let shown = keys.len() + offset.unwrap_or_default();
    let keys: Vec<_> = keys.iter().map(|key| escape_data(key)).collect();
    context.out.page(answer, "keys", |_| keys.join("\n"))?;
    match count {
        Some(count) if count > shown => note(&format!("{count} keys in all; `--offset {shown}` shows the next")),
        Some(_) | None => {}
    }
    Ok(Exit::Ok)
}

async fn inspect(context: &CliContext, server: &ServerArgs, paths: &[String], budget: u64) -> Result<Exit, Failure> {
    let answer = call(server, "inspect", &InspectRequest { paths, budget, compact: false }).await?;
    context.out.typed_value::<ResultView>(answer, |view| match &view.result {
        Value::Object(map) if map.len() == 1 => map.values().map(format_plain).collect(),
        Value::Object(map) => {
            map.iter().map(|(path, text)| format!("{path}:\n{}", format_plain(text))).collect::<Vec<_>>().join("\n\n")
        }
        other => format_plain(other),
    })?;
    Ok(Exit::Ok)
}
