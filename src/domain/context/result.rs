//! The result of a call as the model sees it: all of it, or a part of it and the way to read on.

use super::budget::{PromptBudget, RATIO_DEFAULT};
use crate::agent::AgentConfig;
use crate::foreign;
use crate::ids::JobId;
use crate::lattice::path::MAX_SEGMENTS;
use crate::lattice::{Namespace, Path};
use crate::limits::{ENTRY_FLOOR, TOOL_RESULT_BYTES};
use crate::render::{RenderOptions, render_counted, size_about};
use serde_json::Value;

/// Part of the context (1/3) that the results of one reply may always take.
const RESULTS_SHARE: usize = 3;
/// Part of the context (1/6) that stays free for the next reply if results take more than that.
const REPLY_SHARE: usize = 6;

/// Room for the results of one reply's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResultRoom {
    /// Bytes of all results together.
    all: usize,
}

impl ResultRoom {
    /// Returns a third of the context, or if that is more, the `left` bytes of the turn's prompt without a sixth of the
    /// context for the next reply: the model must see all results in its next turn, beside the events of this one.
    pub fn for_agent(config: &AgentConfig, left: usize) -> Self {
        let budget = PromptBudget::for_models(config.context_budget, &config.model, RATIO_DEFAULT);
        let third = budget.bytes / RESULTS_SHARE;
        Self { all: third.max(left.min(budget.bytes).saturating_sub(budget.bytes / REPLY_SHARE)) }
    }

    /// Returns the bytes that a single result may take.
    pub fn for_one(self) -> usize {
        self.all.clamp(ENTRY_FLOOR, TOOL_RESULT_BYTES)
    }

    /// Returns the bytes that each of so many results may always take.
    pub fn equal_share(self, calls: usize) -> usize {
        (self.all / calls.max(1)).clamp(ENTRY_FLOOR, TOOL_RESULT_BYTES)
    }

    /// Returns the bytes that each of the results may take; bytes that small ones don't need go to the large ones.
    pub fn fair_share(self, needs: &[usize]) -> usize {
        let mut needs = needs.to_vec();
        needs.sort_unstable();
        let (mut left, count) = (self.all, needs.len());
        for (at, need) in needs.into_iter().enumerate() {
            let share = left / (count - at);
            if need > share {
                return share.clamp(ENTRY_FLOOR, TOOL_RESULT_BYTES);
            }
            left -= need;
        }
        TOOL_RESULT_BYTES
    }
}

/// Where the rest of a cut result can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResultRest {
    /// The rest is in the tree, at a path.
    Stored {
        /// Path of the stored value.
        path: Path,
        /// The field of the result whose value is at the path; `None` for the whole result.
        field: Option<&'static str>,
    },
    /// The call can be made again for a smaller part.
    CallAgain,
    /// The rest is stored nowhere.
    Lost,
}

impl ResultRest {
    /// Returns the rest for the result of an operation, or of a delegate (`None`).
    pub fn for_result(operation: Option<&str>, arguments: &Value, result: &Value, is_read: bool) -> Self {
        let job = |id: &Value| {
            let path = job_field(&JobId::new(id.as_str()?).ok()?, "output")?;
            Some(Self::Stored { path, field: Some("output") })
        };
        let kept = match operation {
            Some("v/ops/lattice/read") => {
                Path::from_json(&arguments["path"]).ok().map(|path| Self::Stored { path, field: Some("value") })
            }
            // A job's record has its output; what an agent answers at once is the output of its job.
            Some("v/ops/job/result") => job(&result["id"]),
            None => job(&result["job"]),
            Some(path) if path.starts_with("v/ops/agent/") => job(&result["job"]),
            Some(_) => None,
        };
        kept.unwrap_or(if is_read { Self::CallAgain } else { Self::Lost })
    }

