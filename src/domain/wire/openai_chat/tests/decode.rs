//! Streams as servers of this format write them.

use super::super::super::tests::{read, shown, stream};
use serde_json::{Value, json};

fn check(provider: &str, given: &str, expected: &str) {
    assert_eq!(shown(read(provider, given)), expected, "{given}");
}

/// A chunk with this delta.
fn delta(delta: impl Into<Value>) -> Value {
    let delta: Value = delta.into();
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

/// A chunk with this reason.
fn finish(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

/// A chunk with one piece of a call.
fn call(index: Option<u64>, id: &str, name: &str, arguments: impl Into<Value>) -> Value {
    let mut call = json!({"type": "function", "function": {"arguments": arguments.into()}});
    if let Some(index) = index {
        call["index"] = json!(index);
    }
    if !id.is_empty() {
        call["id"] = json!(id);
    }
    if !name.is_empty() {
        call["function"]["name"] = json!(name);
    }
    delta(json!({"tool_calls": [call]}))
}

#[test]
fn a_text_and_its_usage_are_read() {
    let usage = json!({"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25,
        "prompt_tokens_details": {"cached_tokens": 16}, "completion_tokens_details": {"reasoning_tokens": 2}});
    let frames = [
        json!({"choices": [], "prompt_filter_results": []}),
        delta(json!({"role": "assistant", "content": "", "refusal": null})),
        delta(json!({"content": "Grüße "})),
        delta(json!({"content": "🦀"})),
        finish("stop"),
        json!({"choices": [], "usage": usage}),
    ];
    check("openai", &stream(&frames), "\"Grüße 🦀\" | [20, 5, 16, 0, 2]");
}

#[test]
fn usage_is_found_wherever_a_server_puts_it() {
    let with = |extra: Value| {
        let mut last = finish("stop");
        last.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        stream(&[delta(json!({"content": "a"})), last])
    };
    let deepseek =
        json!({"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11, "prompt_cache_hit_tokens": 4});
    let xai = json!({"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 16,
        "completion_tokens_details": {"reasoning_tokens": 5}});
    let odd = json!({"prompt_tokens": "9", "completion_tokens": null, "prompt_tokens_details": []});
    for (extra, expected) in [
        (json!({"usage": deepseek}), "\"a\" | [9, 2, 4, 0, 0]"),
        (json!({"usage": xai}), "\"a\" | [9, 7, 0, 0, 5]"),
        (json!({"usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 16}}), "\"a\" | [9, 7, 0, 0, 5]"),
        (
            json!({"x_groq": {"id": "r", "usage": {"prompt_tokens": 9, "completion_tokens": 2}}}),
            "\"a\" | [9, 2, 0, 0, 0]",
        ),
        (json!({"usage": {"input_tokens": 9, "output_tokens": 2, "cached_tokens": 3}}), "\"a\" | [9, 2, 3, 0, 0]"),
        (json!({"timings": {"prompt_n": 5, "predicted_n": 2, "cache_n": 4}}), "\"a\" | [9, 2, 4, 0, 0]"),
        (json!({"usage": odd}), "\"a\""),
        (json!({"usage": null}), "\"a\""),
    ] {
        check("groq", &with(extra), expected);
    }
    let kimi = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop",
        "usage": {"prompt_tokens": 9, "completion_tokens": 2}}]});
    check("kimi", &stream(&[delta(json!({"content": "a"})), kimi]), "\"a\" | [9, 2, 0, 0, 0]");
}

#[test]
fn calls_are_understood_as_meant() {
    let done = || finish("tool_calls");
    let one = "\"\" | a read {\"path\":\"x\"}";
    for (frames, expected) in [
        (
            vec![
                call(Some(0), "a", "read", json!("")),
                call(Some(0), "", "", json!("{\"path\":")),
                call(Some(1), "b", "read", json!("{\"path\":\"y\"}")),
                call(Some(0), "", "", json!("\"x\"}")),
            ],
            "\"\" | a read {\"path\":\"x\"} | b read {\"path\":\"y\"}",
        ),
        (vec![call(None, "a", "read", json!("{\"pa")), call(None, "", "", json!("th\":\"x\"}"))], one),
        (
            vec![
                call(Some(0), "a", "read", json!("{\"path\":\"x\"}")),
                call(Some(0), "b", "read", json!("{\"path\":\"y\"}")),
            ],
            "\"\" | a read {\"path\":\"x\"} | b read {\"path\":\"y\"}",
        ),
        (vec![call(Some(0), "a", "read", json!("{}")), call(Some(0), "", "", json!("{\"path\":\"x\"}"))], one),
        (vec![call(Some(0), "a", "read", json!({"path": "x"}))], one),
        (vec![delta(json!({"tool_calls": {"id": "a", "name": "read", "arguments": "{\"path\":\"x\"}"}}))], one),
        (vec![delta(json!({"tool_calls": [null, 7, "x", {}], "function_call": null}))], "\"\""),
        (
            vec![
                delta(json!({"function_call": {"name": "read", "arguments": "{\"path\":"}})),
                delta(json!({"function_call": {"arguments": "\"x\"}"}})),
            ],
            "\"\" | call_0 read {\"path\":\"x\"}",
        ),
        (vec![call(Some(0), "a", "functions.read", json!("no json"))], "\"\" | a functions.read malformed no json"),
    ] {
        let frames: Vec<Value> = frames.into_iter().chain([done()]).collect();
        check("groq", &stream(&frames), expected);
    }
}

#[test]
fn a_call_that_a_limit_cut_off_is_malformed() {
    for (arguments, expected) in [("", "malformed "), ("{\"path\":\"x", "malformed {\"path\":\"x")] {
        let frames = [call(Some(0), "a", "read", json!(arguments)), finish("length")];
        check("openai", &stream(&frames), &format!("\"\" | a read {expected} | truncated"));
    }
}

#[test]
fn only_a_whole_reply_is_one() {
    for (reason, expected) in [
        ("stop", "\"a\""),
        ("STOP", "\"a\""),
        ("", "\"a\""),
        ("function_call", "\"a\""),
        ("length", "\"a\" | truncated"),
        ("model_length", "\"a\" | truncated"),
        ("content_filter", "Filtered { reason: \"content_filter\", chars: 1 }"),
        ("content_filter: PROHIBITED_CONTENT", "Filtered { reason: \"content_filter: PROHIBITED_CONTENT\", chars: 1 }"),
        ("refusal", "Refused(\"refusal\")"),
        ("error", "Unfinished(\"error\")"),
        ("insufficient_system_resource", "Unfinished(\"insufficient_system_resource\")"),
        ("abort", "Unfinished(\"abort\")"),
        ("what_is_this", "Unfinished(\"what_is_this\")"),
    ] {
        check("openai", &stream(&[delta(json!({"content": "a"})), finish(reason)]), expected);
    }
    let text = format!("data: {}\n\n", delta(json!({"content": "a"})));
    check("openai", &text, "Incomplete");
    check("openai", &(text.clone() + "data: [DONE]\n\n"), "\"a\"");
    check("openai", &format!("{text}data: {}", finish("stop")), "\"a\"");
    let half = format!("data: {}\n\n", call(Some(0), "a", "read", json!("{\"pa")));
    check("openai", &half, "Incomplete");
    check("openai", &(half + "data: [DONE]\n\n"), "Incomplete");
}

#[test]
fn reasoning_is_kept_apart_in_each_of_its_forms() {
    let parts =
        json!([{"type": "thinking", "thinking": [{"type": "text", "text": "why"}]}, {"type": "text", "text": "a"}]);
    let expected = "\"a\" | reasoning [{\"text\":\"why\"}]";
    for message in [
        json!({"reasoning_content": "why", "content": "a"}),
        json!({"reasoning": "why", "reasoning_content": "", "content": "a"}),
        json!({"content": "<think>why</think>\na"}),
        json!({"content": parts}),
        json!({"content": [{"type": "thinking", "thinking": "why"}, "a"]}),
    ] {
        let given = stream(&[delta(message), finish("stop")]);
        check("deepseek", &given, expected);
        check("groq", &given, "\"a\"");
    }
    let details = |detail: Value| delta(json!({"reasoning": "why", "reasoning_details": [detail]}));
    let frames = [
        details(json!({"type": "reasoning.text", "text": "w", "index": 0, "signature": null})),
        details(json!({"type": "reasoning.text", "text": "hy", "index": 0})),
        details(json!({"type": "reasoning.text", "signature": "s", "index": 0})),
        details(json!({"type": "reasoning.encrypted", "data": "d", "index": 1})),
        details(json!({"type": "reasoning.text", "text": "x", "index": 2})),
        finish("stop"),
    ];
    let expected = concat!(
        r#""" | reasoning [{"type":"reasoning.text","text":"why","index":0,"signature":"s"},"#,
        r#"{"type":"reasoning.encrypted","data":"d","index":1},{"type":"reasoning.text","text":"x","index":2}]"#,
    );
    check("openrouter", &stream(&frames), expected);
}

#[test]
fn signatures_of_calls_are_recorded_with_their_place() {
    let call = |id: &str, signature: Option<&str>| {
        let mut call = json!({"id": id, "function": {"name": "read", "arguments": "{\"path\":\"x\"}"}});
        if let Some(signature) = signature {
            call["extra_content"] = json!({"google": {"thought_signature": signature}});
        }
        call
    };
    let frames = [
        delta(json!({"tool_calls": [call("a", Some("s")), call("b", None)]})),
        delta(json!({"tool_calls": [call("c", Some("t"))]})),
        finish("stop"),
    ];
    let expected = concat!(
        r#""" | a read {"path":"x"} | b read {"path":"x"} | c read {"path":"x"} | "#,
        r#"reasoning [{"call":0,"thought_signature":"s"},{"call":2,"thought_signature":"t"}]"#,
    );
    check("gemini_openai", &stream(&frames), expected);
}

#[test]
fn replies_that_are_no_stream_are_read() {
    let message = json!({"role": "assistant", "content": "a", "tool_calls": []});
    let whole = json!({"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1}});
    check("openai", &whole.to_string(), "\"a\" | [3, 1, 0, 0, 0]");
    let piece = |text: &str| json!({"choices": [{"message": {"content": text}}]});
    check("openai", &stream(&[piece("a"), piece("b"), finish("stop")]), "\"ab\"");
    let both =
        |text: &str, so_far: &str| json!({"choices": [{"delta": {"content": text}, "message": {"content": so_far}}]});
    check("perplexity", &stream(&[both("a", "a"), both("b", "ab"), finish("stop")]), "\"ab\"");
    let other = json!({"choices": [{"index": 1, "delta": {"content": "no"}}]});
    check("openai", &stream(&[delta(json!({"content": "a"})), other, finish("stop")]), "\"a\"");
}

#[test]
fn refusals_are_told_in_their_words() {
    let frames = [delta(json!({"refusal": "I can't "})), delta(json!({"refusal": "help."})), finish("stop")];
    check("openai", &stream(&frames), "Refused(\"I can't help.\")");
    let filtered = json!({"choices": [{"index": 0, "finish_reason": "content_filter", "content_filter_results": {}}]});
    check("azure", &stream(&[filtered]), "Refused(\"its content filter (`content_filter`)\")");
}

#[test]
fn failures_are_told_in_the_words_of_the_server() {
    let reported = |message: &str, kinds: &[&str], status: Option<u16>| {
        format!("Reported(ProviderReport {{ message: {message:?}, kinds: {kinds:?}, status: {status:?} }})")
    };
    for (failure, expected) in [
        (
            json!({"error": {"message": "overloaded", "type": "server_error", "code": 503}}),
            reported("overloaded", &["server_error"], Some(503)),
        ),
        (json!({"error": "no model"}), reported("no model", &[], None)),
        (
            json!({"object": "error", "message": "too long", "type": "BadRequestError", "code": 400}),
            reported("too long", &["BadRequestError"], Some(400)),
        ),
        (json!({"detail": "Not Found"}), reported("Not Found", &[], None)),
        (
            json!({"base_resp": {"status_code": 1_008, "status_msg": "insufficient balance"}}),
            reported("insufficient balance", &["1008"], None),
        ),
        (json!({"error_code": 17, "error_msg": "daily limit"}), reported("daily limit", &["17"], None)),
        (
            json!({"choices": [{"error": {"message": "upstream", "code": 502}, "finish_reason": "error"}]}),
            reported("upstream", &[], Some(502)),
        ),
    ] {
        check("openai", &failure.to_string(), &expected);
        check("openai", &stream(&[delta(json!({"content": "a"})), failure]), &expected);
    }
}

#[test]
fn odd_frames_are_passed_over() {
    let odd = [
        json!(7),
        json!("text"),
        json!({}),
        json!({"choices": null, "error": null}),
        json!({"choices": [null, 1, [], {}], "usage": 7, "error": {}}),
        json!({"choices": [{"index": "x", "delta": null, "finish_reason": 9}], "error": ""}),
        json!({"choices": [{"delta": {"content": 5, "tool_calls": 5, "function_call": 5, "reasoning_details": 5}}]}),
        json!({"choices": [{"delta": {"content": [null, 5, {}, {"type": 7}], "refusal": {}, "reasoning": []}}]}),
        json!({"base_resp": {"status_code": 0, "status_msg": ""}, "message": ""}),
    ];
    let frames: Vec<Value> = odd.into_iter().chain([delta(json!({"content": "a"})), finish("stop")]).collect();
    check("openai", &stream(&frames), "\"a\"");
}
