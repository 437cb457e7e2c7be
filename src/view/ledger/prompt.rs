//! Ledgers of prompts: each part, its source, its bytes, and why it was cut.

use crate::domain::chat::{ChatMessage, ModelRequest, OutputFormat, ToolSpec};
use crate::domain::context::budget::PromptBudget;
use crate::domain::context::ledger::{HashForm, PromptLedger, Row, RowStatus};
use crate::domain::origin::SourceRead;
use crate::domain::values::Tier;
use crate::domain::values::placeholder::UsedKey;
use crate::view::to_json;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What a model saw in one turn, part by part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerView {
    /// Bytes of the budget, and characters per token in thousandths.
    pub budget: PromptBudget,
    /// Bytes that the prompt uses.
    pub used: usize,
    /// Parts in the order of the prompt. With `sent` they have every byte of the request.
    pub rows: Vec<LedgerRowView>,
    /// Placeholders that were filled in; absent if there are none and `sent` is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values: Option<Vec<UsedValueView>>,
    /// Placeholders without a value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unresolved: Vec<String>,
    /// Values that were too long for their places.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<String>,
    /// Names of the tools that were offered.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Tools that could not be offered: pairs of the operation and the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Vec<String>>")]
    pub refused: Vec<(String, String)>,
    /// Bindings and `_auto` rows that could not be kept: pairs of the place or tool and the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Vec<String>>")]
    pub reports: Vec<(String, String)>,
    /// SHA-256 of system prompt and tools, which a provider's cache keeps.
    #[serde(default)]
    pub prefix: String,
    /// SHA-256 of the whole prompt; empty if the turn failed before there was one.
    #[serde(default)]
    pub prompt: String,
    /// Form of the prompt that was hashed.
    #[serde(default)]
    pub form: HashForm,
    /// Bytes of the budget that are left.
    pub left: usize,
    /// Percentage of the budget that is used.
    pub percent: usize,
    /// Estimated tokens of the used bytes.
    pub tokens: usize,
    /// Body of the request; absent if the prompt can't be assembled as it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<SentRequestView>,
}

/// One part of a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerRowView {
    /// Key: `system`, `tools`, `context/<label>`, `loads/<path>`, `map`, `transcript`, `pending/<job>`,
    /// `inbox/<event>`, `scope/<key>`, `input`, or `wire` for the bytes that the wire format adds.
    pub key: String,
    /// Path, asset, job or operation that it came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Capability that allowed the read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<String>,
    /// Bytes that it asked for.
    pub asked: usize,
    /// Bytes that it was given.
    pub given: usize,
    /// Bytes of its text in the prompt.
    pub rendered: usize,
    /// State of the part in the prompt.
    pub status: RowStatus,
    /// Reason for a shortened or absent part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Version of the document or configuration at its source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// SHA-256 of the source; none is shown for what others said, and for resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Reads of the operation that made the part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<SourceRead>,
    /// Bytes in the body of the request; absent if that can't be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<usize>,
}

/// Body of the request to a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SentRequestView {
    /// Model as `provider/name`.
    pub model: String,
    /// Name of the wire format; absent with an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Bytes of the body; absent with an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
    /// Whether it is sent to a service; a scripted model is none. Absent with an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub made: Option<bool>,
    /// Reason why no body can be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A placeholder that was filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsedValueView {
    /// Key as in its placeholder, with dots.
    pub key: String,
    /// Tier of the value.
    pub tier: Tier,
    /// Bytes of the value; absent in older records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
    /// Place in the tier, `a/b`, where the dots of the key don't give it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Path of the tier, `request` for values of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Version of the agent's configuration that has the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// SHA-256 of the inserted text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
}

/// The exact request to a model, independent of its provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelRequestView {
    /// Model and its settings, as in the agent's configuration.
    #[schemars(with = "Map<String, Value>")]
    pub model: Value,
    /// System prompt of the call.
    pub system: String,
    /// Messages behind the system prompt, oldest first.
    #[serde(default)]
    pub messages: Vec<ChatMessage>,
    /// Tools that the model may call.
    #[serde(default)]
    pub tools: Vec<ToolSpec>,
    /// Name of the turn, `tenant/user/agent/session/turn`.
    pub turn: String,
    /// Type of the text; absent if the task's output isn't typed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputFormat>,
}