    /// Returns the rest of a value that is cut to `limit` bytes at the part of it to read on in: a page of what is above a
    /// part that no result can show whole is cut there again. Returns also whether it is another part.
    pub(super) fn narrow(self, value: &Value, limit: usize) -> (Self, bool) {
        let Self::Stored { path, field } = self else { return (self, false) };
        let part = find_large_part(field.map_or(value, |field| &value[field]), limit.saturating_sub(ENTRY_FLOOR));
        // Keys of the value may be long, and the mark must leave room for the content.
        let is_short = part.iter().map(String::len).sum::<usize>() <= limit / 4;
        let segments = segments_of(&path).map(str::to_owned).chain(part.iter().cloned()).collect();
        match Path::from_segments(segments) {
            Ok(inner) if is_short => (Self::Stored { path: inner, field }, !part.is_empty()),
            Ok(_) | Err(_) => (Self::Stored { path, field }, false),
        }
    }

    /// Describes how to read the rest. `characters` is the number of shown characters of a text.
    fn advice(&self, characters: Option<usize>) -> String {
        match self {
            Self::Stored { path, .. } => {
                let path = path_argument(path);
                let offset = characters.map(|offset| format!(", offset {offset}")).unwrap_or_default();
                format!("read on with lattice_slice, path {path}{offset}")
            }
            Self::CallAgain => "call again for a smaller part of it".to_owned(),
            Self::Lost => "the rest is not kept".to_owned(),
        }
    }
}

