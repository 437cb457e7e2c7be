//! What a NATS user may not do. A server says so beside the request, which then is never answered: without this, all that
//! is known of it is that time was up.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// What was refused counts for as long: longer than a request waits for its answer.
const COUNTS: Duration = Duration::from_secs(10);

/// What was refused last.
pub struct Rights {
    /// First token of every subject.
    prefix: String,
    refused: Mutex<Option<(Instant, String)>>,
}

impl Rights {
    /// Of a venue with this first token of every subject.
    pub fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), refused: Mutex::default() }
    }

    /// Notes what the server said, when it is a refusal.
    pub fn hear(&self, said: &str) {
        if let Some(refused) = refused(said, &self.prefix) {
            *self.refused.lock() = Some((Instant::now(), refused));
        }
    }

    /// What was refused a moment ago.
    pub fn refused_lately(&self) -> Option<String> {
        self.refused.lock().as_ref().filter(|(at, _)| at.elapsed() < COUNTS).map(|(_, refused)| refused.clone())
    }

    /// A reason, with that one behind it.
    pub fn explain(&self, reason: String) -> String {
        match self.refused_lately() {
            Some(refused) => format!("{reason}; {refused}"),
            None => reason,
        }
    }
}

/// What it means, if it concerns Trellis itself: subjects that answers go to are chosen by strangers.
fn refused(said: &str, prefix: &str) -> Option<String> {
    let (_, what) = said.split_once("Permissions Violation for ")?;
    let subject = what.split('"').nth(1)?;
    let to = if what.starts_with("Publish") {
        let is_ours = subject.starts_with("$JS.") || subject.split('.').next() == Some(prefix);
        is_ours.then_some("publish to")?
    } else {
        "subscribe to"
    };
    Some(format!(
        "the server doesn't let this user {to} `{subject}`: give it that right (config/nats-accounts.conf has all that \
         Trellis needs)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_when_it_is_of_a_subject_that_trellis_chose() {
        for (said, expected) in [
            (
                r#"nats: Permissions Violation for Publish to "$JS.API.STREAM.INFO.T""#,
                "publish to `$JS.API.STREAM.INFO.T`",
            ),
            (r#"Permissions Violation for Publish to "trellis.out.a.b""#, "publish to `trellis.out.a.b`"),
            (r#"Permissions Violation for Subscription to "_INBOX.x.*" using queue "q""#, "subscribe to `_INBOX.x.*`"),
            (r#"Permissions Violation for Publish to "_INBOX.of.somebody""#, ""),
            (r#"Permissions Violation for Publish to "trellis2.out""#, ""),
            ("maximum connections exceeded", ""),
        ] {
            let rights = Rights::new("trellis");
            rights.hear(said);
            let told = rights.explain("timed out".to_owned());
            assert!(told.starts_with("timed out") && told.contains(expected), "{said}: {told}");
            assert_eq!(told == "timed out", expected.is_empty(), "{said}: {told}");
        }
    }
}
