"""Attacks names that could meet in a store or a queue: owners, agents, sessions, ids with separators, wildcards, percent signs, other cases
and forms of Unicode; and, with tokens, ids that a narrow token used before a wide one, lists and streams for narrow tokens, arguments
that only trusted code may give. Expected: two names are two things or one of them is refused."""

import json
import time
import unicodedata

from venue import check

T = "collisions"


def attack(v):
    if v.mode == "jwt":
        return tokens(v)
    owners = ["a/b:c", "a:b/c", "a/b.c", "a.b/c", "a/b%2Fc", "a%2Fb/c", "a/b", "a/B", "A/b", "a/*", "*/b", "a/>", "a/b\\c", "a/b%", "a/{b}", "{a}/b", "a/b|c", "a|b/c", "a/b\x1fc", "a/é", "a/e\u0301", "a/\u212a", "a/K", "a/k", "a/..", "../a", "a/b\u200b", "venue/x", "local/me:w", "local/me", "local/ME", "trellis/x", "a/b-c", "a-b/c", "a/b_c", "a_b/c", "a/0", "a/00", "a/", "/b", "a", "a/b/c", "did/x", "%61/b", "a/%62", "x" * 300 + "/y", "a/" + "y" * 300]
    kept = {}
    for i, o in enumerate(owners):
        try:
            s, said = v.write("w/own", f"mine-{i}", owner=o.encode("utf-8").decode("latin-1"))
        except (ValueError, UnicodeError):
            continue
        check(T, f"the owner {o[:20]!r} is taken or refused", s < 500, (s, said))
        if s < 300 and o.strip():
            kept[i] = o
            s, said = v.http("PUT", "/agents/x:y", {"model": {"provider": "scripted", "name": "echo"}, "description": f"d{i}"}, owner=o.encode("utf-8").decode("latin-1"))
            v.http("POST", "/agents/x:y/tasks", {"input": f"mine-{i}"}, owner=o.encode("utf-8").decode("latin-1"), headers={"Idempotency-Key": "k"})
    time.sleep(1)
    for i, o in kept.items():
        s, said = v.read("w/own", owner=o.encode("utf-8").decode("latin-1"))
        check(T, f"the owner {o[:20]!r} has his own", said.get("value") == f"mine-{i}", (s, said))
        s, said = v.http("GET", "/jobs?details=true", owner=o.encode("utf-8").decode("latin-1"))
        inputs = {j.get("input") for j in said.get("items", []) if isinstance(j, dict)}
        check(T, f"the owner {o[:20]!r} has his own jobs", inputs <= {f"mine-{i}"}, inputs)
    names = ["a", "A", "a:b", "a.b", "a b", "a/b", "a%2Fb", "a%3Ab", "*", ">", "a*", "é", "e\u0301", "\u212a", "K", "a\u200bb", "..", ".", "", "main", "turns", "x" * 300, "a\nb", "a|b", "{a}", "a@b", "-", "--help", "a\u202eb", "ａ", "а", "0", "null", "venue:x", "anonymous", "self", "\ud7ff"]
    import urllib.parse
    made = {}
    for i, n in enumerate(names):
        path = "/agents/" + urllib.parse.quote(n, safe="")
        s, said = v.http("PUT", path, {"model": {"provider": "scripted", "name": "echo"}, "description": f"agent {i}"})
        check(T, f"the agent {n[:10]!r} is taken or refused", s < 500, (s, said))
        if s < 300:
            made[i] = path
    for i, path in made.items():
        s, said = v.http("GET", path)
        check(T, f"the agent {path} is itself", said.get("config", {}).get("description") == f"agent {i}", said)
        s, job = v.http("POST", path + "/tasks?wait=4000", {"input": f"to {i}", "sessionId": "s:1"})
        check(T, f"the agent {path} answers for itself", job.get("output") == f"to {i}", job)
        s, said = v.http("GET", path + "/sessions")
        check(T, f"the agent {path} has one session", json.dumps(said).count("s:1") >= 1 and s == 200, said)
    # Sessions by names that meet.
    v.agent(["ok"], name="sess")
    m = v.last_model
    sessions = ["s", "S", "s:1", "s.1", "s 1", "é", "e\u0301", "main", "s%2F1", "*", ">", "0", "-1", "s|1", "{s}", "..", "x" * 200]
    for i, n in enumerate(sessions):
        n0 = len(v.model.seen[m])
        s, job = v.task("sess", f"only-{i}-", body={"sessionId": n}, wait=4000)
        if s < 300:
            text = json.dumps(v.model.seen[m][n0:])
            check(T, f"the session {n[:10]!r} sees only itself", not any(f"only-{k}-" in text for k in range(len(sessions)) if k != i), text[-300:])
        else:
            check(T, f"the session {n[:10]!r} is refused", s < 500, (s, job))
    # Arguments that only trusted code may give, by a model.
    v.agent(["kid"], name="kid")
    kid = v.last_model
    for op, input in (("agent_trigger", {"agentId": "kid", "input": 1, "after": "1h", "context": [{"with": "", "can": "*"}]}), ("agent_request", {"agentId": "kid", "input": 1, "contextIds": ["b"]}), ("agent_request", {"agentId": "kid", "input": 1, "sessionContext": {"user_id": "root"}}), ("agent_request", {"agentId": "kid", "input": 1, "caller": "root"}), ("agent_message", {"agentId": "kid", "message": 1, "contextIds": ["b"]}), ("agent_request", {"agentId": "kid", "input": 1, "origin": "x"}), ("agent_request", {"agentId": "kid", "input": 1, "owner": "local/bob"}), ("agent_request", {"agentId": "local/bob/kid", "input": 1}), ("agent_request", {"agentId": "kid", "input": 1, "_instance": "x"}), ("agent_request", {"agentId": "kid", "input": 1, "_scopes": ["transcript", "context/x"]}), ("agent_request", {"agentId": "kid", "input": 1, "budget": {"tokens": -1}})):
        v.model.seen[kid].clear()
        r, job, _ = v.calls([(op, input), ("job_run", {"operation": "v/ops/" + op.replace("_", "/"), "input": input})], {"tools": ["v/ops/agent/trigger"], "caps": [{"with": "g", "can": "agent"}]}, wait=4000)
        text = json.dumps(v.model.seen[kid])
        check(T, f"{op} with {list(input)[-1]} of a model widens nothing", job.get("status") == "COMPLETE" and "on everything" not in text and "root" not in text, (r, text[:300]))
    # An agent that waits for itself, and many that wait for each other, hold no other.
    v.agent([[("agent_chat", {"agentId": "selfish", "message": "x", "timeout": 20000})], "x"], {"tools": ["v/ops/agent/chat"]}, name="selfish")
    for i in range(20):
        v.http("POST", "/agents/selfish/tasks", {"input": i})
    v.http("PUT", "/agents/echo", {"model": {"provider": "scripted", "name": "echo"}}, owner="other/x")
    t = time.time()
    s, job = v.http("POST", "/agents/echo/tasks?wait=8000", {"input": "hello"}, owner="other/x")
    check(T, "twenty agents that wait for themselves leave others a place", job.get("status") == "COMPLETE" and time.time() - t < 6, (job, time.time() - t))
    v.http("DELETE", "/agents/selfish")


