//! The model that a worker is given: it finds the provider a request names.

use crate::domain::chat::{ModelRequest, Reply};
use crate::model::endpoint::ProviderOptions;
use crate::model::provider::Provider;
use crate::model::scripted::{Scripted, ScriptedOptions};
use crate::model::{LiveText, Model, ModelError};
use crate::secrets::Secret;
use async_trait::async_trait;

/// Name of the provider that needs no network.
pub const SCRIPTED: &str = "scripted";

/// Options of every provider.
#[derive(Debug, Clone, Default)]
pub struct ModelOptions {
    /// Of `scripted`.
    pub scripted: ScriptedOptions,
    /// Of all others.
    pub providers: ProviderOptions,
}

/// Every model, by provider.
#[derive(Debug)]
pub struct Models {
    scripted: Scripted,
    provider: Provider,
}

impl Models {
    /// With their options. Fails when TLS can't be set up.
    pub async fn new(options: ModelOptions) -> Result<Models, genai::Error> {
        let provider = Provider::new(options.providers).await?;
        Ok(Models { scripted: Scripted::new(options.scripted), provider })
    }
}

#[async_trait]
impl Model for Models {
    async fn complete(&self, request: &ModelRequest, live: &LiveText) -> Result<Reply, ModelError> {
        self.complete_with(request, None, live).await
    }

    async fn complete_with(
        &self,
        request: &ModelRequest,
        key: Option<&Secret>,
        live: &LiveText,
    ) -> Result<Reply, ModelError> {
        match request.model.provider.as_str() {
            SCRIPTED => self.scripted.complete(request, live).await,
            _ => self.provider.complete_with(request, key, live).await,
        }
    }
}
