"""Attacks what tokens leave behind when they are taken back: by `jti`, by holder, by path: timers, agents, running tasks, waiting
approvals, handed-on chains, other tokens of the same subject, ids. Expected: gone at the next call, whatever the token says, over HTTP and
NATS; nothing starts any more that it began; other tokens go on."""

import asyncio
import json
import time

from venue import check

T = "taken_back"


def attack(v):
    root = v.issue("acme/root")
    owner = v.issue("acme/ann")
    v.write("w/x", "canary-jti", token=owner)
    v.agent([[("lattice_read", {"path": "w/x"})], "done"] * 30, name="ag", token=owner)
    m = v.last_model
    first, second = v.issue("acme/ann", jti="j-one"), v.issue("acme/ann", jti="j-two")
    check(T, "both tokens count", v.read("w/x", token=first)[0] == 200 and v.read("w/x", token=second)[0] == 200)
    s, timer = v.http("POST", "/agents/ag/timers", {"input": 1, "after": "4s"}, token=first)
    s, every = v.http("POST", "/agents/ag/timers", {"input": 1, "every": "10s", "name": "e"}, token=first)
    check(T, "timers are set under the first", timer.get("timer"), (s, timer))
    s, made = v.http("PUT", "/agents/made", {"model": {"provider": "local", "name": "jwt-made"}}, token=first)
    v.model.says("jwt-made", [[("lattice_read", {"path": "w/x"})], "done"] * 20)
    v.agent([lambda b: (time.sleep(2.5), [("lattice_read", {"path": "w/x"}), ("lattice_write", {"path": "w/late", "value": 1})])[1], "done"], name="slow", token=owner)
    ms = v.last_model
    s, running = v.http("POST", "/agents/slow/tasks", {"input": 1}, token=first)
    v.agent([[("lattice_write", {"path": "w/asked", "value": 1})], "done"], {"tools": [{"operation": "v/ops/lattice/write", "approval": "ask"}], "defaultTools": False}, name="asker", token=owner)
    s, waiting = v.http("POST", "/agents/asker/tasks", {"input": 1}, token=first)
    time.sleep(1)
    s, said = v.run("policy/revoke", {"grant": "j-one"}, token=owner)
    check(T, "the owner takes a token back", s == 200, (s, said))
    n = len(v.model.seen.get(m, []))
    for method, path, body in (("GET", "/values/read?path=w/x", None), ("GET", "/agents", None), ("GET", "/jobs", None), ("POST", "/agents/ag/tasks", {"input": 1}), ("POST", "/run", {"operation": "v/ops/lattice/read", "input": {"path": "w/x"}}), ("POST", "/run", {"operation": "v/ops/policy/restore", "input": {"id": said.get("id", "x")}}), ("GET", "/secrets", None), ("PUT", "/agents/ag", {"model": {"provider": "scripted", "name": "echo"}}), ("DELETE", "/agents/ag", None), ("GET", f"/jobs/{running.get('job')}", None), ("POST", "/invoke", {"operation": "v/ops/lattice/write", "input": {"path": "w/by", "value": 1}})):
        s, got = v.http(method, path, body, token=first)
        check(T, f"the token that was taken back: {method} {path[:30]} gives nothing", "canary" not in json.dumps(got) and (s in (401, 403, 404) or (s == 200 and not any(got.get(k) for k in ("agents", "items", "secrets") if isinstance(got, dict)))), (s, got))
    check(T, "the other token of the same subject goes on", v.read("w/x", token=second)[0] == 200, v.read("w/x", token=second))
    s, end = v.http("GET", f"/jobs/{running.get('job')}?wait=8000", token=owner)
    check(T, "the turn that was running writes nothing", v.read("w/late", token=owner)[1].get("exists") is False, end)
    check(T, "nor reads", "canary-jti" not in json.dumps(v.model.seen.get(ms, [])), "")
    s, items = v.http("GET", "/approvals", token=owner)
    ids = [a["id"] for a in items.get("items", []) if a.get("job") == waiting.get("job")]
    if ids:
        v.http("POST", f"/approvals/{ids[0]}", {"approve": {}}, token=owner)
    v.http("GET", f"/jobs/{waiting.get('job')}?wait=4000", token=owner)
    check(T, "the call that waited under it is not made", v.read("w/asked", token=owner)[1].get("exists") is False, waiting)
    time.sleep(9)
    check(T, "its timers call no model", len(v.model.seen.get(m, [])) == n, len(v.model.seen.get(m, [])) - n)
    v.model.seen["jwt-made"] = []
    s, job = v.task("made", token=owner, wait=5000)
    check(T, "an agent that was made under it reads nothing", "canary-jti" not in json.dumps(v.model.seen.get("jwt-made", [])), job)
    # The same in the queue.
    async def publish(token, key):
        import nats
        nc = await nats.connect(v.nats)
        await nc.jetstream().publish("trellis.in.acme.ann.ag.task", b'{"input":"late"}', headers={"Authorization": "Bearer " + token, "Trellis-Id": key})
        await nc.close()
    asyncio.run(publish(first, "lq1"))
    asyncio.run(publish(second, "lq2"))
    time.sleep(2.5)
    s, said = v.http("GET", "/jobs?limit=200&details=true", token=owner)
    late = {j.get("event"): j.get("status") for j in said.get("items", []) if isinstance(j, dict) and j.get("input") == "late"}
    check(T, "a token that was taken back submits nothing over NATS", late.get("lq1") in (None, "REJECTED"), late)
    check(T, "the other one does", late.get("lq2") is not None, late)
    # By holder: all tokens of the subject are gone, whatever jti; also new ones.
    v.write("w/y", "canary-y", token=v.issue("acme/carl"))
    carl = v.issue("acme/carl", jti="j-carl")
    narrow = v.issue("acme/carl", ["w/y:crud/read"])
    s, said = v.run("policy/revoke", {"holder": "acme/carl"}, token=root, owner="acme/carl")
    check(T, "an operator takes everything back from somebody", s == 200, (s, said))
    for name, t in (("old", carl), ("narrow", narrow), ("new", v.issue("acme/carl"))):
        s, got = v.read("w/y", token=t)
        check(T, f"his {name} token gives nothing", "canary" not in json.dumps(got), (s, got))
    # Narrow tokens revoke nothing of others, and restore nothing.
    t = v.issue("acme/ann", ["w/x:*", "g:*", "j:*"])
    for op, input in (("policy/revoke", {"path": "w"}), ("policy/revoke", {"holder": "acme/ann"}), ("policy/restore", {"id": "0" * 32}), ("policy/roots", {"caps": []}), ("policy/approvals", {"caps": []})):
        s, got = v.run(op, input, token=t)
        check(T, f"a narrow token can't {op} {input}", s in (401, 403), (s, got))
    # Revocations of odd things.
    for body in ({}, {"path": ""}, {"path": None}, {"holder": ""}, {"grant": ""}, {"path": "w/\u200bx"}, {"holder": "*"}, {"grant": "*"}, {"path": ["w"]}, {"path": "w/x", "extra": 1}, {"reason": "x"}, {"holder": "acme"}, {"grant": "x" * 5000}):
        s, got = v.run("policy/revoke", body, token=v.issue("acme/dora"))
        check(T, f"revoke {str(body)[:40]} is no error of the server", s < 500, (s, got))
        if body in ({}, {"reason": "x"}, {"holder": ""}, {"grant": ""}):
            check(T, f"revoke {body} is refused", 400 <= s < 500, (s, got))
