//! Projects a conversation to what a dialect takes, whatever a model, a person or a tool has written in it.
//!
//! The result begins with a user's message and ends with a user's message or with results. Each call is followed by its
//! result and each result follows its call. Ids are legal and unique, names are legal, no text is blank, and reasoning
//! goes only to the model that wrote it.

mod media;

pub use media::{SentMedia, SentPart};

use super::dialect::{CallIds, Dialect};
use super::names::ToolNames;
use crate::chat::{Arguments, ChatMessage, ModelRequest, ToolCall};
use crate::ids::{AssetId, sha256_hex};
use crate::lines;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Text before a conversation that would begin with the model's words.
const BEGINNING: &str = lines::CONVERSATION.text();
/// Text after a conversation that would end with the model's words.
const CONTINUE: &str = lines::CONTINUE.text();
/// Text between results and a user's message, where a provider wants the model's words there.
const NOTED: &str = lines::NOTED.text();
/// Text in place of a missing result.
const NO_RESULT: &str = lines::NO_RESULT.text();
/// Text in place of an empty result.
const EMPTY_RESULT: &str = lines::EMPTY_RESULT.text();
/// Number of characters of [`CallIds::Nine`].
const NINE_CHARS: usize = 9;

/// One message as it is sent.
#[derive(Debug, Clone, PartialEq)]
pub enum SentMessage<'r> {
    /// A message of a person or of the context; it has at least one part.
    User(Vec<SentPart<'r>>),
    /// A message of the model: a text, calls or both.
    Assistant {
        /// The text, which is never blank.
        text: Option<Cow<'r, str>>,
        /// Its calls; their results are the next message.
        calls: Vec<SentCall<'r>>,
        /// Pieces of reasoning, if the model that is asked wrote them.
        reasoning: Option<&'r [Value]>,
    },
    /// Results of the calls of the message before, in their order; none is blank.
    Results(Vec<SentResult<'r>>),
}

/// A call as it is sent.
#[derive(Debug, Clone, PartialEq)]
pub struct SentCall<'r> {
    /// Legal id, unique in the conversation.
    pub id: String,
    /// Legal name of the tool.
    pub name: String,
    /// Arguments, always a map.
    pub arguments: Cow<'r, Map<String, Value>>,
}

/// A result as it is sent.
#[derive(Debug, Clone, PartialEq)]
pub struct SentResult<'r> {
    /// Id of its call.
    pub id: String,
    /// Name of its call.
    pub name: String,
    /// The text, which is never blank.
    pub text: Cow<'r, str>,
}

/// Position of a text or a result: the index of a message, and an index in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentPlace {
    /// Index of the message.
    pub message: usize,
    /// Index of the text or the result in the message; 0 in an assistant's message.
    pub part: usize,
}

/// A conversation that the provider takes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Conversation<'r> {
    /// Messages, oldest first.
    pub messages: Vec<SentMessage<'r>>,
    /// The last piece that, with all bytes before it, stays the same in the session's next request.
    pub stable: Option<SentPlace>,
}

impl<'r> Conversation<'r> {
    /// Projects the conversation of a request to a dialect.
    pub fn project(request: &'r ModelRequest, dialect: &Dialect, names: &ToolNames) -> Self {
        let model = request.model.reasoning_identity();
        let mut projection = Projection {
            dialect,
            names,
            ids: BTreeSet::new(),
            attached: BTreeSet::new(),
            attached_bytes: 0,
            sent: Vec::new(),
        };
        let mut stable = None;
        let mut at = 0;
        while at < request.messages.len() {
            at += match &request.messages[at] {
                ChatMessage::User { text, attachments } => {
                    projection.push_user_text(text.into());
                    projection.push_attachments(attachments);
                    1
                }
                ChatMessage::Tool { name, text, .. } => {
                    projection.push_orphan_result(name, text);
                    1
                }
                ChatMessage::Assistant { text, calls, reasoning } => {
                    let reasoning = reasoning.as_ref().filter(|reasoning| reasoning.by == model);
                    let reasoning = reasoning.map(|reasoning| reasoning.items.as_slice());
                    1 + projection.push_assistant(text, calls, reasoning, &request.messages[at + 1..])
                }
            };
            if at <= request.stable {
                stable = projection.last_place();
            }
        }
        projection.close();
        Self { messages: projection.sent, stable }
    }
}

struct Projection<'r, 'd> {
    dialect: &'d Dialect,
    names: &'d ToolNames,
    /// Ids of calls that were sent.
    ids: BTreeSet<String>,
    /// Assets that were sent.
    attached: BTreeSet<AssetId>,
    attached_bytes: usize,
    sent: Vec<SentMessage<'r>>,
}

