//! `trellis webhook set|list|delete|try`: where the notifications of an owner are sent.

use super::CliContext;
use super::client::{Client, ServerArgs, encode, read_view};
use super::escape::{cell, escape_data};
use super::exit::{Exit, Failure};
use super::output::note;
use crate::view::notification::{WebhookTriedView, WebhookView, WebhooksView};
use clap::Subcommand;
use serde::Serialize;
use serde_json::json;

/// Webhooks that get notifications: approvals that wait, dead jobs, reached caps, …
#[derive(Debug, Subcommand)]
pub(crate) enum WebhookCommand {
    /// Send notifications to a webhook, signed by a secret; one of the same name is replaced
    #[command(
        after_help = "Examples:\n  echo whsec_$(head -c 32 /dev/urandom | base64) | trellis secret set HOOK\n  trellis webhook set phone https://hooks.example.com/x --secret s/HOOK\n  trellis webhook set ops https://ops.example.com/ --secret s/HOOK --kind job-dead --kind cap-reached"
    )]
    Set {
        /// 1 to 32 letters, digits and `-`
        name: String,
        /// Where they are posted
        #[arg(id = "address", value_name = "URL")]
        url: String,
        /// Secret with `whsec_` and the key in base64 as its value
        #[arg(long, value_name = "s/NAME")]
        secret: String,
        /// Kind that is sent; may be repeated [default: all]
        #[arg(long = "kind", value_name = "KIND")]
        kinds: Vec<String>,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// List webhooks, and what became of the deliveries; a post of `webhook try` is in none of the counts
    #[command(after_help = "Example:\n  trellis webhook list")]
    List {
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Delete a webhook
    #[command(after_help = "Example:\n  trellis webhook delete phone")]
    Delete {
        /// Name of the webhook
        name: String,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Post a notification of the type `test` to a webhook, once; `webhook list` doesn't count it
    #[command(after_help = "Example:\n  trellis webhook try phone")]
    Try {
        /// Name of the webhook
        name: String,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
}

/// Body of `PUT webhooks/{name}`.
#[derive(Serialize)]
struct SetWebhookRequest<'a> {
    url: &'a str,
    kinds: &'a [String],
    secret: SecretPath<'a>,
}

/// A reference to a secret.
#[derive(Serialize)]
struct SecretPath<'a> {
    #[serde(rename = "$secret")]
    path: &'a str,
}

impl WebhookCommand {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        match self {
            Self::Set { name, url, secret, kinds, server } => {
                let request = SetWebhookRequest { url: &url, kinds: &kinds, secret: SecretPath { path: &secret } };
                let path = format!("webhooks/{}", encode(&name));
                let answer = Client::new(&server)?.put(&path, &request).await?;
                let hook: WebhookView = read_view(answer.clone())?;
                context
                    .out
                    .value(&answer, || format!("webhook {} set, for {}", escape_data(&hook.name), kinds_of(&hook)))?;
            }
            Self::List { server } => {
                let answer = Client::new(&server)?.get("webhooks", &[]).await?;
                let shown: WebhooksView = read_view(answer.clone())?;
                context.out.page(&answer, "items", |_| {
                    let rows: Vec<_> = shown.items.iter().map(row).collect();
                    context.out.table(&["NAME", "URL", "KINDS", "DELIVERED", "FAILED", "DROPPED"], &rows)
                })?;
                note_losses(&shown);
            }
            Self::Delete { name, server } => {
                let answer = Client::new(&server)?.delete(&format!("webhooks/{}", encode(&name))).await?;
                context.out.value(&answer, || format!("webhook {name} deleted"))?;
            }
            Self::Try { name, server } => {
                let path = format!("webhooks/{}/try", encode(&name));
                let answer = Client::new(&server)?.post(&path, &json!({})).await?;
                let tried: WebhookTriedView = read_view(answer.clone())?;
                context.out.value(&answer, || match &tried.error {
                    None => format!("webhook {name} has taken the notification {}", tried.id),
                    Some(error) => format!("webhook {name} has not taken it: {}", cell(error)),
                })?;
                if !tried.taken {
                    return Ok(Exit::Internal);
                }
            }
        }
        Ok(Exit::Ok)
    }
}

fn kinds_of(hook: &WebhookView) -> String {
    if hook.kinds.is_empty() {
        return "all kinds".to_owned();
    }
    hook.kinds.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", ")
}

fn row(hook: &WebhookView) -> Vec<String> {
    let url = hook.url.as_deref().map_or_else(|| "of the venue".to_owned(), |url| cell(url).into_owned());
    vec![
        cell(&hook.name).into_owned(),
        url,
        kinds_of(hook),
        hook.delivered.to_string(),
        hook.failed.to_string(),
        hook.dropped.to_string(),
    ]
}

/// Tells of deliveries that were given up, and of notifications that were dropped.
fn note_losses(shown: &WebhooksView) {
    for hook in &shown.items {
        for lost in &hook.undelivered {
            note(&format!(
                "not delivered to {}: {} {} at {}: {}",
                cell(&hook.name),
                lost.kind.as_str(),
                lost.notification,
                lost.at.rfc3339(),
                cell(&lost.error)
            ));
        }
    }
    if shown.dropped > 0 {
        note(&format!("{} notifications were dropped before they reached the queue and any webhook", shown.dropped));
    }
}
