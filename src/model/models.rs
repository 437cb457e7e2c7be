//! All models of a worker: calls the provider that a request names, within the limits that hold for all providers.

use crate::domain::chat::{ModelRequest, ModelSettings, Reply};
use crate::domain::wire::reply::check_size;
use crate::model::calls_log::{CallsLog, LogError, LoggedCall};
use crate::model::endpoint::ProviderOptions;
use crate::model::endpoint::SCRIPTED;
use crate::model::provider::ModelProvider;
use crate::model::provider_error::{timeout_error, unbounded_error};
use crate::model::scripted::{ScriptedModel, ScriptedOptions};
use crate::model::{LiveText, Model, ModelError};
use crate::venue::secrets::OpenedSecret;
use async_trait::async_trait;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Options of all providers.
#[derive(Debug, Clone)]
pub struct ModelOptions {
    /// Rules of `scripted`: path of a file or a folder.
    pub scripted: Option<PathBuf>,
    /// Options of the providers that are called over HTTP.
    pub providers: ProviderOptions,
    /// File with one JSON line per step of each call, for all providers. A call that is aborted, for example by `timeout`,
    /// has no line for its end.
    pub calls_log: Option<PathBuf>,
    /// Longest time of a call of any provider, from its beginning to the last piece of the reply.
    pub timeout: Duration,
}

impl Default for ModelOptions {
    /// Sets 10 minutes, the longest that providers allow a call to take.
    fn default() -> Self {
        Self {
            scripted: None,
            providers: ProviderOptions::default(),
            calls_log: None,
            timeout: Duration::from_mins(10),
        }
    }
}

/// All models, by provider.
#[derive(Debug)]
pub struct Models {
    scripted: ScriptedModel,
    provider: ModelProvider,
    timeout: Duration,
    log: Option<CallsLog>,
    /// Number of calls over HTTP that were logged so far.
    logged_calls: AtomicU64,
}

impl Models {
    /// Makes all providers. Fails if TLS can't be set up.
    pub fn new(options: ModelOptions) -> Result<Models, reqwest::Error> {
        let log = options.calls_log.map(CallsLog::new);
        let scripted = ScriptedOptions { rules: options.scripted, calls_log: log.clone() };
        let provider = ModelProvider::new(options.providers)?;
        let (timeout, logged_calls) = (options.timeout, AtomicU64::new(0));
        Ok(Models { scripted: ScriptedModel::new(scripted), provider, timeout, log, logged_calls })
    }

    /// Returns the reply of the provider that the request names, and logs the call. A call that can't be logged fails.
    async fn call_provider(
        &self,
        request: &ModelRequest,
        secrets: &[OpenedSecret],
        live: &LiveText,
    ) -> Result<Reply, ModelError> {
        // `scripted` logs its calls itself, with the rules that answer them.
        if request.model.provider == SCRIPTED {
            return self.scripted.complete(request, secrets, live).await;
        }
        let Some(log) = &self.log else { return self.provider.complete(request, secrets, live).await };
        let call = self.logged_calls.fetch_add(1, Ordering::Relaxed) + 1;
        let entry = LoggedCall { turn: request.turn.clone(), model: request.model.id(), rule: 0, call };
        let failed = |error: LogError| ModelError::Permanent { model: request.model.id(), reason: error.to_string() };
        log.log_start(&entry).await.map_err(failed)?;
        let outcome = self.provider.complete(request, secrets, live).await;
        log.log_end(&entry, outcome.is_ok()).await.map_err(failed)?;
        outcome
    }
}

#[async_trait]
impl Model for Models {
    async fn complete(
        &self,
        request: &ModelRequest,
        secrets: &[OpenedSecret],
        live: &LiveText,
    ) -> Result<Reply, ModelError> {
        let model = || request.model.id();
        let answer = tokio::time::timeout(self.timeout, self.call_provider(request, secrets, live)).await;
        let reply = answer.unwrap_or_else(|_| Err(timeout_error(&model(), self.timeout)))?;
        check_size(request.model.max_tokens, &reply).map_err(|limit| unbounded_error(&model(), &limit))?;
        Ok(reply)
    }

    fn missing_key(&self, model: &ModelSettings) -> Option<String> {
        if model.provider == SCRIPTED {
            self.scripted.missing_rules(&model.name)
        } else {
            self.provider.missing_key(model)
        }
    }

    fn is_own_server(&self, model: &ModelSettings) -> bool {
        model.provider != SCRIPTED && self.provider.is_own_server(model)
    }
}
