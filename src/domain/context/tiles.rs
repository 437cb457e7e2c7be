//! Assigns each byte of a prompt's texts to a part: the detail behind a ledger.

use super::ledger::{PromptLedger, Row, RowStatus};
use crate::chat::{ChatMessage, ModelRequest};
use crate::ids::sha256_hex;
use crate::wire::account::{MessageRows, RequestRows};
use std::collections::BTreeMap;

/// The part that bytes of a message belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TileSource {
    /// The sentence before reference data.
    Reference,
    /// A piece of context, a result or a message, by its row in the ledger; headings belong to it.
    Part(usize),
    /// The context map.
    Map,
    /// The position in the goal tree, and summaries of compacted turns.
    Summary,
    /// A turn of the transcript, by its number.
    Turn(u64),
    /// The heading of the sections that came with the task.
    Scoped,
    /// The task, how it ends, the date and the running children.
    Input,
}

/// Consecutive bytes of one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile {
    /// The part that they belong to.
    pub source: TileSource,
    /// Number of bytes of UTF-8; a part includes its headings and the separator before it.
    pub bytes: usize,
}

/// The sources of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageTiles {
    /// Tiles of its text, in order; their lengths add up to the length of the text.
    pub text: Vec<Tile>,
    /// Source of its calls and its reasoning.
    pub rest: TileSource,
}

impl MessageTiles {
    /// Makes the tiles of a message of one source.
    pub fn single_source(source: TileSource, message: &ChatMessage) -> Self {
        let (ChatMessage::User { text, .. } | ChatMessage::Assistant { text, .. } | ChatMessage::Tool { text, .. }) =
            message;
        Self { text: vec![Tile { source, bytes: text.len() }], rest: source }
    }

    /// Replaces indexes of parts by rows in the ledger; `rows` has the row of each index.
    pub(super) fn name_rows(&mut self, rows: &BTreeMap<usize, usize>) {
        for tile in &mut self.text {
            if let TileSource::Part(at) = &mut tile.source {
                *at = rows.get(at).copied().unwrap_or(*at);
            }
        }
        if let TileSource::Part(at) = &mut self.rest {
            *at = rows.get(at).copied().unwrap_or(*at);
        }
    }
}

/// The rows of a prompt that cover all its bytes; each turn of the transcript has its own row.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptRows {
    /// Rows in the order of the ledger; `rendered` is the length in bytes of the texts in the prompt.
    pub rows: Vec<Row>,
    /// Rows of the pieces of the request.
    pub request_rows: RequestRows,
}

impl PromptRows {
    /// Makes the rows of a prompt from its ledger and the tiles of its messages.
    pub fn new(ledger: &PromptLedger, request: &ModelRequest, tiles: &[MessageTiles]) -> Self {
        let mut sums: BTreeMap<TileSource, usize> = BTreeMap::new();
        for (message, tiles) in request.messages.iter().zip(tiles) {
            for tile in &tiles.text {
                *sums.entry(tile.source).or_default() += tile.bytes;
            }
            *sums.entry(tiles.rest).or_default() += call_bytes(message);
        }
        let mut rows = Vec::with_capacity(ledger.rows.len() + sums.len());
        let mut places: BTreeMap<TileSource, usize> = BTreeMap::new();
        let (mut system, mut tools) = (0, 0);
        let mut attachments: BTreeMap<&str, usize> = BTreeMap::new();
        for (at, row) in ledger.rows.iter().enumerate() {
            let here = rows.len();
            match row.key.as_str() {
                "system" => {
                    system = here;
                    rows.push(with_hash(row, &request.system));
                    let reference = TileSource::Reference;
                    if let Some(bytes) = sums.get(&reference) {
                        places.insert(reference, rows.len());
                        rows.push(Row::new_fixed("reference", *bytes));
                    }
                    continue;
                }
                "tools" => tools = here,
                "map" => drop(places.insert(TileSource::Map, here)),
                "input" => drop(places.insert(TileSource::Input, here)),
                "transcript" if row.status != RowStatus::Denied => {
                    Self::transcript(&mut rows, &mut places, row, &sums);
                    continue;
                }
                key if key.starts_with("attachment/") => {
                    attachments.extend(row.source.as_deref().map(|source| (source, here)));
                }
                _ => drop(places.insert(TileSource::Part(at), here)),
            }
            let bytes = places.iter().find(|(_, place)| **place == here).and_then(|(source, _)| sums.get(source));
            rows.push(match row.key.as_str() {
                "tools" => Row { source: row.source.clone(), ..row.clone() },
                key if key.starts_with("attachment/") => Row { rendered: 0, ..row.clone() },
                _ => Row { rendered: bytes.copied().unwrap_or(0), ..row.clone() },
            });
        }
        for (source, bytes) in &sums {
            if !places.contains_key(source) {
                places.insert(*source, rows.len());
                rows.push(Row::new_fixed(&source_key(*source), *bytes));
            }
        }
        let of = request_rows(request, tiles, &places, system, tools, &attachments);
        Self { rows, request_rows: of }
    }

