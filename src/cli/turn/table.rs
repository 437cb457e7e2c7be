//! Formats a turn's ledger as tables, and its prompt as text.

use super::super::output::time;
use super::super::output::{CommandOutput, compact, field, format_plain};
use super::super::spend::format_token_classes;
use serde_json::Value;

/// Characters of the budget bar.
const BAR_CHARS: usize = 40;

/// Formats a number like `12,345`.
fn group_digits(value: &Value) -> String {
    let digits = value.as_u64().unwrap_or(0).to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Formats a section that was handed on with a call.
fn format_handed_section(section: &Value) -> String {
    let key = field(section, "key");
    match (section["missing"].as_str(), section["of"].as_u64()) {
        (Some(_), _) => format!("{key} (nothing: {})", field(section, "missing")),
        (None, Some(_)) => {
            format!("{key} ({} of {} bytes)", group_digits(&section["bytes"]), group_digits(&section["of"]))
        }
        (None, None) => key,
    }
}

/// Returns the message with the model's reply; `None` if the turn has none.
fn reply_message(record: &Value) -> Option<&Value> {
    list(&record["said"]).iter().find(|said| said["role"] == "assistant")
}

/// Returns the text of the model's reply.
fn reply(record: &Value) -> Option<String> {
    Some(field(reply_message(record)?, "text")).filter(|text| !text.is_empty())
}

/// Most characters of a line with the arguments of a call, or with its result.
const LINE_CHARACTERS: usize = 300;

/// Formats a value in one line of at most [`LINE_CHARACTERS`].
pub(crate) fn format_short(value: &Value) -> String {
    let line = match value.as_str() {
        Some(text) => format_plain(&text.split_whitespace().collect::<Vec<_>>().join(" ").into()),
        None => compact(value),
    };
    match line.char_indices().nth(LINE_CHARACTERS) {
        Some((end, _)) => format!("{}… ({} bytes)", &line[..end], line.len()),
        None => line,
    }
}

/// Returns the arguments of a call as the model gave them, in one line; `None` if the record lacks the reply.
pub(crate) fn call_arguments(record: &Value, index: usize) -> Option<String> {
    reply_message(record)?["calls"].get(index).map(|call| format_short(&call["arguments"]))
}

/// Returns the result of a call, or the reason why it was not made, in one line.
fn call_result(record: &Value, index: usize) -> Option<String> {
    let mut results = list(&record["said"]).iter().filter(|said| said["role"] == "tool");
    let found = match reply_message(record).and_then(|reply| reply["calls"].get(index)) {
        Some(call) => results.find(|result| result["call"] == call["id"]),
        None => results.nth(index),
    };
    found.map(|result| format_short(&result["text"])).filter(|text| !text.is_empty())
}

/// A whole turn.
pub(super) fn turn(out: CommandOutput, turn: &Value) -> String {
    let record = &turn["record"];
    let mut lines = vec![out.bold(&format!("turn {}", field(turn, "name")))];
    if !record.is_null() {
        let took = record["end"].as_u64().unwrap_or(0).saturating_sub(record["start"].as_u64().unwrap_or(0));
        let by = record["worker"].as_str().map(|worker| format!(", on worker {worker}")).unwrap_or_default();
        lines.push(format!("began     {} and took {took} ms{by}", time(&record["start"])));
        let usage = &record["usage"];
        let counted = format_token_classes(usage, group_digits);
        lines.push(format!("model     {}: {counted}", field(record, "model")));
        for failed in list(&record["failedModels"]) {
            lines.push(format!("failed    {}: {}", field(failed, "model"), field(failed, "reason")));
        }
        if let Some(job) = record["job"].as_str() {
            let ended = list(&record["ended"]).iter().find(|pair| pair[0] == *job).and_then(|pair| pair[1].as_str());
            lines.push(format!(
                "task      job {job}{}",
                ended.map(|status| format!(", ended {status}")).unwrap_or_default()
            ));
        }
        for (index, call) in list(&record["calls"]).iter().enumerate() {
            let handed: Vec<_> = list(&call["scoped"]).iter().map(format_handed_section).collect();
            let handed = if handed.is_empty() { String::new() } else { format!(", with {}", handed.join(", ")) };
            let began = (!call["began"].is_null()).then(|| format!(", first made {}", time(&call["began"])));
            let began = began.unwrap_or_default();
            lines.push(format!("called    {}: {}{handed}{began}", field(call, "tool"), field(call, "outcome")));
            lines.extend(call_arguments(record, index).map(|arguments| format!("          with      {arguments}")));
            if let Some(how) = call["decided"]["how"].as_str() {
                let decided = &call["decided"];
                let (by, at) = (field(decided, "by"), time(&decided["at"]));
                lines.push(format!("          {how} by {by} {at}, approval {}", field(decided, "approval")));
            }
            if !call["note"].is_null() {
                lines.push(format!("          {}", format_short(&call["note"])));
            }
            lines.extend(call_result(record, index).map(|result| format!("          result    {result}")));
        }
        if !record["settles"].is_null() {
            lines.push(format!("settles   calls of turn {}, which shows with what they were made", record["settles"]));
        }
        if let Some(reply) = reply(record) {
            lines.push(format!("replied   {}", reply.replace('\n', "\n          ")));
        }
    }
    match &turn["ledger"] {
        Value::Null => lines.push("This turn ended before there was a prompt.".into()),
        ledger => lines.push(format!("\n{}", ledger_text(out, ledger))),
    }
    let gone: Vec<_> = list(&turn["erased"]).iter().map(format_plain).collect();
    if !gone.is_empty() {
        lines.push(format!("erased    {}: the prompt can't be built again", gone.join(", ")));
    }
    lines.join("\n")
}

/// Formats a ledger: the budget, every part, tools, placeholders, hashes.
pub(crate) fn ledger_text(out: CommandOutput, ledger: &Value) -> String {
    let (used, bytes) = (ledger["used"].as_u64().unwrap_or(0), ledger["budget"]["bytes"].as_u64().unwrap_or(1).max(1));
    let filled = usize::try_from(used.saturating_mul(BAR_CHARS as u64) / bytes)
        .unwrap_or(BAR_CHARS)
        .clamp(usize::from(used > 0), BAR_CHARS);
    let bar = format!("[{}{}]", "#".repeat(filled), "-".repeat(BAR_CHARS - filled));
    let mut lines = vec![
        format!("context   {bar} {}%", ledger["percent"]),
        format!(
            "          {} of {} bytes used, about {} tokens; {} left",
            group_digits(&ledger["used"]),
            group_digits(&ledger["budget"]["bytes"]),
            group_digits(&ledger["tokens"]),
            group_digits(&ledger["left"])
        ),
        String::new(),
        parts_table(out, ledger),
        String::new(),
    ];
    lines.extend(format_sent_size(&ledger["sent"]));
    let tools: Vec<_> = list(&ledger["tools"]).iter().map(format_plain).collect();
    lines.push(format!(
        "tools     {} offered: {}",
        tools.len(),
        if tools.is_empty() { "none".into() } else { tools.join(", ") }
    ));
    for pair in list(&ledger["refused"]) {
        lines.push(format!("          not {}: {}", format_item(pair, 0), format_item(pair, 1)));
    }
    for pair in list(&ledger["reports"]) {
        lines.push(format!("bindings  {}: {}", format_item(pair, 0), format_item(pair, 1)));
    }
    let tier = |value: &Value| {
        let source = value["source"].as_str().map(|source| format!(": {source}{}", version(value))).unwrap_or_default();
        format!("{} ({}{source})", field(value, "key"), field(value, "tier"))
    };
    let used: Vec<_> = list(&ledger["values"]).iter().map(tier).collect();
    for (name, texts) in [
        ("filled in", used),
        ("no value", list(&ledger["unresolved"]).iter().map(format_plain).collect()),
        ("cut", list(&ledger["cut"]).iter().map(format_plain).collect()),
    ] {
        if !texts.is_empty() {
            lines.push(format!("{name:<9} {}", texts.join(", ")));
        }
    }
    lines.push(format!("prefix    {}  system prompt and tools, kept by a provider's cache", field(ledger, "prefix")));
    let prompt = field(ledger, "prompt");
    lines.push(format!(
        "prompt    {}",
        if prompt.is_empty() { "none: the turn failed before the model was asked" } else { &prompt }
    ));
    lines.join("\n")
}

/// Formats the parts, all sizes in bytes: ROOM of the budget, TEXT in the prompt, SENT in the body of the request.
fn parts_table(out: CommandOutput, ledger: &Value) -> String {
    let parts = list(&ledger["rows"]);
    let sum = |key: &str| parts.iter().filter_map(|row| row[key].as_u64()).sum::<u64>();
    let mut rows: Vec<_> = parts.iter().map(row).collect();
    let mut total = vec![String::new(); COLUMNS.len()];
    "total".clone_into(&mut total[0]);
    total[TEXT_COLUMN] = group_digits(&sum("rendered").into());
    total[TEXT_COLUMN + 1] =
        if ledger["sent"]["bytes"].is_null() { "–".to_owned() } else { group_digits(&sum("sent").into()) };
    rows.push(total);
    out.table(&COLUMNS, &rows)
}

/// Headings of the table of parts.
const COLUMNS: [&str; 9] =
    ["PART", "FROM", "ALLOWED BY", "ROOM ASKED (B)", "ROOM GIVEN (B)", "TEXT (B)", "SENT (B)", "STATUS", "WHY"];
/// Index of the column with the bytes of the texts.
const TEXT_COLUMN: usize = 5;

/// Formats the size and format of the request's body.
fn format_sent_size(sent: &Value) -> Option<String> {
    if sent.is_null() {
        return None;
    }
    let model = field(sent, "model");
    if let Some(error) = sent["error"].as_str() {
        return Some(format!("sent      nothing to {model}: {error}"));
    }
    let (bytes, format) = (group_digits(&sent["bytes"]), field(sent, "format"));
    Some(if sent["made"] == true {
        format!("sent      {bytes} bytes to {model} as {format}")
    } else {
        format!("sent      nothing: {model} is no service; SENT is what {format} would take, {bytes} bytes")
    })
}

fn format_item(pair: &Value, at: usize) -> String {
    format_plain(&pair[at])
}

/// Characters of a hash in a table.
const HASH_CHARS: usize = 8;

/// Formats `@VERSION`, else the beginning of a hash: `#0a1b2c3d`.
fn version(of: &Value) -> String {
    match (of["version"].as_u64(), of["hash"].as_str()) {
        (Some(version), _) => format!("@{version}"),
        (None, Some(hash)) => format!("#{}", hash.get(..HASH_CHARS).unwrap_or(hash)),
        (None, None) => String::new(),
    }
}

/// Formats source and version, and what an operation has read for it.
fn origin(row: &Value) -> String {
    let reads: Vec<_> = list(&row["reads"]).iter().map(|seen| field(seen, "path") + &version(seen)).collect();
    let reads = if reads.is_empty() { String::new() } else { format!(" reading {}", reads.join(", ")) };
    format!("{}{}{reads}", field(row, "source"), version(row))
}

fn row(row: &Value) -> Vec<String> {
    vec![
        field(row, "key"),
        origin(row),
        field(row, "allowed"),
        group_digits(&row["asked"]),
        group_digits(&row["given"]),
        group_digits(&row["rendered"]),
        if row["sent"].is_null() { "–".to_owned() } else { group_digits(&row["sent"]) },
        field(row, "status"),
        field(row, "reason"),
    ]
}

/// Formats a model request, each message under a line with its role.
pub(crate) fn prompt(request: &Value) -> String {
    let mut parts = vec![format!("=== system ===\n{}", field(request, "system"))];
    for message in list(&request["messages"]) {
        let role = match field(message, "role").as_str() {
            "tool" => format!("result of {}", field(message, "name")),
            role => role.to_owned(),
        };
        let mut text = field(message, "text");
        for call in list(&message["calls"]) {
            let arguments = &call["arguments"];
            let arguments = if arguments["json"].is_null() { &arguments["malformed"] } else { &arguments["json"] };
            let line = format!("[calls {} {}]", field(call, "name"), compact(arguments));
            text = if text.is_empty() { line } else { format!("{text}\n{line}") };
        }
        parts.push(format!("=== {role} ===\n{text}"));
    }
    let tools: Vec<_> = list(&request["tools"])
        .iter()
        .map(|tool| format!("{} {}\n  {}", field(tool, "name"), compact(&tool["schema"]), field(tool, "description")))
        .collect();
    parts.push(format!("=== tools ===\n{}", tools.join("\n")));
    parts.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::super::super::output::Format;
    use super::*;
    use serde_json::json;

    #[test]
    fn a_turn_is_shown_as_a_readable_table() {
        let row = |key: &str, source: Value, asked: u64, rendered: u64, status: &str, reason: Value| {
            json!({"key": key, "source": source, "allowed": source.as_str().map(|_| "w/ crud/read"), "asked": asked,
                "given": asked, "rendered": rendered, "sent": rendered + 3, "status": status, "reason": reason,
                "hash": "0123456789abcdef"})
        };
        let shown = json!({
            "name": "helper/main/2", "record": {
                "start": 0, "end": 12, "model": "scripted/x", "usage": {"input": 1234, "output": 5}, "job": "j1",
                "failedModels": [{"model": "openai/y", "reason": "503: overloaded"}],
                "ended": [["j1", "COMPLETE"]], "calls": [
                    {"tool": "lattice_read", "outcome": "ok"}, {"tool": "http_post", "outcome": "denied"}
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
task      job j1, ended COMPLETE
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
        assert_eq!(turn(out, &shown), expected.replace("LONG", &"x".repeat(263)));
    }

    #[test]
    fn a_prompt_has_a_line_for_each_role() {
        let request = json!({
            "system": "Be brief.", "messages": [
                {"role": "user", "text": "hi"},
                {"role": "assistant", "calls": [{"name": "read", "arguments": {"json": {"path": "w/x"}}}]},
                {"role": "tool", "name": "read", "text": "1"},
            ],
            "tools": [{"name": "read", "description": "Reads.", "schema": {"type": "object"}}],
        });
        let expected = "=== system ===\nBe brief.\n\n=== user ===\nhi\n\n=== assistant ===\n[calls read {\"path\":\"w/x\"}]\n\n\
            === result of read ===\n1\n\n=== tools ===\nread {\"type\":\"object\"}\n  Reads.";
        assert_eq!(prompt(&request), expected);
    }
}
