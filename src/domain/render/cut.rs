//! Text that was cut says so.

/// Bytes of the mark that a cut text ends with.
const CUT_MARK: usize = 40;

/// Cuts text to its budget on a character boundary, and says how many bytes of the whole (`of`)
/// are left out.
pub fn cut(text: &str, of: usize, budget: usize) -> String {
    if text.len() <= budget && of <= text.len() {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(budget.saturating_sub(CUT_MARK));
    format!("{} [truncated: {} bytes omitted]", &text[..end], of - end)
}
