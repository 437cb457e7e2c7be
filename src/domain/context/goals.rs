//! What a prompt shows of the goal tree: the frames above in a few bytes each, the summaries of what
//! was compacted, and which turns are shown in full.

use crate::authority::Authority;
use crate::chat::ChatMessage;
use crate::context::past::TranscriptTurn;
use crate::context::sight::{Sight, Viewer, sights};
use crate::context::text;
use crate::goal::{GoalFrame, Goals};
use crate::lines;
use crate::render::{RenderOptions, render};
use crate::session::TurnRecord;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;

/// Bytes of the frames above, the nearest first; every further one has as many as the last.
const ABOVE: [usize; 4] = [300, 150, 75, 50];
/// Said of a goal whose result has a type.
const TYPED: &str = " (Its result must be JSON of the type that `complete` takes.)";
/// In fewer bytes only the goal itself has room.
const GOAL_ALONE: usize = 200;

/// The goal tree as one prompt shows it. Recorded with the prompt: the turns of the frames above get
/// their results later.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct View {
    /// The frame whose turns are shown.
    pub frame: u32,
    /// Its goal; none of frame 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    /// The frames above, outermost first, as they are shown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub above: Vec<String>,
    /// What was compacted, oldest first, as it is shown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<String>,
    /// What segments stand for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub compacted: Vec<Compacted>,
}

/// Turns that a segment stands for: up to one, as far as its writer could see them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compacted {
    /// The last of them.
    pub to: u64,
    /// What its writer was allowed to do.
    #[serde(default, skip_serializing_if = "Authority::is_unlimited")]
    pub authority: Authority,
    /// What its request may do at most.
    #[serde(default, skip_serializing_if = "Authority::is_unlimited")]
    pub bound: Authority,
}

impl View {
    /// Of a session with these turns, as far as `viewer` may see them. `task` is the input of the
    /// open task.
    pub fn of(goals: &Goals, turns: &[Arc<TranscriptTurn>], task: Option<&Value>, viewer: Viewer<'_>) -> Self {
        let path = goals.path();
        // Only the frames above show anything of turns.
        let turns = if path.is_empty() { &[] } else { turns };
        let seen = turns.iter().zip(sights(turns, viewer, |_| false));
        let turns: Vec<_> = seen.filter(|(_, sight)| *sight == Sight::Whole).map(|(turn, _)| &***turn).collect();
        let above: Vec<_> = match path.split_last() {
            None => Vec::new(),
            Some((_, outer)) => std::iter::once(None).chain(outer.iter().map(|frame| Some(*frame))).collect(),
        };
        let far = above.len();
        let shown = above.into_iter().enumerate().map(|(at, frame)| {
            let budget = ABOVE[(far - 1 - at).min(ABOVE.len() - 1)];
            let id = frame.map_or(0, |frame| frame.id);
            let value = digest(frame, id, &turns, task);
            let value = if budget < GOAL_ALONE { &value["goal"] } else { &value };
            format!("{}{id}] {}", lines::GOAL, render(value, RenderOptions { budget, pretty: false }))
        });
        let frame = goals.active();
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
            segments: own().map(|segment| text::compacted(segment.turns, &segment.summary)).collect(),
            compacted: own()
                .map(|segment| Compacted {
                    to: segment.to,
                    authority: segment.authority.clone(),
                    bound: segment.bound.clone(),
                })
                .collect(),
        }
    }

    /// There is nothing to show but the session's conversation.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a turn is shown in full.
    pub fn shows(&self, turn: &TurnRecord) -> bool {
        let stood_for = |by: &Compacted| Viewer { authority: &by.authority, bound: &by.bound }.stands_for(turn);
        let summarised = |by: &Compacted| turn.turn <= by.to && stood_for(by);
        turn.frame == self.frame && !self.compacted.iter().any(summarised)
    }

    /// What stands before the turns: where the frame is in the tree.
    pub fn place(&self) -> Option<String> {
        let goal = self.goal.as_ref()?;
        let mut lines = self.above.clone();
        lines.push(text::goal(self.frame, goal));
        Some(lines.join("\n"))
    }
}

/// A frame above in short: its goal, how long it has worked, and what it said last.
fn digest(frame: Option<&GoalFrame>, id: u32, turns: &[&TurnRecord], task: Option<&Value>) -> Value {
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
