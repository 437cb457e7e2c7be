//! Pages as answers: the frame around each one, and the headers that keep a browser strict.

use crate::http::extract::RequestCaller;
use crate::http::problem::Problem;
use askama::Template;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// What a browser may load, run and send. `same-origin` keeps the `Origin` of forms.
const STRICT_HEADERS: [(&str, &str); 4] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
         trusted-types console",
    ),
    ("cache-control", "no-store"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
];

/// Entries of the menu: path, label, and the key that opens it after `g`.
const MENU: [MenuEntry; 9] = [
    MenuEntry { path: "/", label: "Jobs", key: "j" },
    MenuEntry { path: "/approvals", label: "Approvals", key: "p" },
    MenuEntry { path: "/agents", label: "Agents", key: "a" },
    MenuEntry { path: "/failures", label: "Failures", key: "f" },
    MenuEntry { path: "/timers", label: "Timers", key: "t" },
    MenuEntry { path: "/lattice", label: "Lattice", key: "l" },
    MenuEntry { path: "/secrets", label: "Secrets", key: "s" },
    MenuEntry { path: "/policy", label: "Policy", key: "o" },
    MenuEntry { path: "/fleet", label: "Fleet", key: "w" },
];

/// An entry of the menu.
pub(super) struct MenuEntry {
    pub(super) path: &'static str,
    pub(super) label: &'static str,
    /// Key that opens it after `g`.
    pub(super) key: &'static str,
}

/// How a page follows what happens. It works without, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LiveUpdates {
    /// The page is as it was.
    Never,
    /// It is read again after so many seconds, while it is visible.
    Every(u32),
    /// It is read again at each event of a stream.
    Stream(String),
}

/// What stands around the content of a page.
pub(super) struct PageFrame {
    pub(super) title: String,
    pub(super) menu: &'static [MenuEntry],
    /// Path of the entry of the menu that the page belongs to.
    pub(super) place: &'static str,
    /// Name of the caller; empty while nobody has signed in.
    pub(super) caller: String,
    /// Owner whose things are shown.
    pub(super) owner: String,
    /// Whether there is a session that can be ended.
    pub(super) is_signed_in: bool,
    /// Whether the caller may look at other owners.
    pub(super) may_switch_owner: bool,
    pub(super) live: LiveUpdates,
}

impl PageFrame {
    /// Makes the frame of a page that a caller sees.
    pub(super) fn new(who: &RequestCaller, place: &'static str, title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            menu: &MENU,
            place,
            caller: who.caller.name.clone(),
            owner: who.owner().to_string(),
            is_signed_in: who.token_owner.is_some(),
            may_switch_owner: who.caller.operator,
            live: LiveUpdates::Never,
        }
    }

    /// Makes the frame of a page for nobody in particular.
    pub(super) fn without_caller(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            menu: &MENU,
            place: "",
            caller: String::new(),
            owner: String::new(),
            is_signed_in: false,
            may_switch_owner: false,
            live: LiveUpdates::Never,
        }
    }

    /// Sets how the page follows what happens.
    pub(super) fn with_live(self, live: LiveUpdates) -> Self {
        Self { live, ..self }
    }

    /// Returns the path of the stream that the page follows; empty without one.
    pub(super) fn stream(&self) -> &str {
        if let LiveUpdates::Stream(path) = &self.live { path } else { "" }
    }

    /// Returns the seconds after which the page is read again; 0 if it isn't.
    pub(super) const fn refresh_seconds(&self) -> u32 {
        if let LiveUpdates::Every(seconds) = self.live { seconds } else { 0 }
    }

    /// Returns who sees the page and whose things it shows.
    pub(super) fn caller_text(&self) -> String {
        if self.caller == self.owner { self.owner.clone() } else { format!("{} for {}", self.caller, self.owner) }
    }
}

/// Renders a page.
pub(super) fn render(status: StatusCode, page: &impl Template) -> Response {
    match page.render() {
        Ok(text) => (status, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], text).into_response(),
        Err(error) => {
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the page can't be made: {error}")).into_response()
        }
    }
}

/// Returns a value of foreign origin as plain text: a browser makes nothing else of it.
pub(super) fn plain_text(text: String) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}

/// Sends the browser to a path of the console by a `GET`.
pub(super) fn see_other(path: &str) -> Result<Response, Problem> {
    let place = HeaderValue::try_from(path).map_err(Problem::bad_request)?;
    Ok((StatusCode::SEE_OTHER, [(header::LOCATION, place)]).into_response())
}

/// Adds the strict headers to an answer of the console.
pub(super) fn add_strict_headers(response: &mut Response) {
    for (name, value) in STRICT_HEADERS {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
}

/// `GET console.css`: the style of all pages.
pub(in crate::http) async fn style() -> Response {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], include_str!("templates/console.css")).into_response()
}

/// `GET console.js`: the script of all pages, for live updates and keys.
pub(in crate::http) async fn script() -> Response {
    ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8")], include_str!("templates/console.js")).into_response()
}
