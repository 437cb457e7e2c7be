//! The log of a task: events that follow from the records of its turns, in their order, and from its end.
//!
//! The same records give the same events to every reader, in every process, whenever it reads. What a worker does
//! inside a turn is in no event: a turn is told when it is committed.

use super::artifact::FileRoom;
use super::place::LogPlace;
use super::question::{self, ASK};
use super::reader::TaskReader;
use super::session_of;
use crate::domain::call::Outcome;
use crate::domain::chat::{ChatMessage, ToolCall};
use crate::domain::ids::{Owner, SessionKey};
use crate::domain::job::{Job, JobHead, JobStatus};
use crate::domain::limits::LIST_BYTES;
use crate::domain::session::{CallRecord, TurnRecord};
use crate::store::{StoreError, decode, keys, steps};
use crate::venue::{Venue, jobs};
use crate::view::a2a::{
    A2aArtifactUpdate, A2aMessage, A2aPart, A2aRole, A2aStatusUpdate, A2aStreamEvent, A2aTaskState, A2aTaskStatus,
};
use serde_json::{Map, Value};

/// Turns that one step reads.
const TURNS: usize = 50;

/// An event of a task at its place.
#[derive(Debug, Clone, PartialEq)]
pub struct LogEvent {
    /// Place of the event, from which a reader goes on.
    pub place: LogPlace,
    /// The event as clients get it.
    pub event: A2aStreamEvent,
}

/// Events behind a place.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LogPage {
    /// Events in their order.
    pub events: Vec<LogEvent>,
    /// Place behind what was read, also where there was no event.
    pub read_to: Option<LogPlace>,
    /// Whether the task has ended and its last event is among them, or before them.
    pub is_over: bool,
    /// Whether a worker has taken the task.
    pub is_begun: bool,
}

/// Returns the number of the last committed turn of a session; 0 without any.
pub async fn last_turn(venue: &Venue, owner: &Owner, session: &SessionKey) -> Result<u64, StoreError> {
    let found = venue.store.scan(owner, &keys::turns(session), None, true, 1).await?;
    Ok(found.first().and_then(|(key, _)| keys::number_of_turn(key)).unwrap_or(0))
}

/// Turns of a job behind a turn of its session.
#[derive(Debug, Default)]
pub(super) struct JobTurns {
    /// Records of the job's turns, as their reader may see them.
    pub(super) records: Vec<TurnRecord>,
    /// Number of the one that ended the job.
    pub(super) ending: Option<u64>,
    /// Number of the last turn that was read, of whatever job.
    pub(super) last: Option<u64>,
    /// Whether there are no more turns.
    pub(super) is_end: bool,
}

impl TaskReader<'_> {
    /// Reads a step of the turns of a job behind turn `after`.
    pub(super) async fn read_turns(&self, head: &JobHead, after: u64) -> Result<JobTurns, StoreError> {
        let session = session_of(head);
        let (prefix, begin) = (keys::turns(&session), keys::turn(&session, after));
        let range = steps::KeyRange::ascending(&prefix).start_after(&begin);
        let page = steps::scan(&*self.venue.store, &self.caller.owner, range, TURNS, LIST_BYTES).await?;
        let mut turns = JobTurns { is_end: page.ended, ..JobTurns::default() };
        for (key, doc) in page.docs {
            let record: TurnRecord = decode(&key, &doc.value.unwrap_or_default())?;
            turns.last = Some(record.turn);
            let ends = record.ended.iter().any(|(job, _)| *job == head.id);
            if ends {
                turns.ending = Some(record.turn);
            }
            if ends || record.job.as_ref() == Some(&head.id) {
                turns.records.push(record.visible_to(&self.caller.reading_authority()));
            }
        }
        Ok(turns)
    }

    /// Returns the events of a task behind a place. `None` if the job is gone.
    pub async fn read_log(&self, head: &JobHead, after: LogPlace) -> Result<Option<LogPage>, StoreError> {
        let owner = &self.caller.owner;
        // The status first: the turns that led to it are committed then.
        let status = jobs::read_status(self.venue, owner, &head.id).await?;
        if status.is_none() && jobs::head(self.venue, owner, &head.id).await?.is_none() {
            return Ok(None);
        }
        let is_ended = status.is_some_and(|(status, _)| status.is_terminal());
        if after.is_end() && !is_ended {
            // The place was given by a client, and no such event exists.
            return Ok(Some(LogPage { is_begun: true, ..LogPage::default() }));
        }
        let mut page = LogPage { is_begun: status.is_some_and(|(status, _)| is_begun(status)), ..LogPage::default() };
        let mut is_read = after.is_end();
        if !is_read {
            let turns = self.read_turns(head, after.turn_before()).await?;
            for record in &turns.records {
                page.events.extend(turn_events(head, record, turns.ending == Some(record.turn)));
            }
            page.read_to = turns.last.map(LogPlace::behind_turn);
            is_read = turns.is_end;
        }
        page.events.retain(|event| event.place > after);
        if is_ended && is_read {
            // A terminal status doesn't change, so the whole record may be read now.
            let Some(job) = jobs::get(self.venue, owner, &head.id).await? else { return Ok(None) };
            let end = self.end_events(&job).await?;
            page.events.extend(end.into_iter().filter(|event| event.place > after));
            page.is_over = true;
        }
        Ok(Some(page))
    }

    /// Returns the events that end a task: its outputs, and its last state.
    async fn end_events(&self, job: &Job) -> Result<Vec<LogEvent>, StoreError> {
        let (task_id, context_id) = (job.head.id.to_string(), job.head.session.to_string());
        let artifacts = self.artifacts(job, &mut FileRoom::of_answer()).await?;
        let updates = artifacts.into_iter().map(|artifact| {
            A2aStreamEvent::ArtifactUpdate(A2aArtifactUpdate {
                task_id: task_id.clone(),
                context_id: context_id.clone(),
                artifact,
                append: false,
                last_chunk: true,
            })
        });
        let mut events: Vec<A2aStreamEvent> = updates.collect();
        let status = self.status(job).await?;
        events.push(A2aStreamEvent::StatusUpdate(A2aStatusUpdate { task_id, context_id, status, metadata: None }));
        let placed = events.into_iter().zip(0..).map(|(event, at)| LogEvent { place: LogPlace::at_end(at), event });
        Ok(placed.collect())
    }
}

