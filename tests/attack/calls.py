"""Attacks by the calls of a model: each tool with arguments of other types, with keys that it hasn't, null, huge, deep, in odd Unicode,
as text that is nearly JSON; a thousand calls in one reply, ids twice or odd, names that are empty or hold control characters.
Expected: each task ends, each call has exactly one result, in the order of the calls, that says what was wrong, and the turns can be read."""

import json
import time

from venue import check, nested

T = "calls"
SETS = ("models.timeout=20s",)
DEFAULT = ["agent_create", "agent_message", "agent_request", "asset_store", "asset_get", "asset_list", "asset_content", "asset_pin", "job_run",
           "job_result", "lattice_read", "lattice_write", "lattice_delete", "lattice_append", "lattice_slice", "lattice_list", "lattice_inspect",
           "schema_validate", "schema_infer", "complete_task", "fail_task", "context_load", "context_unload"]
MORE = ["more_tools", "subgoal", "compact", "complete", "fail", "agent_wake", "agent_trigger", "agent_chat", "agent_fork", "agent_update", "agent_delete",
        "session_fork", "human_ask", "queue_publish", "json_merge", "json_select", "lattice_copy", "lattice_count", "lattice_aggregate", "http_get",
        "http_post", "memory_read", "memory_search", "memory_write", "memory_correct", "memory_get", "memory_put", "memory_forget", "files_list",
        "files_read", "files_write", "timer_list", "timer_cancel", "secret_list", "secret_set", "policy_show", "policy_revoke", "spend_today",
        "approval_list", "approval_approve", "dead_redrive", "job_bulk", "job_pause", "job_message", "venue_audit"]
TOOLS = ["more_tools", "subgoal", "compact", *("v/ops/" + t for t in ("agent/wake", "agent/trigger", "agent/chat", "agent/fork", "agent/update", "agent/delete", "json/merge",
         "json/select", "lattice/copy", "lattice/count", "lattice/aggregate", "http/get", "http/post", "timer/list", "timer/cancel", "secret/list",
         "secret/set", "policy/show", "policy/revoke", "spend/today", "approval/list", "approval/approve", "dead/redrive", "job/bulk", "job/pause",
         "job/message", "venue/audit", "queue/publish"))]
BIG = "x" * 200_000
# Arguments that no tool takes as they stand; most keys that the tools know, in types that they are not.
KEYS = ["path", "value", "agentId", "input", "config", "id", "operation", "content", "key", "query", "schema", "goal", "description", "summary",
        "result", "error", "label", "message", "wait", "sessionId", "queue", "url", "budget", "level", "after", "scope", "name", "expect", "paths"]
ODD = {
    "null": None, "list": [], "number": 7, "text": "x", "true": True, "nothing": {}, "unknown key": {"nope": 1},
    "nulls": {k: None for k in KEYS}, "numbers": {k: -1 for k in KEYS}, "lists": {k: [[]] for k in KEYS}, "maps": {k: {"a": {}} for k in KEYS},
    "floats": {k: 1e300 for k in KEYS}, "truth": {k: True for k in KEYS}, "empty texts": {k: "" for k in KEYS}, "NUL": {k: "a\0b" for k in KEYS},
    "unicode": {k: "\u202e\u200b\ufeffé\U0001f4a9\u0301" for k in KEYS}, "deep": {"path": "w/deep", "value": nested(300)},
    "huge": {"path": BIG, "agentId": BIG, "id": BIG, "key": BIG, "query": BIG, "content": BIG},
}
NEARLY = ["{'path': 'w/x'}", '{"path": "w/x",}', '{"path": "w/x"} trailing', '```json\n{"path": "w/x"}\n```', '{path: "w/x"}', '{"path": "w/x"', '{"path": "w\\x"}', '{"path": "w/x" /* c */}', '\ufeff{"path": "w/x"}',
          '"{\\"path\\": \\"w/x\\"}"', '{"path": NaN}', '{"path": undefined}', '{"path": "w/x\n"}', '{"path": "w/\\u0000"}', '{"path":"w/x"}{"path":"w/x"}', '{"\\u0070ath": "w/x", "path": "w/y"}', "\0", " ", "True", '{"path": 0x10}', '{"path": "\\ud800"}', '[{"path": "w/x"}]']


def results(v, model):
    seen = v.model.seen.get(model, [])
    return [m for m in seen[-1]["messages"] if m.get("role") == "tool"] if seen else []


def readable(v, agent, what, job):
    for path in (f"/agents/{agent}/turns", f"/jobs/{job.get('job')}", f"/agents/{agent}/sessions/{job.get('session')}", f"/agents/{agent}/turns/{job.get('session')}/1?prompt=true"):
        s, said = v.http("GET", path)
        check(T, f"{what}: {path.split('?')[0].rsplit('/', 2)[-2]} can be read", s == 200, (s, str(said)[:300]))


