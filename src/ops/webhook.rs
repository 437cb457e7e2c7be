//! `v/ops/webhook/*`: webhooks that get the notifications of an owner.

use crate::domain::authority::ResourcePath;
use crate::domain::ids::secret::SecretName;
use crate::domain::notification::NotificationKind;
use crate::domain::webhook::WebhookName;
use crate::venue::notifications::deliver;
use crate::venue::notifications::hooks::{self, WantedWebhook};
use crate::venue::operation::{Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, operation};
use crate::view::notification::WebhookDeletedView;
use schemars::JsonSchema;
use serde::Deserialize;

/// Returns the operations of this group.
pub fn operations() -> Vec<RegisteredOperation> {
    vec![
        operation::<SetWebhook>(),
        operation::<ListWebhooks>(),
        operation::<DeleteWebhook>(),
        operation::<TryWebhook>(),
    ]
}

/// Returns the need of an ability on the owner's webhooks.
fn need(ability: &'static str) -> Need {
    Need::new(ability, ResourcePath::owner_document("webhooks"))
}

fn parse_name(text: &str) -> Result<WebhookName, OpError> {
    WebhookName::new(text).map_err(|error| OpError::Invalid(format!("`name`: {error}")))
}

/// Send the notifications of this owner to a webhook, signed in the form of Standard Webhooks, as the caller may see them.
/// One of the same name is replaced. At most 10.
#[derive(Deserialize, JsonSchema)]
struct SetWebhook {
    /// 1 to 32 letters, digits and `-`
    name: String,
    /// where they are posted; the venue must allow its host
    url: String,
    /// those that are sent; absent or empty are all
    #[serde(default)]
    kinds: Vec<NotificationKind>,
    /// with `whsec_` and the key of the signatures in base64 as its value
    secret: SigningSecret,
}

/// A secret of the owner, as `{"$secret": "s/NAME"}`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SigningSecret {
    /// Path of the secret, `s/NAME`.
    #[serde(rename = "$secret")]
    path: String,
}

impl SetWebhook {
    fn secret(&self) -> Result<SecretName, OpError> {
        SecretName::from_path(&self.secret.path).map_err(|_| {
            let expected =
                "expected `{\"$secret\": \"s/NAME\"}`, a secret with `whsec_` and the key in base64 as its value";
            OpError::Invalid(format!("`secret`: {expected}"))
        })
    }
}

impl Operation for SetWebhook {
    const PATH: &'static str = "v/ops/webhook/set";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Ok(vec![need("webhook/set"), Need::new("secret/use", ResourcePath::secret(&self.secret()?))])
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        call.refuse_agents::<Self>("people")?;
        let (name, secret) = (parse_name(&self.name)?, self.secret()?);
        let wanted = WantedWebhook { name, url: self.url, kinds: self.kinds, secret };
        let hook = hooks::set(call.venue, call.caller, wanted).await?;
        Ok(OpOutput::of(&hooks::view(call.venue, &call.caller.owner, &hook).await?))
    }
}

/// Webhooks that get the notifications of this owner, those of the venue too, and what became of the deliveries.
#[derive(Deserialize, JsonSchema)]
struct ListWebhooks {}

impl Operation for ListWebhooks {
    const PATH: &'static str = "v/ops/webhook/list";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Ok(vec![need("webhook/list")])
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        Ok(OpOutput::of(&hooks::views(call.venue, &call.caller.owner).await?))
    }
}

/// Delete a webhook; nothing there is no error. What is on its way to it is not sent.
#[derive(Deserialize, JsonSchema)]
struct DeleteWebhook {
    /// as `webhook/list` shows it
    name: String,
}

impl Operation for DeleteWebhook {
    const PATH: &'static str = "v/ops/webhook/delete";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Ok(vec![need("webhook/delete")])
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        call.refuse_agents::<Self>("people")?;
        let deleted = hooks::delete(call.venue, &call.caller.owner, &parse_name(&self.name)?).await?;
        Ok(OpOutput::of(&WebhookDeletedView { deleted }))
    }
}

/// Post a notification of the type `test` to a webhook, once, and say whether it was taken.
#[derive(Deserialize, JsonSchema)]
struct TryWebhook {
    /// as `webhook/list` shows it
    name: String,
}

impl Operation for TryWebhook {
    const PATH: &'static str = "v/ops/webhook/try";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Ok(vec![need("webhook/try")])
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        call.refuse_agents::<Self>("people")?;
        let tried = deliver::try_webhook(call.venue, call.caller, &parse_name(&self.name)?).await?;
        Ok(OpOutput::of(&tried))
    }
}
