//! Parts: contents cut into chunks at positions that their own bytes decide; each part is named by its content.

use crate::ids::Owner;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fastcdc::v2020::FastCDC;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use std::fmt;
use std::sync::Arc;

/// Longest content that stands in the manifest itself; a longer one costs more than a name and a document.
const INLINE_BYTES: usize = 96;
/// Least, mean and greatest bytes of a chunk, which an edit of one byte replaces.
const CHUNK_BYTES: (usize, usize, usize) = (256, 1024, 4096);
/// Bytes of a name: 128 bits, so that two contents of a venue never collide.
const NAME_BYTES: usize = 16;

/// Name of a part: HMAC-SHA256 of owner and content under the venue's key, 128 bits as base64url. Without the key a
/// name reveals nothing about the content.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PartName(String);

impl PartName {
    /// Parses a name; `None` if `text` is none.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        (bytes.len() == NAME_BYTES).then(|| Self(text.to_owned()))
    }

    /// Returns the name as it stands in keys and manifests.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PartName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A name with its content.
pub type NamedPart = (PartName, Arc<str>);

/// Makes the names of the parts of one owner.
#[derive(Clone)]
pub struct PartNamer {
    mac: Hmac<Sha256>,
}

impl fmt::Debug for PartNamer {
    /// Writes the type without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Namer")
    }
}

/// A content as a manifest refers to it, with the parts that it needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PackedContent {
    /// Content lines: `"…"` in place, `@part` by chunk, or `#part` for a list of chunks.
    pub lines: Vec<String>,
    /// Parts that must be stored.
    pub parts: Vec<NamedPart>,
}

impl PartNamer {
    /// Makes a namer for `owner` under the venue's key.
    pub fn new(venue_key: &[u8], owner: &Owner) -> Self {
        let mut mac = Hmac::<Sha256>::new_from_slice(venue_key).expect("HMAC takes a key of any length");
        mac.update(b"part\0");
        mac.update(owner.token().as_bytes());
        mac.update(b"\0");
        Self { mac }
    }

    /// Returns the name of a content.
    pub fn part_name(&self, content: &str) -> PartName {
        let mut mac = self.mac.clone();
        mac.update(content.as_bytes());
        PartName(URL_SAFE_NO_PAD.encode(&mac.finalize().into_bytes()[..NAME_BYTES]))
    }

    /// Packs a content that changes from turn to turn: one line for each chunk, so that an edit costs one chunk.
    pub fn pack(&self, content: &str) -> PackedContent {
        if content.len() <= INLINE_BYTES {
            let quoted = serde_json::Value::from(content).to_string();
            return PackedContent { lines: vec![quoted], parts: Vec::new() };
        }
        let parts: Vec<NamedPart> = chunks(content).map(|chunk| (self.part_name(chunk), chunk.into())).collect();
        PackedContent { lines: parts.iter().map(|(name, _)| format!("@{name}")).collect(), parts }
    }

    /// Packs a content that rarely changes: one line for any size; the list of its chunks is a part too.
    pub fn bundle(&self, content: &str) -> PackedContent {
        let PackedContent { lines, mut parts } = self.pack(content);
        if lines.len() <= 1 {
            return PackedContent { lines, parts };
        }
        let list = lines.join("\n");
        let name = self.part_name(&list);
        let line = format!("#{name}");
        parts.push((name, list.into()));
        PackedContent { lines: vec![line], parts }
    }
}

/// Cuts a content at positions that its bytes decide, never inside a character.
fn chunks(content: &str) -> impl Iterator<Item = &str> {
    let (min, mean, max) = CHUNK_BYTES;
    let cutter = FastCDC::new(content.as_bytes(), min, mean, max);
    let mut from = 0;
    std::iter::from_fn(move || {
        if from >= content.len() {
            return None;
        }
        let (_, end) = cutter.cut(from, content.len() - from);
        let end = (end.max(from + 1)..content.len()).find(|at| content.is_char_boundary(*at)).unwrap_or(content.len());
        let chunk = &content[from..end];
        from = end;
        Some(chunk)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namer() -> PartNamer {
        PartNamer::new(b"key", &"t/u".parse().unwrap())
    }

    fn prose(words: usize) -> String {
        let mut seed = 7_u64;
        let word = |_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            format!("wörd{} ", seed >> 40)
        };
        (0..words).map(word).collect()
    }

    #[test]
    fn chunks_are_the_content_and_end_at_characters() {
        for text in [prose(3_000), "ü".repeat(10_000), "x".into(), String::new()] {
            let cut: Vec<&str> = chunks(&text).collect();
            assert_eq!(cut.concat(), text);
            for chunk in &cut[..cut.len().saturating_sub(1)] {
                assert!((256..=4099).contains(&chunk.len()), "{}", chunk.len());
            }
        }
    }

    #[test]
    fn an_edit_costs_the_chunks_around_it() {
        let namer = namer();
        let before = prose(10_000);
        let known: std::collections::HashSet<_> = namer.pack(&before).parts.into_iter().collect();
        assert!(known.len() > 50);
        let mut middle = before.clone();
        let at = before.floor_char_boundary(before.len() / 2);
        middle.insert_str(at, "edited");
        for after in [middle, format!("{before}more"), format!("more{before}")] {
            let new = namer.pack(&after).parts.into_iter().filter(|part| !known.contains(part)).count();
            assert!((1..=4).contains(&new), "{new} new chunks");
        }
    }

    #[test]
    fn names_depend_on_key_owner_and_content_and_are_pinned() {
        let name = namer().part_name("content");
        assert_eq!(name.as_str(), "LZlWEJPXmGQDmK7nCnuWag");
        assert_eq!(PartName::parse(name.as_str()), Some(name.clone()));
        assert_ne!(name, namer().part_name("Content"));
        assert_ne!(name, PartNamer::new(b"Key", &"t/u".parse().unwrap()).part_name("content"));
        assert_ne!(name, PartNamer::new(b"key", &"t/v".parse().unwrap()).part_name("content"));
        for bad in ["", "x", "a/b", "PINNED!"] {
            assert_eq!(PartName::parse(bad), None);
        }
    }

    #[test]
    fn short_contents_stand_in_place_and_lasting_ones_are_one_line() {
        let namer = namer();
        assert_eq!(namer.pack("a\n\"b\""), PackedContent { lines: vec![r#""a\n\"b\"""#.into()], parts: Vec::new() });
        let long = prose(2_000);
        let (packed, bundle) = (namer.pack(&long), namer.bundle(&long));
        assert!(packed.lines.len() > 5);
        assert_eq!(bundle.lines.len(), 1);
        assert_eq!(bundle.parts.len(), packed.parts.len() + 1);
        assert_eq!(&*bundle.parts.last().unwrap().1, packed.lines.join("\n"));
        let short = prose(20);
        assert_eq!(namer.bundle(&short), namer.pack(&short));
    }
}
