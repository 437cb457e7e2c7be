//! Sessions of browsers: a cookie with the token, and one with the owner that an operator looks at. They count on the
//! console's own routes alone. The server stores nothing, and the guard verifies the token in each request.

use super::origin::is_same_origin;
use super::page::{PageFrame, add_strict_headers, render, see_other};
use crate::domain::visible::reveal_hidden;
use crate::http::Api;
use crate::http::body::refuse_unread;
use crate::http::extract::OWNER_FIELD;
use crate::http::problem::{Problem, ProblemText};
use crate::venue::policy;
use askama::Template;
use axum::Form;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Deserialize;

/// Name of the cookie with the token.
const TOKEN_COOKIE: &str = "trellis-session";

/// Name of the cookie with the owner that is looked at.
const OWNER_COOKIE: &str = "trellis-owner";

/// Bytes of the longest token that a cookie takes: browsers keep 4,096 with name and attributes.
const COOKIE_TOKEN_BYTES: usize = 3_900;

/// Form of the sign-in page.
#[derive(Deserialize, JsonSchema)]
pub(in crate::http) struct SignInForm {
    /// A token of the API.
    token: String,
    /// Path to go to afterwards.
    #[serde(default)]
    next: String,
}

/// Form of the owner to look at.
#[derive(Deserialize, JsonSchema)]
pub(in crate::http) struct OwnerForm {
    /// Owner as `tenant/user`; empty for the caller's own.
    owner: String,
}

#[derive(Template)]
#[template(path = "sign_in.html", config = "src/http/console/askama.toml")]
struct SignInHtml<'a> {
    frame: PageFrame,
    /// Path to go to afterwards.
    next: &'a str,
    /// Why the page was not shown; empty if it wasn't asked for.
    fault: String,
}

#[derive(Template)]
#[template(path = "failure.html", config = "src/http/console/askama.toml")]
struct FailureHtml {
    frame: PageFrame,
    detail: String,
}

/// The middleware around the routes of the console: the cookie counts as the token, a change needs a page of the same
/// origin, and errors are pages.
pub(in crate::http) async fn adapt(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    let is_read = [Method::GET, Method::HEAD].contains(request.method());
    // Where a person who has to sign in goes on.
    let path = request.uri().path_and_query().map(ToString::to_string).filter(|_| is_read).unwrap_or_default();
    let response = if is_read || is_same_origin(request.headers(), api.options.public_url()) {
        add_session(request.headers_mut());
        next.run(request).await
    } else {
        let text = "this change was not asked for by a page of the console; open the console and repeat it there";
        let (parts, body) = request.into_parts();
        let kept_back = parts.headers.contains_key(header::EXPECT);
        refuse_unread(&api.options, kept_back, body, Problem::forbidden(text)).await
    };
    let ending = response.headers().get(header::CONNECTION).cloned();
    let mut response = match response.extensions().get::<ProblemText>() {
        Some(problem) => failure_response(response.status(), problem, &path),
        None => response,
    };
    if let Some(ending) = ending {
        response.headers_mut().insert(header::CONNECTION, ending);
    }
    add_strict_headers(&mut response);
    response
}

/// Makes the page of a problem: that of the sign-in if there is no valid token.
fn failure_response(status: StatusCode, problem: &ProblemText, path: &str) -> Response {
    let detail = reveal_hidden(&problem.detail);
    let mut response = if status == StatusCode::UNAUTHORIZED {
        let frame = PageFrame::without_caller("Sign in");
        render(status, &SignInHtml { frame, next: local_path(path), fault: detail })
    } else {
        let frame = PageFrame::without_caller(status.canonical_reason().unwrap_or("Refused"));
        render(status, &FailureHtml { frame, detail })
    };
    if let Some(seconds) = problem.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// Adds the token and the owner of the cookies to a request that names none.
fn add_session(headers: &mut HeaderMap) {
    let token = cookie_value(headers, TOKEN_COOKIE).map(|token| format!("Bearer {token}"));
    let owner = cookie_value(headers, OWNER_COOKIE).map(str::to_owned);
    for (name, text) in [(header::AUTHORIZATION, token), (OWNER_FIELD, owner)] {
        let value = text.and_then(|text| HeaderValue::try_from(text).ok());
        if let (Some(mut value), false) = (value, headers.contains_key(&name)) {
            value.set_sensitive(true);
            headers.insert(name, value);
        }
    }
}

fn cookie_value<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let texts = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value).filter(|value| !value.is_empty())
}

