"""Attacks quotas: many values, inputs, outputs, mailboxes, sessions, assets, timers, pins, forks, settlements and messages by one owner whose
bytes, documents, sessions and jobs are few, over each entrance, all at once, and counts against what is really there; quotas set by
others, of odd numbers. Expected: what is kept stays at the quota, each refusal names it, deleting makes room, others are not held up."""

import base64
import hashlib
import json
import os
import threading
import time

from venue import check, nested

T = "kept_bytes"
SETS = ["quota.bytes=300000", "catalog.test=true", "worker.audit=2s"]
ECHO = {"model": {"provider": "scripted", "name": "echo", "maxTokens": 16}, "defaultTools": False, "tools": []}


def owner(v, name):
    return {"token": v.issue("acme/" + name)} if v.mode == "jwt" else {"owner": "acme/" + name}


def root(v, name):
    return {"token": v.issue("acme/root"), "owner": "acme/" + name} if v.mode == "jwt" else {"owner": "acme/" + name}


def used(v, who, what="bytes"):
    s, said = v.http("GET", "/quota", **who)
    return (said.get(what) or {}).get("used", -1) if isinstance(said, dict) else -1


def until_full(v, call, limit=60):
    """Calls until one is refused; (answers that were taken, the refusal)."""
    taken = 0
    for i in range(limit):
        s, said = call(i)
        if s >= 400 or isinstance(said, dict) and said.get("errorCode") == "QUOTA_EXCEEDED":
            return taken, (s, said)
        taken += 1
    return taken, (0, "never refused")


def attack(v):
    ways(v)
    turns(v)
    counts(v)
    numbers(v)
    together(v)
    others(v)
    books(v)


BIG = "x" * 40000


