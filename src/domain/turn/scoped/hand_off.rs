//! Cuts sections to the most bytes that a call may hand on; the renderer notes what was left out.

use super::capture::SectionPart;
use crate::context::item::ItemContent;
use crate::render::size_about;
use crate::scope::ScopedSection;
use serde_json::Value;

/// Bytes by which a cut value may exceed its budget: a comment or a number that can't be shorter.
const SLACK: usize = 40;

/// Renders these parts in at most `limit` bytes together: small ones in full, large ones with equal shares of the rest.
pub(super) fn fit_sections(parts: &[&SectionPart], limit: usize) -> Vec<ScopedSection> {
    let sizes: Vec<usize> = parts.iter().map(|part| size(&part.content)).collect();
    let shares = shares(&sizes, limit);
    parts.iter().zip(sizes).zip(shares).map(|((part, of), share)| scoped_section(part, of, share)).collect()
}

fn size(content: &ItemContent) -> usize {
    match content {
        ItemContent::Text(text) => text.len(),
        ItemContent::Excerpt { text, of } => text.len().max(*of),
        ItemContent::Value(value) => size_about(value),
        ItemContent::Absent(..) => 0,
    }
}

/// Splits `limit` into a share for each size. No share exceeds its size; unused bytes go to the others.
fn shares(sizes: &[usize], limit: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|at| sizes[*at]);
    let mut shares = vec![0; sizes.len()];
    let mut left = limit;
    for (done, at) in order.into_iter().enumerate() {
        let share = left / (sizes.len() - done);
        shares[at] = sizes[at].min(share);
        left -= shares[at];
    }
    shares
}

fn scoped_section(part: &SectionPart, of: usize, share: usize) -> ScopedSection {
    let none = |missing| (Value::Null, 0, 0, missing);
    // Sizes are estimates; a value within its estimate must not be cut for a byte.
    let budget = if share < of { share.saturating_sub(SLACK) } else { share + SLACK };
    let (content, bytes, of, missing) = match part.content.render(budget) {
        Err((_, reason)) => none(Some(reason.to_owned())),
        Ok(shown) => {
            let (bytes, whole) = (shown.text.len(), shown.whole);
            let content = match &part.content {
                ItemContent::Value(value) if whole => value.clone(),
                ItemContent::Text(_)
                | ItemContent::Excerpt { .. }
                | ItemContent::Value(_)
                | ItemContent::Absent(..) => shown.text.into_owned().into(),
            };
            (content, bytes, if whole { bytes } else { of.max(bytes + 1) }, None)
        }
    };
    ScopedSection {
        key: part.key.clone(),
        source: part.source.clone(),
        needs: part.needs.clone(),
        received: part.received,
        under: part.under.clone(),
        reads: part.reads.clone(),
        content,
        bytes,
        of,
        missing,
        empty: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_sections_stay_whole_and_large_ones_share_the_rest() {
        for (sizes, limit, expected) in [
            (vec![], 100, vec![]),
            (vec![10, 20], 100, vec![10, 20]),
            (vec![500], 100, vec![100]),
            (vec![10, 500, 500], 100, vec![10, 45, 45]),
            (vec![500, 30, 60], 100, vec![35, 30, 35]),
            (vec![0, 0], 100, vec![0, 0]),
        ] {
            assert_eq!(shares(&sizes, limit), expected, "{sizes:?}");
        }
    }
}
