//! `v/ops/lattice/slice`: a page of an array, a map or a text.

use super::{need, page_at};
use crate::domain::lattice::Path;
use crate::domain::limits::READ_BYTES;
use crate::venue::operation::{Effect, Invocation, Need, OpError, OpOutput, Operation};
use crate::venue::tree::value_at;
use crate::view;
use crate::view::lattice::{EntryView, SliceView};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

/// Elements that the first step of a slice reads, and most elements of any step.
const SLICE_STEP: usize = 32;
const SLICE_MOST: usize = 128;

/// Default number of characters of a text: a tool's result shows them all.
const SLICE_CHARACTERS: usize = 8_000;

/// Read a page of the elements of an array, of the entries of a map, or of the characters of a text; of what is longer,
/// `next` is the offset to read on from.
#[derive(Deserialize, JsonSchema)]
pub(super) struct SliceValue {
    path: Path,
    /// elements, entries or characters before the page
    #[serde(default)]
    offset: usize,
    /// elements, entries or characters of the page; 100, of a text 8000, when absent
    limit: Option<usize>,
}

impl Operation for SliceValue {
    const PATH: &'static str = "v/ops/lattice/slice";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Ok(vec![need("crud/read", &self.path)])
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let Self { path, offset, limit } = self;
        let asked = limit;
        let limit = limit.unwrap_or(100);
        let absent = || Ok(OpOutput::of(&SliceView::default()));
        let (mut values, mut bytes, mut step) = (Vec::new(), 0, SLICE_STEP);
        loop {
            // The sizes are unknown: the first step reads few elements, later ones as many as the sizes allow.
            let (place, wanted) = (offset.saturating_add(values.len()), step.min(limit - values.len()));
            let Some(page) = page_at(call, &path, place, wanted, true).await? else { return absent() };
            let Some(count) = page.count else {
                return match value_at(call, &path).await? {
                    Some(Value::String(text)) => {
                        Ok(OpOutput::of(&slice_text(&text, offset, asked.unwrap_or(SLICE_CHARACTERS))))
                    }
                    None => absent(),
                    Some(_) => Err(OpError::Invalid(format!(
                        "`{path}` is a {}, expected a map, an array or a text",
                        page.kind
                    ))),
                };
            };
            let (kind, map, found) = (page.kind, page.kind == "map", page.items.len());
            let slice = |values: Vec<Value>| SliceView {
                exists: true,
                kind: Some(kind.to_owned()),
                count: Some(count),
                values: Some(values.into()),
                offset: Some(offset),
                ..SliceView::default()
            };
            for (key, value) in page.items {
                let value = if map { view::to_json(&EntryView { key, value }) } else { value };
                bytes += serde_json::to_vec(&value).map_or(0, |text| text.len());
                if bytes > READ_BYTES && !values.is_empty() {
                    let (truncated, next) = (Some(true), Some(offset + values.len()));
                    return Ok(OpOutput::of(&SliceView { truncated, next, ..slice(values) }));
                }
                values.push(value);
            }
            if found == 0 || offset.saturating_add(values.len()) >= count || values.len() >= limit {
                return Ok(OpOutput::of(&slice(values)));
            }
            step = if bytes < READ_BYTES / 8 { (step * 2).min(SLICE_MOST) } else { step };
        }
    }
}

/// Returns a page of a text, counted in characters.
fn slice_text(text: &str, offset: usize, limit: usize) -> SliceView {
    let count = text.chars().count();
    let place = |characters: usize| text.char_indices().nth(characters).map_or(text.len(), |(at, _)| at);
    let start = place(offset);
    let end = place(offset.saturating_add(limit)).min(text.floor_char_boundary(start.saturating_add(READ_BYTES)));
    let page = &text[start..end];
    SliceView {
        exists: true,
        kind: Some("string".to_owned()),
        count: Some(count),
        values: Some(page.into()),
        offset: Some(offset),
        truncated: None,
        next: (end < text.len()).then(|| offset + page.chars().count()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_sliced_in_characters() {
        let check = |(offset, limit): (usize, usize), values: &str, next: Option<usize>| {
            let sliced = slice_text("aé😀\nz", offset, limit);
            assert_eq!((sliced.values, sliced.count), (Some(Value::from(values)), Some(5)), "{offset} {limit}");
            assert_eq!(sliced.next, next, "{offset} {limit}");
        };
        check((0, 8_000), "aé😀\nz", None);
        check((0, 2), "aé", Some(2));
        check((2, 2), "😀\n", Some(4));
        check((4, 1), "z", None);
        check((5, 1), "", None);
        check((usize::MAX, usize::MAX), "", None);
        check((1, 0), "", Some(1));
    }

    #[test]
    fn a_page_of_a_text_has_its_limit_in_bytes() {
        let text = "é".repeat(READ_BYTES);
        let sliced = slice_text(&text, 1, usize::MAX);
        assert_eq!(sliced.values.as_ref().and_then(Value::as_str).map(str::len), Some(READ_BYTES));
        assert_eq!(sliced.next, Some(1 + READ_BYTES / 2));
    }
}
