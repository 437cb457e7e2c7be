//! Decides how many bytes a piece of content gets of the room that is left: all that it asks for, fewer, or none.

use super::item::{ItemContent, RenderedContent};
use super::ledger::{Row, RowStatus};
use super::text;
use crate::foreign::ForeignText;
use crate::limits::ENTRY_FLOOR;
use std::borrow::Cow;

/// The bytes that a part got, before it is put into its place.
pub(super) struct PartOffer<'c> {
    /// Text to show; `None` if there is too little room.
    pub(super) text: Option<ForeignText<'c>>,
    /// Row in the ledger, without a key.
    pub(super) row: Row,
    /// Bytes that it would have with room for all that it asks for.
    pub(super) wants: usize,
}

/// Offers the content behind `header` at most `room` of the `left` bytes of the budget.
pub(super) fn offer_bytes<'c>(
    header: &str,
    asked: Option<usize>,
    content: &'c ItemContent,
    left: usize,
    room: usize,
) -> PartOffer<'c> {
    let inline = text::is_inline(header);
    let content = text::quote_content(content, inline);
    let asked = asked.unwrap_or_else(|| content.default_bytes(left));
    let given = asked.min(room);
    // Looks at the whole value, so it runs only if the value isn't shown whole.
    let wants = || asked.min(content.bytes());
    let row = |given, rendered, status, reason| Row { asked, given, rendered, status, reason, ..Row::new_fixed("", 0) };
    let shown = match &content {
        Cow::Borrowed(content) => content.render(given),
        Cow::Owned(content) => content
            .render(given)
            .map(|RenderedContent { text, whole }| RenderedContent { text: text.into_owned().into(), whole }),
    };
    let Ok(RenderedContent { text: body, whole }) = shown else {
        return PartOffer { text: None, row: row(0, 0, RowStatus::Failed, None), wants: 0 };
    };
    let crowded = given < asked && given < ENTRY_FLOOR && !whole;
    if body.len() > room || crowded {
        let reason = format!("no room: {room} bytes were left");
        return PartOffer { text: None, row: row(0, 0, RowStatus::Dropped, Some(reason)), wants: wants() };
    }
    let status = if whole { RowStatus::Full } else { RowStatus::Shrunk };
    let reason = match (whole, given < asked) {
        (true, _) => None,
        (false, true) => Some("no more bytes were left".to_owned()),
        (false, false) => Some("larger than its budget".to_owned()),
    };
    // A content that is cut to its own budget wants no more.
    let wants = if given < asked && !whole { wants().max(body.len()) } else { body.len() };
    let row = row(given, body.len(), status, reason);
    let text = if inline { ForeignText::continue_line(body) } else { ForeignText::text(body) };
    PartOffer { text: Some(text), row, wants }
}
