//! Reasons of empty hand-overs. The calling model and its timeline get the reason; the receiver gets no more of it than
//! it may know.

use super::ScopedSection;
use crate::lines;
use serde_json::Value;

impl ScopedSection {
    /// Makes a section without content, for a reason.
    pub(crate) fn without_content(key: &str, reason: String) -> Self {
        Self {
            key: key.to_owned(),
            source: None,
            needs: Vec::new(),
            received: false,
            under: None,
            reads: Vec::new(),
            content: Value::Null,
            bytes: 0,
            of: 0,
            missing: Some(reason),
            empty: true,
        }
    }
}

/// Returns what the receiver of an empty section gets: independent of instances, and `None` for sections with a label,
/// a path or a name, which belong to the caller.
pub(crate) fn receiver_reason(name: &str) -> Option<&'static str> {
    Some(match name {
        "input" => "your caller has no input for this call",
        "inbox" => "your caller has no messages for this call",
        "pending" => "your caller has no results or running jobs for this call",
        "transcript" => "nothing was said before this call",
        "goal" => "your caller has no goals for this call",
        "state" | "session" => "your caller keeps nothing in it for this call",
        _ => return None,
    })
}

/// Returns the text for a model whose call got none of its sections.
pub fn empty_hand_off_note(scoped: &[ScopedSection]) -> Option<String> {
    let reasons = scoped.iter().map(|section| Some(format!("`{}`: {}", section.key, section.missing.as_ref()?)));
    let reasons: Vec<_> = reasons.collect::<Option<_>>()?;
    (!reasons.is_empty()).then(|| format!("{}{}]", lines::NOTHING_WENT, reasons.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_hand_off_is_told_all_its_reasons() {
        let (none, gone) = (
            ScopedSection::without_content("input", "no task".into()),
            ScopedSection::without_content("loads/w/x", "gone".into()),
        );
        let some = ScopedSection { content: "x".into(), bytes: 1, of: 1, missing: None, ..none.clone() };
        let both = "[nothing of your context went with this call: `input`: no task; `loads/w/x`: gone]";
        assert_eq!(empty_hand_off_note(&[none.clone(), gone]), Some(both.to_owned()));
        assert_eq!((empty_hand_off_note(&[]), empty_hand_off_note(&[none, some])), (None, None));
    }
}