def ways(v):
    """Each entrance alone, of an owner of its own, until it is refused."""
    def invoke(op, input):
        return lambda w: lambda i: v.http("POST", "/invoke?wait=4000", {"operation": "v/ops/" + op, "input": input(i)}, **w)

    def run(op, input):
        return lambda w: lambda i: v.run(op, input(i), **w)

    def agent(method, path, body, headers=lambda i: None):
        return lambda w: (v.http("PUT", "/agents/e", ECHO, **w), lambda i: v.http(method, path(i) if callable(path) else path, body(i), headers=headers(i), **w))[1]

    def content(w):
        def put(i):
            data = os.urandom(40000)
            return v.http("PUT", f"/assets/{hashlib.sha256(data).hexdigest()}/content", raw=data, headers={"content-type": "application/octet-stream"}, **w)
        return put

    def held(w):
        v.http("PUT", "/agents/e", ECHO, **w)
        v.http("PUT", "/agents/e/suspend", {}, **w)
        return lambda i: v.http("POST", "/agents/e/tasks", {"input": f"{i}" + BIG}, **w)

    def same(w):
        v.http("PUT", "/agents/e", ECHO, **w)
        v.http("PUT", "/agents/e/suspend", {}, **w)
        return lambda i: v.http("POST", "/agents/e/messages", {"input": f"{i}" + BIG, "sessionId": "one"}, **w)

    ways = {
        "values": run("lattice/write", lambda i: {"path": f"w/v{i}", "value": BIG}),
        "keys": run("lattice/write", lambda i: {"path": ["w"] + [f"{i}" + "k" * 240] * 30, "value": "x" * 30000}),
        "one growing value": run("lattice/append", lambda i: {"path": "w/list", "value": f"{i}" + BIG}),
        "copies": lambda w: (v.run("lattice/write", {"path": "w/a", "value": BIG}, **w), run("lattice/copy", lambda i: {"from": "w/a", "to": f"w/c{i}"})(w))[1],
        "pins": lambda w: (v.run("lattice/write", {"path": "w/a", "value": BIG}, **w), lambda i: (v.run("lattice/write", {"path": "w/a", "value": f"{i}" + BIG}, **w), v.run("asset/pin", {"path": "w/a", "name": f"p{i}"}, **w))[1])[1],
        "assets of text": run("asset/store", lambda i: {"content": f"{i}" + BIG}),
        "assets of bytes": run("asset/store", lambda i: {"contentBase64": base64.b64encode(os.urandom(30000)).decode()}),
        "assets by content": content,
        "descriptions of assets": run("asset/store", lambda i: {"content": f"{i}", "description": "d" * 30000}),
        "agents": lambda w: lambda i: v.http("PUT", f"/agents/a{i}", {**ECHO, "systemPrompt": BIG}, **w),
        "forks": lambda w: (v.http("PUT", "/agents/e", {**ECHO, "systemPrompt": BIG}, **w), lambda i: v.http("POST", "/agents/e/fork", {"to": f"f{i}"}, **w))[1],
        "updates": lambda w: (v.http("PUT", "/agents/e", ECHO, **w), lambda i: v.http("PATCH", "/agents/e", {"config": {"systemPrompt": "y" * (20000 * (i + 1))}}, **w))[1],
        "tasks": agent("POST", "/agents/e/tasks?wait=6000", lambda i: {"input": f"{i}" + BIG}),
        "tasks in one session": agent("POST", "/agents/e/tasks?wait=6000", lambda i: {"input": f"{i}" + BIG, "sessionId": "one"}),
        "tasks that wait": held,
        "messages that wait": same,
        "values of a request": agent("POST", "/agents/e/tasks?wait=6000", lambda i: {"input": 1, "sessionContext": {"k": f"{i}" + BIG}}),
        "schemas of a request": agent("POST", "/agents/e/tasks?wait=6000", lambda i: {"input": 1, "responseSchema": {"type": "string", "description": f"{i}" + BIG}}),
        "timers": agent("POST", "/agents/e/timers", lambda i: {"input": f"{i}" + BIG, "after": "3h", "name": f"t{i}"}),
        "timers without a name": agent("POST", "/agents/e/timers", lambda i: {"input": f"{i}" + BIG, "after": "3h"}),
        "messages": agent("POST", "/agents/e/messages", lambda i: {"input": f"{i}" + BIG}),
        "invoked merges": invoke("json/merge", lambda i: {"values": [{"a": f"{i}" + BIG}]}),
        "invoked reads": lambda w: (v.run("lattice/write", {"path": "w/a", "value": BIG}, **w), invoke("lattice/read", lambda i: {"path": "w/a"})(w))[1],
        "invoked writes": invoke("lattice/write", lambda i: {"path": "w/same", "value": f"{i}" + BIG}),
        "invoked checks": invoke("schema/validate", lambda i: {"schema": {"const": 1}, "value": f"{i}" + BIG}),
        "invoked nonsense": invoke("lattice/write", lambda i: {"path": "w/x", "valu": f"{i}" + BIG}),
        "titles": lambda w: (v.http("PUT", "/agents/e", ECHO, **w), v.http("POST", "/agents/e/tasks?wait=5000", {"input": 1, "sessionId": "s"}, **w), lambda i: v.run("agent/rename-session", {"agentId": "e", "sessionId": "s", "title": f"{i}" + BIG}, **w))[2],
        "summaries": lambda w: (v.http("PUT", "/agents/e", ECHO, **w), v.http("POST", "/agents/e/tasks?wait=5000", {"input": 1, "sessionId": "s"}, **w), lambda i: v.run("agent/compact-session", {"agentId": "e", "sessionId": "s", "summary": f"{i}" + "z" * 16000}, **w))[2],
        "forks of sessions": lambda w: (v.http("PUT", "/agents/e", ECHO, **w), v.http("POST", "/agents/e/tasks?wait=5000", {"input": BIG, "sessionId": "s"}, **w), lambda i: v.run("agent/session-fork", {"agentId": "e", "sessionId": "s", "at": 1, "to": f"f{i}"}, **w))[2],
        "completions by hand": lambda w: (v.http("PUT", "/agents/e", ECHO, **w), v.http("PUT", "/agents/e/suspend", {}, **w), lambda i: v.run("agent/complete-task", {"agentId": "e", "taskId": v.http("POST", "/agents/e/tasks", {"input": i}, **w)[1].get("job"), "result": f"{i}" + BIG}, **w))[2],
        "reasons of cancels": lambda w: (v.http("PUT", "/agents/e", ECHO, **w), v.http("PUT", "/agents/e/suspend", {}, **w), lambda i: v.http("PUT", f"/jobs/{v.http('POST', '/agents/e/tasks', {'input': i}, **w)[1].get('job')}/cancel", {"reason": f"{i}" + BIG}, **w))[2],
        "reasons of suspensions": lambda w: lambda i: next((x for x in (v.http("PUT", f"/agents/e{i}", ECHO, **w), v.http("PUT", f"/agents/e{i}/suspend", {"reason": BIG}, **w)) if x[0] >= 400), (200, {})),
        "reasons of revocations": lambda w: lambda i: v.run("policy/revoke", {"path": f"w/r{i}", "reason": BIG}, **w),
        "paths of revocations": lambda w: lambda i: v.run("policy/revoke", {"path": f"w/r{i}/" + "/".join(["k" * 200] * 20)}, **w),
        "secrets": lambda w: lambda i: v.http("PUT", f"/secrets/S{i}", {"value": "x" * 30000, "hosts": ["a.example"]}, **w),
        "ids of callers": agent("POST", "/agents/e/messages", lambda i: {"input": 1}, lambda i: {"Idempotency-Key": f"{i}" + "k" * 100}),
        "buckets": agent("POST", "/agents/e/tasks?wait=6000", lambda i: {"input": BIG, "contextIds": [f"b{i}"]}),
        "loads": agent("POST", "/agents/e/tasks?wait=6000", lambda i: {"input": 1, "sessionId": "s", "loads": [{"path": "w/" + "/".join(["l" * 200] * 10), "label": f"{i}" + "l" * 100} for _ in range(1)]}),
    }
    for n, (name, make) in enumerate(ways.items()):
        who = owner(v, f"w{n}")
        if name == "paths of revocations" or name == "reasons of revocations":
            limit = 30
        else:
            limit = 40
        call = make(who)
        taken, (s, said) = until_full(v, call, limit)
        time.sleep(0.3)
        b = used(v, who)
        v.taken = {**getattr(v, "taken", {}), name: (taken, s, b)}
        small = name in ("titles", "summaries", "ids of callers", "one same value", "loads", "paths of revocations")
        check(T, f"{name}: what is kept stays at the quota", b <= (700000 if name in ("messages", "buckets") or "request" in name or name.startswith("tasks") else 390000), (taken, b, str(said)[:200]))
        if s and s != 400 and s != 413:
            check(T, f"{name}: the refusal names the quota", s in (507, 200, 202) and "QUOTA_EXCEEDED" in json.dumps(said) or s == 409, (taken, s, str(said)[:300]))
        elif not s and not small:
            check(T, f"{name}: {limit} of 40 KB are not all kept uncounted", b >= 0 and taken * 40000 > 300000 and b < 300000, (taken, b))
            v.uncounted = getattr(v, "uncounted", []) + [name]
        if s == 507:
            s2, said2 = v.run("lattice/write", {"path": "w/zzz", "value": BIG}, **who)
            check(T, f"{name}: a write finds no room either", s2 == 507 or b < 260000, (s2, b))


