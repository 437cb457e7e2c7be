//! Formats a turn's ledger as tables, and its prompt as text.

use super::super::escape::{cell, escape_data};
use super::super::output::{CommandOutput, compact};
use super::super::spend::format_token_classes;
use crate::domain::chat::ChatMessage;
use crate::domain::digits::group_digits;
use crate::domain::scope::HandOffRecord;
use crate::domain::session::CallRecord;
use crate::view::ledger::{
    LedgerRowView, LedgerView, ModelRequestView, SentRequestView, TurnMessageView, TurnRecordView, TurnView,
    UsedValueView,
};
use serde_json::Value;

/// Characters of the budget bar.
const BAR_CHARS: usize = 40;

/// Formats a number of bytes or tokens like `12,345`.
fn group_size(size: usize) -> String {
    group_digits(size as u64)
}

/// Formats texts as a list, with escapes.
fn join_data<'t>(texts: impl IntoIterator<Item = &'t String>) -> String {
    texts.into_iter().map(|text| escape_data(text)).collect::<Vec<_>>().join(", ")
}

/// Formats a section that was handed on with a call.
fn format_handed_section(section: &HandOffRecord) -> String {
    let key = escape_data(&section.key);
    match (&section.missing, section.of) {
        (Some(missing), _) => format!("{key} (nothing: {})", escape_data(missing)),
        (None, Some(of)) => format!("{key} ({} of {} bytes)", group_size(section.bytes), group_size(of)),
        (None, None) => key.into_owned(),
    }
}

/// Most characters of a line with the arguments of a call, or with its result.
const LINE_CHARACTERS: usize = 300;

/// Formats a value in one line of at most [`LINE_CHARACTERS`].
pub(crate) fn format_short(value: &Value) -> String {
    match value.as_str() {
        Some(text) => format_short_text(text),
        None => shorten(compact(value)),
    }
}

/// Formats a text in one line of at most [`LINE_CHARACTERS`].
fn format_short_text(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    shorten(escape_data(&line).into_owned())
}

fn shorten(line: String) -> String {
    match line.char_indices().nth(LINE_CHARACTERS) {
        Some((end, _)) => format!("{}… ({} bytes)", &line[..end], line.len()),
        None => line,
    }
}

/// Returns the arguments of a call as the model gave them, in one line; `None` if the record lacks the reply.
pub(crate) fn call_arguments(record: &TurnRecordView, index: usize) -> Option<String> {
    record.reply()?.1.get(index).map(|call| format_short(&call.arguments))
}

/// Returns the result of a call, or the reason why it was not made, in one line.
fn call_result(record: &TurnRecordView, index: usize) -> Option<String> {
    let mut results = record.said.iter().filter_map(|message| match message {
        TurnMessageView::Tool { call, text, .. } => Some((call, text)),
        TurnMessageView::User { .. } | TurnMessageView::Assistant { .. } => None,
    });
    let found = match record.reply().and_then(|(_, calls)| calls.get(index)) {
        Some(call) => results.find(|(id, _)| **id == call.id),
        None => results.nth(index),
    };
    found.map(|(_, text)| format_short_text(text)).filter(|text| !text.is_empty())
}

/// Said of a turn without a ledger.
const NO_PROMPT: &str = "No prompt of this turn is kept: it ended before there was one, or a fork copied the turn without \
                         it; then the turn of the same number in the session that was forked has it.";

/// Formats a whole turn.
pub(crate) fn turn(out: CommandOutput, turn: &TurnView) -> String {
    let mut lines = vec![out.bold(&format!("turn {}", escape_data(&turn.name)))];
    if let Some(record) = &turn.record {
        lines.extend(record_lines(record));
    }
    match &turn.ledger {
        None => lines.push(NO_PROMPT.into()),
        Some(ledger) => lines.push(format!("\n{}", ledger_text(out, ledger))),
    }
    let gone = join_data(turn.erased.iter().flatten());
    if !gone.is_empty() {
        lines.push(format!("erased    {gone}: the prompt can't be built again"));
    }
    lines.join("\n")
}

/// Formats what a turn did.
fn record_lines(record: &TurnRecordView) -> Vec<String> {
    let took = record.end.0.saturating_sub(record.start.0);
    let by = if record.worker.is_empty() { String::new() } else { format!(", on worker {}", record.worker) };
    let usage = format_token_classes(record.usage, group_digits);
    let mut lines = vec![
        format!("began     {} and took {took} ms{by}", record.start.rfc3339()),
        format!("model     {}: {usage}", escape_data(&record.model)),
    ];
    for failed in &record.failed_models {
        lines.push(format!("failed    {}: {}", cell(&failed.model), cell(&failed.reason)));
    }
    if let Some(job) = &record.job {
        let ended = record.ended.iter().find(|(ended, _)| ended == job);
        let ended = ended.map(|(_, status)| format!(", ended {}", status.as_str())).unwrap_or_default();
        lines.push(format!("task      job {job}{ended}"));
    }
    for (index, call) in record.calls.iter().enumerate() {
        lines.extend(call_lines(record, index, call));
    }
    if let Some(settled) = record.settles {
        lines.push(format!("settles   calls of turn {settled}, which shows with what they were made"));
    }
    if let Some((text, _)) = record.reply().filter(|(text, _)| !text.is_empty()) {
        lines.push(format!("replied   {}", escape_data(text).replace('\n', "\n          ")));
    }
    lines
}

