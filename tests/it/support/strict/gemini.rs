//! What `generateContent` refuses.

use super::{Verdict, ensure, gemini_schema, is_word, list, media, repeated, text};
use serde_json::Value;

/// kaitranntt/ccs #25, google-gemini/gemini-cli #2966.
const NAME_CHARS_MAX: usize = 64;
const NAME_RULE: &str = "Invalid function name. Must start with a letter or an underscore. Must be alphameric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 64.";
/// Keys of which a part has exactly one.
const DATA: [&str; 7] =
    ["text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode", "codeExecutionResult"];

/// `with_signatures` for models from Gemini 3 on.
pub fn check(body: &Value, with_signatures: bool) -> Verdict {
    let contents = list(body, "contents");
    // Calcium-Ion/new-api-horizon #24.
    ensure(!contents.is_empty(), || "* GenerateContentRequest.contents: contents is not specified".into())?;
    for (at, content) in contents.iter().enumerate() {
        check_content(content, &format!("contents[{at}]"))?;
    }
    if let Some(system) = body.get("systemInstruction").or_else(|| body.get("system_instruction")) {
        check_content(system, "system_instruction")?;
    }
    check_order(contents)?;
    media::check_gemini_size(body)?;
    check_tools(list(body, "tools"))?;
    check_format(body)?;
    if with_signatures { check_signatures(contents) } else { Ok(()) }
}

fn is_name(name: &str) -> bool {
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    begins && is_word(name, NAME_CHARS_MAX, ".:")
}

fn check_content(content: &Value, place: &str) -> Verdict {
    let role = text(content, "role");
    ensure(matches!(role, "user" | "model" | "") || place == "system_instruction", || {
        "Please use a valid role: user, model.".into()
    })?;
    let parts = list(content, "parts");
    // vercel/ai #3775, QuantumNous/new-api #1060.
    ensure(!parts.is_empty(), || format!("* GenerateContentRequest.{place}.parts: contents.parts must not be empty."))?;
    for (n, part) in parts.iter().enumerate() {
        let place = format!("GenerateContentRequest.{place}.parts[{n}]");
        let data = DATA.iter().filter(|key| part.get(**key).is_some()).count();
        // router-for-me/CLIProxyAPI #1292, 54xzh/FLIT #70; a signature may come on an empty text.
        let is_empty = part.get("text").and_then(Value::as_str) == Some("") && part.get("thoughtSignature").is_none();
        ensure(data == 1 && !is_empty, || {
            format!("* {place}.data: required oneof field 'data' must have one initialized field")
        })?;
        check_part(part, &place)?;
    }
    Ok(())
}

fn check_part(part: &Value, place: &str) -> Verdict {
    media::check_gemini(part, place)?;
    for key in ["functionCall", "functionResponse"] {
        let Some(function) = part.get(key) else { continue };
        let snake = if key == "functionCall" { "function_call" } else { "function_response" };
        // The API's reference of FunctionCall and FunctionResponse has the rule of declared names (gemini-cli #7869).
        ensure(is_name(text(function, "name")), || format!("* {place}.{snake}.name: {NAME_RULE}"))?;
        let member = if key == "functionCall" { "args" } else { "response" };
        // Both are of the type `Struct`.
        let needed = key == "functionResponse";
        let is_struct = function.get(member).map_or(!needed, Value::is_object);
        ensure(is_struct, || {
            format!("Invalid value at '{place}.{snake}.{member}' (type.googleapis.com/google.protobuf.Struct)")
        })?;
    }
    let signature = part.get("thoughtSignature").or_else(|| part.get("thought_signature"));
    ensure(signature.is_none_or(|signature| signature.as_str().is_some_and(is_base64)), || {
        format!("Invalid value at '{place}.thought_signature' (TYPE_BYTES), Base64 decoding failed")
    })
}

/// Either alphabet, as protocol buffers in JSON read it.
fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    !body.is_empty() && body.chars().all(|c| c.is_ascii_alphanumeric() || "+/-_".contains(c)) && body.len() % 4 != 1
}

fn count(content: &Value, key: &str) -> usize {
    list(content, "parts").iter().filter(|part| part.get(key).is_some()).count()
}

fn check_order(contents: &[Value]) -> Verdict {
    let mut before: Option<&Value> = None;
    for content in contents {
        let is_model = text(content, "role") == "model";
        let (calls, results) = (count(content, "functionCall"), count(content, "functionResponse"));
        let open = before.map_or(0, |before| count(before, "functionCall"));
        // google-gemini/gemini-cli #11814 #26486, lobehub/lobehub #10049.
        ensure(calls == 0 || (is_model && before.is_some_and(|before| text(before, "role") != "model")), || {
            "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
                .into()
        })?;
        // langchain-ai/langchain #27799.
        ensure(results == 0 || (!is_model && open > 0), || {
            "Please ensure that function response turn comes immediately after a function call turn.".into()
        })?;
        // google-gemini/gemini-cli #4217 #16984 #21830.
        ensure(open == results, || {
            "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn."
                .into()
        })?;
        // anomalyco/opencode #43479: other parts go into a turn of their own.
        ensure(results == 0 || results == list(content, "parts").len(), || {
            "Please ensure that function response turn has function response parts only.".into()
        })?;
        check_names(before, content)?;
        before = Some(content);
    }
    let last = before.unwrap_or(&Value::Null);
    ensure(count(last, "functionCall") == 0, || {
        "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn."
            .into()
    })?;
    // crewAIInc/crewAI #6973 #7134.
    ensure(text(last, "role") != "model", || {
        "Please ensure that multiturn requests end with a user role or a function response.".into()
    })
}