def turns(v):
    """What a running turn leaves: at most its own commit."""
    def agent(who, steps, config=None):
        name = v.agent(steps, config, **who)
        return lambda: v.http("POST", f"/agents/{name}/tasks?wait=9000", {"input": 1, "context": None if not config else ["app/user/u"]}, **who)

    def told(steps):
        """The steps again for each task: a result that the model is shown is the last thing it is shown."""
        n = [0]
        def say(body):
            results = [m["content"] for m in body["messages"] if m["role"] == "tool"]
            if results:
                return "done " + str(results[-1])[:300]
            n[0] += 1
            return [(tool, make(n[0], k)) for k, (tool, make) in enumerate(steps)]
        return [say]
    who = owner(v, "turn")
    go = agent(who, told([("lattice_write", lambda n, k: {"path": f"w/t{n}_{k}", "value": BIG})] * 4))
    ends = [go()[1] for i in range(14)]
    b = used(v, who)
    check(T, "turns that write pass the quota by one commit at most", b <= 300000 + 2 * 4 * 45000 + 60000, b)
    check(T, "a model or the caller is told so", any("QUOTA_EXCEEDED" in json.dumps(e) for e in ends), ends[-1])
    who = owner(v, "long")
    go = agent(who, ["y" * 60000])
    for i in range(20):
        go()
    check(T, "outputs of models don't pile up", used(v, who) <= 300000 + 250000, used(v, who))
    who = owner(v, "kids")
    v.agent(["z" * 20000], name="kid", **who)
    go = agent(who, told([("agent_request", lambda n, k: {"agentId": "kid", "input": "q" * 15000, "wait": 3000})] * 8))
    for i in range(6):
        go()
    check(T, "children of agents stop at the quota", used(v, who) <= 300000 + 8 * 90000 + 60000, used(v, who))
    b = used(v, who)
    for i in range(6):
        go()
    check(T, "and no further ones begin", used(v, who) <= b + 20000, (b, used(v, who)))
    who = owner(v, "mem")
    go = agent(who, told([("memory_write", lambda n, k: {"content": f"{n} {k}" + "m" * 11000})] * 8), {"resources": {"memory": {"mode": "read-write"}}})
    for i in range(8):
        go()
    check(T, "memory stops at the quota", used(v, who) <= 300000 + 2 * 8 * 14000 + 60000, used(v, who))
    b = used(v, who)
    for i in range(5):
        go()
    check(T, "and nothing more is remembered", used(v, who) <= b + 20000, (b, used(v, who)))


