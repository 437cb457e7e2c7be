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
use crate::load::{Level, Load, LoadChange};
use crate::outputs;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The frames of a session, and what was compacted.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Goals {
    /// Open frames but for frame 0, those that run first last. A frame that waits for its turn beside
    /// another has the same parent as that.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<GoalFrame>,
    /// Frames ever opened: the number of the newest.
    #[serde(skip_serializing_if = "is_zero")]
    pub opened: u32,
    /// What was compacted, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<Segment>,
    /// Live turns of frame 0.
    #[serde(skip_serializing_if = "LiveTurns::is_empty")]
    pub live: LiveTurns,
    /// The task in whose service the frames were opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// The request of a loose run in whose service they were opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub under: Option<Mandate>,
}

/// A goal that is being worked on, or waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GoalFrame {
    /// Its number in the session, from 1.
    pub id: u32,
    /// The frame that opened it.
    pub parent: u32,
    /// The goal.
    pub description: String,
    /// The turn that opened it.
    pub turn: u64,
    /// The call of that turn that its result is the result of.
    pub call: u32,
    /// What its result must be, a JSON Schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Paths that are shown as long as it is open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<Load>,
    /// Its live turns.
    #[serde(default, skip_serializing_if = "LiveTurns::is_empty")]
    pub live: LiveTurns,
}

/// Turns that are shown in full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LiveTurns {
    /// How many.
    pub turns: u32,
    /// Their messages: what was heard, said and returned.
    pub items: u32,
}

/// Turns of a frame that a summary stands for. They stay in the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Segment {
    /// The frame.
    pub frame: u32,
    /// The last turn of it.
    pub to: u64,
    /// How many turns.
    pub turns: u32,
    /// Their messages.
    pub items: u32,
    /// What is to be known of them.
    pub summary: String,
    /// What the turn was allowed to do that wrote it: one that may not do as much doesn't see it.
    #[serde(default, skip_serializing_if = "Authority::is_unlimited")]
    pub authority: Authority,
    /// What its request may do at most.
    #[serde(default, skip_serializing_if = "Authority::is_unlimited")]
    pub bound: Authority,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl LiveTurns {
    /// Nothing.
    pub const fn is_empty(&self) -> bool {
        self.turns == 0
    }

    /// One more turn.
    pub fn count(&mut self, items: usize) {
        let items = u32::try_from(items).unwrap_or(u32::MAX);
        self.turns = self.turns.saturating_add(1);
        self.items = self.items.saturating_add(items);
    }
}

/// A goal as a call of `subgoal` names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Goal {
    /// What is to be reached.
    pub description: String,
    /// What its result must be; absent: anything.
    pub output: Option<Value>,
}

impl Goal {
    /// Of the arguments of a call.
    pub fn of(arguments: &Value) -> Result<Self, String> {
        let description = arguments["description"].as_str().unwrap_or_default().trim();
        match description.len() {
            0 => return Err("`description`: expected what the goal is, got an empty text".into()),
            bytes if bytes > GOAL_BYTES => {
                return Err(format!(
                    "`description`: expected at most {GOAL_BYTES} bytes, got {bytes}; put the data into the tree"
                ));
            }
            _ => {}
        }
        let output = Some(&arguments["responseSchema"]).filter(|schema| !schema.is_null()).cloned();
        if let Some(schema) = &output {
            let bytes = schema.to_string().len();
            if bytes > GOAL_BYTES {
                return Err(format!("`responseSchema`: expected at most {GOAL_BYTES} bytes, got {bytes}"));
            }
            outputs::check(schema).map_err(|error| format!("`responseSchema`: {error}"))?;
        }
        Ok(Self { description: description.to_owned(), output })
    }
}

impl Goals {
    /// Whether a frame is open and isn't the one that is worked on.
    pub fn waits(&self, frame: u32) -> bool {
        frame != self.active() && (frame == 0 || self.frames.iter().any(|open| open.id == frame))
    }

    /// Nothing was opened or compacted.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The frame whose turns run; `None` = frame 0.
    pub fn top(&self) -> Option<&GoalFrame> {
        self.frames.last()
    }

    /// Its number.
    pub fn active(&self) -> u32 {
        self.top().map_or(0, |frame| frame.id)
    }

    /// From the outermost open frame to the active one; frames that wait beside them excepted.
    pub fn path(&self) -> Vec<&GoalFrame> {
        let mut path = Vec::new();
        let mut wanted = self.active();
        for frame in self.frames.iter().rev() {
            if frame.id == wanted {
                path.push(frame);
                wanted = frame.parent;
            }
        }
        path.reverse();
        path
    }

