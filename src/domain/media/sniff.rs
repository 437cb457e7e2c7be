//! Type of a content by its first bytes, whatever its name says, and its cost in tokens.

use super::MediaType;

/// Assumed pixels of a picture whose first bytes don't hold its size.
const ASSUMED_SIZE: Pixels = Pixels { width: 2_000, height: 2_000 };
/// Longest side in pixels to which Anthropic scales pictures for its newest models.
const ANTHROPIC_SIDE: u64 = 2_576;
/// Pixels per token at Anthropic: <https://docs.claude.com/en/docs/build-with-claude/vision>.
const ANTHROPIC_PIXELS: u64 = 750;
/// Tokens of a picture at Anthropic at most.
const ANTHROPIC_TOKENS: u64 = 4_784;
/// Longer and shorter side to which OpenAI scales pictures, and side of its tiles; tokens of a picture and of a tile:
/// <https://platform.openai.com/docs/guides/images-vision>.
const OPENAI_SIDES: (u64, u64) = (2_048, 768);
const OPENAI_TILE: u64 = 512;
const OPENAI_TOKENS: (u64, u64) = (85, 170);
/// Side of a tile of Gemini, and its tokens: <https://ai.google.dev/gemini-api/docs/tokens>.
const GEMINI_TILE: u64 = 768;
const GEMINI_TOKENS: u64 = 258;
/// Assumed bytes of a page of a PDF, and its tokens: 1,500 to 3,000 for its text, and a picture of it. The first bytes
/// don't hold the number of pages.
const PAGE_BYTES: usize = 100_000;
const PAGE_TOKENS: usize = 3_000;
/// Bytes of a token of text.
const TEXT_BYTES: usize = 4;

/// Size of a picture in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pixels {
    /// Pixels from left to right.
    pub width: u32,
    /// Pixels from top to bottom.
    pub height: u32,
}

/// Type and size of a content by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SniffedContent {
    /// Type of the content.
    pub media: MediaType,
    /// Size of a picture, if its first bytes hold it.
    pub pixels: Option<Pixels>,
}

/// Returns the type of a content that begins with these bytes; `None` if models don't read it. `is_whole`: there are no
/// more bytes.
pub fn sniff(bytes: &[u8], is_whole: bool) -> Option<SniffedContent> {
    let found = |media, pixels| Some(SniffedContent { media, pixels });
    if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        return found(MediaType::Png, png(bytes));
    }
    if bytes.starts_with(&[0xff, 0xd8, 0xff]) {
        return found(MediaType::Jpeg, jpeg(bytes));
    }
    if bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a") {
        return found(MediaType::Gif, gif(bytes));
    }
    if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        return found(MediaType::Webp, webp(bytes));
    }
    if bytes.starts_with(b"%PDF-") {
        return found(MediaType::Pdf, None);
    }
    if is_text(bytes, is_whole) { found(MediaType::Text, None) } else { None }
}

impl SniffedContent {
    /// Returns the tokens that a content of `size` bytes costs with the provider that takes most.
    pub fn tokens(&self, size: usize) -> usize {
        match self.media {
            MediaType::Png | MediaType::Jpeg | MediaType::Webp | MediaType::Gif => {
                image_tokens(self.pixels.unwrap_or(ASSUMED_SIZE))
            }
            MediaType::Pdf => size.div_ceil(PAGE_BYTES) * PAGE_TOKENS,
            MediaType::Text => size.div_ceil(TEXT_BYTES),
        }
    }
}

fn image_tokens(pixels: Pixels) -> usize {
    let (long, short) =
        (u64::from(pixels.width.max(pixels.height)).max(1), u64::from(pixels.width.min(pixels.height)).max(1));
    // Scales both sides down alike, so that the side `of` has at most `to` pixels.
    let scale = |(long, short): (u64, u64), of: u64, to: u64| {
        if of > to { ((long * to / of).max(1), (short * to / of).max(1)) } else { (long, short) }
    };
    let anthropic = scale((long, short), long, ANTHROPIC_SIDE);
    let anthropic = (anthropic.0 * anthropic.1).div_ceil(ANTHROPIC_PIXELS).min(ANTHROPIC_TOKENS);
    let openai = scale((long, short), long, OPENAI_SIDES.0);
    let openai = scale(openai, openai.1, OPENAI_SIDES.1);
    let tiles = openai.0.div_ceil(OPENAI_TILE) * openai.1.div_ceil(OPENAI_TILE);
    let openai = OPENAI_TOKENS.0 + OPENAI_TOKENS.1 * tiles;
    let gemini = long.div_ceil(GEMINI_TILE).saturating_mul(short.div_ceil(GEMINI_TILE)).saturating_mul(GEMINI_TOKENS);
    usize::try_from(anthropic.max(openai).max(gemini)).unwrap_or(usize::MAX)
}

fn be_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn be_u16(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?).into())
}

fn le_u16(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?).into())
}

fn png(bytes: &[u8]) -> Option<Pixels> {
    Some(Pixels { width: be_u32(bytes, 16)?, height: be_u32(bytes, 20)? })
}

fn gif(bytes: &[u8]) -> Option<Pixels> {
    Some(Pixels { width: le_u16(bytes, 6)?, height: le_u16(bytes, 8)? })
}

