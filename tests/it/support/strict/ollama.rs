//! What Ollama's own `/api/chat` refuses: what its Go types can't hold.

use super::{Verdict, ensure, list, text};
use serde_json::Value;

pub fn check(body: &Value) -> Verdict {
    ensure(!text(body, "model").is_empty(), || "model is required".into())?;
    for message in list(body, "messages") {
        // ollama/ollama #10255, BerriAI/litellm #11273.
        ensure(message.get("content").is_none_or(Value::is_string), || {
            "json: cannot unmarshal array into Go struct field ChatRequest.messages.content of type string".into()
        })?;
        for call in list(message, "tool_calls") {
            // aliasrobotics/cai #76, neuron-core/neuron-ai #219.
            ensure(call.pointer("/function/arguments").is_none_or(Value::is_object), || {
                "json: cannot unmarshal string into Go struct field ChatRequest.messages.tool_calls.function.arguments of type api.ToolCallFunctionArguments".into()
            })?;
        }
    }
    for tool in list(body, "tools") {
        let properties = tool.pointer("/function/parameters/properties");
        // ollama/ollama #10328.
        ensure(properties.is_none_or(Value::is_object), || {
            "json: cannot unmarshal array into Go struct field .tools.function.parameters.properties of type map[string]struct".into()
        })?;
    }
    Ok(())
}
