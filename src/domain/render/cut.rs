//! Texts that are cut, with a mark that says so.

/// Bytes of the mark at the end of a cut text.
const CUT_MARK: usize = 40;

/// Cuts a text to its budget on a character boundary, and appends how many bytes of the whole (`of`) are left out.
pub fn cut_text(text: &str, of: usize, budget: usize) -> String {
    if text.len() <= budget && of <= text.len() {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(budget.saturating_sub(CUT_MARK));
    format!("{} [truncated: {} bytes omitted]", &text[..end], of - end)
}
