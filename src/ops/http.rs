//! `v/ops/http/*`: calls to hosts that the venue's configuration names.

use super::lattice::schema;
use crate::domain::secret::{Destination, reference};
use crate::venue::operation::{Effect, Invocation, Need, OpError, Operation, Output, Spec};
use crate::venue::outbound::send::{self, Ask, Sender};
use crate::venue::outbound::{HttpPolicy, check_url, destination, resource};
use async_trait::async_trait;
use reqwest::{Method, Url};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Copy)]
enum Verb {
    Get,
    Post,
}

struct Http {
    verb: Verb,
    sender: Arc<Sender>,
}

/// The operations of this group, under a policy.
pub fn operations(policy: HttpPolicy) -> Vec<Arc<dyn Operation>> {
    let sender = Arc::new(Sender::new(policy));
    let operation = |verb| Arc::new(Http { verb, sender: Arc::clone(&sender) }) as Arc<dyn Operation>;
    vec![operation(Verb::Get), operation(Verb::Post)]
}

fn url_of(arguments: &Value) -> Result<Url, OpError> {
    let text = arguments["url"].as_str().unwrap_or_default();
    let url = Url::parse(text).map_err(|error| OpError::Invalid(format!("`url` expected a URL, {error}")))?;
    check_url(&url)?;
    Ok(url)
}

impl Verb {
    const fn ability(self) -> &'static str {
        match self {
            Self::Get => "http/get",
            Self::Post => "http/post",
        }
    }
}

#[async_trait]
impl Operation for Http {
    fn spec(&self) -> Spec {
        let header = || {
            let mut text = reference::text_schema();
            text["description"] = "text, or a secret: {\"$secret\": \"s/NAME\", \"prefix\": \"Bearer \"}".into();
            text
        };
        let headers = || json!({"type": "object", "additionalProperties": header(), "maxProperties": 50});
        let body = || json!({reference::MARK: true, "description": "JSON may hold secrets, as headers do"});
        let timeout = || json!({"type": "integer", "minimum": 1, "description": "ms"});
        let url = || json!({"type": "string", "maxLength": 8192});
        match self.verb {
            Verb::Get => Spec {
                path: "v/ops/http/get",
                description: "Get a URL of a host that this venue allows. Returns status, headers, and the body: JSON \
                              parsed, text as `body`, bytes as `bodyBase64`. Any status is a result.",
                input: schema(&json!({"url": url(), "headers": headers(), "timeout": timeout()}), &["url"]),
                effect: Effect::Read,
            },
            Verb::Post => Spec {
                path: "v/ops/http/post",
                description: "Post to a URL of a host that this venue allows: `body` is sent as it is when it is text, \
                              else as JSON. Returns as http/get does. It is never sent twice.",
                input: schema(
                    &json!({"url": url(), "headers": headers(), "body": body(), "contentType": {"type": "string"}, "timeout": timeout()}),
                    &["url"],
                ),
                effect: Effect::Once,
            },
        }
    }

    fn needs(&self, arguments: &Value) -> Result<Vec<Need>, OpError> {
        Ok(vec![Need { ability: self.verb.ability(), resource: resource(&url_of(arguments)?) }])
    }

    fn destination(&self, arguments: &Value) -> Result<Option<Destination>, OpError> {
        Ok(Some(destination(&url_of(arguments)?)))
    }

    async fn invoke(&self, call: &Invocation<'_>, mut arguments: Value) -> Result<Output, OpError> {
        let url = url_of(&arguments)?;
        let headers = send::headers(&arguments["headers"])?;
        let body = match (self.verb, arguments.get_mut("body").map(Value::take)) {
            (Verb::Get, _) | (Verb::Post, None) => None,
            (Verb::Post, Some(Value::String(text))) => Some((text.into_bytes(), "text/plain; charset=utf-8")),
            (Verb::Post, Some(value)) => Some((value.to_string().into_bytes(), "application/json")),
        };
        let kind = arguments["contentType"].as_str().map(send::header_value).transpose()?;
        let ask = Ask {
            method: match self.verb {
                Verb::Get => Method::GET,
                Verb::Post => Method::POST,
            },
            url,
            headers,
            body: body.map(|(bytes, default)| {
                (bytes.into(), kind.unwrap_or_else(|| reqwest::header::HeaderValue::from_static(default)))
            }),
            timeout: arguments["timeout"].as_u64().map(Duration::from_millis),
            shown: None,
        };
        // Whoever may call one place may not by that call the place it points to.
        let permitted = |url: &Url| {
            let permitted = call.caller.authority.permits(self.verb.ability(), resource(url));
            permitted.map_err(|denied| OpError::Denied(denied.text(call.named)))
        };
        self.sender.send(ask, &permitted).await.map(Into::into)
    }
}
