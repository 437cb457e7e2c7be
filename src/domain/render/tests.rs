//! The renderer's rules, by example and on random values read back with a strict reader.

use super::*;
use serde_json::json;
use std::time::{Duration, Instant};

fn compact(value: &Value, budget: usize) -> String {
    render(value, RenderOptions { budget, pretty: false })
}

fn pretty(value: &Value, budget: usize) -> String {
    render(value, RenderOptions { budget, pretty: true })
}

#[test]
fn values_within_the_budget_are_shown_in_full() {
    let value = json!({"a": 1, "b-c": [true, null, "x\"\n"], "$d_1": {}, "e": [], "1": -2.5});
    let full = r#"{a: 1, "b-c": [true, null, "x\"\n"], $d_1: {}, e: [], "1": -2.5}"#;
    assert_eq!(compact(&value, full.len()), full);
    assert_ne!(compact(&value, full.len() - 1), full);
    let lines = "{\n  a: 1,\n  \"b-c\": [\n    true,\n    null,\n    \"x\\\"\\n\"\n  ],\n  $d_1: {},\n  e: [],\n  \"1\": -2.5\n}";
    assert_eq!(pretty(&value, lines.len()), lines);
    assert_ne!(pretty(&value, lines.len() - 1), lines);
}

#[test]
fn cut_values_say_what_is_missing() {
    let long = "x".repeat(2000);
    let map = json!({"id": 7, "text": long, "tail": [1, 2, 3]});
    let many: Value = (0..100).collect();
    let twenty: Value = (1..=20).collect();
    let table: [(&Value, usize, &str); 14] = [
        (&json!({}), 0, "{}"),
        (&json!([]), 0, "[]"),
        (&json!(12345), 0, "12345"),
        (&json!(null), 0, "null"),
        (&map, 0, "{/* Map, 3 keys, 1.9KB */}"),
        (&map, 30, "{/* Map, 3 keys, 1.9KB */}"),
        (&many, 30, "[/* Vec, 100 items, 390B */]"),
        (&json!(long), 37, "null /* truncated String, 1.9KB */"),
        (&json!(long), 38, "\"xxxxxx\" /* String, 1.9KB */"),
        (&json!("short"), 6, "null /* truncated String, 5B */"),
        (&map, 60, "{id: 7, /* +2 more, 1.9KB */}"),
        (&map, 80, "{id: 7, text: null /* truncated String, 1.9KB */, /* +1 more, 1.9KB */}"),
        (&many, 60, "[0, 1, 2, 3, 4, 5, 6, /* +93 more, 390B */]"),
        (&json!([twenty, 1]), 46, "[[/* Vec, 20 items, 71B */], /* +1 more, 76B */]"),
    ];
    for (value, budget, expected) in table {
        assert_eq!(compact(value, budget), expected, "budget {budget}");
    }
    assert_eq!(pretty(&many, 60), "[\n  0,\n  1,\n  2,\n  /* +97 more, 390B */\n]");
}

/// Bytes that a cut value may leave unused: the reserve for the comment of each of up to four levels.
const SLACK: usize = 200;

#[test]
fn a_large_value_gets_the_room_of_small_ones() {
    let (long, list) = ("x".repeat(50_000), (0..20_000).collect::<Value>());
    let small: Map<String, Value> = (0..50).map(|n| (format!("k{n}"), json!(n))).collect();
    let with = |extra: &[(&str, &Value)]| {
        let extra = extra.iter().map(|(key, value)| ((*key).to_owned(), (*value).clone()));
        Value::Object(small.clone().into_iter().chain(extra).collect())
    };
    let check = |value: &Value| {
        for (budget, pretty) in [(2_000, false), (32_768, false), (32_768, true)] {
            let text = render(value, RenderOptions { budget, pretty });
            assert!(text.len() + SLACK >= budget, "{} of {budget}: {}", text.len(), &text[..200]);
            assert!(text.len() <= budget + 40, "{} of {budget}", text.len());
        }
    };
    check(&json!(long));
    check(&json!({"exists": true, "value": long, "version": 3}));
    check(&json!({"value": list, "exists": true, "a": null, "b": {"c": "d"}}));
    check(&json!({"a": {"b": {"c": {"small": 1, "text": long}}, "n": 2}, "more": [1, 2]}));
    check(&json!([1, {"id": 1, "text": long, "tail": "end"}]));
    check(&with(&[("text", &json!(long))]));
    check(&with(&[("text", &json!(long)), ("list", &list), ("other", &json!(long))]));
}

