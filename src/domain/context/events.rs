//! Results and messages in a prompt: how much of its room each takes, and where the rest of a cut one can be read.
//!
//! Shown events are consumed, so nothing is cut while there is room for it. An event without room beside the others of
//! its turn stays in the mailbox. If it has no room even alone, its beginning is shown with the path of the rest.

use super::item::ItemContent;
use super::ledger::{Row, RowStatus};
use super::offer::PartOffer;
use super::result::{ResultRest, cut_mark, job_field, names_below};
use super::text;
use crate::event::{Event, Payload};
use crate::foreign::ForeignText;
use crate::ids::EventId;
use crate::lattice::{Namespace, Path};
use crate::limits::{ENTRY_FLOOR, TOOL_RESULT_BYTES};
use crate::render::{RenderOptions, render, render_within};
use std::borrow::Cow;

/// Part of the budget (1/4) that events may always take.
const EVENTS_SHARE: usize = 4;
/// Parts of the budget (1/3 and 1/10) that stay free if events take more than that, because the events must be shown
/// again beside the next reply and the results of its calls.
const RESERVES: [usize; 2] = [3, 10];
/// Key in a session's scratch space for messages that a prompt could not show whole.
const MESSAGES_KEY: &str = "messages";

/// Room for one of the events of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EventRoom {
    /// Bytes for it in this prompt.
    now: usize,
    /// Bytes for it if it were the only event.
    alone: usize,
}

impl EventRoom {
    /// Returns the room if `left` bytes of the budget are left and other events have taken `taken`.
    pub(super) fn from_budget(budget: usize, left: usize, taken: usize) -> Self {
        let reserved: usize = RESERVES.iter().map(|share| budget / share).sum();
        let room = |left: usize, taken: usize| {
            (budget / EVENTS_SHARE).saturating_sub(taken).max(left.saturating_sub(reserved)).min(left)
        };
        Self { now: room(left, taken), alone: room(left.saturating_add(taken), 0) }
    }

    /// Returns the room below a header of so many bytes.
    const fn below_header(self, header: usize) -> Self {
        Self { now: self.now.saturating_sub(header), alone: self.alone.saturating_sub(header) }
    }
}

/// Offers an event's content behind its `header` the room that it has.
pub(super) fn offer_event<'c>(event: &Event, header: &str, content: &ItemContent, room: EventRoom) -> PartOffer<'c> {
    let room = room.below_header(header.len());
    let limit = content_limit(event).min(room.alone);
    let whole = whole_content(content, text::is_inline(header), limit);
    let takes = whole.as_ref().map_or(limit, String::len);
    let asked = takes.max(content.bytes().min(content_limit(event)));
    let row =
        |rendered, status, reason| Row { asked, given: rendered, rendered, status, reason, ..Row::new_fixed("", 0) };
    let (text, status, reason) = match whole {
        Some(text) if text.len() <= room.now => (text, RowStatus::Full, None),
        None if takes <= room.now && takes >= ENTRY_FLOOR => {
            let reason = if takes == content_limit(event) {
                "larger than its budget"
            } else {
                "no prompt has room for more of it"
            };
            (cut_body(event, header, content, takes), RowStatus::Shrunk, Some(reason.to_owned()))
        }
        Some(_) | None => {
            let reason = format!("left in the mailbox: it takes {takes} bytes, and {} were left", room.now);
            return PartOffer { text: None, row: row(0, RowStatus::Dropped, Some(reason)), wants: takes };
        }
    };
    let row = row(text.len(), status, reason);
    PartOffer { wants: text.len(), text: Some(quote_foreign(text, text::is_inline(header))), row }
}

/// Returns the most bytes of an event's content in a prompt. A result is also stored with its job, a message nowhere
/// else.
const fn content_limit(event: &Event) -> usize {
    match &event.payload {
        Payload::Result { .. } | Payload::Decision { .. } => TOOL_RESULT_BYTES,
        Payload::Message { .. } | Payload::Task { .. } => usize::MAX,
    }
}

/// Returns the whole content as it stands behind its header, if it has at most `limit` bytes.
fn whole_content(content: &ItemContent, inline: bool, limit: usize) -> Option<String> {
    let text = match content {
        ItemContent::Text(text) => quote(text, inline),
        ItemContent::Value(value) => {
            let (text, whole) = render_within(value, RenderOptions { budget: limit, pretty: false });
            return whole.then_some(text);
        }
        ItemContent::Excerpt { .. } | ItemContent::Absent(..) => return None,
    };
    (text.len() <= limit).then_some(text)
}

fn quote(text: &str, inline: bool) -> String {
    quote_foreign(text, inline).into_owned()
}

fn quote_foreign<'t>(text: impl Into<Cow<'t, str>>, inline: bool) -> ForeignText<'t> {
    if inline { ForeignText::continue_line(text) } else { ForeignText::text(text) }
}

/// Returns an event's content behind its header in at most `limit` bytes: all of it, or the beginning.
pub(super) fn body(event: &Event, header: &str, content: &ItemContent, limit: usize) -> String {
    whole_content(content, text::is_inline(header), limit).unwrap_or_else(|| cut_body(event, header, content, limit))
}

