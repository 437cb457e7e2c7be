//! Webhooks that the configuration names.

use crate::config::url::{CallableUrlError, parse_callable};
use crate::config::{Config, WebhookConfig};
use crate::domain::hosts::HostRuleError;
use crate::domain::notification::signature::{WebhookKey, WebhookKeyError};
use crate::domain::webhook::WebhookName;
use crate::venue::outbound::HttpPolicy;
use crate::venue::outbound::webhook::VenueWebhook;
use zeroize::Zeroizing;

/// Reason why a webhook can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WebhookProblem {
    /// The environment has no secret for it.
    #[error("its secret is in the environment variable `{variable}`, which isn't set")]
    NoSecret {
        /// Name of the environment variable.
        variable: String,
    },
    /// The variable has another text.
    #[error("its secret, in `{variable}`: {error}")]
    Secret {
        /// Name of the environment variable.
        variable: String,
        /// Rule that the text breaks.
        error: WebhookKeyError,
    },
    /// The address can't be called.
    #[error("`url`: {0}")]
    Url(#[from] CallableUrlError),
    /// The host can't be called.
    #[error("`url`: {0}")]
    Host(#[from] HostRuleError),
}

/// Makes the webhooks that the configuration names; `policy` has the limits of all calls to other hosts.
pub(super) fn open_webhooks(
    config: &Config,
    policy: &HttpPolicy,
) -> Result<Vec<VenueWebhook>, (WebhookName, WebhookProblem)> {
    let all = config.notifications.webhooks.iter();
    all.map(|given| open(given, policy).map_err(|problem| (given.name.clone(), problem))).collect()
}

fn open(given: &WebhookConfig, policy: &HttpPolicy) -> Result<VenueWebhook, WebhookProblem> {
    let variable = given.secret_env.clone();
    let secret = std::env::var(&variable).ok().filter(|secret| !secret.is_empty()).map(Zeroizing::new);
    let secret = secret.ok_or_else(|| WebhookProblem::NoSecret { variable: variable.clone() })?;
    let key = WebhookKey::parse(&secret).map_err(|error| WebhookProblem::Secret { variable, error })?;
    let url = parse_callable(&given.url)?;
    let policy = HttpPolicy { allow_private: given.allow_private, ..policy.clone() };
    let hook = VenueWebhook::new(given.name.clone(), given.kinds.clone(), url, key, &policy)?;
    Ok(hook.with_content(given.with_content))
}
