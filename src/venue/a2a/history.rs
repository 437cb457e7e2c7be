//! The history of a task: messages of clients, and of the agent in its turns, in the order in which they were sent.

use super::artifact::FileRoom;
use super::log::turn_message;
use super::messages::{self, TaskMessage};
use super::reader::TaskReader;
use crate::domain::job::Job;
use crate::domain::session::TurnRecord;
use crate::domain::time::Millis;
use crate::store::StoreError;
use crate::view::a2a::A2aMessage;

/// Steps of the session's turns that one history reads.
const STEPS: usize = 10;

impl TaskReader<'_> {
    /// Finds a message to a task by its id and its parts among the last ones: a client that got no answer sends its
    /// message again.
    pub async fn find_sent(&self, job: &Job, message: &A2aMessage) -> Result<Option<TaskMessage>, StoreError> {
        if !self.sees_whole(job) {
            return Ok(None);
        }
        let sent = messages::list_last(self.venue, &self.caller.owner, &job.head, usize::MAX).await?;
        let is_same = |sent: &TaskMessage| {
            let found = &sent.message;
            !sent.begins && found.message_id == message.message_id && found.parts == message.parts
        };
        Ok(sent.into_iter().rfind(is_same))
    }

    /// Returns the last messages of a task, at most `most`, in order. What its reader may not see is left out.
    pub(super) async fn history(
        &self,
        job: &Job,
        most: usize,
        room: &mut FileRoom,
    ) -> Result<Vec<A2aMessage>, StoreError> {
        if most == 0 || !self.sees_whole(job) {
            return Ok(Vec::new());
        }
        let sent = messages::list_last(self.venue, &self.caller.owner, &job.head, most).await?;
        // What was said before these is before the last `most` messages.
        let begin = sent.first().map_or(0, |first| first.turn);
        let mut said: Vec<(Millis, A2aMessage)> = Vec::with_capacity(sent.len());
        for stored in sent {
            let parts = self.resolve_files(stored.message.parts, room).await?;
            let (context_id, task_id) = (Some(job.head.session.to_string()), Some(job.head.id.to_string()));
            said.push((stored.at, A2aMessage { context_id, task_id, parts, ..stored.message }));
        }
        let mut after = begin;
        for _ in 0..STEPS {
            let turns = self.read_turns(&job.head, after).await?;
            let of_turn = |record: &TurnRecord| {
                let is_ending = turns.ending == Some(record.turn);
                turn_message(&job.head, record, is_ending).map(|message| (record.end, message))
            };
            said.extend(turns.records.iter().filter_map(of_turn));
            match turns.last {
                Some(last) if !turns.is_end && turns.ending.is_none() => after = last,
                Some(_) | None => break,
            }
        }
        // A message and the turn before it may be of one millisecond; those of one time keep their order.
        said.sort_by_key(|(at, _)| *at);
        let from = said.len().saturating_sub(most);
        Ok(said.drain(from..).map(|(_, message)| message).collect())
    }
}
