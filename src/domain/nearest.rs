//! Suggestions for misspelt names: the known name nearest to a given one.

/// Bytes of a word above which nothing is compared: a comparison costs the product of two lengths, and names of this
/// program are shorter.
const LONGEST: usize = 96;

/// Returns the known name most like `given`, if a slip of typing can explain the difference: a name that only begins
/// alike would mislead.
pub fn nearest<'k>(given: &str, known: &[&'k str]) -> Option<&'k str> {
    if given.len() > LONGEST {
        return None;
    }
    let given = given.to_lowercase();
    known
        .iter()
        .filter(|name| is_slip(&given, &name.to_lowercase()))
        .max_by(|a, b| {
            let likeness = |name: &str| strsim::jaro_winkler(&given, &name.to_lowercase());
            likeness(a).total_cmp(&likeness(b))
        })
        .copied()
}

/// Whether one name is the other with one wrong, missing, additional or swapped character per four. Common leading
/// segments of two paths are not compared.
fn is_slip(given: &str, known: &str) -> bool {
    let common = given.char_indices().zip(known.chars()).take_while(|((_, a), b)| a == b);
    let common = common.filter(|((_, c), _)| *c == '/').last().map_or(0, |((at, _), _)| at + 1);
    let (given, known) = (&given[common..], &known[common..]);
    // This case covers `_automatic` for `_auto`.
    if known.chars().count() >= 4 && given.starts_with(known) {
        return true;
    }
    let lengths = [given.chars().count(), known.chars().count()];
    let (long, short) = (lengths[0].max(lengths[1]), lengths[0].min(lengths[1]));
    let most = long.div_ceil(4);
    long - short <= most && strsim::osa_distance(given, known) <= most
}

/// Returns the suggestion for the end of an error text, or an empty text.
pub fn did_you_mean(given: &str, known: &[&str]) -> String {
    suggestion(nearest(given, known))
}

/// Returns the suggestion of a name for the end of an error text, or an empty text without a name.
pub fn suggestion(name: Option<&str>) -> String {
    name.map(|name| format!(", did you mean `{name}`")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, did_you_mean, nearest};

    #[test]
    fn only_a_likely_name_is_proposed() {
        let known = ["systemPrompt", "tools", "context"];
        assert_eq!(nearest("systemprompt", &known), Some("systemPrompt"));
        assert_eq!(nearest("tool", &known), Some("tools"));
        assert_eq!(nearest("qqq", &known), None);
        assert_eq!(nearest("toools", &known), Some("tools"));
        assert_eq!(nearest("sytemPropmt", &known), Some("systemPrompt"));
        assert_eq!(nearest("content", &known), Some("context"));
        // Alike at their beginning, and far.
        assert_eq!(nearest("systemProperties", &known), None);
        assert_eq!(nearest("total", &["tools"]), None);
        assert_eq!(nearest("/api/v1/foo", &["/api/v1/why", "/api/v1/run"]), None);
        assert_eq!(nearest("/api/v1/job", &["/api/v1/jobs", "/api/v1/run"]), Some("/api/v1/jobs"));
        assert_eq!(nearest("", &known), None);
        let long = "a".repeat(LONGEST + 1);
        assert_eq!(nearest(&long, &[&long]), None, "no such word is compared");
        assert_eq!(did_you_mean("tool", &known), ", did you mean `tools`");
        assert_eq!(did_you_mean("qqq", &known), "");
    }
}
