//! Lattice paths as text and as lists of keys.

use super::mutate::{self, Random};
use super::{Target, Verdict};
use serde_json::Value;
use trellis::domain::authority::ResourcePath;
use trellis::domain::authority::capability::covers;
use trellis::domain::lattice::{Namespace, Path};
use unicode_normalization::UnicodeNormalization;

const SEEDS: [&str; 22] = [
    "w",
    "w/a",
    "/w/a/",
    "w/records/123/items/0",
    "g/agent/sessions/s/c/x",
    "g/agent/timeline/0/end",
    "c/draft",
    "n/notes",
    "t/x",
    "j/0123456789abcdef0123456789abcdef",
    "s/API_KEY",
    "v/ops/lattice/read",
    "w/\u{e9}t\u{e9}",
    "w/%2e%2e/x",
    "w/../s",
    "w//a",
    "r/app/user",
    r#"["w", "urls", "https://x/y", 0]"#,
    r#"["w", "a", "b"]"#,
    r#"["w", ".."]"#,
    r#"["w", "a\u0000"]"#,
    r#"["w/a", "b"]"#,
];

type Check = fn(&str, &mut Random) -> Result<Verdict, String>;

pub fn target() -> Target<Check> {
    let mutate = |random: &mut Random, origin: &str, others: &[String]| {
        if origin.starts_with('[') {
            mutate::json(random, origin, others)
        } else {
            mutate::text(random, origin, others)
        }
    };
    Target { name: "paths", seeds: SEEDS.map(str::to_owned).to_vec(), mutate, check }
}

/// What no segment may be, said once more.
pub fn is_clean(segment: &str) -> bool {
    let normal: String = segment.nfc().collect();
    let plain = segment.chars().all(|c| !matches!(u32::from(c), 0..=0x1f | 0x7f..=0x9f));
    !matches!(segment, "" | "." | "..") && plain && normal == segment
}

fn check(input: &str, _: &mut Random) -> Result<Verdict, String> {
    let keys = serde_json::from_str::<Value>(input).ok().filter(Value::is_array);
    let parsed = keys.as_ref().map_or_else(|| Path::parse(input), Path::from_json);
    let path = match parsed {
        Ok(path) => path,
        Err(error) => return Ok(Verdict::Refused(error.rule.to_string())),
    };
    let segments = path.segments();
    if let Some(bad) = segments.iter().find(|segment| !is_clean(segment) || segment.len() > 256) {
        return Err(format!("a path with the segment {bad:?} was accepted"));
    }
    let whole: Vec<String> =
        std::iter::once(path.namespace().prefix().to_owned()).chain(segments.iter().cloned()).collect();
    if Path::from_json(&Value::from(whole.clone())).as_ref() != Ok(&path) {
        return Err("its keys give another path".to_owned());
    }
    let has_slash = segments.iter().any(|segment| segment.contains('/'));
    if keys.is_none() && has_slash && !input.contains("\\/") {
        return Err("a text without `\\/` gave a key with a slash".to_owned());
    }
    if path.to_string().len() <= 2048 && Path::parse(&path.to_string()).as_ref() != Ok(&path) {
        return Err(format!("`{path}` gives another path"));
    }
    names_agree(&path, &whole)?;
    Ok(Verdict::Accepted)
}

/// The name that capabilities are compared with has one part for each key, and is covered by those
/// of the paths above it and by no other.
fn names_agree(path: &Path, whole: &[String]) -> Result<(), String> {
    let name = ResourcePath::from(path);
    let name = name.as_str();
    if name.split('/').count() != whole.len() {
        return Err(format!("{} keys are named {name:?}", whole.len()));
    }
    for length in 1..=whole.len() {
        let above = Path::from_segments(whole[..length].to_vec()).map_err(|error| error.to_string())?;
        if !covers(ResourcePath::from(&above).as_str(), name)
            || (length < whole.len() && covers(name, ResourcePath::from(&above).as_str()))
        {
            return Err(format!("`{above}` and `{path}` cover each other wrongly"));
        }
        let mut beside = whole[..length].to_vec();
        beside[length - 1].push('x');
        let beside = Path::from_segments(beside);
        if beside.is_ok_and(|beside| covers(ResourcePath::from(&beside).as_str(), name)) {
            return Err(format!("a path beside `{above}` covers `{path}`"));
        }
    }
    let known = Namespace::ALL.into_iter().filter(|namespace| covers(namespace.prefix(), name)).count();
    if known == 1 { Ok(()) } else { Err(format!("{known} namespaces cover `{path}`")) }
}
