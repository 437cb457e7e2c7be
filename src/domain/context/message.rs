//! Builds the texts of a prompt; each text is copied only once.

use super::tiles::{MessageTiles, Tile, TileSource};
use crate::chat::ChatMessage;
use crate::foreign::ForeignText;
use crate::ids::AssetId;
use crate::media::{Attachment, LINE_BYTES};

/// A part with a header; the venue writes the header, and foreign text is only in the body.
pub(super) struct PartText<'i> {
    header: String,
    body: ForeignText<'i>,
    /// Assets that stand behind the part.
    attachments: Vec<AssetId>,
}

impl<'i> PartText<'i> {
    pub(super) const fn new(header: String, body: ForeignText<'i>) -> Self {
        Self { header, body, attachments: Vec::new() }
    }

    /// Makes a text that only the venue writes.
    pub(super) fn from_venue(text: String) -> Self {
        Self { header: text, body: ForeignText::text(""), attachments: Vec::new() }
    }

    pub(super) fn with_attachments(self, attachments: Vec<AssetId>) -> Self {
        Self { attachments, ..self }
    }

    pub(super) fn len(&self) -> usize {
        self.header.len() + self.body.len() + self.attachments.len() * LINE_BYTES
    }

    pub(super) fn to_text(&self) -> String {
        format!("{}{}", self.header, self.body)
    }
}

/// A message of a prompt, with the sources of its bytes.
pub(super) struct BuiltMessage {
    pub(super) message: ChatMessage,
    pub(super) tiles: MessageTiles,
}

impl BuiltMessage {
    /// Makes a message whose bytes all have one source.
    pub(super) fn single_source(source: TileSource, message: ChatMessage) -> Self {
        let tiles = MessageTiles::single_source(source, &message);
        Self { message, tiles }
    }
}

/// A message that is built part by part.
pub(super) struct MessageBuilder {
    text: String,
    /// Separator of two parts.
    gap: &'static str,
    /// Attachments of all parts.
    attachments: Vec<Attachment>,
    /// Sources of the bytes of the text, in order.
    tiles: Vec<Tile>,
}

impl MessageBuilder {
    /// Begins a message with `first` of this source; `bytes` is the expected length.
    pub(super) fn starting_with(source: TileSource, first: &str, bytes: usize) -> Self {
        let mut text = String::with_capacity(bytes.max(first.len()));
        text.push_str(first);
        Self { text, gap: "\n\n", attachments: Vec::new(), tiles: vec![Tile { source, bytes: first.len() }] }
    }

    /// Makes an empty message of paragraphs.
    pub(super) const fn new_paragraphs() -> Self {
        Self { text: String::new(), gap: "\n\n", attachments: Vec::new(), tiles: Vec::new() }
    }

    /// Returns the message; `None` if nothing was added.
    pub(super) fn into_message(self) -> Option<BuiltMessage> {
        (!self.text.is_empty()).then(|| self.finish())
    }

    /// Makes an empty message of lines.
    pub(super) const fn new_lines() -> Self {
        Self { text: String::new(), gap: "\n", attachments: Vec::new(), tiles: Vec::new() }
    }

    /// Adds a text; the separator before it counts for its source.
    pub(super) fn push_text(&mut self, source: TileSource, text: &str) {
        let gap = if self.text.is_empty() { "" } else { self.gap };
        self.text.push_str(gap);
        self.text.push_str(text);
        self.tiles.push(Tile { source, bytes: gap.len() + text.len() });
    }

    pub(super) fn push_part(&mut self, source: TileSource, part: &PartText<'_>) {
        self.push_text(source, &part.header);
        self.text.push_str(part.body.as_str());
        self.tiles.push(Tile { source, bytes: part.body.len() });
        self.attachments.extend(part.attachments.iter().cloned().map(Attachment::of_asset));
    }

    /// Adds lines under a heading, whose bytes count for the source of the first line. Without lines it adds nothing.
    pub(super) fn push_under_heading(&mut self, heading: &str, lines: Self) {
        if let (false, Some(first)) = (lines.text.is_empty(), lines.tiles.first()) {
            let source = first.source;
            self.push_text(source, heading);
            self.text.push('\n');
            self.text.push_str(&lines.text);
            self.tiles.push(Tile { source, bytes: 1 });
            self.tiles.extend(lines.tiles);
        }
    }

    /// Returns the message without spare capacity, because it stays in memory until the model has answered.
    pub(super) fn finish(mut self) -> BuiltMessage {
        self.text.shrink_to_fit();
        let tiles = MessageTiles { text: self.tiles, rest: TileSource::Input };
        BuiltMessage { message: ChatMessage::User { text: self.text, attachments: self.attachments }, tiles }
    }
}