#[test]
fn large_values_share_what_small_ones_leave() {
    let long = "x".repeat(1_000);
    let text = compact(&json!({"a": long, "n": 1, "b": long, "c": "y".repeat(60)}), 330);
    let runs: Vec<_> = text.split(|c| c != 'x').filter(|run| run.len() > 1).map(str::len).collect();
    assert!(runs.len() == 2 && runs[0] == runs[1] && runs[0] > 70, "{text}");
    assert!(text.contains(&"y".repeat(60)) && text.contains("n: 1"), "{text}");
}

#[test]
fn sizes_have_three_forms_and_estimates_a_mark() {
    for (bytes, exact, expected) in [
        (0, true, "0B"),
        (1023, true, "1023B"),
        (1024, true, "1.0KB"),
        (4300, true, "4.1KB"),
        (1_048_575, true, "1023.9KB"),
        (1_048_576, true, "1.0MB"),
        (3 << 30, false, "~3.0GB"),
    ] {
        assert_eq!(size::format(bytes, exact), expected);
    }
}

/// An estimate is within a factor of two where the parts resemble each other, or one is large.
#[test]
fn estimates_are_near() {
    let rows: Value = (0..200_000).map(|n| json!({"id": n, "name": "somebody", "tags": [1, 2]})).collect();
    let one_large = json!({"rows": rows, "a": 1, "b": 2});
    for value in [&rows, &one_large] {
        let actual = compact(value, usize::MAX).len() >> 20;
        let text = compact(value, 20);
        let shown: usize = text.split_once('~').unwrap().1.split_once('.').unwrap().0.parse().unwrap();
        assert!(text.contains("MB") && (actual / 2..=actual * 2).contains(&shown), "{text} for {actual} MB");
    }
}

#[test]
fn data_that_looks_like_a_comment_stays_data() {
    let value = json!({"*/": "/* a */ // b", "k/*": ["*/", "\\\"*/"]});
    for budget in 0..90 {
        check(&value, budget);
        check_fit(&value, budget);
    }
}

#[test]
fn deep_and_huge_values_cost_what_the_budget_says() {
    let nested = |depth: usize| {
        (0..depth).fold(json!("core"), |inner, n| match n % 2 {
            0 => Value::Array(vec![inner]),
            _ => Value::Object([("k".to_owned(), inner)].into_iter().collect()),
        })
    };
    assert_eq!(compact(&nested(100), 10_000), compact(&nested(100), usize::MAX));
    for (depth, budgets) in [(100, [0, 40, 400, 4000]), (10_000, [40, 500, 32_768, usize::MAX])] {
        let value = nested(depth);
        for budget in budgets {
            check(&value, budget);
        }
    }
    let many: Value = (0..1_000_000).map(|n| json!([n])).collect();
    let blob = json!({"blob": "é".repeat(5_000_000), "rows": many});
    // Serialising any of these takes tens of milliseconds in this profile.
    for value in [&many, &blob, &json!([blob, 1])] {
        let quickest = (0..10).map(|_| {
            let start = Instant::now();
            check_bound(&compact(value, 500), 500);
            start.elapsed()
        });
        assert!(quickest.min().unwrap() < Duration::from_millis(5));
        check(value, 500);
    }
}