def tokens(v):
    wide = v.issue("acme/ann")
    narrow = v.issue("acme/ann", ["g/ag:agent/request"])
    narrow2 = v.issue("acme/ann", ["g/ag:agent/request", "w/x:crud/read"])
    v.write("w/x", "canary-col", token=wide)
    v.agent([[("lattice_read", {"path": "w/x"})], "done", [("lattice_read", {"path": "w/x"})], "done"] * 9, name="ag", token=wide)
    m = v.last_model
    for a, b, name in ((narrow, wide, "narrow, then wide"), (wide, narrow, "wide, then narrow"), (narrow, narrow2, "narrow, then less narrow"), (v.issue("acme/bob"), wide, "another's, then hers")):
        key = name.replace(" ", "-").replace(",", "").replace("'", "")
        s, one = v.http("POST", "/agents/ag/tasks?wait=4000", {"input": 1}, token=a, headers={"Idempotency-Key": key})
        s, two = v.http("POST", "/agents/ag/tasks?wait=4000", {"input": 1}, token=b, headers={"Idempotency-Key": key})
        check(T, f"an id, {name}: a conflict or a job of its own", s == 409 or (s == 202 and one.get("job") != two.get("job")), (s, one, two))
        check(T, f"an id, {name}: nothing of the first", not one.get("job") or one["job"] not in json.dumps(two), two)
    s, one = v.http("POST", "/invoke", {"operation": "v/ops/lattice/read", "input": {"path": "w/x"}, "wait": 3000}, token=wide, headers={"Idempotency-Key": "iv"})
    for t, who in ((narrow, "narrow"), (v.issue("acme/ann", []), "empty"), (v.issue("acme/bob"), "bob")):
        s, two = v.http("POST", "/invoke", {"operation": "v/ops/lattice/read", "input": {"path": "w/x"}, "wait": 3000}, token=t, headers={"Idempotency-Key": "iv"})
        check(T, f"invoke's answer of another is not given to {who}", "canary" not in json.dumps(two), (s, two))
    s, job = v.http("POST", "/agents/ag/tasks?wait=4000", {"input": "canary-job"}, token=wide)
    for t, who in ((narrow, "narrow"), (v.issue("acme/ann", []), "empty"), (v.issue("acme/ann", ["j/x:crud/read"]), "other j"), (v.issue("acme/ann", ["w:*"]), "w")):
        for path in ("/jobs", "/jobs?details=true", "/jobs?q=canary-job", f"/jobs/{job['job']}", f"/jobs/{job['job']}/sse", f"/values/read?path=j/{job['job']}", "/values/list?path=j", "/values/inspect?path=j", "/timers", "/approvals?all=true", "/why?path=w/x", "/agents", "/secrets", "/assets", "/agents/ag", "/agents/ag/turns", "/agents/ag/sessions"):
            s, said = v.http("GET", path, token=t)
            text = json.dumps(said)
            check(T, f"{who}: {path[:30]} gives nothing of what it has no right to", "canary-job" not in text and job["job"] not in text.replace(path, "") or s in (401, 403, 404), (s, text[:300]))
    for method, path in (("PUT", f"/jobs/{job['job']}/delete"), ("PUT", f"/jobs/{job['job']}/cancel"), ("PUT", "/agents/ag/suspend"), ("DELETE", "/agents/ag"), ("PATCH", "/agents/ag"), ("POST", "/agents/ag/fork"), ("POST", "/agents/ag/timers"), ("PUT", "/secrets/x"), ("POST", "/assets")):
        s, said = v.http(method, path, {"to": "z", "input": 1, "after": "5m", "value": "12345678", "content": "x", "config": {}} if False else ({"to": "z"} if "fork" in path else {"input": 1, "after": "5m"} if "timers" in path else {"value": "12345678"} if "secrets" in path else {"content": "x"} if "assets" in path else {"config": {"description": "x"}} if method == "PATCH" else {}), token=narrow)
        check(T, f"narrow: {method} {path[:20]} is denied", s in (401, 403, 404), (s, said))
