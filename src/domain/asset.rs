//! Assets: immutable content named by its SHA-256, with a record beside it.

use crate::decode;
use crate::ids::AssetId;
use crate::limits::{ASSET_BYTES, ASSET_DESCRIPTION_BYTES, ATTACHMENT_BYTES, ATTACHMENT_SIDE};
use crate::media::{Attachment, MediaType, NAME_CHARS, SniffedContent};
use crate::time::Millis;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Record beside an asset's content; written once, as the content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AssetRecord {
    /// Text for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Media type (MIME).
    pub content_type: String,
    /// Description that a context shows where the content can't be shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Bytes of the content.
    pub size: usize,
    /// Time at which the asset was first stored.
    pub created: Millis,
    /// Other keys that its maker gave, such as `type`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

impl AssetRecord {
    /// Returns the attachment that a prompt shows. `sniffed` is the type that the first bytes have; an asset that can't
    /// be shown is withheld with a reason.
    pub fn attachment(&self, asset: AssetId, sniffed: Option<SniffedContent>) -> Attachment {
        // Every prompt's record holds the name, so it is cut.
        let name = self.name.as_ref().map(|name| name.chars().take(NAME_CHARS).collect());
        let size = self.size;
        let tokens = sniffed.map_or(0, |found| found.tokens(size));
        let media = sniffed.map(|found| found.media);
        let attachment = Attachment { name, media, size, tokens, ..Attachment::of_asset(asset) };
        if let Some(reason) = self.type_error(media) {
            return Attachment { media: None, ..attachment }.withhold(reason);
        }
        if size > ATTACHMENT_BYTES {
            return attachment.withhold(format!("it has {size} bytes, expected at most {ATTACHMENT_BYTES}"));
        }
        match sniffed.and_then(|found| found.pixels) {
            Some(px) if px.width.max(px.height) > ATTACHMENT_SIDE || px.width.min(px.height) == 0 => {
                let size = format!("{} × {} pixels", px.width, px.height);
                attachment.withhold(format!("it has {size}, expected 1 to {ATTACHMENT_SIDE} a side"))
            }
            Some(_) | None => attachment,
        }
    }

    /// Returns why the named type contradicts the type that the first bytes have.
    fn type_error(&self, found: Option<MediaType>) -> Option<String> {
        let said = self.content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let Some(found) = found else {
            return Some(format!(
                "models read png, jpeg, webp, gif, pdf and text, and its bytes ({said}) are none of these"
            ));
        };
        let is_media = said.starts_with("image/") || said == MediaType::Pdf.as_str();
        let fits = match found {
            MediaType::Jpeg => said == found.as_str() || said == "image/jpg",
            MediaType::Png | MediaType::Webp | MediaType::Gif | MediaType::Pdf => said == found.as_str(),
            MediaType::Text => !is_media,
        };
        let is_said = said != "application/octet-stream";
        (is_said && !fits).then(|| format!("its type says {said}, and its bytes are {}", found.as_str()))
    }
}

/// A request to store an asset that is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssetError {
    /// The request has neither form of content, or several.
    #[error("expected exactly one of `content` (text or JSON), `contentText` and `contentBase64`, or `metadata` alone")]
    Content,
    /// The content isn't an even number of hexadecimal digits.
    #[error("`content`: beside `metadata` expected an even number of hexadecimal digits after `0x`")]
    Hex,
    /// The metadata are larger than 64 KiB.
    #[error("`metadata` has {0} bytes, expected at most {ASSET_METADATA_BYTES}")]
    Metadata(usize),
    /// The content is not Base64.
    #[error("`contentBase64` is not Base64 with padding: {0}")]
    Base64(String),
    /// The content is larger than [`ASSET_BYTES`].
    #[error("the content has {0} bytes, expected at most {ASSET_BYTES}")]
    TooLarge(usize),
    /// The content type is not a media type.
    #[error("`contentType` expected a media type such as `text/markdown`, got `{0}`")]
    ContentType(String),
    /// The name or the description is too long.
    #[error("`{field}` has {bytes} bytes, expected at most {ASSET_DESCRIPTION_BYTES}")]
    TooLong {
        /// Key of the text.
        field: &'static str,
        /// Bytes of the text.
        bytes: usize,
    },
}

/// An asset before it has an id and is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// Content in bytes.
    pub bytes: Vec<u8>,
    /// Record of the content.
    pub record: AssetRecord,
}

/// Bytes of other metadata of an asset at most: lists show them.
const ASSET_METADATA_BYTES: usize = 64 * 1024;