#[test]
fn random_values_read_back_at_every_budget() {
    for seed in 1..=40 {
        let value = Random(seed).value(3);
        let full = compact(&value, usize::MAX).len();
        for budget in (0..60).step_by(3).chain((60..full.min(4000) + 10).step_by(131)).chain([full - 1, full]) {
            check(&value, budget);
            check_fit(&value, budget);
        }
    }
}

/// Everything that holds for every value and budget.
fn check(value: &Value, budget: usize) {
    for pretty in [false, true] {
        let text = render(value, RenderOptions { budget, pretty });
        if !pretty {
            check_bound(&text, budget);
        }
        Reader::read(&text).must_come_from(value, &text);
    }
}

/// In full when that fits, and only then.
fn check_fit(value: &Value, budget: usize) {
    for pretty in [false, true] {
        let full = render(value, RenderOptions { budget: usize::MAX, pretty });
        let text = render(value, RenderOptions { budget, pretty });
        assert_eq!(text == full, full.len() <= budget || is_smallest(value), "{text}");
    }
}

/// Can't be shown smaller.
fn is_smallest(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
        Value::String(_) => false,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

fn check_bound(text: &str, budget: usize) {
    assert!(text.len() <= budget.max(VALUE_MIN).saturating_add(40), "{} bytes for {budget}: {text}", text.len());
}

/// Xorshift: the same values in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % bound
    }

    fn text(&mut self) -> String {
        const PIECES: [&str; 14] =
            ["a", "word ", "é", "😀", "\"", "\\", "\n", "\u{1}", "*/", "/*", "//", "'", "\u{2028}", "null"];
        let longest = [0, 1, 5, 30, 300][self.below(5)];
        (0..self.below(longest + 1)).map(|_| PIECES[self.below(PIECES.len())]).collect()
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.below(if depth == 0 { 5 } else { 8 }) {
            0 => Value::Null,
            1 => json!(self.below(2) == 0),
            2 => json!(i64::try_from(self.below(1 << 40)).unwrap() - (1 << 39)),
            3 => json!(
                f64::from(u32::try_from(self.below(1 << 30)).unwrap()) / 1e7 * [1.0, 1e-300, 1e280][self.below(3)]
            ),
            4 => json!(self.text()),
            5 | 6 => (0..self.below(12)).map(|_| (self.text(), self.value(depth - 1))).collect::<Map<_, _>>().into(),
            _ => (0..self.below(20)).map(|_| self.value(depth - 1)).collect(),
        }
    }
}

/// What a rendering shows, with the comments that say what it leaves out.
#[derive(Debug)]
enum Node {
    Word(String),
    Text(String),
    /// The comment after a string or null.
    Noted(Box<Node>, String),
    /// Items, and the comment at the end.
    List(Vec<Node>, Option<String>),
    Map(Vec<(String, Node)>, Option<String>),
}

impl Node {
    fn must_come_from(&self, value: &Value, shown: &str) {
        match (self, value) {
            (Self::Word(word), Value::Null | Value::Bool(_) | Value::Number(_)) => {
                assert_eq!(*word, value.to_string(), "{shown}");
            }
            (Self::Text(text), Value::String(whole)) => assert_eq!(text, whole, "{shown}"),
            (Self::Noted(inner, note), Value::String(whole)) => {
                let size = size::format(whole.len() as u64, true);
                match &**inner {
                    Self::Text(prefix) => {
                        assert!(whole.starts_with(prefix) && prefix.len() < whole.len(), "{shown}");
                        assert_eq!(*note, format!("String, {size}"));
                    }
                    Self::Word(word) if word == "null" => assert_eq!(*note, format!("truncated String, {size}")),
                    other => panic!("{other:?} in {shown}"),
                }
            }
            (Self::List(items, note), Value::Array(whole)) => {
                check_note(note.as_deref(), "Vec", "items", items.len(), whole.len());
                items.iter().zip(whole).for_each(|(item, value)| item.must_come_from(value, shown));
            }
            (Self::Map(items, note), Value::Object(whole)) => {
                check_note(note.as_deref(), "Map", "keys", items.len(), whole.len());
                for ((key, item), (whole_key, value)) in items.iter().zip(whole) {
                    assert_eq!(key, whole_key, "{shown}");
                    item.must_come_from(value, shown);
                }
            }
            (node, _) => panic!("{node:?} is not a {}: {shown}", crate::lattice::value::type_name(value)),
        }
    }
}