/// Whether a worker has taken a job of this status.
const fn is_begun(status: JobStatus) -> bool {
    !matches!(status, JobStatus::Pending)
}

/// Returns the event that a worker has taken a task. It has no place of its own, because no record tells it.
pub fn begin_event(head: &JobHead) -> A2aStreamEvent {
    let status = A2aTaskStatus { state: A2aTaskState::Working, message: None, timestamp: None };
    A2aStreamEvent::StatusUpdate(A2aStatusUpdate {
        task_id: head.id.to_string(),
        context_id: head.session.to_string(),
        status,
        metadata: None,
    })
}

/// Returns the events of one turn: what the agent said while it works on, and what it waits for. The text of the turn
/// that ends the task is its output, and in no event of the turn.
fn turn_events(head: &JobHead, record: &TurnRecord, is_ending: bool) -> Vec<LogEvent> {
    if is_ending {
        return Vec::new();
    }
    let mut events = vec![status_event(head, record, 0, A2aTaskState::Working, said_parts(record))];
    let waiting: Vec<&CallRecord> = waiting_calls(record).collect();
    if !waiting.is_empty() {
        let asks = waiting.iter().any(|call| call.operation == ASK);
        let state = if asks { A2aTaskState::InputRequired } else { A2aTaskState::AuthRequired };
        let texts = waiting.iter().map(|call| A2aPart::of_text(waiting_text(record, call)));
        events.push(status_event(head, record, 1, state, texts.collect()));
    }
    events
}

/// Returns the calls of a turn that wait for a person.
fn waiting_calls(record: &TurnRecord) -> impl Iterator<Item = &CallRecord> {
    record.calls.iter().filter(|call| call.outcome == Outcome::Awaiting.as_str())
}

fn waiting_text(record: &TurnRecord, call: &CallRecord) -> String {
    let arguments = said_calls(record).find(|said| said.name == call.tool).map(|said| said.arguments.to_value());
    question::call_text(&call.operation, &arguments.unwrap_or_default())
}

fn said_calls(record: &TurnRecord) -> impl Iterator<Item = &ToolCall> {
    record.said.iter().flat_map(|message| match message {
        ChatMessage::Assistant { calls, .. } => calls.as_slice(),
        ChatMessage::User { .. } | ChatMessage::Tool { .. } => &[],
    })
}

/// Returns what the agent said in a turn, as parts; none where its reader may not see it.
fn said_parts(record: &TurnRecord) -> Vec<A2aPart> {
    if record.hidden || record.erased {
        return Vec::new();
    }
    let texts = record.said.iter().filter_map(|message| match message {
        ChatMessage::Assistant { text, .. } if !text.is_empty() => Some(A2aPart::of_text(text.as_str())),
        ChatMessage::Assistant { .. } | ChatMessage::User { .. } | ChatMessage::Tool { .. } => None,
    });
    texts.collect()
}