impl<'r> Projection<'r, '_> {
    fn push_user_text(&mut self, text: Cow<'r, str>) {
        if !text.trim().is_empty() {
            self.push_user_part(SentPart::Text(text));
        }
    }

    fn push_user_part(&mut self, part: SentPart<'r>) {
        match self.sent.last_mut() {
            Some(SentMessage::User(parts)) => parts.push(part),
            Some(SentMessage::Results(_)) if !self.dialect.user_after_tool => {
                self.sent.push(SentMessage::Assistant { text: Some(NOTED.into()), calls: Vec::new(), reasoning: None });
                self.sent.push(SentMessage::User(vec![part]));
            }
            Some(SentMessage::Results(_) | SentMessage::Assistant { .. }) | None => {
                self.sent.push(SentMessage::User(vec![part]));
            }
        }
    }

    /// Sends a result whose call is absent.
    fn push_orphan_result(&mut self, name: &str, text: &str) {
        self.push_user_text(format!("{}{name}]\n{text}", lines::RESULT_OF).into());
    }

    /// Sends a model's message with the results of its calls; returns how many of the messages behind it were used.
    fn push_assistant(
        &mut self,
        text: &'r str,
        calls: &'r [ToolCall],
        reasoning: Option<&'r [Value]>,
        behind: &'r [ChatMessage],
    ) -> usize {
        let text = (!text.trim().is_empty()).then_some(Cow::Borrowed(text));
        if text.is_none() && calls.is_empty() {
            return 0;
        }
        if self.sent.is_empty() {
            self.push_user_text(BEGINNING.into());
        }
        let sent_calls: Vec<SentCall<'r>> = calls.iter().map(|call| self.sent_call(call)).collect();
        let text = match (self.sent.last_mut(), text) {
            // Consecutive messages of the model become one.
            (Some(SentMessage::Assistant { text: before, .. }), text) => {
                let before = before.take();
                self.sent.pop();
                match (before, text) {
                    (Some(before), Some(text)) => Some(Cow::Owned(format!("{before}\n\n{text}"))),
                    (before, text) => before.or(text),
                }
            }
            (_, text) => text,
        };
        let results = (!calls.is_empty()).then(|| results(calls, &sent_calls, behind));
        self.sent.push(SentMessage::Assistant { text, calls: sent_calls, reasoning });
        let Some((results, others, taken)) = results else { return 0 };
        self.sent.push(SentMessage::Results(results));
        for other in others {
            match other {
                ChatMessage::User { text, attachments } => {
                    self.push_user_text(text.into());
                    self.push_attachments(attachments);
                }
                ChatMessage::Tool { name, text, .. } => self.push_orphan_result(name, text),
                ChatMessage::Assistant { .. } => {}
            }
        }
        taken
    }

    fn sent_call(&mut self, call: &'r ToolCall) -> SentCall<'r> {
        SentCall {
            id: self.unique_id(&call.id),
            name: self.names.sent_name(&call.name),
            arguments: sent_arguments(&call.arguments),
        }
    }

    /// Makes a legal id that no earlier call has.
    fn unique_id(&mut self, ours: &str) -> String {
        let mut number = 1;
        loop {
            let found = match self.dialect.call_ids {
                CallIds::Plain(chars) => {
                    let kept = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
                    let end = if number == 1 { String::new() } else { format!("_{number}") };
                    let ours = if ours.is_empty() { "call" } else { ours };
                    let begin: String = ours.chars().map(kept).take(chars - end.len()).collect();
                    begin + &end
                }
                CallIds::Nine
                    if number == 1 && ours.len() == NINE_CHARS && ours.bytes().all(|b| b.is_ascii_alphanumeric()) =>
                {
                    ours.to_owned()
                }
                CallIds::Nine => sha256_hex(format!("{ours} {number}").as_bytes())[..NINE_CHARS].to_owned(),
            };
            if self.ids.insert(found.clone()) {
                return found;
            }
            number += 1;
        }
    }

    /// Returns the position of the last piece that was sent.
    fn last_place(&self) -> Option<SentPlace> {
        let message = self.sent.len().checked_sub(1)?;
        let part = match &self.sent[message] {
            SentMessage::User(texts) => texts.len() - 1,
            SentMessage::Results(results) => results.len() - 1,
            SentMessage::Assistant { .. } => 0,
        };
        Some(SentPlace { message, part })
    }

    fn close(&mut self) {
        match self.sent.last() {
            None => self.push_user_text(BEGINNING.into()),
            Some(SentMessage::Assistant { .. }) => self.push_user_text(CONTINUE.into()),
            Some(SentMessage::User(_) | SentMessage::Results(_)) => {}
        }
    }
}

type GatheredResults<'r> = (Vec<SentResult<'r>>, Vec<&'r ChatMessage>, usize);

