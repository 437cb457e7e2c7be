//! Calls of declared services: sent through the venue's rules for outgoing calls, each at most as often as its effect
//! allows.

use crate::domain::authority::ResourcePath;
use crate::domain::declared::{
    AnswerVerdict, DeclaredEffect, DeclaredMethod, HttpDeclaration, HttpPlan, PlannedRequest, StatusMeaning, UrlFault,
    judge_status, pick_result, refusal_text,
};
use crate::domain::limits::{DECLARED_ATTEMPTS, DECLARED_PAUSE, DECLARED_PAUSE_MAX, DECLARED_URL_BYTES};
use crate::domain::secret::Destination;
use crate::venue::operation::{Invocation, Need, OpError, OpOutput, RuntimeCall, fill_references};
use crate::venue::outbound::endpoint::IDEMPOTENCY_KEY;
use crate::venue::outbound::send::{self, OutgoingRequest};
use crate::venue::outbound::{check_url, url_destination, url_resource};
use crate::view::http::HostAnswerView;
use async_trait::async_trait;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Method, Url};
use serde_json::{Map, Value, json};
use std::time::Duration;
use uuid::Uuid;

/// Runs the calls of one declared service.
pub(super) struct HttpToolCall {
    declared: HttpDeclaration,
    plan: HttpPlan,
}

/// What follows an attempt.
enum AttemptEnd {
    /// The call has ended.
    Done(Result<Value, OpError>),
    /// The call failed with this error, and may be repeated after the pause that the service asks for.
    Again(Option<Duration>, OpError),
}

impl HttpToolCall {
    pub(super) const fn new(declared: HttpDeclaration, plan: HttpPlan) -> Self {
        Self { declared, plan }
    }

    /// Returns the request of a call, and its URL with the query.
    fn request(&self, arguments: &Value) -> Result<(PlannedRequest, Url), OpError> {
        let nothing = Map::new();
        let arguments = arguments.as_object().unwrap_or(&nothing);
        let request = self.plan.request(arguments).map_err(|fault| OpError::Invalid(fault.to_string()))?;
        let mut url = Url::parse(&request.url).map_err(|error| OpError::Invalid(format!("the URL: {error}")))?;
        check_url(&url)?;
        // The parser of URLs has the last word about where a host ends.
        let origin = Url::parse(self.plan.url().origin()).map(|declared| declared.origin());
        if origin.is_err() || origin.is_ok_and(|origin| origin != url.origin()) {
            return Err(OpError::Invalid("the URL would have another host than the declared one".to_owned()));
        }
        if !request.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&request.query);
        }
        let bytes = url.as_str().len();
        if bytes > DECLARED_URL_BYTES {
            return Err(OpError::Invalid(UrlFault::Long { bytes }.to_string()));
        }
        Ok((request, url))
    }

    fn method(&self) -> Method {
        match self.plan.method() {
            DeclaredMethod::Get => Method::GET,
            DeclaredMethod::Post => Method::POST,
            DeclaredMethod::Put => Method::PUT,
            DeclaredMethod::Patch => Method::PATCH,
            DeclaredMethod::Delete => Method::DELETE,
        }
    }

    /// Returns the name of the called place in errors: the method, and the URL without its query.
    fn place_name(&self, url: &Url) -> String {
        format!("{} {}", self.plan.method().as_str(), url_resource(url))
    }

    /// Makes one attempt. A redirect to another origin is refused: the host of a declared call is fixed.
    async fn attempt(&self, call: &Invocation<'_>, ask: OutgoingRequest) -> AttemptEnd {
        let shown = self.place_name(&ask.url);
        let (ability, origin) = (self.plan.method().ability(), ask.url.origin());
        let permitted = |target: &Url| {
            if target.origin() != origin {
                let to = url_resource(target);
                return Err(OpError::Denied(format!(
                    "`{shown}` redirects to another host, `{to}`: it is not followed"
                )));
            }
            call.permit(ability, url_resource(target))
        };
        let is_read = self.plan.effect() == DeclaredEffect::Read;
        match call.venue.catalog.hosts.send(ask, &permitted).await {
            Ok(answer) => self.judge(&shown, answer),
            // Nothing came back: what only reads, or has a key, may be asked for again.
            Err(error @ OpError::Upstream(_)) if is_read => AttemptEnd::Again(None, error),
            Err(error @ (OpError::Upstream(_) | OpError::OutcomeUnknown(_)))
                if self.plan.effect() == DeclaredEffect::Repeatable =>
            {
                AttemptEnd::Again(None, error)
            }
            Err(error) => AttemptEnd::Done(Err(error)),
        }
    }

    /// Returns what a whole answer means.
    fn judge(&self, shown: &str, answer: HostAnswerView) -> AttemptEnd {
        let status = answer.status;
        let pause = answer.headers.get(RETRY_AFTER.as_str()).and_then(Value::as_str);
        let pause = pause.and_then(|seconds| seconds.trim().parse().ok()).map(Duration::from_secs);
        let body = match (answer.body, answer.body_base64) {
            (Some(body), _) => body,
            (None, Some(bytes)) => json!({"bodyBase64": bytes}),
            (None, None) => Value::Null,
        };
        let refusal = || {
            let text = refusal_text(&body);
            let said = if text.is_empty() { String::new() } else { format!(": {text}") };
            format!("`{shown}` answered {status}{said}")
        };
        match judge_status(&self.declared.status, self.plan.effect(), status) {
            AnswerVerdict::Known(StatusMeaning::Nothing) => AttemptEnd::Done(Ok(Value::Null)),
            AnswerVerdict::Known(StatusMeaning::Error) => AttemptEnd::Done(Err(OpError::Upstream(refusal()))),
            AnswerVerdict::Known(StatusMeaning::Retry) => AttemptEnd::Again(pause, OpError::Upstream(refusal())),
            AnswerVerdict::Known(StatusMeaning::Person) => AttemptEnd::Done(Err(OpError::Upstream(format!(
                "{}. A person must see to this: don't call again; ask one by `human_ask` if you have it, else say so",
                refusal()
            )))),
            AnswerVerdict::Unknown => AttemptEnd::Done(Err(OpError::OutcomeUnknown(refusal()))),
            AnswerVerdict::RetryOrUnknown => AttemptEnd::Again(pause, OpError::OutcomeUnknown(refusal())),
            AnswerVerdict::Known(StatusMeaning::Result) => {
                let picked = pick_result(&self.declared, body).map_err(|fault| format!("`{shown}`: {fault}"));
                AttemptEnd::Done(picked.map_err(|text| match self.plan.effect() {
                    DeclaredEffect::Read => OpError::Upstream(text),
                    // The service has answered something else than was agreed: what it did is not known.
                    DeclaredEffect::Repeatable | DeclaredEffect::Once => OpError::OutcomeUnknown(text),
                }))
            }
        }
    }

    /// Makes the call, again after what its declaration and its effect allow, within its time.
    async fn send(&self, call: &Invocation<'_>, first: OutgoingRequest, limit: Duration) -> Result<Value, OpError> {
        let (begun, mut pause) = (call.venue.now(), DECLARED_PAUSE);
        let (mut attempts, mut is_unknown) = (0, false);
        // What an earlier attempt did stays unknown, whatever becomes of a later one.
        let end = |error: OpError, is_unknown: bool| match error {
            error @ OpError::OutcomeUnknown(_) => error,
            error if is_unknown => OpError::OutcomeUnknown(format!("an attempt had no answer; the last one: {error}")),
            error => error,
        };
        let left = || limit.saturating_sub(Duration::from_millis(call.venue.now().0.saturating_sub(begun.0)));
        loop {
            attempts += 1;
            let ask = OutgoingRequest { timeout: Some(left()), ..copy_of(&first) };
            let (asked, error) = match self.attempt(call, ask).await {
                AttemptEnd::Done(ended) => return ended.map_err(|error| end(error, is_unknown)),
                AttemptEnd::Again(asked, error) => (asked, error),
            };
            let wait = asked.unwrap_or(pause);
            if attempts >= DECLARED_ATTEMPTS || wait > DECLARED_PAUSE_MAX || wait >= left() {
                return Err(end(error, is_unknown));
            }
            is_unknown |= matches!(error, OpError::OutcomeUnknown(_));
            tracing::debug!(attempts, %error, "a declared call is made again");
            tokio::time::sleep(wait).await;
            pause *= 2;
        }
    }
}

