//! Assigns each byte of a request's body to a row of its ledger.
//!
//! The request is encoded twice: as it is, and with a token in the place of each text, call and picture. Both bodies
//! have the same structure, so the place of a token in one body is the place of its text in the other, in every format.
//! The format adds the bytes that belong to no text; their [`BodySpan::row`] is `None`.

use super::dialect::Dialect;
use super::{EncodeError, encode};
use crate::chat::{Arguments, ChatMessage, ModelRequest, Reasoning, ToolCall};
use crate::lines;
use crate::media::{AttachedBytes, Attachment, MediaType};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value};

/// The beginning of every token. With its number a token has 16 digits of Base64, so it can replace a picture or a
/// signature too.
const TOKEN: &str = "zTq8Kx";
/// Number of digits in a token's number.
const DIGITS: usize = 10;
/// Keys of recorded reasoning whose texts decide about its form.
const FORM_KEYS: [&str; 9] = ["type", "id", "format", "status", "phase", "role", "part", "call", "length"];
/// Key of the tools in the body of every format.
const TOOLS: &str = "tools";
/// Separator between two texts of a message in formats that take only one.
const TEXT_SEPARATOR: &str = "\n\n";
/// [`TEXT_SEPARATOR`] as it stands between the quotes of JSON.
const TEXT_SEPARATOR_ESCAPED: &str = "\\n\\n";

/// Ledger rows of the pieces of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestRows {
    /// Row of the system prompt.
    pub system: usize,
    /// Row of the tools.
    pub tools: usize,
    /// Rows of each message.
    pub messages: Vec<MessageRows>,
}

/// Ledger rows of the pieces of one message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MessageRows {
    /// Rows of its text, in order, each with its length in bytes.
    pub text: Vec<(usize, usize)>,
    /// Row of its calls and its reasoning.
    pub rest: usize,
    /// Row of each attachment.
    pub attached: Vec<usize>,
}

/// Consecutive bytes of a body that belong to one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodySpan {
    /// The row; `None` for what the format adds: names of fields, escapes between texts, settings.
    pub row: Option<usize>,
    /// Number of bytes of the body.
    pub bytes: usize,
}

/// A body with the rows of its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccountedBody {
    /// The body as it is sent.
    pub bytes: Vec<u8>,
    /// The spans of the body, in order; their lengths add up to the length of the body.
    pub spans: Vec<BodySpan>,
}

impl AccountedBody {
    /// Returns the number of bytes of a row; with `None`, of what the format adds.
    pub fn bytes_of(&self, row: Option<usize>) -> usize {
        self.spans.iter().filter(|span| span.row == row).map(|span| span.bytes).sum()
    }
}

/// Encodes a request for a dialect and returns its body with the rows of its bytes.
pub fn account(
    request: &ModelRequest,
    dialect: &Dialect,
    cache_key: &str,
    rows: &RequestRows,
) -> Result<AccountedBody, EncodeError> {
    let mut tokens = Tokens::default();
    let template = tokens.template(request, rows);
    let body = encode(request, dialect, cache_key)?.request.body;
    let template = encode(&template, dialect, cache_key).map(|encoded| encoded.request.body).unwrap_or_default();
    let mut walk = BodyWriter { tokens: &tokens, body: AccountedBody::default() };
    walk.write_body(&template, &body, rows.tools);
    Ok(walk.body)
}

/// How a token replaces its value in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TokenForm {
    /// A text, or a part of one.
    Text,
    /// The only key of a map that replaces a map.
    Map,
    /// A text that replaces another value.
    Other,
}

/// The value that a token replaces.
struct TokenPiece {
    form: TokenForm,
    /// The text, or the value as JSON.
    text: String,
    /// The rows of the text in order, each with its length in bytes.
    rows: Vec<(usize, usize)>,
}

#[derive(Default)]
struct Tokens {
    pieces: Vec<TokenPiece>,
    /// The beginnings of the lines that announce attachments, with their rows.
    lines: Vec<(String, usize)>,
}

impl Tokens {
    fn add(&mut self, form: TokenForm, text: String, rows: Vec<(usize, usize)>) -> String {
        self.pieces.push(TokenPiece { form, text, rows });
        format!("{TOKEN}{:0DIGITS$}", self.pieces.len() - 1)
    }

    /// Makes a token for a text. A blank text stays as it is, because formats leave it out.
    fn text_token(&mut self, text: &str, rows: Vec<(usize, usize)>) -> String {
        if text.trim().is_empty() { text.to_owned() } else { self.add(TokenForm::Text, text.to_owned(), rows) }
    }