/// Collects the results of these calls among the messages up to the model's next one. Returns the results, the other
/// messages between them, and the number of all these messages.
fn results<'r>(calls: &'r [ToolCall], sent: &[SentCall<'r>], behind: &'r [ChatMessage]) -> GatheredResults<'r> {
    let until = behind.iter().position(|message| matches!(message, ChatMessage::Assistant { .. }));
    let behind = &behind[..until.unwrap_or(behind.len())];
    let is_theirs = |message: &ChatMessage| match message {
        ChatMessage::Tool { call, .. } => calls.iter().any(|one| one.id == *call),
        ChatMessage::User { .. } | ChatMessage::Assistant { .. } => false,
    };
    let behind = &behind[..behind.iter().rposition(is_theirs).map_or(0, |last| last + 1)];
    let mut texts: Vec<Option<&'r str>> = vec![None; calls.len()];
    let mut others = Vec::new();
    for message in behind {
        let found = match message {
            ChatMessage::Tool { call, .. } => {
                (0..calls.len()).find(|at| calls[*at].id == *call && texts[*at].is_none())
            }
            ChatMessage::User { .. } | ChatMessage::Assistant { .. } => None,
        };
        match (found, message) {
            (Some(at), ChatMessage::Tool { text, .. }) => texts[at] = Some(text),
            (_, other) => others.push(other),
        }
    }
    let result = |(call, text): (&SentCall<'r>, Option<&'r str>)| SentResult {
        id: call.id.clone(),
        name: call.name.clone(),
        text: match text {
            Some(text) if text.trim().is_empty() => EMPTY_RESULT.into(),
            Some(text) => text.into(),
            None => NO_RESULT.into(),
        },
    };
    (sent.iter().zip(texts).map(result).collect(), others, behind.len())
}

