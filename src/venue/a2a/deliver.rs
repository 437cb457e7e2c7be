//! The delivery of a push notification, step by step: what is new in the task's log is posted, each event at least once
//! and in order.
//!
//! An event counts as delivered when the server has answered 2xx and its place is written. After a crash in between it
//! is posted again, under the same `Idempotency-Key`.

use super::log::LogEvent;
use super::place::LogPlace;
use super::push::{DeliveryInput, PushNotification, SEALED_NAME, credentials_name};
use super::reader::TaskReader;
use crate::domain::decode;
use crate::domain::ids::{JobId, Owner, sha256_hex};
use crate::domain::job::{ErrorCode, JobResult};
use crate::domain::limits::{POST_TIME, POST_TRIES};
use crate::domain::visible::cut_error;
use crate::domain::webhook::retry_pause;
use crate::store::{DocWrite, StoreError, WriteOutcome, keys};
use crate::venue::operation::{Caller, OpError};
use crate::venue::operation_jobs::{LeasedOperation, RunCaller, RunOutcome, read_caller};
use crate::venue::outbound::endpoint::IDEMPOTENCY_KEY;
use crate::venue::outbound::send::OutgoingRequest;
use crate::venue::outbound::url_resource;
use crate::venue::{Venue, agents, jobs};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde_json::json;
use std::time::Duration;

/// Header with the version of the protocol.
const VERSION_HEADER: HeaderName = HeaderName::from_static("a2a-version");

/// Time after which a step ends though there are more events: a slow server must not keep the slot of another delivery.
const STEP_TIME: Duration = Duration::from_secs(30);

/// Shortest and longest pause between two looks at a task that has nothing new. A task that changed long ago is looked
/// at less often.
const LOOK_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// Part of the time since a task's last change that is waited before the next look.
const LOOK_PART: u32 = 20;

/// Hexadecimal digits of an `Idempotency-Key`.
const KEY_DIGITS: usize = 32;

/// A notification that is being delivered.
struct NotificationDelivery<'a> {
    venue: &'a Venue,
    owner: &'a Owner,
    caller: &'a Caller,
    task: JobId,
    stored: PushNotification,
    version: u64,
}

/// Runs one step of a delivery: all that is new now.
pub async fn run(venue: &Venue, owner: &Owner, held: &LeasedOperation) -> Result<RunOutcome, StoreError> {
    let caller = match read_caller(venue, owner, held).await? {
        RunCaller::Permitted(caller) => caller,
        RunCaller::Revoked(result) => return Ok(RunOutcome::Ended(result)),
    };
    let Ok(DeliveryInput { task, notification }) = decode::into_type(held.head().input.clone()) else {
        return Ok(failure(ErrorCode::Internal, "the input of the delivery can't be read".to_owned()));
    };
    let key = keys::job_notification(&task, &notification);
    let (stored, version) = venue.store.get_versioned::<PushNotification>(owner, &key).await?;
    // A notification that was set anew is delivered by another job.
    let Some(stored) = stored.filter(|stored| stored.delivery == held.head().id) else {
        return Ok(RunOutcome::Ended(JobResult::complete(json!({"delivered": false}))));
    };
    NotificationDelivery { venue, owner, caller: &caller, task, stored, version }.step().await
}

fn failure(code: ErrorCode, text: String) -> RunOutcome {
    RunOutcome::Ended(JobResult::failure(code, cut_error(text)))
}

/// Returns the pause before the next look at a task that last changed so long ago.
fn look_pause(unchanged: Duration) -> Duration {
    (unchanged / LOOK_PART).clamp(LOOK_PAUSES.0, LOOK_PAUSES.1)
}