    /// Adds one row for each turn of the transcript.
    fn transcript(
        rows: &mut Vec<Row>,
        places: &mut BTreeMap<TileSource, usize>,
        row: &Row,
        sums: &BTreeMap<TileSource, usize>,
    ) {
        let said = |source: &TileSource| matches!(source, TileSource::Summary | TileSource::Turn(_));
        let mut is_any = false;
        for (source, bytes) in sums.iter().filter(|(source, _)| said(source)) {
            is_any = true;
            places.insert(*source, rows.len());
            rows.push(Row::new_fixed(&source_key(*source), *bytes));
        }
        if !is_any || row.status != RowStatus::Full {
            rows.push(Row { rendered: 0, ..row.clone() });
        }
    }
}

fn source_key(source: TileSource) -> String {
    match source {
        TileSource::Reference => "reference".into(),
        TileSource::Part(at) => format!("part/{at}"),
        TileSource::Map => "map".into(),
        TileSource::Summary => "transcript/summary".into(),
        TileSource::Turn(turn) => format!("transcript/{turn}"),
        TileSource::Scoped => "scope".into(),
        TileSource::Input => "input".into(),
    }
}

fn with_hash(row: &Row, text: &str) -> Row {
    let mut row = row.clone();
    row.rendered = text.len();
    row.origin.hash.get_or_insert_with(|| sha256_hex(text.as_bytes()));
    row
}

/// Returns the bytes of the calls of a message. Reasoning is not counted: how much of it is sent depends on the model.
fn call_bytes(message: &ChatMessage) -> usize {
    match message {
        ChatMessage::User { .. } | ChatMessage::Tool { .. } => 0,
        ChatMessage::Assistant { text: _, calls, reasoning: _ } => calls.iter().map(crate::chat::ToolCall::bytes).sum(),
    }
}

fn request_rows(
    request: &ModelRequest,
    tiles: &[MessageTiles],
    places: &BTreeMap<TileSource, usize>,
    system: usize,
    tools: usize,
    attachments: &BTreeMap<&str, usize>,
) -> RequestRows {
    let row = |source: &TileSource| places.get(source).copied().unwrap_or(system);
    let messages = request.messages.iter().zip(tiles).map(|(message, tiles)| {
        let rest = row(&tiles.rest);
        let attached = match message {
            ChatMessage::User { attachments: shown, .. } => {
                let of = |asset: &crate::ids::AssetId| attachments.get(format!("a/{asset}").as_str()).copied();
                shown.iter().map(|one| of(&one.asset).unwrap_or(rest)).collect()
            }
            ChatMessage::Assistant { .. } | ChatMessage::Tool { .. } => Vec::new(),
        };
        MessageRows { text: tiles.text.iter().map(|tile| (row(&tile.source), tile.bytes)).collect(), rest, attached }
    });
    RequestRows { system, tools, messages: messages.collect() }
}
