//! Pictures and files in every format.

use super::super::dialect::DIALECTS;
use super::*;
use crate::limits::ATTACHMENTS_BYTES;

fn attachment(media: MediaType, content: &[u8]) -> Attachment {
    Attachment {
        name: Some("my file.x".into()),
        media: Some(media),
        size: content.len(),
        bytes: AttachedBytes::new(content),
        ..Attachment::of_asset(AssetId::of_content(content))
    }
}

/// A request whose one message has these attachments.
fn with(provider: &str, attachments: Vec<Attachment>) -> ModelRequest {
    ModelRequest { messages: vec![ChatMessage::User { text: "see".into(), attachments }], ..request(provider) }
}

/// The parts of the last message as they are sent.
fn parts(request: &ModelRequest) -> Value {
    let body = body(request);
    let messages = ["messages", "input", "contents"].into_iter().find_map(|key| body[key].as_array()).unwrap();
    let last = messages.last().unwrap();
    if last["content"].is_null() { last["parts"].clone() } else { last["content"].clone() }
}

#[test]
fn each_format_has_its_own_parts() {
    let (png, pdf) = (attachment(MediaType::Png, b"png"), attachment(MediaType::Pdf, b"pdf"));
    let lines = [png.line(None), pdf.line(None)];
    let check = |provider: &str, text: &str, key: &str, image: Value, file: Value| {
        let text = |said: &str| if text.is_empty() { json!({key: said}) } else { json!({"type": text, key: said}) };
        let expected = json!([text("see"), text(&lines[0]), image, text(&lines[1]), file]);
        assert_eq!(parts(&with(provider, vec![png.clone(), pdf.clone()])), expected, "{provider}");
    };
    let (png_url, pdf_url) = ("data:image/png;base64,cG5n", "data:application/pdf;base64,cGRm");
    check(
        "openai",
        "text",
        "text",
        json!({"type": "image_url", "image_url": {"url": png_url}}),
        json!({"type": "file", "file": {"filename": "my_file.pdf", "file_data": pdf_url}}),
    );
    check(
        "openai_resp",
        "input_text",
        "text",
        json!({"type": "input_image", "detail": "auto", "image_url": png_url}),
        json!({"type": "input_file", "filename": "my_file.pdf", "file_data": pdf_url}),
    );
    check(
        "anthropic",
        "text",
        "text",
        json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "cG5n"}}),
        json!({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "cGRm"}}),
    );
    check(
        "gemini",
        "",
        "text",
        json!({"inlineData": {"mimeType": "image/png", "data": "cG5n"}}),
        json!({"inlineData": {"mimeType": "application/pdf", "data": "cGRm"}}),
    );
}

#[test]
fn text_goes_as_text_to_every_provider_and_forges_no_line() {
    let note = attachment(MediaType::Text, b"hi\n[Task x]");
    for dialect in DIALECTS {
        let sent = parts(&with(dialect.provider, vec![note.clone()])).to_string();
        assert!(sent.contains("[Attachment a/") && sent.contains("hi\\n> [Task x]"), "{}: {sent}", dialect.provider);
        assert!(!sent.contains("base64"), "{}", dialect.provider);
    }
}

#[test]
fn unsupported_attachments_become_a_line_with_the_reason() {
    let large = || attachment(MediaType::Png, &vec![0; ATTACHMENTS_BYTES]);
    let absent = Attachment { bytes: AttachedBytes::default(), ..attachment(MediaType::Png, b"x") };
    let check = |provider: &str, attachments: Vec<Attachment>, expected: &str| {
        let sent = parts(&with(provider, attachments)).to_string();
        assert!(sent.contains("not shown: ") && sent.contains(expected), "{provider}: {sent:.600}");
    };
    check("deepseek", vec![attachment(MediaType::Png, b"x")], "`deepseek` takes no images or files");
    check("gemini", vec![attachment(MediaType::Gif, b"x")], "takes no image/gif, but image/png");
    check("groq", vec![attachment(MediaType::Pdf, b"x")], "takes no application/pdf");
    check("openai", vec![absent], "was not loaded");
    check("openai", vec![attachment(MediaType::Text, b" \n")], "it is empty");
    check("openai", vec![attachment(MediaType::Text, b"\xff")], "it is no text");
    check("openai", vec![attachment(MediaType::Png, b"x").withhold("gone")], "not shown: gone");
    check("openai", vec![attachment(MediaType::Png, b"x"), large()], "no room");
    check("openai", vec![attachment(MediaType::Png, b"x"), attachment(MediaType::Png, b"x")], "it stands above");
    let many = (0..21_u8).map(|n| attachment(MediaType::Png, &[n])).collect();
    check("anthropic", many, "no room");
}

#[test]
fn a_conversation_of_texts_stays_one_text() {
    for provider in ["openai", "openai_resp"] {
        let sent = parts(&with(provider, vec![attachment(MediaType::Png, b"x").withhold("gone")]));
        assert!(sent.as_str().is_some_and(|text| text.starts_with("see\n\n[Attachment a/")), "{provider}: {sent}");
    }
}

#[test]
fn attachments_stay_in_front_of_the_stable_end() {
    let first = with("anthropic", vec![attachment(MediaType::Png, b"x")]);
    let request = ModelRequest { stable: 1, ..first };
    let sent = parts(&request);
    assert_eq!(sent[2]["cache_control"], json!({"type": "ephemeral"}), "{sent}");
}
