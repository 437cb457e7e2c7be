//! Who reads tasks of which agent.

use crate::domain::agent::AgentRecord;
use crate::domain::job::Job;
use crate::domain::reader::JobVisibility;
use crate::venue::Venue;
use crate::venue::operation::Caller;

/// A reader of the tasks of one agent.
#[derive(Clone, Copy)]
pub struct TaskReader<'a> {
    /// Shared parts of the process.
    pub venue: &'a Venue,
    /// Identity and authority of the reader.
    pub caller: &'a Caller,
    /// The agent that serves the tasks.
    pub agent: &'a AgentRecord,
    /// Address of the API, for links to large files; `None` outside the API.
    pub url: Option<&'a str>,
}

impl TaskReader<'_> {
    /// Whether the reader sees all of a job.
    pub(super) fn sees_whole(&self, job: &Job) -> bool {
        self.caller.reader().visibility(&job.head) == JobVisibility::Whole
    }
}