/// Returns the keys that lead to the part of a value whose own parts have at most about `most` bytes each: in each map or
/// list on the way it is the first larger one.
fn find_large_part(value: &Value, most: usize) -> Vec<String> {
    let (mut part, mut keys) = (value, Vec::new());
    loop {
        let is_large = |part: &Value| size_about(part) > most;
        let inner = match part {
            Value::Object(map) => map.iter().find(|(_, part)| is_large(part)).map(|(key, part)| (key.clone(), part)),
            Value::Array(items) => {
                items.iter().enumerate().find(|(_, part)| is_large(part)).map(|(at, part)| (at.to_string(), part))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        };
        // A longer path can't be named.
        let Some((key, inner)) = inner.filter(|_| keys.len() < MAX_SEGMENTS) else { return keys };
        keys.push(key);
        part = inner;
    }
}

/// Returns the path of a field of a job's record.
pub(super) fn job_field(job: &JobId, field: &str) -> Option<Path> {
    Path::from_segments([Namespace::Jobs.prefix(), job.as_str(), field].map(str::to_owned).to_vec()).ok()
}

/// Returns the mark behind the beginning of a cut content of `bytes` bytes. It stands in the content's last line,
/// because foreign text could imitate a line of its own.
pub(super) fn cut_mark(limit: usize, bytes: usize, rest: &ResultRest, characters: Option<usize>) -> String {
    format!(" [cut to {limit} of {bytes} bytes; {}]", rest.advice(characters))
}

/// Writes a path as an argument takes it.
fn path_argument(path: &Path) -> String {
    if path.segments().iter().all(|segment| !segment.contains('/')) { format!("`{path}`") } else { path_keys(path) }
}

/// Writes a path as a JSON array of its keys.
fn path_keys(path: &Path) -> String {
    foreign::json_line(&segments_of(path).collect())
}

/// Returns the segments of a path, with its namespace first.
fn segments_of(path: &Path) -> impl Iterator<Item = &str> {
    std::iter::once(path.namespace().prefix()).chain(path.segments().iter().map(String::as_str))
}

/// Whether the mark of a cut content names a path or one below it.
pub(super) fn names_below(mark: &str, path: &Path) -> bool {
    let keys = path_keys(path);
    let begins = [format!("`{path}`"), format!("`{path}/"), keys.trim_end_matches(']').to_owned()];
    begins.iter().any(|begin| mark.contains(begin))
}

/// Renders a result in at most `limit` bytes.
pub fn tool_result(result: &Value, limit: usize, rest: &ResultRest) -> String {
    let full = match result {
        Value::String(text) => text.clone(),
        other => foreign::json_line(other),
    };
    if full.len() <= limit {
        return full;
    }
    let (rest, is_inner) = rest.clone().narrow(result, limit);
    let mark = |characters| cut_mark(limit, full.len(), &rest, characters);
    let budget = limit.saturating_sub(mark(Some(full.len())).len());
    // A cut text inside a result may be another than the one at the path.
    let text_at_path = match (&rest, result) {
        _ if is_inner => false,
        (ResultRest::Stored { field: None, .. }, Value::String(_)) => true,
        (ResultRest::Stored { field: Some(field), .. }, result) => result[*field].is_string(),
        (ResultRest::Stored { field: None, .. } | ResultRest::CallAgain | ResultRest::Lost, _) => false,
    };
    let (shown, characters) = match result {
        Value::String(text) => {
            let shown = &text[..text.floor_char_boundary(budget)];
            (shown.to_owned(), Some(shown.chars().count()))
        }
        other => render_counted(other, RenderOptions { budget, pretty: false }),
    };
    format!("{shown}{}", mark(characters.filter(|_| text_at_path)))
}

/// Shortens a text whose rest is stored nowhere to at most `limit` bytes.
pub fn shorten_text(text: &str, limit: usize) -> String {
    tool_result(&Value::String(text.to_owned()), limit, &ResultRest::Lost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const JOB: &str = "00112233445566778899aabbccddeeff";

    fn stored_rest(path: &str, field: Option<&'static str>) -> ResultRest {
        ResultRest::Stored { path: Path::parse(path).unwrap(), field }
    }

    #[test]
    fn a_result_shows_all_of_its_room() {
        let check = |result: &Value, rest: &ResultRest, ends: &str| {
            for limit in [1_000, 32_768] {
                let text = tool_result(result, limit, rest);
                assert!(text.len() <= limit && text.len() + 150 > limit, "{} of {limit}: {text:.200}", text.len());
                assert!(text.contains(&format!(" [cut to {limit} of ")) && text.ends_with(ends), "{text}");
            }
        };
        let (text, rows) = ("é b\n".repeat(20_000), (0..30_000).collect::<Value>());
        check(&json!(text), &ResultRest::Lost, "; the rest is not kept]");
        check(&json!({"body": text, "status": 200}), &ResultRest::CallAgain, "; call again for a smaller part of it]");
        check(&json!({"exists": true, "value": rows, "version": 3}), &stored_rest("w/x", Some("value")), "path `w/x`]");
        let keys = Path::from_json(&json!(["w", "a/b", "c"])).unwrap();
        check(&rows, &ResultRest::Stored { path: keys, field: None }, "path [\"w\",\"a/b\",\"c\"]]");
    }

    #[test]
    fn a_text_is_read_on_where_it_was_cut() {
        let text: String = ('a'..='z').cycle().take(50_000).chain("é".chars()).collect();
        let check = |result: &Value, rest: &ResultRest| {
            let shown = tool_result(result, 5_000, rest);
            let offset: usize = shown.rsplit_once(", offset ").unwrap().1.trim_end_matches(']').parse().unwrap();
            let begin: String = text.chars().take(offset).collect();
            assert!(shown.contains(&begin) && !shown.contains(&text[..=offset]), "{shown}");
        };
        check(&json!(text), &stored_rest("w/x", None));
        check(&json!({"exists": true, "value": text, "version": 3}), &stored_rest("w/x", Some("value")));
        check(&json!({"id": JOB, "output": text}), &stored_rest("j/1/output", Some("output")));
    }

    #[test]
    fn the_path_of_a_rest_is_one_at_which_a_page_shows_more() {
        let (text, rows) = ("x".repeat(50_000), json!(vec!["row of a table"; 5_000]));
        let mut deep = rows.clone();
        (0..300).for_each(|_| deep = json!([deep]));
        for (value, expected) in [
            (json!({"rows": rows, "ok": true}), "path `w/x/rows`]"),
            (json!({"ok": true, "inner": {"n": 1, "text": text}}), "path `w/x/inner/text`]"),
            (json!({"a": text, "b": text}), "path `w/x/a`]"),
            (json!([1, {"rows": rows}]), "path `w/x/1/rows`]"),
            (json!({"a/b": rows}), "path [\"w\",\"x\",\"a/b\"]]"),
            (rows.clone(), "path `w/x`]"),
            (json!({"k".repeat(2_000): rows}), "path `w/x`]"),
            (json!({"a\nb": rows}), "path `w/x`]"),
            ((0..200).map(|n| (n.to_string(), json!("small".repeat(90)))).collect::<Value>(), "path `w/x`]"),
            (deep, "path `w/x`]"),
        ] {
            let read = tool_result(&json!({"exists": true, "value": value}), 5_000, &stored_rest("w/x", Some("value")));
            assert!(read.len() <= 5_000 && read.ends_with(expected), "{expected}: {read}");
            let whole = tool_result(&value, 5_000, &stored_rest("w/x", None));
            assert!(whole.len() <= 5_000 && whole.ends_with(expected), "{expected}: {whole}");
        }
    }

    #[test]
    fn a_result_that_fits_is_shown_in_full() {
        for (result, limit, expected) in [
            (json!("text"), 4, "text"),
            (json!({"a": [1, "x"]}), 15, r#"{"a":[1,"x"]}"#),
            (json!("x".repeat(32_768)), 32_768, &"x".repeat(32_768)),
        ] {
            assert_eq!(tool_result(&result, limit, &ResultRest::Lost), expected);
        }
    }

    #[test]
    fn the_rest_is_where_the_operation_keeps_it() {
        let job = ResultRest::Stored { path: Path::parse(&format!("j/{JOB}/output")).unwrap(), field: Some("output") };
        let check = |operation: Option<&str>, arguments: Value, result: Value, is_read: bool, expected: &ResultRest| {
            assert_eq!(
                ResultRest::for_result(operation, &arguments, &result, is_read),
                *expected,
                "{operation:?} {arguments}"
            );
        };
        let read = Some("v/ops/lattice/read");
        check(read, json!({"path": "w/x"}), json!({}), true, &stored_rest("w/x", Some("value")));
        check(read, json!({"path": ["w", "x"]}), json!({}), true, &stored_rest("w/x", Some("value")));
        check(read, json!({"paths": ["w/x"]}), json!({}), true, &ResultRest::CallAgain);
        check(Some("v/ops/job/result"), json!({"id": JOB}), json!({"id": JOB}), true, &job);
        check(Some("v/ops/agent/request"), json!({}), json!({"job": JOB, "output": 1}), false, &job);
        check(None, json!({}), json!({"job": JOB, "output": 1}), false, &job);
        check(None, json!({}), json!({"output": 1}), false, &ResultRest::Lost);
        check(Some("v/ops/http/get"), json!({"id": JOB}), json!({"job": JOB}), true, &ResultRest::CallAgain);
        check(Some("v/ops/http/post"), json!({}), json!({}), false, &ResultRest::Lost);
    }

    #[test]
    fn results_share_by_need() {
        let check = |needs: &[usize], expected: usize| {
            assert_eq!(ResultRoom { all: 60_000 }.fair_share(needs), expected, "{needs:?}");
        };
        check(&[100_000], 32_768);
        check(&[32_000, 20_000, 100], 32_768);
        check(&[32_768, 32_768, 100, 100], 29_900);
        check(&[32_768, 100, 30_000, 100], 29_900);
        check(&[20_000; 6], 10_000);
        check(&[1_000; 600], 256);
        check(&[], 32_768);
    }

    #[test]
    fn results_take_what_the_prompt_has_left() {
        let config = AgentConfig::parse(&json!({"model": {"provider": "scripted", "name": "echo"}})).unwrap();
        for (left, expected) in [(0, 60_000), (90_000, 60_000), (160_000, 130_000), (999_999, 150_000)] {
            assert_eq!(ResultRoom::for_agent(&config, left), ResultRoom { all: expected }, "{left}");
        }
    }
}