/// Formats a call: its outcome, arguments, decision and result.
fn call_lines(record: &TurnRecordView, index: usize, call: &CallRecord) -> Vec<String> {
    let handed: Vec<_> = call.scoped.iter().map(format_handed_section).collect();
    let handed = if handed.is_empty() { String::new() } else { format!(", with {}", handed.join(", ")) };
    let began = call.began.map(|began| format!(", first made {}", began.rfc3339())).unwrap_or_default();
    let (tool, outcome) = (cell(&call.tool), cell(&call.outcome));
    let mut lines = vec![format!("called    {tool}: {outcome}{handed}{began}")];
    lines.extend(call_arguments(record, index).map(|arguments| format!("          with      {arguments}")));
    if let Some(decided) = &call.decided {
        let (how, by, at) = (&decided.how, escape_data(&decided.by), decided.at.rfc3339());
        lines.push(format!("          {how} by {by} {at}, approval {}", decided.approval));
    }
    lines.extend(call.note.as_ref().map(|note| format!("          {}", format_short_text(note))));
    if let Some(sent) = &call.sent {
        let key = sent.key.as_ref().map(|key| format!("Idempotency-Key {}, ", cell(key))).unwrap_or_default();
        lines.push(format!("          sent      {key}traceparent {}", cell(&sent.traceparent)));
    }
    lines.extend(call_result(record, index).map(|result| format!("          result    {result}")));
    lines
}

/// Formats a ledger: the budget, every part, tools, placeholders, hashes.
pub(crate) fn ledger_text(out: CommandOutput, ledger: &LedgerView) -> String {
    let filled = ledger.used.saturating_mul(BAR_CHARS) / ledger.budget.bytes.max(1);
    let filled = filled.clamp(usize::from(ledger.used > 0), BAR_CHARS);
    let bar = format!("[{}{}]", "#".repeat(filled), "-".repeat(BAR_CHARS - filled));
    let mut lines = vec![
        format!("context   {bar} {}%", ledger.percent),
        format!(
            "          {} of {} bytes used, about {} tokens; {} left",
            group_size(ledger.used),
            group_size(ledger.budget.bytes),
            group_size(ledger.tokens),
            group_size(ledger.left)
        ),
        String::new(),
        parts_table(out, ledger),
        String::new(),
    ];
    lines.extend(ledger.sent.as_ref().map(format_sent_size));
    let tools = if ledger.tools.is_empty() { "none".to_owned() } else { join_data(&ledger.tools) };
    lines.push(format!("tools     {} offered: {tools}", ledger.tools.len()));
    for (operation, reason) in &ledger.refused {
        lines.push(format!("          not {}: {}", cell(operation), cell(reason)));
    }
    for (place, reason) in &ledger.reports {
        lines.push(format!("bindings  {}: {}", cell(place), cell(reason)));
    }
    let used: Vec<_> = ledger.values.iter().flatten().map(format_used_value).collect();
    for (name, texts) in
        [("filled in", used.join(", ")), ("no value", join_data(&ledger.unresolved)), ("cut", join_data(&ledger.cut))]
    {
        if !texts.is_empty() {
            lines.push(format!("{name:<9} {texts}"));
        }
    }
    let prefix = escape_data(&ledger.prefix);
    lines.push(format!("prefix    {prefix}  system prompt and tools, kept by a provider's cache"));
    let prompt = escape_data(&ledger.prompt);
    let prompt = if prompt.is_empty() { "none: the turn failed before the model was asked" } else { &prompt };
    lines.push(format!("prompt    {prompt}"));
    lines.join("\n")
}

/// Formats a placeholder with its tier and source.
fn format_used_value(used: &UsedValueView) -> String {
    let version = format_version(used.version, used.hash.as_deref());
    let source = used.source.as_ref().map(|source| format!(": {source}{version}")).unwrap_or_default();
    format!("{} ({}{source})", escape_data(&used.key), used.tier.as_str())
}