/// Returns a path of this server, or `/` if the text may lead elsewhere.
pub(super) fn local_path(text: &str) -> &str {
    let is_local = text.strip_prefix('/').is_some_and(|rest| !rest.starts_with(['/', '\\']));
    if is_local && text.bytes().all(|byte| byte.is_ascii_graphic()) { text } else { "/" }
}

/// `GET sign-in`: the form that takes a token.
pub(in crate::http) async fn sign_in_form() -> Response {
    render(StatusCode::OK, &SignInHtml { frame: PageFrame::without_caller("Sign in"), next: "/", fault: String::new() })
}

/// `POST sign-in`: verifies a token and keeps it in the cookie.
pub(in crate::http) async fn sign_in(
    State(api): State<Api>,
    Form(form): Form<SignInForm>,
) -> Result<Response, Problem> {
    let token = form.token.trim();
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    if token.len() > COOKIE_TOKEN_BYTES || !token.bytes().all(is_legal) {
        return Err(Problem::bad_request(format!(
            "field `token`: expected a token of at most {COOKIE_TOKEN_BYTES} bytes as `trellis token` prints it, without `Bearer`, got {} bytes",
            token.len()
        )));
    }
    let mut headers = HeaderMap::new();
    let value = HeaderValue::try_from(format!("Bearer {token}")).map_err(Problem::bad_request)?;
    headers.insert(header::AUTHORIZATION, value);
    let known = policy::apply_revocations(&*api.venue.store, api.identify(&headers)?).await?;
    let mut response = see_other(local_path(&form.next))?;
    if known.token_owner.is_some() {
        add_cookie(&api, &mut response, TOKEN_COOKIE, token)?;
    }
    Ok(response)
}

/// `POST sign-out`: removes the cookies.
pub(in crate::http) async fn sign_out(State(api): State<Api>) -> Result<Response, Problem> {
    let mut response = see_other("/sign-in")?;
    add_cookie(&api, &mut response, TOKEN_COOKIE, "")?;
    add_cookie(&api, &mut response, OWNER_COOKIE, "")?;
    Ok(response)
}

/// `POST owner`: keeps the owner to look at in a cookie, if the caller may name it.
pub(in crate::http) async fn switch_owner(
    State(api): State<Api>,
    mut headers: HeaderMap,
    Form(form): Form<OwnerForm>,
) -> Result<Response, Problem> {
    let owner = form.owner.trim();
    headers.remove(OWNER_FIELD);
    if !owner.is_empty() {
        let is_legal = |byte: u8| byte.is_ascii_graphic() && !b";,\"\\".contains(&byte);
        if !owner.bytes().all(is_legal) {
            return Err(Problem::bad_request("field `owner`: expected `tenant/user`, in ASCII"));
        }
        headers.insert(OWNER_FIELD, HeaderValue::try_from(owner).map_err(Problem::bad_request)?);
    }
    policy::apply_revocations(&*api.venue.store, api.identify(&headers)?).await?;
    let mut response = see_other("/")?;
    add_cookie(&api, &mut response, OWNER_COOKIE, owner)?;
    Ok(response)
}

/// Sets a cookie of the console; without a value it removes it.
fn add_cookie(api: &Api, response: &mut Response, name: &str, value: &str) -> Result<(), Problem> {
    let secure = if api.options.public_url().starts_with("https://") { "; Secure" } else { "" };
    let end = if value.is_empty() { "; Max-Age=0" } else { "" };
    let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{end}");
    let cookie = HeaderValue::try_from(cookie).map_err(Problem::bad_request)?;
    response.headers_mut().append(header::SET_COOKIE, cookie);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_in_leads_to_this_server_only() {
        for (text, expected) in [
            ("/jobs/1?a=b", "/jobs/1?a=b"),
            ("//evil.example", "/"),
            ("/\\evil.example", "/"),
            ("/\t/evil.example", "/"),
            ("https://evil.example", "/"),
            ("", "/"),
        ] {
            assert_eq!(local_path(text), expected, "{text:?}");
        }
    }

    #[test]
    fn the_token_is_that_of_the_cookie_of_this_name() {
        for (cookie, expected) in [
            ("trellis-session=a.b", Some("a.b")),
            ("x=1; trellis-session=a.b; y=2", Some("a.b")),
            ("trellis-session=", None),
            ("not-trellis-session=a", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::COOKIE, cookie.parse().unwrap());
            assert_eq!(cookie_value(&headers, TOKEN_COOKIE), expected, "{cookie}");
        }
    }
}