impl From<&PromptLedger> for LedgerView {
    /// Makes the view of what is recorded.
    fn from(ledger: &PromptLedger) -> Self {
        let values: Vec<_> = ledger.values.iter().map(UsedValueView::from).collect();
        Self {
            budget: ledger.budget,
            used: ledger.used,
            rows: ledger.rows.iter().map(LedgerRowView::from).collect(),
            values: Some(values).filter(|values| !values.is_empty()),
            unresolved: ledger.unresolved.clone(),
            cut: ledger.cut.clone(),
            tools: ledger.tools.clone(),
            refused: ledger.refused.clone(),
            reports: ledger.reports.clone(),
            prefix: ledger.prefix.clone(),
            prompt: ledger.prompt.clone(),
            form: ledger.form,
            left: ledger.bytes_left(),
            percent: ledger.percent(),
            tokens: ledger.budget.tokens(ledger.used),
            sent: None,
        }
    }
}

impl From<&Row> for LedgerRowView {
    fn from(row: &Row) -> Self {
        Self {
            key: row.key.clone(),
            source: row.source.clone(),
            allowed: row.allowed.clone(),
            asked: row.asked,
            given: row.given,
            rendered: row.rendered,
            status: row.status,
            reason: row.reason.clone(),
            version: row.origin.version,
            hash: row.origin.hash.clone(),
            reads: row.origin.reads.clone(),
            sent: None,
        }
    }
}

impl From<&UsedKey> for UsedValueView {
    fn from(used: &UsedKey) -> Self {
        Self {
            key: used.key.clone(),
            tier: used.tier,
            bytes: Some(used.bytes).filter(|bytes| *bytes > 0),
            at: used.at.clone(),
            source: None,
            version: None,
            hash: None,
        }
    }
}

impl From<&ModelRequest> for ModelRequestView {
    fn from(request: &ModelRequest) -> Self {
        Self {
            model: to_json(&request.model),
            system: request.system.clone(),
            messages: request.messages.clone(),
            tools: request.tools.to_vec(),
            turn: request.turn.clone(),
            output: request.output.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::chat::ModelSettings;
    use crate::domain::origin::Origin;
    use serde_json::json;

    #[test]
    fn a_view_has_the_recorded_ledger_with_what_follows_from_it() {
        let origin = Origin { version: Some(4), hash: Some("ab".into()), reads: vec![SourceRead::new("w/y")] };
        let row = Row {
            source: Some("w/x".into()),
            allowed: Some("crud/read on w/".into()),
            status: RowStatus::Shrunk,
            reason: Some("no room".into()),
            origin,
            ..Row::new_fixed("context/x", 7)
        };
        let filled = PromptLedger {
            budget: PromptBudget { bytes: 1_000, ratio: 4_000 },
            used: 400,
            rows: vec![row, Row::new_fixed("system", 9)],
            values: vec![
                UsedKey { key: "user.name".into(), tier: Tier::User, bytes: 3, at: Some("user/name".into()) },
                UsedKey { key: "city".into(), tier: Tier::Session, bytes: 0, at: None },
            ],
            unresolved: vec!["street".into()],
            cut: vec!["story".into()],
            tools: vec!["read".into()],
            refused: vec![("v/ops/x".into(), "no such operation".into())],
            reports: vec![("tool".into(), "not offered".into())],
            prefix: "aa".into(),
            prompt: "bb".into(),
            form: HashForm::Fields,
        };
        let empty = PromptLedger { budget: filled.budget, ..PromptLedger::default() };
        for (ledger, [left, percent, tokens]) in [(filled, [600, 40, 100]), (empty, [1_000, 0, 0])] {
            let mut expected = json!(ledger);
            (expected["left"], expected["percent"], expected["tokens"]) = (left.into(), percent.into(), tokens.into());
            assert_eq!(to_json(&LedgerView::from(&ledger)).to_string(), expected.to_string());
        }
    }

    #[test]
    fn a_view_of_a_request_has_all_that_is_recorded() {
        let request = ModelRequest {
            model: ModelSettings::new("scripted", "x"),
            system: "Be brief.".into(),
            messages: vec![ChatMessage::user("hi")],
            tools: [ToolSpec { name: "read".into(), description: "Reads.".into(), schema: json!({}) }].into(),
            turn: "t/u/a/s/1".into(),
            stable: 1,
            output: Some(OutputFormat { schema: json!({"type": "object"}), tools_optional: true }),
        };
        assert_eq!(to_json(&ModelRequestView::from(&request)).to_string(), json!(request).to_string());
    }
}
