//! Random changes of texts and JSON documents, the same for the same seed.

use serde_json::Value;

/// Pieces that have misled parsers before.
const TOKENS: [&str; 46] = [
    "..",
    ".",
    "/",
    "//",
    "/../",
    "%2e",
    "%2e%2e",
    "%2f",
    "%00",
    "\0",
    "\u{1f}",
    "\u{7f}",
    "\u{85}",
    "\n",
    "\t",
    " ",
    "\u{a0}",
    "\u{200b}",
    "\u{202e}",
    "\u{feff}",
    "\u{301}",
    "e\u{301}",
    "\u{e9}",
    "\u{212b}",
    "\u{ff0f}",
    "\u{2024}",
    "r/",
    "r",
    "w/",
    "w",
    "s/",
    "*",
    "/*",
    ">",
    "\\",
    "\"",
    "`",
    "#",
    "?",
    "://",
    "https://",
    "did:key:",
    "/acme/bob/",
    "_venue",
    "crud/write",
    "",
];

/// Small random numbers (splitmix64).
pub struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % n.max(1) as u64).unwrap()
    }

    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap()
    }
}

/// A few changes of a text, some of them by pieces of `others`.
pub fn text(random: &mut Random, origin: &str, others: &[String]) -> String {
    let mut bytes = origin.as_bytes().to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len() + 1);
        match random.below(8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 if at < bytes.len() => bytes[at] = random.byte(),
            2 if at < bytes.len() => {
                let end = at + 1 + random.below((bytes.len() - at).min(8));
                bytes.drain(at..end.min(bytes.len()));
            }
            3 => {
                let piece = piece(random, others);
                bytes.splice(at..at, piece.bytes());
            }
            4 => bytes.truncate(at),
            5 => {
                let times = 1 + random.below(40);
                let unit = TOKENS[random.below(TOKENS.len())].repeat(times);
                bytes.splice(at..at, unit.bytes());
            }
            _ => {
                let token = *random.pick(&TOKENS);
                let at = boundary(random, &bytes, at);
                bytes.splice(at..at, token.bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Mostly between two segments: there a piece becomes one.
fn boundary(random: &mut Random, bytes: &[u8], at: usize) -> usize {
    let slash = bytes[at..].iter().position(|byte| *byte == b'/').map(|found| at + found + 1);
    if random.below(2) == 0 { slash.unwrap_or(at) } else { at }
}

fn piece(random: &mut Random, others: &[String]) -> String {
    let Some(other) = (!others.is_empty()).then(|| random.pick(others)) else { return String::new() };
    let chars: Vec<char> = other.chars().collect();
    let from = random.below(chars.len() + 1);
    let to = from + random.below(chars.len() - from + 1);
    chars[from..to].iter().collect()
}

/// A few changes inside a JSON document, or now and then of its text.
pub fn json(random: &mut Random, origin: &str, others: &[String]) -> String {
    let parsed = serde_json::from_str::<Value>(origin);
    let Ok(mut document) = parsed else { return text(random, origin, others) };
    if random.below(8) == 0 {
        return text(random, origin, others);
    }
    for _ in 0..=random.below(2) {
        let count = leaves(&mut document, &mut |_, _| {});
        let chosen = random.below(count);
        let other = random.pick(others).clone();
        leaves(&mut document, &mut |at, value| {
            if at == chosen {
                change(random, value, &other);
            }
        });
    }
    document.to_string()
}

/// Visits every value with its number, a container before what is in it; their count.
fn leaves(document: &mut Value, visit: &mut dyn FnMut(usize, &mut Value)) -> usize {
    fn walk(value: &mut Value, next: &mut usize, visit: &mut dyn FnMut(usize, &mut Value)) {
        visit(*next, value);
        *next += 1;
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| walk(item, next, visit)),
            Value::Object(map) => map.values_mut().for_each(|item| walk(item, next, visit)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut next = 0;
    walk(document, &mut next, visit);
    next
}

fn change(random: &mut Random, value: &mut Value, other: &str) {
    match value {
        Value::String(held) if random.below(8) > 0 => *held = text(random, held, &[held.clone(), other.to_owned()]),
        Value::Array(items) if !items.is_empty() && random.below(6) > 0 => {
            let at = random.below(items.len());
            match random.below(4) {
                0 => drop(items.remove(at)),
                1 => items.push(items[at].clone()),
                2 => items.swap(at, 0),
                _ => items.clear(),
            }
        }
        Value::Object(map) if !map.is_empty() && random.below(6) > 0 => {
            let key = map.keys().nth(random.below(map.len())).cloned().unwrap_or_default();
            let held = map.remove(&key);
            if random.below(3) == 0 {
                map.insert(text(random, &key, &[]), held.unwrap_or_default());
            }
        }
        Value::Number(number) if random.below(4) > 0 => {
            let near = number.as_f64().unwrap_or_default();
            *value = match random.below(5) {
                0 => Value::from(-near),
                1 => Value::from(near + 0.5),
                2 => Value::from(near - 100.0),
                3 => Value::from(near * 1e300),
                _ => Value::from(near + 100.0),
            };
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            *value = match random.below(6) {
                0 => Value::Null,
                1 => Value::from(""),
                2 => Value::from(0),
                3 => Value::Array(Vec::new()),
                4 => (0..60).fold(Value::from("deep"), |inner, _| Value::Array(vec![inner])),
                _ => serde_json::json!({"with": random.pick(&TOKENS), "can": "*"}),
            };
        }
    }
}