/// Returns the arguments as a map, because providers take nothing else: other values are wrapped in one.
fn sent_arguments(arguments: &Arguments) -> Cow<'_, Map<String, Value>> {
    let inside = |key: &str, value: Value| Cow::Owned(Map::from_iter([(key.to_owned(), value)]));
    match arguments {
        Arguments::Json(Value::Object(map)) => Cow::Borrowed(map),
        Arguments::Json(other) => inside("arguments", other.clone()),
        Arguments::Malformed(text) => inside("malformed_arguments", json!(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::dialect::find_dialect;
    use super::*;
    use crate::chat::{ModelSettings, Reasoning};

    fn user(text: &str) -> ChatMessage {
        ChatMessage::user(text)
    }

    fn calls(ids: &[&str]) -> ChatMessage {
        let call = |id: &&str| ToolCall {
            id: (*id).to_owned(),
            name: "f".into(),
            arguments: Arguments::Json(json!({"a": 1})),
        };
        ChatMessage::assistant(String::new(), ids.iter().map(call).collect())
    }

    fn result(id: &str, text: &str) -> ChatMessage {
        ChatMessage::Tool { call: id.into(), name: "f".into(), text: text.into() }
    }

    fn request(messages: Vec<ChatMessage>) -> ModelRequest {
        ModelRequest {
            model: ModelSettings::new("openai", "m"),
            system: String::new(),
            messages,
            tools: Vec::new().into(),
            turn: "t/u/a/s/1".into(),
            stable: 0,
            output: None,
        }
    }

    fn shown(message: &SentMessage) -> String {
        match message {
            SentMessage::User(parts) => {
                let part = |part: &SentPart| match part {
                    SentPart::Text(text) => text.to_string(),
                    SentPart::Media(media) => format!("<{} {} {:?}>", media.media.as_str(), media.name, media.bytes),
                };
                format!("user: {}", parts.iter().map(part).collect::<Vec<_>>().join(" | "))
            }
            SentMessage::Assistant { text, calls, .. } => {
                let ids: Vec<_> = calls.iter().map(|call| call.id.as_str()).collect();
                format!("model: {} [{}]", text.as_deref().unwrap_or_default(), ids.join(" "))
            }
            SentMessage::Results(results) => {
                let texts: Vec<_> = results.iter().map(|result| format!("{}={}", result.id, result.text)).collect();
                format!("results: {}", texts.join(" "))
            }
        }
    }

    fn check(provider: &str, messages: Vec<ChatMessage>, expected: &[&str]) {
        let (request, dialect) = (request(messages), find_dialect(provider).unwrap());
        let sent = Conversation::project(&request, &dialect, &ToolNames::default());
        let found: Vec<String> = sent.messages.iter().map(shown).collect();
        assert_eq!(found, expected, "{provider}");
    }

    #[test]
    fn each_call_has_its_result_right_behind_it() {
        let told = |text: &str| ChatMessage::assistant(text.into(), Vec::new());
        check(
            "openai",
            vec![user("x"), calls(&["1"]), result("1", "r"), user("y")],
            &["user: x", "model:  [1]", "results: 1=r", "user: y"],
        );
        check(
            "openai",
            vec![user("x"), calls(&["1", "2"]), result("2", "r")],
            &["user: x", "model:  [1 2]", "results: 1=[no result: the call was not finished] 2=r"],
        );
        check(
            "openai",
            vec![user("x"), calls(&["1"]), user("y"), result("1", " ")],
            &["user: x", "model:  [1]", "results: 1=[empty]", "user: y"],
        );
        check(
            "openai",
            vec![result("9", "r"), told("a")],
            &["user: [Result of f]\nr", "model: a []", "user: [Continue]"],
        );
        check(
            "openai",
            vec![user("x"), calls(&["1"]), result("1", "r"), result("1", "again")],
            &["user: x", "model:  [1]", "results: 1=r", "user: [Result of f]\nagain"],
        );
    }

    #[test]
    fn no_text_is_blank_and_roles_alternate() {
        let told = |text: &str| ChatMessage::assistant(text.into(), Vec::new());
        check("openai", vec![], &["user: [The conversation so far]"]);
        check(
            "openai",
            vec![told("a"), told(" \n"), told("b")],
            &["user: [The conversation so far]", "model: a\n\nb []", "user: [Continue]"],
        );
        check("openai", vec![user(" "), user("x"), user("y"), told("")], &["user: x | y"]);
        check(
            "openai",
            vec![user("x"), told("a"), calls(&["1"]), result("1", "r")],
            &["user: x", "model: a [1]", "results: 1=r"],
        );
        check(
            "mistral",
            vec![user("x"), calls(&["abcdefgh1"]), result("abcdefgh1", "r"), user("y")],
            &["user: x", "model:  [abcdefgh1]", "results: abcdefgh1=r", "model: [noted] []", "user: y"],
        );
    }

    #[test]
    fn ids_are_legal_and_unique_in_the_whole_conversation() {
        let long = "x".repeat(99);
        let given = ["1", "1", "", "ü.1", &long, &long];
        for (provider, chars) in [("openai", 64), ("anthropic", 64), ("mistral", 9)] {
            let mut messages = vec![user("x")];
            for id in given {
                messages.extend([calls(&[id]), result(id, "r")]);
            }
            let (request, dialect) = (request(messages), find_dialect(provider).unwrap());
            let sent = Conversation::project(&request, &dialect, &ToolNames::default());
            let mut seen = BTreeSet::new();
            for message in &sent.messages {
                let SentMessage::Assistant { calls, .. } = message else { continue };
                for call in calls {
                    assert!(seen.insert(call.id.clone()), "{provider}: {} twice", call.id);
                    assert!((1..=chars).contains(&call.id.len()), "{provider}: {}", call.id);
                    assert!(call.id.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)));
                }
            }
            assert_eq!(seen.len(), given.len());
        }
    }

    #[test]
    fn reasoning_goes_to_the_model_that_wrote_it_alone() {
        for (by, expected) in [("openai/m", true), ("openai/n", false), ("anthropic/m", false)] {
            let reasoning = Some(Reasoning { by: by.into(), items: vec![json!("r")] });
            let told = ChatMessage::Assistant { text: "a".into(), calls: Vec::new(), reasoning };
            let request = request(vec![user("x"), told, user("y")]);
            let sent = Conversation::project(&request, &find_dialect("openai").unwrap(), &ToolNames::default());
            let SentMessage::Assistant { reasoning, .. } = &sent.messages[1] else { panic!("{sent:?}") };
            assert_eq!(reasoning.is_some(), expected, "{by}");
        }
    }

    #[test]
    fn the_stable_end_is_the_last_piece_of_the_stable_messages() {
        let messages = vec![user("x"), user("y"), calls(&["1"]), result("1", "r"), user("z")];
        for (stable, expected) in
            [(0, None), (1, Some((0, 0))), (2, Some((0, 1))), (3, Some((0, 1))), (4, Some((2, 0)))]
        {
            let request = ModelRequest { stable, ..request(messages.clone()) };
            let sent = Conversation::project(&request, &find_dialect("openai").unwrap(), &ToolNames::default());
            assert_eq!(sent.stable.map(|place| (place.message, place.part)), expected, "{stable}");
        }
    }

    #[test]
    fn only_maps_go_back() {
        for (given, expected) in [
            (Arguments::Json(json!({"a": 1})), json!({"a": 1})),
            (Arguments::Json(json!([1])), json!({"arguments": [1]})),
            (Arguments::Malformed("{".into()), json!({"malformed_arguments": "{"})),
        ] {
            assert_eq!(json!(sent_arguments(&given).as_ref()), expected);
        }
    }
}
