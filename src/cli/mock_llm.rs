//! `trellis mock-llm`: serves a rules file as a model provider.

use super::CliContext;
use super::exit::{Exit, Failure};
use super::output::note;
use crate::model::calls_log::CallsLog;
use crate::model::mock_server;
use crate::model::scripted::Script;

use crate::process::shutdown::Shutdown;
use crate::process::telemetry::Metrics;
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Arguments of `trellis mock-llm`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  trellis mock-llm config/examples/scripted.toml --listen 127.0.0.1:8421")]
pub(crate) struct MockLlm {
    /// Rules file, or `echo`, or `never`
    rules: String,
    /// Address to listen on
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8421")]
    listen: SocketAddr,
    /// File that gets one JSON line per call
    #[arg(long, value_name = "FILE")]
    calls_log: Option<PathBuf>,
}

impl MockLlm {
    /// Serves until a signal ends it.
    pub async fn run(self, _context: &CliContext) -> Result<Exit, Failure> {
        let calls_log = self.calls_log.map(CallsLog::new);
        let script = Script::load(&self.rules, calls_log).map_err(|e| Failure::usage(e.to_string()))?;
        let listener = TcpListener::bind(self.listen).await.map_err(|e| {
            Failure::new(Exit::Conflict, format!("can't listen on `{}`: {e}; choose another `--listen`", self.listen))
        })?;
        let address = listener.local_addr().map_err(|e| Failure::internal(e.to_string()))?;
        note(&format!("serving `{}` on http://{address}/v1/", self.rules));
        let shutdown = Shutdown::new(Arc::new(Metrics::new()));
        shutdown.listen_to_signals().map_err(|e| Failure::internal(format!("signals can't be handled: {e}")))?;
        let closing = async move { shutdown.wait_triggered().await };
        let served = mock_server::serve(listener, Arc::new(script), closing).await;
        served.map_err(|e| Failure::internal(format!("serving failed: {e}")))?;
        Ok(Exit::Ok)
    }
}
