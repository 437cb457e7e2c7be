//! The history of a task: messages of clients, and of the agent in its turns, in the order in which they were sent.

use super::log::turn_message;
use super::messages;
use super::reader::TaskReader;
use crate::domain::job::Job;
use crate::domain::session::TurnRecord;
use crate::domain::time::Millis;
use crate::store::StoreError;
use crate::view::a2a::A2aMessage;

/// Steps of the session's turns that one history reads.
const STEPS: usize = 10;

impl TaskReader<'_> {
    /// Returns the last messages of a task, at most `most`, in order. What its reader may not see is left out.
    pub async fn history(&self, job: &Job, most: usize) -> Result<Vec<A2aMessage>, StoreError> {
        if most == 0 || !self.sees_whole(job) {
            return Ok(Vec::new());
        }
        let sent = messages::list(self.venue, &self.caller.owner, &job.head).await?;
        let begin = sent.first().map_or(0, |first| first.turn);
        let mut said: Vec<(Millis, A2aMessage)> = Vec::with_capacity(sent.len());
        for stored in sent {
            let parts = self.resolve_files(stored.message.parts).await?;
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
