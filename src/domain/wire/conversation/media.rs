//! Sends pictures and files in a user's message, as far as a dialect takes them.

use super::Projection;
use crate::foreign::ForeignText;
use crate::limits::{ATTACHMENTS, ATTACHMENTS_BYTES};
use crate::media::{Attachment, MediaType};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::borrow::Cow;

/// Most characters of the name of a file, without its extension.
const FILE_NAME_CHARS: usize = 100;

/// A part of a user's message as it is sent.
#[derive(Debug, Clone, PartialEq)]
pub enum SentPart<'r> {
    /// A text, which is never blank.
    Text(Cow<'r, str>),
    /// A picture or a file of a type that the provider takes. A line of the venue that names it stands before it.
    Media(SentMedia<'r>),
}

impl SentPart<'_> {
    /// Returns the text; `None` for a picture or a file.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Media(_) => None,
        }
    }
}

/// A picture or a file as it is sent.
#[derive(Debug, Clone, PartialEq)]
pub struct SentMedia<'r> {
    /// Type of the content.
    pub media: MediaType,
    /// Name of the file.
    pub name: String,
    /// Bytes of the content.
    pub bytes: &'r [u8],
}

impl SentMedia<'_> {
    /// Encodes the content as Base64 with padding.
    pub fn base64(&self) -> String {
        BASE64_STANDARD.encode(self.bytes)
    }

    /// Encodes the content as a `data:` URL.
    pub fn data_url(&self) -> String {
        format!("data:{};base64,{}", self.media.as_str(), self.base64())
    }
}

/// Reason why an attachment isn't sent; its line shows the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum UnsentAttachment<'r> {
    /// The attachment is withheld for this reason.
    #[error("{0}")]
    Withheld(&'r str),
    #[error("its content was not loaded")]
    NotLoaded,
    /// The request shows the same asset already.
    #[error("it stands above")]
    Repeated,
    /// The request has as many attachments, or as many bytes of them, as it may.
    #[error("the request has no room for it")]
    NoRoom,
    /// The text is blank.
    #[error("it is empty")]
    Blank,
    /// The bytes are not UTF-8.
    #[error("it is no text")]
    NotText,
    /// The provider doesn't take files of this type; the text of the dialect.
    #[error("{0}")]
    MediaType(String),
}

impl<'r> Projection<'r, '_> {
    /// Sends attachments, each behind a line that names it. If one can't be sent, the line says why.
    pub(super) fn push_attachments(&mut self, attachments: &'r [Attachment]) {
        for attachment in attachments {
            match self.attachment_part(attachment) {
                Ok(part) => {
                    self.attached.insert(attachment.asset.clone());
                    self.attached_bytes += attachment.bytes.get().map_or(0, <[u8]>::len);
                    self.push_user_text(attachment.line(None).into());
                    self.push_user_part(part);
                }
                Err(reason) => self.push_user_text(attachment.line(Some(&reason.to_string())).into()),
            }
        }
    }

    /// Returns the part that shows an attachment, or the reason why it can't be sent.
    fn attachment_part(&self, attachment: &'r Attachment) -> Result<SentPart<'r>, UnsentAttachment<'r>> {
        if let Some(reason) = &attachment.withheld {
            return Err(UnsentAttachment::Withheld(reason));
        }
        let (Some(media), Some(bytes)) = (attachment.media, attachment.bytes.get()) else {
            return Err(UnsentAttachment::NotLoaded);
        };
        if self.attached.contains(&attachment.asset) {
            return Err(UnsentAttachment::Repeated);
        }
        if self.attached.len() >= ATTACHMENTS || self.attached_bytes + bytes.len() > ATTACHMENTS_BYTES {
            return Err(UnsentAttachment::NoRoom);
        }
        match media {
            MediaType::Text => match std::str::from_utf8(bytes) {
                Ok(text) if !text.trim().is_empty() => Ok(SentPart::Text(ForeignText::text(text).into_cow())),
                Ok(_) => Err(UnsentAttachment::Blank),
                Err(_) => Err(UnsentAttachment::NotText),
            },
            MediaType::Png | MediaType::Jpeg | MediaType::Webp | MediaType::Gif | MediaType::Pdf => {
                if let Some(reason) = self.dialect.media_refusal(media) {
                    return Err(UnsentAttachment::MediaType(reason));
                }
                let name = file_name(attachment.name.as_deref(), media);
                Ok(SentPart::Media(SentMedia { media, name, bytes }))
            }
        }
    }
}

/// Makes a name of a file that providers take: letters, digits, `-` and `_`, with the extension of its type.
fn file_name(given: Option<&str>, media: MediaType) -> String {
    let ending = media.as_str().rsplit('/').next().unwrap_or_default();
    let stem = given.unwrap_or_default();
    let stem = stem.rsplit_once('.').map_or(stem, |(stem, _)| stem);
    let kept = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let stem: String = stem.chars().map(kept).take(FILE_NAME_CHARS).collect();
    format!("{}.{ending}", if stem.is_empty() { "attachment" } else { &stem })
}
