"""The official SDKs as judges of requests and as readers of streams. KIND: openai, responses, anthropic or gemini.

    sdk_judge.py check KIND < bodies.ndjson   one JSON list of texts for each body; empty: it is of the SDK's own types
    sdk_judge.py read KIND URL...             what the official client makes of the stream of each URL, a JSON line each

`check` refuses keys that the types don't have, at every depth. `read` sends one streaming request and prints
{"text", "calls": [{"id", "name", "arguments"}], "stop", "usage"}, or {"error"} where the client gives up.
"""

import functools
import importlib
import json
import pkgutil
import sys


def close(package):
    """Lets the typed dictionaries of a package refuse keys that they don't have."""
    from pydantic import ConfigDict
    from typing_extensions import is_typeddict

    for found in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        try:
            module = importlib.import_module(found.name)
        except ImportError:
            continue
        for value in vars(module).values():
            if is_typeddict(value):
                value.__pydantic_config__ = ConfigDict(extra="forbid", arbitrary_types_allowed=True)


TYPES = {
    "openai": (
        ["openai.types.chat", "openai.types.shared_params"],
        ("openai.types.chat.completion_create_params", "CompletionCreateParamsStreaming", "CompletionCreateParamsNonStreaming"),
    ),
    "responses": (
        ["openai.types.responses", "openai.types.shared_params"],
        ("openai.types.responses.response_create_params", "ResponseCreateParamsStreaming", "ResponseCreateParamsNonStreaming"),
    ),
    "anthropic": (
        ["anthropic.types"],
        ("anthropic.types.message_create_params", "MessageCreateParamsStreaming", "MessageCreateParamsNonStreaming"),
    ),
}


@functools.cache
def adapter(kind, is_stream):
    from pydantic import TypeAdapter

    packages, (module, streaming, whole) = TYPES[kind]
    for package in packages:
        close(package)
    return TypeAdapter(getattr(importlib.import_module(module), streaming if is_stream else whole))