/// Request to store an asset.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AssetForm {
    /// Text, or any JSON value.
    #[serde(default, deserialize_with = "decode::nullable_field")]
    pub content: Option<Value>,
    /// Text, in the place of `content`.
    pub content_text: Option<String>,
    /// Bytes, in the place of `content`.
    pub content_base64: Option<String>,
    /// What is said of it, such as `name`, `description`, `type`; without a content it is the content. Beside it a `content`
    /// that begins with 0x is bytes in hexadecimal digits.
    pub metadata: Option<Map<String, Value>>,
    /// Text for people.
    pub name: Option<String>,
    /// Media type (MIME).
    pub content_type: Option<String>,
    /// What it is; shown in a context where the content can't be.
    pub description: Option<String>,
}

impl AssetForm {
    /// Returns the asset of this request. Content that is no text is stored as JSON; metadata without a content are
    /// their own content.
    pub fn draft(mut self, now: Millis) -> Result<Draft, AssetError> {
        let (bytes, default) = self.take_content()?;
        let mut metadata = self.metadata.unwrap_or_default();
        let mut said = |key: &str| match metadata.get(key) {
            Some(Value::String(text)) => {
                let text = text.clone();
                metadata.shift_remove(key);
                Some(text)
            }
            Some(_) | None => None,
        };
        let said = ["name", "description", "contentType"].map(&mut said);
        let [name, description, content_type] = said;
        let (name, description) = (self.name.or(name), self.description.or(description));
        let content_type = self.content_type.or(content_type);
        let mut draft = Draft::new(bytes, content_type.as_deref().unwrap_or(default), name, description, now)?;
        let size = serde_json::to_vec(&metadata).map_or(usize::MAX, |bytes| bytes.len());
        if size > ASSET_METADATA_BYTES {
            return Err(AssetError::Metadata(size));
        }
        draft.record.metadata = Some(metadata).filter(|metadata| !metadata.is_empty());
        Ok(draft)
    }

    /// Takes the content, and returns it with the media type that counts when none is named.
    fn take_content(&mut self) -> Result<(Vec<u8>, &'static str), AssetError> {
        match (self.content.take(), self.content_text.take(), self.content_base64.take(), &self.metadata) {
            (Some(Value::String(text)), None, None, Some(_)) if text.starts_with("0x") => {
                let bytes = hex::decode(&text[2..]).map_err(|_| AssetError::Hex)?;
                Ok((bytes, "application/octet-stream"))
            }
            (Some(Value::String(text)), None, None, _) | (None, Some(text), None, _) => {
                Ok((text.into_bytes(), "text/plain"))
            }
            (Some(value), None, None, _) => Ok((value.to_string().into_bytes(), "application/json")),
            (None, None, Some(text), _) => {
                let bytes = BASE64_STANDARD.decode(text).map_err(|e| AssetError::Base64(e.to_string()))?;
                Ok((bytes, "application/octet-stream"))
            }
            (None, None, None, Some(metadata)) => {
                // The same metadata in another order make the same asset.
                let mut content = Value::Object(metadata.clone());
                content.sort_all_objects();
                Ok((content.to_string().into_bytes(), "application/json"))
            }
            _ => Err(AssetError::Content),
        }
    }
}

impl Draft {
    /// Makes a draft of bytes, with a name and a description.
    pub fn new(
        bytes: Vec<u8>,
        content_type: &str,
        name: Option<String>,
        description: Option<String>,
        now: Millis,
    ) -> Result<Self, AssetError> {
        if bytes.len() > ASSET_BYTES {
            return Err(AssetError::TooLarge(bytes.len()));
        }
        if !is_media_type(content_type) {
            return Err(AssetError::ContentType(content_type.chars().take(80).collect()));
        }
        for (field, text) in [("name", &name), ("description", &description)] {
            if let Some(text) = text.as_ref().filter(|text| text.len() > ASSET_DESCRIPTION_BYTES) {
                return Err(AssetError::TooLong { field, bytes: text.len() });
            }
        }
        let (content_type, size) = (content_type.to_owned(), bytes.len());
        let record = AssetRecord { name, content_type, description, size, created: now, metadata: None };
        Ok(Self { bytes, record })
    }
}

/// Whether a text is a media type and legal as the value of a header.
fn is_media_type(text: &str) -> bool {
    let token =
        |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&b));
    let (kind, parameters) = text.split_once(';').unwrap_or((text, ""));
    let parts = kind.trim().split_once('/');
    text.len() <= 200
        && parts.is_some_and(|(kind, sub)| token(kind) && token(sub))
        && parameters.bytes().all(|b| b == b' ' || b.is_ascii_graphic())
}