    fn template(&mut self, request: &ModelRequest, rows: &RequestRows) -> ModelRequest {
        let mut template = request.clone();
        template.system = self.text_token(&request.system, vec![(rows.system, request.system.len())]);
        for (message, rows) in template.messages.iter_mut().zip(&rows.messages) {
            match message {
                ChatMessage::User { text, attachments } => {
                    *text = self.text_token(text, rows.text.clone());
                    for (attachment, row) in attachments.iter_mut().zip(&rows.attached) {
                        self.replace_attachment(attachment, *row);
                    }
                }
                ChatMessage::Tool { text, .. } => *text = self.text_token(text, rows.text.clone()),
                ChatMessage::Assistant { text, calls, reasoning } => {
                    self.replace_reply(text, reasoning.as_mut(), rows);
                    for call in calls {
                        self.replace_call(call, rows.rest);
                    }
                }
            }
        }
        template
    }

    /// Replaces the content of an attachment by a token.
    fn replace_attachment(&mut self, attachment: &mut Attachment, row: usize) {
        self.lines.push((format!("{}{}", lines::ATTACHMENT, attachment.asset), row));
        let Some(bytes) = attachment.bytes.get() else { return };
        let text = match (attachment.media, std::str::from_utf8(bytes)) {
            (Some(MediaType::Text), Ok(text)) => crate::foreign::ForeignText::text(text).into_owned(),
            (Some(MediaType::Text), Err(_)) => return,
            (_, _) => BASE64_STANDARD.encode(bytes),
        };
        if text.trim().is_empty() {
            return;
        }
        let all = text.len();
        let token = self.add(TokenForm::Text, text, vec![(row, all)]);
        attachment.bytes = match attachment.media {
            Some(MediaType::Text) => AttachedBytes::new(token.into_bytes()),
            Some(_) | None => AttachedBytes::new(BASE64_STANDARD.decode(token).unwrap_or_default()),
        };
    }

    /// Replaces a model's text and reasoning by tokens. Formats may cut the text where a recorded item says how long it
    /// is.
    fn replace_reply(&mut self, text: &mut String, reasoning: Option<&mut Reasoning>, rows: &MessageRows) {
        let Some(reasoning) = reasoning else {
            *text = self.text_token(text, rows.text.clone());
            return;
        };
        let (mut rest, mut shown) = (text.as_str(), String::new());
        for item in &mut reasoning.items {
            let length = item.get("length").and_then(Value::as_u64).and_then(|length| usize::try_from(length).ok());
            if let Some((words, behind)) = length.and_then(|length| rest.split_at_checked(length)) {
                let token = self.text_token(words, vec![(rows.rest, words.len())]);
                item["length"] = token.len().into();
                shown.push_str(&token);
                rest = behind;
            }
            self.replace_reasoning(item, rows.rest);
        }
        shown.push_str(&self.text_token(rest, vec![(rows.rest, rest.len())]));
        *text = shown;
    }

