//! The page of secrets: their names, hosts and times. No page and no error has a value.

use super::figures::TimeText;
use super::page::{PageFrame, render, see_other};
use super::text::{sentence, summary};
use crate::domain::authority::ResourcePath;
use crate::domain::lattice::Namespace;
use crate::domain::percent::percent_encode;
use crate::domain::time::Millis;
use crate::http::Api;
use crate::http::extract::RequestCaller;
use crate::http::problem::Problem;
use crate::http::runs::{operate, read_output};
use crate::http::secrets as secret_api;
use crate::view::request::SetSecretRequest;
use crate::view::secret::{SecretView, SecretsView};
use crate::view::to_json;
use askama::Template;
use axum::Form;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Template)]
#[template(path = "secrets.html", config = "src/http/console/askama.toml")]
struct SecretsHtml {
    frame: PageFrame,
    rows: Vec<SecretRow>,
    may_set: bool,
    refused: SecretDraft,
}

/// A secret in the list.
struct SecretRow {
    name: String,
    /// Address of its forms.
    address: String,
    /// Hosts that it may be sent to, in words.
    hosts: String,
    version: u64,
    created: TimeText,
    updated: TimeText,
    /// Name of a key that this process lacks; empty if it can open the secret.
    missing_key: String,
    may_delete: bool,
}

/// What a refused form had, without the value.
#[derive(Default)]
struct SecretDraft {
    /// Why it was refused; empty if nothing was.
    fault: String,
    name: String,
    hosts: String,
    is_replacement: bool,
}

/// Form that sets a secret. It has no `Debug`, as it holds the value.
#[derive(Deserialize, JsonSchema)]
pub(in crate::http) struct SecretForm {
    /// Name of the secret, with or without `s/`.
    name: String,
    /// Value of the secret.
    value: String,
    /// Hosts that it may be sent to, with blanks or commas between; empty keeps those it has.
    #[serde(default)]
    hosts: String,
    /// Whether a secret of this name is replaced: any text.
    #[serde(default)]
    overwrite: String,
}

/// `GET /secrets`: the names of secrets, with a form to set one.
pub(in crate::http) async fn secrets(State(api): State<Api>, who: RequestCaller) -> Result<Response, Problem> {
    Ok(render(StatusCode::OK, &read_page(&api, &who, SecretDraft::default()).await?))
}

async fn read_page(api: &Api, who: &RequestCaller, refused: SecretDraft) -> Result<SecretsHtml, Problem> {
    let found: SecretsView = read_output(operate(api, who, "v/ops/secret/list", Map::new().into()).await?)?;
    let now = api.venue.now();
    Ok(SecretsHtml {
        frame: PageFrame::new(who, "/secrets", "Secrets"),
        rows: found.secrets.iter().map(|secret| secret_row(who, secret, now)).collect(),
        may_set: who.caller.authority.holds_near("secret/set", Namespace::Secrets.prefix()),
        refused,
    })
}

fn secret_row(who: &RequestCaller, secret: &SecretView, now: Millis) -> SecretRow {
    let place = ResourcePath::at_keys(Namespace::Secrets, [secret.name.as_str()]);
    SecretRow {
        name: secret.name.clone(),
        address: format!("/secrets/{}", percent_encode(&secret.name)),
        hosts: summary(&secret.hosts.join(", ")),
        version: secret.version,
        created: TimeText::new(secret.created, now),
        updated: TimeText::new(secret.updated, now),
        missing_key: if secret.readable { String::new() } else { summary(&secret.key) },
        may_delete: who.caller.authority.permits("secret/delete", place).is_ok(),
    }
}

/// `POST /secrets`: stores a secret and shows the list. A refused form keeps all but the value.
pub(in crate::http) async fn set_secret(
    State(api): State<Api>,
    who: RequestCaller,
    Form(form): Form<SecretForm>,
) -> Result<Response, Problem> {
    match operate(&api, &who, "v/ops/secret/set", set_request(&form)).await {
        Ok(_) => see_other("/secrets"),
        Err(error) => {
            let problem = Problem::from(error);
            if ![StatusCode::BAD_REQUEST, StatusCode::CONFLICT].contains(&problem.status) {
                return Err(problem);
            }
            let draft = SecretDraft {
                fault: sentence(&problem.detail),
                name: form.name,
                hosts: form.hosts,
                is_replacement: !form.overwrite.is_empty(),
            };
            // Who may set secrets and not list them is told the reason alone.
            let page = read_page(&api, &who, draft).await.map_err(|_| Problem::new(problem.status, &problem.detail))?;
            Ok(render(problem.status, &page))
        }
    }
}

fn set_request(form: &SecretForm) -> Value {
    let hosts = form.hosts.split(|c: char| c == ',' || c.is_whitespace()).filter(|host| !host.is_empty());
    let overwrite = !form.overwrite.is_empty();
    to_json(&SetSecretRequest { name: form.name.trim(), value: &form.value, hosts: hosts.collect(), overwrite })
}

/// `POST /secrets/{name}/delete`: deletes a secret and shows the list.
pub(in crate::http) async fn delete_secret(
    state: State<Api>,
    who: RequestCaller,
    name: Path<String>,
) -> Result<Response, Problem> {
    secret_api::delete(state, who, name).await?;
    see_other("/secrets")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn hosts_stand_with_blanks_or_commas_between() {
        let form = |hosts: &str, overwrite: &str| SecretForm {
            name: " KEY ".into(),
            value: " v ".into(),
            hosts: hosts.into(),
            overwrite: overwrite.into(),
        };
        let sent = set_request(&form("a.example, b.example\r\nc.example", "1"));
        let hosts = ["a.example", "b.example", "c.example"];
        assert_eq!(sent, json!({"name": "KEY", "value": " v ", "hosts": hosts, "overwrite": true}));
        // Without hosts a secret keeps those it has.
        assert_eq!(set_request(&form(" ", "")), json!({"name": "KEY", "value": " v ", "overwrite": false}));
    }
}
