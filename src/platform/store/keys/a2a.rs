//! Keys of what clients of the Agent2Agent protocol leave at a job.

use crate::domain::ids::{JobId, encode_token};
use crate::domain::time::Millis;

/// Returns the prefix of the messages that clients of the Agent2Agent protocol have sent to a job.
pub fn job_messages(job: &JobId) -> String {
    format!("j/{job}/m/")
}

/// Returns the key of such a message; `name` is a function of the message.
pub fn job_message(job: &JobId, at: Millis, name: &str) -> String {
    format!("{}{:016}-{name}", job_messages(job), at.0)
}

/// Returns the prefix of the push notifications of a job.
pub fn job_notifications(job: &JobId) -> String {
    format!("j/{job}/n/")
}

/// Returns the key of a push notification, whose id may be any text.
pub fn job_notification(job: &JobId, id: &str) -> String {
    format!("{}{}", job_notifications(job), encode_token(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_messages_and_notifications_are_pinned() {
        let job = JobId::new(&"0f".repeat(16)).unwrap();
        assert_eq!(job_message(&job, Millis(5), "ab"), format!("j/{job}/m/0000000000000005-ab"));
        assert_eq!(job_notification(&job, "a/b"), format!("j/{job}/n/a%2Fb"));
    }
}
