//! Tasks as clients see them: found, read, listed.

use super::artifact::FileRoom;
use super::has_whole_messages;
use super::is_task_of;
use super::reader::TaskReader;
use crate::domain::ids::{JobId, SessionId};
use crate::domain::job::{Job, JobStatus};
use crate::domain::limits::{LIST_BYTES, LIST_PAGE};
use crate::domain::reader::JobVisibility;
use crate::domain::time::Millis;
use crate::store::StoreError;
use crate::venue::jobs;
use crate::venue::jobs::list::{self, JobListFilter};
use crate::view::a2a::{A2aTask, A2aTaskPage, A2aTaskState};
use std::cmp::Reverse;

/// Tasks that one list looks at, the newest: they are ordered by their last change, and the store has them by age.
const LISTED: usize = 1_000;

/// Parts of a task that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskParts {
    /// Most messages of the history; `None` = all of them.
    pub history: Option<usize>,
    /// Whether outputs are read.
    pub artifacts: bool,
}

/// Filter of a list of tasks; an absent field excludes none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TaskFilter {
    /// Context of the tasks.
    pub session: Option<SessionId>,
    /// State of the tasks.
    pub state: Option<A2aTaskState>,
    /// Earliest time of the last change.
    pub since: Option<Millis>,
}

/// Place in a list of tasks: behind the task of this change and this id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskCursor {
    updated: Millis,
    job: JobId,
}

impl TaskCursor {
    /// Reads a cursor of an answer.
    pub fn parse(text: &str) -> Option<Self> {
        let (updated, job) = text.split_once('-')?;
        Some(Self { updated: Millis(updated.parse().ok()?), job: JobId::new(job).ok()? })
    }

    fn behind_job(job: &Job) -> String {
        format!("{}-{}", job.updated, job.head.id)
    }

    fn is_before(&self, job: &Job) -> bool {
        (Reverse(self.updated), &self.job) < (Reverse(job.updated), &job.head.id)
    }
}

impl TaskReader<'_> {
    /// Finds a task of the agent; `None` also if its reader may not know of it.
    pub async fn find(&self, id: &str) -> Result<Option<Job>, StoreError> {
        let Ok(id) = JobId::new(id) else { return Ok(None) };
        let found = jobs::get(self.venue, &self.caller.owner, &id).await?;
        let sees = |job: &Job| self.caller.reader().visibility(&job.head) != JobVisibility::Nothing;
        Ok(found.filter(|job| is_task_of(job, &self.agent.id) && sees(job)))
    }

    /// Returns a job as a task.
    pub async fn read(&self, job: &Job, wanted: TaskParts) -> Result<A2aTask, StoreError> {
        let most = wanted.history.unwrap_or(usize::MAX);
        let mut room = FileRoom::of_answer();
        // The outputs first: for the files of the history there is a link.
        let artifacts = if wanted.artifacts { Some(self.artifacts(job, &mut room).await?) } else { None };
        let history = self.history(job, most, &mut room).await?;
        Ok(A2aTask {
            id: job.head.id.to_string(),
            context_id: job.head.session.to_string(),
            status: self.status(job).await?,
            artifacts: artifacts.filter(|artifacts| !artifacts.is_empty()),
            history: (!history.is_empty()).then_some(history),
            metadata: None,
        })
    }

    /// Returns a page of the agent's tasks, the last changed first.
    pub async fn list(
        &self,
        filter: &TaskFilter,
        after: Option<&TaskCursor>,
        size: usize,
        wanted: TaskParts,
    ) -> Result<A2aTaskPage, StoreError> {
        let mut found = self.look_up(filter).await?;
        found.sort_by(|a, b| (Reverse(a.updated), &a.head.id).cmp(&(Reverse(b.updated), &b.head.id)));
        let total_size = found.len();
        let mut rest = found.into_iter().skip_while(|job| after.is_some_and(|after| !after.is_before(job))).peekable();
        let (mut tasks, mut next, mut bytes) = (Vec::new(), String::new(), 0);
        while let Some(job) = rest.next() {
            // Lists have only the size of large values, so the outputs are read for each task.
            let whole =
                if wanted.artifacts { jobs::get(self.venue, &self.caller.owner, &job.head.id).await? } else { None };
            let task = self.read(whole.as_ref().unwrap_or(&job), wanted).await?;
            bytes += serde_json::to_vec(&task).map_or(0, |text| text.len());
            tasks.push(task);
            let is_full = tasks.len() >= size || bytes > LIST_BYTES;
            if is_full && rest.peek().is_some() {
                next = TaskCursor::behind_job(&job);
                break;
            }
        }
        Ok(A2aTaskPage { tasks, next_page_token: next, page_size: size, total_size })
    }

    /// Returns the newest tasks that pass a filter, without their outputs where these are large.
    async fn look_up(&self, filter: &TaskFilter) -> Result<Vec<Job>, StoreError> {
        let jobs = JobListFilter {
            statuses: filter.state.map(|state| state.job_statuses().to_vec()).unwrap_or_default(),
            agent: Some(self.agent.id.clone()),
            session: filter.session.clone(),
            reader: Some(self.caller.reader()),
            ..JobListFilter::default()
        };
        let page = list::find(self.venue, &self.caller.owner, &jobs, None, LISTED).await?;
        let mut found = Vec::with_capacity(page.jobs.len().min(LIST_PAGE));
        for job in page.jobs {
            let is_late = filter.since.is_none_or(|since| job.updated >= since);
            // Questions and permissions are of one status.
            let is_waiting = job.status == JobStatus::InputRequired && filter.state.is_some();
            if is_late && (!is_waiting || Some(self.status(&job).await?.state) == filter.state) {
                found.push(job);
            }
        }
        Ok(found)
    }

    /// Whether an answer may be a message without a task.
    pub fn may_answer_directly(&self) -> bool {
        has_whole_messages(self.agent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_back() {
        let job = "0f".repeat(16);
        for (text, good) in
            [(format!("5-{job}"), true), ("5-x".to_owned(), false), (format!("x-{job}"), false), (String::new(), false)]
        {
            assert_eq!(TaskCursor::parse(&text).is_some(), good, "{text}");
        }
    }
}
