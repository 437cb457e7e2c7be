//! What providers refuse of pictures and files.

use crate::support::attachments::png;
use crate::support::strict::{Judge, refusal};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

fn check(judge: Judge, body: &Value, expected: Option<&str>) {
    match (refusal(judge, body), expected) {
        (None, None) => {}
        (Some(said), Some(part)) => assert!(said.contains(part), "{judge:?}: expected `{part}`: {said}"),
        (said, expected) => panic!("{judge:?}: got {said:?}, expected {expected:?}"),
    }
}

fn data(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

#[test]
fn media_for_anthropic_are_judged() {
    let body =
        |block: &Value| json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": [block]}]});
    let image = |media: &str, data: &str| json!({"type": "image", "source": {"type": "base64", "media_type": media, "data": data}});
    let (small, large) = (data(&png(1)), data(&[png(1), vec![0; 3_932_160]].concat()));
    for (block, expected) in [
        (image("image/png", &small), None),
        (image("image/jpeg", &small), Some("appears to be a image/png image")),
        (image("image/bmp", &small), Some("Input should be 'image/jpeg', 'image/png'")),
        (image("image/png", "%"), Some("Invalid base64 data")),
        (image("image/png", ""), Some("image cannot be empty")),
        (image("image/png", &large), Some("image exceeds 5 MB maximum")),
        (json!({"type": "document", "source": {"media_type": "application/pdf", "data": data(b"%PDF-1")}}), None),
        (json!({"type": "image"}), Some("source: Field required")),
    ] {
        check(Judge::Anthropic, &body(&block), expected);
    }
    let many = vec![image("image/png", &small); 21];
    let body = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": many}]});
    check(Judge::Anthropic, &body, Some("many-image requests"));
}

#[test]
fn media_for_chat_completions_are_judged() {
    let body = |part: &Value| json!({"model": "m", "messages": [{"role": "user", "content": [part]}]});
    let image = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
    let good = image(&format!("data:image/png;base64,{}", data(&png(1))));
    check(Judge::DeepSeek, &body(&good), Some("unknown variant `image_url`, expected `text`"));
    check(Judge::Mistral, &body(&good), None);
    for (part, expected) in [
        (good, None),
        (image(&format!("data:image/jpeg;base64,{}", data(&png(1)))), Some("unsupported image")),
        (image("data:image/png;base64,%"), Some("Invalid base64")),
        (image("x"), Some("invalid format")),
        (json!({"type": "image_url"}), Some("Missing required parameter")),
        (json!({"type": "input_image"}), Some("Supported values are")),
        (json!({"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0="}}), Some("filename")),
        (json!({"type": "file", "file": {"filename": "a", "file_data": "data:application/pdf;base64,JVBERi0="}}), None),
    ] {
        check(Judge::OpenAi, &body(&part), expected);
    }
}

#[test]
fn media_for_responses_and_gemini_are_judged() {
    let input = |part: &Value| json!({"model": "m", "input": [{"role": "user", "content": [part]}]});
    let url = format!("data:image/png;base64,{}", data(&png(1)));
    check(Judge::Responses, &input(&json!({"type": "input_image", "image_url": url})), None);
    check(
        Judge::Responses,
        &input(&json!({"type": "input_image", "image_url": "data:image/bmp;base64,Qk0="})),
        Some("unsupported"),
    );
    let part = |media: &str, data: &str| json!({"contents": [{"role": "user", "parts": [{"inlineData": {"mimeType": media, "data": data}}]}]});
    check(Judge::Gemini, &part("image/png", &data(&png(1))), None);
    check(Judge::Gemini, &part("image/gif", "R0lGODlh"), Some("Unsupported MIME type: image/gif"));
    check(Judge::Gemini, &part("image/png", "%"), Some("Base64 decoding failed"));
    check(Judge::Gemini, &part("image/webp", &data(&png(1))), Some("Provided image is not valid"));
    let large = data(&[png(1), vec![0; 15_800_000]].concat());
    check(Judge::Gemini, &part("image/png", &large), Some("exceeds the limit"));
}