/// Reads the size from the frame header, behind the segments before it.
fn jpeg(bytes: &[u8]) -> Option<Pixels> {
    let mut at = 2;
    loop {
        // Fill bytes may precede a marker.
        while *bytes.get(at)? == 0xff && *bytes.get(at + 1)? == 0xff {
            at += 1;
        }
        let marker = *bytes.get(at + 1).filter(|_| bytes[at] == 0xff)?;
        let is_frame = (0xc0..=0xcf).contains(&marker) && ![0xc4, 0xc8, 0xcc].contains(&marker);
        if is_frame {
            return Some(Pixels { height: be_u16(bytes, at + 5)?, width: be_u16(bytes, at + 7)? });
        }
        at += 2 + usize::try_from(be_u16(bytes, at + 2)?).ok()?;
    }
}

fn webp(bytes: &[u8]) -> Option<Pixels> {
    let pixels = match bytes.get(12..16)? {
        b"VP8 " => (le_u16(bytes, 26)? & 0x3fff, le_u16(bytes, 28)? & 0x3fff),
        b"VP8L" => {
            let bits = u32::from_le_bytes(bytes.get(21..25)?.try_into().ok()?);
            ((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1)
        }
        b"VP8X" => {
            let side =
                |at: usize| Some((u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) & 0x00ff_ffff) + 1);
            // The height is the last field of the header; the shortest file has no fourth byte behind it.
            let height = le_u16(bytes, 27)? | u32::from(*bytes.get(29)?) << 16;
            (side(24)?, height + 1)
        }
        _ => return None,
    };
    Some(Pixels { width: pixels.0, height: pixels.1 })
}

/// Whether bytes are UTF-8 without the control characters of binary formats; a part may end inside a character.
fn is_text(bytes: &[u8], is_whole: bool) -> bool {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if !is_whole && error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    !text.chars().any(|c| c < ' ' && !"\t\n\r\u{b}\u{c}\u{1b}".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png_of(width: u32, height: u32) -> Vec<u8> {
        let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        bytes.extend(width.to_be_bytes());
        bytes.extend(height.to_be_bytes());
        bytes
    }

    #[test]
    fn first_bytes_tell_type_and_size() {
        let check = |bytes: &[u8], expected: Option<(MediaType, Option<(u32, u32)>)>| {
            let found = sniff(bytes, true).map(|found| (found.media, found.pixels.map(|px| (px.width, px.height))));
            assert_eq!(found, expected, "{bytes:02x?}");
        };
        check(&png_of(640, 480), Some((MediaType::Png, Some((640, 480)))));
        check(&png_of(640, 480)[..20], Some((MediaType::Png, None)));
        check(b"GIF89a\x0a\0\x14\0", Some((MediaType::Gif, Some((10, 20)))));
        let jpeg = b"\xff\xd8\xff\xe0\0\x04ab\xff\xff\xc2\0\x11\x08\x01\x00\x02\x00";
        check(jpeg, Some((MediaType::Jpeg, Some((512, 256)))));
        check(&jpeg[..12], Some((MediaType::Jpeg, None)));
        let webp = |kind: &[u8], rest: &[u8]| [b"RIFF\0\0\0\0WEBP", kind, rest].concat();
        let lossy = webp(b"VP8 ", b"\0\0\0\0\0\0\0\x9d\x01\x2a\x0a\x40\x14\x80");
        check(&lossy, Some((MediaType::Webp, Some((10, 20)))));
        let lossless = webp(b"VP8L", &[0, 0, 0, 0, 0x2f, 9, 0xc0, 4, 0]);
        check(&lossless, Some((MediaType::Webp, Some((10, 20)))));
        let extended = webp(b"VP8X", &[10, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 19, 0, 0]);
        check(&extended, Some((MediaType::Webp, Some((10, 20)))));
        check(b"%PDF-1.7\n%\xe2\xe3", Some((MediaType::Pdf, None)));
        check("näh\n".as_bytes(), Some((MediaType::Text, None)));
        check(b"", Some((MediaType::Text, None)));
        for other in [&b"a\0b"[..], b"\xff\xfe", b"PK\x03\x04", b"\x7fELF\0", "ä".as_bytes().split_at(1).0] {
            check(other, None);
        }
        assert_eq!(sniff("ä".as_bytes().split_at(1).0, false).map(|found| found.media), Some(MediaType::Text));
    }

    #[test]
    fn hostile_heads_end() {
        let zero = [0xff, 0xd8, 0xff, 0xe0, 0, 0].repeat(1_000);
        assert!(sniff(&zero, true).is_some_and(|found| found.media == MediaType::Jpeg));
        for end in 0..40 {
            let _ = sniff(&png_of(u32::MAX, u32::MAX)[..end.min(24)], true);
        }
        let huge = sniff(&png_of(u32::MAX, u32::MAX), true).unwrap();
        assert!(huge.tokens(1) > 1_000_000);
    }

    #[test]
    fn tokens_are_those_of_the_provider_that_takes_most() {
        let of = |width, height| image_tokens(Pixels { width, height });
        for (size, expected) in [((1, 1), 258), ((512, 512), 350), ((1_024, 1_024), 1_399), ((1_568, 1_568), 3_279)] {
            assert_eq!(of(size.0, size.1), expected, "{size:?}");
        }
        assert_eq!(of(8_000, 8_000), 121 * 258);
        assert_eq!(of(0, 0), 258);
        let pdf = SniffedContent { media: MediaType::Pdf, pixels: None };
        assert_eq!((pdf.tokens(1), pdf.tokens(1_000_000)), (3_000, 30_000));
        assert_eq!(SniffedContent { media: MediaType::Text, pixels: None }.tokens(4_001), 1_001);
    }
}
