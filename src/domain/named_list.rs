//! Settings by names, `name:value, name:value`. A name may hold colons, as `did:key:z6Mk` and `ollama/qwen3:8b` do.

/// Reads values by names, with commas between, each name once. `read_name` and `read_value` return `None` for what is
/// illegal.
pub fn parse_named_list<N: PartialEq, V>(
    text: &str,
    read_name: impl Fn(&str) -> Option<N>,
    read_value: impl Fn(&str) -> Option<V>,
) -> Option<Vec<(N, V)>> {
    let mut all: Vec<(N, V)> = Vec::new();
    if text.trim().is_empty() {
        return Some(all);
    }
    for entry in text.split(',') {
        let (name, value) = split_entry(entry)?;
        let name = read_name(name.trim())?;
        if all.iter().any(|(known, _)| *known == name) {
            return None;
        }
        all.push((name, read_value(value.trim())?));
    }
    Some(all)
}

/// Splits `name:value` before its last part, or before all parts with `=` at its end: `cost=1` and `tokens=5:cost=1` are
/// values.
fn split_entry(entry: &str) -> Option<(&str, &str)> {
    let mut colon = entry.rfind(':')?;
    while let Some(before) = entry[..colon].rfind(':').filter(|before| entry[before + 1..colon].contains('=')) {
        colon = before;
    }
    Some((&entry[..colon], &entry[colon + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_split_before_its_value() {
        for (entry, expected) in [
            ("acme:500", Some(("acme", "500"))),
            ("did:key:z6Mk:500", Some(("did:key:z6Mk", "500"))),
            ("did:key:z6Mk:tokens=5:cost=1", Some(("did:key:z6Mk", "tokens=5:cost=1"))),
            ("did:key:z6Mk:none", Some(("did:key:z6Mk", "none"))),
            ("acme:", Some(("acme", ""))),
            (":cost=1", Some(("", "cost=1"))),
            ("acme", None),
        ] {
            assert_eq!(split_entry(entry), expected, "{entry}");
        }
    }
}