/// Formats the parts, all sizes in bytes: ROOM of the budget, TEXT in the prompt, SENT in the body of the request.
fn parts_table(out: CommandOutput, ledger: &LedgerView) -> String {
    let mut rows: Vec<_> = ledger.rows.iter().map(row).collect();
    let rendered: usize = ledger.rows.iter().map(|row| row.rendered).sum();
    let sent: usize = ledger.rows.iter().filter_map(|row| row.sent).sum();
    let is_sent = ledger.sent.as_ref().is_some_and(|sent| sent.bytes.is_some());
    let mut total = vec![String::new(); COLUMNS.len()];
    "total".clone_into(&mut total[0]);
    total[TEXT_COLUMN] = group_size(rendered);
    total[TEXT_COLUMN + 1] = if is_sent { group_size(sent) } else { "–".to_owned() };
    rows.push(total);
    out.table(&COLUMNS, &rows)
}

/// Headings of the table of parts.
const COLUMNS: [&str; 9] =
    ["PART", "FROM", "ALLOWED BY", "ROOM ASKED (B)", "ROOM GIVEN (B)", "TEXT (B)", "SENT (B)", "STATUS", "WHY"];
/// Index of the column with the bytes of the texts.
const TEXT_COLUMN: usize = 5;

/// Formats the size and format of the request's body.
fn format_sent_size(sent: &SentRequestView) -> String {
    let model = escape_data(&sent.model);
    if let Some(error) = &sent.error {
        return format!("sent      nothing to {model}: {error}");
    }
    let bytes = group_size(sent.bytes.unwrap_or_default());
    let format = escape_data(sent.format.as_deref().unwrap_or_default());
    if sent.made == Some(true) {
        format!("sent      {bytes} bytes to {model} as {format}")
    } else {
        format!("sent      nothing: {model} is no service; SENT is what {format} would take, {bytes} bytes")
    }
}

/// Characters of a hash in a table.
const HASH_CHARS: usize = 8;

/// Formats `@VERSION`, else the beginning of a hash: `#0a1b2c3d`.
pub(crate) fn format_version(version: Option<u64>, hash: Option<&str>) -> String {
    match (version, hash) {
        (Some(version), _) => format!("@{version}"),
        (None, Some(hash)) => format!("#{}", hash.get(..HASH_CHARS).unwrap_or(hash)),
        (None, None) => String::new(),
    }
}

/// Formats source and version, and what an operation has read for it.
fn origin(row: &LedgerRowView) -> String {
    let reads: Vec<_> =
        row.reads.iter().map(|seen| seen.path.clone() + &format_version(seen.version, seen.hash.as_deref())).collect();
    let reads = if reads.is_empty() { String::new() } else { format!(" reading {}", reads.join(", ")) };
    let source = row.source.as_deref().unwrap_or_default();
    format!("{source}{}{reads}", format_version(row.version, row.hash.as_deref()))
}

fn row(row: &LedgerRowView) -> Vec<String> {
    vec![
        row.key.clone(),
        origin(row),
        row.allowed.clone().unwrap_or_default(),
        group_size(row.asked),
        group_size(row.given),
        group_size(row.rendered),
        row.sent.map_or_else(|| "–".to_owned(), group_size),
        row.status.as_str().to_owned(),
        row.reason.clone().unwrap_or_default(),
    ]
}

