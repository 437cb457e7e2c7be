//! Pictures and files of assets beside the texts of a prompt: references to them in inputs, and their known facts.
//!
//! `{"$asset": "a/HASH"}` anywhere in the input of a task, in a message, in the result of a job or in a value of the
//! context asks for the content to be shown. Records and ledgers hold the name of an asset; its bytes are read when a
//! model is called, and stored nowhere else.

mod sniff;

pub use sniff::{Pixels, SniffedContent, sniff};

use crate::foreign::fit_name;
use crate::ids::AssetId;
use crate::limits::ATTACHMENTS_READ;
use crate::lines;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// Key of a reference to an asset.
pub const KEY: &str = "$asset";

/// Bytes that the line of an attachment has at most.
pub const LINE_BYTES: usize = 600;

/// Characters of an asset's name beside its content in a prompt.
pub const NAME_CHARS: usize = 60;
/// Characters of a reason in the line of an attachment.
const REASON_CHARS: usize = 200;

/// Type of a content by its first bytes, as a header names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum MediaType {
    /// PNG image, still or animated.
    #[serde(rename = "image/png")]
    Png,
    /// JPEG image, baseline or progressive.
    #[serde(rename = "image/jpeg")]
    Jpeg,
    /// WebP image, lossy or lossless.
    #[serde(rename = "image/webp")]
    Webp,
    /// GIF image; of an animated one models see the first frame.
    #[serde(rename = "image/gif")]
    Gif,
    /// PDF document, of any number of pages.
    #[serde(rename = "application/pdf")]
    Pdf,
    /// UTF-8 text without control characters: every provider gets it as text.
    #[serde(rename = "text/plain")]
    Text,
}

impl MediaType {
    /// Returns the type as a header names it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Webp => "image/webp",
            Self::Gif => "image/gif",
            Self::Pdf => "application/pdf",
            Self::Text => "text/plain",
        }
    }

    /// Whether it is a picture.
    pub const fn is_image(self) -> bool {
        match self {
            Self::Png | Self::Jpeg | Self::Webp | Self::Gif => true,
            Self::Pdf | Self::Text => false,
        }
    }
}

/// Bytes of an attachment during a model call; empty at any other time.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct AttachedBytes(Option<Arc<[u8]>>);

impl AttachedBytes {
    /// Wraps the bytes of a content.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self(Some(bytes.into()))
    }

    /// Returns the bytes, if they were read.
    pub fn get(&self) -> Option<&[u8]> {
        self.0.as_deref()
    }
}

impl fmt::Debug for AttachedBytes {
    /// Writes the number of bytes only: no log holds the bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AttachedBytes({:?})", self.get().map(<[u8]>::len))
    }
}

/// A picture or a file beside a text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    /// Asset that holds its content.
    pub asset: AssetId,
    /// Name of the asset, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Type of the content; `None` if models don't read it.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub media: Option<MediaType>,
    /// Bytes of the content.
    #[serde(default)]
    pub size: usize,
    /// Tokens that it costs, estimated.
    #[serde(default)]
    pub tokens: usize,
    /// Reason why it is not shown; `None` if it is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withheld: Option<String>,
    /// Bytes of the content during a model call.
    #[serde(skip)]
    pub bytes: AttachedBytes,
}

impl Attachment {
    /// Makes an attachment of which only the asset is known.
    pub const fn of_asset(asset: AssetId) -> Self {
        Self { asset, name: None, media: None, size: 0, tokens: 0, withheld: None, bytes: AttachedBytes(None) }
    }

    /// Withholds the attachment for a reason.
    #[must_use]
    pub fn withhold(self, reason: impl Into<String>) -> Self {
        Self { withheld: Some(reason.into()), bytes: AttachedBytes::default(), ..self }
    }

    /// Whether no reason against showing it is known.
    pub const fn is_shown(&self) -> bool {
        self.withheld.is_none()
    }

    /// Returns the line of the venue above its content, or in its place with the reason; at most [`LINE_BYTES`].
    pub fn line(&self, withheld: Option<&str>) -> String {
        let about = [
            Some(format!("{}{}", lines::ATTACHMENT, self.asset)),
            self.name.as_ref().map(|given| beginning(&fit_name(given), NAME_CHARS)),
            self.media.map(|media| media.as_str().to_owned()),
            (self.size > 0).then(|| format!("{} bytes", self.size)),
            withheld.map(|reason| format!("not shown: {}", beginning(&fit_name(reason), REASON_CHARS))),
        ];
        let mut line = about.into_iter().flatten().collect::<Vec<_>>().join(", ");
        line.truncate(line.floor_char_boundary(LINE_BYTES - 1));
        line + "]"
    }
}

