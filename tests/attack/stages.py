"""Attacks jobs at each stage of their life (behind another, in a model's call, backing off, waiting for a child, a person, a time, paused) by everything
that ends or moves them: cancels, completions, failures, deletions, revocations, suspensions, removals, redrives, messages, twice and at once; and
ids that are sent again at each stage. Expected: each answer is clear, each job ends once, nothing is asked or held behind its end, the books close."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

from venue import Raw, check

T = "stages"
SETS = ["catalog.test=true", "spend.owner=tokens=50000000", "worker.audit=2s"]
ENDS = ("COMPLETE", "FAILED", "CANCELLED", "REJECTED")


def owner(v):
    return {"token": v.issue("acme/ann")} if v.mode == "jwt" else {"owner": "acme/ann"}


def attack(v):
    who = owner(v)
    count = 0
    for stage in STAGES:
        for action in ACTIONS:
            count += 1
            one(v, who, stage, action, count)
    crowd(v, who)
    keyed(v, who)
    books(v, who)


def busy(handler, body):
    data = b'{"error": {"message": "later"}}'
    handler.send_response(429)
    handler.send_header("retry-after", "4")
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


SLOW = lambda _: (time.sleep(2.5), "late")[1]
ASKS = [("human_ask", {"title": "T", "asks": [{"id": "a", "type": "text", "prompt": "p"}]})]
STAGES = {
    "behind another": ([SLOW], {}),
    "in a model's call": ([SLOW], {}),
    "backing off": ([Raw(busy), Raw(busy), "after"], {}),
    "waiting for a child": ([[("agent_request", {"agentId": "stkid", "input": 1, "wait": 60000})], "after"], {}),
    "waiting for a person": ([ASKS, "after"], {"tools": ["v/ops/human/ask"]}),
    "in a call of a tool": ([[("test_delay", {"delay": 2500})], "after"], {"tools": ["v/ops/test/delay"]}),
    "paused": ([SLOW, "after"], {}),
}
ACTIONS = {
    "cancel": lambda v, w, a, j: v.http("PUT", f"/jobs/{j}/cancel", {}, **w),
    "cancel twice": lambda v, w, a, j: (v.http("PUT", f"/jobs/{j}/cancel", {}, **w), v.http("PUT", f"/jobs/{j}/cancel", {}, **w))[0],
    "completion by hand": lambda v, w, a, j: v.run("agent/complete-task", {"agentId": a, "taskId": j, "result": "by hand"}, **w),
    "failure by hand": lambda v, w, a, j: v.run("agent/fail-task", {"agentId": a, "taskId": j, "error": "by hand"}, **w),
    "both by hand": lambda v, w, a, j: max(list(ThreadPoolExecutor(4).map(lambda k: v.run(f"agent/{'complete' if k % 2 else 'fail'}-task", {"agentId": a, "taskId": j, **({"result": k} if k % 2 else {"error": str(k)})}, **w), range(4))), key=lambda x: x[0] < 300),
    "deletion of its session": lambda v, w, a, j: v.run("agent/delete-session", {"agentId": a, "sessionId": "s"}, timeout=40, **w),
    "revocation of it": lambda v, w, a, j: v.run("policy/revoke", {"grant": j}, **w),
    "removal of its agent": lambda v, w, a, j: v.http("DELETE", f"/agents/{a}?remove=true", timeout=40, **w),
    "deletion of it": lambda v, w, a, j: v.http("PUT", f"/jobs/{j}/delete", {}, **w),
    "redrive": lambda v, w, a, j: v.http("PUT", f"/jobs/{j}/redrive", {}, **w),
    "pause and cancel": lambda v, w, a, j: (v.http("PUT", f"/jobs/{j}/pause", {}, **w), v.http("PUT", f"/jobs/{j}/cancel", {}, **w))[1],
    "pause and resume at once": lambda v, w, a, j: list(ThreadPoolExecutor(6).map(lambda k: v.http("PUT", f"/jobs/{j}/{'resume' if k % 2 else 'pause'}", {}, **w), range(6)))[0],
}


def status(v, job, who):
    said = v.http("GET", f"/jobs/{job}", **who)[1]
    return said.get("status") if isinstance(said, dict) else None


def one(v, who, stage, action, count):
    steps, config = STAGES[stage]
    name = f"st{count}"
    v.agent(list(steps), config, name=name, **who)
    model = v.last_model
    if stage == "waiting for a child":
        v.agent([SLOW], name="stkid", **who)
    first = None
    if stage == "behind another":
        first = v.http("POST", f"/agents/{name}/tasks", {"input": "first", "sessionId": "s"}, **who)[1].get("job")
    job = v.http("POST", f"/agents/{name}/tasks", {"input": "second", "sessionId": "s"}, **who)[1].get("job")
    if stage == "paused":
        v.http("PUT", f"/jobs/{job}/pause", {}, **who)
    want = {"waiting for a person": ("INPUT_REQUIRED",), "paused": ("PAUSED",)}.get(stage)
    for _ in range(30):
        time.sleep(0.1)
        if want and status(v, job, who) in want or not want and (v.model.seen.get(model) or stage == "behind another"):
            break
    what = f"{stage}, {action}"
    s, said = ACTIONS[action](v, who, name, job)
    check(T, f"{what}: there is a clear answer", s and s < 500 and (s < 300 or isinstance(said, dict) and said.get("error")), (s, said))
    ends = s < 300 and action in ("cancel", "cancel twice", "completion by hand", "failure by hand", "both by hand", "pause and cancel", "deletion of its session", "removal of its agent")
    if ends:
        said = v.http("GET", f"/jobs/{job}?wait=6000", **who)[1]
        check(T, f"{what}: it ends as it was told", said.get("status") in ENDS and (said.get("status") == {"cancel": "CANCELLED", "cancel twice": "CANCELLED", "pause and cancel": "CANCELLED", "completion by hand": "COMPLETE", "failure by hand": "FAILED"}.get(action, said.get("status"))), said)
        was = said.get("status"), said.get("output"), said.get("error")
    if action == "pause and resume at once" and s < 300:
        v.http("PUT", f"/jobs/{job}/resume", {}, **who)
    if stage == "waiting for a person":
        for x in v.http("GET", "/approvals?limit=100", **who)[1].get("items", []):
            if x.get("job") == job:
                check(T, f"{what}: what has ended asks nobody", not ends, x)
                v.http("POST", f"/approvals/{x['id']}", {"answers": {"a": "x"}}, **who)
    if stage == "paused" and not ends:
        v.http("PUT", f"/jobs/{job}/resume", {}, **who)
    said = v.http("GET", f"/jobs/{job}?wait=15000", timeout=25, **who)[1]
    check(T, f"{what}: it ends", said.get("status") in ENDS or action == "deletion of it" and s < 300, said)
    if ends:
        check(T, f"{what}: and stays as it ended", (said.get("status"), said.get("output"), said.get("error")) == was, (was, said))
    if action == "redrive":
        check(T, f"{what}: an open job isn't driven again", 400 <= s < 500, (s, said))
    if first:
        e = v.http("GET", f"/jobs/{first}?wait=8000", **who)[1]
        check(T, f"{what}: what is before it ends by itself", e.get("status") == "COMPLETE" or action in ("removal of its agent", "deletion of its session"), e)
    if action == "removal of its agent" and s < 300:
        return
    v.http("PATCH", f"/agents/{name}", {"config": {"model": {"provider": "scripted", "name": "echo"}}}, **who)
    s, said = v.http("POST", f"/agents/{name}/tasks?wait=9000", {"input": "third", "sessionId": "s"}, **who)
    check(T, f"{what}: its session goes on", said.get("status") == "COMPLETE", said)
    if action == "revocation of it":
        for r in v.run("policy/show", {}, **who)[1].get("revocations", []):
            v.run("policy/restore", {"id": r["id"]}, **({"token": v.issue("acme/root"), "owner": "acme/ann"} if v.mode == "jwt" else who))
    v.http("DELETE", f"/agents/{name}?remove=true", **who)


def crowd(v, who):
    """Every action at once at one job, again and again."""
    for i in range(4):
        v.agent([SLOW, "x"], name=f"stc{i}", **who)
        model = v.last_model
        job = v.http("POST", f"/agents/stc{i}/tasks", {"input": 1, "sessionId": "s"}, **who)[1]["job"]
        time.sleep(0.3 * i)
        with ThreadPoolExecutor(12) as pool:
            got = list(pool.map(lambda a: ACTIONS[a](v, who, f"stc{i}", job), [a for a in ACTIONS if a != "removal of its agent"]))
        check(T, f"everything at once, {i}: no error of the server", all(s and s < 500 for s, _ in got), [(s, str(x)[:80]) for s, x in got])
        time.sleep(4)
        said = v.http("GET", f"/jobs/{job}?wait=4000", **who)
        check(T, f"everything at once, {i}: it has ended, or is deleted", said[0] == 404 or said[1].get("status") in ENDS, said)
        for r in v.run("policy/show", {}, **who)[1].get("revocations", []):
            v.run("policy/restore", {"id": r["id"]}, **({"token": v.issue("acme/root"), "owner": "acme/ann"} if v.mode == "jwt" else who))
        v.http("PUT", f"/jobs/{job}/resume", {}, **who)
        v.http("PUT", f"/jobs/{job}/cancel", {}, **who)


def keyed(v, who):
    """The same id, sent again at each stage and behind each end, to other agents, with other bodies."""
    send = lambda agent, key, input="k", **body: v.http("POST", f"/agents/{agent}/tasks", {"input": input, **body}, headers={"Idempotency-Key": key}, **who)
    for end in ("cancel", "completion by hand", "failure by hand", "deletion of its session", "deletion of it", "removal of its agent", "pause and cancel"):
        key = "st-key-" + end.replace(" ", "-")
        v.agent([SLOW, "x"], name="stk", **who)
        v.agent(["other"], name="stother", **who)
        model = v.last_model
        s, one = send("stk", key, sessionId="s")
        s2, again = send("stk", key, sessionId="s")
        check(T, f"an id is sent again before {end}: the same job", again.get("job") == one.get("job"), (one, again))
        s, said = send("stother", key)
        check(T, f"an id of another agent's job, before {end}: a conflict", s == 409, (s, said))
        s, said = ACTIONS[end](v, who, "stk", one["job"])
        v.http("GET", f"/jobs/{one['job']}?wait=6000", **who)
        if end == "deletion of it" and s >= 300:
            s, said = ACTIONS[end](v, who, "stk", one["job"])
        if end == "removal of its agent":
            v.agent(["anew"], name="stk", **who)
        s3, again = send("stk", key, sessionId="s")
        gone = v.http("GET", f"/jobs/{one['job']}", **who)[0] == 404
        check(T, f"an id is sent again after {end}: the same job, or a clear refusal", again.get("job") == one.get("job") or 400 <= s3 < 500 or gone, (s3, again, one))
        s, said = send("stother", key, sessionId="s")
        check(T, f"an id of another agent's job, after {end}: a conflict", s == 409 or gone, (s, said))
        s, said = send("stk", key, "changed", sessionId="s")
        check(T, f"an id with another body, after {end}: a conflict", s == 409 or gone, (s, said))
        v.http("DELETE", "/agents/stk?remove=true", **who)
    s, said = v.http("POST", "/invoke?wait=5000", {"operation": "v/ops/lattice/append", "input": {"path": "w/stk", "value": 1}}, headers={"Idempotency-Key": "st-inv"}, **who)
    for method, path, body in (("POST", "/invoke", {"operation": "v/ops/lattice/append", "input": {"path": "w/stk", "value": 1}}), ("POST", "/invoke?wait=2000", {"operation": "v/ops/lattice/append", "input": {"value": 1, "path": "w/stk"}}), ("POST", "/agents/stother/tasks", {"input": 1}), ("POST", "/agents/stother/messages", {"input": 1}), ("POST", "/agents/stother/timers", {"input": 1, "after": "20m"})):
        s, said = v.http(method, path, body, headers={"Idempotency-Key": "st-inv"}, **who)
        check(T, f"an operation's id at {path}: has a clear answer", s < 500 and (s < 300 or said.get("error")), (s, said))
    time.sleep(1)
    check(T, "an append under one id is made once, whatever way it is sent", v.read("w/stk", **who)[1].get("value") == [1], v.read("w/stk", **who)[1])


def books(v, who):
    time.sleep(3)
    s, said = v.http("GET", "/spend", **who)
    held = json.dumps(said)
    caps = said.get("caps") or said.get("limits") or []
    check(T, "in the end nothing is held under the cap", s == 200 and not [c for c in caps if isinstance(c, dict) and json.dumps(c.get("held", 0)) not in ("0", "{}", "null", '{"tokens": 0}', "0.0", '{"tokens": 0, "cost": 0}', '{"tokens": 0, "cost": 0.0}')], said)
    items = [j for j in v.http("GET", "/jobs?limit=500&details=true", **who)[1].get("items", []) if j.get("status") not in ENDS]
    check(T, "in the end no job is open", not items, items[:3])
    root = {"token": v.issue("acme/root")} if v.mode == "jwt" else {}
    s, said = v.run("venue/audit", {}, **root)
    check(T, "in the end the audit misses nothing", s == 200 and not said.get("unaccounted") and not said.get("damaged"), (s, {k: said.get(k) for k in ("unaccounted", "damaged", "lost", "pending")} if isinstance(said, dict) else said))