/// Nothing is left out without a word, and the word is right.
fn check_note(note: Option<&str>, kind: &str, unit: &str, shown: usize, all: usize) {
    match (note, shown) {
        (None, _) => assert_eq!(shown, all),
        (Some(note), 0) => assert!(note.starts_with(&format!("{kind}, {all} {unit}, ")), "{note}"),
        (Some(note), _) => assert!(note.starts_with(&format!("+{} more, ", all - shown)), "{note} of {all}"),
    }
}

/// A strict reader of the JSON5 that is written here.
struct Reader<'t> {
    rest: &'t str,
}

impl<'t> Reader<'t> {
    fn read(text: &'t str) -> Node {
        let mut reader = Self { rest: text };
        let node = reader.node();
        assert_eq!(reader.rest.trim(), "", "{text}");
        node
    }

    fn take(&mut self, token: &str) -> bool {
        self.rest = self.rest.trim_start();
        self.rest.strip_prefix(token).map(|rest| self.rest = rest).is_some()
    }

    fn comment(&mut self) -> Option<String> {
        if !self.take("/*") {
            return None;
        }
        let (comment, rest) = self.rest.split_once("*/").expect("the comment ends");
        self.rest = rest;
        Some(comment.trim().to_owned())
    }

    fn node(&mut self) -> Node {
        if self.take("[") {
            let mut items = Vec::new();
            let note = self.items("]", |reader| items.push(reader.node()));
            return Node::List(items, note);
        }
        if self.take("{") {
            let mut items = Vec::new();
            let note = self.items("}", |reader| {
                let key = if reader.rest.trim_start().starts_with('"') { reader.string() } else { reader.word(false) };
                assert!(reader.rest.starts_with(": "), "a colon before {}", reader.rest);
                reader.take(":");
                items.push((key, reader.node()));
            });
            return Node::Map(items, note);
        }
        let shown = if self.rest.trim_start().starts_with('"') {
            Node::Text(self.string())
        } else {
            Node::Word(self.word(true))
        };
        match self.comment() {
            Some(comment) => Node::Noted(Box::new(shown), comment),
            None => shown,
        }
    }

    /// Items up to `close`; returns the comment at the end.
    fn items(&mut self, close: &str, mut item: impl FnMut(&mut Self)) -> Option<String> {
        loop {
            if let Some(note) = self.comment() {
                assert!(self.take(close), "only a bracket after the last comment");
                return Some(note);
            }
            if self.take(close) {
                return None;
            }
            item(self);
            if !self.take(",") {
                assert!(self.take(close), "a bracket before {}", self.rest);
                return None;
            }
        }
    }

    fn string(&mut self) -> String {
        self.rest = self.rest.trim_start();
        let mut stream = serde_json::Deserializer::from_str(self.rest).into_iter::<String>();
        let text = stream.next().unwrap().unwrap();
        self.rest = &self.rest[stream.byte_offset()..];
        text
    }

    fn word(&mut self, value: bool) -> String {
        self.rest = self.rest.trim_start();
        let legal = |c: char| c.is_ascii_alphanumeric() || if value { "+-.".contains(c) } else { "_$".contains(c) };
        let end = self.rest.find(|c| !legal(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        if value {
            serde_json::from_str::<Value>(word).expect("a JSON scalar");
        } else {
            assert!(!word.is_empty() && !word.starts_with(|c: char| c.is_ascii_digit()), "a bare key, got `{word}`");
        }
        word.to_owned()
    }
}
