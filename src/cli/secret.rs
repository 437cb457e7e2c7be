//! `trellis secret …`: stores secrets, and makes the keys that seal them.

use super::client::{Client, ServerArgs, encode, read_view};
use super::exit::{Exit, Failure};
use super::output::note;
use super::running::store_flag;
use super::{CliContext, escape, input, role};
use crate::app::{App, Role};
use crate::domain::limits::SECRET_BYTES_LEAST;
use crate::domain::secret::KeyId;
use crate::process::telemetry::Metrics;
use crate::venue::key_rotation::rotate_keys;
use crate::venue::secrets::{self, KeyFileError, SecretError};
use crate::view::request::SetSecretRequest;
use crate::view::secret::{SecretStoredView, SecretView};
use crate::view::to_json;
use clap::Subcommand;
use serde::Serialize;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zeroize::Zeroizing;

/// Credentials that operations and model providers use and nobody reads: no command prints a value.
#[derive(Debug, Subcommand)]
pub(crate) enum SecretCommand {
    /// Store a secret; its value comes from stdin or a file, never from the command line
    #[command(
        after_help = "Examples:\n  trellis secret set STRIPE_KEY --host api.stripe.com < key.txt\n  trellis secret set STRIPE_KEY @key.txt --overwrite"
    )]
    Set {
        /// 1 to 64 of `[A-Za-z0-9_.-]`
        name: String,
        /// `-` for stdin, or `@file`; a newline at its end is left out
        #[arg(default_value = "-", value_name = "SOURCE")]
        from: String,
        /// A host that it may go to: `api.example.com`, `*.example.com`, `10.0.0.7:8080`; may be repeated
        #[arg(long = "host", value_name = "HOST")]
        hosts: Vec<String>,
        /// Replace one that exists; without `--host` it keeps its hosts
        #[arg(long)]
        overwrite: bool,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// List names, hosts and versions
    #[command(after_help = "Example:\n  trellis secret list")]
    List {
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Delete a secret
    #[command(after_help = "Example:\n  trellis secret delete STRIPE_KEY")]
    Delete {
        /// Name of the secret
        name: String,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Seal all secrets of all owners again with the first of the configured keys
    ///
    /// Works on the configured store itself; an embedded store must not be in use by another process.
    /// Can be interrupted and run again. Old keys must stay configured until it has run to its end.
    #[command(
        after_help = "Example:\n  trellis secret keygen keys.txt --add\n  trellis secret rotate --set secrets.key_file=keys.txt"
    )]
    Rotate {
        /// Folder of the embedded store; the same as `--set store.url=embedded:DIR`
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
    },
    /// Make a key: print it, or write it to a file that only you can read
    #[command(after_help = "Example:\n  trellis secret keygen keys.txt")]
    Keygen {
        /// Key file; without it the key is printed
        file: Option<PathBuf>,
        /// Put the key before those that the file has
        #[arg(long, requires = "file")]
        add: bool,
    },
}

impl SecretCommand {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        match self {
            Self::Set { name, from, hosts, overwrite, server } => {
                set(context, &server, &name, &from, &hosts, overwrite).await
            }
            Self::List { server } => list(context, &server).await,
            Self::Delete { name, server } => {
                let answer = Client::new(&server)?.delete(&format!("secrets/{}", encode(&name))).await?;
                context.out.value(&answer, || format!("secret {name} deleted"))?;
                Ok(Exit::Ok)
            }
            Self::Rotate { data } => rotate(context, data.as_deref()).await,
            Self::Keygen { file, add } => keygen(context, file.as_deref(), add),
        }
    }
}

async fn set(
    context: &CliContext,
    server: &ServerArgs,
    name: &str,
    from: &str,
    hosts: &[String],
    overwrite: bool,
) -> Result<Exit, Failure> {
    if from != "-" && !from.starts_with('@') {
        return Err(Failure::usage(
            "the value is not taken from the command line, where other users and the shell's history see it; expected \
             `-` (stdin) or `@file`",
        ));
    }
    if from == "-" && std::io::IsTerminal::is_terminal(&std::io::stdin()) {
        note("value on stdin (it is shown while you type; end with Ctrl-D):");
    }
    let text = Zeroizing::new(input::text(from)?);
    let value = text.strip_suffix('\n').map_or(text.as_str(), |line| line.strip_suffix('\r').unwrap_or(line));
    if value.len() < SECRET_BYTES_LEAST {
        let source = from.strip_prefix('@').map_or("stdin".to_owned(), |file| format!("file `{file}`"));
        return Err(Failure::usage(format!(
            "no value for secret `{name}`: {source} has {} bytes, expected at least {SECRET_BYTES_LEAST} (shorter ones can't be \
             told from ordinary text where outputs are masked); give it on stdin or as `@file`",
            value.len()
        )));
    }
    let request = SetSecretRequest { name, value, overwrite, hosts: hosts.iter().map(String::as_str).collect() };
    let answer = Client::new(server)?.run("v/ops/secret/set", &request, None).await;
    let answer = answer.map_err(|failure| match failure.exit {
        Exit::Conflict if failure.text.contains("exists") => failure.with_advice(Exit::Conflict, "pass `--overwrite`"),
        _ => failure,
    })?;
    let SecretStoredView { version, hosts, .. } = read_view(answer.clone())?;
    context.out.value(&answer, || format!("secret {name} stored, version {version}, for {}", format_hosts(&hosts)))?;
    if hosts.is_empty() {
        note("it may go to no host yet: `--host` with `--overwrite` binds it");
    }
    Ok(Exit::Ok)
}

