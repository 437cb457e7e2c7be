//! Refused rights of a NATS user. A server reports a refusal beside the request, which is then never answered: without
//! this, only the timeout would be known.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Time for which a refusal explains failures: longer than a request waits for its answer.
const COUNTS: Duration = Duration::from_secs(10);

/// A refused right, in words.
#[derive(Debug, Clone)]
struct RefusedRight {
    subject: String,
    words: String,
}

/// The last refusal of the server.
pub struct Rights {
    /// First token of every subject.
    prefix: String,
    refused: Mutex<Option<(Instant, RefusedRight)>>,
}

impl Rights {
    /// Returns the rights of a venue with this first token of every subject.
    pub fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), refused: Mutex::default() }
    }

    /// Records an error of the server if it is a refusal.
    pub fn record_error(&self, said: &str) {
        if let Some(refused) = parse_refusal(said, &self.prefix) {
            *self.refused.lock() = Some((Instant::now(), refused));
        }
    }

    fn recent_refusal(&self) -> Option<RefusedRight> {
        self.refused.lock().as_ref().filter(|(at, _)| at.elapsed() < COUNTS).map(|(_, refused)| refused.clone())
    }

    /// Returns the recent refusal if it explains the silence of this stream: of a request about it, or of all answers.
    pub fn refusal_for(&self, stream: &str) -> Option<String> {
        let is_why = |refused: &RefusedRight| {
            refused.subject.starts_with("_INBOX.") || refused.subject.split('.').any(|token| token == stream)
        };
        self.recent_refusal().filter(is_why).map(|refused| refused.words)
    }

    /// Returns a reason with the recent refusal appended.
    pub fn explain(&self, reason: String) -> String {
        match self.recent_refusal() {
            Some(RefusedRight { words, .. }) => format!("{reason}; {words}"),
            None => reason,
        }
    }
}

/// Parses a refusal if it concerns Trellis itself: strangers choose the subjects of replies.
fn parse_refusal(said: &str, prefix: &str) -> Option<RefusedRight> {
    let (_, what) = said.split_once("Permissions Violation for ")?;
    let subject = what.split('"').nth(1)?;
    let to = if what.starts_with("Publish") {
        let is_ours = subject.starts_with("$JS.") || subject.split('.').next() == Some(prefix);
        is_ours.then_some("publish to")?
    } else {
        "subscribe to"
    };
    let words = format!(
        "the server doesn't let this user {to} `{subject}`: give it that right (config/nats-accounts.conf has all that \
         Trellis needs)"
    );
    Some(RefusedRight { subject: subject.to_owned(), words })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_subjects_chosen_by_trellis_are_reported() {
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
            rights.record_error(said);
            let told = rights.explain("timed out".to_owned());
            assert!(told.starts_with("timed out") && told.contains(expected), "{said}: {told}");
            assert_eq!(told == "timed out", expected.is_empty(), "{said}: {told}");
        }
    }

    #[test]
    fn a_silent_stream_is_explained_by_its_missing_right() {
        for (said, of_out) in [
            (r#"Permissions Violation for Publish to "$JS.API.STREAM.INFO.T_OUT""#, true),
            (r#"Permissions Violation for Publish to "$JS.API.STREAM.INFO.T_PART_0""#, false),
            (r#"Permissions Violation for Subscription to "_INBOX.x.*""#, true),
            (r#"Permissions Violation for Subscription to "t.ctl.>""#, false),
        ] {
            let rights = Rights::new("t");
            rights.record_error(said);
            assert_eq!(rights.refusal_for("T_OUT").is_some(), of_out, "{said}");
        }
    }
}