/// Returns the message of the agent in a turn; `None` where it said nothing, and for the turn that ends the task.
pub(super) fn turn_message(head: &JobHead, record: &TurnRecord, is_ending: bool) -> Option<A2aMessage> {
    if is_ending {
        return None;
    }
    let mut parts = said_parts(record);
    parts.extend(waiting_calls(record).map(|call| A2aPart::of_text(waiting_text(record, call))));
    (!parts.is_empty()).then(|| agent_message(head, record.turn, parts))
}

/// Returns a message of the agent in a turn.
fn agent_message(head: &JobHead, turn: u64, parts: Vec<A2aPart>) -> A2aMessage {
    A2aMessage {
        message_id: format!("{}-{turn}", head.id),
        context_id: Some(head.session.to_string()),
        task_id: Some(head.id.to_string()),
        role: A2aRole::Agent,
        parts,
        metadata: None,
        extensions: None,
        reference_task_ids: None,
    }
}

fn status_event(head: &JobHead, record: &TurnRecord, index: u32, state: A2aTaskState, parts: Vec<A2aPart>) -> LogEvent {
    let message = (!parts.is_empty()).then(|| agent_message(head, record.turn, parts));
    let calls: Vec<Value> = record.calls.iter().map(|call| call.tool.as_str().into()).collect();
    let mut metadata = Map::from_iter([("turn".to_owned(), Value::from(record.turn))]);
    if !calls.is_empty() {
        metadata.insert("calls".to_owned(), calls.into());
    }
    let event = A2aStreamEvent::StatusUpdate(A2aStatusUpdate {
        task_id: head.id.to_string(),
        context_id: head.session.to_string(),
        status: A2aTaskStatus { state, message, timestamp: Some(record.end.rfc3339()) },
        metadata: Some(metadata),
    });
    LogEvent { place: LogPlace::in_turn(record.turn, index), event }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::chat::Arguments;
    use crate::domain::ids::JobId;
    use crate::domain::invocation;
    use crate::domain::time::Millis;
    use serde_json::json;

    fn head() -> JobHead {
        let id = JobId::new(&"0f".repeat(16)).unwrap();
        let session = invocation::session(&id);
        let head =
            json!({"id": id, "event": "e", "agent": "clerk", "session": session.session, "input": 1, "created": 5});
        serde_json::from_value(head).unwrap()
    }

    fn record(call: Option<(&str, &str, &str)>) -> TurnRecord {
        let asks = json!({"title": "Size", "asks": [{"prompt": "S or L?"}]});
        let made =
            |tool: &str| ToolCall { id: "1".into(), name: tool.into(), arguments: Arguments::Json(asks.clone()) };
        let calls: Vec<ToolCall> = call.iter().map(|(tool, ..)| made(tool)).collect();
        let recorded = call.iter().map(|(tool, operation, outcome)| CallRecord {
            tool: (*tool).to_owned(),
            operation: (*operation).to_owned(),
            outcome: (*outcome).to_owned(),
            ..CallRecord::default()
        });
        TurnRecord {
            turn: 7,
            end: Millis(1_000),
            job: Some(head().id),
            calls: recorded.collect(),
            said: vec![ChatMessage::assistant("I look.".to_owned(), calls)],
            ..TurnRecord::default()
        }
    }

    fn states(record: &TurnRecord, is_ending: bool) -> Vec<(String, A2aTaskState, String)> {
        let events = turn_events(&head(), record, is_ending);
        let state = |event: &LogEvent| {
            let A2aStreamEvent::StatusUpdate(update) = &event.event else { panic!("{event:?}") };
            let text = update.status.message.as_ref().map(|message| message.parts[0].text.clone().unwrap());
            (event.place.to_string(), update.status.state, text.unwrap_or_default())
        };
        events.iter().map(state).collect()
    }

    #[test]
    fn a_turn_tells_what_was_said_and_what_it_waits_for() {
        let working = || ("7-0".to_owned(), A2aTaskState::Working, "I look.".to_owned());
        for (call, expected) in [
            (None, vec![working()]),
            (Some(("http_get", "v/ops/http/get", "ok")), vec![working()]),
            (
                Some(("human_ask", ASK, "awaiting approval")),
                vec![working(), ("7-1".into(), A2aTaskState::InputRequired, "Size: S or L?".into())],
            ),
            (
                Some(("pay", "v/ops/http/post", "awaiting approval")),
                vec![
                    working(),
                    ("7-1".into(), A2aTaskState::AuthRequired, "permission is needed for `v/ops/http/post`".into()),
                ],
            ),
        ] {
            assert_eq!(states(&record(call), false), expected, "{call:?}");
        }
        assert!(states(&record(None), true).is_empty(), "its text is the output");
        let hidden = TurnRecord { hidden: true, ..record(None) };
        assert_eq!(states(&hidden, false), [("7-0".to_owned(), A2aTaskState::Working, String::new())]);
    }
}
