//! Keys of what clients of the Agent2Agent protocol leave at a job, and of the approved cards of agents elsewhere.

use crate::domain::ids::{AgentId, JobId, encode_token};
use crate::domain::mcp::name::ServerName;
use crate::domain::time::Millis;
use crate::store::DocKey;

/// Returns the prefix of the messages that clients of the Agent2Agent protocol have sent to a job.
pub fn job_messages(job: &JobId) -> String {
    format!("j/{job}/m/")
}

/// Returns the key of such a message; `name` is a function of the message.
pub fn job_message(job: &JobId, at: Millis, name: &str) -> String {
    format!("{}{:016}-{name}", job_messages(job), at.0)
}

/// Prefix of the documents of jobs.
pub const JOB_DOCUMENTS: &str = "j/";

/// Returns the job in the key of a push notification; `None` for any other key.
pub fn notified_job(key: &str) -> Option<JobId> {
    let (job, rest) = key.strip_prefix(JOB_DOCUMENTS)?.split_once('/')?;
    rest.strip_prefix("n/").and_then(|_| JobId::new(job).ok())
}

/// Returns the prefix of the push notifications of a job.
pub fn job_notifications(job: &JobId) -> String {
    format!("j/{job}/n/")
}

/// Returns the key of a push notification, whose id may be any text.
pub fn job_notification(job: &JobId, id: &str) -> String {
    format!("{}{}", job_notifications(job), encode_token(id))
}

/// Prefix of the approved cards of agents elsewhere that the venue names; an agent's own follow `g/<agent>/`.
pub const CARD_PINS: &str = "card/";

/// Returns the key of the approved card of an agent elsewhere: one that an agent has declared, or one of the venue.
pub fn card_pin(agent: Option<&AgentId>, name: &ServerName) -> DocKey {
    match agent {
        Some(agent) => format!("g/{}/{CARD_PINS}{name}", agent.token()),
        None => format!("{CARD_PINS}{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_messages_and_notifications_are_pinned() {
        let job = JobId::new(&"0f".repeat(16)).unwrap();
        assert_eq!(job_message(&job, Millis(5), "ab"), format!("j/{job}/m/0000000000000005-ab"));
        let (agent, name) = (AgentId::new("a.b").unwrap(), ServerName::new("x").unwrap());
        assert_eq!((card_pin(Some(&agent), &name), card_pin(None, &name)), ("g/a%2Eb/card/x".into(), "card/x".into()));
        assert_eq!(job_notification(&job, "a/b"), format!("j/{job}/n/a%2Fb"));
    }
}
