//! Requests to a running venue over HTTP, for data that only its own process can read.

use super::CliContext;
use super::client::{Client, ServerArgs};
use super::exit::{Exit, Failure};
use crate::app::{self, App, AppError, Role};
use crate::config::Config;
use crate::process::clock::Clock;
use crate::process::telemetry::Metrics;
use crate::store::Store;
use crate::venue::Venue;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which running server to ask.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RunningArgs {
    /// Folder of the embedded store, as `trellis up --data` names it; the same as `--set store.url=embedded:DIR`
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    data: Option<PathBuf>,
    /// Ask this server, instead of the configured store and queue; without it a running `trellis up` that holds an
    /// embedded store is asked, and `TRELLIS_URL` where no store is configured
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Token of an operator of a venue with `auth.mode = "jwt"`; others can see it in the list of processes, so better
    /// in the environment or with `--token-file`
    #[arg(long, env = "TRELLIS_TOKEN", hide_env_values = true, hide_default_value = true)]
    token: Option<String>,
    /// File with the token
    #[arg(long, value_name = "FILE", env = "TRELLIS_TOKEN_FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,
}

/// Environment variable with the server of all other commands.
const URL_VARIABLE: &str = "TRELLIS_URL";

/// A server that may be running, from the arguments of a command and its environment.
#[derive(Debug, Clone)]
pub(crate) struct RunningServer {
    args: RunningArgs,
    /// Used only where no store is configured.
    url_of_environment: Option<String>,
}

impl RunningArgs {
    /// Loads the configuration, with the folder that these arguments name.
    pub fn load(&self, context: &CliContext) -> Result<Config, Failure> {
        Ok(context.load(store_flag(self.data.as_deref()))?.config)
    }

    /// Returns the server that these arguments and the environment name.
    pub fn server(self, context: &CliContext) -> RunningServer {
        let url_of_environment = context.env.get(URL_VARIABLE).filter(|url| !url.is_empty()).cloned();
        RunningServer { args: self, url_of_environment }
    }
}

impl RunningServer {
    /// Returns a client of the running server, and whether that server holds the store; `None` if the configured
    /// backends can be opened here.
    fn client(self, config: &Config) -> Result<Option<(Client, bool)>, Failure> {
        let RunningArgs { data, url, token, token_file } = self.args;
        let (url, held) = match (url, self.url_of_environment) {
            (Some(url), _) => (url, false),
            (None, url) if app::is_held(config) => {
                (url.unwrap_or_else(|| format!("http://{}", config.http.listen)), true)
            }
            (None, Some(url)) if data.is_none() && has_default_store(config) => (url, false),
            (None, _) => return Ok(None),
        };
        let server = ServerArgs { url, owner: None, token, token_file };
        Ok(Some((Client::new(&server)?, held)))
    }

    /// Whether the running server no longer accepts connections.
    pub async fn has_stopped(&self, config: &Config) -> Result<bool, Failure> {
        match self.clone().client(config)? {
            Some((client, _)) => Ok(!client.accepts_connections().await),
            None => Ok(true),
        }
    }

    /// Asks the running server; `None` if the configured backends can be opened here.
    pub async fn ask(self, config: &Config, operation: &str, input: &impl Serialize) -> Result<Option<Value>, Failure> {
        let Some((client, held)) = self.client(config)? else { return Ok(None) };
        let asked = client.run(operation, input, None).await;
        let advice =
            "another process holds the folder of the store and is asked over HTTP; name its address with `--url`";
        asked.map(Some).map_err(|failure| if held { failure.with_advice(Exit::Unreachable, advice) } else { failure })
    }

    /// Asks the running server, or else opens the configured backends and calls `here`.
    pub async fn call_or_run_here(
        self,
        config: &Config,
        operation: &str,
        input: &impl Serialize,
        here: impl AsyncFnOnce(&Venue) -> Result<Value, Failure>,
    ) -> Result<Value, Failure> {
        self.call_or_run_as(Role::Command, config, operation, input, here).await
    }

    /// Asks the running server, or else opens the backends with this role and calls `here`.
    pub async fn call_or_run_as(
        self,
        role: Role,
        config: &Config,
        operation: &str,
        input: &impl Serialize,
        here: impl AsyncFnOnce(&Venue) -> Result<Value, Failure>,
    ) -> Result<Value, Failure> {
        if let Some(answer) = self.ask(config, operation, input).await? {
            return Ok(answer);
        }
        let app = Box::pin(open_as(role, config)).await?;
        let said = Box::pin(here(&app.venue)).await;
        app.close().await;
        said
    }
}

/// Opens the configured store without its queue.
pub(crate) async fn open_store(config: &Config) -> Result<Arc<dyn Store>, Failure> {
    Box::pin(app::open_store_to_read(config, &Clock::system())).await.map_err(|error| open_failure(&error))
}

/// Makes the failure of a command that can't open the backends.
fn open_failure(error: &AppError) -> Failure {
    let advice = "or with `--data DIR`, or a running server with `--url URL`";
    super::role::failure(error).with_advice(Exit::NotFound, advice)
}

/// Whether the default store is configured: then the user more likely means a server than the default folder.
fn has_default_store(config: &Config) -> bool {
    let default = Config::load(None, &BTreeMap::new(), &[]);
    default.is_ok_and(|default| default.config.store.url == config.store.url)
}

/// Returns the setting that names the folder of an embedded store, as a flag.
pub(crate) fn store_flag(data: Option<&Path>) -> Vec<(&'static str, String)> {
    data.map(|dir| ("store.url", format!("embedded:{}", dir.display()))).into_iter().collect()
}

/// Opens the configured backends for a command.
pub(crate) async fn open(config: &Config) -> Result<App, Failure> {
    open_as(Role::Command, config).await
}

async fn open_as(role: Role, config: &Config) -> Result<App, Failure> {
    App::open(config, role, Arc::new(Metrics::new())).await.map_err(|error| open_failure(&error))
}
