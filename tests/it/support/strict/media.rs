//! What providers refuse of pictures and files in a message.

use super::{Verdict, ensure, list, text};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

/// lobehub/lobehub #14711, langchain-ai/langchain #21654: of the Base64, not of the content.
const ANTHROPIC_IMAGE_MAX: usize = 5_242_880;
/// can1357/oh-my-pi #10633: with more, sides of 2,000 pixels are the limit.
const ANTHROPIC_IMAGES_MAX: usize = 20;
/// anomalyco/opencode #5704, marketing-factory/ai-filemetadata #18.
const IMAGES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];
/// EvanZhouDev/gemini-ai #3, microsoft/vscode #286628; documents: QuantumNous/new-api #1139.
const GEMINI: [&str; 6] = ["image/png", "image/jpeg", "image/webp", "image/heic", "image/heif", "application/pdf"];
/// google-gemini/deprecated-generative-ai-android #26, with the limit of today; Mirascope/mirascope #824.
const GEMINI_BODY_MAX: usize = 20_971_520;

/// The type that a content has by its first bytes.
fn appears(bytes: &[u8]) -> &'static str {
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => "image/png",
        [0xff, 0xd8, 0xff, ..] => "image/jpeg",
        [b'G', b'I', b'F', b'8', ..] => "image/gif",
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "image/webp",
        [b'%', b'P', b'D', b'F', b'-', ..] => "application/pdf",
        _ => "unknown",
    }
}

/// A block of a message of Anthropic's: home-assistant/core #167208, BerriAI/litellm #24900.
pub fn check_anthropic(block: &Value, place: &str) -> Verdict {
    let kind = text(block, "type");
    let Some(source) = block.get("source") else { return Err(format!("{place}.{kind}.source: Field required")) };
    let (media, data) = (text(source, "media_type"), text(source, "data"));
    let place = format!("{place}.{kind}.source.base64");
    let is_taken = if kind == "image" { IMAGES.contains(&media) } else { media == "application/pdf" };
    ensure(is_taken, || {
        format!("{place}.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'")
    })?;
    ensure(kind != "image" || data.len() <= ANTHROPIC_IMAGE_MAX, || {
        format!("{place}: image exceeds 5 MB maximum: {} bytes > {ANTHROPIC_IMAGE_MAX} bytes", data.len())
    })?;
    let bytes = BASE64_STANDARD.decode(data).map_err(|_| format!("{place}.data: Invalid base64 data"))?;
    ensure(!bytes.is_empty(), || format!("{place}.data: image cannot be empty"))?;
    let found = appears(&bytes);
    ensure(found == media, || {
        format!(
            "{place}: The image was specified using the {media} media type, but the image appears to be a {found} image"
        )
    })
}

/// How many pictures a request to Anthropic has.
pub fn check_anthropic_count(messages: &[Value]) -> Verdict {
    let blocks = messages.iter().flat_map(|message| list(message, "content"));
    let count = blocks.filter(|block| text(block, "type") == "image").count();
    ensure(count <= ANTHROPIC_IMAGES_MAX, || {
        "At least one of the image dimensions exceed max allowed size for many-image requests: 2000 pixels".into()
    })
}

/// Parts of a user's message in Chat Completions.
pub fn check_openai(part: &Value, place: &str) -> Verdict {
    match text(part, "type") {
        "text" => ensure(part.get("text").is_some_and(Value::is_string), || {
            format!("Missing required parameter: '{place}.text'.")
        }),
        "image_url" => {
            let url = part.pointer("/image_url/url").and_then(Value::as_str);
            check_data_url(url, &IMAGES, place)
        }
        "file" => {
            let file = part.get("file").unwrap_or(&Value::Null);
            check_file(file, &format!("{place}.file"))
        }
        other => Err(format!("Invalid value: '{other}'. Supported values are: 'text', 'image_url', 'file'. ({place})")),
    }
}

/// Parts of a user's message in the Responses API: yuji-hatakeyama/opencode-gpt-imagegen #82.
pub fn check_responses(part: &Value, place: &str) -> Verdict {
    match text(part, "type") {
        "input_image" => check_data_url(part.get("image_url").and_then(Value::as_str), &IMAGES, place),
        "input_file" => check_file(part, place),
        _ => Ok(()),
    }
}

fn check_file(file: &Value, place: &str) -> Verdict {
    ensure(!text(file, "filename").is_empty(), || format!("Missing required parameter: '{place}.filename'."))?;
    check_data_url(file.get("file_data").and_then(Value::as_str), &["application/pdf"], place)
}

/// marketing-factory/ai-filemetadata #18, CosmosShadow/gptpdf #6.
fn check_data_url(url: Option<&str>, taken: &[&str], place: &str) -> Verdict {
    let url = url.ok_or_else(|| format!("Missing required parameter: '{place}'."))?;
    let data = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    let (media, data) = data
        .ok_or_else(|| format!("Invalid '{place}'. Expected a valid URL, but got a value with an invalid format."))?;
    let bytes = BASE64_STANDARD.decode(data).map_err(|_| format!("Invalid base64 in '{place}'."))?;
    ensure(taken.contains(&media) && appears(&bytes) == media, || {
        "You uploaded an unsupported image. Please make sure your image has of one the following formats: ['png', 'jpeg', 'gif', 'webp']."
            .into()
    })
}

/// A part of Gemini's.
pub fn check_gemini(part: &Value, place: &str) -> Verdict {
    let Some(data) = part.get("inlineData") else { return Ok(()) };
    let media = text(data, "mimeType");
    ensure(GEMINI.contains(&media), || format!("Unsupported MIME type: {media}"))?;
    let bytes = BASE64_STANDARD.decode(text(data, "data"));
    let bytes = bytes
        .map_err(|_| format!("Invalid value at '{place}.inline_data.data' (TYPE_BYTES), Base64 decoding failed"))?;
    // AmberSahdev/Open-Interface #64.
    ensure(appears(&bytes) == media, || "Provided image is not valid".into())
}

/// The size of a request to Gemini.
pub fn check_gemini_size(body: &Value) -> Verdict {
    ensure(body.to_string().len() <= GEMINI_BODY_MAX, || {
        format!("Request payload size exceeds the limit: {GEMINI_BODY_MAX} bytes.")
    })
}

/// Parts that a provider without pictures refuses: lessweb/deepcode-cli #50, rikkahub/rikkahub #1433.
pub fn check_text_only(messages: &[Value]) -> Verdict {
    for (at, message) in messages.iter().enumerate() {
        let other = list(message, "content").iter().map(|part| text(part, "type")).find(|kind| *kind != "text");
        ensure(other.is_none(), || {
            let kind = other.unwrap_or_default();
            format!(
                "Failed to deserialize the JSON body into the target type: messages[{at}]: unknown variant `{kind}`, expected `text`"
            )
        })?;
    }
    Ok(())
}
