"""Attacks every number that callers and authors may give: of all operations, of queries and paths, of budgets and of an agent's file, at
the ends of what 64 bits and doubles hold. Expected: an answer below 500, and a process that lives (a debug build checks overflows)."""

import json

from venue import check

T = "numbers"
ENDS = [2**64 - 1, 2**63, 2**63 - 1, -2**63, -1, 0, 2**53, 1e308, 1e-308]
# Operations that change the venue as a whole.
LEFT_OUT = {"v/ops/venue/backup", "v/ops/worker/drain", "v/ops/quota/set"}


def is_number(part):
    kinds = part.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    return "integer" in kinds or "number" in kinds or any(is_number(p) for p in part.get("anyOf", []) if isinstance(p, dict))


def attack(v):
    if v.mode == "jwt":
        v.token = v.issue("acme/ann")
    agent = v.agent(["one", "two"])
    _, job = v.task(agent, "x")
    session, job = job.get("session"), job.get("id")
    v.write("w/list", [1, 2, 3])
    echo = {"provider": "scripted", "name": "echo"}
    common = {"agentId": agent, "sessionId": session, "id": job, "taskId": job, "path": "w/list", "value": [1], "input": "x", "timer": "0" * 32, "handle": "0" * 32, "queue": "q",
              "operation": "v/ops/lattice/read", "message": "m", "title": "t", "summary": "s", "at": 1, "action": "cancel", "config": {"model": echo}, "url": "http://x.example/",
              "name": "N", "schema": {}, "namespace": "app/user/u", "cases": [], "values": [], "target": {}, "from": "w/list", "asks": [{"id": "a", "type": "text", "prompt": "p"}]}

    def ask(what, method, path, body=None):
        s, said = v.http(method, path, body, timeout=20)
        check(T, what, 0 < s < 500, (s, json.dumps(said)[:200]))
        return s

    _, operations = v.http("GET", "/operations")
    for operation in operations:
        name, schema = operation["name"], operation.get("input") or {}
        if name in LEFT_OUT:
            continue
        for key in [k for k, part in schema.get("properties", {}).items() if is_number(part)]:
            for end in ENDS:
                given = {**{k: common.get(k, "x") for k in schema.get("required", [])}, key: end}
                ask(f"{name} {key}={end}", "POST", "/run", {"operation": name, "input": given})
    queries = ["/jobs?limit=%s", "/jobs?offset=%s", "/jobs?since=%s", "/jobs?until=%s", "/agents?limit=%s", "/timers?offset=%s", "/approvals?offset=%s", f"/agents/{agent}/sessions?limit=%s",
               f"/agents/{agent}/sessions?offset=%s", f"/agents/{agent}/sessions/{session}?after=%s", f"/agents/{agent}/turns?limit=%s", f"/agents/{agent}/turns?before=%s",
               f"/agents/{agent}/turns?after=%s", f"/agents/{agent}/turns/{session}/%s", "/assets?offset=%s", "/why?path=w/x&limit=%s", "/outcomes?offset=%s", "/spend?limit=%s",
               "/values/slice?path=w/list&offset=%s", "/values/slice?path=w/list&limit=%s", "/values/list?path=w&offset=%s", "/values/count?path=w&depth=%s", f"/jobs/{job}/sse?after=%s"]
    for end in [2**64, 2**64 - 1, 2**63, -1, 0, "1e308", "NaN", ""]:
        for query in queries:
            ask(query % end, "GET", query % end)
        ask(f"replay of turn {end}", "POST", f"/agents/{agent}/turns/{session}/{end}/replay", {})
        ask(f"fork at {end}", "POST", f"/agents/{agent}/sessions/{session}/fork", {"at": end})
    for end in ENDS:
        for more in [{"budget": {k: end}} for k in ("tokens", "cost", "turns", "wallClock")] + [{"priority": end}, {"loads": {"w/x": {"label": "x", "budget": end}}}]:
            ask(f"a task with {more}", "POST", f"/agents/{agent}/tasks?wait=100", {"input": "x", **more})
        for part in [{"limits": {k: end}} for k in ("turns", "tokens", "cost", "wallClock", "toolTimeout")] + [
                {"limits": {"session": {"tokens": end}}}, {"limits": {"session": {"cost": end}}}, {"concurrency": end}, {"contextBudget": end}, {"session": {"ttl": end}},
                {"retry": {"attempts": end}}, {"model": {**echo, "maxTokens": end}}, {"model": {**echo, "contextWindow": end}}, {"model": {**echo, "price": {"input": end, "output": end}}},
                {"model": {**echo, "temperature": end, "topP": end}}, {"model": {**echo, "seed": end}}, {"context": [{"ref": "w/x", "budget": end}]},
                {"resources": {"memory": {"preload": {"limit": end, "maxChars": end}}}}]:
            if ask(f"an agent with {json.dumps(part)[:60]}", "PUT", "/agents/ends", {"model": echo, **part}) in (200, 201):
                ask(f"its task ({json.dumps(part)[:50]})", "POST", "/agents/ends/tasks?wait=200", {"input": "x"})
                ask(f"its prompt ({json.dumps(part)[:50]})", "POST", "/agents/ends/context", {})
