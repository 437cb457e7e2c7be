//! The goal tree in a prompt: the frames above in a few bytes each, the summaries of compacted turns, and which turns
//! are shown in full.

use crate::authority::Authority;
use crate::chat::ChatMessage;
use crate::context::sight::{Sight, Viewer, turn_sights};
use crate::context::text;
use crate::context::transcript_turn::TranscriptTurn;
use crate::goal::{GoalFrame, GoalStack};
use crate::lines;
use crate::render::{RenderOptions, render};
use crate::session::TurnRecord;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;

/// Bytes for each frame above, the nearest first; each further one gets as many as the last.
const FRAME_BYTES: [usize; 4] = [300, 150, 75, 50];
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
    /// Rendered frames above, the outermost first.
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
        let above: Vec<_> = match path.split_last() {
            None => Vec::new(),
            Some((_, outer)) => std::iter::once(None).chain(outer.iter().map(|frame| Some(*frame))).collect(),
        };
        let far = above.len();
        let shown = above.into_iter().enumerate().map(|(at, frame)| {
            let budget = FRAME_BYTES[(far - 1 - at).min(FRAME_BYTES.len() - 1)];
            let id = frame.map_or(0, |frame| frame.id);
            let value = summarise_frame(frame, id, &turns, task);
            let value = if budget < GOAL_ALONE { &value["goal"] } else { &value };
            format!("{}{id}] {}", lines::GOAL, render(value, RenderOptions { budget, pretty: false }))
        });
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
            above: shown.collect(),
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