/// Content that is no text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the content is not UTF-8 from byte {at} on")]
pub struct AssetTextError {
    /// Position of the first byte that isn't UTF-8.
    pub at: usize,
}

/// An asset with its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asset {
    /// SHA-256 of the content.
    pub id: AssetId,
    /// Record beside the content.
    pub record: AssetRecord,
    /// Content in bytes.
    pub bytes: Vec<u8>,
}

impl Asset {
    /// Returns the content as text.
    pub fn text(&self) -> Result<&str, AssetTextError> {
        std::str::from_utf8(&self.bytes).map_err(|error| AssetTextError { at: error.valid_up_to() })
    }

    /// Returns the content as a value: parsed where its type is JSON, else as text.
    pub fn value(&self) -> Result<Value, AssetTextError> {
        let text = self.text()?;
        let kind = self.record.content_type.split(';').next().unwrap_or_default().trim();
        if kind == "application/json" || kind.ends_with("+json") {
            // Content of a JSON type that isn't JSON is still text.
            return Ok(decode::lenient_json(text.as_bytes()).unwrap_or_else(|_| text.into()));
        }
        Ok(text.into())
    }

    /// Returns the content as Base64 with padding.
    pub fn base64(&self) -> String {
        BASE64_STANDARD.encode(&self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn draft(asked: &Value) -> Result<Draft, String> {
        let form: AssetForm = decode::into_type(asked.clone()).unwrap();
        form.draft(Millis(5)).map_err(|error| error.to_string())
    }

    #[test]
    fn content_is_text_json_or_bytes() {
        for (asked, bytes, kind) in [
            (json!({"content": "hé"}), "hé".as_bytes(), "text/plain"),
            (json!({"content": {"a": [1]}}), br#"{"a":[1]}"#, "application/json"),
            (json!({"content": null}), b"null", "application/json"),
            (json!({"content": ""}), b"", "text/plain"),
            (json!({"contentBase64": "AP8="}), &[0, 255], "application/octet-stream"),
            (
                json!({"contentBase64": "aGk=", "contentType": "text/markdown; charset=utf-8"}),
                b"hi",
                "text/markdown; charset=utf-8",
            ),
        ] {
            let draft = draft(&asked).unwrap();
            assert_eq!((draft.bytes.as_slice(), draft.record.content_type.as_str()), (bytes, kind), "{asked}");
            assert_eq!((draft.record.size, draft.record.created), (bytes.len(), Millis(5)));
        }
        let metadata = json!({"type": "invoice", "name": "n", "description": "d"});
        for (asked, bytes, kind) in [
            (
                json!({"metadata": metadata}),
                br#"{"description":"d","name":"n","type":"invoice"}"#.as_slice(),
                "application/json",
            ),
            (json!({"metadata": metadata, "contentText": "hi"}), b"hi", "text/plain"),
            (json!({"metadata": metadata, "content": "0x6869"}), b"hi", "application/octet-stream"),
            (json!({"metadata": metadata, "content": "hi"}), b"hi", "text/plain"),
            (
                json!({"metadata": {"type": "invoice", "name": "n", "description": "d", "contentType": "text/markdown"}, "contentBase64": "aGk="}),
                b"hi",
                "text/markdown",
            ),
        ] {
            let Draft { bytes: found, record } = draft(&asked).unwrap();
            assert_eq!((found.as_slice(), record.content_type.as_str()), (bytes, kind), "{asked}");
            assert_eq!((record.name.as_deref(), record.description.as_deref()), (Some("n"), Some("d")));
            let kind = record.metadata.as_ref().and_then(|metadata| metadata.get("type"));
            assert_eq!((kind, record.size), (Some(&json!("invoice")), bytes.len()));
        }
        let named = draft(&json!({"content": "x", "name": "n", "description": "d"})).unwrap().record;
        assert_eq!((named.name.as_deref(), named.description.as_deref()), (Some("n"), Some("d")));
    }

    #[test]
    fn content_that_cannot_be_stored_is_refused_with_a_reason() {
        for (asked, part) in [
            (json!({}), "exactly one of"),
            (json!({"content": "x", "contentBase64": "eA=="}), "exactly one of"),
            (json!({"content": "x", "contentText": "x"}), "exactly one of"),
            (json!({"metadata": {}, "content": "0xabc"}), "hexadecimal digits after `0x`"),
            (json!({"metadata": {"x": "x".repeat(ASSET_METADATA_BYTES)}, "contentText": ""}), "`metadata` has"),
            (json!({"contentBase64": "eA"}), "not Base64"),
            (json!({"contentBase64": "e*=="}), "not Base64"),
            (json!({"content": "x", "contentType": "text"}), "media type"),
            (json!({"content": "x", "contentType": "text/plain\r\nX: y"}), "media type"),
            (json!({"content": "x".repeat(ASSET_BYTES + 1)}), "expected at most"),
            (json!({"content": "x", "description": "x".repeat(ASSET_DESCRIPTION_BYTES + 1)}), "`description` has"),
        ] {
            let error = draft(&asked).unwrap_err();
            assert!(error.contains(part), "expected `{part}` in: {error}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_never_shown_as_text() {
        let asset = |bytes: &[u8], content_type: &str, description: Option<&str>| {
            let description = description.map(str::to_owned);
            let draft = Draft::new(bytes.to_vec(), content_type, None, description, Millis(1)).unwrap();
            Asset { id: AssetId::of_content(bytes), record: draft.record, bytes: draft.bytes }
        };
        let broken = asset(b"abc\xff", "text/plain", Some("a picture"));
        assert_eq!(broken.text(), Err(AssetTextError { at: 3 }));
        assert_eq!(broken.value().unwrap_err().to_string(), "the content is not UTF-8 from byte 3 on");
        assert_eq!(asset(b"\xff", "image/png", None).text(), Err(AssetTextError { at: 0 }));
        assert_eq!(asset(b"[1]", "application/json", None).value(), Ok(json!([1])));
        assert_eq!(asset(b"[1", "application/ld+json", None).value(), Ok(json!("[1")));
        assert_eq!(asset(b"[1]", "text/plain", Some("d")).value(), Ok(json!("[1]")));
    }

    #[test]
    fn an_attachment_is_what_its_bytes_are() {
        use crate::media::Pixels;
        let sniffed =
            |media, side: u32| Some(SniffedContent { media, pixels: Some(Pixels { width: side, height: 1 }) });
        let check = |kind: &str, size: usize, found: Option<SniffedContent>, expected: Option<&str>| {
            let record = AssetRecord {
                name: None,
                content_type: kind.into(),
                description: None,
                size,
                created: Millis(1),
                metadata: None,
            };
            let withheld = record.attachment(AssetId::of_content(b"x"), found).withheld;
            match (&withheld, expected) {
                (None, None) => {}
                (Some(reason), Some(part)) => assert!(reason.contains(part), "{kind}: {reason}"),
                _ => panic!("{kind} {found:?}: got {withheld:?}, expected {expected:?}"),
            }
        };
        check("image/png", 9, sniffed(MediaType::Png, 1), None);
        check("IMAGE/PNG; x=y", 9, sniffed(MediaType::Png, 8_000), None);
        check("image/jpg", 9, sniffed(MediaType::Jpeg, 1), None);
        check("application/octet-stream", 9, sniffed(MediaType::Gif, 1), None);
        check("application/json", 9, Some(SniffedContent { media: MediaType::Text, pixels: None }), None);
        check("image/png", 9, sniffed(MediaType::Jpeg, 1), Some("says image/png, and its bytes are image/jpeg"));
        check("text/plain", 9, sniffed(MediaType::Png, 1), Some("says text/plain, and its bytes are image/png"));
        check("image/svg+xml", 9, Some(SniffedContent { media: MediaType::Text, pixels: None }), Some("image/svg+xml"));
        check("image/png", 9, None, Some("none of these"));
        check("image/png", ATTACHMENT_BYTES, sniffed(MediaType::Png, 1), None);
        check("image/png", ATTACHMENT_BYTES + 1, sniffed(MediaType::Png, 1), Some("expected at most 3932160"));
        check("image/png", 9, sniffed(MediaType::Png, 8_001), Some("8001 × 1 pixels"));
        check("image/png", 9, sniffed(MediaType::Png, 0), Some("0 × 1 pixels"));
    }

    #[test]
    fn the_stored_record_is_pinned() {
        let draft = draft(&json!({"content": "x", "name": "n"})).unwrap();
        let json = r#"{"name":"n","contentType":"text/plain","size":1,"created":5}"#;
        assert_eq!(serde_json::to_string(&draft.record).unwrap(), json);
        assert_eq!(serde_json::from_str::<AssetRecord>(json).unwrap(), draft.record);
    }
}
