//! `trellis mcp login|logout`: a person's login at a server whose tools agents use. The login comes back to a page of this
//! machine, and its answer goes to the venue, which gets the tokens.

use super::CliContext;
use super::client::{Client, read_view};
use super::escape::{cell, escape_data};
use super::exit::{Exit, Failure};
use super::named_place::NamedPlaceArgs;
use super::output::note;
use crate::domain::mcp::oauth::location::REDIRECT_PATH;
use crate::view::mcp_login::{McpLoginPageView, McpLoginView, McpLogoutView};
use axum::Router;
use axum::extract::Query;
use axum::response::Html;
use axum::routing::get;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// Longest wait for the answer of a login: the venue gives up before.
const ANSWER_TIME: Duration = Duration::from_mins(11);

/// Time that the browser has to fetch the last page.
const LAST_PAGE_TIME: Duration = Duration::from_secs(1);

/// Arguments of `v/ops/mcp/login`, `login-finish` and `logout`.
#[derive(Default, Serialize)]
struct LoginArguments<'a> {
    server: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    redirect: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    iss: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

/// Answer of a login server, as the browser brings it.
#[derive(Debug, Default, Deserialize)]
struct BrowserAnswer {
    #[serde(default)]
    state: String,
    code: Option<String>,
    iss: Option<String>,
    error: Option<String>,
    error_description: Option<String>,
}

impl BrowserAnswer {
    /// Returns the refusal with its description.
    fn refusal(&self) -> Option<String> {
        let about = self.error_description.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
        self.error.as_ref().map(|error| format!("{error}{about}"))
    }
}

/// Logs in at a server.
pub(super) async fn login(context: &CliContext, place: &NamedPlaceArgs) -> Result<Exit, Failure> {
    let client = Client::new(&place.server)?;
    let failed = |error: std::io::Error| Failure::internal(format!("no page for the answer on 127.0.0.1: {error}"));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(failed)?;
    let redirect = format!("http://{}{REDIRECT_PATH}", listener.local_addr().map_err(failed)?);
    let named = || LoginArguments { server: &place.name, agent: place.agent.as_deref(), ..LoginArguments::default() };
    let begin = LoginArguments { redirect: Some(&redirect), ..named() };
    let page: McpLoginPageView = read_view(client.run("v/ops/mcp/login", &begin, None).await?)?;
    let state = state_of(&page.url).ok_or_else(|| Failure::internal("the venue's page has no `state`"))?;
    note("Open this page in a browser on this machine, and log in there:\n");
    note(&page.url);
    note(&format!("\nThe login ends at {}; Ctrl+C gives it up.", page.until.rfc3339()));
    let answer = wait_for_answer(listener, state).await?;
    let refusal = answer.refusal();
    let finish = LoginArguments {
        state: Some(&answer.state),
        code: answer.code.as_deref(),
        iss: answer.iss.as_deref(),
        error: refusal.as_deref(),
        ..named()
    };
    let shown = client.run("v/ops/mcp/login-finish", &finish, None).await?;
    context.out.typed_value(shown, |login: &McpLoginView| {
        format!("logged in at {} by {}\n{}", escape_data(&login.issuer), cell(&login.by), describe_life(login))
    })?;
    Ok(Exit::Ok)
}

/// Logs out of a server.
pub(super) async fn logout(context: &CliContext, place: &NamedPlaceArgs) -> Result<Exit, Failure> {
    let client = Client::new(&place.server)?;
    let named = LoginArguments { server: &place.name, agent: place.agent.as_deref(), ..LoginArguments::default() };
    let shown = client.run("v/ops/mcp/logout", &named, None).await?;
    let text = |ended: bool| if ended { "logged out" } else { "nobody was logged in" };
    context.out.typed_value(shown, |logout: &McpLogoutView| text(logout.ended).to_owned())?;
    Ok(Exit::Ok)
}

/// Returns how long a login lasts, in words.
pub(super) fn describe_life(login: &McpLoginView) -> String {
    let lacking = login.lacking.join(" ");
    let lacking = if lacking.is_empty() { lacking } else { format!(", lacks {}", cell(&lacking)) };
    let life = match (login.ended, login.renewable, login.until) {
        (true, ..) => "ended: log in again".to_owned(),
        (false, true, _) => "renewed by itself".to_owned(),
        (false, false, Some(until)) => format!("until {}", until.rfc3339()),
        (false, false, None) => "until the server refuses it".to_owned(),
    };
    format!("{life}{lacking}")
}

fn state_of(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    url.query_pairs().find(|(key, _)| key == "state").map(|(_, state)| state.into_owned())
}

/// Waits for the browser. An answer with another state is of no login that this command began.
async fn wait_for_answer(listener: TcpListener, state: String) -> Result<BrowserAnswer, Failure> {
    let (send, mut answers) = mpsc::channel(1);
    let state: Arc<str> = state.into();
    let page = move |Query(answer): Query<BrowserAnswer>| {
        let (send, is_ours) = (send.clone(), answer.state == *state);
        async move {
            if is_ours && send.try_send(answer).is_ok() {
                Html("<p>The answer has arrived. The terminal says what came of it; this page can be closed.</p>")
            } else {
                Html("<p>This is the answer to no login that waits here.</p>")
            }
        }
    };
    let router = Router::new().route(REDIRECT_PATH, get(page));
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let answer = tokio::time::timeout(ANSWER_TIME, answers.recv()).await.ok().flatten();
    if answer.is_some() {
        tokio::time::sleep(LAST_PAGE_TIME).await;
    }
    serving.abort();
    let late = || Failure::new(Exit::TimedOut, "no answer came; run the command again to begin anew");
    answer.ok_or_else(late)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::Millis;

    #[test]
    fn a_login_is_shown_with_its_end() {
        let login = |ended: bool, renewable: bool, until: Option<u64>| McpLoginView {
            issuer: "https://as".into(),
            by: "me".into(),
            since: Millis(0),
            until: until.map(Millis),
            renewable,
            ended,
            scopes: Vec::new(),
            lacking: Vec::new(),
        };
        for (found, expected) in [
            (login(true, true, Some(0)), "ended: log in again"),
            (login(false, true, Some(0)), "renewed by itself"),
            (login(false, false, Some(0)), "until 1970-01-01T00:00:00.000Z"),
            (login(false, false, None), "until the server refuses it"),
        ] {
            assert_eq!(describe_life(&found), expected);
        }
        let lacking = McpLoginView { lacking: vec!["write".into()], ..login(false, true, None) };
        assert_eq!(describe_life(&lacking), "renewed by itself, lacks write");
        assert_eq!(state_of("https://as/go?a=b&state=x%20y").as_deref(), Some("x y"));
        assert_eq!(state_of("https://as/go"), None);
    }

    #[tokio::test]
    async fn only_the_answer_with_our_state_counts() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let page = format!("http://{}{REDIRECT_PATH}", listener.local_addr().unwrap());
        let waiting = tokio::spawn(wait_for_answer(listener, "mine".to_owned()));
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let open =
            async |query: &str| client.get(format!("{page}?{query}")).send().await.unwrap().text().await.unwrap();
        assert!(open("state=other&code=1").await.contains("no login"));
        assert!(open("code=1").await.contains("no login"));
        assert!(open("state=mine&code=the%2Fcode&iss=https%3A%2F%2Fas").await.contains("has arrived"));
        let answer = waiting.await.unwrap().unwrap();
        assert_eq!((answer.code.as_deref(), answer.iss.as_deref()), (Some("the/code"), Some("https://as")));
    }
}
