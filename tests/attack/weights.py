"""Attacks the count of steps that checking a value against a schema takes: names of a map, patterns over long texts and with large
repetitions, long lists in the schema, references, wrong numbers; as an operation, a tool call, a type of output and the input of a pin.
Expected: a refusal within seconds, little memory, and others are answered meanwhile. One such request once took 24 GB."""

import json
import time

from venue import check, nested, peak_memory

T = "weights"


def doubled(keyword, levels, last):
    """A schema in which each level applies the next one twice."""
    def step(i):
        part = {"$ref": f"#/$defs/a{i + 1}"}
        return {"properties": {"x": part, "y": part}} if keyword == "properties" else {keyword: [part, part]}
    return {"$ref": "#/$defs/a0", "$defs": {**{f"a{i}": step(i) for i in range(levels)}, f"a{levels}": last}}


PATTERNS = [{"pattern": f"x{i}$"} for i in range(600)]
NAMES = {f"name-{i}": 1 for i in range(2_400)}
LONG = "ab" * 15_000
WORDS = [f"k{i:06}" for i in range(4_000)]

# Name, schema, value: too much for a check.
HEAVY = [
    ("patterns of names", {"propertyNames": {"allOf": PATTERNS}}, NAMES),
    ("patterns of names, inside `not`", {"propertyNames": {"not": {"anyOf": PATTERNS}}}, NAMES),
    ("names by reference", {"propertyNames": {"$ref": "#/$defs/n"}, "$defs": {"n": {"allOf": PATTERNS}}}, NAMES),
    ("a choice of names", {"propertyNames": {"enum": WORDS}}, {f"n{i}": 1 for i in range(9_000)}),
    ("one pattern of many states", {"pattern": "^[ab]*a[ab]{3000}$"}, LONG),
    ("nested repetitions", {"pattern": "^[ab]*a(([ab]{30}){10}){10}$"}, LONG),
    ("a repetition of a repetition", {"pattern": "^[ab]*a[ab]{60}{60}$"}, LONG),
    ("repetitions under the flag x", {"pattern": "(?x)^[ab]* a ([ab]) {3000}$"}, LONG),
    ("a class that begins with a bracket", {"pattern": "^[]ab]*a[]ab]{3000}$"}, LONG),
    ("a pattern for a name", {"patternProperties": {"^[ab]*a[ab]{3000}$": {}}}, {LONG: 1}),
    ("many patterns", {"allOf": [{"pattern": f"[ab]*a[ab]{{30}}x{i}"} for i in range(200)]}, LONG),
    ("a long choice for many", {"items": {"enum": WORDS}}, ["z"] * 30_000),
    ("many required", {"items": {"required": WORDS}}, [{}] * 30_000),
    ("many properties", {"items": {"properties": {w: True for w in WORDS}}}, [{}] * 30_000),
    ("uniqueness many times", {"allOf": [{"uniqueItems": True, "title": str(i)} for i in range(1_000)]}, [[i] for i in range(15_000)]),
    ("doubling by anyOf", doubled("anyOf", 30, {"type": "string"}), 1),
    ("doubling by allOf", doubled("allOf", 30, {"type": "number"}), 1),
]
# Name, schema, value: all of it is common, and must go on to work.
LIGHT = [
    ("ten thousand ids", {"items": {"pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"}}, ["123e4567-e89b-12d3-a456-426614174000"] * 10_000),
    ("a text of 100 KB", {"pattern": "^[a-z ]+$", "minLength": 1, "maxLength": 1_000_000}, "word " * 20_000),
    ("dates of a table", {"items": {"properties": {"at": {"pattern": r"^\d{4}-\d{2}-\d{2}$"}}, "required": ["at"]}}, [{"at": "2026-11-28"}] * 10_000),
    ("names of a map", {"propertyNames": {"pattern": "^[a-z]+-[0-9]+$"}}, NAMES),
    ("a choice", {"items": {"enum": WORDS[:100]}}, [WORDS[7]] * 10_000),
    ("many properties, few reached", doubled("properties", 40, {"type": "number"}), {"x": 1}),
]
# Schemas that are none, or lead elsewhere.
WRONG = [
    {"$ref": "http://127.0.0.1:9/x"}, {"$ref": "file:///etc/passwd"}, {"$id": "file:///etc/", "$ref": "passwd"}, {"$ref": "data:,{}"}, {"$ref": "#"}, {"not": {"$ref": "#"}},
    {"allOf": [{"$ref": "#"}]}, {"$schema": "http://127.0.0.1:9/x"}, {"$schema": 7}, {"$id": "::::"}, {"$ref": "#/%ff"}, {"$ref": "#/~2"}, {"$dynamicRef": "#n"}, {"$anchor": "a"},
    {"type": "text"}, {"type": {}}, {"multipleOf": 0}, {"multipleOf": -1}, {"minLength": -1}, {"maxLength": 1.5}, {"pattern": "("}, {"pattern": "(" * 5_000}, {"pattern": "(?:a{1000}){1000}"},
    {"pattern": "^(a*)*\\1$"}, {"pattern": "(?=a)b"}, {"pattern": "a{99999999999999999999}"}, {"description": "x" * 70_000}, {"dependentRequired": {"a": 7}}, {"propertyNames": {"pattern": "["}},
]
NUMBERS = [{"multipleOf": 5e-324}, {"multipleOf": 18446744073709551615}, {"maxLength": 18446744073709551615}, {"minItems": 1e300}, {"minimum": 1e308, "exclusiveMaximum": -1e308},
           {"contains": {}, "minContains": 18446744073709551615}, {"const": 9007199254740993}]


