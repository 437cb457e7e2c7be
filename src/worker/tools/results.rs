//! Results of one round of calls: each is shown alone as it comes; in the end all of them share the room.

use crate::domain::context::result::{ResultRest, ResultRoom, shorten_text, tool_result};
use crate::domain::turn::CallOutcome;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::BTreeMap;

/// Results of a round, and their room in bytes.
pub(super) struct CallResults {
    room: ResultRoom,
    /// Bytes that each result has in any case.
    equal: usize,
    /// Values of results that may have to be shortened.
    large: Mutex<BTreeMap<u32, LargeResult>>,
}

struct LargeResult {
    value: Value,
    rest: ResultRest,
    /// Bytes of the result's text; what follows it in an outcome is the venue's.
    text_bytes: usize,
}

impl CallResults {
    pub(super) fn new(room: ResultRoom, calls: usize) -> Self {
        Self { room, equal: room.equal_share(calls), large: Mutex::default() }
    }

    /// Returns the text of a result as if it were the only one.
    pub(super) fn show(&self, index: u32, value: Value, rest: impl FnOnce(&Value) -> ResultRest) -> String {
        let rest = rest(&value);
        let text = tool_result(&value, self.room.for_one(), &rest);
        if text.len() > self.equal {
            self.large.lock().insert(index, LargeResult { value, rest, text_bytes: text.len() });
        }
        text
    }

    /// Returns the outcomes in order; results share their room by need.
    pub(super) fn fit_to_room(&self, outcomes: Vec<(u32, CallOutcome)>) -> Vec<CallOutcome> {
        let needs: Vec<_> = outcomes.iter().map(|(_, outcome)| outcome.text.len()).collect();
        let limit = self.room.fair_share(&needs);
        let mut large = self.large.lock();
        let fit = outcomes.into_iter().map(|(index, outcome)| match large.remove(&index) {
            _ if outcome.text.len() <= limit => outcome,
            Some(LargeResult { value, rest, text_bytes: shown }) => {
                let (_, behind) = outcome.text.split_at(shown.min(outcome.text.len()));
                let text = format!("{}{behind}", tool_result(&value, limit.saturating_sub(behind.len()), &rest));
                CallOutcome { text, ..outcome }
            }
            // The value is not here: an earlier holder has made the call and recorded its text.
            None => CallOutcome { text: shorten_text(&outcome.text, limit), ..outcome },
        });
        fit.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::agent::AgentConfig;
    use crate::domain::call::Outcome;
    use serde_json::json;

    #[test]
    fn several_results_share_by_need() {
        let config = AgentConfig::parse(&json!({"model": {"provider": "scripted", "name": "echo"}})).unwrap();
        let value = |bytes: usize| json!({"value": "x".repeat(bytes), "exists": true});
        let check = |bytes: &[usize], expected: &[usize]| {
            let results = CallResults::new(ResultRoom::for_agent(&config, 0), bytes.len());
            let outcomes = (0..).zip(bytes).map(|(index, bytes)| {
                let text = results.show(index, value(*bytes), |_| ResultRest::Lost);
                (index, CallOutcome::from_text(Outcome::Ok, format!("{text}\n[behind]")))
            });
            let fit = results.fit_to_room(outcomes.collect());
            let near = |(outcome, expected): (&CallOutcome, &usize)| {
                outcome.text.len() <= *expected && outcome.text.len() + 150 > *expected
            };
            let lens: Vec<_> = fit.iter().map(|outcome| outcome.text.len()).collect();
            assert!(fit.iter().zip(expected).all(near), "{lens:?}, expected {expected:?}");
            assert!(fit.iter().all(|outcome| outcome.text.ends_with("\n[behind]")), "{lens:?}");
        };
        check(&[40_000, 100], &[32_800, 150]);
        check(&[40_000, 100, 40_000, 100], &[29_900, 150, 29_900, 150]);
        check(&[20_000, 20_000, 20_000, 10, 10], &[20_000, 20_000, 20_000, 50, 50]);
        check(&[90_000; 6], &[10_000; 6]);
    }

    #[test]
    fn a_predecessors_recorded_result_is_shortened_as_text() {
        let config = AgentConfig::parse(&json!({"model": {"provider": "scripted", "name": "echo"}})).unwrap();
        let results = CallResults::new(ResultRoom::for_agent(&config, 0), 3);
        let recorded = |index| (index, CallOutcome::from_text(Outcome::Ok, "x".repeat(32_000)));
        let fit = results.fit_to_room((0..3).map(recorded).collect());
        let is_cut = |outcome: &CallOutcome| outcome.text.len() == 20_000 && outcome.text.contains(" [cut to 20000 of");
        assert!(fit.iter().all(is_cut), "{}", &fit[0].text[19_900..]);
    }
}
