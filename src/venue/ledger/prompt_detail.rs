//! The rows of a prompt with every byte: the text of each row in the prompt, its bytes in the request's body, its
//! source with a version or a hash, and the capability.

use super::PastTurn;
use super::experiment::assemble_prompt;
use crate::domain::chat::{ChatMessage, ModelRequest, ModelSettings};
use crate::domain::context::assemble::AssembledPrompt;
use crate::domain::context::inputs::Inputs;
use crate::domain::context::ledger::{HashForm, Row, RowStatus};
use crate::domain::context::record::RestoredRecord;
use crate::domain::context::tiles::PromptRows;
use crate::domain::event::{Event, Payload};
use crate::domain::ids::{Owner, sha256_hex};
use crate::domain::media::AttachedBytes;
use crate::domain::values::Tier;
use crate::domain::wire::account::{RequestRows, account};
use crate::domain::wire::dialect::{COMPATIBLE, Dialect, find_dialect};
use crate::domain::wire::{self, EncodeError};
use crate::store::StoreError;
use crate::venue::{Venue, assets};
use crate::view::ledger::{LedgerRowView, LedgerView, SentRequestView, UsedValueView};

/// Provider of scripted models, which are no network service: nothing is sent to them.
const SCRIPTED: &str = "scripted";
/// Key of the row with the bytes that the wire format adds.
const WIRE: &str = "wire";
/// Text for a row that needs no capability.
const NOT_NEEDED: &str = "none needed";
/// Text for a row that was read with unlimited authority.
const UNLIMITED: &str = "unlimited";

/// Details of a prompt that a ledger shows besides what is recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptDetail {
    /// Rows that together have every byte.
    rows: Vec<LedgerRowView>,
    /// Model, wire format and bytes of the request.
    sent: SentRequestView,
    /// Placeholders that were filled in, each with its source.
    values: Vec<UsedValueView>,
}

impl PromptDetail {
    /// Adds the details to a ledger as callers see it.
    pub fn add_to(self, ledger: &mut LedgerView) {
        ledger.rows = self.rows;
        ledger.sent = Some(self.sent);
        ledger.values = Some(self.values);
    }

    /// Returns the details of a past turn's prompt; `None` if the prompt can't be assembled as it was.
    pub async fn for_turn(venue: &Venue, owner: &Owner, past: &PastTurn) -> Result<Option<Self>, StoreError> {
        let Some(RestoredRecord { inputs: Ok(inputs), ledger }) = &past.seen else { return Ok(None) };
        let Ok(assembled) = assemble_prompt(inputs) else { return Ok(None) };
        if ledger.form == HashForm::Canonical && ledger.prompt != assembled.ledger.prompt {
            return Ok(None);
        }
        let record = past.record.as_ref();
        let (model, version) = (record.map(|record| record.model.as_str()), record.map(|record| record.config_version));
        Self::for_prompt(venue, owner, inputs, &assembled, model, version).await.map(Some)
    }

    /// Returns the details of a prompt for a model `provider/name`, by default the agent's first, and a version of its
    /// configuration.
    pub async fn for_prompt(
        venue: &Venue,
        owner: &Owner,
        inputs: &Inputs,
        assembled: &AssembledPrompt,
        model: Option<&str>,
        version: Option<u64>,
    ) -> Result<Self, StoreError> {
        let PromptRows { rows, request_rows: of } = assembled.prompt_rows();
        let mut request = assembled.request.clone();
        request.model = model_settings(&assembled.request.model, model);
        let sources = PromptSources { owner, inputs, version };
        let texts = row_texts(&assembled.request, &rows, &of);
        let mut shown: Vec<_> = rows.iter().zip(&texts).map(|(row, text)| sources.row_view(row, text)).collect();
        let (id, provider) = (request.model.id(), request.model.provider.clone());
        let dialect = find_dialect(&provider).unwrap_or(COMPATIBLE);
        let sent = match sent_bytes(venue, owner, request, dialect, of, rows.len()).await {
            Ok(RequestBytes { of_rows, added, all }) => {
                for (row, bytes) in shown.iter_mut().zip(of_rows) {
                    row.sent = Some(bytes);
                }
                shown.push(wire_row(&provider, &dialect, added));
                SentRequestView {
                    model: id,
                    format: Some(dialect.format.as_str().to_owned()),
                    bytes: Some(all),
                    made: Some(provider != SCRIPTED),
                    error: None,
                }
            }
            Err(RequestBytesError::Store(error)) => return Err(error),
            Err(RequestBytesError::Encode(error)) => {
                let error = Some(error.to_string());
                SentRequestView { model: id, format: None, bytes: None, made: None, error }
            }
        };
        Ok(Self { rows: shown, sent, values: sources.values(assembled) })
    }
}

