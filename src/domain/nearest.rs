//! "Did you mean": the known name nearest to a misspelt one.

/// The known name that is most like `given`, when one is like it at all.
pub fn nearest<'k>(given: &str, known: &[&'k str]) -> Option<&'k str> {
    known
        .iter()
        .map(|name| (strsim::jaro_winkler(&given.to_lowercase(), &name.to_lowercase()), *name))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

/// The same for the end of an error: a question, or nothing.
pub fn did_you_mean(given: &str, known: &[&str]) -> String {
    nearest(given, known).map(|name| format!(", did you mean `{name}`")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{did_you_mean, nearest};

    #[test]
    fn only_a_likely_name_is_proposed() {
        let known = ["systemPrompt", "tools", "context"];
        assert_eq!(nearest("systemprompt", &known), Some("systemPrompt"));
        assert_eq!(nearest("tool", &known), Some("tools"));
        assert_eq!(nearest("qqq", &known), None);
        assert_eq!(did_you_mean("tool", &known), ", did you mean `tools`");
        assert_eq!(did_you_mean("qqq", &known), "");
    }
}