def counts(v):
    """Documents, sessions and jobs."""
    for what, number in {"documents": 40, "sessions": 6, "jobs": 6}.items():
        who = owner(v, "c" + what)
        s, said = v.http("PUT", "/quota", {what: number}, **root(v, "c" + what))
        check(T, f"an operator sets a quota of {what}", s == 200, (s, said))
        v.http("PUT", "/agents/e", ECHO, **who)
        if what == "documents":
            taken, (s, said) = until_full(v, lambda i: v.write(f"w/d{i}", i, **who), 80)
        elif what == "sessions":
            taken, (s, said) = until_full(v, lambda i: v.http("POST", "/agents/e/messages", {"input": 1, "sessionId": f"s{i}"}, **who), 40)
        else:
            taken, (s, said) = until_full(v, lambda i: v.http("POST", "/agents/e/tasks?wait=4000", {"input": 1, "sessionId": "one"}, **who), 40)
        check(T, f"a quota of {what} ends", s == 507 and "QUOTA_EXCEEDED" in json.dumps(said) and what in json.dumps(said), (taken, s, said))
        check(T, f"no more {what} than the quota", used(v, who, what) <= number, used(v, who, what))
        for name, call in {"a fork": lambda: v.http("POST", "/agents/e/fork", {"to": "f"}, **who), "a child": lambda: v.run("agent/request", {"agentId": "e", "input": 1, "wait": 3000}, **who), "an invocation": lambda: v.http("POST", "/invoke?wait=3000", {"operation": "v/ops/json/merge", "input": {"values": [1]}}, **who), "a timer": lambda: v.http("POST", "/agents/e/timers", {"input": 1, "after": "5h"}, **who)}.items():
            call()
            check(T, f"{name} does not pass the quota of {what}", used(v, who, what) <= number, (name, used(v, who, what)))
        s, jobs = v.http("GET", "/jobs?limit=100", **who)
        s, said = v.http("DELETE", "/agents/e?remove=true", **who)
        check(T, f"at the quota of {what} an agent can be removed", s == 200, (s, said))
        for j in jobs.get("items", []):
            v.http("PUT", f"/jobs/{j.get('id') if isinstance(j, dict) else j}/delete", **who)
        if what != "documents":
            check(T, f"deleting makes room for {what}", used(v, who, what) < number, used(v, who, what))


def numbers(v):
    who, op = owner(v, "num"), root(v, "num")
    for body in ({}, [], None, 5, {"bytes": -1}, {"bytes": 1.5}, {"bytes": "5"}, {"bytes": 2**64}, {"bytes": 2**63}, {"bytes": 1125899906842625}, {"bytes": True}, {"Bytes": 5}, {"bytes": {"limit": 5}}, {"documents": [1]}, {"jobs": 5, "extra": 1}):
        s, said = v.http("PUT", "/quota", body, **op)
        check(T, f"a quota of {body} is refused with a reason", s == 400 and len(json.dumps(said)) > 30, (s, said))
    for raw in (b'{"bytes":1e400}', b'{"bytes":1e-400}', b'{"bytes":5,"bytes":9}', b'{"bytes":NaN}', b'{"bytes":0x10}', b'{"bytes":123456789012345678901234567890}', b'{"bytes":-0}', b'{"bytes":1e3}'):
        s, said = v.http("PUT", "/quota", raw=raw, **op)
        check(T, f"a quota of {raw} is refused or exact", s == 400 or s == 200 and raw in (b'{"bytes":-0}', b'{"bytes":1e3}'), (s, said))
        v.http("PUT", "/quota", {"bytes": None}, **op)
    s, said = v.http("GET", "/quota", **who)
    check(T, "in the end it is the venue's", said.get("bytes", {}).get("limit") == 300000, said)
    if v.mode == "jwt":
        for name, token in {"the owner": v.issue("acme/num"), "another": v.issue("acme/bob"), "another tenant": v.issue("evil/eve"), "a narrowed operator": v.issue("acme/root", ["quota:*", ":*"]), "everything narrowed": v.issue("acme/num", [":*"])}.items():
            for how in ("put", "run", "invoke"):
                s, said = v.http("PUT", "/quota", {"bytes": 0}, token=token, owner="acme/num") if how == "put" else v.http("POST", "/" + how, {"operation": "v/ops/quota/set", "input": {"bytes": 0}}, token=token, owner="acme/num")
                check(T, f"{name} sets no quota by {how}", s in (401, 403) or said.get("errorCode") == "CAP_DENIED", (s, said))
        s, said = v.http("GET", "/quota", token=v.issue("acme/bob"), owner="acme/num")
        check(T, "another reads no quota", s in (401, 403), (s, said))
        r, _, _ = v.calls([("job_run", {"operation": "v/ops/quota/set", "input": {"bytes": 0}})], {"tools": ["v/ops/quota/set"]}, **who)
        s, said = v.http("GET", "/quota", **who)
        check(T, "an agent sets no quota", said.get("bytes", {}).get("limit") == 300000, (r, said))


