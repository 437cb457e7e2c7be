//! The goal tree (`loop: "goalTree"`): frames of a session, one on top of the other, each with a
//! conversation of its own. Frame 0 is the session's conversation; it is not listed.
//!
//! ```text
//! subgoal ─▶ open (the frame above waits) ─▶ turns of the new frame ─▶ text, complete or fail
//!                                                                            │
//! the result stands where the call of `subgoal` stands ◀── close ◀───────────┘
//! ```

#[cfg(test)]
mod tests;

use crate::authority::Authority;
use crate::event::Mandate;
use crate::ids::JobId;
use crate::limits::{FRAME_DEPTH, GOAL_BYTES, SEGMENTS, SUMMARY_BYTES};
use crate::load::{Load, LoadChange, LoadLevel};
use crate::outputs::{self, OutputSchemaError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The frames of a session, and its compacted turns.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GoalStack {
    /// Open frames without frame 0, in reverse order of running. A frame that waits beside another has the same parent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<GoalFrame>,
    /// Number of frames ever opened, which is the number of the newest.
    #[serde(skip_serializing_if = "is_zero")]
    pub opened: u32,
    /// Compacted turns, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<Segment>,
    /// Live turns of frame 0.
    #[serde(skip_serializing_if = "LiveTurns::is_empty")]
    pub live: LiveTurns,
    /// Task for which the frames were opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Request of a run without a task for which they were opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub under: Option<Mandate>,
}

/// A goal that is worked on, or waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GoalFrame {
    /// Number of the frame in its session, from 1.
    pub id: u32,
    /// Frame that opened it.
    pub parent: u32,
    /// Description of the goal.
    pub description: String,
    /// Turn that opened it.
    pub turn: u64,
    /// Position of the call in that turn whose result the frame's result is.
    pub call: u32,
    /// JSON Schema of the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Paths that are shown as long as the frame is open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<Load>,
    /// Live turns of the frame.
    #[serde(default, skip_serializing_if = "LiveTurns::is_empty")]
    pub live: LiveTurns,
}

/// Turns that prompts show in full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LiveTurns {
    /// Number of turns.
    pub turns: u32,
    /// Number of their messages: events, replies and results.
    pub items: u32,
}

/// Turns of a frame that a summary replaces in prompts. They stay in the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Segment {
    /// Number of the frame.
    pub frame: u32,
    /// Number of the last of the turns.
    pub to: u64,
    /// Number of turns.
    pub turns: u32,
    /// Number of their messages.
    pub items: u32,
    /// Summary of the turns.
    pub summary: String,
    /// Authority of the turn that wrote the summary: a turn that holds less doesn't see it.
    #[serde(default, skip_serializing_if = "Authority::is_unlimited")]
    pub authority: Authority,
    /// Upper bound of what the request of that turn may do.
    #[serde(default, skip_serializing_if = "Authority::is_unlimited")]
    pub bound: Authority,
}

/// Authority under which a summary and the turns that it replaces were written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SummaryAuthority {
    /// Authority of the turn that wrote the summary.
    pub authority: Authority,
    /// Upper bound of what the request of that turn may do.
    pub bound: Authority,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl LiveTurns {
    /// Whether there are no live turns.
    pub const fn is_empty(&self) -> bool {
        self.turns == 0
    }

    /// Counts one more turn.
    pub fn count(&mut self, items: usize) {
        let items = u32::try_from(items).unwrap_or(u32::MAX);
        self.turns = self.turns.saturating_add(1);
        self.items = self.items.saturating_add(items);
    }
}

/// Why a goal isn't opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GoalError {
    /// The description is blank.
    #[error("`description`: expected what the goal is, got an empty text")]
    NoDescription,
    /// The description is too long; holds its bytes.
    #[error("`description`: expected at most {GOAL_BYTES} bytes, got {0}; put the data into the tree")]
    LongDescription(usize),
    /// The schema of the result is too long; holds its bytes.
    #[error("`responseSchema`: expected at most {GOAL_BYTES} bytes, got {0}")]
    LongSchema(usize),
    /// The schema of the result can't be used.
    #[error("`responseSchema`: {0}")]
    Schema(OutputSchemaError),
    /// The active frame is [`FRAME_DEPTH`] deep.
    #[error("goals are at most {FRAME_DEPTH} deep: reach this one without further subgoals")]
    TooDeep,
}

/// A goal as a call of `subgoal` names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Goal {
    /// Description of the goal.
    pub description: String,
    /// JSON Schema of the result; absent = any result.
    pub output: Option<Value>,
}

impl Goal {
    /// Reads a goal from the arguments of a call.
    pub fn parse(arguments: &Value) -> Result<Self, GoalError> {
        let description = arguments["description"].as_str().unwrap_or_default().trim();
        match description.len() {
            0 => return Err(GoalError::NoDescription),
            bytes if bytes > GOAL_BYTES => return Err(GoalError::LongDescription(bytes)),
            _ => {}
        }
        let output = Some(&arguments["responseSchema"]).filter(|schema| !schema.is_null()).cloned();
        if let Some(schema) = &output {
            let bytes = schema.to_string().len();
            if bytes > GOAL_BYTES {
                return Err(GoalError::LongSchema(bytes));
            }
            outputs::check(schema).map_err(GoalError::Schema)?;
        }
        Ok(Self { description: description.to_owned(), output })
    }
}

impl GoalStack {
    /// Whether a frame is open and isn't the active one.
    pub fn is_waiting(&self, frame: u32) -> bool {
        frame != self.active_id() && (frame == 0 || self.frames.iter().any(|open| open.id == frame))
    }

    /// Whether nothing was opened or compacted.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the frame whose turns run; `None` = frame 0.
    pub fn top(&self) -> Option<&GoalFrame> {
        self.frames.last()
    }