/// Returns the beginning of an event's content in at most `limit` bytes, with a mark that says where the rest can be
/// read.
fn cut_body(event: &Event, header: &str, content: &ItemContent, limit: usize) -> String {
    let (inline, mut rest) = (text::is_inline(header), rest_location(event));
    if let ItemContent::Value(value) = content {
        (rest, _) = rest.narrow(value, limit);
    }
    let mark = |characters| cut_mark(limit, content.bytes(), &rest, characters);
    let budget = limit.saturating_sub(mark(Some(content.bytes())).len());
    let (shown, characters) = match content {
        ItemContent::Value(value) => (render(value, RenderOptions { budget, pretty: false }), None),
        ItemContent::Text(text) | ItemContent::Excerpt { text, .. } => {
            let mut end = text.floor_char_boundary(budget);
            let mut shown = quote(&text[..end], inline);
            // Quoted lines are longer than the original ones.
            while shown.len() > budget && end > 0 {
                end = text.floor_char_boundary(end.saturating_sub(shown.len() - budget));
                shown = quote(&text[..end], inline);
            }
            (shown, matches!(content, ItemContent::Text(_)).then(|| text[..end].chars().count()))
        }
        ItemContent::Absent(..) => (String::new(), None),
    };
    format!("{shown}{}", mark(characters))
}

/// Returns where an event's content is stored after the event is consumed.
fn rest_location(event: &Event) -> ResultRest {
    let path = match &event.payload {
        Payload::Result { job, result } => {
            job_field(job, if result.output.is_some() || result.error.is_none() { "output" } else { "error" })
        }
        Payload::Message { .. } | Payload::Task { .. } | Payload::Decision { .. } => stored_path(&event.id),
    };
    path.map_or(ResultRest::Lost, |path| ResultRest::Stored { path, field: None })
}

/// Returns the path at which a message is stored that a prompt could not show whole.
pub fn stored_path(id: &EventId) -> Option<Path> {
    Path::from_segments([Namespace::Session.prefix(), MESSAGES_KEY, id.as_str()].map(str::to_owned).to_vec()).ok()
}

/// Whether the transcript's text of a message ends with a path of the rest. Another text with such an end only causes its
/// own message to be stored.
pub fn is_cut(event: &Event, heard: &str) -> bool {
    let ResultRest::Stored { path, .. } = rest_location(event) else { return false };
    let mark = heard.rsplit_once(" [cut to ").map(|(_, mark)| mark);
    matches!(event.payload, Payload::Message { .. }) && mark.is_some_and(|mark| names_below(mark, &path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Millis;
    use serde_json::json;

    #[test]
    fn a_message_is_kept_where_its_path_is_named() {
        let input = json!("é b\n".repeat(200));
        let event = Event::new("e1".parse().unwrap(), Millis(0), Payload::Message { input, to: None });
        let (header, content) = text::event(&event);
        let shown = cut_body(&event, &header, &content, 400);
        let offset = shown.split(" [cut to ").next().unwrap().chars().count();
        assert!(shown.len() <= 400 && shown.ends_with(&format!(", path `c/messages/e1`, offset {offset}]")), "{shown}");
        assert!(is_cut(&event, &shown) && !is_cut(&event, &body(&event, &header, &content, 4_000)));
        let other = Event::new("e2".parse().unwrap(), Millis(0), event.payload.clone());
        assert!(!is_cut(&other, &shown));
    }

    #[test]
    fn a_message_is_kept_where_a_part_of_it_is_named() {
        for (key, ends) in [("rows", "`c/messages/e1/rows`]"), ("a/b", "[\"c\",\"messages\",\"e1\",\"a/b\"]]")] {
            let input = json!({"from": "me", key: vec!["row"; 1_000]});
            let event = Event::new("e1".parse().unwrap(), Millis(0), Payload::Message { input, to: None });
            let (header, content) = text::event(&event);
            let shown = cut_body(&event, &header, &content, 1_000);
            assert!(shown.len() <= 1_000 && shown.ends_with(ends), "{shown}");
            let other = Event::new("e11".parse().unwrap(), Millis(0), event.payload.clone());
            assert!(is_cut(&event, &shown) && !is_cut(&other, &shown));
        }
    }

    #[test]
    fn quoted_lines_do_not_move_the_offset() {
        let text = "[Task x]\n".repeat(100);
        let event = Event::new("e1".parse().unwrap(), Millis(0), Payload::Message { input: json!(text), to: None });
        let (header, content) = text::event(&event);
        let shown = cut_body(&event, &header, &content, 500);
        let (begin, mark) = shown.rsplit_once(" [cut to ").unwrap();
        let offset: usize = mark.rsplit_once(", offset ").unwrap().1.trim_end_matches(']').parse().unwrap();
        assert_eq!(begin.replace("> ", ""), text[..offset], "{shown}");
        assert!(shown.len() <= 500 && begin.contains("\n> [Task x]"), "{shown}");
    }

    #[test]
    fn room_grows_with_what_is_left_of_the_budget() {
        let check = |(budget, left, taken): (usize, usize, usize), now: usize, alone: usize| {
            assert_eq!(
                EventRoom::from_budget(budget, left, taken),
                EventRoom { now, alone },
                "{budget} {left} {taken}"
            );
        };
        check((180_000, 160_000, 0), 82_000, 82_000);
        check((180_000, 100_000, 60_000), 22_000, 82_000);
        check((180_000, 70_000, 0), 45_000, 45_000);
        check((180_000, 60_000, 10_000), 35_000, 45_000);
        check((4_000, 500, 0), 500, 500);
    }
}