def attack(v):
    v.write("w/x", {"ok": 1})
    v.agent(["kid"], name="kid")
    res = {"memory": {"mode": "read-write", "forgetScope": True}, "files": {"mode": "read-write"}}
    # Each tool with each sort of arguments, all tools in one reply; the tools that end a task stand last.
    last = ("complete_task", "fail_task", "complete", "fail")
    names = sorted(DEFAULT + MORE, key=lambda n: n in last)
    for loop in ("chat", "goalTree"):
        for name, odd in ODD.items():
            # Each sort in several replies, as a huge one would pass what a reply may say.
            step = 6 if name == "huge" else 24 if name in ("unicode", "NUL", "deep") else 100
            use = [n for n in names if n not in last]
            config = {"tools": TOOLS if loop == "goalTree" else [t for t in TOOLS if t not in ("subgoal", "compact")], "resources": res, "loop": loop, "limits": {"toolTimeout": 5}}
            if name == "huge":
                odd = {k: (x[:20_000] if isinstance(x, str) else x) for k, x in odd.items()}
            if isinstance(odd, dict) and "wait" in odd:
                use = [n for n in use if n != "agent_wake"]
            steps = [[(n, odd) for n in use[i:i + step]] for i in range(0, len(use), step)]
            a = v.agent([*steps, "done"] + ["done"] * 20, config)
            m = v.last_model
            began = time.time()
            s, job = v.task(a, body={"context": ["app/user/u1", {"with": "", "can": "*"}]}, wait=25000)
            for w in v.http("GET", "/approvals?limit=50")[1].get("items", []):
                v.http("POST", f"/approvals/{w['id']}", {"reject": {"reason": "no"}})
            check(T, f"{loop}: tools with {name} end", job.get("status") in ("COMPLETE", "FAILED"), job)
            got = results(v, m)
            ids = [x.get("tool_call_id") for x in got]
            check(T, f"{loop}: tools with {name}: each call has one result", job.get("status") == "FAILED" or len(ids) == len(set(ids)) == len(use), (len(ids), len(use), job.get("error")))
            check(T, f"{loop}: tools with {name}: no result is empty", all((x.get("content") or "").strip() for x in got), [x for x in got if not x.get("content")][:2])
            check(T, f"{loop}: tools with {name}: no word of the inside", not any(w in str(got) for w in ("panicked", "called `Option", "src/", ".rs:", "unwrap")), [str(x)[:300] for x in got if ".rs:" in str(x) or "src/" in str(x)][:2])
            check(T, f"{loop}: tools with {name} end soon", time.time() - began < 25, time.time() - began)
            readable(v, a, f"{loop}: tools with {name}", job)
    # Tools that end a task.
    for loop in ("chat", "goalTree"):
        for tool in last:
            for name, odd in ODD.items():
                if name == "deep":
                    odd = {"result": nested(300), "error": nested(100)}
                a = v.agent([[(tool, odd)], "done"], {"loop": loop})
                s, job = v.task(a, wait=9000)
                check(T, f"{loop}: {tool} with {name} ends", job.get("status") in ("COMPLETE", "FAILED"), job)
                check(T, f"{loop}: {tool} with {name}: the job can be read", v.http("GET", f"/jobs/{job.get('job')}")[0] == 200)
    # Text that is nearly JSON.
    for i, text in enumerate(NEARLY):
        r, job, a = v.calls([("lattice_read", text), ("lattice_read", {"path": "w/x"})])
        check(T, f"nearly JSON {i} {text[:20]!r}: the task ends", job.get("status") == "COMPLETE", job)
        check(T, f"nearly JSON {i} {text[:20]!r}: each call has one result", len(r) == 2, r)
        check(T, f"nearly JSON {i} {text[:20]!r}: the good call beside it is made", len(r) == 2 and '"ok":1' in r[1], r)
        check(T, f"nearly JSON {i} {text[:20]!r}: it is told where it is wrong", len(r) == 2 and ("argument" in r[0] or '"exists"' in r[0] or "path" in r[0] or "not" in r[0]), r)
    # Many calls in one reply; each write is made once.
    for n in (100, 1000):
        v.run("lattice/delete", {"path": "w/many"})
        a = v.agent([[("lattice_append", {"path": "w/many", "value": i}) for i in range(n)], "done"])
        s, job = v.task(a, wait=60000, timeout=70)
        s, said = v.read("w/many")
        check(T, f"{n} appends in one reply: the task ends", job.get("status") in ("COMPLETE", "FAILED"), job)
        check(T, f"{n} appends in one reply are made in order, once, or refused with a reason", said.get("value") == list(range(n)) or (job.get("status") == "FAILED" and job.get("error")) or said.get("exists") is False or said.get("value") == list(range(len(said.get("value") or []))), str(said)[:200])
        check(T, f"{n} calls: each has one result", job.get("status") == "FAILED" or len(results(v, v.last_model)) == n, len(results(v, v.last_model)))
        readable(v, a, f"{n} calls", job)
    a = v.agent([[("agent_request", {"agentId": "kid", "input": i, "wait": 0}) for i in range(200)]] + ["done"] * 60)
    s, job = v.task(a, wait=40000, timeout=50)
    check(T, "200 children in one reply: the task ends", job.get("status") in ("COMPLETE", "FAILED"), job)
    s, said = v.http("GET", "/jobs?agent=kid&limit=500")
    check(T, "and no more than fifty runs begin", 0 < len(said.get("items", [])) <= 50, len(said.get("items", [])))
    # Ids of calls: twice, empty, huge, of another call, in control characters.
    for name, ids in {"the same twice": ["c", "c"], "all empty": ["", ""], "one empty": ["", "b"], "huge": ["i" * 100_000, "j"], "control": ["a\0b", "a\nb"], "unicode": ["é\u202e", "\u200b"], "spaces": [" ", "  "], "of the venue": ["venue:x", "call-1"], "a hundred the same": ["z"] * 100, "numbers as text": ["0", "-1"], "braces": ["{x}", "a/b"]}.items():
        v.run("lattice/delete", {"path": "w/ids"})
        a = v.agent([[("lattice_append", {"path": "w/ids", "value": i}, c) for i, c in enumerate(ids)], [("lattice_append", {"path": "w/ids", "value": "later"}, ids[0])], "done"])
        m = v.last_model
        s, job = v.task(a, wait=15000)
        s, said = v.read("w/ids")
        check(T, f"ids {name}: the task ends", job.get("status") in ("COMPLETE", "FAILED"), job)
        check(T, f"ids {name}: each call is made once, or the reply is refused with a reason", said.get("value") == [*range(len(ids)), "later"] or (job.get("status") == "FAILED" and job.get("error")), (said, job))
        check(T, f"ids {name}: each call has a result of its own", job.get("status") == "FAILED" or len(results(v, m)) == len(ids) + 1, len(results(v, m)))
        seen = v.model.seen[m][-1]["messages"]
        told = [c["id"] for x in seen for c in x.get("tool_calls") or []]
        check(T, f"ids {name}: in the next prompt each result names a call that is there", {x.get("tool_call_id") for x in seen if x["role"] == "tool"} <= set(told), told[:3])
        readable(v, a, f"ids {name}", job)
    # Names of tools.
    for name in ("", " ", "\0", "lattice_read\0", "lattice_read\n", "LATTICE_READ", "lattice_read ", "v/ops/lattice/read", "lattice/read", "lattice:read", "lattice_réad", "lattice_read\u200b", "n" * 100_000, "__proto__", "constructor", "../lattice_read", "secret_extract", "functions.lattice_read", "\x1b[2Jx", "`", "{{w/x}}", "ｌattice_read"):
        r, job, a = v.calls([(name, {"path": "w/x"}), ("lattice_read", {"path": "w/x"})])
        check(T, f"the tool {name[:20]!r}: the task ends", job.get("status") in ("COMPLETE", "FAILED"), job)
        check(T, f"the tool {name[:20]!r}: a result, or the task says why not", (len(r) == 2 and r[0]) or job.get("error"), (r, job))
        check(T, f"the tool {name[:20]!r}: its result is no flood", not r or len(r[0]) < 20_000, len(r[0]) if r else 0)
        turns = v.http("GET", f"/agents/{a}/turns")[1]
        check(T, f"the tool {name[:20]!r}: turns can be read", "turns" in turns, str(turns)[:200])
    # A result that is large, and its call again: what is shown of it is bounded.
    v.write("w/large", "y" * 900_000)
    a = v.agent([[("lattice_read", {"path": "w/large", "maxSize": 2**63})] * 30, [("lattice_read", {"path": "w/large"})] * 30, "done"])
    s, job = v.task(a, wait=30000, timeout=40)
    check(T, "sixty reads of 900 KB in two turns end", job.get("status") in ("COMPLETE", "FAILED"), job)
    sent = len(json.dumps(v.model.seen[v.last_model][-1]))
    check(T, "and the prompt stays within its budget", sent < 1_000_000, sent)
    # Calls beside text, calls after the end, complete twice, complete and fail.
    for name, calls in {"complete twice": [("complete_task", {"result": 1}), ("complete_task", {"result": 2})], "complete, then fail": [("complete_task", {"result": 1}), ("fail_task", {"error": "x"})], "fail, then complete": [("fail_task", {"error": "x"}), ("complete_task", {"result": 1})], "complete, then write": [("complete_task", {"result": 1}), ("lattice_write", {"path": "w/after", "value": 1})], "a bad one, then complete": [("complete_task", {}), ("complete_task", {"result": 1})]}.items():
        a = v.agent([calls, "done"])
        s, job = v.task(a)
        check(T, f"{name}: the job has one end", job.get("status") in ("COMPLETE", "FAILED"), job)
        s, again = v.http("GET", f"/jobs/{job.get('job')}")
        check(T, f"{name}: and keeps it", again.get("status") == job.get("status") and again.get("output") == job.get("output"), (job, again))