def read_to_the_end(value):
    """Validates what these types validate only as it is read."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)) and type(value).__name__ != "ValidatorIterator":
        return
    for inner in value:
        read_to_the_end(inner)


def problems_of(validate):
    try:
        read_to_the_end(validate())
    except Exception as error:  # Each SDK has its own kinds.
        return [line for line in str(error).splitlines() if "errors.pydantic.dev" not in line]
    return []


def check(kind, body):
    if kind == "gemini":
        return check_gemini(body)
    if not isinstance(body, dict):
        return ["expected an object"]
    return problems_of(lambda: adapter(kind, body.get("stream") is True).validate_python(body))


def check_gemini(body):
    """The SDK has no type of a whole body; its parts forbid other keys."""
    from google.genai import types

    if not isinstance(body, dict):
        return ["expected an object"]
    shapes = {
        "systemInstruction": types.Content,
        "toolConfig": types.ToolConfig,
        "generationConfig": types.GenerationConfig,
    }
    lists = {"contents": types.Content, "tools": types.Tool, "safetySettings": types.SafetySetting}
    found = []
    for key, value in body.items():
        if key in shapes:
            found += problems_of(lambda: shapes[key].model_validate(value))
        elif key in lists:
            for item in value:
                found += problems_of(lambda: lists[key].model_validate(item))
        elif key not in ("cachedContent", "labels", "serviceTier", "store"):
            found.append(f"unknown key: {key}")
    return found


def usage_of(usage):
    return usage and usage.model_dump(mode="json")


@functools.cache
def base_client(kind):
    """One for all streams: each has its own certificates to read."""
    if kind == "anthropic":
        from anthropic import Anthropic

        return Anthropic(api_key="k", max_retries=0)
    from openai import OpenAI

    return OpenAI(api_key="k", max_retries=0)


def read_openai(url):
    client = base_client("openai").with_options(base_url=url)
    messages = [{"role": "user", "content": "x"}]
    with client.chat.completions.stream(model="m", messages=messages, stream_options={"include_usage": True}) as stream:
        # `get_final_completion` has none that a limit or a filter cut.
        stream.until_done()
        whole = stream.current_completion_snapshot
    choice = whole.choices[0]
    calls = [
        {"id": call.id, "name": call.function.name, "arguments": call.function.arguments}
        for call in choice.message.tool_calls or []
    ]
    return {"text": choice.message.content or "", "calls": calls, "stop": choice.finish_reason, "usage": usage_of(whole.usage)}


def contents_of(place, item):
    """Texts and arguments by their places."""
    if item.type == "message":
        return {(place, at): part.text for at, part in enumerate(item.content)}
    return {(place, None): item.arguments} if item.type == "function_call" else {}


def read_responses(url):
    gathered, told, whole = {}, {}, None
    with base_client("openai").with_options(base_url=url).responses.stream(model="m", input="x") as stream:
        for event in stream:
            # What the SDK has gathered so far.
            if event.type in ("response.output_text.delta", "response.function_call_arguments.delta"):
                gathered[event.output_index, getattr(event, "content_index", None)] = event.snapshot
            # `get_final_response` has none that is incomplete.
            if event.type in ("response.completed", "response.incomplete"):
                whole = event.response
    if whole is None:
        raise ValueError("no response")
    for place, item in enumerate(whole.output):
        told |= contents_of(place, item)
    if any(told.get(place) != text for place, text in gathered.items()):
        raise ValueError(f"gathered {gathered}, told {told}")
    calls = [
        {"id": item.call_id, "name": item.name, "arguments": item.arguments}
        for item in whole.output
        if item.type == "function_call"
    ]
    reason = whole.incomplete_details and whole.incomplete_details.reason
    return {"text": whole.output_text, "calls": calls, "stop": reason or whole.status, "usage": usage_of(whole.usage)}


def read_anthropic(url):
    client = base_client("anthropic").with_options(base_url=url)
    with client.messages.stream(model="m", max_tokens=9, messages=[{"role": "user", "content": "x"}]) as stream:
        whole = stream.get_final_message()
    calls = [
        {"id": block.id, "name": block.name, "arguments": json.dumps(block.input)}
        for block in whole.content
        if block.type == "tool_use"
    ]
    text = "".join(block.text for block in whole.content if block.type == "text")
    return {"text": text, "calls": calls, "stop": whole.stop_reason, "usage": usage_of(whole.usage)}


@functools.cache
def gemini_client():
    from google import genai

    return genai.Client(api_key="k")


def read_gemini(url):
    from google.genai import types

    config = types.GenerateContentConfig(http_options=types.HttpOptions(base_url=url))
    read = {"text": "", "calls": [], "stop": None, "usage": None}
    for event in gemini_client().models.generate_content_stream(model="m", contents="x", config=config):
        for candidate in event.candidates or []:
            read["stop"] = candidate.finish_reason.value if candidate.finish_reason else read["stop"]
            for part in (candidate.content and candidate.content.parts) or []:
                read["text"] += part.text if part.text and not part.thought else ""
                if part.function_call:
                    call = part.function_call
                    read["calls"].append({"id": call.id, "name": call.name, "arguments": json.dumps(call.args)})
        read["usage"] = usage_of(event.usage_metadata) or read["usage"]
    return read


READERS = {"openai": read_openai, "responses": read_responses, "anthropic": read_anthropic, "gemini": read_gemini}


def read(kind, url):
    try:
        return READERS[kind](url)
    except Exception as error:  # A client that gives up is an answer.
        return {"error": f"{type(error).__name__}: {error}"}


def main():
    verb, kind, *urls = sys.argv[1:]
    if kind not in READERS:
        raise SystemExit(f"kind: expected one of {', '.join(READERS)}, got {kind!r}")
    if verb == "check":
        for line in sys.stdin:
            print(json.dumps(check(kind, json.loads(line))), flush=True)
    elif verb == "read":
        for url in urls:
            print(json.dumps(read(kind, url)), flush=True)
    else:
        raise SystemExit(f"verb: expected check or read, got {verb!r}")


main()
