//! What is masked, and what is left.

use super::*;
use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE};
use serde_json::json;

const VALUE: &str = "sk-live/9aÜ+ \"q\\z?>";

fn mask_of(values: &[(&str, &str)]) -> Mask {
    let mut mask = Mask::default();
    for (name, value) in values {
        mask.add(&name.parse().unwrap(), &PlainSecret::new((*value).to_owned()).unwrap());
    }
    mask
}

fn mask() -> Mask {
    mask_of(&[("KEY", VALUE)])
}

fn percent(text: &str, keep: &str, lower: bool) -> String {
    let one = |byte: u8| match char::from(byte) {
        c if c.is_ascii_alphanumeric() || keep.contains(c) => c.to_string(),
        _ if lower => format!("%{byte:02x}"),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

fn json_text(text: &str) -> String {
    let quoted = serde_json::to_string(text).unwrap();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Every encoding of a value that has to be found, by name.
fn encodings(value: &str) -> Vec<(&'static str, String)> {
    let escaped = value.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect::<Vec<_>>().concat();
    let ascii: String = value
        .chars()
        .map(|c| {
            let mut units = [0; 2];
            if c.is_ascii() {
                json_text(&c.to_string())
            } else {
                c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect::<Vec<_>>().concat()
            }
        })
        .collect();
    let colons: Vec<String> = value.bytes().map(|byte| format!("{byte:02X}")).collect();
    let html = value.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;");
    vec![
        ("plain", value.to_owned()),
        ("lower", value.to_ascii_lowercase()),
        ("upper", value.to_ascii_uppercase()),
        ("json", json_text(value)),
        ("json in json", json_text(&json_text(value))),
        ("json with slashes", json_text(value).replace('/', "\\/")),
        ("json in ASCII", ascii),
        ("every character escaped", escaped),
        ("component", percent(value, "-_.!~*'()", false)),
        ("component, lower", percent(value, "-_.!~*'()", true)),
        ("all", percent(value, "", false)),
        ("form", percent(value, "-_.* ", false).replace(' ', "+")),
        ("twice", percent(&percent(value, "", false), "", false)),
        ("path", percent(value, "-_./+?>", false)),
        ("html", html),
        ("hex", hex::encode(value)),
        ("HEX", hex::encode_upper(value)),
        ("hex:", colons.join(":")),
        ("hex ", colons.join(" ")),
        ("base64", BASE64_STANDARD.encode(value)),
        ("base64url", BASE64_URL_SAFE.encode(value)),
        ("base64, bare", BASE64_STANDARD_NO_PAD.encode(value)),
        ("base64 in a URL", percent(&BASE64_STANDARD.encode(value), "", false)),
    ]
}

#[test]
fn a_secret_is_masked_in_every_encoding_and_the_rest_stays() {
    for value in [VALUE, "hunter2hunter2", "12345678", "päßword🔑päßword", "a\r\nb\tc\u{7}defgh"] {
        let mask = mask_of(&[("KEY", value)]);
        for (name, text) in encodings(value) {
            for (before, after) in [("", ""), ("<", ">"), ("one ", " two"), ("\"", "\""), ("%", "%"), ("\\", "\\")] {
                let shown = mask.text(&format!("{before}{text}{after}")).into_owned();
                // A backslash may as well belong to the escape after it.
                let kept = before == "\\" || (shown.starts_with(before) && shown.ends_with(after));
                assert!(kept && shown.contains("[secret KEY]"), "{name} of {value:?} in {before:?}: {shown}");
                assert!(
                    shown.len() <= before.len() + after.len() + "[secret KEY]%3D%3D".len(),
                    "{name} of {value:?}: {shown}"
                );
            }
        }
    }
}

#[test]
fn base64_is_found_at_every_alignment_with_any_neighbours() {
    for value in [VALUE, "hunter2h", "hunter2hu", "hunter2hun"] {
        let mask = mask_of(&[("KEY", value)]);
        for before in ["", "u", "us", "use", "user:"] {
            for after in ["", "x", "xy", "xyz"] {
                let all = format!("{before}{value}{after}");
                for text in [BASE64_STANDARD.encode(&all), BASE64_URL_SAFE_NO_PAD.encode(&all)] {
                    let shown = mask.text(&text);
                    assert!(shown.contains("[secret KEY]"), "{before}{value}{after}: {text} -> {shown}");
                    let left = shown.replace("[secret KEY]", "").trim_end_matches('=').len();
                    assert!(left <= (before.len() + after.len()) * 4 / 3 + 2, "{text} -> {shown}");
                }
            }
        }
    }
    let long = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+/0123456789";
    let wrapped = BASE64_STANDARD.encode(long).chars().collect::<Vec<_>>();
    for end in ["\r\n", "\n", "\\r\\n", "\\n", "%0D%0A"] {
        let lines: Vec<String> = wrapped.chunks(76).map(|line| line.iter().collect()).collect();
        assert_eq!(mask_of(&[("K", long)]).text(&lines.join(end)), "[secret K]");
    }
}

#[test]
fn values_are_masked_in_keys_strings_and_numbers() {
    let mask = mask_of(&[("PIN", "12345678"), ("KEY", "hunter2hunter2")]);
    let given =
        json!({"hunter2hunter2": [12_345_678, 9_123_456_780_u64, 1234, true, null], "x": "Bearer hunter2hunter2"});
    let shown = json!({"[secret KEY]": ["[secret PIN]", "[secret PIN]", 1234, true, null], "x": "Bearer [secret KEY]"});
    assert_eq!(mask.value(given), shown);
}

#[test]
fn other_text_stays_as_it_is() {
    let mask = mask();
    for text in ["", "sk-live/9a", "%%%\\\\\\&&&", "sk-live", "ä%C3", "\\u00", "&#", "aGVsbG8gd29ybGQ="] {
        assert!(matches!(mask.text(text), Cow::Borrowed(same) if same == text), "{text}");
    }
    assert_eq!(Mask::default().text("hunter2"), "hunter2");
}

#[test]
fn lines_and_decoded_forms_of_a_secret_are_masked() {
    let pem = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSjAgEAAoIBAQC7\n-----END KEY-----\n";
    let mask = mask_of(&[("PEM", pem)]);
    assert_eq!(mask.text("got BKcwggSjAgEAAoIBAQC7."), "got [secret PEM].");
    assert_eq!(mask.text(&json_text(pem)), "[secret PEM]");
    let basic = BASE64_STANDARD.encode("user:hunter2hunter2");
    assert_eq!(mask_of(&[("B", &basic)]).text("you are user:hunter2hunter2"), "you are [secret B]");
}

#[test]
fn the_longest_secret_and_all_repetitions_are_masked() {
    let mask = mask_of(&[("A", "hunter2hunter2"), ("B", "hunter2hunter2-long")]);
    assert_eq!(mask.text("hunter2hunter2-long hunter2hunter2hunter2hunter2"), "[secret B] [secret A][secret A]");
}

#[test]
fn a_stream_shows_nothing_of_a_secret_however_it_is_cut() {
    let mask = mask();
    for (name, text) in encodings(VALUE) {
        let whole = format!("The key is {text}, as you see: sk-li");
        let expected = mask.text(&whole).into_owned();
        for size in [1, 2, 3, 7, 1000] {
            let chars: Vec<char> = whole.chars().collect();
            let mut stream = mask.stream();
            let mut shown: Vec<String> =
                chars.chunks(size).map(|piece| stream.push(&piece.iter().collect::<String>())).collect();
            if size == 1 {
                assert!(shown[..12].concat().starts_with("The key is"), "{name}: {shown:?} is held back");
            }
            shown.push(stream.finish());
            assert_eq!(shown.concat(), expected, "{name} by {size}");
        }
    }
}

#[test]
fn hostile_text_takes_linear_time() {
    let mask = mask_of(&[("P", &"%25".repeat(40)), ("S", &"\\".repeat(40)), ("A", &"a".repeat(60))]);
    for text in ["%25", "\\", "%", "a", "%61", "&#97;"] {
        let hostile = text.repeat(30_000 / text.len());
        let shown = mask.text(&hostile);
        assert!(shown.len() <= hostile.len() + 100, "{text}");
    }
}

#[test]
fn a_text_that_was_cut_shows_no_beginning_of_a_secret() {
    let (mask, begin) = (mask(), VALUE.chars().take(4).collect::<String>());
    for (_, secret) in encodings(VALUE) {
        let text = format!("who are you, {secret}? ");
        for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
            let shown = mask.cut_text(&text[..end]);
            let encoded: String = secret.chars().take(8).collect();
            assert!(!shown.contains(&begin) && !shown.contains(&encoded), "{shown}");
            assert!(shown.starts_with(&text[..end.min(13)]), "{shown}");
        }
        let shown = mask.cut_text(&text);
        assert!(shown.contains("[secret KEY]") && shown.ends_with("? "), "{text}: {shown}");
    }
    assert_eq!(mask.cut_text("a text that ends with sk-"), "a text that ends with sk-");
    assert_eq!(Mask::default().cut_text("sk-live/9"), "sk-live/9");
}
