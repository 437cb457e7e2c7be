//! What is sent for each setting and message.

use super::super::super::EncodeError;
use super::super::super::tests::{assistant, body, encoded, output, request, result, tool, user};
use crate::chat::{ChatMessage, Effort, ModelRequest, ToolChoice};
use serde_json::{Value, json};

const PROVIDER: &str = "openai_resp";

/// What a change of the request adds to its body, or why it is refused.
fn check(change: impl FnOnce(&mut ModelRequest), expected: impl Into<Value>) {
    let mut changed = request(PROVIDER);
    let plain = body(&changed);
    change(&mut changed);
    let found = match encoded(&changed) {
        Ok(encoded) => {
            let found = encoded.request.body.as_object().unwrap().clone();
            let is_new = |(key, value): &(String, Value)| plain.get(key) != Some(value) && key != "tools";
            json!(found.into_iter().filter(is_new).collect::<serde_json::Map<_, _>>())
        }
        Err(EncodeError::Setting { setting, .. }) => json!(setting),
        Err(error) => panic!("{error}"),
    };
    assert_eq!(found, expected.into());
}

#[test]
fn a_plain_request_has_its_stable_part_first() {
    let request = ModelRequest { tools: vec![tool("read")].into(), ..request(PROVIDER) };
    let encoded = encoded(&request).unwrap();
    assert_eq!((encoded.request.path.as_str(), encoded.request.headers.len()), ("responses", 0));
    let expected = concat!(
        r#"{"model":"m","stream":true,"store":false,"prompt_cache_key":"session-1","instructions":"Be brief.","#,
        r#""tools":[{"type":"function","name":"read","description":"Reads.","parameters":"#,
        r#"{"type":"object","properties":{"path":{"type":"string"}}},"strict":false}],"#,
        r#""input":[{"type":"message","role":"user","content":"hello"}]}"#,
    );
    assert_eq!(encoded.request.body.to_string(), expected);
}

#[test]
fn settings_are_sent_or_refused() {
    check(|it| it.model.max_tokens = Some(9), json!({"max_output_tokens": 9}));
    check(|it| it.model.temperature = Some(0.5), json!({"temperature": 0.5}));
    check(|it| it.model.top_p = Some(0.5), json!({"top_p": 0.5}));
    check(|it| it.model.stop = vec!["x".into()], "model.stop");
    check(|it| it.model.seed = Some(7), "model.seed");
    check(|it| it.model.reasoning = Some(Effort::None), json!({"reasoning": {"effort": "none"}}));
    let low = json!({"include": ["reasoning.encrypted_content"], "reasoning": {"effort": "low"}});
    check(|it| it.model.reasoning = Some(Effort::Tokens(9)), low);
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let format = json!({"type": "json_schema", "name": "output", "schema": schema, "strict": false});
    check(|it| it.output = Some(output(false)), json!({"text": {"format": format}}));
}

#[test]
fn encrypted_reasoning_is_asked_of_models_that_reason() {
    for (name, expected) in [
        ("gpt-5", true),
        ("gpt-5.1-codex-max", true),
        ("gpt-6-mini", true),
        ("openai/o3-mini-high", true),
        ("o4", true),
        ("gpt-5-chat-latest", false),
        ("gpt-4.1", false),
        ("gpt-4o", false),
        ("gpt-oss:20b", false),
        ("omni", false),
    ] {
        let mut request = request(PROVIDER);
        request.model.name = name.into();
        let body = body(&request);
        assert_eq!((body["model"].as_str(), body.get("include").is_some()), (Some(name), expected));
    }
}

#[test]
fn choices_of_tools_are_sent_only_beside_tools() {
    let chosen = |choice: ToolChoice| {
        move |it: &mut ModelRequest| {
            it.tools = vec![tool("read.file")].into();
            it.model.tool_choice = Some(choice);
        }
    };
    check(chosen(ToolChoice::Required), json!({"tool_choice": "required"}));
    let named = json!({"tool_choice": {"type": "function", "name": "read_file"}});
    check(chosen(ToolChoice::Tool("read.file".into())), named);
    check(chosen(ToolChoice::Tool("other".into())), "model.toolChoice");
    check(|it| it.model.tool_choice = Some(ToolChoice::Required), json!({}));
    let sequential = |it: &mut ModelRequest| {
        it.tools = vec![tool("read")].into();
        it.model.parallel_tool_calls = Some(false);
    };
    check(sequential, json!({"parallel_tool_calls": false}));
}