def together(v):
    """Twenty callers at once pass a quota by no more than they have in hand."""
    for name, call in {"values": lambda i, w: v.write(f"w/p{i}", BIG, **w), "assets": lambda i, w: v.http("POST", "/assets", {"content": f"{i}" + BIG}, **w), "tasks": lambda i, w: v.http("POST", "/agents/e/tasks", {"input": f"{i}" + BIG}, **w), "invocations": lambda i, w: v.http("POST", "/invoke?wait=5000", {"operation": "v/ops/json/merge", "input": {"values": [f"{i}" + BIG]}}, **w)}.items():
        who = owner(v, "par" + name)
        v.http("PUT", "/agents/e", ECHO, **who)
        got = []
        threads = [threading.Thread(target=lambda i=i: got.append(call(i, who)[0])) for i in range(40)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        time.sleep(2)
        b = used(v, who)
        check(T, f"forty {name} at once stay at the quota", b <= 300000 + 100000, (b, sorted(got)))
        check(T, f"forty {name} at once have no error of the server", all(s in (200, 201, 202, 507, 429) for s in got), sorted(set(got)))


def others(v):
    full, good = owner(v, "w0"), owner(v, "good")
    s, said = v.write("w/x", BIG, **full)
    s2, said2 = v.write("w/x", BIG, **good)
    check(T, "an owner at his quota holds nobody else up", s == 507 and s2 == 200, (s, s2, said2))
    s, said = v.run("lattice/write", {"path": "w/v0", "value": "small"}, **full)
    check(T, "writing something smaller is possible", s == 200, (s, said))
    s, said = v.run("lattice/delete", {"path": "w/v1"}, **full)
    check(T, "deleting is possible", s == 200, (s, said))
    s, said = v.write("w/v1", "x" * 20000, **full)
    check(T, "and makes room", s == 200, (s, said))
    before = used(v, full)
    for i in range(20):
        v.run("lattice/write", {"path": "w/cas", "value": BIG, "expect": 99}, **full)
        v.run("lattice/write", {"path": "", "value": BIG}, **full)
        v.run("lattice/append", {"path": "w/v0", "value": BIG}, **full)
    check(T, "writes that are refused count nothing", used(v, full) == before, (before, used(v, full)))
    for i in range(3):
        v.write("w/back", BIG, **good)
        v.run("lattice/delete", {"path": "w/back"}, **good)
    a = used(v, good)
    v.write("w/back", BIG, **good)
    v.run("lattice/delete", {"path": "w/back"}, **good)
    check(T, "what is written and deleted leaves the count as it was", abs(used(v, good) - a) < 400, (a, used(v, good)))


def books(v):
    import set_back
    if v.mode == "up":
        done = v.cli("audit", "--output", "json", timeout=60)
    else:
        done = set_back.tool(v, "audit", "--output", "json", token=v.issue("acme/root") if v.mode == "jwt" else None)
    said = json.loads(done.stdout or b"{}")
    check(T, "what is counted is what is there", said.get("drift") == [] and said.get("unaccounted") == 0, {k: said.get(k) for k in ("drift", "unaccounted", "damagedRecords")} if said else done)
