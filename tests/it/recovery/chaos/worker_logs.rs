//! What workers say about where their sessions are, and what it proves.

use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// The stages of the path of one event, in order.
pub const STAGES: [&str; 9] = ["arrive", "admit", "lease", "context", "model", "record", "tools", "commit", "outbox"];

/// Kills by stage, in the order of [`STAGES`].
pub type Hits = [u64; STAGES.len()];

/// One line of a worker's log about a session.
#[derive(Debug, Clone)]
pub struct Step {
    /// UTC with microseconds: sorts as text.
    pub at: String,
    /// Which process.
    pub pid: u32,
    /// `agent/session`, or the agent alone when it says `arrive`.
    pub whose: String,
    /// Inside a turn: its number.
    pub turn: Option<u64>,
    /// One of [`STAGES`], or `idle`.
    pub stage: String,
}

/// Where the sessions of one process are.
#[derive(Debug, Default)]
pub struct Places {
    arriving: HashMap<String, i64>,
    sessions: HashMap<String, String>,
}

impl Places {
    /// Takes a step.
    pub fn see(&mut self, step: &Step) {
        if step.stage == "arrive" {
            *self.arriving.entry(step.whose.clone()).or_default() += 1;
            return;
        }
        if step.stage == "admit" {
            let agent = step.whose.split('/').next().unwrap_or_default();
            *self.arriving.entry(agent.to_owned()).or_default() -= 1;
        }
        self.sessions.insert(step.whose.clone(), step.stage.clone());
    }

    /// How many are at each stage.
    pub fn hits(&self) -> Hits {
        let mut hits = Hits::default();
        hits[0] = u64::try_from(self.arriving.values().filter(|n| **n > 0).sum::<i64>()).unwrap_or(0);
        for stage in self.sessions.values() {
            if let Some(at) = STAGES.iter().position(|known| known == stage) {
                hits[at] += 1;
            }
        }
        hits
    }
}

/// Everything that all processes said.
#[derive(Debug, Default)]
pub struct Trail {
    /// About sessions.
    pub steps: Vec<Step>,
    /// Errors and panics, as they were written.
    pub trouble: Vec<String>,
    /// Warnings by text, numbers left out.
    pub warnings: BTreeMap<String, u64>,
    /// Last address of an HTTP API, with the process.
    pub listening: Option<(u32, String)>,
    /// When each process was started.
    pub started: HashMap<u32, Instant>,
    /// From the start of a process to its address, of each that got so far.
    pub start_times: Vec<Duration>,
}

impl Trail {
    /// Reads a line of the log of a process.
    pub fn read(&mut self, pid: u32, line: &str) -> Option<Step> {
        let Ok(value) = serde_json::from_str::<Value>(line) else {
            self.trouble.push(format!("{pid}: {line}"));
            return None;
        };
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        if value["target"] == "trellis::stage" {
            let whose = if value["session"].is_string() { text("session") } else { text("agent") };
            let step = Step { at: text("timestamp"), pid, whose, turn: value["turn"].as_u64(), stage: text("stage") };
            self.steps.push(step.clone());
            return Some(step);
        }
        match value["level"].as_str() {
            Some("ERROR") => self.trouble.push(format!("{pid}: {line}")),
            Some("WARN") => {
                let plain: String = text("message").chars().filter(|c| !c.is_ascii_digit()).collect();
                *self.warnings.entry(plain).or_default() += 1;
            }
            _ => {
                if let Some(rest) = text("message").strip_prefix("HTTP API on ") {
                    self.start_times.extend(self.started.get(&pid).map(Instant::elapsed));
                    self.listening = Some((pid, rest.split(' ').next().unwrap_or_default().to_owned()));
                }
            }
        }
        None
    }

    /// Turns for which the model was asked after their reply had been recorded. `tools` is said
    /// once the reply is durable, and never before.
    pub fn asked_after_record(&self) -> Vec<String> {
        let mut recorded: HashMap<(&str, u64), &Step> = HashMap::new();
        for step in self.steps.iter().filter(|step| step.stage == "tools") {
            let Some(turn) = step.turn else { continue };
            let first = recorded.entry((&step.whose, turn)).or_insert(step);
            if step.at < first.at {
                *first = step;
            }
        }
        let asked = self.steps.iter().filter(|step| step.stage == "model").filter_map(|step| {
            let first = recorded.get(&(step.whose.as_str(), step.turn?))?;
            (step.at > first.at).then(|| {
                format!(
                    "{}/{} was asked at {} by {} after its reply was recorded at {} by {}",
                    step.whose,
                    step.turn.unwrap_or_default(),
                    step.at,
                    step.pid,
                    first.at,
                    first.pid
                )
            })
        });
        asked.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(at: &str, whose: &str, turn: Option<u64>, stage: &str) -> Step {
        Step { at: at.into(), pid: 1, whose: whose.into(), turn, stage: stage.into() }
    }

    #[test]
    fn the_last_line_of_a_session_says_where_it_died() {
        let mut places = Places::default();
        for (whose, stage) in [("a", "arrive"), ("a/s", "admit"), ("a/s", "commit"), ("a", "arrive"), ("b/s", "idle")] {
            places.see(&step("1", whose, None, stage));
        }
        assert_eq!(places.hits(), [1, 0, 0, 0, 0, 0, 0, 1, 0]);
    }

    #[test]
    fn only_model_calls_after_the_record_are_found() {
        let mut trail = Trail::default();
        for (at, turn, stage) in [("1", 1, "model"), ("2", 1, "model"), ("3", 1, "tools"), ("4", 2, "model")] {
            trail.steps.push(step(at, "a/s", Some(turn), stage));
        }
        assert_eq!(trail.asked_after_record(), [] as [String; 0]);
        trail.steps.push(step("5", "a/s", Some(1), "model"));
        assert_eq!(trail.asked_after_record().len(), 1);
    }
}