fn copy_of(ask: &OutgoingRequest) -> OutgoingRequest {
    OutgoingRequest {
        method: ask.method.clone(),
        url: ask.url.clone(),
        headers: ask.headers.clone(),
        body: ask.body.clone(),
        timeout: ask.timeout,
        repeatable: ask.repeatable,
        shown: ask.shown.clone(),
    }
}

#[async_trait]
impl RuntimeCall for HttpToolCall {
    fn more_needs(&self, arguments: &Value) -> Result<Vec<Need>, OpError> {
        let (_, url) = self.request(arguments)?;
        let mut needs = vec![Need::new(self.plan.method().ability(), url_resource(&url))];
        needs.extend(self.plan.secrets().iter().map(|name| Need::new("secret/use", ResourcePath::secret(name))));
        Ok(needs)
    }

    fn destination(&self, arguments: &Value) -> Option<Destination> {
        self.request(arguments).ok().map(|(_, url)| url_destination(&url))
    }

    async fn run(&self, arguments: Value, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let (request, url) = self.request(&arguments)?;
        let PlannedRequest { mut headers, body, .. } = request;
        // From here on the headers contain secrets. The dispatcher masks them in the result.
        fill_references(call, &url_destination(&url), headers.values_mut().collect()).await?;
        let mut headers: HeaderMap = send::parse_headers(&headers)?;
        let is_read = self.plan.effect() == DeclaredEffect::Read;
        if !is_read {
            call.mark_request(&mut headers)?;
        }
        // A run without an id has no key of its own, and its attempts must be known as one call.
        if self.plan.effect() == DeclaredEffect::Repeatable && !headers.contains_key(&IDEMPOTENCY_KEY) {
            headers.insert(IDEMPOTENCY_KEY, send::header_value(&Uuid::new_v4().simple().to_string())?);
        }
        let body = match body {
            Some((text, kind)) => Some((text.into_bytes().into(), send::header_value(&kind)?)),
            None => None,
        };
        let declared = self.declared.timeout.map(Duration::from_millis);
        let limit = declared.map_or_else(|| call.time_limit(), |declared| declared.min(call.time_limit()));
        let method = self.method();
        let ask = OutgoingRequest { method, url, headers, body, timeout: None, repeatable: is_read, shown: None };
        self.send(call, ask, limit).await.map(OpOutput::from)
    }
}
