//! Counts the steps that keywords without inner schemas take: patterns, lists in the schema, long texts and lists.

use serde_json::{Map, Value};

/// States of a pattern times bytes of text that take one step. Where the library can't keep a pattern's states in its
/// cache, each takes up to 60 ns for each byte.
const PATTERN_WORK_PER_STEP: u64 = 64;

/// Elements of lists in the schema, or parts of a value, that take one step.
const ELEMENTS_PER_STEP: u64 = 16;

/// Bytes of a text that take one step when its length or format is checked.
const TEXT_BYTES_PER_STEP: u64 = 1024;

/// Bytes of a pattern that count as one state, because reading it takes time, too.
const PATTERN_BYTES_PER_STATE: usize = 32;

/// Keywords that read a whole text.
const TEXT_KEYWORDS: [&str; 5] = ["minLength", "maxLength", "format", "contentMediaType", "contentEncoding"];

/// Returns the steps that the keywords of one schema take for one value, without those of inner schemas.
pub(super) fn keyword_steps(keywords: &Map<String, Value>, value: &Value) -> u64 {
    let mut elements = length(keywords.get("enum"));
    let mut steps = 0_u64;
    match value {
        Value::String(text) => {
            let bytes = text.len() as u64;
            steps = keywords.get("pattern").and_then(Value::as_str).map_or(0, |pattern| pattern_steps(pattern, bytes));
            let readers = TEXT_KEYWORDS.iter().filter(|keyword| keywords.contains_key(**keyword)).count() as u64;
            steps = steps.saturating_add(readers * (bytes / TEXT_BYTES_PER_STEP));
        }
        Value::Object(map) => {
            let listed = ["properties", "required", "dependentRequired"];
            elements += listed.iter().map(|keyword| length(keywords.get(*keyword))).sum::<u64>();
            if let Some(Value::Object(patterns)) = keywords.get("patternProperties") {
                let names: u64 = map.keys().map(|name| name.len() as u64 + 1).sum();
                let each = patterns.keys().map(|pattern| pattern_steps(pattern, names));
                steps = each.fold(0, u64::saturating_add);
            }
        }
        Value::Array(_) if keywords.get("uniqueItems") == Some(&Value::Bool(true)) => elements += parts(value),
        Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    steps.saturating_add(elements / ELEMENTS_PER_STEP)
}

fn length(list: Option<&Value>) -> u64 {
    match list {
        Some(Value::Array(items)) => items.len() as u64,
        Some(Value::Object(map)) => map.len() as u64,
        _ => 0,
    }
}

/// Returns the number of values inside `value`, itself included; long texts count more.
fn parts(value: &Value) -> u64 {
    match value {
        Value::Array(items) => 1 + items.iter().map(parts).sum::<u64>(),
        Value::Object(map) => 1 + map.values().map(parts).sum::<u64>(),
        Value::String(text) => 1 + text.len() as u64 / TEXT_BYTES_PER_STEP,
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    }
}

fn pattern_steps(pattern: &str, bytes: u64) -> u64 {
    let states = pattern_states(pattern).saturating_add((pattern.len() / PATTERN_BYTES_PER_STATE) as u64);
    states.saturating_mul(bytes.saturating_add(1)) / PATTERN_WORK_PER_STEP
}

/// Returns at least as many states as may be active at once while a pattern runs: its letters and classes, each as
/// often as the repetitions around it say.
fn pattern_states(pattern: &str) -> u64 {
    let letters: Vec<char> = pattern.chars().collect();
    if is_ambiguous(pattern) {
        let counts = (0..letters.len()).filter_map(|at| repetition(&letters, at));
        return counts.fold(letters.len() as u64, |all, (count, _)| all.saturating_mul(count.max(1)));
    }
    // States before each open bracket, of the innermost group, and of the part before the next repetition.
    let (mut outer, mut inside, mut last) = (Vec::new(), 0_u64, 0_u64);
    let mut at = 0;
    while let Some(letter) = letters.get(at) {
        let mut next = at + 1;
        match letter {
            '(' => {
                outer.push(inside);
                (inside, last) = (0, 0);
            }
            ')' => {
                last = inside;
                inside = inside.saturating_add(outer.pop().unwrap_or(0));
            }
            '*' | '+' | '?' => {}
            _ => {
                if let Some((count, end)) = repetition(&letters, at) {
                    inside = inside.saturating_add(last.saturating_mul(count.saturating_sub(1)));
                    last = last.saturating_mul(count.max(1));
                    next = end;
                } else {
                    next = if *letter == '[' { class_end(&letters, at) } else { at + 1 + usize::from(*letter == '\\') };
                    last = 1;
                    inside = inside.saturating_add(1);
                }
            }
        }
        at = next;
    }
    outer.into_iter().fold(inside, u64::saturating_add)
}

/// Whether a pattern has what readers of patterns understand in different ways: a class that begins with `]`, or the
/// flag `x`, under which blanks and comments don't count.
fn is_ambiguous(pattern: &str) -> bool {
    let has_flag = |rest: &str| {
        let end = rest.find(|letter: char| !letter.is_ascii_alphabetic() && letter != '-').unwrap_or(rest.len());
        rest[..end].contains('x') && rest[end..].starts_with([':', ')'])
    };
    pattern.contains("[]") || pattern.contains("[^]") || pattern.split("(?").skip(1).any(has_flag)
}

/// Returns the most times that the bounded repetition at `at` repeats, and where it ends; `None` if it is none.
fn repetition(letters: &[char], at: usize) -> Option<(u64, usize)> {
    let inner = letters.get(at..)?.strip_prefix(&['{'])?;
    let length = inner.iter().position(|letter| !letter.is_ascii_digit() && !matches!(letter, ',' | ' '))?;
    if inner[length] != '}' {
        return None;
    }
    let numbers: String = inner[..length].iter().filter(|letter| **letter != ' ').collect();
    let most = numbers.split(',').filter(|number| !number.is_empty()).map(|number| number.parse().unwrap_or(u64::MAX));
    Some((most.max()?, at + length + 2))
}

/// Returns where the class ends that begins at `at`.
fn class_end(letters: &[char], at: usize) -> usize {
    let mut next = at + 1;
    while let Some(letter) = letters.get(next) {
        match letter {
            ']' => return next + 1,
            '\\' => next += 2,
            _ => next += 1,
        }
    }
    letters.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn states_are_counted_with_their_repetitions() {
        for (pattern, states) in [
            ("", 0),
            ("abc", 3),
            ("[abc]+", 1),
            (r"\d{4}-\d{2}", 7),
            ("(ab){10}", 20),
            ("((ab){10}c){10,}", 210),
            ("(a|b{3}){2,5}", 25),
            ("a{10}{10}", 100),
            ("a{2,", 4),
            (r"[\]{9}]{5}", 5),
            ("(([(]a){100}", 200),
            ("[(]{3}b", 4),
            (r"\({3}", 3),
        ] {
            assert!(pattern_states(pattern) >= states, "{pattern}: {}", pattern_states(pattern));
            assert!(pattern_states(pattern) <= states + 2, "{pattern}: {}", pattern_states(pattern));
        }
        // What can be read in two ways counts as the larger.
        for (pattern, least) in [("[](]a){100}", 100), ("(?x)(abc) {1000}", 3_000), ("(?ix:(abc)#\n{1000})", 3_000)] {
            assert!(pattern_states(pattern) >= least, "{pattern}: {}", pattern_states(pattern));
        }
        assert_eq!(pattern_states(&"(a{99999})".repeat(2).replace(')', "){99999}{99999999999999999999}")), u64::MAX);
    }

    #[test]
    fn long_texts_lists_and_patterns_take_more_steps() {
        let steps = |schema: Value, value: Value| keyword_steps(schema.as_object().unwrap(), &value);
        let long = json!("ab".repeat(5_000));
        assert!(steps(json!({"pattern": "^[a-z]+$"}), long.clone()) < 1_000);
        assert!(steps(json!({"pattern": "^[ab]*a[ab]{10000}$"}), long.clone()) > 1_000_000);
        assert_eq!(steps(json!({"pattern": "^[ab]*a[ab]{10000}$"}), json!(5)), 0);
        assert!(steps(json!({"minLength": 1}), json!("x".repeat(900_000))) > 800);
        assert_eq!(steps(json!({"minLength": 1}), json!("x")), 0);
        let names: Vec<String> = (0..1_600).map(|n| format!("k{n}")).collect();
        assert_eq!(steps(json!({"enum": names}), json!("x")), 100);
        assert_eq!(steps(json!({"required": names}), json!({})), 100);
        assert_eq!(steps(json!({"required": names}), json!([])), 0);
        assert_eq!(steps(json!({"uniqueItems": true}), json!(vec![vec![1; 15]; 100])), 100);
        assert!(steps(json!({"patternProperties": {"a{1000}": {}}}), json!({("k".repeat(6_400)): 1})) > 90_000);
    }
}
