//! What an agent reads of a message: a text, a value, a list of both, or the whole message.

use super::has_whole_messages;
use super::reader::TaskReader;
use crate::domain::asset::{AssetError, Draft};
use crate::domain::authority::ResourcePath;
use crate::domain::ids::{AgentId, EventId, sha256_hex};
use crate::domain::lattice::Namespace;
use crate::domain::limits::SUBMISSION_BYTES;
use crate::domain::media::KEY as ASSET_KEY;
use crate::domain::principal::Principal;
use crate::store::StoreError;
use crate::venue::{assets, ingress};
use crate::view::a2a::{A2aMessage, A2aPart, A2aRole};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{DecodeError, Engine, alphabet};
use serde_json::{Value, json};

/// Base64 with padding or without.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Parts of a message at most.
const PARTS: usize = 100;

/// Media types that agents read.
pub const INPUT_TYPES: [&str; 7] =
    ["text/plain", "application/json", "image/png", "image/jpeg", "image/webp", "image/gif", "application/pdf"];

/// Media types of outputs.
pub const OUTPUT_TYPES: [&str; 2] = ["text/plain", "application/json"];

/// Why a message is refused.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The message breaks a rule.
    #[error("{0}")]
    Message(String),
    /// No agent reads a part of this type.
    #[error("`message.parts[{at}]`: media type `{found}` isn't read; expected text, JSON, {}", INPUT_TYPES[2..].join(", "))]
    MediaType {
        /// Index of the part.
        at: usize,
        /// Type of the part.
        found: String,
    },
    /// The caller may store no file.
    #[error("{0}")]
    Denied(String),
    /// A file can't be stored.
    #[error("`message.parts[{at}]`: {error}")]
    Asset {
        /// Index of the part.
        at: usize,
        /// Rule that the file breaks.
        error: AssetError,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What is made of a message.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentInput {
    /// Input of the agent.
    pub input: Value,
    /// The message, with references to assets in the place of files.
    pub message: A2aMessage,
}

/// Returns the id of a submission: a message of a caller that comes again in its context, or to its task, is the same
/// submission. Another caller, or another agent, may have the same context and the same ids of messages. A message that
/// begins a context has no place at which it could be known again.
pub fn event_id(message: &A2aMessage, agent: &AgentId, by: &Principal) -> EventId {
    let (context, task) = (message.context(), message.task());
    if context.is_none() && task.is_none() {
        return ingress::fresh_id();
    }
    let A2aMessage { message_id, parts, .. } = message;
    let said = json!(["a2a", by.mark(), agent, context, task, message_id, parts]).to_string();
    EventId::new(format!("a2a-{}", &sha256_hex(said.as_bytes())[..32])).unwrap_or_else(|_| ingress::fresh_id())
}

/// Returns the text and the values of a message for a question of the agent.
pub fn plain_text(message: &A2aMessage) -> Option<String> {
    let texts: Vec<&str> = message.parts.iter().filter_map(|part| part.text.as_deref()).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

/// Checks the form of a message.
fn check(message: &A2aMessage) -> Result<(), InputError> {
    let refuse = |text: String| Err(InputError::Message(text));
    if message.message_id.is_empty() {
        return refuse("`message.messageId`: expected an id, got an empty text".into());
    }
    if message.role != A2aRole::User {
        return refuse("`message.role`: expected `ROLE_USER`: the agent's messages come from the agent".into());
    }
    if !(1..=PARTS).contains(&message.parts.len()) {
        return refuse(format!("`message.parts`: expected 1 to {PARTS}, got {}", message.parts.len()));
    }
    for (at, part) in message.parts.iter().enumerate() {
        if part.contents() != 1 {
            let found = part.contents();
            return refuse(format!(
                "`message.parts[{at}]`: expected exactly one of `text`, `raw`, `url` and `data`, got {found}"
            ));
        }
        check_type(at, part)?;
    }
    Ok(())
}

/// Checks that agents read content of this type. A file without a type could be anything.
fn check_type(at: usize, part: &A2aPart) -> Result<(), InputError> {
    let Some(said) = part.media_type.as_deref() else {
        let unknown = part.raw.is_some();
        let found = "application/octet-stream".to_owned();
        return if unknown { Err(InputError::MediaType { at, found }) } else { Ok(()) };
    };
    let kind = said.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_read = kind.starts_with("text/") || kind.ends_with("+json") || INPUT_TYPES.contains(&kind.as_str());
    if is_read { Ok(()) } else { Err(InputError::MediaType { at, found: kind.chars().take(80).collect() }) }
}

impl TaskReader<'_> {
    /// Checks a message, stores its files as assets, and returns what the agent reads.
    pub async fn input(&self, message: &A2aMessage) -> Result<AgentInput, InputError> {
        check(message)?;
        let mut message = message.clone();
        for (at, part) in message.parts.iter_mut().enumerate() {
            if let Some(raw) = part.raw.take() {
                part.data = Some(self.store_file(at, part, &raw).await?);
            }
        }
        let input = if has_whole_messages(self.agent) {
            serde_json::to_value(&message).expect("messages serialise")
        } else {
            read_parts(&message.parts)
        };
        let bytes = serde_json::to_vec(&input).map_or(usize::MAX, |text| text.len());
        if bytes > SUBMISSION_BYTES {
            return Err(InputError::Message(format!(
                "the message has {bytes} bytes, expected at most {SUBMISSION_BYTES}; send large files as `raw` parts"
            )));
        }
        Ok(AgentInput { input, message })
    }

    /// Stores a file; returns the reference to it.
    async fn store_file(&self, at: usize, part: &A2aPart, raw: &str) -> Result<Value, InputError> {
        let permitted = self.caller.authority.permits("asset/store", ResourcePath::whole_namespace(Namespace::Assets));
        permitted.map_err(|denied| InputError::Denied(denied.model_text("a message with a file")))?;
        let bytes =
            decode_raw(raw).map_err(|error| InputError::Message(format!("`message.parts[{at}].raw`: {error}")))?;
        let kind = part.media_type.as_deref().unwrap_or("application/octet-stream");
        let draft = Draft::new(bytes, kind, part.filename.clone(), None, self.venue.now());
        let draft = draft.map_err(|error| InputError::Asset { at, error })?;
        let (id, ..) = assets::put(self.venue, &self.caller.owner, &draft).await?;
        Ok(json!({ASSET_KEY: format!("a/{id}")}))
    }
}

/// Decodes the bytes of a file. JSON of protobuf has them in either alphabet, with padding or without.
fn decode_raw(text: &str) -> Result<Vec<u8>, DecodeError> {
    BASE64.decode(text.replace('-', "+").replace('_', "/"))
}

/// Returns what an agent reads of parts: the content of one, or a list.
fn read_parts(parts: &[A2aPart]) -> Value {
    let read = |part: &A2aPart| match (&part.text, &part.url, &part.data) {
        (Some(text), ..) => Value::String(text.clone()),
        (None, Some(url), _) => {
            let mut file = json!({"url": url});
            for (key, value) in [("filename", &part.filename), ("mediaType", &part.media_type)] {
                if let Some(value) = value {
                    file[key] = value.as_str().into();
                }
            }
            file
        }
        (None, None, data) => data.clone().unwrap_or_default(),
    };
    match parts {
        [one] => read(one),
        several => several.iter().map(read).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(parts: &Value) -> A2aMessage {
        serde_json::from_value(json!({"messageId": "m", "role": "ROLE_USER", "parts": parts})).unwrap()
    }

    #[test]
    fn an_agent_reads_texts_and_values() {
        for (parts, expected) in [
            (json!([{"text": "hi"}]), json!("hi")),
            (json!([{"data": {"a": 1}}]), json!({"a": 1})),
            (json!([{"data": null}]), json!(null)),
            (json!([{"text": "see"}, {"data": 7}]), json!(["see", 7])),
            (
                json!([{"url": "https://x/a.png", "mediaType": "image/png"}]),
                json!({"url": "https://x/a.png", "mediaType": "image/png"}),
            ),
        ] {
            let message = message(&parts);
            assert!(check(&message).is_ok(), "{message:?}");
            assert_eq!(read_parts(&message.parts), expected);
        }
    }

    #[test]
    fn a_bad_message_is_refused_with_its_place() {
        for (parts, error) in [
            (json!([]), "`message.parts`: expected 1 to 100, got 0"),
            (json!([{"text": "a", "url": "b"}]), "`message.parts[0]`: expected exactly one"),
            (json!([{"filename": "a"}]), "got 0"),
            (json!([{"text": "a"}, {"raw": "dGNr"}]), "`message.parts[1]`: media type `application/octet-stream`"),
            (json!([{"raw": "dGNr", "mediaType": "application/x-unsupported-tck-type"}]), "x-unsupported-tck-type"),
            (json!([{"text": "a", "mediaType": "audio/ogg"}]), "audio/ogg"),
        ] {
            let found = check(&message(&parts)).unwrap_err().to_string();
            assert!(found.contains(error), "{parts}: {found}");
        }
        let agents = A2aMessage { role: A2aRole::Agent, ..message(&json!([{"text": "a"}])) };
        assert!(check(&agents).unwrap_err().to_string().contains("`ROLE_USER`"));
    }

    #[test]
    fn bytes_are_read_in_every_form_of_base64() {
        for (text, expected) in [
            ("+/8=", Some(&[0xfb, 0xff][..])),
            ("-_8=", Some(&[0xfb, 0xff][..])),
            ("-_8", Some(&[0xfb, 0xff][..])),
            ("", Some(&[][..])),
            ("no base64", None),
        ] {
            assert_eq!(decode_raw(text).ok().as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_repeated_message_has_the_same_id_in_its_context() {
        let agent = |name: &str| AgentId::new(name).unwrap();
        let id = |message: &A2aMessage| event_id(message, &agent("clerk"), &Principal::ANYBODY);
        let first = message(&json!([{"text": "a"}]));
        let empty = A2aMessage { context_id: Some(String::new()), task_id: Some(String::new()), ..first.clone() };
        for unplaced in [&first, &empty] {
            assert_ne!(id(unplaced), id(unplaced), "nothing says that it comes again");
        }
        let placed = A2aMessage { context_id: Some("c".into()), ..first.clone() };
        assert_eq!(id(&placed), id(&placed));
        assert_eq!(id(&placed), id(&A2aMessage { task_id: Some(String::new()), ..placed.clone() }));
        let others = [
            A2aMessage { context_id: Some("d".into()), ..first.clone() },
            A2aMessage { task_id: Some("c".into()), ..first },
            A2aMessage { message_id: "n".into(), ..placed.clone() },
            A2aMessage { parts: vec![A2aPart::of_text("b")], ..placed.clone() },
        ];
        assert!(others.iter().all(|other| id(other) != id(&placed)));
        let ann = Principal::bearer("acme/ann", None, None);
        assert_ne!(event_id(&placed, &agent("clerk"), &ann), id(&placed));
        assert_ne!(event_id(&placed, &agent("other"), &Principal::ANYBODY), id(&placed));
    }
}