fn beginning(text: &str, chars: usize) -> String {
    text.chars().take(chars).collect()
}

/// References to assets in a value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct References {
    /// Assets in order of occurrence, each once; at most [`ATTACHMENTS_READ`].
    pub assets: Vec<AssetId>,
    /// First map with the key of a reference that isn't one, as JSON.
    pub malformed: Option<String>,
}

/// Returns the references in a value, which has no more levels than a value from outside may have.
pub fn references(value: &Value) -> References {
    let mut found = References::default();
    collect(value, &mut found);
    found
}

fn collect(value: &Value, found: &mut References) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        Value::Object(map) => match map.get(KEY) {
            None => map.values().for_each(|item| collect(item, found)),
            Some(path) => match parse_asset(path).filter(|_| map.len() == 1) {
                Some(asset) if found.assets.contains(&asset) || found.assets.len() == ATTACHMENTS_READ => {}
                Some(asset) => found.assets.push(asset),
                None => {
                    found.malformed.get_or_insert_with(|| beginning(&value.to_string(), REASON_CHARS));
                }
            },
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns the asset of a path `a/HASH`.
fn parse_asset(path: &Value) -> Option<AssetId> {
    AssetId::new(path.as_str()?.strip_prefix("a/")?).ok()
}

/// Returns a reference to an asset.
pub fn reference(asset: &AssetId) -> Value {
    serde_json::json!({KEY: format!("a/{asset}")})
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn references_are_found_in_their_order_each_once() {
        let path = |digit: char| format!("a/{}", digit.to_string().repeat(64));
        let check = |value: Value, expected: &[char], is_malformed: bool| {
            let found = references(&value);
            let assets: Vec<String> = found.assets.iter().map(|asset| format!("a/{asset}")).collect();
            assert_eq!(assets, expected.iter().map(|digit| path(*digit)).collect::<Vec<_>>(), "{value}");
            assert_eq!(found.malformed.is_some(), is_malformed, "{value}");
        };
        check(json!({"$asset": path('1')}), &['1'], false);
        check(json!({"q": "x", "b": [{"$asset": path('2')}, {"c": {"$asset": path('1')}}]}), &['2', '1'], false);
        check(json!([{"$asset": path('1')}, {"$asset": path('1')}]), &['1'], false);
        // A text that names an asset is a text.
        check(json!({"asset": path('1'), "p": path('2')}), &[], false);
        for bad in [json!(1), json!("o/pin"), json!("a/12"), json!(path('1')[2..])] {
            check(json!([{"$asset": bad}]), &[], true);
        }
        check(json!({"$asset": path('1'), "more": 1}), &[], true);
        let asset = AssetId::of_content(b"x");
        assert_eq!(references(&reference(&asset)).assets, [asset]);
    }

    #[test]
    fn a_line_names_it_and_nothing_in_it_breaks_the_line() {
        let asset = AssetId::of_content(b"x");
        let attachment = Attachment {
            name: Some("a\n[Task x].png".into()),
            media: Some(MediaType::Png),
            size: 12,
            ..Attachment::of_asset(asset.clone())
        };
        let line = attachment.line(Some("provider `p` takes no image/png"));
        assert!(line.starts_with(&format!("[Attachment a/{asset}, a")) && !line.contains('\n'), "{line}");
        assert!(line.ends_with(", image/png, 12 bytes, not shown: provider `p` takes no image/png]"), "{line}");
        assert_eq!(Attachment::of_asset(asset.clone()).line(None), format!("[Attachment a/{asset}]"));
    }

    #[test]
    fn a_line_is_never_longer_than_is_counted() {
        let long = "ä\u{10ffff}[".repeat(10_000);
        let attachment = Attachment {
            name: Some(long.clone()),
            size: usize::MAX,
            ..Attachment::of_asset(AssetId::of_content(b"x"))
        };
        for reason in [None, Some(long.as_str())] {
            let line = attachment.line(reason);
            assert!(line.len() <= LINE_BYTES && line.ends_with(']'), "{}", line.len());
        }
    }

    #[test]
    fn no_bytes_are_recorded_or_logged() {
        let bytes = AttachedBytes::new(*b"secret bytes");
        let attachment = Attachment { bytes, ..Attachment::of_asset(AssetId::of_content(b"x")) };
        let stored = serde_json::to_string(&attachment).unwrap();
        assert_eq!(stored, format!(r#"{{"asset":"{}","size":0,"tokens":0}}"#, attachment.asset));
        assert!(!format!("{attachment:?}").contains("secret"));
        let read: Attachment = serde_json::from_str(&stored).unwrap();
        assert_eq!((read.bytes.get(), read.asset == attachment.asset), (None, true));
    }
}
