"""Attacks by agents that make and ask agents: made with caps wider than the maker's, tools and models of their own, kinds of resources, contexts that
the maker can't read; requests with grants, loads, scopes, entities, response schemas that are endless, recursive or point to files; goals, more
tools, forgetting, memory with odd keys, timers at the end of time. Expected: what is made is never more than its maker, a schema costs no more
than a moment and reads no file, each task ends, and each refusal says why."""

import json
import time

from venue import check, nested, peak_memory

T = "makers"
SECRET = "canary-mak"
ALL = [{"with": "", "can": "*"}]
RES = {"memory": {"mode": "read-write", "preload": "all", "forgetScope": True}, "files": {"mode": "read-write"}}


def quick(what, began, seconds=8):
    check(T, f"{what} is quick", time.time() - began < seconds, time.time() - began)


def attack(v):
    v.write("w/pay", SECRET)
    v.write("w/a", {"ok": 1})
    narrow = [{"with": "w/a", "can": "crud"}, {"with": "g", "can": "*"}]
    m = lambda name: {"provider": "local", "name": name}
    # Made wider than the maker: by every key of a configuration.
    configs = {
        "caps of all": {"caps": ALL}, "no caps": {}, "delegable": {"delegable": ALL}, "an entry": {"context": ["w/pay"], "caps": ALL}, "an entry of an operation": {"context": [{"op": "v/ops/lattice/read", "input": {"path": "w/pay"}}]}, "a placeholder": {"systemPrompt": "{{w/pay}} {{ctx.w/pay}}"}, "a mapping": {"contextMapping": {"k": "w/pay"}, "systemPrompt": "{{k}}"}, "injection": {"toolArgInjection": {"lattice_read": {"path": "k"}}, "contextMapping": {"k": {"value": "w/pay"}}},
        "tools": {"tools": ["v/ops/secret/list", "v/ops/policy/roots", "v/ops/lattice/copy", {"operation": "v/ops/lattice/read", "scopes": {"const": ["context/x", "transcript"]}}]}, "resources": {"resources": RES}, "a kind of its own": {"resources": {"docs": {"kind": "rag", "index": "x"}}}, "a key": {"model": {**m("x"), "key": "s/KEY"}}, "another endpoint": {"model": {"provider": "openai", "name": "x", "baseUrl": "http://127.0.0.1:1/"}}, "another provider": {"model": {"provider": "nowhere", "name": "x"}}, "limits": {"limits": {"turns": 10**9, "tokens": 10**15}}, "concurrency": {"concurrency": 4_000_000_000, "mailbox": 4_000_000_000},
        "explicit": {"completion": "explicit"}, "its definition": "w/pay", "a list": [{"caps": ALL}, "w/pay"], "an asset": "a/" + "0" * 64, "garbage": 7, "null": None, "unknown keys": {"nope": 1}, "deep": {"outputs": {"complete": {"schema": nested(200)}}}, "a large one": {"systemPrompt": "x" * 900_000}, "entities": {"entityIdsRequired": True, "tools": [{"operation": "v/ops/lattice/read", "entities": ["x"]}]},
    }
    for name, config in configs.items():
        made, model = "made-" + name.replace(" ", "-"), f"{v.mode}-made-{name.replace(' ', '')}"
        v.model.says(model, [[("lattice_read", {"path": "w/pay"}), ("lattice_write", {"path": "w/stolen", "value": 1}), ("job_run", {"operation": "v/ops/lattice/read", "input": {"path": "w/pay"}}), ("agent_create", {"agentId": "grandchild", "config": {"model": m(model), "caps": ALL}})], "done"])
        if isinstance(config, dict):
            config = {"model": m(model), **config}
        r, job, a = v.calls([("agent_create", {"agentId": made, "config": config}), ("agent_request", {"agentId": made, "input": "go", "wait": 5000}), ("job_run", {"operation": "v/ops/agent/update", "input": {"agentId": made, "config": {"caps": None}}}), ("job_run", {"operation": "v/ops/agent/fork", "input": {"agentId": made, "to": made + "-f", "config": {"caps": ALL}}})], {"caps": narrow}, wait=15000)
        check(T, f"made with {name}: the maker's task ends", job.get("status") == "COMPLETE" and len(r) == 4 or job.get("errorCode") == "CONTEXT_OVERFLOW" or name == "another provider", (job, r))
        # Asked by the owner, who may everything: what it was made with doesn't grow.
        for who in (made, made + "-f"):
            v.model.seen[model] = []
            s, job = v.http("POST", f"/agents/{who}/tasks?wait=6000", {"input": 1, "sessionContext": {"entity_ids": ["x"]}})
            check(T, f"made with {name}: {who[-2:]} shows its model nothing that its maker could not read", SECRET not in json.dumps(v.model.seen.get(model, [])), json.dumps(v.model.seen.get(model, []))[-600:])
            check(T, f"made with {name}: {who[-2:]} has an answer", s and s < 500, (s, job))
            v.http("DELETE", f"/agents/{who}?remove=true")
        check(T, f"made with {name}: nothing is written outside", v.read("w/stolen")[1].get("exists") is False)
        v.http("DELETE", "/agents/grandchild?remove=true")
    # Requests: what only trusted code says, and what is of the model's choice.
    kid = v.agent([[("lattice_read", {"path": "w/pay"}), ("memory_read", {}), ("memory_write", {"content": "evil"})], "kid"], {"resources": RES}, name="kid")
    mk = v.last_model
    v.model.says(mk, [[("lattice_read", {"path": "w/pay"}), ("memory_read", {}), ("memory_write", {"content": "evil"})], "kid"] * 200)
    for i, more in enumerate([{"context": ALL}, {"context": ["app/user/u2"]}, {"context": [{"with": "w/pay", "can": "crud"}]}, {"loads": {"w/pay": None}}, {"loads": {"w/pay": {"label": "x", "budget": 10000}}}, {"loads": {"w/pay": {"budget": 10**12}}}, {"loads": {"../x": None}}, {"loads": ["w/pay"]}, {"loads": {f"w/l{n}": None for n in range(500)}}, {"loads": {"g/kid/timeline": None}}, {"_scopes": ["transcript"]}, {"_scopes": ["input", "context/none", 7]}, {"_instance": "x"}, {"sessionContext": {"entity_ids": ["x"]}}, {"outputPath": "w/pay"}, {"outputPath": "s/KEY"}, {"outputPath": "w/a/../pay"}, {"outputPath": ["w", "pay"]}, {"outputPath": "w/a/out"},
                              {"budget": {"turns": 2**62}}, {"budget": {"turns": 0}}, {"budget": {"wallClock": -1}}, {"budget": {}}, {"priority": 2}, {"wait": 2**63}, {"wait": -1}, {"timeout": 1e308}, {"sessionId": "../x"}, {"sessionId": "main\0"}, {"sessionId": ""}, {"agentId": ""}, {"agentId": "kid/../kid"}, {"agentId": ["kid"]}, {"agentId": "g/kid"}, {"strict": "yes"}]):
        v.model.seen[mk] = []
        began = time.time()
        r, job, a = v.calls([("agent_request", {"agentId": "kid", "input": i, "wait": 3000, **more})], {"caps": narrow, "limits": {"toolTimeout": 6}}, body={"context": ["app/user/u1", *({"with": c["with"], "can": c["can"]} for c in narrow)]}, wait=15000)
        text = json.dumps(v.model.seen[mk])
        check(T, f"a request with {json.dumps(more)[:60]} ends, with a result", job.get("status") == "COMPLETE" and len(r) == 1 and r[0], (job, r))
        check(T, f"a request with {json.dumps(more)[:60]} shows the child nothing of others", SECRET not in text, text[-500:])
        check(T, f"a request with {json.dumps(more)[:60]} overwrites nothing", v.read("w/pay")[1].get("value") == SECRET, v.read("w/pay"))
    # Schemas of results.
    bad = {"file": {"$ref": "file:///etc/passwd"}, "http": {"$ref": f"http://127.0.0.1:{v.model.port}/schema.json"}, "https": {"$ref": "https://json-schema.org/draft/2020-12/schema"}, "itself": {"$ref": "#"}, "ring": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "regex": {"type": "string", "pattern": "(a+)+$"}, "regex 2": {"type": "string", "pattern": "^(([a-z])+.)+[A-Z]([a-z])+$"}, "backreference": {"type": "string", "pattern": "(a*)*\\1b"}, "broken regex": {"type": "string", "pattern": "("}, "long regex": {"type": "string", "pattern": "a{1,1000}" * 200}, "repeated": {"type": "string", "pattern": "((a{1,100}){1,100}){1,100}"}, "properties by regex": {"patternProperties": {"(x+x+)+y": {"type": "number"}}}, "multiple of 0": {"multipleOf": 0}, "multiple": {"multipleOf": 1e-320},
           "large": {"enum": ["x" * 1000] * 500}, "wide": {"anyOf": [{"const": i} for i in range(20000)]}, "nested anyOf": None, "unique": {"type": "array", "uniqueItems": True}, "negative": {"maxLength": -1}, "not a type": {"type": "strange"}, "id": {"$id": "http://127.0.0.1/x", "$ref": "y"}, "id of a file": {"$id": "file:///etc/", "$ref": "passwd"}, "schema of another": {"$schema": "http://127.0.0.1:1/meta"}, "dynamic": {"$dynamicRef": "#x", "$defs": {"y": {"$dynamicAnchor": "x", "$dynamicRef": "#x"}}}, "deep pointer": {"$ref": "#" + "/a" * 20000}, "format": {"type": "string", "format": "regex"}, "content": {"contentMediaType": "application/json", "contentEncoding": "base64"}, "false": False}
    deep = {"const": 1}
    for _ in range(18):
        deep = {"anyOf": [deep, {"not": deep}]} if len(json.dumps(deep)) < 200_000 else deep
    bad["nested anyOf"] = deep
    v.agent([json.dumps("a" * 40 + "!")] * 999, name="answerer")
    for name, schema in bad.items():
        hits = len(v.model.seen.get("", []))
        for what, call in {"responseSchema": lambda: v.http("POST", "/agents/answerer/tasks?wait=9000", {"input": 1, "responseSchema": schema}, timeout=20), "validate": lambda: v.run("schema/validate", {"schema": schema, "value": {"x" * 40: "a" * 40 + "!"}}), "validate a text": lambda: v.run("schema/validate", {"schema": schema, "value": "a" * 5000 + "!"}), "outputs": lambda: v.http("PUT", "/agents/outs", {"model": m("x"), "outputs": {"complete": {"schema": schema}}}), "tool input": lambda: v.http("PUT", "/agents/outs", {"model": m("x"), "tools": [{"delegate": "kid", "input": schema}]}), "a subgoal": lambda: v.calls([("subgoal", {"description": "g", "goal": "g", "responseSchema": schema})], {"loop": "goalTree", "tools": ["subgoal"]}, wait=9000)}.items():
            began = time.time()
            said = call()
            quick(f"schema {name} by {what}", began)
            text = json.dumps(said)
            check(T, f"schema {name} by {what}: no error of the server, and no file of it", (not isinstance(said[0], int) or (said[0] and said[0] < 500)) and "root:" not in text, text[:400])
            if isinstance(said[1], dict) and what in ("responseSchema", "a subgoal"):
                check(T, f"schema {name} by {what}: the task ends", said[0] in (400, 422) or said[1].get("status") in ("COMPLETE", "FAILED"), text[:400])
    check(T, "others are answered after it", v.task("answerer", wait=6000)[1].get("status") == "COMPLETE")
    # Goals, more tools, loads.
    g = {"loop": "goalTree", "tools": ["subgoal", "compact", "more_tools"]}
    for name, calls in {"a thousand goals": [[("subgoal", {"description": f"g{i}"}) for i in range(1000)]], "goals in goals": [[("subgoal", {"description": "again"})]] * 200, "compact of nothing": [[("compact", {"summary": ""})]], "a long summary": [[("compact", {"summary": "s" * 900_000})]], "compact twice": [[("compact", {"summary": "a"}), ("compact", {"summary": "b"})]], "compact, then goal": [[("compact", {"summary": "a"}), ("subgoal", {"description": "g"}), ("complete_task", {"result": 1})]], "a goal without words": [[("subgoal", {})]], "all tools": [[("more_tools", {})] * 40], "tools of no word": [[("more_tools", {"query": q}) for q in ("", " ", "*", ".*", "x" * 100_000, "\0", "v/ops", "secret extract", "((((")]]}.items():
        began = time.time()
        a = v.agent([*calls, "done"], {**g, "limits": {"turns": 40}})
        s, job = v.task(a, wait=25000, timeout=35)
        check(T, f"{name}: the task ends", job.get("status") in ("COMPLETE", "FAILED"), job)
        check(T, f"{name}: a failure says why", job.get("status") == "COMPLETE" or job.get("error"), job)
        check(T, f"{name}: turns can be read", v.http("GET", f"/agents/{a}/turns")[0] == 200)
    r, job, a = v.calls([("more_tools", {"query": "lattice copy"}), ("more_tools", {"query": "secret"})], {"tools": ["more_tools"], "caps": narrow})
    v.model.says(v.last_model, [[("lattice_copy", {"from": "w/pay", "to": "w/a/got"}), ("secret_list", {}), ("policy_roots", {"caps": []})], "done"])
    s, job = v.task(a, body={"sessionId": job.get("session")})
    check(T, "tools that were added give no right", SECRET not in json.dumps(v.read("w/a")[1]) and SECRET not in v.prompt(), v.read("w/a"))
    # Memory: odd keys, kinds, forgetting.
    keys = ["", " ", "a/b", "..", "\0", "k" * 10_000, "é\u0301", "\u202e", "K", "k", "__proto__", "id", "*", "0", "-1", "venue:x", "a\nb", "{}", None, 5, ["k"], {"k": 1}]
    r, job, a = v.calls([x for k in keys for x in (("memory_put", {"key": k, "content": f"of-{str(k)[:10]}"}), ("memory_get", {"key": k}))], {"resources": RES, "defaultTools": False}, body={"context": ["app/user/u1"]}, wait=20000)
    check(T, "odd keys: each has a result", len(r) == 2 * len(keys) and all(r) and job.get("status") == "COMPLETE", (len(r), job))
    r2, job, a = v.calls([("memory_get", {"key": "K"}), ("memory_get", {"key": "k"})], {"resources": RES, "defaultTools": False}, body={"context": ["app/user/u1"]})
    check(T, "keys in other case are two", len(r2) == 2 and "of-K" in r2[0] and "of-k" in r2[1], r2)
    for name, calls in {"kinds": [("memory_write", {"content": "x", "type": t}) for t in ("fact", "FACT", "", None, "nope", 7, ["fact"])], "topics": [("memory_write", {"content": f"x{i}", "topics": t}) for i, t in enumerate((["t"] * 10_000, [""], ["a/b"], [None], "t", ["t" * 10_000], ["\u200b"]))], "contents": [("memory_write", {"content": c}) for c in ("", " ", "\0", "c" * 800_000, None, 7, ["x"])], "searches": [("memory_search", {"query": q, "limit": l}) for q, l in (("((((", 1), ("*", 100), ("x" * 100_000, 5), ("", 0), ("x", 10**9), ("x", -1), ("\0", 1))], "forgets": [("memory_forget", b) for b in ({}, {"id": "x", "scope": "app/user/u1"}, {"id": ""}, {"id": "0" * 64}, {"scope": ""}, {"scope": "app"}, {"scope": "app/user"}, {"id": None}, {"id": ["x"]})], "many": [("memory_put", {"key": f"m{i}", "content": "m" * 1000}) for i in range(500)]}.items():
        r, job, a = v.calls(calls, {"resources": RES, "defaultTools": False}, body={"context": ["app/user/u1"]}, wait=25000)
        check(T, f"memory, {name}: the task ends and each call has a result", job.get("status") == "COMPLETE" and len(r) == len(calls) and all(r) or job.get("errorCode") == "CONTEXT_OVERFLOW", (len(r), job))
    r2, job, a = v.calls([("memory_get", {"key": "K"})], {"resources": RES, "defaultTools": False}, body={"context": ["app/user/u1"]})
    check(T, "none of these has forgotten what was put", r2 and "of-K" in r2[0], r2)
    # Timers by a model.
    times = [{"at": "0001-01-01T00:00:00Z"}, {"at": "9999-12-31T23:59:59Z"}, {"at": "1970-01-01T00:00:00Z"}, {"at": "+99999-01-01T00:00:00Z"}, {"at": 0}, {"at": -1}, {"at": 2**63}, {"at": 2**53}, {"after": "10000000d"}, {"after": 2**63}, {"after": "1ns"}, {"every": "1ms"}, {"every": 2**62}, {"cron": "* * * * * *"}, {"cron": "*/1 * * * *", "timezone": "\0"}, {"cron": "0 0 29 2 MON#5"}, {"cron": "@yearly"}, {"cron": ""}, {"cron": "* " * 5000}, {"cron": "59 23 31 12 *", "timezone": "Pacific/Kiritimati"}, {"at": "2026-03-29T02:30:00", "timezone": "Europe/Berlin"}, {"at": "now"}, {"after": "PT1H"}]
    r, job, a = v.calls([("agent_trigger", {"agentId": "kid", "input": i, "name": f"t{i}", **t}) for i, t in enumerate(times)] + [("agent_wake", {k: x for k, x in t.items() if k in ("at", "after")}) for t in times if "at" in t or "after" in t], {"tools": ["v/ops/agent/trigger", "v/ops/agent/wake"]}, wait=15000)
    check(T, "timers of a model: the task ends, each call has a result", job.get("status") == "COMPLETE" and len(r) >= len(times) and all(r), (len(r), job))
    for t, x in zip(times, r):
        check(T, f"a timer {json.dumps(t)[:50]} is set, or refused with a reason", '"timer"' in x or ("error" in x and len(x) < 3000), x[:300])
    v.http("DELETE", f"/agents/{a}")
    s, said = v.http("GET", "/timers?all=true")
    check(T, "timers can be listed after it", s == 200, (s, said))
    peaks = peak_memory(v)
    check(T, "no process took more than 768 MiB", all(x < 768 for x in peaks.values()), peaks)