/// The input items behind the first message.
fn input(messages: Vec<ChatMessage>) -> Value {
    let messages = [user("a")].into_iter().chain(messages).collect();
    let mut sent = body(&ModelRequest { messages, ..request(PROVIDER) })["input"].take();
    sent.as_array_mut().unwrap().remove(0);
    sent
}

fn plain_call(id: &str) -> Value {
    json!({"type": "function_call", "call_id": id, "name": "read", "arguments": "{\"path\":\"a\"}"})
}

fn plain_result(id: &str) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": "x"})
}

#[test]
fn messages_are_items() {
    let given =
        vec![user("b"), assistant(PROVIDER, "t", &["1", "2"], vec![]), result("1", "x"), result("2", "x"), user("c")];
    let text = json!({"type": "message", "role": "assistant", "content": "t"});
    let last = json!({"type": "message", "role": "user", "content": "c"});
    let expected = json!([text, plain_call("1"), plain_call("2"), plain_result("1"), plain_result("2"), last]);
    assert_eq!(input(given), expected);
}

#[test]
fn reasoning_goes_back_only_with_what_followed_it() {
    let reasoning = |id: &str| json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": "e"});
    let message =
        |id: &str, length: usize, phase: &str| json!({"type": "message", "id": id, "phase": phase, "length": length});
    let call = |id: &str| json!({"type": "function_call", "id": id});
    let sent_message = |id: &str, text: &str, phase: &str| {
        json!({"type": "message", "role": "assistant", "id": id, "status": "completed", "phase": phase,
            "content": [{"type": "output_text", "text": text, "annotations": []}]})
    };
    let sent_call = |id: &str| json!({"type": "function_call", "id": id, "call_id": "1", "name": "read", "arguments": "{\"path\":\"a\"}"});
    let plain = vec![json!({"type": "message", "role": "assistant", "content": "früh"}), plain_call("1")];
    let whole = vec![reasoning("r"), message("m", 5, "commentary"), reasoning("s"), call("c")];
    for (recorded, expected) in [
        (whole.clone(), vec![reasoning("r"), sent_message("m", "früh", "commentary"), reasoning("s"), sent_call("c")]),
        (
            vec![message("m", 4, "commentary"), reasoning("r"), message("n", 1, "final_answer"), call("c")],
            vec![
                sent_message("m", "frü", "commentary"),
                reasoning("r"),
                sent_message("n", "h", "final_answer"),
                sent_call("c"),
            ],
        ),
        // Inside of a character.
        (vec![message("m", 3, "x"), message("n", 2, "x"), call("c")], plain.clone()),
        (whole[..3].to_vec(), plain.clone()),
        (vec![reasoning("r"), call("c")], plain.clone()),
        (vec![reasoning("r"), message("m", 9, "x"), call("c")], plain.clone()),
        (vec![json!({"text": "why"})], plain.clone()),
        (vec![json!(7)], plain.clone()),
    ] {
        let given = vec![assistant(PROVIDER, "früh", &["1"], recorded.clone()), result("1", "x")];
        let expected: Vec<Value> = expected.into_iter().chain([plain_result("1")]).collect();
        assert_eq!(input(given), json!(expected), "{}", json!(recorded));
    }
    let trailing = vec![call("c"), reasoning("s")];
    let given = vec![assistant(PROVIDER, "", &["1"], trailing), result("1", "x")];
    assert_eq!(input(given), json!([sent_call("c"), plain_result("1")]));
}

#[test]
fn the_next_request_begins_with_the_whole_of_this_one() {
    let mut first = ModelRequest { tools: vec![tool("read")].into(), ..request(PROVIDER) };
    let before = body(&first).to_string();
    first.messages.extend([assistant(PROVIDER, "", &["1"], vec![]), result("1", "x")]);
    let after = body(&first).to_string();
    let before = before.strip_suffix("]}").unwrap();
    assert!(after.starts_with(before), "{before}\n{after}");
}