def attack(v):
    if v.mode == "jwt":
        v.token = v.issue("acme/ann")
    v.write("w/other", 1)
    before = max(peak_memory(v).values(), default=0)

    def validate(schema, value):
        began = time.time()
        s, said = v.run("schema/validate", {"schema": schema, "value": value}, timeout=60)
        return s, said, time.time() - began

    for name, schema, value in HEAVY:
        s, said, took = validate(schema, value)
        check(T, f"{name}: refused", s == 400 and "steps" in json.dumps(said), (s, json.dumps(said)[:200]))
        check(T, f"{name}: within seconds", took < 10, took)
    for name, schema, value in LIGHT:
        s, said, took = validate(schema, value)
        check(T, f"{name}: checked", s == 200 and took < 10, (s, took, json.dumps(said)[:200]))
    for schema in WRONG:
        s, said, took = validate(schema, "a")
        check(T, f"no schema: {json.dumps(schema)[:50]}", s == 400 and took < 10, (s, took, json.dumps(said)[:200]))
    for schema in NUMBERS:
        for value in (0, -9223372036854775808, 18446744073709551615, 1e308, "é", [1], nested(60)):
            s, said, took = validate(schema, value)
            check(T, f"{json.dumps(schema)[:40]} of {json.dumps(value)[:20]}", s in (200, 400) and took < 5, (s, took, json.dumps(said)[:200]))

    # The same where a model, an author or a caller brings the schema.
    heavy, value = HEAVY[0][1], HEAVY[0][2]
    results, _, _ = v.calls([("schema_validate", {"schema": heavy, "value": value})], {"tools": ["v/ops/schema/validate"]}, wait=20_000)
    check(T, "as a tool call", results and "steps" in results[0], [r[:200] for r in results])
    agent = v.agent([[("complete_task", {"result": value})], "no"])
    s, job = v.task(agent, body={"responseSchema": heavy}, wait=20_000)
    check(T, "as the type of a task", s == 400 or job.get("status") == "FAILED", (s, json.dumps(job)[:300]))
    v.write("o/heavy", {"name": "heavy", "operation": {"adapter": "json:merge", "input": {"type": "object", "properties": {"values": {"type": "array", "items": heavy}}}}})
    began = time.time()
    s, said = v.http("POST", "/run", {"operation": "o/heavy", "input": {"values": [value]}}, timeout=60)
    check(T, "as the input of a pin", s == 400 and time.time() - began < 10, (s, json.dumps(said)[:200]))
    check(T, "little memory was taken", max(peak_memory(v).values(), default=0) < before + 700, (before, peak_memory(v)))
    s, _ = v.read("w/other")
    check(T, "others are answered", s == 200, s)