/// Returns the row of the bytes that the wire format of a provider adds.
fn wire_row(provider: &str, dialect: &Dialect, added: usize) -> LedgerRowView {
    LedgerRowView {
        source: Some(format!("format of {provider}")),
        allowed: Some(NOT_NEEDED.to_owned()),
        hash: Some(sha256_hex(dialect.format.as_str().as_bytes())),
        sent: Some(added),
        ..LedgerRowView::from(&Row::new_fixed(WIRE, 0))
    }
}

/// Returns the settings with which a model of the agent is called.
fn model_settings(settings: &ModelSettings, model: Option<&str>) -> ModelSettings {
    let found = settings.in_order().find(|one| model.is_some_and(|model| one.id() == model));
    found.unwrap_or(settings).without_fallback()
}

/// Bytes of a request's body.
struct RequestBytes {
    of_rows: Vec<usize>,
    /// Bytes that the wire format adds.
    added: usize,
    all: usize,
}

/// Why the bytes of a request are not counted.
#[derive(Debug, thiserror::Error)]
enum RequestBytesError {
    /// The wire format has no place for a part of the request.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Encodes a request with its attachments and counts the bytes of its rows. It reserves the memory for the attachments,
/// and runs on a thread for blocking work.
async fn sent_bytes(
    venue: &Venue,
    owner: &Owner,
    mut request: ModelRequest,
    dialect: Dialect,
    of: RequestRows,
    rows: usize,
) -> Result<RequestBytes, RequestBytesError> {
    let attached: usize = request.shown_attachments().map(|attachment| attachment.size).sum();
    let permit = if attached > 0 { venue.prompts.reserve_look(attached).await } else { None };
    load_attachments(venue, owner, &mut request).await?;
    let encode = move || {
        let body = account(&request, &dialect, &wire::cache_key(&request), &of)?;
        let of_rows = (0..rows).map(|at| body.bytes_of(Some(at))).collect();
        // The permit is held as long as the bytes are, even if the caller is gone.
        drop(permit);
        Ok::<_, EncodeError>(RequestBytes { of_rows, added: body.bytes_of(None), all: body.bytes.len() })
    };
    let stopped = |error: tokio::task::JoinError| StoreError::Unavailable {
        store: "ledger".to_owned(),
        reason: format!("a request was not encoded: {error}"),
    };
    Ok(tokio::task::spawn_blocking(encode).await.map_err(stopped)??)
}

/// Reads the attachments that a request shows.
async fn load_attachments(venue: &Venue, owner: &Owner, request: &mut ModelRequest) -> Result<(), StoreError> {
    for attachment in request.shown_attachments() {
        if let Some(found) = assets::read_content(venue, owner, &attachment.asset).await? {
            attachment.bytes = AttachedBytes::new(found.bytes);
        }
    }
    Ok(())
}

/// Returns the text of each row.
fn row_texts(request: &ModelRequest, rows: &[Row], of: &RequestRows) -> Vec<String> {
    let mut texts = vec![String::new(); rows.len()];
    if let Some(system) = texts.get_mut(of.system) {
        system.push_str(&request.system);
    }
    for (message, of) in request.messages.iter().zip(&of.messages) {
        let (ChatMessage::User { text, .. } | ChatMessage::Assistant { text, .. } | ChatMessage::Tool { text, .. }) =
            message;
        let mut rest = text.as_str();
        for (row, bytes) in &of.text {
            let (own, behind) = rest.split_at_checked(*bytes).unwrap_or((rest, ""));
            if let Some(text) = texts.get_mut(*row) {
                text.push_str(own);
            }
            rest = behind;
        }
    }
    texts
}

/// Sources of the parts of a prompt.
struct PromptSources<'i> {
    owner: &'i Owner,
    inputs: &'i Inputs,
    /// Version of the configuration.
    version: Option<u64>,
}