    /// Returns the number of the frame whose turns run.
    pub fn active_id(&self) -> u32 {
        self.top().map_or(0, |frame| frame.id)
    }

    /// Returns the frames from the outermost open one to the active one, without those that wait beside them.
    pub fn path(&self) -> Vec<&GoalFrame> {
        let mut path = Vec::new();
        let mut wanted = self.active_id();
        for frame in self.frames.iter().rev() {
            if frame.id == wanted {
                path.push(frame);
                wanted = frame.parent;
            }
        }
        path.reverse();
        path
    }

    /// Checks that one more frame may be opened inside the active one.
    pub fn check_depth(&self) -> Result<(), GoalError> {
        if self.path().len() < FRAME_DEPTH { Ok(()) } else { Err(GoalError::TooDeep) }
    }

    /// Ends the frames if a turn serves another request than theirs.
    pub fn end_unless_served(&mut self, job: Option<&JobId>, under: &Mandate) {
        let same = match job {
            Some(job) => self.job.as_ref() == Some(job),
            None => self.job.is_none() && self.under.clone().unwrap_or_default().may_share_turn(under),
        };
        if !same {
            self.end();
        }
    }

    /// Opens frames for the calls of `subgoal` of a turn, for a task or for a request without one: the first runs
    /// first.
    pub fn open(&mut self, turn: u64, goals: Vec<(u32, Goal)>, job: Option<&JobId>, under: &Mandate) {
        if self.frames.is_empty() {
            self.job = job.cloned();
            self.under = Some(under.clone()).filter(|under| job.is_none() && *under != Mandate::default());
        }
        let parent = self.active_id();
        let first = self.opened + 1;
        let frames = (first..).zip(goals).map(|(id, (call, goal))| GoalFrame {
            id,
            parent,
            description: goal.description,
            turn,
            call,
            output: goal.output,
            loads: Vec::new(),
            live: LiveTurns::default(),
        });
        let mut frames: Vec<_> = frames.collect();
        self.opened += u32::try_from(frames.len()).unwrap_or(u32::MAX);
        frames.reverse();
        self.frames.append(&mut frames);
    }

    /// Closes the active frame, with its loads and its segments.
    pub fn close(&mut self) -> Option<GoalFrame> {
        let closed = self.frames.pop()?;
        self.segments.retain(|segment| segment.frame != closed.id);
        Some(closed)
    }

    /// Ends all frames, when their request has ended.
    pub fn end(&mut self) {
        self.frames.clear();
        (self.job, self.under) = (None, None);
        self.segments.retain(|segment| segment.frame == 0);
    }

    /// Returns the live turns of the active frame.
    pub fn live_turns(&self) -> LiveTurns {
        self.top().map_or(self.live, |frame| frame.live)
    }

    /// Counts one more turn of the active frame.
    pub fn count(&mut self, items: usize) {
        self.live_mut().count(items);
    }

    fn live_mut(&mut self) -> &mut LiveTurns {
        self.frames.last_mut().map_or(&mut self.live, |frame| &mut frame.live)
    }

    /// Returns the number of the newest turn of the session's conversation that a summary replaces.
    pub fn compacted_to(&self) -> u64 {
        let own = self.segments.iter().filter(|segment| segment.frame == 0);
        own.map(|segment| segment.to).max().unwrap_or(0)
    }

    /// Compacts the session's conversation up to the turn `to` while no goal is open. `live` are the turns without a
    /// summary, which are counted only where turns are compacted.
    pub fn archive(&mut self, to: u64, live: LiveTurns, summary: &str, under: SummaryAuthority) {
        self.live = live;
        self.compact(to, summary, under);
    }

    /// Compacts the live turns of the active frame up to the turn `to`.
    pub fn compact(&mut self, to: u64, summary: &str, under: SummaryAuthority) {
        let SummaryAuthority { authority, bound } = under;
        let frame = self.active_id();
        let LiveTurns { turns, items } = std::mem::take(self.live_mut());
        self.segments.push(Segment { frame, to, turns, items, summary: summary.to_owned(), authority, bound });
        let own: Vec<_> = (0..self.segments.len()).filter(|at| self.segments[*at].frame == frame).collect();
        if let (true, [first, second, ..]) = (own.len() > SEGMENTS, own.as_slice()) {
            if !self.segments[*second].authority.covers(&self.segments[*first].authority) {
                // No reader of one may see both: the older one is removed.
                self.segments.remove(*first);
                return;
            }
            let oldest = self.segments.remove(*first);
            if let Some(next) = self.segments.get_mut(*second - 1) {
                next.turns += oldest.turns;
                next.items += oldest.items;
                let summary = format!("{}\n{}", oldest.summary, next.summary);
                // The newer part of the summaries is kept.
                let from = summary.ceil_char_boundary(summary.len().saturating_sub(SUMMARY_BYTES));
                summary[from..].clone_into(&mut next.summary);
            }
        }
    }

    /// Returns the loads of a session with those of its frames: an inner one shadows an outer one of the same path.
    pub fn loads(&self, session: &[Load]) -> Vec<Load> {
        let mut all = session.to_vec();
        for load in self.path().iter().flat_map(|frame| &frame.loads) {
            all.retain(|outer| outer.path != load.path);
            all.push(load.clone());
        }
        all
    }

    /// Applies a change of loads to the active frame.
    pub fn apply(&mut self, change: &LoadChange) {
        if let Some(frame) = self.frames.last_mut() {
            change.apply(LoadLevel::Frame, &mut frame.loads);
        }
    }

    /// Removes loads from all frames.
    pub fn unload(&mut self, paths: &[String]) {
        for frame in &mut self.frames {
            frame.loads.retain(|load| !paths.contains(&load.path));
        }
    }
}