/// Formats a model request, each message under a line with its role.
pub(crate) fn prompt(request: &ModelRequestView) -> String {
    let mut parts = vec![format!("=== system ===\n{}", escape_data(&request.system))];
    for message in &request.messages {
        let (role, text, calls) = match message {
            ChatMessage::User { text, .. } => ("user".to_owned(), text, &[][..]),
            ChatMessage::Assistant { text, calls, .. } => ("assistant".to_owned(), text, calls.as_slice()),
            ChatMessage::Tool { name, text, .. } => (format!("result of {}", escape_data(name)), text, &[][..]),
        };
        let mut text = escape_data(text).into_owned();
        for call in calls {
            let line = format!("[calls {} {}]", escape_data(&call.name), compact(&call.arguments.to_value()));
            text = if text.is_empty() { line } else { format!("{text}\n{line}") };
        }
        parts.push(format!("=== {role} ===\n{text}"));
    }
    let tools = request.tools.iter().map(|tool| {
        let (name, description) = (escape_data(&tool.name), escape_data(&tool.description));
        format!("{name} {}\n  {description}", compact(&tool.schema))
    });
    parts.push(format!("=== tools ===\n{}", tools.collect::<Vec<_>>().join("\n")));
    parts.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::super::super::output::Format;
    use super::*;
    use crate::domain::decode;
    use serde_json::json;

    const JOB: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn a_turn_is_shown_as_a_readable_table() {
        let row = |key: &str, source: Value, asked: u64, rendered: u64, status: &str, reason: Value| {
            json!({"key": key, "source": source, "allowed": source.as_str().map(|_| "w/ crud/read"), "asked": asked,
                "given": asked, "rendered": rendered, "sent": rendered + 3, "status": status, "reason": reason,
                "hash": "0123456789abcdef"})
        };
        let shown = json!({
            "name": "helper/main/2", "agent": "helper", "session": "main", "turn": 2, "record": {
                "turn": 2, "configVersion": 1, "start": 0, "end": 12, "job": JOB,
                "model": "scripted/x", "usage": {"input": 1234, "output": 5},
                "failedModels": [{"model": "openai/y", "reason": "503: overloaded"}],
                "ended": [[JOB, "COMPLETE"]], "calls": [
                    {"tool": "lattice_read", "operation": "v/ops/lattice/read", "outcome": "ok"},
                    {"tool": "http_post", "operation": "v/ops/http/post", "outcome": "denied"},
                ],
                "said": [
                    {"role": "assistant", "calls": [
                        {"id": "c1", "name": "lattice_read", "arguments": {"path": "w/x"}},
                        {"id": "c2", "name": "http_post", "arguments": {"url": "https://b.example/c", "body": "x".repeat(1_000)}},
                    ]},
                    {"role": "tool", "call": "c2", "name": "http_post", "text": "not one\n that this venue allows"},
                    {"role": "tool", "call": "c1", "name": "lattice_read", "text": "{\"value\":1}"},
                ]
            },
            "ledger": {
                "budget": {"bytes": 180_000, "ratio": 4000}, "used": 90_000, "left": 90_000,
                "sent": {"model": "openai/x", "format": "openai chat completions", "bytes": 653, "made": true}, "percent": 50, "tokens": 22_500,
                "rows": [
                    row("system", json!(null), 647, 647, "full", json!(null)),
                    row("context/notes", json!("w/notes"), 5000, 0, "dropped", json!("no room: 80 bytes were left")),
                ],
                "tools": ["lattice_read"], "refused": [["v/ops/x", "no such operation in the catalog"]],
                "reports": [["toolArgInjection.x", "no tool `x` is offered"]],
                "values": [{"key": "user.name", "tier": "user", "source": "v/context/users/u"}], "unresolved": ["city"], "prefix": "aa", "prompt": "bb"
            },
        });
        let out = CommandOutput::new(Format::Text, true);
        let expected = "\
turn helper/main/2
began     1970-01-01T00:00:00.000Z and took 12 ms
model     scripted/x: 1,234 tokens in, 5 out
failed    openai/y: 503: overloaded
task      job JOB, ended COMPLETE
called    lattice_read: ok
          with      {\"path\":\"w/x\"}
          result    {\"value\":1}
called    http_post: denied
          with      {\"url\":\"https://b.example/c\",\"body\":\"LONG… (1039 bytes)
          result    not one that this venue allows

context   [####################--------------------] 50%
          90,000 of 180,000 bytes used, about 22,500 tokens; 90,000 left

PART           FROM              ALLOWED BY    ROOM ASKED (B)  ROOM GIVEN (B)  TEXT (B)  SENT (B)  STATUS   WHY
system         #01234567                       647             647             647       650       full
context/notes  w/notes#01234567  w/ crud/read  5,000           5,000           0         3         dropped  no room: 80 bytes were left
total                                                                          647       653

sent      653 bytes to openai/x as openai chat completions
tools     1 offered: lattice_read
          not v/ops/x: no such operation in the catalog
bindings  toolArgInjection.x: no tool `x` is offered
filled in user.name (user: v/context/users/u)
no value  city
prefix    aa  system prompt and tools, kept by a provider's cache
prompt    bb";
        let shown: TurnView = decode::into_type(shown).unwrap();
        assert_eq!(turn(out, &shown), expected.replace("JOB", JOB).replace("LONG", &"x".repeat(263)));
    }

    #[test]
    fn a_prompt_has_a_line_for_each_role() {
        let request = json!({
            "model": {"provider": "scripted", "name": "x"}, "turn": "local/me/helper/main/1",
            "system": "Be brief.", "messages": [
                {"role": "user", "text": "hi"},
                {"role": "assistant", "calls": [{"id": "c", "name": "read", "arguments": {"json": {"path": "w/x"}}}]},
                {"role": "tool", "call": "c", "name": "read", "text": "1"},
            ],
            "tools": [{"name": "read", "description": "Reads.", "schema": {"type": "object"}}],
        });
        let expected = "=== system ===\nBe brief.\n\n=== user ===\nhi\n\n=== assistant ===\n[calls read {\"path\":\"w/x\"}]\n\n\
            === result of read ===\n1\n\n=== tools ===\nread {\"type\":\"object\"}\n  Reads.";
        let request: ModelRequestView = decode::into_type(request).unwrap();
        assert_eq!(prompt(&request), expected);
    }
}
