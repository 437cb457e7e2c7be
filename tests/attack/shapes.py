"""Attacks with the depth, size and shape of values at every entrance: bodies, tool calls, agent files, assets, timers, grants,
model replies. Expected: 4xx with a reason, or accepted and readable ever after; never a 5xx, a hang, or a session that stops."""

from venue import check, nested

T = "shapes"


def attack(v):
    ok = lambda s: 200 <= s < 300
    v.agent(["fine"], name="shape")
    # Depth, at each entrance. 64 levels are allowed; wrapping by the venue must not matter.
    entrances = {
        "write": lambda x: v.write("w/deep/x", x),
        "append": lambda x: v.run("lattice/append", {"path": "w/deepl", "value": x}),
        "task": lambda x: v.http("POST", "/agents/shape/tasks", {"input": x}),
        "message": lambda x: v.http("POST", "/agents/shape/messages", {"input": x}),
        "timer": lambda x: v.http("POST", "/agents/shape/timers", {"input": x, "after": "1h"}),
        "asset": lambda x: v.http("POST", "/assets", {"content": x}),
        "asset metadata": lambda x: v.http("POST", "/assets", {"content": "x", "extra": x}),
        "merge": lambda x: v.run("json/merge", {"values": [x, {"b": 1}]}),
        "infer": lambda x: v.run("schema/infer", {"value": x}),
        "validate": lambda x: v.run("schema/validate", {"schema": {}, "value": x}),
        "job/run": lambda x: v.run("job/run", {"operation": "v/ops/lattice/write", "input": {"path": "w/deepr", "value": x}}),
        "invoke": lambda x: v.http("POST", "/invoke", {"operation": "v/ops/lattice/write", "input": {"path": "w/deepi", "value": x}, "wait": 5000}),
        "sessionContext": lambda x: v.http("POST", "/agents/shape/tasks", {"input": 1, "sessionContext": {"k": x}}),
        "responseSchema": lambda x: v.http("POST", "/agents/shape/tasks", {"input": 1, "responseSchema": {"const": x}}),
        "context preview": lambda x: v.http("POST", "/agents/shape/context", {"task": x}),
        "agent schema": lambda x: v.http("PUT", "/agents/shape2", {"model": {"provider": "scripted", "name": "echo"}, "outputs": {"complete": {"schema": {"const": x}}}}),
        "agent patch": lambda x: v.http("PATCH", "/agents/shape", {"config": {"toolArgInjection": {"lattice_write": {"value": x}}}}),
        "agent state": lambda x: v.http("PATCH", "/agents/shape", {"state": {"notes": x}}),
        "cancel reason": lambda x: v.http("PUT", "/jobs/" + "0" * 32 + "/cancel", {"reason": x}),
        "approval": lambda x: v.http("POST", "/approvals/" + "0" * 32, {"approve": {"arguments": {"x": x}}}),
        "read path": lambda x: v.run("lattice/read", {"path": x}),
        "http body": lambda x: v.run("http/post", {"url": "https://nowhere.invalid/", "body": x}),
        "agent message": lambda x: v.run("agent/message", {"agentId": "shape", "message": x}),
        "agent request": lambda x: v.run("agent/request", {"agentId": "shape", "input": x}),
        "trigger": lambda x: v.run("agent/trigger", {"agentId": "shape", "input": x, "after": "1h"}),
    }
    for name, call in entrances.items():
        for depth in (10, 55, 64, 65, 121, 127, 129, 3000):
            for list_ in (False, True):
                if list_ and depth not in (65, 127, 3000):
                    continue
                s, said = call(nested(depth, list_) if depth < 900 else None) if depth < 900 else raw_deep(v, name, depth, list_)
                what = f"{name} at depth {depth}{' of lists' if list_ else ''}"
                check(T, what + " has an answer", s and s < 500 or s == 502, (s, said))
                if depth > 64:
                    check(T, what + " is refused", 400 <= s < 500 or s == 502 and False, (s, said))
    # Growing past the limit by many small writes.
    path = "w/grow"
    last = 200
    for i in range(9):
        path += "/a" * 10
        last, said = v.write(path, nested(3))
        check(T, f"growing write {i} is no error of the server", last < 500, (last, said))
    check(T, "growth past 64 levels by writes is refused", 400 <= last < 500, last)
    s, said = v.read("w/grow")
    check(T, "the grown value can be read", ok(s), said)
    s, _ = v.write("w/cp", nested(50))
    for i in range(3):
        s, said = v.run("lattice/copy", {"from": "w/cp", "to": "w/cp2" + "/x" * (20 * (i + 1))})
        check(T, f"a copy {20 * (i + 1)} below says 2xx or 4xx", s < 500, said)
    check(T, "copies can't go deeper than 64", 400 <= s < 500, (s, said))
    s, said = v.read("w")
    check(T, "the whole namespace can be read after that", ok(s), said)
    s, said = v.run("json/merge", {"values": [nested(60), nested(64)]})
    check(T, "merge of deep values has an answer", s < 500, said)
    s, said = v.run("job/run", {"operation": "v/ops/job/run", "input": {"operation": "v/ops/job/run", "input": {"operation": "v/ops/job/run", "input": {"operation": "v/ops/lattice/read", "input": {"path": "w/cp"}}}}})
    check(T, "job/run in job/run in job/run has an answer", s < 500, said)
    deep = {"operation": "v/ops/lattice/read", "input": {"path": "w/cp"}}
    for _ in range(28):
        deep = {"operation": "v/ops/job/run", "input": deep}
    s, said = v.http("POST", "/run", deep)
    check(T, "28 nested job/run have an answer", s and s < 500, said)
    check(T, "alive after nested job/run", v.alive())

    # Calls of a model with hostile arguments, then reading what there is; the agent must end each task.
    hostile = [nested(63), nested(64), nested(66), nested(126), nested(200), [], "x", None, True, 7, {"path": nested(3)}, {"path": ["w", "\u0000"]},
               {"path": ["w", ""]}, {"path": ["w", ".."]}, {"path": "w/../s"}, {"path": "w//x"}, {"path": "/w/x"}, {"path": "w/" + "x" * 5000}, {"path": ["w"] + ["a"] * 300}]
    for i, arguments in enumerate(hostile):
        r, job, _ = v.calls([("lattice_read", arguments), ("lattice_write", {"path": f"w/h{i}", "value": arguments})])
        check(T, f"a call with hostile arguments {i} ends", job.get("status") == "COMPLETE", job)
    for i, text in enumerate(["", "{", "[]", "null", '{"path":"w/x","path":"s/y"}', '{"path":"w"}{"path":"w"}', '"w"', "1e999", '{"path":"\\ud800"}', "[" * 3000 + "]" * 3000, '{"a":' * 3000 + "1" + "}" * 3000, '["w/x"]']):
        r, job, _ = v.calls([("lattice_read", text)])
        check(T, f"arguments that are no map ({i}) end", job.get("status") == "COMPLETE", job)
        check(T, f"arguments that are no map ({i}) read nothing", not any('"exists":true' in x for x in r), r)
    # Replies.
    for depth in (64, 70, 130, 3000):
        import json
        text = json.dumps(nested(depth)) if depth < 900 else '{"a":' * depth + "1" + "}" * depth
        v.agent([text], config={"outputs": {"complete": {"schema": {"type": "object"}}}})
        a = f"a{v.serial - 1}"
        s, job = v.task(a)
        check(T, f"a typed reply {depth} deep ends", job.get("status") in ("COMPLETE", "FAILED"), job)
        s, said = v.http("GET", f"/agents/{a}/turns")
        check(T, f"turns with a reply {depth} deep can be listed", s == 200, said)
        s, said = v.http("GET", f"/jobs/{job.get('job')}")
        check(T, f"a job with a reply {depth} deep can be read", s == 200, said)
    r, job, a = v.calls([("complete_task", {"result": nested(63)})])
    check(T, "complete_task with 63 levels ends", job.get("status") in ("COMPLETE", "FAILED"), job)
    s, said = v.http("GET", f"/jobs/{job.get('job')}")
    check(T, "and its job can be read", s == 200, said)

    # Shapes: lists for maps, keys twice, junk bytes.
    bodies = [
        ("POST", "/agents/shape/tasks", '["go"]'), ("POST", "/agents/shape/tasks", '["go","s1"]'), ("POST", "/agents/shape/messages", '["go"]'),
        ("POST", "/run", '["v/ops/lattice/read",{"path":"w"}]'), ("POST", "/invoke", '["v/ops/lattice/read",{"path":"w"}]'),
        ("PUT", "/agents/sh3", '[{"provider":"scripted","name":"echo"}]'), ("PUT", "/agents/sh3", '{"model":["scripted","echo"]}'),
        ("PUT", "/agents/sh3", '{"model":{"provider":"scripted","name":"echo"},"limits":[3]}'), ("PUT", "/agents/sh3", '{"model":{"provider":"scripted","name":"echo"},"caps":[["w","crud"]]}'),
        ("PUT", "/agents/sh3", '{"model":{"provider":"scripted","name":"echo"},"caps":{"with":"w","can":"crud"}}'),
        ("PUT", "/agents/sh3", '{"model":{"provider":"scripted","name":"echo"},"delegable":[["w","crud"]]}'),
        ("PUT", "/agents/sh3", '{"model":{"provider":"scripted","name":"echo"},"retry":[1,2]}'), ("PUT", "/agents/sh3", '{"model":{"provider":"scripted","name":"echo"},"contextBudget":[9]}'),
        ("PUT", "/agents/sh3", '{"model":{"provider":"scripted","name":"echo"},"outputs":[[{}]]}'),
        ("PUT", "/agents/sh3", '{"model":{"provider":"scripted","name":"echo","price":[1,2]}}'),
        ("PUT", "/agents/sh3", '{"model":{"provider":"scripted","name":"echo"},"resources":{"memory":["read-write"]}}'),
        ("PUT", "/agents/sh3", '{"model":{"provider":"scripted","name":"echo"},"resources":{"memory":{"preload":[["core",true]]}}}'),
        ("PUT", "/agents/sh3", '{"model":{"provider":"scripted","name":"echo"},"resources":{"memory":{"writePolicy":[false]}}}'),
        ("PUT", "/agents/sh3", '{"model":{"provider":"scripted","name":"echo"},"tools":[["v/ops/lattice/read"]]}'),
        ("PUT", "/agents/sh3", '{"model":{"provider":"scripted","name":"echo"},"tools":[{"operation":"v/ops/lattice/read","scopes":[["input"]]}]}'),
        ("PUT", "/agents/sh3", '{"model":{"provider":"scripted","name":"echo"},"context":[["w/x"]]}'),
        ("PATCH", "/agents/shape", '[{}]'), ("POST", "/agents/shape/fork", '["sh4"]'), ("POST", "/agents/shape/context", '["task"]'),
        ("POST", "/agents/shape/timers", '["x","1h"]'), ("POST", "/agents/shape/tasks", '{"input":1,"budget":[5]}'), ("POST", "/agents/shape/tasks", '{"input":1,"context":[["w","crud"]]}'),
        ("POST", "/agents/shape/tasks", '{"input":1,"context":{"with":"w","can":"crud"}}'), ("POST", "/agents/shape/tasks", '{"input":1,"sessionContext":["a"]}'),
        ("POST", "/agents/shape/tasks", '{"input":1,"contextIds":"a"}'), ("POST", "/agents/shape/tasks", '{"input":1,"input":2}'), ("POST", "/agents/shape/tasks", '{"input":{"a":1,"a":2}}'),
        ("POST", "/run", '{"operation":"v/ops/lattice/write","input":{"path":"w/dup","value":{"a":1,"a":2}}}'),
        ("POST", "/run", '{"operation":"v/ops/lattice/read","operation":"v/ops/secret/list","input":{}}'),
        ("POST", "/run", '{"operation":"v/ops/policy/roots","input":{"caps":[["w","crud"]]}}'), ("POST", "/run", '{"operation":"v/ops/policy/approvals","input":{"caps":[["w","crud"]]}}'),
        ("POST", "/run", '{"operation":"v/ops/policy/revoke","input":["w"]}'), ("POST", "/run", '{"operation":"v/ops/lattice/read","input":["w"]}'),
        ("POST", "/run", '{"operation":"v/ops/agent/create","input":["sh5",{"model":{"provider":"scripted","name":"echo"}}]}'),
        ("POST", "/run", '{"operation":"v/ops/human/ask","input":{"title":"t","asks":[["a","b"]]}}'),
        ("PUT", "/secrets/shp", '["12345678"]'), ("POST", "/approvals/" + "0" * 32, '[{"reason":"x"}]'), ("POST", "/approvals/" + "0" * 32, '{"approve":[{}]}'), ("POST", "/approvals/" + "0" * 32, '{"reject":["x"]}'),
        ("POST", "/agents/shape/sessions/main/fork", "[1]"), ("POST", "/assets", '["x"]'), ("PUT", "/agents/shape/suspend", '["x"]'),
        ("POST", "/run", '{"operation":"v/ops/agent/request","input":{"agentId":"shape","input":1,"budget":[5]}}'),
        ("POST", "/run", '{"operation":"v/ops/agent/request","input":{"agentId":"shape","input":1,"context":[["w","crud"]]}}'),
        ("POST", "/agents/shape/tasks", '\ufeff{"input":1}'), ("POST", "/agents/shape/tasks", '{"input":"\\ud800"}'), ("POST", "/agents/shape/tasks", '{"input":1e400}'), ("POST", "/agents/shape/tasks", '{"input":NaN}'),
        ("POST", "/agents/shape/tasks", ""), ("POST", "/agents/shape/tasks", "null"), ("POST", "/agents/shape/tasks", '{"input":1} x'), ("POST", "/agents/shape/tasks", '{"input":1,"owner":"local/bob"}'),
        ("POST", "/agents/shape/tasks", '{"input":1,"caller":"root"}'), ("POST", "/agents/shape/tasks", '{"input":1,"origin":"x"}'), ("POST", "/agents/shape/tasks", '{"input":1,"parent":"x"}'),
        ("POST", "/agents/shape/tasks", '{"input":1,"sessionId":"../x"}'), ("POST", "/agents/shape/tasks", '{"input":1,"sessionId":"a/b"}'), ("POST", "/agents/shape/tasks", '{"input":1,"sessionId":""}'),
        ("POST", "/agents/shape/tasks", '{"input":1,"sessionId":"a\\u0000b"}'), ("POST", "/agents/shape/tasks", '{"input":1,"sessionId":"a\\u200bb"}'), ("POST", "/agents/shape/tasks", '{"input":1,"sessionId":"' + "s" * 5000 + '"}'),
        ("POST", "/agents/shape/tasks", '{"input":1,"budget":{"tokens":-1}}'), ("POST", "/agents/shape/tasks", '{"input":1,"budget":{"tokens":0.5}}'), ("POST", "/agents/shape/tasks", '{"input":1,"budget":{"cost":-1}}'),
        ("POST", "/agents/shape/tasks", '{"input":1,"budget":{"cost":"1"}}'), ("POST", "/agents/shape/tasks", '{"input":1,"budget":{"tokens":99999999999999999999999}}'), ("POST", "/agents/shape/tasks", '{"input":1,"budget":{"wallClock":-5}}'),
    ]
    for method, path, raw in bodies:
        s, said = v.http(method, path, raw=raw.encode())
        check(T, f"{method} {path} {raw[:90]!r} is refused", 400 <= s < 500, (s, said))
    for raw in (b"\xff\xfe", b'{"input":"\xff"}', b'{"input":"\xed\xa0\x80"}', b"\x00" * 10, b'{"input":"' + b"x" * 983040 + b'"}'):
        s, said = v.http("POST", "/agents/shape/tasks", raw=raw)
        check(T, f"bytes {raw[:14]!r} are refused", 400 <= s < 500, (s, said))
    # Queries.
    for path in ("/jobs?limit=-1", "/jobs?limit=99999999999999999999", "/jobs?cursor=%00", "/jobs?cursor=" + "z" * 3000, "/jobs?since=9999999999999999999999", "/jobs?status=x", "/jobs?offset=-1", "/agents/%00", "/agents/%ff",
                 "/agents/%2e%2e/turns", "/agents/a%2fb", "/agents/" + "x" * 3000, "/jobs/x", "/jobs/" + "g" * 32, "/assets/" + "0" * 63, "/assets/../secrets", "/values/write?path=w&value=1", "/values/read?path=%00", "/values/read?path=w/%ff",
                 "/values/slice?path=w&limit=-1", "/values/slice?path=w&offset=99999999999999999999", "/why", "/why?path=", "/agents/shape/turns?limit=0", "/agents/shape/turns?cursor=%F0", "/agents/shape/sessions?after=%00",
                 "/agents/shape/turns/main/-1", "/agents/shape/turns/main/99999999999999999999", "/agents/shape/turns/../1", "/values/aggregate?path=w&depth=999999999", "/values/count?path=w&depth=-1", "/operations/../x", "/adapters/%00/operations"):
        s, said = v.http("GET", path)
        check(T, f"GET {path[:60]} is no error of the server", s and s < 500, (s, said))
    for n in (-1, 1.5, 2**63, 2**64, 1e30, "1", None, [], True):
        for op, key in (("lattice/slice", "limit"), ("lattice/slice", "offset"), ("lattice/count", "depth"), ("lattice/aggregate", "depth"), ("lattice/read", "maxSize"), ("lattice/inspect", "budget"), ("lattice/list", "limit"), ("agent/session-read", "after"), ("dead/list", "limit"), ("job/result", "wait"), ("asset/list", "offset")):
            s, said = v.run(op, {"path": "w", "agentId": "shape", "sessionId": "main", "groupBy": "x", "id": "0" * 32, key: n} if op.startswith("lattice") is False else {"path": "w", key: n, **({"groupBy": "x"} if op.endswith("aggregate") else {})})
            check(T, f"{op} with {key} = {n!r} is no error of the server", s and s < 500, (s, said))
    # Expressions: schemas and patterns that blow up.
    for name, schema, value in (("a pattern", {"pattern": "^(a+)+$"}, "a" * 40 + "b"), ("a pattern of many", {"pattern": "(x{1000}){1000}"}, "x"), ("a ref to itself", {"$ref": "#"}, 1), ("refs around", {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, 1),
                                ("a remote ref", {"$ref": "http://127.0.0.1:1/x"}, 1), ("a file ref", {"$ref": "file:///etc/passwd"}, 1), ("many anyOf", {"anyOf": [{"anyOf": [{"type": "string"}] * 100}] * 100}, 1), ("all refs twice", {"$defs": {f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i+1}"}] * 2} for i in range(30)} | {"a30": {"type": "string"}}, "$ref": "#/$defs/a0"}, 1),
                                ("unique items", {"uniqueItems": True}, [[i] for i in range(5000)]), ("multipleOf 0", {"multipleOf": 0}, 1), ("minus", {"minLength": -1}, "x"), ("no schema", {"type": "nothing"}, 1)):
        import time
        t = time.time()
        s, said = v.http("POST", "/run", {"operation": "v/ops/schema/validate", "input": {"schema": schema, "value": value}}, timeout=20)
        check(T, f"a schema with {name} has an answer in time", s and s < 500 and time.time() - t < 10, (s, said, time.time() - t))
        check(T, f"the venue is alive after a schema with {name}", v.alive())
    s, said = v.http("GET", "/jobs")
    check(T, "jobs can be listed after all of it", s == 200, said)
    s, said = v.http("GET", "/agents/shape/turns")
    check(T, "turns can be listed after all of it", s == 200, said)
    s, said = v.http("GET", "/timers")
    check(T, "timers can be listed after all of it", s == 200, said)


def raw_deep(v, name, depth, list_):
    """Deeper than Python's own encoder writes."""
    x = "[" * depth + "1" + "]" * depth if list_ else '{"a":' * depth + "1" + "}" * depth
    path, body = {"task": ("/agents/shape/tasks", '{"input":%s}'), "message": ("/agents/shape/messages", '{"input":%s}'), "timer": ("/agents/shape/timers", '{"after":"1h","input":%s}'), "asset": ("/assets", '{"content":%s}')}.get(
        name, ("/run", '{"operation":"v/ops/lattice/write","input":{"path":"w/deep/y","value":%s}}'))
    return v.http("POST", path, raw=(body % x).encode())