    /// Whether one more frame may be opened inside the active one.
    pub fn check_depth(&self) -> Result<(), String> {
        if self.path().len() < FRAME_DEPTH {
            return Ok(());
        }
        Err(format!("goals are at most {FRAME_DEPTH} deep: reach this one without further subgoals"))
    }

    /// The frames are of one request: when a turn serves another, what they are for is over.
    pub fn serve(&mut self, job: Option<&JobId>, under: &Mandate) {
        let same = match job {
            Some(job) => self.job.as_ref() == Some(job),
            None => self.job.is_none() && self.under.clone().unwrap_or_default().is_same(under),
        };
        if !same {
            self.end();
        }
    }

    /// Opens frames for the calls of `subgoal` of a turn, in the service of a task or of a loose
    /// request: the first runs first.
    pub fn open(&mut self, turn: u64, goals: Vec<(u32, Goal)>, job: Option<&JobId>, under: &Mandate) {
        if self.frames.is_empty() {
            self.job = job.cloned();
            self.under = Some(under.clone()).filter(|under| job.is_none() && *under != Mandate::default());
        }
        let parent = self.active();
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

    /// Closes the active frame: its loads and its segments go with it.
    pub fn close(&mut self) -> Option<GoalFrame> {
        let closed = self.frames.pop()?;
        self.segments.retain(|segment| segment.frame != closed.id);
        Some(closed)
    }

    /// What the frames are for has ended.
    pub fn end(&mut self) {
        self.frames.clear();
        (self.job, self.under) = (None, None);
        self.segments.retain(|segment| segment.frame == 0);
    }

    /// Live turns of the active frame.
    pub fn live(&self) -> LiveTurns {
        self.top().map_or(self.live, |frame| frame.live)
    }

    /// One more turn of the active frame.
    pub fn count(&mut self, items: usize) {
        self.live_mut().count(items);
    }

    fn live_mut(&mut self) -> &mut LiveTurns {
        self.frames.last_mut().map_or(&mut self.live, |frame| &mut frame.live)
    }

    /// The newest turn of the session's conversation that a summary stands for.
    pub fn compacted_to(&self) -> u64 {
        let own = self.segments.iter().filter(|segment| segment.frame == 0);
        own.map(|segment| segment.to).max().unwrap_or(0)
    }

    /// Everything of the session's conversation up to the turn `to` becomes a segment, from outside: no
    /// goal is open. `live` is what no summary stands for, which is counted nowhere where nobody compacts.
    pub fn archive(&mut self, to: u64, live: LiveTurns, summary: &str, under: (Authority, Authority)) {
        self.live = live;
        self.compact(to, summary, under);
    }

    /// Live turns of the active frame up to the turn `to` become a segment, written under `authority`
    /// for a request of this `bound`.
    pub fn compact(&mut self, to: u64, summary: &str, (authority, bound): (Authority, Authority)) {
        let frame = self.active();
        let LiveTurns { turns, items } = std::mem::take(self.live_mut());
        self.segments.push(Segment { frame, to, turns, items, summary: summary.to_owned(), authority, bound });
        let own: Vec<_> = (0..self.segments.len()).filter(|at| self.segments[*at].frame == frame).collect();
        if let (true, [first, second, ..]) = (own.len() > SEGMENTS, own.as_slice()) {
            if !self.segments[*second].authority.covers(&self.segments[*first].authority) {
                // Nobody who may see the one may see both: the older one goes.
                self.segments.remove(*first);
                return;
            }
            let oldest = self.segments.remove(*first);
            if let Some(next) = self.segments.get_mut(*second - 1) {
                next.turns += oldest.turns;
                next.items += oldest.items;
                let summary = format!("{}\n{}", oldest.summary, next.summary);
                // What is newer counts for more.
                let from = summary.ceil_char_boundary(summary.len().saturating_sub(SUMMARY_BYTES));
                summary[from..].clone_into(&mut next.summary);
            }
        }
    }

    /// Loads of a session with those of its frames: an inner one shadows an outer one.
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
            change.apply(Level::Frame, &mut frame.loads);
        }
    }

    /// Takes loads out of all frames.
    pub fn unload(&mut self, paths: &[String]) {
        for frame in &mut self.frames {
            frame.loads.retain(|load| !paths.contains(&load.path));
        }
    }
}
