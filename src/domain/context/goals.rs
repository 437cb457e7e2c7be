//! The goal tree in a prompt: the frames above and their ended subgoals in a few bytes each, the summaries of compacted
//! turns, and which turns are shown in full.

use crate::authority::Authority;
use crate::chat::{Arguments, ChatMessage};
use crate::context::sight::{SUBGOAL, Sight, Viewer, turn_sights};
use crate::context::text;
use crate::context::transcript_turn::TranscriptTurn;
use crate::decode;
use crate::goal::{GoalFrame, GoalStack};
use crate::lines;
use crate::render::{RenderOptions, render};
use crate::session::TurnRecord;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;

/// Bytes for each frame above, the nearest first; each further one gets as many as the last.
const FRAME_BYTES: [usize; 4] = [300, 150, 75, 50];
/// Frames above, the nearest first, whose ended subgoals are shown, each in the bytes of its frame.
const FRAMES_WITH_RESULTS: usize = 2;
/// Bytes for all ended subgoals; the newest of the nearest frame come first.
const RESULTS_BYTES: usize = 1_000;
/// Note behind a goal whose result has a type.
const TYPED: &str = " (Its result must be JSON of the type that `complete` takes.)";
/// Bytes below which only the goal of a frame is shown.
const GOAL_ALONE: usize = 200;

/// The goal tree as one prompt shows it. It is recorded with the prompt, because the turns of the frames above get
/// their results later.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GoalView {
    /// Id of the frame whose turns are shown; 0 for the conversation.
    pub frame: u32,
    /// Goal of the frame; `None` for frame 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    /// Rendered frames above, the outermost first, each before its ended subgoals.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub above: Vec<String>,
    /// Rendered summaries of compacted turns, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<String>,
    /// Turns that the summaries replace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub compacted: Vec<CompactedTurns>,
}

/// Turns that a summary replaces: up to `to`, as far as its writer could see them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompactedTurns {
    /// Number of the last turn.
    pub to: u64,
    /// Authority of the summary's writer.
    #[serde(default, skip_serializing_if = "Authority::is_unlimited")]
    pub authority: Authority,
    /// Most authority of the writer's request.
    #[serde(default, skip_serializing_if = "Authority::is_unlimited")]
    pub bound: Authority,
}

impl GoalView {
    /// Makes the view of a session with these turns, as far as `viewer` may see them. `task` is the input of the open
    /// task.
    pub fn for_session(
        goals: &GoalStack,
        turns: &[Arc<TranscriptTurn>],
        task: Option<&Value>,
        viewer: Viewer<'_>,
    ) -> Self {
        let path = goals.path();
        // Only the frames above show parts of turns.
        let turns = if path.is_empty() { &[] } else { turns };
        let seen = turns.iter().zip(turn_sights(turns, viewer, |_| false));
        let turns: Vec<_> = seen.filter(|(_, sight)| *sight == Sight::Whole).map(|(turn, _)| &***turn).collect();
        let frame = goals.active_id();
        let own = || {
            goals
                .segments
                .iter()
                .filter(move |segment| segment.frame == frame && viewer.authority.covers(&segment.authority))
        };
        Self {
            frame,
            goal: goals.top().map(|frame| match &frame.output {
                None => frame.description.clone(),
                Some(_) => format!("{}{TYPED}", frame.description),
            }),
            above: render_frames_above(goals, &path, &turns, task),
            segments: own().map(|segment| text::compacted_turns(segment.turns, &segment.summary)).collect(),
            compacted: own()
                .map(|segment| CompactedTurns {
                    to: segment.to,
                    authority: segment.authority.clone(),
                    bound: segment.bound.clone(),
                })
                .collect(),
        }
    }

    /// Whether the prompt shows only the session's conversation.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a turn is shown in full.
    pub fn shows(&self, turn: &TurnRecord) -> bool {
        let stood_for = |by: &CompactedTurns| Viewer { authority: &by.authority, bound: &by.bound }.stands_for(turn);
        let summarised = |by: &CompactedTurns| turn.turn <= by.to && stood_for(by);
        turn.frame == self.frame && !self.compacted.iter().any(summarised)
    }