impl PromptSources<'_> {
    fn row_view(&self, row: &Row, text: &str) -> LedgerRowView {
        let mut shown = LedgerRowView::from(row);
        if shown.source.is_none() {
            let (source, version) = self.source(row);
            shown.source = Some(source);
            shown.version = version.or(shown.version);
        }
        let hash = match row.key.as_str() {
            "tools" => Some(self.inputs.tools.hash.clone()),
            // A hash would disclose what others said; for a turn its number is the version.
            key if key.starts_with("transcript") || !matches!(row.status, RowStatus::Full | RowStatus::Shrunk) => None,
            _ => (!text.is_empty()).then(|| sha256_hex(text.as_bytes())),
        };
        let allowed = shown.allowed.unwrap_or_else(|| self.capability(row).to_owned());
        LedgerRowView { hash: shown.hash.or(hash), allowed: Some(allowed), ..shown }
    }

    /// Returns the capability of a row that names none.
    fn capability(&self, row: &Row) -> &'static str {
        let is_read = row.source.is_some() && !row.key.starts_with("transcript");
        if is_read && self.inputs.frame.authority.is_unlimited() { UNLIMITED } else { NOT_NEEDED }
    }

    /// Returns the source of a row that has none of its own, and its version.
    fn source(&self, row: &Row) -> (String, Option<u64>) {
        let agent = format!("g/{}", self.inputs.frame.agent);
        let venue = || ("venue".to_owned(), None);
        let task = self.inputs.served.task.as_ref();
        let (group, name) = row.key.split_once('/').unwrap_or((&row.key, ""));
        match (group, name) {
            ("system" | "context", _) => (agent, self.version),
            ("tools", _) => ("v/ops".to_owned(), None),
            ("input", _) => task.and_then(Event::job).map_or_else(venue, |job| (format!("j/{job}/input"), None)),
            ("inbox", event) => (self.sender(event), None),
            ("transcript", turn) => {
                let session = self.inputs.moment.turn.rsplit_once('/').map_or("", |(session, _)| session);
                let session = session.splitn(3, '/').nth(2).unwrap_or_default();
                let number = turn.parse().ok();
                (format!("turns of {session}"), number)
            }
            _ => venue(),
        }
    }

    /// Returns the id and the sender of a message.
    fn sender(&self, event: &str) -> String {
        let found = self.inputs.served.messages.iter().find(|(_, message)| message.id.as_str() == event);
        let caller = found.and_then(|(_, message)| message.caller.clone()).unwrap_or_else(|| "unknown".to_owned());
        let payload = found.map(|(_, message)| &message.payload);
        let what = if matches!(payload, Some(Payload::Message { .. }) | None) { "message" } else { "event" };
        format!("{what} {event} from {caller}")
    }

    /// Returns the placeholders with the path of their tier, and a hash of what they inserted.
    fn values(&self, assembled: &AssembledPrompt) -> Vec<UsedValueView> {
        let user = self.owner.user().as_str();
        let source = |tier: Tier| match tier {
            Tier::Session => "request".to_owned(),
            Tier::User | Tier::Project => tier.root(user).unwrap_or_default(),
            Tier::Agent | Tier::Fallback => format!("g/{}", self.inputs.frame.agent),
        };
        let values = assembled.ledger.values.iter().map(|used| {
            let is_configured = matches!(used.tier, Tier::Agent | Tier::Fallback);
            UsedValueView {
                source: Some(source(used.tier)),
                version: self.version.filter(|_| is_configured),
                hash: self.inputs.values.get(&used.key).map(|given| sha256_hex(given.text.as_bytes())),
                ..UsedValueView::from(used)
            }
        });
        values.collect()
    }
}