fn format_hosts(hosts: &[String]) -> String {
    let hosts: Vec<_> = hosts.iter().map(|host| escape::escape_data(host)).collect();
    if hosts.is_empty() { "no host".to_owned() } else { hosts.join(", ") }
}

async fn list(context: &CliContext, server: &ServerArgs) -> Result<Exit, Failure> {
    let answer = Client::new(server)?.run("v/ops/secret/list", &json!({}), None).await?;
    context.out.typed_page::<SecretView>(&answer, "secrets", |all| {
        all.iter().map(format_secret).collect::<Vec<_>>().join("\n")
    })?;
    Ok(Exit::Ok)
}

fn format_secret(secret: &SecretView) -> String {
    let SecretView { name, hosts, version, key, readable, .. } = secret;
    let line = format!("{}  version {version}  for {}", escape::escape_data(name), format_hosts(hosts));
    if *readable {
        line
    } else {
        format!("{line}  CAN'T BE OPENED: sealed with key {}, which isn't here", escape::escape_data(key))
    }
}

async fn rotate(context: &CliContext, data: Option<&Path>) -> Result<Exit, Failure> {
    let config = context.load(store_flag(data))?.config;
    let app = App::open(&config, Role::Command, Arc::new(Metrics::new())).await.map_err(|e| role::failure(&e))?;
    let venue = &app.venue;
    let done = rotate_keys(&venue.secrets, &*venue.store, venue.now()).await;
    app.close().await;
    let done = done.map_err(|error| match error {
        SecretError::NoKey => Failure::usage("no key is configured (`secrets.key_file` or TRELLIS_SECRETS_KEY)"),
        SecretError::Store(error) => Failure::new(
            Exit::Unreachable,
            format!("{error}; run it again: what is sealed with the first key is passed over"),
        ),
        error => Failure::internal(error.to_string()),
    })?;
    context.out.value(&to_json(&done), || {
        format!(
            "owners = {}\nrotated = {}\nalready = {}\nfailed = {}",
            done.owners,
            done.rotated,
            done.current,
            done.failed.len()
        )
    })?;
    if done.failed.is_empty() {
        return Ok(Exit::Ok);
    }
    Err(Failure::internal(format!("these can't be sealed anew:\n{}", done.failed.join("\n"))))
}

/// What is printed of a new key.
#[derive(Serialize)]
struct NewKeyDocument<'a> {
    id: &'a KeyId,
    /// Line of a key file with the key; absent if it is in a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    /// File that has the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a Path>,
}

fn keygen(context: &CliContext, file: Option<&Path>, add: bool) -> Result<Exit, Failure> {
    let failed = |error: KeyFileError| {
        let exit = match &error {
            KeyFileError::Exists(_) => Exit::Conflict,
            KeyFileError::Random(_) => Exit::Internal,
            KeyFileError::Keys { .. } | KeyFileError::File { .. } | KeyFileError::Open { .. } => Exit::Usage,
        };
        Failure::new(exit, error.to_string())
    };
    let Some(path) = file else {
        let key = secrets::fresh_key().map_err(failed)?;
        let line = key.line();
        let document = NewKeyDocument { id: key.id(), key: Some(line.as_str()), file: None };
        context.out.value(&to_json(&document), || line.to_string())?;
        return Ok(Exit::Ok);
    };
    let key = secrets::keygen(path, add).map_err(failed)?;
    let document = NewKeyDocument { id: key.id(), key: None, file: Some(path) };
    context.out.value(&to_json(&document), || format!("key {} in {}", key.id(), path.display()))?;
    Ok(Exit::Ok)
}