    /// Returns the text before the turns with the frame's position in the goal tree.
    pub fn position_text(&self) -> Option<String> {
        let goal = self.goal.as_ref()?;
        let mut lines = self.above.clone();
        lines.push(text::current_goal(self.frame, goal));
        Some(lines.join("\n"))
    }
}

/// Renders the frames above the last of `path`, the outermost first, each before its ended subgoals.
fn render_frames_above(
    goals: &GoalStack,
    path: &[&GoalFrame],
    turns: &[&TurnRecord],
    task: Option<&Value>,
) -> Vec<String> {
    let Some((_, outer)) = path.split_last() else { return Vec::new() };
    let nearest_first = outer.iter().rev().map(|frame| Some(*frame)).chain([None]);
    let mut room = RESULTS_BYTES;
    let mut rendered: Vec<Vec<String>> = Vec::new();
    for (far, frame) in nearest_first.enumerate() {
        let options = RenderOptions { budget: FRAME_BYTES[far.min(FRAME_BYTES.len() - 1)], pretty: false };
        let id = frame.map_or(0, |frame| frame.id);
        let value = summarise_frame(frame, id, turns, task);
        let value = if options.budget < GOAL_ALONE { &value["goal"] } else { &value };
        let ended = ended_subgoals(goals, id, turns).take_while(|_| far < FRAMES_WITH_RESULTS);
        let ended = ended.map(|subgoal| format!("{}{}", lines::ENDED_GOAL, render(&subgoal, options)));
        let mut shown: Vec<_> = ended
            .map_while(|line| {
                room = room.checked_sub(line.len())?;
                Some(line)
            })
            .collect();
        shown.push(format!("{}{id}] {}", lines::GOAL, render(value, options)));
        shown.reverse();
        rendered.push(shown);
    }
    rendered.into_iter().rev().flatten().collect()
}

/// Iterates over the subgoals of a frame that have ended, for the task of the open ones, the newest first: each with
/// its goal and its result.
fn ended_subgoals(goals: &GoalStack, frame: u32, turns: &[&TurnRecord]) -> impl Iterator<Item = Value> {
    let openers = turns.iter().rev().filter(move |turn| turn.frame == frame && turn.job == goals.job);
    openers.flat_map(move |turn| {
        let is_open = |call: u32| goals.frames.iter().any(|open| (open.turn, open.call) == (turn.turn, call));
        let asked = turn.said.iter().flat_map(|said| match said {
            ChatMessage::Assistant { calls, .. } => calls.as_slice(),
            ChatMessage::User { .. } | ChatMessage::Tool { .. } => &[],
        });
        let results = turn.said.iter().filter_map(|said| match said {
            ChatMessage::Tool { text, .. } => Some(text),
            ChatMessage::User { .. } | ChatMessage::Assistant { .. } => None,
        });
        let ended = (0..).zip(&turn.calls).zip(asked.zip(results)).filter_map(|((call, record), (asked, result))| {
            let Arguments::Json(arguments) = &asked.arguments else { return None };
            let goal = arguments.get("description").filter(|_| record.operation == SUBGOAL && !is_open(call))?;
            let result = decode::json(result.as_bytes()).unwrap_or_else(|_| result.as_str().into());
            Some(json!({"goal": goal, "result": result}))
        });
        let mut ended: Vec<_> = ended.collect();
        ended.reverse();
        ended
    })
}

/// Summarises a frame above: its goal, its number of turns, and its latest text.
fn summarise_frame(frame: Option<&GoalFrame>, id: u32, turns: &[&TurnRecord], task: Option<&Value>) -> Value {
    let goal = match (frame, task) {
        (Some(frame), _) => json!(frame.description),
        (None, Some(task)) => task.clone(),
        (None, None) => json!("the conversation"),
    };
    let own: Vec<_> = turns.iter().filter(|turn| turn.frame == id).collect();
    let text = own.iter().rev().flat_map(|turn| turn.said.iter()).find_map(|said| match said {
        ChatMessage::Assistant { text, .. } if !text.is_empty() => Some(text.as_str()),
        ChatMessage::Assistant { .. } | ChatMessage::User { .. } | ChatMessage::Tool { .. } => None,
    });
    let mut digest = json!({"goal": goal, "turns": own.len()});
    if let Some(text) = text {
        digest["latest"] = text.into();
    }
    digest
}