    /// Replaces the texts in a recorded item of reasoning by tokens.
    fn replace_reasoning(&mut self, value: &mut Value, row: usize) {
        match value {
            Value::Object(map) => {
                let texts = map.iter_mut().filter(|(key, _)| !FORM_KEYS.contains(&key.as_str()));
                for (key, value) in texts {
                    let is_signature = key.to_ascii_lowercase().contains("signature");
                    if !is_signature || value.as_str().is_some_and(is_base64) {
                        self.replace_reasoning(value, row);
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.replace_reasoning(item, row)),
            Value::String(text) => *text = self.text_token(text, vec![(row, text.len())]),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn replace_call(&mut self, call: &mut ToolCall, row: usize) {
        let piece = |form, text: String| {
            let all = text.len();
            (form, text, vec![(row, all)])
        };
        let (form, text, rows) = match &call.arguments {
            Arguments::Json(Value::Object(map)) => piece(TokenForm::Map, json(map)),
            Arguments::Json(other) => piece(TokenForm::Other, json(other)),
            Arguments::Malformed(text) if text.trim().is_empty() => return,
            Arguments::Malformed(text) => piece(TokenForm::Text, text.clone()),
        };
        let token = self.add(form, text, rows);
        call.arguments = match form {
            TokenForm::Map => Arguments::Json(Map::from_iter([(token, Value::Null)]).into()),
            TokenForm::Other => Arguments::Json(token.into()),
            TokenForm::Text => Arguments::Malformed(token),
        };
    }

    /// Returns the piece whose token begins a text.
    fn piece_at(&self, text: &str) -> Option<&TokenPiece> {
        let number = text.strip_prefix(TOKEN)?.get(..DIGITS)?;
        self.pieces.get(number.parse::<usize>().ok()?)
    }

    /// Finds the next token in a text: its begin and its end (with the quotes or braces of its form), and its piece.
    fn next_token(&self, text: &str) -> Option<(usize, usize, &TokenPiece)> {
        let at = text.find(TOKEN)?;
        let piece = self.piece_at(&text[at..])?;
        let (before, behind) = match piece.form {
            TokenForm::Text => ("", ""),
            TokenForm::Map => ("{\"", "\":null}"),
            TokenForm::Other => ("\"", "\""),
        };
        let end = at + TOKEN.len() + DIGITS;
        text[..at].ends_with(before).then_some(())?;
        text.get(end..)?.starts_with(behind).then_some(())?;
        Some((at - before.len(), end + behind.len(), piece))
    }
}

fn is_base64(text: &str) -> bool {
    let is_digit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '-' | '_' | '=');
    !text.is_empty() && text.len().is_multiple_of(4) && text.chars().all(is_digit)
}

fn json(value: &(impl serde::Serialize + ?Sized)) -> String {
    serde_json::to_string(value).expect("values serialise")
}

/// Escapes a text as it stands between the quotes of JSON.
fn escape_json(text: &str) -> String {
    let quoted = json(text);
    quoted[1..quoted.len() - 1].to_owned()
}

/// Walks through both bodies in parallel and writes the real one.
struct BodyWriter<'t> {
    tokens: &'t Tokens,
    body: AccountedBody,
}

impl BodyWriter<'_> {
    fn write(&mut self, row: Option<usize>, text: &str) {
        if text.is_empty() {
            return;
        }
        self.body.bytes.extend_from_slice(text.as_bytes());
        match self.body.spans.last_mut() {
            Some(last) if last.row == row => last.bytes += text.len(),
            Some(_) | None => self.body.spans.push(BodySpan { row, bytes: text.len() }),
        }
    }

    fn write_body(&mut self, template: &Value, body: &Value, tools: usize) {
        let Value::Object(map) = body else { return self.write_value(template, body) };
        self.write(None, "{");
        for (at, (key, value)) in map.iter().enumerate() {
            self.write_key(at, key);
            if key == TOOLS {
                self.write(Some(tools), &json(value));
            } else {
                self.write_value(&template[key.as_str()], value);
            }
        }
        self.write(None, "}");
    }

    fn write_key(&mut self, at: usize, key: &str) {
        let comma = if at > 0 { "," } else { "" };
        self.write(None, &format!("{comma}{}:", json(key)));
    }

    fn write_value(&mut self, template: &Value, body: &Value) {
        match (template, body) {
            (Value::Object(one), _) if one.len() == 1 && self.piece(one.keys().next(), TokenForm::Map).is_some() => {
                self.write_whole(one.keys().next(), body);
            }
            (Value::String(token), _) if self.piece(Some(token), TokenForm::Other).is_some() => {
                self.write_whole(Some(token), body);
            }
            (Value::Object(one), Value::Object(other)) if one.keys().eq(other.keys()) => {
                self.write(None, "{");
                for (at, ((key, value), template)) in other.iter().zip(one.values()).enumerate() {
                    self.write_key(at, key);
                    self.write_value(template, value);
                }
                self.write(None, "}");
            }
            (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
                self.write(None, "[");
                for (at, (template, value)) in one.iter().zip(other).enumerate() {
                    self.write(None, if at > 0 { "," } else { "" });
                    self.write_value(template, value);
                }
                self.write(None, "]");
            }
            (Value::String(template), Value::String(text)) => self.write_text(template, text),
            (_, body) => self.write(None, &json(body)),
        }
    }

    fn piece(&self, token: Option<&String>, form: TokenForm) -> Option<&TokenPiece> {
        self.tokens.piece_at(token?).filter(|piece| piece.form == form)
    }

    /// Writes a value that one token replaces.
    fn write_whole(&mut self, token: Option<&String>, body: &Value) {
        let row = token.and_then(|token| self.tokens.piece_at(token)).and_then(|piece| piece.rows.first());
        self.write(row.map(|(row, _)| *row), &json(body));
    }

    fn write_text(&mut self, mut template: &str, mut text: &str) {
        let tokens = self.tokens;
        self.write(None, "\"");
        while let Some((at, end, piece)) = tokens.next_token(template) {
            let Some(rest) = text.strip_prefix(&template[..at]).and_then(|rest| rest.strip_prefix(&*piece.text)) else {
                break;
            };
            self.write_literal(&template[..at]);
            self.write_piece(piece);
            (template, text) = (&template[end..], rest);
        }
        self.write_literal(text);
        self.write(None, "\"");
    }

    /// Writes a text that the format adds. The line of an attachment belongs to the attachment's row.
    fn write_literal(&mut self, text: &str) {
        for (at, part) in text.split(TEXT_SEPARATOR).enumerate() {
            self.write(None, if at > 0 { TEXT_SEPARATOR_ESCAPED } else { "" });
            let of = self.tokens.lines.iter().find(|(begin, _)| part.starts_with(begin.as_str()));
            self.write(of.map(|(_, row)| *row), &escape_json(part));
        }
    }

    fn write_piece(&mut self, piece: &TokenPiece) {
        let mut rest = piece.text.as_str();
        for (at, (row, bytes)) in piece.rows.iter().enumerate() {
            let is_last = at + 1 == piece.rows.len();
            let (own, behind) = if is_last { (rest, "") } else { rest.split_at_checked(*bytes).unwrap_or((rest, "")) };
            self.write(Some(*row), &escape_json(own));
            rest = behind;
        }
    }
}