/// Results belong to calls by id where both have one, and by name: ankit373/hydra #966.
fn check_names(before: Option<&Value>, content: &Value) -> Verdict {
    let of = |content: Option<&Value>, key: &str| -> Vec<(String, String)> {
        let parts = content.map_or(&[][..], |content| list(content, "parts"));
        let found = parts.iter().filter_map(|part| part.get(key));
        found.map(|part| (text(part, "name").to_owned(), text(part, "id").to_owned())).collect()
    };
    let mut open = of(before, "functionCall");
    for (name, id) in of(Some(content), "functionResponse") {
        let found = open.iter().position(|call| call.0 == name && (id.is_empty() || call.1.is_empty() || call.1 == id));
        let Some(found) = found else {
            return Err(format!(
                "Function response `{name}` ({id}) has no function call of that name and id before it."
            ));
        };
        open.remove(found);
    }
    Ok(())
}

fn declarations(tools: &[Value]) -> impl Iterator<Item = &Value> {
    tools.iter().flat_map(|tool| list(tool, "functionDeclarations").iter().chain(list(tool, "function_declarations")))
}

fn check_tools(tools: &[Value]) -> Verdict {
    for (at, function) in declarations(tools).enumerate() {
        let place = format!("GenerateContentRequest.tools[0].function_declarations[{at}]");
        ensure(is_name(text(function, "name")), || format!("* {place}.name: {NAME_RULE}"))?;
        let (proto, json) = (function.get("parameters"), function.get("parametersJsonSchema"));
        ensure(proto.is_none() || json.is_none(), || {
            format!("* {place}: parameters and parameters_json_schema must not both be set")
        })?;
        // The API's reference of FunctionDeclaration: an object schema.
        for (key, schema) in [("parameters", proto), ("parameters_json_schema", json)] {
            let is_object = schema.is_none_or(|schema| text(schema, "type").eq_ignore_ascii_case("object"));
            ensure(is_object, || format!("* {place}.{key}.type: schema should be of OBJECT type"))?;
        }
        if let Some(schema) = proto {
            gemini_schema::check(schema, &format!("{place}.parameters"))?;
        }
    }
    match repeated(declarations(tools).map(|function| text(function, "name"))) {
        Some(name) => Err(format!("Duplicate function declaration found: {name}")),
        None => Ok(()),
    }
}

fn check_format(body: &Value) -> Verdict {
    let Some(config) = body.get("generationConfig") else { return Ok(()) };
    if let Some(schema) = config.get("responseSchema") {
        gemini_schema::check(schema, "GenerateContentRequest.generation_config.response_schema")?;
    }
    let is_schema = config.get("responseSchema").is_some() || config.get("responseJsonSchema").is_some();
    ensure(!is_schema || text(config, "responseMimeType") == "application/json", || {
        "* GenerateContentRequest.generation_config.response_schema: only allowed when 'response_mime_type' is 'application/json'"
            .into()
    })
}

fn missing_signature(name: &str, position: usize) -> String {
    format!(
        "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, and missing thought_signature may lead to degraded model performance. Additional data, function call `default_api:{name}` , position {position}."
    )
}

/// The first call of every step of the current turn has the signature that came with it, or the documented value for
/// calls of other models: earendil-works/pi #1825, trpc-group/trpc-agent-go #1894, envoyproxy/ai-gateway #2366.
fn check_signatures(contents: &[Value]) -> Verdict {
    let is_person = |content: &Value| text(content, "role") != "model" && count(content, "functionResponse") == 0;
    let begin = contents.iter().rposition(is_person).unwrap_or_default();
    for (at, content) in contents.iter().enumerate().skip(begin) {
        let first = list(content, "parts").iter().find(|part| part.get("functionCall").is_some());
        let Some(part) = first else { continue };
        ensure(part.get("thoughtSignature").is_some() || part.get("thought_signature").is_some(), || {
            missing_signature(text(&part["functionCall"], "name"), at + 1)
        })?;
    }
    Ok(())
}

/// The same in Chat Completions: Gitlawb/openclaude #67, `crmne/ruby_llm` #591, earendil-works/pi #6733.
pub fn check_chat(body: &Value) -> Verdict {
    let messages = list(body, "messages");
    let begin = messages.iter().rposition(|message| text(message, "role") == "user").unwrap_or_default();
    for (at, message) in messages.iter().enumerate().skip(begin) {
        let Some(call) = list(message, "tool_calls").first() else { continue };
        let signature = call.pointer("/extra_content/google/thought_signature");
        ensure(signature.is_some_and(Value::is_string), || {
            missing_signature(call.pointer("/function/name").and_then(Value::as_str).unwrap_or_default(), at + 1)
        })?;
    }
    Ok(())
}