impl NotificationDelivery<'_> {
    async fn step(mut self) -> Result<RunOutcome, StoreError> {
        let over = || Ok(RunOutcome::Ended(JobResult::complete(json!({"delivered": true}))));
        let Some(head) = jobs::head(self.venue, self.owner, &self.task).await? else { return over() };
        let Some((agent, _)) = agents::get(self.venue, self.owner, &head.agent).await? else { return over() };
        let until = self.venue.clock.steady() + STEP_TIME;
        loop {
            let reader = TaskReader { venue: self.venue, caller: self.caller, agent: &agent, url: None };
            let Some(page) = reader.read_log(&head, self.stored.sent).await? else { return over() };
            for LogEvent { place, event } in page.events {
                let body = serde_json::to_vec(&event).expect("events serialise");
                match self.post(place, body).await {
                    Ok(()) => {
                        if !self.note_sent(place).await? {
                            return Ok(RunOutcome::Retry);
                        }
                        if self.venue.clock.steady() >= until {
                            return Ok(RunOutcome::Later(LOOK_PAUSES.0));
                        }
                    }
                    Err(error) => return self.note_failure(&error).await,
                }
            }
            if page.is_over {
                return over();
            }
            let read_to = page.read_to.filter(|read_to| *read_to > self.stored.sent);
            let Some(read_to) = read_to else { break };
            if !self.note_sent(read_to).await? {
                return Ok(RunOutcome::Retry);
            }
        }
        let status = jobs::read_status(self.venue, self.owner, &self.task).await?;
        let changed = status.map_or(head.created, |(_, updated)| updated);
        Ok(RunOutcome::Later(look_pause(self.venue.now().elapsed_since(changed))))
    }

    /// Posts one event. The address and its host are checked for each post, as for every other call.
    async fn post(&self, place: LogPlace, body: Vec<u8>) -> Result<(), OpError> {
        let url = Url::parse(&self.stored.url).map_err(|error| OpError::Invalid(error.to_string()))?;
        let permitted = self.caller.authority.permits("http/post", url_resource(&url));
        permitted.map_err(|denied| OpError::Denied(denied.model_text("a push notification")))?;
        // A post that is redirected comes to most servers as a request without a body, and an answer to that is none.
        let refuse_redirect = |target: &Url| -> Result<(), OpError> {
            let target = url_resource(target);
            Err(OpError::Upstream(format!("the server redirects to `{target}`, which is not followed")))
        };
        let ask = OutgoingRequest {
            method: Method::POST,
            url,
            headers: self.headers(place)?,
            body: Some((body.into(), HeaderValue::from_static("application/json"))),
            timeout: Some(POST_TIME),
            repeatable: true,
            shown: None,
        };
        let answer = self.venue.catalog.hosts.send(ask, &refuse_redirect).await?;
        if (200..300).contains(&answer.status) {
            return Ok(());
        }
        Err(OpError::Upstream(format!("the server answered {}", answer.status)))
    }

    fn headers(&self, place: LogPlace) -> Result<HeaderMap, OpError> {
        let illegal = |_| OpError::Invalid("a header has characters that no header may have".to_owned());
        let mut headers = HeaderMap::new();
        headers.insert(VERSION_HEADER, HeaderValue::from_static(super::VERSION));
        let name = format!("{} {} {place}", self.task, self.stored.id);
        let key = &sha256_hex(name.as_bytes())[..KEY_DIGITS];
        headers.insert(IDEMPOTENCY_KEY, HeaderValue::from_str(key).map_err(illegal)?);
        if let Some(scheme) = &self.stored.scheme {
            let mut value = match &self.stored.authorization {
                None => HeaderValue::from_str(scheme),
                Some(sealed) => {
                    let name = credentials_name(&self.task, &self.stored.id);
                    let opened = self.venue.secrets.unseal(self.owner, &name, sealed)?;
                    HeaderValue::from_str(opened.value.reveal().strip_prefix(SEALED_NAME).unwrap_or_default())
                }
            }
            .map_err(illegal)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        Ok(headers)
    }

    /// Notes the place up to which events are delivered; `false` if the notification was changed or deleted meanwhile.
    async fn note_sent(&mut self, place: LogPlace) -> Result<bool, StoreError> {
        self.write(PushNotification { sent: place, failures: 0, ..self.stored.clone() }).await
    }

    /// Notes a failed post. What the venue or the caller may not call is given up at once, anything else after some time.
    async fn note_failure(&mut self, error: &OpError) -> Result<RunOutcome, StoreError> {
        if let OpError::Store(error) = error
            && error.is_transient()
        {
            return Ok(RunOutcome::Retry);
        }
        let failures = self.stored.failures.saturating_add(1);
        if matches!(error, OpError::Denied(_) | OpError::Invalid(_)) {
            return Ok(failure(ErrorCode::CapDenied, error.to_string()));
        }
        if failures >= POST_TRIES {
            let text = format!("given up after {failures} posts in a row that failed: {error}");
            return Ok(failure(ErrorCode::LimitReached, text));
        }
        tracing::debug!(owner = %self.owner, task = %self.task, %error, failures, "push notification not delivered yet");
        self.write(PushNotification { failures, ..self.stored.clone() }).await?;
        Ok(RunOutcome::Later(retry_pause(failures)))
    }

    async fn write(&mut self, changed: PushNotification) -> Result<bool, StoreError> {
        let key = keys::job_notification(&self.task, &self.stored.id);
        let write = DocWrite::json(key, &changed).at_version(self.version);
        let written = self.venue.store.write(self.venue.now(), self.owner, &[write]).await?;
        let is_done = written == WriteOutcome::Done;
        if is_done {
            (self.stored, self.version) = (changed, self.version + 1);
        }
        Ok(is_done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_tasks_are_looked_at_less_often() {
        for (unchanged, millis) in [(0, 1_000), (40, 2_000), (100_000, 10_000)] {
            assert_eq!(look_pause(Duration::from_secs(unchanged)).as_millis(), millis, "{unchanged}");
        }
    }
}
