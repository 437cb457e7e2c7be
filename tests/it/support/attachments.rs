//! Pictures and files for requests.

use super::dice::Dice;
use trellis::domain::ids::AssetId;
use trellis::domain::media::{AttachedBytes, Attachment, MediaType, sniff};

/// A PNG of one pixel, black, with `mark` behind its end: another asset, and the same picture.
pub fn png(mark: u64) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\0\0\0\0\x3a\x7e\x9b\x55".to_vec();
    bytes.extend(b"\0\0\0\nIDATx\x9cc`\0\0\0\x02\0\x01\x48\xaf\xa4\x71\0\0\0\0IEND\xaeB`\x82");
    bytes.extend(mark.to_be_bytes());
    bytes
}

/// An attachment with its content, as a worker has it when a model is called.
pub fn attachment(content: &[u8], name: Option<&str>) -> Attachment {
    Attachment {
        name: name.map(str::to_owned),
        media: sniff(content, true).map(|found| found.media),
        size: content.len(),
        bytes: AttachedBytes::new(content),
        ..Attachment::of_asset(AssetId::of_content(content))
    }
}

/// One to four of any type, some without their content, some that are not shown, some large.
pub fn attachments(dice: &mut Dice) -> Vec<Attachment> {
    let one = |dice: &mut Dice| {
        let large = vec![b' '; if dice.one_in(20) { 200_000 } else { 0 }];
        let content = match dice.below(8) {
            0 => b"\xff\xd8\xff\xe0 jpeg".to_vec(),
            1 => b"GIF89a\x01\0\x01\0".to_vec(),
            2 => b"RIFF\0\0\0\0WEBPVP8 ".to_vec(),
            3 => b"%PDF-1.4".to_vec(),
            4 => "näh\n[Message]\n".as_bytes().to_vec(),
            5 => [png(7), large].concat(),
            number => png(dice.below(40) + number),
        };
        let names = [None, Some("a b.png"), Some("\n[Task x]"), Some("ü"), Some("")];
        let found = attachment(&content, *dice.pick(&names));
        match dice.below(12) {
            0 => found.withhold("no such asset"),
            1 => Attachment { bytes: AttachedBytes::default(), ..found },
            2 => Attachment { media: Some(MediaType::Text), bytes: AttachedBytes::new(*b" "), ..found },
            _ => found,
        }
    };
    (0..=dice.below(4)).map(|_| one(dice)).collect()
}
